#include "columns/summary.h"

#include <assert.h>
#include <stdlib.h>
#include <string.h>

#include "base/hash.h"

#define ROWS_MIN 64

void rmq_summary_init(struct rmq_summary *summary)
{
    memset(summary, 0, sizeof *summary);
}

void rmq_summary_destroy(struct rmq_summary *summary)
{
    assert(summary->count <= summary->capacity);

    for (size_t i = 0; i < summary->count; ++i)
        free(summary->rows[i].topic);

    free(summary->rows);
    free(summary->slots);
    rmq_summary_init(summary);
}

/* Key of a row. */
struct group {
    struct rmq_slice topic;
    struct rmq_slice tag; /* data is NULL without a tag */
    int32_t queue_id;
};

static uint64_t hash_of(const struct group *group)
{
    uint64_t hash = rmq_table_hash(group->topic.data, group->topic.size, (uint32_t)group->queue_id);
    return group->tag.data ? rmq_table_hash(group->tag.data, group->tag.size, (uint32_t)hash)
                           : hash;
}

static bool is_equal(struct rmq_slice a, struct rmq_slice b)
{
    return a.size == b.size && (a.size == 0 || memcmp(a.data, b.data, a.size) == 0);
}

static struct group group_of_row(const struct rmq_summary_row *row)
{
    return (struct group){{row->topic, row->topic_size}, {row->tag, row->tag_size}, row->queue_id};
}

static struct group group_of(const struct rmq_summary *summary, const struct rmq_record *message)
{
    assert(message->topic_size >= 0 && message->properties_size >= 0);

    struct group group = {
        {message->topic, (size_t)message->topic_size}, {NULL, 0}, message->queue_id};
    if (summary->by_tag)
        group.tag =
            rmq_properties_find(message->properties, (size_t)message->properties_size, "TAGS");
    return group;
}

static int grow(struct rmq_summary *summary, struct rmq_error *err)
{
    assert(summary->count <= summary->capacity);

    if (summary->count < summary->capacity)
        return RMQ_OK;

    size_t capacity = summary->capacity ? summary->capacity * 2 : ROWS_MIN;
    struct rmq_summary_row *rows = realloc(summary->rows, capacity * sizeof *rows);
    if (rows)
        summary->rows = rows;

    uint32_t *slots = capacity < UINT32_MAX / 2 ? calloc(capacity * 2, sizeof *slots) : NULL;
    if (!rows || !slots) {
        free(slots);
        return rmq_fail(err, RMQ_NO_MEMORY, -1, "no memory for sums of %zu queues", capacity);
    }

    free(summary->slots);
    summary->slots = slots;
    summary->slot_count = capacity * 2;
    summary->capacity = capacity;

    assert((summary->slot_count & (summary->slot_count - 1)) == 0);
    for (size_t i = 0; i < summary->count; ++i) {
        struct group group = group_of_row(&rows[i]);
        size_t slot = (size_t)hash_of(&group);
        while (slots[slot & (summary->slot_count - 1)])
            ++slot;
        slots[slot & (summary->slot_count - 1)] = (uint32_t)i + 1;
    }
    return RMQ_OK;
}

static int make_row(struct rmq_summary *summary, const struct group *group,
                    struct rmq_summary_row **made, struct rmq_error *err)
{
    assert(summary->count < summary->capacity);

    struct rmq_slice from = group->topic, tag = group->tag;
    char *topic = malloc(from.size + tag.size + 1);
    if (!topic)
        return rmq_fail(err, RMQ_NO_MEMORY, -1, "no memory for a topic and a tag of %zu bytes",
                        from.size + tag.size);

    if (from.size > 0)
        memcpy(topic, from.data, from.size);
    if (tag.size > 0)
        memcpy(topic + from.size, tag.data, tag.size);

    *made = &summary->rows[summary->count++];
    **made = (struct rmq_summary_row){
        .topic = topic,
        .topic_size = from.size,
        .tag = tag.data ? topic + from.size : NULL,
        .tag_size = tag.size,
        .queue_id = group->queue_id,
        .min_queue_offset = INT64_MAX,
        .max_queue_offset = INT64_MIN,
        .min_store_timestamp = INT64_MAX,
        .max_store_timestamp = INT64_MIN,
        .min_physical_offset = INT64_MAX,
        .max_physical_offset = INT64_MIN,
    };
    return RMQ_OK;
}

static int find_row(struct rmq_summary *summary, const struct rmq_record *message,
                    struct rmq_summary_row **found, struct rmq_error *err)
{
    int status = grow(summary, err);
    if (status != RMQ_OK)
        return status;

    assert(summary->count < summary->capacity);
    struct group group = group_of(summary, message);
    size_t mask = summary->slot_count - 1;
    size_t slot = (size_t)hash_of(&group) & mask;
    for (; summary->slots[slot]; slot = (slot + 1) & mask) {
        struct rmq_summary_row *row = &summary->rows[summary->slots[slot] - 1];
        struct group other = group_of_row(row);
        if (other.queue_id == group.queue_id && is_equal(other.topic, group.topic) &&
            !other.tag.data == !group.tag.data && is_equal(other.tag, group.tag)) {
            *found = row;
            return RMQ_OK;
        }
    }

    status = make_row(summary, &group, found, err);
    if (status == RMQ_OK)
        summary->slots[slot] = (uint32_t)summary->count;
    return status;
}

static void widen(int64_t *least, int64_t *most, int64_t value)
{
    assert(least && most);

    if (value < *least)
        *least = value;
    if (value > *most)
        *most = value;
}

int rmq_summary_add(struct rmq_summary *summary, const struct rmq_record *message, bool is_first,
                    struct rmq_error *err)
{
    assert(message->body_size >= 0);

    struct rmq_summary_row *row = NULL;
    int status = find_row(summary, message, &row, err);
    if (status != RMQ_OK)
        return status;

    ++row->messages;
    row->body_bytes += message->body_size;
    widen(&row->min_queue_offset, &row->max_queue_offset, message->queue_offset);
    /* Called for each message: messages of an inner batch may have several tags. */
    widen(&row->min_store_timestamp, &row->max_store_timestamp, message->store_timestamp);
    widen(&row->min_physical_offset, &row->max_physical_offset, message->physical_offset);
    if (!is_first)
        return RMQ_OK;
    assert(message->total_size > 0);

    int size = 31 - __builtin_clz((unsigned)message->total_size);
    assert(size >= 0);

    ++row->records;
    row->bytes += message->total_size;
    ++row->sizes[size < RMQ_SUMMARY_SIZES ? size : RMQ_SUMMARY_SIZES - 1];
    return RMQ_OK;
}
