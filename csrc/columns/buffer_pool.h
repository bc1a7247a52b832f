/* buffer_pool.h -- reused memory of column buffers.
 *
 * One thread takes a batch, and another thread may return it, perhaps after the stream has ended.
 * Fresh memory costs a page fault for each page, and the fault takes longer than filling the page.
 * So buffers that are returned while the stream lives are kept for its next batches.
 */
#ifndef RMQ_BUFFER_POOL_H
#define RMQ_BUFFER_POOL_H

#include <stddef.h>
#include <stdint.h>

#define RMQ_BUFFER_ALIGNMENT 64

struct rmq_buffer_pool;

/* NULL without memory. */
struct rmq_buffer_pool *rmq_buffer_pool_new(void);
/* Keeps no buffers from here on. The pool is freed when its last buffer is returned. */
void rmq_buffer_pool_close(struct rmq_buffer_pool *pool);

/* At least wanted bytes, aligned to RMQ_BUFFER_ALIGNMENT, contents unknown; NULL without memory.
 * pool may be NULL: the memory is then not reused. */
uint8_t *rmq_buffer_take(struct rmq_buffer_pool *pool, size_t wanted, size_t *capacity);
/* From any thread; data may be NULL. */
void rmq_buffer_give(const void *data);

#endif
