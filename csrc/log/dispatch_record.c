/* dispatch_record.c -- one record: the queues and the index that it enters. */
#include <assert.h>
#include <inttypes.h>
#include <string.h>

#include "index/removed_queues.h"
#include "log/dispatch.h"

static void raise_next(struct rmq_queue *queue, int64_t offset)
{
    assert(offset >= 0);

    int64_t next = atomic_load_explicit(&queue->next_offset, memory_order_relaxed);
    while (next < offset && !atomic_compare_exchange_weak(&queue->next_offset, &next, offset)) {
    }
}

/* The slot for a queue among the recent ones; it holds that queue, another one, or none. Queues
 * keep their address as long as their table exists, and finding a queue in the table costs a hash
 * and two or three cache misses. */
static struct rmq_queue **recall(struct rmq_dispatcher *dispatcher, const char *topic,
                                 size_t topic_size, int32_t queue_id)
{
    assert(topic || topic_size == 0);

    unsigned last = topic_size > 0 ? (uint8_t)topic[topic_size - 1] : 0;
    unsigned place = (unsigned)queue_id + last * 4u + (unsigned)topic_size;
    return &dispatcher->recent[place % RMQ_RECENT_QUEUES];
}

static bool is_queue(const struct rmq_queue *queue, const char *topic, size_t topic_size,
                     int32_t queue_id)
{
    return queue && queue->queue_id == queue_id && queue->topic_size == topic_size &&
           memcmp(queue->topic, topic, topic_size) == 0;
}

/* RocketMQ counts from 0 when a topic is made again. This queue then begins again, as on its
 * master. In a log of this library no record after removed_until has a lower number. */
static void begin_again(struct rmq_queue *queue, int64_t offset)
{
    assert(offset >= 0);

    if (offset < atomic_load_explicit(&queue->removed_next, memory_order_relaxed) &&
        rmq_queue_physical_end(queue) < 0) {
        atomic_store(&queue->removed_next, offset);
        atomic_store(&queue->next_offset, offset);
    }
}

/* Whether the queue has later records than that of the unit. If so, a missing unit does not belong
 * to the queue: RocketMQ counts from 0 when a topic is made again, and the log has the records of
 * the deleted topic. */
static bool is_covered(struct rmq_queue *queue, const struct rmq_unit *unit)
{
    return !queue->is_incomplete &&
           unit->physical_offset + unit->size < rmq_queue_physical_end(queue);
}

/* A queue that a record enters. */
struct place {
    const char *topic;
    size_t topic_size;
    int32_t queue_id;
    bool is_batch;
    bool is_light; /* by INNER_MULTI_DISPATCH */
};

static int enter(struct rmq_dispatcher *dispatcher, const struct place *place,
                 const struct rmq_unit *unit, unsigned parts, struct rmq_error *err)
{
    assert(unit->size > 0 && unit->batch_size > 0);

    const char *topic = place->topic;
    size_t topic_size = place->topic_size;
    int32_t queue_id = place->queue_id;
    struct rmq_queue **recent = recall(dispatcher, topic, topic_size, queue_id);

    int status = RMQ_OK;
    /* A damaged bit could require a gap as large as the disk. */
    if (!rmq_is_queue_offset_possible(unit->queue_offset, unit->physical_offset, place->is_batch))
        return rmq_fail(err, RMQ_CORRUPT, unit->physical_offset,
                        "record at %" PRId64 " has the queue offset %" PRId64
                        ", which no record there can have; see rmqstore repair",
                        unit->physical_offset, unit->queue_offset);

    if (!is_queue(*recent, topic, topic_size, queue_id))
        status = rmq_queue_table_get(dispatcher->queues, topic, topic_size, queue_id,
                                     place->is_batch, recent, err);

    struct rmq_queue *queue = *recent;
    if (status == RMQ_INVALID)
        return RMQ_OK; /* A name that no folder can have, or a negative queue: the record enters no
                          queue. */

    bool is_removed = status == RMQ_OK && unit->physical_offset < queue->removed_until;
    if (status == RMQ_OK && (parts & RMQ_TO_REMOVED || is_removed)) {
        if (parts & RMQ_TO_SURVEY)
            dispatcher->queues_differ = true;
        else
            rmq_removed_queue_count(queue, unit);
        if (is_removed && parts & (RMQ_TO_QUEUES | RMQ_TO_OFFSETS))
            raise_next(queue, unit->queue_offset + unit->batch_size);
        return RMQ_OK;
    }

    if (status == RMQ_OK && (parts & RMQ_TO_SURVEY) && rmq_queue_begins_after(queue, unit))
        queue->is_incomplete = dispatcher->queues_lack = true;
    if (status == RMQ_OK && is_covered(queue, unit))
        return RMQ_OK;
    if (status == RMQ_OK && (parts & RMQ_TO_SURVEY)) {
        bool has_gap = false;
        if (!dispatcher->queues_differ && !rmq_queue_recognise(queue, unit))
            dispatcher->queues_differ = true;
        status = rmq_queue_survey(queue, unit, &has_gap, err);
        if (has_gap)
            dispatcher->queues_lack = true;
        return status;
    }
    if (status == RMQ_OK && queue->removed_until > 0)
        begin_again(queue, unit->queue_offset);
    if (status == RMQ_OK && (parts & RMQ_TO_QUEUES))
        status = rmq_queue_open(dispatcher->queues, queue, err);
    if (status == RMQ_OK && (parts & RMQ_TO_QUEUES))
        status = rmq_queue_append(queue, unit, place->is_light, err);
    if (status == RMQ_OK)
        raise_next(queue, unit->queue_offset + unit->batch_size);
    return status;
}

/* The next piece of text up to ',' from *at on; false after the last piece. */
static bool next_token(struct rmq_slice text, size_t *at, struct rmq_slice *token)
{
    assert(token);

    if (!text.data || *at > text.size)
        return false;
    const char *comma = memchr(text.data + *at, ',', text.size - *at);
    size_t end = comma ? (size_t)(comma - text.data) : text.size;

    token->data = text.data + *at;
    token->size = end - *at;
    *at = end + 1;
    return true;
}

static int enter_light(struct rmq_dispatcher *dispatcher, const struct rmq_record *record,
                       const struct rmq_dispatch_properties *properties,
                       const struct rmq_unit *main_unit, unsigned parts, struct rmq_error *err)
{
    assert(record->topic && properties);

    struct rmq_slice name, offset;
    size_t name_at = 0, offset_at = 0;
    if (!rmq_topic_allows_light(record->topic, (size_t)record->topic_size))
        return RMQ_OK;

    while (next_token(properties->multi_dispatch, &name_at, &name) &&
           next_token(properties->multi_queue_offset, &offset_at, &offset)) {
        struct rmq_unit unit = *main_unit;
        unit.batch_size = 1;
        if (!rmq_parse_i64(offset, &unit.queue_offset))
            continue;

        const struct place place = {name.data, name.size,
                                    rmq_light_queue_id(name, record->queue_id), .is_light = true};
        int status = enter(dispatcher, &place, &unit, parts, err);
        if (status != RMQ_OK)
            return status;
    }
    return RMQ_OK;
}

static int enter_queues(struct rmq_dispatcher *dispatcher, const struct rmq_record *record,
                        const struct rmq_dispatch_properties *properties, unsigned parts,
                        struct rmq_error *err)
{
    assert(record->total_size >= RMQ_RECORD_SIZE_MIN);

    int32_t transaction = record->sys_flag & RMQ_FLAG_TRANSACTION;
    if (transaction == RMQ_FLAG_PREPARED || transaction == RMQ_FLAG_ROLLBACK)
        return RMQ_OK;

    bool is_inner = properties->inner_num > 0 && properties->inner_num <= INT16_MAX &&
                    properties->inner_base >= 0;
    struct rmq_unit unit = {
        .physical_offset = record->physical_offset,
        .size = record->total_size,
        .tags_code = rmq_record_tags_code(record, properties, dispatcher->options.delays_ms,
                                          dispatcher->options.delay_count),
        .queue_offset = is_inner ? properties->inner_base : record->queue_offset,
        .batch_size = is_inner ? properties->inner_num : 1,
        .store_timestamp = record->store_timestamp,
    };

    const struct place place = {record->topic, (size_t)record->topic_size, record->queue_id,
                                (record->sys_flag & RMQ_FLAG_INNER_BATCH) != 0, false};
    int status = enter(dispatcher, &place, &unit, parts, err);
    if (status == RMQ_OK && dispatcher->options.multi_dispatch && properties->multi_dispatch.size)
        status = enter_light(dispatcher, record, properties, &unit, parts, err);
    return status;
}

static struct rmq_index_request index_request(const struct rmq_record *record,
                                              const struct rmq_dispatch_properties *properties)
{
    return (struct rmq_index_request){
        .topic = {record->topic, (size_t)record->topic_size},
        .unique_key = properties->unique_key,
        .keys = properties->keys,
        .tags = properties->tags,
        .physical_offset = record->physical_offset,
        .store_timestamp = record->store_timestamp,
    };
}

/* Whether the record is the first one of a log file, where an index file may have to end. */
static bool may_end_index(const struct rmq_dispatcher *dispatcher, const struct rmq_record *record)
{
    return dispatcher->options.bound_index &&
           record->physical_offset % dispatcher->log->files.options.file_size == 0;
}

static bool is_for_index(struct rmq_dispatcher *dispatcher, const struct rmq_record *record,
                         const struct rmq_dispatch_properties *properties)
{
    assert(dispatcher->index);

    if ((record->sys_flag & RMQ_FLAG_TRANSACTION) == RMQ_FLAG_ROLLBACK)
        return false;
    struct rmq_index_request request = index_request(record, properties);
    return rmq_index_has_keys(dispatcher->index, &request) ||
           (may_end_index(dispatcher, record) &&
            rmq_index_newest_begin(dispatcher->index) != INT64_MAX);
}

static int enter_index(struct rmq_dispatcher *dispatcher, const struct rmq_record *record,
                       const struct rmq_dispatch_properties *properties, struct rmq_error *err)
{
    assert(dispatcher->index);

    if ((record->sys_flag & RMQ_FLAG_TRANSACTION) == RMQ_FLAG_ROLLBACK)
        return RMQ_OK;

    int64_t rolled = -1;
    int64_t file_size = dispatcher->log->files.options.file_size;
    int status = RMQ_OK;

    if (may_end_index(dispatcher, record)) {
        int64_t begin = rmq_index_newest_begin(dispatcher->index);
        if (begin < record->physical_offset &&
            record->physical_offset / file_size - begin / file_size >= RMQ_INDEX_LOG_FILES_MAX)
            status = rmq_index_roll(dispatcher->index, &rolled, err);
    }

    if (status == RMQ_OK) {
        struct rmq_index_request request = index_request(record, properties);
        int64_t now_ms =
            rmq_index_may_roll(dispatcher->index, &request) ? rmq_clock_now(dispatcher->clock) : 0;
        status = rmq_index_put(dispatcher->index, &request, now_ms, &rolled, err);
    }

    if (rolled >= 0)
        atomic_store_explicit(&dispatcher->index_timestamp, rolled, memory_order_release);
    return status;
}

int rmq_dispatch_record(struct rmq_dispatcher *dispatcher, const struct rmq_record *record,
                        unsigned parts, struct rmq_error *err)
{
    assert(parts);
    assert(!(parts & RMQ_TO_SURVEY) || (parts | RMQ_TO_INDEX) == (RMQ_TO_SURVEY | RMQ_TO_INDEX));
    assert(!(parts & RMQ_TO_REMOVED) || parts == RMQ_TO_REMOVED);

    struct rmq_dispatch_properties properties;
    rmq_properties_scan(record->properties, (size_t)record->properties_size, &properties);

    int status = RMQ_OK;
    if (parts & ~(unsigned)RMQ_TO_INDEX)
        status = enter_queues(dispatcher, record, &properties, parts, err);
    if (status == RMQ_OK && (parts & RMQ_TO_INDEX) && dispatcher->index) {
        if (!(parts & RMQ_TO_SURVEY))
            status = enter_index(dispatcher, record, &properties, err);
        else if (!dispatcher->index_differs)
            dispatcher->index_differs = is_for_index(dispatcher, record, &properties);
    }

    if (status == RMQ_OK && (parts & RMQ_TO_QUEUES)) {
        atomic_store_explicit(&dispatcher->last_timestamp, record->store_timestamp,
                              memory_order_release);
        atomic_store_explicit(&dispatcher->last_offset, record->physical_offset,
                              memory_order_release);
    }
    return status;
}
