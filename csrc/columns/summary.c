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

static uint64_t hash_of(const char *topic, size_t topic_size, int32_t queue_id)
{
    return rmq_table_hash(topic, topic_size, (uint32_t)queue_id);
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
        const struct rmq_summary_row *row = &rows[i];
        size_t slot = (size_t)hash_of(row->topic, row->topic_size, row->queue_id);
        while (slots[slot & (summary->slot_count - 1)])
            ++slot;
        slots[slot & (summary->slot_count - 1)] = (uint32_t)i + 1;
    }
    return RMQ_OK;
}

static int make_row(struct rmq_summary *summary, const struct rmq_record *message,
                    struct rmq_summary_row **made, struct rmq_error *err)
{
    assert(message->topic_size >= 0 && summary->count < summary->capacity);

    size_t topic_size = (size_t)message->topic_size;
    char *topic = malloc(topic_size + 1);
    if (!topic)
        return rmq_fail(err, RMQ_NO_MEMORY, -1, "no memory for a topic of %zu bytes", topic_size);

    if (topic_size > 0)
        memcpy(topic, message->topic, topic_size);

    *made = &summary->rows[summary->count++];
    **made = (struct rmq_summary_row){
        .topic = topic,
        .topic_size = topic_size,
        .queue_id = message->queue_id,
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
    size_t topic_size = (size_t)message->topic_size;
    size_t mask = summary->slot_count - 1;
    size_t slot = (size_t)hash_of(message->topic, topic_size, message->queue_id) & mask;
    for (; summary->slots[slot]; slot = (slot + 1) & mask) {
        struct rmq_summary_row *row = &summary->rows[summary->slots[slot] - 1];
        if (row->queue_id == message->queue_id && row->topic_size == topic_size &&
            memcmp(row->topic, message->topic, topic_size) == 0) {
            *found = row;
            return RMQ_OK;
        }
    }

    status = make_row(summary, message, found, err);
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
    if (!is_first)
        return RMQ_OK;
    assert(message->total_size > 0);

    int size = 31 - __builtin_clz((unsigned)message->total_size);
    assert(size >= 0);

    ++row->records;
    row->bytes += message->total_size;
    ++row->sizes[size < RMQ_SUMMARY_SIZES ? size : RMQ_SUMMARY_SIZES - 1];
    widen(&row->min_store_timestamp, &row->max_store_timestamp, message->store_timestamp);
    widen(&row->min_physical_offset, &row->max_physical_offset, message->physical_offset);
    return RMQ_OK;
}
