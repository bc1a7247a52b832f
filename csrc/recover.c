#include "recover.h"

#include <assert.h>
#include <inttypes.h>
#include <limits.h>
#include <string.h>

#include "log_end.h"

/* ---- where to begin ---- */

/* Start of the newest file whose first record lies at or before bound; the log's start when there
 * is none. */
static int find_start(struct rmq_file_queue *files, int64_t bound, int64_t *start,
                      struct rmq_error *err)
{
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

static int each_queue(struct rmq_queue_table *queues,
                      int (*verb)(struct rmq_queue *, int64_t, struct rmq_error *), int64_t offset,
                      struct rmq_error *err)
{
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

/* Before index files that begin at offset are dropped: a crash in between must find the way back to
 * it. */
static int lower_checkpoint(struct rmq_dispatcher *dispatcher, struct rmq_checkpoint *checkpoint,
                            const struct rmq_recovery_options *options, int64_t offset,
                            struct rmq_error *err)
{
    if (checkpoint->logics_physical_offset <= offset)
        return RMQ_OK;
    checkpoint->logics_physical_offset = offset > 0 ? offset : 0;
    return rmq_checkpoint_write(dispatcher->log->files.options.vfs, options->checkpoint_path,
                                checkpoint, err);
}

/* The index files that the checkpoint does not vouch for go. */
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
    int64_t log_start = rmq_file_queue_start(&dispatcher->log->files);
    int status = RMQ_OK;
    for (struct rmq_queue *queue = rmq_queue_table_first(dispatcher->queues);
         queue && status == RMQ_OK; queue = rmq_queue_table_next(queue))
        status = rmq_queue_truncate(queue, log_start, log_end, err);
    return status;
}

/* After a crash: only what the checkpoint vouches for counts; *start is where the walk has to
 * begin. */
static int distrust(struct rmq_dispatcher *dispatcher, const struct rmq_checkpoint *checkpoint,
                    int64_t *start, struct rmq_error *err)
{
    int64_t bound = INT64_MAX;
    if (dispatcher->index && dispatcher->index->count == 0)
        bound = -1; /* See trust(). */
    else if (dispatcher->index)
        bound = rmq_index_unsafe_begin(dispatcher->index, checkpoint->index_timestamp,
                                       checkpoint->logics_physical_offset);
    /* The timestamps of a 5.3 checkpoint do not say which pages of queues and index are durable: 0
     * takes none. */
    if (checkpoint->logics_physical_offset < bound)
        bound = checkpoint->logics_physical_offset;
    int status = find_start(&dispatcher->log->files, bound, start, err);
    return status == RMQ_OK ? rewind_queues(dispatcher, *start, err) : status;
}

/* After a clean stop: queues as they are. */
static int trust(struct rmq_dispatcher *dispatcher, int64_t *start, int64_t *durable,
                 struct rmq_error *err)
{
    int status = rewind_queues(dispatcher, INT64_MAX, err);
    if (status != RMQ_OK)
        return status;
    *durable = last_physical_end(dispatcher->queues);
    int64_t bound = *durable;
    if (dispatcher->index && dispatcher->index->count == 0) {
        bound = -1; /* Even without keys a store has an index file: it was lost, or is asked for
                       only now. */
    } else if (dispatcher->index && rmq_index_newest_begin(dispatcher->index) != INT64_MAX) {
        int64_t indexed = rmq_index_last_physical_offset(dispatcher->index);
        bound = indexed < bound ? indexed : bound;
    }
    return find_start(&dispatcher->log->files, bound, start, err);
}

/* ---- the walk ---- */

/* Whether topic or properties of the record at offset hold a NUL. */
static int holds_nul(struct rmq_file_queue *files, int64_t offset, bool *holds,
                     struct rmq_error *err)
{
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

/* Finds where the log ends. Everything that recovery may refuse it refuses here, before it changes
 * anything. */
static int survey(struct rmq_dispatcher *dispatcher, const struct rmq_recovery_options *options,
                  int64_t durable, struct rmq_scan_ahead *ahead, struct rmq_recovery *recovery,
                  int64_t *last_timestamp, struct rmq_error *err)
{
    struct rmq_record record;
    int64_t last_offset = -1;
    int status;
    *last_timestamp = -1;
    while ((status = rmq_scan_ahead_next(ahead, &record, err)) == RMQ_OK) {
        status = rmq_dispatch_record(dispatcher, &record, RMQ_TO_SURVEY, err);
        if (status != RMQ_OK)
            return status;
        ++recovery->records;
        last_offset = record.physical_offset;
        *last_timestamp = record.store_timestamp;
    }
    if (status != RMQ_END)
        return status;
    recovery->end_offset = ahead->scan.offset;
    if (options->was_closed || last_offset < durable)
        return RMQ_OK;
    /* The body's CRC says nothing about what follows the body. A last record whose topic or
     * properties hold a NUL was on its way to the device when the power went. */
    bool is_torn = false;
    status = holds_nul(&dispatcher->log->files, last_offset, &is_torn, err);
    if (status == RMQ_OK && is_torn) {
        recovery->end_offset = last_offset;
        --recovery->records;
    }
    return status;
}

/* Enters the records that were surveyed. */
static int enter(struct rmq_dispatcher *dispatcher, const struct rmq_recovery_options *options,
                 struct rmq_recovery *recovery, struct rmq_error *err)
{
    struct rmq_scan_ahead ahead;
    struct rmq_record record;
    int64_t indexed = -1, left = recovery->records;
    int status = RMQ_OK;
    /* The index takes the keys of its last record once more, since a full disk may have kept it
     * from taking all; that of a closed store has all. */
    if (options->was_closed && dispatcher->index)
        indexed = rmq_index_last_physical_offset(dispatcher->index);
    recovery->dispatched_offset = recovery->start_offset;
    rmq_scan_ahead_begin(&ahead, &dispatcher->log->files, recovery->start_offset,
                         recovery->end_offset, RMQ_CHECK_PLACE);
    for (; left > 0 && status == RMQ_OK; --left) {
        status = rmq_scan_ahead_next(&ahead, &record, err);
        if (status != RMQ_OK)
            break;
        bool is_confirmed = ahead.scan.offset <= options->dispatch_until;
        unsigned parts = is_confirmed ? RMQ_TO_QUEUES | RMQ_TO_INDEX : (unsigned)RMQ_TO_OFFSETS;
        if (is_confirmed)
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

/* ---- what lies behind the end ---- */

/* Copies what lies behind the end when whole records are among it. */
static int save_cut(struct rmq_dispatcher *dispatcher, const struct rmq_recovery_options *options,
                    struct rmq_recovery *recovery, struct rmq_error *err)
{
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

/* Where the checkpoint does not tell how far the log was flushed. Files are filled and flushed in
 * order: a whole record at the head of a later file shows that this place was full once, and what
 * is wrong here is most probably damage. */
static bool later_file_begins(struct rmq_file_queue *files, int64_t end, int64_t *begin)
{
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
    return rmq_fail(err, RMQ_CORRUPT, end,
                    "commit log: %s at offset %" PRId64 ", but records up to %" PRId64
                    " were stored%s; the log is "
                    "left as it is: see rmqstore verify, then rmqstore repair",
                    scan->verdict == RMQ_SCAN_BAD ? scan->error.detail : "no record", end, durable,
                    is_unknown ? " (or RocketMQ cut them off here; nothing tells which)" : "");
}

/* ---- the whole ---- */

int rmq_recover_index(struct rmq_dispatcher *dispatcher, int64_t log_end, struct rmq_error *err)
{
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
    struct rmq_file_queue *files = &dispatcher->log->files;
    int64_t end = recovery->end_offset;
    int status = save_cut(dispatcher, options, recovery, err);
    /* Queues first: they may not point behind a log that lost its last file. */
    if (status == RMQ_OK)
        status = truncate_queues(dispatcher, end, err);
    if (status == RMQ_OK)
        status = rmq_file_queue_truncate(files, end, err);
    if (status == RMQ_OK)
        status = each_queue(dispatcher->queues, rmq_queue_expire, rmq_file_queue_start(files), err);
    if (status == RMQ_OK && dispatcher->index &&
        rmq_index_last_physical_offset(dispatcher->index) >= end)
        status = lower_checkpoint(dispatcher, checkpoint, options,
                                  rmq_index_unsafe_begin(dispatcher->index, INT64_MAX, end), err);
    if (status == RMQ_OK)
        status = rmq_recover_index(dispatcher, end, err);
    if (status != RMQ_OK)
        return status;
    /* A process that died left its last bytes in memory only; they count as durable from here on.
     */
    if (!options->was_closed)
        rmq_file_queue_distrust(files, recovery->start_offset);
    status = rmq_file_queue_flush(files, err);
    for (struct rmq_queue *queue = rmq_queue_table_first(dispatcher->queues);
         queue && status == RMQ_OK; queue = rmq_queue_table_next(queue)) {
        status = rmq_queue_flush(queue, err);
        int64_t max = rmq_queue_max(queue);
        if (options->dispatch_until == INT64_MAX || atomic_load(&queue->next_offset) < max)
            atomic_store(&queue->next_offset, max);
    }
    if (status == RMQ_OK && dispatcher->index)
        status = rmq_index_flush(dispatcher->index, err);
    atomic_store(&dispatcher->dispatched_offset,
                 end <= options->dispatch_until ? end : recovery->dispatched_offset);
    return status;
}

/* From here on files change: until the store is closed a start must find the marker. */
static int accept(struct rmq_dispatcher *dispatcher, const struct rmq_recovery_options *options,
                  struct rmq_error *err)
{
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
    /* A crash between the two ends of a cut to nothing leaves keys: they would hide those to come.
     */
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

/* The walk ended before records that were durable: refuses unless RocketMQ cut them. */
static int explain_end(struct rmq_dispatcher *dispatcher, const struct rmq_checkpoint *checkpoint,
                       const struct rmq_scan *scan, int64_t durable, int64_t last_timestamp,
                       struct rmq_recovery *recovery, struct rmq_error *err)
{
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

int rmq_recover(struct rmq_dispatcher *dispatcher, struct rmq_checkpoint *checkpoint,
                const struct rmq_recovery_options *options, struct rmq_recovery *recovery,
                struct rmq_error *err)
{
    struct rmq_file_queue *files = &dispatcher->log->files;
    int64_t began_ms = rmq_monotonic_ms();
    int64_t durable = 0, last_timestamp = -1;
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
                         checks_of(options));
    status = survey(dispatcher, options, durable, &ahead, recovery, &last_timestamp, err);
    int64_t later = 0;
    if (status == RMQ_OK && recovery->end_offset >= durable && checkpoint->flushed_offset < 0 &&
        later_file_begins(files, recovery->end_offset, &later))
        durable = later;
    if (status == RMQ_OK && recovery->end_offset < durable)
        status = explain_end(dispatcher, checkpoint, &ahead.scan, durable, last_timestamp, recovery,
                             err);
    else if (status == RMQ_OK && options->was_closed && checkpoint->flushed_offset < 0)
        status = rmq_log_end_has_leftover(files, dispatcher->queues, recovery->start_offset,
                                          recovery->end_offset, &recovery->was_cut, err);
    rmq_scan_ahead_finish(&ahead);
    /* Units of what RocketMQ cut may stand among those of what it kept: all are entered again. */
    if (status == RMQ_OK && recovery->was_cut)
        status = rewind_queues(dispatcher, recovery->start_offset, err);
    if (status == RMQ_OK)
        status = accept(dispatcher, options, err);
    if (status == RMQ_OK && !options->was_closed)
        status = discard_index(dispatcher, checkpoint, options, err);
    if (status == RMQ_OK)
        status = enter(dispatcher, options, recovery, err);
    if (status == RMQ_OK)
        status = settle(dispatcher, checkpoint, options, recovery, err);
    recovery->milliseconds = rmq_monotonic_ms() - began_ms;
    return status;
}

/* ---- read-only ---- */

/* A place between records, and the store time of the record that ends there; -1: there is none. */
struct place {
    int64_t offset;
    int64_t timestamp;
};

static bool is_whole(struct rmq_file_queue *files, const struct rmq_unit *unit, int64_t *timestamp)
{
    struct rmq_mapped_file *file = NULL;
    struct rmq_record record;
    if (rmq_file_queue_pin(files, unit->physical_offset, &file, NULL) != RMQ_OK)
        return false;
    int64_t at = unit->physical_offset - file->start;
    bool whole = rmq_record_decode(rmq_mapped_file_base(file) + at, (size_t)(file->size - at),
                                   unit->physical_offset, RMQ_CHECK_PLACE | RMQ_CHECK_BODY_CRC,
                                   &record, NULL) == RMQ_OK &&
                 record.total_size == unit->size;
    *timestamp = record.store_timestamp;
    rmq_mapped_file_unpin(file);
    return whole;
}

/* Whoever writes the log makes a record whole before a unit points at it, and is maybe in the
 * middle of the next: the walk begins behind the last record that a queue knows, whose end is
 * *known. When that one is not whole the writer is gone, and its crash tore the end of the log:
 * then the walk begins at a file. */
static int find_read_only_start(struct rmq_file_queue *files, struct rmq_queue_table *queues,
                                struct place *start, int64_t *known, struct rmq_error *err)
{
    struct rmq_queue *last = NULL;
    struct rmq_unit unit;
    size_t count = 0;
    *start = (struct place){rmq_file_queue_start(files), -1};
    *known = start->offset;
    for (struct rmq_queue *queue = rmq_queue_table_first(queues); queue;
         queue = rmq_queue_table_next(queue)) {
        int64_t end = rmq_queue_physical_end(queue);
        if (end > *known) {
            last = queue;
            *known = end;
        }
    }
    if (!last)
        return RMQ_OK;
    int64_t first = 0, end = 0;
    rmq_queue_numbers(last, &first, &end);
    int status = rmq_queue_units(last, end - 1, end, &unit, &count, err);
    if (status != RMQ_OK || count == 0)
        return status;
    if (!is_whole(files, &unit, &start->timestamp)) {
        start->timestamp = -1;
        return find_start(files, unit.physical_offset, &start->offset, err);
    }
    start->offset = unit.physical_offset + unit.size;
    return RMQ_OK;
}

/* Walks on to the end of the whole records. */
static int walk_read_only(struct rmq_file_queue *files, struct place *place, struct rmq_error *err)
{
    struct rmq_scan scan;
    struct rmq_record record;
    int64_t last = -1, before = place->timestamp;
    int status;
    rmq_scan_begin(&scan, files, place->offset, INT64_MAX, RMQ_CHECK_PLACE | RMQ_CHECK_BODY_CRC);
    while ((status = rmq_scan_next(&scan, &record, err)) == RMQ_OK) {
        if (last >= 0)
            before = place->timestamp;
        last = record.physical_offset;
        place->timestamp = record.store_timestamp;
    }
    place->offset = scan.offset;
    rmq_scan_finish(&scan);
    if (status != RMQ_END)
        return status;
    /* Its writer may be in the middle of the last record: see walk(). */
    bool is_half = false;
    if (last >= 0 && (status = holds_nul(files, last, &is_half, err)) != RMQ_OK)
        return status;
    if (is_half)
        *place = (struct place){last, before};
    return RMQ_OK;
}

/* What a walk to *walked, before the end that queues know of, means for where the log ends. */
static int judge_end(struct rmq_file_queue *files, struct rmq_queue_table *queues,
                     const struct place *walked, int64_t known, struct rmq_recovery *recovery,
                     struct rmq_error *err)
{
    enum rmq_log_end found = RMQ_LOG_END_DAMAGED;
    int status =
        rmq_log_end_find(files, queues, walked->offset, walked->timestamp, false, &found, err);
    if (status != RMQ_OK)
        return status;
    recovery->was_cut = found == RMQ_LOG_END_CUT;
    if (recovery->was_cut)
        recovery->end_offset = walked->offset;
    else if (recovery->was_closed && recovery->end_offset < known)
        recovery->end_offset = known; /* damage: see find_read_only_end() */
    if (found == RMQ_LOG_END_UNKNOWN)
        recovery->doubtful_offset = walked->offset;
    return RMQ_OK;
}

/* Sets the end of the log: where queues lead to, or after that, unless RocketMQ cut it before. A
 * walk for it begins at *from. */
static int find_read_only_end(struct rmq_file_queue *files, struct rmq_queue_table *queues,
                              const struct rmq_checkpoint *checkpoint,
                              struct rmq_recovery *recovery, int64_t *from, struct rmq_error *err)
{
    struct place end;
    int64_t known = 0;
    bool has_leftover = false;
    int status = find_read_only_start(files, queues, &end, &known, err);
    bool is_at_known = end.offset == known && end.timestamp >= 0;
    *from = end.offset;
    if (status == RMQ_OK)
        status = walk_read_only(files, &end, err);
    recovery->end_offset = end.offset;
    if (status != RMQ_OK)
        return status;
    if (checkpoint->flushed_offset >= 0) {
        if (checkpoint->flushed_offset > known)
            known = checkpoint->flushed_offset;
        if (recovery->was_closed && end.offset < known)
            recovery->end_offset = known; /* damage, which shows where it is read */
        return RMQ_OK;
    }
    bool is_vouched =
        rmq_log_end_is_vouched(end.timestamp, checkpoint->physic_timestamp, recovery->was_closed);
    recovery->is_vouched = is_vouched && recovery->was_closed;
    status = find_start(files, known, from, err);
    if (status == RMQ_OK && recovery->was_closed)
        status = rmq_log_end_has_leftover(files, queues, *from, end.offset, &has_leftover, err);
    /* As RocketMQ does, from the beginning of the file that holds the last record known. */
    if (status == RMQ_OK && is_at_known && (!is_vouched || has_leftover)) {
        end = (struct place){*from, -1};
        status = walk_read_only(files, &end, err);
    }
    if (status == RMQ_OK && end.offset < known)
        return judge_end(files, queues, &end, known, recovery, err);
    recovery->was_cut = has_leftover;
    return status;
}

/* A checkpoint that cannot be read vouches for nothing, and keeps nobody from reading the log. */
static int read_marks(struct rmq_vfs *vfs, const char *root, struct rmq_checkpoint *checkpoint,
                      bool *was_closed, struct rmq_error *err)
{
    char path[PATH_MAX];
    bool crashed = false, has_checkpoint = false;
    *checkpoint = (struct rmq_checkpoint){.flushed_offset = -1};
    int status = rmq_path_join(path, sizeof path, root, "abort", err);
    if (status == RMQ_OK)
        status = rmq_abort_exists(vfs, path, &crashed, err);
    *was_closed = !crashed;
    if (status == RMQ_OK)
        status = rmq_path_join(path, sizeof path, root, "checkpoint", err);
    if (status == RMQ_OK)
        (void)rmq_checkpoint_read(vfs, path, checkpoint, &has_checkpoint, NULL);
    return status;
}

int rmq_recover_read_only(struct rmq_file_queue *files, struct rmq_queue_table *queues,
                          const char *root, struct rmq_recovery *recovery, struct rmq_error *err)
{
    struct rmq_checkpoint checkpoint;
    memset(recovery, 0, sizeof *recovery);
    recovery->doubtful_offset = -1;
    int status = read_marks(files->options.vfs, root, &checkpoint, &recovery->was_closed, err);
    if (status == RMQ_OK)
        status = each_queue(queues, rmq_queue_recover, INT64_MAX, err);
    if (status != RMQ_OK || rmq_file_queue_start(files) < 0)
        return status;
    int64_t from = 0;
    status = find_read_only_end(files, queues, &checkpoint, recovery, &from, err);
    if (status == RMQ_OK && recovery->was_cut)
        status = rmq_log_end_trim(files, queues, from, recovery->end_offset, err);
    else if (status == RMQ_OK)
        status = each_queue(queues, rmq_queue_recover, recovery->end_offset, err);
    if (status != RMQ_OK)
        return status;
    rmq_file_queue_set_end(files, recovery->end_offset);
    return each_queue(queues, rmq_queue_expire, rmq_file_queue_start(files), err);
}
