/* message_filter.h -- which messages a reader of columns wants, by their own fields. */
#ifndef RMQ_MESSAGE_FILTER_H
#define RMQ_MESSAGE_FILTER_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "format/record.h"

struct rmq_message_filter {
    const struct rmq_slice *keys; /* the whole text of KEYS is one of these; none: all */
    size_t key_count;
    const int32_t *sys_flags; /* the sys flag is one of these; none: all */
    size_t sys_flag_count;
    int64_t born_begin_ms; /* born timestamps in [born_begin_ms, born_end_ms) */
    int64_t born_end_ms;
};

/* Whether the fields of the message, which are those of its row, fit all parts of the filter. */
bool rmq_message_filter_accepts(const struct rmq_message_filter *filter,
                                const struct rmq_record *message);

#endif
