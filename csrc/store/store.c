#include "store/store.h"

#include <assert.h>
#include <inttypes.h>

#include "store/store_internal.h"

/* A caller that waits for dispatching notices a cut of the log after at most this long. */
#define RMQ_LOOK_AGAIN_MS 100

/* ---- writing ---- */

int rmq_store_may_change(struct rmq_store *store, struct rmq_error *err)
{
    assert(store->root);

    if (rmq_store_is_forked(store))
        return rmq_store_check(store, err);
    if (store->read_only)
        return rmq_fail(err, RMQ_READ_ONLY, -1, "%s is opened read-only", store->root);
    return rmq_failure_check(&store->failure, err);
}

/* The reasons in force, of *reasons*. */
static int may_write(struct rmq_store *store, unsigned reasons, struct rmq_error *err)
{
    assert(reasons != 0);

    int status = rmq_store_may_change(store, err);
    unsigned found = reasons & atomic_load_explicit(&store->refusals, memory_order_relaxed);
    if (status != RMQ_OK || !found)
        return status;

    if (found & RMQ_REFUSE_ROLE)
        return rmq_fail(err, RMQ_NOT_WRITABLE, -1,
                        "%s takes no messages in its present role; put to the master, or make this "
                        "store the master",
                        store->root);
    return rmq_fail(err, RMQ_NOT_WRITABLE, -1,
                    "the disk of %s is fuller than diskSpaceWarningLevelRatio allows", store->root);
}

static void tell_growth(struct rmq_store *store)
{
    assert(!store->read_only);

    rmq_dispatcher_nudge(&store->dispatcher);
    rmq_wakeups_nudge(&store->wakeups);
    /* Without a bound, the whole log is confirmed. */
    if (!rmq_dispatcher_is_bound(&store->dispatcher))
        rmq_wakeups_nudge(&store->dispatcher.confirmed);
}

int64_t rmq_store_raw_goal(const struct rmq_store *store)
{
    if (atomic_load_explicit(&store->refusals, memory_order_relaxed))
        return -1;

    int64_t raw_end = atomic_load_explicit(&store->raw_end, memory_order_acquire);
    /* Does not read dispatched_offset: a put would wait for the cache line of the thread that
     * writes it. */
    if (raw_end == 0)
        return -1;

    int64_t dispatched =
        atomic_load_explicit(&store->dispatcher.dispatched_offset, memory_order_acquire);
    return dispatched >= raw_end ? -1 : raw_end;
}

/* The queue offsets of replicated records are known once the records are dispatched. */
static int wait_for_raw(struct rmq_store *store, struct rmq_error *err)
{
    int64_t goal = rmq_store_raw_goal(store);
    return goal < 0 ? RMQ_OK : rmq_dispatcher_wait(&store->dispatcher, goal, RMQ_RAW_WAIT_MS, err);
}

/* If the log took all remaining space, queues would have none, and expiry could not work either. */
static int wait_for_room(struct rmq_store *store, struct rmq_error *err)
{
    struct rmq_dispatcher *dispatcher = &store->dispatcher;
    if (!atomic_load_explicit(&dispatcher->waits_for_room, memory_order_relaxed))
        return RMQ_OK;

    return rmq_dispatcher_wait(dispatcher, rmq_dispatcher_limit(dispatcher), RMQ_RAW_WAIT_MS, err);
}

int rmq_store_put(struct rmq_store *store, const struct rmq_message *messages, size_t count,
                  bool together, struct rmq_receipt *receipts, size_t *stored,
                  struct rmq_error *err)
{
    assert(stored);

    *stored = 0;
    int status = may_write(store, RMQ_REFUSE_ROLE | RMQ_REFUSE_DISK, err);
    if (status == RMQ_OK)
        status = wait_for_raw(store, err);
    if (status == RMQ_OK)
        status = wait_for_room(store, err);
    if (status != RMQ_OK)
        return status;

    status = rmq_commit_log_put(&store->log, messages, count, together, receipts, stored, err);
    tell_growth(store);
    assert(status != RMQ_OK || *stored == count);
    return status;
}

int rmq_store_append_raw(struct rmq_store *store, int64_t at, const uint8_t *data, size_t size,
                         struct rmq_error *err)
{
    assert(data || size == 0);

    int status = may_write(store, RMQ_REFUSE_DISK, err);
    if (status != RMQ_OK)
        return status;

    int64_t before = rmq_file_queue_end(&store->log.files);
    struct rmq_error own;
    status = rmq_commit_log_append_raw(&store->log, at, data, size, &own);
    if (status == RMQ_NOT_WRITABLE)
        rmq_failure_set(&store->failure, &own);
    if (status != RMQ_OK && err)
        *err = own;
    int64_t end = rmq_file_queue_end(&store->log.files);

    /* A full disk may have accepted a part. */
    if (end > before)
        atomic_store_explicit(&store->raw_end, end, memory_order_release);
    tell_growth(store);
    return status;
}

int rmq_store_place(struct rmq_store *store, struct rmq_run *run, struct rmq_error *err)
{
    assert(run->at <= run->size);

    int status = may_write(store, RMQ_REFUSE_ROLE | RMQ_REFUSE_DISK, err);
    if (status == RMQ_OK)
        status = wait_for_raw(store, err);
    if (status == RMQ_OK)
        status = wait_for_room(store, err);
    if (status == RMQ_OK)
        status = rmq_run_validate(run, &store->log, err);

    while (status == RMQ_OK && run->at < run->size) {
        status = rmq_run_place(run, &store->log, err);
        tell_growth(store);
    }
    return status;
}

void rmq_store_refuse(struct rmq_store *store, unsigned reason, bool is_refused)
{
    assert(reason == RMQ_REFUSE_ROLE || reason == RMQ_REFUSE_DISK);

    if (is_refused)
        atomic_fetch_or(&store->refusals, reason);
    else
        atomic_fetch_and(&store->refusals, ~reason);

    if (reason == RMQ_REFUSE_ROLE) {
        rmq_spin_lock(&store->log.put_lock);
        store->log.is_shut = is_refused;
        rmq_spin_unlock(&store->log.put_lock);
    }
}

int rmq_store_wait_dispatched(struct rmq_store *store, int64_t offset, int64_t timeout_ms,
                              struct rmq_error *err)
{
    int64_t deadline_ms = rmq_monotonic_ms() + timeout_ms;
    for (;;) {
        int status = rmq_store_check(store, err);
        if (status != RMQ_OK || store->read_only)
            return status;

        int64_t limit = rmq_dispatcher_limit(&store->dispatcher);
        int64_t left_ms = deadline_ms - rmq_monotonic_ms();
        if (left_ms < 0)
            left_ms = 0;
        if (offset > limit)
            offset = limit;

        assert(left_ms >= 0 && offset <= limit);
        /* In short waits: the awaited bytes may be cut meanwhile. */
        status =
            rmq_dispatcher_wait(&store->dispatcher, offset,
                                left_ms < RMQ_LOOK_AGAIN_MS ? left_ms : RMQ_LOOK_AGAIN_MS, err);

        if (status != RMQ_TIMEOUT)
            return status;
        if (left_ms <= RMQ_LOOK_AGAIN_MS)
            return rmq_fail(err, RMQ_TIMEOUT, offset,
                            "dispatch reached %" PRId64 ", not %" PRId64 ", in %" PRId64 " ms",
                            atomic_load(&store->dispatcher.dispatched_offset), offset, timeout_ms);
    }
}

bool rmq_store_ends_in_part(struct rmq_store *store, int64_t offset)
{
    struct rmq_file_queue *files = &store->log.files;
    struct rmq_mapped_file *file = NULL;
    if (store->read_only || offset < atomic_load(&store->dispatcher.dispatched_offset))
        return false;

    int64_t left = rmq_file_queue_end(files) - offset;
    if (left <= 0 || rmq_file_queue_pin(files, offset, &file, NULL) != RMQ_OK)
        return false;

    int64_t at = offset - file->start;
    assert(at >= 0 && at < file->size);
    bool is_part = left < file->size - at &&
                   (left < RMQ_BLANK_SIZE || rmq_get_i32(rmq_mapped_file_base(file) + at) > left);
    rmq_mapped_file_unpin(file);
    return is_part;
}

int rmq_store_check_health(struct rmq_store *store, struct rmq_error *err)
{
    int status = rmq_failure_check(&store->failure, err);
    if (status != RMQ_OK || store->read_only)
        return status;

    return rmq_dispatcher_check_room(&store->dispatcher, err);
}

int rmq_store_flush(struct rmq_store *store, struct rmq_error *err)
{
    int status = rmq_store_may_change(store, err);
    return status == RMQ_OK ? rmq_flusher_flush_all(&store->flusher, err) : status;
}

/* ---- copies ---- */

bool rmq_store_keeps_bytes(struct rmq_store *store)
{
    atomic_thread_fence(memory_order_acquire);
    return !store->read_only && atomic_load(&store->cuts) == 0;
}

bool rmq_store_copy_is_whole(struct rmq_store *store, const uint8_t *copy, const uint8_t *data,
                             size_t size)
{
    assert((copy && data) || size == 0);
    return rmq_store_keeps_bytes(store) || rmq_record_is_unchanged(copy, data, size);
}

/* ---- replication's fields ---- */

int rmq_store_set_confirm_offset(struct rmq_store *store, struct rmq_confirm confirm,
                                 struct rmq_error *err)
{
    assert(confirm.mode != RMQ_CONFIRM_LOG_END);

    struct rmq_flusher *flusher = &store->flusher;
    int64_t *kept = &flusher->checkpoint.confirm_offset;
    struct rmq_confirm before = rmq_confirm_load(&store->dispatcher.confirm);

    int status = rmq_store_may_change(store, err);
    if (status != RMQ_OK)
        return status;

    /* The next checkpoint reads it from the dispatcher; the caller does not wait for a checkpoint
     * in progress. */
    if (before.mode != RMQ_CONFIRM_UNSET && rmq_confirm_is_below(before, confirm)) {
        rmq_dispatcher_confirm(&store->dispatcher, confirm);
        return RMQ_OK;
    }

    pthread_mutex_lock(&flusher->checkpoint_lock);
    if (confirm.mode == RMQ_CONFIRM_BOUND)
        *kept = rmq_confirm_to_checkpoint(confirm.offset);
    else if (before.mode == RMQ_CONFIRM_LOG_END || before.offset > 0)
        *kept = rmq_dispatcher_confirmed(&store->dispatcher);
    else if (*kept == RMQ_NOTHING_CONFIRMED)
        *kept = 0;
    pthread_mutex_unlock(&flusher->checkpoint_lock);

    rmq_confirm_store(&store->dispatcher.confirm, confirm);
    rmq_wakeups_nudge(&store->dispatcher.confirmed);
    rmq_dispatcher_nudge(&store->dispatcher);

    /* Persists the bound before it takes effect; otherwise a crash would expose unconfirmed
     * records. */
    bool has_changed = (before.mode == RMQ_CONFIRM_UNSET) != (confirm.mode == RMQ_CONFIRM_UNSET);
    return has_changed ? rmq_flusher_save(flusher, err) : RMQ_OK;
}
