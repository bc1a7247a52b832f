/* hook.h -- a function that another part of the program sets, and that runs after an event.
 *
 * The thread that caused the event runs it, without a lock of the hook. The hook costs nothing
 * while no function is set.
 */
#ifndef RMQ_HOOK_H
#define RMQ_HOOK_H

#include <assert.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>
#include <time.h>

struct rmq_hook {
    pthread_mutex_t lock;
    void (*act)(void *owner, bool may_work);
    void *owner;
    _Atomic int32_t inside; /* threads that run the function */
    _Atomic bool is_set;
};

static inline void rmq_hook_init(struct rmq_hook *hook)
{
    assert(hook);

    pthread_mutex_init(&hook->lock, NULL);
    hook->act = NULL;
    hook->owner = NULL;
    atomic_init(&hook->inside, 0);
    atomic_init(&hook->is_set, false);
}

static inline void rmq_hook_destroy(struct rmq_hook *hook)
{
    assert(atomic_load(&hook->inside) == 0);
    pthread_mutex_destroy(&hook->lock);
}

/* may_work: the caller waits anyway, so act may do slow work on the caller's thread. */
static inline void rmq_hook_run(struct rmq_hook *hook, bool may_work)
{
    if (!atomic_load_explicit(&hook->is_set, memory_order_acquire))
        return;

    pthread_mutex_lock(&hook->lock);
    void (*act)(void *owner, bool may_work) = hook->act;
    void *owner = hook->owner;
    if (act)
        atomic_fetch_add(&hook->inside, 1);
    pthread_mutex_unlock(&hook->lock);

    if (!act)
        return;

    act(owner, may_work);
    int32_t before = atomic_fetch_sub(&hook->inside, 1);
    assert(before > 0);
}

/* Replaces the previous function. */
static inline void rmq_hook_set(struct rmq_hook *hook, void (*act)(void *owner, bool may_work),
                                void *owner)
{
    assert(act);

    pthread_mutex_lock(&hook->lock);
    hook->act = act;
    hook->owner = owner;
    atomic_store_explicit(&hook->is_set, true, memory_order_release);
    pthread_mutex_unlock(&hook->lock);
}

/* Removes the function if owner set it. After return no thread runs it for owner, so the caller
 * must not hold a lock that act takes. */
static inline void rmq_hook_unset(struct rmq_hook *hook, const void *owner)
{
    assert(owner);

    pthread_mutex_lock(&hook->lock);
    if (hook->owner == owner) {
        atomic_store_explicit(&hook->is_set, false, memory_order_release);
        hook->act = NULL;
        hook->owner = NULL;
    }
    pthread_mutex_unlock(&hook->lock);

    /* Polled: this is rare, and the threads inside need not wake a waiter each time. */
    while (atomic_load(&hook->inside) > 0)
        nanosleep(&(struct timespec){.tv_nsec = 50000}, NULL);
}

#endif
