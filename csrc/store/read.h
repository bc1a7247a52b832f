/* read.h -- finding records: by queue offset, physical offset, key and time.
 *
 * A found record is decoded and points into a mapped file that is pinned until rmq_found_release.
 * Each was checked: its form, its physical offset, on request its body CRC, and that it matches the
 * unit or entry that pointed at it.
 */
#ifndef RMQ_READ_H
#define RMQ_READ_H

#include "store/store.h"

/* In the order of RocketMQ's GetMessageStatus. */
enum rmq_get_status {
    RMQ_GET_FOUND,
    RMQ_GET_NO_MATCHED_MESSAGE,
    RMQ_GET_MESSAGE_WAS_REMOVING,
    RMQ_GET_OFFSET_FOUND_NULL,
    RMQ_GET_OFFSET_OVERFLOW_BADLY,
    RMQ_GET_OFFSET_OVERFLOW_ONE,
    RMQ_GET_OFFSET_TOO_SMALL,
    RMQ_GET_NO_MATCHED_LOGIC_QUEUE,
    RMQ_GET_NO_MESSAGE_IN_QUEUE,
    RMQ_GET_OFFSET_RESET,
};

struct rmq_found {
    struct rmq_mapped_file *file; /* pinned by this entry or by an earlier one of the same call */
    struct rmq_record record;
    int64_t queue_offset; /* of its first message */
    int32_t batch_size;
    bool owns_pin;
};

struct rmq_get_request {
    const char *topic;
    size_t topic_size;
    int64_t offset;
    int64_t max_bytes; /* the first record is returned even if it is larger */
    const struct rmq_slice
        *tags; /* records with any of these tags, by hash and then by text; none: all records */
    size_t tag_count;
    size_t max_count; /* messages; an inner batch counts as the number of its messages */
    size_t max_units; /* units to read, about: a limit when few tags match; 0: no limit */
    int32_t queue_id;
    bool check_crc;
};

struct rmq_get_result {
    enum rmq_get_status status;
    int64_t next_offset; /* queue offset at which to continue */
    int64_t min_offset;  /* bounds of the queue when the call began */
    int64_t max_offset;
    size_t count;
};

/* Fills found (room for max_count) and result, as DefaultMessageStore.getMessage does. A read-only
 * store is refreshed where its writer has removed the queue's file at the offset.
 * RMQ_GET_OFFSET_FOUND_NULL: the file is missing between others. RMQ_CORRUPT: a record does not
 * match its queue. The records before it were found, so result and found are valid then too. */
int rmq_store_get(struct rmq_store *store, const struct rmq_get_request *request,
                  struct rmq_found *found, struct rmq_get_result *result, struct rmq_error *err);
/* Drops the pins. Entries of one call must be released together: they share pins. */
void rmq_found_release(struct rmq_found *found, size_t count);

/* The record at this commit log offset. RMQ_OUT_OF_RANGE: the offset is outside the log.
 * RMQ_NOT_FOUND: a blank. RMQ_CORRUPT: no whole record begins there. */
int rmq_store_at(struct rmq_store *store, int64_t physical_offset, bool check_crc,
                 struct rmq_found *found, struct rmq_error *err);

/* By store time, between the queue's bounds. Lower: the first message at or after timestamp, the
 * end when all are earlier. Upper: the last one at or before it, the first when all are later.
 * Units without a readable record are skipped. RMQ_NOT_FOUND: no such queue. */
int rmq_store_offset_by_time(struct rmq_store *store, const char *topic, size_t topic_size,
                             int32_t queue_id, int64_t timestamp, bool upper, int64_t *offset,
                             struct rmq_error *err);

/* Records of the topic that carry key, as unique key or among its keys (tag false), or have the tag
 * (tag true; where the store indexes tags), stored in [begin_ms, end_ms]: the newest max_count of
 * them, oldest first. Entries that collide with the key's hash, or point past a cut, are left out.
 * RMQ_UNSUPPORTED: the store has no index. */
int rmq_store_query(struct rmq_store *store, struct rmq_slice topic, struct rmq_slice key, bool tag,
                    int64_t begin_ms, int64_t end_ms, size_t max_count, struct rmq_found *found,
                    size_t *count, struct rmq_error *err);

#endif
