/* disk.c -- what the disk that holds DIRECTORY allows, in wall time.
 *
 * usage: disk DIRECTORY RUNS SYNCS MEGABYTES
 *
 *   stream    MEGABYTES in 1 MiB writes: into the page cache with one fdatasync, and past it
 *   durable   pwrite and fdatasync of `size` bytes, one after another: into a file that grows, one
 *             that was allocated (its extents unwritten), and one written before. SYNCS of them; a
 *             line holds the percentiles of one run in nanoseconds.
 */
#include "measure.h"

#define CHUNK ((size_t)1 << 20)

static char *path;
static uint8_t *buffer;

static int fresh_file(int flags)
{
    unlink(path);
    int fd = open(path, O_RDWR | O_CREAT | flags, 0600);
    if (fd < 0)
        die(path);
    return fd;
}

static void write_at(int fd, size_t size, size_t at)
{
    if (pwrite(fd, buffer, size, (off_t)at) != (ssize_t)size)
        die("pwrite");
}

static void stream(const char *variant, int flags, int runs, size_t total)
{
    double seconds[RUNS_MAX];
    for (int run = 0; run < runs; ++run) {
        int fd = fresh_file(flags);
        if (posix_fallocate(fd, 0, (off_t)total) || fsync(fd))
            die("posix_fallocate");
        double began = wall_s();
        for (size_t at = 0; at < total; at += CHUNK)
            write_at(fd, CHUNK, at);
        if (fdatasync(fd))
            die("fdatasync");
        seconds[run] = wall_s() - began;
        close(fd);
    }
    print_runs("stream", variant, CHUNK, seconds, runs, (double)(total / CHUNK), (double)CHUNK);
}

enum file_kind { GROWING, ALLOCATED, WRITTEN };

static void durable(enum file_kind kind, size_t size, int count)
{
    static const char *const names[] = {"growing", "allocated", "written before"};
    double *took = malloc(sizeof *took * (size_t)count);
    int fd = fresh_file(0);
    if (!took)
        die("memory");
    if (kind != GROWING && posix_fallocate(fd, 0, (off_t)(size * (size_t)count)))
        die("posix_fallocate");
    for (int i = 0; kind == WRITTEN && i < count; ++i)
        write_at(fd, size, size * (size_t)i);
    if (fsync(fd))
        die("fsync");
    double began = wall_s();
    for (int i = 0; i < count; ++i) {
        double one = wall_s();
        write_at(fd, size, size * (size_t)i);
        if (fdatasync(fd))
            die("fdatasync");
        took[i] = wall_s() - one;
    }
    double whole = wall_s() - began;
    close(fd);
    print_percentiles("durable", names[kind], size, took, count, whole);
    free(took);
}

int main(int argc, char **argv)
{
    /* 1131 is the record of a body of 1 KiB. */
    static const size_t sizes[] = {1131, 4096, 65536};
    if (argc != 5) {
        fprintf(stderr, "usage: disk DIRECTORY RUNS SYNCS MEGABYTES\n");
        return 2;
    }
    int runs = runs_of(argv[2]), syncs = atoi(argv[3]);
    size_t total = (size_t)strtoul(argv[4], NULL, 10) << 20;
    if (syncs < 1 || asprintf(&path, "%s/disk.bin", argv[1]) < 0)
        return 2;
    buffer = make_pool();
    stream("page cache and fdatasync", 0, runs, total);
    stream("O_DIRECT", O_DIRECT, runs, total);
    for (enum file_kind kind = GROWING; kind <= WRITTEN; ++kind)
        for (size_t s = 0; s < sizeof sizes / sizeof *sizes; ++s)
            for (int run = 0; run < runs; ++run)
                durable(kind, sizes[s], syncs);
    unlink(path);
    free(path);
    free(buffer);
    return 0;
}
