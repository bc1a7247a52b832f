#include "faulty_vfs.h"

#include <assert.h>
#include <errno.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#define CALL_KINDS (RMQ_CALL_DIRECTORY + 1)

/* Which calls fail; the lock covers all but the first two members. */
struct fault {
    struct rmq_vfs vfs; /* first, so that the door is the object */
    struct rmq_vfs *inner;
    pthread_mutex_t lock;
    pthread_cond_t released;
    bool is_holding;
    enum rmq_vfs_call held_call;
    int64_t held;
    int64_t counts[CALL_KINDS]; /* since arming */
    enum rmq_vfs_call call;
    int64_t first;
    int64_t count;
    int os_errno;
    size_t short_bytes;
};

static struct fault *fault_of(struct rmq_vfs *vfs)
{
    return (struct fault *)vfs;
}

static struct rmq_vfs *inner_of(struct rmq_vfs *vfs)
{
    return fault_of(vfs)->inner;
}

/* Waits while the calls of this kind are held. The caller holds the lock. */
static void wait_while_held(struct fault *fault, enum rmq_vfs_call call)
{
    struct timespec limit;
    clock_gettime(CLOCK_REALTIME, &limit);
    limit.tv_sec += RMQ_VFS_HELD_S;

    int status = 0;
    ++fault->held;
    while (fault->is_holding && status == 0 &&
           (fault->held_call == RMQ_CALL_ANY || fault->held_call == call))
        status = pthread_cond_timedwait(&fault->released, &fault->lock, &limit);
    --fault->held;
}

/* Counts a call and returns the errno it fails with, 0 when it goes through. *stored is what of a
 * failing write is stored nevertheless. */
static int count_call(struct rmq_vfs *vfs, enum rmq_vfs_call call, size_t *stored)
{
    struct fault *fault = fault_of(vfs);
    pthread_mutex_lock(&fault->lock);
    wait_while_held(fault, call);
    ++fault->counts[RMQ_CALL_ANY];
    if (call != RMQ_CALL_ANY)
        ++fault->counts[call];
    bool is_planned = fault->call == RMQ_CALL_ANY || fault->call == call;
    int64_t number = fault->counts[fault->call] - 1;
    bool fails = is_planned && number >= fault->first && number - fault->first < fault->count;
    int os_errno = fails ? fault->os_errno : 0;
    if (stored)
        *stored = fault->short_bytes;
    pthread_mutex_unlock(&fault->lock);
    return os_errno;
}

static int fail_planned(struct rmq_error *err, int os_errno, const char *act)
{
    int status = rmq_fail_os(err, os_errno, "planned failure of %s", act);
    if (os_errno != ENOENT)
        return status;
    if (err)
        err->status = RMQ_NOT_FOUND;
    return RMQ_NOT_FOUND;
}

/* Counts the call and hands it on unless the plan says it fails. */
#define COUNTED(call, name, ...)                   \
    int os_errno = count_call(vfs, (call), NULL);  \
    if (os_errno != 0)                             \
        return fail_planned(err, os_errno, #name); \
    return inner_of(vfs)->name(inner_of(vfs), __VA_ARGS__, err)

static int fault_open(struct rmq_vfs *vfs, const char *path, unsigned flags, int *fd,
                      struct rmq_error *err)
{
    COUNTED(RMQ_CALL_OPEN, open, path, flags, fd);
}

static void fault_close_inherited(struct rmq_vfs *vfs, int fd)
{
    inner_of(vfs)->close_inherited(inner_of(vfs), fd);
}

static int fault_close(struct rmq_vfs *vfs, int fd, struct rmq_error *err)
{
    return inner_of(vfs)->close(inner_of(vfs), fd, err);
}

static int fault_stat(struct rmq_vfs *vfs, const char *path, struct rmq_file_info *info,
                      struct rmq_error *err)
{
    COUNTED(RMQ_CALL_ANY, stat, path, info);
}

static int fault_read(struct rmq_vfs *vfs, int fd, void *buffer, size_t size, int64_t at,
                      size_t *got, struct rmq_error *err)
{
    COUNTED(RMQ_CALL_READ, read, fd, buffer, size, at, got);
}

static int fault_write(struct rmq_vfs *vfs, int fd, const void *data, size_t size, int64_t at,
                       struct rmq_error *err)
{
    struct rmq_vfs *inner = inner_of(vfs);
    size_t stored;
    int os_errno = count_call(vfs, RMQ_CALL_WRITE, &stored);
    if (os_errno == 0)
        return inner->write(inner, fd, data, size, at, err);
    if (stored > 0)
        (void)inner->write(inner, fd, data, stored < size ? stored : size, at, NULL);
    return fail_planned(err, os_errno, "write");
}

static int fault_resize(struct rmq_vfs *vfs, int fd, int64_t size, struct rmq_error *err)
{
    COUNTED(RMQ_CALL_RESIZE, resize, fd, size);
}

static int fault_allocate(struct rmq_vfs *vfs, int fd, int64_t at, int64_t size,
                          struct rmq_error *err)
{
    COUNTED(RMQ_CALL_ALLOCATE, allocate, fd, at, size);
}

static int fault_allocate_unwritten(struct rmq_vfs *vfs, int fd, int64_t at, int64_t size,
                                    struct rmq_error *err)
{
    COUNTED(RMQ_CALL_ALLOCATE, allocate_unwritten, fd, at, size);
}

static int fault_zero(struct rmq_vfs *vfs, int fd, int64_t at, int64_t size, struct rmq_error *err)
{
    COUNTED(RMQ_CALL_ZERO, zero, fd, at, size);
}

static int fault_next_data(struct rmq_vfs *vfs, int fd, int64_t at, int64_t *found,
                           struct rmq_error *err)
{
    COUNTED(RMQ_CALL_ANY, next_data, fd, at, found);
}

static int fault_next_hole(struct rmq_vfs *vfs, int fd, int64_t at, int64_t *found,
                           struct rmq_error *err)
{
    COUNTED(RMQ_CALL_ANY, next_hole, fd, at, found);
}

static int fault_sync(struct rmq_vfs *vfs, int fd, struct rmq_error *err)
{
    COUNTED(RMQ_CALL_SYNC, sync, fd);
}

static void fault_start_sync(struct rmq_vfs *vfs, int fd)
{
    inner_of(vfs)->start_sync(inner_of(vfs), fd);
}

static int fault_sync_map(struct rmq_vfs *vfs, uint8_t *base, int64_t size, struct rmq_error *err)
{
    COUNTED(RMQ_CALL_SYNC, sync_map, base, size);
}

static int fault_map(struct rmq_vfs *vfs, int fd, int64_t size, bool writable, uint8_t **base,
                     struct rmq_error *err)
{
    COUNTED(RMQ_CALL_MAP, map, fd, size, writable, base);
}

static int fault_unmap(struct rmq_vfs *vfs, uint8_t *base, int64_t size, struct rmq_error *err)
{
    return inner_of(vfs)->unmap(inner_of(vfs), base, size, err);
}

static int fault_advise(struct rmq_vfs *vfs, uint8_t *base, int64_t size, enum rmq_advice advice,
                        struct rmq_error *err)
{
    return inner_of(vfs)->advise(inner_of(vfs), base, size, advice, err);
}

static int fault_rename(struct rmq_vfs *vfs, const char *from, const char *to,
                        struct rmq_error *err)
{
    COUNTED(RMQ_CALL_RENAME, rename, from, to);
}

static int fault_unlink(struct rmq_vfs *vfs, const char *path, struct rmq_error *err)
{
    COUNTED(RMQ_CALL_UNLINK, unlink, path);
}

static int fault_make_directory(struct rmq_vfs *vfs, const char *path, struct rmq_error *err)
{
    COUNTED(RMQ_CALL_DIRECTORY, make_directory, path);
}

static int fault_make_unsynced_directory(struct rmq_vfs *vfs, const char *path,
                                         struct rmq_error *err)
{
    COUNTED(RMQ_CALL_DIRECTORY, make_unsynced_directory, path);
}

static int fault_remove_directory(struct rmq_vfs *vfs, const char *path, struct rmq_error *err)
{
    COUNTED(RMQ_CALL_DIRECTORY, remove_directory, path);
}

static int fault_sync_directory(struct rmq_vfs *vfs, const char *path, struct rmq_error *err)
{
    COUNTED(RMQ_CALL_DIRECTORY, sync_directory, path);
}

static int fault_list(struct rmq_vfs *vfs, const char *path, rmq_list_visit *visit, void *context,
                      struct rmq_error *err)
{
    COUNTED(RMQ_CALL_DIRECTORY, list, path, visit, context);
}

static int fault_lock(struct rmq_vfs *vfs, int fd, int64_t *holder, struct rmq_error *err)
{
    COUNTED(RMQ_CALL_ANY, lock, fd, holder);
}

static int fault_disk_usage(struct rmq_vfs *vfs, const char *path, struct rmq_disk_usage *usage,
                            struct rmq_error *err)
{
    COUNTED(RMQ_CALL_ANY, disk_usage, path, usage);
}

struct rmq_vfs *rmq_vfs_fault_new(void)
{
    struct fault *fault = calloc(1, sizeof *fault);
    if (!fault)
        return NULL;
    fault->vfs = (struct rmq_vfs){
        .open = fault_open,
        .close = fault_close,
        .close_inherited = fault_close_inherited,
        .stat = fault_stat,
        .read = fault_read,
        .write = fault_write,
        .resize = fault_resize,
        .allocate = fault_allocate,
        .allocate_unwritten = fault_allocate_unwritten,
        .zero = fault_zero,
        .next_data = fault_next_data,
        .next_hole = fault_next_hole,
        .sync = fault_sync,
        .start_sync = fault_start_sync,
        .sync_map = fault_sync_map,
        .map = fault_map,
        .unmap = fault_unmap,
        .advise = fault_advise,
        .rename = fault_rename,
        .unlink = fault_unlink,
        .make_directory = fault_make_directory,
        .make_unsynced_directory = fault_make_unsynced_directory,
        .remove_directory = fault_remove_directory,
        .sync_directory = fault_sync_directory,
        .list = fault_list,
        .lock = fault_lock,
        .disk_usage = fault_disk_usage,
    };
    fault->inner = rmq_vfs_posix();
    pthread_mutex_init(&fault->lock, NULL);
    pthread_cond_init(&fault->released, NULL);
    return &fault->vfs;
}

void rmq_vfs_fault_free(struct rmq_vfs *vfs)
{
    if (!vfs)
        return;
    pthread_cond_destroy(&fault_of(vfs)->released);
    pthread_mutex_destroy(&fault_of(vfs)->lock);
    free(vfs);
}

void rmq_vfs_fault_arm(struct rmq_vfs *vfs, enum rmq_vfs_call call, int64_t first, int64_t count,
                       int os_errno, size_t short_bytes)
{
    assert(first >= 0 && count >= 0);
    assert(os_errno > 0 || count == 0);
    struct fault *fault = fault_of(vfs);
    pthread_mutex_lock(&fault->lock);
    memset(fault->counts, 0, sizeof fault->counts);
    fault->call = call;
    fault->first = first;
    fault->count = count;
    fault->os_errno = os_errno;
    fault->short_bytes = short_bytes;
    pthread_mutex_unlock(&fault->lock);
}

int64_t rmq_vfs_fault_count(struct rmq_vfs *vfs, enum rmq_vfs_call call)
{
    struct fault *fault = fault_of(vfs);
    pthread_mutex_lock(&fault->lock);
    int64_t count = fault->counts[call];
    pthread_mutex_unlock(&fault->lock);
    return count;
}

void rmq_vfs_fault_hold(struct rmq_vfs *vfs, enum rmq_vfs_call call)
{
    struct fault *fault = fault_of(vfs);
    pthread_mutex_lock(&fault->lock);
    fault->is_holding = true;
    fault->held_call = call;
    pthread_mutex_unlock(&fault->lock);
}

void rmq_vfs_fault_release(struct rmq_vfs *vfs)
{
    struct fault *fault = fault_of(vfs);
    pthread_mutex_lock(&fault->lock);
    fault->is_holding = false;
    pthread_cond_broadcast(&fault->released);
    pthread_mutex_unlock(&fault->lock);
}

int64_t rmq_vfs_fault_held(struct rmq_vfs *vfs)
{
    struct fault *fault = fault_of(vfs);
    pthread_mutex_lock(&fault->lock);
    int64_t held = fault->held;
    pthread_mutex_unlock(&fault->lock);
    return held;
}
