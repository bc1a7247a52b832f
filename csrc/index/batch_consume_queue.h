/* batch_consume_queue.h -- units that each point at a record of several messages (topics with
 * queue.type=BatchCQ).
 *
 *   at  size  field
 *   0   8     physical offset of the record
 *   8   4     record size
 *   12  8     tags code
 *   20  8     store timestamp
 *   28  8     queue offset of the first message
 *   36  2     number of messages
 *   38  4     compacted offset, always -1
 *   42  4     reserved, 0
 *
 * Source: BatchConsumeQueue of RocketMQ 5.3.3. File offsets are bytes, not queue offsets: lookup is
 * a binary search over field 28. One writer, any number of readers.
 */
#ifndef RMQ_BATCH_CONSUME_QUEUE_H
#define RMQ_BATCH_CONSUME_QUEUE_H

#include "index/consume_queue.h"

#define RMQ_BATCH_UNIT_SIZE 46
_Static_assert(RMQ_BATCH_UNIT_SIZE == 8 + 4 + 8 + 8 + 8 + 2 + 4 + 4, "batch unit layout");

struct rmq_batch_consume_queue {
    struct rmq_file_queue files;
    _Atomic int64_t
        min_offset; /* queue offset of the first message kept; -1 when the queue is empty */
    _Atomic int64_t max_offset; /* after the last message; 0 when empty */
    _Atomic int64_t physical_end;
    bool is_rewound; /* the files may still hold units after the end */
};

/* These functions have the meaning of those in consume_queue.h. file_size is not rounded. */
int rmq_batch_consume_queue_open(struct rmq_batch_consume_queue *queue, struct rmq_vfs *vfs,
                                 const char *directory, int64_t file_size, bool read_only,
                                 struct rmq_unsynced_folders *unsynced,
                                 struct rmq_map_budget *budget, struct rmq_error *err);
void rmq_batch_consume_queue_close(struct rmq_batch_consume_queue *queue);
int rmq_batch_consume_queue_recover(struct rmq_batch_consume_queue *queue, int64_t log_end,
                                    struct rmq_error *err);
int rmq_batch_consume_queue_rewind(struct rmq_batch_consume_queue *queue, int64_t log_end,
                                   struct rmq_error *err);
/* A unit whose record ends at or before physical_end is stored already: RMQ_OK, and nothing
 * changes. unit->queue_offset is the base offset, batch_size at least 1. */
int rmq_batch_consume_queue_append(struct rmq_batch_consume_queue *queue,
                                   const struct rmq_unit *unit, struct rmq_error *err);
int rmq_batch_consume_queue_truncate(struct rmq_batch_consume_queue *queue, int64_t log_end,
                                     struct rmq_error *err);
/* Removes every unit and file. */
int rmq_batch_consume_queue_clear(struct rmq_batch_consume_queue *queue, struct rmq_error *err);
int rmq_batch_consume_queue_expire(struct rmq_batch_consume_queue *queue, int64_t log_start,
                                   struct rmq_error *err);
/* Reads units from the one that contains queue_offset on, while they are in order. RMQ_CORRUPT: the
 * first of them is invalid. */
int rmq_batch_consume_queue_read(struct rmq_batch_consume_queue *queue, int64_t queue_offset,
                                 struct rmq_unit *units, size_t capacity, size_t *count,
                                 struct rmq_error *err);
/* First message of the first valid unit after queue_offset, for a queue_offset that no unit
 * contains; max when there is no such unit. */
int64_t rmq_batch_consume_queue_next(struct rmq_batch_consume_queue *queue, int64_t queue_offset);
/* As the functions of the same names in consume_queue.h. Units are numbered by their position in
 * the files. */
int rmq_batch_consume_queue_units(struct rmq_batch_consume_queue *queue, int64_t from, int64_t upto,
                                  struct rmq_unit *units, size_t *count, struct rmq_error *err);
int64_t rmq_batch_consume_queue_first(const struct rmq_batch_consume_queue *queue);
int64_t rmq_batch_consume_queue_end(const struct rmq_batch_consume_queue *queue);
int rmq_batch_consume_queue_end_at(struct rmq_batch_consume_queue *queue, int64_t end,
                                   struct rmq_error *err);
int rmq_batch_consume_queue_flush(struct rmq_batch_consume_queue *queue, struct rmq_error *err);

#endif
