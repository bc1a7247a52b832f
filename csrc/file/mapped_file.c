#include <assert.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "file/mapped_file_parts.h"

static int make(const char *path, const struct rmq_mapped_file_options *options,
                struct rmq_mapped_file **out, struct rmq_error *err)
{
    assert(options->size > 0 && options->start >= 0);
    assert(path && options->vfs);

    struct rmq_mapped_file *file = calloc(1, sizeof *file);
    char *copy = file ? strdup(path) : NULL;
    if (!copy) {
        free(file);
        return rmq_fail(err, RMQ_NO_MEMORY, -1, "%s: no memory for a mapped file", path);
    }

    file->vfs = options->vfs;
    file->budget = options->budget;
    file->path = copy;
    file->start = options->start;
    file->size = options->size;
    file->identity = options->identity;
    file->writable = options->writable;
    file->keep_descriptor = options->keep_descriptor && options->writable;
    file->fd = -1;
    atomic_init(&file->pins, 1);
    pthread_mutex_init(&file->lock, NULL);
    *out = file;
    return RMQ_OK;
}

static void release(struct rmq_mapped_file *file)
{
    assert(atomic_load_explicit(&file->pins, memory_order_relaxed) <= 1);

    uint8_t *base = rmq_mapped_file_base(file);
    if (base) {
        (void)file->vfs->unmap(file->vfs, base, file->size, NULL);
        if (file->budget)
            atomic_fetch_add(&file->budget->left, 1);
    }
    if (file->fd >= 0)
        (void)file->vfs->close(file->vfs, file->fd, NULL);

    pthread_mutex_destroy(&file->lock);
    free(file->path);
    free(file->former_path);
    free(file);
}

void rmq_mapped_file_unpin(struct rmq_mapped_file *file)
{
    int64_t before = atomic_fetch_sub_explicit(&file->pins, 1, memory_order_acq_rel);
    assert(before > 0);
    if (before == 1)
        release(file);
}

void rmq_mapped_file_set_end(struct rmq_mapped_file *file, int64_t end)
{
    assert(end >= 0 && end <= file->size);

    file->allocated = end;
    atomic_store_explicit(&file->reserved, end, memory_order_relaxed);
    atomic_store_explicit(&file->flushed, end, memory_order_relaxed);
    atomic_store_explicit(&file->wrote, end, memory_order_release);
}

int rmq_mapped_file_load(const char *path, const struct rmq_mapped_file_options *options,
                         struct rmq_mapped_file **out, struct rmq_error *err)
{
    assert(out);

    int status = make(path, options, out, err);
    if (status == RMQ_OK)
        rmq_mapped_file_set_end(*out, options->size);
    return status;
}

int rmq_mapped_file_open_descriptor(struct rmq_mapped_file *file, struct rmq_error *err)
{
    assert(file->path);

    if (file->fd >= 0)
        return RMQ_OK;
    return file->vfs->open(file->vfs, file->path, file->writable ? RMQ_OPEN_WRITE : 0, &file->fd,
                           err);
}

void rmq_mapped_file_close_unless_kept(struct rmq_mapped_file *file)
{
    assert(file->vfs);

    if (!file->keep_descriptor && !file->is_held && file->fd >= 0) {
        (void)file->vfs->close(file->vfs, file->fd, NULL);
        file->fd = -1;
    }
}

static int map_locked(struct rmq_mapped_file *file, struct rmq_error *err)
{
    if (rmq_mapped_file_base(file))
        return RMQ_OK;
    int status = rmq_mapped_file_open_descriptor(file, err);
    if (status != RMQ_OK)
        return status;

    uint8_t *base = NULL;
    struct rmq_file_info info;
    status = file->vfs->stat(file->vfs, file->path, &info, err);

    /* A shorter file could be mapped, but the first access past its end would kill the process. */
    if (status == RMQ_OK && info.size < file->size)
        status = rmq_fail(err, RMQ_CORRUPT, file->start, "%s has %lld bytes, expected %lld",
                          file->path, (long long)info.size, (long long)file->size);

    if (status == RMQ_OK)
        status = file->vfs->map(file->vfs, file->fd, file->size, file->writable, &base, err);
    if (status == RMQ_OK) {
        atomic_store_explicit(&file->base, base, memory_order_release);
        if (file->budget)
            atomic_fetch_sub(&file->budget->left, 1);
    }

    rmq_mapped_file_close_unless_kept(file);
    return status;
}

int rmq_mapped_file_map(struct rmq_mapped_file *file, struct rmq_error *err)
{
    if (rmq_mapped_file_base(file))
        return RMQ_OK;

    pthread_mutex_lock(&file->lock);
    int status = map_locked(file, err);
    pthread_mutex_unlock(&file->lock);
    assert(status != RMQ_OK || rmq_mapped_file_base(file));
    return status;
}

int rmq_mapped_file_create(const char *path, const struct rmq_mapped_file_options *options,
                           struct rmq_mapped_file **out, struct rmq_error *err)
{
    assert(options->writable);
    assert(out);

    struct rmq_mapped_file *file = NULL;
    int status = make(path, options, &file, err);
    if (status != RMQ_OK)
        return status;

    struct rmq_vfs *vfs = options->vfs;
    /* An existing file of that name (made ahead, never used) is removed, not emptied: a reader in
     * another process may have it mapped, and would die when it reads past its end. */
    status = vfs->unlink(vfs, path, err);
    if (status == RMQ_OK || status == RMQ_NOT_FOUND)
        status = vfs->open(vfs, path, RMQ_OPEN_WRITE | RMQ_OPEN_CREATE | RMQ_OPEN_EXCLUSIVE,
                           &file->fd, err);

    if (status == RMQ_OK) {
        status = vfs->resize(vfs, file->fd, options->size, err);
        /* Otherwise a crash may leave an empty file before a full-sized one. */
        if (status == RMQ_OK && !options->is_unsynced)
            status = vfs->sync(vfs, file->fd, err);
        if (status == RMQ_OK && !file->budget)
            status = map_locked(file, err);
        if (status != RMQ_OK)
            (void)vfs->unlink(vfs, path, NULL);
        rmq_mapped_file_close_unless_kept(file);
    }

    if (status != RMQ_OK) {
        release(file);
        return status;
    }
    *out = file;
    return RMQ_OK;
}

int rmq_mapped_file_hold(struct rmq_mapped_file *file, struct rmq_error *err)
{
    assert(!file->is_held);

    pthread_mutex_lock(&file->lock);
    int status = rmq_mapped_file_open_descriptor(file, err);
    file->is_held = status == RMQ_OK;
    pthread_mutex_unlock(&file->lock);
    return status;
}

void rmq_mapped_file_release(struct rmq_mapped_file *file)
{
    assert(file->is_held);

    pthread_mutex_lock(&file->lock);
    file->is_held = false;
    rmq_mapped_file_close_unless_kept(file);
    pthread_mutex_unlock(&file->lock);
}

int rmq_mapped_file_open(struct rmq_mapped_file *file, bool write, int *fd, struct rmq_error *err)
{
    assert(fd && (file->writable || !write));

    pthread_mutex_lock(&file->lock);
    int status = file->vfs->open(file->vfs, file->path, write ? RMQ_OPEN_WRITE : 0, fd, err);
    pthread_mutex_unlock(&file->lock);
    return status;
}

int rmq_mapped_file_sync(struct rmq_mapped_file *file, struct rmq_error *err)
{
    assert(file->writable);

    /* The writer, which needs the lock, must not wait for the device. */
    int fd = -1;
    int status = rmq_mapped_file_open(file, true, &fd, err);
    if (status == RMQ_OK) {
        status = file->vfs->sync(file->vfs, fd, err);
        (void)file->vfs->close(file->vfs, fd, NULL);
    }
    /* A file that was removed meanwhile has no bytes to keep. */
    bool is_gone =
        status == RMQ_NOT_FOUND && atomic_load_explicit(&file->unlinked, memory_order_acquire);
    return is_gone ? RMQ_OK : status;
}

int rmq_mapped_file_fail_allocation(const struct rmq_mapped_file *file, int64_t size,
                                    struct rmq_error *err)
{
    assert(err && err->status != RMQ_OK);

    struct rmq_disk_usage usage;
    if (err->status != RMQ_NO_SPACE)
        return err->status;

    int os_errno = err->os_errno;
    if (file->vfs->disk_usage(file->vfs, file->path, &usage, NULL) != RMQ_OK)
        return rmq_fail_os(err, os_errno, "%s needs %lld more bytes on its disk", file->path,
                           (long long)size);
    return rmq_fail_os(err, os_errno, "%s needs %lld more bytes on its disk, which has %lld free",
                       file->path, (long long)size, (long long)usage.free_bytes);
}

static int reserve_locked(struct rmq_mapped_file *file, int64_t at, int64_t size,
                          struct rmq_error *err)
{
    assert(at >= 0 && size > 0 && size <= file->size - at);

    struct rmq_error own;
    int status = rmq_mapped_file_open_descriptor(file, &own);
    if (status == RMQ_OK) {
        status = file->vfs->allocate(file->vfs, file->fd, at, size, &own);
        if (status != RMQ_OK)
            status = rmq_mapped_file_fail_allocation(file, size, &own);
    }

    rmq_mapped_file_close_unless_kept(file);
    if (status != RMQ_OK && err)
        *err = own;
    return status;
}

int rmq_mapped_file_fill_holes(struct rmq_mapped_file *file, int64_t from, int64_t upto,
                               struct rmq_error *err)
{
    assert(file->writable && 0 <= from && from <= upto && upto <= file->size);

    struct rmq_vfs *vfs = file->vfs;
    int fd = -1;
    if (from == upto)
        return RMQ_OK;

    int status = vfs->open(vfs, file->path, RMQ_OPEN_WRITE, &fd, err);
    if (status != RMQ_OK)
        return status;

    while (from < upto && status == RMQ_OK) {
        int64_t hole = from, data = from;
        status = vfs->next_hole(vfs, fd, from, &hole, err);
        if (status == RMQ_OK && hole < upto)
            status = vfs->next_data(vfs, fd, hole, &data, err);
        if (status != RMQ_OK || hole >= upto)
            break;

        data = data < upto ? data : upto;
        status = vfs->allocate(vfs, fd, hole, data - hole, err);
        from = data;
    }

    (void)vfs->close(vfs, fd, NULL);
    return status;
}

/* Bytes from `at` on were never stored. */
static int write_zeros_locked(struct rmq_mapped_file *file, int64_t at, int64_t size, int64_t piece,
                              struct rmq_error *err)
{
    assert(at >= 0 && size > 0 && size <= file->size - at);

    static const uint8_t zeros[RMQ_ZEROS_SIZE];
    assert(piece > 0 && piece <= RMQ_ZEROS_SIZE);
    int status = rmq_mapped_file_open_descriptor(file, err);

    while (status == RMQ_OK && size > 0) {
        int64_t part = piece - at % piece < size ? piece - at % piece : size;
        assert(part > 0 && part <= piece);
        status = file->vfs->write(file->vfs, file->fd, zeros, (size_t)part, at, err);
        at += part;
        size -= part;
    }

    rmq_mapped_file_close_unless_kept(file);
    return status;
}

/* Page size of memory, or the largest block of a file system. */
static int64_t page_size(void)
{
    int64_t size = sysconf(_SC_PAGESIZE);
    assert(size > 0);
    return size > RMQ_BLOCK_SIZE ? size : RMQ_BLOCK_SIZE;
}

/* A failure is not reported: the bytes that are needed may still fit. No zeros are written so far
 * ahead: they would be written to the device twice. */
static void allocate_ahead_locked(struct rmq_mapped_file *file, int64_t goal)
{
    assert(goal > file->allocated && goal <= file->size);

    struct rmq_disk_usage usage;
    if (file->vfs->disk_usage(file->vfs, file->path, &usage, NULL) != RMQ_OK)
        return;

    int64_t spare = usage.free_bytes / RMQ_FREE_TIMES_ALLOCATED;
    int64_t ahead = goal < file->size - goal ? goal : file->size - goal;
    ahead = ahead < spare ? ahead : spare;
    ahead -= ahead % page_size();
    if (ahead <= 0)
        return;

    int64_t at = file->allocated, upto = goal + ahead;
    if (rmq_mapped_file_open_descriptor(file, NULL) == RMQ_OK &&
        file->vfs->allocate_unwritten(file->vfs, file->fd, at, upto - at, NULL) == RMQ_OK)
        file->allocated = upto;
    rmq_mapped_file_close_unless_kept(file);
}

int64_t rmq_mapped_file_allocated_ahead(struct rmq_mapped_file *file)
{
    assert(file->writable);

    pthread_mutex_lock(&file->lock);
    int64_t allocated = file->allocated;
    bool is_ahead = allocated > atomic_load_explicit(&file->reserved, memory_order_relaxed);
    pthread_mutex_unlock(&file->lock);
    return is_ahead && allocated < file->size ? allocated : -1;
}

/* Allocates blocks below `goal`; with `ahead` some more when the disk has room. */
static int allocate_locked(struct rmq_mapped_file *file, int64_t goal, bool ahead,
                           struct rmq_error *err)
{
    assert(goal <= file->size);

    int64_t reserved = atomic_load_explicit(&file->reserved, memory_order_relaxed);
    if (file->allocated < reserved)
        file->allocated = reserved;
    if (ahead && goal > file->allocated)
        allocate_ahead_locked(file, goal);
    if (goal <= file->allocated)
        return RMQ_OK;

    int status = reserve_locked(file, file->allocated, goal - file->allocated, err);
    if (status == RMQ_OK)
        file->allocated = goal;
    return status;
}

/* Zeros are written when piece is above 0. */
static int extend_locked(struct rmq_mapped_file *file, int64_t goal, int64_t piece,
                         struct rmq_error *err)
{
    assert(goal <= file->size && piece >= 0);

    int64_t reserved = atomic_load_explicit(&file->reserved, memory_order_relaxed);
    assert(reserved < goal);

    int status = allocate_locked(file, goal, piece > 0, err);
    if (status == RMQ_OK && piece > 0)
        status = write_zeros_locked(file, reserved, goal - reserved, piece, err);
    if (status == RMQ_OK)
        atomic_store_explicit(&file->reserved, goal, memory_order_release);
    return status;
}

/* A store through the mapping needs every block of its page, and a page may have several blocks. */
static int64_t whole_pages(const struct rmq_mapped_file *file, int64_t upto)
{
    assert(upto >= 0 && upto <= file->size);

    int64_t part = upto % page_size();
    int64_t more = part ? page_size() - part : 0;
    return upto > file->size - more ? file->size : upto + more;
}

static int reserve(struct rmq_mapped_file *file, int64_t upto, int64_t window, int64_t piece,
                   struct rmq_error *err)
{
    assert(file->writable && upto <= file->size && window > 0);

    if (upto <= atomic_load_explicit(&file->reserved, memory_order_acquire))
        return RMQ_OK;

    int status = RMQ_OK;
    pthread_mutex_lock(&file->lock);
    int64_t reserved = atomic_load_explicit(&file->reserved, memory_order_relaxed);
    if (upto > reserved) {
        int64_t least = whole_pages(file, upto);
        int64_t goal = upto > file->size - window ? file->size : whole_pages(file, upto + window);
        assert(least <= goal && goal <= file->size);

        /* A file that was copied may have holes before its end. */
        status = rmq_mapped_file_fill_holes(file, reserved - reserved % page_size(), reserved, err);
        if (status == RMQ_OK)
            status = extend_locked(file, goal, piece, err);
        /* The window is optional; the required bytes may still fit. */
        if (status == RMQ_NO_SPACE && goal > least)
            status = extend_locked(file, least, piece, err);
    }
    pthread_mutex_unlock(&file->lock);
    return status;
}

int rmq_mapped_file_reserve(struct rmq_mapped_file *file, int64_t upto, int64_t window,
                            struct rmq_error *err)
{
    return reserve(file, upto, window, 0, err);
}

int rmq_mapped_file_reserve_written(struct rmq_mapped_file *file, int64_t upto, int64_t window,
                                    int64_t piece, struct rmq_error *err)
{
    return reserve(file, upto, window, piece, err);
}

/* Makes the bytes at `at`, which may have been written in part, read as zeros again. Returns the
 * status of *err. */
static int take_back(struct rmq_mapped_file *file, int64_t at, struct rmq_error *err)
{
    assert(err->status != RMQ_OK);

    struct rmq_error own;
    if (rmq_mapped_file_cut(file, at, &own) == RMQ_OK)
        return err->status;
    return rmq_fail(err, RMQ_NOT_WRITABLE, file->start + at,
                    "%s: bytes after its end could not be removed: %.200s", file->path, own.detail);
}

int rmq_mapped_file_write(struct rmq_mapped_file *file, int64_t at, const void *data, int64_t size,
                          struct rmq_error *err)
{
    assert(file->writable && data && size > 0 && size <= file->size - at);
    assert(at == atomic_load_explicit(&file->wrote, memory_order_relaxed));

    struct rmq_error own;
    bool has_written = false;
    pthread_mutex_lock(&file->lock);
    /* A write into blocks that are not allocated may run out of space after a part of the bytes. */
    int status = allocate_locked(file, at + size, true, &own);
    if (status == RMQ_OK)
        status = rmq_mapped_file_open_descriptor(file, &own);
    if (status == RMQ_OK) {
        has_written = true;
        status = file->vfs->write(file->vfs, file->fd, data, (size_t)size, at, &own);
        rmq_mapped_file_close_unless_kept(file);
    }

    if (status == RMQ_OK && at + size > atomic_load_explicit(&file->reserved, memory_order_relaxed))
        atomic_store_explicit(&file->reserved, at + size, memory_order_release);
    pthread_mutex_unlock(&file->lock);

    if (status != RMQ_OK && has_written)
        status = take_back(file, at, &own);
    if (status != RMQ_OK && err)
        *err = own;
    return status;
}

int rmq_mapped_file_flush(struct rmq_mapped_file *file, struct rmq_error *err)
{
    int64_t wrote = atomic_load_explicit(&file->wrote, memory_order_acquire);
    int64_t flushed = atomic_load_explicit(&file->flushed, memory_order_acquire);
    assert(flushed >= 0 && wrote <= file->size);

    if (wrote <= flushed)
        return RMQ_OK;

    /* Not the whole file: otherwise the zeros of pages made ready ahead of the writer would be
     * written, and these pages would have to be made ready again. */
    uint8_t *base = rmq_mapped_file_base(file);
    assert(base || file->budget);
    int status = base ? file->vfs->sync_map(file->vfs, base + flushed, wrote - flushed, err)
                      : rmq_mapped_file_sync(file, err);

    if (status == RMQ_OK)
        atomic_store_explicit(&file->flushed, wrote, memory_order_release);
    return status;
}

int rmq_mapped_file_rename(struct rmq_mapped_file *file, const char *path, struct rmq_error *err)
{
    assert(!file->former_path);
    assert(path);

    char *copy = strdup(path);
    if (!copy)
        return rmq_fail(err, RMQ_NO_MEMORY, -1, "%s: no memory for a file name", path);

    pthread_mutex_lock(&file->lock);
    int status = file->vfs->rename(file->vfs, file->path, path, err);
    if (status == RMQ_OK) {
        file->former_path = file->path;
        file->path = copy;
    }
    pthread_mutex_unlock(&file->lock);

    if (status != RMQ_OK)
        free(copy);
    return status;
}

int rmq_mapped_file_unlink(struct rmq_mapped_file *file, struct rmq_error *err)
{
    assert(file->path);

    int status = file->vfs->unlink(file->vfs, file->path, err);
    if (status == RMQ_NOT_FOUND)
        status = RMQ_OK;
    if (status == RMQ_OK)
        atomic_store_explicit(&file->unlinked, true, memory_order_release);
    return status;
}
