/* driver.c -- runs a target without libFuzzer.
 *
 *   fuzz FILE...                          replays inputs
 *   fuzz -mutate [-runs N] [-seconds T] [-seed S] [-findings DIR] [-grow DIR] FILE...
 *                                         replays them, then inputs made from them
 *
 * The target is named by FUZZ_TARGET. Built with -fsanitize-coverage=trace-pc, inputs that reach
 * something new are kept and mutated further, and written to the folder given with -grow. The same
 * seed, inputs and number of runs give the same inputs. An input that ends the process is written
 * to the folder given with -findings first; so is one that takes longer than TIME_LIMIT_S.
 */
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <sanitizer/common_interface_defs.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "fuzz.h"

#define INPUT_SIZE_MAX 65536
#define POOL_MAX 8192
#define TIME_LIMIT_S 30
#define MAP_SIZE 65536

struct entry {
    uint8_t *data;
    size_t size;
};

static struct {
    struct entry pool[POOL_MAX];
    size_t count;
    uint64_t random;
    const char *findings;
    const char *grow;
    /* The input that is running, for the handler. */
    const uint8_t *data;
    size_t size;
} state;

/* ---- coverage ---- */

static uint8_t reached[MAP_SIZE];
static uint8_t reached_before[MAP_SIZE];

void __sanitizer_cov_trace_pc(void);
void __sanitizer_cov_trace_pc(void)
{
    uint64_t place = (uint64_t)(uintptr_t)__builtin_return_address(0);
    reached[(place * 0x9E3779B97F4A7C15u) >> 48] = 1;
}

/* Whether the last run reached a place for the first time. */
static bool reached_new(void)
{
    bool is_new = false;
    for (size_t i = 0; i < MAP_SIZE; ++i) {
        is_new |= reached[i] && !reached_before[i];
        reached_before[i] |= reached[i];
    }
    return is_new;
}

/* ---- inputs on the disk ---- */

static uint64_t digest(const uint8_t *data, size_t size)
{
    uint64_t hash = 0xCBF29CE484222325u;
    for (size_t i = 0; i < size; ++i)
        hash = (hash ^ data[i]) * 0x100000001B3u;
    return hash;
}

static void save(const char *folder, const uint8_t *data, size_t size, char path[4096])
{
    snprintf(path, 4096, "%s/%s-%016" PRIx64, folder, getenv("FUZZ_TARGET"), digest(data, size));
    int fd = open(path, O_WRONLY | O_CREAT | O_TRUNC, 0644);
    bool saved = fd >= 0 && write(fd, data, size) == (ssize_t)size;
    if (!saved)
        fprintf(stderr, "cannot write %s: %s\n", path, strerror(errno));
    if (fd >= 0)
        (void)close(fd);
}

/* The one sanitizer tells of its end through the death callback, the other by an abort. */
const char *__ubsan_default_options(void);
const char *__ubsan_default_options(void)
{
    return "abort_on_error=1:print_stacktrace=1";
}

/* The process is about to end because of the input. */
static void save_finding(void)
{
    char path[4096];
    const uint8_t *data = state.data;
    state.data = NULL;
    if (!data || !state.findings)
        return;
    save(state.findings, data, state.size, path);
    fprintf(stderr, "\nfinding: %s\n", path);
}

static void on_signal(int number)
{
    if (number == SIGALRM)
        fprintf(stderr, "an input took more than %d s\n", TIME_LIMIT_S);
    save_finding();
    _exit(128 + number);
}

static void add(const uint8_t *data, size_t size)
{
    if (state.count == POOL_MAX)
        return;
    state.pool[state.count].data = fuzz_copy(data, size);
    state.pool[state.count++].size = size;
}

static void read_file(const char *path)
{
    static uint8_t bytes[INPUT_SIZE_MAX];
    FILE *file = fopen(path, "rb");
    if (!file) {
        fprintf(stderr, "cannot read %s: %s\n", path, strerror(errno));
        exit(2);
    }
    add(bytes, fread(bytes, 1, sizeof bytes, file));
    (void)fclose(file);
}

/* ---- running ---- */

static void run(const uint8_t *data, size_t size)
{
    uint8_t *copy = fuzz_copy(data, size);
    memset(reached, 0, sizeof reached);
    state.size = size;
    state.data = copy;
    (void)alarm(TIME_LIMIT_S);
    (void)LLVMFuzzerTestOneInput(copy, size);
    (void)alarm(0);
    state.data = NULL;
    free(copy);
}

/* ---- mutating ---- */

static uint64_t next_random(void)
{
    state.random += 0x9E3779B97F4A7C15u;
    uint64_t x = state.random;
    x = (x ^ (x >> 30)) * 0xBF58476D1CE4E5B9u;
    x = (x ^ (x >> 27)) * 0x94D049BB133111EBu;
    return x ^ (x >> 31);
}

static size_t below(size_t limit)
{
    return limit ? (size_t)(next_random() % limit) : 0;
}

static size_t least(size_t a, size_t b)
{
    return a < b ? a : b;
}

static void change_number(uint8_t *data, size_t size)
{
    static const uint64_t values[] = {
        0,          1,          0x7F,  0x80,       0xFF,       0x7FFF,     0x8000,     0xFFFF,
        0x7FFFFFFF, 0x80000000, ~0ull, 1ull << 63, ~0ull >> 1, 0xDAA320A7, 0xDAA320AB, 0xCBD43194};
    size_t width = (size_t)1 << below(4);
    if (width > size)
        return;
    uint8_t *at = data + below(size - width + 1);
    uint64_t value = 0;
    for (size_t i = 0; i < width; ++i)
        value = value << 8 | at[i];
    if (below(2))
        value = values[below(sizeof values / sizeof *values)];
    else
        value += below(2) ? below(64) : 0 - (uint64_t)below(64);
    for (size_t i = width; i-- > 0; value >>= 8)
        at[i] = (uint8_t)value;
}

/* Puts bytes in at a place, over what is there or before it. */
static void put_in(uint8_t *data, size_t *size, const uint8_t *from, size_t count)
{
    size_t at = below(*size + 1);
    if (below(2)) {
        count = least(count, *size - at);
    } else {
        count = least(count, INPUT_SIZE_MAX - *size);
        memmove(data + at + count, data + at, *size - at);
        *size += count;
    }
    memmove(data + at, from, count);
}

static void mutate_once(uint8_t *data, size_t *size)
{
    static uint8_t piece[INPUT_SIZE_MAX];
    size_t at = below(*size), most = *size > 0 ? *size - at : INPUT_SIZE_MAX;
    size_t count = 1 + below(least(most, 1 + below(64)));
    switch (*size > 0 ? below(8) : 5) {
    case 0:
        data[at] ^= (uint8_t)(1u << below(8));
        return;
    case 1:
        data[at] = (uint8_t)next_random();
        return;
    case 2:
    case 3:
        change_number(data, *size);
        return;
    case 4:
        memmove(data + at, data + at + count, *size - at - count);
        *size -= count;
        return;
    case 5:
        for (size_t i = 0; i < count; ++i)
            piece[i] = (uint8_t)(*size > 0 ? data[at + i] : next_random());
        put_in(data, size, piece, count);
        return;
    case 6:
        memset(data + at, 0, count);
        return;
    default: {
        const struct entry *other = &state.pool[below(state.count)];
        size_t from = below(other->size);
        put_in(data, size, other->data + from, below(other->size - from + 1));
        return;
    }
    }
}

static void mutate(uint64_t runs, time_t until)
{
    static uint8_t data[INPUT_SIZE_MAX];
    char path[4096];
    uint64_t done = 0;
    for (; done < runs && (until == 0 || time(NULL) < until); ++done) {
        /* The newest entries reach what the others do not. */
        size_t index =
            below(2) ? below(state.count) : state.count - 1 - below(least(state.count, 16));
        size_t size = state.pool[index].size;
        memcpy(data, state.pool[index].data, size);
        for (size_t i = 1 + below(4); i > 0; --i)
            mutate_once(data, &size);
        run(data, size);
        if (!reached_new())
            continue;
        add(data, size);
        if (state.grow)
            save(state.grow, data, size, path);
    }
    size_t places = 0;
    for (size_t i = 0; i < MAP_SIZE; ++i)
        places += reached_before[i];
    printf("%" PRIu64 " inputs made, %zu kept, %zu places reached\n", done, state.count, places);
}

int main(int argc, char **argv)
{
    bool mutating = false;
    uint64_t runs = UINT64_MAX;
    time_t until = 0;
    (void)LLVMFuzzerInitialize(&argc, &argv);
    __sanitizer_set_death_callback(save_finding);
    (void)signal(SIGABRT, on_signal);
    (void)signal(SIGALRM, on_signal);
    for (int i = 1; i < argc; ++i) {
        bool has_value = i + 1 < argc;
        if (strcmp(argv[i], "-mutate") == 0)
            mutating = true;
        else if (has_value && strcmp(argv[i], "-runs") == 0)
            runs = strtoull(argv[++i], NULL, 10);
        else if (has_value && strcmp(argv[i], "-seconds") == 0)
            until = time(NULL) + strtoll(argv[++i], NULL, 10);
        else if (has_value && strcmp(argv[i], "-seed") == 0)
            state.random = strtoull(argv[++i], NULL, 10);
        else if (has_value && strcmp(argv[i], "-findings") == 0)
            state.findings = argv[++i];
        else if (has_value && strcmp(argv[i], "-grow") == 0)
            state.grow = argv[++i];
        else
            read_file(argv[i]);
    }
    size_t given = state.count;
    for (size_t i = 0; i < given; ++i) {
        run(state.pool[i].data, state.pool[i].size);
        (void)reached_new();
    }
    printf("%zu inputs replayed\n", given);
    if (mutating) {
        if (given == 0)
            add((const uint8_t *)"", 0);
        mutate(runs, until);
    }
    for (size_t i = 0; i < state.count; ++i)
        free(state.pool[i].data);
    return 0;
}
