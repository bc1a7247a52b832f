#include "index/queue_table.h"

#include <assert.h>
#include <inttypes.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/hash.h"

/* ---- the table ---- */

struct rmq_bucket_array {
    struct rmq_bucket_array *outgrown; /* kept until close: a reader may still walk it */
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
        /* A walk beside a growing table may leave its chain and miss; under the lock it cannot. */
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
        return; /* Longer chains are slower, not wrong. */

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

/* ---- verbs of both forms ---- */

static bool is_ready(struct rmq_queue *queue)
{
    return atomic_load_explicit(&queue->is_open, memory_order_acquire);
}

static struct rmq_file_queue *files_of(struct rmq_queue *queue)
{
    return queue->is_batch ? &queue->batch.files : &queue->simple.files;
}

/* Queue offset after the last unit of the files; 0 without one. */
static int64_t end_of_units(struct rmq_queue *queue)
{
    if (!is_ready(queue))
        return 0;
    return queue->is_batch ? atomic_load_explicit(&queue->batch.max_offset, memory_order_acquire)
                           : rmq_consume_queue_max(&queue->simple);
}

int64_t rmq_queue_min(struct rmq_queue *queue)
{
    if (end_of_units(queue) == 0)
        return atomic_load_explicit(&queue->removed_next, memory_order_acquire);
    int64_t min = queue->is_batch
                      ? atomic_load_explicit(&queue->batch.min_offset, memory_order_acquire)
                      : rmq_consume_queue_min(&queue->simple);
    return min < 0 ? 0 : min;
}

int64_t rmq_queue_max(struct rmq_queue *queue)
{
    int64_t end = end_of_units(queue);
    return end > 0 ? end : atomic_load_explicit(&queue->removed_next, memory_order_acquire);
}

int64_t rmq_queue_physical_end(struct rmq_queue *queue)
{
    if (!is_ready(queue))
        return -1;
    return atomic_load_explicit(queue->is_batch ? &queue->batch.physical_end
                                                : &queue->simple.physical_end,
                                memory_order_acquire);
}

int64_t rmq_queue_dirty(struct rmq_queue *queue)
{
    if (!is_ready(queue))
        return 0;
    struct rmq_file_queue *files = files_of(queue);
    return rmq_file_queue_end(files) - rmq_file_queue_flushed(files);
}

/* The last unit with an address in the extension; its tags code is 0 when there is none. */
static int find_last_address(struct rmq_queue *queue, struct rmq_unit *last, struct rmq_error *err)
{
    assert(!queue->is_batch && queue->has_ext);

    struct rmq_unit units[256];
    int64_t first = rmq_file_queue_start(&queue->simple.files) / RMQ_UNIT_SIZE,
            stop = rmq_consume_queue_max(&queue->simple);
    *last = (struct rmq_unit){0};

    /* Units from before the extension was switched on hold no address, nor do light ones. Expired
     * units count: they outlive a cut of all that follows them. */
    while (stop > first && last->tags_code == 0) {
        size_t count = 0;
        assert(stop > first);
        int64_t from = stop - first > 256 ? stop - 256 : first;
        int status =
            rmq_consume_queue_read(&queue->simple, from, units, (size_t)(stop - from), &count, err);
        if (status != RMQ_OK)
            return status;

        for (size_t i = 0; i < count; ++i)
            if (rmq_ext_is_address(units[i].tags_code))
                *last = units[i];
        stop = from;
    }
    return RMQ_OK;
}

/* Where the extension ends by the last unit that refers to it. */
static int find_ext_end(struct rmq_queue *queue, int64_t log_start, int64_t *end,
                        struct rmq_error *err)
{
    assert(queue->has_ext && end);

    struct rmq_file_queue *files = &queue->ext.files;
    struct rmq_unit last;
    *end = 0;
    if (!files->last && files->ahead == 0)
        return RMQ_OK;

    int status = find_last_address(queue, &last, err);
    if (status == RMQ_OK)
        status = rmq_consume_queue_ext_end_of(&queue->ext, last.tags_code, end, err);
    if (status != RMQ_NOT_FOUND)
        return status;

    if (last.physical_offset < log_start) {
        /* Expired; its unit went with a file of the extension, or with those of a cut. */
        *end = files->last ? rmq_file_queue_start(files) : 0;
        return RMQ_OK;
    }

    return rmq_fail(err, RMQ_CORRUPT, rmq_ext_offset(last.tags_code),
                    "consume queue %s/%d refers to byte %lld of its extension, where no unit is; "
                    "rebuild it with rmqstore repair",
                    queue->topic, queue->queue_id, (long long)rmq_ext_offset(last.tags_code));
}

int rmq_queue_recover(struct rmq_queue *queue, int64_t log_end, struct rmq_error *err)
{
    if (!is_ready(queue))
        return RMQ_OK;
    if (queue->is_batch)
        return rmq_batch_consume_queue_recover(&queue->batch, log_end, err);

    assert(queue->simple.files.options.read_only);
    int status = rmq_consume_queue_recover(&queue->simple, log_end, err);
    if (status == RMQ_OK && queue->has_ext)
        status = rmq_consume_queue_ext_recover(&queue->ext, err);
    return status;
}

/* Of a queue that holds nothing from before a crash the process that died may have made the files,
 * and nothing of them may be on the device. */
static int distrust_names(struct rmq_queue *queue, struct rmq_error *err)
{
    struct rmq_file_queue *files = files_of(queue);
    assert(is_ready(queue));
    return files->last && rmq_queue_physical_end(queue) < 0
               ? rmq_file_queue_distrust_names(files, err)
               : RMQ_OK;
}

int rmq_queue_rewind(struct rmq_queue *queue, int64_t log_start, int64_t log_end,
                     struct rmq_error *err)
{
    assert(log_end >= 0);

    if (!is_ready(queue))
        return RMQ_OK;

    int status = queue->is_batch ? rmq_batch_consume_queue_rewind(&queue->batch, log_end, err)
                                 : rmq_consume_queue_rewind(&queue->simple, log_end, err);
    if (status == RMQ_OK)
        status = distrust_names(queue, err);
    if (status != RMQ_OK || !queue->has_ext)
        return status;

    int64_t end = 0;
    status = rmq_consume_queue_ext_recover(&queue->ext, err);
    if (status == RMQ_OK)
        status = find_ext_end(queue, log_start, &end, err);
    if (status == RMQ_OK)
        rmq_consume_queue_ext_rewind(&queue->ext, end);
    return status;
}

int rmq_queue_survey(struct rmq_queue *queue, const struct rmq_unit *unit, struct rmq_error *err)
{
    assert(unit);

    int64_t max = rmq_queue_max(queue), end = max > queue->surveyed_end ? max : queue->surveyed_end;
    bool has_units = queue->surveyed_end > 0 || rmq_queue_min(queue) < max;
    if (has_units && !queue->is_batch && unit->queue_offset - end > RMQ_CONSUME_QUEUE_GAP_MAX)
        return rmq_fail(err, RMQ_CORRUPT, unit->physical_offset,
                        "consume queue %s/%d goes on at %" PRId64 ", not at queue offset %" PRId64
                        "; rebuild it with rmqstore repair",
                        queue->topic, queue->queue_id, end, unit->queue_offset);

    int64_t next = unit->queue_offset + unit->batch_size;
    queue->surveyed_end = next > end ? next : end;
    return RMQ_OK;
}

bool rmq_queue_recognise(struct rmq_queue *queue, const struct rmq_unit *unit)
{
    assert(unit->size > 0);

    return is_ready(queue) && !queue->is_batch && !queue->has_ext && queue->removed_until == 0 &&
           rmq_consume_queue_recognise(&queue->simple, unit->queue_offset, unit->physical_offset,
                                       unit->size, unit->tags_code);
}

int rmq_queue_keep(struct rmq_queue *queue, int64_t offset, struct rmq_error *err)
{
    (void)offset; /* the form of rmq_recover_each_queue */
    return is_ready(queue) && !queue->is_batch ? rmq_consume_queue_keep(&queue->simple, err)
                                               : RMQ_OK;
}

int rmq_queue_append(struct rmq_queue *queue, const struct rmq_unit *unit, bool is_light,
                     struct rmq_error *err)
{
    assert(is_ready(queue));

    if (queue->is_batch)
        return rmq_batch_consume_queue_append(&queue->batch, unit, err);

    int64_t code = unit->tags_code;
    if (queue->has_ext && !is_light &&
        unit->queue_offset >= rmq_consume_queue_max(&queue->simple)) {
        struct rmq_ext_unit ext = {.tags_code = code, .store_timestamp = unit->store_timestamp};
        int status = rmq_consume_queue_ext_append(&queue->ext, &ext, &code, err);
        if (status != RMQ_OK)
            return status;
    }

    return rmq_consume_queue_append(&queue->simple, unit->queue_offset, unit->physical_offset,
                                    unit->size, code, err);
}

int rmq_queue_truncate(struct rmq_queue *queue, int64_t log_start, int64_t log_end,
                       struct rmq_error *err)
{
    assert(log_end >= 0);

    if (!is_ready(queue))
        return RMQ_OK;
    if (queue->is_batch)
        return rmq_batch_consume_queue_truncate(&queue->batch, log_end, err);

    int64_t end = 0;
    int status = rmq_consume_queue_truncate(&queue->simple, log_end, err);
    if (status != RMQ_OK || !queue->has_ext)
        return status;

    status = find_ext_end(queue, log_start, &end, err);
    return status == RMQ_OK ? rmq_consume_queue_ext_truncate(&queue->ext, end, err) : status;
}

int rmq_queue_clear(struct rmq_queue *queue, struct rmq_error *err)
{
    if (!is_ready(queue))
        return RMQ_OK;
    if (queue->is_batch)
        return rmq_batch_consume_queue_clear(&queue->batch, err);

    int status = rmq_consume_queue_clear(&queue->simple, err);
    if (status == RMQ_OK && queue->has_ext)
        status = rmq_file_queue_clear(&queue->ext.files, err);
    return status;
}

static int expire_ext(struct rmq_queue *queue, struct rmq_error *err)
{
    assert(!queue->is_batch && queue->has_ext);

    struct rmq_unit first;
    size_t count = 0;
    int status = rmq_consume_queue_read(&queue->simple, rmq_consume_queue_min(&queue->simple),
                                        &first, 1, &count, err);

    if (status == RMQ_OK && count && rmq_ext_is_address(first.tags_code))
        status = rmq_consume_queue_ext_expire(&queue->ext, first.tags_code, err);
    return status;
}

int rmq_queue_expire(struct rmq_queue *queue, int64_t log_start, struct rmq_error *err)
{
    if (!is_ready(queue))
        return RMQ_OK;
    if (queue->is_batch)
        return rmq_batch_consume_queue_expire(&queue->batch, log_start, err);

    int status = rmq_consume_queue_expire(&queue->simple, log_start, err);
    if (status == RMQ_OK && queue->has_ext && !queue->ext.files.options.read_only)
        status = expire_ext(queue, err);
    return status;
}

/* Puts the code itself in place of an address. Units from the first one without its place in the
 * extension on are left out. */
static int resolve_ext(struct rmq_queue *queue, struct rmq_unit *units, size_t *count,
                       struct rmq_error *err)
{
    assert(units && queue->has_ext);

    uint8_t buffer[RMQ_EXT_UNIT_SIZE_MAX];
    for (size_t i = 0; i < *count; ++i) {
        struct rmq_ext_unit ext;
        if (!rmq_ext_is_address(units[i].tags_code))
            continue;

        int status = rmq_consume_queue_ext_read(&queue->ext, units[i].tags_code, buffer, &ext, err);
        if (status == RMQ_NOT_FOUND) {
            *count = i;
            if (i > 0 || units[i].queue_offset >= rmq_queue_max(queue))
                return RMQ_OK;
            return rmq_fail(err, RMQ_CORRUPT, units[i].physical_offset,
                            "consume queue %s/%d: unit %lld has no place in the extension; rebuild "
                            "it with rmqstore repair",
                            queue->topic, queue->queue_id, (long long)units[i].queue_offset);
        }

        if (status != RMQ_OK)
            return status;
        units[i].tags_code = ext.tags_code;
        units[i].store_timestamp = ext.store_timestamp;
    }
    return RMQ_OK;
}

int rmq_queue_read(struct rmq_queue *queue, int64_t queue_offset, struct rmq_unit *units,
                   size_t capacity, size_t *count, struct rmq_error *err)
{
    assert(units && count);

    *count = 0;
    if (!is_ready(queue))
        return RMQ_OK;
    if (queue->is_batch)
        return rmq_batch_consume_queue_read(&queue->batch, queue_offset, units, capacity, count,
                                            err);

    int status = rmq_consume_queue_read(&queue->simple, queue_offset, units, capacity, count, err);
    if (status == RMQ_OK && queue->has_ext)
        status = resolve_ext(queue, units, count, err);
    return status;
}

void rmq_queue_numbers(struct rmq_queue *queue, int64_t *first, int64_t *end)
{
    assert(first && end);

    *first = *end = 0;

    if (is_ready(queue) && queue->is_batch && queue->batch.files.last) {
        *first = rmq_batch_consume_queue_first(&queue->batch);
        *end = rmq_batch_consume_queue_end(&queue->batch);
    } else if (is_ready(queue) && !queue->is_batch) {
        *first = rmq_consume_queue_first(&queue->simple);
        *end = rmq_consume_queue_max(&queue->simple);
    }
}

int rmq_queue_units(struct rmq_queue *queue, int64_t from, int64_t upto, struct rmq_unit *units,
                    size_t *count, struct rmq_error *err)
{
    assert(is_ready(queue) || from >= upto);

    return queue->is_batch
               ? rmq_batch_consume_queue_units(&queue->batch, from, upto, units, count, err)
               : rmq_consume_queue_units(&queue->simple, from, upto, units, count, err);
}

int rmq_queue_end_at(struct rmq_queue *queue, int64_t end, struct rmq_error *err)
{
    assert(end >= 0);

    if (!is_ready(queue))
        return RMQ_OK;
    return queue->is_batch ? rmq_batch_consume_queue_end_at(&queue->batch, end, err)
                           : rmq_consume_queue_end_at(&queue->simple, end, err);
}

int rmq_queue_flush(struct rmq_queue *queue, struct rmq_error *err)
{
    if (!is_ready(queue))
        return RMQ_OK;
    if (queue->is_batch)
        return rmq_batch_consume_queue_flush(&queue->batch, err);

    int status = queue->has_ext ? rmq_consume_queue_ext_flush(&queue->ext, err) : RMQ_OK;
    return status == RMQ_OK ? rmq_consume_queue_flush(&queue->simple, err) : status;
}

void rmq_queue_start_flush(struct rmq_queue *queue)
{
    if (is_ready(queue))
        rmq_file_queue_start_flush(files_of(queue));
}

int rmq_queue_table_sync_names(struct rmq_queue_table *table, struct rmq_error *err)
{
    assert(!table->options.read_only);
    return rmq_unsynced_folders_sync(&table->unsynced, table->options.vfs, err);
}
