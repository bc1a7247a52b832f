/* loopback.c -- what a loopback connection between two processes of this machine allows, in wall
 * time.
 *
 * usage: loopback stream DIRECTORY RUNS MEGABYTES CHUNK
 *        loopback ping RUNS COUNT SIZE
 *
 *   stream   MEGABYTES from mapped files of 1 GiB in the page cache, sent in chunks of CHUNK bytes;
 *            the receiver stores them as one of these says:
 *              mapped    received straight into mapped files whose blocks were allocated before
 *              zeroed    the same, and zeros are written ahead of it in pieces of 256 KiB: cheaper
 *                        than page faults, and what the store does
 *              nowhere   into one buffer, again and again
 *            The time ends when the sender is notified that the last byte has arrived. One more
 *            run of each goes before the counted runs, so that their pages exist.
 *   ping     SIZE bytes there and 8 back, COUNT times, one after another; both sides sleep while
 *            they wait. A line holds the percentiles of one run:
 *              scheduled  on what cores the kernel chooses
 *              one core   both on the same one: no wakeup of another core
 *              two cores  each on one of its own
 */
#include <arpa/inet.h>
#include <netinet/tcp.h>
#include <sched.h>
#include <sys/socket.h>
#include <sys/wait.h>

#include "measure.h"

#define FILE_SIZE ((size_t)1 << 30)
#define FILES_MAX 64
#define ZEROS ((size_t)256 << 10)
#define ANSWER ((size_t)8)

enum place { MAPPED, ZEROED, NOWHERE };
static const char *const places[] = {"mapped", "zeroed", "nowhere"};

/* ---- sockets ---- */

static void connect_pair(int ends[2])
{
    struct sockaddr_in address = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    socklen_t size = sizeof address;
    int one = 1, listener = socket(AF_INET, SOCK_STREAM, 0);
    if (listener < 0 || bind(listener, (struct sockaddr *)&address, size) || listen(listener, 1) ||
        getsockname(listener, (struct sockaddr *)&address, &size))
        die("listen");
    ends[0] = socket(AF_INET, SOCK_STREAM, 0);
    if (ends[0] < 0 || connect(ends[0], (struct sockaddr *)&address, size))
        die("connect");
    ends[1] = accept(listener, NULL, NULL);
    if (ends[1] < 0)
        die("accept");
    close(listener);
    for (int i = 0; i < 2; ++i)
        if (setsockopt(ends[i], IPPROTO_TCP, TCP_NODELAY, &one, sizeof one))
            die("TCP_NODELAY");
}

static void send_whole(int fd, const uint8_t *bytes, size_t size)
{
    while (size) {
        ssize_t sent = send(fd, bytes, size, MSG_NOSIGNAL);
        if (sent <= 0)
            die("send");
        bytes += sent;
        size -= (size_t)sent;
    }
}

/* Returns 0 when the other end closed before the first byte. */
static int receive_whole(int fd, uint8_t *bytes, size_t size)
{
    for (size_t got = 0; got < size;) {
        ssize_t more = recv(fd, bytes + got, size - got, 0);
        if (more == 0 && got == 0)
            return 0;
        if (more <= 0)
            die("recv");
        got += (size_t)more;
    }
    return 1;
}

static void reap(pid_t child)
{
    int status = 0;
    if (waitpid(child, &status, 0) != child || status)
        die("child");
}

/* ---- stream ---- */

struct log {
    size_t size;
    size_t file_size;
    size_t count;
    int fds[FILES_MAX];
    uint8_t *bases[FILES_MAX];
};

/* Files with their blocks allocated, mapped; no name of theirs is left. */
static void make_log(struct log *log, const char *directory, const char *name, size_t size)
{
    log->size = size;
    log->file_size = size < FILE_SIZE ? size : FILE_SIZE;
    log->count = (size + log->file_size - 1) / log->file_size;
    for (size_t i = 0; i < log->count; ++i) {
        char path[4096];
        if (snprintf(path, sizeof path, "%s/%s-%zu", directory, name, i) >= (int)sizeof path)
            exit(2);
        log->fds[i] = open(path, O_RDWR | O_CREAT | O_TRUNC, 0600);
        if (log->fds[i] < 0 || unlink(path) ||
            posix_fallocate(log->fds[i], 0, (off_t)log->file_size))
            die(path);
        log->bases[i] =
            mmap(NULL, log->file_size, PROT_READ | PROT_WRITE, MAP_SHARED, log->fds[i], 0);
        if (log->bases[i] == MAP_FAILED)
            die("mmap");
    }
}

static void drop_log(struct log *log)
{
    for (size_t i = 0; i < log->count; ++i) {
        munmap(log->bases[i], log->file_size);
        close(log->fds[i]);
    }
}

static void fill_log(struct log *log, const uint8_t *pool)
{
    for (size_t at = 0; at < log->size; at += POOL_SIZE)
        if (pwrite(log->fds[at / log->file_size], pool, POOL_SIZE, (off_t)(at % log->file_size)) !=
            (ssize_t)POOL_SIZE)
            die("pwrite");
    /* Otherwise the disk would be busy with them while the first runs are measured. */
    for (size_t i = 0; i < log->count; ++i)
        if (fsync(log->fds[i]))
            die("fsync");
}

/* How much of the chunk at `at` is in one file. */
static size_t part_of(const struct log *log, size_t at, size_t chunk)
{
    size_t left = log->size - at, in_file = log->file_size - at % log->file_size;
    size_t part = chunk < left ? chunk : left;
    return part < in_file ? part : in_file;
}

static void write_zeros(const struct log *log, size_t at)
{
    static const uint8_t zeros[ZEROS];
    if (pwrite(log->fds[at / log->file_size], zeros, ZEROS, (off_t)(at % log->file_size)) !=
        (ssize_t)ZEROS)
        die("pwrite");
}

static void receive_log(int fd, const struct log *log, size_t chunk, enum place place)
{
    uint8_t *buffer = place == NOWHERE ? make_pool() : NULL;
    size_t zeroed = 0;
    for (size_t at = 0, part = 0; at < log->size; at += part) {
        part = part_of(log, at, chunk);
        for (; place == ZEROED && zeroed < at + part; zeroed += ZEROS)
            write_zeros(log, zeroed);
        uint8_t *to = buffer ? buffer : log->bases[at / log->file_size] + at % log->file_size;
        if (!receive_whole(fd, to, part))
            die("closed early");
    }
    free(buffer);
}

static double stream_once(const struct log *source, const char *directory, size_t chunk,
                          enum place place)
{
    int ends[2];
    uint8_t answer[ANSWER] = {0};
    connect_pair(ends);
    pid_t child = fork();
    if (child < 0)
        die("fork");
    if (child == 0) {
        struct log target;
        close(ends[0]);
        make_log(&target, directory, "target", source->size);
        send_whole(ends[1], answer, ANSWER);
        receive_log(ends[1], &target, chunk, place);
        send_whole(ends[1], answer, ANSWER);
        drop_log(&target);
        _exit(0);
    }
    close(ends[1]);
    if (!receive_whole(ends[0], answer, ANSWER))
        die("receiver");
    double began = wall_s();
    for (size_t at = 0, part = 0; at < source->size; at += part) {
        part = part_of(source, at, chunk);
        send_whole(ends[0], source->bases[at / source->file_size] + at % source->file_size, part);
    }
    if (!receive_whole(ends[0], answer, ANSWER))
        die("receiver");
    double took = wall_s() - began;
    close(ends[0]);
    reap(child);
    return took;
}

static void stream(const char *directory, int runs, size_t size, size_t chunk)
{
    double seconds[RUNS_MAX];
    struct log source;
    uint8_t *pool = make_pool();
    make_log(&source, directory, "source", size);
    fill_log(&source, pool);
    for (enum place place = MAPPED; place <= NOWHERE; ++place) {
        (void)stream_once(&source, directory, chunk, place);
        for (int run = 0; run < runs; ++run)
            seconds[run] = stream_once(&source, directory, chunk, place);
        print_runs("loopback", places[place], chunk, seconds, runs, (double)size / (double)chunk,
                   (double)chunk);
    }
    drop_log(&source);
    free(pool);
}

/* ---- ping ---- */

static void answer_all(int fd, uint8_t *buffer, size_t size)
{
    while (receive_whole(fd, buffer, size))
        send_whole(fd, buffer, ANSWER);
}

/* Puts this process on the nth of the cores that are allowed. */
static void pin(const cpu_set_t *allowed, int nth)
{
    cpu_set_t chosen;
    CPU_ZERO(&chosen);
    for (size_t cpu = 0; cpu < CPU_SETSIZE; ++cpu)
        if (CPU_ISSET(cpu, allowed) && nth-- == 0)
            CPU_SET(cpu, &chosen);
    if (sched_setaffinity(0, sizeof chosen, &chosen))
        die("sched_setaffinity");
}

enum cores { SCHEDULED, ONE_CORE, TWO_CORES };
static const char *const core_names[] = {"scheduled", "one core", "two cores"};

static double ping_all(int fd, const uint8_t *buffer, size_t size, double *took, int count)
{
    double began = wall_s();
    for (int i = 0; i < count; ++i) {
        uint8_t answer[ANSWER];
        double one = wall_s();
        send_whole(fd, buffer, size);
        if (!receive_whole(fd, answer, ANSWER))
            die("answer");
        took[i] = wall_s() - one;
    }
    return wall_s() - began;
}

static void ping(int count, size_t size, enum cores cores, const cpu_set_t *allowed)
{
    int ends[2];
    uint8_t *buffer = make_pool();
    double *took = malloc(sizeof *took * (size_t)count);
    if (!took)
        die("memory");
    connect_pair(ends);
    pid_t child = fork();
    if (child < 0)
        die("fork");
    if (child == 0) {
        close(ends[0]);
        if (cores != SCHEDULED)
            pin(allowed, cores == TWO_CORES);
        answer_all(ends[1], buffer, size);
        _exit(0);
    }
    close(ends[1]);
    if (cores != SCHEDULED)
        pin(allowed, 0);
    ping_all(ends[0], buffer, size, took, count / 10 + 1);
    double whole = ping_all(ends[0], buffer, size, took, count);
    close(ends[0]);
    reap(child);
    if (sched_setaffinity(0, sizeof *allowed, allowed))
        die("sched_setaffinity");
    print_percentiles("round trip", core_names[cores], size, took, count, whole);
    free(took);
    free(buffer);
}

static void ping_runs(int runs, int count, size_t size)
{
    cpu_set_t allowed;
    if (sched_getaffinity(0, sizeof allowed, &allowed))
        die("sched_getaffinity");
    enum cores last = CPU_COUNT(&allowed) > 1 ? TWO_CORES : ONE_CORE;
    for (int run = 0; run < runs; ++run)
        for (enum cores cores = SCHEDULED; cores <= last; ++cores)
            ping(count, size, cores, &allowed);
}

static int usage(void)
{
    fprintf(stderr, "usage: loopback stream DIRECTORY RUNS MEGABYTES CHUNK\n"
                    "       loopback ping RUNS COUNT SIZE\n");
    return 2;
}

int main(int argc, char **argv)
{
    if (argc == 6 && !strcmp(argv[1], "stream")) {
        size_t size = (size_t)strtoul(argv[4], NULL, 10) << 20;
        size_t chunk = (size_t)strtoul(argv[5], NULL, 10);
        if (size == 0 || size / FILE_SIZE >= FILES_MAX || chunk == 0 || chunk > POOL_SIZE)
            return usage();
        stream(argv[2], runs_of(argv[3]), size, chunk);
        return 0;
    }
    if (argc == 5 && !strcmp(argv[1], "ping")) {
        int count = atoi(argv[3]);
        size_t size = (size_t)strtoul(argv[4], NULL, 10);
        if (count < 2 || size == 0 || size > POOL_SIZE)
            return usage();
        ping_runs(runs_of(argv[2]), count, size);
        return 0;
    }
    return usage();
}
