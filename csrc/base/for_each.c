#include "base/for_each.h"

#include <assert.h>
#include <pthread.h>
#include <stdatomic.h>

struct work {
    rmq_item_work *work;
    void *context;
    size_t count;
    _Atomic size_t next;
    _Atomic bool has_failed;
    pthread_mutex_t lock; /* protects error */
    struct rmq_error error;
};

static void note(struct work *work, const struct rmq_error *error)
{
    assert(error->status != RMQ_OK);

    pthread_mutex_lock(&work->lock);
    bool is_first = !atomic_load(&work->has_failed);
    /* Without a descriptor the operation was not tried, and a caller may try again. */
    if (is_first ||
        (rmq_error_lacks_descriptor(&work->error) && !rmq_error_lacks_descriptor(error)))
        work->error = *error;
    atomic_store(&work->has_failed, true);
    pthread_mutex_unlock(&work->lock);
}

static void *run(void *argument)
{
    struct work *work = argument;
    assert(work->work);

    while (!atomic_load(&work->has_failed)) {
        size_t item = atomic_fetch_add(&work->next, 1);
        struct rmq_error error;
        if (item >= work->count)
            break;
        if (work->work(work->context, item, &error) != RMQ_OK)
            note(work, &error);
    }
    return NULL;
}

int rmq_for_each(size_t count, rmq_item_work *work, void *context, struct rmq_error *err)
{
    assert(work);

    struct work shared = {.work = work, .context = context, .count = count};
    pthread_t threads[RMQ_FOR_EACH_THREADS - 1];
    size_t started = 0;
    pthread_mutex_init(&shared.lock, NULL);

    /* If no further thread can be started, the work takes longer. */
    if (count >= RMQ_ITEMS_WORTH_THREADS)
        while (started < RMQ_FOR_EACH_THREADS - 1 &&
               pthread_create(&threads[started], NULL, run, &shared) == 0)
            ++started;
    (void)run(&shared);
    for (size_t i = 0; i < started; ++i)
        pthread_join(threads[i], NULL);

    pthread_mutex_destroy(&shared.lock);
    if (!atomic_load(&shared.has_failed))
        return RMQ_OK;
    assert(shared.error.status != RMQ_OK);
    if (err)
        *err = shared.error;
    return shared.error.status;
}
