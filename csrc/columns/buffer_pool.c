#include "columns/buffer_pool.h"

#include <assert.h>
#include <pthread.h>
#include <stdbool.h>
#include <stdlib.h>

/* Smaller buffers cost less than the lock. */
#define KEPT_SIZE_MIN 65536
/* Two batches are in use at a time, each with some large columns. */
#define KEPT_MAX 16

/* Header before each buffer. */
struct head {
    _Alignas(RMQ_BUFFER_ALIGNMENT) struct rmq_buffer_pool *pool;
    size_t capacity;
};
_Static_assert(sizeof(struct head) == RMQ_BUFFER_ALIGNMENT, "buffers stay aligned behind it");

struct rmq_buffer_pool {
    pthread_mutex_t lock;
    size_t taken; /* buffers in use */
    bool is_closed;
    struct head *kept[KEPT_MAX];
};

struct rmq_buffer_pool *rmq_buffer_pool_new(void)
{
    struct rmq_buffer_pool *pool = calloc(1, sizeof *pool);
    if (pool)
        pthread_mutex_init(&pool->lock, NULL);
    return pool;
}

static void free_pool(struct rmq_buffer_pool *pool)
{
    assert(pool->taken == 0);

    pthread_mutex_destroy(&pool->lock);
    free(pool);
}

void rmq_buffer_pool_close(struct rmq_buffer_pool *pool)
{
    if (!pool)
        return;

    pthread_mutex_lock(&pool->lock);
    assert(!pool->is_closed);
    for (size_t i = 0; i < KEPT_MAX; ++i)
        free(pool->kept[i]);
    pool->is_closed = true;
    bool is_last = pool->taken == 0;
    pthread_mutex_unlock(&pool->lock);

    if (is_last)
        free_pool(pool);
}

/* The smallest kept buffer that is large enough, and not much too large. The caller holds the
 * lock. */
static struct head *take_kept(struct rmq_buffer_pool *pool, size_t wanted)
{
    assert(wanted >= KEPT_SIZE_MIN);

    struct head **best = NULL;
    for (struct head **each = pool->kept; each < pool->kept + KEPT_MAX; ++each)
        if (*each && (*each)->capacity >= wanted && (*each)->capacity / 4 <= wanted &&
            (!best || (*each)->capacity < (*best)->capacity))
            best = each;

    struct head *found = best ? *best : NULL;
    if (best)
        *best = NULL;
    return found;
}

/* Keeps a buffer. If there is no room, it replaces the smallest one: small buffers remain when a
 * large one grows. Returns the buffer that is not kept. The caller holds the lock. */
static struct head *keep(struct rmq_buffer_pool *pool, struct head *head)
{
    assert(!pool->is_closed && head->pool == pool);

    struct head **least = pool->kept;
    for (struct head **each = pool->kept; each < pool->kept + KEPT_MAX; ++each) {
        if (!*each) {
            *each = head;
            return NULL;
        }
        if ((*each)->capacity < (*least)->capacity)
            least = each;
    }

    if ((*least)->capacity >= head->capacity)
        return head;
    struct head *smaller = *least;
    *least = head;
    return smaller;
}

/* Batches of one stream differ a little in size: sizes are rounded up to an eighth, so that a batch
 * can reuse the buffer of another one. */
static size_t step_of(size_t size)
{
    assert(size >= KEPT_SIZE_MIN);

    size_t step = KEPT_SIZE_MIN / 8;
    while (step <= size / 16)
        step *= 2;
    return step;
}

uint8_t *rmq_buffer_take(struct rmq_buffer_pool *pool, size_t wanted, size_t *capacity)
{
    assert(capacity);

    if (wanted > SIZE_MAX / 2)
        return NULL;
    bool goes_round = pool && wanted >= KEPT_SIZE_MIN;
    size_t step = goes_round ? step_of(wanted) : RMQ_BUFFER_ALIGNMENT;
    size_t whole = (wanted + step - 1) / step * step;

    struct head *head = NULL;

    if (goes_round) {
        pthread_mutex_lock(&pool->lock);
        head = take_kept(pool, whole);
        pthread_mutex_unlock(&pool->lock);
    }

    if (!head) {
        head = aligned_alloc(RMQ_BUFFER_ALIGNMENT, sizeof *head + whole);
        if (!head)
            return NULL;
        head->pool = goes_round ? pool : NULL;
        head->capacity = whole;
    }
    if (goes_round) {
        pthread_mutex_lock(&pool->lock);
        ++pool->taken;
        pthread_mutex_unlock(&pool->lock);
    }

    assert(head->capacity >= wanted);
    *capacity = head->capacity;
    return (uint8_t *)(head + 1);
}

void rmq_buffer_give(const void *data)
{
    if (!data)
        return;

    struct head *head = (struct head *)(uintptr_t)data - 1;
    struct rmq_buffer_pool *pool = head->pool;
    bool is_last = false;

    if (pool) {
        pthread_mutex_lock(&pool->lock);
        assert(pool->taken > 0);
        if (!pool->is_closed)
            head = keep(pool, head);
        is_last = --pool->taken == 0 && pool->is_closed;
        pthread_mutex_unlock(&pool->lock);
    }

    free(head);
    if (is_last)
        free_pool(pool);
}
