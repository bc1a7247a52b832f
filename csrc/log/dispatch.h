/* dispatch.h -- from the commit log to queues and index.
 *
 * One thread walks new records, in order, and enters each into its consume queue (none for prepared
 * and rollback records), its light queues and the index. It goes no further than the limit: the
 * log's end, the confirm offset where one is set, and the flushed offset for a store that
 * acknowledges after flushing. Entering a record twice changes nothing. Source: ReputMessageService
 * and the dispatchers of DefaultMessageStore, RocketMQ 5.3.3.
 *
 * While the disk is full the thread waits and tries again. Bytes that are not a record, or a
 * failing queue, stop the thread permanently (failure.h): no record is skipped.
 */
#ifndef RMQ_DISPATCH_H
#define RMQ_DISPATCH_H

#include "base/failure.h"
#include "file/wakeup.h"
#include "index/index_file.h"
#include "log/commit_log.h"
#include "log/confirm.h"

#define RMQ_DELAY_LEVELS_MAX 64
/* An index file of ours spans fewer log files than RocketMQ 5.5 walks back over after a crash (10):
 * see flusher.h. */
#define RMQ_INDEX_LOG_FILES_MAX 5
/* Number of queues that the dispatcher remembers; a power of two. */
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

    /* Every append reads these fields; they change seldom. */
    struct rmq_shared_confirm confirm;
    struct rmq_wakeups confirmed; /* rmq_dispatcher_confirmed moved; appends nudge it, too */
    _Atomic bool parked;
    _Atomic bool waits_for_room; /* the disk has no room for the next record; no_room is the error;
                                    the thread writes it under the lock */

    /* Between the fields that appends read and the fields that the thread writes for every record:
     * in a common cache line, an append would wait for the line to move between processors. */
    struct rmq_dispatch_options options;

    struct rmq_queue
        *recent[RMQ_RECENT_QUEUES];    /* used by the thread that enters records; see recall */
    _Atomic int64_t dispatched_offset; /* all records before it are entered */
    /* The last entered record. Writers store the timestamp first, readers load it first: the pair
     * is never too new. */
    _Atomic int64_t last_timestamp;
    _Atomic int64_t last_offset;     /* -1: none */
    _Atomic int64_t index_timestamp; /* last timestamp of the last closed index file */

    pthread_t thread;
    bool has_thread;
    pthread_mutex_t lock;
    struct rmq_wakeups dispatched; /* dispatched_offset moved */
    struct rmq_event_count calls;  /* the thread may have work */
    pthread_cond_t progressed;     /* dispatched_offset moved, or the thread is resting */
    _Atomic int waiters;
    bool has_barrier; /* the thread can make all other threads pass a fence */
    bool stop;        /* stop once every record is entered, at the latest at stop_by_ms */
    int64_t stop_by_ms;
    bool pause;
    bool resting;                      /* the thread is not entering a record */
    bool queues_differ, index_differs; /* see RMQ_TO_SURVEY; recovery resets them */
    bool queues_lack;       /* also: units before those of the surveyed records are missing */
    bool index_lacks;       /* for recovery: index files are lost, and all are built again */
    int64_t expected_below; /* for recovery: queues without the records before it have lost them */
    struct rmq_error no_room; /* valid while waits_for_room; under the lock */
    int64_t no_room_offset;   /* physical offset of the record that found no room; under the lock */
    uint64_t refused_looks;   /* how often a record found no room */
};

void rmq_dispatcher_init(struct rmq_dispatcher *dispatcher, struct rmq_commit_log *log,
                         struct rmq_queue_table *queues, struct rmq_index *index,
                         struct rmq_clock *clock, struct rmq_failure *failure,
                         const struct rmq_dispatch_options *options);
int rmq_dispatcher_start(struct rmq_dispatcher *dispatcher, struct rmq_error *err);
/* Dispatches the records below the limit, unless the store failed; then ends the thread. */
void rmq_dispatcher_stop(struct rmq_dispatcher *dispatcher);
void rmq_dispatcher_destroy(struct rmq_dispatcher *dispatcher);

/* RMQ_TO_OFFSETS, without RMQ_TO_QUEUES: enters nothing, but no later message gets the record's
 * queue offsets. RMQ_TO_SURVEY: changes nothing; RMQ_CORRUPT if entering the record after the
 * surveyed ones would fail so. It sets queues_differ, or with RMQ_TO_INDEX index_differs, if queues
 * or index may lack what entering the record would store; until then queues recognise their units.
 * It sets queues_lack if queues lack units before the record's. RMQ_TO_REMOVED, alone: only
 * rmq_removed_queue_count. */
enum rmq_dispatch_part {
    RMQ_TO_QUEUES = 1,
    RMQ_TO_INDEX = 2,
    RMQ_TO_OFFSETS = 4,
    RMQ_TO_SURVEY = 8,
    RMQ_TO_REMOVED = 16,
};
/* Enters one record. Called by the thread, by recovery before the thread starts, and by truncation
 * while the thread rests. */
int rmq_dispatch_record(struct rmq_dispatcher *dispatcher, const struct rmq_record *record,
                        unsigned parts, struct rmq_error *err);

/* Whether the confirm offset may hold records back. */
static inline bool rmq_dispatcher_is_bound(const struct rmq_dispatcher *dispatcher)
{
    return rmq_confirm_load(&dispatcher->confirm).mode == RMQ_CONFIRM_BOUND;
}
/* The limit of dispatching. */
int64_t rmq_dispatcher_limit(struct rmq_dispatcher *dispatcher);
/* The confirm offset, or the log's end if that is lower or there is no bound. */
int64_t rmq_dispatcher_confirmed(const struct rmq_dispatcher *dispatcher);
/* Raises the confirm offset; a lower one changes nothing. */
void rmq_dispatcher_confirm(struct rmq_dispatcher *dispatcher, struct rmq_confirm confirm);
/* Makes the confirm offset a fixed bound: at the log's end if there was no bound. Returns it. */
int64_t rmq_dispatcher_hold(struct rmq_dispatcher *dispatcher);

/* Wakes the thread when it sleeps and has something to do; costs little when it does not. The
 * sleeping thread makes the fence between this thread's store and its read of `parked`: a fence
 * here would wait, at every put, until a whole record has left the processor. */
static inline void rmq_dispatcher_nudge(struct rmq_dispatcher *dispatcher)
{
    atomic_signal_fence(memory_order_seq_cst);
    if (atomic_load_explicit(&dispatcher->parked, memory_order_relaxed) &&
        rmq_dispatcher_limit(dispatcher) >
            atomic_load_explicit(&dispatcher->dispatched_offset, memory_order_relaxed) &&
        atomic_exchange(&dispatcher->parked, false))
        rmq_event_count_advance(&dispatcher->calls);
}

/* Waits until dispatched_offset >= offset. RMQ_TIMEOUT: the error has dispatched_offset.
 * RMQ_NOT_WRITABLE: the thread has stopped permanently. RMQ_NO_SPACE: the thread found the disk
 * full in an attempt that began after the call. */
int rmq_dispatcher_wait(struct rmq_dispatcher *dispatcher, int64_t offset, int64_t timeout_ms,
                        struct rmq_error *err);

/* RMQ_NO_SPACE while the thread waits for room on the disk. */
int rmq_dispatcher_check_room(struct rmq_dispatcher *dispatcher, struct rmq_error *err);

/* From the return of pause until resume the thread rests. resume sets the offset at which it
 * continues. */
void rmq_dispatcher_pause(struct rmq_dispatcher *dispatcher);
void rmq_dispatcher_resume(struct rmq_dispatcher *dispatcher, int64_t offset);

#endif
