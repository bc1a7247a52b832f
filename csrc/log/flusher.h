/* flusher.h -- when bytes reach the device, and the checkpoint that says so.
 *
 * A writer that asked for durability waits in rmq_flusher_wait: the first to come syncs for all
 * that have written by then (group commit without a hand-over to another thread). Callers that come
 * during a sync queue up, and the first of them leads the next one. A leader first waits until as
 * many callers have queued up as there were when the last sync ended, for as long as that sync took
 * at most. Without this, callers form two groups, and each sync serves only half of them. One
 * system call wakes a whole group. A thread of the flusher flushes what no caller waits for: the
 * commit log by pages and interval, queues likewise, index and queues as a whole at the thorough
 * interval, or after RMQ_CHECKPOINT_LOG_FILES_MAX log files, then the checkpoint. A caller that
 * must not wait requests a sync, which a second thread leads; that thread syncs only the log. A
 * failing sync is kept in failure.h and never retried into a success.
 *
 * The checkpoint of a store of ours names only what is durable: the log up to physic_timestamp,
 * queues and index up to logics_physical_offset and logics_timestamp. Both releases of RocketMQ
 * then start recovery early enough: 5.5 reads the offset, 5.3 the timestamps.
 */
#ifndef RMQ_FLUSHER_H
#define RMQ_FLUSHER_H

#include "base/event.h"
#include "base/hook.h"
#include "file/checkpoint.h"
#include "file/wakeup.h"
#include "log/dispatch.h"

/* After a crash RocketMQ 5.5 walks back over 10 log files at most, the one made ahead of the writer
 * among them, and throws the newest index file away. That file begins less than
 * RMQ_INDEX_LOG_FILES_MAX log files before the place the checkpoint covers. Once the log ends this
 * many files after that place, the next checkpoint is made; a writer that gets one file further
 * waits for it, after a turn that may have made one more. Then all are within reach. */
#define RMQ_CHECKPOINT_LOG_FILES_MAX 2
_Static_assert(RMQ_INDEX_LOG_FILES_MAX - 1 + RMQ_CHECKPOINT_LOG_FILES_MAX + 1 + 1 + 1 <= 9,
               "within reach of RocketMQ 5.5");
/* How long a writer waits. A disk that is slower, or a full one that keeps records from being
 * dispatched, does not stop puts; they then wait once in a log file. */
#define RMQ_CHECKPOINT_PATIENCE_MS 1000

enum rmq_compatibility {
    RMQ_COMPATIBLE_BOTH, /* a checkpoint that either release recovers from */
    RMQ_COMPATIBLE_5_3,  /* the fields as 5.3.3 writes them */
    RMQ_COMPATIBLE_5_5,
};

struct rmq_flusher_options {
    int64_t log_interval_ms;
    int64_t log_thorough_ms;
    int32_t log_least_pages;
    int64_t queue_interval_ms;
    int64_t queue_thorough_ms;
    int32_t queue_least_pages;
    enum rmq_compatibility compatibility;
    const char *checkpoint_path;
};

/* A leader waits no longer than this for other callers, however long the last sync took. */
#define RMQ_GATHER_US_MAX 5000

/* A caller that waits for a sync that another thread leads; on its stack. */
struct rmq_flush_waiter {
    int64_t offset;
    struct rmq_flush_waiter *next;
    bool leads;
    _Atomic bool is_queued; /* false: it leads, or its sync is over. The waiter may then be gone */
};

/* A caller that must not wait, notified by a descriptor. Initialised with fd set, else zeros. */
struct rmq_flush_watch {
    int fd; /* an eventfd, the watcher's own */
    bool is_listed;
    struct rmq_flush_watch *next;
};

struct rmq_flusher {
    struct rmq_flusher_options options; /* the path is the flusher's own copy */
    struct rmq_vfs *vfs;
    struct rmq_commit_log *log;
    struct rmq_queue_table *queues;
    struct rmq_dispatcher *dispatcher;
    struct rmq_failure *failure;

    /* A round of flushing, or the cutting of the log: a round that went on beside a cut would note
     * in the checkpoint what is gone. */
    pthread_mutex_t round_lock;
    pthread_mutex_t lock;
    pthread_cond_t wanted;    /* the thread shall stop, or is_hurried */
    bool is_hurried;          /* queues and index shall be flushed whole now */
    pthread_cond_t caught_up; /* they were, or the thread shall stop */
    bool syncing;             /* a thread leads a sync of the log, or is woken to */
    _Atomic int64_t sync_us;  /* how long the last sync of the log took */
    struct rmq_flush_waiter *waiters, **waiters_end; /* in the order they came */
    struct rmq_event_count released;                 /* some of them are no longer queued */
    int32_t queued;                                  /* how many waiters there are */
    int32_t expected;                /* how many callers waited when the last sync ended */
    int32_t gathered;                /* the leader waits until so many are queued; 0: for none */
    struct rmq_event_count complete; /* they are */
    struct rmq_wakeups flushed;      /* the flushed offset of the log moved */
    struct rmq_hook on_flushed;      /* more of the log is on the device */
    bool stop;
    pthread_t thread;
    bool has_thread;
    pthread_cond_t asked; /* the syncer has something to do, or shall stop */
    int64_t asked_offset; /* up to where; 0: nothing is asked for */
    struct rmq_flush_watch *watches;
    pthread_t syncer;
    bool has_syncer;
    int64_t noted_offset; /* of the last record dispatched when queues and index were last flushed
                             whole; under round_lock */
    _Atomic int64_t thorough_offset; /* the same, once the checkpoint that says so is saved */

    pthread_mutex_t checkpoint_lock; /* the fields and the file */
    struct rmq_checkpoint checkpoint;
    struct rmq_checkpoint written;
    int64_t published_offset; /* the mark as the file shows it */
};

/* checkpoint is what the store was opened with. */
int rmq_flusher_init(struct rmq_flusher *flusher, const struct rmq_flusher_options *options,
                     struct rmq_vfs *vfs, struct rmq_commit_log *log,
                     struct rmq_queue_table *queues, struct rmq_dispatcher *dispatcher,
                     struct rmq_failure *failure, const struct rmq_checkpoint *checkpoint,
                     struct rmq_error *err);
int rmq_flusher_start(struct rmq_flusher *flusher, struct rmq_error *err);
/* Ends the threads; flushes nothing. */
void rmq_flusher_stop(struct rmq_flusher *flusher);
void rmq_flusher_destroy(struct rmq_flusher *flusher);

/* Until the commit log is durable below offset. RMQ_FLUSH_TIMEOUT: not in time, it may be later.
 * RMQ_NOT_WRITABLE: a sync failed; whether the bytes are durable is unknown. */
int rmq_flusher_wait(struct rmq_flusher *flusher, int64_t offset, int64_t timeout_ms,
                     struct rmq_error *err);

/* How long the last sync of the log took. A waiter may have to lead the next one. */
static inline int64_t rmq_flusher_sync_ms(struct rmq_flusher *flusher)
{
    return atomic_load_explicit(&flusher->sync_us, memory_order_relaxed) / 1000;
}

/* As rmq_flusher_wait, for the flusher's own threads: with all the time it takes, and no reason for
 * the warmer to sync zeros. */
int rmq_flusher_sync(struct rmq_flusher *flusher, int64_t offset, struct rmq_error *err);

/* Has the log made durable below offset, and waits for nothing. Where it is not yet, watch->fd is
 * written to once the next sync of the log is over, by any leader and with any outcome: then look
 * at rmq_file_queue_flushed, and ask again for the rest. RMQ_NOT_WRITABLE: a sync failed, as in
 * rmq_flusher_wait. RMQ_OUT_OF_RANGE: the log ends before offset. RMQ_IO: no thread for the first
 * who asks. */
int rmq_flusher_ask(struct rmq_flusher *flusher, struct rmq_flush_watch *watch, int64_t offset,
                    struct rmq_error *err);
/* After return no thread writes to watch->fd. */
void rmq_flusher_forget(struct rmq_flusher *flusher, struct rmq_flush_watch *watch);

/* Flushes log, queues and index as they are and writes the checkpoint. With everything dispatched
 * the checkpoint then covers the whole store. */
int rmq_flusher_flush_all(struct rmq_flusher *flusher, struct rmq_error *err);

/* Takes out of the checkpoint what a release of RocketMQ would not write, where it shall be that
 * release's own. For a store about to be closed: the mark distinguishes a crash from damage. */
int rmq_flusher_unmark(struct rmq_flusher *flusher, struct rmq_error *err);

/* Writes the checkpoint when it changed. */
int rmq_flusher_save(struct rmq_flusher *flusher, struct rmq_error *err);

/* After the log was cut: no field may name what is gone. Saved at once. */
int rmq_flusher_lower(struct rmq_flusher *flusher, int64_t log_end, int64_t last_offset,
                      int64_t last_timestamp, struct rmq_error *err);

#endif
