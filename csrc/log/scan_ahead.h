/* scan_ahead.h -- a walk over the commit log whose records a second thread checks ahead of it.
 *
 * Checking a record (its CRCs above all, and the first touch of its pages) costs as much as
 * entering it into queues and index. The thread checks records and the caller of
 * rmq_scan_ahead_next enters them, over the same files, so that a long walk takes the time of the
 * longer part. The records, their order and the verdict are those of a plain rmq_scan. Instead of
 * waiting for the thread, the caller maps pages that the thread needs next.
 *
 * The caller's thread owns everything but `front`, which the second thread owns until it ends.
 *
 * Files stay mapped after the walk, but their pages are released; otherwise the page tables would
 * hold all of a store of 100 GiB. If a second walk follows, the first one keeps the pages of its
 * first files: mapping pages again costs more than checking their bytes.
 */
#ifndef RMQ_SCAN_AHEAD_H
#define RMQ_SCAN_AHEAD_H

#include "log/scan.h"

struct rmq_scan_ahead {
    struct rmq_scan scan;           /* the caller's: has its verdict and error count */
    struct rmq_mapped_file *walked; /* pinned: the previous file of scan */
    int64_t kept_until;             /* pages of files that end at or below it are kept, */
    int64_t kept_from; /* unless they end at or below this offset: the caller knows that the next
                          walk begins here */
    int64_t data_end;  /* the files have no data from here on */
    int64_t mapped;    /* the caller has mapped the pages before it */
    struct rmq_scan front; /* the thread's */
    int front_status;      /* the status that ended front */
    struct rmq_error front_error;
    pthread_t thread;
    bool has_thread;
    pthread_mutex_t lock; /* protects the fields below */
    pthread_cond_t moved;
    int64_t checked; /* records that end at or below it are correct */
    bool is_over;    /* front has ended */
    _Atomic bool stop;
};

/* The page tables of these bytes take 8 MiB with pages of 4 KiB. */
#define RMQ_AHEAD_KEPT_SIZE (4LL << 30)

/* Walks from `from` until the log ends; bytes before `end` may exist. is_repeated: the next walk
 * begins at `from` too, and finds the first RMQ_AHEAD_KEPT_SIZE bytes in the page tables; the last
 * walk, without is_repeated, releases them. For a short walk, or if no thread can be started, the
 * caller's thread does both parts. The struct must stay where it is until rmq_scan_ahead_finish,
 * which has to be called. */
void rmq_scan_ahead_begin(struct rmq_scan_ahead *ahead, struct rmq_file_queue *files, int64_t from,
                          int64_t end, unsigned checks, bool is_repeated);
/* As rmq_scan_next. */
int rmq_scan_ahead_next(struct rmq_scan_ahead *ahead, struct rmq_record *record,
                        struct rmq_error *err);
void rmq_scan_ahead_finish(struct rmq_scan_ahead *ahead);

#endif
