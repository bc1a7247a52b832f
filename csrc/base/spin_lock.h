/* spin_lock.h -- a lock for sections of nanoseconds on bytes just stored.
 *
 * Releasing a pthread mutex is an atomic exchange, which on x86 waits until all stores before it
 * have left the processor: after a record of 1 KiB that takes longer than writing it. Releasing
 * this lock is one plain store, without a wait. The price is that no thread is woken: a thread that
 * finds the lock taken polls it, then sleeps for longer and longer times. RocketMQ guards its
 * appends with a spin lock as well (PutMessageSpinLock).
 */
#ifndef RMQ_SPIN_LOCK_H
#define RMQ_SPIN_LOCK_H

#include <assert.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <time.h>

#define RMQ_SPINS 200
#define RMQ_SPIN_NAP_NS_MIN 10000
#define RMQ_SPIN_NAP_NS_MAX 320000

struct rmq_spin_lock {
    _Atomic bool is_held; /* initialised to false */
};

static inline void rmq_spin_pause(void)
{
#if defined(__x86_64__) || defined(__i386__)
    __builtin_ia32_pause();
#elif defined(__aarch64__)
    __asm__ volatile("yield");
#endif
}

static inline void rmq_spin_lock(struct rmq_spin_lock *lock)
{
    long nap_ns = RMQ_SPIN_NAP_NS_MIN;
    while (atomic_exchange_explicit(&lock->is_held, true, memory_order_acquire)) {
        int spins = 0;
        while (spins < RMQ_SPINS && atomic_load_explicit(&lock->is_held, memory_order_relaxed)) {
            rmq_spin_pause();
            ++spins;
        }
        if (spins < RMQ_SPINS)
            continue;
        nanosleep(&(struct timespec){.tv_nsec = nap_ns}, NULL);
        nap_ns = nap_ns < RMQ_SPIN_NAP_NS_MAX ? nap_ns * 2 : nap_ns;
        assert(nap_ns <= RMQ_SPIN_NAP_NS_MAX);
    }
}

/* Whether some thread holds it: for assertions of its holder. */
static inline bool rmq_spin_is_held(struct rmq_spin_lock *lock)
{
    return atomic_load_explicit(&lock->is_held, memory_order_relaxed);
}

static inline void rmq_spin_unlock(struct rmq_spin_lock *lock)
{
    assert(rmq_spin_is_held(lock));
    atomic_store_explicit(&lock->is_held, false, memory_order_release);
}

#endif
