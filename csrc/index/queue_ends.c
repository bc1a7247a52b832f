#include "index/queue_ends.h"

#include <assert.h>
#include <limits.h>
#include <stdlib.h>
#include <string.h>

#include "base/bytes.h"
#include "base/crc32.h"
#include "base/small_file.h"

/* ---- reading ---- */

static bool read_queue(struct rmq_queue_table *table, const uint8_t *data, size_t size,
                       size_t *used)
{
    assert(used);

    if (size < RMQ_QUEUE_ENDS_QUEUE_SIZE || size - RMQ_QUEUE_ENDS_QUEUE_SIZE < data[21])
        return false;

    *used = RMQ_QUEUE_ENDS_QUEUE_SIZE + (size_t)data[21];
    struct rmq_queue *queue = rmq_queue_table_find(
        table, (const char *)data + RMQ_QUEUE_ENDS_QUEUE_SIZE, data[21], rmq_get_i32(data + 16));
    if (queue) {
        queue->kept_start = rmq_get_i64(data);
        queue->kept_end = rmq_get_i64(data + 8);
    } else {
        table->lacks_queues = true;
    }
    return true;
}

/* Whether the index file exists, or recovery builds it again in any case, because recovery enters
 * all records after the last one of the index. */
static bool is_indexed(struct rmq_index *index, int64_t begin)
{
    for (size_t i = 0; i < index->count; ++i)
        if (rmq_index_header(index->files[i], RMQ_INDEX_BEGIN_OFFSET) == begin)
            return true;
    return !index->options.read_only &&
           (index->count == 0 || begin > rmq_index_newest_begin(index));
}

/* False: the bytes were changed after they were written. */
static bool read_all(struct rmq_queue_table *table, struct rmq_index *index, const uint8_t *data,
                     size_t size)
{
    if (size < RMQ_QUEUE_ENDS_HEADER_SIZE || (uint32_t)rmq_get_i32(data) != RMQ_QUEUE_ENDS_MAGIC ||
        (uint32_t)rmq_get_i32(data + 12) !=
            rmq_crc32(0, data + RMQ_QUEUE_ENDS_HEADER_SIZE, size - RMQ_QUEUE_ENDS_HEADER_SIZE))
        return false;

    size_t at = RMQ_QUEUE_ENDS_HEADER_SIZE;
    for (uint32_t left = (uint32_t)rmq_get_i32(data + 4); left > 0; --left) {
        size_t used = 0;
        if (!read_queue(table, data + at, size - at, &used))
            return false;
        at += used;
    }

    uint32_t files = (uint32_t)rmq_get_i32(data + 8);
    if ((size - at) / RMQ_QUEUE_ENDS_INDEX_SIZE != files)
        return false;
    for (; files > 0 && index; --files, at += RMQ_QUEUE_ENDS_INDEX_SIZE)
        if (!is_indexed(index, rmq_get_i64(data + at))) {
            int64_t end = rmq_get_i64(data + at + 8);
            table->lost_index_end = end > table->lost_index_end ? end : table->lost_index_end;
        }
    return true;
}

int rmq_queue_ends_load(struct rmq_queue_table *table, struct rmq_index *index,
                        struct rmq_error *err)
{
    assert(table->options.root);

    char path[PATH_MAX];
    struct rmq_vfs *vfs = table->options.vfs;
    struct rmq_file_info info;
    int fd = -1;
    int status = rmq_path_join(path, sizeof path, table->options.root, RMQ_QUEUE_ENDS_NAME, err);
    if (status == RMQ_OK)
        status = vfs->stat(vfs, path, &info, err);
    if (status == RMQ_OK && (!info.is_regular || info.size > RMQ_QUEUE_ENDS_SIZE_MAX)) {
        table->lacks_queues = true;
        return RMQ_OK;
    }
    if (status == RMQ_OK)
        status = vfs->open(vfs, path, 0, &fd, err);
    if (status != RMQ_OK)
        return status == RMQ_NOT_FOUND ? RMQ_OK : status;

    size_t size = info.size > 0 ? (size_t)info.size : 0, got = 0;
    uint8_t *data = malloc(size + 1);
    if (data)
        status = vfs->read(vfs, fd, data, size, 0, &got, err);
    else
        status = rmq_fail(err, RMQ_NO_MEMORY, -1, "no memory to read %s", path);
    if (status == RMQ_OK && !read_all(table, index, data, got))
        table->lacks_queues = true;

    free(data);
    (void)vfs->close(vfs, fd, NULL);
    return status;
}

/* ---- writing ---- */

static bool has_units(struct rmq_queue *queue)
{
    return rmq_queue_physical_end(queue) >= 0;
}

static size_t write_queue(struct rmq_queue *queue, uint8_t *data)
{
    assert(queue->topic_size <= UINT8_MAX);

    rmq_put_i64(data, queue->kept_start);
    rmq_put_i64(data + 8, queue->kept_end);
    rmq_put_i32(data + 16, queue->queue_id);
    data[20] = queue->is_batch;
    data[21] = (uint8_t)queue->topic_size;
    memcpy(data + RMQ_QUEUE_ENDS_QUEUE_SIZE, queue->topic, queue->topic_size);
    return RMQ_QUEUE_ENDS_QUEUE_SIZE + queue->topic_size;
}

int rmq_queue_ends_save(struct rmq_queue_table *table, struct rmq_index *index, bool is_closed,
                        struct rmq_error *err)
{
    assert(!table->options.read_only);

    size_t files = index ? index->count : 0;
    size_t size = RMQ_QUEUE_ENDS_HEADER_SIZE + files * RMQ_QUEUE_ENDS_INDEX_SIZE;
    uint32_t count = 0;
    for (struct rmq_queue *queue = rmq_queue_table_first(table); queue;
         queue = rmq_queue_table_next(queue))
        if (has_units(queue)) {
            int64_t end = rmq_queue_max(queue);
            queue->kept_start = rmq_queue_file_start(queue);
            if (is_closed || queue->kept_end > end)
                queue->kept_end = end;
            ++count;
            size += RMQ_QUEUE_ENDS_QUEUE_SIZE + queue->topic_size;
        }

    uint8_t *data = malloc(size);
    if (!data)
        return rmq_fail(err, RMQ_NO_MEMORY, -1, "no memory for the ends of %u queues", count);

    size_t at = RMQ_QUEUE_ENDS_HEADER_SIZE;
    for (struct rmq_queue *queue = rmq_queue_table_first(table); queue;
         queue = rmq_queue_table_next(queue))
        if (has_units(queue))
            at += write_queue(queue, data + at);
    for (size_t i = 0; i < files; ++i, at += RMQ_QUEUE_ENDS_INDEX_SIZE) {
        rmq_put_i64(data + at, rmq_index_header(index->files[i], RMQ_INDEX_BEGIN_OFFSET));
        rmq_put_i64(data + at + 8, rmq_index_header(index->files[i], RMQ_INDEX_END_OFFSET));
    }
    assert(at == size);

    rmq_put_i32(data, (int32_t)RMQ_QUEUE_ENDS_MAGIC);
    rmq_put_i32(data + 4, (int32_t)count);
    rmq_put_i32(data + 8, (int32_t)files);
    rmq_put_i32(data + 12, (int32_t)rmq_crc32(0, data + RMQ_QUEUE_ENDS_HEADER_SIZE,
                                              size - RMQ_QUEUE_ENDS_HEADER_SIZE));
    int status = rmq_small_file_replace(table->options.vfs, table->options.root,
                                        RMQ_QUEUE_ENDS_NAME, data, size, err);
    free(data);
    return status;
}
