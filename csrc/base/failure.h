/* failure.h -- the first permanent failure.
 *
 * After a failed sync it is unknown what is on the device, and a later success does not change
 * that. So the first failure is kept, every later put is refused with it, and the abort marker
 * stays when the store is closed.
 */
#ifndef RMQ_FAILURE_H
#define RMQ_FAILURE_H

#include <assert.h>
#include <pthread.h>
#include <stdatomic.h>

#include "base/status.h"

struct rmq_failure {
    pthread_mutex_t lock;
    _Atomic int status; /* RMQ_OK until the first failure */
    struct rmq_error error;
};

static inline void rmq_failure_init(struct rmq_failure *failure)
{
    pthread_mutex_init(&failure->lock, NULL);
    atomic_init(&failure->status, RMQ_OK);
}

/* Keeps the first error, ignores later ones. */
static inline void rmq_failure_set(struct rmq_failure *failure, const struct rmq_error *error)
{
    assert(error->status != RMQ_OK);

    pthread_mutex_lock(&failure->lock);
    if (atomic_load(&failure->status) == RMQ_OK) {
        failure->error = *error;
        atomic_store(&failure->status, error->status);
    }
    pthread_mutex_unlock(&failure->lock);
}

/* RMQ_OK, or RMQ_NOT_WRITABLE with the first error in the detail. */
static inline int rmq_failure_check(struct rmq_failure *failure, struct rmq_error *err)
{
    if (atomic_load_explicit(&failure->status, memory_order_acquire) == RMQ_OK)
        return RMQ_OK;
    return rmq_fail(err, RMQ_NOT_WRITABLE, failure->error.at_offset,
                    "the store turned read-only after a failure: %.300s", failure->error.detail);
}

#endif
