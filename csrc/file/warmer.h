/* warmer.h -- a thread that makes files and pages ready ahead of the writer of a run of files.
 *
 * It makes the next file, reserves blocks, writes zeros and maps the pages, so that an append
 * normally makes no system call and takes no page fault. While puts wait for syncs it also syncs
 * the zeros: the next sync then writes pages only, without the journal.
 *
 * Large appends, as of a slave with a large lag, need no warm pages: they are written, not stored
 * to the mapping, and the thread only makes files meanwhile.
 *
 * Rolling to the next file and cutting use these functions, because the next file may exist
 * already.
 */
#ifndef RMQ_WARMER_H
#define RMQ_WARMER_H

#include "base/event.h"
#include "file/file_queue.h"

/* How far ahead of the end pages are ready, and how many bytes are written at a time. A writer that
 * has used up all ready pages waits for one such piece. */
#define RMQ_WARM_AHEAD (8 << 20)
/* The same distance before the thread makes the next file or allocates blocks, since the thread
 * then may wait for the disk: the writer must not reach cold pages meanwhile. */
#define RMQ_WARM_BEFORE_A_WAIT (64 << 20)
#define RMQ_WRITTEN_WINDOW (256 << 10)
_Static_assert(RMQ_WRITTEN_WINDOW <= RMQ_ZEROS_SIZE, "one piece");
/* Appends of at least this size are written, not stored to the mapping. */
#define RMQ_LARGE_APPEND (128 << 10)
/* The piece while puts wait for syncs: the least that a sync can write. */
#define RMQ_SYNCED_PIECE 4096
/* Syncing zeros ahead makes the disk write everything twice. The shorter syncs are worth this when
 * fewer bytes than this are appended for each wait for a sync. */
#define RMQ_WAIT_SIZE_WORTH_ZEROS (128 << 10)

struct rmq_warmer_options {
    bool whole_file;      /* fault in a whole new file, lock it in memory */
    bool syncs_ahead;     /* puts wait for syncs as a rule: always sync zeros ahead */
    int64_t large_append; /* RMQ_LARGE_APPEND unless above 0 */
};

struct rmq_warmer {
    struct rmq_file_queue *files;
    struct rmq_warmer_options options;
    pthread_t thread;
    bool has_thread;
    pthread_mutex_t lock; /* protects prepared; held to make, roll to and remove files */
    struct rmq_mapped_file *prepared; /* the next file, made ahead */
    bool stop;
    bool is_busy;                 /* the thread is working without the lock */
    bool is_held;                 /* the thread must not touch the files */
    pthread_cond_t rested;        /* the thread has stopped working on files */
    struct rmq_event_count calls; /* the thread has something to do */
    _Atomic int64_t wake_at;      /* an end past this offset wakes the thread */
    _Atomic int64_t waits;        /* waits for syncs since opening */
    _Atomic bool syncs_ahead;
    _Atomic bool is_bypassed; /* appends are large */
};

/* The thread starts at once unless the files are read-only. */
int rmq_warmer_start(struct rmq_warmer *warmer, struct rmq_file_queue *files,
                     const struct rmq_warmer_options *options, struct rmq_error *err);
/* Ends the thread and removes the file that it made ahead. */
void rmq_warmer_stop(struct rmq_warmer *warmer);

/* As rmq_mapped_file_reserve, for the bytes that the writer needs and some more. */
int rmq_warmer_reserve(struct rmq_warmer *warmer, struct rmq_mapped_file *file, int64_t upto,
                       struct rmq_error *err);
/* Stores bytes at `at`, the end of the last file: a few bytes through the mapping, many bytes by a
 * write. Does not move the end. Statuses as rmq_mapped_file_write. */
int rmq_warmer_store(struct rmq_warmer *warmer, struct rmq_mapped_file *file, int64_t at,
                     const uint8_t *data, int64_t size, struct rmq_error *err);
/* As rmq_file_queue_roll, with the file made ahead if there is one. */
int rmq_warmer_roll(struct rmq_warmer *warmer, int64_t offset, struct rmq_error *err);
/* As rmq_file_queue_truncate. The file made ahead is removed first, so that no crash leaves a gap
 * before it. */
int rmq_warmer_truncate(struct rmq_warmer *warmer, int64_t offset, struct rmq_error *err);

/* As rmq_file_queue_restart, while the thread does not touch the files. */
int rmq_warmer_restart(struct rmq_warmer *warmer, int64_t offset, struct rmq_error *err);

void rmq_warmer_wake(struct rmq_warmer *warmer);
/* Called after the end moved. */
static inline void rmq_warmer_follow(struct rmq_warmer *warmer)
{
    if (rmq_file_queue_end(warmer->files) >
        atomic_load_explicit(&warmer->wake_at, memory_order_relaxed))
        rmq_warmer_wake(warmer);
}
/* Called before a wait for a sync. */
static inline void rmq_warmer_note_wait(struct rmq_warmer *warmer)
{
    atomic_fetch_add_explicit(&warmer->waits, 1, memory_order_relaxed);
}

#endif
