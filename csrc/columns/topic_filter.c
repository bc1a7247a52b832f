#include "columns/topic_filter.h"

#include <assert.h>
#include <stdlib.h>
#include <string.h>

#include "base/hash.h"

#define SLOTS_MIN 16

void rmq_topic_filter_init(struct rmq_topic_filter *filter)
{
    memset(filter, 0, sizeof *filter);
}

static void free_choice(struct rmq_topic_choice *choice)
{
    free(choice->topic);
    free(choice->ranges);
}

void rmq_topic_filter_destroy(struct rmq_topic_filter *filter)
{
    assert(filter->slots || filter->slot_count == 0);

    for (size_t i = 0; i < filter->slot_count; ++i)
        free_choice(&filter->slots[i]);

    free(filter->slots);
    rmq_topic_filter_init(filter);
}

/* The slot of the topic, or the empty slot that it would use. */
static struct rmq_topic_choice *slot_of(struct rmq_topic_choice *slots, size_t slot_count,
                                        struct rmq_slice topic)
{
    assert(slot_count > 0);
    assert((slot_count & (slot_count - 1)) == 0);

    size_t mask = slot_count - 1;
    size_t i = (size_t)rmq_table_hash(topic.data, topic.size, 0) & mask;

    while (slots[i].topic && (slots[i].topic_size != topic.size ||
                              memcmp(slots[i].topic, topic.data, topic.size) != 0))
        i = (i + 1) & mask;
    return &slots[i];
}

static int grow(struct rmq_topic_filter *filter, struct rmq_error *err)
{
    assert(filter->count <= filter->slot_count / 2);

    if (filter->count < filter->slot_count / 2)
        return RMQ_OK;

    size_t slot_count = filter->slot_count ? filter->slot_count * 2 : SLOTS_MIN;
    struct rmq_topic_choice *slots = calloc(slot_count, sizeof *slots);
    if (!slots)
        return rmq_fail(err, RMQ_NO_MEMORY, -1, "no memory for %zu topics", slot_count / 2);

    for (size_t i = 0; i < filter->slot_count; ++i) {
        const struct rmq_topic_choice *choice = &filter->slots[i];
        if (choice->topic)
            *slot_of(slots, slot_count, (struct rmq_slice){choice->topic, choice->topic_size}) =
                *choice;
    }

    free(filter->slots);
    filter->slots = slots;
    filter->slot_count = slot_count;
    return RMQ_OK;
}

static int by_queue_id(const void *a, const void *b)
{
    int32_t first = ((const struct rmq_queue_range *)a)->queue_id;
    int32_t second = ((const struct rmq_queue_range *)b)->queue_id;
    return (first > second) - (first < second);
}

int rmq_topic_filter_put(struct rmq_topic_filter *filter, struct rmq_slice topic,
                         const struct rmq_queue_range *ranges, size_t range_count,
                         struct rmq_error *err)
{
    assert(topic.data || topic.size == 0);
    assert(ranges || range_count == 0);

    int status = grow(filter, err);
    if (status != RMQ_OK)
        return status;

    struct rmq_topic_choice choice = {
        .topic = malloc(topic.size + 1),
        .topic_size = topic.size,
        .ranges = calloc(range_count + 1, sizeof *choice.ranges),
        .range_count = range_count,
    };
    if (!choice.topic || !choice.ranges) {
        free_choice(&choice);
        return rmq_fail(err, RMQ_NO_MEMORY, -1, "no memory for a topic with %zu queues",
                        range_count);
    }

    if (topic.size > 0)
        memcpy(choice.topic, topic.data, topic.size);
    if (range_count > 0) {
        memcpy(choice.ranges, ranges, range_count * sizeof *ranges);
        qsort(choice.ranges, range_count, sizeof *ranges, by_queue_id);
    }

    struct rmq_topic_choice *slot = slot_of(filter->slots, filter->slot_count, topic);
    filter->count += !slot->topic;
    free_choice(slot);
    assert(filter->count <= filter->slot_count / 2);
    *slot = choice;
    return RMQ_OK;
}

const struct rmq_topic_choice *rmq_topic_filter_find(const struct rmq_topic_filter *filter,
                                                     struct rmq_slice topic)
{
    assert(topic.data || topic.size == 0);

    if (filter->count == 0)
        return NULL;

    const struct rmq_topic_choice *slot = slot_of(filter->slots, filter->slot_count, topic);
    return slot->topic ? slot : NULL;
}

/* Number of ranges before those of this queue id. */
static size_t count_before(const struct rmq_topic_choice *choice, int64_t queue_id)
{
    assert(choice->ranges);

    size_t low = 0, high = choice->range_count;
    while (low < high) {
        size_t middle = low + (high - low) / 2;
        if (choice->ranges[middle].queue_id < queue_id)
            low = middle + 1;
        else
            high = middle;
    }
    assert(low <= choice->range_count);
    return low;
}

const struct rmq_queue_range *rmq_topic_choice_ranges(const struct rmq_topic_choice *choice,
                                                      int32_t queue_id, size_t *count)
{
    assert(count);

    int64_t wanted = queue_id;
    size_t first = count_before(choice, wanted);
    size_t behind = count_before(choice, wanted + 1);

    if (first == behind) {
        wanted = RMQ_EVERY_QUEUE;
        first = count_before(choice, wanted);
        behind = count_before(choice, wanted + 1);
    }

    assert(first <= behind);
    *count = behind - first;
    return choice->ranges + first;
}
