/* flusher_sync.c -- syncs of the log: for callers that wait in a group, and for callers that only
 * request one. */
#include <assert.h>
#include <unistd.h>

#include "log/flusher.h"

/* How long the thread waits for a sync led by another thread before it checks again. */
#define RMQ_FLUSH_PATIENCE_MS 3600000

/* ---- group commit ---- */

static void release(struct rmq_flusher *flusher, struct rmq_flush_waiter *waiter, bool leads)
{
    assert(atomic_load(&waiter->is_queued));

    waiter->leads = leads;
    --flusher->queued;
    atomic_store_explicit(&waiter->is_queued, false, memory_order_release);
}

/* Releases the waiters whose sync has ended, and the first of the others, which leads next. The
 * caller holds the lock. Returns whether there is such a leader. */
static bool release_finished(struct rmq_flusher *flusher, bool failed)
{
    assert(flusher->queued >= 0);

    struct rmq_file_queue *files = &flusher->log->files;
    int64_t flushed = rmq_file_queue_flushed(files), end = rmq_file_queue_end(files);
    struct rmq_flush_waiter *waiter = flusher->waiters;
    bool has_leader = false;

    flusher->waiters = NULL;
    flusher->waiters_end = &flusher->waiters;

    for (struct rmq_flush_waiter *next; waiter; waiter = next) {
        next = waiter->next;
        bool is_over = failed || waiter->offset <= flushed || waiter->offset > end;
        if (is_over || !has_leader) {
            has_leader |= !is_over;
            release(flusher, waiter, !is_over);
            continue;
        }

        waiter->next = NULL;
        *flusher->waiters_end = waiter;
        flusher->waiters_end = &waiter->next;
    }
    return has_leader;
}

/* Waits until callers have queued up. The calling thread leads, and does not hold the lock. */
static void gather(struct rmq_flusher *flusher, int64_t timeout_ms)
{
    assert(timeout_ms >= 0);

    int64_t limit_us = atomic_load_explicit(&flusher->sync_us, memory_order_relaxed);
    limit_us = limit_us < RMQ_GATHER_US_MAX ? limit_us : RMQ_GATHER_US_MAX;
    limit_us = limit_us / 1000 < timeout_ms ? limit_us : timeout_ms * 1000;
    int64_t left_us = limit_us, until_us = rmq_monotonic_us() + limit_us;

    pthread_mutex_lock(&flusher->lock);
    assert(flusher->syncing && flusher->gathered == 0);
    flusher->gathered = flusher->expected - 1;
    while (flusher->queued < flusher->gathered && left_us > 0) {
        uint32_t seen = rmq_event_count_read(&flusher->complete);
        pthread_mutex_unlock(&flusher->lock);
        rmq_event_count_await(&flusher->complete, seen, left_us);
        left_us = until_us - rmq_monotonic_us();
        pthread_mutex_lock(&flusher->lock);
    }
    flusher->gathered = 0;
    pthread_mutex_unlock(&flusher->lock);
}

/* Lets the requesters check the flushed offset; the caller holds the lock. */
static void tell_watches(struct rmq_flusher *flusher)
{
    const uint64_t one = 1;
    for (struct rmq_flush_watch *watch = flusher->watches; watch; watch = watch->next) {
        assert(watch->is_listed);
        watch->is_listed = false;
        (void)!write(watch->fd, &one, sizeof one);
    }
    flusher->watches = NULL;
}

/* Syncs the log up to its present end. The caller has set `syncing` and does not hold the lock. */
static int lead(struct rmq_flusher *flusher, struct rmq_error *err)
{
    assert(err);

    int64_t began_us = rmq_monotonic_us();
    int status = rmq_file_queue_flush(&flusher->log->files, err);
    atomic_store_explicit(&flusher->sync_us, rmq_monotonic_us() - began_us, memory_order_relaxed);

    if (status == RMQ_OK) {
        rmq_wakeups_nudge(&flusher->flushed);
        rmq_hook_run(&flusher->on_flushed, false);
    } else {
        rmq_failure_set(flusher->failure, err);
    }

    pthread_mutex_lock(&flusher->lock);
    assert(flusher->syncing);
    bool had_waiters = flusher->queued > 0;
    flusher->expected = flusher->queued + 1;
    flusher->syncing = release_finished(flusher, status != RMQ_OK);
    tell_watches(flusher);
    pthread_mutex_unlock(&flusher->lock);

    if (had_waiters)
        rmq_event_count_advance_all(&flusher->released);
    return status == RMQ_OK ? RMQ_OK : rmq_failure_check(flusher->failure, err);
}

static void leave_queue(struct rmq_flusher *flusher, struct rmq_flush_waiter *waiter)
{
    assert(atomic_load(&waiter->is_queued) && flusher->queued > 0);

    struct rmq_flush_waiter **at = &flusher->waiters;
    while (*at != waiter) {
        assert(*at);
        at = &(*at)->next;
    }

    *at = waiter->next;
    if (flusher->waiters_end == &waiter->next)
        flusher->waiters_end = at;
    --flusher->queued;
}

/* Whether the waiter was released before its time was up. */
static bool await_release(struct rmq_flusher *flusher, struct rmq_flush_waiter *waiter,
                          int64_t timeout_ms)
{
    int64_t until_ms = rmq_monotonic_ms() + timeout_ms;
    for (;;) {
        uint32_t seen = rmq_event_count_read(&flusher->released);
        if (!atomic_load_explicit(&waiter->is_queued, memory_order_acquire))
            return true;
        int64_t left_ms = until_ms - rmq_monotonic_ms();
        if (left_ms <= 0)
            return false;
        rmq_event_count_await(&flusher->released, seen, left_ms * 1000);
    }
}

/* Queues the caller up. The caller holds the lock, which is released. *leads is whether the caller
 * leads the next sync. RMQ_FLUSH_TIMEOUT. */
static int queue_up(struct rmq_flusher *flusher, int64_t offset, int64_t timeout_ms, bool *leads,
                    struct rmq_error *err)
{
    assert(flusher->syncing);

    struct rmq_flush_waiter waiter = {.offset = offset, .is_queued = true};
    *flusher->waiters_end = &waiter;
    flusher->waiters_end = &waiter.next;
    ++flusher->queued;
    bool is_complete = flusher->gathered > 0 && flusher->queued >= flusher->gathered;
    if (is_complete)
        flusher->gathered = 0;
    pthread_mutex_unlock(&flusher->lock);

    if (is_complete)
        rmq_event_count_advance(&flusher->complete);

    bool is_released = await_release(flusher, &waiter, timeout_ms);
    if (!is_released) {
        pthread_mutex_lock(&flusher->lock);
        is_released = !atomic_load(&waiter.is_queued);
        if (!is_released)
            leave_queue(flusher, &waiter);
        pthread_mutex_unlock(&flusher->lock);
    }

    *leads = is_released && waiter.leads;
    return is_released
               ? RMQ_OK
               : rmq_fail(err, RMQ_FLUSH_TIMEOUT, offset,
                          "not flushed in %lld ms (syncFlushTimeout)", (long long)timeout_ms);
}

/* Whether a sync can make the log durable below offset; the caller holds the lock. */
static int check_reachable(struct rmq_flusher *flusher, int64_t offset, struct rmq_error *err)
{
    assert(flusher->failure);

    int64_t end = rmq_file_queue_end(&flusher->log->files);
    int status = rmq_failure_check(flusher->failure, err);
    if (status == RMQ_OK && end < offset)
        status = rmq_fail(err, RMQ_OUT_OF_RANGE, offset,
                          "offset %lld was cut from the log, which ends at %lld", (long long)offset,
                          (long long)end);
    return status;
}

static int reach(struct rmq_flusher *flusher, int64_t offset, int64_t timeout_ms, bool gathers,
                 struct rmq_error *err)
{
    assert(flusher->log && flusher->dispatcher);

    struct rmq_file_queue *files = &flusher->log->files;
    struct rmq_error own;
    if (!err)
        err = &own;

    int status = RMQ_OK;
    bool leads = false;
    while (leads || rmq_file_queue_flushed(files) < offset) {
        if (!leads) {
            pthread_mutex_lock(&flusher->lock);
            status = check_reachable(flusher, offset, err);
            leads = status == RMQ_OK && !flusher->syncing;
            flusher->syncing = flusher->syncing || leads;
            if (status == RMQ_OK && !leads)
                status = queue_up(flusher, offset, timeout_ms, &leads, err);
            else
                pthread_mutex_unlock(&flusher->lock);

            if (status != RMQ_OK)
                break;
        }

        if (leads) {
            leads = false;
            if (gathers)
                gather(flusher, timeout_ms);
            status = lead(flusher, err);
            if (status != RMQ_OK)
                break;
        }
    }

    /* A store that acknowledges after flushing publishes messages only at this point. */
    rmq_dispatcher_nudge(flusher->dispatcher);
    return status;
}

int rmq_flusher_wait(struct rmq_flusher *flusher, int64_t offset, int64_t timeout_ms,
                     struct rmq_error *err)
{
    assert(timeout_ms >= 0);

    rmq_warmer_note_wait(&flusher->log->warmer);
    return reach(flusher, offset, timeout_ms, true, err);
}

int rmq_flusher_sync(struct rmq_flusher *flusher, int64_t offset, struct rmq_error *err)
{
    return reach(flusher, offset, RMQ_FLUSH_PATIENCE_MS, false, err);
}

/* ---- requested syncs ---- */

static void *sync_for_watches(void *argument)
{
    struct rmq_flusher *flusher = argument;
    assert(flusher->log);

    pthread_mutex_lock(&flusher->lock);
    while (!flusher->stop) {
        int64_t offset = flusher->asked_offset;
        if (offset == 0) {
            pthread_cond_wait(&flusher->asked, &flusher->lock);
            continue;
        }

        flusher->asked_offset = 0;
        pthread_mutex_unlock(&flusher->lock);

        int status = rmq_flusher_sync(flusher, offset, NULL);
        pthread_mutex_lock(&flusher->lock);
        /* The failure may have been another than a sync. */
        if (status != RMQ_OK)
            tell_watches(flusher);
    }
    pthread_mutex_unlock(&flusher->lock);
    return NULL;
}

/* The caller holds the lock. */
static int start_syncer(struct rmq_flusher *flusher, struct rmq_error *err)
{
    assert(!flusher->stop);

    if (flusher->has_syncer)
        return RMQ_OK;

    int error = pthread_create(&flusher->syncer, NULL, sync_for_watches, flusher);
    if (error)
        return rmq_fail_os(err, error, "starting a thread that syncs the log");
    flusher->has_syncer = true;
    return RMQ_OK;
}

int rmq_flusher_ask(struct rmq_flusher *flusher, struct rmq_flush_watch *watch, int64_t offset,
                    struct rmq_error *err)
{
    assert(watch && watch->fd >= 0);

    int status = RMQ_OK;

    pthread_mutex_lock(&flusher->lock);
    /* Under the lock, which the thread that ends a sync takes afterwards. */
    if (rmq_file_queue_flushed(&flusher->log->files) < offset) {
        status = check_reachable(flusher, offset, err);
        if (status == RMQ_OK)
            status = start_syncer(flusher, err);
        if (status == RMQ_OK && !watch->is_listed) {
            rmq_warmer_note_wait(&flusher->log->warmer);
            watch->is_listed = true;
            watch->next = flusher->watches;
            flusher->watches = watch;
        }

        if (status == RMQ_OK && offset > flusher->asked_offset) {
            flusher->asked_offset = offset;
            pthread_cond_signal(&flusher->asked);
        }
    }
    pthread_mutex_unlock(&flusher->lock);
    return status;
}

void rmq_flusher_forget(struct rmq_flusher *flusher, struct rmq_flush_watch *watch)
{
    assert(watch);

    pthread_mutex_lock(&flusher->lock);
    if (watch->is_listed) {
        struct rmq_flush_watch **at = &flusher->watches;
        while (*at != watch)
            at = &(*at)->next;
        *at = watch->next;
        watch->is_listed = false;
    }
    pthread_mutex_unlock(&flusher->lock);
}
