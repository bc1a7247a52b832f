/* mapped_file.h -- one file of fixed size, mapped as a whole.
 *
 * Life: load or create, map on first use, write, flush, unlink. The struct is reference-counted:
 * its queue holds one pin, each reader holds one while it reads the bytes. The file is unmapped
 * when the last pin is dropped. So a pointer into a pinned file never dangles, even if the file is
 * deleted or the store is closed meanwhile.
 *
 * Positions are bytes from the file's beginning: flushed <= wrote <= size, and wrote <= reserved
 * before bytes are stored. One writer moves `wrote` with release order; readers load it with
 * acquire order.
 */
#ifndef RMQ_MAPPED_FILE_H
#define RMQ_MAPPED_FILE_H

#include <pthread.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>

#include "base/vfs.h"

/* What the files of many queues share. A process has some 65,000 mappings (vm.max_map_count), and a
 * file that is seldom used has none: see file_access.h. */
struct rmq_map_budget {
    _Atomic int64_t left; /* mappings that may still be made */
    int32_t hot_uses;     /* a file that was used this often is mapped */
};

struct rmq_mapped_file {
    struct rmq_vfs *vfs;
    struct rmq_map_budget *budget; /* NULL: mapped as soon as it is used */
    _Atomic int32_t uses;          /* uses without a mapping */
    char *path;
    char *former_path; /* path before the rename; NULL until then */
    int64_t start;     /* offset of the first byte in the space of the queue it belongs to */
    int64_t size;
    uint64_t identity; /* of the file as it was loaded, rmq_file_info */
    bool writable;
    bool keep_descriptor; /* keep the descriptor open with the file; otherwise opened when needed */
    bool is_held;         /* from rmq_mapped_file_hold to rmq_mapped_file_release */
    int fd;               /* -1 when closed */
    _Atomic(uint8_t *) base; /* NULL until mapped */
    _Atomic int64_t wrote;
    _Atomic int64_t flushed;
    _Atomic int64_t reserved; /* blocks exist below this position; a store beyond it could fault for
                                 lack of space */
    _Atomic int64_t pins;
    _Atomic bool unlinked;
    int64_t allocated;    /* blocks exist below this, and below `reserved`. Under `lock` */
    pthread_mutex_t lock; /* mapping and reserving */
};

struct rmq_mapped_file_options {
    struct rmq_vfs *vfs;
    struct rmq_map_budget *budget; /* outlives the file */
    int64_t start;
    int64_t size;
    uint64_t identity; /* of an existing file, as the caller found it */
    bool writable;
    bool keep_descriptor;
    bool is_unsynced; /* of a file to be made: its size is not on the device on return */
};

/* Loads an existing file of the right size; the caller has checked it. wrote = flushed = reserved =
 * size until rmq_mapped_file_set_end corrects them. Not mapped yet. Returns with one pin, the
 * caller's. */
int rmq_mapped_file_load(const char *path, const struct rmq_mapped_file_options *options,
                         struct rmq_mapped_file **file, struct rmq_error *err);

/* Makes the file at its full size, reading as zeros, and maps it unless it has a budget. After
 * RMQ_NO_SPACE there is no file. The name is not synced into its folder: see rmq_file_queue. One
 * pin, the caller's. */
int rmq_mapped_file_create(const char *path, const struct rmq_mapped_file_options *options,
                           struct rmq_mapped_file **file, struct rmq_error *err);

/* On return the size of the file, and the bytes written, are on the device. */
int rmq_mapped_file_sync(struct rmq_mapped_file *file, struct rmq_error *err);

/* Maps the file unless it is mapped already. */
int rmq_mapped_file_map(struct rmq_mapped_file *file, struct rmq_error *err);

static inline uint8_t *rmq_mapped_file_base(struct rmq_mapped_file *file)
{
    return atomic_load_explicit(&file->base, memory_order_acquire);
}

/* Keeps the descriptor open from hold to release, for several reads without a mapping. One thread
 * at a time holds it; other threads may read meanwhile. */
int rmq_mapped_file_hold(struct rmq_mapped_file *file, struct rmq_error *err);
void rmq_mapped_file_release(struct rmq_mapped_file *file);
/* Opens a descriptor of the caller's own. RMQ_NOT_FOUND: the file was removed. */
int rmq_mapped_file_open(struct rmq_mapped_file *file, bool write, int *fd, struct rmq_error *err);
/* Adds the file to the error of a full disk and, where known, the free space of the disk. Returns
 * err->status. */
int rmq_mapped_file_fail_allocation(const struct rmq_mapped_file *file, int64_t size,
                                    struct rmq_error *err);

/* Makes sure that bytes below upto can be stored; reserves whole pages, and a whole window of
 * `window` bytes when it must reserve. RMQ_NO_SPACE: nothing can be stored past `reserved`. */
int rmq_mapped_file_reserve(struct rmq_mapped_file *file, int64_t upto, int64_t window,
                            struct rmq_error *err);

/* Reserves blocks for the holes in [from, upto), for stores below `reserved` in a file that was
 * copied, or written by another program. */
int rmq_mapped_file_fill_holes(struct rmq_mapped_file *file, int64_t from, int64_t upto,
                               struct rmq_error *err);

/* The largest piece. */
#define RMQ_ZEROS_SIZE 262144
/* Blocks are allocated further ahead than zeros are written, by as much as the file has already. An
 * allocation waits for a busy disk or for a commit of the file system's journal, and all writes to
 * the file wait for the allocation. Blocks are allocated ahead only if the disk has at least this
 * many times as much free space, and if its file system allocates without writing. */
#define RMQ_FREE_TIMES_ALLOCATED 16
/* The end of the blocks that are allocated ahead of `reserved`; -1 where there are none, or where
 * the blocks reach the end of the file. */
int64_t rmq_mapped_file_allocated_ahead(struct rmq_mapped_file *file);

/* As rmq_mapped_file_reserve, but writes zeros over the new blocks, `piece` bytes at a time. The
 * page cache keeps the bytes of one write as one unit. Large pieces take several times less time
 * than page faults, but a sync writes each piece whole, even if few of its bytes were stored to.
 * Once zeros are synced, a sync of bytes stored over them changes no metadata, and takes half the
 * time. */
int rmq_mapped_file_reserve_written(struct rmq_mapped_file *file, int64_t upto, int64_t window,
                                    int64_t piece, struct rmq_error *err);

/* Writes bytes at `at`, which equals `wrote`, into allocated blocks, and counts the bytes as
 * reserved. Does not move `wrote`. Pages that are written whole need no zeros and no page faults
 * first. After a failure every byte from `at` on reads as zero. RMQ_NOT_WRITABLE: some byte may not
 * read as zero, so further appends are refused. */
int rmq_mapped_file_write(struct rmq_mapped_file *file, int64_t at, const void *data, int64_t size,
                          struct rmq_error *err);

/* Syncs all bytes below the value that `wrote` had at entry, and moves `flushed`. A failure leaves
 * `flushed` unchanged. */
int rmq_mapped_file_flush(struct rmq_mapped_file *file, struct rmq_error *err);

/* Sets wrote to end and makes every byte from end on read as zero, so that no stale byte is ever
 * found there. After RMQ_OK this holds on the device too. Bytes that are zero already cost
 * nothing. */
int rmq_mapped_file_cut(struct rmq_mapped_file *file, int64_t end, struct rmq_error *err);

/* Offset after the last non-zero byte at or after from; from when there is none. Reads only where
 * the file has data. */
int rmq_mapped_file_data_end(struct rmq_mapped_file *file, int64_t from, int64_t *end,
                             struct rmq_error *err);

/* An offset after which the file has no data, found without reading; the file's size at most. */
int rmq_mapped_file_extent_end(struct rmq_mapped_file *file, int64_t *end, struct rmq_error *err);

/* Sets wrote, flushed and reserved to end, which recovery found. Changes no bytes. */
void rmq_mapped_file_set_end(struct rmq_mapped_file *file, int64_t end);

/* Gives the file another name. The old name is kept in memory for threads that are reading it. May
 * be called once for a file. */
int rmq_mapped_file_rename(struct rmq_mapped_file *file, const char *path, struct rmq_error *err);

/* Unlinks the path; pinned readers keep their bytes. */
int rmq_mapped_file_unlink(struct rmq_mapped_file *file, struct rmq_error *err);

static inline void rmq_mapped_file_pin(struct rmq_mapped_file *file)
{
    atomic_fetch_add_explicit(&file->pins, 1, memory_order_relaxed);
}
/* The last unpin unmaps, closes and frees the file. */
void rmq_mapped_file_unpin(struct rmq_mapped_file *file);

#endif
