/* scan.c -- how fast one thread can walk the records of a commit log in the page cache,
 * in wall time.
 *
 * usage: scan RUNS FILE...  (commit log files)
 *
 *   crc            every record's body CRC checked; pages mapped and faulted in before
 *   crc, faults    the same with the page faults of a fresh mapping in the time
 *   form           sizes and magic only
 *   bodies         every body copied into a buffer of 64 MiB, used in a circle: the memcpy that
 *                  columns with bodies cannot do without
 *
 * ns is the time for one record.
 */
#include "least.h"

#include <sys/stat.h>

#define BUFFER_SIZE ((size_t)64 << 20)

struct log_file {
    const uint8_t *base;
    size_t size;
    int fd;
};

enum work { CRC, FORM, BODIES };

static struct log_file open_file(const char *path)
{
    struct stat found;
    struct log_file file = {.fd = open(path, O_RDONLY)};
    if (file.fd < 0 || fstat(file.fd, &found))
        die(path);
    file.size = (size_t)found.st_size;
    return file;
}

static void map(struct log_file *file, int flags)
{
    void *base = mmap(NULL, file->size, PROT_READ, MAP_SHARED | flags, file->fd, 0);
    if (base == MAP_FAILED)
        die("mmap");
    file->base = base;
}

/* Walks to the blank or the first byte never written; returns how many records. */
static size_t walk(const struct log_file *file, enum work work, crc_function *crc, uint8_t *buffer,
                   size_t *bytes)
{
    static size_t out;
    size_t count = 0, at = 0;
    while (file->size - at > 91) {
        const uint8_t *record = file->base + at;
        size_t size = (size_t)rmq_get_i32(record), body = (size_t)rmq_get_i32(record + 84);
        if (rmq_get_i32(record + 4) != (int32_t)0xDAA320A7u || size > file->size - at ||
            body > size - 88)
            break;
        if (work == CRC &&
            (crc(0, record + 88, body) & 0x7FFFFFFFu) != (uint32_t)rmq_get_i32(record + 8)) {
            fprintf(stderr, "bad CRC at %zu\n", at);
            exit(1);
        }
        if (work == BODIES) {
            if (out + body > BUFFER_SIZE)
                out = 0;
            memcpy(buffer + out, record + 88, body);
            out += body;
        }
        at += size;
        ++count;
    }
    *bytes += at;
    return count;
}

static void bench(const char *variant, struct log_file *files, int file_count, enum work work,
                  int faults, int runs, crc_function *crc, uint8_t *buffer)
{
    double seconds[RUNS_MAX];
    size_t records = 0, bytes = 0;
    for (int run = 0; run < runs; ++run) {
        for (int i = 0; i < file_count; ++i)
            map(&files[i], faults ? 0 : MAP_POPULATE);
        records = bytes = 0;
        double began = wall_s();
        for (int i = 0; i < file_count; ++i)
            records += walk(&files[i], work, crc, buffer, &bytes);
        seconds[run] = wall_s() - began;
        for (int i = 0; i < file_count; ++i)
            munmap((void *)(uintptr_t)files[i].base, files[i].size);
    }
    if (!records) {
        fprintf(stderr, "no record found\n");
        exit(1);
    }
    print_runs("scan", variant, bytes / records, seconds, runs, (double)records,
               (double)bytes / (double)records);
}

int main(int argc, char **argv)
{
    if (argc < 3 || argc > 2 + RUNS_MAX) {
        fprintf(stderr, "usage: scan RUNS FILE... (up to %d)\n", RUNS_MAX);
        return 2;
    }
    int runs = runs_of(argv[1]), count = argc - 2;
    struct log_file files[RUNS_MAX];
    uint8_t *pool = make_pool(), *buffer = malloc(BUFFER_SIZE);
    if (!buffer)
        die("memory");
    check_crcs(pool);
    memset(buffer, 1, BUFFER_SIZE);
    for (int i = 0; i < count; ++i)
        files[i] = open_file(argv[2 + i]);
    crc_function *crc = fastest_crc(pool, 1024).run;
    bench("crc", files, count, CRC, 0, runs, crc, buffer);
    bench("crc, faults", files, count, CRC, 1, runs, crc, buffer);
    bench("form", files, count, FORM, 0, runs, crc, buffer);
    bench("bodies", files, count, BODIES, 0, runs, crc, buffer);
    free(buffer);
    free(pool);
    return 0;
}
