#include "index/batch_consume_queue.h"

#include <assert.h>
#include <inttypes.h>
#include <string.h>

#include "base/bytes.h"

#define WINDOW (64 << 10)
#define BATCH_SIZE_MAX 32767

/* A reader in another process treats bytes with a size as a unit: the size is stored last and
 * loaded first. */
static void decode(const uint8_t *bytes, int64_t number, struct rmq_unit *unit)
{
    (void)number;
    unit->size = rmq_get_i32(bytes + 8);
    atomic_thread_fence(memory_order_acquire);
    unit->physical_offset = rmq_get_i64(bytes);
    unit->tags_code = rmq_get_i64(bytes + 12);
    unit->store_timestamp = rmq_get_i64(bytes + 20);
    unit->queue_offset = rmq_get_i64(bytes + 28);
    unit->batch_size = rmq_get_i16(bytes + 36);
}

_Static_assert(RMQ_BATCH_UNIT_SIZE == RMQ_UNIT_SIZE_MAX, "a block holds batch units");

static const struct rmq_unit_layout LAYOUT = {RMQ_BATCH_UNIT_SIZE, decode};

static void encode(uint8_t *bytes, const struct rmq_unit *unit)
{
    assert(unit->size > 0 && unit->batch_size > 0 && unit->batch_size <= BATCH_SIZE_MAX);

    rmq_put_i64(bytes, unit->physical_offset);
    rmq_put_i64(bytes + 12, unit->tags_code);
    rmq_put_i64(bytes + 20, unit->store_timestamp);
    rmq_put_i64(bytes + 28, unit->queue_offset);
    rmq_put_i16(bytes + 36, (int16_t)unit->batch_size);
    rmq_put_i32(bytes + 38, -1);
    rmq_put_i32(bytes + 42, 0);

    atomic_thread_fence(memory_order_release);
    rmq_put_i32(bytes + 8, unit->size);
}

static bool holds(const uint8_t *bytes, const struct rmq_unit *unit)
{
    assert(bytes);

    uint8_t wanted[RMQ_BATCH_UNIT_SIZE];
    encode(wanted, unit);
    return memcmp(bytes, wanted, sizeof wanted) == 0;
}

static bool is_sane(const struct rmq_unit *unit)
{
    return unit->physical_offset >= 0 && unit->size > 0 &&
           unit->physical_offset <= INT64_MAX - unit->size && unit->batch_size > 0 &&
           unit->batch_size <= BATCH_SIZE_MAX && unit->queue_offset >= 0 &&
           unit->queue_offset <= INT64_MAX - unit->batch_size;
}

static enum rmq_unit_side compare_end(const struct rmq_unit *unit, int64_t log_end)
{
    return is_sane(unit) && unit->physical_offset < log_end ? RMQ_UNIT_BEFORE : RMQ_UNIT_BEHIND;
}

static enum rmq_unit_side compare_physical_offset(const struct rmq_unit *unit,
                                                  int64_t physical_offset)
{
    return unit->physical_offset < physical_offset ? RMQ_UNIT_BEFORE : RMQ_UNIT_BEHIND;
}

/* A unit is after when it contains the message sought or a later one. */
static enum rmq_unit_side compare_queue_offset(const struct rmq_unit *unit, int64_t queue_offset)
{
    return unit->queue_offset <= queue_offset - unit->batch_size ? RMQ_UNIT_BEFORE
                                                                 : RMQ_UNIT_BEHIND;
}

/* Units are numbered by their position in the range of file offsets. */
int64_t rmq_batch_consume_queue_first(const struct rmq_batch_consume_queue *queue)
{
    int64_t start = rmq_file_queue_start(&queue->files);
    return start > 0 ? start / RMQ_BATCH_UNIT_SIZE : 0;
}

int64_t rmq_batch_consume_queue_end(const struct rmq_batch_consume_queue *queue)
{
    return rmq_file_queue_end(&queue->files) / RMQ_BATCH_UNIT_SIZE;
}

static void set_bounds(struct rmq_batch_consume_queue *queue, int64_t min, int64_t max,
                       int64_t physical_end)
{
    assert(min >= -1 && min <= max);

    atomic_store_explicit(&queue->physical_end, physical_end, memory_order_release);
    atomic_store_explicit(&queue->max_offset, max, memory_order_release);
    atomic_store_explicit(&queue->min_offset, min, memory_order_release);
}

int rmq_batch_consume_queue_open(struct rmq_batch_consume_queue *queue, struct rmq_vfs *vfs,
                                 const char *directory, int64_t file_size, bool read_only,
                                 struct rmq_unsynced_folders *unsynced,
                                 struct rmq_map_budget *budget, struct rmq_error *err)
{
    assert(vfs && directory);

    if (file_size <= 0 || file_size > INT32_MAX || file_size % RMQ_BATCH_UNIT_SIZE != 0)
        return rmq_fail(err, RMQ_INVALID, -1,
                        "batch consume queue %s: file size %" PRId64
                        " is not a multiple of %d in 1 .. %d",
                        directory, file_size, RMQ_BATCH_UNIT_SIZE, INT32_MAX);

    struct rmq_file_queue_options options = {.vfs = vfs,
                                             .directories = &directory,
                                             .directory_count = 1,
                                             .file_size = file_size,
                                             .window = file_size < WINDOW ? file_size : WINDOW,
                                             .read_only = read_only,
                                             .makes_folder_late = true,
                                             .shows_files_late = true,
                                             .unsynced = unsynced,
                                             .budget = budget};

    queue->is_rewound = false;
    int status = rmq_file_queue_open(&queue->files, &options, err);
    if (status == RMQ_OK)
        set_bounds(queue, -1, 0, -1);
    return status;
}

void rmq_batch_consume_queue_close(struct rmq_batch_consume_queue *queue)
{
    rmq_file_queue_close(&queue->files);
}

static int no_unit(const struct rmq_batch_consume_queue *queue, int64_t number,
                   struct rmq_error *err)
{
    assert(number >= 0);

    return rmq_fail(err, RMQ_CORRUPT, number * RMQ_BATCH_UNIT_SIZE,
                    "batch consume queue %s: no unit at byte %" PRId64
                    "; rebuild it with rmqstore repair",
                    queue->files.options.directories[0], number * RMQ_BATCH_UNIT_SIZE);
}

/* ---- finding and setting the end ---- */

struct bounds {
    int64_t end; /* number after the last unit */
    int64_t min, max, physical_end;
};

static int find_bounds(struct rmq_batch_consume_queue *queue, int64_t limit, int64_t log_end,
                       struct bounds *bounds, struct rmq_error *err)
{
    int64_t first = rmq_batch_consume_queue_first(queue);
    struct rmq_unit unit;
    size_t count = 0;
    *bounds = (struct bounds){.end = first, .min = -1, .max = 0, .physical_end = -1};

    int status = rmq_unit_search(&queue->files, &LAYOUT, first, limit, compare_end, log_end,
                                 &bounds->end, err);
    assert(status != RMQ_OK || bounds->end >= first);
    if (status != RMQ_OK || bounds->end == first)
        return status;

    status = rmq_unit_read(&queue->files, &LAYOUT, first, first + 1, &unit, &count, err);
    if (status == RMQ_OK && count) {
        if (!is_sane(&unit))
            return no_unit(queue, first, err);
        bounds->min = unit.queue_offset;
    }

    if (status == RMQ_OK)
        status =
            rmq_unit_read(&queue->files, &LAYOUT, bounds->end - 1, bounds->end, &unit, &count, err);
    if (status == RMQ_OK && count) {
        bounds->max = unit.queue_offset + unit.batch_size;
        bounds->physical_end = unit.physical_offset + unit.size;
    }

    if (status == RMQ_OK && bounds->min > bounds->max)
        status = rmq_fail(err, RMQ_CORRUPT, bounds->min,
                          "batch consume queue %s: queue offsets run from %" PRId64
                          " back to %" PRId64 "; rebuild it with rmqstore repair",
                          queue->files.options.directories[0], bounds->min, bounds->max);
    return status;
}

/* The bounds of the units up to log_end. */
static int find_all(struct rmq_batch_consume_queue *queue, int64_t log_end, struct bounds *bounds,
                    struct rmq_error *err)
{
    assert(bounds);

    const struct rmq_mapped_file *last = queue->files.last;
    *bounds = (struct bounds){.end = 0, .min = -1, .max = 0, .physical_end = -1};
    if (!last)
        return RMQ_OK;

    return find_bounds(queue, (last->start + last->size) / RMQ_BATCH_UNIT_SIZE, log_end, bounds,
                       err);
}

int rmq_batch_consume_queue_rewind(struct rmq_batch_consume_queue *queue, int64_t log_end,
                                   struct rmq_error *err)
{
    assert(!queue->files.options.read_only);

    struct bounds bounds;
    int status = find_all(queue, log_end, &bounds, err);
    if (status != RMQ_OK)
        return status;

    rmq_file_queue_rewind(&queue->files, bounds.end * RMQ_BATCH_UNIT_SIZE);
    queue->is_rewound = true;
    set_bounds(queue, bounds.min, bounds.max, bounds.physical_end);
    return RMQ_OK;
}

/* For a read-only queue: sets positions only. */
static void set_end(struct rmq_batch_consume_queue *queue, int64_t end)
{
    assert(queue->files.options.read_only && queue->files.last && end >= 0);

    const struct rmq_mapped_file *last = queue->files.last;
    int64_t offset = end * RMQ_BATCH_UNIT_SIZE;

    if (offset >= last->start)
        rmq_file_queue_advance(&queue->files, offset - last->start);
    else
        atomic_store_explicit(&queue->files.end_offset, offset, memory_order_release);
}

int rmq_batch_consume_queue_recover(struct rmq_batch_consume_queue *queue, int64_t log_end,
                                    struct rmq_error *err)
{
    const struct rmq_mapped_file *last = queue->files.last;
    struct bounds bounds;
    int status = find_all(queue, log_end, &bounds, err);
    if (status == RMQ_OK && last) {
        if (!queue->files.options.read_only)
            status = rmq_file_queue_truncate(&queue->files, bounds.end * RMQ_BATCH_UNIT_SIZE, err);
        else
            set_end(queue, bounds.end);
    }

    if (status == RMQ_OK)
        set_bounds(queue, bounds.min, bounds.max, bounds.physical_end);
    return status;
}

int rmq_batch_consume_queue_units(struct rmq_batch_consume_queue *queue, int64_t from, int64_t upto,
                                  struct rmq_unit *units, size_t *count, struct rmq_error *err)
{
    return rmq_unit_read(&queue->files, &LAYOUT, from, upto, units, count, err);
}

int rmq_batch_consume_queue_end_at(struct rmq_batch_consume_queue *queue, int64_t end,
                                   struct rmq_error *err)
{
    assert(queue->files.options.read_only);
    assert(end >= 0);

    struct rmq_unit unit;
    size_t count = 0;
    int status = RMQ_OK;
    if (!queue->files.last || end >= rmq_batch_consume_queue_end(queue))
        return RMQ_OK;
    if (end > rmq_batch_consume_queue_first(queue))
        status = rmq_batch_consume_queue_units(queue, end - 1, end, &unit, &count, err);

    if (status != RMQ_OK)
        return status;
    set_end(queue, end);

    if (count)
        set_bounds(queue, atomic_load_explicit(&queue->min_offset, memory_order_relaxed),
                   unit.queue_offset + unit.batch_size, unit.physical_offset + unit.size);
    else
        set_bounds(queue, -1, 0, -1);
    return RMQ_OK;
}

int rmq_batch_consume_queue_truncate(struct rmq_batch_consume_queue *queue, int64_t log_end,
                                     struct rmq_error *err)
{
    assert(!queue->files.options.read_only);

    struct bounds bounds;
    int64_t end = rmq_batch_consume_queue_end(queue);
    bool is_rewound = queue->is_rewound;
    if (atomic_load_explicit(&queue->physical_end, memory_order_relaxed) <= log_end && !is_rewound)
        return RMQ_OK;

    queue->is_rewound = false;
    if (!queue->files.last)
        return rmq_file_queue_drop_ahead(&queue->files, err);

    int status = find_bounds(queue, end, log_end, &bounds, err);
    if (status != RMQ_OK || (bounds.end == end && !is_rewound))
        return status;

    int64_t min = atomic_load_explicit(&queue->min_offset, memory_order_relaxed);
    if (min > bounds.max)
        min = bounds.max;
    /* Lower max stops readers before anything is cut. */
    set_bounds(queue, bounds.min < 0 ? -1 : min, bounds.max, bounds.physical_end);
    return rmq_file_queue_truncate(&queue->files, bounds.end * RMQ_BATCH_UNIT_SIZE, err);
}

int rmq_batch_consume_queue_clear(struct rmq_batch_consume_queue *queue, struct rmq_error *err)
{
    assert(!queue->files.options.read_only);

    queue->is_rewound = false;
    set_bounds(queue, -1, 0, -1);
    return rmq_file_queue_clear(&queue->files, err);
}

int rmq_batch_consume_queue_expire(struct rmq_batch_consume_queue *queue, int64_t log_start,
                                   struct rmq_error *err)
{
    int64_t first = rmq_batch_consume_queue_first(queue), end = rmq_batch_consume_queue_end(queue),
            found = first;
    if (!queue->files.last || first >= end)
        return RMQ_OK;

    int status = rmq_unit_search(&queue->files, &LAYOUT, first, end, compare_physical_offset,
                                 log_start, &found, err);
    if (status != RMQ_OK)
        return status;

    int64_t min = atomic_load_explicit(&queue->max_offset, memory_order_relaxed);
    if (found < end) {
        struct rmq_unit unit;
        size_t count = 0;
        status = rmq_unit_read(&queue->files, &LAYOUT, found, found + 1, &unit, &count, err);
        if (status != RMQ_OK)
            return status;
        if (count && (!is_sane(&unit) || unit.queue_offset > min))
            return no_unit(queue, found, err);
        if (count)
            min = unit.queue_offset;
    }

    atomic_store_explicit(&queue->min_offset, min, memory_order_release);
    int64_t files = (found - first) / (queue->files.options.file_size / RMQ_BATCH_UNIT_SIZE);
    assert(files >= 0);
    if (queue->files.options.read_only || files == 0)
        return RMQ_OK;
    return rmq_file_queue_delete_head(&queue->files, (size_t)files, err);
}

/* ---- appending ---- */

/* Ensures that the last file has room for a unit, with blocks for it. */
static int make_room(struct rmq_batch_consume_queue *queue, struct rmq_error *err)
{
    assert(!queue->files.options.read_only);

    struct rmq_file_queue *files = &queue->files;
    struct rmq_mapped_file *last = files->last;
    int status = RMQ_OK;
    if (!last || atomic_load_explicit(&last->wrote, memory_order_relaxed) == last->size)
        status = rmq_file_queue_roll(files, 0, NULL, err);

    if (status == RMQ_OK)
        status = rmq_mapped_file_map(files->last, err);
    if (status != RMQ_OK)
        return status;

    int64_t at = atomic_load_explicit(&files->last->wrote, memory_order_relaxed);
    assert(at >= 0 && at <= files->last->size - RMQ_BATCH_UNIT_SIZE);
    return rmq_mapped_file_reserve(files->last, at + RMQ_BATCH_UNIT_SIZE, files->options.window,
                                   err);
}

int rmq_batch_consume_queue_append(struct rmq_batch_consume_queue *queue,
                                   const struct rmq_unit *unit, struct rmq_error *err)
{
    assert(!queue->files.options.read_only);

    if (!is_sane(unit))
        return rmq_fail(err, RMQ_INVALID, unit->physical_offset,
                        "batch consume queue %s: queue offset %" PRId64 ", %" PRId32
                        " messages in %" PRId32 " bytes cannot be stored",
                        queue->files.options.directories[0], unit->queue_offset, unit->batch_size,
                        unit->size);
    int64_t record_end = unit->physical_offset + unit->size;
    if (record_end <= atomic_load_explicit(&queue->physical_end, memory_order_relaxed) ||
        unit->queue_offset < atomic_load_explicit(&queue->max_offset, memory_order_relaxed))
        return RMQ_OK;

    struct rmq_mapped_file *last = queue->files.last;
    int64_t at = last ? atomic_load_explicit(&last->wrote, memory_order_relaxed) : 0;
    if (!last ||
        at > atomic_load_explicit(&last->reserved, memory_order_relaxed) - RMQ_BATCH_UNIT_SIZE) {
        int status = make_room(queue, err);
        if (status != RMQ_OK)
            return status;
        last = queue->files.last;
        at = atomic_load_explicit(&last->wrote, memory_order_relaxed);
    }

    assert(at % RMQ_BATCH_UNIT_SIZE == 0 && at <= last->size - RMQ_BATCH_UNIT_SIZE);
    uint8_t *bytes = rmq_mapped_file_base(last) + at;
    if (!queue->is_rewound || !holds(bytes, unit))
        encode(bytes, unit);

    if (queue->files.is_last_hidden) {
        int status = rmq_file_queue_show(&queue->files, err);
        if (status != RMQ_OK)
            return status;
    }

    rmq_file_queue_advance(&queue->files, at + RMQ_BATCH_UNIT_SIZE);
    if (atomic_load_explicit(&queue->min_offset, memory_order_relaxed) < 0)
        atomic_store_explicit(&queue->min_offset, unit->queue_offset, memory_order_release);
    atomic_store_explicit(&queue->physical_end, record_end, memory_order_release);
    atomic_store_explicit(&queue->max_offset, unit->queue_offset + unit->batch_size,
                          memory_order_release);
    return RMQ_OK;
}

/* ---- reading ---- */

/* Number of leading units that are valid: each begins after the previous one and before max. */
static size_t count_in_order(const struct rmq_unit *units, size_t count, int64_t max)
{
    assert(units || count == 0);

    int64_t next = 0;
    for (size_t i = 0; i < count; ++i) {
        if (!is_sane(&units[i]) || units[i].queue_offset < next || units[i].queue_offset >= max)
            return i;
        next = units[i].queue_offset + units[i].batch_size;
    }
    return count;
}

int rmq_batch_consume_queue_read(struct rmq_batch_consume_queue *queue, int64_t queue_offset,
                                 struct rmq_unit *units, size_t capacity, size_t *count,
                                 struct rmq_error *err)
{
    assert(units && count);

    *count = 0;
    int64_t max = atomic_load_explicit(&queue->max_offset, memory_order_acquire);
    int64_t first = rmq_batch_consume_queue_first(queue), end = rmq_batch_consume_queue_end(queue),
            found = end;
    if (queue_offset < 0 || queue_offset >= max)
        return RMQ_OK;

    int status = rmq_unit_search(&queue->files, &LAYOUT, first, end, compare_queue_offset,
                                 queue_offset, &found, err);
    if (status != RMQ_OK || found >= end)
        return status;
    int64_t upto = capacity < (size_t)(end - found) ? found + (int64_t)capacity : end;
    status = rmq_unit_read(&queue->files, &LAYOUT, found, upto, units, count, err);

    /* max is lowered before anything is cut: units copied from after the lowered max may be partly
     * cleared. */
    atomic_thread_fence(memory_order_acquire);
    int64_t left = atomic_load_explicit(&queue->max_offset, memory_order_acquire);

    size_t read = *count;
    *count = count_in_order(units, read, left);
    if (status == RMQ_OK && read > 0 && *count == 0 && left == max)
        return no_unit(queue, found, err);
    if (*count && found == first && units[0].queue_offset > queue_offset)
        *count = 0;
    return status;
}

int64_t rmq_batch_consume_queue_next(struct rmq_batch_consume_queue *queue, int64_t queue_offset)
{
    int64_t max = atomic_load_explicit(&queue->max_offset, memory_order_acquire);
    int64_t end = rmq_batch_consume_queue_end(queue), found = end;
    (void)rmq_unit_search(&queue->files, &LAYOUT, rmq_batch_consume_queue_first(queue), end,
                          compare_queue_offset, queue_offset, &found, NULL);

    for (; found < end; ++found) {
        struct rmq_unit unit;
        size_t count = 0;
        if (rmq_unit_read(&queue->files, &LAYOUT, found, found + 1, &unit, &count, NULL) ==
                RMQ_OK &&
            count_in_order(&unit, count, max) == 1 && unit.queue_offset > queue_offset)
            return unit.queue_offset;
    }
    return max;
}

int rmq_batch_consume_queue_flush(struct rmq_batch_consume_queue *queue, struct rmq_error *err)
{
    return rmq_file_queue_flush(&queue->files, err);
}
