/* measure.h -- clocks, mapped files and JSON lines, shared by the programs that measure limits.
 *
 * A measurement is repeated `runs` times; its line holds the nanoseconds an operation took in each
 * run, so that its reader can take medians over several calls of the program.
 */
#ifndef LIMITS_MEASURE_H
#define LIMITS_MEASURE_H

#include <fcntl.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <time.h>
#include <unistd.h>

#define RUNS_MAX 64
#define PAGE ((size_t)4096)
/* Source bytes: small enough to stay in the second-level cache, as a message just received does. */
#define POOL_SIZE ((size_t)1 << 20)

static inline double clock_s(clockid_t id)
{
    struct timespec now;
    clock_gettime(id, &now);
    return (double)now.tv_sec + (double)now.tv_nsec * 1e-9;
}
static inline double wall_s(void)
{
    return clock_s(CLOCK_MONOTONIC);
}
/* CPU time of this thread: a busy neighbour does not count. */
static inline double cpu_s(void)
{
    return clock_s(CLOCK_THREAD_CPUTIME_ID);
}

/* Makes the compiler believe that value is used. */
static inline void keep(uint64_t value)
{
    __asm__ volatile("" : : "r"(value) : "memory");
}

static inline void die(const char *what)
{
    perror(what);
    exit(1);
}

static inline int runs_of(const char *text)
{
    int runs = atoi(text);
    if (runs < 1 || runs > RUNS_MAX) {
        fprintf(stderr, "runs must be 1 to %d\n", RUNS_MAX);
        exit(2);
    }
    return runs;
}

/* ops operations took seconds[i] in run i and moved `bytes` bytes each. */
static inline void print_runs(const char *limit, const char *variant, size_t size,
                              const double *seconds, int runs, double ops, double bytes)
{
    printf("{\"limit\":\"%s\",\"variant\":\"%s\",\"size\":%zu,\"bytes_per_op\":%.1f,\"ns\":[",
           limit, variant, size, bytes);
    for (int run = 0; run < runs; ++run)
        printf("%s%.2f", run ? "," : "", seconds[run] / ops * 1e9);
    printf("]}\n");
    fflush(stdout);
}

static inline int compare_times(const void *a, const void *b)
{
    double left = *(const double *)a, right = *(const double *)b;
    return (left > right) - (left < right);
}

/* One run of count operations of `size` bytes; took[i] seconds each, sorted here, `whole` all. */
static inline void print_percentiles(const char *limit, const char *variant, size_t size,
                                     double *took, int count, double whole)
{
    qsort(took, (size_t)count, sizeof *took, compare_times);
    printf("{\"limit\":\"%s\",\"variant\":\"%s\",\"size\":%zu,\"bytes_per_op\":%zu,"
           "\"ns\":[%.0f],\"p50_us\":%.2f,\"p99_us\":%.2f,\"max_us\":%.2f}\n",
           limit, variant, size, size, whole / count * 1e9, took[count / 2] * 1e6,
           took[(size_t)count * 99 / 100] * 1e6, took[count - 1] * 1e6);
    fflush(stdout);
}

static inline uint8_t *make_pool(void)
{
    uint8_t *pool = aligned_alloc(PAGE, POOL_SIZE);
    if (!pool)
        die("memory");
    uint64_t state = 88172645463325252u;
    for (size_t at = 0; at < POOL_SIZE; at += sizeof state) {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        memcpy(pool + at, &state, sizeof state);
    }
    return pool;
}

/* A fresh file of this size, mapped; with `warm`, every page was written once. */
static inline uint8_t *map_file(const char *path, size_t size, int warm)
{
    unlink(path);
    int fd = open(path, O_RDWR | O_CREAT, 0600);
    if (fd < 0)
        die(path);
    if (posix_fallocate(fd, 0, (off_t)size))
        die("posix_fallocate");
    uint8_t *base = mmap(NULL, size, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
    if (base == MAP_FAILED)
        die("mmap");
    close(fd);
    if (warm)
        for (size_t at = 0; at < size; at += PAGE)
            base[at] = 1;
    return base;
}

static inline void unmap_file(const char *path, uint8_t *base, size_t size)
{
    munmap(base, size);
    unlink(path);
}

#endif
