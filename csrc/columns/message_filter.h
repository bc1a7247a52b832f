/* message_filter.h -- which messages a reader of columns wants, by their own fields. */
#ifndef RMQ_MESSAGE_FILTER_H
#define RMQ_MESSAGE_FILTER_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "format/record.h"

/* A sample is a share of the numbers from 0 to RMQ_SAMPLE_NUMBERS - 1. */
#define RMQ_SAMPLE_NUMBERS (INT64_C(1) << 53)

struct rmq_message_filter {
    const struct rmq_slice *keys; /* the whole text of KEYS is one of these; none: all */
    size_t key_count;
    const int32_t *sys_flags; /* the sys flag is one of these; none: all */
    size_t sys_flag_count;
    int64_t born_begin_ms; /* born timestamps in [born_begin_ms, born_end_ms) */
    int64_t born_end_ms;
    uint64_t sample_seed;
    int64_t sample_begin; /* sample numbers in [sample_begin, sample_end) */
    int64_t sample_end;
};

/* Returns a number from 0 to RMQ_SAMPLE_NUMBERS - 1, computed from the seed and the position of a
 * message. The numbers look random. */
int64_t rmq_sample_number(uint64_t seed, int64_t physical_offset, int64_t queue_offset);

/* Whether the message matches all parts of the filter. Its fields are those of its row. */
bool rmq_message_filter_accepts(const struct rmq_message_filter *filter,
                                const struct rmq_record *message);

#endif
