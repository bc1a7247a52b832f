#include "file/file_queue.h"

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
    assert(name && start);

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
    assert(names || count == 0);

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
    assert(names || count == 0);

    for (size_t i = 0; names && i < count; ++i)
        free((char *)names[i]);
    free((void *)names);
}

/* ---- the array of files; the caller holds queue->lock or is alone ---- */

static int insert(struct rmq_file_queue *queue, struct rmq_mapped_file *file, struct rmq_error *err)
{
    assert(queue->ahead == 0);
    assert(file->start >= 0 && queue->count <= queue->capacity);

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
    assert(at == 0 || queue->files[at - 1]->start <= file->start);
    ++queue->count;
    return RMQ_OK;
}

void rmq_file_queue_publish(struct rmq_file_queue *queue)
{
    assert(queue->count + queue->ahead <= queue->capacity);

    struct rmq_mapped_file *last = queue->count ? queue->files[queue->count - 1] : NULL;
    int64_t end = last ? last->start + atomic_load_explicit(&last->wrote, memory_order_acquire) : 0;

    queue->last = last;
    atomic_store_explicit(&queue->start_offset, last ? queue->files[0]->start : -1,
                          memory_order_release);
    atomic_store_explicit(&queue->end_offset, end, memory_order_release);
}

/* Index in files of the file that contains offset; false when there is none. */
static bool locate(const struct rmq_file_queue *queue, int64_t offset, size_t *index)
{
    assert(queue->count == 0 || queue->files);

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

    assert(low < queue->count);
    *index = low;
    return offset - queue->files[low]->start < queue->options.file_size;
}

/* ---- loading ---- */

struct loading {
    struct rmq_file_queue *queue;
    const char *directory;
    bool writable;
    bool skip_known; /* refreshing: files that are loaded already stay unchanged */
    struct rmq_error *err;
};

static int load_one(struct loading *loading, const char *name, int64_t start)
{
    assert(start >= 0 && name);

    struct rmq_file_queue *queue = loading->queue;
    struct rmq_error *err = loading->err;

    char path[PATH_MAX];
    struct rmq_file_info info;
    int status = rmq_path_join(path, sizeof path, loading->directory, name, err);
    if (status == RMQ_OK)
        status = queue->options.vfs->stat(queue->options.vfs, path, &info, err);

    if (status == RMQ_NOT_FOUND)
        return RMQ_OK; /* Deleted by its writer between listing and loading. */
    if (status != RMQ_OK)
        return status;

    if (!info.is_regular)
        return rmq_fail(err, RMQ_CORRUPT, start, "%s is not a regular file; move it away", path);

    if (info.size != 0 && info.size != queue->options.file_size)
        return rmq_fail(err, RMQ_CORRUPT, start,
                        "%s has %" PRId64 " bytes, expected %" PRId64
                        "; open the store with the file size it was written with",
                        path, info.size, queue->options.file_size);
    if (start % queue->options.file_size != 0)
        return rmq_fail(err, RMQ_CORRUPT, start,
                        "%s: the name is not a multiple of the file size %" PRId64, path,
                        queue->options.file_size);

    struct rmq_mapped_file_options options = {.vfs = queue->options.vfs,
                                              .budget = queue->options.budget,
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
                              memory_order_relaxed); /* checked when all files are known */

    status = insert(queue, file, err);
    if (status != RMQ_OK)
        rmq_mapped_file_unpin(file);
    return status;
}

static bool is_loaded(struct rmq_file_queue *queue, int64_t start)
{
    assert(start >= 0);

    size_t index;
    return locate(queue, start, &index) && queue->files[index]->start == start;
}

static int visit(void *context, const char *name, bool is_directory)
{
    assert(name);

    struct loading *loading = context;
    int64_t start = 0;
    if (is_directory)
        return RMQ_OK;

    if (!rmq_file_name_parse(name, &start))
        return rmq_fail(loading->err, RMQ_CORRUPT, -1,
                        "%s/%s is not a file of a store; move it away", loading->directory, name);

    if (loading->skip_known && is_loaded(loading->queue, start))
        return RMQ_OK;
    return load_one(loading, name, start);
}

static int load_directory(struct rmq_file_queue *queue, const char *directory, bool writable,
                          bool skip_known, struct rmq_error *err)
{
    assert(directory);

    struct loading loading = {queue, directory, writable, skip_known, err};
    struct rmq_vfs *vfs = queue->options.vfs;
    int status = vfs->list(vfs, directory, visit, &loading, err);
    return status == RMQ_NOT_FOUND ? RMQ_OK : status;
}

static bool is_empty(const struct rmq_mapped_file *file)
{
    assert(file);
    return atomic_load_explicit(&file->wrote, memory_order_relaxed) < 0;
}

/* Zero-length last files were never written: they are after `count`, like those of a rewound queue.
 * A zero-length file before the end is damage, and so is a gap. */
static int validate_loaded(struct rmq_file_queue *queue, struct rmq_error *err)
{
    assert(queue->ahead == 0);

    size_t loaded = queue->count;
    while (queue->count > 0 && is_empty(queue->files[queue->count - 1]))
        --queue->count;

    for (size_t i = queue->count; i < loaded; ++i) {
        if (queue->files[i]->writable)
            queue->files[queue->count + queue->ahead++] = queue->files[i];
        else
            rmq_mapped_file_unpin(queue->files[i]);
    }

    for (size_t i = 0; i < queue->count; ++i) {
        struct rmq_mapped_file *file = queue->files[i];
        if (is_empty(file))
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
    assert(queue->count + queue->ahead <= loaded);
    return RMQ_OK;
}

static int load_all(struct rmq_file_queue *queue, bool skip_known, struct rmq_error *err)
{
    assert(queue->ahead == 0);

    const struct rmq_file_queue_options *options = &queue->options;
    int status = RMQ_OK;
    for (size_t i = 0; i < options->directory_count && status == RMQ_OK; ++i) {
        if (!options->read_only && !options->makes_folder_late)
            status = options->vfs->make_directory(options->vfs, options->directories[i], err);
        if (status == RMQ_OK)
            status = load_directory(queue, options->directories[i], !options->read_only, skip_known,
                                    err);
    }
    for (size_t i = 0; i < options->read_only_count && status == RMQ_OK; ++i)
        status = load_directory(queue, options->read_only_directories[i], false, skip_known, err);
    if (status == RMQ_OK)
        status = validate_loaded(queue, err);
    return status;
}

int rmq_file_queue_open(struct rmq_file_queue *queue, const struct rmq_file_queue_options *options,
                        struct rmq_error *err)
{
    assert(options->file_size > 0 && options->window > 0 && options->directory_count > 0);
    assert(options->vfs && options->directories);

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

    rmq_file_queue_publish(queue);
    atomic_store_explicit(&queue->flushed_offset, rmq_file_queue_end(queue), memory_order_release);
    /* A process that died may have made the first file. */
    queue->is_new = options->unsynced && queue->count == 0;
    queue->is_last_unsynced = options->unsynced && queue->count == 1;
    if (status != RMQ_OK)
        rmq_file_queue_close(queue);
    return status;
}

void rmq_file_queue_close(struct rmq_file_queue *queue)
{
    assert(queue->files || queue->count + queue->ahead == 0);

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
        /* A writer that cuts and continues makes another file of the same name. */
        int found = vfs->stat(vfs, file->path, &info, NULL);
        if (found == RMQ_NOT_FOUND || (found == RMQ_OK && info.identity != file->identity) ||
            is_empty(file))
            rmq_mapped_file_unpin(file);
        else
            queue->files[kept++] = file;
    }

    assert(kept <= queue->count);
    queue->count = kept;
    int status = load_all(queue, true, err);
    rmq_file_queue_publish(queue);
    pthread_mutex_unlock(&queue->lock);
    return status;
}

/* ---- readers ---- */

int rmq_file_queue_pin_unmapped(struct rmq_file_queue *queue, int64_t offset,
                                struct rmq_mapped_file **file, struct rmq_error *err)
{
    assert(file);

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

    *file = found;
    return RMQ_OK;
}

int rmq_file_queue_pin(struct rmq_file_queue *queue, int64_t offset, struct rmq_mapped_file **file,
                       struct rmq_error *err)
{
    struct rmq_mapped_file *found = NULL;
    int status = rmq_file_queue_pin_unmapped(queue, offset, &found, err);
    if (status == RMQ_OK)
        status = rmq_mapped_file_map(found, err);
    if (status != RMQ_OK) {
        if (found)
            rmq_mapped_file_unpin(found);
        return status;
    }
    *file = found;
    return RMQ_OK;
}

int rmq_file_queue_pin_at(struct rmq_file_queue *queue, size_t index, struct rmq_mapped_file **file,
                          struct rmq_error *err)
{
    assert(file);

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

const char *rmq_file_queue_directory(const struct rmq_file_queue *queue, int64_t start)
{
    assert(start >= 0);

    size_t number = (size_t)(start / queue->options.file_size);
    assert(queue->options.directory_count > 0);
    return queue->options.directories[number % queue->options.directory_count];
}

/* The next file of a rewound queue exists already. */
static void take_ahead(struct rmq_file_queue *queue)
{
    assert(queue->ahead > 0 && queue->last);

    struct rmq_mapped_file *file = queue->files[queue->count];
    assert(file->start == queue->last->start + queue->options.file_size);

    rmq_mapped_file_set_end(file, 0);
    pthread_mutex_lock(&queue->lock);
    ++queue->count;
    --queue->ahead;
    rmq_file_queue_publish(queue);
    pthread_mutex_unlock(&queue->lock);
}

int rmq_file_queue_roll(struct rmq_file_queue *queue, int64_t offset, struct rmq_mapped_file *ready,
                        struct rmq_error *err)
{
    assert(!queue->options.read_only && offset >= 0);

    if (queue->ahead > 0 && !is_empty(queue->files[queue->count])) {
        assert(!ready);
        take_ahead(queue);
        return RMQ_OK;
    }

    int status = rmq_file_queue_show(queue, err);
    if (status == RMQ_OK)
        status = rmq_file_queue_drop_ahead(queue, err);
    /* Otherwise a crash may leave an empty file before the next one. */
    if (status == RMQ_OK && queue->is_last_unsynced && queue->last)
        status = rmq_mapped_file_sync(queue->last, err);
    if (status != RMQ_OK)
        return status;

    int64_t size = queue->options.file_size;
    int64_t start = queue->last ? queue->last->start + size : offset - offset % size;
    struct rmq_mapped_file *file = ready;
    if (!ready || ready->start != start) {
        status = rmq_file_queue_prepare(queue, start, &file, err);
        if (status != RMQ_OK)
            return status;
    }

    bool is_first = queue->last == NULL;

    pthread_mutex_lock(&queue->lock);
    status = insert(queue, file, err);
    if (status == RMQ_OK)
        rmq_file_queue_publish(queue);
    pthread_mutex_unlock(&queue->lock);

    if (status != RMQ_OK) {
        if (file != ready)
            rmq_mapped_file_unpin(file);
        return status;
    }

    assert(queue->last == file);
    queue->is_last_hidden = queue->options.shows_files_late;
    queue->is_last_unsynced = queue->is_new;
    if (is_first)
        atomic_store_explicit(&queue->flushed_offset, start, memory_order_release);
    return RMQ_OK;
}

void rmq_file_queue_start_flush(struct rmq_file_queue *queue)
{
    int64_t flushed = rmq_file_queue_flushed(queue);
    struct rmq_mapped_file *file = NULL;
    int fd = -1;
    if (flushed >= rmq_file_queue_end(queue) ||
        rmq_file_queue_pin_unmapped(queue, flushed, &file, NULL) != RMQ_OK)
        return;

    assert(file);
    if (rmq_mapped_file_open(file, true, &fd, NULL) == RMQ_OK) {
        queue->options.vfs->start_sync(queue->options.vfs, fd);
        (void)queue->options.vfs->close(queue->options.vfs, fd, NULL);
    }
    rmq_mapped_file_unpin(file);
}

int rmq_file_queue_flush(struct rmq_file_queue *queue, struct rmq_error *err)
{
    int status = RMQ_OK;

    pthread_mutex_lock(&queue->flush_lock);
    int64_t goal = rmq_file_queue_end(queue);
    int64_t flushed = rmq_file_queue_flushed(queue);
    while (flushed < goal && status == RMQ_OK) {
        struct rmq_mapped_file *file = NULL;
        /* Offsets below the first file need no flush: their bytes were deleted. */
        int64_t start = rmq_file_queue_start(queue);
        if (flushed < start)
            flushed = start;
        status = rmq_file_queue_pin_unmapped(queue, flushed, &file, err);
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
