/* checkpoint.h -- what was on the device when the store last said so, and the abort marker.
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
 * Bytes 48 to 59 are of this library; RocketMQ neither reads nor writes them. Where it wrote the
 * fields before them since, the CRC is wrong, and they count as missing.
 *
 * Source: StoreCheckpoint of RocketMQ 5.3.3 and 5.5.0. The file `abort` is there while a store is
 * open for writing; its text is the process id. Found at opening it means that the store was not
 * closed.
 */
#ifndef RMQ_CHECKPOINT_H
#define RMQ_CHECKPOINT_H

#include "base/vfs.h"

#define RMQ_CHECKPOINT_SIZE 4096
/* A confirm offset of 0 is that of a store where nothing is held back. RocketMQ raises this one to
 * the log's first byte. */
#define RMQ_NOTHING_CONFIRMED (-1)

struct rmq_checkpoint {
    int64_t physic_timestamp;
    int64_t logics_timestamp;
    int64_t index_timestamp;
    int64_t master_flushed_offset;
    int64_t confirm_offset;
    int64_t logics_physical_offset;
    int64_t flushed_offset; /* -1: not in the file */
};

/* Missing or shorter than 48 bytes: RMQ_OK, all zero but flushed_offset and *found false; recovery
 * then scans the whole log, which is always right. */
int rmq_checkpoint_read(struct rmq_vfs *vfs, const char *path, struct rmq_checkpoint *checkpoint,
                        bool *found, struct rmq_error *err);
/* Writes in place (60 bytes lie in one sector) and syncs; makes the file when it is missing. Bytes
 * from 60 on stay; those from 48 on are zero when flushed_offset is -1. */
int rmq_checkpoint_write(struct rmq_vfs *vfs, const char *path,
                         const struct rmq_checkpoint *checkpoint, struct rmq_error *err);
/* Writes in place for readers on this machine, without a sync. The file must be there:
 * RMQ_NOT_FOUND. */
int rmq_checkpoint_publish(struct rmq_vfs *vfs, const char *path,
                           const struct rmq_checkpoint *checkpoint, struct rmq_error *err);

int rmq_abort_exists(struct rmq_vfs *vfs, const char *path, bool *exists, struct rmq_error *err);
/* On the device, name included, when this returns. */
int rmq_abort_create(struct rmq_vfs *vfs, const char *path, struct rmq_error *err);
int rmq_abort_remove(struct rmq_vfs *vfs, const char *path, struct rmq_error *err);

#endif
