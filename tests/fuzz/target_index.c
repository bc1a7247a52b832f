/* target_index.c -- index files and the checkpoint. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/crc32.h"
#include "file/checkpoint.h"
#include "fuzz.h"
#include "index/index_file.h"
#include "memory_vfs.h"

#define FOLDER "/index"
#define OFFSETS_MAX 16
#define STEPS_MAX 32
#define BEGIN_MS 1700000000000
#define MARKED_SIZE 60 /* of a checkpoint with the fields of this library */

struct subject {
    struct memory_vfs *vfs;
    struct rmq_index_options options;
    struct rmq_index index;
    struct fuzz_input steps;
    bool is_clean;           /* there were no files */
    int64_t offset, time_ms; /* of the last put */
};

static struct rmq_slice slice(const char *text)
{
    return (struct rmq_slice){text, strlen(text)};
}

static void add_files(struct subject *subject, size_t count, struct fuzz_input *content)
{
    const struct rmq_index_options *options = &subject->options;
    int64_t size = RMQ_INDEX_HEADER_SIZE + options->slot_count * RMQ_INDEX_SLOT_SIZE +
                   options->entry_count * (int64_t)RMQ_INDEX_ENTRY_SIZE;
    for (size_t i = 0; i < count; ++i) {
        char path[64];
        size_t taken = 0;
        const uint8_t *from = fuzz_take_bytes(content, (size_t)size, &taken);
        snprintf(path, sizeof path, FOLDER "/202401010000%05u", (unsigned)i);
        FUZZ_REQUIRE(memory_vfs_add(subject->vfs, path, size, from, taken));
    }
}

static int open_index(struct subject *subject, struct rmq_error *err)
{
    size_t skipped = 0;
    int status = rmq_index_open(&subject->index, &subject->options, &skipped, err);
    FUZZ_ALLOW(status, err, FUZZ_BIT(CORRUPT));
    FUZZ_REQUIRE(skipped == 0);
    return status;
}

static void check_query(struct subject *subject, const char *key, int64_t expected)
{
    int64_t *offsets = malloc(OFFSETS_MAX * sizeof *offsets);
    size_t count = 0;
    FUZZ_REQUIRE(offsets != NULL);
    FUZZ_REQUIRE(rmq_index_query(&subject->index, slice("topic"), slice(key), 0, INT64_MAX, offsets,
                                 OFFSETS_MAX, &count, NULL) == RMQ_OK);
    FUZZ_REQUIRE(count <= OFFSETS_MAX);
    if (expected >= 0)
        FUZZ_REQUIRE(count > 0 && offsets[0] == expected);
    free(offsets);
}

static void put(struct subject *subject)
{
    struct rmq_error err = {0};
    char key[32];
    int64_t rolled = -1;
    subject->offset += (int64_t)fuzz_take(&subject->steps, 2);
    subject->time_ms += (int64_t)fuzz_take(&subject->steps, 2);
    snprintf(key, sizeof key, "k%u", (unsigned)fuzz_take(&subject->steps, 1) & 15);
    struct rmq_index_request request = {
        .topic = slice("topic"),
        .unique_key = slice(key),
        .keys = slice("a  b"),
        .tags = slice("t"),
        .physical_offset = subject->offset,
        .store_timestamp = subject->time_ms,
    };
    int status = rmq_index_put(&subject->index, &request, subject->time_ms, &rolled, &err);
    if (status != RMQ_OK) {
        FUZZ_ALLOW(status, &err, subject->is_clean ? 0 : FUZZ_BIT(CORRUPT));
        return;
    }
    check_query(subject, key, subject->is_clean ? subject->offset : -1);
    check_query(subject, "b", subject->is_clean ? subject->offset : -1);
    if (subject->is_clean)
        FUZZ_REQUIRE(rmq_index_last_physical_offset(&subject->index) == subject->offset);
}

static void discard(struct subject *subject)
{
    int64_t from = 0;
    int64_t time_ms = BEGIN_MS + (int64_t)fuzz_take(&subject->steps, 2);
    int64_t offset = (int64_t)fuzz_take(&subject->steps, 2);
    FUZZ_REQUIRE(rmq_index_discard_unsafe(&subject->index, time_ms, offset, &from, NULL) == RMQ_OK);
    for (size_t i = 0; i < subject->index.count; ++i)
        FUZZ_REQUIRE(rmq_index_header(subject->index.files[i], RMQ_INDEX_END_OFFSET) < offset);
    /* What was dropped is entered again. */
    int64_t last = rmq_index_last_physical_offset(&subject->index);
    subject->offset = last > 0 ? last : 0;
}

static int step(struct subject *subject)
{
    struct rmq_error err = {0};
    int64_t rolled = -1;
    unsigned kind = (unsigned)fuzz_take(&subject->steps, 1) & 7;
    bool may_write = !subject->options.read_only;
    (void)rmq_index_newest_begin(&subject->index);
    if (kind == 7) {
        int64_t last = rmq_index_last_physical_offset(&subject->index);
        rmq_index_close(&subject->index);
        int status = open_index(subject, &err);
        if (status == RMQ_OK)
            FUZZ_REQUIRE(!subject->is_clean ||
                         rmq_index_last_physical_offset(&subject->index) == last);
        return status;
    }
    if (may_write && kind < 4)
        put(subject);
    else if (may_write && kind == 4)
        discard(subject);
    else if (may_write && kind == 5)
        FUZZ_REQUIRE(rmq_index_expire(&subject->index, (int64_t)fuzz_take(&subject->steps, 2),
                                      &err) == RMQ_OK);
    else if (may_write)
        FUZZ_REQUIRE(rmq_index_roll(&subject->index, &rolled, &err) == RMQ_OK &&
                     rmq_index_flush(&subject->index, &err) == RMQ_OK);
    check_query(subject, "k1", -1);
    check_query(subject, "a", -1);
    return RMQ_OK;
}

/* slots 1, entries 1, files 1, size of steps 1, steps, content. */
void fuzz_index(const uint8_t *data, size_t size)
{
    struct fuzz_input input = {data, size};
    struct rmq_error err = {0};
    struct subject subject = {.vfs = memory_vfs_new(), .time_ms = BEGIN_MS};
    subject.options = (struct rmq_index_options){
        .vfs = memory_vfs_door(subject.vfs),
        .directory = FOLDER,
        .slot_count = 1 + (int32_t)(fuzz_take(&input, 1) & 15),
        .entry_count = 2 + (int32_t)(fuzz_take(&input, 1) & 31),
    };
    unsigned files = (unsigned)fuzz_take(&input, 1);
    subject.options.tag_keys = files & 0x20;
    subject.options.read_only = files & 0x40;
    subject.is_clean = (files & 3) == 0;
    size_t steps_size = (size_t)fuzz_take(&input, 1);
    subject.steps.data = fuzz_take_bytes(&input, steps_size, &subject.steps.left);
    add_files(&subject, files & 3, &input);
    if (subject.options.read_only)
        memory_vfs_freeze(subject.vfs);
    int status = open_index(&subject, &err);
    for (int i = 0; status == RMQ_OK && i < STEPS_MAX && subject.steps.left > 0; ++i)
        status = step(&subject);
    if (status == RMQ_OK)
        rmq_index_close(&subject.index);
    memory_vfs_free(subject.vfs);
}

/* ---- the checkpoint ---- */

static void check_fields(struct memory_vfs *vfs, const struct rmq_checkpoint *expected)
{
    struct rmq_checkpoint back;
    bool found = false;
    FUZZ_REQUIRE(rmq_checkpoint_read(memory_vfs_door(vfs), "/s/checkpoint", &back, &found, NULL) ==
                 RMQ_OK);
    FUZZ_REQUIRE(found && memcmp(&back, expected, sizeof back) == 0);
}

/* The file as found: its size 2, whether to set the CRC right 1, content. */
void fuzz_checkpoint(const uint8_t *data, size_t size)
{
    struct fuzz_input input = {data, size};
    struct memory_vfs *vfs = memory_vfs_new();
    struct rmq_checkpoint checkpoint, none = {.flushed_offset = -1};
    struct rmq_file_info info = {0};
    bool found = true, exists = true;
    int64_t file_size = (int64_t)fuzz_take(&input, 2);
    bool is_mended = fuzz_take(&input, 1) & 1;
    uint8_t *content = fuzz_copy(input.data, input.left);
    if (is_mended && input.left >= MARKED_SIZE)
        rmq_put_i32(content + MARKED_SIZE - 4, (int32_t)rmq_crc32(0, content, MARKED_SIZE - 4));
    FUZZ_REQUIRE(memory_vfs_add(vfs, "/s/checkpoint", file_size, content, input.left));
    free(content);
    struct memory_vfs *before = memory_vfs_copy(vfs);
    struct rmq_vfs *door = memory_vfs_door(vfs);
    FUZZ_REQUIRE(rmq_checkpoint_read(door, "/s/checkpoint", &checkpoint, &found, NULL) == RMQ_OK);
    FUZZ_REQUIRE(found == (file_size >= 48));
    if (!found)
        FUZZ_REQUIRE(memcmp(&checkpoint, &none, sizeof none) == 0);
    FUZZ_REQUIRE(rmq_checkpoint_write(door, "/s/checkpoint", &checkpoint, NULL) == RMQ_OK);
    check_fields(vfs, &checkpoint);
    /* What is no mark of ours reads as zeros afterwards. */
    if (file_size >= RMQ_CHECKPOINT_SIZE && checkpoint.flushed_offset >= 0)
        FUZZ_REQUIRE(memory_vfs_equal(vfs, before, "/s"));
    FUZZ_REQUIRE(door->stat(door, "/s/checkpoint", &info, NULL) == RMQ_OK);
    FUZZ_REQUIRE(info.size >= RMQ_CHECKPOINT_SIZE && info.size >= file_size);
    FUZZ_REQUIRE(rmq_abort_create(door, "/s/abort", NULL) == RMQ_OK);
    FUZZ_REQUIRE(rmq_abort_exists(door, "/s/abort", &exists, NULL) == RMQ_OK && exists);
    FUZZ_REQUIRE(rmq_abort_remove(door, "/s/abort", NULL) == RMQ_OK);
    FUZZ_REQUIRE(rmq_abort_exists(door, "/s/abort", &exists, NULL) == RMQ_OK && !exists);
    memory_vfs_free(before);
    memory_vfs_free(vfs);
}
