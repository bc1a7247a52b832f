/* flusher_sync.c -- syncs of the log: for callers that wait in a group, and for callers that only
 * request one. */
#include <assert.h>
#include <unistd.h>

#include "log/flusher.h"

/* How long the thread waits for a sync that somebody else leads before it looks again. */
#define RMQ_FLUSH_PATIENCE_MS 3600000

/* ---- group commit ---- */

/* Takes the waiters whose sync is over out of the queue; the caller holds the lock. The first of
 * the others leads next. */
static struct rmq_flush_waiter *take_finished(struct rmq_flusher *flusher, bool failed,
                                              struct rmq_flush_waiter **leader)
{
    assert(leader);

    struct rmq_file_queue *files = &flusher->log->files;
    int64_t flushed = rmq_file_queue_flushed(files), end = rmq_file_queue_end(files);
    struct rmq_flush_waiter *waiter = flusher->waiters, *finished = NULL;
    struct rmq_flush_waiter **finished_end = &finished;

    flusher->waiters = NULL;
    flusher->waiters_end = &flusher->waiters;
    *leader = NULL;

    for (struct rmq_flush_waiter *next; waiter; waiter = next) {
        next = waiter->next;
        waiter->next = NULL;
        assert(waiter->is_queued);
        bool is_over = failed || waiter->offset <= flushed || waiter->offset > end;
        if (!is_over && *leader) {
            *flusher->waiters_end = waiter;
            flusher->waiters_end = &waiter->next;
            continue;
        }

        waiter->is_queued = false;
        waiter->leads = !is_over;
        if (!is_over) {
            *leader = waiter;
        } else {
            *finished_end = waiter;
            finished_end = &waiter->next;
        }
    }
    return finished;
}

/* The requesters look again; the caller holds the lock. */
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

/* Syncs the log for all that have written by now. The caller set `syncing` and does not hold the
 * lock. */
static int lead(struct rmq_flusher *flusher, struct rmq_error *err)
{
    assert(err);

    int64_t began_ms = rmq_monotonic_ms();
    int status = rmq_file_queue_flush(&flusher->log->files, err);
    atomic_store_explicit(&flusher->sync_ms, rmq_monotonic_ms() - began_ms, memory_order_relaxed);

    if (status == RMQ_OK) {
        rmq_wakeups_nudge(&flusher->flushed);
        rmq_hook_run(&flusher->on_flushed, false);
    } else {
        rmq_failure_set(flusher->failure, err);
    }

    struct rmq_flush_waiter *leader;
    pthread_mutex_lock(&flusher->lock);
    assert(flusher->syncing);
    struct rmq_flush_waiter *waiter = take_finished(flusher, status != RMQ_OK, &leader);
    flusher->syncing = leader != NULL;
    tell_watches(flusher);
    pthread_mutex_unlock(&flusher->lock);

    if (leader)
        rmq_event_set(&leader->woken);

    /* A waiter that is woken may be gone. */
    for (struct rmq_flush_waiter *next; waiter; waiter = next) {
        next = waiter->next;
        rmq_event_set(&waiter->woken);
    }
    return status == RMQ_OK ? RMQ_OK : rmq_failure_check(flusher->failure, err);
}

static void leave_queue(struct rmq_flusher *flusher, struct rmq_flush_waiter *waiter)
{
    assert(waiter->is_queued);

    struct rmq_flush_waiter **at = &flusher->waiters;
    while (*at != waiter) {
        assert(*at);
        at = &(*at)->next;
    }

    *at = waiter->next;
    if (flusher->waiters_end == &waiter->next)
        flusher->waiters_end = at;
}

/* Queues up behind the leader; the caller holds the lock, which is let go of. *leads is whether
 * the next sync is the caller's to do. RMQ_FLUSH_TIMEOUT. */
static int queue_up(struct rmq_flusher *flusher, int64_t offset, int64_t timeout_ms, bool *leads,
                    struct rmq_error *err)
{
    assert(flusher->syncing);

    struct rmq_flush_waiter waiter = {.offset = offset, .is_queued = true};
    *flusher->waiters_end = &waiter;
    flusher->waiters_end = &waiter.next;

    pthread_mutex_unlock(&flusher->lock);
    bool is_woken = rmq_event_wait(&waiter.woken, timeout_ms);

    if (!is_woken) {
        pthread_mutex_lock(&flusher->lock);
        if (waiter.is_queued)
            leave_queue(flusher, &waiter);
        else
            is_woken = true;
        pthread_mutex_unlock(&flusher->lock);
        /* Taken out of the queue, and about to be woken. */
        while (is_woken && !rmq_event_wait(&waiter.woken, timeout_ms)) {
        }
    }

    *leads = is_woken && waiter.leads;
    return is_woken ? RMQ_OK
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
                          "offset %lld was cut from the log, which ends at %lld",
                          (long long)offset, (long long)end);
    return status;
}

static int reach(struct rmq_flusher *flusher, int64_t offset, int64_t timeout_ms,
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
            status = lead(flusher, err);
            if (status != RMQ_OK)
                break;
        }
    }

    /* A store that acknowledges after flushing shows messages only now. */
    rmq_dispatcher_nudge(flusher->dispatcher);
    return status;
}

int rmq_flusher_wait(struct rmq_flusher *flusher, int64_t offset, int64_t timeout_ms,
                     struct rmq_error *err)
{
    assert(timeout_ms >= 0);

    rmq_warmer_note_wait(&flusher->log->warmer);
    return reach(flusher, offset, timeout_ms, err);
}

int rmq_flusher_sync(struct rmq_flusher *flusher, int64_t offset, struct rmq_error *err)
{
    return reach(flusher, offset, RMQ_FLUSH_PATIENCE_MS, err);
}

/* ---- syncs that are asked for ---- */

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
        /* It need not have been a sync that failed. */
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
