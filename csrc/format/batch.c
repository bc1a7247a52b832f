#include "format/batch.h"

#include <assert.h>
#include <string.h>

#include "base/bytes.h"

int rmq_batch_next(const uint8_t *body, size_t size, size_t *at, struct rmq_batch_item *item,
                   struct rmq_error *err)
{
    assert(*at <= size);
    assert(body || size == 0);

    size_t left = size - *at;
    int64_t place = (int64_t)*at;

    if (left == 0)
        return RMQ_END;
    if (left < RMQ_BATCH_HEAD_SIZE)
        return rmq_fail(err, RMQ_CORRUPT, place,
                        "batch: %zu bytes left at byte %lld, a message takes at least %d", left,
                        (long long)place, RMQ_BATCH_HEAD_SIZE);

    const uint8_t *from = body + *at;
    int32_t total_size = rmq_get_i32(from);
    int32_t body_size = rmq_get_i32(from + 16);
    if (body_size < 0 || (size_t)body_size > left - RMQ_BATCH_HEAD_SIZE)
        return rmq_fail(err, RMQ_CORRUPT, place,
                        "batch: message at byte %lld has a body of %d bytes, %zu are left",
                        (long long)place, body_size, left - RMQ_BATCH_HEAD_SIZE);

    size_t after_body = RMQ_BATCH_HEAD_SIZE + (size_t)body_size;
    const uint8_t *body_end = from + 20 + body_size;
    int16_t properties_size = rmq_get_i16(body_end);
    if (properties_size < 0 || (size_t)properties_size > left - after_body)
        return rmq_fail(err, RMQ_CORRUPT, place,
                        "batch: message at byte %lld has properties of %d bytes, %zu are left",
                        (long long)place, properties_size, left - after_body);
    if (total_size < 0 || (size_t)total_size != after_body + (size_t)properties_size)
        return rmq_fail(err, RMQ_CORRUPT, place,
                        "batch: message at byte %lld says %d bytes, its fields take %zu",
                        (long long)place, total_size, after_body + (size_t)properties_size);

    item->flag = rmq_get_i32(from + 12);
    item->body = from + 20;
    item->body_size = body_size;
    item->properties = (const char *)body_end + 2;
    item->properties_size = properties_size;
    *at += (size_t)total_size;
    assert(*at <= size);
    return RMQ_OK;
}

size_t rmq_batch_put(uint8_t *out, const struct rmq_batch_item *item)
{
    assert(item->body_size >= 0 && item->body_size <= INT32_MAX - RMQ_BATCH_HEAD_SIZE - INT16_MAX);
    assert(item->properties_size >= 0 && item->properties_size <= INT16_MAX);
    assert(item->body || item->body_size == 0);

    size_t total_size = rmq_batch_item_size(item);
    rmq_put_i32(out, (int32_t)total_size);

    memset(out + 4, 0, 8); /* magic and body CRC */
    rmq_put_i32(out + 12, item->flag);
    rmq_put_i32(out + 16, item->body_size);

    if (item->body_size > 0)
        memcpy(out + 20, item->body, (size_t)item->body_size);

    uint8_t *after = out + 20 + item->body_size;
    rmq_put_i16(after, (int16_t)item->properties_size);
    if (item->properties_size > 0)
        memcpy(after + 2, item->properties, (size_t)item->properties_size);
    return total_size;
}
