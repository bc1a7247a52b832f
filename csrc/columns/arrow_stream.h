/* arrow_stream.h -- records of a store as a stream of Arrow batches.
 *
 * Two walks: over the commit log between two physical offsets, and over one queue between two queue
 * offsets. Both end where the store ended when the stream was opened. Each step builds one batch
 * (columns.h) in the caller's thread.
 *
 * A stream is shared by its consumer, through struct ArrowArrayStream, and by the caller that
 * opened it, which may read its counts. Each holds a reference. A stream pins only the mapped file
 * that it is reading. Steps go through the store's gate; after the store was closed they return
 * EINVAL, with the reason in get_last_error. One thread at a time may step a stream.
 */
#ifndef RMQ_ARROW_STREAM_H
#define RMQ_ARROW_STREAM_H

#include "base/gate.h"
#include "columns/arrow_abi.h"
#include "columns/columns.h"
#include "store/store.h"

struct rmq_arrow_options {
    struct rmq_store *store;
    struct rmq_gate *gate;
    struct rmq_columns_options columns;
    bool by_queue;                /* walk the queue of topic and queue_id; else the commit log */
    struct rmq_slice topic;       /* NULL data: every topic; a queue needs one */
    int32_t queue_id;             /* -1: every queue of the topic; a queue needs one */
    const struct rmq_slice *tags; /* rows with one of these tags; none: all rows */
    size_t tag_count;
    int64_t start;    /* queue or physical offset of the first record; deleted ones are skipped */
    int64_t stop;     /* records at or after it are left out */
    int64_t begin_ms; /* store timestamps in [begin_ms, end_ms) */
    int64_t end_ms;
    bool unwrap; /* one row per message of an inner batch; tags and queue offsets are then those of
                    each message */
    bool check_crc;    /* body and property CRC; a record that fails is corrupt */
    bool skip_corrupt; /* skip and count corrupt places; otherwise they end the stream with an error
                        */
    /* Called once, from any thread, when the consumer releases the stream. May be NULL. */
    void (*released)(void *context);
    void *context;
};

/* What a stream has skipped so far. */
struct rmq_arrow_counts {
    int64_t rows;          /* rows returned */
    int64_t skipped;       /* corrupt places; units with a queue */
    int64_t skipped_bytes; /* bytes of the corrupt places; 0 with a queue */
    int64_t expired; /* offsets from start on whose records were deleted: bytes, or messages of a
                        queue */
};

struct rmq_arrow_stream;

/* Tags and topic are copied. *stream is the caller's reference. RMQ_INVALID: an option;
 * RMQ_NOT_FOUND: no such queue; RMQ_CLOSED, RMQ_FORKED, RMQ_NO_MEMORY. */
int rmq_arrow_stream_open(const struct rmq_arrow_options *options, struct rmq_arrow_stream **stream,
                          struct rmq_error *err);
void rmq_arrow_stream_release(struct rmq_arrow_stream *stream);
/* Gives the consumer its reference. Once per stream. */
void rmq_arrow_stream_export(struct rmq_arrow_stream *stream, struct ArrowArrayStream *out);
void rmq_arrow_stream_counts(const struct rmq_arrow_stream *stream,
                             struct rmq_arrow_counts *counts);

#endif
