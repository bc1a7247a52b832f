/* timer_log.h -- the units of messages that wait for their time, in the order of their messages.
 *
 * A series of mapped files in timerlog/. Units of one slot of the wheel form a chain by their field
 * `previous`. A unit is stored whole before the end moves past it. Recovery ends the log at the
 * first unit that is not whole. Source: TimerLog, TimerMessageStore of RocketMQ 5.3.3.
 *
 *   at  size  field
 *   0   4     size of the unit, 52
 *   4   8     position of the previous unit of the slot, -1 without one
 *   12  4     magic, bits of rmq_timer_magic
 *   16  8     time of the wheel when the unit was made, in ms
 *   24  4     time of the unit's slot less the field before, in ms
 *   28  8     physical offset of the message
 *   36  4     size of the message
 *   40  4     Java's hash of the message's real topic
 *   44  8     0
 *
 * A blank unit fills the rest of a file: int32 length of the rest, int64 0, int32 blank magic.
 */
#ifndef RMQ_TIMER_LOG_H
#define RMQ_TIMER_LOG_H

#include "file/file_queue.h"

#define RMQ_TIMER_UNIT_SIZE 52
#define RMQ_TIMER_BLANK_SIZE 16

enum rmq_timer_magic {
    RMQ_TIMER_DEFAULT = 1, /* always set */
    RMQ_TIMER_ROLL = 2,    /* the message goes into the wheel again */
    RMQ_TIMER_DELETE = 4,  /* the message removes another one */
};

struct rmq_timer_unit {
    int64_t position; /* in the log; not stored */
    int64_t previous;
    int64_t write_ms;
    int64_t physical_offset;
    int32_t delay_ms;
    int32_t magic;
    int32_t size;
    int32_t topic_hash;
};

struct rmq_timer_log {
    struct rmq_file_queue files;
};

/* Loads the existing files; where the units end is not known until rmq_timer_log_end_at. */
int rmq_timer_log_open(struct rmq_timer_log *log, struct rmq_vfs *vfs, const char *directory,
                       int64_t file_size, struct rmq_error *err);
void rmq_timer_log_close(struct rmq_timer_log *log);

/* Reads the unit at position. RMQ_NOT_FOUND: there is no whole unit. */
int rmq_timer_log_read(struct rmq_timer_log *log, int64_t position, struct rmq_timer_unit *unit,
                       struct rmq_error *err);
/* Reads the first unit at or after *position, past blanks. RMQ_END: there is none; *position is the
 * end of the units. */
int rmq_timer_log_next(struct rmq_timer_log *log, int64_t *position, struct rmq_timer_unit *unit,
                       struct rmq_error *err);
/* Ends the log at position permanently. */
int rmq_timer_log_end_at(struct rmq_timer_log *log, int64_t position, struct rmq_error *err);

/* Appends a unit and sets its position. After a failure the log is as before. */
int rmq_timer_log_append(struct rmq_timer_log *log, struct rmq_timer_unit *unit,
                         struct rmq_error *err);
int rmq_timer_log_flush(struct rmq_timer_log *log, struct rmq_error *err);
/* Removes the files whose last message is before physical_offset, but never the last file. */
int rmq_timer_log_delete_before(struct rmq_timer_log *log, int64_t physical_offset,
                                struct rmq_error *err);

#endif
