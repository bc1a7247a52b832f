/* stress.c -- writers, readers, a flusher, an expirer and a cutter on one store at once, for the sanitizers.
 *
 * usage: stress DIRECTORY MESSAGES_PER_WRITER. Exits 0 when every message that must be there is there.
 */
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "rmq.h"

#define WRITERS 3
#define BODY_SIZE 200

struct shared {
    struct rmq_store *store;
    int64_t messages;
    _Atomic int running;
    _Atomic int64_t read;
};

static void die(const char *act, const struct rmq_error *err)
{
    fprintf(stderr, "%s: %s\n", act, err->detail);
    exit(1);
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
    int size = snprintf(properties, sizeof properties, "KEYS\001k%d-%" PRId64 "\002TAGS\001t%d\002", writer, number,
                        writer);
    struct rmq_message message = {
        .topic = "stress", .topic_size = 6, .queue_id = writer, .body = body, .body_size = sizeof body,
        .properties = properties, .properties_size = (size_t)size, .born_timestamp = 1,
        .born_host = local_host(), .store_host = local_host()};
    if (rmq_store_put(shared->store, &message, 1, false, &receipt, &stored, &err) != RMQ_OK)
        die("put", &err);
    if (receipt.queue_offset != number) {
        fprintf(stderr, "writer %d: message %" PRId64 " got the offset %" PRId64 "\n", writer, number,
                receipt.queue_offset);
        exit(1);
    }
    if (number % 64 == 0 &&
        rmq_flusher_wait(&shared->store->flusher, receipt.physical_offset + receipt.size, 30000, &err) != RMQ_OK)
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
    if (rmq_record_decode(found->data, (size_t)found->size, found->physical_offset,
                          RMQ_CHECK_PLACE | RMQ_CHECK_BODY_CRC, &record, &err) != RMQ_OK)
        die("record", &err);
}

static void *read_all(void *argument)
{
    struct shared *shared = argument;
    int64_t offsets[WRITERS] = {0};
    while (atomic_load(&shared->running) > 0) {
        for (int queue = 0; queue < WRITERS; ++queue) {
            struct rmq_found found[32];
            struct rmq_get_result result;
            struct rmq_error err;
            struct rmq_get_request request = {.topic = "stress", .topic_size = 6, .queue_id = queue,
                                              .offset = offsets[queue], .max_count = 32, .max_bytes = 1 << 20,
                                              .check_crc = true};
            if (rmq_store_get(shared->store, &request, found, &result, &err) != RMQ_OK)
                die("get", &err);
            for (size_t i = 0; i < result.count; ++i)
                check_found(&found[i]);
            rmq_found_release(found, result.count);
            atomic_fetch_add(&shared->read, (int64_t)result.count);
            if (result.next_offset > offsets[queue])
                offsets[queue] = result.next_offset;
        }
        struct rmq_found hits[8];
        struct rmq_error err;
        size_t count = 0;
        struct rmq_slice topic = {"stress", 6}, key = {"k0-7", 4};
        if (rmq_store_query(shared->store, topic, key, false, 0, INT64_MAX, 8, hits, &count, &err) != RMQ_OK)
            die("query", &err);
        rmq_found_release(hits, count);
    }
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
        int64_t start = rmq_file_queue_start(&shared->store->log.files);
        int64_t dispatched = atomic_load(&shared->store->dispatcher.dispatched_offset);
        int64_t files = (dispatched - start) / shared->store->log.files.options.file_size;
        if (files > 4 && rmq_store_expire(shared->store, (size_t)(files / 2), &err) != RMQ_OK)
            die("expire", &err);
    }
    return NULL;
}

static struct rmq_store *open_store(const char *directory)
{
    struct rmq_store *store = NULL;
    struct rmq_error err;
    struct rmq_store_options options = {
        .root = directory, .index_enable = true, .check_crc_on_recover = true, .log_file_size = 1 << 20,
        .queue_file_size = 20000, .batch_queue_file_size = 46000, .ext_file_size = 1 << 16, .index_slot_count = 997,
        .index_entry_count = 5000,
        .log = {.limits = {1 << 20, (1 << 20) + 65536, true, false}},
        .dispatch = {.bound_index = true},
        .flush = {.log_interval_ms = 5, .log_thorough_ms = 50, .log_least_pages = 1, .queue_interval_ms = 5,
                  .queue_thorough_ms = 50, .queue_least_pages = 1}};
    if (rmq_store_open(&options, &store, &err) != RMQ_OK)
        die("open", &err);
    return store;
}

/* Ends the log in the middle of what was written last, then writes on. */
static void cut_and_go_on(struct shared *shared)
{
    struct rmq_error err;
    struct rmq_get_result result;
    struct rmq_found found;
    struct rmq_queue *queue = rmq_queue_table_find(&shared->store->queues, "stress", 6, 0);
    int64_t offset = rmq_queue_max(queue) - 5;
    struct rmq_get_request request = {.topic = "stress", .topic_size = 6, .offset = offset, .max_count = 1,
                                      .max_bytes = 1 << 20};
    if (rmq_store_get(shared->store, &request, &found, &result, &err) != RMQ_OK || result.count != 1)
        die("get before the cut", &err);
    int64_t at = found.physical_offset;
    rmq_found_release(&found, 1);
    if (rmq_store_truncate(shared->store, at, &err) != RMQ_OK)
        die("truncate", &err);
    if (rmq_queue_max(queue) != offset) {
        fprintf(stderr, "queue ends at %" PRId64 " after the cut, not %" PRId64 "\n", rmq_queue_max(queue), offset);
        exit(1);
    }
    for (int64_t i = offset; i < offset + 100; ++i)
        put(shared, 0, i);
}

int main(int argc, char **argv)
{
    if (argc != 3)
        return 2;
    struct rmq_error err;
    struct shared shared = {.store = open_store(argv[1]), .messages = atoll(argv[2]), .running = WRITERS};
    pthread_t threads[WRITERS + 3];
    struct writer writers[WRITERS];
    for (int i = 0; i < WRITERS; ++i) {
        writers[i] = (struct writer){&shared, i};
        pthread_create(&threads[i], NULL, write_all, &writers[i]);
    }
    pthread_create(&threads[WRITERS], NULL, read_all, &shared);
    pthread_create(&threads[WRITERS + 1], NULL, read_all, &shared);
    pthread_create(&threads[WRITERS + 2], NULL, tend, &shared);
    for (int i = 0; i < WRITERS + 3; ++i)
        pthread_join(threads[i], NULL);
    if (rmq_store_wait_dispatched(shared.store, rmq_file_queue_end(&shared.store->log.files), 60000, &err) != RMQ_OK)
        die("dispatch", &err);
    cut_and_go_on(&shared);
    int64_t end = rmq_file_queue_end(&shared.store->log.files);
    if (rmq_store_close(shared.store, &err) != RMQ_OK)
        die("close", &err);

    struct rmq_store *again = open_store(argv[1]);
    if (rmq_file_queue_end(&again->log.files) != end || !again->recovery.was_closed) {
        fprintf(stderr, "reopened at %" PRId64 ", closed at %" PRId64 "\n", rmq_file_queue_end(&again->log.files), end);
        return 1;
    }
    rmq_store_abandon(again);
    struct rmq_store *recovered = open_store(argv[1]);
    int same = rmq_file_queue_end(&recovered->log.files) == end && !recovered->recovery.was_closed;
    if (rmq_store_close(recovered, &err) != RMQ_OK)
        die("close again", &err);
    printf("%" PRId64 " records read\n", atomic_load(&shared.read));
    return same ? 0 : 1;
}
