#include "log/place.h"

#include <assert.h>
#include <inttypes.h>
#include <string.h>

#include "log/turn.h"

/* After this many bytes, other writers may have the put lock. */
#define RMQ_PLACE_TURN_SIZE (64 << 10)

/* ---- validation ---- */

static int validate_timestamp(const struct rmq_record *record, int64_t least, int64_t now_ms,
                              int64_t at, struct rmq_error *err)
{
    assert(at >= 0);

    if (record->store_timestamp < least)
        return rmq_fail(err, RMQ_MESSAGE_ILLEGAL, at,
                        "record at byte %" PRId64 " of the run: store timestamp %" PRId64
                        " is older than %" PRId64 ", the one before it",
                        at, record->store_timestamp, least);

    if (record->store_timestamp > now_ms)
        return rmq_fail(err, RMQ_MESSAGE_ILLEGAL, at,
                        "record at byte %" PRId64 " of the run: store timestamp %" PRId64
                        " lies in the future; it is %" PRId64,
                        at, record->store_timestamp, now_ms);
    return RMQ_OK;
}

static int validate_record(const struct rmq_record *record, const struct rmq_commit_log *log,
                           int64_t at, struct rmq_error *err)
{
    const struct rmq_record_limits *limits = &log->options.limits;
    int64_t room = log->files.options.file_size - RMQ_BLANK_SIZE;
    assert(at >= 0 && room > 0);

    if (record->queue_id < 0)
        return rmq_fail(err, RMQ_MESSAGE_ILLEGAL, at,
                        "record at byte %" PRId64 " of the run: queue %d is negative", at,
                        record->queue_id);
    if (record->body_size > limits->body_size_max)
        return rmq_fail(err, RMQ_MESSAGE_ILLEGAL, at,
                        "record at byte %" PRId64
                        " of the run: body has %d bytes, the limit is %d (maxMessageSize)",
                        at, record->body_size, limits->body_size_max);
    if (record->total_size > room)
        return rmq_fail(err, RMQ_MESSAGE_ILLEGAL, at,
                        "record at byte %" PRId64
                        " of the run: its %d bytes do not fit a commit log file; the limit is "
                        "%" PRId64 " bytes (mappedFileSizeCommitLog - 8)",
                        at, record->total_size, room);

    if (record->sys_flag & RMQ_FLAG_INNER_BATCH)
        return rmq_fail(err, RMQ_MESSAGE_ILLEGAL, at,
                        "record at byte %" PRId64
                        " of the run: an inner batch, whose properties name its queue offset",
                        at);
    if (limits->append_property_crc && !rmq_record_has_crc_property(record))
        return rmq_fail(err, RMQ_MESSAGE_ILLEGAL, at,
                        "record at byte %" PRId64
                        " of the run: no CRC property, which every record of this log has "
                        "(enabledAppendPropCRC)",
                        at);

    if (!log->options.multi_dispatch)
        return RMQ_OK;
    struct rmq_dispatch_properties found;
    rmq_properties_scan(record->properties, (size_t)record->properties_size, &found);

    if (found.multi_dispatch.size > 0)
        return rmq_fail(err, RMQ_MESSAGE_ILLEGAL, at,
                        "record at byte %" PRId64
                        " of the run: for light queues (INNER_MULTI_DISPATCH), whose offsets "
                        "its properties name",
                        at);
    return RMQ_OK;
}

int rmq_run_validate(const struct rmq_run *run, const struct rmq_commit_log *log,
                     struct rmq_error *err)
{
    assert(run->at <= run->size);
    assert(run->data || run->size == 0);

    int64_t least = run->least_timestamp, now_ms = rmq_clock_now(log->clock);
    const char *topic = NULL;
    int32_t topic_size = 0;
    for (size_t at = run->at; at < run->size;) {
        struct rmq_record record;
        int64_t place = (int64_t)at;

        int status = rmq_record_decode(run->data + at, run->size - at, place, RMQ_CHECK_READER,
                                       &record, err);
        if (status == RMQ_END)
            return rmq_fail(err, RMQ_CORRUPT, place, "no record at byte %" PRId64 " of the run",
                            place);
        if (status == RMQ_OK && (!topic || record.topic_size != topic_size ||
                                 memcmp(record.topic, topic, (size_t)topic_size) != 0))
            status = rmq_topic_validate(record.topic, (size_t)record.topic_size, err);
        if (status == RMQ_OK)
            status = validate_record(&record, log, place, err);
        if (status == RMQ_OK && run->keeps_timestamps)
            status = validate_timestamp(&record, least, now_ms, place, err);
        if (status != RMQ_OK)
            return status;

        topic = record.topic;
        topic_size = record.topic_size;
        least = record.store_timestamp;
        at += (size_t)record.total_size;
    }
    return RMQ_OK;
}

/* ---- placing; the caller holds the put lock ---- */

static int find_queue(struct rmq_run *run, struct rmq_commit_log *log,
                      const struct rmq_record *record, struct rmq_error *err)
{
    assert(record->topic);

    struct rmq_queue *last = run->queue;
    if (last && last->queue_id == record->queue_id &&
        last->topic_size == (size_t)record->topic_size &&
        memcmp(last->topic, record->topic, last->topic_size) == 0)
        return RMQ_OK;

    return rmq_queue_table_get(log->queues, record->topic, (size_t)record->topic_size,
                               record->queue_id, false, &run->queue, err);
}

static int place_record(struct rmq_run *run, struct rmq_commit_log *log,
                        const struct rmq_record *record, int64_t now_ms, struct rmq_error *err)
{
    assert(rmq_spin_is_held(&log->put_lock));

    uint8_t *out;
    int status = find_queue(run, log, record, err);
    if (status == RMQ_OK)
        status = rmq_turn_make_room(log, record->total_size, &out, err);
    if (status != RMQ_OK)
        return status;

    struct rmq_mapped_file *last = log->files.last;
    int64_t wrote = atomic_load_explicit(&last->wrote, memory_order_relaxed);
    int64_t next = atomic_load_explicit(&run->queue->next_offset, memory_order_relaxed);
    bool takes_offset = rmq_takes_queue_offset(record->sys_flag);
    struct rmq_placement placement = {.queue_offset = takes_offset ? next : 0,
                                      .physical_offset = last->start + wrote,
                                      .store_timestamp =
                                          run->keeps_timestamps ? record->store_timestamp : now_ms};

    rmq_record_move(out, record, &placement);
    rmq_file_queue_advance(&log->files, wrote + record->total_size);
    if (takes_offset)
        atomic_store_explicit(&run->queue->next_offset, next + 1, memory_order_relaxed);

    run->at += (size_t)record->total_size;
    assert(run->at <= run->size);
    run->least_timestamp = placement.store_timestamp;
    ++run->records;
    return RMQ_OK;
}

int rmq_run_place(struct rmq_run *run, struct rmq_commit_log *log, struct rmq_error *err)
{
    assert(run->at <= run->size);

    int64_t now_ms = 0;
    size_t stop =
        run->size - run->at < RMQ_PLACE_TURN_SIZE ? run->size : run->at + RMQ_PLACE_TURN_SIZE;

    int status = rmq_turn_begin(log, true, &now_ms, err);
    if (status != RMQ_OK)
        return status;

    while (status == RMQ_OK && run->at < stop) {
        struct rmq_record record;
        status = rmq_record_decode(run->data + run->at, run->size - run->at, (int64_t)run->at,
                                   RMQ_CHECK_FORM, &record, err);
        if (status == RMQ_END)
            status = rmq_fail(err, RMQ_CORRUPT, (int64_t)run->at,
                              "byte %zu of the run changed while it was placed", run->at);
        if (status == RMQ_OK)
            status = place_record(run, log, &record, now_ms, err);
    }

    rmq_turn_end(log, true);
    rmq_commit_log_follow(log);
    return status;
}
