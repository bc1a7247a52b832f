#include "timer/timer_index.h"

#include <assert.h>
#include <limits.h>

static int32_t weight(const struct rmq_timer_unit *unit)
{
    return unit->magic & RMQ_TIMER_DELETE ? -1 : 1;
}

/* Enters the units of the log into the wheel, and ends the log after the last valid one. */
static int rebuild(struct rmq_timer_index *index, int64_t bound, struct rmq_error *err)
{
    assert(index->last_offset == -1 && bound >= 0);

    int64_t position = rmq_file_queue_start(&index->log.files);
    if (position < 0)
        return RMQ_OK;

    struct rmq_timer_unit unit;
    int status = RMQ_OK;
    while ((status = rmq_timer_log_next(&index->log, &position, &unit, err)) == RMQ_OK) {
        int64_t due_ms = unit.write_ms + unit.delay_ms;
        /* Units are in the order of their messages. */
        if (unit.physical_offset >= bound || unit.physical_offset < index->last_offset ||
            due_ms < index->precision_ms)
            break;
        rmq_timer_wheel_add(&index->wheel, due_ms / index->precision_ms, position, weight(&unit));
        index->last_offset = unit.physical_offset;
        position += RMQ_TIMER_UNIT_SIZE;
    }
    if (status != RMQ_OK && status != RMQ_END)
        return status;
    return rmq_timer_log_end_at(&index->log, position, err);
}

struct removal {
    const struct rmq_timer_index_options *options;
    struct rmq_error *err;
};

static int remove_file(void *context, const char *name, bool is_directory)
{
    const struct removal *removal = context;
    assert(removal && name);

    struct rmq_vfs *vfs = removal->options->vfs;
    char path[PATH_MAX];
    int64_t start = 0;
    if (is_directory || !rmq_file_name_parse(name, &start))
        return RMQ_OK;
    int status =
        rmq_path_join(path, sizeof path, removal->options->log_directory, name, removal->err);
    return status == RMQ_OK ? vfs->unlink(vfs, path, removal->err) : status;
}

int rmq_timer_index_clear(const struct rmq_timer_index_options *options, struct rmq_error *err)
{
    assert(options && options->log_directory);

    struct rmq_vfs *vfs = options->vfs;
    struct removal removal = {options, err};
    int status = vfs->list(vfs, options->log_directory, remove_file, &removal, err);
    if (status == RMQ_OK)
        status = vfs->sync_directory(vfs, options->log_directory, err);
    return status == RMQ_NOT_FOUND ? RMQ_OK : status;
}

int rmq_timer_index_open(struct rmq_timer_index *index,
                         const struct rmq_timer_index_options *options, struct rmq_error *err)
{
    assert(index && options->precision_ms > 0);
    assert(options->log_directory && options->wheel_path);

    index->precision_ms = options->precision_ms;
    index->last_offset = -1;
    int status = rmq_timer_wheel_open(&index->wheel, options->vfs, options->wheel_path, err);
    if (status != RMQ_OK)
        return status;
    status = rmq_timer_log_open(&index->log, options->vfs, options->log_directory,
                                options->file_size, err);
    if (status != RMQ_OK) {
        rmq_timer_wheel_close(&index->wheel);
        return status;
    }

    pthread_mutex_init(&index->lock, NULL);
    status = rebuild(index, options->bound, err);
    if (status == RMQ_OK)
        status = rmq_timer_wheel_compare(&index->wheel, err);
    if (status != RMQ_OK)
        rmq_timer_index_close(index);
    return status;
}

void rmq_timer_index_close(struct rmq_timer_index *index)
{
    rmq_timer_log_close(&index->log);
    rmq_timer_wheel_close(&index->wheel);
    pthread_mutex_destroy(&index->lock);
}

int rmq_timer_index_add(struct rmq_timer_index *index, int64_t due_ms, struct rmq_timer_unit *unit,
                        struct rmq_error *err)
{
    assert(index->precision_ms > 0);

    int64_t time = due_ms / index->precision_ms, delay_ms = due_ms - unit->write_ms;
    if ((unit->magic & RMQ_TIMER_DEFAULT) == 0 || unit->physical_offset < index->last_offset)
        return rmq_fail(err, RMQ_INVALID, unit->physical_offset,
                        "the unit is not one after the last, whose message is at %lld",
                        (long long)index->last_offset);
    if (time <= 0 || unit->write_ms < 0 || delay_ms < INT32_MIN || delay_ms > INT32_MAX)
        return rmq_fail(err, RMQ_INVALID, -1, "a unit of time %lld cannot be due at %lld",
                        (long long)unit->write_ms, (long long)due_ms);

    pthread_mutex_lock(&index->lock);
    struct rmq_timer_slot slot;
    unit->previous = rmq_timer_wheel_get(&index->wheel, time, &slot) ? slot.last : -1;
    unit->delay_ms = (int32_t)delay_ms;
    int status = rmq_timer_log_append(&index->log, unit, err);
    if (status == RMQ_OK) {
        rmq_timer_wheel_add(&index->wheel, time, unit->position, weight(unit));
        index->last_offset = unit->physical_offset;
    }
    pthread_mutex_unlock(&index->lock);
    return status;
}

int rmq_timer_index_units(struct rmq_timer_index *index, int64_t due_ms, int64_t *from,
                          struct rmq_timer_unit *units, size_t capacity, size_t *count,
                          struct rmq_error *err)
{
    assert(*from >= -2 && capacity > 0);

    pthread_mutex_lock(&index->lock);
    struct rmq_timer_slot slot;
    bool is_there = rmq_timer_wheel_get(&index->wheel, due_ms / index->precision_ms, &slot);
    if (*from == -2)
        *from = is_there ? slot.last : -1;

    int status = RMQ_OK;
    *count = 0;
    while (*from >= 0 && *count < capacity && status == RMQ_OK) {
        status = rmq_timer_log_read(&index->log, *from, &units[*count], err);
        if (status == RMQ_OK)
            *from = units[(*count)++].previous;
    }
    if (status == RMQ_NOT_FOUND) {
        *from = -1;
        status = RMQ_OK;
    }
    pthread_mutex_unlock(&index->lock);
    return status;
}

int64_t rmq_timer_index_next(struct rmq_timer_index *index, int64_t from_ms, int64_t upto_ms)
{
    assert(from_ms >= 0);

    int64_t precision_ms = index->precision_ms;
    pthread_mutex_lock(&index->lock);
    int64_t time =
        rmq_timer_wheel_next(&index->wheel, from_ms / precision_ms, upto_ms / precision_ms);
    pthread_mutex_unlock(&index->lock);
    return time * precision_ms;
}

int32_t rmq_timer_index_slot_count(struct rmq_timer_index *index, int64_t due_ms)
{
    assert(due_ms >= 0);

    struct rmq_timer_slot slot;
    pthread_mutex_lock(&index->lock);
    bool is_there = rmq_timer_wheel_get(&index->wheel, due_ms / index->precision_ms, &slot);
    pthread_mutex_unlock(&index->lock);
    return is_there ? slot.count : 0;
}

int64_t rmq_timer_index_count(struct rmq_timer_index *index, int64_t from_ms)
{
    assert(from_ms >= 0);

    pthread_mutex_lock(&index->lock);
    int64_t count = rmq_timer_wheel_count(&index->wheel, from_ms / index->precision_ms);
    pthread_mutex_unlock(&index->lock);
    return count;
}

int rmq_timer_index_flush(struct rmq_timer_index *index, struct rmq_error *err)
{
    assert(index->precision_ms > 0);

    int status = rmq_timer_log_flush(&index->log, err);
    if (status != RMQ_OK)
        return status;
    pthread_mutex_lock(&index->lock);
    status = rmq_timer_wheel_flush(&index->wheel, err);
    pthread_mutex_unlock(&index->lock);
    return status;
}

int rmq_timer_index_delete_before(struct rmq_timer_index *index, int64_t physical_offset,
                                  struct rmq_error *err)
{
    assert(physical_offset >= 0);

    pthread_mutex_lock(&index->lock);
    int status = rmq_timer_log_delete_before(&index->log, physical_offset, err);
    pthread_mutex_unlock(&index->lock);
    return status;
}
