#include "log/cut_copy.h"

#include <assert.h>
#include <inttypes.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { CHUNK_SIZE = 1 << 20, FOLDER_SIZE = 5 };

static const char folder[FOLDER_SIZE] = "/cut";

/* A range of bytes within one file; the file is pinned. */
struct piece {
    struct rmq_mapped_file *file;
    const uint8_t *data;
    size_t size;
};

static int pin_piece(struct rmq_file_queue *files, int64_t at, int64_t to, struct piece *piece,
                     struct rmq_error *err)
{
    assert(at < to);

    int status = rmq_file_queue_pin(files, at, &piece->file, err);
    if (status != RMQ_OK)
        return status;

    int64_t file_end = piece->file->start + piece->file->size;
    int64_t size = (file_end < to ? file_end : to) - at;
    assert(size > 0);
    piece->data = rmq_mapped_file_base(piece->file) + (at - piece->file->start);
    piece->size = (size_t)(size < CHUNK_SIZE ? size : CHUNK_SIZE);
    return RMQ_OK;
}

static int write_range(struct rmq_file_queue *files, int fd, int64_t from, int64_t to,
                       struct rmq_error *err)
{
    assert(fd >= 0 && from < to);

    struct rmq_vfs *vfs = files->options.vfs;
    int status = RMQ_OK;

    for (int64_t at = from; at < to && status == RMQ_OK;) {
        struct piece piece;
        status = pin_piece(files, at, to, &piece, err);
        if (status != RMQ_OK)
            return status;
        status = vfs->write(vfs, fd, piece.data, piece.size, at - from, err);
        at += (int64_t)piece.size;
        rmq_mapped_file_unpin(piece.file);
    }
    return status;
}

static int compare_range(struct rmq_file_queue *files, int fd, int64_t from, int64_t to,
                         bool *is_same, struct rmq_error *err)
{
    assert(fd >= 0 && from < to && is_same);

    struct rmq_vfs *vfs = files->options.vfs;
    int status = RMQ_OK;
    uint8_t *buffer = malloc(CHUNK_SIZE);
    if (!buffer)
        return rmq_fail(err, RMQ_NO_MEMORY, -1, "no %d bytes to compare a copy with", CHUNK_SIZE);

    *is_same = true;
    for (int64_t at = from; at < to && *is_same && status == RMQ_OK;) {
        struct piece piece;
        size_t got = 0;
        status = pin_piece(files, at, to, &piece, err);
        if (status != RMQ_OK)
            break;
        status = vfs->read(vfs, fd, buffer, piece.size, at - from, &got, err);
        *is_same = got == piece.size && memcmp(buffer, piece.data, got) == 0;
        at += (int64_t)piece.size;
        rmq_mapped_file_unpin(piece.file);
    }

    free(buffer);
    return status;
}

/* A copy counts once it is on the device, even a copy that existed before. */
static int sync_and_close(struct rmq_vfs *vfs, int fd, int status, struct rmq_error *err)
{
    assert(fd >= 0);

    if (status == RMQ_OK)
        status = vfs->sync(vfs, fd, err);
    int closed = vfs->close(vfs, fd, status == RMQ_OK ? err : NULL);
    return status == RMQ_OK ? closed : status;
}

/* *is_same: the file at path has the same bytes, and they are on the device. RMQ_NOT_FOUND. */
static int find_same(struct rmq_file_queue *files, const char *path, int64_t from, int64_t to,
                     bool *is_same, struct rmq_error *err)
{
    assert(path && is_same);

    struct rmq_vfs *vfs = files->options.vfs;
    struct rmq_file_info info;
    int fd = -1;
    *is_same = false;

    int status = vfs->stat(vfs, path, &info, err);
    if (status != RMQ_OK || info.is_directory || info.size != to - from)
        return status;
    status = vfs->open(vfs, path, 0, &fd, err);
    if (status != RMQ_OK)
        return status;

    status = compare_range(files, fd, from, to, is_same, err);
    return sync_and_close(vfs, fd, status, err);
}

/* Has another name until it is whole: after a crash no part of a copy has the name of a copy. */
static int make_copy(struct rmq_file_queue *files, const char *path, int64_t from, int64_t to,
                     struct rmq_error *err)
{
    struct rmq_vfs *vfs = files->options.vfs;
    char part[PATH_MAX];
    int fd = -1;
    int size = snprintf(part, sizeof part, "%s.part", path);
    assert(size > 0 && (size_t)size < sizeof part);

    int status = vfs->open(vfs, part, RMQ_OPEN_WRITE | RMQ_OPEN_CREATE, &fd, err);

    if (status != RMQ_OK)
        return status;

    /* An unfinished copy that a crash left. */
    status = vfs->resize(vfs, fd, 0, err);
    if (status == RMQ_OK)
        status = write_range(files, fd, from, to, err);
    status = sync_and_close(vfs, fd, status, err);
    if (status == RMQ_OK)
        status = vfs->rename(vfs, part, path, err);
    if (status != RMQ_OK)
        (void)vfs->unlink(vfs, part, NULL);
    return status;
}

static int copy_into(struct rmq_file_queue *files, const char *directory, int64_t from, int64_t to,
                     char name[RMQ_CUT_PATH_SIZE], struct rmq_error *err)
{
    assert(directory && name);

    char path[PATH_MAX];
    for (int number = 0; number < RMQ_CUT_COPIES_MAX; ++number) {
        bool is_same = false;
        if (number == 0)
            snprintf(name, RMQ_CUT_PATH_SIZE, "%020" PRId64, from);
        else
            snprintf(name, RMQ_CUT_PATH_SIZE, "%020" PRId64 ".%d", from, number);

        int status = rmq_path_join(path, sizeof path, directory, name, err);
        if (status == RMQ_OK)
            status = find_same(files, path, from, to, &is_same, err);
        if (status == RMQ_NOT_FOUND)
            return make_copy(files, path, from, to, err);
        if (status != RMQ_OK || is_same)
            return status;
    }
    return rmq_fail(err, RMQ_INVALID, from,
                    "%s holds %d copies of bytes from %" PRId64 " on; move them elsewhere",
                    directory, RMQ_CUT_COPIES_MAX, from);
}

int rmq_cut_copy(struct rmq_file_queue *files, const char *root, int64_t from, int64_t to,
                 char path[RMQ_CUT_PATH_SIZE], struct rmq_error *err)
{
    assert(from >= 0 && from < to);
    assert(root && path);

    struct rmq_vfs *vfs = files->options.vfs;
    struct rmq_error own;
    char directory[PATH_MAX], name[RMQ_CUT_PATH_SIZE];
    size_t root_size = strlen(root);
    if (!err)
        err = &own;
    if (root_size >= sizeof directory - FOLDER_SIZE - RMQ_CUT_PATH_SIZE)
        return rmq_fail(err, RMQ_INVALID, -1, "path too long: %s%s", root, folder);

    memcpy(directory, root, root_size);
    memcpy(directory + root_size, folder, FOLDER_SIZE);

    int status = vfs->make_directory(vfs, directory, err);
    if (status == RMQ_OK)
        status = copy_into(files, directory, from, to, name, err);
    if (status == RMQ_OK)
        status = vfs->sync_directory(vfs, directory, err);
    if (status == RMQ_OK)
        snprintf(path, RMQ_CUT_PATH_SIZE, "%s/%.*s", folder + 1,
                 RMQ_CUT_PATH_SIZE - FOLDER_SIZE - 1, name);
    return status;
}
