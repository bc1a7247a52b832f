/* summary.h -- sums of messages by topic and queue and, where wanted, by tag. */
#ifndef RMQ_SUMMARY_H
#define RMQ_SUMMARY_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/status.h"
#include "format/record.h"

#define RMQ_SUMMARY_SIZES 24

struct rmq_summary_row {
    char *topic;
    size_t topic_size;
    const char *tag; /* NULL without a tag, and unless sums are by tag */
    size_t tag_size;
    int32_t queue_id;
    int64_t messages;
    int64_t records;
    int64_t bytes;      /* of records */
    int64_t body_bytes; /* of messages, as stored */
    int64_t min_queue_offset;
    int64_t max_queue_offset;
    int64_t min_store_timestamp;
    int64_t max_store_timestamp;
    int64_t min_physical_offset;
    int64_t max_physical_offset;
    /* Records of 2^i to 2^(i+1) - 1 bytes; the last one counts all larger ones too. */
    int64_t sizes[RMQ_SUMMARY_SIZES];
};

struct rmq_summary {
    struct rmq_summary_row *rows; /* in the order in which they were found */
    size_t count;
    size_t capacity;
    uint32_t *slots; /* row number + 1 by hash; 0: empty */
    size_t slot_count;
    bool by_tag; /* set before the first message */
};

void rmq_summary_init(struct rmq_summary *summary);
void rmq_summary_destroy(struct rmq_summary *summary);

/* Adds a message. is_first: it is the first message of its record. RMQ_NO_MEMORY: nothing was
 * added. */
int rmq_summary_add(struct rmq_summary *summary, const struct rmq_record *message, bool is_first,
                    struct rmq_error *err);

#endif
