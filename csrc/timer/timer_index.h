/* timer_index.h -- timer log and wheel together: which messages wait for which time.
 *
 * All of it is made from the commit log. So the wheel is made again from the timer log at each
 * opening, and a part of the timer log that may belong to another commit log is removed. Calls may
 * come from several threads, one at a time works.
 */
#ifndef RMQ_TIMER_INDEX_H
#define RMQ_TIMER_INDEX_H

#include <pthread.h>

#include "timer/timer_log.h"
#include "timer/timer_wheel.h"

struct rmq_timer_index {
    struct rmq_timer_log log;
    struct rmq_timer_wheel wheel;
    int64_t precision_ms;
    int64_t last_offset; /* physical offset of the last unit's message, -1 without units */
    pthread_mutex_t lock;
};

struct rmq_timer_index_options {
    struct rmq_vfs *vfs;
    const char *log_directory;
    const char *wheel_path;
    int64_t file_size;
    int64_t precision_ms;
    int64_t bound; /* units of messages at or past this physical offset are removed */
};

/* Removes the files of a timer log, whatever their sizes. */
int rmq_timer_index_clear(const struct rmq_timer_index_options *options, struct rmq_error *err);
int rmq_timer_index_open(struct rmq_timer_index *index,
                         const struct rmq_timer_index_options *options, struct rmq_error *err);
/* Does not flush. */
void rmq_timer_index_close(struct rmq_timer_index *index);

/* Appends a unit to the slot of due_ms. Sets its position, previous and delay_ms. */
int rmq_timer_index_add(struct rmq_timer_index *index, int64_t due_ms, struct rmq_timer_unit *unit,
                        struct rmq_error *err);
/* The units of a slot from the newest back, at most capacity. Begins at *from, or at the last unit
 * of the slot where *from is -2. On return *from is where the next call begins, -1 at the end. A
 * part of the chain that was removed with its files ends it. */
int rmq_timer_index_units(struct rmq_timer_index *index, int64_t due_ms, int64_t *from,
                          struct rmq_timer_unit *units, size_t capacity, size_t *count,
                          struct rmq_error *err);
/* The first slot in [from_ms, upto_ms) with units, upto_ms without one. */
int64_t rmq_timer_index_next(struct rmq_timer_index *index, int64_t from_ms, int64_t upto_ms);
/* Messages less deletions in the slot of a time. */
int32_t rmq_timer_index_slot_count(struct rmq_timer_index *index, int64_t due_ms);
/* Messages less deletions in slots from from_ms on. */
int64_t rmq_timer_index_count(struct rmq_timer_index *index, int64_t from_ms);
/* On return log and wheel are on the device, the log first. */
int rmq_timer_index_flush(struct rmq_timer_index *index, struct rmq_error *err);
/* As rmq_timer_log_delete_before. */
int rmq_timer_index_delete_before(struct rmq_timer_index *index, int64_t physical_offset,
                                  struct rmq_error *err);

#endif
