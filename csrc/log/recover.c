#include "log/recover_parts.h"

#include <assert.h>
#include <inttypes.h>
#include <string.h>

#include "index/removed_queues.h"
#include "log/log_end.h"

/* ---- where to begin ---- */

int rmq_recover_find_start(struct rmq_file_queue *files, int64_t bound, int64_t *start,
                           struct rmq_error *err)
{
    assert(start);

    *start = rmq_file_queue_start(files);
    for (size_t i = files->count; i-- > 0;) {
        struct rmq_mapped_file *file = NULL;
        struct rmq_record record;
        int status = rmq_file_queue_pin_at(files, i, &file, err);
        if (status != RMQ_OK)
            return status;

        bool found = file->start <= bound &&
                     rmq_record_decode(rmq_mapped_file_base(file), (size_t)file->size, file->start,
                                       RMQ_CHECK_PLACE, &record, NULL) == RMQ_OK;
        int64_t at = file->start;
        rmq_mapped_file_unpin(file);

        if (found) {
            *start = at;
            return RMQ_OK;
        }
    }
    return RMQ_OK;
}

/* ---- queues ---- */

int rmq_recover_each_queue(struct rmq_queue_table *queues,
                           int (*verb)(struct rmq_queue *, int64_t, struct rmq_error *),
                           int64_t offset, struct rmq_error *err)
{
    assert(queues && verb);

    int status = RMQ_OK;
    for (struct rmq_queue *queue = rmq_queue_table_first(queues); queue && status == RMQ_OK;
         queue = rmq_queue_table_next(queue))
        status = verb(queue, offset, err);
    return status;
}

static int64_t last_physical_end(struct rmq_queue_table *queues)
{
    int64_t end = -1;
    for (struct rmq_queue *queue = rmq_queue_table_first(queues); queue;
         queue = rmq_queue_table_next(queue)) {
        int64_t one = rmq_queue_physical_end(queue);
        end = one > end ? one : end;
    }
    return end;
}

/* Called before index files that begin at offset are dropped: after a crash in between, recovery
 * must start at offset again. */
static int lower_checkpoint(struct rmq_dispatcher *dispatcher, struct rmq_checkpoint *checkpoint,
                            const struct rmq_recovery_options *options, int64_t offset,
                            struct rmq_error *err)
{
    assert(options->checkpoint_path);

    if (checkpoint->logics_physical_offset <= offset)
        return RMQ_OK;

    checkpoint->logics_physical_offset = offset > 0 ? offset : 0;
    return rmq_checkpoint_write(dispatcher->log->files.options.vfs, options->checkpoint_path,
                                checkpoint, err);
}

/* Drops the index files that the checkpoint does not cover. */
static int discard_index(struct rmq_dispatcher *dispatcher, struct rmq_checkpoint *checkpoint,
                         const struct rmq_recovery_options *options, struct rmq_error *err)
{
    int64_t safe = checkpoint->logics_physical_offset, begin = 0;
    if (!dispatcher->index || dispatcher->index->count == 0)
        return RMQ_OK;

    begin = rmq_index_unsafe_begin(dispatcher->index, checkpoint->index_timestamp, safe);

    int status = lower_checkpoint(dispatcher, checkpoint, options, begin, err);
    if (status != RMQ_OK)
        return status;
    return rmq_index_discard_unsafe(dispatcher->index, checkpoint->index_timestamp, safe, &begin,
                                    err);
}

static int rewind_queues(struct rmq_dispatcher *dispatcher, int64_t log_end, struct rmq_error *err)
{
    assert(log_end >= 0);

    int64_t log_start = rmq_file_queue_start(&dispatcher->log->files);
    int status = RMQ_OK;
    for (struct rmq_queue *queue = rmq_queue_table_first(dispatcher->queues);
         queue && status == RMQ_OK; queue = rmq_queue_table_next(queue))
        status = rmq_queue_rewind(queue, log_start, log_end, err);
    return status;
}

static int truncate_queues(struct rmq_dispatcher *dispatcher, int64_t log_end,
                           struct rmq_error *err)
{
    assert(log_end >= 0);

    int64_t log_start = rmq_file_queue_start(&dispatcher->log->files);
    int status = RMQ_OK;
    for (struct rmq_queue *queue = rmq_queue_table_first(dispatcher->queues);
         queue && status == RMQ_OK; queue = rmq_queue_table_next(queue))
        status = rmq_queue_truncate(queue, log_start, log_end, err);
    return status;
}

/* ---- missing entries of queues and index ---- */

static int64_t least(int64_t a, int64_t b)
{
    return a < b ? a : b;
}

/* Lowers *bound to the log offset from which on queues or index may lack entries, by queue_ends.h
 * and by the starts of the queues' files. Queues are not rewound yet. */
static int find_lost(struct rmq_dispatcher *dispatcher, int64_t *bound, struct rmq_error *err)
{
    assert(*bound == INT64_MAX);

    int64_t log_start = rmq_file_queue_start(&dispatcher->log->files);
    if (dispatcher->queues->lacks_queues || dispatcher->index_lacks)
        *bound = -1;

    int status = RMQ_OK;
    for (struct rmq_queue *queue = rmq_queue_table_first(dispatcher->queues);
         queue && status == RMQ_OK; queue = rmq_queue_table_next(queue)) {
        bool may_lack = false;
        status = rmq_queue_may_lack_start(queue, log_start, &may_lack, err);
        if (may_lack)
            *bound = -1;
    }
    return status;
}

/* The same for rewound queues, which may be shorter than they were when the store was closed. */
static void find_short(struct rmq_dispatcher *dispatcher, int64_t *bound)
{
    assert(bound);

    for (struct rmq_queue *queue = rmq_queue_table_first(dispatcher->queues); queue;
         queue = rmq_queue_table_next(queue))
        if (rmq_queue_is_short(queue))
            *bound = least(*bound, rmq_queue_physical_end(queue));
}

/* Lets the walk begin at *start, as early as bound requires. */
static int begin_at(struct rmq_dispatcher *dispatcher, int64_t bound, int64_t *start,
                    struct rmq_error *err)
{
    int64_t earlier = *start;
    int status = rmq_recover_find_start(&dispatcher->log->files, bound, &earlier, err);
    *start = least(*start, earlier);
    return status;
}

static bool has_incomplete(struct rmq_queue_table *queues)
{
    struct rmq_queue *queue = rmq_queue_table_first(queues);
    while (queue && !queue->is_incomplete)
        queue = rmq_queue_table_next(queue);
    return queue != NULL;
}

/* Drops the entries that the walk enters again. After a crash in between, the walk must begin at
 * the same offset again. */
static int clear_incomplete(struct rmq_dispatcher *dispatcher, struct rmq_checkpoint *checkpoint,
                            const struct rmq_recovery_options *options,
                            const struct rmq_recovery *recovery, struct rmq_error *err)
{
    assert(recovery->was_incomplete);

    int64_t begin = 0;
    int status = lower_checkpoint(dispatcher, checkpoint, options, recovery->start_offset, err);
    for (struct rmq_queue *queue = rmq_queue_table_first(dispatcher->queues);
         queue && status == RMQ_OK; queue = rmq_queue_table_next(queue))
        if (queue->is_incomplete)
            status = rmq_queue_clear(queue, err);
    if (status == RMQ_OK && dispatcher->index_lacks)
        status = rmq_index_discard_unsafe(dispatcher->index, -1, -1, &begin, err);
    return status;
}

/* After a crash: only entries that the checkpoint covers count. *start is the offset at which the
 * walk has to begin. */
static int distrust(struct rmq_dispatcher *dispatcher, const struct rmq_checkpoint *checkpoint,
                    int64_t *start, struct rmq_error *err)
{
    assert(start);

    int64_t bound = INT64_MAX;
    if (dispatcher->index && dispatcher->index->count == 0)
        bound = -1; /* See trust(). */
    else if (dispatcher->index)
        bound = rmq_index_unsafe_begin(dispatcher->index, checkpoint->index_timestamp,
                                       checkpoint->logics_physical_offset);

    /* The timestamps of a 5.3 checkpoint do not show which pages of queues and index are durable: 0
     * keeps none. */
    if (checkpoint->logics_physical_offset < bound)
        bound = checkpoint->logics_physical_offset;

    int64_t lost = INT64_MAX;
    int status = find_lost(dispatcher, &lost, err);
    if (status == RMQ_OK)
        status = rmq_recover_find_start(&dispatcher->log->files, bound, start, err);
    if (status == RMQ_OK)
        status = rewind_queues(dispatcher, *start, err);
    if (status != RMQ_OK)
        return status;

    find_short(dispatcher, &lost);
    if (lost == INT64_MAX)
        return RMQ_OK;
    dispatcher->expected_below = *start;
    status = begin_at(dispatcher, lost, start, err);
    return status == RMQ_OK ? rewind_queues(dispatcher, *start, err) : status;
}

/* After a clean stop: keeps queues as they are. */
static int trust(struct rmq_dispatcher *dispatcher, int64_t *start, int64_t *durable,
                 struct rmq_error *err)
{
    assert(start && durable);

    int64_t lost = INT64_MAX;
    dispatcher->index_lacks =
        dispatcher->index &&
        dispatcher->queues->lost_index_end >= rmq_file_queue_start(&dispatcher->log->files);
    int status = find_lost(dispatcher, &lost, err);
    if (status == RMQ_OK)
        status = rewind_queues(dispatcher, INT64_MAX, err);
    if (status != RMQ_OK)
        return status;

    find_short(dispatcher, &lost);
    *durable = last_physical_end(dispatcher->queues);
    int64_t bound = *durable;
    if (dispatcher->index && dispatcher->index->count == 0) {
        bound = -1; /* Even without keys a store has an index file. It was lost, or the index was
                       just switched on. */
    } else if (dispatcher->index && rmq_index_newest_begin(dispatcher->index) != INT64_MAX) {
        int64_t indexed = rmq_index_last_physical_offset(dispatcher->index);
        bound = indexed < bound ? indexed : bound;
    }

    status = rmq_recover_find_start(&dispatcher->log->files, bound, start, err);
    if (status != RMQ_OK || lost == INT64_MAX)
        return status;
    dispatcher->expected_below = INT64_MAX;
    return begin_at(dispatcher, lost, start, err);
}

/* ---- the walk ---- */

int rmq_recover_holds_nul(struct rmq_file_queue *files, int64_t offset, bool *holds,
                          struct rmq_error *err)
{
    assert(holds);

    struct rmq_mapped_file *file = NULL;
    struct rmq_record record;
    int status = rmq_file_queue_pin(files, offset, &file, err);
    if (status != RMQ_OK)
        return status;

    int64_t at = offset - file->start;
    *holds = rmq_record_decode(rmq_mapped_file_base(file) + at, (size_t)(file->size - at), offset,
                               RMQ_CHECK_FORM, &record, NULL) == RMQ_OK &&
             (memchr(record.topic, 0, (size_t)record.topic_size) ||
              (record.properties_size > 0 &&
               memchr(record.properties, 0, (size_t)record.properties_size)));
    rmq_mapped_file_unpin(file);
    return RMQ_OK;
}

struct found {
    int64_t last_timestamp; /* of the last record of the log; -1: the log is empty */
    /* Records before it are entered already, in queues that were rewound and in the index. It is
     * the offset of a record that may be entered, or the start of the walk. */
    int64_t enter_offset;
    int64_t entered; /* number of records before it */
};

static void enter_all(const struct rmq_recovery *recovery, struct found *found)
{
    found->enter_offset = recovery->start_offset;
    found->entered = 0;
}

/* The keys of the index's last record are entered again, since a full disk may have prevented some
 * of them. The index of a closed store has all keys. */
static int64_t indexed_offset(struct rmq_dispatcher *dispatcher,
                              const struct rmq_recovery_options *options)
{
    return options->was_closed && dispatcher->index && !dispatcher->index_lacks
               ? rmq_index_last_physical_offset(dispatcher->index)
               : -1;
}

/* Whether the bytes before end are confirmed. */
static bool is_confirmed(const struct rmq_recovery_options *options, int64_t end)
{
    return rmq_confirm_limit(options->confirm, end) == end;
}

/* Finds the end of the log. Every check that may fail is made here, before any file changes. */
static int survey(struct rmq_dispatcher *dispatcher, const struct rmq_recovery_options *options,
                  int64_t durable, struct rmq_scan_ahead *ahead, struct rmq_recovery *recovery,
                  struct found *found, struct rmq_error *err)
{
    assert(recovery->records == 0 && found);

    struct rmq_record record;
    int64_t last_offset = -1, indexed = indexed_offset(dispatcher, options);
    int status;
    found->last_timestamp = -1;
    enter_all(recovery, found);
    dispatcher->queues_differ = dispatcher->index_differs = dispatcher->queues_lack = false;

    while ((status = rmq_scan_ahead_next(ahead, &record, err)) == RMQ_OK) {
        unsigned parts = RMQ_TO_SURVEY;
        if (record.physical_offset > indexed)
            parts |= RMQ_TO_INDEX;
        if (!is_confirmed(options, ahead->scan.offset))
            dispatcher->queues_differ = true;
        bool differed = dispatcher->queues_differ;
        status = rmq_dispatch_record(dispatcher, &record, parts, err);
        if (status != RMQ_OK)
            return status;

        if (dispatcher->queues_differ && !differed &&
            record.physical_offset < dispatcher->expected_below)
            recovery->was_incomplete = true;
        if (!dispatcher->queues_differ && !dispatcher->index_differs) {
            found->enter_offset = ahead->kept_from = record.physical_offset;
            found->entered = recovery->records;
        }
        ++recovery->records;
        last_offset = record.physical_offset;
        found->last_timestamp = record.store_timestamp;
    }
    if (status != RMQ_END)
        return status;

    assert(ahead->scan.offset >= recovery->start_offset);
    recovery->end_offset = ahead->scan.offset;
    if (options->was_closed || last_offset < durable)
        return RMQ_OK;

    /* The body's CRC does not cover the bytes after the body. A last record whose topic or
     * properties have a NUL was being written to the device when the power failed. */
    bool is_torn = false;
    status = rmq_recover_holds_nul(&dispatcher->log->files, last_offset, &is_torn, err);
    if (status == RMQ_OK && is_torn) {
        recovery->end_offset = last_offset;
        assert(recovery->records > 0);
        --recovery->records;
        if (found->enter_offset == last_offset)
            enter_all(recovery, found);
    }
    return status;
}

/* Enters the surveyed records. If entering them would store nothing, only the last one is entered:
 * this sets the dispatcher's position and ensures that there is an index file. */
static int enter(struct rmq_dispatcher *dispatcher, const struct rmq_recovery_options *options,
                 const struct found *found, struct rmq_recovery *recovery, struct rmq_error *err)
{
    assert(recovery->start_offset >= 0 && recovery->start_offset <= recovery->end_offset);
    assert(found->entered <= recovery->records && found->enter_offset <= recovery->end_offset);

    struct rmq_scan_ahead ahead;
    struct rmq_record record;
    int64_t indexed = indexed_offset(dispatcher, options);
    int64_t left = recovery->records - found->entered;
    int status = RMQ_OK;

    recovery->dispatched_offset = recovery->start_offset;
    rmq_scan_ahead_begin(&ahead, &dispatcher->log->files, found->enter_offset, recovery->end_offset,
                         RMQ_CHECK_PLACE, false);

    status = rmq_recover_each_queue(dispatcher->queues, rmq_queue_keep, 0, err);
    for (; left > 0 && status == RMQ_OK; --left) {
        status = rmq_scan_ahead_next(&ahead, &record, err);
        if (status != RMQ_OK)
            break;

        bool is_dispatched = is_confirmed(options, ahead.scan.offset);
        unsigned parts = is_dispatched ? RMQ_TO_QUEUES | RMQ_TO_INDEX : (unsigned)RMQ_TO_OFFSETS;
        if (is_dispatched)
            recovery->dispatched_offset = ahead.scan.offset;
        if (record.physical_offset <= indexed)
            parts &= ~(unsigned)RMQ_TO_INDEX;
        status = rmq_dispatch_record(dispatcher, &record, parts, err);
    }

    if (status == RMQ_END)
        status =
            rmq_fail(err, RMQ_CORRUPT, ahead.scan.offset,
                     "commit log: the record at offset %" PRId64 " changed while it was recovered",
                     ahead.scan.offset);
    rmq_scan_ahead_finish(&ahead);
    return status;
}

/* ---- the bytes after the end ---- */

/* Copies the bytes after the end if they contain whole records. */
static int save_cut(struct rmq_dispatcher *dispatcher, const struct rmq_recovery_options *options,
                    struct rmq_recovery *recovery, struct rmq_error *err)
{
    assert(recovery->end_offset >= 0);

    struct rmq_file_queue *files = &dispatcher->log->files;
    int64_t last = 0;
    int status = rmq_file_queue_last_byte(files, recovery->end_offset, &last, err);
    if (status != RMQ_OK || last <= recovery->end_offset)
        return status;

    recovery->cut_bytes = last - recovery->end_offset;
    struct rmq_scan scan;
    rmq_scan_begin(&scan, files, recovery->end_offset, last, 0);

    status = rmq_scan_resync(&scan, err);
    rmq_scan_finish(&scan);

    if (status == RMQ_END)
        return RMQ_OK;
    return status == RMQ_OK ? rmq_cut_copy(files, options->root, recovery->end_offset, last,
                                           recovery->cut_path, err)
                            : status;
}

/* For a checkpoint that does not say how far the log was flushed. Files are filled and flushed in
 * order: a whole record at the head of a later file shows that this file was full, so bad bytes
 * here are most probably damage. */
static bool later_file_begins(struct rmq_file_queue *files, int64_t end, int64_t *begin)
{
    assert(end >= 0 && begin);

    for (size_t i = 0; i < files->count; ++i) {
        struct rmq_mapped_file *file = NULL;
        struct rmq_record record;
        if (rmq_file_queue_pin_at(files, i, &file, NULL) != RMQ_OK)
            return false;

        bool begins =
            file->start > end &&
            rmq_record_decode(rmq_mapped_file_base(file), (size_t)file->size, file->start,
                              RMQ_CHECK_PLACE | RMQ_CHECK_BODY_CRC, &record, NULL) == RMQ_OK;
        *begin = file->start;
        rmq_mapped_file_unpin(file);

        if (begins)
            return true;
    }
    return false;
}

static int refuse_damage(const struct rmq_scan *scan, int64_t end, int64_t durable, bool is_unknown,
                         struct rmq_error *err)
{
    assert(end < durable);

    return rmq_fail(err, RMQ_CORRUPT, end,
                    "commit log: %s at offset %" PRId64 ", but records up to %" PRId64
                    " were stored%s; the log is "
                    "left as it is: see rmqstore verify, then rmqstore repair",
                    scan->verdict == RMQ_SCAN_BAD ? scan->error.detail : "no record", end, durable,
                    is_unknown ? " (or RocketMQ cut them off here; which one is unknown)" : "");
}

/* ---- queues of deleted topics ---- */

int rmq_recover_removed(struct rmq_dispatcher *dispatcher, int64_t log_end, struct rmq_error *err)
{
    assert(log_end >= 0);

    bool is_cut = false;
    for (struct rmq_queue *queue = rmq_queue_table_first(dispatcher->queues); queue;
         queue = rmq_queue_table_next(queue))
        if (queue->removed_until > log_end) {
            queue->removed_until = log_end;
            atomic_store(&queue->removed_next, 0);
            is_cut = true;
        }
    if (!is_cut)
        return RMQ_OK;

    int64_t start = rmq_file_queue_start(&dispatcher->log->files);
    int status = RMQ_END;
    if (start >= 0 && start < log_end) {
        struct rmq_scan scan;
        struct rmq_record record;
        rmq_scan_begin(&scan, &dispatcher->log->files, start, log_end, RMQ_CHECK_PLACE);
        while ((status = rmq_scan_next(&scan, &record, err)) == RMQ_OK) {
            status = rmq_dispatch_record(dispatcher, &record, RMQ_TO_REMOVED, err);
            if (status != RMQ_OK)
                break;
        }
        rmq_scan_finish(&scan);
    }
    return status == RMQ_END ? rmq_removed_queues_save(dispatcher->queues, NULL, err) : status;
}

/* After a crash, queues that are in the saved entries may still have files. The checkpoint was
 * limited to the offsets of the entries before they were saved, so the walk covers all later
 * records. */
static int finish_removing(struct rmq_dispatcher *dispatcher, int64_t start, struct rmq_error *err)
{
    assert(start >= 0);

    int status = RMQ_OK;
    for (struct rmq_queue *queue = rmq_queue_table_first(dispatcher->queues);
         queue && status == RMQ_OK; queue = rmq_queue_table_next(queue))
        if (queue->removed_until > 0 && queue->removed_until >= start)
            status = rmq_removed_queue_clear(dispatcher->queues, queue, err);
    return status;
}

/* ---- the whole recovery ---- */

int rmq_recover_index(struct rmq_dispatcher *dispatcher, int64_t log_end, struct rmq_error *err)
{
    assert(log_end >= 0);

    int64_t from = INT64_MAX;
    if (!dispatcher->index || rmq_index_last_physical_offset(dispatcher->index) < log_end)
        return RMQ_OK;

    int status = rmq_index_discard_unsafe(dispatcher->index, INT64_MAX, log_end, &from, err);
    if (status != RMQ_OK || from >= log_end)
        return status;

    int64_t start = rmq_file_queue_start(&dispatcher->log->files);
    struct rmq_scan scan;
    struct rmq_record record;
    rmq_scan_begin(&scan, &dispatcher->log->files, from > start ? from : start, log_end,
                   RMQ_CHECK_PLACE);

    while ((status = rmq_scan_next(&scan, &record, err)) == RMQ_OK) {
        status = rmq_dispatch_record(dispatcher, &record, RMQ_TO_INDEX, err);
        if (status != RMQ_OK)
            break;
    }
    rmq_scan_finish(&scan);
    return status == RMQ_END ? RMQ_OK : status;
}

static int settle(struct rmq_dispatcher *dispatcher, struct rmq_checkpoint *checkpoint,
                  const struct rmq_recovery_options *options, struct rmq_recovery *recovery,
                  struct rmq_error *err)
{
    assert(recovery->start_offset <= recovery->end_offset);

    struct rmq_file_queue *files = &dispatcher->log->files;
    int64_t end = recovery->end_offset;
    int status = save_cut(dispatcher, options, recovery, err);
    if (status == RMQ_OK)
        status = rmq_recover_removed(dispatcher, end, err);

    /* Queues first: they must not point past the end of a log that lost its last file. */
    if (status == RMQ_OK)
        status = truncate_queues(dispatcher, end, err);
    if (status == RMQ_OK)
        status = rmq_file_queue_truncate(files, end, err);
    if (status == RMQ_OK)
        status = rmq_recover_each_queue(dispatcher->queues, rmq_queue_expire,
                                        rmq_file_queue_start(files), err);

    if (status == RMQ_OK && dispatcher->index &&
        rmq_index_last_physical_offset(dispatcher->index) >= end)
        status = lower_checkpoint(dispatcher, checkpoint, options,
                                  rmq_index_unsafe_begin(dispatcher->index, INT64_MAX, end), err);
    if (status == RMQ_OK)
        status = rmq_recover_index(dispatcher, end, err);
    if (status != RMQ_OK)
        return status;

    /* The last bytes of a process that died may be in memory only; they count as durable from here
     * on. */
    if (!options->was_closed)
        rmq_file_queue_distrust(files, recovery->start_offset);
    status = rmq_file_queue_flush(files, err);

    for (struct rmq_queue *queue = rmq_queue_table_first(dispatcher->queues);
         queue && status == RMQ_OK; queue = rmq_queue_table_next(queue)) {
        status = rmq_queue_flush(queue, err);
        int64_t max = rmq_queue_max(queue);
        if (options->confirm.mode != RMQ_CONFIRM_BOUND || atomic_load(&queue->next_offset) < max)
            atomic_store(&queue->next_offset, max);
    }

    if (status == RMQ_OK && dispatcher->index)
        status = rmq_index_flush(dispatcher->index, err);

    atomic_store(&dispatcher->dispatched_offset,
                 is_confirmed(options, end) ? end : recovery->dispatched_offset);
    return status;
}

/* From here on files change. Until the store is closed, the next start must find the marker. */
static int accept(struct rmq_dispatcher *dispatcher, const struct rmq_recovery_options *options,
                  struct rmq_error *err)
{
    assert(options->abort_path);

    int status = RMQ_OK;
    if (options->was_closed)
        status = rmq_abort_create(dispatcher->log->files.options.vfs, options->abort_path, err);
    if (status == RMQ_OK && dispatcher->index)
        status = rmq_index_remove_unfinished(dispatcher->index, err);
    return status;
}

static int recover_without_log(struct rmq_dispatcher *dispatcher,
                               const struct rmq_recovery_options *options, struct rmq_error *err)
{
    assert(rmq_file_queue_start(&dispatcher->log->files) < 0);

    int status = rewind_queues(dispatcher, INT64_MAX, err);
    if (status == RMQ_OK && last_physical_end(dispatcher->queues) > 0)
        return rmq_fail(err, RMQ_CORRUPT, 0,
                        "there are queues, but no commit log files under %s: is "
                        "storePathCommitLog right?",
                        dispatcher->log->files.options.directories[0]);

    if (status == RMQ_OK)
        status = accept(dispatcher, options, err);
    if (status == RMQ_OK)
        status = truncate_queues(dispatcher, 0, err);
    if (status == RMQ_OK)
        status = rmq_file_queue_truncate(&dispatcher->log->files, 0, err);
    if (status == RMQ_OK)
        status = rmq_recover_removed(dispatcher, 0, err);
    /* A crash between the two steps of dropping the whole log leaves keys, which would hide later
     * ones. */
    if (status == RMQ_OK)
        status = rmq_recover_index(dispatcher, 0, err);
    return status;
}

static unsigned checks_of(const struct rmq_recovery_options *options)
{
    unsigned checks = RMQ_CHECK_PLACE | (options->was_closed ? 0u : (unsigned)RMQ_CHECK_LOST);

    if (!options->check_crc)
        return checks;
    return checks | (options->need_property_crc ? RMQ_NEED_PROPERTY_CRC | RMQ_CHECK_PROPERTY_CRC
                                                : RMQ_CHECK_BODY_CRC | RMQ_CHECK_PROPERTY_CRC);
}

/* The walk ended before durable records: fails, unless RocketMQ cut them. */
static int explain_end(struct rmq_dispatcher *dispatcher, const struct rmq_checkpoint *checkpoint,
                       const struct rmq_scan *scan, int64_t durable, int64_t last_timestamp,
                       struct rmq_recovery *recovery, struct rmq_error *err)
{
    assert(recovery->end_offset < durable);

    enum rmq_log_end found = RMQ_LOG_END_DAMAGED;
    int64_t end = recovery->end_offset;
    int status = RMQ_OK;

    if (checkpoint->flushed_offset < 0)
        status = rmq_log_end_find(&dispatcher->log->files, dispatcher->queues, end, last_timestamp,
                                  false, &found, err);

    if (status == RMQ_OK && found != RMQ_LOG_END_CUT)
        status = refuse_damage(scan, end, durable, found == RMQ_LOG_END_UNKNOWN, err);
    recovery->was_cut = status == RMQ_OK;
    return status;
}

/* Called when a survey found records whose queues lack earlier units: the walk begins at the start
 * of the log. */
static int begin_earlier(struct rmq_dispatcher *dispatcher,
                         const struct rmq_recovery_options *options, struct rmq_recovery *recovery,
                         struct rmq_error *err)
{
    recovery->records = 0;
    if (options->was_closed)
        dispatcher->expected_below = INT64_MAX;
    else if (dispatcher->expected_below < recovery->start_offset)
        dispatcher->expected_below = recovery->start_offset;
    for (struct rmq_queue *queue = rmq_queue_table_first(dispatcher->queues); queue;
         queue = rmq_queue_table_next(queue))
        queue->surveyed_end = 0;

    int status = begin_at(dispatcher, -1, &recovery->start_offset, err);
    if (status != RMQ_OK || options->was_closed)
        return status;
    return rewind_queues(dispatcher, recovery->start_offset, err);
}

int rmq_recover(struct rmq_dispatcher *dispatcher, struct rmq_checkpoint *checkpoint,
                const struct rmq_recovery_options *options, struct rmq_recovery *recovery,
                struct rmq_error *err)
{
    assert(checkpoint && options && recovery);

    struct rmq_file_queue *files = &dispatcher->log->files;
    int64_t began_ms = rmq_monotonic_ms();
    struct found found;
    int64_t durable = 0;
    int status;

    memset(recovery, 0, sizeof *recovery);
    recovery->was_closed = options->was_closed;
    recovery->doubtful_offset = -1;
    atomic_store(&dispatcher->index_timestamp, checkpoint->index_timestamp);

    if (rmq_file_queue_start(files) < 0)
        return recover_without_log(dispatcher, options, err);

    if (options->was_closed) {
        status = trust(dispatcher, &recovery->start_offset, &durable, err);
    } else {
        durable = checkpoint->logics_physical_offset;
        status = distrust(dispatcher, checkpoint, &recovery->start_offset, err);
    }

    if (checkpoint->flushed_offset > durable)
        durable = checkpoint->flushed_offset;
    if (status != RMQ_OK)
        return status;

    struct rmq_scan_ahead ahead;
    rmq_scan_ahead_begin(&ahead, files, recovery->start_offset, rmq_file_queue_end(files),
                         checks_of(options), true);
    status = survey(dispatcher, options, durable, &ahead, recovery, &found, err);

    if (status == RMQ_OK && dispatcher->queues_lack &&
        recovery->start_offset > rmq_file_queue_start(files)) {
        rmq_scan_ahead_finish(&ahead);
        status = begin_earlier(dispatcher, options, recovery, err);
        if (status != RMQ_OK)
            return status;
        rmq_scan_ahead_begin(&ahead, files, recovery->start_offset, rmq_file_queue_end(files),
                             checks_of(options), true);
        status = survey(dispatcher, options, durable, &ahead, recovery, &found, err);
    }
    /* After a crash the index takes the keys of all records of the walk again. */
    if (has_incomplete(dispatcher->queues) ||
        (options->was_closed && dispatcher->expected_below > 0 && dispatcher->index_differs))
        recovery->was_incomplete = true;

    int64_t later = 0;
    if (status == RMQ_OK && recovery->end_offset >= durable && checkpoint->flushed_offset < 0 &&
        later_file_begins(files, recovery->end_offset, &later))
        durable = later;

    if (status == RMQ_OK && recovery->end_offset < durable)
        status = explain_end(dispatcher, checkpoint, &ahead.scan, durable, found.last_timestamp,
                             recovery, err);
    else if (status == RMQ_OK && options->was_closed && checkpoint->flushed_offset < 0)
        status = rmq_log_end_has_leftover(files, dispatcher->queues, recovery->start_offset,
                                          recovery->end_offset, &recovery->was_cut, err);

    rmq_scan_ahead_finish(&ahead);

    /* Entries of records that RocketMQ cut may be between those of remaining records: all are
     * entered again. */
    if (status == RMQ_OK && recovery->was_cut) {
        enter_all(recovery, &found);
        status = rewind_queues(dispatcher, recovery->start_offset, err);
    }

    if (status == RMQ_OK)
        status = accept(dispatcher, options, err);
    if (status == RMQ_OK && !options->was_closed)
        status = discard_index(dispatcher, checkpoint, options, err);
    if (status == RMQ_OK && !options->was_closed)
        status = finish_removing(dispatcher, recovery->start_offset, err);
    if (status == RMQ_OK && recovery->was_incomplete)
        status = clear_incomplete(dispatcher, checkpoint, options, recovery, err);
    if (status == RMQ_OK)
        status = enter(dispatcher, options, &found, recovery, err);
    if (status == RMQ_OK)
        status = settle(dispatcher, checkpoint, options, recovery, err);

    assert(status != RMQ_OK || recovery->dispatched_offset <= recovery->end_offset);
    dispatcher->index_lacks = false;
    dispatcher->expected_below = 0;
    recovery->milliseconds = rmq_monotonic_ms() - began_ms;
    return status;
}
