/* dispatch.h -- from the commit log to queues and index.
 *
 * One thread walks new records, in order, and enters each into its consume queue (none for prepared
 * and rollback records), its light queues and the index. It goes no further than the limit: the
 * log's end, the confirm offset where one is set, and the flushed offset for a store that
 * acknowledges after flushing. Entering a record twice changes nothing. Source: ReputMessageService
 * and the dispatchers of DefaultMessageStore, RocketMQ 5.3.3.
 *
 * Without room on the disk the thread waits and tries again. Bytes that are not a record, or a
 * failing queue, stops it for good (failure.h): nothing is passed over.
 */
#ifndef RMQ_DISPATCH_H
#define RMQ_DISPATCH_H

#include "base/failure.h"
#include "file/wakeup.h"
#include "index/index_file.h"
#include "log/commit_log.h"

#define RMQ_DELAY_LEVELS_MAX 64
/* An index file of ours spans fewer log files than RocketMQ 5.5 walks back over after a crash (10):
 * see flusher.h. */
#define RMQ_INDEX_LOG_FILES_MAX 5
/* Queues remembered by the dispatcher; a power of two. */
#define RMQ_RECENT_QUEUES 64

struct rmq_dispatch_options {
    bool multi_dispatch;
    bool limit_to_flushed;
    bool bound_index; /* roll index files by RMQ_INDEX_LOG_FILES_MAX */
    int64_t delays_ms[RMQ_DELAY_LEVELS_MAX];
    size_t delay_count;
};

struct rmq_dispatcher {
    struct rmq_commit_log *log;
    struct rmq_queue_table *queues;
    struct rmq_index *index; /* NULL when the store keeps none */
    struct rmq_clock *clock;
    struct rmq_failure *failure;

    /* Every append reads these; they change seldom. */
    _Atomic int64_t confirm_offset; /* -1: no such bound; INT64_MAX: whatever is in the log is
                                       confirmed at once */
    struct rmq_wakeups confirmed;   /* rmq_dispatcher_confirmed moved; appends nudge it, too */
    _Atomic bool parked;
    _Atomic bool waits_for_room; /* the disk has no room for what comes next, no_room says where;
                                    written by the thread under the lock */

    /* Between what appends read and what the thread writes for every record: in one cache line,
     * an append would wait for the thread's processor to hand the line over. */
    struct rmq_dispatch_options options;

    struct rmq_queue *recent[RMQ_RECENT_QUEUES]; /* of the thread that enters records; see recall */
    _Atomic int64_t dispatched_offset;           /* everything below is entered */
    /* The last record entered. Written timestamp first, read timestamp first: the pair is never too
     * new. */
    _Atomic int64_t last_timestamp;
    _Atomic int64_t last_offset;     /* -1: none */
    _Atomic int64_t index_timestamp; /* last timestamp of the last closed index file */

    pthread_t thread;
    bool has_thread;
    pthread_mutex_t lock;
    struct rmq_wakeups dispatched; /* dispatched_offset moved */
    struct rmq_event_count calls;  /* there may be something to do */
    pthread_cond_t progressed;     /* dispatched_offset moved, or the thread came to rest */
    _Atomic int waiters;
    bool has_barrier; /* the thread can make every other one pass a fence */
    bool stop;        /* once everything is entered, at the latest at stop_by_ms */
    int64_t stop_by_ms;
    bool pause;
    bool resting;                      /* the thread is outside of any record */
    bool queues_differ, index_differs; /* see RMQ_TO_SURVEY; of recovery, which resets them */
    bool queues_lack; /* the same: units before those of the surveyed records are missing */
    bool index_lacks; /* of recovery: index files are lost, and all are built again */
    int64_t expected_below; /* the same: queues that lack records before it have lost them */
    struct rmq_error no_room; /* under the lock, as long as waits_for_room */
    int64_t no_room_offset;   /* of the record that met it; under the lock */
    uint64_t refused_looks;   /* how often there was no room */
};

void rmq_dispatcher_init(struct rmq_dispatcher *dispatcher, struct rmq_commit_log *log,
                         struct rmq_queue_table *queues, struct rmq_index *index,
                         struct rmq_clock *clock, struct rmq_failure *failure,
                         const struct rmq_dispatch_options *options);
int rmq_dispatcher_start(struct rmq_dispatcher *dispatcher, struct rmq_error *err);
/* Dispatches what lies below the limit, unless the store failed, then ends the thread. */
void rmq_dispatcher_stop(struct rmq_dispatcher *dispatcher);
void rmq_dispatcher_destroy(struct rmq_dispatcher *dispatcher);

/* RMQ_TO_OFFSETS, without RMQ_TO_QUEUES: enters nothing, but no later message gets the record's
 * queue offsets. RMQ_TO_SURVEY: changes nothing; RMQ_CORRUPT where entering the record after those
 * surveyed before would be. It sets queues_differ, or with RMQ_TO_INDEX index_differs, where these
 * may not hold what entering the record would store; until then queues recognise their units. It
 * sets queues_lack where queues lack the units before the record's.
 * RMQ_TO_REMOVED, alone: only rmq_removed_queue_count. */
enum rmq_dispatch_part {
    RMQ_TO_QUEUES = 1,
    RMQ_TO_INDEX = 2,
    RMQ_TO_OFFSETS = 4,
    RMQ_TO_SURVEY = 8,
    RMQ_TO_REMOVED = 16,
};
/* Enters one record. Used by the thread, by recovery before it starts, and by truncation while it
 * rests. */
int rmq_dispatch_record(struct rmq_dispatcher *dispatcher, const struct rmq_record *record,
                        unsigned parts, struct rmq_error *err);

/* Whether the confirm offset may hold something back. */
static inline bool rmq_dispatcher_is_bound(const struct rmq_dispatcher *dispatcher)
{
    int64_t confirm = atomic_load(&dispatcher->confirm_offset);
    return confirm >= 0 && confirm < INT64_MAX;
}
/* Where dispatching may go at most. */
int64_t rmq_dispatcher_limit(struct rmq_dispatcher *dispatcher);
/* The confirm offset, or the log's end where that comes first or nothing is bound. */
int64_t rmq_dispatcher_confirmed(const struct rmq_dispatcher *dispatcher);
/* Raises the confirm offset; one that is not above it changes nothing. INT64_MAX: it is the log's
 * end from now on. */
void rmq_dispatcher_confirm(struct rmq_dispatcher *dispatcher, int64_t offset);
/* Makes the confirm offset a bound that stays where it is: at the log's end where there was none.
 * Returns it. */
int64_t rmq_dispatcher_hold(struct rmq_dispatcher *dispatcher);

/* Wakes the thread when it sleeps and has something to do; cheap when it does not. The fence
 * between what was stored and the look at `parked` is the sleeper's business: here it would wait
 * until a whole record has left the processor, at every put. */
static inline void rmq_dispatcher_nudge(struct rmq_dispatcher *dispatcher)
{
    atomic_signal_fence(memory_order_seq_cst);
    if (atomic_load_explicit(&dispatcher->parked, memory_order_relaxed) &&
        rmq_dispatcher_limit(dispatcher) >
            atomic_load_explicit(&dispatcher->dispatched_offset, memory_order_relaxed) &&
        atomic_exchange(&dispatcher->parked, false))
        rmq_event_count_advance(&dispatcher->calls);
}

/* Until dispatched_offset >= offset. RMQ_TIMEOUT names how far it came; RMQ_NOT_WRITABLE: it
 * stopped for good; RMQ_NO_SPACE: it waits for room on the disk, and found none in a look that
 * began after the call. */
int rmq_dispatcher_wait(struct rmq_dispatcher *dispatcher, int64_t offset, int64_t timeout_ms,
                        struct rmq_error *err);

/* RMQ_NO_SPACE while the thread waits for room on the disk. */
int rmq_dispatcher_check_room(struct rmq_dispatcher *dispatcher, struct rmq_error *err);

/* The thread rests from the return of pause until resume, which sets where it goes on. */
void rmq_dispatcher_pause(struct rmq_dispatcher *dispatcher);
void rmq_dispatcher_resume(struct rmq_dispatcher *dispatcher, int64_t offset);

#endif
