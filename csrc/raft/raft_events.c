#include "raft/raft_events.h"

#include <assert.h>
#include <errno.h>
#include <stdlib.h>
#include <sys/eventfd.h>
#include <unistd.h>

int rmq_raft_events_init(struct rmq_raft_events *events)
{
    *events = (struct rmq_raft_events){.fd = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK)};
    if (events->fd < 0)
        return errno;
    pthread_mutex_init(&events->lock, NULL);
    pthread_cond_init(&events->room, NULL);
    return 0;
}

void rmq_raft_events_destroy(struct rmq_raft_events *events)
{
    struct rmq_raft_event *event;
    while ((event = rmq_raft_events_take(events)) != NULL)
        free(event);
    assert(events->bytes == 0);
    pthread_cond_destroy(&events->room);
    pthread_mutex_destroy(&events->lock);
    close(events->fd);
}

struct rmq_raft_event *rmq_raft_event_new(enum rmq_raft_event_kind kind, size_t size)
{
    assert(kind >= RMQ_RAFT_APPLY && kind <= RMQ_RAFT_CLOSED);
    if (size > SIZE_MAX - sizeof(struct rmq_raft_event))
        return NULL;
    struct rmq_raft_event *event = malloc(sizeof *event + size);
    if (event != NULL)
        *event = (struct rmq_raft_event){.kind = kind, .size = size};
    return event;
}

void rmq_raft_events_add(struct rmq_raft_events *events, struct rmq_raft_event *event)
{
    assert(event->next == NULL);
    size_t size = sizeof *event + event->size;

    pthread_mutex_lock(&events->lock);
    while (events->first != NULL && !events->is_unbounded &&
           events->bytes + size > RMQ_RAFT_EVENTS_BYTES_MAX)
        pthread_cond_wait(&events->room, &events->lock);
    bool was_empty = events->first == NULL;
    if (was_empty)
        events->first = event;
    else
        events->last->next = event;
    events->last = event;
    events->bytes += size;
    pthread_mutex_unlock(&events->lock);

    if (was_empty) {
        uint64_t one = 1;
        ssize_t written = write(events->fd, &one, sizeof one);
        /* EAGAIN: the descriptor is readable already. */
        assert(written == sizeof one || errno == EAGAIN || errno == EINTR);
        (void)written;
    }
}

struct rmq_raft_event *rmq_raft_events_take(struct rmq_raft_events *events)
{
    pthread_mutex_lock(&events->lock);
    struct rmq_raft_event *event = events->first;
    if (event != NULL) {
        events->first = event->next;
        event->next = NULL;
        assert(events->bytes >= sizeof *event + event->size);
        events->bytes -= sizeof *event + event->size;
        pthread_cond_signal(&events->room);
    }
    pthread_mutex_unlock(&events->lock);
    return event;
}

void rmq_raft_events_unbound(struct rmq_raft_events *events)
{
    assert(events->fd >= 0);
    pthread_mutex_lock(&events->lock);
    events->is_unbounded = true;
    pthread_cond_signal(&events->room);
    pthread_mutex_unlock(&events->lock);
}
