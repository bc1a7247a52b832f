#include "columns/unit_bytes.h"

#include <assert.h>
#include <string.h>

#include "base/bytes.h"
#include "index/consume_queue.h"

size_t rmq_unit_positions(const uint8_t *units, size_t unit_count, int64_t start, int64_t stop,
                          int64_t *out)
{
    assert((units && out) || unit_count == 0);

    size_t found = 0;
    for (size_t i = 0; i < unit_count; ++i) {
        const uint8_t *unit = units + i * RMQ_UNIT_SIZE;
        int64_t offset = rmq_get_i64(unit);
        int32_t size = rmq_get_i32(unit + 8);

        out[found] = offset;
        found += offset >= start && offset < stop && size > 0 && size != RMQ_FILL_UNIT_SIZE_FIELD;
    }
    assert(found <= unit_count);
    return found;
}

int64_t rmq_first_difference(const uint8_t *a, const uint8_t *b, size_t size)
{
    assert((a && b) || size == 0);

    /* memcmp is fast but does not return the position. */
    enum { BLOCK = 4096 };
    size_t at = 0;
    while (size - at >= BLOCK && memcmp(a + at, b + at, BLOCK) == 0)
        at += BLOCK;

    while (at < size && a[at] == b[at])
        ++at;
    return at < size ? (int64_t)at : -1;
}

bool rmq_unit_add_sizes(const uint8_t *units, size_t unit_count, size_t unit_size,
                        struct rmq_file_sums *sums, int64_t *last)
{
    assert(unit_size >= RMQ_UNIT_SIZE && sums->file_size > 0);

    for (size_t i = 0; i < unit_count; ++i) {
        const uint8_t *unit = units + i * unit_size;
        int64_t offset = rmq_get_i64(unit);
        int32_t size = rmq_get_i32(unit + 8);
        if (offset < sums->start || offset >= sums->stop || size <= 0 ||
            size == RMQ_FILL_UNIT_SIZE_FIELD)
            continue;
        if (offset <= *last)
            return false;
        *last = offset;

        size_t file = (size_t)((offset - sums->start) / sums->file_size);
        if (file >= sums->file_count)
            return false;
        sums->sizes[file] += size;
        if (sums->ends[file] < offset + size)
            sums->ends[file] = offset + size;
    }
    return true;
}
