/* target_timer.c -- the timer log, over files of any content. */
#include <stdlib.h>
#include <string.h>

#include "fuzz.h"
#include "memory_vfs.h"
#include "timer/timer_log.h"

#define FOLDER "/timerlog"
#define FILES_MAX 3

/* Walks all units and returns where they end; each chain leads back. */
static int64_t walk(struct rmq_timer_log *log, int64_t *count)
{
    struct rmq_timer_unit unit, before;
    struct rmq_error err = {0};
    int64_t position = rmq_file_queue_start(&log->files);
    int status = RMQ_END;
    *count = 0;
    while (position >= 0 && (status = rmq_timer_log_next(log, &position, &unit, &err)) == RMQ_OK) {
        FUZZ_REQUIRE(unit.position == position && unit.previous < position && unit.size > 0);
        int64_t at = unit.previous;
        while (at >= 0 && rmq_timer_log_read(log, at, &before, &err) == RMQ_OK) {
            FUZZ_REQUIRE(before.previous < at);
            at = before.previous;
        }
        position += RMQ_TIMER_UNIT_SIZE;
        ++*count;
    }
    FUZZ_REQUIRE(status == RMQ_END);
    return position < 0 ? 0 : position;
}

/* size of files 1, files 1, appends 1, 8 unused, content. */
void fuzz_timer_log(const uint8_t *data, size_t size)
{
    struct fuzz_input input = {data, size};
    struct rmq_error err = {0};
    struct rmq_timer_log log;
    struct memory_vfs *vfs = memory_vfs_new();
    int64_t file_size = RMQ_TIMER_UNIT_SIZE + RMQ_TIMER_BLANK_SIZE + (int64_t)fuzz_take(&input, 1);
    size_t files = (size_t)(fuzz_take(&input, 1) % (FILES_MAX + 1));
    int appends = (int)(fuzz_take(&input, 1) & 31);
    (void)fuzz_take(&input, 8);
    memory_vfs_add_queue(vfs, FOLDER, 0, file_size, files, &input);

    int status = rmq_timer_log_open(&log, memory_vfs_door(vfs), FOLDER, file_size, &err);
    FUZZ_ALLOW(status, &err, FUZZ_BIT(CORRUPT));
    if (status == RMQ_OK) {
        int64_t found = 0, again = 0;
        int64_t end = walk(&log, &found);
        if (files)
            FUZZ_REQUIRE(rmq_timer_log_end_at(&log, end, &err) == RMQ_OK);
        for (int i = 0; i < appends; ++i) {
            struct rmq_timer_unit unit = {
                .previous = -1, .magic = RMQ_TIMER_DEFAULT, .size = 100, .physical_offset = i};
            FUZZ_REQUIRE(rmq_timer_log_append(&log, &unit, &err) == RMQ_OK);
        }
        (void)walk(&log, &again);
        FUZZ_REQUIRE(again == found + appends);
        FUZZ_REQUIRE(rmq_timer_log_flush(&log, &err) == RMQ_OK);
        FUZZ_REQUIRE(rmq_timer_log_delete_before(&log, 5, &err) == RMQ_OK);
        rmq_timer_log_close(&log);
    }
    memory_vfs_free(vfs);
}
