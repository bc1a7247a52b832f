#include "columns/arrow_stream.h"

#include <assert.h>
#include <errno.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>

#include "columns/arrow_export.h"
#include "format/inner_batch.h"
#include "store/walk.h"

#define PORTION RMQ_WALK_PORTION

/* Messages of a portion whose inner batches are split into messages. */
struct unwrapping {
    struct rmq_record messages[PORTION]; /* messages to be added to the batch */
    size_t records[PORTION]; /* for each message, the index of its record in the portion */
    struct rmq_inner_walk before[PORTION];
    size_t count;
    /* The record of which only some messages are in the last batch. */
    int64_t inside; /* its physical offset, -1: no such record */
    struct rmq_inner_walk inner;
    const struct rmq_slice *tags;
    size_t tag_count;
    int64_t start; /* queue offsets of messages */
    int64_t stop;
};

struct rmq_arrow_stream {
    _Atomic uint32_t references;
    struct rmq_gate *gate;
    struct rmq_columns columns;
    struct rmq_walk walk;
    struct unwrapping *unwrapping; /* NULL: one row for each record */
    _Atomic int64_t rows;
    bool is_over;
    bool is_exported;
    struct rmq_error
        error; /* status RMQ_OK until the stream failed; later steps return the failure */
    void (*released)(void *context);
    void *context;
    struct rmq_slice *tags; /* slices into text */
    char *text;             /* copies of topic and tags */
};

/* ---- life ---- */

static struct rmq_slice copy_slice(char **to, struct rmq_slice from)
{
    assert(from.data || from.size == 0);

    struct rmq_slice copy = {from.data ? *to : NULL, from.size};
    if (from.size > 0)
        memcpy(*to, from.data, from.size);
    *to += from.size;
    return copy;
}

static int copy_text(struct rmq_arrow_stream *stream, const struct rmq_arrow_options *options,
                     struct rmq_walk_options *walk, struct rmq_error *err)
{
    assert(options->tags || options->tag_count == 0);

    size_t size = options->topic.size;
    for (size_t i = 0; i < options->tag_count; ++i)
        size += options->tags[i].size;

    stream->text = malloc(size + 1);
    stream->tags = calloc(options->tag_count + 1, sizeof *stream->tags);
    if (!stream->text || !stream->tags)
        return rmq_fail(err, RMQ_NO_MEMORY, -1, "no memory for %zu tags", options->tag_count);

    char *to = stream->text;
    walk->topic = copy_slice(&to, options->topic);
    for (size_t i = 0; i < options->tag_count; ++i)
        stream->tags[i] = copy_slice(&to, options->tags[i]);
    walk->tags = stream->tags;
    return RMQ_OK;
}

/* The walk then returns records; their messages are selected here. */
static int begin_unwrapping(struct rmq_arrow_stream *stream,
                            const struct rmq_arrow_options *options, struct rmq_walk_options *walk,
                            struct rmq_error *err)
{
    assert(!stream->unwrapping);

    struct unwrapping *made = malloc(sizeof *made);
    if (!made)
        return rmq_fail(err, RMQ_NO_MEMORY, -1, "no memory for %zu bytes", sizeof *made);

    made->count = 0;
    made->inside = -1;
    made->tags = walk->tags;
    made->tag_count = walk->tag_count;
    made->start = options->by_queue ? options->start : INT64_MIN;
    made->stop = options->by_queue ? options->stop : INT64_MAX;

    walk->tag_count = 0;
    stream->unwrapping = made;
    return RMQ_OK;
}

static int begin(struct rmq_arrow_stream *stream, const struct rmq_arrow_options *options,
                 struct rmq_error *err)
{
    assert(options->store && options->gate);

    struct rmq_walk_options walk = {
        .by_queue = options->by_queue,
        .queue_id = options->queue_id,
        .tag_count = options->tag_count,
        .start = options->start,
        .stop = options->stop,
        .begin_ms = options->begin_ms,
        .end_ms = options->end_ms,
        .check_crc = options->check_crc,
        .skip_corrupt = options->skip_corrupt,
    };

    int status = rmq_columns_open(&stream->columns, &options->columns, err);
    if (status == RMQ_OK)
        status = copy_text(stream, options, &walk, err);
    if (status == RMQ_OK && options->unwrap)
        status = begin_unwrapping(stream, options, &walk, err);
    if (status != RMQ_OK)
        return status;

    if (!rmq_gate_enter(options->gate))
        return rmq_fail(err, RMQ_CLOSED, -1, "the store is closed");
    status = rmq_walk_begin(&stream->walk, options->store, &walk, err);
    rmq_gate_leave(options->gate);
    return status;
}

int rmq_arrow_stream_open(const struct rmq_arrow_options *options, struct rmq_arrow_stream **stream,
                          struct rmq_error *err)
{
    assert(options->gate && stream);

    *stream = NULL;
    if (options->by_queue && (!options->topic.data || options->queue_id < 0))
        return rmq_fail(err, RMQ_INVALID, -1, "a queue needs a topic and a queue id");

    struct rmq_arrow_stream *made = calloc(1, sizeof *made);
    if (!made)
        return rmq_fail(err, RMQ_NO_MEMORY, -1, "no memory for a stream");

    made->references = 1;
    made->gate = options->gate;
    rmq_gate_retain(made->gate);

    int status = begin(made, options, err);
    if (status != RMQ_OK) {
        rmq_arrow_stream_release(made);
        return status;
    }

    made->released = options->released;
    made->context = options->context;
    *stream = made;
    return RMQ_OK;
}

void rmq_arrow_stream_release(struct rmq_arrow_stream *stream)
{
    uint32_t before = atomic_fetch_sub(&stream->references, 1);
    assert(before > 0);
    if (before > 1)
        return;

    rmq_walk_finish(&stream->walk);
    rmq_columns_close(&stream->columns);
    rmq_gate_release(stream->gate);
    free(stream->unwrapping);
    free(stream->tags);
    free(stream->text);
    free(stream);
}

void rmq_arrow_stream_counts(const struct rmq_arrow_stream *stream, struct rmq_arrow_counts *counts)
{
    assert(counts);

    counts->rows = stream->rows;
    counts->skipped = stream->walk.counts.skipped;
    counts->skipped_bytes = stream->walk.counts.skipped_bytes;
    counts->expired = stream->walk.counts.expired;
}

/* ---- steps ---- */

static int errno_of(int status)
{
    switch (status) {
    case RMQ_OK:
        return 0;
    case RMQ_NO_MEMORY:
        return ENOMEM;
    case RMQ_INVALID:
    case RMQ_CLOSED:
    case RMQ_FORKED:
        return EINVAL;
    default:
        return EIO;
    }
}

/* The rows just copied may have been cut meanwhile, by this process or another. Single rows cannot
 * be removed, so the whole batch is dropped. */
static int check_unchanged(struct rmq_arrow_stream *stream, size_t taken, struct rmq_error *err)
{
    assert(taken <= stream->walk.count);

    if (rmq_store_keeps_bytes(stream->walk.store))
        return RMQ_OK;
    for (size_t i = 0; i < taken; ++i) {
        const struct rmq_record *record = &stream->walk.records[i];
        if (!rmq_record_head_is_unchanged(record)) {
            rmq_columns_restart(&stream->columns);
            return rmq_fail(err, RMQ_CORRUPT, record->physical_offset,
                            "record at %lld was cut from the log while it was read; refresh",
                            (long long)record->physical_offset);
        }
    }
    return RMQ_OK;
}

/* ---- messages of inner batches ---- */

static bool is_wanted(const struct unwrapping *unwrapping, const struct rmq_record *message)
{
    assert(unwrapping->tags || unwrapping->tag_count == 0);

    if (message->queue_offset < unwrapping->start || message->queue_offset >= unwrapping->stop)
        return false;
    return unwrapping->tag_count == 0 ||
           rmq_properties_have_tag(message->properties, (size_t)message->properties_size,
                                   unwrapping->tags, unwrapping->tag_count);
}

/* RMQ_END: the batch is full, and the next batch begins with record *taken. */
static int flush_messages(struct rmq_arrow_stream *stream, size_t *taken, struct rmq_error *err)
{
    assert(stream->unwrapping && stream->unwrapping->count <= PORTION);

    struct unwrapping *unwrapping = stream->unwrapping;
    size_t count = unwrapping->count, done = 0;
    unwrapping->count = 0;

    int status = rmq_columns_append(&stream->columns, unwrapping->messages, count, &done, err);
    if (status != RMQ_OK || done == count)
        return status;

    assert(done < count);
    *taken = unwrapping->records[done];
    const struct rmq_record *record = &stream->walk.records[*taken];
    unwrapping->inside = rmq_inner_is_batch(record) ? record->physical_offset : -1;
    unwrapping->inner = unwrapping->before[done];
    return RMQ_END;
}

/* Makes room for one more message; RMQ_END as above. */
static int next_slot(struct rmq_arrow_stream *stream, size_t index,
                     const struct rmq_inner_walk *inner, struct rmq_record **slot, size_t *taken,
                     struct rmq_error *err)
{
    assert(stream->unwrapping->count <= PORTION && index < stream->walk.count);

    struct unwrapping *unwrapping = stream->unwrapping;

    int status = unwrapping->count == PORTION ? flush_messages(stream, taken, err) : RMQ_OK;

    if (status == RMQ_OK) {
        unwrapping->records[unwrapping->count] = index;
        unwrapping->before[unwrapping->count] = *inner;
        *slot = &unwrapping->messages[unwrapping->count];
    }
    return status;
}

static int take_apart(struct rmq_arrow_stream *stream, size_t index, size_t *taken,
                      struct rmq_error *err)
{
    assert(index < stream->walk.count);

    struct unwrapping *unwrapping = stream->unwrapping;
    const struct rmq_record *record = &stream->walk.records[index];
    assert(rmq_inner_is_batch(record));
    struct rmq_inner_walk inner = unwrapping->inner;
    int status = RMQ_OK;
    if (unwrapping->inside != record->physical_offset)
        status = rmq_inner_begin(&inner, record, err);

    while (status == RMQ_OK) {
        struct rmq_record *slot = NULL;
        status = next_slot(stream, index, &inner, &slot, taken, err);
        if (status != RMQ_OK)
            return status;
        status = rmq_inner_next(&inner, record, slot, err);
        unwrapping->count += status == RMQ_OK && is_wanted(unwrapping, slot);
    }

    unwrapping->inside = -1;
    return status == RMQ_END ? RMQ_OK : status;
}

static void count_skipped(struct rmq_walk *walk, const struct rmq_record *record)
{
    assert(record->total_size > 0);

    ++walk->counts.skipped;
    if (!walk->options.by_queue)
        walk->counts.skipped_bytes += record->total_size;
}

/* As rmq_columns_append with the records of the portion. Some messages of record *taken may be in
 * the batch already. RMQ_CORRUPT: the inner batch of the first record is damaged. */
static int append_messages(struct rmq_arrow_stream *stream, size_t *taken, struct rmq_error *err)
{
    assert(stream->unwrapping && taken);

    struct unwrapping *unwrapping = stream->unwrapping;
    for (*taken = 0; *taken < stream->walk.count;) {
        size_t index = *taken;
        const struct rmq_record *record = &stream->walk.records[index];
        const struct rmq_inner_walk none = {0};
        struct rmq_record *slot = NULL;
        int status;

        if (rmq_inner_is_batch(record)) {
            status = take_apart(stream, index, taken, err);
        } else {
            status = next_slot(stream, index, &none, &slot, taken, err);
            if (status == RMQ_OK && is_wanted(unwrapping, record)) {
                *slot = *record;
                ++unwrapping->count;
            }
        }

        if (status == RMQ_END)
            return RMQ_OK;
        if (status == RMQ_CORRUPT && index > 0)
            break; /* the next batch begins with this record and reports the damage */

        if (status == RMQ_CORRUPT && stream->walk.options.skip_corrupt)
            count_skipped(&stream->walk, record);
        else if (status != RMQ_OK)
            return status;

        ++*taken;
    }

    int status = flush_messages(stream, taken, err);
    return status == RMQ_END ? RMQ_OK : status;
}

static bool is_inside(const struct rmq_arrow_stream *stream)
{
    return stream->unwrapping && stream->unwrapping->inside >= 0;
}

/* ---- batches ---- */

/* Adds rows until the batch is full (RMQ_OK), the walk has ended (RMQ_END) or failed. There may be
 * rows in each case. */
static int fill(struct rmq_arrow_stream *stream, struct rmq_error *err)
{
    struct rmq_columns *columns = &stream->columns;
    bool has_bodies = columns->chosen & (1u << RMQ_COLUMN_BODY | 1u << RMQ_COLUMN_RECORD);

    while (!rmq_columns_is_full(columns)) {
        if (rmq_gate_is_closed(stream->gate))
            return rmq_fail(err, RMQ_CLOSED, -1,
                            "the store was closed while its records were being read");

        int64_t room = columns->max_rows - columns->rows;
        assert(room > 0);
        size_t taken = 0;
        int status =
            rmq_walk_next(&stream->walk, room < RMQ_WALK_PORTION ? (size_t)room : RMQ_WALK_PORTION,
                          has_bodies ? columns->max_bytes - columns->bytes : INT64_MAX, err);

        if (status == RMQ_OK && stream->unwrapping)
            status = append_messages(stream, &taken, err);
        else if (status == RMQ_OK)
            status =
                rmq_columns_append(columns, stream->walk.records, stream->walk.count, &taken, err);
        if (status == RMQ_OK)
            status = check_unchanged(stream, taken + is_inside(stream), err);
        if (status != RMQ_OK)
            return status;

        assert(taken <= stream->walk.count);
        if (taken < stream->walk.count) {
            rmq_walk_back(&stream->walk, taken);
            if (columns->rows > 0)
                return RMQ_OK;
        }
    }
    return RMQ_OK;
}

static int step(struct rmq_arrow_stream *stream, struct ArrowArray *out)
{
    assert(out);

    struct rmq_error err = {0};
    if (stream->error.status != RMQ_OK)
        return stream->error.status;
    if (stream->is_over)
        return RMQ_OK;

    if (!rmq_gate_enter(stream->gate))
        return rmq_fail(&stream->error, RMQ_CLOSED, -1,
                        "the store was closed before its records were read to the end");

    int status = fill(stream, &err);
    rmq_walk_let_go(&stream->walk);
    rmq_gate_leave(stream->gate);

    /* A record that cannot be read ends the stream, but only after the rows before it were
     * returned. */
    if (status == RMQ_END)
        stream->is_over = true;
    else if (status != RMQ_OK)
        stream->error = err;
    if (status == RMQ_NO_MEMORY || status == RMQ_CLOSED || stream->columns.rows == 0)
        return status == RMQ_END ? RMQ_OK : status;

    int64_t rows = stream->columns.rows;
    status = rmq_arrow_batch(&stream->columns, out, &err);
    if (status == RMQ_OK)
        stream->rows += rows;
    else
        stream->error = err;
    return status;
}

static int get_next(struct ArrowArrayStream *consumer, struct ArrowArray *out)
{
    struct rmq_arrow_stream *stream = consumer->private_data;
    assert(stream);

    memset(out, 0, sizeof *out);

    int status = step(stream, out);
    if (stream->is_over || stream->error.status != RMQ_OK)
        rmq_walk_finish(&stream->walk);

    return errno_of(status);
}

static int get_schema(struct ArrowArrayStream *consumer, struct ArrowSchema *out)
{
    struct rmq_arrow_stream *stream = consumer->private_data;
    assert(stream);

    memset(out, 0, sizeof *out);
    /* get_last_error returns the reason. */
    struct rmq_error *err = stream->error.status == RMQ_OK ? &stream->error : NULL;
    return errno_of(rmq_arrow_schema(&stream->columns, out, err));
}

static const char *get_last_error(struct ArrowArrayStream *consumer)
{
    const struct rmq_arrow_stream *stream = consumer->private_data;
    return stream->error.status == RMQ_OK ? NULL : stream->error.detail;
}

static void release(struct ArrowArrayStream *consumer)
{
    struct rmq_arrow_stream *stream = consumer->private_data;
    assert(stream);

    void (*released)(void *) = stream->released;
    void *context = stream->context;

    consumer->release = NULL;
    consumer->private_data = NULL;

    rmq_walk_finish(&stream->walk);
    rmq_arrow_stream_release(stream);
    if (released)
        released(context);
}

void rmq_arrow_stream_export(struct rmq_arrow_stream *stream, struct ArrowArrayStream *out)
{
    assert(!stream->is_exported);
    assert(out);

    stream->is_exported = true;
    atomic_fetch_add(&stream->references, 1);

    *out = (struct ArrowArrayStream){
        .get_schema = get_schema,
        .get_next = get_next,
        .get_last_error = get_last_error,
        .release = release,
        .private_data = stream,
    };
}
