#include "file_queue.h"

#include <assert.h>
#include <inttypes.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

void rmq_file_name(int64_t start, char out[RMQ_FILE_NAME_SIZE])
{
    assert(start >= 0);
    snprintf(out, RMQ_FILE_NAME_SIZE, "%020" PRId64, start);
}

bool rmq_file_name_parse(const char *name, int64_t *start)
{
    int64_t value = 0;
    if (!*name)
        return false;
    for (const char *c = name; *c; ++c) {
        if (*c < '0' || *c > '9' || value > (INT64_MAX - (*c - '0')) / 10)
            return false;
        value = value * 10 + (*c - '0');
    }
    *start = value;
    return true;
}

/* ---- folder names ---- */

static char **copy_names(const char *const *names, size_t count)
{
    char **copies = calloc(count ? count : 1, sizeof *copies);
    for (size_t i = 0; copies && i < count; ++i) {
        copies[i] = strdup(names[i]);
        if (!copies[i]) {
            while (i-- > 0)
                free(copies[i]);
            free(copies);
            return NULL;
        }
    }
    return copies;
}

static void free_names(const char *const *names, size_t count)
{
    for (size_t i = 0; names && i < count; ++i)
        free((char *)names[i]);
    free((void *)names);
}

static int join(char *out, size_t capacity, const char *directory, const char *name,
                struct rmq_error *err)
{
    int size = snprintf(out, capacity, "%s/%s", directory, name);
    if (size < 0 || (size_t)size >= capacity)
        return rmq_fail(err, RMQ_INVALID, -1, "path too long: %s/%s", directory, name);
    return RMQ_OK;
}

/* ---- the array of files; the caller holds queue->lock or is alone ---- */

static int insert(struct rmq_file_queue *queue, struct rmq_mapped_file *file, struct rmq_error *err)
{
    assert(queue->ahead == 0);
    if (queue->count == queue->capacity) {
        size_t capacity = queue->capacity ? queue->capacity * 2 : 8;
        struct rmq_mapped_file **files = realloc(queue->files, capacity * sizeof *files);
        if (!files)
            return rmq_fail(err, RMQ_NO_MEMORY, -1, "no memory for %zu mapped files", capacity);
        queue->files = files;
        queue->capacity = capacity;
    }
    size_t at = queue->count;
    while (at > 0 && queue->files[at - 1]->start > file->start) {
        queue->files[at] = queue->files[at - 1];
        --at;
    }
    queue->files[at] = file;
    ++queue->count;
    return RMQ_OK;
}

static void publish(struct rmq_file_queue *queue)
{
    struct rmq_mapped_file *last = queue->count ? queue->files[queue->count - 1] : NULL;
    int64_t end = last ? last->start + atomic_load_explicit(&last->wrote, memory_order_acquire) : 0;
    queue->last = last;
    atomic_store_explicit(&queue->start_offset, last ? queue->files[0]->start : -1,
                          memory_order_release);
    atomic_store_explicit(&queue->end_offset, end, memory_order_release);
}

/* Position in files of the one that holds offset; false when none does. */
static bool locate(const struct rmq_file_queue *queue, int64_t offset, size_t *index)
{
    if (queue->count == 0 || offset < queue->files[0]->start)
        return false;
    size_t low = 0, high = queue->count;
    /* Without gaps the quotient is the answer. */
    size_t guess = (size_t)((offset - queue->files[0]->start) / queue->options.file_size);
    if (guess < queue->count && queue->files[guess]->start <= offset &&
        offset - queue->files[guess]->start < queue->options.file_size) {
        *index = guess;
        return true;
    }
    while (high - low > 1) {
        size_t middle = low + (high - low) / 2;
        if (queue->files[middle]->start <= offset)
            low = middle;
        else
            high = middle;
    }
    *index = low;
    return offset - queue->files[low]->start < queue->options.file_size;
}

/* ---- loading ---- */

struct loading {
    struct rmq_file_queue *queue;
    const char *directory;
    bool writable;
    bool skip_known; /* refreshing: files that are loaded already stay as they are */
    struct rmq_error *err;
};

static int load_one(struct loading *loading, const char *name, int64_t start)
{
    struct rmq_file_queue *queue = loading->queue;
    struct rmq_error *err = loading->err;
    char path[PATH_MAX];
    struct rmq_file_info info;
    int status = join(path, sizeof path, loading->directory, name, err);
    if (status == RMQ_OK)
        status = queue->options.vfs->stat(queue->options.vfs, path, &info, err);
    if (status == RMQ_NOT_FOUND)
        return RMQ_OK; /* Deleted by its writer between listing and looking. */
    if (status != RMQ_OK)
        return status;
    if (info.size != 0 && info.size != queue->options.file_size)
        return rmq_fail(err, RMQ_CORRUPT, start,
                        "%s has %" PRId64 " bytes, expected %" PRId64
                        "; open the store with the file size it was written with",
                        path, info.size, queue->options.file_size);
    if (start % queue->options.file_size != 0)
        return rmq_fail(err, RMQ_CORRUPT, start,
                        "%s: the name is no multiple of the file size %" PRId64, path,
                        queue->options.file_size);

    struct rmq_mapped_file_options options = {.vfs = queue->options.vfs,
                                              .start = start,
                                              .size = queue->options.file_size,
                                              .identity = info.identity,
                                              .writable = loading->writable,
                                              .keep_descriptor = queue->options.keep_descriptor};
    struct rmq_mapped_file *file = NULL;
    status = rmq_mapped_file_load(path, &options, &file, err);
    if (status != RMQ_OK)
        return status;
    if (info.size == 0)
        atomic_store_explicit(&file->wrote, -1,
                              memory_order_relaxed); /* judged when all files are known */
    status = insert(queue, file, err);
    if (status != RMQ_OK)
        rmq_mapped_file_unpin(file);
    return status;
}

static bool is_loaded(struct rmq_file_queue *queue, int64_t start)
{
    size_t index;
    return locate(queue, start, &index) && queue->files[index]->start == start;
}

static int visit(void *context, const char *name, bool is_directory)
{
    struct loading *loading = context;
    int64_t start = 0;
    if (is_directory)
        return RMQ_OK;
    if (!rmq_file_name_parse(name, &start))
        return rmq_fail(loading->err, RMQ_CORRUPT, -1, "%s/%s is no file of a store; move it away",
                        loading->directory, name);
    if (loading->skip_known && is_loaded(loading->queue, start))
        return RMQ_OK;
    return load_one(loading, name, start);
}

static int load_directory(struct rmq_file_queue *queue, const char *directory, bool writable,
                          bool skip_known, struct rmq_error *err)
{
    struct loading loading = {queue, directory, writable, skip_known, err};
    struct rmq_vfs *vfs = queue->options.vfs;
    int status = vfs->list(vfs, directory, visit, &loading, err);
    return status == RMQ_NOT_FOUND ? RMQ_OK : status;
}

/* A zero-length last file was never written: it goes. One before the end is damage, and so is a
 * gap. */
static int judge_loaded(struct rmq_file_queue *queue, struct rmq_error *err)
{
    while (queue->count > 0) {
        struct rmq_mapped_file *last = queue->files[queue->count - 1];
        if (atomic_load_explicit(&last->wrote, memory_order_relaxed) >= 0)
            break;
        if (last->writable) {
            int status = rmq_mapped_file_unlink(last, err);
            if (status != RMQ_OK)
                return status;
        }
        --queue->count;
        rmq_mapped_file_unpin(last);
    }
    for (size_t i = 0; i < queue->count; ++i) {
        struct rmq_mapped_file *file = queue->files[i];
        if (atomic_load_explicit(&file->wrote, memory_order_relaxed) < 0)
            return rmq_fail(err, RMQ_CORRUPT, file->start, "%s is empty, and files follow it",
                            file->path);
        if (i > 0 && file->start == queue->files[i - 1]->start)
            return rmq_fail(err, RMQ_CORRUPT, file->start, "%s and %s hold the same offsets",
                            queue->files[i - 1]->path, file->path);
        int64_t expected = i ? queue->files[i - 1]->start + queue->options.file_size : file->start;
        if (file->start != expected && !queue->options.allow_gaps)
            return rmq_fail(err, RMQ_CORRUPT, expected,
                            "file %020" PRId64
                            " is missing before %s; bring it back, or see rmqstore repair",
                            expected, file->path);
    }
    return RMQ_OK;
}

static int load_all(struct rmq_file_queue *queue, bool skip_known, struct rmq_error *err)
{
    const struct rmq_file_queue_options *options = &queue->options;
    int status = RMQ_OK;
    for (size_t i = 0; i < options->directory_count && status == RMQ_OK; ++i) {
        if (!options->read_only)
            status = options->vfs->make_directory(options->vfs, options->directories[i], err);
        if (status == RMQ_OK)
            status = load_directory(queue, options->directories[i], !options->read_only, skip_known,
                                    err);
    }
    for (size_t i = 0; i < options->read_only_count && status == RMQ_OK; ++i)
        status = load_directory(queue, options->read_only_directories[i], false, skip_known, err);
    if (status == RMQ_OK)
        status = judge_loaded(queue, err);
    return status;
}

int rmq_file_queue_open(struct rmq_file_queue *queue, const struct rmq_file_queue_options *options,
                        struct rmq_error *err)
{
    assert(options->file_size > 0 && options->window > 0 && options->directory_count > 0);
    memset(queue, 0, sizeof *queue);
    queue->options = *options;
    queue->options.directories =
        (const char *const *)copy_names(options->directories, options->directory_count);
    queue->options.read_only_directories =
        (const char *const *)copy_names(options->read_only_directories, options->read_only_count);
    pthread_mutex_init(&queue->lock, NULL);
    pthread_mutex_init(&queue->flush_lock, NULL);
    int status = RMQ_OK;
    if (!queue->options.directories || !queue->options.read_only_directories)
        status = rmq_fail(err, RMQ_NO_MEMORY, -1, "no memory for folder names");
    if (status == RMQ_OK)
        status = load_all(queue, false, err);
    publish(queue);
    atomic_store_explicit(&queue->flushed_offset, rmq_file_queue_end(queue), memory_order_release);
    if (status != RMQ_OK)
        rmq_file_queue_close(queue);
    return status;
}

void rmq_file_queue_close(struct rmq_file_queue *queue)
{
    for (size_t i = 0; i < queue->count + queue->ahead; ++i)
        rmq_mapped_file_unpin(queue->files[i]);
    free(queue->files);
    queue->files = NULL;
    queue->count = queue->capacity = queue->ahead = 0;
    queue->last = NULL;
    if (queue->options.directories)
        free_names(queue->options.directories, queue->options.directory_count);
    if (queue->options.read_only_directories)
        free_names(queue->options.read_only_directories, queue->options.read_only_count);
    queue->options.directories = queue->options.read_only_directories = NULL;
    pthread_mutex_destroy(&queue->lock);
    pthread_mutex_destroy(&queue->flush_lock);
}

int rmq_file_queue_refresh(struct rmq_file_queue *queue, struct rmq_error *err)
{
    assert(queue->options.read_only);
    struct rmq_vfs *vfs = queue->options.vfs;
    pthread_mutex_lock(&queue->lock);
    size_t kept = 0;
    for (size_t i = 0; i < queue->count; ++i) {
        struct rmq_mapped_file *file = queue->files[i];
        struct rmq_file_info info;
        /* A writer that cuts and goes on makes another file of the same name. */
        int found = vfs->stat(vfs, file->path, &info, NULL);
        if (found == RMQ_NOT_FOUND || (found == RMQ_OK && info.identity != file->identity) ||
            atomic_load_explicit(&file->wrote, memory_order_relaxed) < 0)
            rmq_mapped_file_unpin(file);
        else
            queue->files[kept++] = file;
    }
    queue->count = kept;
    int status = load_all(queue, true, err);
    publish(queue);
    pthread_mutex_unlock(&queue->lock);
    return status;
}

/* ---- readers ---- */

int rmq_file_queue_pin(struct rmq_file_queue *queue, int64_t offset, struct rmq_mapped_file **file,
                       struct rmq_error *err)
{
    size_t index;
    struct rmq_mapped_file *found = NULL;
    pthread_mutex_lock(&queue->lock);
    if (locate(queue, offset, &index)) {
        found = queue->files[index];
        rmq_mapped_file_pin(found);
    }
    pthread_mutex_unlock(&queue->lock);
    if (!found)
        return rmq_fail(err, RMQ_NOT_FOUND, offset,
                        "no file holds offset %" PRId64 " (%s: %" PRId64 " to %" PRId64 ")", offset,
                        queue->options.directories[0], rmq_file_queue_start(queue),
                        rmq_file_queue_end(queue));
    int status = rmq_mapped_file_map(found, err);
    if (status != RMQ_OK) {
        rmq_mapped_file_unpin(found);
        return status;
    }
    *file = found;
    return RMQ_OK;
}

int rmq_file_queue_pin_at(struct rmq_file_queue *queue, size_t index, struct rmq_mapped_file **file,
                          struct rmq_error *err)
{
    struct rmq_mapped_file *found = NULL;
    pthread_mutex_lock(&queue->lock);
    if (index < queue->count) {
        found = queue->files[index];
        rmq_mapped_file_pin(found);
    }
    pthread_mutex_unlock(&queue->lock);
    if (!found)
        return rmq_fail(err, RMQ_NOT_FOUND, -1, "no file number %zu", index);
    int status = rmq_mapped_file_map(found, err);
    if (status != RMQ_OK) {
        rmq_mapped_file_unpin(found);
        return status;
    }
    *file = found;
    return RMQ_OK;
}

/* ---- the writer ---- */

static const char *directory_for(const struct rmq_file_queue *queue, int64_t start)
{
    size_t number = (size_t)(start / queue->options.file_size);
    return queue->options.directories[number % queue->options.directory_count];
}

int rmq_file_queue_prepare(struct rmq_file_queue *queue, int64_t start,
                           struct rmq_mapped_file **file, struct rmq_error *err)
{
    assert(!queue->options.read_only && start % queue->options.file_size == 0);
    char path[PATH_MAX], name[RMQ_FILE_NAME_SIZE];
    const char *directory = directory_for(queue, start);
    struct rmq_vfs *vfs = queue->options.vfs;
    rmq_file_name(start, name);
    int status = join(path, sizeof path, directory, name, err);
    if (status != RMQ_OK)
        return status;
    /* Making a file empties it. */
    assert(!queue->last || start > queue->last->start);
    struct rmq_mapped_file_options options = {.vfs = vfs,
                                              .start = start,
                                              .size = queue->options.file_size,
                                              .writable = true,
                                              .keep_descriptor = queue->options.keep_descriptor};
    status = rmq_mapped_file_create(path, &options, file, err);
    if (status == RMQ_OK) {
        /* The size of the file must be on the device before a flush of its bytes may be believed.
         */
        status = vfs->sync_directory(vfs, directory, err);
        if (status != RMQ_OK) {
            (void)rmq_mapped_file_unlink(*file, NULL);
            rmq_mapped_file_unpin(*file);
        }
    }
    return status;
}

int rmq_file_queue_discard(struct rmq_file_queue *queue, struct rmq_mapped_file *file,
                           struct rmq_error *err)
{
    struct rmq_vfs *vfs = queue->options.vfs;
    int status = rmq_mapped_file_unlink(file, err);
    if (status == RMQ_OK)
        status = vfs->sync_directory(vfs, directory_for(queue, file->start), err);
    if (status == RMQ_OK)
        rmq_mapped_file_unpin(file);
    return status;
}

/* The next file of a rewound queue. */
static void take_ahead(struct rmq_file_queue *queue)
{
    struct rmq_mapped_file *file = queue->files[queue->count];
    assert(file->start == queue->last->start + queue->options.file_size);
    rmq_mapped_file_set_end(file, 0);
    pthread_mutex_lock(&queue->lock);
    ++queue->count;
    --queue->ahead;
    publish(queue);
    pthread_mutex_unlock(&queue->lock);
}

int rmq_file_queue_roll(struct rmq_file_queue *queue, int64_t offset, struct rmq_mapped_file *ready,
                        struct rmq_error *err)
{
    if (queue->ahead > 0) {
        assert(!ready);
        take_ahead(queue);
        return RMQ_OK;
    }
    int64_t size = queue->options.file_size;
    int64_t start = queue->last ? queue->last->start + size : offset - offset % size;
    struct rmq_mapped_file *file = ready;
    if (!ready || ready->start != start) {
        int status = rmq_file_queue_prepare(queue, start, &file, err);
        if (status != RMQ_OK)
            return status;
    }
    bool is_first = queue->last == NULL;
    pthread_mutex_lock(&queue->lock);
    int status = insert(queue, file, err);
    if (status == RMQ_OK)
        publish(queue);
    pthread_mutex_unlock(&queue->lock);
    if (status != RMQ_OK) {
        if (file != ready)
            rmq_mapped_file_unpin(file);
        return status;
    }
    if (is_first)
        atomic_store_explicit(&queue->flushed_offset, start, memory_order_release);
    return RMQ_OK;
}

int rmq_file_queue_flush(struct rmq_file_queue *queue, struct rmq_error *err)
{
    int status = RMQ_OK;
    pthread_mutex_lock(&queue->flush_lock);
    int64_t goal = rmq_file_queue_end(queue);
    int64_t flushed = rmq_file_queue_flushed(queue);
    while (flushed < goal && status == RMQ_OK) {
        struct rmq_mapped_file *file = NULL;
        /* Offsets below the first file need no flush: they are gone. */
        int64_t start = rmq_file_queue_start(queue);
        if (flushed < start)
            flushed = start;
        status = rmq_file_queue_pin(queue, flushed, &file, err);
        if (status != RMQ_OK)
            break;
        int64_t wrote = atomic_load_explicit(&file->wrote, memory_order_acquire);
        status = rmq_mapped_file_flush(file, err);
        if (status == RMQ_OK) {
            flushed = file->start + wrote;
            atomic_store_explicit(&queue->flushed_offset, flushed, memory_order_release);
        }
        rmq_mapped_file_unpin(file);
        if (wrote == 0)
            break;
    }
    pthread_mutex_unlock(&queue->flush_lock);
    return status;
}

/* Takes the last file out of the array, unlinked on the device. */
static int drop_last(struct rmq_file_queue *queue, struct rmq_error *err)
{
    struct rmq_mapped_file *file = queue->files[queue->count + queue->ahead - 1];
    int status = rmq_mapped_file_unlink(file, err);
    if (status != RMQ_OK)
        return status;
    struct rmq_vfs *vfs = queue->options.vfs;
    /* One by one from the back: a crash in between must never leave a hole. */
    status = vfs->sync_directory(vfs, directory_for(queue, file->start), err);
    pthread_mutex_lock(&queue->lock);
    --*(queue->ahead > 0 ? &queue->ahead : &queue->count);
    publish(queue);
    pthread_mutex_unlock(&queue->lock);
    rmq_mapped_file_unpin(file);
    return status;
}

void rmq_file_queue_rewind(struct rmq_file_queue *queue, int64_t offset)
{
    assert(!queue->options.read_only);
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
    publish(queue);
    int64_t end = rmq_file_queue_end(queue);
    if (rmq_file_queue_flushed(queue) > end)
        atomic_store_explicit(&queue->flushed_offset, end, memory_order_release);
    pthread_mutex_unlock(&queue->lock);
}

int rmq_file_queue_truncate(struct rmq_file_queue *queue, int64_t offset, struct rmq_error *err)
{
    assert(!queue->options.read_only);
    int status = RMQ_OK;
    pthread_mutex_lock(&queue->flush_lock);
    /* A first file that begins at offset stays, empty: its name is all that tells where the queue
     * goes on, unless that is 0. */
    while (status == RMQ_OK && queue->ahead > 0)
        status = drop_last(queue, err);
    while (status == RMQ_OK && queue->count > 0 &&
           queue->files[queue->count - 1]->start >= offset &&
           !(queue->count == 1 && queue->files[0]->start == offset && offset > 0))
        status = drop_last(queue, err);
    if (status == RMQ_OK && queue->count > 0) {
        struct rmq_mapped_file *last = queue->files[queue->count - 1];
        int64_t end = offset - last->start;
        if (end < last->size)
            status = rmq_mapped_file_cut(last, end, err);
    }
    pthread_mutex_lock(&queue->lock);
    publish(queue);
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
        rmq_mapped_file_set_end(last, end < last->size ? end : last->size);
    }
    publish(queue);
    atomic_store_explicit(&queue->flushed_offset, rmq_file_queue_end(queue), memory_order_release);
    pthread_mutex_unlock(&queue->lock);
}

void rmq_file_queue_distrust(struct rmq_file_queue *queue, int64_t offset)
{
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
                status = vfs->sync_directory(vfs, directory_for(queue, file->start), err);
        }
        rmq_mapped_file_unpin(file);
    }
    return status;
}

/* Names the last file, which is empty, after offset. Its bytes stay where they are, so whoever
 * writes ahead of the end must not be at it. */
static int rename_last(struct rmq_file_queue *queue, int64_t offset, struct rmq_error *err)
{
    struct rmq_mapped_file *last = queue->files[0], *file = NULL;
    struct rmq_vfs *vfs = queue->options.vfs;
    char path[PATH_MAX], directory[PATH_MAX], name[RMQ_FILE_NAME_SIZE];
    size_t size = (size_t)(strrchr(last->path, '/') - last->path);
    snprintf(directory, sizeof directory, "%.*s", (int)size, last->path);
    rmq_file_name(offset, name);
    int status = join(path, sizeof path, directory, name, err);
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
    publish(queue);
    pthread_mutex_unlock(&queue->lock);
    rmq_mapped_file_unpin(last);
    return RMQ_OK;
}

static int empty_to(struct rmq_file_queue *queue, int64_t offset, struct rmq_error *err)
{
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
    publish(queue);
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
    int status = RMQ_OK;
    pthread_mutex_lock(&queue->flush_lock);
    while (status == RMQ_OK && queue->count + queue->ahead > 0)
        status = drop_last(queue, err);
    atomic_store_explicit(&queue->flushed_offset, 0, memory_order_release);
    pthread_mutex_unlock(&queue->flush_lock);
    return status;
}
