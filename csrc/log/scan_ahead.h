/* scan_ahead.h -- a walk over the commit log whose records a second thread checks ahead of it.
 *
 * Checking a record (its CRCs above all, and the first touch of its pages) costs as much as
 * entering it into queues and index. The thread does the one, the caller of rmq_scan_ahead_next the
 * other, over the same files, so that a long walk takes the time of the longer part. The records,
 * their order and the verdict are those of a plain rmq_scan. A caller that would wait for the
 * thread maps pages that the thread comes to next.
 *
 * The caller's thread owns everything but `front`, which the second thread owns until it ends.
 *
 * Files walked over stay mapped, but their pages are let go of, or a store of 100 GiB would keep as
 * much in its page tables. A walk that another one follows keeps the pages of its first files:
 * mapping pages again costs more than checking their bytes.
 */
#ifndef RMQ_SCAN_AHEAD_H
#define RMQ_SCAN_AHEAD_H

#include "log/scan.h"

struct rmq_scan_ahead {
    struct rmq_scan scan;           /* the caller's: its verdict and error count */
    struct rmq_mapped_file *walked; /* pinned: the file scan was in last */
    int64_t kept_until;             /* pages of files that end at or below it stay, */
    int64_t kept_from; /* if not at or below this: the caller's, that the next walk begins there */
    int64_t data_end;  /* the files have no data after it */
    int64_t mapped;    /* the caller mapped pages of bytes below it */
    struct rmq_scan front; /* the thread's */
    int front_status;      /* what ended it */
    struct rmq_error front_error;
    pthread_t thread;
    bool has_thread;
    pthread_mutex_t lock; /* the fields below */
    pthread_cond_t moved;
    int64_t checked; /* records that end at or below it are right */
    bool is_over;    /* front went as far as it can */
    _Atomic bool stop;
};

/* The page tables of these bytes take 8 MiB, where pages have 4 KiB. */
#define RMQ_AHEAD_KEPT_SIZE (4LL << 30)

/* Walks from `from` until the log ends; bytes before `end` are maybe there. is_repeated: the next
 * walk begins at `from` too, and finds the first RMQ_AHEAD_KEPT_SIZE bytes in the page tables;
 * finally a walk without it lets go of them. Without a thread, for a
 * short walk or where none can be made, the caller's thread does both. The struct must stay where
 * it is until rmq_scan_ahead_finish, which has to be called. */
void rmq_scan_ahead_begin(struct rmq_scan_ahead *ahead, struct rmq_file_queue *files, int64_t from,
                          int64_t end, unsigned checks, bool is_repeated);
/* As rmq_scan_next. */
int rmq_scan_ahead_next(struct rmq_scan_ahead *ahead, struct rmq_record *record,
                        struct rmq_error *err);
void rmq_scan_ahead_finish(struct rmq_scan_ahead *ahead);

#endif
