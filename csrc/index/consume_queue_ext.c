#include "index/consume_queue_ext.h"

#include <assert.h>
#include <inttypes.h>

#include "base/bytes.h"

#define WINDOW (64 << 10)
#define END_MARK (-1)
#define TAIL_SIZE 4 /* reserved for the end mark */

_Static_assert(RMQ_EXT_HEAD_SIZE == 2 + 8 + 8 + 2, "extension unit layout");

int rmq_consume_queue_ext_open(struct rmq_consume_queue_ext *ext, struct rmq_vfs *vfs,
                               const char *directory, int64_t file_size, bool read_only,
                               struct rmq_error *err)
{
    assert(vfs && directory);

    if (file_size < RMQ_EXT_HEAD_SIZE + TAIL_SIZE || file_size > INT32_MAX)
        return rmq_fail(err, RMQ_INVALID, -1,
                        "consume queue extension %s: file size %" PRId64 " is not in %d .. %d",
                        directory, file_size, RMQ_EXT_HEAD_SIZE + TAIL_SIZE, INT32_MAX);

    struct rmq_file_queue_options options = {.vfs = vfs,
                                             .directories = &directory,
                                             .directory_count = 1,
                                             .file_size = file_size,
                                             .window = file_size < WINDOW ? file_size : WINDOW,
                                             .read_only = read_only,
                                             .makes_folder_late = true};
    return rmq_file_queue_open(&ext->files, &options, err);
}

void rmq_consume_queue_ext_close(struct rmq_consume_queue_ext *ext)
{
    rmq_file_queue_close(&ext->files);
}

/* The size of the whole unit at `at` of a file, 0 when there is none. */
static int32_t unit_size_at(const struct rmq_mapped_file *file, const uint8_t *base, int64_t at)
{
    assert(base && at >= 0 && at <= file->size);

    int64_t left = file->size - TAIL_SIZE - at;
    if (left < RMQ_EXT_HEAD_SIZE)
        return 0;

    int32_t size = rmq_get_i16(base + at);
    if (size < RMQ_EXT_HEAD_SIZE || size > left ||
        rmq_get_i16(base + at + 18) != size - RMQ_EXT_HEAD_SIZE)
        return 0;
    return size;
}

int rmq_consume_queue_ext_recover(struct rmq_consume_queue_ext *ext, struct rmq_error *err)
{
    struct rmq_file_queue *files = &ext->files;
    int64_t start = rmq_file_queue_start(files);
    int64_t end = start;
    if (start < 0)
        return RMQ_OK;

    for (size_t i = 0;; ++i) {
        struct rmq_mapped_file *file = NULL;
        int status = rmq_file_queue_pin_at(files, i, &file, err);
        if (status == RMQ_NOT_FOUND)
            break;
        if (status != RMQ_OK)
            return status;

        const uint8_t *base = rmq_mapped_file_base(file);
        int64_t at = 0;
        for (int32_t size; (size = unit_size_at(file, base, at)) > 0; at += size) {
        }
        if (at > 0)
            end = file->start + at;

        rmq_mapped_file_unpin(file);
    }

    assert(end >= start);
    if (files->options.read_only)
        atomic_store_explicit(&files->end_offset, end, memory_order_release);
    else
        rmq_file_queue_rewind(files, end);
    return RMQ_OK;
}

/* Marks the last file as full: no unit fits between `at` and its end. */
static int close_file(struct rmq_consume_queue_ext *ext, int64_t at, struct rmq_error *err)
{
    assert(at >= 0 && at <= ext->files.last->size - TAIL_SIZE);

    struct rmq_mapped_file *last = ext->files.last;
    int status = rmq_mapped_file_reserve(last, last->size, ext->files.options.window, err);
    if (status == RMQ_OK) {
        rmq_put_i16(rmq_mapped_file_base(last) + at, END_MARK);
        rmq_file_queue_advance(&ext->files, last->size);
    }

    return status;
}

/* Ensures that the last file has room for a unit of this size, with blocks for it. */
static int make_room(struct rmq_consume_queue_ext *ext, int32_t size, struct rmq_error *err)
{
    assert(size >= RMQ_EXT_HEAD_SIZE && size <= RMQ_EXT_UNIT_SIZE_MAX);

    struct rmq_file_queue *files = &ext->files;
    struct rmq_mapped_file *last = files->last;
    int status = RMQ_OK;

    if (last) {
        int64_t at = atomic_load_explicit(&last->wrote, memory_order_relaxed);
        if (at < last->size && size > last->size - TAIL_SIZE - at)
            status = close_file(ext, at, err);
    }

    if (status == RMQ_OK &&
        (!last || atomic_load_explicit(&last->wrote, memory_order_relaxed) == last->size))
        status = rmq_file_queue_roll(files, 0, NULL, err);
    if (status == RMQ_OK)
        status = rmq_mapped_file_map(files->last, err);
    if (status != RMQ_OK)
        return status;

    int64_t at = atomic_load_explicit(&files->last->wrote, memory_order_relaxed);
    assert(size <= files->last->size - TAIL_SIZE - at);
    return rmq_mapped_file_reserve(files->last, at + size, files->options.window, err);
}

int rmq_consume_queue_ext_append(struct rmq_consume_queue_ext *ext, const struct rmq_ext_unit *unit,
                                 int64_t *address, struct rmq_error *err)
{
    assert(!ext->files.options.read_only);

    int64_t file_size = ext->files.options.file_size;
    int32_t limit = RMQ_EXT_UNIT_SIZE_MAX - RMQ_EXT_HEAD_SIZE;
    if (file_size - TAIL_SIZE < RMQ_EXT_UNIT_SIZE_MAX)
        limit = (int32_t)file_size - TAIL_SIZE - RMQ_EXT_HEAD_SIZE;
    if (unit->bitmap_size < 0 || unit->bitmap_size > limit)
        return rmq_fail(err, RMQ_INVALID, -1,
                        "consume queue extension %s: a filter bitmap of %" PRId32
                        " bytes is over the limit of %" PRId32,
                        ext->files.options.directories[0], unit->bitmap_size, limit);

    int32_t size = RMQ_EXT_HEAD_SIZE + unit->bitmap_size;
    int status = make_room(ext, size, err);
    if (status != RMQ_OK)
        return status;

    struct rmq_mapped_file *last = ext->files.last;
    int64_t at = atomic_load_explicit(&last->wrote, memory_order_relaxed);

    uint8_t *bytes = rmq_mapped_file_base(last) + at;
    rmq_put_i16(bytes, (int16_t)size);
    rmq_put_i64(bytes + 2, unit->tags_code);
    rmq_put_i64(bytes + 10, unit->store_timestamp);
    rmq_put_i16(bytes + 18, (int16_t)unit->bitmap_size);
    if (unit->bitmap_size > 0)
        memcpy(bytes + RMQ_EXT_HEAD_SIZE, unit->bitmap, (size_t)unit->bitmap_size);

    *address = last->start + at + INT64_MIN;
    assert(rmq_ext_is_address(*address));
    rmq_file_queue_advance(&ext->files, at + size);
    return RMQ_OK;
}

int rmq_consume_queue_ext_read(struct rmq_consume_queue_ext *ext, int64_t address, uint8_t *buffer,
                               struct rmq_ext_unit *unit, struct rmq_error *err)
{
    assert(buffer && unit);

    int64_t offset = rmq_ext_is_address(address) ? rmq_ext_offset(address) : -1;
    int64_t end = rmq_file_queue_end(&ext->files);
    struct rmq_mapped_file *file = NULL;

    int status = RMQ_NOT_FOUND;
    if (offset >= 0 && offset < end) {
        status = rmq_file_queue_pin(&ext->files, offset, &file, err);
        if (status != RMQ_OK && status != RMQ_NOT_FOUND)
            return status;
    }

    int32_t size = 0;
    if (file) {
        const uint8_t *base = rmq_mapped_file_base(file);
        size = unit_size_at(file, base, offset - file->start);
        assert(size <= RMQ_EXT_UNIT_SIZE_MAX);
        if (size > end - offset)
            size = 0;
        if (size)
            memcpy(buffer, base + (offset - file->start), (size_t)size);
        rmq_mapped_file_unpin(file);
    }

    if (!size)
        return rmq_fail(err, RMQ_NOT_FOUND, offset,
                        "consume queue extension %s: no unit at address %" PRId64,
                        ext->files.options.directories[0], address);

    unit->tags_code = rmq_get_i64(buffer + 2);
    unit->store_timestamp = rmq_get_i64(buffer + 10);
    unit->bitmap_size = size - RMQ_EXT_HEAD_SIZE;
    unit->bitmap = buffer + RMQ_EXT_HEAD_SIZE;
    return RMQ_OK;
}

int rmq_consume_queue_ext_end_of(struct rmq_consume_queue_ext *ext, int64_t last, int64_t *end,
                                 struct rmq_error *err)
{
    assert(end);

    *end = 0;
    if (!rmq_ext_is_address(last))
        return RMQ_OK;

    uint8_t buffer[RMQ_EXT_UNIT_SIZE_MAX];
    struct rmq_ext_unit unit;
    int status = rmq_consume_queue_ext_read(ext, last, buffer, &unit, err);
    if (status == RMQ_OK)
        *end = rmq_ext_offset(last) + RMQ_EXT_HEAD_SIZE + unit.bitmap_size;
    return status;
}

void rmq_consume_queue_ext_rewind(struct rmq_consume_queue_ext *ext, int64_t end)
{
    assert(end >= 0);
    rmq_file_queue_rewind(&ext->files, end);
}

int rmq_consume_queue_ext_truncate(struct rmq_consume_queue_ext *ext, int64_t end,
                                   struct rmq_error *err)
{
    assert(end >= 0);

    return end > 0 ? rmq_file_queue_truncate(&ext->files, end, err)
                   : rmq_file_queue_clear(&ext->files, err);
}

int rmq_consume_queue_ext_expire(struct rmq_consume_queue_ext *ext, int64_t first,
                                 struct rmq_error *err)
{
    int64_t start = rmq_file_queue_start(&ext->files);
    if (!rmq_ext_is_address(first) || start < 0 || ext->files.options.read_only)
        return RMQ_OK;

    int64_t before = rmq_ext_offset(first) - start;
    if (before < ext->files.options.file_size)
        return RMQ_OK;
    return rmq_file_queue_delete_head(&ext->files, (size_t)(before / ext->files.options.file_size),
                                      err);
}

int rmq_consume_queue_ext_flush(struct rmq_consume_queue_ext *ext, struct rmq_error *err)
{
    return rmq_file_queue_flush(&ext->files, err);
}
