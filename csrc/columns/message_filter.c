#include "columns/message_filter.h"

#include <assert.h>

static bool has_flag(const struct rmq_message_filter *filter, int32_t sys_flag)
{
    assert(filter->sys_flags || filter->sys_flag_count == 0);

    for (size_t i = 0; i < filter->sys_flag_count; ++i)
        if (filter->sys_flags[i] == sys_flag)
            return true;
    return filter->sys_flag_count == 0;
}

/* The finalizer of SplitMix64: every bit of x changes half of the result's bits. */
static uint64_t mix(uint64_t x)
{
    x = (x ^ (x >> 30)) * UINT64_C(0xBF58476D1CE4E5B9);
    x = (x ^ (x >> 27)) * UINT64_C(0x94D049BB133111EB);
    return x ^ (x >> 31);
}

int64_t rmq_sample_number(uint64_t seed, int64_t physical_offset, int64_t queue_offset)
{
    uint64_t mixed = mix(mix(mix(seed) + (uint64_t)physical_offset) + (uint64_t)queue_offset);
    return (int64_t)(mixed % (uint64_t)RMQ_SAMPLE_NUMBERS);
}

static bool is_sampled(const struct rmq_message_filter *filter, const struct rmq_record *message)
{
    assert(filter->sample_begin >= 0 && filter->sample_end <= RMQ_SAMPLE_NUMBERS);

    if (filter->sample_begin == 0 && filter->sample_end == RMQ_SAMPLE_NUMBERS)
        return true;
    int64_t number =
        rmq_sample_number(filter->sample_seed, message->physical_offset, message->queue_offset);
    return number >= filter->sample_begin && number < filter->sample_end;
}

bool rmq_message_filter_accepts(const struct rmq_message_filter *filter,
                                const struct rmq_record *message)
{
    assert(filter->keys || filter->key_count == 0);

    if (message->born_timestamp < filter->born_begin_ms ||
        message->born_timestamp >= filter->born_end_ms || !has_flag(filter, message->sys_flag) ||
        !is_sampled(filter, message))
        return false;
    return filter->key_count == 0 ||
           rmq_properties_have(message->properties, (size_t)message->properties_size, "KEYS",
                               filter->keys, filter->key_count);
}
