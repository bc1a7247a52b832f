/* file_queue_make.c -- making the files and folders of a queue, and their names. */
#include "file/file_queue.h"

#include <assert.h>
#include <limits.h>
#include <stdio.h>
#include <string.h>

static int path_of(const struct rmq_file_queue *queue, int64_t start, char path[PATH_MAX],
                   struct rmq_error *err)
{
    assert(start >= 0);

    char name[RMQ_FILE_NAME_SIZE];
    rmq_file_name(start, name);
    return rmq_path_join(path, PATH_MAX, rmq_file_queue_directory(queue, start), name, err);
}

int rmq_file_queue_hidden_path(const struct rmq_file_queue *queue, char *path,
                               struct rmq_error *err)
{
    assert(path);

    const char *directory = queue->options.directories[0];
    int size = snprintf(path, PATH_MAX, "%s.new", directory);
    if (size < 0 || size >= PATH_MAX)
        return rmq_fail(err, RMQ_INVALID, -1, "path too long: %s", directory);
    return RMQ_OK;
}

/* Writes the path of the folder that holds `path` to `folder`. */
static void folder_above(const char *path, char folder[PATH_MAX])
{
    const char *slash = strrchr(path, '/');
    size_t size = slash ? (size_t)(slash - path) : 0;
    assert(size < PATH_MAX);

    snprintf(folder, PATH_MAX, "%.*s", (int)size, path);
}

int rmq_file_queue_distrust_names(struct rmq_file_queue *queue, struct rmq_error *err)
{
    assert(queue->options.unsynced);

    char folder[PATH_MAX], above[PATH_MAX];
    const char *path = queue->options.directories[0];
    int status = rmq_unsynced_folders_add(queue->options.unsynced, path, err);
    folder_above(path, folder);
    if (status == RMQ_OK)
        status = rmq_unsynced_folders_add(queue->options.unsynced, folder, err);
    folder_above(folder, above);
    if (status == RMQ_OK)
        status = rmq_unsynced_folders_add(queue->options.unsynced, above, err);
    return status;
}

int rmq_file_queue_show(struct rmq_file_queue *queue, struct rmq_error *err)
{
    char path[PATH_MAX];
    struct rmq_vfs *vfs = queue->options.vfs;
    if (!queue->is_last_hidden)
        return RMQ_OK;

    assert(queue->last);
    int status = path_of(queue, queue->last->start, path, err);
    if (status == RMQ_OK && !queue->last->former_path)
        status = rmq_mapped_file_rename(queue->last, path, err);

    /* Listed once the names are made: a flush in between would empty the list too early. */
    if (status == RMQ_OK && queue->is_new)
        status = rmq_file_queue_distrust_names(queue, err);
    else if (status == RMQ_OK)
        status = vfs->sync_directory(vfs, rmq_file_queue_directory(queue, queue->last->start), err);
    if (status == RMQ_OK)
        queue->is_last_hidden = queue->is_new = false;
    return status;
}

/* Makes the folder of a new queue and the one above it, without syncs. */
static int make_new_folder(struct rmq_file_queue *queue, struct rmq_error *err)
{
    assert(queue->is_new);

    struct rmq_vfs *vfs = queue->options.vfs;
    const char *path = queue->options.directories[0];
    int status = vfs->make_unsynced_directory(vfs, path, err);
    if (status != RMQ_NOT_FOUND)
        return status;

    char folder[PATH_MAX], above[PATH_MAX];
    folder_above(path, folder);
    status = vfs->make_unsynced_directory(vfs, folder, err);
    if (status == RMQ_NOT_FOUND) {
        folder_above(folder, above);
        status = vfs->make_directory(vfs, above, err);
        if (status == RMQ_OK)
            status = vfs->make_unsynced_directory(vfs, folder, err);
    }
    return status == RMQ_OK ? vfs->make_unsynced_directory(vfs, path, err) : status;
}

static int make_folder(struct rmq_file_queue *queue, int64_t start, struct rmq_error *err)
{
    assert(!queue->options.read_only);

    struct rmq_vfs *vfs = queue->options.vfs;
    if (!queue->options.makes_folder_late)
        return RMQ_OK;
    if (queue->is_new)
        return make_new_folder(queue, err);
    return vfs->make_directory(vfs, rmq_file_queue_directory(queue, start), err);
}

int rmq_file_queue_prepare(struct rmq_file_queue *queue, int64_t start,
                           struct rmq_mapped_file **file, struct rmq_error *err)
{
    assert(!queue->options.read_only && start % queue->options.file_size == 0);
    assert(start >= 0 && file);

    char path[PATH_MAX];
    const char *directory = rmq_file_queue_directory(queue, start);
    struct rmq_vfs *vfs = queue->options.vfs;
    int status = queue->options.shows_files_late ? rmq_file_queue_hidden_path(queue, path, err)
                                                 : path_of(queue, start, path, err);
    if (status == RMQ_OK)
        status = make_folder(queue, start, err);
    if (status != RMQ_OK)
        return status;

    /* Making a file empties an existing one. */
    assert(!queue->last || start > queue->last->start);
    struct rmq_mapped_file_options options = {.vfs = vfs,
                                              .budget = queue->options.budget,
                                              .start = start,
                                              .size = queue->options.file_size,
                                              .writable = true,
                                              .keep_descriptor = queue->options.keep_descriptor,
                                              .is_unsynced = queue->is_new};

    status = rmq_mapped_file_create(path, &options, file, err);
    if (status == RMQ_OK && !queue->options.shows_files_late) {
        /* The size of the file must be on the device before its bytes count as flushed. */
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
    assert(file && file != queue->last);

    struct rmq_vfs *vfs = queue->options.vfs;
    int status = rmq_mapped_file_unlink(file, err);
    if (status == RMQ_OK)
        status = vfs->sync_directory(vfs, rmq_file_queue_directory(queue, file->start), err);
    if (status == RMQ_OK)
        rmq_mapped_file_unpin(file);
    return status;
}
