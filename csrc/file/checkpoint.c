#include "file/checkpoint.h"

#include <assert.h>
#include <inttypes.h>
#include <limits.h>
#include <stdio.h>
#include <unistd.h>

#include "base/bytes.h"
#include "base/crc32.h"

#define FIELDS_SIZE 48
#define MARKED_SIZE 60

_Static_assert(FIELDS_SIZE == 6 * 8 && FIELDS_SIZE <= RMQ_CHECKPOINT_SIZE, "checkpoint layout");
_Static_assert(MARKED_SIZE == FIELDS_SIZE + 8 + 4, "checkpoint layout");

/* Syncs a name that was just made or removed. */
static int sync_parent(struct rmq_vfs *vfs, const char *path, struct rmq_error *err)
{
    assert(path);

    char folder[PATH_MAX];
    const char *slash = strrchr(path, '/');
    size_t size = slash ? (size_t)(slash - path) : 0;
    if (size >= sizeof folder)
        return rmq_fail(err, RMQ_INVALID, -1, "path too long: %s", path);

    if (!slash)
        return vfs->sync_directory(vfs, ".", err);
    if (size == 0)
        return vfs->sync_directory(vfs, "/", err);

    memcpy(folder, path, size);
    folder[size] = '\0';
    return vfs->sync_directory(vfs, folder, err);
}

static int file_size(struct rmq_vfs *vfs, const char *path, int64_t *size, struct rmq_error *err)
{
    assert(path && size);

    struct rmq_file_info info;
    int status = vfs->stat(vfs, path, &info, err);
    if (status == RMQ_OK && info.is_directory)
        return rmq_fail(err, RMQ_CORRUPT, -1, "%s is a folder, expected a file; move it away",
                        path);

    *size = status == RMQ_OK ? info.size : -1;
    return status == RMQ_NOT_FOUND ? RMQ_OK : status;
}

int rmq_checkpoint_read(struct rmq_vfs *vfs, const char *path, struct rmq_checkpoint *checkpoint,
                        bool *found, struct rmq_error *err)
{
    assert(checkpoint && found);

    uint8_t bytes[MARKED_SIZE];
    size_t got = 0;
    int fd = -1;
    *checkpoint = (struct rmq_checkpoint){.flushed_offset = -1};
    *found = false;

    int status = vfs->open(vfs, path, 0, &fd, err);
    if (status == RMQ_NOT_FOUND)
        return RMQ_OK;
    if (status != RMQ_OK)
        return status;

    status = vfs->read(vfs, fd, bytes, sizeof bytes, 0, &got, err);
    (void)vfs->close(vfs, fd, NULL);
    if (status != RMQ_OK || got < FIELDS_SIZE)
        return status;

    checkpoint->physic_timestamp = rmq_get_i64(bytes);
    checkpoint->logics_timestamp = rmq_get_i64(bytes + 8);
    checkpoint->index_timestamp = rmq_get_i64(bytes + 16);
    checkpoint->master_flushed_offset = rmq_get_i64(bytes + 24);
    checkpoint->confirm_offset = rmq_get_i64(bytes + 32);
    checkpoint->logics_physical_offset = rmq_get_i64(bytes + 40);

    if (got == MARKED_SIZE &&
        (uint32_t)rmq_get_i32(bytes + 56) == rmq_crc32(0, bytes, MARKED_SIZE - 4) &&
        rmq_get_i64(bytes + 48) >= 0)
        checkpoint->flushed_offset = rmq_get_i64(bytes + 48);
    *found = true;
    return RMQ_OK;
}

/* Writes data to the beginning of a file of at least size_min bytes, or of exactly size_min bytes
 * with `shorten`, and syncs it; also syncs its name if the file is made here. */
static int write_synced(struct rmq_vfs *vfs, const char *path, const void *data, size_t size,
                        int64_t size_min, bool shorten, struct rmq_error *err)
{
    assert(size > 0 && size <= (size_t)size_min);

    int64_t size_before = -1;
    int fd = -1;

    int status = file_size(vfs, path, &size_before, err);
    if (status == RMQ_OK)
        status = vfs->open(vfs, path, RMQ_OPEN_WRITE | RMQ_OPEN_CREATE, &fd, err);
    if (status != RMQ_OK)
        return status;

    if (size_before < size_min || (shorten && size_before > size_min))
        status = vfs->resize(vfs, fd, size_min, err);
    if (status == RMQ_OK)
        status = vfs->write(vfs, fd, data, size, 0, err);
    if (status == RMQ_OK)
        status = vfs->sync(vfs, fd, err);

    int closed = vfs->close(vfs, fd, status == RMQ_OK ? err : NULL);
    if (status == RMQ_OK)
        status = closed;
    if (status == RMQ_OK && size_before < 0)
        status = sync_parent(vfs, path, err);
    return status;
}

static void encode(uint8_t bytes[MARKED_SIZE], const struct rmq_checkpoint *checkpoint)
{
    rmq_put_i64(bytes, checkpoint->physic_timestamp);
    rmq_put_i64(bytes + 8, checkpoint->logics_timestamp);
    rmq_put_i64(bytes + 16, checkpoint->index_timestamp);
    rmq_put_i64(bytes + 24, checkpoint->master_flushed_offset);
    rmq_put_i64(bytes + 32, checkpoint->confirm_offset);
    rmq_put_i64(bytes + 40, checkpoint->logics_physical_offset);

    bool is_marked = checkpoint->flushed_offset >= 0;
    rmq_put_i64(bytes + 48, is_marked ? checkpoint->flushed_offset : 0);
    rmq_put_i32(bytes + 56, is_marked ? (int32_t)rmq_crc32(0, bytes, MARKED_SIZE - 4) : 0);
}

int rmq_checkpoint_write(struct rmq_vfs *vfs, const char *path,
                         const struct rmq_checkpoint *checkpoint, struct rmq_error *err)
{
    assert(path && checkpoint);

    uint8_t bytes[MARKED_SIZE];
    encode(bytes, checkpoint);
    return write_synced(vfs, path, bytes, sizeof bytes, RMQ_CHECKPOINT_SIZE, false, err);
}

int rmq_checkpoint_publish(struct rmq_vfs *vfs, const char *path,
                           const struct rmq_checkpoint *checkpoint, struct rmq_error *err)
{
    assert(path && checkpoint);

    uint8_t bytes[MARKED_SIZE];
    int fd = -1;
    encode(bytes, checkpoint);

    int status = vfs->open(vfs, path, RMQ_OPEN_WRITE, &fd, err);
    if (status != RMQ_OK)
        return status;
    status = vfs->write(vfs, fd, bytes, sizeof bytes, 0, err);
    int closed = vfs->close(vfs, fd, status == RMQ_OK ? err : NULL);
    return status == RMQ_OK ? closed : status;
}

int rmq_abort_exists(struct rmq_vfs *vfs, const char *path, bool *exists, struct rmq_error *err)
{
    assert(path && exists);

    struct rmq_file_info info;
    int status = vfs->stat(vfs, path, &info, err);
    *exists = status == RMQ_OK;
    return status == RMQ_NOT_FOUND ? RMQ_OK : status;
}

int rmq_abort_create(struct rmq_vfs *vfs, const char *path, struct rmq_error *err)
{
    char text[24];
    int size = snprintf(text, sizeof text, "%" PRId64, (int64_t)getpid());
    assert(size > 0 && (size_t)size < sizeof text);
    return write_synced(vfs, path, text, (size_t)size, size, true, err);
}

int rmq_abort_remove(struct rmq_vfs *vfs, const char *path, struct rmq_error *err)
{
    assert(path);

    int status = vfs->unlink(vfs, path, err);
    if (status == RMQ_NOT_FOUND)
        return RMQ_OK;
    return status == RMQ_OK ? sync_parent(vfs, path, err) : status;
}
