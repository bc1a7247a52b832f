#include "columns/segment.h"

#include <assert.h>
#include <string.h>

#include "base/bytes.h"

/* Maximum size of the fields before the body: with this size version and hosts do not matter. */
#define HEAD_SIZE_MAX 112
#define TAIL_SIZE_MAX_V1 (1 + INT8_MAX + 2 + INT16_MAX)
#define TAIL_SIZE_MAX_V2 (2 + INT16_MAX + 2 + INT16_MAX)

static int64_t minimum(int64_t a, int64_t b)
{
    return a < b ? a : b;
}

/* ---- states ---- */

static enum rmq_segment_state over(struct rmq_segment *segment, enum rmq_segment_ending ending)
{
    assert(ending != RMQ_ENDING_NONE);

    segment->ending = ending;
    return RMQ_SEGMENT_OVER;
}

static enum rmq_segment_state more(struct rmq_segment *segment, int64_t needed)
{
    assert(needed > 0);

    segment->needed = minimum(needed, segment->options.file_end - segment->offset);
    return RMQ_SEGMENT_MORE;
}

/* The error is set. */
static enum rmq_segment_state corrupt(struct rmq_segment *segment, int32_t bad_size)
{
    assert(segment->error.status == RMQ_CORRUPT);
    assert(bad_size >= 0);

    segment->bad_size = bad_size;
    return RMQ_SEGMENT_CORRUPT;
}

static void forget_trouble(struct rmq_segment *segment)
{
    segment->error.status = RMQ_OK;
    segment->ending = RMQ_ENDING_NONE;
    segment->bad_size = 0;
    segment->is_lost = false;
}

/* ---- life ---- */

int rmq_segment_open(struct rmq_segment *segment, const struct rmq_segment_options *options,
                     const struct rmq_columns_options *columns, struct rmq_error *err)
{
    assert(options);

    memset(segment, 0, sizeof *segment);
    rmq_topic_filter_init(&segment->topics);
    rmq_summary_init(&segment->summary);
    if (options->start < 0 || options->stop < options->start || options->file_end < options->start)
        return rmq_fail(err, RMQ_INVALID, -1,
                        "a range from %lld to %lld of a file that ends at %lld does not ascend",
                        (long long)options->start, (long long)options->stop,
                        (long long)options->file_end);

    segment->options = *options;
    segment->summary.by_tag = options->sums_by_tag;
    segment->offset = options->start;
    more(segment, HEAD_SIZE_MAX);

    if (!columns)
        return RMQ_OK;
    int status = rmq_columns_open(&segment->columns, columns, err);
    segment->has_columns = status == RMQ_OK;
    return status;
}

void rmq_segment_close(struct rmq_segment *segment)
{
    if (segment->has_columns)
        rmq_columns_close(&segment->columns);
    segment->has_columns = false;
    rmq_topic_filter_destroy(&segment->topics);
    rmq_summary_destroy(&segment->summary);
}

int rmq_segment_feed(struct rmq_segment *segment, const uint8_t *data, size_t size, int64_t at,
                     struct rmq_error *err)
{
    assert(data || size == 0);

    int64_t offset = segment->offset;
    if (at < 0 || at > offset || size > INT64_MAX || (int64_t)size < offset - at)
        return rmq_fail(err, RMQ_INVALID, -1,
                        "%zu bytes from offset %lld on do not reach offset %lld", size,
                        (long long)at, (long long)offset);

    int64_t left = segment->options.file_end - at;

    segment->data = data;
    segment->data_start = at;
    segment->data_end = at + minimum((int64_t)size, left);
    segment->has_outer = false;
    return RMQ_OK;
}

/* ---- positions ---- */

static int64_t position_at(const struct rmq_segment *segment, size_t index)
{
    assert(index < segment->position_count);

    int64_t position;
    memcpy(&position, segment->positions + index * sizeof position, sizeof position);
    return position;
}

int rmq_segment_visit(struct rmq_segment *segment, const uint8_t *positions, size_t count,
                      struct rmq_error *err)
{
    assert(positions || count == 0);

    segment->positions = positions;
    segment->position_count = count;
    segment->position = 0;
    segment->has_positions = true;

    int64_t last = INT64_MIN;
    for (size_t i = 0; i < count; ++i) {
        int64_t position = position_at(segment, i);
        if (position < last) {
            segment->position_count = 0;
            return rmq_fail(err, RMQ_CORRUPT, position,
                            "position %lld comes after %lld: units point backwards",
                            (long long)position, (long long)last);
        }
        last = position;
        segment->position += position < segment->offset;
    }

    if (segment->position < count)
        segment->offset = position_at(segment, segment->position);
    return RMQ_OK;
}

/* Moves past a record of this size. */
static void step_over(struct rmq_segment *segment, int32_t size)
{
    assert(size >= 0);

    segment->is_inside = segment->has_outer = segment->is_counted = false;
    if (segment->has_positions)
        while (segment->position < segment->position_count &&
               position_at(segment, segment->position) <= segment->offset)
            ++segment->position;

    segment->offset += size;
}

static void go_back(struct rmq_segment *segment, const struct rmq_segment_origin *origin)
{
    assert(origin->offset <= segment->offset);

    segment->offset = origin->offset;
    segment->is_inside = origin->is_inside;
    segment->inner = origin->inner;
    segment->is_counted = !origin->is_first;
    segment->has_outer = false;

    if (segment->has_positions)
        while (segment->position > 0 &&
               position_at(segment, segment->position - 1) >= origin->offset)
            --segment->position;
}

/* ---- records ---- */

/* Records of one log tend to have similar sizes. A wrong guess costs nothing: no address faults. */
static inline void prefetch_ahead(const struct rmq_record *record)
{
    uintptr_t ahead = (uintptr_t)record->data + 4 * (uintptr_t)record->total_size;
    __builtin_prefetch((const void *)ahead);
    __builtin_prefetch((const void *)(ahead - 64));
    __builtin_prefetch((const void *)(ahead + 64));
}

/* Whether the lengths in the head can be valid. Checked before the whole record is requested: a
 * wrong size must not cause a fetch of a gigabyte. data has HEAD_SIZE_MAX bytes. */
static bool is_plausible(const uint8_t *data, int32_t total_size)
{
    assert(total_size >= RMQ_RECORD_SIZE_MIN);

    int64_t body_at = (int64_t)rmq_record_body_at(rmq_get_i32(data + 36));
    int32_t body_size = rmq_get_i32(data + body_at - 4);
    int64_t tail_size = total_size - body_at - (body_size > 0 ? body_size : 0);
    bool is_v2 = (uint32_t)rmq_get_i32(data + 4) == RMQ_MAGIC_V2;
    return tail_size >= (is_v2 ? 2 : 1) + 2 &&
           tail_size <= (is_v2 ? TAIL_SIZE_MAX_V2 : TAIL_SIZE_MAX_V1);
}

/* Whether all bytes that are needed to classify the record at offset were fed. FOUND: decode it. */
static enum rmq_segment_state gather(struct rmq_segment *segment)
{
    int64_t offset = segment->offset;
    int64_t left = segment->options.file_end - offset;
    assert(left > 0);

    if (!segment->data || offset < segment->data_start || offset > segment->data_end ||
        segment->data_end - offset < minimum(HEAD_SIZE_MAX, left))
        return more(segment, HEAD_SIZE_MAX);

    int64_t available = segment->data_end - offset;
    if (available < RMQ_RECORD_SIZE_MIN)
        return RMQ_SEGMENT_FOUND;

    const uint8_t *data = segment->data + (offset - segment->data_start);

    int32_t size = rmq_get_i32(data);
    uint32_t magic = (uint32_t)rmq_get_i32(data + 4);
    if (size <= available || (magic != RMQ_MAGIC_V1 && magic != RMQ_MAGIC_V2))
        return RMQ_SEGMENT_FOUND;

    if (size > left)
        rmq_fail(&segment->error, RMQ_CORRUPT, offset,
                 "record at %lld: says %d bytes, %lld are left", (long long)offset, size,
                 (long long)left);
    else if (!is_plausible(data, size))
        rmq_fail(&segment->error, RMQ_CORRUPT, offset,
                 "record at %lld: its lengths do not add up to its %d bytes", (long long)offset,
                 size);
    else
        return more(segment, size);
    return corrupt(segment, 0);
}

static enum rmq_segment_state no_record(struct rmq_segment *segment, bool is_blank)
{
    if (!segment->has_positions)
        return over(segment, is_blank ? RMQ_ENDING_BLANK : RMQ_ENDING_UNWRITTEN);

    rmq_fail(&segment->error, RMQ_CORRUPT, segment->offset,
             "no record at offset %lld, although a queue unit points there",
             (long long)segment->offset);
    return corrupt(segment, 0);
}

/* FOUND: *record is the record at offset. */
static enum rmq_segment_state read_record(struct rmq_segment *segment, struct rmq_record *record)
{
    assert(segment->position <= segment->position_count);

    if (segment->has_positions) {
        if (segment->position == segment->position_count)
            return over(segment, RMQ_ENDING_STOP);
        segment->offset = position_at(segment, segment->position);
    }

    if (segment->offset >= segment->options.stop)
        return over(segment, RMQ_ENDING_STOP);
    if (segment->offset >= segment->options.file_end)
        return no_record(segment, true);

    enum rmq_segment_state state = gather(segment);
    if (state != RMQ_SEGMENT_FOUND)
        return state;

    int64_t at = segment->offset - segment->data_start;
    assert(at >= 0 && segment->offset <= segment->data_end);
    unsigned checks = RMQ_CHECK_PLACE | (segment->options.check_crc ? RMQ_CHECK_READER : 0u);
    int status =
        rmq_record_decode(segment->data + at, (size_t)(segment->data_end - segment->offset),
                          segment->offset, checks, record, &segment->error);

    if (status == RMQ_END)
        return no_record(segment, record->total_size == RMQ_BLANK_SIZE);
    if (status != RMQ_OK)
        return corrupt(segment, record->total_size);

    prefetch_ahead(record);
    return RMQ_SEGMENT_FOUND;
}

/* ---- which messages ---- */

/* TOPIC: the caller has not decided yet. FOUND with *wanted: read its messages. */
static enum rmq_segment_state classify_record(struct rmq_segment *segment,
                                              const struct rmq_record *record, bool *wanted)
{
    assert(record->data);

    const struct rmq_segment_options *options = &segment->options;
    *wanted = record->store_timestamp >= options->begin_ms &&
              record->store_timestamp < options->end_ms &&
              !(options->dispatched_only && !rmq_takes_queue_offset(record->sys_flag));
    if (!*wanted || !options->by_topic)
        return RMQ_SEGMENT_FOUND;

    struct rmq_slice topic = {record->topic, (size_t)record->topic_size};
    const struct rmq_topic_choice *choice = rmq_topic_filter_find(&segment->topics, topic);
    if (!choice) {
        segment->topic = topic;
        return RMQ_SEGMENT_TOPIC;
    }

    segment->ranges = rmq_topic_choice_ranges(choice, record->queue_id, &segment->range_count);
    *wanted = segment->range_count > 0;
    return RMQ_SEGMENT_FOUND;
}

static bool is_in_range(const struct rmq_segment *segment, const struct rmq_record *message)
{
    assert(segment->ranges || segment->range_count == 0);

    for (size_t i = 0; i < segment->range_count; ++i) {
        const struct rmq_queue_range *range = &segment->ranges[i];
        if (message->queue_offset >= range->start && message->queue_offset < range->stop &&
            message->store_timestamp >= range->begin_ms && message->store_timestamp < range->end_ms)
            return true;
    }
    return false;
}

static bool is_wanted(const struct rmq_segment *segment, const struct rmq_record *message)
{
    const struct rmq_segment_options *options = &segment->options;
    if (options->by_topic && !is_in_range(segment, message))
        return false;
    if (options->filter && !rmq_message_filter_accepts(options->filter, message))
        return false;
    return options->tag_count == 0 ||
           rmq_properties_have_tag(message->properties, (size_t)message->properties_size,
                                   options->tags, options->tag_count);
}

/* ---- messages ---- */

/* Makes the inner batch at offset the source of the next messages. */
static enum rmq_segment_state enter(struct rmq_segment *segment, const struct rmq_record *record)
{
    assert(rmq_inner_is_batch(record));

    segment->outer = *record;
    segment->has_outer = true;

    if (segment->is_inside)
        return RMQ_SEGMENT_FOUND;
    if (rmq_inner_begin(&segment->inner, record, &segment->error) != RMQ_OK) {
        segment->has_outer = false;
        return corrupt(segment, record->total_size);
    }

    segment->is_inside = true;
    return RMQ_SEGMENT_FOUND;
}

/* The next wanted message of the record at offset; END when there is none. */
static int next_inner(struct rmq_segment *segment, struct rmq_record *message,
                      struct rmq_segment_origin *origin)
{
    assert(segment->has_outer && segment->is_inside);

    int status;
    do {
        *origin = (struct rmq_segment_origin){segment->offset, segment->inner, true,
                                              !segment->is_counted};
        status = rmq_inner_next(&segment->inner, &segment->outer, message, &segment->error);
    } while (status == RMQ_OK && !is_wanted(segment, message));

    segment->is_counted |= status == RMQ_OK;
    return status;
}

/* FOUND: *message is the next wanted one. */
static enum rmq_segment_state next_message(struct rmq_segment *segment, struct rmq_record *message,
                                           struct rmq_segment_origin *origin)
{
    for (;;) {
        if (segment->has_outer) {
            int status = next_inner(segment, message, origin);
            if (status == RMQ_OK)
                return RMQ_SEGMENT_FOUND;
            if (status != RMQ_END)
                return corrupt(segment, segment->outer.total_size);
            step_over(segment, segment->outer.total_size);
        }

        enum rmq_segment_state state = read_record(segment, message);
        if (state != RMQ_SEGMENT_FOUND)
            return state;

        bool wanted;
        state = classify_record(segment, message, &wanted);
        if (state != RMQ_SEGMENT_FOUND)
            return state;

        if (wanted && segment->options.unwrap && rmq_inner_is_batch(message)) {
            state = enter(segment, message);
            if (state != RMQ_SEGMENT_FOUND)
                return state;
            continue;
        }

        *origin = (struct rmq_segment_origin){.offset = segment->offset, .is_first = true};
        step_over(segment, message->total_size);
        if (wanted && is_wanted(segment, message))
            return RMQ_SEGMENT_FOUND;
    }
}

static void count(struct rmq_segment *segment, const struct rmq_record *message,
                  const struct rmq_segment_origin *origin)
{
    assert(message->total_size > 0);

    if (origin->is_first) {
        ++segment->records;
        segment->bytes += message->total_size;
    }
}

int rmq_segment_fill(struct rmq_segment *segment, enum rmq_segment_state *state,
                     struct rmq_error *err)
{
    assert(state);

    struct rmq_columns *columns = &segment->columns;
    assert(segment->has_columns);
    forget_trouble(segment);
    segment->has_outer = false;
    *state = RMQ_SEGMENT_FOUND;

    while (*state == RMQ_SEGMENT_FOUND) {
        if (rmq_columns_is_full(columns)) {
            *state = RMQ_SEGMENT_FULL;
            break;
        }

        size_t collected = 0, taken = 0;
        while (collected < RMQ_SEGMENT_PORTION &&
               (*state = next_message(segment, &segment->rows[collected],
                                      &segment->origins[collected])) == RMQ_SEGMENT_FOUND)
            ++collected;

        int status = rmq_columns_append(columns, segment->rows, collected, &taken, err);
        if (status != RMQ_OK)
            return status;

        assert(taken <= collected);
        for (size_t i = 0; i < taken; ++i)
            count(segment, &segment->rows[i], &segment->origins[i]);

        if (taken < collected) {
            forget_trouble(segment);
            go_back(segment, &segment->origins[taken]);
            *state = RMQ_SEGMENT_FULL;
        }
    }
    return RMQ_OK;
}

int rmq_segment_summarize(struct rmq_segment *segment, enum rmq_segment_state *state,
                          struct rmq_error *err)
{
    assert(state);

    struct rmq_record message;
    struct rmq_segment_origin origin;
    forget_trouble(segment);
    segment->has_outer = false;

    while ((*state = next_message(segment, &message, &origin)) == RMQ_SEGMENT_FOUND) {
        int status = rmq_summary_add(&segment->summary, &message, origin.is_first, err);
        if (status != RMQ_OK)
            return status;
        count(segment, &message, &origin);
    }
    return RMQ_OK;
}

/* ---- continuing after damage ---- */

bool rmq_segment_can_resync(const struct rmq_segment *segment)
{
    return segment->error.status != RMQ_OK || segment->ending == RMQ_ENDING_UNWRITTEN ||
           segment->is_lost;
}

/* Moves offset to the next position up to `last` that looks like a record; MORE when all fed bytes
 * are searched, OVER when there is none. */
static enum rmq_segment_state find_magic(struct rmq_segment *segment, int64_t last)
{
    /* The magics share their first three bytes, which are 4 bytes after the record's start. */
    static const uint8_t head[3] = {0xDA, 0xA3, 0x20};
    const int64_t seen = 4 + sizeof head;

    int64_t offset = segment->offset;
    if (offset > last)
        return RMQ_SEGMENT_OVER;
    if (!segment->data || offset < segment->data_start || segment->data_end - offset < seen)
        return more(segment, HEAD_SIZE_MAX);

    const uint8_t *from = segment->data + (offset - segment->data_start);
    int64_t size = minimum(segment->data_end - offset, last - offset + seen);
    assert(size >= seen);
    const uint8_t *found = memmem(from + 4, (size_t)size - 4, head, sizeof head);

    if (found) {
        segment->offset += found - 4 - from;
        return RMQ_SEGMENT_FOUND;
    }

    segment->offset += size - seen + 1;
    return segment->offset > last ? RMQ_SEGMENT_OVER : more(segment, HEAD_SIZE_MAX);
}

/* Whether there is a record at offset that is whole, matches its CRCs and has its own physical
 * offset: FOUND, MORE, or CORRUPT. */
static enum rmq_segment_state classify_offset(struct rmq_segment *segment)
{
    int64_t offset = segment->offset;
    if (segment->data_end - offset < HEAD_SIZE_MAX && segment->data_end < segment->options.file_end)
        return more(segment, HEAD_SIZE_MAX);

    assert(segment->data && offset >= segment->data_start && offset <= segment->data_end);
    const uint8_t *data = segment->data + (offset - segment->data_start);
    struct rmq_record record;

    /* A record with another physical offset need not be fetched. */
    if (segment->data_end - offset >= RMQ_RECORD_SIZE_MIN && rmq_get_i64(data + 28) != offset)
        return RMQ_SEGMENT_CORRUPT;
    enum rmq_segment_state state = gather(segment);
    if (state != RMQ_SEGMENT_FOUND)
        return state;

    int status = rmq_record_decode(data, (size_t)(segment->data_end - offset), offset,
                                   RMQ_CHECK_PLACE | RMQ_CHECK_BODY_CRC, &record, NULL);
    return status == RMQ_OK ? RMQ_SEGMENT_FOUND : RMQ_SEGMENT_CORRUPT;
}

static enum rmq_segment_state search(struct rmq_segment *segment)
{
    assert(segment->is_lost);

    const struct rmq_segment_options *options = &segment->options;
    int64_t last = minimum(options->stop - 1, options->file_end - RMQ_RECORD_SIZE_MIN);
    for (;;) {
        enum rmq_segment_state state = find_magic(segment, last);
        if (state == RMQ_SEGMENT_FOUND)
            state = classify_offset(segment);
        if (state == RMQ_SEGMENT_MORE)
            return state;

        if (state == RMQ_SEGMENT_OVER) {
            forget_trouble(segment);
            segment->offset = minimum(options->stop, options->file_end);
            return over(segment,
                        segment->offset == options->stop ? RMQ_ENDING_STOP : RMQ_ENDING_BLANK);
        }

        if (state == RMQ_SEGMENT_FOUND) {
            forget_trouble(segment);
            return state;
        }
        ++segment->offset;
    }
}

enum rmq_segment_state rmq_segment_resync(struct rmq_segment *segment)
{
    assert(rmq_segment_can_resync(segment));

    if (!segment->is_lost) {
        bool is_known = segment->has_positions || segment->bad_size > 0;
        step_over(segment, is_known ? segment->bad_size : 1);
        forget_trouble(segment);
        if (is_known)
            return RMQ_SEGMENT_FOUND;
        segment->is_lost = true;
    }
    return search(segment);
}
