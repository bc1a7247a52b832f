#include "log/recover_parts.h"

#include <assert.h>
#include <limits.h>
#include <string.h>

#include "log/log_end.h"

/* A record boundary, and the store time of the record that ends there; -1 without such a record. */
struct place {
    int64_t offset;
    int64_t timestamp;
};

static bool is_whole(struct rmq_file_queue *files, const struct rmq_unit *unit, int64_t *timestamp)
{
    assert(timestamp);

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

/* The writer of the log completes a record before a unit points at it, and may be writing the next
 * record. The walk therefore begins after the last record that a queue points at; its end is
 * *known. If that record is not whole, the writer has crashed and the end of the log is torn: then
 * the walk begins at the start of a file. */
static int find_read_only_start(struct rmq_file_queue *files, struct rmq_queue_table *queues,
                                struct place *start, int64_t *known, struct rmq_error *err)
{
    assert(start && known);

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
        return rmq_recover_find_start(files, unit.physical_offset, &start->offset, err);
    }

    start->offset = unit.physical_offset + unit.size;
    return RMQ_OK;
}

/* Walks to the end of the whole records. */
static int walk_read_only(struct rmq_file_queue *files, struct place *place, struct rmq_error *err)
{
    assert(place->offset >= 0);

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

    /* The writer may be in the middle of the last record: see walk(). */
    bool is_half = false;
    if (last >= 0 && (status = rmq_recover_holds_nul(files, last, &is_half, err)) != RMQ_OK)
        return status;
    if (is_half)
        *place = (struct place){last, before};
    return RMQ_OK;
}

/* Decides where the log ends after a walk stopped at *walked, before the end of the queues. */
static int check_end(struct rmq_file_queue *files, struct rmq_queue_table *queues,
                     const struct place *walked, int64_t known, struct rmq_recovery *recovery,
                     struct rmq_error *err)
{
    assert(walked->offset < known);

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

/* Sets the end of the log: at or after the end of the records that queues point at, unless RocketMQ
 * cut the log before it. A walk for the end begins at *from. */
static int find_read_only_end(struct rmq_file_queue *files, struct rmq_queue_table *queues,
                              const struct rmq_checkpoint *checkpoint,
                              struct rmq_recovery *recovery, int64_t *from, struct rmq_error *err)
{
    assert(from);

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
            recovery->end_offset = known; /* damage, which is reported when it is read */
        return RMQ_OK;
    }

    bool is_vouched =
        rmq_log_end_is_vouched(end.timestamp, checkpoint->physic_timestamp, recovery->was_closed);
    recovery->is_vouched = is_vouched && recovery->was_closed;

    status = rmq_recover_find_start(files, known, from, err);
    if (status == RMQ_OK && recovery->was_closed)
        status = rmq_log_end_has_leftover(files, queues, *from, end.offset, &has_leftover, err);

    /* As in RocketMQ, from the beginning of the file that contains the last known record. */
    if (status == RMQ_OK && is_at_known && (!is_vouched || has_leftover)) {
        end = (struct place){*from, -1};
        status = walk_read_only(files, &end, err);
    }

    if (status == RMQ_OK && end.offset < known)
        return check_end(files, queues, &end, known, recovery, err);
    recovery->was_cut = has_leftover;
    return status;
}

/* An unreadable checkpoint proves nothing durable, and does not prevent reading the log. */
static int read_marks(struct rmq_vfs *vfs, const char *root, struct rmq_checkpoint *checkpoint,
                      bool *was_closed, struct rmq_error *err)
{
    assert(root && was_closed);

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

/* Nothing is rebuilt here: missing entries are reported. */
static int find_incomplete(struct rmq_file_queue *files, struct rmq_queue_table *queues,
                           struct rmq_recovery *recovery, struct rmq_error *err)
{
    assert(!recovery->was_incomplete);

    int64_t log_start = rmq_file_queue_start(files);
    if (!recovery->was_closed || recovery->was_cut)
        return RMQ_OK;

    recovery->was_incomplete = queues->lacks_queues || queues->lost_index_end >= log_start;
    int status = RMQ_OK;
    for (struct rmq_queue *queue = rmq_queue_table_first(queues);
         queue && status == RMQ_OK && !recovery->was_incomplete;
         queue = rmq_queue_table_next(queue)) {
        status = rmq_queue_may_lack_start(queue, log_start, &recovery->was_incomplete, err);
        if (status == RMQ_OK && rmq_queue_is_short(queue))
            recovery->was_incomplete = true;
    }
    return status;
}

int rmq_recover_read_only(struct rmq_file_queue *files, struct rmq_queue_table *queues,
                          const char *root, struct rmq_recovery *recovery, struct rmq_error *err)
{
    assert(files->options.read_only && root);

    struct rmq_checkpoint checkpoint;
    memset(recovery, 0, sizeof *recovery);
    recovery->doubtful_offset = -1;

    int status = read_marks(files->options.vfs, root, &checkpoint, &recovery->was_closed, err);
    if (status == RMQ_OK)
        status = rmq_recover_each_queue(queues, rmq_queue_recover, INT64_MAX, err);
    if (status != RMQ_OK || rmq_file_queue_start(files) < 0)
        return status;

    int64_t from = 0;
    status = find_read_only_end(files, queues, &checkpoint, recovery, &from, err);

    if (status == RMQ_OK && recovery->was_cut)
        status = rmq_log_end_trim(files, queues, from, recovery->end_offset, err);
    else if (status == RMQ_OK)
        status = rmq_recover_each_queue(queues, rmq_queue_recover, recovery->end_offset, err);
    if (status != RMQ_OK)
        return status;

    rmq_file_queue_set_end(files, recovery->end_offset);
    status = find_incomplete(files, queues, recovery, err);
    if (status != RMQ_OK)
        return status;
    return rmq_recover_each_queue(queues, rmq_queue_expire, rmq_file_queue_start(files), err);
}
