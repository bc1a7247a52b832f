#include "index/queue_table.h"

#include <assert.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/hash.h"

/* ---- the table ---- */

struct rmq_bucket_array {
    struct rmq_bucket_array *outgrown; /* kept until close: a reader may still search it */
    size_t count;                      /* power of two */
    _Atomic(struct rmq_queue *) heads[];
};

static struct rmq_bucket_array *make_buckets(size_t count, struct rmq_bucket_array *outgrown)
{
    assert(count > 0 && (count & (count - 1)) == 0);

    struct rmq_bucket_array *buckets =
        calloc(1, sizeof *buckets + count * sizeof buckets->heads[0]);

    if (buckets) {
        buckets->count = count;
        buckets->outgrown = outgrown;
    }
    return buckets;
}

int rmq_queue_table_open(struct rmq_queue_table *table, const struct rmq_queue_options *options,
                         struct rmq_error *err)
{
    assert(options->vfs && options->root);

    memset(table, 0, sizeof *table);
    table->options = *options;
    table->options.root = strdup(options->root);

    struct rmq_bucket_array *buckets = make_buckets(1024, NULL);
    if (!table->options.root || !buckets) {
        free((char *)table->options.root);
        free(buckets);
        return rmq_fail(err, RMQ_NO_MEMORY, -1, "no memory for the queue table");
    }

    atomic_init(&table->buckets, buckets);
    pthread_mutex_init(&table->lock, NULL);
    pthread_mutex_init(&table->open_lock, NULL);
    table->lost_index_end = -1;
    rmq_unsynced_folders_init(&table->unsynced);
    table->budget.hot_uses = options->hot_uses > 0 ? options->hot_uses : RMQ_QUEUE_HOT_USES;
    atomic_init(&table->budget.left,
                options->mappings_max > 0 ? options->mappings_max : RMQ_QUEUE_MAPPINGS_MAX);
    return RMQ_OK;
}

static void free_queue(struct rmq_queue *queue)
{
    assert(queue->topic);

    if (atomic_load(&queue->is_open)) {
        if (queue->is_batch)
            rmq_batch_consume_queue_close(&queue->batch);
        else
            rmq_consume_queue_close(&queue->simple);
        if (queue->has_ext)
            rmq_consume_queue_ext_close(&queue->ext);
    }

    free(queue->topic);
    free(queue);
}

void rmq_queue_table_close(struct rmq_queue_table *table)
{
    assert(atomic_load(&table->buckets));

    struct rmq_queue *queue = rmq_queue_table_first(table);
    while (queue) {
        struct rmq_queue *older = rmq_queue_table_next(queue);
        free_queue(queue);
        queue = older;
    }

    struct rmq_bucket_array *buckets = atomic_load(&table->buckets);
    while (buckets) {
        struct rmq_bucket_array *outgrown = buckets->outgrown;
        free(buckets);
        buckets = outgrown;
    }

    free((char *)table->options.root);
    pthread_mutex_destroy(&table->lock);
    pthread_mutex_destroy(&table->open_lock);
    rmq_unsynced_folders_destroy(&table->unsynced);
}

static uint64_t hash_queue(const char *topic, size_t size, int32_t queue_id)
{
    return rmq_table_hash(topic, size, (uint32_t)queue_id);
}

static bool is_queue(const struct rmq_queue *queue, uint64_t hash, const char *topic, size_t size,
                     int32_t queue_id)
{
    return queue->hash == hash && queue->queue_id == queue_id && queue->topic_size == size &&
           memcmp(queue->topic, topic, size) == 0;
}

static struct rmq_queue *lookup(struct rmq_queue_table *table, const char *topic, size_t size,
                                int32_t queue_id)
{
    assert(topic || size == 0);

    uint64_t hash = hash_queue(topic, size, queue_id);

    struct rmq_bucket_array *buckets = atomic_load_explicit(&table->buckets, memory_order_acquire);
    struct rmq_queue *queue =
        atomic_load_explicit(&buckets->heads[hash & (buckets->count - 1)], memory_order_acquire);

    while (queue && !is_queue(queue, hash, topic, size, queue_id))
        queue = atomic_load_explicit(&queue->chain, memory_order_acquire);
    return queue;
}

struct rmq_queue *rmq_queue_table_find(struct rmq_queue_table *table, const char *topic,
                                       size_t size, int32_t queue_id)
{
    struct rmq_queue *queue = lookup(table, topic, size, queue_id);
    if (!queue) {
        /* A search beside a growing table may leave its chain and miss an entry; a search under the
         * lock cannot. */
        pthread_mutex_lock(&table->lock);
        queue = lookup(table, topic, size, queue_id);
        pthread_mutex_unlock(&table->lock);
    }
    assert(!queue || queue->queue_id == queue_id);
    return queue;
}

static void grow(struct rmq_queue_table *table)
{
    struct rmq_bucket_array *old = atomic_load(&table->buckets);
    assert((old->count & (old->count - 1)) == 0);
    struct rmq_bucket_array *buckets = make_buckets(old->count * 4, old);
    if (!buckets)
        return; /* Longer chains are slower, but not wrong. */

    for (struct rmq_queue *queue = rmq_queue_table_first(table); queue;
         queue = rmq_queue_table_next(queue)) {
        size_t at = queue->hash & (buckets->count - 1);
        atomic_store_explicit(&queue->chain, atomic_load(&buckets->heads[at]),
                              memory_order_release);
        atomic_store(&buckets->heads[at], queue);
    }

    atomic_store_explicit(&table->buckets, buckets, memory_order_release);
}

bool rmq_topic_is_storable(const char *topic, size_t size)
{
    if (size == 0 || size > 255 || memchr(topic, '/', size) || memchr(topic, 0, size))
        return false;
    return !(topic[0] == '.' && (size == 1 || (size == 2 && topic[1] == '.')));
}

static struct rmq_queue *make_queue(const char *topic, size_t size, int32_t queue_id, bool is_batch)
{
    assert(rmq_topic_is_storable(topic, size) && queue_id >= 0);

    struct rmq_queue *queue = calloc(1, sizeof *queue);
    char *copy = malloc(size + 1);
    if (!queue || !copy) {
        free(queue);
        free(copy);
        return NULL;
    }

    memcpy(copy, topic, size);
    copy[size] = 0;

    queue->topic = copy;
    queue->topic_size = size;
    queue->queue_id = queue_id;
    queue->hash = hash_queue(topic, size, queue_id);
    queue->is_batch = is_batch;
    return queue;
}

int rmq_queue_table_get(struct rmq_queue_table *table, const char *topic, size_t size,
                        int32_t queue_id, bool is_batch, struct rmq_queue **out,
                        struct rmq_error *err)
{
    assert(out);

    *out = lookup(table, topic, size, queue_id);
    if (*out)
        return RMQ_OK;

    if (!rmq_topic_is_storable(topic, size) || queue_id < 0)
        return rmq_fail(err, RMQ_INVALID, -1,
                        "topic of %zu bytes, queue %d: a topic has 1 to 255 bytes, no '/', no "
                        "NUL and is not \".\" or \"..\"; a queue id is not negative",
                        size, queue_id);

    int status = RMQ_OK;

    pthread_mutex_lock(&table->lock);
    *out = lookup(table, topic, size, queue_id);
    if (!*out) {
        struct rmq_queue *queue = make_queue(topic, size, queue_id, is_batch);
        if (queue) {

            struct rmq_bucket_array *buckets = atomic_load(&table->buckets);
            size_t at = queue->hash & (buckets->count - 1);
            atomic_init(&queue->chain, atomic_load(&buckets->heads[at]));
            atomic_init(&queue->older, atomic_load(&table->newest));
            atomic_store_explicit(&buckets->heads[at], queue, memory_order_release);
            atomic_store_explicit(&table->newest, queue, memory_order_release);
            if (atomic_fetch_add(&table->count, 1) + 1 > buckets->count * 2)
                grow(table);

            *out = queue;
        } else {
            status =
                rmq_fail(err, RMQ_NO_MEMORY, -1, "no memory for a queue of %.*s", (int)size, topic);
        }
    }
    pthread_mutex_unlock(&table->lock);
    assert(status != RMQ_OK || (*out)->queue_id == queue_id);
    return status;
}

/* ---- the files of a queue ---- */

static int directory_of(const struct rmq_queue_table *table, const struct rmq_queue *queue,
                        const char *kind, char out[PATH_MAX], struct rmq_error *err)
{
    assert(kind && queue->topic && queue->queue_id >= 0);

    int size = snprintf(out, PATH_MAX, "%s/%s/%s/%d", table->options.root, kind, queue->topic,
                        queue->queue_id);

    if (size < 0 || size >= PATH_MAX)
        return rmq_fail(err, RMQ_INVALID, -1, "path too long for queue %d of %s", queue->queue_id,
                        queue->topic);
    return RMQ_OK;
}

static int open_files(struct rmq_queue_table *table, struct rmq_queue *queue, struct rmq_error *err)
{
    assert(!atomic_load(&queue->is_open));

    const struct rmq_queue_options *options = &table->options;
    struct rmq_unsynced_folders *unsynced = options->read_only ? NULL : &table->unsynced;
    char path[PATH_MAX];
    int status = directory_of(table, queue, queue->is_batch ? "batchconsumequeue" : "consumequeue",
                              path, err);
    if (status != RMQ_OK)
        return status;

    if (queue->is_batch)
        return rmq_batch_consume_queue_open(&queue->batch, options->vfs, path,
                                            options->batch_file_size, options->read_only, unsynced,
                                            &table->budget, err);

    status = rmq_consume_queue_open(&queue->simple, options->vfs, path, options->queue_file_size,
                                    options->read_only, unsynced, &table->budget, err);

    if (status == RMQ_OK && options->enable_ext) {
        status = directory_of(table, queue, "consumequeue_ext", path, err);
        if (status == RMQ_OK)
            status = rmq_consume_queue_ext_open(&queue->ext, options->vfs, path,
                                                options->ext_file_size, options->read_only, err);
        if (status == RMQ_OK)
            queue->has_ext = true;
        else
            rmq_consume_queue_close(&queue->simple);
    }
    return status;
}

int rmq_queue_open(struct rmq_queue_table *table, struct rmq_queue *queue, struct rmq_error *err)
{
    assert(table && queue);

    if (atomic_load_explicit(&queue->is_open, memory_order_acquire))
        return RMQ_OK;

    int status = RMQ_OK;
    pthread_mutex_lock(&table->open_lock);
    if (!atomic_load(&queue->is_open)) {
        status = open_files(table, queue, err);
        if (status == RMQ_OK)
            atomic_store_explicit(&queue->is_open, true, memory_order_release);
    }
    pthread_mutex_unlock(&table->open_lock);
    return status;
}

struct scan {
    struct rmq_queue_table *table;
    const char *topic; /* NULL while topics are listed */
    const char *directory;
    bool is_batch;
    bool is_ext;
    struct rmq_error *err;
};

static int visit_queue(void *context, const char *name, bool is_directory)
{
    struct scan *scan = context;
    assert(scan->topic);

    int64_t id = 0;
    if (!is_directory || !rmq_file_name_parse(name, &id) || id > INT32_MAX)
        return RMQ_OK;

    struct rmq_queue *queue = NULL;
    int status = rmq_queue_table_get(scan->table, scan->topic, strlen(scan->topic), (int32_t)id,
                                     scan->is_batch, &queue, scan->err);
    if (status != RMQ_OK || (scan->is_ext && queue->is_batch))
        return status;

    if (queue->is_batch != scan->is_batch)
        return rmq_fail(scan->err, RMQ_CORRUPT, -1,
                        "%s/%s: the topic has queues under consumequeue and under "
                        "batchconsumequeue; remove the folder that does not fit its queue.type",
                        scan->topic, name);
    return rmq_queue_open(scan->table, queue, scan->err);
}

static int visit_topic(void *context, const char *name, bool is_directory)
{
    struct scan *scan = context;
    assert(!scan->topic && scan->directory);

    char path[PATH_MAX];
    if (!is_directory)
        return RMQ_OK;
    int status = rmq_path_join(path, sizeof path, scan->directory, name, scan->err);
    if (status != RMQ_OK)
        return status;

    struct scan queues = *scan;
    queues.topic = name;
    return scan->table->options.vfs->list(scan->table->options.vfs, path, visit_queue, &queues,
                                          scan->err);
}

int rmq_queue_table_load(struct rmq_queue_table *table, struct rmq_error *err)
{
    assert(table->options.root);

    static const char *const kinds[] = {"consumequeue", "batchconsumequeue", "consumequeue_ext"};
    int count = table->options.enable_ext ? 3 : 2;
    for (int kind = 0; kind < count; ++kind) {
        char path[PATH_MAX];
        int size = snprintf(path, sizeof path, "%s/%s", table->options.root, kinds[kind]);
        if (size < 0 || (size_t)size >= sizeof path)
            return rmq_fail(err, RMQ_INVALID, -1, "path too long: %s", table->options.root);

        struct scan scan = {table, NULL, path, kind == 1, kind == 2, err};
        int status = table->options.vfs->list(table->options.vfs, path, visit_topic, &scan, err);
        if (status != RMQ_OK && status != RMQ_NOT_FOUND)
            return status;
    }
    return RMQ_OK;
}

int rmq_queue_table_sync_names(struct rmq_queue_table *table, struct rmq_error *err)
{
    assert(!table->options.read_only);
    return rmq_unsynced_folders_sync(&table->unsynced, table->options.vfs, err);
}
