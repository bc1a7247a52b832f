#include "log/flusher.h"

#include <assert.h>
#include <stdlib.h>
#include <string.h>

#include "base/for_each.h"

#define RMQ_FLUSH_PAGE 4096
#define RMQ_CHECKPOINT_INTERVAL_MS 1000
/* Number of queues whose syncs are distributed among threads at a time. */
#define RMQ_QUEUES_TOGETHER 1024
/* A writer that waits for the checkpoint requests it again after this long. */
#define RMQ_HURRY_MS 10

/* ---- the checkpoint ---- */

/* Acknowledgements raise the confirm offset, and must not wait for a checkpoint in progress. */
static void note_confirmed(struct rmq_flusher *flusher)
{
    if (rmq_confirm_load(&flusher->dispatcher->confirm).mode == RMQ_CONFIRM_UNSET)
        return;

    int64_t confirmed = rmq_dispatcher_confirmed(flusher->dispatcher);
    if (confirmed > 0 || rmq_dispatcher_is_bound(flusher->dispatcher))
        flusher->checkpoint.confirm_offset = rmq_confirm_to_checkpoint(confirmed);
}

int rmq_flusher_save(struct rmq_flusher *flusher, struct rmq_error *err)
{
    assert(flusher->vfs && flusher->options.checkpoint_path);

    int status = RMQ_OK;

    pthread_mutex_lock(&flusher->checkpoint_lock);
    note_confirmed(flusher);
    if (memcmp(&flusher->checkpoint, &flusher->written, sizeof flusher->written) != 0) {
        status = rmq_checkpoint_write(flusher->vfs, flusher->options.checkpoint_path,
                                      &flusher->checkpoint, err);
        if (status == RMQ_OK) {
            flusher->written = flusher->checkpoint;
            flusher->published_offset = flusher->checkpoint.flushed_offset;
        }
    }
    pthread_mutex_unlock(&flusher->checkpoint_lock);
    return status;
}

/* Publishes the mark for readers in other processes: they may trust only bytes before it. It
 * reaches the device with the next saved checkpoint. */
static int publish(struct rmq_flusher *flusher, struct rmq_error *err)
{
    assert(flusher->vfs && flusher->options.checkpoint_path);

    int status = RMQ_OK;

    pthread_mutex_lock(&flusher->checkpoint_lock);
    if (flusher->checkpoint.flushed_offset > flusher->published_offset) {
        status = rmq_checkpoint_publish(flusher->vfs, flusher->options.checkpoint_path,
                                        &flusher->checkpoint, err);
        if (status == RMQ_OK)
            flusher->published_offset = flusher->checkpoint.flushed_offset;
    }
    pthread_mutex_unlock(&flusher->checkpoint_lock);
    return status == RMQ_NOT_FOUND ? RMQ_OK : status;
}

/* The latest offset at which recovery may start: the last record whose queue entries are durable
 * or, where either release of RocketMQ may recover the store, the first record of the index file
 * that the release would drop. */
static void bound_by_index(struct rmq_flusher *flusher, int64_t *offset, int64_t *timestamp)
{
    assert(*offset >= 0);

    struct rmq_index *index = flusher->dispatcher->index;
    int64_t begin = index ? rmq_index_newest_begin(index) : INT64_MAX;
    struct rmq_mapped_file *file = NULL;
    struct rmq_record record;

    if (begin >= *offset)
        return;

    *offset = 0;
    *timestamp = 0;
    if (rmq_file_queue_pin(&flusher->log->files, begin, &file, NULL) != RMQ_OK)
        return; /* That record is expired: all records in the log may be needed. */

    int64_t at = begin - file->start;
    int64_t wrote = atomic_load_explicit(&file->wrote, memory_order_acquire);

    if (at < wrote && rmq_record_decode(rmq_mapped_file_base(file) + at, (size_t)(wrote - at),
                                        begin, RMQ_CHECK_PLACE, &record, NULL) == RMQ_OK) {
        *offset = begin;
        *timestamp = record.store_timestamp;
    }
    rmq_mapped_file_unpin(file);
}

static void note_log_flushed(struct rmq_flusher *flusher, int64_t timestamp)
{
    pthread_mutex_lock(&flusher->checkpoint_lock);
    flusher->checkpoint.physic_timestamp = timestamp;
    if (flusher->options.compatibility == RMQ_COMPATIBLE_5_3)
        flusher->checkpoint.logics_timestamp =
            timestamp; /* 5.3: dispatched, but maybe not flushed */
    flusher->checkpoint.index_timestamp = atomic_load(&flusher->dispatcher->index_timestamp);
    pthread_mutex_unlock(&flusher->checkpoint_lock);
}

static void note_queues_flushed(struct rmq_flusher *flusher, int64_t offset, int64_t timestamp)
{
    if (offset < 0)
        return;
    if (flusher->options.compatibility == RMQ_COMPATIBLE_BOTH)
        bound_by_index(flusher, &offset, &timestamp);

    pthread_mutex_lock(&flusher->checkpoint_lock);
    flusher->checkpoint.logics_timestamp = timestamp;
    if (flusher->options.compatibility != RMQ_COMPATIBLE_5_3)
        flusher->checkpoint.logics_physical_offset = offset;
    flusher->checkpoint.index_timestamp = atomic_load(&flusher->dispatcher->index_timestamp);
    pthread_mutex_unlock(&flusher->checkpoint_lock);
}

/* ---- writers that are ahead of the checkpoint ---- */

/* Number of the first log file that the last checkpoint does not cover completely. */
static int64_t covered_file(struct rmq_flusher *flusher)
{
    assert(flusher->log->files.options.file_size > 0);

    int64_t start = rmq_file_queue_start(&flusher->log->files);
    int64_t covered = atomic_load(&flusher->thorough_offset);
    return (covered > start ? covered : start) / flusher->log->files.options.file_size;
}

/* Number of log files between the last checkpoint and `offset`. */
static int64_t files_ahead(struct rmq_flusher *flusher, int64_t offset)
{
    return offset / flusher->log->files.options.file_size - covered_file(flusher);
}

/* From `files` files after the last checkpoint on, writers call on_far_ahead. */
static void hold_after(struct rmq_flusher *flusher, int64_t files)
{
    assert(files > 0);

    int64_t file_size = flusher->log->files.options.file_size;
    if (flusher->options.compatibility == RMQ_COMPATIBLE_BOTH)
        atomic_store(&flusher->log->hold_at, (covered_file(flusher) + files) * file_size);
}

int rmq_flusher_lower(struct rmq_flusher *flusher, int64_t log_end, int64_t last_offset,
                      int64_t last_timestamp, struct rmq_error *err)
{
    assert(log_end >= 0);

    pthread_mutex_lock(&flusher->checkpoint_lock);

    struct rmq_checkpoint *checkpoint = &flusher->checkpoint;
    if (checkpoint->physic_timestamp > last_timestamp)
        checkpoint->physic_timestamp = last_timestamp;
    if (checkpoint->logics_timestamp > last_timestamp)
        checkpoint->logics_timestamp = last_timestamp;
    if (checkpoint->logics_physical_offset > last_offset)
        checkpoint->logics_physical_offset = last_offset > 0 ? last_offset : 0;

    if (atomic_load(&flusher->thorough_offset) > checkpoint->logics_physical_offset)
        atomic_store(&flusher->thorough_offset, checkpoint->logics_physical_offset);
    hold_after(flusher, RMQ_CHECKPOINT_LOG_FILES_MAX);

    if (checkpoint->confirm_offset > log_end)
        checkpoint->confirm_offset = rmq_dispatcher_is_bound(flusher->dispatcher)
                                         ? rmq_confirm_to_checkpoint(log_end)
                                         : log_end;
    if (checkpoint->master_flushed_offset > log_end)
        checkpoint->master_flushed_offset = log_end;
    if (checkpoint->flushed_offset > log_end)
        checkpoint->flushed_offset = log_end;

    checkpoint->index_timestamp = atomic_load(&flusher->dispatcher->index_timestamp);
    pthread_mutex_unlock(&flusher->checkpoint_lock);
    return rmq_flusher_save(flusher, err);
}

int rmq_flusher_unmark(struct rmq_flusher *flusher, struct rmq_error *err)
{
    if (flusher->options.compatibility == RMQ_COMPATIBLE_BOTH)
        return RMQ_OK;

    pthread_mutex_lock(&flusher->checkpoint_lock);
    flusher->checkpoint.flushed_offset = -1;
    pthread_mutex_unlock(&flusher->checkpoint_lock);
    return rmq_flusher_save(flusher, err);
}

/* ---- flushing ---- */

/* Recovery treats a log that ends before the mark as damaged, so the mark is the end of a
 * record. */
static void mark_flushed(struct rmq_flusher *flusher, int64_t dispatched)
{
    assert(dispatched >= 0);

    int64_t flushed = rmq_file_queue_flushed(&flusher->log->files);
    pthread_mutex_lock(&flusher->checkpoint_lock);
    flusher->checkpoint.flushed_offset = dispatched < flushed ? dispatched : flushed;

    /* All records that readers can see are confirmed. Without a bound, a confirm offset of 0 shows
     * that the store never was a replica. */
    struct rmq_confirm confirm = rmq_confirm_load(&flusher->dispatcher->confirm);
    int64_t confirmed = rmq_confirm_limit(confirm, dispatched);
    int64_t *kept = &flusher->checkpoint.confirm_offset;
    if ((confirm.mode == RMQ_CONFIRM_BOUND || *kept > 0) && confirmed > 0 && confirmed > *kept)
        *kept = confirmed;
    pthread_mutex_unlock(&flusher->checkpoint_lock);
}

static int flush_log(struct rmq_flusher *flusher, int32_t least_pages, struct rmq_error *err)
{
    struct rmq_file_queue *files = &flusher->log->files;
    int64_t dispatched = atomic_load(&flusher->dispatcher->dispatched_offset);
    int64_t timestamp = atomic_load(&flusher->dispatcher->last_timestamp);
    int64_t last = atomic_load(&flusher->dispatcher->last_offset);
    int64_t end = rmq_file_queue_end(files);
    int64_t flushed = rmq_file_queue_flushed(files);

    int status = RMQ_OK;
    if (end / RMQ_FLUSH_PAGE - flushed / RMQ_FLUSH_PAGE >= least_pages && end > flushed)
        status = rmq_flusher_sync(flusher, end, err);

    if (status == RMQ_OK && last >= 0 && rmq_file_queue_flushed(files) > last)
        note_log_flushed(flusher, timestamp);
    if (status == RMQ_OK)
        mark_flushed(flusher, dispatched);
    return status;
}

/* Starts the writes of all queues that a thorough round is about to sync. */
static void start_queues(struct rmq_flusher *flusher)
{
    assert(flusher->queues);

    for (struct rmq_queue *queue = rmq_queue_table_first(flusher->queues); queue;
         queue = rmq_queue_table_next(queue))
        if (rmq_queue_dirty(queue) > 0)
            rmq_queue_start_flush(queue);
}

static int flush_queue(void *queues, size_t item, struct rmq_error *err)
{
    struct rmq_queue **chosen = queues;
    assert(chosen[item]);

    return rmq_queue_flush(chosen[item], err);
}

/* Syncs each queue with at least so many pages to write. */
static int flush_each_queue(struct rmq_flusher *flusher, int32_t least_pages, struct rmq_error *err)
{
    assert(least_pages >= 0);

    struct rmq_queue *chosen[RMQ_QUEUES_TOGETHER];
    struct rmq_queue *queue = rmq_queue_table_first(flusher->queues);
    int status = RMQ_OK;

    while (queue && status == RMQ_OK) {
        size_t count = 0;
        for (; queue && count < RMQ_QUEUES_TOGETHER; queue = rmq_queue_table_next(queue)) {
            int64_t dirty = rmq_queue_dirty(queue);
            if (dirty > 0 && dirty / RMQ_FLUSH_PAGE >= least_pages)
                chosen[count++] = queue;
        }
        status = rmq_for_each(count, flush_queue, chosen, err);
    }
    return status;
}

static int flush_queues(struct rmq_flusher *flusher, int32_t least_pages, struct rmq_error *err)
{
    assert(flusher->dispatcher && flusher->queues);

    int64_t timestamp = atomic_load(&flusher->dispatcher->last_timestamp);
    int64_t offset = atomic_load(&flusher->dispatcher->last_offset);
    /* Recovery treats a log that ends before the checkpoint's record as damaged. */
    int status = least_pages > 0 ? RMQ_OK : flush_log(flusher, 0, err);
    if (least_pages == 0)
        start_queues(flusher);

    if (status == RMQ_OK)
        status = flush_each_queue(flusher, least_pages, err);
    if (least_pages > 0)
        return status;
    if (status == RMQ_OK)
        status = rmq_queue_table_sync_names(flusher->queues, err);
    if (status == RMQ_OK && flusher->dispatcher->index)
        status = rmq_index_flush(flusher->dispatcher->index, err);
    if (status == RMQ_OK) {
        note_queues_flushed(flusher, offset, timestamp);
        flusher->noted_offset = offset;
    }
    return status;
}

/* The checkpoint of a thorough round is saved: writers may continue. */
static void let_writers_on(struct rmq_flusher *flusher)
{
    pthread_mutex_lock(&flusher->lock);
    assert(flusher->noted_offset >= -1);
    atomic_store(&flusher->thorough_offset, flusher->noted_offset);
    hold_after(flusher, RMQ_CHECKPOINT_LOG_FILES_MAX);
    pthread_cond_broadcast(&flusher->caught_up);
    pthread_mutex_unlock(&flusher->lock);
}

/* After a failed sync the state of its bytes is unknown. A sync that had no descriptor did not
 * begin, and the next round does it. */
static void note_failure(struct rmq_flusher *flusher, const struct rmq_error *err)
{
    assert(err->status != RMQ_OK);

    if (!rmq_error_lacks_descriptor(err))
        rmq_failure_set(flusher->failure, err);
}

static int flush_all(struct rmq_flusher *flusher, struct rmq_error *err)
{
    assert(err);

    int status = rmq_failure_check(flusher->failure, err);
    if (status == RMQ_OK)
        status = flush_log(flusher, 0, err);
    if (status == RMQ_OK)
        status = flush_queues(flusher, 0, err);
    if (status != RMQ_OK) {
        note_failure(flusher, err);
        return status;
    }

    status = rmq_flusher_save(flusher, err);
    if (status == RMQ_OK)
        let_writers_on(flusher);
    else if (status != RMQ_NO_SPACE)
        rmq_failure_set(flusher->failure, err);
    return status;
}

int rmq_flusher_flush_all(struct rmq_flusher *flusher, struct rmq_error *err)
{
    struct rmq_error own;
    pthread_mutex_lock(&flusher->round_lock);
    int status = flush_all(flusher, err ? err : &own);
    pthread_mutex_unlock(&flusher->round_lock);
    return status;
}

/* Makes the next checkpoint, and waits for it where the log is too far ahead of the last one. */
static void keep_up(void *owner, bool may_work)
{
    struct rmq_flusher *flusher = owner;
    assert(flusher->log && flusher->dispatcher);
    int64_t end = rmq_file_queue_end(&flusher->log->files);
    int64_t deadline_ms = rmq_monotonic_ms() + RMQ_CHECKPOINT_PATIENCE_MS;
    (void)may_work;

    pthread_mutex_lock(&flusher->lock);
    flusher->is_hurried = true;
    pthread_cond_signal(&flusher->wanted);
    hold_after(flusher, RMQ_CHECKPOINT_LOG_FILES_MAX + 1);

    while (files_ahead(flusher, end) > RMQ_CHECKPOINT_LOG_FILES_MAX && !flusher->stop &&
           atomic_load(&flusher->failure->status) == RMQ_OK) {
        /* Unconfirmed records are not dispatched, however long their writer waits. */
        if (rmq_dispatcher_is_bound(flusher->dispatcher) || rmq_monotonic_ms() >= deadline_ms) {
            hold_after(flusher, files_ahead(flusher, end) + 1);
            break;
        }

        struct timespec at = rmq_monotonic_after(RMQ_HURRY_MS);
        flusher->is_hurried = true;
        pthread_cond_signal(&flusher->wanted);
        pthread_cond_timedwait(&flusher->caught_up, &flusher->lock, &at);
    }
    pthread_mutex_unlock(&flusher->lock);
}

/* ---- the thread ---- */

struct timer {
    int64_t due_ms;
    int64_t interval_ms;
};

static bool is_due(struct timer *timer, int64_t now_ms)
{
    assert(timer->interval_ms > 0);

    if (now_ms < timer->due_ms)
        return false;
    timer->due_ms = now_ms + timer->interval_ms;
    return true;
}

struct timers {
    struct timer log, log_thorough, queues, queues_thorough, checkpoint;
};

static struct timer timer_from(int64_t interval_ms, int64_t now_ms)
{
    assert(now_ms >= 0);

    int64_t interval = interval_ms > 0 ? interval_ms : 1;
    struct timer timer = {now_ms + interval, interval};
    return timer;
}

static int64_t next_due(const struct timers *timers)
{
    const struct timer *all[] = {&timers->log, &timers->log_thorough, &timers->queues,
                                 &timers->queues_thorough, &timers->checkpoint};
    int64_t due = all[0]->due_ms;
    for (size_t i = 1; i < sizeof all / sizeof all[0]; ++i)
        due = all[i]->due_ms < due ? all[i]->due_ms : due;
    assert(due > 0);
    return due;
}

static bool is_checkpoint_far_behind(struct rmq_flusher *flusher)
{
    return flusher->options.compatibility == RMQ_COMPATIBLE_BOTH &&
           files_ahead(flusher, atomic_load(&flusher->dispatcher->last_offset)) >=
               RMQ_CHECKPOINT_LOG_FILES_MAX;
}

static int flush_due(struct rmq_flusher *flusher, struct timers *timers, bool is_hurried,
                     int64_t now_ms, struct rmq_error *err)
{
    assert(now_ms >= 0);

    const struct rmq_flusher_options *options = &flusher->options;
    int status = RMQ_OK;
    bool log_due = is_due(&timers->log, now_ms),
         log_thorough = is_due(&timers->log_thorough, now_ms);
    bool queues_due = is_due(&timers->queues, now_ms),

         queues_thorough = is_due(&timers->queues_thorough, now_ms);
    queues_thorough = is_hurried || is_checkpoint_far_behind(flusher) || queues_thorough;

    if (log_due || log_thorough)
        status = flush_log(flusher, log_thorough ? 0 : options->log_least_pages, err);
    if (status == RMQ_OK && (queues_due || queues_thorough))
        status = flush_queues(flusher, queues_thorough ? 0 : options->queue_least_pages, err);

    bool checkpoint_due = is_due(&timers->checkpoint, now_ms);
    if (status != RMQ_OK)
        return status;

    status = (checkpoint_due || queues_thorough ? rmq_flusher_save : publish)(flusher, err);
    if (queues_thorough && status == RMQ_OK)
        let_writers_on(flusher);
    /* An old checkpoint covers less, but is not wrong: a full disk is not a reason to stop. */
    return status == RMQ_NO_SPACE ? RMQ_OK : status;
}

static int turn(struct rmq_flusher *flusher, struct timers *timers, bool is_hurried,
                struct rmq_error *err)
{
    int status = RMQ_OK;

    pthread_mutex_lock(&flusher->round_lock);
    /* Under the lock: a cut that failed meanwhile may have removed only a part of the bytes. No
     * checkpoint may cover them. */
    if (atomic_load(&flusher->failure->status) == RMQ_OK)
        status = flush_due(flusher, timers, is_hurried, rmq_monotonic_ms(), err);
    pthread_mutex_unlock(&flusher->round_lock);
    return status;
}

static void *run(void *argument)
{
    struct rmq_flusher *flusher = argument;
    const struct rmq_flusher_options *options = &flusher->options;
    int64_t now_ms = rmq_monotonic_ms();
    struct timers timers = {
        .log = timer_from(options->log_interval_ms, now_ms),
        .log_thorough = timer_from(options->log_thorough_ms, now_ms),
        .queues = timer_from(options->queue_interval_ms, now_ms),
        .queues_thorough = timer_from(options->queue_thorough_ms, now_ms),
        .checkpoint = timer_from(RMQ_CHECKPOINT_INTERVAL_MS, now_ms),
    };

    pthread_mutex_lock(&flusher->lock);
    while (!flusher->stop) {
        int64_t wait_ms = next_due(&timers) - rmq_monotonic_ms();
        bool is_hurried = flusher->is_hurried;
        if (wait_ms > 0 && !is_hurried) {
            struct timespec at = rmq_monotonic_after(wait_ms);
            pthread_cond_timedwait(&flusher->wanted, &flusher->lock, &at);
            continue;
        }

        flusher->is_hurried = false;

        pthread_mutex_unlock(&flusher->lock);

        struct rmq_error error;
        if (atomic_load(&flusher->failure->status) == RMQ_OK &&
            turn(flusher, &timers, is_hurried, &error) != RMQ_OK)
            note_failure(flusher, &error);
        pthread_mutex_lock(&flusher->lock);
        if (atomic_load(&flusher->failure->status) != RMQ_OK && !flusher->stop)
            pthread_cond_wait(
                &flusher->wanted,
                &flusher->lock); /* No byte may be recorded as durable from here on. */
    }
    pthread_mutex_unlock(&flusher->lock);
    return NULL;
}

static int64_t flushed_of(const void *files)
{
    return rmq_file_queue_flushed(files);
}

int rmq_flusher_init(struct rmq_flusher *flusher, const struct rmq_flusher_options *options,
                     struct rmq_vfs *vfs, struct rmq_commit_log *log,
                     struct rmq_queue_table *queues, struct rmq_dispatcher *dispatcher,
                     struct rmq_failure *failure, const struct rmq_checkpoint *checkpoint,
                     struct rmq_error *err)
{
    assert(options->checkpoint_path && checkpoint);
    assert(log && queues && dispatcher && failure);

    memset(flusher, 0, sizeof *flusher);
    flusher->options = *options;
    flusher->options.checkpoint_path = strdup(options->checkpoint_path);
    if (!flusher->options.checkpoint_path)
        return rmq_fail(err, RMQ_NO_MEMORY, -1, "no memory for the flusher");

    flusher->vfs = vfs;
    flusher->log = log;
    flusher->queues = queues;
    flusher->dispatcher = dispatcher;
    flusher->failure = failure;
    flusher->waiters_end = &flusher->waiters;

    flusher->checkpoint = flusher->written = *checkpoint;
    atomic_store(&flusher->thorough_offset, checkpoint->logics_physical_offset);

    pthread_mutex_init(&flusher->round_lock, NULL);
    pthread_mutex_init(&flusher->lock, NULL);
    pthread_mutex_init(&flusher->checkpoint_lock, NULL);
    rmq_wakeups_init(&flusher->flushed, flushed_of, &flusher->log->files);
    rmq_hook_init(&flusher->on_flushed);

    pthread_condattr_t monotonic;
    pthread_condattr_init(&monotonic);
    pthread_condattr_setclock(&monotonic, CLOCK_MONOTONIC);
    pthread_cond_init(&flusher->wanted, &monotonic);
    pthread_cond_init(&flusher->caught_up, &monotonic);
    pthread_cond_init(&flusher->asked, NULL);
    pthread_condattr_destroy(&monotonic);
    return RMQ_OK;
}

int rmq_flusher_start(struct rmq_flusher *flusher, struct rmq_error *err)
{
    assert(!flusher->has_thread);

    int error = pthread_create(&flusher->thread, NULL, run, flusher);
    if (error)
        return rmq_fail_os(err, error, "starting the flusher thread");

    flusher->has_thread = true;
    rmq_hook_set(&flusher->log->on_far_ahead, keep_up, flusher);
    hold_after(flusher, RMQ_CHECKPOINT_LOG_FILES_MAX);
    return RMQ_OK;
}

void rmq_flusher_stop(struct rmq_flusher *flusher)
{
    if (!flusher->has_thread)
        return;

    pthread_mutex_lock(&flusher->lock);
    flusher->stop = true;
    pthread_cond_signal(&flusher->wanted);
    pthread_cond_signal(&flusher->asked);
    pthread_cond_broadcast(&flusher->caught_up);
    pthread_mutex_unlock(&flusher->lock);

    rmq_hook_unset(&flusher->log->on_far_ahead, flusher);
    pthread_join(flusher->thread, NULL);
    if (flusher->has_syncer)
        pthread_join(flusher->syncer, NULL);
    flusher->has_thread = flusher->has_syncer = false;
}

void rmq_flusher_destroy(struct rmq_flusher *flusher)
{
    assert(!flusher->has_thread);
    assert(!flusher->waiters);

    pthread_cond_destroy(&flusher->asked);
    pthread_cond_destroy(&flusher->wanted);
    pthread_cond_destroy(&flusher->caught_up);
    pthread_mutex_destroy(&flusher->round_lock);
    pthread_mutex_destroy(&flusher->lock);
    pthread_mutex_destroy(&flusher->checkpoint_lock);

    rmq_hook_destroy(&flusher->on_flushed);
    rmq_wakeups_destroy(&flusher->flushed);
    free((char *)flusher->options.checkpoint_path);
}
