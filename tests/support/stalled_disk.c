/* stalled_disk.c -- preloaded, it lets every sync of a process wait for as long as another process
 * holds the lock (flock) of the file named by STALLED_DISK. The file is an array of int32: while
 * the first one is not 0, syncs fail with it as their errno; each other one is the id of a thread
 * that waits, or 0.
 */
#include <errno.h>
#include <fcntl.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdlib.h>
#include <sys/file.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <unistd.h>

enum {
    WAITING_MAX = 63 /* the file's size in tests/support/stalled_disk.py */
};

static int disk = -1;
static _Atomic int32_t *failing, *waiting;

__attribute__((constructor)) static void load(void)
{
    const char *path = getenv("STALLED_DISK");
    int fd = path ? open(path, O_RDWR | O_CLOEXEC) : -1;
    void *map = fd >= 0 ? mmap(NULL, (1 + WAITING_MAX) * sizeof *failing, PROT_READ | PROT_WRITE,
                               MAP_SHARED, fd, 0)
                        : MAP_FAILED;
    if (map != MAP_FAILED) {
        failing = map;
        waiting = failing + 1;
        disk = fd;
    }
}

static _Atomic int32_t *begin_wait(void)
{
    for (int at = 0; at < WAITING_MAX; at++) {
        int32_t free = 0;
        if (atomic_compare_exchange_strong(&waiting[at], &free, (int32_t)syscall(SYS_gettid)))
            return &waiting[at];
    }
    abort();
}

/* False: the sync fails. */
static bool wait_for_disk(void)
{
    if (disk < 0)
        return true;
    if (flock(disk, LOCK_SH | LOCK_NB) != 0) {
        _Atomic int32_t *mine = begin_wait();
        while (flock(disk, LOCK_SH) != 0 && errno == EINTR) {
        }
        atomic_store(mine, 0);
    }
    (void)flock(disk, LOCK_UN);
    errno = atomic_load(failing);
    return errno == 0;
}

int fsync(int fd)
{
    return wait_for_disk() ? (int)syscall(SYS_fsync, fd) : -1;
}

int fdatasync(int fd)
{
    return wait_for_disk() ? (int)syscall(SYS_fdatasync, fd) : -1;
}

int msync(void *address, size_t size, int flags)
{
    return wait_for_disk() ? (int)syscall(SYS_msync, address, size, flags) : -1;
}
