/* turn.h -- one writer's turn at the end of the commit log.
 *
 * A writer takes the put lock, makes room for a record, encodes the record there, moves the end and
 * releases the lock. Puts (commit_log.c) and runs of records (place.h) take turns in the same way.
 * The steps of nearly every put are inline; the rare ones are in turn.c.
 */
#ifndef RMQ_TURN_H
#define RMQ_TURN_H

#include "log/commit_log.h"

/* The rare parts of the functions below. */
int rmq_turn_check_busy(const struct rmq_commit_log *log, int64_t since_ms, struct rmq_error *err);
int rmq_turn_refuse(struct rmq_error *err);
int rmq_turn_make_room_slowly(struct rmq_commit_log *log, int64_t size, uint8_t **place,
                              struct rmq_error *err);

/* Takes the put lock and reads the clock under it. is_long: other writers may find that the lock is
 * held too long. RMQ_PAGE_CACHE_BUSY: another writer holds the lock too long. RMQ_NOT_WRITABLE: the
 * log is shut. In both cases the lock is not taken. */
static inline int rmq_turn_begin(struct rmq_commit_log *log, bool is_long, int64_t *now_ms,
                                 struct rmq_error *err)
{
    int64_t since_ms = atomic_load_explicit(&log->locked_since_ms, memory_order_relaxed);
    if (since_ms) {
        int status = rmq_turn_check_busy(log, since_ms, err);
        if (status != RMQ_OK)
            return status;
    }

    rmq_spin_lock(&log->put_lock);
    if (log->is_shut) {
        rmq_spin_unlock(&log->put_lock);
        return rmq_turn_refuse(err);
    }

    *now_ms = rmq_clock_now(log->clock);
    if (is_long)
        atomic_store_explicit(&log->locked_since_ms, rmq_monotonic_ms(), memory_order_relaxed);
    return RMQ_OK;
}

static inline void rmq_turn_end(struct rmq_commit_log *log, bool is_long)
{
    if (is_long)
        atomic_store_explicit(&log->locked_since_ms, 0, memory_order_relaxed);
    rmq_spin_unlock(&log->put_lock);
}

/* Finds the place for size bytes, with the 8 bytes of a blank record after them, at the end of the
 * log: the caller, which holds the put lock, stores the bytes there and moves the end. size is at
 * most the file size less these 8. */
static inline int rmq_turn_make_room(struct rmq_commit_log *log, int64_t size, uint8_t **place,
                                     struct rmq_error *err)
{
    struct rmq_mapped_file *last = log->files.last;
    if (!last || !rmq_mapped_file_base(last))
        return rmq_turn_make_room_slowly(log, size, place, err);

    int64_t wrote = atomic_load_explicit(&last->wrote, memory_order_relaxed);
    if (size > last->size - RMQ_BLANK_SIZE - wrote)
        return rmq_turn_make_room_slowly(log, size, place, err);
    if (wrote + size > atomic_load_explicit(&last->reserved, memory_order_relaxed))
        return rmq_turn_make_room_slowly(log, size, place, err);

    *place = rmq_mapped_file_base(last) + wrote;
    return RMQ_OK;
}

#endif
