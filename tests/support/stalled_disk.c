/* stalled_disk.c -- preloaded, it lets every sync of a process wait for as long as another process
 * holds the lock (flock) of the file named by STALLED_DISK. The first int32 in it counts those that
 * wait; while the second one is not 0, syncs fail with it as their errno.
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

static int disk = -1;
static _Atomic int32_t *waiting, *failing;

__attribute__((constructor)) static void load(void)
{
    const char *path = getenv("STALLED_DISK");
    int fd = path ? open(path, O_RDWR | O_CLOEXEC) : -1;
    void *map = fd >= 0 ? mmap(NULL, 2 * sizeof *waiting, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0)
                        : MAP_FAILED;
    if (map != MAP_FAILED) {
        waiting = map;
        failing = waiting + 1;
        disk = fd;
    }
}

/* False: the sync fails. */
static bool wait_for_disk(void)
{
    if (disk < 0)
        return true;
    if (flock(disk, LOCK_SH | LOCK_NB) != 0) {
        atomic_fetch_add(waiting, 1);
        while (flock(disk, LOCK_SH) != 0 && errno == EINTR) {
        }
        atomic_fetch_sub(waiting, 1);
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
