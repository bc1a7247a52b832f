#include "file/wakeup.h"

#include <assert.h>
#include <errno.h>
#include <linux/membarrier.h>
#include <sys/eventfd.h>
#include <sys/syscall.h>
#include <unistd.h>

static bool membarrier(int command)
{
    return syscall(SYS_membarrier, command, 0, 0) == 0;
}

void rmq_wakeups_init(struct rmq_wakeups *wakeups, int64_t (*offset)(const void *subject),
                      const void *subject)
{
    assert(offset);

    wakeups->offset = offset;
    wakeups->subject = subject;

    pthread_mutex_init(&wakeups->lock, NULL);
    wakeups->first = NULL;
    atomic_init(&wakeups->is_armed, false);
    atomic_init(&wakeups->needs_fence, false);
}

void rmq_wakeups_destroy(struct rmq_wakeups *wakeups)
{
    pthread_mutex_destroy(&wakeups->lock);
}

void rmq_wakeups_tell(struct rmq_wakeups *wakeups)
{
    assert(wakeups->offset);

    const uint64_t one = 1;

    pthread_mutex_lock(&wakeups->lock);
    /* Before the checks below: a thread that arms later sets the flag again. */
    atomic_store(&wakeups->is_armed, false);
    for (struct rmq_wakeup *wakeup = wakeups->first; wakeup; wakeup = wakeup->next) {
        if (!wakeup->is_armed)
            continue;
        wakeup->is_armed = false;
        /* A full counter is readable, too. */
        (void)!write(wakeup->fd, &one, sizeof one);
    }
    pthread_mutex_unlock(&wakeups->lock);
}

int rmq_wakeup_open(struct rmq_wakeup *wakeup, struct rmq_wakeups *wakeups, struct rmq_error *err)
{
    assert(wakeups->offset);

    wakeup->fd = eventfd(0, EFD_NONBLOCK | EFD_CLOEXEC);
    if (wakeup->fd < 0)
        return rmq_fail_os(err, errno, "making an eventfd");

    wakeup->owner = wakeups;
    wakeup->is_armed = false;

    if (!membarrier(MEMBARRIER_CMD_REGISTER_PRIVATE_EXPEDITED))
        atomic_store(&wakeups->needs_fence, true);

    pthread_mutex_lock(&wakeups->lock);
    wakeup->next = wakeups->first;
    wakeups->first = wakeup;
    pthread_mutex_unlock(&wakeups->lock);
    return RMQ_OK;
}

void rmq_wakeup_close(struct rmq_wakeup *wakeup)
{
    assert(wakeup->owner && wakeup->fd >= 0);

    struct rmq_wakeups *wakeups = wakeup->owner;
    pthread_mutex_lock(&wakeups->lock);

    struct rmq_wakeup **link = &wakeups->first;
    while (*link != wakeup) {
        assert(*link);
        link = &(*link)->next;
    }
    *link = wakeup->next;
    pthread_mutex_unlock(&wakeups->lock);

    rmq_wakeup_abandon(wakeup);
}

void rmq_wakeup_abandon(struct rmq_wakeup *wakeup)
{
    assert(wakeup->fd >= 0);

    (void)close(wakeup->fd);
    wakeup->fd = -1;
}

bool rmq_wakeup_arm(struct rmq_wakeup *wakeup, int64_t seen)
{
    assert(wakeup->owner && wakeup->fd >= 0);

    struct rmq_wakeups *wakeups = wakeup->owner;
    if (wakeups->offset(wakeups->subject) > seen)
        return true;

    pthread_mutex_lock(&wakeups->lock);
    wakeup->is_armed = true;
    atomic_store(&wakeups->is_armed, true);
    pthread_mutex_unlock(&wakeups->lock);

    /* After this fence, either this thread sees the move, or the moving thread sees the flag. */
    atomic_thread_fence(memory_order_seq_cst);
    if (!atomic_load_explicit(&wakeups->needs_fence, memory_order_relaxed) &&
        !membarrier(MEMBARRIER_CMD_PRIVATE_EXPEDITED))
        atomic_store(&wakeups->needs_fence, true);

    if (wakeups->offset(wakeups->subject) <= seen)
        return false;
    rmq_wakeup_clear(wakeup);
    return true;
}

void rmq_wakeup_clear(struct rmq_wakeup *wakeup)
{
    assert(wakeup->owner && wakeup->fd >= 0);

    uint64_t count;
    pthread_mutex_lock(&wakeup->owner->lock);
    wakeup->is_armed = false;
    (void)!read(wakeup->fd, &count, sizeof count);
    pthread_mutex_unlock(&wakeup->owner->lock);
}
