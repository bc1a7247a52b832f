/* queue.h -- a queue of either form, with its extension: the functions that recovery, the
 * dispatcher and readers use for both.
 */
#ifndef RMQ_QUEUE_H
#define RMQ_QUEUE_H

#include "index/batch_consume_queue.h"
#include "index/consume_queue.h"
#include "index/consume_queue_ext.h"

struct rmq_queue {
    char *topic; /* NUL-terminated copy */
    size_t topic_size;
    uint64_t hash;
    int32_t queue_id;
    bool is_batch;
    /* Queue offset of the next message. Moved under the put lock, raised by the dispatcher. */
    _Atomic int64_t next_offset;
    /* Queue offset after the last unit that rmq_queue_survey received; 0: none. */
    int64_t surveyed_end;
    /* For an entry of removed_queues.h: the queue offset at which a queue without units continues,
     * and the log offset before which records are not entered; 0: no entry. */
    _Atomic int64_t removed_next;
    int64_t removed_until;
    int64_t removed_before; /* removed_until before a removal that may still fail */
    /* From queue_ends.h: byte offset of the first file, and queue offset after the last unit, when
     * the store was closed; 0: unknown. */
    int64_t kept_start, kept_end;
    /* The log has records of units before the first unit: recovery clears the queue and enters all
     * of them. */
    bool is_incomplete;
    /* The files are open. Set once with release order, by the dispatcher or at load. */
    _Atomic bool is_open;
    bool has_ext;
    struct rmq_consume_queue simple;
    struct rmq_batch_consume_queue batch;
    struct rmq_consume_queue_ext ext;
    _Atomic(struct rmq_queue *) chain; /* same bucket */
    _Atomic(struct rmq_queue *) older; /* all queues, newest first */
};

/* The functions of both forms of queue. Offsets are queue offsets, log_end and log_start physical
 * ones. */
/* Finds the end of a read-only queue. */
int rmq_queue_recover(struct rmq_queue *queue, int64_t log_end, struct rmq_error *err);
/* Moves the end back so that only units of records before log_end remain. Changes no file;
 * rmq_queue_truncate must follow. RMQ_CORRUPT: the address in the last unit with one does not lead
 * to a unit of the extension, and the record is not before log_start. */
int rmq_queue_rewind(struct rmq_queue *queue, int64_t log_start, int64_t log_end,
                     struct rmq_error *err);
/* Whether rmq_queue_append would accept the unit after all units surveyed before: RMQ_OK, or
 * RMQ_CORRUPT for a gap that is too large. *has_gap: there is a gap. Changes no file. */
int rmq_queue_survey(struct rmq_queue *queue, const struct rmq_unit *unit, bool *has_gap,
                     struct rmq_error *err);
/* Whether units before the first one may be missing: its record does not begin the log, and the
 * files do not show that the queue began there. Reads only the files. */
int rmq_queue_may_lack_start(struct rmq_queue *queue, int64_t log_start, bool *may_lack,
                             struct rmq_error *err);
/* Whether the files of a rewound queue hold less than when the store was closed. */
bool rmq_queue_is_short(struct rmq_queue *queue);
/* Whether the queue begins after the unit, whose record is in the log. */
bool rmq_queue_begins_after(struct rmq_queue *queue, const struct rmq_unit *unit);
/* Whether the files hold the unit already, so that rmq_queue_keep appends it. False also where this
 * is not checked: for batch queues, and for codes in an extension. */
bool rmq_queue_recognise(struct rmq_queue *queue, const struct rmq_unit *unit);
/* Appends every unit that was recognised since rmq_queue_rewind. */
int rmq_queue_keep(struct rmq_queue *queue, int64_t offset, struct rmq_error *err);
/* unit->tags_code is the code itself. A queue with an extension stores the address of the code
 * instead, except in a unit that INNER_MULTI_DISPATCH caused (is_light). */
int rmq_queue_append(struct rmq_queue *queue, const struct rmq_unit *unit, bool is_light,
                     struct rmq_error *err);
int rmq_queue_truncate(struct rmq_queue *queue, int64_t log_start, int64_t log_end,
                       struct rmq_error *err);
/* Removes every unit; next_offset stays. */
int rmq_queue_clear(struct rmq_queue *queue, struct rmq_error *err);
int rmq_queue_expire(struct rmq_queue *queue, int64_t log_start, struct rmq_error *err);
int rmq_queue_read(struct rmq_queue *queue, int64_t queue_offset, struct rmq_unit *units,
                   size_t capacity, size_t *count, struct rmq_error *err);
/* Reads units as the files hold them, by number. The number in a simple queue is the queue offset;
 * addresses in an extension are returned unchanged. The number in a batch queue is the position. */
void rmq_queue_numbers(struct rmq_queue *queue, int64_t *first, int64_t *end);
int rmq_queue_units(struct rmq_queue *queue, int64_t from, int64_t upto, struct rmq_unit *units,
                    size_t *count, struct rmq_error *err);
/* Ends a read-only queue before the unit with that number. */
int rmq_queue_end_at(struct rmq_queue *queue, int64_t end, struct rmq_error *err);
int rmq_queue_flush(struct rmq_queue *queue, struct rmq_error *err);
/* See rmq_file_queue_start_flush. */
void rmq_queue_start_flush(struct rmq_queue *queue);
/* Byte offset of the first file; 0 when there is none. */
int64_t rmq_queue_file_start(struct rmq_queue *queue);
/* Bytes that were written but not flushed. */
int64_t rmq_queue_dirty(struct rmq_queue *queue);
/* Next queue offset of a queue without units: 0, or that of its entry in removed_queues.h. */
int64_t rmq_queue_min(struct rmq_queue *queue);
int64_t rmq_queue_max(struct rmq_queue *queue);
/* End of the last indexed record; -1 for an empty queue. */
int64_t rmq_queue_physical_end(struct rmq_queue *queue);

#endif
