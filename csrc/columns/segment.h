/* segment.h -- the records of one commit log file, out of its bytes as they come.
 *
 * Nothing is mapped and no store is open: the caller hands over pieces of the file, in ascending
 * order, each as long as it likes, and gets rows of columns (columns.h) or sums (summary.h). What
 * comes out does not depend on how the file was cut into pieces.
 *
 * One row per message: a record with an inner batch is as many rows as it has messages
 * (inner_batch.h). A record belongs to the reader of the range it begins in.
 *
 * The caller owns the bytes fed and keeps them until the next feed. One thread at a time.
 */
#ifndef RMQ_SEGMENT_H
#define RMQ_SEGMENT_H

#include "columns/columns.h"
#include "columns/message_filter.h"
#include "columns/summary.h"
#include "columns/topic_filter.h"
#include "format/inner_batch.h"
#include "format/record.h"

#define RMQ_SEGMENT_PORTION 128

struct rmq_segment_options {
    int64_t start;        /* physical offset of the first record, at least 0 */
    int64_t stop;         /* records that begin at or behind it are not read; at least start */
    int64_t file_end;     /* no record reaches behind it; at least start */
    bool check_crc;       /* body and property CRC; a record that fails is corrupt */
    bool unwrap;          /* else one row per record */
    bool dispatched_only; /* leave out prepared and rollback records */
    bool by_topic;        /* ask about each topic; else all are wanted */
    int64_t begin_ms;     /* store timestamps in [begin_ms, end_ms) */
    int64_t end_ms;
    const struct rmq_slice *tags; /* messages with one of these tags; none: all. The caller's */
    size_t tag_count;
    const struct rmq_message_filter *filter; /* NULL: all. The caller's, as are its lists */
    bool sums_by_tag;                        /* a sum for each tag of a queue, too */
};

enum rmq_segment_state {
    RMQ_SEGMENT_FULL,    /* the batch is: take it */
    RMQ_SEGMENT_MORE,    /* feed bytes from offset on, `needed` of them at least */
    RMQ_SEGMENT_TOPIC,   /* decide about `topic`, in segment->topics */
    RMQ_SEGMENT_CORRUPT, /* no record at offset: see error; go on with resync, or not at all */
    RMQ_SEGMENT_OVER,    /* see ending */
    RMQ_SEGMENT_FOUND,   /* of resync: there is something to read at offset */
};

enum rmq_segment_ending {
    RMQ_ENDING_NONE,
    RMQ_ENDING_STOP,      /* came to stop, or behind the last position */
    RMQ_ENDING_BLANK,     /* the rest of the file is blank, or there is no rest */
    RMQ_ENDING_UNWRITTEN, /* zeros at offset: nothing was written there */
};

/* Where a message was found, so that reading can go back to it. */
struct rmq_segment_origin {
    int64_t offset;
    struct rmq_inner_walk inner; /* before the message */
    bool is_inside;              /* of an inner batch */
    bool is_first;               /* wanted one of its record */
};

struct rmq_segment {
    struct rmq_segment_options options;
    struct rmq_columns columns; /* open when has_columns */
    bool has_columns;
    struct rmq_topic_filter topics;
    struct rmq_summary summary;

    const uint8_t *data; /* fed */
    int64_t data_start;  /* physical offset of data[0] */
    int64_t data_end;

    const uint8_t *positions; /* int64_t each, any alignment; the caller's */
    size_t position_count;
    size_t position; /* index of the next one */
    bool has_positions;

    int64_t offset; /* of the record that is read, or of the next one */
    int64_t needed;
    struct rmq_inner_walk inner; /* in the inner batch at offset, when is_inside */
    bool is_inside;
    bool has_outer;  /* outer is that inner batch */
    bool is_counted; /* a message of it was wanted before */
    struct rmq_record outer;
    const struct rmq_queue_range *ranges; /* of the queue of the record at offset, by_topic */
    size_t range_count;
    bool is_lost; /* resync looks for a record, from offset on */
    struct rmq_slice topic;
    enum rmq_segment_ending ending;
    struct rmq_error error; /* of the corrupt place; status RMQ_OK where there is none */
    int32_t bad_size;       /* of a corrupt record whose form is right, else 0 */
    int64_t records;        /* with a wanted message */
    int64_t bytes;          /* of these records */

    struct rmq_record rows[RMQ_SEGMENT_PORTION]; /* on their way into the batch */
    struct rmq_segment_origin origins[RMQ_SEGMENT_PORTION];
};

/* columns may be NULL for a segment that is only summed up. Tags and filter must stay.
 * RMQ_INVALID, RMQ_NO_MEMORY; rmq_segment_close is due in every case. */
int rmq_segment_open(struct rmq_segment *segment, const struct rmq_segment_options *options,
                     const struct rmq_columns_options *columns, struct rmq_error *err);
void rmq_segment_close(struct rmq_segment *segment);

/* Only the records at these physical offsets are read, each of which must be one; the bytes stay
 * the caller's and must stay. Those before offset are left out. RMQ_CORRUPT: they do not ascend. */
int rmq_segment_visit(struct rmq_segment *segment, const uint8_t *positions, size_t count,
                      struct rmq_error *err);

/* The bytes of the file from physical offset `at` on; they must hold segment->offset, or end there.
 * RMQ_INVALID: they do not. */
int rmq_segment_feed(struct rmq_segment *segment, const uint8_t *data, size_t size, int64_t at,
                     struct rmq_error *err);

/* Rows into the batch, until there is something to do for the caller. RMQ_NO_MEMORY: only
 * rmq_segment_close may follow. */
int rmq_segment_fill(struct rmq_segment *segment, enum rmq_segment_state *state,
                     struct rmq_error *err);
/* The same messages into the summary; never FULL. RMQ_NO_MEMORY as above. */
int rmq_segment_summarize(struct rmq_segment *segment, enum rmq_segment_state *state,
                          struct rmq_error *err);
/* After CORRUPT, or OVER with zeros at offset: goes behind a record whose form is right, or looks
 * for the next place with a record that sums up and names its own place. FOUND, MORE (feed, then
 * call again) or OVER. With positions it goes to the next one. */
enum rmq_segment_state rmq_segment_resync(struct rmq_segment *segment);
/* Whether resync has anything to do. */
bool rmq_segment_can_resync(const struct rmq_segment *segment);

#endif
