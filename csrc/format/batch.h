/* batch.h -- several messages in one body, as clients send them and inner batches keep them.
 *
 *   size  field of one message
 *   4     total size
 *   4     magic, 0 (not checked)
 *   4     body CRC, 0 (not checked)
 *   4     flag
 *   4     body size
 *   n     body
 *   2     properties size, signed
 *   n     properties
 *
 * Source: MessageDecoder.encodeMessages and MessageExtEncoder of RocketMQ 5.3.3.
 */
#ifndef RMQ_BATCH_H
#define RMQ_BATCH_H

#include <stddef.h>
#include <stdint.h>

#include "base/status.h"

#define RMQ_BATCH_HEAD_SIZE 22

struct rmq_batch_item {
    const uint8_t *body;
    const char *properties;
    int32_t body_size;
    int32_t properties_size;
    int32_t flag;
};

/* Reads the message at *at (0 to begin) and moves *at past it. RMQ_END at the end of the body;
 * RMQ_CORRUPT when lengths disagree or leave the body, with the position in err->at_offset. */
int rmq_batch_next(const uint8_t *body, size_t size, size_t *at, struct rmq_batch_item *item,
                   struct rmq_error *err);

/* Bytes one message takes. */
static inline size_t rmq_batch_item_size(const struct rmq_batch_item *item)
{
    return RMQ_BATCH_HEAD_SIZE + (size_t)item->body_size + (size_t)item->properties_size;
}

/* Writes one message at out, which has rmq_batch_item_size(item) bytes; returns that size. */
size_t rmq_batch_put(uint8_t *out, const struct rmq_batch_item *item);

#endif
