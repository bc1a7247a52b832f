/* topic_filter.h -- which messages of which topics are wanted.
 *
 * A reader of a log does not know its topics in advance. It looks each topic up, and decides about
 * a topic that is missing from the filter.
 */
#ifndef RMQ_TOPIC_FILTER_H
#define RMQ_TOPIC_FILTER_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/status.h"
#include "format/properties.h"

#define RMQ_EVERY_QUEUE (-1)

/* Messages of one queue at offsets in [start, stop), stored in [begin_ms, end_ms). */
struct rmq_queue_range {
    int32_t queue_id; /* RMQ_EVERY_QUEUE: all queues that no range of the topic names */
    int64_t start;
    int64_t stop;
    int64_t begin_ms;
    int64_t end_ms;
};

struct rmq_topic_choice {
    char *topic; /* NULL: an empty slot */
    size_t topic_size;
    struct rmq_queue_range *ranges; /* by queue id; several ranges of one queue are alternatives */
    size_t range_count;             /* 0: no message of the topic is wanted */
};

struct rmq_topic_filter {
    struct rmq_topic_choice *slots; /* by hash, half of them empty at least */
    size_t slot_count;              /* 0 or a power of two */
    size_t count;
};

void rmq_topic_filter_init(struct rmq_topic_filter *filter);
void rmq_topic_filter_destroy(struct rmq_topic_filter *filter);

/* Copies topic and ranges; an earlier decision about the topic is replaced. RMQ_NO_MEMORY: nothing
 * changed. */
int rmq_topic_filter_put(struct rmq_topic_filter *filter, struct rmq_slice topic,
                         const struct rmq_queue_range *ranges, size_t range_count,
                         struct rmq_error *err);
/* NULL: the topic is not decided yet. Valid until the next put. */
const struct rmq_topic_choice *rmq_topic_filter_find(const struct rmq_topic_filter *filter,
                                                     struct rmq_slice topic);

/* The ranges that apply to a queue: *count of them. */
const struct rmq_queue_range *rmq_topic_choice_ranges(const struct rmq_topic_choice *choice,
                                                      int32_t queue_id, size_t *count);

#endif
