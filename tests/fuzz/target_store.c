/* target_store.c -- stores as a whole: bytes of another log appended raw, and directories of any
 * content, opened read-only and for writing.
 *
 * What is asked of a store that opens: it hands out no record that is not right, walks end, a
 * message put is found again, and opening, closing and opening again changes nothing.
 */
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/bytes.h"
#include "base/crc32.h"
#include "fuzz.h"
#include "memory_vfs.h"
#include "store/store_view.h"
#include "store/walk.h"

#define ROOT "/s"
#define STEPS_MAX 200000
#define QUEUES_MAX 64
#define WAIT_MS 20000
#define MEND 8

/* ---- settings ---- */

/* flags 2, sizes 2. */
static void take_options(struct fuzz_input *input, struct memory_vfs *vfs,
                         struct rmq_store_options *options)
{
    static const int64_t log_sizes[] = {4096, 512, 1024, 16384};
    static const int64_t queue_sizes[] = {160, 20, 400, 60};
    static const int64_t batch_sizes[] = {460, 46, 92, 138};
    static const int64_t ext_sizes[] = {4096, 64, 256, 100};
    static const int32_t slots[] = {8, 1, 3, 64}, entries[] = {16, 2, 5, 100};
    unsigned flags = (unsigned)fuzz_take(input, 2), sizes = (unsigned)fuzz_take(input, 2);
    *options = (struct rmq_store_options){
        .vfs = memory_vfs_door(vfs),
        .root = ROOT,
        .index_enable = !(flags & 1),
        .index_tags = flags & 2,
        .need_property_crc = flags & 4,
        .check_crc_on_recover = !(flags & 8),
        .enable_ext = flags & 16,
        .allow_gaps = flags & 32,
        .log_file_size = log_sizes[sizes & 3],
        .queue_file_size = queue_sizes[sizes >> 2 & 3],
        .batch_queue_file_size = batch_sizes[sizes >> 4 & 3],
        .ext_file_size = ext_sizes[sizes >> 6 & 3],
        .queue_mappings_max = 2,
        .queue_hot_uses = 1 + (int32_t)(sizes >> 12 & 7),
        .index_slot_count = slots[sizes >> 8 & 3],
        .index_entry_count = entries[sizes >> 10 & 3],
        .log = {.limits = {1 << 16, 1 << 16, true, flags & (64 | 4)},
                .multi_dispatch = flags & 128},
        .dispatch = {.multi_dispatch = flags & 128, .bound_index = !(flags & 256)},
        .flush = {.log_interval_ms = 60000,
                  .log_thorough_ms = 60000,
                  .queue_interval_ms = 60000,
                  .queue_thorough_ms = 60000},
    };
}

static int open_store(const struct rmq_store_options *options, struct memory_vfs *vfs,
                      bool read_only, struct rmq_store **store, struct rmq_error *err)
{
    struct rmq_store_options own = *options;
    own.vfs = memory_vfs_door(vfs);
    own.read_only = read_only;
    int status = rmq_store_open(&own, store, err);
    FUZZ_ALLOW(status, err,
               FUZZ_BIT(CORRUPT) | FUZZ_BIT(IO) | FUZZ_BIT(INVALID) | FUZZ_BIT(NO_SPACE));
    return status;
}

/* ---- looking at everything ---- */

/* A record handed out with its CRC asked for is right in all its parts. */
static void check_right(const struct rmq_record *record, int64_t place)
{
    struct rmq_record again;
    FUZZ_REQUIRE(record->physical_offset == place);
    FUZZ_REQUIRE(rmq_record_decode(record->data, (size_t)record->total_size, place,
                                   RMQ_CHECK_PLACE | RMQ_CHECK_READER, &again, NULL) == RMQ_OK);
    fuzz_check_record(&again, record->data, (size_t)record->total_size);
}

struct seen {
    int64_t records;
    uint64_t digest;
};

static void walk_all(struct rmq_store *store, const struct rmq_walk_options *options,
                     struct seen *seen)
{
    struct rmq_walk *walk = malloc(sizeof *walk);
    struct rmq_error err = {0};
    *seen = (struct seen){0};
    FUZZ_REQUIRE(walk != NULL);
    FUZZ_REQUIRE(rmq_walk_begin(walk, store, options, &err) == RMQ_OK);
    int64_t start = rmq_store_start(store);
    int64_t end = rmq_store_end(store);
    int status = RMQ_OK;
    for (int i = 0; status == RMQ_OK; ++i) {
        FUZZ_REQUIRE(i < STEPS_MAX);
        status = rmq_walk_next(walk, RMQ_WALK_PORTION, 1 << 20, &err);
        for (size_t j = 0; status == RMQ_OK && j < walk->count; ++j) {
            const struct rmq_record *record = &walk->records[j];
            check_right(record, record->physical_offset);
            FUZZ_REQUIRE(record->physical_offset >= start &&
                         record->physical_offset + record->total_size <= end);
            ++seen->records;
            seen->digest = seen->digest * 31 + (uint64_t)record->physical_offset;
        }
    }
    if (status != RMQ_END)
        FUZZ_ALLOW(status, &err, options->skip_corrupt ? 0 : FUZZ_BIT(CORRUPT));
    rmq_walk_finish(walk);
    free(walk);
}

static void walk_log(struct rmq_store *store, struct seen *seen)
{
    struct rmq_walk_options options = {.queue_id = -1,
                                       .stop = INT64_MAX,
                                       .begin_ms = INT64_MIN,
                                       .end_ms = INT64_MAX,
                                       .check_crc = true,
                                       .skip_corrupt = true};
    walk_all(store, &options, seen);
}

static void look_by_time(struct rmq_store *store, const struct rmq_queue *queue, int64_t min,
                         int64_t max)
{
    static const int64_t times[] = {INT64_MIN, 0, 1700000000500, INT64_MAX};
    for (size_t i = 0; i < 8; ++i) {
        struct rmq_error err = {0};
        int64_t offset = min;
        int status = rmq_store_offset_by_time(store, queue->topic, queue->topic_size,
                                              queue->queue_id, times[i / 2], i % 2, &offset, &err);
        FUZZ_ALLOW(status, &err, FUZZ_BIT(CORRUPT));
        FUZZ_REQUIRE(offset >= min && offset <= max);
    }
}

static void look_at_queue(struct rmq_store *store, struct rmq_queue *queue)
{
    struct seen seen;
    struct rmq_found found[4];
    struct rmq_get_result result;
    struct rmq_error err = {0};
    struct rmq_slice tag = {"t1", 2};
    int64_t min = rmq_queue_min(queue), max = rmq_queue_max(queue);
    FUZZ_REQUIRE(min >= 0 && min <= max);
    struct rmq_walk_options walk = {.by_queue = true,
                                    .topic = {queue->topic, queue->topic_size},
                                    .queue_id = queue->queue_id,
                                    .stop = INT64_MAX,
                                    .begin_ms = INT64_MIN,
                                    .end_ms = INT64_MAX,
                                    .check_crc = true,
                                    .skip_corrupt = true};
    walk_all(store, &walk, &seen);
    walk.skip_corrupt = false;
    walk_all(store, &walk, &seen);
    for (int64_t offset = min - 1; offset < min + 3; ++offset) {
        struct rmq_get_request request = {.topic = queue->topic,
                                          .topic_size = queue->topic_size,
                                          .queue_id = queue->queue_id,
                                          .offset = offset,
                                          .max_bytes = 1 << 20,
                                          .tags = &tag,
                                          .tag_count = (size_t)(offset & 1),
                                          .max_count = 4,
                                          .check_crc = true};
        int status = rmq_store_get(store, &request, found, &result, &err);
        FUZZ_ALLOW(status, &err, FUZZ_BIT(CORRUPT));
        FUZZ_REQUIRE(result.count <= 4);
        FUZZ_REQUIRE(result.min_offset == min && result.max_offset == max);
        rmq_found_release(found, result.count);
    }
    look_by_time(store, queue, min, max);
}

static void look_by_key(struct rmq_store *store, struct rmq_slice topic, struct rmq_slice key,
                        bool tag)
{
    struct rmq_found found[16];
    struct rmq_record record;
    struct rmq_error err = {0};
    size_t count = 0;
    int status = rmq_store_query(store, topic, key, tag, 0, INT64_MAX, 16, found, &count, &err);
    FUZZ_ALLOW(status, &err, FUZZ_BIT(UNSUPPORTED));
    FUZZ_REQUIRE(count <= 16);
    for (size_t i = 0; i < count; ++i) {
        const struct rmq_record *seen = &found[i].record;
        FUZZ_REQUIRE(rmq_record_decode(seen->data, (size_t)seen->total_size, seen->physical_offset,
                                       0, &record, NULL) == RMQ_OK);
        check_right(&record, seen->physical_offset);
        FUZZ_REQUIRE((size_t)record.topic_size == topic.size &&
                     memcmp(record.topic, topic.data, topic.size) == 0);
    }
    rmq_found_release(found, count);
}

static void look_at(struct rmq_store *store, int64_t offset)
{
    struct rmq_found found;
    struct rmq_error err = {0};
    int status = rmq_store_at(store, offset, true, &found, &err);
    if (status == RMQ_OK)
        rmq_found_release(&found, 1);
    else
        FUZZ_ALLOW(status, &err, FUZZ_BIT(CORRUPT) | FUZZ_BIT(OUT_OF_RANGE) | FUZZ_BIT(NOT_FOUND));
}

static void look_at_all(struct rmq_store *store, struct seen *seen)
{
    struct rmq_slice topic = {"orders", 6};
    int left = QUEUES_MAX;
    walk_log(store, seen);
    for (struct rmq_queue *queue = rmq_store_first_queue(store); queue && left-- > 0;
         queue = rmq_queue_table_next(queue))
        look_at_queue(store, queue);
    look_by_key(store, topic, (struct rmq_slice){"k1", 2}, false);
    look_by_key(store, topic, (struct rmq_slice){"t1", 2}, true);
    for (int64_t offset = -1; offset < 3; ++offset)
        look_at(store, rmq_store_start(store) + offset);
    look_at(store, INT64_MAX);
}

/* ---- writing ---- */

static int put_one(struct rmq_store *store, struct rmq_receipt *receipt)
{
    static const char properties[] = "KEYS\1k1\2TAGS\1t1\2";
    struct rmq_message message = {.topic = "orders",
                                  .topic_size = 6,
                                  .body = (const uint8_t *)"body",
                                  .body_size = 4,
                                  .properties = properties,
                                  .properties_size = sizeof properties - 1,
                                  .born_host = {.size = 4},
                                  .store_host = {.size = 4},
                                  .store_timestamp = 1700000001000};
    struct rmq_error err = {0};
    size_t stored = 0;
    int status = rmq_store_put(store, &message, 1, false, receipt, &stored, &err);
    FUZZ_REQUIRE(stored == (status == RMQ_OK));
    FUZZ_ALLOW(status, &err,
               FUZZ_BIT(CORRUPT) | FUZZ_BIT(INVALID) | FUZZ_BIT(MESSAGE_ILLEGAL) |
                   FUZZ_BIT(NOT_WRITABLE) | FUZZ_BIT(NO_SPACE) | FUZZ_BIT(IO));
    return status;
}

/* The message is where its receipt says, with its body. */
static void check_stored(struct rmq_store *store, const struct rmq_receipt *receipt)
{
    struct rmq_found found = {0};
    const struct rmq_record *record = &found.record;
    FUZZ_REQUIRE(rmq_store_at(store, receipt->physical_offset, true, &found, NULL) == RMQ_OK);
    FUZZ_REQUIRE(record->physical_offset == receipt->physical_offset);
    FUZZ_REQUIRE(record->body_size == 4 && memcmp(record->body, "body", 4) == 0);
    FUZZ_REQUIRE(record->queue_offset == receipt->queue_offset);
    rmq_found_release(&found, 1);
}

static void check_queued(struct rmq_store *store, const struct rmq_receipt *receipt)
{
    struct rmq_found found = {0};
    struct rmq_get_result result;
    struct rmq_error err = {0};
    struct rmq_get_request request = {.topic = "orders",
                                      .topic_size = 6,
                                      .offset = receipt->queue_offset,
                                      .max_bytes = 1 << 20,
                                      .max_count = 1,
                                      .check_crc = true};
    FUZZ_REQUIRE(rmq_store_get(store, &request, &found, &result, &err) == RMQ_OK);
    FUZZ_REQUIRE(result.count == 1);
    FUZZ_REQUIRE(found.record.physical_offset == receipt->physical_offset);
    rmq_found_release(&found, 1);
}

/* Puts a message where that is possible; true when it is stored and dispatched. */
static bool put_and_check(struct rmq_store *store, struct rmq_receipt *receipt)
{
    struct rmq_error err = {0};
    if (put_one(store, receipt) != RMQ_OK)
        return false;
    check_stored(store, receipt);
    int64_t end = receipt->physical_offset + receipt->size;
    int status = rmq_store_wait_dispatched(store, end, WAIT_MS, &err);
    FUZZ_ALLOW(status, &err, FUZZ_BIT(NOT_WRITABLE));
    if (status != RMQ_OK)
        return false;
    struct rmq_queue *queue = rmq_store_find_queue(store, "orders", 6, 0);
    FUZZ_REQUIRE(queue != NULL);
    if (!queue->is_batch)
        check_queued(store, receipt);
    return true;
}

/* A store that was closed opens again as it was, and so does one whose process died. */
static void check_again(const struct rmq_store_options *options, struct memory_vfs *vfs,
                        const struct rmq_receipt *receipt, bool crash, bool was_walked)
{
    struct rmq_store *store = NULL;
    struct rmq_error err = {0};
    struct seen before, after;
    int status = open_store(options, vfs, false, &store, &err);
    FUZZ_ALLOW(status, &err, 0);
    FUZZ_REQUIRE(rmq_store_recovery(store)->was_closed);
    FUZZ_REQUIRE(rmq_store_recovery(store)->cut_bytes == 0);
    int64_t end = rmq_store_end(store);
    check_stored(store, receipt);
    walk_log(store, &before);
    struct memory_vfs *image = memory_vfs_copy(vfs);
    if (crash)
        rmq_store_abandon(store);
    else
        FUZZ_REQUIRE(rmq_store_close(store, &err) == RMQ_OK);
    FUZZ_REQUIRE(memory_vfs_equal(vfs, image, ROOT "/consumequeue"));
    memory_vfs_free(image);

    /* After a crash the whole log is looked at, and damage found that a clean start passes over. */
    status = open_store(options, vfs, false, &store, &err);
    bool may_refuse = crash && !was_walked;
    FUZZ_ALLOW(status, &err, may_refuse ? FUZZ_BIT(CORRUPT) | FUZZ_BIT(IO) : 0);
    if (status != RMQ_OK)
        return;
    FUZZ_REQUIRE(rmq_store_recovery(store)->was_closed == !crash);
    FUZZ_REQUIRE(rmq_store_end(store) == end);
    check_stored(store, receipt);
    walk_log(store, &after);
    FUZZ_REQUIRE(before.records == after.records && before.digest == after.digest);
    FUZZ_REQUIRE(rmq_store_close(store, &err) == RMQ_OK);
}

/* ---- whole directories ---- */

/* Gives records that are right in form their place and their body's CRC: what is wrong in them
 * beyond that is then met by dispatch. */
static void mend_log(const char *path, uint8_t *data, size_t size)
{
    static const char folder[] = ROOT "/commitlog/";
    struct rmq_record record;
    int64_t start = 0;
    if (strncmp(path, folder, sizeof folder - 1) != 0 ||
        !rmq_file_name_parse(path + sizeof folder - 1, &start) || start > INT64_MAX / 2)
        return;
    for (size_t at = 0; rmq_record_decode(data + at, size - at, 0, 0, &record, NULL) == RMQ_OK;
         at += (size_t)record.total_size) {
        rmq_put_i64(data + at + 28, start + (int64_t)at);
        rmq_put_i32(data + at + 8, rmq_crc32_java(record.body, (size_t)record.body_size));
    }
}

/* Entries: size of path 2, path, size of file 2, size of content 2, content. */
static void unpack(struct fuzz_input *input, struct memory_vfs *vfs, bool mend)
{
    char path[512];
    while (input->left > 0) {
        size_t path_size = (size_t)fuzz_take(input, 2), content_size = 0;
        const uint8_t *from = fuzz_take_bytes(input, path_size, &path_size);
        int size = snprintf(path, sizeof path, ROOT "/%.*s", (int)path_size, (const char *)from);
        int64_t file_size = (int64_t)fuzz_take(input, 2);
        content_size = (size_t)fuzz_take(input, 2);
        from = fuzz_take_bytes(input, content_size, &content_size);
        if (size <= 0 || (size_t)size >= sizeof path)
            continue;
        uint8_t *content = fuzz_copy(from, content_size);
        if (mend)
            mend_log(path, content, content_size);
        (void)memory_vfs_add(vfs, path, file_size, content, content_size);
        free(content);
    }
}

static void look_read_only(const struct rmq_store_options *options, struct memory_vfs *vfs)
{
    struct rmq_store *store = NULL;
    struct rmq_error err = {0};
    struct seen seen, again;
    struct memory_vfs *frozen = memory_vfs_copy(vfs);
    memory_vfs_freeze(frozen);
    if (open_store(options, frozen, true, &store, &err) == RMQ_OK) {
        look_at_all(store, &seen);
        FUZZ_REQUIRE(rmq_store_refresh(store, &err) == RMQ_OK);
        walk_log(store, &again);
        FUZZ_REQUIRE(seen.records == again.records && seen.digest == again.digest);
        FUZZ_REQUIRE(rmq_store_close(store, &err) == RMQ_OK);
    }
    memory_vfs_free(frozen);
}

/* Cuts at the last record that is there, or lets go of the oldest file. */
static void cut(struct rmq_store *store, unsigned how, const struct rmq_receipt *receipt)
{
    struct rmq_error err = {0};
    int status = RMQ_OK;
    if (how & 1) {
        status = rmq_store_truncate(store, receipt->physical_offset, &err);
        if (status == RMQ_OK)
            FUZZ_REQUIRE(rmq_store_end(store) == receipt->physical_offset);
    }
    if (how & 2)
        status = rmq_store_expire(store, 1, &err);
    FUZZ_ALLOW(status, &err, ~0u);
}

static void write_to(const struct rmq_store_options *options, struct memory_vfs *vfs, unsigned how)
{
    struct rmq_store *store = NULL;
    struct rmq_error err = {0};
    struct rmq_receipt receipt;
    struct seen seen;
    if (open_store(options, vfs, false, &store, &err) != RMQ_OK)
        return;
    look_at_all(store, &seen);
    const struct rmq_recovery *recovery = rmq_store_recovery(store);
    bool was_walked = !recovery->was_closed && recovery->start_offset == rmq_store_start(store);
    bool stored = put_and_check(store, &receipt);
    if (stored && (how & 3)) {
        cut(store, how, &receipt);
        stored = put_and_check(store, &receipt);
        look_at_all(store, &seen);
    }
    if (!stored) {
        rmq_store_abandon(store);
        return;
    }
    FUZZ_REQUIRE(rmq_store_close(store, &err) == RMQ_OK);
    check_again(options, vfs, &receipt, how & 4, was_walked);
}

/* how 1 (1 cuts the log, 2 lets go of a file, 4 crashes, MEND), options 4, packed files. */
void fuzz_directory(const uint8_t *data, size_t size)
{
    struct fuzz_input input = {data, size};
    struct memory_vfs *vfs = memory_vfs_new();
    struct rmq_store_options options;
    unsigned how = (unsigned)fuzz_take(&input, 1);
    take_options(&input, vfs, &options);
    unpack(&input, vfs, how & MEND);
    look_read_only(&options, vfs);
    write_to(&options, vfs, how);
    memory_vfs_free(vfs);
}

/* ---- bytes of another log ---- */

/* Where the records end, counted from the first, that pass these checks and are there as a whole.
 */
static int64_t walk_until(struct rmq_store *store, unsigned checks, int64_t *records)
{
    struct rmq_scan scan;
    struct rmq_record record;
    int64_t end = rmq_store_end(store), at = rmq_store_start(store);
    *records = 0;
    rmq_store_scan(store, &scan, at, end, RMQ_CHECK_PLACE | checks);
    while (rmq_scan_next(&scan, &record, NULL) == RMQ_OK && scan.offset <= end) {
        at = scan.offset;
        *records += record.store_timestamp < INT64_MAX;
    }
    if (scan.offset <= end)
        at = scan.offset; /* behind a blank record */
    rmq_scan_finish(&scan);
    return at;
}

/* Appends pieces: size 2, bytes. */
static void append_all(struct rmq_store *store, struct fuzz_input *input, int64_t start)
{
    struct rmq_error err = {0};
    int64_t at = start;
    while (input->left > 0) {
        size_t wanted = (size_t)fuzz_take(input, 2), taken = 0;
        const uint8_t *from = fuzz_take_bytes(input, wanted, &taken);
        uint8_t *piece = fuzz_copy(from, taken);
        FUZZ_REQUIRE(rmq_store_append_raw(store, at + 1, piece, taken, NULL) != RMQ_OK);
        int status = rmq_store_append_raw(store, at, piece, taken, &err);
        free(piece);
        FUZZ_ALLOW(status, &err, FUZZ_BIT(NOT_WRITABLE));
        if (status != RMQ_OK)
            return;
        at += (int64_t)taken;
        FUZZ_REQUIRE(rmq_store_end(store) == at);
    }
}

/* options 4, first file 1, pieces. */
void fuzz_append_raw(const uint8_t *data, size_t size)
{
    struct fuzz_input input = {data, size};
    struct memory_vfs *vfs = memory_vfs_new();
    struct rmq_store_options options;
    struct rmq_store *store = NULL;
    struct rmq_error err = {0};
    struct seen seen;
    int64_t records = 0, right = 0;
    take_options(&input, vfs, &options);
    int64_t start = (int64_t)(fuzz_take(&input, 1) & 7) * options.log_file_size;
    FUZZ_REQUIRE(open_store(&options, vfs, false, &store, &err) == RMQ_OK);
    append_all(store, &input, start);
    int64_t end = walk_until(store, 0, &records);
    (void)walk_until(store, RMQ_CHECK_READER, &right);
    int status = rmq_store_wait_dispatched(store, end, WAIT_MS, &err);
    FUZZ_ALLOW(status, &err, FUZZ_BIT(NOT_WRITABLE));
    look_at_all(store, &seen);
    FUZZ_REQUIRE(seen.records >= right);
    rmq_store_abandon(store);
    if (open_store(&options, vfs, false, &store, &err) == RMQ_OK) {
        end = rmq_store_end(store);
        FUZZ_REQUIRE(end <= start || walk_until(store, 0, &records) == end);
        look_at_all(store, &seen);
        rmq_store_abandon(store);
    }
    memory_vfs_free(vfs);
}
