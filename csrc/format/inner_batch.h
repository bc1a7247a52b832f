/* inner_batch.h -- the messages of a record that holds an inner batch, each as a record.
 *
 * A message shows body, flag and properties of its own and the queue offset that it has in its
 * queue: the base plus its number. Everything else, place and CRC above all, is the record's. Its
 * pointers lead into the record.
 */
#ifndef RMQ_INNER_BATCH_H
#define RMQ_INNER_BATCH_H

#include <stdbool.h>

#include "format/record.h"

struct rmq_inner_walk {
    size_t at;     /* in the record's body, of the next message; 0 to begin */
    int64_t index; /* number of the next message */
    int64_t base;  /* queue offset of the first one */
};

/* Whether the record is one message or, where this is true, as many as its body holds. A compressed
 * inner batch is left as one, and so is one of no messages. */
static inline bool rmq_inner_is_batch(const struct rmq_record *record)
{
    return (record->sys_flag & (RMQ_FLAG_INNER_BATCH | RMQ_FLAG_COMPRESSED)) ==
               RMQ_FLAG_INNER_BATCH &&
           record->body_size > 0;
}

/* Looks at all messages before the first one is handed out. RMQ_CORRUPT: they do not fill the body;
 * err->at_offset is the record's place. */
int rmq_inner_begin(struct rmq_inner_walk *walk, const struct rmq_record *record,
                    struct rmq_error *err);
/* RMQ_OK: *message is the next one. RMQ_END. RMQ_CORRUPT: the body was changed since it was looked
 * at. */
int rmq_inner_next(struct rmq_inner_walk *walk, const struct rmq_record *record,
                   struct rmq_record *message, struct rmq_error *err);

#endif
