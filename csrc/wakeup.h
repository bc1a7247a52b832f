/* wakeup.h -- tells a thread that waits for descriptors that the log has grown.
 *
 * Whoever follows the log arms its wakeup when it has seen everything; the next append makes the
 * descriptor readable. An append looks at one flag and makes no call of the system unless somebody
 * is armed. Armed once, told once: after being told, clear and arm anew.
 */
#ifndef RMQ_WAKEUP_H
#define RMQ_WAKEUP_H

#include "file_queue.h"

/* A store's wakeups. */
struct rmq_wakeups {
    const struct rmq_file_queue *files;
    pthread_mutex_t lock; /* the list, and who is armed */
    struct rmq_wakeup *first;
    _Atomic bool is_armed;    /* one of them may be */
    _Atomic bool needs_fence; /* who appends must order its store and its look at is_armed itself */
};

struct rmq_wakeup {
    struct rmq_wakeups *owner;
    struct rmq_wakeup *next;
    int fd; /* an eventfd, non-blocking */
    bool is_armed;
};

void rmq_wakeups_init(struct rmq_wakeups *wakeups, const struct rmq_file_queue *files);
/* Nobody appends any more. Wakeups that are still open may only be abandoned. */
void rmq_wakeups_destroy(struct rmq_wakeups *wakeups);
/* The slow half of rmq_wakeups_nudge. */
void rmq_wakeups_tell(struct rmq_wakeups *wakeups);

/* After an append. The fence between what was stored and the look at the flag is the business of
 * whoever arms, as in rmq_dispatcher_nudge; only where the system offers none for all threads it is
 * made here. */
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
/* On return nobody who appends touches it. */
void rmq_wakeup_close(struct rmq_wakeup *wakeup);
/* Lets the descriptor go after the store is gone. */
void rmq_wakeup_abandon(struct rmq_wakeup *wakeup);
/* True when the log ends behind seen_end already: not armed. Else the descriptor becomes readable
 * once it does. */
bool rmq_wakeup_arm(struct rmq_wakeup *wakeup, int64_t seen_end);
/* Disarms, and the descriptor is readable no more. */
void rmq_wakeup_clear(struct rmq_wakeup *wakeup);

#endif
