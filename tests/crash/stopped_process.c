/* stopped_process.c -- preloaded, it lets the main thread of a process find that time has passed,
 * as one that was stopped for a while does. STOPPED_PROCESS names a file of two int64 in the order
 * of the machine: a count of steps, and milliseconds. A step is a reading of the monotonic clock or
 * a sync. The step that takes the count from 1 to 0 is the first after the stop: from there on the
 * monotonic clock of that thread is ahead by so much more. */
#include <fcntl.h>
#include <stdint.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

static volatile int64_t *control;
static int64_t ahead_ms;

__attribute__((constructor)) static void load(void)
{
    const char *path = getenv("STOPPED_PROCESS");
    int fd = path ? open(path, O_RDWR | O_CLOEXEC) : -1;
    void *map = fd >= 0 ? mmap(NULL, 2 * sizeof *control, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0)
                        : MAP_FAILED;
    if (map != MAP_FAILED)
        control = map;
}

static int is_main_thread(void)
{
    return control && syscall(SYS_gettid) == getpid();
}

static void step(void)
{
    if (is_main_thread() && control[0] > 0 && --control[0] == 0)
        ahead_ms += control[1];
}

int clock_gettime(clockid_t clock, struct timespec *now)
{
    if (clock == CLOCK_MONOTONIC)
        step();
    int result = (int)syscall(SYS_clock_gettime, clock, now);
    if (result == 0 && clock == CLOCK_MONOTONIC && is_main_thread())
        now->tv_sec += ahead_ms / 1000;
    return result;
}

int fdatasync(int fd)
{
    int result = (int)syscall(SYS_fdatasync, fd);
    step();
    return result;
}

int msync(void *address, size_t size, int flags)
{
    int result = (int)syscall(SYS_msync, address, size, flags);
    step();
    return result;
}
