#include "columns/column_buffer.h"

#include "base/utf8.h"

uint8_t *rmq_buffer_grow(struct rmq_buffer *buffer, size_t more)
{
    size_t wanted = buffer->size + more;
    assert(wanted >= more);
    if (wanted < buffer->capacity * 2)
        wanted = buffer->capacity * 2;
    if (wanted < buffer->expected)
        wanted = buffer->expected;

    size_t capacity = 0;
    uint8_t *data = rmq_buffer_take(buffer->pool, wanted, &capacity);
    if (!data)
        return NULL;

    if (buffer->size > 0)
        memcpy(data, buffer->data, buffer->size);
    rmq_buffer_give(buffer->data);
    buffer->data = data;
    buffer->capacity = capacity;
    assert(capacity - buffer->size >= more);
    return data + buffer->size;
}

bool rmq_buffer_put_text(struct rmq_buffer *buffer, struct rmq_slice text)
{
    if (text.size == 0 || rmq_utf8_is_valid(text.data, text.size))
        return rmq_buffer_put(buffer, text.data, text.size);

    char *to = (char *)rmq_buffer_reserve(buffer, text.size * RMQ_UTF8_MEND_FACTOR);
    if (!to)
        return false;
    buffer->size += rmq_utf8_mend(to, text.data, text.size);
    return true;
}

int32_t *rmq_buffer_reserve_offsets(struct rmq_buffer *offsets, size_t count)
{
    if (!rmq_buffer_reserve(offsets, (count + 1) * sizeof(int32_t)))
        return NULL;

    if (offsets->size == 0) {
        memset(offsets->data, 0, sizeof(int32_t));
        offsets->size = sizeof(int32_t);
    }
    return (int32_t *)(void *)(offsets->data + offsets->size);
}

bool rmq_buffer_put_offset(struct rmq_buffer *offsets, size_t end)
{
    assert(end <= INT32_MAX);

    int32_t *to = rmq_buffer_reserve_offsets(offsets, 1);
    if (!to)
        return false;
    *to = (int32_t)end;
    offsets->size += sizeof *to;
    return true;
}

bool rmq_buffer_put_large_offset(struct rmq_buffer *offsets, size_t end)
{
    static const int64_t zero = 0;
    int64_t wide = (int64_t)end;
    return (offsets->size > 0 || rmq_buffer_put(offsets, &zero, sizeof zero)) &&
           rmq_buffer_put(offsets, &wide, sizeof wide);
}

bool rmq_buffer_extend_bits(struct rmq_buffer *bits, int64_t row, size_t count)
{
    assert(bits->size == (size_t)(row + 7) / 8);

    size_t size = ((size_t)row + count + 7) / 8;
    uint8_t *to = rmq_buffer_reserve(bits, size - bits->size);
    if (!to)
        return false;
    memset(to, 0, size - bits->size);
    bits->size = size;
    return true;
}
