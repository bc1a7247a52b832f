/* inner_batch.h -- the messages of a record that holds an inner batch, each as a record.
 *
 * A message has its own body, flag and properties, and its own queue offset: the base plus its
 * number. All other fields, the physical offset and the CRC among them, are those of the record.
 * Its pointers point into the record.
 */
#ifndef RMQ_INNER_BATCH_H
#define RMQ_INNER_BATCH_H

#include <stdbool.h>

#include "format/record.h"

struct rmq_inner_walk {
    size_t at;     /* position of the next message in the record's body; 0 to begin */
    int64_t index; /* number of the next message */
    int64_t base;  /* queue offset of the first one */
};

/* Whether the body of the record holds several messages to be read one by one. False for a
 * compressed inner batch and for an empty one: each is read as one message. */
static inline bool rmq_inner_is_batch(const struct rmq_record *record)
{
    return (record->sys_flag & (RMQ_FLAG_INNER_BATCH | RMQ_FLAG_COMPRESSED)) ==
               RMQ_FLAG_INNER_BATCH &&
           record->body_size > 0;
}

/* Validates all messages before it returns the first one. RMQ_CORRUPT: they do not fill the body;
 * err->at_offset is the physical offset of the record. */
int rmq_inner_begin(struct rmq_inner_walk *walk, const struct rmq_record *record,
                    struct rmq_error *err);
/* RMQ_OK: *message is the next one. RMQ_END: there is no further one. RMQ_CORRUPT: the body was
 * changed since it was validated. */
int rmq_inner_next(struct rmq_inner_walk *walk, const struct rmq_record *record,
                   struct rmq_record *message, struct rmq_error *err);

#endif
