/* flusher.h -- when bytes reach the device, and the checkpoint that records it.
 *
 * A writer that asked for durability waits in rmq_flusher_wait: the first caller syncs for all that
 * have written by then (group commit on a caller's thread). Callers that arrive during a sync queue
 * up, and the first of them leads the next sync. A leader first waits until as many callers have
 * queued up as waited when the last sync ended, but no longer than that sync took. Without this,
 * callers form two groups, and each sync serves only half of them. One system call wakes a whole
 * group. A thread of the flusher flushes the bytes that no caller waits for: the commit log and
 * queues by pages and interval; all of index and queues, and then the checkpoint, at the thorough
 * interval or after RMQ_CHECKPOINT_LOG_FILES_MAX log files. A caller that must not wait requests a
 * sync, which a second thread leads; that thread syncs only the log. A failed sync is kept in
 * failure.h; no later sync makes it a success.
 *
 * The checkpoint of this library covers only durable bytes: the log up to physic_timestamp, queues
 * and index up to logics_physical_offset and logics_timestamp. Both releases of RocketMQ then start
 * recovery early enough: 5.5 reads the offset, 5.3 the timestamps.
 */
#ifndef RMQ_FLUSHER_H
#define RMQ_FLUSHER_H

#include "base/event.h"
#include "base/hook.h"
#include "file/checkpoint.h"
#include "file/wakeup.h"
#include "log/dispatch.h"

/* After a crash RocketMQ 5.5 walks back over 10 log files at most, the one made ahead of the writer
 * among them, and drops the newest index file. That file begins less than RMQ_INDEX_LOG_FILES_MAX
 * log files before the offset that the checkpoint covers. Once the log ends
 * RMQ_CHECKPOINT_LOG_FILES_MAX files after that offset, the next checkpoint is made. A writer that
 * gets one file further waits for it; its last turn may have made one more file. All these files
 * are within the walk of RocketMQ. */
#define RMQ_CHECKPOINT_LOG_FILES_MAX 2
_Static_assert(RMQ_INDEX_LOG_FILES_MAX - 1 + RMQ_CHECKPOINT_LOG_FILES_MAX + 1 + 1 + 1 <= 9,
               "within reach of RocketMQ 5.5");
/* How long a writer waits for a checkpoint. A slower disk, or a full one that prevents dispatching,
 * does not stop puts; each log file then costs them one such wait. */
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

/* A leader waits no longer than this for other callers, even if the last sync took longer. */
#define RMQ_GATHER_US_MAX 5000

/* A caller that waits for a sync led by another thread; on its stack. */
struct rmq_flush_waiter {
    int64_t offset;
    struct rmq_flush_waiter *next;
    bool leads;
    _Atomic bool
        is_queued; /* false: the waiter leads, or its sync has ended. The waiter may then be gone */
};

/* A caller that must not wait, notified through a descriptor. Zeroed at first, except for fd. */
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

    /* Held for a round of flushing, and for cutting the log: a round during a cut would record
     * offsets in the checkpoint that the cut removes. */
    pthread_mutex_t round_lock;
    pthread_mutex_t lock;
    pthread_cond_t wanted;    /* the thread is to stop, or is_hurried changed */
    bool is_hurried;          /* queues and index are to be flushed whole at once */
    pthread_cond_t caught_up; /* the whole flush was done, or the thread is to stop */
    bool syncing;             /* a thread leads a sync of the log, or is woken to */
    _Atomic int64_t sync_us;  /* how long the last sync of the log took */
    struct rmq_flush_waiter *waiters, **waiters_end; /* in order of arrival */
    struct rmq_event_count released;                 /* some waiters are no longer queued */
    int32_t queued;                                  /* how many waiters there are */
    int32_t expected; /* how many callers waited when the last sync ended */
    int32_t gathered; /* the leader waits for this many queued waiters; 0: it does not wait */
    struct rmq_event_count complete; /* as many are queued as `gathered` says */
    struct rmq_wakeups flushed;      /* the flushed offset of the log moved */
    struct rmq_hook on_flushed;      /* runs when more of the log is on the device */
    bool stop;
    pthread_t thread;
    bool has_thread;
    pthread_cond_t asked; /* the syncer has something to do, or is to stop */
    int64_t asked_offset; /* greatest requested offset; 0: no request */
    struct rmq_flush_watch *watches;
    pthread_t syncer;
    bool has_syncer;
    int64_t noted_offset; /* of the last record dispatched before queues and index were last flushed
                             whole; under round_lock */
    _Atomic int64_t thorough_offset; /* the same, once the checkpoint with it is saved */

    pthread_mutex_t checkpoint_lock; /* protects the fields and the file */
    struct rmq_checkpoint checkpoint;
    struct rmq_checkpoint written;
    int64_t published_offset; /* the mark that the file has */
};

/* checkpoint is the one that the store was opened with. */
int rmq_flusher_init(struct rmq_flusher *flusher, const struct rmq_flusher_options *options,
                     struct rmq_vfs *vfs, struct rmq_commit_log *log,
                     struct rmq_queue_table *queues, struct rmq_dispatcher *dispatcher,
                     struct rmq_failure *failure, const struct rmq_checkpoint *checkpoint,
                     struct rmq_error *err);
int rmq_flusher_start(struct rmq_flusher *flusher, struct rmq_error *err);
/* Ends the threads; flushes nothing. */
void rmq_flusher_stop(struct rmq_flusher *flusher);
void rmq_flusher_destroy(struct rmq_flusher *flusher);

/* Waits until the commit log is durable below offset. RMQ_FLUSH_TIMEOUT: the time is up; the log
 * may become durable later. RMQ_NOT_WRITABLE: a sync failed; whether the bytes are durable is
 * unknown. */
int rmq_flusher_wait(struct rmq_flusher *flusher, int64_t offset, int64_t timeout_ms,
                     struct rmq_error *err);

/* How long the last sync of the log took. A waiter may have to lead the next sync. */
static inline int64_t rmq_flusher_sync_ms(struct rmq_flusher *flusher)
{
    return atomic_load_explicit(&flusher->sync_us, memory_order_relaxed) / 1000;
}

/* As rmq_flusher_wait, for the flusher's own threads: without a time limit, and without making the
 * warmer sync zeros. */
int rmq_flusher_sync(struct rmq_flusher *flusher, int64_t offset, struct rmq_error *err);

/* Requests that the log becomes durable below offset, and returns at once. If it is not durable
 * yet, watch->fd is written to after the next sync of the log, whichever thread leads it and
 * whatever its result. Then read rmq_file_queue_flushed, and request the rest again.
 * RMQ_NOT_WRITABLE: a sync failed, as in rmq_flusher_wait. RMQ_OUT_OF_RANGE: the log ends before
 * offset. RMQ_IO: no thread could be started for the first request. */
int rmq_flusher_ask(struct rmq_flusher *flusher, struct rmq_flush_watch *watch, int64_t offset,
                    struct rmq_error *err);
/* After return no thread writes to watch->fd. */
void rmq_flusher_forget(struct rmq_flusher *flusher, struct rmq_flush_watch *watch);

/* Flushes log, queues and index in their present state and writes the checkpoint. If every record
 * is dispatched, the checkpoint then covers the whole store. */
int rmq_flusher_flush_all(struct rmq_flusher *flusher, struct rmq_error *err);

/* Removes the fields that a release of RocketMQ would not write, for a store whose checkpoint is to
 * be that release's own. For a store that is about to be closed: the mark distinguishes a crash
 * from damage. */
int rmq_flusher_unmark(struct rmq_flusher *flusher, struct rmq_error *err);

/* Writes the checkpoint if it changed. */
int rmq_flusher_save(struct rmq_flusher *flusher, struct rmq_error *err);

/* Called after the log was cut: lowers every field that is past the end of the log, and saves the
 * checkpoint. */
int rmq_flusher_lower(struct rmq_flusher *flusher, int64_t log_end, int64_t last_offset,
                      int64_t last_timestamp, struct rmq_error *err);

#endif
