#include "file/file_access.h"

#include <assert.h>

/* Maps a file that is probably mostly a hole. Around a fault the kernel would fill the hole with
 * pages of zeros, 6 MB for a queue of one message. */
static int map_sparse(struct rmq_mapped_file *file, struct rmq_error *err)
{
    int status = rmq_mapped_file_map(file, err);
    if (status == RMQ_OK && atomic_load_explicit(&file->wrote, memory_order_acquire) < file->size)
        (void)file->vfs->advise(file->vfs, rmq_mapped_file_base(file), file->size,
                                RMQ_ADVISE_RANDOM, NULL);
    assert(status != RMQ_OK || rmq_mapped_file_base(file));
    return status;
}

int rmq_file_access_base(struct rmq_mapped_file *file, uint8_t **base, struct rmq_error *err)
{
    assert(base);

    int status = RMQ_OK;
    struct rmq_map_budget *budget = file->budget;
    *base = rmq_mapped_file_base(file);
    if (*base)
        return RMQ_OK;

    if (!budget) {
        status = map_sparse(file, err);
    } else if (atomic_fetch_add_explicit(&file->uses, 1, memory_order_relaxed) >=
               budget->hot_uses) {
        /* The next attempt comes after the same number of uses. */
        atomic_store_explicit(&file->uses, 0, memory_order_relaxed);
        if (atomic_load_explicit(&budget->left, memory_order_relaxed) > 0)
            (void)map_sparse(file, NULL);
    }
    *base = rmq_mapped_file_base(file);
    return status;
}

int rmq_file_access_read(struct rmq_mapped_file *file, int64_t at, void *buffer, size_t size,
                         struct rmq_error *err)
{
    assert(at >= 0 && (int64_t)size <= file->size - at);

    size_t got = 0;
    int status = RMQ_OK;

    /* The descriptor stays held as long as the lock is. */
    pthread_mutex_lock(&file->lock);
    bool is_held = file->is_held;
    if (is_held)
        status = file->vfs->read(file->vfs, file->fd, buffer, size, at, &got, err);
    pthread_mutex_unlock(&file->lock);

    if (!is_held) {
        int fd = -1;
        status = rmq_mapped_file_open(file, false, &fd, err);
        if (status != RMQ_OK)
            return status;
        status = file->vfs->read(file->vfs, fd, buffer, size, at, &got, err);
        (void)file->vfs->close(file->vfs, fd, NULL);
    }
    if (status == RMQ_OK && got < size)
        status = rmq_fail(err, RMQ_CORRUPT, file->start + at, "%s ends before byte %lld",
                          file->path, (long long)(at + (int64_t)size));
    return status;
}

int rmq_file_access_write(struct rmq_mapped_file *file, int64_t at, const uint8_t *data,
                          size_t size, size_t split, struct rmq_error *err)
{
    assert(file->writable && at >= 0 && (int64_t)size <= file->size - at);
    assert(split < size);

    struct rmq_error own;
    int fd = -1;
    int status = rmq_mapped_file_open(file, true, &fd, &own);
    if (status == RMQ_OK) {
        status =
            file->vfs->write(file->vfs, fd, data + split, size - split, at + (int64_t)split, &own);
        if (status == RMQ_OK && split > 0)
            status = file->vfs->write(file->vfs, fd, data, split, at, &own);
        if (status != RMQ_OK)
            status = rmq_mapped_file_fail_allocation(file, (int64_t)size, &own);
        (void)file->vfs->close(file->vfs, fd, NULL);
    }

    int64_t end = at + (int64_t)size;
    if (status == RMQ_OK && atomic_load_explicit(&file->reserved, memory_order_relaxed) < end)
        atomic_store_explicit(&file->reserved, end, memory_order_release);
    if (status != RMQ_OK && err)
        *err = own;
    return status;
}
