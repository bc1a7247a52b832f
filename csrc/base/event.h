/* event.h -- something that happens once, and something that happens again and again.
 *
 * Waits use a clock that never jumps; POSIX semaphores do not. Waking takes no lock; a thread that
 * a condition variable wakes must take one. Linux futexes give both.
 *
 * A condition variable that is signalled without its mutex loses the signal when the waiter is
 * between its last look at the state and its sleep. An event count does not: the waiter reads the
 * count first, looks at the state, and sleeps only while the count is what it read.
 */
#ifndef RMQ_EVENT_H
#define RMQ_EVENT_H

#include <assert.h>
#include <linux/futex.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "base/clock.h"

struct rmq_event {
    _Atomic int32_t has_happened; /* initialised to 0 */
};

/* The waiter may return, and its event may be freed, before this function returns. It therefore
 * does not touch the event after the store. */
static inline void rmq_event_set(struct rmq_event *event)
{
    assert(event);

    atomic_store_explicit(&event->has_happened, 1, memory_order_release);
    (void)syscall(SYS_futex, &event->has_happened, FUTEX_WAKE_PRIVATE, 1, NULL, NULL, 0);
}

/* False when the time is up. */
static inline bool rmq_event_wait(struct rmq_event *event, int64_t timeout_ms)
{
    assert(event);

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

/* Any number of threads that advance; one waiter, or several that advance_all wakes. */
struct rmq_event_count {
    _Atomic uint32_t count; /* initialised to 0; wraps */
};

/* The waiter calls it before it reads the state that other threads change. */
static inline uint32_t rmq_event_count_read(struct rmq_event_count *events)
{
    assert(events);
    return atomic_load(&events->count);
}

static inline void rmq_event_count_wake(struct rmq_event_count *events, int32_t waiters_max)
{
    assert(events);

    atomic_fetch_add(&events->count, 1);
    (void)syscall(SYS_futex, &events->count, FUTEX_WAKE_PRIVATE, waiters_max, NULL, NULL, 0);
}

/* Called after the state was changed. Makes a system call, so it is only worth it when a waiter may
 * be asleep. */
static inline void rmq_event_count_advance(struct rmq_event_count *events)
{
    rmq_event_count_wake(events, 1);
}

/* The same for any number of waiters, by one system call. */
static inline void rmq_event_count_advance_all(struct rmq_event_count *events)
{
    rmq_event_count_wake(events, INT32_MAX);
}

/* Sleeps while the count is `seen`, for timeout_us at most; a negative timeout waits indefinitely.
 * May return early. */
static inline void rmq_event_count_await(struct rmq_event_count *events, uint32_t seen,
                                         int64_t timeout_us)
{
    assert(events);

    struct timespec left = {.tv_sec = timeout_us / 1000000, .tv_nsec = timeout_us % 1000000 * 1000};
    (void)syscall(SYS_futex, &events->count, FUTEX_WAIT_PRIVATE, seen,
                  timeout_us < 0 ? NULL : &left, NULL, 0);
}

#endif
