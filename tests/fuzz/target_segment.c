/* target_segment.c -- one commit log file read from its bytes, whole and piece by piece. */
#include <stdlib.h>
#include <string.h>

#include "base/bytes.h"
#include "base/crc32.h"
#include "columns/arrow_export.h"
#include "columns/segment.h"
#include "fuzz.h"

#define STEPS_MAX 1000000
#define POSITIONS_MAX 16

enum {
    CHECK_CRC = 1,
    UNWRAP = 2,
    DISPATCHED_ONLY = 4,
    BY_TOPIC = 8,
    SUMMARIZE = 16,
    POSITIONS = 32,
    MEND = 64,
    HIGH_START = 128,
};

struct plan {
    unsigned flags;
    struct rmq_segment_options options;
    struct rmq_columns_options columns;
    uint8_t chosen[RMQ_COLUMN_COUNT];
    int64_t positions[POSITIONS_MAX];
    size_t position_count;
    const uint8_t *data;
    size_t size;
};

/* What came out, in order: the same for any pieces. */
struct trace {
    int64_t *events;
    size_t count;
    size_t capacity;
};

static void note(struct trace *trace, int64_t event)
{
    if (trace->count == trace->capacity) {
        trace->capacity = trace->capacity ? trace->capacity * 2 : 64;
        trace->events = realloc(trace->events, trace->capacity * sizeof *trace->events);
        FUZZ_REQUIRE(trace->events != NULL);
    }
    trace->events[trace->count++] = event;
}

/* Records that have the right form get the place they lie at, and every other one its CRC. */
static void mend(uint8_t *data, size_t size, int64_t start)
{
    struct rmq_record record;
    size_t at = 0;
    for (int i = 0; rmq_record_decode(data + at, size - at, 0, 0, &record, NULL) == RMQ_OK; ++i) {
        rmq_put_i64(data + at + 28, start + (int64_t)at);
        if (i % 2 == 0)
            rmq_put_i32(data + at + 8, rmq_crc32_java(record.body, (size_t)record.body_size));
        at += (size_t)record.total_size;
    }
}

static void check_rows(struct rmq_segment *segment, struct trace *trace)
{
    struct ArrowArray array;
    int64_t rows = segment->columns.rows;
    FUZZ_REQUIRE(rows <= segment->columns.max_rows);
    if (rows == 0)
        return;
    FUZZ_REQUIRE(rmq_arrow_batch(&segment->columns, &array, NULL) == RMQ_OK);
    FUZZ_REQUIRE(array.length == rows);
    const int64_t *places = array.children[0]->buffers[1];
    const int64_t *offsets = array.children[1]->buffers[1];
    for (int64_t i = 0; i < rows; ++i) {
        FUZZ_REQUIRE(places[i] >= segment->options.start && places[i] < segment->options.stop);
        note(trace, places[i]);
        note(trace, offsets[i]);
    }
    array.release(&array);
}

static void choose(struct rmq_segment *segment)
{
    struct rmq_queue_range ranges[] = {
        {0, 0, 5, INT64_MIN, INT64_MAX},
        {RMQ_EVERY_QUEUE, 2, INT64_MAX, INT64_MIN, INT64_MAX},
        {0, 7, 9, 0, INT64_MAX},
    };
    FUZZ_REQUIRE(segment->options.by_topic);
    FUZZ_REQUIRE(rmq_topic_filter_find(&segment->topics, segment->topic) == NULL);
    size_t count = segment->topic.size % 4;
    FUZZ_REQUIRE(rmq_topic_filter_put(&segment->topics, segment->topic, ranges, count, NULL) ==
                 RMQ_OK);
}

/* The bytes at segment->offset in a block of exactly their size, which replaces the last one. */
static void feed(struct rmq_segment *segment, const struct plan *plan, size_t piece,
                 uint8_t **block)
{
    size_t at = (size_t)(segment->offset - plan->options.start);
    FUZZ_REQUIRE(segment->needed > 0 && at < plan->size);
    FUZZ_REQUIRE((size_t)segment->needed <= plan->size - at);
    size_t size = (size_t)segment->needed > piece ? (size_t)segment->needed : piece;
    if (size > plan->size - at)
        size = plan->size - at;
    uint8_t *next = fuzz_copy(plan->data + at, size);
    FUZZ_REQUIRE(rmq_segment_feed(segment, next, size, segment->offset, NULL) == RMQ_OK);
    free(*block);
    *block = next;
}

static void check_summary(const struct rmq_segment *segment, struct trace *trace)
{
    int64_t records = 0, bytes = 0;
    for (size_t i = 0; i < segment->summary.count; ++i) {
        const struct rmq_summary_row *row = &segment->summary.rows[i];
        int64_t sizes = 0;
        for (size_t j = 0; j < RMQ_SUMMARY_SIZES; ++j)
            sizes += row->sizes[j];
        FUZZ_REQUIRE(sizes == row->records && row->messages >= row->records);
        FUZZ_REQUIRE(row->min_queue_offset <= row->max_queue_offset);
        records += row->records;
        bytes += row->bytes;
        note(trace, row->messages);
        note(trace, row->body_bytes);
    }
    FUZZ_REQUIRE(records == segment->records && bytes == segment->bytes);
}

static void run(const struct plan *plan, size_t piece, struct trace *trace)
{
    struct rmq_segment *segment = malloc(sizeof *segment);
    FUZZ_REQUIRE(segment != NULL);
    uint8_t *block = NULL;
    enum rmq_segment_state state = RMQ_SEGMENT_MORE;
    bool resyncs = false;
    bool sums = plan->flags & SUMMARIZE;
    FUZZ_REQUIRE(rmq_segment_open(segment, &plan->options, &plan->columns, NULL) == RMQ_OK);
    if (plan->flags & POSITIONS)
        FUZZ_REQUIRE(rmq_segment_visit(segment, (const uint8_t *)plan->positions,
                                       plan->position_count, NULL) == RMQ_OK);
    int steps = 0;
    for (bool goes_on = true; goes_on; ++steps) {
        FUZZ_REQUIRE(steps < STEPS_MAX);
        if (resyncs)
            state = rmq_segment_resync(segment);
        else
            FUZZ_REQUIRE((sums ? rmq_segment_summarize : rmq_segment_fill)(segment, &state, NULL) ==
                         RMQ_OK);
        if (state == RMQ_SEGMENT_MORE) {
            feed(segment, plan, piece, &block);
            continue;
        }
        if (state == RMQ_SEGMENT_TOPIC)
            choose(segment);
        else if (state == RMQ_SEGMENT_FULL)
            check_rows(segment, trace);
        resyncs = state == RMQ_SEGMENT_CORRUPT ||
                  (state == RMQ_SEGMENT_OVER && segment->ending == RMQ_ENDING_UNWRITTEN);
        FUZZ_REQUIRE(!resyncs || rmq_segment_can_resync(segment));
        if (resyncs) {
            check_rows(segment, trace);
            note(trace, ~segment->offset);
            note(trace, segment->bad_size);
        }
        goes_on = state != RMQ_SEGMENT_OVER || resyncs;
    }
    check_rows(segment, trace);
    if (sums)
        check_summary(segment, trace);
    note(trace, segment->offset);
    note(trace, (int64_t)segment->ending);
    note(trace, segment->records);
    rmq_segment_close(segment);
    free(segment);
    free(block);
}

static int ascending(const void *a, const void *b)
{
    int64_t first = *(const int64_t *)a, second = *(const int64_t *)b;
    return (first > second) - (first < second);
}

static void take_plan(struct fuzz_input *input, struct plan *plan)
{
    unsigned flags = plan->flags = (unsigned)fuzz_take(input, 1);
    int64_t start = flags & HIGH_START ? (int64_t)1 << 40 : 0;
    int64_t stop = (int64_t)fuzz_take(input, 2);
    uint32_t bits = (uint32_t)fuzz_take(input, 4);
    plan->columns.columns = plan->chosen;
    plan->columns.max_rows = 1 + (int64_t)fuzz_take(input, 1);
    plan->columns.max_bytes = 1 + (int64_t)fuzz_take(input, 2);
    plan->chosen[plan->columns.column_count++] = RMQ_COLUMN_PHYSICAL_OFFSET;
    plan->chosen[plan->columns.column_count++] = RMQ_COLUMN_QUEUE_OFFSET;
    for (uint8_t i = 0; i < RMQ_COLUMN_COUNT; ++i)
        if (bits >> i & 1 && i != RMQ_COLUMN_PHYSICAL_OFFSET && i != RMQ_COLUMN_QUEUE_OFFSET)
            plan->chosen[plan->columns.column_count++] = i;
    plan->position_count = flags & POSITIONS ? fuzz_take(input, 1) % POSITIONS_MAX : 0;
    for (size_t i = 0; i < plan->position_count; ++i)
        plan->positions[i] = start + (int64_t)fuzz_take(input, 2);
    qsort(plan->positions, plan->position_count, sizeof *plan->positions, ascending);
    plan->options = (struct rmq_segment_options){
        .start = start,
        .stop = start + stop,
        .file_end = start,
        .check_crc = flags & CHECK_CRC,
        .unwrap = flags & UNWRAP,
        .dispatched_only = flags & DISPATCHED_ONLY,
        .by_topic = flags & BY_TOPIC,
        .begin_ms = INT64_MIN,
        .end_ms = INT64_MAX,
    };
}

/* piece 2, then a plan: flags 1, stop 2, columns 4 (bits), rows 1, bytes 2, positions 1 + n * 2;
 * then the file. */
void fuzz_segment(const uint8_t *data, size_t size)
{
    struct fuzz_input input = {data, size};
    struct plan plan = {0};
    struct trace whole = {0}, pieces = {0};
    size_t piece = (size_t)fuzz_take(&input, 2);
    take_plan(&input, &plan);
    uint8_t *file = fuzz_copy(input.data, input.left);
    if (plan.flags & MEND)
        mend(file, input.left, plan.options.start);
    plan.data = file;
    plan.size = input.left;
    plan.options.file_end += (int64_t)input.left;
    run(&plan, input.left, &whole);
    run(&plan, piece, &pieces);
    FUZZ_REQUIRE(whole.count == pieces.count);
    FUZZ_REQUIRE(memcmp(whole.events, pieces.events, whole.count * sizeof *whole.events) == 0);
    free(whole.events);
    free(pieces.events);
    free(file);
}
