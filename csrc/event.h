/* event.h -- something that happens once, and somebody who waits for it.
 *
 * Waiting goes by a clock that never jumps, which POSIX semaphores do not, and waking takes no
 * lock, which the woken of a condition variable must. Linux futexes give both.
 */
#ifndef RMQ_EVENT_H
#define RMQ_EVENT_H

#include <linux/futex.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "clock.h"

struct rmq_event {
    _Atomic int32_t has_happened; /* initialised to 0 */
};

/* The waiter may return, and its event be gone, before this returns: nothing of it is looked at
 * after the store. */
static inline void rmq_event_set(struct rmq_event *event)
{
    atomic_store_explicit(&event->has_happened, 1, memory_order_release);
    (void)syscall(SYS_futex, &event->has_happened, FUTEX_WAKE_PRIVATE, 1, NULL, NULL, 0);
}

/* False when the time is up. */
static inline bool rmq_event_wait(struct rmq_event *event, int64_t timeout_ms)
{
    int64_t until_ms = rmq_monotonic_ms() + timeout_ms;
    for (;;) {
        if (atomic_load_explicit(&event->has_happened, memory_order_acquire))
            return true;
        int64_t left_ms = until_ms - rmq_monotonic_ms();
        if (left_ms <= 0)
            return false;
        struct timespec left = {.tv_sec = left_ms / 1000, .tv_nsec = left_ms % 1000 * 1000000};
        (void)syscall(SYS_futex, &event->has_happened, FUTEX_WAIT_PRIVATE, 0, &left, NULL, 0);
    }
}

#endif
