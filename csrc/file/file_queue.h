/* file_queue.h -- a run of mapped files that makes one long space of bytes.
 *
 * Files have one size and are named after the offset of their first byte, 20 decimal digits. They
 * lie in one folder, or, for a commit log over several disks, in several: file number start /
 * file_size goes to folder number modulo the count of those that may be written. Source:
 * MappedFileQueue, MultiPathMappedFileQueue of RocketMQ 5.3.3.
 *
 * One writer appends, rolls and cuts; any number of readers pin; deletion of old files may run
 * beside both.
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
    bool makes_folder_late; /* with the first file, not when it is opened */
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
    bool is_new;  /* had no file yet, and makes the first one without syncs */
    bool is_last_hidden;          /* see rmq_file_queue_show */
    bool is_last_unsynced;        /* its size may not be on the device yet; of the writer alone */
    struct rmq_mapped_file *last; /* the writer's; NULL when there is no file */
    _Atomic int64_t start_offset; /* first byte kept; -1 when there is no file */
    _Atomic int64_t end_offset;   /* behind the last byte written; 0 when there is no file */
    _Atomic int64_t flushed_offset;
    pthread_mutex_t flush_lock; /* one flush at a time */
};

/* Loads what is there and changes no file. Zero-length files at the end are not part of the queue;
 * rmq_file_queue_truncate, or the next roll, removes them. RMQ_CORRUPT names the file: a foreign
 * name, a wrong size, a gap. Missing folders are made unless read-only
 * or makes_folder_late. */
int rmq_file_queue_open(struct rmq_file_queue *queue, const struct rmq_file_queue_options *options,
                        struct rmq_error *err);
/* Lets go of every file; pinned ones live on. Does not flush. */
void rmq_file_queue_close(struct rmq_file_queue *queue);

/* Looks for files that are new, gone, or others of the same name, as a reader beside another
 * process's writer must. Read-only queues only. RMQ_CORRUPT may be the sight of a writer at work:
 * try again. */
int rmq_file_queue_refresh(struct rmq_file_queue *queue, struct rmq_error *err);

/* Pins the mapped file that holds offset. RMQ_NOT_FOUND: no file does (start_offset and end of
 * files in detail). */
int rmq_file_queue_pin(struct rmq_file_queue *queue, int64_t offset, struct rmq_mapped_file **file,
                       struct rmq_error *err);
/* As rmq_file_queue_pin, and maps nothing. */
int rmq_file_queue_pin_unmapped(struct rmq_file_queue *queue, int64_t offset,
                                struct rmq_mapped_file **file, struct rmq_error *err);
/* Pins file number index, counted from the first kept. RMQ_NOT_FOUND behind the last. */
int rmq_file_queue_pin_at(struct rmq_file_queue *queue, size_t index, struct rmq_mapped_file **file,
                          struct rmq_error *err);

/* Appends the next file: after the last one, or, when there is none, the one that holds `offset`.
 * Its name is on the device when this returns, unless the queue is new and `unsynced` is set. Files
 * before it have their size on the device. ready, when not NULL, is a file made ahead with
 * rmq_file_queue_prepare; it is taken when it is the right one. */
int rmq_file_queue_roll(struct rmq_file_queue *queue, int64_t offset, struct rmq_mapped_file *ready,
                        struct rmq_error *err);
/* Gives the last file its name, on the device when this returns unless the queue is new and
 * `unsynced` is set. RocketMQ takes an empty file of a
 * queue for one with a unit, or an empty batch queue by it; so with shows_files_late a new file
 * gets its first unit before its name. Until then it is the queue's folder with ".new" added, which
 * RocketMQ passes over, and of which a crash leaves no more than that one file. */
int rmq_file_queue_show(struct rmq_file_queue *queue, struct rmq_error *err);
/* Makes the file that starts at `start` without adding it. A left-over file of that name is emptied
 * first. */
int rmq_file_queue_prepare(struct rmq_file_queue *queue, int64_t start,
                           struct rmq_mapped_file **file, struct rmq_error *err);
/* Unlinks a prepared file and takes over its pin. Its name is off the device on return; after a
 * failure nothing changed. */
int rmq_file_queue_discard(struct rmq_file_queue *queue, struct rmq_mapped_file *file,
                           struct rmq_error *err);

/* Moves the end behind bytes stored in the last file. */
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

/* Ends the queue at offset, for good: later files are unlinked from the back, the rest of the file
 * that holds offset reads as zeros, and all of it is on the device on return. A crash in between
 * leaves a queue that ends at or behind offset. At a start above 0 the first file stays, empty, so
 * that the place is kept; below it every file goes. Beyond the end of files: nothing to do. */
int rmq_file_queue_truncate(struct rmq_file_queue *queue, int64_t offset, struct rmq_error *err);

/* Lists the folders of a queue whose files another process may have made without syncs. */
int rmq_file_queue_distrust_names(struct rmq_file_queue *queue, struct rmq_error *err);

/* Moves the end back to offset and leaves all bytes as they are, for a writer that is about to
 * store most of them again. The first file stays; rmq_file_queue_roll takes later ones as they are,
 * and rmq_file_queue_truncate, which must follow, unlinks what was not taken. Blocks count as not
 * reserved. */
void rmq_file_queue_rewind(struct rmq_file_queue *queue, int64_t offset);

/* Lets a read-only queue end at offset: positions only, files behind it are let go of until the
 * next refresh. */
void rmq_file_queue_set_end(struct rmq_file_queue *queue, int64_t offset);
/* Offset after the last byte at or after from that is not zero; from when there is none. */
int rmq_file_queue_last_byte(struct rmq_file_queue *queue, int64_t from, int64_t *end,
                             struct rmq_error *err);
/* Bytes from offset on no longer count as flushed, so that the next flush syncs them (again).
 */
void rmq_file_queue_distrust(struct rmq_file_queue *queue, int64_t offset);

/* Unlinks the first count files, never the last one. */
int rmq_file_queue_delete_head(struct rmq_file_queue *queue, size_t count, struct rmq_error *err);
/* Gives up all bytes: the queue then is one empty file that begins at offset, a multiple of the
 * file size. Files go from the front; the last one is emptied and gets the new name, so that there
 * is one at every moment, and never a gap. RMQ_READ_ONLY: a file lies in a folder that is not
 * written. */
int rmq_file_queue_restart(struct rmq_file_queue *queue, int64_t offset, struct rmq_error *err);
/* Unlinks every file. */
int rmq_file_queue_clear(struct rmq_file_queue *queue, struct rmq_error *err);

/* ---- for file_queue_cut.c and file_queue_make.c ---- */

/* Where a file lies that is not shown yet: PATH_MAX bytes. */
int rmq_file_queue_hidden_path(const struct rmq_file_queue *queue, char *path,
                               struct rmq_error *err);
/* Unlinks the files that lie ahead, from the back, and what a crash left of one not shown. */
int rmq_file_queue_drop_ahead(struct rmq_file_queue *queue, struct rmq_error *err);
/* Folder of the file that starts at `start`. */
const char *rmq_file_queue_directory(const struct rmq_file_queue *queue, int64_t start);
/* Shows the present array of files to readers. The caller holds the lock or is alone. */
void rmq_file_queue_publish(struct rmq_file_queue *queue);

/* ---- names ---- */

/* 20 digits. */
void rmq_file_name(int64_t start, char out[RMQ_FILE_NAME_SIZE]);
/* Whether name is a file name of a queue: decimal digits only, as Java's Long.parseLong reads it.
 */
bool rmq_file_name_parse(const char *name, int64_t *start);

#endif
