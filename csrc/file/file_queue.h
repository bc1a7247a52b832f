/* file_queue.h -- a series of mapped files that form one range of bytes.
 *
 * Files have one size and are named after the offset of their first byte, 20 decimal digits. They
 * are in one folder. The files of a commit log over several disks are in several folders: file
 * number start / file_size is in the writable folder with that number modulo their count. Source:
 * MappedFileQueue, MultiPathMappedFileQueue of RocketMQ 5.3.3.
 *
 * One writer appends, rolls and cuts; any number of readers pin; deletion of old files may run at
 * the same time.
 */
#ifndef RMQ_FILE_QUEUE_H
#define RMQ_FILE_QUEUE_H

#include <assert.h>

#include "file/mapped_file.h"
#include "file/unsynced_folders.h"

#define RMQ_FILE_NAME_SIZE 21 /* 20 digits and a NUL */

struct rmq_file_queue_options {
    struct rmq_vfs *vfs;
    const char *const
        *directories; /* writable folders, sorted by the caller as RocketMQ sorts them */
    size_t directory_count;
    const char *const *read_only_directories; /* searched for files, never written */
    size_t read_only_count;
    int64_t file_size;
    int64_t window; /* how many bytes are reserved at a time ahead of the writer */
    bool read_only;
    bool keep_descriptor;
    bool allow_gaps;        /* for inspection: a missing file in the middle is not an error */
    bool makes_folder_late; /* the folder is made with the first file, not at opening */
    bool shows_files_late;  /* a new file has another name until rmq_file_queue_show */
    /* Not NULL: the folder of a queue without files, the folder above it, and the first file are
     * made without syncs, and the folders in which names were made are listed here. What the queue
     * holds is durable once it is flushed and these folders are synced. */
    struct rmq_unsynced_folders *unsynced;
    /* Not NULL: files are mapped when they are hot, see file_access.h. rmq_file_queue_pin maps them
     * in any case. */
    struct rmq_map_budget *budget;
};

struct rmq_file_queue {
    struct rmq_file_queue_options options; /* folder names are the queue's own copies */
    pthread_mutex_t lock;                  /* files, count, capacity */
    struct rmq_mapped_file **files;        /* by start */
    size_t count, capacity;
    size_t ahead; /* files after `count` in the array: of a rewound queue, or of zero length */
    bool is_new;  /* the queue had no file yet, and makes the first one without syncs */
    bool is_last_hidden;   /* see rmq_file_queue_show */
    bool is_last_unsynced; /* its size may not be on the device yet; used by the writer alone */
    struct rmq_mapped_file *last; /* the writer's; NULL when there is no file */
    _Atomic int64_t start_offset; /* first byte kept; -1 when there is no file */
    _Atomic int64_t end_offset;   /* after the last byte written; 0 when there is no file */
    _Atomic int64_t flushed_offset;
    pthread_mutex_t flush_lock; /* one flush at a time */
};

/* Loads the existing files and changes none. Zero-length files at the end are not part of the
 * queue; rmq_file_queue_truncate, or the next roll, removes them. RMQ_CORRUPT names the file: a
 * foreign name, a wrong size, a gap. Missing folders are made unless read_only or makes_folder_late
 * is set. */
int rmq_file_queue_open(struct rmq_file_queue *queue, const struct rmq_file_queue_options *options,
                        struct rmq_error *err);
/* Releases every file; pinned files stay valid. Does not flush. */
void rmq_file_queue_close(struct rmq_file_queue *queue);

/* Finds files that another process's writer has added, removed, or replaced under the same name.
 * Read-only queues only. RMQ_CORRUPT may mean that the writer is changing files: try again. */
int rmq_file_queue_refresh(struct rmq_file_queue *queue, struct rmq_error *err);

/* Pins the mapped file that contains offset. RMQ_NOT_FOUND: no file does; the detail has
 * start_offset and the end of the files. */
int rmq_file_queue_pin(struct rmq_file_queue *queue, int64_t offset, struct rmq_mapped_file **file,
                       struct rmq_error *err);
/* As rmq_file_queue_pin, but does not map the file. */
int rmq_file_queue_pin_unmapped(struct rmq_file_queue *queue, int64_t offset,
                                struct rmq_mapped_file **file, struct rmq_error *err);
/* Pins file number index, counted from the first kept. RMQ_NOT_FOUND: there are not so many
 * files. */
int rmq_file_queue_pin_at(struct rmq_file_queue *queue, size_t index, struct rmq_mapped_file **file,
                          struct rmq_error *err);

/* Appends the next file: after the last one, or, when there is none, the file that contains
 * `offset`. On return its name is on the device, unless the queue is new and `unsynced` is set. The
 * sizes of earlier files are on the device. ready, when not NULL, is a file that
 * rmq_file_queue_prepare made ahead; it is used when it is the right one. */
int rmq_file_queue_roll(struct rmq_file_queue *queue, int64_t offset, struct rmq_mapped_file *ready,
                        struct rmq_error *err);
/* Gives the last file its name. On return the name is on the device, unless the queue is new and
 * `unsynced` is set. RocketMQ counts a unit in an empty file of a queue. So with shows_files_late a
 * new file gets its first unit before its name. Until then the file has the name of the queue's
 * folder with ".new" added. RocketMQ ignores this name, and a crash leaves at most this one
 * file. */
int rmq_file_queue_show(struct rmq_file_queue *queue, struct rmq_error *err);
/* Makes the file that starts at `start` without adding it. An existing file of that name is emptied
 * first. */
int rmq_file_queue_prepare(struct rmq_file_queue *queue, int64_t start,
                           struct rmq_mapped_file **file, struct rmq_error *err);
/* Unlinks a prepared file and drops the caller's pin. On return the removal is on the device; after
 * a failure nothing changed. */
int rmq_file_queue_discard(struct rmq_file_queue *queue, struct rmq_mapped_file *file,
                           struct rmq_error *err);

/* Moves the end past bytes that were stored in the last file. */
static inline void rmq_file_queue_advance(struct rmq_file_queue *queue, int64_t wrote)
{
    struct rmq_mapped_file *last = queue->last;
    assert(wrote >= 0 && wrote <= last->size);
    atomic_store_explicit(&last->wrote, wrote, memory_order_release);
    atomic_store_explicit(&queue->end_offset, last->start + wrote, memory_order_release);
}
static inline int64_t rmq_file_queue_end(const struct rmq_file_queue *queue)
{
    return atomic_load_explicit(&queue->end_offset, memory_order_acquire);
}
static inline int64_t rmq_file_queue_start(const struct rmq_file_queue *queue)
{
    return atomic_load_explicit(&queue->start_offset, memory_order_acquire);
}
static inline int64_t rmq_file_queue_flushed(const struct rmq_file_queue *queue)
{
    return atomic_load_explicit(&queue->flushed_offset, memory_order_acquire);
}

/* Has the device begin to write what a flush would wait for. A hint before many flushes: their
 * blocks are then allocated by one commit of the file system instead of one for each file. */
void rmq_file_queue_start_flush(struct rmq_file_queue *queue);
/* Everything written before the call is on the device. */
int rmq_file_queue_flush(struct rmq_file_queue *queue, struct rmq_error *err);

/* Ends the queue at offset permanently. Later files are unlinked, the last one first; the rest of
 * the file that contains offset reads as zeros. On return all of it is on the device. A crash in
 * between leaves a queue that ends at or after offset. If the queue begins above 0 and offset is
 * its start, the first file stays, empty, to keep the position. If offset is below the start, every
 * file is removed. If offset is past the end of the files, nothing happens. */
int rmq_file_queue_truncate(struct rmq_file_queue *queue, int64_t offset, struct rmq_error *err);

/* Lists the folders of a queue whose files another process may have made without syncs. */
int rmq_file_queue_distrust_names(struct rmq_file_queue *queue, struct rmq_error *err);

/* Moves the end back to offset and leaves all bytes as they are, for a writer that is about to
 * store most of them again. The first file stays. rmq_file_queue_roll reuses later files unchanged.
 * rmq_file_queue_truncate must follow; it unlinks the files that were not reused. Blocks count as
 * not reserved. */
void rmq_file_queue_rewind(struct rmq_file_queue *queue, int64_t offset);

/* Ends a read-only queue at offset. Only positions change; files after offset are released until
 * the next refresh. */
void rmq_file_queue_set_end(struct rmq_file_queue *queue, int64_t offset);
/* Offset after the last non-zero byte at or after from; from when there is none. */
int rmq_file_queue_last_byte(struct rmq_file_queue *queue, int64_t from, int64_t *end,
                             struct rmq_error *err);
/* Bytes from offset on no longer count as flushed, so that the next flush syncs them (again).
 */
void rmq_file_queue_distrust(struct rmq_file_queue *queue, int64_t offset);

/* Unlinks the first count files, but never the last file of the queue. */
int rmq_file_queue_delete_head(struct rmq_file_queue *queue, size_t count, struct rmq_error *err);
/* Drops all bytes: the queue then is one empty file that begins at offset, a multiple of the file
 * size. Files are removed from the front. The last one is emptied and renamed, so that there is a
 * file at every moment and never a gap. RMQ_READ_ONLY: a file is in a folder that is not
 * written. */
int rmq_file_queue_restart(struct rmq_file_queue *queue, int64_t offset, struct rmq_error *err);
/* Unlinks every file. */
int rmq_file_queue_clear(struct rmq_file_queue *queue, struct rmq_error *err);

/* ---- for file_queue_cut.c and file_queue_make.c ---- */

/* Path of a file that is not shown yet: PATH_MAX bytes. */
int rmq_file_queue_hidden_path(const struct rmq_file_queue *queue, char *path,
                               struct rmq_error *err);
/* Unlinks the files after `count`, the last one first, and a file that was not shown before a
 * crash. */
int rmq_file_queue_drop_ahead(struct rmq_file_queue *queue, struct rmq_error *err);
/* Folder of the file that starts at `start`. */
const char *rmq_file_queue_directory(const struct rmq_file_queue *queue, int64_t start);
/* Publishes the present array of files to readers. The caller holds the lock or is alone. */
void rmq_file_queue_publish(struct rmq_file_queue *queue);

/* ---- names ---- */

/* 20 digits. */
void rmq_file_name(int64_t start, char out[RMQ_FILE_NAME_SIZE]);
/* Whether name is a file name of a queue: decimal digits only, as Java's Long.parseLong reads it.
 */
bool rmq_file_name_parse(const char *name, int64_t *start);

#endif
