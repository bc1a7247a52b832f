#include "index/queue.h"

#include <assert.h>
#include <inttypes.h>

static bool is_ready(struct rmq_queue *queue)
{
    return atomic_load_explicit(&queue->is_open, memory_order_acquire);
}

static struct rmq_file_queue *files_of(struct rmq_queue *queue)
{
    return queue->is_batch ? &queue->batch.files : &queue->simple.files;
}

/* Queue offset after the last unit of the files; 0 when there is none. */
static int64_t end_of_units(struct rmq_queue *queue)
{
    if (!is_ready(queue))
        return 0;
    return queue->is_batch ? atomic_load_explicit(&queue->batch.max_offset, memory_order_acquire)
                           : rmq_consume_queue_max(&queue->simple);
}

int64_t rmq_queue_min(struct rmq_queue *queue)
{
    if (end_of_units(queue) == 0)
        return atomic_load_explicit(&queue->removed_next, memory_order_acquire);
    int64_t min = queue->is_batch
                      ? atomic_load_explicit(&queue->batch.min_offset, memory_order_acquire)
                      : rmq_consume_queue_min(&queue->simple);
    return min < 0 ? 0 : min;
}

int64_t rmq_queue_max(struct rmq_queue *queue)
{
    int64_t end = end_of_units(queue);
    return end > 0 ? end : atomic_load_explicit(&queue->removed_next, memory_order_acquire);
}

int64_t rmq_queue_physical_end(struct rmq_queue *queue)
{
    if (!is_ready(queue))
        return -1;
    return atomic_load_explicit(queue->is_batch ? &queue->batch.physical_end
                                                : &queue->simple.physical_end,
                                memory_order_acquire);
}

int64_t rmq_queue_dirty(struct rmq_queue *queue)
{
    if (!is_ready(queue))
        return 0;
    struct rmq_file_queue *files = files_of(queue);
    return rmq_file_queue_end(files) - rmq_file_queue_flushed(files);
}

int64_t rmq_queue_file_start(struct rmq_queue *queue)
{
    if (!is_ready(queue) || !files_of(queue)->last)
        return 0;
    return rmq_file_queue_start(files_of(queue));
}

int rmq_queue_may_lack_start(struct rmq_queue *queue, int64_t log_start, bool *may_lack,
                             struct rmq_error *err)
{
    assert(may_lack);

    struct rmq_unit unit;
    int64_t first = 0, end = 0;
    size_t count = 0;
    *may_lack = false;
    if (rmq_queue_file_start(queue) <= queue->kept_start)
        return RMQ_OK;

    rmq_queue_numbers(queue, &first, &end);
    int status = RMQ_OK;
    if (first < end)
        status = rmq_queue_units(queue, first, first + 1, &unit, &count, err);

    /* A queue that began there has fill units before its first message. */
    *may_lack = status == RMQ_OK && count > 0 && unit.size > 0 && !rmq_unit_is_fill(&unit) &&
                unit.physical_offset > log_start;
    return status;
}

bool rmq_queue_is_short(struct rmq_queue *queue)
{
    int64_t end = rmq_queue_max(queue);
    if (is_ready(queue) && !queue->is_batch && queue->simple.is_rewound &&
        queue->simple.stale_end > end)
        end = queue->simple.stale_end;
    return end < queue->kept_end;
}

bool rmq_queue_begins_after(struct rmq_queue *queue, const struct rmq_unit *unit)
{
    bool is_begun_again = queue->removed_until > 0 && rmq_queue_physical_end(queue) < 0;
    return end_of_units(queue) > 0 && !is_begun_again && unit->queue_offset < rmq_queue_min(queue);
}

/* The last unit with an address in the extension; its tags code is 0 when there is none. */
static int find_last_address(struct rmq_queue *queue, struct rmq_unit *last, struct rmq_error *err)
{
    assert(!queue->is_batch && queue->has_ext);

    struct rmq_unit units[256];
    int64_t first = rmq_file_queue_start(&queue->simple.files) / RMQ_UNIT_SIZE,
            stop = rmq_consume_queue_max(&queue->simple);
    *last = (struct rmq_unit){0};

    /* Units from before the extension was switched on have no address, nor have light units.
     * Expired units count: they remain after a cut of all units that follow them. */
    while (stop > first && last->tags_code == 0) {
        size_t count = 0;
        assert(stop > first);
        int64_t from = stop - first > 256 ? stop - 256 : first;
        int status =
            rmq_consume_queue_read(&queue->simple, from, units, (size_t)(stop - from), &count, err);
        if (status != RMQ_OK)
            return status;

        for (size_t i = 0; i < count; ++i)
            if (rmq_ext_is_address(units[i].tags_code))
                *last = units[i];
        stop = from;
    }
    return RMQ_OK;
}

/* The end of the extension, by the last unit that refers to it. */
static int find_ext_end(struct rmq_queue *queue, int64_t log_start, int64_t *end,
                        struct rmq_error *err)
{
    assert(queue->has_ext && end);

    struct rmq_file_queue *files = &queue->ext.files;
    struct rmq_unit last;
    *end = 0;
    if (!files->last && files->ahead == 0)
        return RMQ_OK;

    int status = find_last_address(queue, &last, err);
    if (status == RMQ_OK)
        status = rmq_consume_queue_ext_end_of(&queue->ext, last.tags_code, end, err);
    if (status != RMQ_NOT_FOUND)
        return status;

    if (last.physical_offset < log_start) {
        /* The record is expired; its unit was removed with a file of the extension, or by a cut. */
        *end = files->last ? rmq_file_queue_start(files) : 0;
        return RMQ_OK;
    }

    return rmq_fail(err, RMQ_CORRUPT, rmq_ext_offset(last.tags_code),
                    "consume queue %s/%d refers to byte %lld of its extension, where no unit is; "
                    "rebuild it with rmqstore repair",
                    queue->topic, queue->queue_id, (long long)rmq_ext_offset(last.tags_code));
}

int rmq_queue_recover(struct rmq_queue *queue, int64_t log_end, struct rmq_error *err)
{
    if (!is_ready(queue))
        return RMQ_OK;
    if (queue->is_batch)
        return rmq_batch_consume_queue_recover(&queue->batch, log_end, err);

    assert(queue->simple.files.options.read_only);
    int status = rmq_consume_queue_recover(&queue->simple, log_end, err);
    if (status == RMQ_OK && queue->has_ext)
        status = rmq_consume_queue_ext_recover(&queue->ext, err);
    return status;
}

/* The files of a queue with no units from before a crash may have been made by the process that
 * died, and may not be on the device. */
static int distrust_names(struct rmq_queue *queue, struct rmq_error *err)
{
    struct rmq_file_queue *files = files_of(queue);
    assert(is_ready(queue));
    return files->last && rmq_queue_physical_end(queue) < 0
               ? rmq_file_queue_distrust_names(files, err)
               : RMQ_OK;
}

int rmq_queue_rewind(struct rmq_queue *queue, int64_t log_start, int64_t log_end,
                     struct rmq_error *err)
{
    assert(log_end >= 0);

    if (!is_ready(queue))
        return RMQ_OK;

    int status = queue->is_batch ? rmq_batch_consume_queue_rewind(&queue->batch, log_end, err)
                                 : rmq_consume_queue_rewind(&queue->simple, log_end, err);
    if (status == RMQ_OK)
        status = distrust_names(queue, err);
    if (status != RMQ_OK || !queue->has_ext)
        return status;

    int64_t end = 0;
    status = rmq_consume_queue_ext_recover(&queue->ext, err);
    if (status == RMQ_OK)
        status = find_ext_end(queue, log_start, &end, err);
    if (status == RMQ_OK)
        rmq_consume_queue_ext_rewind(&queue->ext, end);
    return status;
}

int rmq_queue_survey(struct rmq_queue *queue, const struct rmq_unit *unit, bool *has_gap,
                     struct rmq_error *err)
{
    assert(unit && has_gap);

    bool is_empty = queue->is_incomplete || rmq_queue_min(queue) == rmq_queue_max(queue);
    int64_t max = queue->is_incomplete ? 0 : rmq_queue_max(queue);
    int64_t end = max > queue->surveyed_end ? max : queue->surveyed_end;
    bool has_units = queue->surveyed_end > 0 || !is_empty;
    if (has_units && !queue->is_batch && unit->queue_offset - end > RMQ_CONSUME_QUEUE_GAP_MAX)
        return rmq_fail(err, RMQ_CORRUPT, unit->physical_offset,
                        "consume queue %s/%d goes on at %" PRId64 ", not at queue offset %" PRId64
                        "; rebuild it with rmqstore repair",
                        queue->topic, queue->queue_id, end, unit->queue_offset);

    *has_gap = unit->queue_offset > end;
    int64_t next = unit->queue_offset + unit->batch_size;
    queue->surveyed_end = next > end ? next : end;
    return RMQ_OK;
}

bool rmq_queue_recognise(struct rmq_queue *queue, const struct rmq_unit *unit)
{
    assert(unit->size > 0);

    return is_ready(queue) && !queue->is_batch && !queue->has_ext && queue->removed_until == 0 &&
           !queue->is_incomplete &&
           rmq_consume_queue_recognise(&queue->simple, unit->queue_offset, unit->physical_offset,
                                       unit->size, unit->tags_code);
}

int rmq_queue_keep(struct rmq_queue *queue, int64_t offset, struct rmq_error *err)
{
    (void)offset; /* the form of rmq_recover_each_queue */
    return is_ready(queue) && !queue->is_batch ? rmq_consume_queue_keep(&queue->simple, err)
                                               : RMQ_OK;
}

int rmq_queue_append(struct rmq_queue *queue, const struct rmq_unit *unit, bool is_light,
                     struct rmq_error *err)
{
    assert(is_ready(queue));

    if (queue->is_batch)
        return rmq_batch_consume_queue_append(&queue->batch, unit, err);

    int64_t code = unit->tags_code;
    if (queue->has_ext && !is_light &&
        unit->queue_offset >= rmq_consume_queue_max(&queue->simple)) {
        struct rmq_ext_unit ext = {.tags_code = code, .store_timestamp = unit->store_timestamp};
        int status = rmq_consume_queue_ext_append(&queue->ext, &ext, &code, err);
        if (status != RMQ_OK)
            return status;
    }

    return rmq_consume_queue_append(&queue->simple, unit->queue_offset, unit->physical_offset,
                                    unit->size, code, err);
}

int rmq_queue_truncate(struct rmq_queue *queue, int64_t log_start, int64_t log_end,
                       struct rmq_error *err)
{
    assert(log_end >= 0);

    if (!is_ready(queue))
        return RMQ_OK;
    if (queue->is_batch)
        return rmq_batch_consume_queue_truncate(&queue->batch, log_end, err);

    int64_t end = 0;
    int status = rmq_consume_queue_truncate(&queue->simple, log_end, err);
    if (status != RMQ_OK || !queue->has_ext)
        return status;

    status = find_ext_end(queue, log_start, &end, err);
    return status == RMQ_OK ? rmq_consume_queue_ext_truncate(&queue->ext, end, err) : status;
}

int rmq_queue_clear(struct rmq_queue *queue, struct rmq_error *err)
{
    queue->is_incomplete = false;
    if (!is_ready(queue))
        return RMQ_OK;
    if (queue->is_batch)
        return rmq_batch_consume_queue_clear(&queue->batch, err);

    int status = rmq_consume_queue_clear(&queue->simple, err);
    if (status == RMQ_OK && queue->has_ext)
        status = rmq_file_queue_clear(&queue->ext.files, err);
    return status;
}

static int expire_ext(struct rmq_queue *queue, struct rmq_error *err)
{
    assert(!queue->is_batch && queue->has_ext);

    struct rmq_unit first;
    size_t count = 0;
    int status = rmq_consume_queue_read(&queue->simple, rmq_consume_queue_min(&queue->simple),
                                        &first, 1, &count, err);

    if (status == RMQ_OK && count && rmq_ext_is_address(first.tags_code))
        status = rmq_consume_queue_ext_expire(&queue->ext, first.tags_code, err);
    return status;
}

int rmq_queue_expire(struct rmq_queue *queue, int64_t log_start, struct rmq_error *err)
{
    if (!is_ready(queue))
        return RMQ_OK;
    if (queue->is_batch)
        return rmq_batch_consume_queue_expire(&queue->batch, log_start, err);

    int status = rmq_consume_queue_expire(&queue->simple, log_start, err);
    if (status == RMQ_OK && queue->has_ext && !queue->ext.files.options.read_only)
        status = expire_ext(queue, err);
    return status;
}

/* Replaces addresses by codes. Leaves out units from the first one whose address leads to no unit
 * of the extension. */
static int resolve_ext(struct rmq_queue *queue, struct rmq_unit *units, size_t *count,
                       struct rmq_error *err)
{
    assert(units && queue->has_ext);

    uint8_t buffer[RMQ_EXT_UNIT_SIZE_MAX];
    for (size_t i = 0; i < *count; ++i) {
        struct rmq_ext_unit ext;
        if (!rmq_ext_is_address(units[i].tags_code))
            continue;

        int status = rmq_consume_queue_ext_read(&queue->ext, units[i].tags_code, buffer, &ext, err);
        if (status == RMQ_NOT_FOUND) {
            *count = i;
            if (i > 0 || units[i].queue_offset >= rmq_queue_max(queue))
                return RMQ_OK;
            return rmq_fail(err, RMQ_CORRUPT, units[i].physical_offset,
                            "consume queue %s/%d: unit %lld has no place in the extension; rebuild "
                            "it with rmqstore repair",
                            queue->topic, queue->queue_id, (long long)units[i].queue_offset);
        }

        if (status != RMQ_OK)
            return status;
        units[i].tags_code = ext.tags_code;
        units[i].store_timestamp = ext.store_timestamp;
    }
    return RMQ_OK;
}

int rmq_queue_read(struct rmq_queue *queue, int64_t queue_offset, struct rmq_unit *units,
                   size_t capacity, size_t *count, struct rmq_error *err)
{
    assert(units && count);

    *count = 0;
    if (!is_ready(queue))
        return RMQ_OK;
    if (queue->is_batch)
        return rmq_batch_consume_queue_read(&queue->batch, queue_offset, units, capacity, count,
                                            err);

    int status = rmq_consume_queue_read(&queue->simple, queue_offset, units, capacity, count, err);
    if (status == RMQ_OK && queue->has_ext)
        status = resolve_ext(queue, units, count, err);
    return status;
}

void rmq_queue_numbers(struct rmq_queue *queue, int64_t *first, int64_t *end)
{
    assert(first && end);

    *first = *end = 0;

    if (is_ready(queue) && queue->is_batch && queue->batch.files.last) {
        *first = rmq_batch_consume_queue_first(&queue->batch);
        *end = rmq_batch_consume_queue_end(&queue->batch);
    } else if (is_ready(queue) && !queue->is_batch) {
        *first = rmq_consume_queue_first(&queue->simple);
        *end = rmq_consume_queue_max(&queue->simple);
    }
}

int rmq_queue_units(struct rmq_queue *queue, int64_t from, int64_t upto, struct rmq_unit *units,
                    size_t *count, struct rmq_error *err)
{
    assert(is_ready(queue) || from >= upto);

    return queue->is_batch
               ? rmq_batch_consume_queue_units(&queue->batch, from, upto, units, count, err)
               : rmq_consume_queue_units(&queue->simple, from, upto, units, count, err);
}

int rmq_queue_end_at(struct rmq_queue *queue, int64_t end, struct rmq_error *err)
{
    assert(end >= 0);

    if (!is_ready(queue))
        return RMQ_OK;
    return queue->is_batch ? rmq_batch_consume_queue_end_at(&queue->batch, end, err)
                           : rmq_consume_queue_end_at(&queue->simple, end, err);
}

int rmq_queue_flush(struct rmq_queue *queue, struct rmq_error *err)
{
    if (!is_ready(queue))
        return RMQ_OK;
    if (queue->is_batch)
        return rmq_batch_consume_queue_flush(&queue->batch, err);

    int status = queue->has_ext ? rmq_consume_queue_ext_flush(&queue->ext, err) : RMQ_OK;
    return status == RMQ_OK ? rmq_consume_queue_flush(&queue->simple, err) : status;
}

void rmq_queue_start_flush(struct rmq_queue *queue)
{
    if (is_ready(queue))
        rmq_file_queue_start_flush(files_of(queue));
}
