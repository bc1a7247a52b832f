#include "base/vfs.h"

#include <assert.h>
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/statvfs.h>
#include <unistd.h>

#define FILE_MODE 0644
#define DIRECTORY_MODE 0755
#define ZEROS_SIZE 65536
#define FILE_NAME_SIZE 256

/* Since Linux 5.14. Older kernels refuse the number, and refused hints are ignored. */
#if defined(__linux__) && !defined(MADV_POPULATE_WRITE)
#define MADV_POPULATE_WRITE 23
#endif

/* Repeats a call that returns -1 and sets errno while a signal interrupts it. */
#define RETRY(result, call) \
    do                      \
        (result) = (call);  \
    while ((result) == -1 && errno == EINTR)

/* The status of a failed call about a path: RMQ_NOT_FOUND for a missing file or folder, unlike all
 * other errors. */
static int fail_path(struct rmq_error *err, const char *act, const char *path)
{
    assert(act && path);

    int os_errno = errno;
    assert(os_errno != 0);
    int status = rmq_fail_os(err, os_errno, "%s %s", act, path);

    if (os_errno != ENOENT)
        return status;
    if (err)
        err->status = RMQ_NOT_FOUND;
    return RMQ_NOT_FOUND;
}

/* The path of an open file; the number itself without /proc, or when it is not open. */
static const char *name_of(int fd, char name[FILE_NAME_SIZE])
{
    char link[32];
    snprintf(link, sizeof(link), "/proc/self/fd/%d", fd);
    ssize_t size = readlink(link, name, FILE_NAME_SIZE - 1);
    if (size < 0)
        snprintf(name, FILE_NAME_SIZE, "descriptor %d", fd);
    else
        name[size] = '\0';
    return name;
}

static int fail_fd(struct rmq_error *err, const char *act, int fd)
{
    assert(act && errno != 0);

    int os_errno = errno;
    char name[FILE_NAME_SIZE];
    return rmq_fail_os(err, os_errno, "%s %s", act, name_of(fd, name));
}

static int fail_range(struct rmq_error *err, const char *act, int fd, int64_t at, int64_t size)
{
    assert(act && errno != 0);

    int os_errno = errno;
    char name[FILE_NAME_SIZE];
    int status = rmq_fail_os(err, os_errno, "%s %lld bytes at %lld of %s", act, (long long)size,
                             (long long)at, name_of(fd, name));
    if (err)
        err->at_offset = at;
    return status;
}

static int open_file(struct rmq_vfs *vfs, const char *path, unsigned flags, int *fd,
                     struct rmq_error *err)
{
    (void)vfs;
    assert(path && fd);
    assert((flags & RMQ_OPEN_CREATE) || !(flags & RMQ_OPEN_EXCLUSIVE));

    /* O_NONBLOCK: opening a FIFO does not wait for its other end. The flag has no effect on a
     * regular file. */
    int mode = O_CLOEXEC | O_NONBLOCK | (flags & RMQ_OPEN_WRITE ? O_RDWR : O_RDONLY) |
               (flags & RMQ_OPEN_CREATE ? O_CREAT : 0) | (flags & RMQ_OPEN_EXCLUSIVE ? O_EXCL : 0);
    RETRY(*fd, open(path, mode, FILE_MODE));
    if (*fd == -1)
        return fail_path(err, "open", path);

    struct stat status;
    if (fstat(*fd, &status) == 0 && (S_ISREG(status.st_mode) || S_ISDIR(status.st_mode)))
        return RMQ_OK;

    (void)close(*fd);
    *fd = -1;
    return rmq_fail(err, RMQ_CORRUPT, -1,
                    "%s is not a regular file; move it away, or restore the file from a copy",
                    path);
}

static int close_file(struct rmq_vfs *vfs, int fd, struct rmq_error *err)
{
    (void)vfs;
    /* A forked child shares the open file, and would otherwise keep its lock as long as the child
     * lives. */
    struct flock byte = {.l_type = F_UNLCK, .l_whence = SEEK_SET, .l_start = 0, .l_len = 1};
    (void)fcntl(fd, F_OFD_SETLK, &byte);

    /* Not repeated after EINTR: Linux has released the number by then, and another thread may own
     * it. */
    return close(fd) == -1 && errno != EINTR ? fail_fd(err, "close", fd) : RMQ_OK;
}

static void close_inherited_file(struct rmq_vfs *vfs, int fd)
{
    (void)vfs;
    (void)close(fd);
}

static int stat_path(struct rmq_vfs *vfs, const char *path, struct rmq_file_info *info,
                     struct rmq_error *err)
{
    (void)vfs;
    assert(path && info);

    struct stat status;
    if (stat(path, &status) == -1)
        return fail_path(err, "stat", path);

    info->size = status.st_size;
    info->modified_ms = (int64_t)status.st_mtim.tv_sec * 1000 + status.st_mtim.tv_nsec / 1000000;
    info->identity = (uint64_t)status.st_ino;
    info->is_directory = S_ISDIR(status.st_mode);
    info->is_regular = S_ISREG(status.st_mode);
    return RMQ_OK;
}

static int read_at(struct rmq_vfs *vfs, int fd, void *buffer, size_t size, int64_t at, size_t *got,
                   struct rmq_error *err)
{
    (void)vfs;
    assert(at >= 0);
    assert((buffer || size == 0) && got);

    for (*got = 0; *got < size;) {
        ssize_t count;
        RETRY(count, pread(fd, (uint8_t *)buffer + *got, size - *got, at + (int64_t)*got));
        if (count == -1)
            return fail_range(err, "read", fd, at, (int64_t)size);
        if (count == 0)
            break;
        *got += (size_t)count;
    }
    assert(*got <= size);
    return RMQ_OK;
}

static int write_at(struct rmq_vfs *vfs, int fd, const void *data, size_t size, int64_t at,
                    struct rmq_error *err)
{
    (void)vfs;
    assert(at >= 0);
    assert(data || size == 0);

    for (size_t done = 0; done < size;) {
        ssize_t count;
        RETRY(count, pwrite(fd, (const uint8_t *)data + done, size - done, at + (int64_t)done));
        if (count == 0) {
            errno = EIO;
            count = -1;
        }
        if (count == -1)
            return fail_range(err, "write", fd, at, (int64_t)size);
        done += (size_t)count;
    }
    return RMQ_OK;
}

static int resize_file(struct rmq_vfs *vfs, int fd, int64_t size, struct rmq_error *err)
{
    (void)vfs;
    assert(size >= 0);

    int result;
    RETRY(result, ftruncate(fd, size));
    return result == -1 ? fail_range(err, "resize", fd, 0, size) : RMQ_OK;
}

static int file_size(int fd, int64_t *size, struct rmq_error *err)
{
    assert(size);

    struct stat status;
    if (fstat(fd, &status) == -1)
        return fail_fd(err, "stat", fd);

    *size = status.st_size;
    return RMQ_OK;
}

/* The end of the range, or of the file if that is earlier. */
static int end_inside(int fd, int64_t at, int64_t size, int64_t *end, struct rmq_error *err)
{
    assert(at >= 0 && size >= 0);

    int status = file_size(fd, end, err);
    if (status == RMQ_OK && at < *end && size < *end - at)
        *end = at + size;
    return status;
}

/* Writes zeros over the part of the range inside the file. */
static int write_zeros(struct rmq_vfs *vfs, int fd, int64_t at, int64_t size, struct rmq_error *err)
{
    static const uint8_t zeros[ZEROS_SIZE];
    int64_t end = 0;
    int status = end_inside(fd, at, size, &end, err);

    while (status == RMQ_OK && at < end) {
        int64_t chunk = end - at < ZEROS_SIZE ? end - at : ZEROS_SIZE;
        assert(chunk > 0 && chunk <= ZEROS_SIZE);
        status = write_at(vfs, fd, zeros, (size_t)chunk, at, err);
        at += chunk;
    }
    return status;
}

/* RMQ_UNSUPPORTED where the file system has no such call. */
static int change_blocks(int fd, int mode, int64_t at, int64_t size, const char *act,
                         struct rmq_error *err)
{
    assert(at >= 0 && size >= 0);

    if (size == 0)
        return RMQ_OK;

    int result;
    RETRY(result, fallocate(fd, mode, at, size));
    if (result == 0)
        return RMQ_OK;

    if (errno == EOPNOTSUPP || errno == ENOSYS)
        return rmq_fail(err, RMQ_UNSUPPORTED, at, "the file system has no fallocate");
    return fail_range(err, act, fd, at, size);
}

static int allocate_unwritten_range(struct rmq_vfs *vfs, int fd, int64_t at, int64_t size,
                                    struct rmq_error *err)
{
    (void)vfs;
    return change_blocks(fd, FALLOC_FL_KEEP_SIZE, at, size, "allocate", err);
}

static int allocate_range(struct rmq_vfs *vfs, int fd, int64_t at, int64_t size,
                          struct rmq_error *err)
{
    int status = allocate_unwritten_range(vfs, fd, at, size, err);
    return status == RMQ_UNSUPPORTED ? write_zeros(vfs, fd, at, size, err) : status;
}

/* SEEK_DATA or SEEK_HOLE. On a file system without them, the whole file counts as data. */
static int seek(int fd, int whence, int64_t at, int64_t *found, struct rmq_error *err)
{
    assert(at >= 0);
    assert(whence == SEEK_DATA || whence == SEEK_HOLE);

    *found = lseek(fd, at, whence);
    if (*found >= 0)
        return RMQ_OK;

    if (errno == EINVAL || errno == EOPNOTSUPP) {
        *found = at;
        return whence == SEEK_DATA ? RMQ_OK : file_size(fd, found, err);
    }
    if (errno == ENXIO)
        return file_size(fd, found, err);
    return fail_range(err, whence == SEEK_DATA ? "find data in" : "find a hole in", fd, at, 0);
}

static int next_data(struct rmq_vfs *vfs, int fd, int64_t at, int64_t *found, struct rmq_error *err)
{
    (void)vfs;
    return seek(fd, SEEK_DATA, at, found, err);
}

static int next_hole(struct rmq_vfs *vfs, int fd, int64_t at, int64_t *found, struct rmq_error *err)
{
    (void)vfs;
    return seek(fd, SEEK_HOLE, at, found, err);
}

/* Holes stay holes. */
static int write_zeros_over_data(struct rmq_vfs *vfs, int fd, int64_t at, int64_t size,
                                 struct rmq_error *err)
{
    int64_t end = 0, data = 0, hole = 0;
    int status = end_inside(fd, at, size, &end, err);

    while (status == RMQ_OK && at < end) {
        status = next_data(vfs, fd, at, &data, err);
        if (status == RMQ_OK && data < end)
            status = next_hole(vfs, fd, data, &hole, err);
        if (status != RMQ_OK || data >= end)
            break;

        at = hole < end ? hole : end;
        status = write_zeros(vfs, fd, data, at - data, err);
    }
    return status;
}

static int zero_range(struct rmq_vfs *vfs, int fd, int64_t at, int64_t size, struct rmq_error *err)
{
    int mode = FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE;
    int status = change_blocks(fd, mode, at, size, "zero", err);
    return status == RMQ_UNSUPPORTED ? write_zeros_over_data(vfs, fd, at, size, err) : status;
}

static int sync_file(struct rmq_vfs *vfs, int fd, struct rmq_error *err)
{
    (void)vfs;
    int result;
    RETRY(result, fdatasync(fd));
    return result == -1 ? fail_fd(err, "sync", fd) : RMQ_OK;
}

static void start_sync(struct rmq_vfs *vfs, int fd)
{
    (void)vfs;
    (void)sync_file_range(fd, 0, 0, SYNC_FILE_RANGE_WRITE);
}

static int sync_map(struct rmq_vfs *vfs, uint8_t *base, int64_t size, struct rmq_error *err)
{
    (void)vfs;
    assert(base && size > 0);

    size_t inside_page = (uintptr_t)base % (size_t)sysconf(_SC_PAGESIZE);

    int result;
    RETRY(result, msync(base - inside_page, (size_t)size + inside_page, MS_SYNC));
    return result == -1 ? rmq_fail_os(err, errno, "sync a mapping of %lld bytes", (long long)size)
                        : RMQ_OK;
}

static int map_file(struct rmq_vfs *vfs, int fd, int64_t size, bool writable, uint8_t **base,
                    struct rmq_error *err)
{
    (void)vfs;
    assert(size > 0);
    assert(base);

    void *address =
        mmap(NULL, (size_t)size, PROT_READ | (writable ? PROT_WRITE : 0), MAP_SHARED, fd, 0);
    if (address == MAP_FAILED)
        return fail_range(err, "map", fd, 0, size);

    *base = address;
    return RMQ_OK;
}

static int unmap_file(struct rmq_vfs *vfs, uint8_t *base, int64_t size, struct rmq_error *err)
{
    (void)vfs;
    assert(base && size > 0);

    if (munmap(base, (size_t)size) == -1)
        return rmq_fail_os(err, errno, "unmap %lld bytes", (long long)size);
    return RMQ_OK;
}

static int advise_map(struct rmq_vfs *vfs, uint8_t *base, int64_t size, enum rmq_advice advice,
                      struct rmq_error *err)
{
    (void)vfs;
    assert(base && size >= 0);

    size_t inside_page = (uintptr_t)base % (size_t)sysconf(_SC_PAGESIZE);
    uint8_t *start = base - inside_page;
    size_t length = (size_t)size + inside_page;

    switch (advice) {
    case RMQ_ADVISE_WILL_NEED:
        (void)madvise(start, length, MADV_WILLNEED);
        return RMQ_OK;
    case RMQ_ADVISE_SEQUENTIAL:
        (void)madvise(start, length, MADV_SEQUENTIAL);
        return RMQ_OK;
    case RMQ_ADVISE_RANDOM:
        (void)madvise(start, length, MADV_RANDOM);
        return RMQ_OK;
    case RMQ_ADVISE_DONT_NEED:
        (void)madvise(start, length, MADV_DONTNEED);
        return RMQ_OK;
    case RMQ_ADVISE_POPULATE_READ:
#ifdef MADV_POPULATE_READ
        (void)madvise(start, length, MADV_POPULATE_READ);
#endif
        return RMQ_OK;
    case RMQ_ADVISE_POPULATE_WRITE:
#ifdef MADV_POPULATE_WRITE
        (void)madvise(start, length, MADV_POPULATE_WRITE);
#endif
        return RMQ_OK;
    case RMQ_ADVISE_LOCK:
        if (mlock(start, length) == -1)
            return rmq_fail_os(err, errno, "lock %zu bytes into memory", length);
        return RMQ_OK;
    case RMQ_ADVISE_UNLOCK:
        (void)munlock(start, length);
        return RMQ_OK;
    }
    return rmq_fail(err, RMQ_INVALID, -1, "unknown advice %d", (int)advice);
}

static int rename_file(struct rmq_vfs *vfs, const char *from, const char *to, struct rmq_error *err)
{
    (void)vfs;
    assert(from && to);
    return rename(from, to) == -1 ? fail_path(err, "rename", from) : RMQ_OK;
}

static int unlink_file(struct rmq_vfs *vfs, const char *path, struct rmq_error *err)
{
    (void)vfs;
    assert(path);
    return unlink(path) == -1 ? fail_path(err, "unlink", path) : RMQ_OK;
}

static int sync_directory(struct rmq_vfs *vfs, const char *path, struct rmq_error *err)
{
    (void)vfs;
    assert(path);

    int fd;
    RETRY(fd, open(path, O_RDONLY | O_DIRECTORY | O_CLOEXEC));
    if (fd == -1)
        return fail_path(err, "open folder", path);

    int result;
    RETRY(result, fsync(fd));

    /* EINVAL: a file system that does not sync folders by themselves. */
    int status = result == -1 && errno != EINVAL ? fail_path(err, "sync folder", path) : RMQ_OK;
    (void)close(fd);
    return status;
}

static bool is_directory(const char *path)
{
    struct stat status;
    return stat(path, &status) == 0 && S_ISDIR(status.st_mode);
}

/* Something that is not a folder has the folder's name. */
static int fail_folder(struct rmq_error *err, int os_errno, const char *path)
{
    errno = os_errno == EEXIST ? ENOTDIR : os_errno;
    return fail_path(err, "make folder", path);
}

static int make_unsynced_directory(struct rmq_vfs *vfs, const char *path, struct rmq_error *err)
{
    (void)vfs;
    assert(path);

    if (mkdir(path, DIRECTORY_MODE) == 0)
        return RMQ_OK;

    int os_errno = errno;
    if (os_errno == EEXIST && is_directory(path))
        return RMQ_OK;
    return fail_folder(err, os_errno, path);
}

/* Makes the one folder path[0, size), whose parents exist, and syncs it into its parent. */
static int make_one(struct rmq_vfs *vfs, const char *path, size_t size, struct rmq_error *err)
{
    assert(size > 0 && size < PATH_MAX);

    char copy[PATH_MAX];
    memcpy(copy, path, size);
    copy[size] = '\0';

    if (mkdir(copy, DIRECTORY_MODE) == -1) {
        int os_errno = errno;
        if (is_directory(copy))
            return RMQ_OK;
        return fail_folder(err, os_errno, copy);
    }

    while (size > 0 && copy[size - 1] != '/')
        --size;
    /* The '/' belongs to the parent, so that the root stays the root. */
    copy[size] = '\0';
    return sync_directory(vfs, size > 0 ? copy : ".", err);
}

static int make_directory(struct rmq_vfs *vfs, const char *path, struct rmq_error *err)
{
    assert(path);

    size_t size = strlen(path);
    while (size > 1 && path[size - 1] == '/')
        --size;
    if (size >= PATH_MAX) {
        errno = ENAMETOOLONG;
        return fail_path(err, "make folder", path);
    }

    if (is_directory(path))
        return RMQ_OK;

    for (size_t end = 1; end < size; ++end) {
        if (path[end] != '/' || path[end - 1] == '/')
            continue;
        int status = make_one(vfs, path, end, err);
        if (status != RMQ_OK)
            return status;
    }

    return make_one(vfs, path, size, err);
}

static int remove_directory(struct rmq_vfs *vfs, const char *path, struct rmq_error *err)
{
    (void)vfs;
    assert(path);
    return rmdir(path) == -1 ? fail_path(err, "remove folder", path) : RMQ_OK;
}

static bool entry_is_directory(DIR *directory, const struct dirent *entry)
{
    assert(directory && entry);

    if (entry->d_type != DT_UNKNOWN && entry->d_type != DT_LNK)
        return entry->d_type == DT_DIR;
    struct stat status;
    return fstatat(dirfd(directory), entry->d_name, &status, 0) == 0 && S_ISDIR(status.st_mode);
}

static int list_directory(struct rmq_vfs *vfs, const char *path, rmq_list_visit *visit,
                          void *context, struct rmq_error *err)
{
    (void)vfs;
    assert(path && visit);

    DIR *directory = opendir(path);
    if (!directory)
        return fail_path(err, "list", path);

    int status = RMQ_OK;
    while (status == RMQ_OK) {
        errno = 0;
        const struct dirent *entry = readdir(directory);
        if (!entry) {
            if (errno != 0)
                status = fail_path(err, "list", path);
            break;
        }
        if (strcmp(entry->d_name, ".") != 0 && strcmp(entry->d_name, "..") != 0)
            status = visit(context, entry->d_name, entry_is_directory(directory, entry));
    }

    (void)closedir(directory);
    return status;
}

static int lock_file(struct rmq_vfs *vfs, int fd, int64_t *holder, struct rmq_error *err)
{
    (void)vfs;
    assert(holder);

    *holder = 0;
    /* A lock of the open file, not of the process. It conflicts with a second store in this process
     * and with a Java broker's process lock, and closing another descriptor of the file does not
     * release it. */
    struct flock byte = {.l_type = F_WRLCK, .l_whence = SEEK_SET, .l_start = 0, .l_len = 1};

    int result;
    RETRY(result, fcntl(fd, F_OFD_SETLK, &byte));
    if (result == 0)
        return RMQ_OK;
    if (errno != EACCES && errno != EAGAIN)
        return fail_fd(err, "lock", fd);

    /* The owner of a lock of an open file is reported as process -1. */
    if (fcntl(fd, F_OFD_GETLK, &byte) == 0 && byte.l_type != F_UNLCK && byte.l_pid > 0)
        *holder = byte.l_pid;
    char name[FILE_NAME_SIZE];
    return rmq_fail(err, RMQ_LOCKED, 0, "%s is locked by process %lld", name_of(fd, name),
                    (long long)*holder);
}

static int disk_usage(struct rmq_vfs *vfs, const char *path, struct rmq_disk_usage *usage,
                      struct rmq_error *err)
{
    (void)vfs;
    assert(path && usage);

    struct statvfs status;
    int result;
    RETRY(result, statvfs(path, &status));
    if (result == -1)
        return fail_path(err, "measure the disk of", path);

    usage->total_bytes = (int64_t)(status.f_blocks * status.f_frsize);
    usage->free_bytes = (int64_t)(status.f_bavail * status.f_frsize);
    return RMQ_OK;
}

struct rmq_vfs *rmq_vfs_posix(void)
{
    static const struct rmq_vfs posix = {
        .open = open_file,
        .close = close_file,
        .close_inherited = close_inherited_file,
        .stat = stat_path,
        .read = read_at,
        .write = write_at,
        .resize = resize_file,
        .allocate = allocate_range,
        .allocate_unwritten = allocate_unwritten_range,
        .zero = zero_range,
        .next_data = next_data,
        .next_hole = next_hole,
        .sync = sync_file,
        .start_sync = start_sync,
        .sync_map = sync_map,
        .map = map_file,
        .unmap = unmap_file,
        .advise = advise_map,
        .rename = rename_file,
        .unlink = unlink_file,
        .make_directory = make_directory,
        .make_unsynced_directory = make_unsynced_directory,
        .remove_directory = remove_directory,
        .sync_directory = sync_directory,
        .list = list_directory,
        .lock = lock_file,
        .disk_usage = disk_usage,
    };
    /* The cast drops const, since all file systems have this type; no code writes through the
     * pointer. */
    return (struct rmq_vfs *)(uintptr_t)&posix;
}

int rmq_path_join(char *out, size_t capacity, const char *directory, const char *name,
                  struct rmq_error *err)
{
    assert(out && capacity > 0);
    assert(directory && name);

    int size = snprintf(out, capacity, "%s/%s", directory, name);
    if (size < 0 || (size_t)size >= capacity)
        return rmq_fail(err, RMQ_INVALID, -1, "path too long: %s/%s", directory, name);
    return RMQ_OK;
}
