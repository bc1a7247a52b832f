#include "base/small_file.h"

#include <assert.h>
#include <limits.h>
#include <stdio.h>

static int join(char out[PATH_MAX], const char *directory, const char *name, const char *suffix,
                struct rmq_error *err)
{
    assert(directory && name && suffix);

    int size = snprintf(out, PATH_MAX, "%s/%s%s", directory, name, suffix);
    if (size < 0 || size >= PATH_MAX)
        return rmq_fail(err, RMQ_INVALID, -1, "path too long: %s/%s%s", directory, name, suffix);
    return RMQ_OK;
}

static int write_whole(struct rmq_vfs *vfs, const char *path, const void *data, size_t size,
                       struct rmq_error *err)
{
    assert(data || size == 0);

    int fd = -1;
    int status = vfs->open(vfs, path, RMQ_OPEN_WRITE | RMQ_OPEN_CREATE, &fd, err);
    if (status != RMQ_OK)
        return status;

    /* A file that a crash left may be longer. */
    status = vfs->resize(vfs, fd, 0, err);
    if (status == RMQ_OK && size > 0)
        status = vfs->write(vfs, fd, data, size, 0, err);
    if (status == RMQ_OK)
        status = vfs->sync(vfs, fd, err);

    int closed = vfs->close(vfs, fd, status == RMQ_OK ? err : NULL);
    return status == RMQ_OK ? closed : status;
}

int rmq_small_file_replace(struct rmq_vfs *vfs, const char *directory, const char *name,
                           const void *data, size_t size, struct rmq_error *err)
{
    assert(vfs);

    char path[PATH_MAX], temporary[PATH_MAX];
    int status = join(path, directory, name, "", err);
    if (status == RMQ_OK)
        status = join(temporary, directory, name, ".tmp", err);
    if (status != RMQ_OK)
        return status;

    status = write_whole(vfs, temporary, data, size, err);
    if (status == RMQ_OK)
        status = vfs->rename(vfs, temporary, path, err);
    if (status != RMQ_OK) {
        (void)vfs->unlink(vfs, temporary, NULL);
        return status;
    }

    return vfs->sync_directory(vfs, directory, err);
}

int rmq_small_file_remove(struct rmq_vfs *vfs, const char *directory, const char *name,
                          struct rmq_error *err)
{
    assert(vfs);

    char path[PATH_MAX];
    int status = join(path, directory, name, "", err);
    if (status == RMQ_OK)
        status = vfs->unlink(vfs, path, err);
    if (status == RMQ_NOT_FOUND || status == RMQ_OK)
        return vfs->sync_directory(vfs, directory, err);
    return status;
}
