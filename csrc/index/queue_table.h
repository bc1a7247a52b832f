/* queue_table.h -- the queues of a store, found by topic and queue id.
 *
 * Lookups take no lock: entries are only added, and stay where they are until the table is closed.
 * Adding takes the table's mutex. A queue is known from its first message on; its files are made by
 * the dispatcher.
 */
#ifndef RMQ_QUEUE_TABLE_H
#define RMQ_QUEUE_TABLE_H

#include "index/batch_consume_queue.h"
#include "index/consume_queue.h"
#include "index/consume_queue_ext.h"

struct rmq_queue {
    char *topic; /* NUL-terminated copy */
    size_t topic_size;
    uint64_t hash;
    int32_t queue_id;
    bool is_batch;
    /* Offset the next message gets; moved under the put lock, raised by the dispatcher. */
    _Atomic int64_t next_offset;
    /* Queue offset after the last unit that rmq_queue_survey has seen; 0: none. */
    int64_t surveyed_end;
    /* Of a deleted topic (removed_queues.h): where the numbers of a queue without units go on, and
     * the log offset before which records are not entered; 0: not removed. */
    _Atomic int64_t removed_next;
    int64_t removed_until;
    int64_t removed_before; /* removed_until as it was before a removal that may fail */
    /* Files are open; set with release order once, by the dispatcher or at load. */
    _Atomic bool is_open;
    bool has_ext;
    struct rmq_consume_queue simple;
    struct rmq_batch_consume_queue batch;
    struct rmq_consume_queue_ext ext;
    _Atomic(struct rmq_queue *) chain; /* same bucket */
    _Atomic(struct rmq_queue *) older; /* all queues, newest first */
};

struct rmq_queue_options {
    struct rmq_vfs *vfs;
    const char *root; /* store root */
    int64_t queue_file_size;
    int64_t batch_file_size;
    int64_t ext_file_size;
    bool enable_ext;
    bool read_only;
    int64_t mappings_max; /* of queue files at once; 0: RMQ_QUEUE_MAPPINGS_MAX */
    int32_t hot_uses;     /* see file_access.h; 0: RMQ_QUEUE_HOT_USES */
};

/* A quarter of what Linux gives a process by default (vm.max_map_count, 65,530): the log, its
 * readers and other stores need some, too. */
#define RMQ_QUEUE_MAPPINGS_MAX 16384
/* Opening a queue and reading its few messages once are not many. */
#define RMQ_QUEUE_HOT_USES 32

struct rmq_bucket_array;

struct rmq_queue_table {
    struct rmq_queue_options options;
    pthread_mutex_t lock;      /* adding entries: a put waits for it */
    pthread_mutex_t open_lock; /* opening files, which waits for the disk */
    _Atomic(struct rmq_bucket_array *) buckets;
    _Atomic(struct rmq_queue *) newest;
    _Atomic size_t count;
    struct rmq_unsynced_folders unsynced;
    struct rmq_map_budget budget;
};

int rmq_queue_table_open(struct rmq_queue_table *table, const struct rmq_queue_options *options,
                         struct rmq_error *err);
void rmq_queue_table_close(struct rmq_queue_table *table);

/* NULL when the queue is not known. */
struct rmq_queue *rmq_queue_table_find(struct rmq_queue_table *table, const char *topic,
                                       size_t topic_size, int32_t queue_id);
/* Adds the queue unless it is known. is_batch counts for a new one only. RMQ_INVALID: see
 * rmq_topic_is_storable. */
int rmq_queue_table_get(struct rmq_queue_table *table, const char *topic, size_t topic_size,
                        int32_t queue_id, bool is_batch, struct rmq_queue **queue,
                        struct rmq_error *err);

static inline struct rmq_queue *rmq_queue_table_first(struct rmq_queue_table *table)
{
    return atomic_load_explicit(&table->newest, memory_order_acquire);
}
static inline struct rmq_queue *rmq_queue_table_next(struct rmq_queue *queue)
{
    return atomic_load_explicit(&queue->older, memory_order_acquire);
}

/* Whether a folder of that name can hold the topic's queues: 1 to 255 bytes, no '/', no NUL, not
 * "." or "..". */
bool rmq_topic_is_storable(const char *topic, size_t size);

/* Adds every queue that has a folder under consumequeue/ or batchconsumequeue/ (and, with
 * extensions, under consumequeue_ext/) and opens its files, without looking for their ends. Changes
 * no file. RMQ_CORRUPT: a topic in both places. */
int rmq_queue_table_load(struct rmq_queue_table *table, struct rmq_error *err);

/* The verbs of both queue forms. Offsets are queue offsets, log_end and log_start physical ones. */
int rmq_queue_open(struct rmq_queue_table *table, struct rmq_queue *queue, struct rmq_error *err);
/* Finds where a read-only queue ends. */
int rmq_queue_recover(struct rmq_queue *queue, int64_t log_end, struct rmq_error *err);
/* Moves the end back to what the files hold of records before log_end. Changes no file;
 * rmq_queue_truncate must follow. RMQ_CORRUPT: the last unit with an address in the extension leads
 * to no unit there, and its record does not lie before log_start. */
int rmq_queue_rewind(struct rmq_queue *queue, int64_t log_start, int64_t log_end,
                     struct rmq_error *err);
/* Whether rmq_queue_append would take the unit after all units surveyed before: RMQ_OK, or
 * RMQ_CORRUPT for a gap that is too large. Changes no file. */
int rmq_queue_survey(struct rmq_queue *queue, const struct rmq_unit *unit, struct rmq_error *err);
/* Whether the files hold the unit already, so that rmq_queue_keep takes it; false also where that
 * is not looked into: batch queues, and codes in an extension. */
bool rmq_queue_recognise(struct rmq_queue *queue, const struct rmq_unit *unit);
/* As rmq_queue_append of every unit that was recognised since rmq_queue_rewind. */
int rmq_queue_keep(struct rmq_queue *queue, int64_t offset, struct rmq_error *err);
/* unit->tags_code is the code itself; with an extension its address is what the queue stores,
 * except for a unit that came by INNER_MULTI_DISPATCH (is_light). */
int rmq_queue_append(struct rmq_queue *queue, const struct rmq_unit *unit, bool is_light,
                     struct rmq_error *err);
int rmq_queue_truncate(struct rmq_queue *queue, int64_t log_start, int64_t log_end,
                       struct rmq_error *err);
/* Removes every unit; next_offset stays. */
int rmq_queue_clear(struct rmq_queue *queue, struct rmq_error *err);
int rmq_queue_expire(struct rmq_queue *queue, int64_t log_start, struct rmq_error *err);
int rmq_queue_read(struct rmq_queue *queue, int64_t queue_offset, struct rmq_unit *units,
                   size_t capacity, size_t *count, struct rmq_error *err);
/* Units as they lie in the files, by number: those of a simple queue by queue offset, with
 * addresses in an extension as they are; those of a batch queue by place. */
void rmq_queue_numbers(struct rmq_queue *queue, int64_t *first, int64_t *end);
int rmq_queue_units(struct rmq_queue *queue, int64_t from, int64_t upto, struct rmq_unit *units,
                    size_t *count, struct rmq_error *err);
/* Ends a read-only queue before the unit of that number. */
int rmq_queue_end_at(struct rmq_queue *queue, int64_t end, struct rmq_error *err);
int rmq_queue_flush(struct rmq_queue *queue, struct rmq_error *err);
/* See rmq_file_queue_start_flush. */
void rmq_queue_start_flush(struct rmq_queue *queue);
/* The names of all queues that were flushed before are on the device. */
int rmq_queue_table_sync_names(struct rmq_queue_table *table, struct rmq_error *err);
/* Bytes written and not flushed. */
int64_t rmq_queue_dirty(struct rmq_queue *queue);
/* Of a queue without units 0, or where the queue was when its topic was deleted. */
int64_t rmq_queue_min(struct rmq_queue *queue);
int64_t rmq_queue_max(struct rmq_queue *queue);
/* End of the last record indexed; -1 for an empty queue. */
int64_t rmq_queue_physical_end(struct rmq_queue *queue);

#endif
