#include "replica/ack_inbox.h"

#include <assert.h>
#include <errno.h>
#include <sys/eventfd.h>
#include <unistd.h>

void rmq_ack_inbox_init(struct rmq_ack_inbox *inbox)
{
    assert(inbox);

    inbox->fd = -1;

    pthread_mutex_init(&inbox->lock, NULL);
    inbox->is_readable = false;
    inbox->first = NULL;
    inbox->end = &inbox->first;
}

int rmq_ack_inbox_open(struct rmq_ack_inbox *inbox, struct rmq_error *err)
{
    assert(inbox);

    int fd = eventfd(0, EFD_NONBLOCK | EFD_CLOEXEC);
    if (fd < 0)
        return rmq_fail_os(err, errno, "making an eventfd");

    rmq_ack_inbox_init(inbox);
    inbox->fd = fd;
    return RMQ_OK;
}

void rmq_ack_inbox_close(struct rmq_ack_inbox *inbox)
{
    if (inbox->fd >= 0)
        (void)close(inbox->fd);
    inbox->fd = -1;
    pthread_mutex_destroy(&inbox->lock);
}

static void put(struct rmq_ack_inbox *inbox, struct rmq_ack_waiter *waiter, bool is_last)
{
    assert(waiter->inbox == inbox);

    const uint64_t one = 1;
    pthread_mutex_lock(&inbox->lock);

    waiter->after = NULL;
    *inbox->end = waiter;
    inbox->end = &waiter->after;

    /* The thread that empties the inbox is woken once for a chain of puts. */
    if (is_last && !inbox->is_readable && inbox->fd >= 0) {
        inbox->is_readable = true;
        (void)!write(inbox->fd, &one, sizeof one);
    }
    pthread_mutex_unlock(&inbox->lock);
}

void rmq_ack_notify(struct rmq_ack_waiter *chain)
{
    while (chain) {
        struct rmq_ack_waiter *waiter = chain;
        assert(waiter->is_resolved);
        chain = waiter->after; /* Once notified, a put may be freed. */
        if (waiter->inbox)
            put(waiter->inbox, waiter, !chain || chain->inbox != waiter->inbox);
        else
            rmq_event_set(&waiter->resolved);
    }
}

struct rmq_ack_waiter *rmq_ack_inbox_take(struct rmq_ack_inbox *inbox)
{
    uint64_t count;
    pthread_mutex_lock(&inbox->lock);

    struct rmq_ack_waiter *chain = inbox->first;
    inbox->first = NULL;
    inbox->end = &inbox->first;

    assert(!chain || chain->inbox == inbox);
    if (inbox->is_readable) {
        inbox->is_readable = false;
        (void)!read(inbox->fd, &count, sizeof count);
    }
    pthread_mutex_unlock(&inbox->lock);
    return chain;
}
