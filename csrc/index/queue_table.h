/* queue_table.h -- the queues of a store, found by topic and queue id.
 *
 * Lookups take no lock: entries are only added, and stay where they are until the table is closed.
 * Adding takes the table's mutex. A queue is known from its first message on; its files are made by
 * the dispatcher.
 */
#ifndef RMQ_QUEUE_TABLE_H
#define RMQ_QUEUE_TABLE_H

#include "index/queue.h"

struct rmq_queue_options {
    struct rmq_vfs *vfs;
    const char *root; /* store root */
    int64_t queue_file_size;
    int64_t batch_file_size;
    int64_t ext_file_size;
    bool enable_ext;
    bool read_only;
    int64_t mappings_max; /* mapped queue files at a time; 0: RMQ_QUEUE_MAPPINGS_MAX */
    int32_t hot_uses;     /* see file_access.h; 0: RMQ_QUEUE_HOT_USES */
};

/* A quarter of the default limit of Linux for a process (vm.max_map_count, 65,530): the log, its
 * readers and other stores need mappings too. */
#define RMQ_QUEUE_MAPPINGS_MAX 16384
/* More uses than opening a queue and reading its few messages once. */
#define RMQ_QUEUE_HOT_USES 32

struct rmq_bucket_array;

struct rmq_queue_table {
    struct rmq_queue_options options;
    pthread_mutex_t lock;      /* protects the table while entries are added; a put waits for it */
    pthread_mutex_t open_lock; /* protects opening files, which waits for the disk */
    _Atomic(struct rmq_bucket_array *) buckets;
    _Atomic(struct rmq_queue *) newest;
    _Atomic size_t count;
    struct rmq_unsynced_folders unsynced;
    struct rmq_map_budget budget;
    /* From queue_ends.h: a listed queue has no folder; the end offset of a lost index file, -1 for
     * none. */
    bool lacks_queues;
    int64_t lost_index_end;
};

int rmq_queue_table_open(struct rmq_queue_table *table, const struct rmq_queue_options *options,
                         struct rmq_error *err);
void rmq_queue_table_close(struct rmq_queue_table *table);

/* NULL when the table has no such queue. */
struct rmq_queue *rmq_queue_table_find(struct rmq_queue_table *table, const char *topic,
                                       size_t topic_size, int32_t queue_id);
/* Adds the queue unless the table has it. is_batch applies to a new queue only. RMQ_INVALID: see
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

/* Whether a folder may have the topic's name: 1 to 255 bytes, without '/' and NUL, not "." or
 * "..". */
bool rmq_topic_is_storable(const char *topic, size_t size);

/* Adds every queue that has a folder under consumequeue/ or batchconsumequeue/ (and, with
 * extensions, under consumequeue_ext/) and opens its files, without searching for their ends.
 * Changes no file. RMQ_CORRUPT: a topic in both places. */
int rmq_queue_table_load(struct rmq_queue_table *table, struct rmq_error *err);

/* Makes or opens the files of a queue. */
int rmq_queue_open(struct rmq_queue_table *table, struct rmq_queue *queue, struct rmq_error *err);
/* Syncs folders: on return the names of all queues that were flushed before the call are on the
 * device. */
int rmq_queue_table_sync_names(struct rmq_queue_table *table, struct rmq_error *err);

#endif
