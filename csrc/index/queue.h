/* queue.h -- a queue of either form, with its extension: the verbs that recovery, the dispatcher
 * and readers have for both.
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
    /* Offset the next message gets; moved under the put lock, raised by the dispatcher. */
    _Atomic int64_t next_offset;
    /* Queue offset after the last unit that rmq_queue_survey has seen; 0: none. */
    int64_t surveyed_end;
    /* Of a deleted topic (removed_queues.h): where the numbers of a queue without units go on, and
     * the log offset before which records are not entered; 0: not removed. */
    _Atomic int64_t removed_next;
    int64_t removed_until;
    int64_t removed_before; /* removed_until as it was before a removal that may fail */
    /* By queue_ends.h: byte offset of the first file, and queue offset after the last unit, when
     * the store was closed; 0: not known. */
    int64_t kept_start, kept_end;
    /* The log has records of units before the first one: recovery clears the queue and enters them
     * all. */
    bool is_incomplete;
    /* Files are open; set with release order once, by the dispatcher or at load. */
    _Atomic bool is_open;
    bool has_ext;
    struct rmq_consume_queue simple;
    struct rmq_batch_consume_queue batch;
    struct rmq_consume_queue_ext ext;
    _Atomic(struct rmq_queue *) chain; /* same bucket */
    _Atomic(struct rmq_queue *) older; /* all queues, newest first */
};

/* The verbs of both queue forms. Offsets are queue offsets, log_end and log_start physical ones. */
/* Finds where a read-only queue ends. */
int rmq_queue_recover(struct rmq_queue *queue, int64_t log_end, struct rmq_error *err);
/* Moves the end back to what the files hold of records before log_end. Changes no file;
 * rmq_queue_truncate must follow. RMQ_CORRUPT: the last unit with an address in the extension leads
 * to no unit there, and its record does not lie before log_start. */
int rmq_queue_rewind(struct rmq_queue *queue, int64_t log_start, int64_t log_end,
                     struct rmq_error *err);
/* Whether rmq_queue_append would take the unit after all units surveyed before: RMQ_OK, or
 * RMQ_CORRUPT for a gap that is too large. *has_gap: there is one. Changes no file. */
int rmq_queue_survey(struct rmq_queue *queue, const struct rmq_unit *unit, bool *has_gap,
                     struct rmq_error *err);
/* Whether units before the first one may be missing: its record does not begin the log, and nothing
 * shows that the queue began there. Looks at the files only. */
int rmq_queue_may_lack_start(struct rmq_queue *queue, int64_t log_start, bool *may_lack,
                             struct rmq_error *err);
/* Whether the files of a rewound queue hold less than when the store was closed. */
bool rmq_queue_is_short(struct rmq_queue *queue);
/* Whether the queue begins after the unit, which the log has. */
bool rmq_queue_begins_after(struct rmq_queue *queue, const struct rmq_unit *unit);
/* Whether the files hold the unit already, so that rmq_queue_keep takes it; false also where that
 * is not looked into: batch queues, and codes in an extension. */
bool rmq_queue_recognise(struct rmq_queue *queue, const struct rmq_unit *unit);
/* As rmq_queue_append of every unit that was recognised since rmq_queue_rewind. */
int rmq_queue_keep(struct rmq_queue *queue, int64_t offset, struct rmq_error *err);
/* unit->tags_code is the code itself; with an extension its address is what the queue stores,
 * except for a unit that came by INNER_MULTI_DISPATCH (is_light). */
int rmq_queue_append(struct rmq_queue *queue, const struct rmq_unit *unit, bool is_light,
                     struct rmq_error *err);
int rmq_queue_truncate(struct rmq_queue *queue, int64_t log_start, int64_t log_end,
                       struct rmq_error *err);
/* Removes every unit; next_offset stays. */
int rmq_queue_clear(struct rmq_queue *queue, struct rmq_error *err);
int rmq_queue_expire(struct rmq_queue *queue, int64_t log_start, struct rmq_error *err);
int rmq_queue_read(struct rmq_queue *queue, int64_t queue_offset, struct rmq_unit *units,
                   size_t capacity, size_t *count, struct rmq_error *err);
/* Units as they lie in the files, by number: those of a simple queue by queue offset, with
 * addresses in an extension as they are; those of a batch queue by place. */
void rmq_queue_numbers(struct rmq_queue *queue, int64_t *first, int64_t *end);
int rmq_queue_units(struct rmq_queue *queue, int64_t from, int64_t upto, struct rmq_unit *units,
                    size_t *count, struct rmq_error *err);
/* Ends a read-only queue before the unit of that number. */
int rmq_queue_end_at(struct rmq_queue *queue, int64_t end, struct rmq_error *err);
int rmq_queue_flush(struct rmq_queue *queue, struct rmq_error *err);
/* See rmq_file_queue_start_flush. */
void rmq_queue_start_flush(struct rmq_queue *queue);
/* Byte offset of the first file; 0 without one. */
int64_t rmq_queue_file_start(struct rmq_queue *queue);
/* Bytes written and not flushed. */
int64_t rmq_queue_dirty(struct rmq_queue *queue);
/* Of a queue without units 0, or where the queue was when its topic was deleted. */
int64_t rmq_queue_min(struct rmq_queue *queue);
int64_t rmq_queue_max(struct rmq_queue *queue);
/* End of the last record indexed; -1 for an empty queue. */
int64_t rmq_queue_physical_end(struct rmq_queue *queue);

#endif
