#include "arrow_stream.h"

#include <assert.h>
#include <errno.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>

#include "arrow_export.h"
#include "walk.h"

struct rmq_arrow_stream {
    _Atomic uint32_t references;
    struct rmq_gate *gate;
    struct rmq_columns columns;
    struct rmq_walk walk;
    _Atomic int64_t rows;
    bool is_over;
    bool is_exported;
    struct rmq_error error; /* status RMQ_OK until the stream failed; then every step answers it */
    void (*released)(void *context);
    void *context;
    struct rmq_slice *tags; /* slices into text */
    char *text;             /* copies of topic and tags */
};

/* ---- life ---- */

static struct rmq_slice copy_slice(char **to, struct rmq_slice from)
{
    struct rmq_slice copy = {from.data ? *to : NULL, from.size};
    if (from.size > 0)
        memcpy(*to, from.data, from.size);
    *to += from.size;
    return copy;
}

static int copy_text(struct rmq_arrow_stream *stream, const struct rmq_arrow_options *options,
                     struct rmq_walk_options *walk, struct rmq_error *err)
{
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

static int begin(struct rmq_arrow_stream *stream, const struct rmq_arrow_options *options,
                 struct rmq_error *err)
{
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
    free(stream->tags);
    free(stream->text);
    free(stream);
}

void rmq_arrow_stream_counts(const struct rmq_arrow_stream *stream, struct rmq_arrow_counts *counts)
{
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

/* What was just copied may have been cut meanwhile, by this process or another. There is no taking
 * back single rows, so the whole batch goes. */
static int check_unchanged(struct rmq_arrow_stream *stream, size_t taken, struct rmq_error *err)
{
    atomic_thread_fence(memory_order_acquire);
    if (!stream->walk.store->read_only && !atomic_load(&stream->walk.store->was_cut))
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

/* Rows until the batch is full (RMQ_OK), or the walk is over (RMQ_END) or failed; there may be rows
 * in each case. */
static int fill(struct rmq_arrow_stream *stream, struct rmq_error *err)
{
    struct rmq_columns *columns = &stream->columns;
    bool has_bodies = columns->chosen & (1u << RMQ_COLUMN_BODY | 1u << RMQ_COLUMN_RECORD);
    while (!rmq_columns_is_full(columns)) {
        if (rmq_gate_is_closed(stream->gate))
            return rmq_fail(err, RMQ_CLOSED, -1,
                            "the store was closed while its records were being read");
        int64_t room = columns->max_rows - columns->rows;
        size_t taken = 0;
        int status =
            rmq_walk_next(&stream->walk, room < RMQ_WALK_PORTION ? (size_t)room : RMQ_WALK_PORTION,
                          has_bodies ? columns->max_bytes - columns->bytes : INT64_MAX, err);
        if (status == RMQ_OK)
            status =
                rmq_columns_append(columns, stream->walk.records, stream->walk.count, &taken, err);
        if (status == RMQ_OK)
            status = check_unchanged(stream, taken, err);
        if (status != RMQ_OK)
            return status;
        if (taken < stream->walk.count) {
            rmq_walk_back(&stream->walk, taken);
            return RMQ_OK;
        }
    }
    return RMQ_OK;
}

static int step(struct rmq_arrow_stream *stream, struct ArrowArray *out)
{
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
    /* A record that cannot be read ends the stream, but not before the rows ahead of it are out. */
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
    memset(out, 0, sizeof *out);
    int status = step(stream, out);
    if (stream->is_over || stream->error.status != RMQ_OK)
        rmq_walk_finish(&stream->walk);
    return errno_of(status);
}

static int get_schema(struct ArrowArrayStream *consumer, struct ArrowSchema *out)
{
    struct rmq_arrow_stream *stream = consumer->private_data;
    memset(out, 0, sizeof *out);
    /* Whoever asks get_last_error why is told. */
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
