#include "log/commit_log.h"

#include <assert.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/crc32.h"
#include "log/turn.h"

/* Messages validated at a time; a call with at most this many messages validates each of them
 * once. */
#define RMQ_PUT_CHUNK 128
/* After this many bytes, a call of many messages lets other writers have the put lock. */
#define RMQ_TURN_SIZE 32768
#define RMQ_CACHE_LINE 64
#define RMQ_FETCH_MAX 2048
/* The number of light queues that one message may enter. */
#define RMQ_LIGHT_MAX 64

int rmq_commit_log_start(struct rmq_commit_log *log, const struct rmq_commit_log_options *options,
                         struct rmq_queue_table *queues, struct rmq_clock *clock,
                         struct rmq_error *err)
{
    assert(options && queues && clock);

    log->options = *options;
    log->queues = queues;
    log->clock = clock;
    log->is_shut = false;
    atomic_init(&log->hold_at, INT64_MAX);

    rmq_hook_init(&log->on_far_ahead);
    atomic_init(&log->locked_since_ms, 0);
    atomic_init(&log->put_lock.is_held, false);

    return rmq_warmer_start(&log->warmer, &log->files, &options->warmer, err);
}

void rmq_commit_log_stop(struct rmq_commit_log *log)
{
    rmq_warmer_stop(&log->warmer);
    rmq_hook_destroy(&log->on_far_ahead);
}

/* ---- one message ---- */

struct planned {
    struct rmq_record_plan plan;
    int32_t body_crc;
    int16_t count; /* queue offsets that the record takes */
    bool is_light; /* has light queues: its form is known only under the lock */
    bool is_inner; /* an inner batch: INNER_BASE is written under the lock */
};

static int check_fits_file(const struct rmq_commit_log *log, const struct rmq_record_plan *plan,
                           struct rmq_error *err)
{
    int64_t room = log->files.options.file_size - RMQ_BLANK_SIZE;
    if (plan->total_size > room)
        return rmq_fail(err, RMQ_MESSAGE_ILLEGAL, -1,
                        "record of %d bytes does not fit a commit log file; the limit is "
                        "%" PRId64 " bytes (mappedFileSizeCommitLog - 8)",
                        plan->total_size, room);
    return RMQ_OK;
}

int rmq_topic_validate(const char *topic, size_t size, struct rmq_error *err)
{
    if (!rmq_topic_is_storable(topic, size) || memchr(topic, RMQ_NAME_VALUE_SEPARATOR, size))
        return rmq_fail(
            err, RMQ_MESSAGE_ILLEGAL, -1,
            "topic of %zu bytes: a topic has 1 to 255 bytes, no '/', no NUL, no byte 1, "
            "and is not \".\" or \"..\"",
            size);
    return RMQ_OK;
}

/* The topic was validated before. */
static int validate(const struct rmq_commit_log *log, const struct rmq_message *message,
                    struct planned *planned, struct rmq_error *err)
{
    if (message->queue_id < 0)
        return rmq_fail(err, RMQ_MESSAGE_ILLEGAL, -1, "topic %.*s: queue %d is negative",
                        (int)message->topic_size, message->topic, message->queue_id);
    if (message->properties_size && memchr(message->properties, 0, message->properties_size))
        return rmq_fail(err, RMQ_MESSAGE_ILLEGAL, -1,
                        "topic %.*s: properties may not hold a NUL byte", (int)message->topic_size,
                        message->topic);

    int status = rmq_record_plan(message, &log->options.limits, &planned->plan, err);
    if (status == RMQ_OK)
        status = check_fits_file(log, &planned->plan, err);

    assert(status != RMQ_OK || planned->plan.total_size > 0);
    planned->count = rmq_takes_queue_offset(message->sys_flag) ? 1 : 0;
    planned->is_light = planned->is_inner = false;
    bool may_be_light = log->options.multi_dispatch && planned->count && message->properties_size &&
                        rmq_topic_allows_light(message->topic, message->topic_size);
    if (status != RMQ_OK || (!may_be_light && !(message->sys_flag & RMQ_FLAG_INNER_BATCH)))
        return status;

    struct rmq_dispatch_properties found;
    rmq_properties_scan(message->properties, message->properties_size, &found);

    planned->is_light = may_be_light && found.multi_dispatch.size > 0;

    if (message->sys_flag & RMQ_FLAG_INNER_BATCH) {
        if (found.inner_num < 1 || found.inner_num > INT16_MAX)
            return rmq_fail(err, RMQ_MESSAGE_ILLEGAL, -1,
                            "an inner batch needs the property INNER_NUM, 1 to 32767");
        planned->is_inner = true;
        planned->count = (int16_t)found.inner_num;
    }
    return RMQ_OK;
}

/* The queues of INNER_MULTI_DISPATCH. A name that no folder can have stands for no queue (NULL), as
 * in RocketMQ. RMQ_MESSAGE_ILLEGAL: there are too many. */
static int find_light_queues(struct rmq_commit_log *log, struct rmq_slice names, int32_t queue_id,
                             struct rmq_queue **queues, size_t *count, struct rmq_error *err)
{
    assert(names.data && queues && count);

    *count = 0;
    for (size_t at = 0; at <= names.size;) {
        const char *comma = memchr(names.data + at, ',', names.size - at);
        size_t end = comma ? (size_t)(comma - names.data) : names.size;
        if (*count == RMQ_LIGHT_MAX)
            return rmq_fail(err, RMQ_MESSAGE_ILLEGAL, -1,
                            "more than %d names in INNER_MULTI_DISPATCH", RMQ_LIGHT_MAX);

        struct rmq_slice name = {names.data + at, end - at};
        int status =
            rmq_queue_table_get(log->queues, name.data, name.size,
                                rmq_light_queue_id(name, queue_id), false, &queues[*count], err);
        if (status == RMQ_INVALID)
            queues[*count] = NULL;
        else if (status != RMQ_OK)
            return status;

        ++*count;
        at = end + 1;
    }
    return RMQ_OK;
}

/* Text that the store adds to the properties under the put lock: the base offset of an inner batch,
 * the queue offsets of a message in its light queues. Java rebuilds the whole text from a hash map;
 * pairs at the end have the same meaning. */
struct added {
    char text[32 + RMQ_LIGHT_MAX * 21];
    struct rmq_queue *light[RMQ_LIGHT_MAX];
    int64_t light_offsets[RMQ_LIGHT_MAX];
    size_t light_count;
};

static int add_properties(struct rmq_commit_log *log, struct rmq_message *message,
                          struct planned *planned, int64_t queue_offset, struct added *added,
                          struct rmq_error *err)
{
    assert(planned->is_inner || planned->is_light);
    assert(queue_offset >= 0);

    size_t at = 0;
    char digits[32 * RMQ_LIGHT_MAX];
    added->light_count = 0;

    if (planned->is_inner) {
        int size = snprintf(digits, sizeof digits, "%" PRId64, queue_offset);
        struct rmq_slice value = {digits, (size_t)size};
        rmq_properties_append(added->text, sizeof added->text, &at, "INNER_BASE", value);
    }

    if (planned->is_light) {

        struct rmq_slice names = rmq_properties_find(message->properties, message->properties_size,
                                                     "INNER_MULTI_DISPATCH");
        int status = find_light_queues(log, names, message->queue_id, added->light,
                                       &added->light_count, err);
        if (status != RMQ_OK)
            return status;

        size_t used = 0;
        for (size_t i = 0; i < added->light_count; ++i) {
            struct rmq_queue *light = added->light[i];
            added->light_offsets[i] = light ? atomic_load(&light->next_offset) : 0;
            used += (size_t)snprintf(digits + used, sizeof digits - used, "%s%" PRId64,
                                     i ? "," : "", added->light_offsets[i]);
            assert(used < sizeof digits);
        }
        struct rmq_slice value = {digits, used};
        rmq_properties_append(added->text, sizeof added->text, &at, "INNER_MULTI_QUEUE_OFFSET",
                              value);
    }

    assert(at <= sizeof added->text);
    message->more_properties = added->text;
    message->more_properties_size = at;
    struct rmq_record_limits limits = log->options.limits;
    /* As in the Java store: without an extra size for light messages. */
    if (planned->is_light)
        limits.record_size_max = limits.body_size_max;

    int status = rmq_record_plan(message, &limits, &planned->plan, err);
    return status == RMQ_OK ? check_fits_file(log, &planned->plan, err) : status;
}

static int find_queue(struct rmq_commit_log *log, const struct rmq_message *message,
                      const struct planned *planned, struct rmq_queue **queue,
                      struct rmq_error *err)
{
    assert(queue);

    struct rmq_queue *last = *queue;
    if (last && last->queue_id == message->queue_id && last->topic_size == message->topic_size &&
        memcmp(last->topic, message->topic, message->topic_size) == 0)
        return RMQ_OK;

    int status = rmq_queue_table_get(log->queues, message->topic, message->topic_size,
                                     message->queue_id, planned->is_inner, queue, err);
    if (status == RMQ_OK && planned->is_inner && !(*queue)->is_batch)
        return rmq_fail(err, RMQ_MESSAGE_ILLEGAL, -1,
                        "topic %s takes no inner batches; its queues are simple ones",
                        (*queue)->topic);
    return status;
}

/* Prefetches the memory of the next record, assuming the size of this one. The lock of the next put
 * waits until this record has left the processor, and only then would its memory be fetched, line
 * by line. */
static void fetch_ahead(const uint8_t *at, int32_t size)
{
    const uint8_t *end = at + (size < RMQ_FETCH_MAX ? size : RMQ_FETCH_MAX);
    for (; at < end; at += RMQ_CACHE_LINE)
        __builtin_prefetch(at, 1, 3);
}

/* Encodes one message at the end of the log; the caller holds the put lock. */
static int append(struct rmq_commit_log *log, const struct rmq_message *message,
                  const struct planned *planned, int64_t now_ms, struct rmq_queue *queue,
                  struct rmq_receipt *receipt, struct rmq_error *err)
{
    assert(queue && planned->count >= 0);

    uint8_t *out;
    int status = rmq_turn_make_room(log, planned->plan.total_size, &out, err);
    if (status != RMQ_OK)
        return status;

    struct rmq_mapped_file *last = log->files.last;
    int64_t wrote = atomic_load_explicit(&last->wrote, memory_order_relaxed);
    int64_t next = atomic_load_explicit(&queue->next_offset, memory_order_relaxed);
    int64_t queue_offset = planned->count ? next : 0;
    int64_t store_timestamp = message->store_timestamp ? message->store_timestamp : now_ms;
    struct rmq_placement placement = {.queue_offset = queue_offset,
                                      .physical_offset = last->start + wrote,
                                      .store_timestamp = store_timestamp,
                                      .body_crc = planned->body_crc};

    fetch_ahead(out + planned->plan.total_size, planned->plan.total_size);
    rmq_record_encode(out, message, &planned->plan, &placement);
    rmq_file_queue_advance(&log->files, wrote + planned->plan.total_size);

    if (planned->count)
        atomic_store_explicit(&queue->next_offset, next + planned->count, memory_order_relaxed);

    /* Not read from the placement: a load that is wider than the stores before it waits until the
     * record has left the processor. */
    receipt->physical_offset = last->start + wrote;
    receipt->queue_offset = queue_offset;
    receipt->store_timestamp = store_timestamp;
    receipt->size = planned->plan.total_size;
    return RMQ_OK;
}

/* A message with properties that are known only under the lock. */
static int append_with_properties(struct rmq_commit_log *log, const struct rmq_message *message,
                                  struct planned *planned, int64_t now_ms, struct rmq_queue *queue,
                                  struct rmq_receipt *receipt, struct rmq_error *err)
{
    assert(planned->is_light || planned->is_inner);

    struct rmq_message extended = *message;
    struct added added;

    int64_t next = atomic_load_explicit(&queue->next_offset, memory_order_relaxed);
    int status = add_properties(log, &extended, planned, planned->count ? next : 0, &added, err);
    if (status == RMQ_OK)
        status = append(log, &extended, planned, now_ms, queue, receipt, err);

    /* Set, not added to: the dispatcher may have entered the record already, and raised it. */
    for (size_t i = 0; i < added.light_count && status == RMQ_OK; ++i)
        if (added.light[i])
            atomic_store(&added.light[i]->next_offset, added.light_offsets[i] + 1);
    return status;
}

/* Places one message; the caller holds the put lock. */
static int place(struct rmq_commit_log *log, const struct rmq_message *message,
                 struct planned *planned, int64_t now_ms, struct rmq_queue **queue,
                 struct rmq_receipt *receipt, struct rmq_error *err)
{
    assert(rmq_spin_is_held(&log->put_lock));

    int status = find_queue(log, message, planned, queue, err);
    if (status != RMQ_OK)
        return status;

    if (planned->is_light || planned->is_inner)
        return append_with_properties(log, message, planned, now_ms, *queue, receipt, err);
    return append(log, message, planned, now_ms, *queue, receipt, err);
}

/* ---- putting ---- */

/* Validates messages[first .. first + count). */
static int validate_all(const struct rmq_commit_log *log, const struct rmq_message *messages,
                        size_t first, size_t count, struct planned *planned, int64_t *size,
                        struct rmq_error *err)
{
    assert(count <= RMQ_PUT_CHUNK);

    const char *topic = NULL;
    size_t topic_size = 0;
    for (size_t i = 0; i < count; ++i) {
        const struct rmq_message *message = &messages[first + i];
        int status = RMQ_OK;
        if (message->topic != topic || message->topic_size != topic_size)
            status = rmq_topic_validate(message->topic, message->topic_size, err);

        topic = message->topic;
        topic_size = message->topic_size;
        if (status == RMQ_OK)
            status = validate(log, message, &planned[i], err);
        if (status != RMQ_OK) {
            if (err)
                err->at_offset = (int64_t)(first + i);
            return status;
        }

        *size += planned[i].plan.total_size;
    }
    return RMQ_OK;
}

static int put_one(struct rmq_commit_log *log, const struct rmq_message *message,
                   struct rmq_receipt *receipt, size_t *stored, struct rmq_error *err)
{
    struct planned planned;
    struct rmq_queue *queue = NULL;
    int64_t now_ms = 0, size = 0;
    int status = validate_all(log, message, 0, 1, &planned, &size, err);
    if (status != RMQ_OK)
        return status;

    planned.body_crc = rmq_crc32_java(message->body, message->body_size);
    status = rmq_turn_begin(log, false, &now_ms, err);
    if (status != RMQ_OK)
        return status;

    status = place(log, message, &planned, now_ms, &queue, receipt, err);
    rmq_turn_end(log, false);
    *stored = status == RMQ_OK;
    return status;
}

/* Makes room for all messages together, so that they are in one file. */
static int make_room_for_all(struct rmq_commit_log *log, int64_t size, struct rmq_error *err)
{
    assert(size >= 0);

    uint8_t *unused;
    if (size > log->files.options.file_size - RMQ_BLANK_SIZE)
        return rmq_fail(err, RMQ_MESSAGE_ILLEGAL, 0,
                        "a batch of %" PRId64 " bytes does not fit a commit log file of %" PRId64,
                        size, log->files.options.file_size);

    return rmq_turn_make_room(log, size, &unused, err);
}

/* A call of several messages in progress. */
struct putting {
    struct rmq_commit_log *log;
    const struct rmq_message *messages;
    struct rmq_receipt *receipts;
    size_t done; /* messages in the log */
    struct rmq_queue *queue;
    int64_t now_ms;
};

/* Places messages until `size` bytes of records are in the log or `last` is reached; the caller
 * holds the lock. The checksum of a body is computed directly before its copy: while the next
 * checksum is computed, the stored bytes leave the processor. */
static int place_some(struct putting *putting, struct planned *planned, size_t last, int64_t size,
                      struct rmq_error *err)
{
    assert(putting->done <= last);

    int status = RMQ_OK;
    for (int64_t placed = 0; putting->done < last && placed < size; ++planned) {
        const struct rmq_message *message = &putting->messages[putting->done];
        planned->body_crc = rmq_crc32_java(message->body, message->body_size);

        status = place(putting->log, message, planned, putting->now_ms, &putting->queue,
                       &putting->receipts[putting->done], err);
        if (status != RMQ_OK)
            break;

        placed += planned->plan.total_size;
        ++putting->done;
    }
    return status;
}

/* planned holds count messages from putting->done on. */
static int put_chunk(struct putting *putting, struct planned *planned, size_t count,
                     struct rmq_error *err)
{
    assert(count <= RMQ_PUT_CHUNK);

    size_t first = putting->done, last = first + count;
    /* A turn makes one file at most. */
    int64_t file_size = putting->log->files.options.file_size;
    int64_t turn_size = file_size < RMQ_TURN_SIZE ? file_size / 2 : RMQ_TURN_SIZE;

    int status = RMQ_OK;
    while (putting->done < last && status == RMQ_OK) {
        status = rmq_turn_begin(putting->log, true, &putting->now_ms, err);
        if (status != RMQ_OK)
            break;
        status = place_some(putting, planned + (putting->done - first), last, turn_size, err);
        rmq_turn_end(putting->log, true);
        rmq_commit_log_follow(putting->log);
    }
    return status;
}

static size_t chunk_of(size_t count, size_t done)
{
    assert(done <= count);
    return count - done < RMQ_PUT_CHUNK ? count - done : RMQ_PUT_CHUNK;
}

/* In one turn, so that no other records are in between, and in one file. */
static int put_together(struct putting *putting, struct planned *planned, size_t count,
                        int64_t size, struct rmq_error *err)
{
    assert(putting->done == 0);

    struct rmq_commit_log *log = putting->log;
    int64_t ignored = 0;

    int status = rmq_turn_begin(log, true, &putting->now_ms, err);
    if (status != RMQ_OK)
        return status;
    status = make_room_for_all(log, size, err);

    while (putting->done < count && status == RMQ_OK) {
        size_t chunk = chunk_of(count, putting->done);
        if (count > RMQ_PUT_CHUNK)
            status =
                validate_all(log, putting->messages, putting->done, chunk, planned, &ignored, err);
        if (status == RMQ_OK)
            status = place_some(putting, planned, putting->done + chunk, INT64_MAX, err);
    }

    rmq_turn_end(log, true);
    return status;
}

static int put_many(struct putting *putting, size_t count, bool together, struct rmq_error *err)
{
    assert(putting->done == 0);

    struct planned planned[RMQ_PUT_CHUNK];
    int64_t size = 0;
    int status = RMQ_OK;

    /* A first pass validates all messages, so that a call with an invalid message stores
     * nothing. */
    for (size_t at = 0; at < count && status == RMQ_OK; at += RMQ_PUT_CHUNK)
        status = validate_all(putting->log, putting->messages, at, chunk_of(count, at), planned,
                              &size, err);

    if (status == RMQ_OK && together)
        return put_together(putting, planned, count, size, err);

    while (putting->done < count && status == RMQ_OK) {
        size_t chunk = chunk_of(count, putting->done);
        if (count > RMQ_PUT_CHUNK)
            status = validate_all(putting->log, putting->messages, putting->done, chunk, planned,
                                  &size, err);
        if (status == RMQ_OK)
            status = put_chunk(putting, planned, chunk, err);
    }
    return status;
}

int rmq_commit_log_put(struct rmq_commit_log *log, const struct rmq_message *messages, size_t count,
                       bool together, struct rmq_receipt *receipts, size_t *stored,
                       struct rmq_error *err)
{
    assert((messages && receipts) || count == 0);
    assert(stored);

    int status;
    *stored = 0;

    if (count == 1) {
        status = put_one(log, messages, receipts, stored, err);
    } else {
        struct putting putting = {.log = log, .messages = messages, .receipts = receipts};
        status = put_many(&putting, count, together, err);
        *stored = putting.done;
    }

    assert(*stored <= count);
    rmq_commit_log_follow(log);
    return status;
}

/* ---- bytes from another log ---- */

static int append_part(struct rmq_commit_log *log, const uint8_t *data, size_t size, size_t *taken,
                       struct rmq_error *err)
{
    assert(rmq_spin_is_held(&log->put_lock) && log->files.last);

    struct rmq_mapped_file *last = log->files.last;
    int64_t wrote = atomic_load_explicit(&last->wrote, memory_order_relaxed);
    int64_t left = last->size - wrote;
    int64_t part = (int64_t)size < left ? (int64_t)size : left;
    assert(part > 0);

    int status = rmq_mapped_file_map(last, err);
    if (status == RMQ_OK)
        status = rmq_warmer_store(&log->warmer, last, wrote, data, part, err);
    if (status != RMQ_OK)
        return status;

    rmq_file_queue_advance(&log->files, wrote + part);
    *taken = (size_t)part;
    return RMQ_OK;
}

int rmq_commit_log_append_raw(struct rmq_commit_log *log, int64_t at, const uint8_t *data,
                              size_t size, struct rmq_error *err)
{
    assert(data || size == 0);

    int status = RMQ_OK;

    rmq_spin_lock(&log->put_lock);
    bool is_empty = log->files.last == NULL;
    int64_t end = rmq_file_queue_end(&log->files);
    if (at < 0 || (!is_empty && at != end))
        status =
            rmq_fail(err, RMQ_OUT_OF_RANGE, at,
                     "bytes for offset %" PRId64 " cannot follow the log's end %" PRId64, at, end);
    else if (is_empty && at % log->files.options.file_size != 0)
        status = rmq_fail(err, RMQ_OUT_OF_RANGE, at,
                          "an empty log begins at a file border, a multiple of %" PRId64
                          ", not at %" PRId64,
                          log->files.options.file_size, at);
    else if (is_empty)
        status = rmq_warmer_roll(&log->warmer, at, err);

    while (status == RMQ_OK && size > 0) {
        size_t taken = 0;
        struct rmq_mapped_file *last = log->files.last;
        if (atomic_load_explicit(&last->wrote, memory_order_relaxed) == last->size)
            status = rmq_warmer_roll(&log->warmer, 0, err);
        if (status == RMQ_OK)
            status = append_part(log, data, size, &taken, err);

        assert(taken <= size);
        data += taken;
        size -= taken;
    }

    rmq_spin_unlock(&log->put_lock);
    rmq_commit_log_follow(log);
    return status;
}
