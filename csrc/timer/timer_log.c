#include "timer/timer_log.h"

#include <assert.h>

#include "base/bytes.h"

#define BLANK_MAGIC ((int32_t)0xcbd43194)
#define MAGIC_BITS (RMQ_TIMER_DEFAULT | RMQ_TIMER_ROLL | RMQ_TIMER_DELETE)
#define WINDOW (1LL << 20)
#define TIME_MAX (1LL << 60)

enum field {
    AT_SIZE = 0,
    AT_PREVIOUS = 4,
    AT_MAGIC = 12,
    AT_WRITE_MS = 16,
    AT_DELAY_MS = 24,
    AT_PHYSICAL_OFFSET = 28,
    AT_MESSAGE_SIZE = 36,
    AT_TOPIC_HASH = 40,
    AT_RESERVED = 44,
};

_Static_assert(AT_RESERVED + 8 == RMQ_TIMER_UNIT_SIZE, "unit layout");

static void encode(uint8_t *at, const struct rmq_timer_unit *unit)
{
    assert((unit->magic & RMQ_TIMER_DEFAULT) != 0 && (unit->magic & ~MAGIC_BITS) == 0);
    assert(unit->previous < unit->position);

    rmq_put_i64(at + AT_PREVIOUS, unit->previous);
    rmq_put_i32(at + AT_MAGIC, unit->magic);
    rmq_put_i64(at + AT_WRITE_MS, unit->write_ms);
    rmq_put_i32(at + AT_DELAY_MS, unit->delay_ms);
    rmq_put_i64(at + AT_PHYSICAL_OFFSET, unit->physical_offset);
    rmq_put_i32(at + AT_MESSAGE_SIZE, unit->size);
    rmq_put_i32(at + AT_TOPIC_HASH, unit->topic_hash);
    rmq_put_i64(at + AT_RESERVED, 0);
    rmq_put_i32(at + AT_SIZE, RMQ_TIMER_UNIT_SIZE);
}

/* Returns whether the bytes are a whole unit. */
static bool decode(const uint8_t *at, int64_t position, struct rmq_timer_unit *unit)
{
    assert(at && unit);

    unit->position = position;
    unit->previous = rmq_get_i64(at + AT_PREVIOUS);
    unit->magic = rmq_get_i32(at + AT_MAGIC);
    unit->write_ms = rmq_get_i64(at + AT_WRITE_MS);
    unit->delay_ms = rmq_get_i32(at + AT_DELAY_MS);
    unit->physical_offset = rmq_get_i64(at + AT_PHYSICAL_OFFSET);
    unit->size = rmq_get_i32(at + AT_MESSAGE_SIZE);
    unit->topic_hash = rmq_get_i32(at + AT_TOPIC_HASH);
    return rmq_get_i32(at + AT_SIZE) == RMQ_TIMER_UNIT_SIZE && unit->magic > 0 &&
           (unit->magic & ~MAGIC_BITS) == 0 && unit->physical_offset >= 0 && unit->size > 0 &&
           unit->previous >= -1 && unit->previous < position && unit->write_ms >= 0 &&
           unit->write_ms < TIME_MAX;
}

/* Whether a unit fits at a place of a file. */
static bool fits(const struct rmq_timer_log *log, int64_t at)
{
    return at + RMQ_TIMER_UNIT_SIZE + RMQ_TIMER_BLANK_SIZE <= log->files.options.file_size;
}

int rmq_timer_log_open(struct rmq_timer_log *log, struct rmq_vfs *vfs, const char *directory,
                       int64_t file_size, struct rmq_error *err)
{
    assert(log && directory);
    if (file_size < RMQ_TIMER_UNIT_SIZE + RMQ_TIMER_BLANK_SIZE)
        return rmq_fail(err, RMQ_INVALID, -1, "files of %lld bytes hold no unit of the timer log",
                        (long long)file_size);

    struct rmq_file_queue_options options = {
        .vfs = vfs,
        .directories = &directory,
        .directory_count = 1,
        .file_size = file_size,
        .window = WINDOW,
    };
    return rmq_file_queue_open(&log->files, &options, err);
}

void rmq_timer_log_close(struct rmq_timer_log *log)
{
    rmq_file_queue_close(&log->files);
}

int rmq_timer_log_read(struct rmq_timer_log *log, int64_t position, struct rmq_timer_unit *unit,
                       struct rmq_error *err)
{
    assert(unit);

    struct rmq_mapped_file *file = NULL;
    int status = rmq_file_queue_pin(&log->files, position, &file, err);
    if (status != RMQ_OK)
        return status;

    int64_t at = position - file->start;
    assert(at >= 0 && at < file->size);
    bool is_unit = fits(log, at) && decode(rmq_mapped_file_base(file) + at, position, unit);
    rmq_mapped_file_unpin(file);
    return is_unit ? RMQ_OK : rmq_fail(err, RMQ_NOT_FOUND, position, "no unit of the timer log");
}

/* Whether a blank is at position. */
static int is_blank(struct rmq_timer_log *log, int64_t position, bool *found, struct rmq_error *err)
{
    struct rmq_mapped_file *file = NULL;
    int status = rmq_file_queue_pin(&log->files, position, &file, err);
    if (status != RMQ_OK)
        return status;

    int64_t at = position - file->start;
    assert(at >= 0 && at < file->size);
    const uint8_t *bytes = rmq_mapped_file_base(file) + at;
    *found = at + RMQ_TIMER_BLANK_SIZE <= file->size &&
             rmq_get_i32(bytes) == (int32_t)(file->size - at) &&
             rmq_get_i32(bytes + AT_MAGIC) == BLANK_MAGIC;
    rmq_mapped_file_unpin(file);
    return RMQ_OK;
}

int rmq_timer_log_next(struct rmq_timer_log *log, int64_t *position, struct rmq_timer_unit *unit,
                       struct rmq_error *err)
{
    assert(*position >= 0);

    int64_t file_size = log->files.options.file_size;
    while (*position < rmq_file_queue_end(&log->files)) {
        int status = rmq_timer_log_read(log, *position, unit, err);
        if (status != RMQ_NOT_FOUND)
            return status;

        bool found = false;
        status = is_blank(log, *position, &found, err);
        if (status != RMQ_OK)
            return status;
        if (!found)
            return RMQ_END;
        *position = (*position / file_size + 1) * file_size;
    }
    return RMQ_END;
}

int rmq_timer_log_end_at(struct rmq_timer_log *log, int64_t position, struct rmq_error *err)
{
    return rmq_file_queue_truncate(&log->files, position, err);
}

/* Fills the rest of the last file. */
static int fill(struct rmq_timer_log *log, int64_t at, struct rmq_error *err)
{
    struct rmq_mapped_file *last = log->files.last;
    assert(at + RMQ_TIMER_BLANK_SIZE <= last->size);
    int status = rmq_mapped_file_reserve(last, last->size, WINDOW, err);
    if (status != RMQ_OK)
        return status;

    uint8_t *bytes = rmq_mapped_file_base(last) + at;
    rmq_put_i64(bytes + AT_PREVIOUS, 0);
    rmq_put_i32(bytes + AT_MAGIC, BLANK_MAGIC);
    rmq_put_i32(bytes + AT_SIZE, (int32_t)(last->size - at));
    rmq_file_queue_advance(&log->files, last->size);
    return RMQ_OK;
}

int rmq_timer_log_append(struct rmq_timer_log *log, struct rmq_timer_unit *unit,
                         struct rmq_error *err)
{
    assert(unit->size > 0 && unit->physical_offset >= 0);

    struct rmq_file_queue *files = &log->files;
    int64_t at = 0;
    int status = RMQ_OK;
    if (files->last) {
        at = atomic_load_explicit(&files->last->wrote, memory_order_relaxed);
        if (at < files->last->size && !fits(log, at))
            status = fill(log, at, err);
    }

    if (status == RMQ_OK && (!files->last || !fits(log, at))) {
        at = 0;
        status = rmq_file_queue_roll(files, 0, NULL, err);
    }
    if (status == RMQ_OK)
        status = rmq_mapped_file_map(files->last, err);
    if (status == RMQ_OK)
        status = rmq_mapped_file_reserve(files->last, at + RMQ_TIMER_UNIT_SIZE, WINDOW, err);
    if (status != RMQ_OK)
        return status;

    unit->position = files->last->start + at;
    assert(fits(log, at) && unit->previous < unit->position);
    encode(rmq_mapped_file_base(files->last) + at, unit);
    rmq_file_queue_advance(files, at + RMQ_TIMER_UNIT_SIZE);
    return RMQ_OK;
}

int rmq_timer_log_flush(struct rmq_timer_log *log, struct rmq_error *err)
{
    return rmq_file_queue_flush(&log->files, err);
}

int rmq_timer_log_delete_before(struct rmq_timer_log *log, int64_t physical_offset,
                                struct rmq_error *err)
{
    int64_t file_size = log->files.options.file_size;
    int64_t units = (file_size - RMQ_TIMER_BLANK_SIZE) / RMQ_TIMER_UNIT_SIZE;
    assert(units > 0 && physical_offset >= 0);
    int64_t start = rmq_file_queue_start(&log->files);
    size_t count = 0;
    struct rmq_timer_unit unit;
    while (start >= 0 && count + 1 < log->files.count) {
        int64_t last = start + (int64_t)count * file_size + (units - 1) * RMQ_TIMER_UNIT_SIZE;
        int status = rmq_timer_log_read(log, last, &unit, err);
        if (status != RMQ_OK && status != RMQ_NOT_FOUND)
            return status;
        if (status == RMQ_NOT_FOUND || unit.physical_offset >= physical_offset)
            break;
        ++count;
    }
    return count ? rmq_file_queue_delete_head(&log->files, count, err) : RMQ_OK;
}
