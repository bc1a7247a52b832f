/* stalled_disk.c -- preloaded, it lets every sync of a process wait for as long as the first of two
 * int32 in the file named by STALLED_DISK is not 0; the second one counts those that wait. */
#include <fcntl.h>
#include <stdatomic.h>
#include <stdint.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

struct disk {
    _Atomic int32_t is_stalled;
    _Atomic int32_t waiting;
};

static struct disk *disk;

__attribute__((constructor)) static void load(void)
{
    const char *path = getenv("STALLED_DISK");
    int fd = path ? open(path, O_RDWR | O_CLOEXEC) : -1;
    void *map =
        fd >= 0 ? mmap(NULL, sizeof *disk, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0) : MAP_FAILED;
    if (map != MAP_FAILED)
        disk = map;
}

static void wait_for_disk(void)
{
    if (!disk || !atomic_load(&disk->is_stalled))
        return;
    atomic_fetch_add(&disk->waiting, 1);
    while (atomic_load(&disk->is_stalled))
        nanosleep(&(struct timespec){.tv_nsec = 1000000}, NULL);
    atomic_fetch_sub(&disk->waiting, 1);
}

int fsync(int fd)
{
    wait_for_disk();
    return (int)syscall(SYS_fsync, fd);
}

int fdatasync(int fd)
{
    wait_for_disk();
    return (int)syscall(SYS_fdatasync, fd);
}

int msync(void *address, size_t size, int flags)
{
    wait_for_disk();
    return (int)syscall(SYS_msync, address, size, flags);
}
