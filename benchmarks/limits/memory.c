/* memory.c -- what the memory side of this machine allows, in CPU time of one thread.
 *
 * usage: memory FILE RUNS MEGABYTES. FILE is made with that size and removed.
 *
 *   crc     each version of the CRC-32 over bodies from a 1 MiB pool
 *   copy    memcpy of bodies into a mapped file whose pages were touched (warm) or not (cold)
 *   record  a whole record and its unit into pages not touched before; append.c has the warm case
 */
#include "least.h"

static const char *path;
static size_t file_size;
static int runs;

static void bench_crc(const uint8_t *pool)
{
    static const size_t sizes[] = {100, 1024, 4096, 65536};
    struct crc_choice choices[RUNS_MAX];
    size_t count = crc_choices(choices);
    double seconds[RUNS_MAX];
    for (size_t i = 0; i < count; ++i)
        for (size_t s = 0; s < sizeof sizes / sizeof *sizes; ++s) {
            size_t ops = ((size_t)32 << 20) / sizes[s];
            for (int run = 0; run < runs; ++run)
                seconds[run] = time_crc(choices[i].run, pool, sizes[s], ops);
            print_runs("crc", choices[i].name, sizes[s], seconds, runs, (double)ops,
                       (double)sizes[s]);
        }
}

static double copy_all(uint8_t *out, const uint8_t *pool, size_t size, size_t ops)
{
    double began = cpu_s();
    for (size_t op = 0, from = 0; op < ops; ++op, out += size) {
        memcpy(out, pool + from, size);
        from += size;
        if (from + size > POOL_SIZE)
            from = 0;
    }
    return cpu_s() - began;
}

static void bench_copy(const uint8_t *pool, int warm)
{
    static const size_t sizes[] = {100, 1024, 4096, 1 << 20};
    double seconds[RUNS_MAX];
    for (size_t s = 0; s < sizeof sizes / sizeof *sizes; ++s) {
        size_t ops = file_size / sizes[s];
        uint8_t *base = warm ? map_file(path, file_size, 1) : NULL;
        for (int run = 0; run < runs; ++run) {
            if (!warm)
                base = map_file(path, file_size, 0);
            seconds[run] = copy_all(base, pool, sizes[s], ops);
            if (!warm)
                unmap_file(path, base, file_size);
        }
        if (warm)
            unmap_file(path, base, file_size);
        print_runs("copy", warm ? "warm" : "cold", sizes[s], seconds, runs, (double)ops,
                   (double)sizes[s]);
    }
}

static void bench_record_cold(const uint8_t *pool)
{
    static const size_t sizes[] = {100, 1024, 4096};
    double seconds[RUNS_MAX];
    for (size_t s = 0; s < sizeof sizes / sizeof *sizes; ++s) {
        const size_t size = sizes[s], whole = record_size(size);
        /* Records from the front of the file, units from the last part of it. */
        const size_t ops = file_size / (whole + UNIT_SIZE) - 1;
        crc_function *crc = fastest_crc(pool, size).run;
        for (int run = 0; run < runs; ++run) {
            uint8_t *base = map_file(path, file_size, 0);
            uint8_t *units = base + file_size - ops * UNIT_SIZE;
            double began = cpu_s();
            for (size_t op = 0, from = 0; op < ops; ++op) {
                put_record(base + op * whole, (int64_t)(op * whole), (int64_t)op, pool + from, size,
                           crc);
                put_unit(units + op * UNIT_SIZE, (int64_t)(op * whole), whole);
                from += size;
                if (from + size > POOL_SIZE)
                    from = 0;
            }
            seconds[run] = cpu_s() - began;
            unmap_file(path, base, file_size);
        }
        print_runs("record", "cold, with unit", size, seconds, runs, (double)ops, (double)whole);
    }
}

int main(int argc, char **argv)
{
    if (argc != 4) {
        fprintf(stderr, "usage: memory FILE RUNS MEGABYTES\n");
        return 2;
    }
    path = argv[1];
    runs = runs_of(argv[2]);
    file_size = (size_t)strtoul(argv[3], NULL, 10) << 20;
    uint8_t *pool = make_pool();
    check_crcs(pool);
    bench_crc(pool);
    bench_copy(pool, 1);
    bench_copy(pool, 0);
    bench_record_cold(pool);
    free(pool);
    return 0;
}
