/* target_queue.c -- the three kinds of queue files: units of any content, then operations.
 *
 * Input: shape of the files, operations, content of the files.
 */
#include <stdlib.h>
#include <string.h>

#include "fuzz.h"
#include "index/batch_consume_queue.h"
#include "index/consume_queue.h"
#include "index/consume_queue_ext.h"
#include "memory_vfs.h"

#define FOLDER "/queue"
#define READ_MAX 8
#define STEPS_MAX 32

struct shape {
    struct memory_vfs *vfs;
    int64_t file_size;
    int64_t log_end;
    struct fuzz_input steps;
    struct rmq_map_budget *budget;
    bool read_only;
    bool is_clean; /* there were no files: everything in the queue is known to be right */
};

/* units per file and uses of a file before it is mapped 1, files 1, first file 1 (or 8), log end 8,
 * size of steps 1. */
static void open_shape(struct shape *shape, int64_t unit_size, const uint8_t *data, size_t size)
{
    static struct rmq_map_budget budget;
    struct fuzz_input input = {data, size};
    unsigned units = (unsigned)fuzz_take(&input, 1);
    shape->file_size = (1 + (int64_t)(units & 15)) * unit_size;
    budget.hot_uses = (int32_t)(units >> 4);
    atomic_init(&budget.left, 1);
    shape->budget = &budget;
    unsigned files = (unsigned)fuzz_take(&input, 1);
    int64_t number = (int64_t)fuzz_take(&input, files & 0x80 ? 8 : 1);
    shape->log_end = (int64_t)fuzz_take(&input, 8);
    size_t steps_size = (size_t)fuzz_take(&input, 1);
    shape->steps.data = fuzz_take_bytes(&input, steps_size, &shape->steps.left);
    shape->read_only = files & 0x40;
    shape->is_clean = (files & 15) == 0;
    shape->vfs = memory_vfs_new();
    int64_t number_max = INT64_MAX / shape->file_size - 16;
    number = (int64_t)((uint64_t)number % (uint64_t)number_max);
    memory_vfs_add_queue(shape->vfs, FOLDER, number * shape->file_size, shape->file_size,
                         files & 15, &input);
    if (shape->read_only)
        memory_vfs_freeze(shape->vfs);
}

/* Small numbers are what queues hold; any number is what a disk may hold. */
static int64_t take_number(struct fuzz_input *steps)
{
    unsigned width = (unsigned)fuzz_take(steps, 1);
    return (int64_t)fuzz_take(steps, width == 0xFF ? 8 : 2);
}

static void check_status(int status, const struct rmq_error *err)
{
    FUZZ_ALLOW(status, err, FUZZ_BIT(CORRUPT) | FUZZ_BIT(INVALID) | FUZZ_BIT(NOT_FOUND));
}

/* ---- simple units ---- */

static void check_simple(struct rmq_consume_queue *queue)
{
    struct rmq_unit units[READ_MAX];
    size_t count = 0;
    int64_t min = rmq_consume_queue_min(queue), max = rmq_consume_queue_max(queue);
    FUZZ_REQUIRE(min >= 0 && min <= max);
    FUZZ_REQUIRE(rmq_consume_queue_read(queue, max, units, READ_MAX, &count, NULL) == RMQ_OK);
    FUZZ_REQUIRE(count == 0);
    FUZZ_REQUIRE(rmq_consume_queue_read(queue, -1, units, READ_MAX, &count, NULL) == RMQ_OK);
    FUZZ_REQUIRE(count == 0);
    for (int64_t at = min; at < max; at += (int64_t)count) {
        FUZZ_REQUIRE(rmq_consume_queue_read(queue, at, units, READ_MAX, &count, NULL) == RMQ_OK);
        FUZZ_REQUIRE(count > 0 && count <= READ_MAX && at + (int64_t)count <= max);
        for (size_t i = 0; i < count; ++i)
            FUZZ_REQUIRE(units[i].queue_offset == at + (int64_t)i && units[i].batch_size == 1);
    }
}

static void append_simple(struct rmq_consume_queue *queue, struct fuzz_input *steps)
{
    struct rmq_error err = {0};
    struct rmq_unit unit;
    size_t count = 0;
    int64_t max = rmq_consume_queue_max(queue);
    int64_t delta = take_number(steps), physical_offset = take_number(steps);
    int32_t size = (int32_t)fuzz_take(steps, 2);
    int64_t code = (int64_t)fuzz_take(steps, 8);
    int64_t offset = (int64_t)((uint64_t)max + (uint64_t)delta);
    /* Gaps of millions are allowed and slow. */
    if (delta > 1000 && delta <= RMQ_CONSUME_QUEUE_GAP_MAX)
        offset = max;
    /* Most appends go on right behind the end. */
    if (delta >= 16 && delta < 0x10000)
        offset = max;
    int status = rmq_consume_queue_append(queue, offset, physical_offset, size, code, &err);
    check_status(status, &err);
    if (status != RMQ_OK || offset < max)
        return;
    FUZZ_REQUIRE(rmq_consume_queue_max(queue) == offset + 1);
    FUZZ_REQUIRE(rmq_consume_queue_read(queue, offset, &unit, 1, &count, NULL) == RMQ_OK);
    FUZZ_REQUIRE(count == 1 && unit.physical_offset == physical_offset);
    FUZZ_REQUIRE(unit.size == size && unit.tags_code == code);
}

/* Every unit kept by a cut at log_end lies before it, in a queue that is in order. */
static void check_cut(struct rmq_consume_queue *queue, int64_t log_end, bool in_order)
{
    struct rmq_unit unit;
    size_t count = 0;
    for (int64_t at = rmq_consume_queue_min(queue); in_order && at < rmq_consume_queue_max(queue);
         ++at) {
        FUZZ_REQUIRE(rmq_consume_queue_read(queue, at, &unit, 1, &count, NULL) == RMQ_OK);
        FUZZ_REQUIRE(count == 1);
        FUZZ_REQUIRE(rmq_unit_is_fill(&unit) || unit.physical_offset < log_end);
    }
}

static bool is_in_order(struct rmq_consume_queue *queue)
{
    struct rmq_unit unit;
    size_t count = 0;
    int64_t before = -1;
    for (int64_t at = rmq_consume_queue_min(queue); at < rmq_consume_queue_max(queue); ++at) {
        if (rmq_consume_queue_read(queue, at, &unit, 1, &count, NULL) != RMQ_OK || count == 0)
            return false;
        if (rmq_unit_is_fill(&unit))
            continue;
        if (unit.physical_offset < before || unit.size <= 0)
            return false;
        before = unit.physical_offset;
    }
    return true;
}

static int open_simple(struct rmq_consume_queue *queue, const struct shape *shape, int64_t log_end,
                       struct rmq_error *err)
{
    int status =
        rmq_consume_queue_open(queue, memory_vfs_door(shape->vfs), FOLDER, shape->file_size,
                               shape->read_only, NULL, shape->budget, err);
    if (status != RMQ_OK)
        return status;
    status = rmq_consume_queue_recover(queue, log_end, err);
    if (status != RMQ_OK)
        rmq_consume_queue_close(queue);
    return status;
}

/* Opening again finds what was there, whatever the queue held. */
static int reopen_simple(struct rmq_consume_queue *queue, const struct shape *shape)
{
    struct rmq_error err = {0};
    int64_t min = rmq_consume_queue_min(queue), max = rmq_consume_queue_max(queue);
    rmq_consume_queue_close(queue);
    int status = open_simple(queue, shape, INT64_MAX, &err);
    check_status(status, &err);
    if (status == RMQ_OK && shape->is_clean && min < max)
        FUZZ_REQUIRE(rmq_consume_queue_max(queue) == max);
    return status;
}

/* What recovery does: goes back, appends again what it finds in the log, and cuts the rest. */
static int rewind_simple(struct rmq_consume_queue *queue, struct shape *shape)
{
    struct rmq_error err = {0};
    int status = rmq_consume_queue_rewind(queue, take_number(&shape->steps), &err);
    check_status(status, &err);
    for (unsigned i = (unsigned)fuzz_take(&shape->steps, 1) & 3; status == RMQ_OK && i > 0; --i)
        append_simple(queue, &shape->steps);
    if (status == RMQ_OK)
        status = rmq_consume_queue_truncate(queue, INT64_MAX, &err);
    check_status(status, &err);
    if (status != RMQ_OK)
        rmq_consume_queue_close(queue);
    return status;
}

static int step_simple(struct rmq_consume_queue *queue, struct shape *shape)
{
    struct rmq_error err = {0};
    unsigned kind = (unsigned)fuzz_take(&shape->steps, 1) & 7;
    bool in_order = is_in_order(queue);
    int64_t number = kind == 4 || kind == 5 ? take_number(&shape->steps) : 0;
    if (kind == 7)
        return reopen_simple(queue, shape);
    if (kind == 3 && !shape->read_only)
        return rewind_simple(queue, shape);
    if (kind == 5) {
        check_status(rmq_consume_queue_expire(queue, number, &err), &err);
    } else if (!shape->read_only && kind < 3) {
        append_simple(queue, &shape->steps);
    } else if (!shape->read_only && kind == 4) {
        int status = rmq_consume_queue_truncate(queue, number, &err);
        check_status(status, &err);
        check_cut(queue, number, in_order && status == RMQ_OK && number >= 0);
    } else if (!shape->read_only) {
        FUZZ_REQUIRE(rmq_consume_queue_flush(queue, &err) == RMQ_OK);
    }
    return RMQ_OK;
}

void fuzz_consume_queue(const uint8_t *data, size_t size)
{
    struct shape shape;
    struct rmq_consume_queue queue;
    struct rmq_error err = {0};
    open_shape(&shape, RMQ_UNIT_SIZE, data, size);
    int status = open_simple(&queue, &shape, shape.log_end, &err);
    check_status(status, &err);
    for (int i = 0; status == RMQ_OK && i < STEPS_MAX; ++i) {
        check_simple(&queue);
        if (shape.steps.left == 0)
            break;
        status = step_simple(&queue, &shape);
    }
    if (status == RMQ_OK)
        rmq_consume_queue_close(&queue);
    memory_vfs_free(shape.vfs);
}

/* ---- batch units ---- */

static void check_batch(struct rmq_batch_consume_queue *queue, bool is_clean)
{
    struct rmq_unit units[READ_MAX];
    struct rmq_error err = {0};
    size_t count = 0;
    int64_t min = atomic_load(&queue->min_offset), max = atomic_load(&queue->max_offset);
    FUZZ_REQUIRE(min >= -1 && min <= max);
    FUZZ_REQUIRE(rmq_batch_consume_queue_read(queue, max, units, READ_MAX, &count, NULL) == RMQ_OK);
    FUZZ_REQUIRE(count == 0);
    int64_t at = min < 0 ? 0 : min;
    for (int i = 0; i < STEPS_MAX && at < max; ++i) {
        int status = rmq_batch_consume_queue_read(queue, at, units, READ_MAX, &count, &err);
        FUZZ_ALLOW(status, &err, is_clean ? 0 : FUZZ_BIT(CORRUPT));
        FUZZ_REQUIRE(count <= READ_MAX && (status == RMQ_OK || count == 0));
        for (size_t j = 0; j < count; ++j) {
            FUZZ_REQUIRE(units[j].size > 0 && units[j].batch_size > 0);
            FUZZ_REQUIRE(units[j].queue_offset + units[j].batch_size > at);
            FUZZ_REQUIRE(units[j].queue_offset < max);
            at = units[j].queue_offset + units[j].batch_size;
        }
        at += count == 0;
    }
}

static void append_batch(struct rmq_batch_consume_queue *queue, const struct shape *shape,
                         struct fuzz_input *steps)
{
    struct rmq_error err = {0};
    struct rmq_unit back[READ_MAX];
    size_t count = 0;
    int64_t max = atomic_load(&queue->max_offset);
    int64_t end = atomic_load(&queue->physical_end);
    struct rmq_unit unit = {
        .queue_offset = (int64_t)((uint64_t)max + (uint64_t)take_number(steps) % 4),
        .physical_offset = (int64_t)((uint64_t)(end > 0 ? end : 0) + (uint64_t)take_number(steps)),
        .size = (int32_t)fuzz_take(steps, 2),
        .batch_size = (int16_t)fuzz_take(steps, 2),
        .tags_code = (int64_t)fuzz_take(steps, 8),
        .store_timestamp = (int64_t)fuzz_take(steps, 8),
    };
    int status = rmq_batch_consume_queue_append(queue, &unit, &err);
    check_status(status, &err);
    if (status != RMQ_OK || !shape->is_clean || unit.physical_offset < end)
        return;
    FUZZ_REQUIRE(atomic_load(&queue->max_offset) == unit.queue_offset + unit.batch_size);
    FUZZ_REQUIRE(rmq_batch_consume_queue_read(queue, unit.queue_offset + unit.batch_size - 1, back,
                                              READ_MAX, &count, NULL) == RMQ_OK);
    FUZZ_REQUIRE(count == 1 && back[0].physical_offset == unit.physical_offset);
    FUZZ_REQUIRE(back[0].queue_offset == unit.queue_offset && back[0].size == unit.size);
    FUZZ_REQUIRE(back[0].batch_size == unit.batch_size && back[0].tags_code == unit.tags_code);
    FUZZ_REQUIRE(back[0].store_timestamp == unit.store_timestamp);
}

static int open_batch(struct rmq_batch_consume_queue *queue, const struct shape *shape,
                      int64_t log_end, struct rmq_error *err)
{
    int status =
        rmq_batch_consume_queue_open(queue, memory_vfs_door(shape->vfs), FOLDER, shape->file_size,
                                     shape->read_only, NULL, shape->budget, err);
    if (status != RMQ_OK)
        return status;
    status = rmq_batch_consume_queue_recover(queue, log_end, err);
    if (status != RMQ_OK)
        rmq_batch_consume_queue_close(queue);
    return status;
}

static int reopen_batch(struct rmq_batch_consume_queue *queue, const struct shape *shape)
{
    struct rmq_error err = {0};
    int64_t max = atomic_load(&queue->max_offset), end = atomic_load(&queue->physical_end);
    rmq_batch_consume_queue_close(queue);
    int status = open_batch(queue, shape, INT64_MAX, &err);
    check_status(status, &err);
    if (status == RMQ_OK && shape->is_clean) {
        FUZZ_REQUIRE(atomic_load(&queue->max_offset) == max);
        FUZZ_REQUIRE(atomic_load(&queue->physical_end) == end);
    }
    return status;
}

static int rewind_batch(struct rmq_batch_consume_queue *queue, struct shape *shape)
{
    struct rmq_error err = {0};
    int status = rmq_batch_consume_queue_rewind(queue, take_number(&shape->steps), &err);
    check_status(status, &err);
    for (unsigned i = (unsigned)fuzz_take(&shape->steps, 1) & 3; status == RMQ_OK && i > 0; --i)
        append_batch(queue, shape, &shape->steps);
    if (status == RMQ_OK)
        status = rmq_batch_consume_queue_truncate(queue, INT64_MAX, &err);
    check_status(status, &err);
    if (status != RMQ_OK)
        rmq_batch_consume_queue_close(queue);
    return status;
}

static int step_batch(struct rmq_batch_consume_queue *queue, struct shape *shape)
{
    struct rmq_error err = {0};
    unsigned kind = (unsigned)fuzz_take(&shape->steps, 1) & 7;
    int64_t number = kind == 4 || kind == 5 ? take_number(&shape->steps) : 0;
    if (kind == 7)
        return reopen_batch(queue, shape);
    if (kind == 3 && !shape->read_only)
        return rewind_batch(queue, shape);
    if (kind == 5)
        check_status(rmq_batch_consume_queue_expire(queue, number, &err), &err);
    else if (!shape->read_only && kind < 3)
        append_batch(queue, shape, &shape->steps);
    else if (!shape->read_only && kind == 4)
        check_status(rmq_batch_consume_queue_truncate(queue, number, &err), &err);
    else if (!shape->read_only)
        FUZZ_REQUIRE(rmq_batch_consume_queue_flush(queue, &err) == RMQ_OK);
    return RMQ_OK;
}

void fuzz_batch_queue(const uint8_t *data, size_t size)
{
    struct shape shape;
    struct rmq_batch_consume_queue queue;
    struct rmq_error err = {0};
    open_shape(&shape, RMQ_BATCH_UNIT_SIZE, data, size);
    int status = open_batch(&queue, &shape, shape.log_end, &err);
    check_status(status, &err);
    for (int i = 0; status == RMQ_OK && i < STEPS_MAX; ++i) {
        check_batch(&queue, shape.is_clean);
        if (shape.steps.left == 0)
            break;
        status = step_batch(&queue, &shape);
    }
    if (status == RMQ_OK)
        rmq_batch_consume_queue_close(&queue);
    memory_vfs_free(shape.vfs);
}

/* ---- the extension ---- */

static void read_ext(struct rmq_consume_queue_ext *ext, int64_t address)
{
    uint8_t *buffer = malloc(RMQ_EXT_UNIT_SIZE_MAX);
    struct rmq_ext_unit unit;
    struct rmq_error err = {0};
    FUZZ_REQUIRE(buffer != NULL);
    int status = rmq_consume_queue_ext_read(ext, address, buffer, &unit, &err);
    if (status == RMQ_OK) {
        FUZZ_REQUIRE(rmq_ext_is_address(address));
        FUZZ_REQUIRE(unit.bitmap == buffer + RMQ_EXT_HEAD_SIZE && unit.bitmap_size >= 0);
        int64_t unit_end = rmq_ext_offset(address) + RMQ_EXT_HEAD_SIZE + unit.bitmap_size;
        FUZZ_REQUIRE(unit_end <= rmq_file_queue_end(&ext->files));
    } else {
        FUZZ_ALLOW(status, &err, FUZZ_BIT(NOT_FOUND));
    }
    free(buffer);
}

static void append_ext(struct rmq_consume_queue_ext *ext, struct fuzz_input *steps)
{
    static const uint8_t bitmap[256] = {1, 2, 3};
    uint8_t *buffer = malloc(RMQ_EXT_UNIT_SIZE_MAX);
    struct rmq_error err = {0};
    struct rmq_ext_unit back, unit = {
                                  .bitmap = bitmap,
                                  .bitmap_size = (int32_t)fuzz_take(steps, 1),
                                  .tags_code = (int64_t)fuzz_take(steps, 8),
                                  .store_timestamp = (int64_t)fuzz_take(steps, 2),
                              };
    int64_t address = 0;
    FUZZ_REQUIRE(buffer != NULL);
    int status = rmq_consume_queue_ext_append(ext, &unit, &address, &err);
    check_status(status, &err);
    /* The last 2 GiB of all offsets have no addresses. */
    if (status == RMQ_OK && rmq_ext_is_address(address)) {
        FUZZ_REQUIRE(rmq_consume_queue_ext_read(ext, address, buffer, &back, NULL) == RMQ_OK);
        FUZZ_REQUIRE(back.tags_code == unit.tags_code && back.bitmap_size == unit.bitmap_size);
        FUZZ_REQUIRE(back.store_timestamp == unit.store_timestamp);
        FUZZ_REQUIRE(memcmp(back.bitmap, bitmap, (size_t)unit.bitmap_size) == 0);
    }
    free(buffer);
}

static int open_ext(struct rmq_consume_queue_ext *ext, const struct shape *shape,
                    struct rmq_error *err)
{
    int status = rmq_consume_queue_ext_open(ext, memory_vfs_door(shape->vfs), FOLDER,
                                            shape->file_size, shape->read_only, err);
    if (status != RMQ_OK)
        return status;
    status = rmq_consume_queue_ext_recover(ext, err);
    if (status == RMQ_OK && !shape->read_only)
        status = rmq_consume_queue_ext_truncate(ext, rmq_file_queue_end(&ext->files), err);
    if (status != RMQ_OK)
        rmq_consume_queue_ext_close(ext);
    return status;
}

static int reopen_ext(struct rmq_consume_queue_ext *ext, const struct shape *shape)
{
    struct rmq_error err = {0};
    int64_t end = rmq_file_queue_end(&ext->files);
    rmq_consume_queue_ext_close(ext);
    int status = open_ext(ext, shape, &err);
    check_status(status, &err);
    if (status == RMQ_OK)
        FUZZ_REQUIRE(rmq_file_queue_end(&ext->files) <= end);
    return status;
}

static int step_ext(struct rmq_consume_queue_ext *ext, struct shape *shape)
{
    struct rmq_error err = {0};
    unsigned kind = (unsigned)fuzz_take(&shape->steps, 1) & 7;
    int64_t start = rmq_file_queue_start(&ext->files);
    int64_t number = kind == 4 || kind == 5 ? take_number(&shape->steps) : 0;
    int64_t address =
        (int64_t)((uint64_t)(start > 0 ? start : 0) + (uint64_t)number + (1ull << 63));
    if (kind == 7)
        return reopen_ext(ext, shape);
    if (kind == 6) {
        read_ext(ext, (int64_t)((uint64_t)address + fuzz_take(&shape->steps, 2)));
    } else if (!shape->read_only && kind < 3) {
        append_ext(ext, &shape->steps);
    } else if (!shape->read_only && kind == 4) {
        int64_t end = 0;
        int status = rmq_consume_queue_ext_end_of(ext, address, &end, &err);
        if (status == RMQ_OK)
            status = rmq_consume_queue_ext_truncate(ext, end, &err);
        check_status(status, &err);
    } else if (!shape->read_only && kind == 5) {
        check_status(rmq_consume_queue_ext_expire(ext, address, &err), &err);
    } else if (!shape->read_only) {
        FUZZ_REQUIRE(rmq_consume_queue_ext_flush(ext, &err) == RMQ_OK);
    }
    return RMQ_OK;
}

void fuzz_extension(const uint8_t *data, size_t size)
{
    struct shape shape;
    struct rmq_consume_queue_ext ext;
    struct rmq_error err = {0};
    /* 24 bytes hold a head and the end of a file; odd sizes are as good as others. */
    open_shape(&shape, RMQ_EXT_HEAD_SIZE + 13, data, size);
    int status = open_ext(&ext, &shape, &err);
    check_status(status, &err);
    for (int i = 0; status == RMQ_OK && i < STEPS_MAX && shape.steps.left > 0; ++i)
        status = step_ext(&ext, &shape);
    if (status == RMQ_OK)
        rmq_consume_queue_ext_close(&ext);
    memory_vfs_free(shape.vfs);
}
