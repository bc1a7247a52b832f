#include "format/inner_batch.h"

#include <assert.h>

#include "format/batch.h"

static int corrupt(const struct rmq_record *record, const struct rmq_error *why,
                   struct rmq_error *err)
{
    assert(why->status == RMQ_CORRUPT);

    return rmq_fail(err, RMQ_CORRUPT, record->physical_offset, "record at %lld: inner %s",
                    (long long)record->physical_offset, why->detail);
}

/* As the dispatcher counts messages. */
static int64_t base_of(const struct rmq_record *record)
{
    assert(record->properties_size >= 0);

    struct rmq_dispatch_properties properties;
    rmq_properties_scan(record->properties, (size_t)record->properties_size, &properties);

    bool has_base =
        properties.inner_num > 0 && properties.inner_num <= INT16_MAX && properties.inner_base >= 0;
    return has_base ? properties.inner_base : record->queue_offset;
}

int rmq_inner_begin(struct rmq_inner_walk *walk, const struct rmq_record *record,
                    struct rmq_error *err)
{
    assert(rmq_inner_is_batch(record));

    struct rmq_batch_item item;
    struct rmq_error why;
    int status = RMQ_OK;
    for (size_t at = 0; status == RMQ_OK;)
        status = rmq_batch_next(record->body, (size_t)record->body_size, &at, &item, &why);

    *walk = (struct rmq_inner_walk){.base = base_of(record)};
    return status == RMQ_END ? RMQ_OK : corrupt(record, &why, err);
}

int rmq_inner_next(struct rmq_inner_walk *walk, const struct rmq_record *record,
                   struct rmq_record *message, struct rmq_error *err)
{
    assert(rmq_inner_is_batch(record));
    assert(walk->index >= 0 && walk->at <= (size_t)record->body_size);

    struct rmq_batch_item item;
    struct rmq_error why;
    int status = rmq_batch_next(record->body, (size_t)record->body_size, &walk->at, &item, &why);
    if (status != RMQ_OK)
        return status == RMQ_END ? RMQ_END : corrupt(record, &why, err);

    *message = *record;
    message->body = item.body;
    message->body_size = item.body_size;
    message->properties = item.properties;
    message->properties_size = item.properties_size;
    message->flag = item.flag;

    /* A base near the greatest offset is garbage; the sum must not overflow. */
    message->queue_offset = (int64_t)((uint64_t)walk->base + (uint64_t)walk->index++);
    return RMQ_OK;
}
