/* timer_wheel.h -- by time, where the units of a slot begin and end in the timer log.
 *
 * The file timerwheel has 2 x 604800 slots, whatever the precision. A slot belongs to the time that
 * it names; one that names another time than the time looked for is empty. The slots are in memory.
 * Changed pages are copied to the file at a flush. Source: TimerWheel of RocketMQ 5.3.3.
 *
 *   at  size  field
 *   0   8     time, in units of the precision
 *   8   8     position of the first unit
 *   16  8     position of the last unit
 *   24  4     messages less deletions
 *   28  4     magic, 0
 */
#ifndef RMQ_TIMER_WHEEL_H
#define RMQ_TIMER_WHEEL_H

#include "base/vfs.h"

#define RMQ_TIMER_SLOTS (2 * 604800)
#define RMQ_TIMER_SLOT_SIZE 32
#define RMQ_TIMER_WHEEL_SIZE ((int64_t)RMQ_TIMER_SLOTS * RMQ_TIMER_SLOT_SIZE)

struct rmq_timer_slot {
    int64_t time;
    int64_t first;
    int64_t last;
    int32_t count;
    int32_t magic;
};

struct rmq_timer_wheel {
    struct rmq_vfs *vfs;
    int fd;
    uint8_t *slots;   /* as the file holds them */
    uint8_t *changed; /* by page of the file, whether it differs from the file */
};

/* Makes an empty wheel over the file at path, which is made where it is missing, and gets its size
 * where it has another one. */
int rmq_timer_wheel_open(struct rmq_timer_wheel *wheel, struct rmq_vfs *vfs, const char *path,
                         struct rmq_error *err);
/* Does not flush. */
void rmq_timer_wheel_close(struct rmq_timer_wheel *wheel);

/* Enters a unit at position; by is 1 for a message, -1 for a deletion. */
void rmq_timer_wheel_add(struct rmq_timer_wheel *wheel, int64_t time, int64_t position, int32_t by);
/* Returns whether the slot of a time has units. */
bool rmq_timer_wheel_get(const struct rmq_timer_wheel *wheel, int64_t time,
                         struct rmq_timer_slot *slot);
/* The first time in [from, upto) that has units, upto without one. */
int64_t rmq_timer_wheel_next(const struct rmq_timer_wheel *wheel, int64_t from, int64_t upto);
/* The sum of the counts of slots in [from, from + RMQ_TIMER_SLOTS). */
int64_t rmq_timer_wheel_count(const struct rmq_timer_wheel *wheel, int64_t from);

/* Finds the pages that differ from the file: after units were entered that the file may hold. */
int rmq_timer_wheel_compare(struct rmq_timer_wheel *wheel, struct rmq_error *err);
/* On return the file holds the slots, and is on the device. */
int rmq_timer_wheel_flush(struct rmq_timer_wheel *wheel, struct rmq_error *err);

#endif
