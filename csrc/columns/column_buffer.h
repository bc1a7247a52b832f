/* column_buffer.h -- the growing buffers of a batch of columns (columns.h).
 *
 * A buffer with all fields but its pool zeroed is empty. A function returns NULL or false when
 * there is no memory; the batch is then unusable.
 */
#ifndef RMQ_COLUMN_BUFFER_H
#define RMQ_COLUMN_BUFFER_H

#include <assert.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include "columns/columns.h"
#include "format/properties.h"

/* Room for more bytes in a larger buffer. */
uint8_t *rmq_buffer_grow(struct rmq_buffer *buffer, size_t more);

/* Appends text as well-formed UTF-8. */
bool rmq_buffer_put_text(struct rmq_buffer *buffer, struct rmq_slice text);

/* Room for one offset of each of so many rows. A first offset of 0, before that of the first row,
 * is written too. */
int32_t *rmq_buffer_reserve_offsets(struct rmq_buffer *offsets, size_t count);
bool rmq_buffer_put_offset(struct rmq_buffer *offsets, size_t end);
bool rmq_buffer_put_large_offset(struct rmq_buffer *offsets, size_t end);

/* Room for one bit, 0 at first, for each of so many rows from `row` on. */
bool rmq_buffer_extend_bits(struct rmq_buffer *bits, int64_t row, size_t count);

/* Room for more bytes after the existing ones. The size stays. */
static inline uint8_t *rmq_buffer_reserve(struct rmq_buffer *buffer, size_t more)
{
    bool fits = buffer->data && more <= buffer->capacity - buffer->size;
    return fits ? buffer->data + buffer->size : rmq_buffer_grow(buffer, more);
}

static inline bool rmq_buffer_put(struct rmq_buffer *buffer, const void *from, size_t size)
{
    uint8_t *to = rmq_buffer_reserve(buffer, size);
    if (!to)
        return false;

    if (size > 0)
        memcpy(to, from, size);
    buffer->size += size;
    return true;
}

static inline void rmq_buffer_set_bit(struct rmq_buffer *bits, int64_t row, bool value)
{
    assert((size_t)row / 8 < bits->size);

    bits->data[row / 8] |= (uint8_t)(value << row % 8);
}

#endif
