/* stress.c -- every verb of one store at once, from many threads, for the sanitizers.
 *
 * Writers put, some of them to the disk; readers get, query keys and search by time; walkers fill
 * Arrow columns from the log and from queues; a store opened read-only beside this one refreshes
 * and reads; one thread flushes everything and expires files. Then the log is cut and written on
 * many times while everything is flushed. At last replicas acknowledge (stress_board.c), and many
 * wait for syncs (stress_flush.c).
 *
 * usage: stress DIRECTORY MESSAGES_PER_WRITER CUTS. Exits 0 when every message that must be there
 * is there.
 */
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "columns/columns.h"
#include "rmq.h"
#include "store/store_view.h"
#include "store/walk.h"
#include "stress_board.h"
#include "stress_flush.h"

#define WRITERS 3
#define BODY_SIZE 200
/* Far beyond any disk and any load: what takes longer hangs. */
#define PATIENCE_MS 240000

struct shared {
    struct rmq_store *store;
    const char *directory;
    int64_t messages;
    int64_t cuts;
    _Atomic int running;
    _Atomic int64_t read;
    _Atomic int64_t walked;
    _Atomic int64_t read_beside;
};

static void die(const char *act, const struct rmq_error *err)
{
    fprintf(stderr, "%s: %s\n", act, err->detail);
    exit(1);
}

static struct rmq_store *open_store(const char *directory, bool read_only)
{
    struct rmq_store *store = NULL;
    struct rmq_error err;
    struct rmq_store_options options = {
        .root = directory,
        .read_only = read_only,
        .index_enable = true,
        .check_crc_on_recover = true,
        .log_file_size = 1 << 20,
        .queue_file_size = 20000,
        .batch_queue_file_size = 46000,
        .ext_file_size = 1 << 16,
        .index_slot_count = 997,
        .index_entry_count = 5000,
        .log = {.limits = {1 << 20, (1 << 20) + 65536, true, false}},
        .dispatch = {.bound_index = true},
        .flush = {.log_interval_ms = 5,
                  .log_thorough_ms = 50,
                  .log_least_pages = 1,
                  .queue_interval_ms = 5,
                  .queue_thorough_ms = 50,
                  .queue_least_pages = 1}};
    if (rmq_store_open(&options, &store, &err) != RMQ_OK)
        die("open", &err);
    return store;
}

static struct rmq_host local_host(void)
{
    struct rmq_host host = {.address = {127, 0, 0, 1}, .port = 10911, .size = 4};
    return host;
}

static void put(struct shared *shared, int writer, int64_t number)
{
    struct rmq_error err;
    struct rmq_receipt receipt;
    size_t stored = 0;
    uint8_t body[BODY_SIZE];
    char properties[64];
    memset(body, 'a' + writer, sizeof body);
    int size = snprintf(properties, sizeof properties, "KEYS\001k%d-%" PRId64 "\002TAGS\001t%d\002",
                        writer, number, writer);
    struct rmq_message message = {.topic = "stress",
                                  .topic_size = 6,
                                  .queue_id = writer,
                                  .body = body,
                                  .body_size = sizeof body,
                                  .properties = properties,
                                  .properties_size = (size_t)size,
                                  .born_timestamp = 1,
                                  .born_host = local_host(),
                                  .store_host = local_host()};
    if (rmq_store_put(shared->store, &message, 1, false, &receipt, &stored, &err) != RMQ_OK)
        die("put", &err);
    if (receipt.queue_offset != number) {
        fprintf(stderr, "writer %d: message %" PRId64 " got the offset %" PRId64 "\n", writer,
                number, receipt.queue_offset);
        exit(1);
    }
    if (number % 64 == 0 &&
        rmq_store_wait_flushed(shared->store, receipt.physical_offset + receipt.size, PATIENCE_MS,
                               &err) != RMQ_OK)
        die("flush", &err);
}

struct writer {
    struct shared *shared;
    int number;
};

static void *write_all(void *argument)
{
    struct writer *writer = argument;
    for (int64_t i = 0; i < writer->shared->messages; ++i)
        put(writer->shared, writer->number, i);
    atomic_fetch_sub(&writer->shared->running, 1);
    return NULL;
}

static void check_found(const struct rmq_found *found)
{
    struct rmq_error err;
    struct rmq_record record;
    const struct rmq_record *seen = &found->record;
    if (rmq_record_decode(seen->data, (size_t)seen->total_size, seen->physical_offset,
                          RMQ_CHECK_PLACE | RMQ_CHECK_BODY_CRC, &record, &err) != RMQ_OK)
        die("record", &err);
}

static size_t get_some(struct rmq_store *store, int queue, int64_t *offset)
{
    struct rmq_found found[32];
    struct rmq_get_result result;
    struct rmq_error err;
    struct rmq_get_request request = {.topic = "stress",
                                      .topic_size = 6,
                                      .queue_id = queue,
                                      .offset = *offset,
                                      .max_count = 32,
                                      .max_bytes = 1 << 20,
                                      .check_crc = true};
    if (rmq_store_get(store, &request, found, &result, &err) != RMQ_OK)
        die(rmq_store_is_read_only(store) ? "get beside" : "get", &err);
    for (size_t i = 0; i < result.count; ++i)
        check_found(&found[i]);
    rmq_found_release(found, result.count);
    if (result.next_offset > *offset)
        *offset = result.next_offset;
    return result.count;
}

static void find_key(struct rmq_store *store)
{
    struct rmq_found hits[8];
    struct rmq_error err;
    size_t count = 0;
    struct rmq_slice topic = {"stress", 6}, key = {"k0-7", 4};
    if (rmq_store_query(store, topic, key, false, 0, INT64_MAX, 8, hits, &count, &err) != RMQ_OK)
        die("query", &err);
    rmq_found_release(hits, count);
}

static void find_time(struct rmq_store *store, int queue)
{
    struct rmq_error err;
    int64_t offset = -1;
    int status =
        rmq_store_offset_by_time(store, "stress", 6, queue, INT64_MAX / 2, false, &offset, &err);
    if (status != RMQ_OK && status != RMQ_NOT_FOUND)
        die("search by time", &err);
}

static void *read_all(void *argument)
{
    struct shared *shared = argument;
    int64_t offsets[WRITERS] = {0};
    while (atomic_load(&shared->running) > 0) {
        for (int queue = 0; queue < WRITERS; ++queue)
            atomic_fetch_add(&shared->read,
                             (int64_t)get_some(shared->store, queue, &offsets[queue]));
        find_key(shared->store);
        find_time(shared->store, 1);
    }
    return NULL;
}

/* The records of a queue, or of the log, as columns. */
static int64_t walk_over(struct rmq_store *store, bool by_queue)
{
    static const uint8_t chosen[] = {RMQ_COLUMN_QUEUE_OFFSET, RMQ_COLUMN_KEYS, RMQ_COLUMN_BODY,
                                     RMQ_COLUMN_PROPERTIES};
    struct rmq_columns_options batch = {
        .columns = chosen, .column_count = sizeof chosen, .max_rows = 1000, .max_bytes = 1 << 20};
    struct rmq_walk_options options = {.by_queue = by_queue,
                                       .topic = {"stress", 6},
                                       .queue_id = by_queue ? 1 : -1,
                                       .stop = INT64_MAX,
                                       .end_ms = INT64_MAX,
                                       .check_crc = true};
    struct rmq_columns columns;
    struct rmq_walk *walk = calloc(1, sizeof *walk);
    struct rmq_error err;
    int64_t rows = 0;
    if (!walk || rmq_columns_open(&columns, &batch, &err) != RMQ_OK)
        exit(1);
    int status = rmq_walk_begin(walk, store, &options, &err);
    while (status == RMQ_OK) {
        size_t taken = 0;
        status = rmq_walk_next(walk, RMQ_WALK_PORTION, INT64_MAX, &err);
        if (status == RMQ_OK)
            status = rmq_columns_append(&columns, walk->records, walk->count, &taken, &err);
        if (status == RMQ_OK && taken < walk->count)
            rmq_walk_back(walk, taken);
        rows += (int64_t)taken;
        if (rmq_columns_is_full(&columns))
            rmq_columns_restart(&columns);
    }
    if (status != RMQ_END && status != RMQ_NOT_FOUND)
        die("walk", &err);
    rmq_walk_finish(walk);
    rmq_columns_close(&columns);
    free(walk);
    return rows;
}

static void *walk_all(void *argument)
{
    struct shared *shared = argument;
    while (atomic_load(&shared->running) > 0) {
        atomic_fetch_add(&shared->walked, walk_over(shared->store, false));
        atomic_fetch_add(&shared->walked, walk_over(shared->store, true));
    }
    return NULL;
}

/* A reader that has its own mappings, as one in another process. What it has in view may expire
 * before it looks. */
static void *read_beside(void *argument)
{
    struct shared *shared = argument;
    struct rmq_store *store = open_store(shared->directory, true);
    struct rmq_error err;
    while (atomic_load(&shared->running) > 0) {
        if (rmq_store_refresh(store, &err) != RMQ_OK)
            die("refresh", &err);
        for (int queue = 0; queue < WRITERS; ++queue) {
            struct rmq_queue *found = rmq_store_find_queue(store, "stress", 6, queue);
            int64_t offset = found ? rmq_queue_max(found) - 20 : 0;
            if (offset > 0)
                atomic_fetch_add(&shared->read_beside, (int64_t)get_some(store, queue, &offset));
        }
        find_key(store);
    }
    if (rmq_store_close(store, &err) != RMQ_OK)
        die("close beside", &err);
    return NULL;
}

static void *tend(void *argument)
{
    struct shared *shared = argument;
    struct rmq_error err;
    while (atomic_load(&shared->running) > 0) {
        if (rmq_store_flush(shared->store, &err) != RMQ_OK)
            die("flush all", &err);
        /* Half of what is there goes; what is not dispatched yet stays. */
        int64_t start = rmq_store_start(shared->store);
        int64_t dispatched = rmq_store_dispatched(shared->store);
        int64_t files = (dispatched - start) / rmq_store_log_file_size(shared->store);
        if (files > 4 && rmq_store_expire(shared->store, (size_t)(files / 2), &err) != RMQ_OK)
            die("expire", &err);
    }
    return NULL;
}

/* Ends the log in the middle of what was written last, then writes on. */
static void cut_and_go_on(struct shared *shared)
{
    struct rmq_error err;
    struct rmq_get_result result;
    struct rmq_found found;
    struct rmq_queue *queue = rmq_store_find_queue(shared->store, "stress", 6, 0);
    int64_t end = rmq_store_end(shared->store);
    if (rmq_store_wait_dispatched(shared->store, end, PATIENCE_MS, &err) != RMQ_OK)
        die("dispatch", &err);
    int64_t offset = rmq_queue_max(queue) - 5;
    struct rmq_get_request request = {
        .topic = "stress", .topic_size = 6, .offset = offset, .max_count = 1, .max_bytes = 1 << 20};
    if (rmq_store_get(shared->store, &request, &found, &result, &err) != RMQ_OK ||
        result.count != 1)
        die("get before the cut", &err);
    int64_t at = found.record.physical_offset;
    rmq_found_release(&found, 1);
    if (rmq_store_truncate(shared->store, at, &err) != RMQ_OK)
        die("truncate", &err);
    if (rmq_queue_max(queue) != offset) {
        fprintf(stderr, "queue ends at %" PRId64 " after the cut, not %" PRId64 "\n",
                rmq_queue_max(queue), offset);
        exit(1);
    }
    for (int64_t i = offset; i < offset + 10; ++i)
        put(shared, 0, i);
}

static void *cut_often(void *argument)
{
    struct shared *shared = argument;
    for (int64_t i = 0; i < shared->cuts; ++i)
        cut_and_go_on(shared);
    atomic_fetch_sub(&shared->running, 1);
    return NULL;
}

static void join(pthread_t *threads, int count)
{
    for (int i = 0; i < count; ++i)
        pthread_join(threads[i], NULL);
}

static void write_and_read(struct shared *shared)
{
    static void *(*const others[])(void *) = {read_all, read_all, walk_all, read_beside, tend};
    enum { OTHERS = sizeof others / sizeof *others };
    pthread_t threads[WRITERS + OTHERS];
    struct writer writers[WRITERS];
    atomic_store(&shared->running, WRITERS);
    for (int i = 0; i < WRITERS; ++i) {
        writers[i] = (struct writer){shared, i};
        pthread_create(&threads[i], NULL, write_all, &writers[i]);
    }
    for (int i = 0; i < OTHERS; ++i)
        pthread_create(&threads[WRITERS + i], NULL, others[i], shared);
    join(threads, WRITERS + OTHERS);
}

static void cut_and_flush(struct shared *shared)
{
    /* What the first writer put may have expired, where it was ready long before the others. */
    for (int64_t i = 0; i < 10; ++i)
        put(shared, 0, shared->messages + i);
    pthread_t threads[2];
    atomic_store(&shared->running, 1);
    pthread_create(&threads[0], NULL, cut_often, shared);
    pthread_create(&threads[1], NULL, tend, shared);
    join(threads, 2);
}

static void open_again(const char *directory, bool was_closed, int64_t end,
                       struct rmq_store **store)
{
    *store = open_store(directory, false);
    int64_t found = rmq_store_end(*store);
    if (found == end && rmq_store_recovery(*store)->was_closed == was_closed)
        return;
    fprintf(stderr, "reopened at %" PRId64 ", ended at %" PRId64 "\n", found, end);
    exit(1);
}

int main(int argc, char **argv)
{
    if (argc != 4)
        return 2;
    struct rmq_error err;
    struct shared shared = {.store = open_store(argv[1], false),
                            .directory = argv[1],
                            .messages = atoll(argv[2]),
                            .cuts = atoll(argv[3])};
    write_and_read(&shared);
    cut_and_flush(&shared);
    int64_t acknowledged = stress_board(shared.store, shared.messages / 10);
    stress_flush(shared.store, shared.messages / 50);
    int64_t end = rmq_store_end(shared.store);
    if (rmq_store_close(shared.store, &err) != RMQ_OK)
        die("close", &err);
    struct rmq_store *again;
    open_again(argv[1], true, end, &again);
    rmq_store_abandon(again);
    open_again(argv[1], false, end, &again);
    if (rmq_store_close(again, &err) != RMQ_OK)
        die("close again", &err);
    printf("%" PRId64 " %" PRId64 " %" PRId64 " %" PRId64 "\n", atomic_load(&shared.read),
           atomic_load(&shared.walked), atomic_load(&shared.read_beside), acknowledged);
    return 0;
}
