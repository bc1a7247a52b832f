/* buffer_pool.h -- memory of column buffers that goes round.
 *
 * A batch belongs to the thread that took it, and is given back in another thread, perhaps after
 * its stream has ended. Fresh memory costs a page fault for each page, which takes longer than
 * filling it; so what is given back while the stream lives is kept for its next batches.
 */
#ifndef RMQ_BUFFER_POOL_H
#define RMQ_BUFFER_POOL_H

#include <stddef.h>
#include <stdint.h>

#define RMQ_BUFFER_ALIGNMENT 64

struct rmq_buffer_pool;

/* NULL without memory. */
struct rmq_buffer_pool *rmq_buffer_pool_new(void);
/* Nothing is kept any more. The pool goes when the last buffer taken from it is given back. */
void rmq_buffer_pool_close(struct rmq_buffer_pool *pool);

/* At least wanted bytes, aligned to RMQ_BUFFER_ALIGNMENT, contents unknown; NULL without memory.
 * pool may be NULL: the memory then does not go round. */
uint8_t *rmq_buffer_take(struct rmq_buffer_pool *pool, size_t wanted, size_t *capacity);
/* From any thread; data may be NULL. */
void rmq_buffer_give(const void *data);

#endif
