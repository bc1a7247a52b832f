#include "base/gate.h"

#include <assert.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdint.h>
#include <stdlib.h>
#include <unistd.h>

#define CLOSED (1u << 31)

struct rmq_gate {
    _Atomic uint32_t references;
    _Atomic uint32_t inside; /* number of callers inside, and the CLOSED bit */
    pid_t process;
    pthread_mutex_t lock; /* for the last caller inside, and for a close that waits for it */
    pthread_cond_t empty;
};

struct rmq_gate *rmq_gate_create(void)
{
    struct rmq_gate *gate = calloc(1, sizeof *gate);
    if (!gate)
        return NULL;
    gate->references = 1;
    gate->process = getpid();

    if (pthread_mutex_init(&gate->lock, NULL) != 0) {
        free(gate);
        return NULL;
    }
    if (pthread_cond_init(&gate->empty, NULL) != 0) {
        pthread_mutex_destroy(&gate->lock);
        free(gate);
        return NULL;
    }
    return gate;
}

void rmq_gate_retain(struct rmq_gate *gate)
{
    uint32_t before = atomic_fetch_add(&gate->references, 1);
    assert(before > 0);
}

void rmq_gate_release(struct rmq_gate *gate)
{
    uint32_t before = atomic_fetch_sub(&gate->references, 1);
    assert(before > 0);

    if (before > 1)
        return;

    assert((atomic_load(&gate->inside) & ~CLOSED) == 0 || gate->process != getpid());
    pthread_cond_destroy(&gate->empty);
    pthread_mutex_destroy(&gate->lock);
    free(gate);
}

bool rmq_gate_is_closed(const struct rmq_gate *gate)
{
    return atomic_load(&gate->inside) & CLOSED;
}

bool rmq_gate_enter(struct rmq_gate *gate)
{
    if (!(atomic_fetch_add(&gate->inside, 1) & CLOSED))
        return true;
    rmq_gate_leave(gate);
    return false;
}

void rmq_gate_leave(struct rmq_gate *gate)
{
    uint32_t before = atomic_fetch_sub(&gate->inside, 1);
    assert((before & ~CLOSED) > 0);
    if (before != (CLOSED | 1))
        return;

    pthread_mutex_lock(&gate->lock);
    pthread_cond_broadcast(&gate->empty);
    pthread_mutex_unlock(&gate->lock);
}

void rmq_gate_close(struct rmq_gate *gate)
{
    (void)atomic_fetch_or(&gate->inside, CLOSED);
    if (gate->process != getpid())
        return;

    pthread_mutex_lock(&gate->lock);
    while (atomic_load(&gate->inside) != CLOSED)
        pthread_cond_wait(&gate->empty, &gate->lock);
    assert(atomic_load(&gate->inside) & CLOSED);
    pthread_mutex_unlock(&gate->lock);
}
