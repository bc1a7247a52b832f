/* checkpoint.h -- how far a store was on the device at its last checkpoint, and the abort marker.
 *
 *   at  size  field of `checkpoint` (4096 bytes, rest zero)
 *   0   8     physic_timestamp: store timestamp up to which the commit log is flushed
 *   8   8     logics_timestamp: as above, consume queues flushed (5.5) or dispatched (5.3)
 *   16  8     index_timestamp: last timestamp of the last index file that is closed and flushed
 *   24  8     master_flushed_offset
 *   32  8     confirm_offset
 *   40  8     logics_physical_offset: start of the last record covered by a complete flush of the
 *             queues; 5.5 only
 *   48  8     flushed_offset: all records that end at or below it are durable
 *   56  4     CRC-32 of the bytes before it
 *
 * Bytes 48 to 59 belong to this library; RocketMQ neither reads nor writes them. If RocketMQ has
 * written the fields before them, the CRC is wrong and these bytes count as missing.
 *
 * Source: StoreCheckpoint of RocketMQ 5.3.3 and 5.5.0. The file `abort` exists while a store is
 * open for writing; its text is the process id. If it exists when the store is opened, the store
 * was not closed.
 */
#ifndef RMQ_CHECKPOINT_H
#define RMQ_CHECKPOINT_H

#include "base/vfs.h"

#define RMQ_CHECKPOINT_SIZE 4096
/* The confirm offset 0 means that nothing is held back. RocketMQ raises a confirm offset of 0 to
 * the log's first byte. */
#define RMQ_NOTHING_CONFIRMED (-1)

struct rmq_checkpoint {
    int64_t physic_timestamp;
    int64_t logics_timestamp;
    int64_t index_timestamp;
    int64_t master_flushed_offset;
    int64_t confirm_offset;
    int64_t logics_physical_offset;
    int64_t flushed_offset; /* -1: missing in the file */
};

/* Missing or shorter than 48 bytes: RMQ_OK, all zero but flushed_offset and *found false; recovery
 * then scans the whole log, which is always correct. */
int rmq_checkpoint_read(struct rmq_vfs *vfs, const char *path, struct rmq_checkpoint *checkpoint,
                        bool *found, struct rmq_error *err);
/* Writes in place (the 60 bytes are within one sector) and syncs; makes the file when it is
 * missing. Bytes from 60 on stay. When flushed_offset is -1, bytes 48 to 59 are zero. */
int rmq_checkpoint_write(struct rmq_vfs *vfs, const char *path,
                         const struct rmq_checkpoint *checkpoint, struct rmq_error *err);
/* Writes in place for readers on this machine, without a sync. RMQ_NOT_FOUND: the file is
 * missing. */
int rmq_checkpoint_publish(struct rmq_vfs *vfs, const char *path,
                           const struct rmq_checkpoint *checkpoint, struct rmq_error *err);

int rmq_abort_exists(struct rmq_vfs *vfs, const char *path, bool *exists, struct rmq_error *err);
/* On return the change is on the device, name included. */
int rmq_abort_create(struct rmq_vfs *vfs, const char *path, struct rmq_error *err);
int rmq_abort_remove(struct rmq_vfs *vfs, const char *path, struct rmq_error *err);

#endif
