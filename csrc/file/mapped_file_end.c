/* mapped_file_end.c -- finding the end of a file's data, and moving it to an earlier position. */
#include <assert.h>
#include <string.h>

#include "file/mapped_file_parts.h"

/* Bytes read at a time in the search for the last non-zero byte. */
#define RMQ_PIECE_SIZE 65536

/* Offset after the last non-zero byte of [at, stop), at when there is none. */
static int64_t last_byte(const uint8_t *base, int64_t at, int64_t stop)
{
    assert(at <= stop);

    while (stop > at && base[stop - 1] == 0) {
        uint64_t words[8];
        if (stop - at < (int64_t)sizeof words) {
            --stop;
            continue;
        }
        memcpy(words, base + stop - sizeof words, sizeof words);
        if (words[0] | words[1] | words[2] | words[3] | words[4] | words[5] | words[6] | words[7])
            --stop;
        else
            stop -= (int64_t)sizeof words;
    }
    assert(stop >= at);
    return stop;
}

/* The caller holds the lock and has the descriptor open. Reads the file instead of the mapping: on
 * a full tmpfs an access to a hole kills the process. */
static int find_data_end(struct rmq_mapped_file *file, int64_t from, int64_t *end,
                         struct rmq_error *err)
{
    assert(file->fd >= 0 && from >= 0);

    uint8_t bytes[RMQ_PIECE_SIZE];
    int64_t at = from;
    *end = from;
    while (at < file->size) {
        int status = file->vfs->next_data(file->vfs, file->fd, at, &at, err);
        if (status != RMQ_OK)
            return status;
        if (at >= file->size)
            return RMQ_OK;

        size_t got = 0;
        /* The rest of a block is mostly in memory already. Reading further into a sparse file would
         * fill memory with its zeros. */
        size_t size =
            at % RMQ_BLOCK_SIZE ? (size_t)(RMQ_BLOCK_SIZE - at % RMQ_BLOCK_SIZE) : sizeof bytes;
        status = file->vfs->read(file->vfs, file->fd, bytes, size, at, &got, err);
        if (status != RMQ_OK || got == 0)
            return status;

        int64_t last = last_byte(bytes, 0, (int64_t)got);
        assert(last >= 0 && last <= (int64_t)got);
        if (last > 0)
            *end = at + last;
        at += (int64_t)got;
    }
    return RMQ_OK;
}

/* One call shows whether there is data at or after an offset, so a binary search finds the last
 * data. */
static int find_extent_end(struct rmq_mapped_file *file, int64_t *end, struct rmq_error *err)
{
    assert(file->fd >= 0);

    /* Most files have one range of data, from the beginning on. */
    int64_t low = 0, high = file->size, hole = 0;
    int status = file->vfs->next_hole(file->vfs, file->fd, 0, &hole, err);
    if (status == RMQ_OK && hole < file->size)
        status = file->vfs->next_data(file->vfs, file->fd, hole, &low, err);
    if (status != RMQ_OK)
        return status;
    if (low >= file->size || low < hole) {
        hole += (RMQ_BLOCK_SIZE - hole % RMQ_BLOCK_SIZE) % RMQ_BLOCK_SIZE;
        *end = hole < file->size ? hole : file->size;
        return RMQ_OK;
    }

    for (low -= low % RMQ_BLOCK_SIZE; low < high;) {
        int64_t middle = low + (high - low) / 2, found = 0;
        middle -= middle % RMQ_BLOCK_SIZE;
        status = file->vfs->next_data(file->vfs, file->fd, middle, &found, err);
        if (status != RMQ_OK)
            return status;

        /* The file ends before the position: another process made it shorter. */
        if (found >= file->size || found < middle)
            high = middle;
        else
            low = found - found % RMQ_BLOCK_SIZE + RMQ_BLOCK_SIZE;
    }
    *end = low < file->size ? low : file->size;
    assert(*end >= 0);
    return RMQ_OK;
}

int rmq_mapped_file_extent_end(struct rmq_mapped_file *file, int64_t *end, struct rmq_error *err)
{
    assert(end);

    pthread_mutex_lock(&file->lock);
    int status = rmq_mapped_file_open_descriptor(file, err);
    if (status == RMQ_OK)
        status = find_extent_end(file, end, err);
    rmq_mapped_file_close_unless_kept(file);
    pthread_mutex_unlock(&file->lock);
    return status;
}

int rmq_mapped_file_data_end(struct rmq_mapped_file *file, int64_t from, int64_t *end,
                             struct rmq_error *err)
{
    assert(from >= 0 && from <= file->size);

    int status = rmq_mapped_file_map(file, err);
    if (status != RMQ_OK)
        return status;

    pthread_mutex_lock(&file->lock);
    status = rmq_mapped_file_open_descriptor(file, err);
    if (status == RMQ_OK)
        status = find_data_end(file, from, end, err);
    rmq_mapped_file_close_unless_kept(file);
    pthread_mutex_unlock(&file->lock);
    return status;
}

int rmq_mapped_file_cut(struct rmq_mapped_file *file, int64_t end, struct rmq_error *err)
{
    assert(file->writable && end >= 0 && end <= file->size);

    int status = file->budget ? RMQ_OK : rmq_mapped_file_map(file, err);
    if (status != RMQ_OK)
        return status;

    int64_t stale_end = end;
    pthread_mutex_lock(&file->lock);
    status = rmq_mapped_file_open_descriptor(file, err);
    if (status == RMQ_OK)
        status = find_data_end(file, end, &stale_end, err);

    if (status == RMQ_OK && stale_end > end) {
        status = file->vfs->zero(file->vfs, file->fd, end, file->size - end, err);
        if (status == RMQ_OK)
            status = file->vfs->sync(file->vfs, file->fd, err);
    }

    /* Freed blocks must be reserved again before bytes are stored in them. Under the lock: another
     * thread may reserve blocks after these meanwhile. */
    if (status == RMQ_OK && file->allocated > end)
        file->allocated = end;
    if (status == RMQ_OK && atomic_load_explicit(&file->reserved, memory_order_relaxed) > end)
        atomic_store_explicit(&file->reserved, end, memory_order_release);
    rmq_mapped_file_close_unless_kept(file);
    pthread_mutex_unlock(&file->lock);
    if (status != RMQ_OK)
        return status;

    int64_t flushed = atomic_load_explicit(&file->flushed, memory_order_relaxed);
    atomic_store_explicit(&file->wrote, end, memory_order_release);
    if (flushed > end)
        atomic_store_explicit(&file->flushed, end, memory_order_release);
    return RMQ_OK;
}
