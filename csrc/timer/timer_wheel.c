#include "timer/timer_wheel.h"

#include <assert.h>
#include <stdlib.h>

#include "base/bytes.h"

#define PAGE_SIZE 4096
#define PAGES ((size_t)(RMQ_TIMER_WHEEL_SIZE / PAGE_SIZE))

_Static_assert(RMQ_TIMER_WHEEL_SIZE == 38707200, "size of the file");
_Static_assert(RMQ_TIMER_WHEEL_SIZE % PAGE_SIZE == 0, "whole pages");

enum field {
    AT_TIME = 0,
    AT_FIRST = 8,
    AT_LAST = 16,
    AT_COUNT = 24,
    AT_MAGIC = 28,
};

static int64_t place_of(int64_t time)
{
    assert(time >= 0);
    return time % RMQ_TIMER_SLOTS * RMQ_TIMER_SLOT_SIZE;
}

/* Gives the file its size, which is not that of a new one or of a damaged one. */
static int set_size(struct rmq_timer_wheel *wheel, const char *path, struct rmq_error *err)
{
    assert(wheel->fd >= 0);

    struct rmq_file_info info;
    int status = wheel->vfs->stat(wheel->vfs, path, &info, err);
    if (status == RMQ_OK && info.size != RMQ_TIMER_WHEEL_SIZE)
        status = wheel->vfs->resize(wheel->vfs, wheel->fd, RMQ_TIMER_WHEEL_SIZE, err);
    return status;
}

int rmq_timer_wheel_open(struct rmq_timer_wheel *wheel, struct rmq_vfs *vfs, const char *path,
                         struct rmq_error *err)
{
    assert(wheel && path);

    *wheel = (struct rmq_timer_wheel){.vfs = vfs, .fd = -1};
    int status = vfs->open(vfs, path, RMQ_OPEN_WRITE | RMQ_OPEN_CREATE, &wheel->fd, err);
    if (status == RMQ_OK)
        status = set_size(wheel, path, err);
    if (status == RMQ_OK) {
        /* Pages without slots stay without memory. */
        wheel->slots = calloc(1, (size_t)RMQ_TIMER_WHEEL_SIZE);
        wheel->changed = calloc(1, PAGES);
        if (!wheel->slots || !wheel->changed)
            status = rmq_fail(err, RMQ_NO_MEMORY, -1, "no memory for the timer wheel");
    }
    if (status != RMQ_OK)
        rmq_timer_wheel_close(wheel);
    return status;
}

void rmq_timer_wheel_close(struct rmq_timer_wheel *wheel)
{
    assert(wheel);

    if (wheel->fd >= 0)
        (void)wheel->vfs->close(wheel->vfs, wheel->fd, NULL);
    free(wheel->slots);
    free(wheel->changed);
    wheel->fd = -1;
    wheel->slots = wheel->changed = NULL;
}

void rmq_timer_wheel_add(struct rmq_timer_wheel *wheel, int64_t time, int64_t position, int32_t by)
{
    assert(time > 0 && position >= 0);
    assert(by == 1 || by == -1);

    int64_t place = place_of(time);
    uint8_t *at = wheel->slots + place;
    struct rmq_timer_slot slot;
    bool is_new = !rmq_timer_wheel_get(wheel, time, &slot);

    rmq_put_i64(at + AT_TIME, time);
    rmq_put_i64(at + AT_FIRST, is_new ? position : slot.first);
    rmq_put_i64(at + AT_LAST, position);
    rmq_put_i32(at + AT_COUNT, is_new ? by : slot.count + by);
    rmq_put_i32(at + AT_MAGIC, 0);
    wheel->changed[place / PAGE_SIZE] = 1;
}

bool rmq_timer_wheel_get(const struct rmq_timer_wheel *wheel, int64_t time,
                         struct rmq_timer_slot *slot)
{
    assert(wheel->slots && slot);

    const uint8_t *at = wheel->slots + place_of(time);
    slot->time = rmq_get_i64(at + AT_TIME);
    slot->first = rmq_get_i64(at + AT_FIRST);
    slot->last = rmq_get_i64(at + AT_LAST);
    slot->count = rmq_get_i32(at + AT_COUNT);
    slot->magic = rmq_get_i32(at + AT_MAGIC);
    return slot->time == time && time > 0;
}

int64_t rmq_timer_wheel_next(const struct rmq_timer_wheel *wheel, int64_t from, int64_t upto)
{
    assert(from >= 0);

    int64_t end = upto - from > RMQ_TIMER_SLOTS ? from + RMQ_TIMER_SLOTS : upto;
    for (int64_t time = from; time < end; ++time) {
        if (rmq_get_i64(wheel->slots + place_of(time)) == time)
            return time;
    }
    return upto;
}

int64_t rmq_timer_wheel_count(const struct rmq_timer_wheel *wheel, int64_t from)
{
    assert(from >= 0);

    int64_t sum = 0;
    for (int64_t time = from; time < from + RMQ_TIMER_SLOTS; ++time) {
        const uint8_t *at = wheel->slots + place_of(time);
        if (rmq_get_i64(at) == time)
            sum += rmq_get_i32(at + AT_COUNT);
    }
    return sum;
}

int rmq_timer_wheel_compare(struct rmq_timer_wheel *wheel, struct rmq_error *err)
{
    assert(wheel->fd >= 0 && wheel->slots);

    uint8_t page[PAGE_SIZE];
    for (size_t i = 0; i < PAGES; ++i) {
        size_t got = 0;
        int64_t at = (int64_t)i * PAGE_SIZE;
        int status = wheel->vfs->read(wheel->vfs, wheel->fd, page, sizeof page, at, &got, err);
        if (status != RMQ_OK)
            return status;
        wheel->changed[i] = got != sizeof page || memcmp(page, wheel->slots + at, got) != 0;
    }
    return RMQ_OK;
}

int rmq_timer_wheel_flush(struct rmq_timer_wheel *wheel, struct rmq_error *err)
{
    assert(wheel->fd >= 0 && wheel->slots);

    for (size_t i = 0; i < PAGES; ++i) {
        size_t end = i;
        while (end < PAGES && wheel->changed[end])
            ++end;
        if (end == i)
            continue;

        int64_t at = (int64_t)i * PAGE_SIZE;
        size_t size = (end - i) * PAGE_SIZE;
        int status = wheel->vfs->write(wheel->vfs, wheel->fd, wheel->slots + at, size, at, err);
        if (status != RMQ_OK)
            return status;
        memset(wheel->changed + i, 0, end - i);
        i = end;
    }
    return wheel->vfs->sync(wheel->vfs, wheel->fd, err);
}
