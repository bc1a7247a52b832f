/* clock.h -- the store's source of time: the system clock, or a value that tests set. */
#ifndef RMQ_CLOCK_H
#define RMQ_CLOCK_H

#include <assert.h>
#include <stdatomic.h>
#include <stdint.h>
#include <time.h>

struct rmq_clock {
    _Atomic int64_t fixed_ms; /* 0: the system's wall clock */
};

static inline int64_t rmq_clock_now(struct rmq_clock *clock)
{
    int64_t fixed = atomic_load_explicit(&clock->fixed_ms, memory_order_relaxed);
    if (fixed)
        return fixed;
    struct timespec now;
    clock_gettime(CLOCK_REALTIME, &now);
    return (int64_t)now.tv_sec * 1000 + now.tv_nsec / 1000000;
}

/* Time that never jumps, for waits. */
static inline int64_t rmq_monotonic_ms(void)
{
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return (int64_t)now.tv_sec * 1000 + now.tv_nsec / 1000000;
}

static inline int64_t rmq_monotonic_us(void)
{
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return (int64_t)now.tv_sec * 1000000 + now.tv_nsec / 1000;
}

/* The point delay_ms from now on CLOCK_MONOTONIC, for pthread_cond_timedwait. */
static inline struct timespec rmq_monotonic_after(int64_t delay_ms)
{
    assert(delay_ms >= 0);

    struct timespec at;
    clock_gettime(CLOCK_MONOTONIC, &at);
    at.tv_sec += delay_ms / 1000;
    at.tv_nsec += (delay_ms % 1000) * 1000000;
    if (at.tv_nsec >= 1000000000) {
        ++at.tv_sec;
        at.tv_nsec -= 1000000000;
    }
    assert(at.tv_nsec >= 0 && at.tv_nsec < 1000000000);
    return at;
}

#endif
