#include "index/unit_array.h"

#include <assert.h>

#include "file/file_access.h"

/* Reads units of a file without a mapping; at is the position of the first unit in the file. */
static int read_unmapped(struct rmq_file_queue *files, const struct rmq_unit_layout *layout,
                         struct rmq_mapped_file *file, int64_t at, int64_t from, size_t count,
                         struct rmq_unit *units, struct rmq_error *err)
{
    uint8_t bytes[RMQ_UNIT_BLOCK * RMQ_UNIT_SIZE_MAX];
    size_t unit_size = (size_t)layout->unit_size, size = count * unit_size;
    assert(size <= sizeof bytes);

    int status = rmq_file_access_read(file, at, bytes, size, err);
    for (size_t i = 0; i < count && status == RMQ_OK; ++i)
        layout->decode(bytes + i * unit_size, from + (int64_t)i, &units[i]);
    if (status != RMQ_OK || !files->options.read_only)
        return status;

    /* A writer in another process stores the size last: if a unit has its size, its other fields
     * are whole when they are read after the size. */
    status = rmq_file_access_read(file, at, bytes, size, err);
    for (size_t i = 0; i < count && status == RMQ_OK; ++i) {
        int32_t first_size = units[i].size;
        layout->decode(bytes + i * unit_size, from + (int64_t)i, &units[i]);
        units[i].size = first_size;
    }
    return status;
}

/* Reads units from .. upto - 1, but only those that the file holds. */
static int read_in(struct rmq_file_queue *files, const struct rmq_unit_layout *layout,
                   struct rmq_mapped_file *file, int64_t from, int64_t upto, struct rmq_unit *units,
                   size_t *count, struct rmq_error *err)
{
    int64_t at = from * layout->unit_size - file->start;
    int64_t run = (file->size - at) / layout->unit_size;
    assert(run > 0);
    if (run > upto - from)
        run = upto - from;

    uint8_t *base = NULL;
    int status = rmq_file_access_base(file, &base, err);
    if (status == RMQ_OK && base) {
        for (int64_t i = 0; i < run; ++i)
            layout->decode(base + at + i * layout->unit_size, from + i, &units[i]);
    } else if (status == RMQ_OK) {
        run = run < RMQ_UNIT_BLOCK ? run : RMQ_UNIT_BLOCK;
        status = read_unmapped(files, layout, file, at, from, (size_t)run, units, err);
    }
    *count = status == RMQ_OK ? (size_t)run : 0;
    return status;
}

int rmq_unit_read(struct rmq_file_queue *files, const struct rmq_unit_layout *layout, int64_t from,
                  int64_t upto, struct rmq_unit *units, size_t *count, struct rmq_error *err)
{
    assert(files->options.file_size % layout->unit_size == 0);
    assert(count);

    *count = 0;
    while (from < upto) {
        struct rmq_mapped_file *file = NULL;
        size_t run = 0;
        int status = rmq_file_queue_pin_unmapped(files, from * layout->unit_size, &file, err);
        if (status == RMQ_OK) {
            status = read_in(files, layout, file, from, upto, units + *count, &run, err);
            rmq_mapped_file_unpin(file);
        }
        if (status == RMQ_NOT_FOUND)
            return RMQ_OK;
        if (status != RMQ_OK)
            return status;

        *count += run;
        from += (int64_t)run;
    }
    return RMQ_OK;
}

/* The part of an array that a search ends in, read at once. */
struct block {
    int64_t first;
    size_t count;
    struct rmq_unit units[RMQ_UNIT_BLOCK];
};

static int look_at(struct rmq_file_queue *files, const struct rmq_unit_layout *layout,
                   const struct block *block, int64_t number, struct rmq_unit *unit, bool *is_there,
                   struct rmq_error *err)
{
    assert(unit && is_there);

    size_t count = 0;
    if (number >= block->first && number - block->first < (int64_t)block->count) {
        *unit = block->units[number - block->first];
        *is_there = true;
        return RMQ_OK;
    }

    int status = rmq_unit_read(files, layout, number, number + 1, unit, &count, err);
    *is_there = count > 0;
    return status;
}

int rmq_unit_search(struct rmq_file_queue *files, const struct rmq_unit_layout *layout, int64_t low,
                    int64_t high, rmq_unit_compare *compare, int64_t sought, int64_t *found,
                    struct rmq_error *err)
{
    assert(layout->unit_size > 0 && compare && found);

    struct block block = {.count = 0};
    while (low < high) {
        int64_t middle = low + (high - low) / 2;
        int64_t real = middle;
        enum rmq_unit_side side = RMQ_UNIT_NEUTRAL;
        int status = RMQ_OK;
        if (block.count == 0 && high - low <= RMQ_UNIT_BLOCK) {
            block.first = low;
            status = rmq_unit_read(files, layout, low, high, block.units, &block.count, err);
        }

        /* A neutral unit counts like the nearest other unit before it; when there is none it counts
         * as before. */
        for (; side == RMQ_UNIT_NEUTRAL && real >= low && status == RMQ_OK; --real) {
            struct rmq_unit unit;
            bool is_there = false;
            status = look_at(files, layout, &block, real, &unit, &is_there, err);
            side = is_there ? compare(&unit, sought) : RMQ_UNIT_BEFORE;
        }
        if (status != RMQ_OK)
            return status;

        if (side == RMQ_UNIT_BEHIND)
            high = real + 1;
        else
            low = middle + 1;
    }
    *found = low;
    return RMQ_OK;
}
