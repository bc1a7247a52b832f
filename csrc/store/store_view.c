#include "store/store_view.h"

#include <assert.h>
#include <inttypes.h>

#include "base/small_file.h"
#include "log/border.h"
#include "store/store_internal.h"

bool rmq_store_is_read_only(const struct rmq_store *store)
{
    return store->read_only;
}

const struct rmq_recovery *rmq_store_recovery(const struct rmq_store *store)
{
    return &store->recovery;
}

size_t rmq_store_index_files_skipped(const struct rmq_store *store)
{
    return store->index_files_skipped;
}

/* ---- the log ---- */

int64_t rmq_store_start(const struct rmq_store *store)
{
    return rmq_file_queue_start(&store->log.files);
}

int64_t rmq_store_end(const struct rmq_store *store)
{
    return rmq_file_queue_end(&store->log.files);
}

int64_t rmq_store_flushed(const struct rmq_store *store)
{
    return rmq_file_queue_flushed(&store->log.files);
}

int64_t rmq_store_raw_end(const struct rmq_store *store)
{
    return atomic_load(&store->raw_end);
}

int64_t rmq_store_cuts(const struct rmq_store *store)
{
    return atomic_load(&store->cuts);
}

int64_t rmq_store_log_file_size(const struct rmq_store *store)
{
    return store->log.files.options.file_size;
}

int rmq_store_pin(struct rmq_store *store, int64_t offset, struct rmq_mapped_file **file,
                  struct rmq_error *err)
{
    return rmq_file_queue_pin(&store->log.files, offset, file, err);
}

int rmq_store_pin_at(struct rmq_store *store, size_t index, struct rmq_mapped_file **file,
                     struct rmq_error *err)
{
    return rmq_file_queue_pin_at(&store->log.files, index, file, err);
}

void rmq_store_scan(struct rmq_store *store, struct rmq_scan *scan, int64_t from, int64_t limit,
                    unsigned checks)
{
    rmq_scan_begin(scan, &store->log.files, from, limit, checks);
}

int rmq_store_advance_border(struct rmq_store *store, int64_t *border, int64_t end,
                             struct rmq_error *err)
{
    return rmq_border_advance(&store->log.files, border, end, err);
}

int rmq_store_show_whole_files(struct rmq_store *store, struct rmq_error *err)
{
    assert(store->read_only);

    int status = rmq_file_queue_refresh(&store->log.files, err);
    if (status == RMQ_OK)
        rmq_file_queue_set_end(&store->log.files, INT64_MAX);
    return status;
}

int rmq_store_classify_end(struct rmq_store *store, enum rmq_log_end *found, struct rmq_error *err)
{
    assert(store->read_only);

    const struct rmq_recovery *recovery = &store->recovery;
    return rmq_log_end_find(&store->log.files, &store->queues, recovery->end_offset, -1,
                            recovery->is_vouched, found, err);
}

struct rmq_wakeups *rmq_store_wakeups(struct rmq_store *store, enum rmq_store_event event)
{
    assert(event == RMQ_GREW || event == RMQ_FLUSHED || event == RMQ_DISPATCHED ||
           event == RMQ_CONFIRMED);

    switch (event) {
    case RMQ_FLUSHED:
        return &store->flusher.flushed;
    case RMQ_DISPATCHED:
        return &store->dispatcher.dispatched;
    case RMQ_CONFIRMED:
        return &store->dispatcher.confirmed;
    case RMQ_GREW:
        break;
    }
    return &store->wakeups;
}

/* ---- queues ---- */

struct rmq_queue *rmq_store_find_queue(struct rmq_store *store, const char *topic,
                                       size_t topic_size, int32_t queue_id)
{
    return rmq_queue_table_find(&store->queues, topic, topic_size, queue_id);
}

struct rmq_queue *rmq_store_first_queue(struct rmq_store *store)
{
    return rmq_queue_table_first(&store->queues);
}

int rmq_store_declare_batch_queue(struct rmq_store *store, const char *topic, size_t topic_size,
                                  int32_t queue_id, struct rmq_queue **queue, struct rmq_error *err)
{
    return rmq_queue_table_get(&store->queues, topic, topic_size, queue_id, true, queue, err);
}

/* ---- dispatching and the confirm offset ---- */

int64_t rmq_store_dispatched(const struct rmq_store *store)
{
    return atomic_load(&store->dispatcher.dispatched_offset);
}

int64_t rmq_store_dispatch_limit(struct rmq_store *store)
{
    return rmq_dispatcher_limit(&store->dispatcher);
}

int rmq_store_await_dispatch(struct rmq_store *store, int64_t offset, int64_t timeout_ms,
                             struct rmq_error *err)
{
    assert(!store->read_only);

    return rmq_dispatcher_wait(&store->dispatcher, offset, timeout_ms, err);
}

struct rmq_confirm rmq_store_confirm_bound(const struct rmq_store *store)
{
    return rmq_confirm_load(&store->dispatcher.confirm);
}

int64_t rmq_store_confirmed(struct rmq_store *store)
{
    return rmq_dispatcher_confirmed(&store->dispatcher);
}

void rmq_store_confirm(struct rmq_store *store, struct rmq_confirm confirm)
{
    assert(!store->read_only);

    rmq_dispatcher_confirm(&store->dispatcher, confirm);
}

int64_t rmq_store_hold_confirmed(struct rmq_store *store)
{
    assert(!store->read_only);

    return rmq_dispatcher_hold(&store->dispatcher);
}

/* ---- flushing ---- */

int rmq_store_wait_flushed(struct rmq_store *store, int64_t offset, int64_t timeout_ms,
                           struct rmq_error *err)
{
    assert(!store->read_only);

    return rmq_flusher_wait(&store->flusher, offset, timeout_ms, err);
}

int64_t rmq_store_sync_ms(struct rmq_store *store)
{
    return rmq_flusher_sync_ms(&store->flusher);
}

int rmq_store_ask_flush(struct rmq_store *store, struct rmq_flush_watch *watch, int64_t offset,
                        struct rmq_error *err)
{
    assert(!store->read_only);

    return rmq_flusher_ask(&store->flusher, watch, offset, err);
}

void rmq_store_forget_flush(struct rmq_store *store, struct rmq_flush_watch *watch)
{
    assert(!store->read_only);

    rmq_flusher_forget(&store->flusher, watch);
}

struct rmq_hook *rmq_store_on_flushed(struct rmq_store *store)
{
    assert(!store->read_only);

    return &store->flusher.on_flushed;
}

const struct rmq_checkpoint *rmq_store_checkpoint(const struct rmq_store *store)
{
    return &store->flusher.checkpoint;
}

/* ---- streams ---- */

static int check_stream(const struct rmq_store *store, int64_t offset, bool appends,
                        struct rmq_error *err)
{
    int64_t start = rmq_store_start(store), end = rmq_store_end(store);
    assert(start >= -1);
    bool fits =
        appends ? start < 0 || offset == end : start >= 0 && offset >= start && offset <= end;

    if (fits && offset >= 0)
        return RMQ_OK;
    return rmq_fail(err, RMQ_OUT_OF_RANGE, offset,
                    "a link at %" PRId64 "; the log is from %" PRId64 " to %" PRId64, offset, start,
                    end);
}

int rmq_store_begin_stream(struct rmq_store *store, int64_t offset, bool appends,
                           struct rmq_error *err)
{
    assert(!store->read_only);

    pthread_mutex_lock(&store->structure_lock);
    int status = check_stream(store, offset, appends, err);
    if (status == RMQ_OK)
        atomic_fetch_add(&store->streams, 1);
    assert(atomic_load(&store->streams) >= 0);
    pthread_mutex_unlock(&store->structure_lock);
    return status;
}

void rmq_store_end_stream(struct rmq_store *store)
{
    int32_t before = atomic_fetch_sub(&store->streams, 1);

    assert(before > 0);
    (void)before;
}

/* ---- files beside the log ---- */

int rmq_store_replace_file(struct rmq_store *store, const char *name, const void *data, size_t size,
                           struct rmq_error *err)
{
    assert(name && (data || size == 0));

    int status = rmq_store_may_change(store, err);
    if (status == RMQ_OK)
        status = rmq_small_file_replace(store->vfs, store->root, name, data, size, err);
    return status;
}

int rmq_store_remove_file(struct rmq_store *store, const char *name, struct rmq_error *err)
{
    assert(name);

    int status = rmq_store_may_change(store, err);
    if (status == RMQ_OK)
        status = rmq_small_file_remove(store->vfs, store->root, name, err);
    return status;
}
