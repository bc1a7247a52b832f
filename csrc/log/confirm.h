/* confirm.h -- the confirm offset: up to where the log is confirmed, as a value with a mode.
 *
 *   mode     the dispatcher and readers reach
 *   UNSET    the log's end: the store is not a replica, and no record is held back
 *   BOUND    the offset, or the log's end if that is lower
 *   LOG_END  the log's end: every byte is confirmed once it is in the log
 *
 * Every put and the dispatcher read the shared confirm offset, and acknowledgements raise it. It is
 * therefore one lock-free atomic integer. Only this file knows the form of that integer, and the
 * form of the confirm offset in the checkpoint.
 */
#ifndef RMQ_CONFIRM_H
#define RMQ_CONFIRM_H

#include <assert.h>
#include <stdatomic.h>
#include <stdbool.h>

#include "file/checkpoint.h"

/* In the order in which a confirm offset rises. */
enum rmq_confirm_mode { RMQ_CONFIRM_UNSET, RMQ_CONFIRM_BOUND, RMQ_CONFIRM_LOG_END };

struct rmq_confirm {
    enum rmq_confirm_mode mode;
    int64_t offset; /* BOUND: 0 or more, below INT64_MAX; else 0 */
};

static inline struct rmq_confirm rmq_confirm_unset(void)
{
    return (struct rmq_confirm){.mode = RMQ_CONFIRM_UNSET};
}

static inline struct rmq_confirm rmq_confirm_at(int64_t offset)
{
    return (struct rmq_confirm){.mode = RMQ_CONFIRM_BOUND, .offset = offset};
}

static inline struct rmq_confirm rmq_confirm_log_end(void)
{
    return (struct rmq_confirm){.mode = RMQ_CONFIRM_LOG_END};
}

static inline bool rmq_confirm_is_below(struct rmq_confirm left, struct rmq_confirm right)
{
    return left.mode < right.mode || (left.mode == right.mode && left.offset < right.offset);
}

/* The offset that the dispatcher and readers reach in a log, or a part of it, that ends at end. */
static inline int64_t rmq_confirm_limit(struct rmq_confirm confirm, int64_t end)
{
    return confirm.mode == RMQ_CONFIRM_BOUND && confirm.offset < end ? confirm.offset : end;
}

/* ---- the shared confirm offset ---- */

struct rmq_shared_confirm {
    _Atomic int64_t packed;
};
_Static_assert(sizeof(struct rmq_shared_confirm) == 8 && ATOMIC_LLONG_LOCK_FREE == 2,
               "the shared confirm offset is one lock-free integer of 8 bytes");

static inline int64_t rmq_confirm_pack(struct rmq_confirm confirm)
{
    switch (confirm.mode) {
    case RMQ_CONFIRM_UNSET:
        return -1;
    case RMQ_CONFIRM_LOG_END:
        return INT64_MAX;
    case RMQ_CONFIRM_BOUND:
        break;
    }
    assert(confirm.offset >= 0 && confirm.offset < INT64_MAX);
    return confirm.offset;
}

static inline struct rmq_confirm rmq_confirm_unpack(int64_t packed)
{
    if (packed < 0)
        return rmq_confirm_unset();
    return packed == INT64_MAX ? rmq_confirm_log_end() : rmq_confirm_at(packed);
}

static inline struct rmq_confirm rmq_confirm_load(const struct rmq_shared_confirm *shared)
{
    return rmq_confirm_unpack(atomic_load(&shared->packed));
}

static inline void rmq_confirm_store(struct rmq_shared_confirm *shared, struct rmq_confirm confirm)
{
    atomic_store(&shared->packed, rmq_confirm_pack(confirm));
}

/* False: the shared confirm offset is not below confirm, and stays. */
static inline bool rmq_confirm_raise(struct rmq_shared_confirm *shared, struct rmq_confirm confirm)
{
    int64_t before = atomic_load_explicit(&shared->packed, memory_order_relaxed);
    while (rmq_confirm_is_below(rmq_confirm_unpack(before), confirm))
        if (atomic_compare_exchange_weak(&shared->packed, &before, rmq_confirm_pack(confirm)))
            return true;
    return false;
}

/* ---- the confirm offset in the checkpoint ---- */

/* A bound at offset, as the checkpoint keeps it. */
static inline int64_t rmq_confirm_to_checkpoint(int64_t offset)
{
    assert(offset >= 0);
    return offset > 0 ? offset : RMQ_NOTHING_CONFIRMED;
}

static inline struct rmq_confirm rmq_confirm_from_checkpoint(int64_t kept)
{
    if (kept == RMQ_NOTHING_CONFIRMED)
        return rmq_confirm_at(0);
    return kept > 0 ? rmq_confirm_at(kept) : rmq_confirm_unset();
}

#endif
