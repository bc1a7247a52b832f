#include "file/file_queue.h"

#include <assert.h>
#include <limits.h>
#include <stdio.h>
#include <string.h>

/* ---- the end ---- */

/* Removes the last file from the array; its unlinking is on the device. */
static int drop_last(struct rmq_file_queue *queue, struct rmq_error *err)
{
    assert(queue->count + queue->ahead > 0);

    struct rmq_mapped_file *file = queue->files[queue->count + queue->ahead - 1];
    int status = rmq_mapped_file_unlink(file, err);
    if (status != RMQ_OK)
        return status;

    struct rmq_vfs *vfs = queue->options.vfs;
    /* One file after another, the last first: a crash in between must never leave a gap. */
    status = vfs->sync_directory(vfs, rmq_file_queue_directory(queue, file->start), err);
    if (file == queue->last)
        queue->is_last_hidden = false;

    pthread_mutex_lock(&queue->lock);
    --*(queue->ahead > 0 ? &queue->ahead : &queue->count);
    rmq_file_queue_publish(queue);
    pthread_mutex_unlock(&queue->lock);

    rmq_mapped_file_unpin(file);
    return status;
}

int rmq_file_queue_drop_ahead(struct rmq_file_queue *queue, struct rmq_error *err)
{
    int status = RMQ_OK;
    while (status == RMQ_OK && queue->ahead > 0)
        status = drop_last(queue, err);

    assert(status != RMQ_OK || queue->ahead == 0);
    char path[PATH_MAX];
    if (queue->options.shows_files_late && !queue->is_last_hidden &&
        rmq_file_queue_hidden_path(queue, path, NULL) == RMQ_OK)
        (void)queue->options.vfs->unlink(queue->options.vfs, path, NULL);
    return status;
}

void rmq_file_queue_rewind(struct rmq_file_queue *queue, int64_t offset)
{
    assert(!queue->options.read_only);
    assert(offset >= 0);

    pthread_mutex_lock(&queue->lock);
    while (queue->count > 1 && queue->files[queue->count - 1]->start >= offset) {
        --queue->count;
        ++queue->ahead;
    }

    if (queue->count > 0) {
        struct rmq_mapped_file *last = queue->files[queue->count - 1];
        int64_t end = offset > last->start ? offset - last->start : 0;
        rmq_mapped_file_set_end(last, end < last->size ? end : last->size);
    }

    rmq_file_queue_publish(queue);
    int64_t end = rmq_file_queue_end(queue);
    if (rmq_file_queue_flushed(queue) > end)
        atomic_store_explicit(&queue->flushed_offset, end, memory_order_release);
    pthread_mutex_unlock(&queue->lock);
}

int rmq_file_queue_truncate(struct rmq_file_queue *queue, int64_t offset, struct rmq_error *err)
{
    assert(!queue->options.read_only);
    assert(offset >= 0);

    pthread_mutex_lock(&queue->flush_lock);
    int status = rmq_file_queue_drop_ahead(queue, err);

    /* A first file that begins at offset stays, empty: only its name keeps the position at which
     * the queue continues, unless that is 0. */
    while (status == RMQ_OK && queue->count > 0 &&
           queue->files[queue->count - 1]->start >= offset &&
           !(queue->count == 1 && queue->files[0]->start == offset && offset > 0))
        status = drop_last(queue, err);

    if (status == RMQ_OK && queue->count > 0) {
        struct rmq_mapped_file *last = queue->files[queue->count - 1];
        int64_t end = offset - last->start;
        assert(end >= 0);
        if (end < last->size)
            status = rmq_mapped_file_cut(last, end, err);
    }

    pthread_mutex_lock(&queue->lock);
    rmq_file_queue_publish(queue);
    pthread_mutex_unlock(&queue->lock);
    int64_t end = rmq_file_queue_end(queue);
    if (rmq_file_queue_flushed(queue) > end)
        atomic_store_explicit(&queue->flushed_offset, end, memory_order_release);
    pthread_mutex_unlock(&queue->flush_lock);
    return status;
}

void rmq_file_queue_set_end(struct rmq_file_queue *queue, int64_t offset)
{
    assert(queue->options.read_only);

    pthread_mutex_lock(&queue->lock);
    while (queue->count > 0 && queue->files[queue->count - 1]->start >= offset)
        rmq_mapped_file_unpin(queue->files[--queue->count]);

    if (queue->count > 0) {
        struct rmq_mapped_file *last = queue->files[queue->count - 1];
        int64_t end = offset - last->start;
        assert(end > 0);
        rmq_mapped_file_set_end(last, end < last->size ? end : last->size);
    }

    rmq_file_queue_publish(queue);
    atomic_store_explicit(&queue->flushed_offset, rmq_file_queue_end(queue), memory_order_release);
    pthread_mutex_unlock(&queue->lock);
}

int rmq_file_queue_last_byte(struct rmq_file_queue *queue, int64_t from, int64_t *end,
                             struct rmq_error *err)
{
    assert(end);

    *end = from;
    for (size_t i = queue->count; i-- > 0 && *end == from;) {
        struct rmq_mapped_file *file = NULL;
        int status = rmq_file_queue_pin_at(queue, i, &file, err);
        if (status != RMQ_OK)
            return status;

        int64_t low = from > file->start ? from - file->start : 0;
        int64_t last = low;
        if (low < file->size)
            status = rmq_mapped_file_data_end(file, low, &last, err);
        if (last > low)
            *end = file->start + last;

        rmq_mapped_file_unpin(file);
        if (status != RMQ_OK)
            return status;
    }
    return RMQ_OK;
}

void rmq_file_queue_distrust(struct rmq_file_queue *queue, int64_t offset)
{
    assert(offset >= 0);

    pthread_mutex_lock(&queue->flush_lock);
    pthread_mutex_lock(&queue->lock);
    for (size_t i = 0; i < queue->count; ++i) {
        struct rmq_mapped_file *file = queue->files[i];
        int64_t at = offset > file->start ? offset - file->start : 0;
        if (at < atomic_load_explicit(&file->flushed, memory_order_relaxed) && file->writable)
            atomic_store_explicit(&file->flushed, at, memory_order_release);
    }

    if (rmq_file_queue_flushed(queue) > offset)
        atomic_store_explicit(&queue->flushed_offset, offset, memory_order_release);
    pthread_mutex_unlock(&queue->lock);
    pthread_mutex_unlock(&queue->flush_lock);
}

/* ---- the head, and all of it ---- */

int rmq_file_queue_delete_head(struct rmq_file_queue *queue, size_t count, struct rmq_error *err)
{
    int status = RMQ_OK;
    struct rmq_vfs *vfs = queue->options.vfs;
    assert(queue->ahead == 0);
    while (status == RMQ_OK && count-- > 0) {

        struct rmq_mapped_file *file = NULL;
        pthread_mutex_lock(&queue->lock);
        if (queue->count > 1) {
            file = queue->files[0];
            --queue->count;
            memmove(queue->files, queue->files + 1, queue->count * sizeof *queue->files);
            atomic_store_explicit(&queue->start_offset, queue->files[0]->start,
                                  memory_order_release);
        }
        pthread_mutex_unlock(&queue->lock);

        if (!file)
            break;
        if (file->writable) {
            status = rmq_mapped_file_unlink(file, err);
            if (status == RMQ_OK)
                status =
                    vfs->sync_directory(vfs, rmq_file_queue_directory(queue, file->start), err);
        }
        rmq_mapped_file_unpin(file);
    }
    return status;
}

/* Renames the last file, which is empty, after offset. Its bytes do not move, so a thread that
 * writes ahead of the end must not use it meanwhile. */
static int rename_last(struct rmq_file_queue *queue, int64_t offset, struct rmq_error *err)
{
    assert(queue->count == 1 && queue->ahead == 0);
    assert(offset >= 0 && offset % queue->options.file_size == 0);

    struct rmq_mapped_file *last = queue->files[0], *file = NULL;
    struct rmq_vfs *vfs = queue->options.vfs;

    char path[PATH_MAX], directory[PATH_MAX], name[RMQ_FILE_NAME_SIZE];
    size_t size = (size_t)(strrchr(last->path, '/') - last->path);
    snprintf(directory, sizeof directory, "%.*s", (int)size, last->path);
    rmq_file_name(offset, name);
    int status = rmq_path_join(path, sizeof path, directory, name, err);

    struct rmq_mapped_file_options options = {.vfs = vfs,
                                              .start = offset,
                                              .size = last->size,
                                              .identity = last->identity,
                                              .writable = true,
                                              .keep_descriptor = queue->options.keep_descriptor};

    if (status == RMQ_OK)
        status = rmq_mapped_file_load(path, &options, &file, err);
    if (status != RMQ_OK)
        return status;

    rmq_mapped_file_set_end(file, 0);
    status = vfs->rename(vfs, last->path, path, err);
    if (status == RMQ_OK)
        status = vfs->sync_directory(vfs, directory, err);
    if (status != RMQ_OK) {
        rmq_mapped_file_unpin(file);
        return status;
    }

    pthread_mutex_lock(&queue->lock);
    queue->files[0] = file;
    rmq_file_queue_publish(queue);
    pthread_mutex_unlock(&queue->lock);
    rmq_mapped_file_unpin(last);
    return RMQ_OK;
}

static int empty_to(struct rmq_file_queue *queue, int64_t offset, struct rmq_error *err)
{
    assert(queue->count > 0);

    for (size_t i = 0; i < queue->count; ++i)
        if (!queue->files[i]->writable)
            return rmq_fail(err, RMQ_READ_ONLY, queue->files[i]->start,
                            "%s is in a folder that is only read; move it away",
                            queue->files[i]->path);

    int status = rmq_file_queue_delete_head(queue, queue->count - 1, err);
    if (status == RMQ_OK)
        status = rmq_mapped_file_cut(queue->files[0], 0, err);
    if (status == RMQ_OK && queue->files[0]->start != offset)
        return rename_last(queue, offset, err);

    pthread_mutex_lock(&queue->lock);
    rmq_file_queue_publish(queue);
    pthread_mutex_unlock(&queue->lock);
    return status;
}

int rmq_file_queue_restart(struct rmq_file_queue *queue, int64_t offset, struct rmq_error *err)
{
    assert(!queue->options.read_only && queue->ahead == 0);
    assert(offset >= 0 && offset % queue->options.file_size == 0);

    if (queue->count == 0)
        return rmq_file_queue_roll(queue, offset, NULL, err);

    pthread_mutex_lock(&queue->flush_lock);
    int status = empty_to(queue, offset, err);

    int64_t end = rmq_file_queue_end(queue);
    if (status == RMQ_OK || rmq_file_queue_flushed(queue) > end)
        atomic_store_explicit(&queue->flushed_offset, end, memory_order_release);
    pthread_mutex_unlock(&queue->flush_lock);
    return status;
}

int rmq_file_queue_clear(struct rmq_file_queue *queue, struct rmq_error *err)
{
    assert(!queue->options.read_only);

    int status = RMQ_OK;

    pthread_mutex_lock(&queue->flush_lock);
    while (status == RMQ_OK && queue->count + queue->ahead > 0)
        status = drop_last(queue, err);

    atomic_store_explicit(&queue->flushed_offset, 0, memory_order_release);
    pthread_mutex_unlock(&queue->flush_lock);
    return status;
}
