/* segment.h -- the records of one commit log file, decoded from pieces of its bytes.
 *
 * Nothing is mapped and no store is open: the caller passes pieces of the file, in ascending order,
 * each of any length, and gets rows of columns (columns.h) or sums (summary.h). The result does not
 * depend on how the file was cut into pieces.
 *
 * One row per message: a record with an inner batch gives one row for each of its messages
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
    int64_t stop;         /* records that begin at or after it are not read; at least start */
    int64_t file_end;     /* no record reaches past it; at least start */
    bool check_crc;       /* body and property CRC; a record that fails is corrupt */
    bool unwrap;          /* else one row per record */
    bool dispatched_only; /* leave out prepared and rollback records */
    bool by_topic;    /* return TOPIC for each topic that is not decided; otherwise all topics are
                         wanted */
    int64_t begin_ms; /* store timestamps in [begin_ms, end_ms) */
    int64_t end_ms;
    const struct rmq_slice *tags; /* messages with one of these tags; none: all. The caller's */
    size_t tag_count;
    const struct rmq_message_filter *filter; /* NULL: all. The caller's, as are its lists */
    bool sums_by_tag;                        /* one sum for each tag of a queue */
};

enum rmq_segment_state {
    RMQ_SEGMENT_FULL,    /* the batch is full: take it */
    RMQ_SEGMENT_MORE,    /* feed bytes from offset on, `needed` of them at least */
    RMQ_SEGMENT_TOPIC,   /* decide about `topic`, in segment->topics */
    RMQ_SEGMENT_CORRUPT, /* no record at offset: see error; continue with resync, or stop */
    RMQ_SEGMENT_OVER,    /* see ending */
    RMQ_SEGMENT_FOUND,   /* of resync: there is something to read at offset */
};

enum rmq_segment_ending {
    RMQ_ENDING_NONE,
    RMQ_ENDING_STOP,      /* offset reached stop, or passed the last position */
    RMQ_ENDING_BLANK,     /* the rest of the file is blank, or the file ends here */
    RMQ_ENDING_UNWRITTEN, /* zeros at offset: no record was written there */
};

/* Position of a message, so that reading can return to it. */
struct rmq_segment_origin {
    int64_t offset;
    struct rmq_inner_walk inner; /* position before the message */
    bool is_inside;              /* of an inner batch */
    bool is_first;               /* whether a message of its record was wanted */
};

struct rmq_segment {
    struct rmq_segment_options options;
    struct rmq_columns columns; /* open when has_columns */
    bool has_columns;
    struct rmq_topic_filter topics;
    struct rmq_summary summary;

    const uint8_t *data; /* bytes that were fed */
    int64_t data_start;  /* physical offset of data[0] */
    int64_t data_end;

    const uint8_t *positions; /* int64_t each, any alignment; the caller's */
    size_t position_count;
    size_t position; /* index of the next position */
    bool has_positions;

    int64_t offset; /* of the current record, or of the next one */
    int64_t needed;
    struct rmq_inner_walk inner; /* in the inner batch at offset, when is_inside */
    bool is_inside;
    bool has_outer;  /* outer is that inner batch */
    bool is_counted; /* an earlier message of it was wanted */
    struct rmq_record outer;
    const struct rmq_queue_range *ranges; /* of the queue of the record at offset, by_topic */
    size_t range_count;
    bool is_lost; /* resync searches for a record, from offset on */
    struct rmq_slice topic;
    enum rmq_segment_ending ending;
    struct rmq_error error; /* of the corrupt place; status RMQ_OK when there is none */
    int32_t bad_size;       /* size of a corrupt record whose form is valid, else 0 */
    int64_t records;        /* records with a wanted message */
    int64_t bytes;          /* of these records */

    struct rmq_record rows[RMQ_SEGMENT_PORTION]; /* to be added to the batch */
    struct rmq_segment_origin origins[RMQ_SEGMENT_PORTION];
};

/* columns may be NULL for a segment that is only summed up. Tags and filter must outlive the
 * segment. RMQ_INVALID, RMQ_NO_MEMORY; call rmq_segment_close in every case. */
int rmq_segment_open(struct rmq_segment *segment, const struct rmq_segment_options *options,
                     const struct rmq_columns_options *columns, struct rmq_error *err);
void rmq_segment_close(struct rmq_segment *segment);

/* Reads only the records at these physical offsets. A record must begin at each. The bytes are the
 * caller's and must outlive the segment. Positions before offset are left out. RMQ_CORRUPT: the
 * positions do not ascend. */
int rmq_segment_visit(struct rmq_segment *segment, const uint8_t *positions, size_t count,
                      struct rmq_error *err);

/* The bytes of the file from physical offset `at` on; they must contain segment->offset, or end
 * there. RMQ_INVALID: neither holds. */
int rmq_segment_feed(struct rmq_segment *segment, const uint8_t *data, size_t size, int64_t at,
                     struct rmq_error *err);

/* Adds rows to the batch until the caller has to act. RMQ_NO_MEMORY: only rmq_segment_close may
 * follow. */
int rmq_segment_fill(struct rmq_segment *segment, enum rmq_segment_state *state,
                     struct rmq_error *err);
/* Adds the same messages to the summary; never FULL. RMQ_NO_MEMORY as above. */
int rmq_segment_summarize(struct rmq_segment *segment, enum rmq_segment_state *state,
                          struct rmq_error *err);
/* After CORRUPT, or OVER with zeros at offset: passes a record whose form is right, or searches for
 * the next record that matches its CRCs and its own physical offset. Returns FOUND, MORE (feed,
 * then call again) or OVER. With positions it continues at the next position. */
enum rmq_segment_state rmq_segment_resync(struct rmq_segment *segment);
/* Whether resync can continue. */
bool rmq_segment_can_resync(const struct rmq_segment *segment);

#endif
