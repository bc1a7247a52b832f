#include "index/consume_queue.h"

#include <assert.h>
#include <inttypes.h>
#include <string.h>

#include "base/bytes.h"
#include "file/file_access.h"

#define WINDOW (64 << 10)

_Static_assert(RMQ_UNIT_SIZE == 8 + 4 + 8, "unit layout");

/* ---- the simple unit ---- */

/* A reader in another process treats bytes with a size as a unit: the size is stored last and
 * loaded first. */
static void decode(const uint8_t *bytes, int64_t number, struct rmq_unit *unit)
{
    assert(number >= 0);

    unit->size = rmq_get_i32(bytes + 8);
    atomic_thread_fence(memory_order_acquire);
    unit->physical_offset = rmq_get_i64(bytes);
    unit->tags_code = rmq_get_i64(bytes + 12);
    unit->queue_offset = number;
    unit->store_timestamp = -1;
    unit->batch_size = 1;
}

static const struct rmq_unit_layout LAYOUT = {RMQ_UNIT_SIZE, decode};

static inline void encode(uint8_t *bytes, int64_t physical_offset, int32_t size, int64_t tags_code)
{
    assert(physical_offset >= 0 && size > 0);

    rmq_put_i64(bytes, physical_offset);
    rmq_put_i64(bytes + 12, tags_code);
    atomic_thread_fence(memory_order_release);
    rmq_put_i32(bytes + 8, size);
}

static inline bool holds(const uint8_t *bytes, int64_t physical_offset, int32_t size,
                         int64_t tags_code)
{
    return rmq_get_i64(bytes) == physical_offset && rmq_get_i32(bytes + 8) == size &&
           rmq_get_i64(bytes + 12) == tags_code;
}

static enum rmq_unit_side compare_end(const struct rmq_unit *unit, int64_t log_end)
{
    if (rmq_unit_is_fill(unit))
        return RMQ_UNIT_NEUTRAL;
    bool is_kept = unit->size > 0 && unit->physical_offset >= 0 &&
                   unit->physical_offset < log_end &&
                   unit->physical_offset <= INT64_MAX - unit->size;
    return is_kept ? RMQ_UNIT_BEFORE : RMQ_UNIT_BEHIND;
}

static enum rmq_unit_side compare_offset(const struct rmq_unit *unit, int64_t physical_offset)
{
    if (rmq_unit_is_fill(unit))
        return RMQ_UNIT_NEUTRAL;
    return unit->physical_offset < physical_offset ? RMQ_UNIT_BEFORE : RMQ_UNIT_BEHIND;
}

/* ---- open and close ---- */

static void set_bounds(struct rmq_consume_queue *queue, int64_t min, int64_t max,
                       int64_t physical_end)
{
    assert(min >= 0 && min <= max);

    atomic_store_explicit(&queue->physical_end, physical_end, memory_order_release);
    /* With either order a reader may see one new bound and one old one. With this order it never
     * sees min above max when both grow, as they do while the dispatcher appends. */
    atomic_store_explicit(&queue->max_offset, max, memory_order_release);
    atomic_store_explicit(&queue->min_offset, min, memory_order_release);
}

int64_t rmq_consume_queue_first(const struct rmq_consume_queue *queue)
{
    assert(!queue->files.last || rmq_file_queue_start(&queue->files) % RMQ_UNIT_SIZE == 0);
    return queue->files.last ? rmq_file_queue_start(&queue->files) / RMQ_UNIT_SIZE : 0;
}

int rmq_consume_queue_open(struct rmq_consume_queue *queue, struct rmq_vfs *vfs,
                           const char *directory, int64_t file_size, bool read_only,
                           struct rmq_unsynced_folders *unsynced, struct rmq_map_budget *budget,
                           struct rmq_error *err)
{
    assert(vfs && directory);

    if (file_size <= 0 || file_size > INT32_MAX)
        return rmq_fail(err, RMQ_INVALID, -1,
                        "consume queue %s: file size %" PRId64 " is not in 1 .. %d", directory,
                        file_size, INT32_MAX);

    int64_t size = (file_size + RMQ_UNIT_SIZE - 1) / RMQ_UNIT_SIZE * RMQ_UNIT_SIZE;
    assert(size % RMQ_UNIT_SIZE == 0);
    struct rmq_file_queue_options options = {.vfs = vfs,
                                             .directories = &directory,
                                             .directory_count = 1,
                                             .file_size = size,
                                             .window = size < WINDOW ? size : WINDOW,
                                             .read_only = read_only,
                                             .makes_folder_late = true,
                                             .shows_files_late = true,
                                             .unsynced = unsynced,
                                             .budget = budget};

    queue->is_rewound = false;
    queue->stale_end = queue->same_end = 0;

    int status = rmq_file_queue_open(&queue->files, &options, err);
    if (status == RMQ_OK)
        set_bounds(queue, rmq_consume_queue_first(queue),
                   rmq_file_queue_end(&queue->files) / RMQ_UNIT_SIZE, -1);
    return status;
}

void rmq_consume_queue_close(struct rmq_consume_queue *queue)
{
    rmq_file_queue_close(&queue->files);
}

/* ---- finding and setting the end ---- */

/* The end of the units in [first, limit) by log_end, and the end of the last of their records. */
static int find_end(struct rmq_consume_queue *queue, int64_t first, int64_t limit, int64_t log_end,
                    int64_t *end, int64_t *physical_end, struct rmq_error *err)
{
    assert(first >= 0 && end && physical_end);

    int64_t found = first;
    *physical_end = -1;
    int status =
        rmq_unit_search(&queue->files, &LAYOUT, first, limit, compare_end, log_end, &found, err);
    *end = found;

    for (int64_t number = found; status == RMQ_OK && number > first; --number) {
        struct rmq_unit unit;
        size_t count = 0;
        status = rmq_unit_read(&queue->files, &LAYOUT, number - 1, number, &unit, &count, err);
        if (status == RMQ_OK && count && !rmq_unit_is_fill(&unit)) {
            /* When RocketMQ recovers, it would take fill units at the very end for a record that
             * ends at 2 GiB. If there is no other unit before them they stay, because only they
             * keep the position of the queue. */
            *end = number;
            *physical_end = unit.physical_offset + unit.size;
            break;
        }
    }
    assert(status != RMQ_OK || *end >= first);
    return status;
}

/* Empties the queue but keeps the file at `start`, whose name keeps the position of the queue. */
static int keep_place(struct rmq_consume_queue *queue, int64_t start, struct rmq_error *err)
{
    assert(start > 0 && start % RMQ_UNIT_SIZE == 0);

    struct rmq_file_queue *files = &queue->files;
    struct rmq_mapped_file *file = NULL;
    /* The file queue drops a file that is cut at its very start. So one unit is left in the file,
     * and removed here. */
    int status = rmq_file_queue_truncate(files, start + RMQ_UNIT_SIZE, err);
    if (status == RMQ_OK)
        status = rmq_file_queue_pin_unmapped(files, start, &file, err);
    if (status != RMQ_OK)
        return status;
    assert(file == files->last);

    pthread_mutex_lock(&files->flush_lock);
    status = rmq_mapped_file_cut(file, 0, err);
    if (status == RMQ_OK) {
        rmq_file_queue_advance(files, 0);
        atomic_store_explicit(&files->flushed_offset, start, memory_order_release);
    }
    pthread_mutex_unlock(&files->flush_lock);

    rmq_mapped_file_unpin(file);
    return status;
}

static int cut(struct rmq_consume_queue *queue, int64_t end, struct rmq_error *err)
{
    assert(end >= 0);

    int64_t first = rmq_consume_queue_first(queue);

    if (end == first && first > 0)
        return keep_place(queue, first * RMQ_UNIT_SIZE, err);
    return rmq_file_queue_truncate(&queue->files, end * RMQ_UNIT_SIZE, err);
}

/* First unit in [first, end) that is not a fill unit. */
static int find_min(struct rmq_consume_queue *queue, int64_t first, int64_t end, int64_t *min,
                    struct rmq_error *err)
{
    assert(0 <= first && first <= end);

    struct rmq_unit units[64];
    for (*min = first; *min < end;) {
        size_t count = 0, fills = 0;
        int64_t upto = end - *min < 64 ? end : *min + 64;
        int status = rmq_unit_read(&queue->files, &LAYOUT, *min, upto, units, &count, err);
        if (status != RMQ_OK)
            return status;

        while (fills < count && rmq_unit_is_fill(&units[fills]))
            ++fills;
        *min += (int64_t)fills;
        if (fills < 64)
            break;
    }
    assert(*min >= first && *min <= end);
    return RMQ_OK;
}

/* The number after the last unit that can have been written: the bytes after it read as zeros. */
static int find_limit(struct rmq_mapped_file *last, int64_t *limit, struct rmq_error *err)
{
    assert(last);

    int64_t end = 0;
    int status = rmq_mapped_file_extent_end(last, &end, err);
    int64_t units = end / RMQ_UNIT_SIZE + (end % RMQ_UNIT_SIZE != 0);
    assert(units >= 0);
    *limit = last->start / RMQ_UNIT_SIZE + units;
    return status;
}

/* The units of records before log_end, and the number after the last unit of the files. */
struct bounds {
    int64_t min, end, physical_end, limit;
};

static int look_for_bounds(struct rmq_consume_queue *queue, int64_t log_end, struct bounds *bounds,
                           struct rmq_error *err)
{
    assert(queue->files.last);

    int64_t first = rmq_consume_queue_first(queue);
    int status = find_limit(queue->files.last, &bounds->limit, err);
    if (status == RMQ_OK)
        status = find_end(queue, first, bounds->limit, log_end, &bounds->end, &bounds->physical_end,
                          err);
    return status == RMQ_OK ? find_min(queue, first, bounds->end, &bounds->min, err) : status;
}

static int find_bounds(struct rmq_consume_queue *queue, int64_t log_end, bool rewind,
                       struct rmq_error *err)
{
    struct rmq_mapped_file *last = queue->files.last;
    struct bounds bounds = {.physical_end = -1};

    if (last) {
        /* Of ten thousand queues most have one file, which would be searched several times. */
        int status = rmq_mapped_file_hold(last, err);
        if (status != RMQ_OK)
            return status;
        status = look_for_bounds(queue, log_end, &bounds, err);
        rmq_mapped_file_release(last);

        if (status == RMQ_OK && rewind) {
            rmq_file_queue_rewind(&queue->files, bounds.end * RMQ_UNIT_SIZE);
            queue->is_rewound = true;
            queue->stale_end = bounds.limit;
            queue->same_end = 0;
        } else if (status == RMQ_OK && !queue->files.options.read_only) {
            status = cut(queue, bounds.end, err);
        }

        if (status != RMQ_OK)
            return status;
    }
    set_bounds(queue, bounds.min, bounds.end, bounds.physical_end);
    return RMQ_OK;
}

int rmq_consume_queue_recover(struct rmq_consume_queue *queue, int64_t log_end,
                              struct rmq_error *err)
{
    return find_bounds(queue, log_end, false, err);
}

int rmq_consume_queue_rewind(struct rmq_consume_queue *queue, int64_t log_end,
                             struct rmq_error *err)
{
    return find_bounds(queue, log_end, true, err);
}

int rmq_consume_queue_units(struct rmq_consume_queue *queue, int64_t from, int64_t upto,
                            struct rmq_unit *units, size_t *count, struct rmq_error *err)
{
    return rmq_unit_read(&queue->files, &LAYOUT, from, upto, units, count, err);
}

int rmq_consume_queue_end_at(struct rmq_consume_queue *queue, int64_t end, struct rmq_error *err)
{
    assert(queue->files.options.read_only && end <= rmq_consume_queue_max(queue));
    assert(end >= 0);

    struct rmq_unit unit;
    size_t count = 0;
    int64_t min = rmq_consume_queue_min(queue);
    int status = RMQ_OK;
    if (end > rmq_consume_queue_first(queue))
        status = rmq_consume_queue_units(queue, end - 1, end, &unit, &count, err);

    if (status == RMQ_OK)
        set_bounds(queue, min < end ? min : end, end,
                   count ? unit.physical_offset + unit.size : -1);
    return status;
}

int rmq_consume_queue_truncate(struct rmq_consume_queue *queue, int64_t log_end,
                               struct rmq_error *err)
{
    assert(!queue->files.options.read_only);

    int64_t max = rmq_consume_queue_max(queue);
    int64_t min = rmq_consume_queue_min(queue);
    int64_t end = max,
            physical_end = atomic_load_explicit(&queue->physical_end, memory_order_relaxed);

    if (!queue->files.last)
        return rmq_file_queue_drop_ahead(&queue->files, err);
    if (physical_end <= log_end && !queue->is_rewound)
        return RMQ_OK;

    int status = RMQ_OK;
    if (physical_end > log_end)
        status =
            find_end(queue, rmq_consume_queue_first(queue), max, log_end, &end, &physical_end, err);
    if (status != RMQ_OK || (end == max && !queue->is_rewound))
        return status;

    queue->is_rewound = false;
    queue->stale_end = queue->same_end = 0;
    set_bounds(queue, min < end ? min : end, end, physical_end);
    return cut(queue, end, err);
}

int rmq_consume_queue_clear(struct rmq_consume_queue *queue, struct rmq_error *err)
{
    assert(!queue->files.options.read_only);

    queue->is_rewound = false;
    queue->stale_end = queue->same_end = 0;
    set_bounds(queue, 0, 0, -1);
    return rmq_file_queue_clear(&queue->files, err);
}

int rmq_consume_queue_expire(struct rmq_consume_queue *queue, int64_t log_start,
                             struct rmq_error *err)
{
    int64_t max = rmq_consume_queue_max(queue);
    int64_t min = rmq_consume_queue_min(queue);
    if (max == 0 || log_start <= 0)
        return RMQ_OK;
    int status =
        rmq_unit_search(&queue->files, &LAYOUT, min, max, compare_offset, log_start, &min, err);
    if (status != RMQ_OK)
        return status;

    atomic_store_explicit(&queue->min_offset, min, memory_order_release);
    int64_t before = min - rmq_consume_queue_first(queue);
    int64_t units_per_file = queue->files.options.file_size / RMQ_UNIT_SIZE;
    assert(units_per_file > 0);
    if (queue->files.options.read_only || before < units_per_file)
        return RMQ_OK;
    return rmq_file_queue_delete_head(&queue->files, (size_t)(before / units_per_file), err);
}

/* ---- appending ---- */

/* Ensures that the last file can take its next `units` units, or as many as it has room for. In a
 * file without a mapping, blocks are allocated when the bytes are written. */
static int make_room(struct rmq_consume_queue *queue, int64_t queue_offset, int64_t units,
                     struct rmq_error *err)
{
    assert(!queue->files.options.read_only && queue_offset >= 0 && units > 0);

    struct rmq_file_queue *files = &queue->files;
    struct rmq_mapped_file *last = files->last;
    int64_t at = last ? atomic_load_explicit(&last->wrote, memory_order_relaxed) : 0;
    int status = RMQ_OK;

    if (!last || at == last->size) {
        status = rmq_file_queue_roll(files, queue_offset * RMQ_UNIT_SIZE, NULL, err);
        last = files->last;
        at = 0;
    }
    uint8_t *base = NULL;
    if (status == RMQ_OK)
        status = rmq_file_access_base(last, &base, err);
    if (status != RMQ_OK || !base)
        return status;

    int64_t room = (last->size - at) / RMQ_UNIT_SIZE;
    assert(room > 0);
    int64_t upto = at + (units < room ? units : room) * RMQ_UNIT_SIZE;

    /* A queue with many units gets as much room again: there are few calls, and at most half of the
     * room stays unused. */
    int64_t window = files->options.window > at ? files->options.window : at;
    status = rmq_mapped_file_reserve(last, upto, window, err);
    /* The last bytes of an allocated block need no room: they are written without the mapping. */
    return status == RMQ_NO_SPACE && last->budget ? RMQ_OK : status;
}

/* Stores fill units after `wrote` of the last file, through the mapping where there are blocks. */
static int store_fills(struct rmq_mapped_file *last, int64_t at, int64_t count,
                       struct rmq_error *err)
{
    assert(count > 0 && count <= RMQ_UNIT_BLOCK);

    uint8_t fills[RMQ_UNIT_BLOCK * RMQ_UNIT_SIZE];
    uint8_t *base = rmq_mapped_file_base(last);
    int64_t size = count * RMQ_UNIT_SIZE;
    bool is_reserved =
        base && at <= atomic_load_explicit(&last->reserved, memory_order_relaxed) - size;

    uint8_t *bytes = is_reserved ? base + at : fills;
    for (int64_t i = 0; i < count; ++i)
        encode(bytes + i * RMQ_UNIT_SIZE, 0, RMQ_FILL_UNIT_SIZE_FIELD, 0);
    return is_reserved ? RMQ_OK : rmq_file_access_write(last, at, fills, (size_t)size, 0, err);
}

/* Writes fill units up to queue_offset. An empty queue stays empty: min moves with max. */
static int fill(struct rmq_consume_queue *queue, int64_t queue_offset, struct rmq_error *err)
{
    int64_t max = rmq_consume_queue_max(queue);
    int64_t min = rmq_consume_queue_min(queue);
    bool is_empty = min == max;
    int64_t physical_end = atomic_load_explicit(&queue->physical_end, memory_order_relaxed);

    while (max < queue_offset) {
        int status = make_room(queue, max, queue_offset - max, err);
        if (status != RMQ_OK)
            return status;
        struct rmq_mapped_file *last = queue->files.last;
        int64_t at = atomic_load_explicit(&last->wrote, memory_order_relaxed);
        int64_t count = (last->size - at) / RMQ_UNIT_SIZE;
        count = count < queue_offset - max ? count : queue_offset - max;
        count = count < RMQ_UNIT_BLOCK ? count : RMQ_UNIT_BLOCK;
        status = store_fills(last, at, count, err);
        if (status != RMQ_OK)
            return status;

        max += count;
        rmq_file_queue_advance(&queue->files, at + count * RMQ_UNIT_SIZE);
        set_bounds(queue, is_empty ? max : min, max, physical_end);
    }
    assert(max == queue_offset);
    return RMQ_OK;
}

/* Moves max forward to queue_offset, over a gap. */
static int go_to(struct rmq_consume_queue *queue, int64_t queue_offset, struct rmq_error *err)
{
    assert(queue_offset > rmq_consume_queue_max(queue));

    struct rmq_file_queue *files = &queue->files;
    int64_t max = rmq_consume_queue_max(queue);
    int64_t units_per_file = files->options.file_size / RMQ_UNIT_SIZE;
    bool is_empty = rmq_consume_queue_min(queue) == max;

    int status = RMQ_OK;
    if (is_empty && files->last &&
        queue_offset / units_per_file != files->last->start / files->options.file_size) {
        status = rmq_file_queue_clear(files, err);
        if (status == RMQ_OK)
            set_bounds(queue, 0, 0, -1);
    }

    if (status == RMQ_OK && !files->last) {
        int64_t first = queue_offset - queue_offset % units_per_file;
        status = make_room(queue, queue_offset, 1, err);
        /* Also for a file that got no blocks: the next attempt continues in it. */
        if (files->last)
            set_bounds(queue, first, first, -1);
    } else if (status == RMQ_OK && queue_offset - max > RMQ_CONSUME_QUEUE_GAP_MAX) {
        status = rmq_fail(err, RMQ_CORRUPT, queue_offset,
                          "consume queue %s goes on at %" PRId64 ", not at queue offset %" PRId64
                          "; rebuild it with rmqstore repair",
                          files->options.directories[0], max, queue_offset);
    }

    return status == RMQ_OK ? fill(queue, queue_offset, err) : status;
}

/* Writes a unit to a file without a mapping. A reader in another process treats bytes with a size
 * as a unit: the tags code is written before the size. */
static int write_unit(struct rmq_consume_queue *queue, int64_t at, int64_t physical_offset,
                      int32_t size, int64_t tags_code, struct rmq_error *err)
{
    uint8_t unit[RMQ_UNIT_SIZE];
    encode(unit, physical_offset, size, tags_code);
    assert(at == atomic_load_explicit(&queue->files.last->wrote, memory_order_relaxed));
    return rmq_file_access_write(queue->files.last, at, unit, sizeof unit, 12, err);
}

int rmq_consume_queue_append(struct rmq_consume_queue *queue, int64_t queue_offset,
                             int64_t physical_offset, int32_t size, int64_t tags_code,
                             struct rmq_error *err)
{
    assert(!queue->files.options.read_only);

    if (queue_offset < 0 || queue_offset > INT64_MAX / RMQ_UNIT_SIZE - INT32_MAX ||
        physical_offset < 0 || size <= 0 || physical_offset > INT64_MAX - size)
        return rmq_fail(err, RMQ_INVALID, physical_offset,
                        "consume queue %s: queue offset %" PRId64 ", record size %" PRId32
                        " cannot be stored",
                        queue->files.options.directories[0], queue_offset, size);

    int64_t max = atomic_load_explicit(&queue->max_offset, memory_order_relaxed);
    if (queue_offset < max)
        return RMQ_OK;

    int status = RMQ_OK;
    if (queue_offset > max)
        status = go_to(queue, queue_offset, err);

    struct rmq_mapped_file *last = queue->files.last;
    int64_t at = last ? atomic_load_explicit(&last->wrote, memory_order_relaxed) : 0;
    if (status == RMQ_OK &&
        (!last ||
         at > atomic_load_explicit(&last->reserved, memory_order_relaxed) - RMQ_UNIT_SIZE)) {
        status = make_room(queue, queue_offset, 1, err);
        last = queue->files.last;
        at = last ? atomic_load_explicit(&last->wrote, memory_order_relaxed) : 0;
    }
    if (status != RMQ_OK)
        return status;
    assert(last->start + at == queue_offset * RMQ_UNIT_SIZE);

    uint8_t *base = rmq_mapped_file_base(last);
    if (!base || at > atomic_load_explicit(&last->reserved, memory_order_relaxed) - RMQ_UNIT_SIZE)
        status = write_unit(queue, at, physical_offset, size, tags_code, err);
    else if (queue_offset >= queue->stale_end ||
             !holds(base + at, physical_offset, size, tags_code))
        encode(base + at, physical_offset, size, tags_code);

    if (status == RMQ_OK && queue->files.is_last_hidden)
        status = rmq_file_queue_show(&queue->files, err);
    if (status != RMQ_OK)
        return status;

    rmq_file_queue_advance(&queue->files, at + RMQ_UNIT_SIZE);
    atomic_store_explicit(&queue->physical_end, physical_offset + size, memory_order_release);
    atomic_store_explicit(&queue->max_offset, queue_offset + 1, memory_order_release);
    return RMQ_OK;
}

/* ---- units that are stored already ---- */

bool rmq_consume_queue_recognise(struct rmq_consume_queue *queue, int64_t queue_offset,
                                 int64_t physical_offset, int32_t size, int64_t tags_code)
{
    struct rmq_file_queue *files = &queue->files;
    int64_t max = rmq_consume_queue_max(queue);
    int64_t end = queue->same_end > max ? queue->same_end : max;
    if (queue_offset < end)
        return true; /* Appending the unit would change nothing. */
    if (queue_offset > end || queue_offset >= queue->stale_end || files->count == 0)
        return false;
    assert(queue->is_rewound);

    int64_t at = queue_offset * RMQ_UNIT_SIZE - files->files[0]->start;
    size_t number = (size_t)(at / files->options.file_size);
    if (number >= files->count + files->ahead)
        return false;

    struct rmq_mapped_file *file = files->files[number];
    uint8_t *base = NULL, unit[RMQ_UNIT_SIZE];
    at = queue_offset * RMQ_UNIT_SIZE - file->start;
    if (at < 0 || at > file->size - RMQ_UNIT_SIZE ||
        rmq_file_access_base(file, &base, NULL) != RMQ_OK ||
        (!base && rmq_file_access_read(file, at, unit, sizeof unit, NULL) != RMQ_OK) ||
        !holds(base ? base + at : unit, physical_offset, size, tags_code))
        return false;

    queue->same_end = queue_offset + 1;
    queue->same_physical_end = physical_offset + size;
    return true;
}

int rmq_consume_queue_keep(struct rmq_consume_queue *queue, struct rmq_error *err)
{
    struct rmq_file_queue *files = &queue->files;
    int64_t max = rmq_consume_queue_max(queue), min = rmq_consume_queue_min(queue);
    assert(queue->is_rewound || queue->same_end == 0);

    while (max < queue->same_end) {
        struct rmq_mapped_file *last = files->last;
        int status = RMQ_OK;
        if (atomic_load_explicit(&last->wrote, memory_order_relaxed) == last->size)
            status = rmq_file_queue_roll(files, max * RMQ_UNIT_SIZE, NULL, err);
        if (status != RMQ_OK)
            return status;

        last = files->last;
        int64_t end = queue->same_end * RMQ_UNIT_SIZE - last->start;
        rmq_file_queue_advance(files, end < last->size ? end : last->size);
        max = rmq_file_queue_end(files) / RMQ_UNIT_SIZE;
        set_bounds(queue, min, max, queue->same_physical_end);
    }
    return RMQ_OK;
}

/* ---- reading ---- */

int rmq_consume_queue_read(struct rmq_consume_queue *queue, int64_t queue_offset,
                           struct rmq_unit *units, size_t capacity, size_t *count,
                           struct rmq_error *err)
{
    assert(units && count);

    *count = 0;
    int64_t max = rmq_consume_queue_max(queue);
    if (queue_offset < 0 || queue_offset >= max)
        return RMQ_OK;

    int64_t upto = capacity < (size_t)(max - queue_offset) ? queue_offset + (int64_t)capacity : max;
    int status = rmq_unit_read(&queue->files, &LAYOUT, queue_offset, upto, units, count, err);

    /* The end is lowered before anything is cut: units copied from after the lowered end may be
     * partly cleared. */
    atomic_thread_fence(memory_order_acquire);
    int64_t left = rmq_consume_queue_max(queue) - queue_offset;
    if ((int64_t)*count > left)
        *count = left > 0 ? (size_t)left : 0;
    return status;
}

int rmq_consume_queue_flush(struct rmq_consume_queue *queue, struct rmq_error *err)
{
    return rmq_file_queue_flush(&queue->files, err);
}
