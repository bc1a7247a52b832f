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

bool rmq_message_filter_accepts(const struct rmq_message_filter *filter,
                                const struct rmq_record *message)
{
    assert(filter->keys || filter->key_count == 0);

    if (message->born_timestamp < filter->born_begin_ms ||
        message->born_timestamp >= filter->born_end_ms || !has_flag(filter, message->sys_flag))
        return false;
    return filter->key_count == 0 ||
           rmq_properties_have(message->properties, (size_t)message->properties_size, "KEYS",
                               filter->keys, filter->key_count);
}
