/* append.c -- the product's append beside the least work for the same bytes, in one process, in
 * turn, on the same warm pages; CPU time of one thread.
 *
 * usage: append DIRECTORY RUNS MEGABYTES [BODY_SIZE]. DIRECTORY is made; the caller removes it.
 *
 *   memcpy+crc        memcpy of as many bytes as the record has, and the fastest CRC of the body
 *   record+unit       the record written field by field, and its consume queue unit
 *   append            rmq_commit_log_put of one message
 *   append+unit       the same and rmq_consume_queue_append, which the dispatcher's thread calls in
 *                     a running store
 *   append of 100     rmq_commit_log_put of 100 messages a call, for each message
 *
 * Every run begins at the first byte of the same file, whose pages were all written before, so no
 * variant pays for page faults or roll-over.
 */
#include "least.h"

#include "index/consume_queue.h"
#include "log/commit_log.h"

#define BATCH 100
#define QUEUE_FILE_SIZE (100 << 20) /* whole units, more than one run writes */

struct bench {
    struct rmq_commit_log log;
    struct rmq_queue_table queues;
    struct rmq_consume_queue units;
    struct rmq_clock clock;
    uint8_t *pool;
    size_t file_size;
    int runs;
};

static void check(const char *act, int status, const struct rmq_error *err)
{
    if (status == RMQ_OK)
        return;
    fprintf(stderr, "%s: %s\n", act, err->detail);
    exit(1);
}

static char *path_in(const char *directory, const char *name)
{
    char *path = NULL;
    if (asprintf(&path, "%s/%s", directory, name) < 0)
        die("memory");
    return path;
}

static void touch(struct rmq_mapped_file *file)
{
    struct rmq_error err;
    check("map", rmq_mapped_file_map(file, &err), &err);
    check("reserve", rmq_mapped_file_reserve(file, file->size, file->size, &err), &err);
    for (int64_t at = 0; at < file->size; at += (int64_t)PAGE)
        rmq_mapped_file_base(file)[at] = 0;
}

static void start(struct bench *bench, const char *directory)
{
    struct rmq_error err;
    struct rmq_vfs *vfs = rmq_vfs_posix();
    char *log_path = path_in(directory, "commitlog"), *units_path = path_in(directory, "units");
    const char *directories[1] = {log_path};
    struct rmq_file_queue_options files = {.vfs = vfs,
                                           .directories = directories,
                                           .directory_count = 1,
                                           .file_size = (int64_t)bench->file_size,
                                           .window = RMQ_WRITTEN_WINDOW,
                                           .keep_descriptor = true};
    struct rmq_queue_options queues = {.vfs = vfs,
                                       .root = directory,
                                       .queue_file_size = QUEUE_FILE_SIZE,
                                       .batch_file_size = 46 << 20,
                                       .ext_file_size = 48 << 20};
    struct rmq_commit_log_options options = {
        .limits = {.body_size_max = 4 << 20, .record_size_max = (4 << 20) + (64 << 10)},
        .page_cache_busy_ms = 1000,
    };
    check("log", rmq_file_queue_open(&bench->log.files, &files, &err), &err);
    check("queues", rmq_queue_table_open(&bench->queues, &queues, &err), &err);
    check("start", rmq_commit_log_start(&bench->log, &options, &bench->queues, &bench->clock, &err),
          &err);
    check("roll", rmq_file_queue_roll(&bench->log.files, 0, NULL, &err), &err);
    touch(bench->log.files.last);
    check("units",
          rmq_consume_queue_open(&bench->units, vfs, units_path, QUEUE_FILE_SIZE, false, NULL, NULL,
                                 &err),
          &err);
    check("unit", rmq_consume_queue_append(&bench->units, 0, 0, 1, 0, &err), &err);
    touch(bench->units.files.last);
    free(log_path);
    free(units_path);
}

/* Back to the first byte; the pages stay. */
static void rewind_to_start(struct bench *bench)
{
    rmq_file_queue_advance(&bench->log.files, 0);
    rmq_file_queue_advance(&bench->units.files, 0);
    atomic_store(&bench->units.max_offset, 0);
    atomic_store(&bench->units.physical_end, -1);
}

static double least_copy(struct bench *bench, size_t size, size_t ops)
{
    const size_t whole = record_size(size);
    crc_function *crc = fastest_crc(bench->pool, size).run;
    uint8_t *out = rmq_mapped_file_base(bench->log.files.last);
    uint32_t sum = 0;
    double began = cpu_s();
    for (size_t op = 0, from = 0; op < ops; ++op, out += whole) {
        sum ^= crc(0, bench->pool + from, size);
        memcpy(out, bench->pool + from, whole);
        from += size;
        if (from + whole > POOL_SIZE)
            from = 0;
    }
    double seconds = cpu_s() - began;
    keep(sum);
    return seconds;
}

static double least_record(struct bench *bench, size_t size, size_t ops)
{
    const size_t whole = record_size(size);
    crc_function *crc = fastest_crc(bench->pool, size).run;
    uint8_t *out = rmq_mapped_file_base(bench->log.files.last);
    uint8_t *unit = rmq_mapped_file_base(bench->units.files.last);
    double began = cpu_s();
    for (size_t op = 0, from = 0; op < ops; ++op, out += whole, unit += UNIT_SIZE) {
        put_record(out, (int64_t)(op * whole), (int64_t)op, bench->pool + from, size, crc);
        put_unit(unit, (int64_t)(op * whole), whole);
        from += size;
        if (from + whole > POOL_SIZE)
            from = 0;
    }
    return cpu_s() - began;
}

/* All but the body. Made before the clock starts: putting a struct together right after a record
 * makes the processor wait until the record has left it. */
static struct rmq_message message_of(size_t size)
{
    struct rmq_host host = {.address = {127, 0, 0, 1}, .port = 10911, .size = 4};
    return (struct rmq_message){.topic = TOPIC,
                                .topic_size = sizeof TOPIC - 1,
                                .queue_id = 3,
                                .body_size = size,
                                .properties = PROPERTIES,
                                .properties_size = sizeof PROPERTIES - 1,
                                .born_timestamp = 1700000000000,
                                .born_host = host,
                                .store_host = host};
}

static double product(struct bench *bench, size_t size, size_t ops, bool with_unit)
{
    struct rmq_error err;
    struct rmq_receipt receipt;
    size_t stored;
    struct rmq_message message = message_of(size);
    rewind_to_start(bench);
    double began = cpu_s();
    for (size_t op = 0, from = 0; op < ops; ++op) {
        message.body = bench->pool + from;
        check("put", rmq_commit_log_put(&bench->log, &message, 1, false, &receipt, &stored, &err),
              &err);
        if (with_unit)
            check("unit",
                  rmq_consume_queue_append(&bench->units, (int64_t)op, receipt.physical_offset,
                                           receipt.size, TAGS_CODE, &err),
                  &err);
        from += size;
        if (from + size > POOL_SIZE)
            from = 0;
    }
    return cpu_s() - began;
}

static double product_batch(struct bench *bench, size_t size, size_t ops)
{
    struct rmq_error err;
    struct rmq_message messages[BATCH];
    struct rmq_receipt receipts[BATCH];
    size_t stored;
    for (size_t i = 0; i < BATCH; ++i)
        messages[i] = message_of(size);
    rewind_to_start(bench);
    double began = cpu_s();
    for (size_t op = 0, from = 0; op < ops; op += BATCH) {
        for (size_t i = 0; i < BATCH; ++i) {
            messages[i].body = bench->pool + from;
            from += size;
            if (from + size > POOL_SIZE)
                from = 0;
        }
        check("put",
              rmq_commit_log_put(&bench->log, messages, BATCH, false, receipts, &stored, &err),
              &err);
    }
    return cpu_s() - began;
}

/* The last record written is what it should be: nobody measures a product that stores nothing. */
static void check_last(struct bench *bench, size_t size)
{
    struct rmq_error err;
    struct rmq_record record;
    const size_t whole = record_size(size);
    int64_t at = rmq_file_queue_end(&bench->log.files) - (int64_t)whole;
    check("record read back",
          rmq_record_decode(rmq_mapped_file_base(bench->log.files.last) + at, whole, at,
                            RMQ_CHECK_BODY_CRC | RMQ_CHECK_PLACE, &record, &err),
          &err);
    if (record.total_size != (int32_t)whole || record.body_size != (int32_t)size) {
        fprintf(stderr, "a record of %zu bytes came back with %d\n", whole, record.total_size);
        exit(1);
    }
}

static void bench_size(struct bench *bench, size_t size)
{
    enum { COPY, RECORD, APPEND, APPEND_UNIT, APPEND_MANY, VARIANTS };
    static const char *const names[VARIANTS] = {
        "memcpy+crc", "record+unit", "append", "append+unit", "append of 100",
    };
    double seconds[VARIANTS][RUNS_MAX];
    const size_t whole = record_size(size);
    size_t ops = (bench->file_size - 2 * whole) / whole;
    if (ops > QUEUE_FILE_SIZE / UNIT_SIZE - 1)
        ops = QUEUE_FILE_SIZE / UNIT_SIZE - 1;
    ops -= ops % BATCH;
    for (int run = 0; run < bench->runs; ++run) {
        seconds[COPY][run] = least_copy(bench, size, ops);
        seconds[APPEND][run] = product(bench, size, ops, false);
        seconds[RECORD][run] = least_record(bench, size, ops);
        seconds[APPEND_UNIT][run] = product(bench, size, ops, true);
        seconds[APPEND_MANY][run] = product_batch(bench, size, ops);
        check_last(bench, size);
    }
    for (int variant = 0; variant < VARIANTS; ++variant)
        print_runs("append", names[variant], size, seconds[variant], bench->runs, (double)ops,
                   (double)whole);
}

int main(int argc, char **argv)
{
    static const size_t sizes[] = {100, 1024, 4096};
    static struct bench bench;
    if (argc != 4 && argc != 5) {
        fprintf(stderr, "usage: append DIRECTORY RUNS MEGABYTES [BODY_SIZE]\n");
        return 2;
    }
    bench.runs = runs_of(argv[2]);
    bench.file_size = (size_t)strtoul(argv[3], NULL, 10) << 20;
    bench.pool = make_pool();
    check_crcs(bench.pool);
    start(&bench, argv[1]);
    if (argc == 5)
        bench_size(&bench, strtoul(argv[4], NULL, 10));
    else
        for (size_t s = 0; s < sizeof sizes / sizeof *sizes; ++s)
            bench_size(&bench, sizes[s]);
    rmq_commit_log_stop(&bench.log);
    rmq_consume_queue_close(&bench.units);
    rmq_queue_table_close(&bench.queues);
    rmq_file_queue_close(&bench.log.files);
    free(bench.pool);
    return 0;
}
