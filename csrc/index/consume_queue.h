/* consume_queue.h -- fixed-size units that point into the commit log, one queue of one topic.
 *
 *   at  size  field            (integers are big-endian)
 *   0   8     physical offset of the record
 *   8   4     record size in bytes
 *   12  8     tags code, deliver time, or address in the extension
 *
 * Source: ConsumeQueue of RocketMQ 5.3.3. Unit n is at byte n * RMQ_UNIT_SIZE, so a lookup never
 * searches. Units before the first one of a queue that does not begin at 0 are fill units {0,
 * 0x7FFFFFFF, 0}. One writer (the dispatcher, or recovery before it starts), any number of readers.
 */
#ifndef RMQ_CONSUME_QUEUE_H
#define RMQ_CONSUME_QUEUE_H

#include "index/unit_array.h"

#define RMQ_UNIT_SIZE 20
#define RMQ_CONSUME_QUEUE_GAP_MAX (16LL << 20)

struct rmq_consume_queue {
    struct rmq_file_queue files;
    _Atomic int64_t min_offset;   /* first queue offset whose record is kept */
    _Atomic int64_t max_offset;   /* next queue offset to be written */
    _Atomic int64_t physical_end; /* end of the last indexed record; -1 when empty */
    bool is_rewound;              /* the files may still hold units after max */
    int64_t stale_end;            /* number after the last of these units */
    int64_t same_end;          /* after the units that rmq_consume_queue_recognise found; 0: none */
    int64_t same_physical_end; /* end of the record of the last of these units */
};

/* file_size is rounded up to whole units and is at most INT32_MAX, as in RocketMQ. min and max are
 * the bounds of the files until rmq_consume_queue_recover corrects them. unsynced, budget: see
 * rmq_file_queue_options. */
int rmq_consume_queue_open(struct rmq_consume_queue *queue, struct rmq_vfs *vfs,
                           const char *directory, int64_t file_size, bool read_only,
                           struct rmq_unsynced_folders *unsynced, struct rmq_map_budget *budget,
                           struct rmq_error *err);
void rmq_consume_queue_close(struct rmq_consume_queue *queue);

/* Finds the end of the queue: after the last unit, counted from the first, with size > 0 and a
 * physical offset in [0, log_end). Callers pass as log_end an offset below which the queue is
 * complete. Units are ordered by physical offset, so a binary search over files and units finds the
 * end. Units after the end are cut unless the queue is read-only. Fill units count as written, but
 * fill units after the last real unit are cut too. min_offset becomes the first unit that is not a
 * fill unit. */
int rmq_consume_queue_recover(struct rmq_consume_queue *queue, int64_t log_end,
                              struct rmq_error *err);

/* As rmq_consume_queue_recover, but leaves the units after the end in the files. A caller that
 * appends the same units again then stores nothing, and has nothing to write to the device.
 * rmq_consume_queue_truncate must follow; it cuts the units that were not appended again. */
int rmq_consume_queue_rewind(struct rmq_consume_queue *queue, int64_t log_end,
                             struct rmq_error *err);

/* For a rewound queue: whether appending the unit, after all recognised units, would store what the
 * files hold already. Changes no file. */
bool rmq_consume_queue_recognise(struct rmq_consume_queue *queue, int64_t queue_offset,
                                 int64_t physical_offset, int32_t size, int64_t tags_code);
/* Appends every recognised unit. The files hold these units already; the next flush flushes
 * them. */
int rmq_consume_queue_keep(struct rmq_consume_queue *queue, struct rmq_error *err);

/* Writes the unit of queue_offset. If it is stored already (queue_offset < max_offset): RMQ_OK, and
 * nothing changes. The first unit of an empty queue starts it at queue_offset, after fill units
 * from the beginning of its file. A gap (queue_offset > max_offset of a queue with units) is filled
 * with fill units, so that each unit stays at its own position. RMQ_CORRUPT: a gap of more than
 * RMQ_CONSUME_QUEUE_GAP_MAX units. If all units of the queue are expired and queue_offset belongs
 * to a later file, the queue starts again there instead. */
int rmq_consume_queue_append(struct rmq_consume_queue *queue, int64_t queue_offset,
                             int64_t physical_offset, int32_t size, int64_t tags_code,
                             struct rmq_error *err);

/* Drops units of records that begin at or after log_end. A queue that has no unit left keeps its
 * position if its first file does not start at 0: max_offset is then that of the first dropped
 * unit, also after a restart. */
int rmq_consume_queue_truncate(struct rmq_consume_queue *queue, int64_t log_end,
                               struct rmq_error *err);

/* Removes every unit and file: the next unit begins the queue again. */
int rmq_consume_queue_clear(struct rmq_consume_queue *queue, struct rmq_error *err);

/* Moves min_offset to the first unit at or after log_start. Unlinks files that end before that
 * unit, but never the last file. When no unit is left, min becomes max. */
int rmq_consume_queue_expire(struct rmq_consume_queue *queue, int64_t log_start,
                             struct rmq_error *err);

/* Copies up to capacity units from queue_offset on; *count is 0 for a queue_offset at or after
 * max_offset, or before the first file. */
int rmq_consume_queue_read(struct rmq_consume_queue *queue, int64_t queue_offset,
                           struct rmq_unit *units, size_t capacity, size_t *count,
                           struct rmq_error *err);

/* As rmq_unit_read. from and upto are unit numbers between the first file and max. */
int rmq_consume_queue_units(struct rmq_consume_queue *queue, int64_t from, int64_t upto,
                            struct rmq_unit *units, size_t *count, struct rmq_error *err);
/* Number of the first unit that the files can hold. */
int64_t rmq_consume_queue_first(const struct rmq_consume_queue *queue);
/* Ends a read-only queue after unit end - 1, which must exist, or empties it. Changes no bytes. */
int rmq_consume_queue_end_at(struct rmq_consume_queue *queue, int64_t end, struct rmq_error *err);

int rmq_consume_queue_flush(struct rmq_consume_queue *queue, struct rmq_error *err);

static inline int64_t rmq_consume_queue_min(const struct rmq_consume_queue *queue)
{
    return atomic_load_explicit(&queue->min_offset, memory_order_acquire);
}
static inline int64_t rmq_consume_queue_max(const struct rmq_consume_queue *queue)
{
    return atomic_load_explicit(&queue->max_offset, memory_order_acquire);
}

#endif
