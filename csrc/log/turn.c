#include "log/turn.h"

#include <assert.h>
#include <inttypes.h>

/* ---- the lock ---- */

int rmq_turn_check_busy(const struct rmq_commit_log *log, int64_t since_ms, struct rmq_error *err)
{
    assert(since_ms > 0);

    int64_t limit = log->options.page_cache_busy_ms;
    if (limit <= 0)
        return RMQ_OK;

    int64_t held = rmq_monotonic_ms() - since_ms;
    if (held <= limit)
        return RMQ_OK;
    return rmq_fail(err, RMQ_PAGE_CACHE_BUSY, -1,
                    "another append holds the log for %" PRId64 " ms; the limit is %" PRId64
                    " ms (osPageCacheBusyTimeOutMills)",
                    held, limit);
}

int rmq_turn_refuse(struct rmq_error *err)
{
    return rmq_fail(err, RMQ_NOT_WRITABLE, -1,
                    "the store takes no messages in its present role; put to the master, or make "
                    "this store the master");
}

/* ---- room; the caller holds the put lock ---- */

/* Ends the last file with a blank record; does nothing in a full file. */
static int fill_blank(struct rmq_commit_log *log, struct rmq_error *err)
{
    assert(rmq_spin_is_held(&log->put_lock) && log->files.last);

    struct rmq_mapped_file *last = log->files.last;
    int64_t wrote = atomic_load_explicit(&last->wrote, memory_order_relaxed);
    int64_t left = last->size - wrote;
    if (left == 0)
        return RMQ_OK;

    assert(left >= RMQ_BLANK_SIZE);
    int status = rmq_mapped_file_map(last, err);
    if (status == RMQ_OK)
        status = rmq_warmer_reserve(&log->warmer, last, wrote + RMQ_BLANK_SIZE, err);
    if (status != RMQ_OK)
        return status;

    rmq_blank_encode(rmq_mapped_file_base(last) + wrote, (int32_t)left);
    rmq_file_queue_advance(&log->files, last->size);
    return RMQ_OK;
}

int rmq_turn_make_room_slowly(struct rmq_commit_log *log, int64_t size, uint8_t **place,
                              struct rmq_error *err)
{
    assert(rmq_spin_is_held(&log->put_lock));
    assert(size >= 0 && size <= log->files.options.file_size - RMQ_BLANK_SIZE);

    int status = RMQ_OK;
    struct rmq_mapped_file *last = log->files.last;
    int64_t wrote = last ? atomic_load_explicit(&last->wrote, memory_order_relaxed) : 0;

    if (!last || size > last->size - RMQ_BLANK_SIZE - wrote) {
        status = last ? fill_blank(log, err) : RMQ_OK;
        if (status == RMQ_OK)
            status = rmq_warmer_roll(&log->warmer, 0, err);
        if (status != RMQ_OK)
            return status;
        last = log->files.last;
        wrote = 0;
    }

    status = rmq_mapped_file_map(last, err);
    if (status == RMQ_OK)
        status = rmq_warmer_reserve(&log->warmer, last, wrote + size, err);
    if (status != RMQ_OK)
        return status;

    assert(size <= last->size - RMQ_BLANK_SIZE - wrote);
    *place = rmq_mapped_file_base(last) + wrote;
    return RMQ_OK;
}
