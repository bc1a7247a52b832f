/* wakeup.h -- wakes a thread that waits for descriptors when an offset of the log has moved.
 *
 * The offset is the log's end, or how far the log is flushed, dispatched or confirmed. A follower
 * arms its wakeup when it has read everything; the next move makes the descriptor readable. The
 * thread that moves the offset reads one flag, and makes a system call only if a follower is armed.
 * An armed wakeup notifies once: afterwards, clear and arm it again.
 */
#ifndef RMQ_WAKEUP_H
#define RMQ_WAKEUP_H

#include <pthread.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>

#include "base/status.h"

/* The wakeups of one offset of a store. */
struct rmq_wakeups {
    int64_t (*offset)(const void *subject); /* the present offset */
    const void *subject;
    pthread_mutex_t lock; /* protects the list and the armed marks */
    struct rmq_wakeup *first;
    _Atomic bool is_armed;    /* some wakeup may be armed */
    _Atomic bool needs_fence; /* no system-wide fence: the thread that moves the offset must order
                                 its store before its read of is_armed */
};

struct rmq_wakeup {
    struct rmq_wakeups *owner;
    struct rmq_wakeup *next;
    int fd; /* an eventfd, non-blocking */
    bool is_armed;
};

void rmq_wakeups_init(struct rmq_wakeups *wakeups, int64_t (*offset)(const void *subject),
                      const void *subject);
/* The offset must no longer move. A wakeup that is still open may only be abandoned afterwards. */
void rmq_wakeups_destroy(struct rmq_wakeups *wakeups);
/* The slow half of rmq_wakeups_nudge. */
void rmq_wakeups_tell(struct rmq_wakeups *wakeups);

/* After the offset has moved. The arming thread makes the fence between this thread's store and its
 * read of the flag, as in rmq_dispatcher_nudge. The fence is made here only where the system has
 * none for all threads. */
static inline void rmq_wakeups_nudge(struct rmq_wakeups *wakeups)
{
    atomic_signal_fence(memory_order_seq_cst);
    if (atomic_load_explicit(&wakeups->needs_fence, memory_order_relaxed))
        atomic_thread_fence(memory_order_seq_cst);
    if (atomic_load_explicit(&wakeups->is_armed, memory_order_relaxed))
        rmq_wakeups_tell(wakeups);
}

/* One thread at a time uses a wakeup. RMQ_IO: no descriptor is left. */
int rmq_wakeup_open(struct rmq_wakeup *wakeup, struct rmq_wakeups *wakeups, struct rmq_error *err);
/* After return no thread that moves the offset uses the wakeup. */
void rmq_wakeup_close(struct rmq_wakeup *wakeup);
/* Closes the descriptor after the store was closed. */
void rmq_wakeup_abandon(struct rmq_wakeup *wakeup);
/* True when the offset is above seen already; the wakeup is then not armed. Otherwise the
 * descriptor becomes readable once the offset moves. */
bool rmq_wakeup_arm(struct rmq_wakeup *wakeup, int64_t seen);
/* Disarms; the descriptor is no longer readable. */
void rmq_wakeup_clear(struct rmq_wakeup *wakeup);

#endif
