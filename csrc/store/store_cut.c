#include "store/store.h"

#include <assert.h>
#include <inttypes.h>
#include <string.h>

#include "store/store_internal.h"

/* Expiry waits this long for messages to be dispatched, then keeps their files for a later call. */
#define RMQ_EXPIRE_WAIT_MS 1000

/* ---- halting ---- */

/* No thread appends, flushes, dispatches or changes files until resume. */
static void halt(struct rmq_store *store)
{
    assert(!store->read_only);

    pthread_mutex_lock(&store->structure_lock);
    pthread_mutex_lock(&store->flusher.round_lock);
    rmq_spin_lock(&store->log.put_lock);
    rmq_dispatcher_pause(&store->dispatcher);
}

static void resume(struct rmq_store *store, int64_t dispatched)
{
    assert(rmq_spin_is_held(&store->log.put_lock));

    rmq_dispatcher_resume(&store->dispatcher, dispatched);
    rmq_spin_unlock(&store->log.put_lock);
    pthread_mutex_unlock(&store->flusher.round_lock);
    pthread_mutex_unlock(&store->structure_lock);
}

/* ---- record boundaries ---- */

/* Whether records follow each other from `at` to `offset` of a file. Only their form is checked:
 * records before a boundary may be damaged. */
static bool leads_to(struct rmq_mapped_file *file, int64_t at, int64_t offset)
{
    assert(at >= file->start && offset <= file->start + file->size);

    while (at < offset) {
        struct rmq_record record;
        if (rmq_record_decode(rmq_mapped_file_base(file) + (at - file->start),
                              (size_t)(offset - at), at, RMQ_CHECK_FORM, &record, NULL) != RMQ_OK)
            return false;
        at += record.total_size;
    }
    return at == offset;
}

/* A whole record here is a boundary. Before a part of a record, or other bytes, there is a boundary
 * if records lead up to it. */
bool rmq_store_is_border(struct rmq_store *store, int64_t offset)
{
    struct rmq_file_queue *files = &store->log.files;
    struct rmq_mapped_file *file = NULL;
    struct rmq_record record;
    int64_t start = rmq_file_queue_start(files), end = rmq_file_queue_end(files);
    if (offset == end)
        return true;

    if (start < 0 || offset < start || offset > end ||
        rmq_file_queue_pin(files, offset, &file, NULL) != RMQ_OK)
        return false;

    int64_t file_end = file->start + file->size, stop = end < file_end ? end : file_end;
    assert(offset >= file->start && offset <= stop);
    int64_t dispatched = atomic_load(&store->dispatcher.dispatched_offset);

    bool is_border =
        offset == file->start ||
        rmq_record_decode(rmq_mapped_file_base(file) + (offset - file->start),
                          (size_t)(stop - offset), offset, RMQ_CHECK_PLACE, &record,
                          NULL) == RMQ_OK ||
        leads_to(file, dispatched > file->start && dispatched <= offset ? dispatched : file->start,
                 offset);

    rmq_mapped_file_unpin(file);
    return is_border;
}

/* The last whole record between `from`, which is a boundary, and end; -1 when there is none. */
static int64_t last_record_from(struct rmq_file_queue *files, int64_t from, int64_t end)
{
    assert(from >= 0 && from < end);

    struct rmq_scan scan;
    struct rmq_record record;
    int64_t last = -1;

    rmq_scan_begin(&scan, files, from, end, RMQ_CHECK_PLACE);
    while (rmq_scan_next(&scan, &record, NULL) == RMQ_OK && scan.offset <= end)
        last = record.physical_offset;
    rmq_scan_finish(&scan);
    return last;
}

int64_t rmq_store_last_record(struct rmq_store *store)
{
    struct rmq_file_queue *files = &store->log.files;
    int64_t start = rmq_file_queue_start(files), end = rmq_file_queue_end(files);
    int64_t size = files->options.file_size;
    int64_t dispatched = atomic_load(&store->dispatcher.last_offset);
    if (start < 0 || start == end)
        return -1;

    int64_t last = -1;
    if (dispatched >= start && dispatched < end)
        last = last_record_from(files, dispatched, end);
    for (int64_t from = (end - 1) / size * size; last < 0 && from >= start; from -= size)
        last = last_record_from(files, from, end);
    assert(last == -1 || (last >= start && last < end));
    return last;
}

int rmq_store_copy(struct rmq_store *store, int64_t offset, uint8_t *out, size_t size,
                   struct rmq_error *err)
{
    assert(out || size == 0);

    struct rmq_file_queue *files = &store->log.files;
    int64_t start = rmq_file_queue_start(files), end = rmq_file_queue_end(files);

    int status = rmq_store_check(store, err);
    if (status != RMQ_OK)
        return status;

    if (start < 0 || offset < start || offset > end || size > (uint64_t)(end - offset))
        return rmq_fail(err, RMQ_OUT_OF_RANGE, offset,
                        "no %zu bytes at %" PRId64 ": the log holds %" PRId64 " to %" PRId64, size,
                        offset, start, end);

    while (size > 0) {
        struct rmq_mapped_file *file = NULL;
        status = rmq_file_queue_pin(files, offset, &file, err);
        if (status != RMQ_OK)
            return status;

        uint64_t left = (uint64_t)(file->start + file->size - offset);
        size_t part = size < left ? size : (size_t)left;
        assert(part > 0);
        memcpy(out, rmq_mapped_file_base(file) + (offset - file->start), part);
        rmq_mapped_file_unpin(file);

        out += part;
        offset += (int64_t)part;
        size -= part;
    }
    return RMQ_OK;
}

int rmq_store_copy_cut(struct rmq_store *store, int64_t from, int64_t to,
                       char path[RMQ_CUT_PATH_SIZE], struct rmq_error *err)
{
    assert(path);

    struct rmq_file_queue *files = &store->log.files;
    int64_t start = rmq_file_queue_start(files), end = rmq_file_queue_end(files);
    int status = rmq_store_may_change(store, err);
    if (status != RMQ_OK)
        return status;
    if (start < 0 || from < start || from >= to || to > end)
        return rmq_fail(err, RMQ_OUT_OF_RANGE, from,
                        "cannot copy %" PRId64 " to %" PRId64 ": the log holds %" PRId64
                        " to %" PRId64,
                        from, to, start, end);

    return rmq_cut_copy(files, store->root, from, to, path, err);
}

/* ---- the tail ---- */

static int check_border(struct rmq_store *store, int64_t offset, struct rmq_error *err)
{
    int64_t start = rmq_file_queue_start(&store->log.files);
    if (offset < start)
        return rmq_fail(err, RMQ_OUT_OF_RANGE, offset,
                        "cannot cut at %" PRId64 ": the log holds %" PRId64 " to %" PRId64, offset,
                        start, rmq_file_queue_end(&store->log.files));

    if (!rmq_store_is_border(store, offset))
        return rmq_fail(err, RMQ_OUT_OF_RANGE, offset,
                        "cannot cut at %" PRId64 ": no record begins there", offset);

    return RMQ_OK;
}

/* Before the cut, the checkpoint is limited to offsets up to it: after a crash in between, recovery
 * only walks more. */
static int lower_checkpoint(struct rmq_store *store, int64_t offset, struct rmq_error *err)
{
    assert(offset >= 0);

    int64_t last = atomic_load(&store->dispatcher.last_offset);
    assert(last >= -1);
    if (last < offset)
        return rmq_flusher_lower(&store->flusher, offset, last,
                                 atomic_load(&store->dispatcher.last_timestamp), err);
    return rmq_flusher_lower(&store->flusher, offset, 0, 0, err);
}

/* Records before the cut that are not dispatched yet have their queue offsets already. */
static int keep_queue_offsets(struct rmq_store *store, int64_t log_end, struct rmq_error *err)
{
    assert(log_end >= 0);

    struct rmq_scan scan;
    struct rmq_record record;
    int64_t from = atomic_load(&store->dispatcher.dispatched_offset),
            start = rmq_file_queue_start(&store->log.files);
    rmq_scan_begin(&scan, &store->log.files, from > start ? from : start, log_end, RMQ_CHECK_PLACE);

    int status;
    while ((status = rmq_scan_next(&scan, &record, err)) == RMQ_OK) {
        status = rmq_dispatch_record(&store->dispatcher, &record, RMQ_TO_OFFSETS, err);
        if (status != RMQ_OK)
            break;
    }
    rmq_scan_finish(&scan);
    return status == RMQ_END ? RMQ_OK : status;
}

static int cut(struct rmq_store *store, int64_t offset, struct rmq_error *err)
{
    assert(offset >= 0 && rmq_spin_is_held(&store->log.put_lock));

    int status = lower_checkpoint(store, offset, err);
    if (status == RMQ_OK)
        status = rmq_recover_removed(&store->dispatcher, offset, err);
    for (struct rmq_queue *queue = rmq_queue_table_first(&store->queues); queue && status == RMQ_OK;
         queue = rmq_queue_table_next(queue)) {
        status = rmq_queue_truncate(queue, rmq_file_queue_start(&store->log.files), offset, err);
        atomic_store(&queue->next_offset, rmq_queue_max(queue));
    }

    if (status == RMQ_OK)
        status = keep_queue_offsets(store, offset, err);
    if (status == RMQ_OK)
        status = rmq_warmer_truncate(&store->log.warmer, offset, err);
    if (status == RMQ_OK)
        status = rmq_recover_index(&store->dispatcher, offset, err);

    if (atomic_load(&store->dispatcher.last_offset) >= offset) {
        atomic_store(&store->dispatcher.last_timestamp, 0);
        atomic_store(&store->dispatcher.last_offset, 0);
    }
    return status;
}

static void lower(_Atomic int64_t *offset, int64_t bound)
{
    assert(bound >= 0);

    if (atomic_load(offset) > bound)
        atomic_store(offset, bound);
}

/* The confirm offset is lowered with the cut: bytes that are written there later are not
 * confirmed. */
static void lower_confirm(struct rmq_shared_confirm *shared, int64_t bound)
{
    struct rmq_confirm confirm = rmq_confirm_load(shared);
    assert(bound >= 0);

    if (confirm.mode == RMQ_CONFIRM_BOUND && confirm.offset > bound)
        rmq_confirm_store(shared, rmq_confirm_at(bound));
}

/* Links of replicas hold positions in the log (replica/pump.h). */
static int check_streams(struct rmq_store *store, int64_t offset, struct rmq_error *err)
{
    int32_t streams = atomic_load(&store->streams);
    assert(streams >= 0);

    if (streams == 0)
        return RMQ_OK;

    return rmq_fail(err, RMQ_BUSY, offset,
                    "cannot cut at %" PRId64 ": %d connections of replicas send or append this "
                    "log; stop them first",
                    offset, streams);
}

/* The store is halted. */
static int cut_at(struct rmq_store *store, int64_t offset, struct rmq_error *err)
{
    assert(rmq_spin_is_held(&store->log.put_lock));

    int status = check_streams(store, offset, err);
    if (status == RMQ_OK)
        status = check_border(store, offset, err);
    if (status != RMQ_OK)
        return status;

    atomic_fetch_add(&store->cuts, 1);
    lower_confirm(&store->dispatcher.confirm, offset);

    status = cut(store, offset, err);
    lower(&store->raw_end, offset);
    lower(&store->dispatcher.dispatched_offset, offset);
    if (status != RMQ_OK)
        rmq_failure_set(&store->failure, err);
    return status;
}

int rmq_store_truncate(struct rmq_store *store, int64_t offset, struct rmq_error *err)
{
    struct rmq_error own;
    if (!err)
        err = &own;
    int status = rmq_store_may_change(store, err);
    if (status != RMQ_OK)
        return status;

    halt(store);
    int64_t end = rmq_file_queue_end(&store->log.files);
    if (offset > end)
        status = rmq_fail(err, RMQ_OUT_OF_RANGE, offset,
                          "cannot cut at %" PRId64 ", the log ends at %" PRId64, offset, end);
    else if (offset < end)
        status = cut_at(store, offset, err);

    assert(status != RMQ_OK || rmq_file_queue_end(&store->log.files) == offset);
    resume(store, atomic_load(&store->dispatcher.dispatched_offset));
    return status;
}

int rmq_store_settle(struct rmq_store *store, int64_t whole_end, struct rmq_error *err)
{
    struct rmq_error own;
    if (!err)
        err = &own;
    int status = rmq_store_may_change(store, err);
    if (status != RMQ_OK)
        return status;

    halt(store);
    int64_t end = rmq_file_queue_end(&store->log.files);
    if (whole_end < end)
        status = cut_at(store, whole_end, err);
    else
        status = keep_queue_offsets(store, end, err);

    if (status == RMQ_OK)
        atomic_store_explicit(&store->raw_end, 0, memory_order_release);

    assert(status != RMQ_OK ||
           rmq_file_queue_end(&store->log.files) == (whole_end < end ? whole_end : end));
    resume(store, atomic_load(&store->dispatcher.dispatched_offset));
    return status;
}

/* ---- dropping the whole log ---- */

/* First the checkpoint covers nothing. Queues and index are then removed before the log, and are
 * rebuilt from the part of the log that a crash leaves. */
static int give_up(struct rmq_store *store, int64_t offset, struct rmq_error *err)
{
    assert(offset >= 0 && rmq_spin_is_held(&store->log.put_lock));

    struct rmq_dispatcher *dispatcher = &store->dispatcher;
    atomic_store(&dispatcher->index_timestamp, 0);
    atomic_store(&dispatcher->last_timestamp, 0);
    atomic_store(&dispatcher->last_offset, 0);

    int status = rmq_flusher_lower(&store->flusher, 0, 0, 0, err);
    if (status == RMQ_OK)
        status = rmq_recover_removed(dispatcher, offset, err);
    for (struct rmq_queue *queue = rmq_queue_table_first(&store->queues); queue && status == RMQ_OK;
         queue = rmq_queue_table_next(queue)) {
        status = rmq_queue_clear(queue, err);
        /* The log is empty and begins at 0: no record has a queue offset. */
        if (status == RMQ_OK && offset == 0)
            atomic_store(&queue->next_offset, 0);
    }

    if (status == RMQ_OK)
        status = rmq_recover_index(dispatcher, 0, err);
    if (status == RMQ_OK)
        status = rmq_warmer_restart(&store->log.warmer, offset, err);

    if (status != RMQ_OK)
        return status;

    atomic_store(&dispatcher->dispatched_offset, offset);
    atomic_store(&store->raw_end, offset);
    if (rmq_dispatcher_is_bound(dispatcher))
        rmq_confirm_store(&dispatcher->confirm, rmq_confirm_at(offset));
    return rmq_flusher_save(&store->flusher, err);
}

/* Queues continue after the queue offsets that they have assigned. If the bytes before the log's
 * end are too few for that many records, readers would treat the next record as damaged. */
static int check_new_beginning(struct rmq_store *store, int64_t offset, struct rmq_error *err)
{
    assert(offset >= 0);

    int64_t end = rmq_file_queue_end(&store->log.files);
    if (offset == 0 || offset >= end)
        return RMQ_OK;

    return rmq_fail(err, RMQ_OUT_OF_RANGE, offset,
                    "the log ends at %" PRId64 " and cannot begin again at %" PRId64
                    ", only behind its end or at 0; nothing was given up. Cut it where the other "
                    "log parts from it",
                    end, offset);
}

int rmq_store_restart(struct rmq_store *store, int64_t offset, struct rmq_error *err)
{
    struct rmq_error own;
    struct rmq_file_queue *files = &store->log.files;
    if (!err)
        err = &own;
    int status = rmq_store_may_change(store, err);
    if (status != RMQ_OK)
        return status;

    if (offset < 0 || offset % files->options.file_size != 0)
        return rmq_fail(err, RMQ_OUT_OF_RANGE, offset,
                        "a log begins where one of its files does, at a multiple of %" PRId64
                        ", not at %" PRId64 "; nothing was given up. Open the store with the "
                        "mappedFileSizeCommitLog of the log it shall be a copy of",
                        files->options.file_size, offset);

    halt(store);
    if (rmq_file_queue_start(files) != offset || rmq_file_queue_end(files) != offset) {
        status = check_streams(store, offset, err);
        if (status == RMQ_OK)
            status = check_new_beginning(store, offset, err);
        if (status == RMQ_OK) {
            atomic_fetch_add(&store->cuts, 1);
            status = give_up(store, offset, err);
            /* A thread that read the number in between may have seen the former queues. */
            atomic_fetch_add(&store->cuts, 1);
            if (status != RMQ_OK)
                rmq_failure_set(&store->failure, err);
        }
    }

    assert(status != RMQ_OK || rmq_file_queue_start(files) == rmq_file_queue_end(files));
    resume(store, atomic_load(&store->dispatcher.dispatched_offset));
    return status;
}

/* ---- the first files ---- */

/* How many of the first file_count log files may be removed: those whose messages are all in their
 * queues. The queues are synced, because only they keep the assigned queue offsets then. */
static int count_removable(struct rmq_store *store, size_t *file_count, struct rmq_error *err)
{
    assert(file_count);

    struct rmq_file_queue *files = &store->log.files;
    int64_t start = rmq_file_queue_start(files), size = files->options.file_size;
    int64_t count = (rmq_file_queue_end(files) - start - 1) / size;
    if (start < 0 || count <= 0) {
        *file_count = 0;
        return RMQ_OK;
    }

    count = (size_t)count < *file_count ? count : (int64_t)*file_count;
    int64_t end = start + count * size, limit = rmq_dispatcher_limit(&store->dispatcher);
    (void)rmq_dispatcher_wait(&store->dispatcher, end < limit ? end : limit, RMQ_EXPIRE_WAIT_MS,
                              NULL);

    int64_t dispatched = atomic_load(&store->dispatcher.dispatched_offset);
    if (dispatched < end)
        count = dispatched > start ? (dispatched - start) / size : 0;
    *file_count = (size_t)count;
    assert(count >= 0);

    int status = count ? rmq_flusher_flush_all(&store->flusher, err) : RMQ_OK;
    /* A checkpoint without room on the disk stays older, and covers less. Files are removed to make
     * room. */
    if (status == RMQ_NO_SPACE)
        status = rmq_failure_check(&store->failure, err);
    return status;
}

int rmq_store_expire(struct rmq_store *store, size_t file_count, struct rmq_error *err)
{
    int status = rmq_store_check(store, err);
    if (status != RMQ_OK)
        return status;
    if (store->read_only)
        return rmq_fail(err, RMQ_READ_ONLY, -1, "%s is opened read-only", store->root);

    status = count_removable(store, &file_count, err);
    if (status != RMQ_OK)
        return status;

    pthread_mutex_lock(&store->structure_lock);
    /* Queues have one writer, and their lower bounds are about to move. */
    rmq_dispatcher_pause(&store->dispatcher);

    status = rmq_file_queue_delete_head(&store->log.files, file_count, err);
    int64_t start = rmq_file_queue_start(&store->log.files);
    for (struct rmq_queue *queue = rmq_queue_table_first(&store->queues); queue && status == RMQ_OK;
         queue = rmq_queue_table_next(queue))
        status = rmq_queue_expire(queue, start, err);

    if (status == RMQ_OK && store->has_index)
        status = rmq_index_expire(&store->index, start, err);
    if (status == RMQ_OK && file_count > 0)
        status = rmq_store_save_queue_ends(store, false, err);

    rmq_dispatcher_resume(&store->dispatcher, atomic_load(&store->dispatcher.dispatched_offset));
    pthread_mutex_unlock(&store->structure_lock);
    return status;
}
