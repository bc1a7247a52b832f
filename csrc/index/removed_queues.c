#include "index/removed_queues.h"

#include <assert.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/bytes.h"
#include "base/crc32.h"
#include "base/small_file.h"

/* ---- the file ---- */

static int refuse(const char *path, const char *why, struct rmq_error *err)
{
    assert(path && why);

    return rmq_fail(err, RMQ_CORRUPT, -1,
                    "%s %s; restore it from a copy, or remove it and run rmqstore repair, which "
                    "brings back what the log holds of deleted topics",
                    path, why);
}

static int read_entry(struct rmq_queue_table *table, const uint8_t *data, size_t size, size_t *used,
                      const char *path, struct rmq_error *err)
{
    assert(used);

    if (size < RMQ_REMOVED_ENTRY_SIZE || size - RMQ_REMOVED_ENTRY_SIZE < data[21])
        return refuse(path, "ends within an entry", err);

    int64_t next = rmq_get_i64(data), until = rmq_get_i64(data + 8);
    int32_t queue_id = rmq_get_i32(data + 16);
    const char *topic = (const char *)data + RMQ_REMOVED_ENTRY_SIZE;
    *used = RMQ_REMOVED_ENTRY_SIZE + (size_t)data[21];
    if (next < 0 || until < 0 || queue_id < 0 || data[20] > 1 ||
        !rmq_topic_is_storable(topic, data[21]))
        return refuse(path, "holds an impossible entry", err);

    struct rmq_queue *queue = NULL;
    int status = rmq_queue_table_get(table, topic, data[21], queue_id, data[20] == 1, &queue, err);
    if (status == RMQ_OK) {
        atomic_store(&queue->removed_next, next);
        queue->removed_until = until;
    }
    return status;
}

static int read_entries(struct rmq_queue_table *table, const uint8_t *data, size_t size,
                        const char *path, struct rmq_error *err)
{
    assert(data);

    if (size < RMQ_REMOVED_HEADER_SIZE || (uint32_t)rmq_get_i32(data) != RMQ_REMOVED_QUEUES_MAGIC ||
        (uint32_t)rmq_get_i32(data + 8) !=
            rmq_crc32(0, data + RMQ_REMOVED_HEADER_SIZE, size - RMQ_REMOVED_HEADER_SIZE))
        return refuse(path, "does not match its CRC", err);

    size_t at = RMQ_REMOVED_HEADER_SIZE;
    int status = RMQ_OK;
    for (uint32_t left = (uint32_t)rmq_get_i32(data + 4); left > 0 && status == RMQ_OK; --left) {
        size_t used = 0;
        status = read_entry(table, data + at, size - at, &used, path, err);
        at += used;
    }
    if (status == RMQ_OK && at != size)
        return refuse(path, "has bytes after its last entry", err);
    return status;
}

static int path_of(const struct rmq_queue_table *table, char path[PATH_MAX], struct rmq_error *err)
{
    assert(table->options.root);
    return rmq_path_join(path, PATH_MAX, table->options.root, RMQ_REMOVED_QUEUES_NAME, err);
}

int rmq_removed_queues_load(struct rmq_queue_table *table, struct rmq_error *err)
{
    assert(table);

    char path[PATH_MAX];
    struct rmq_vfs *vfs = table->options.vfs;
    struct rmq_file_info info;
    int fd = -1;
    int status = path_of(table, path, err);
    if (status == RMQ_OK)
        status = vfs->stat(vfs, path, &info, err);
    if (status == RMQ_OK)
        status = vfs->open(vfs, path, 0, &fd, err);
    if (status != RMQ_OK)
        return status == RMQ_NOT_FOUND ? RMQ_OK : status;

    size_t got = 0;
    uint8_t *data = info.size > 0 ? malloc((size_t)info.size) : NULL;
    if (data)
        status = vfs->read(vfs, fd, data, (size_t)info.size, 0, &got, err);
    else
        status = info.size > 0 ? rmq_fail(err, RMQ_NO_MEMORY, -1, "no memory to read %s", path)
                               : refuse(path, "is empty", err);
    if (status == RMQ_OK)
        status = read_entries(table, data, got, path, err);

    free(data);
    (void)vfs->close(vfs, fd, NULL);
    return status;
}

static bool is_removed(const struct rmq_queue *queue)
{
    return queue->removed_until > 0;
}

static size_t write_entry(const struct rmq_queue *queue, uint8_t *data)
{
    assert(queue->topic_size <= UINT8_MAX);

    rmq_put_i64(data, atomic_load(&queue->removed_next));
    rmq_put_i64(data + 8, queue->removed_until);
    rmq_put_i32(data + 16, queue->queue_id);
    data[20] = queue->is_batch;
    data[21] = (uint8_t)queue->topic_size;
    memcpy(data + RMQ_REMOVED_ENTRY_SIZE, queue->topic, queue->topic_size);
    return RMQ_REMOVED_ENTRY_SIZE + queue->topic_size;
}

/* Replaces the file by data. After a failure, finds out whether the data may be in the file. */
static int replace(struct rmq_queue_table *table, const uint8_t *data, size_t size, bool *is_unsure,
                   struct rmq_error *err)
{
    assert(data);

    char path[PATH_MAX];
    struct rmq_vfs *vfs = table->options.vfs;
    struct rmq_file_info before = {0}, after = {0};
    int status = path_of(table, path, err);
    if (status != RMQ_OK)
        return status;

    int was_there = vfs->stat(vfs, path, &before, NULL);
    status =
        rmq_small_file_replace(vfs, table->options.root, RMQ_REMOVED_QUEUES_NAME, data, size, err);
    if (status != RMQ_OK && is_unsure) {
        int is_there = vfs->stat(vfs, path, &after, NULL);
        *is_unsure = was_there != is_there || before.identity != after.identity ||
                     (is_there != RMQ_OK && is_there != RMQ_NOT_FOUND);
    }
    return status;
}

int rmq_removed_queues_save(struct rmq_queue_table *table, bool *is_unsure, struct rmq_error *err)
{
    assert(!table->options.read_only);

    uint32_t count = 0;
    size_t size = RMQ_REMOVED_HEADER_SIZE;
    /* Only the caller marks queues as removed, so both walks find the same queues. */
    for (struct rmq_queue *queue = rmq_queue_table_first(table); queue;
         queue = rmq_queue_table_next(queue))
        if (is_removed(queue)) {
            ++count;
            size += RMQ_REMOVED_ENTRY_SIZE + queue->topic_size;
        }

    uint8_t *data = malloc(size);
    if (!data)
        return rmq_fail(err, RMQ_NO_MEMORY, -1, "no memory for %u removed queues", count);

    size_t at = RMQ_REMOVED_HEADER_SIZE;
    for (struct rmq_queue *queue = rmq_queue_table_first(table); queue;
         queue = rmq_queue_table_next(queue))
        if (is_removed(queue))
            at += write_entry(queue, data + at);
    assert(at == size);

    rmq_put_i32(data, (int32_t)RMQ_REMOVED_QUEUES_MAGIC);
    rmq_put_i32(data + 4, (int32_t)count);
    rmq_put_i32(data + 8, (int32_t)rmq_crc32(0, data + RMQ_REMOVED_HEADER_SIZE,
                                             size - RMQ_REMOVED_HEADER_SIZE));
    int status = replace(table, data, size, is_unsure, err);
    free(data);
    return status;
}

/* ---- one queue ---- */

void rmq_removed_queue_count(struct rmq_queue *queue, const struct rmq_unit *unit)
{
    assert(unit->batch_size > 0);

    int64_t next = atomic_load(&queue->removed_next), end = unit->queue_offset + unit->batch_size;
    if (unit->physical_offset < queue->removed_until)
        next = next > end ? next : end;
    else
        next = next < unit->queue_offset ? next : unit->queue_offset;
    atomic_store(&queue->removed_next, next);
}

/* A folder that still has other files stays. */
static void remove_folders(struct rmq_queue_table *table, const struct rmq_queue *queue)
{
    static const char *const kinds[] = {"consumequeue", "batchconsumequeue", "consumequeue_ext"};
    struct rmq_vfs *vfs = table->options.vfs;

    for (size_t i = 0; i < sizeof kinds / sizeof kinds[0]; ++i) {
        char path[PATH_MAX];
        int size =
            snprintf(path, sizeof path, "%s/%s/%s", table->options.root, kinds[i], queue->topic);
        if (size < 0 || (size_t)size >= sizeof path)
            continue;

        size_t topic_size = (size_t)size;
        size = snprintf(path + topic_size, sizeof path - topic_size, "/%d", queue->queue_id);
        if (size > 0 && (size_t)size < sizeof path - topic_size &&
            vfs->remove_directory(vfs, path, NULL) == RMQ_OK) {
            path[topic_size] = 0;
            (void)vfs->remove_directory(vfs, path, NULL);
        }
    }
}

int rmq_removed_queue_clear(struct rmq_queue_table *table, struct rmq_queue *queue,
                            struct rmq_error *err)
{
    assert(is_removed(queue));

    int status = rmq_queue_clear(queue, err);
    if (status == RMQ_OK)
        remove_folders(table, queue);
    return status;
}
