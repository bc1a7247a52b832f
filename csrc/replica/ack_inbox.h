/* ack_inbox.h -- puts that wait for copies, and how they are notified: a thread by its event, or
 * many puts by the descriptor of an inbox.
 */
#ifndef RMQ_ACK_INBOX_H
#define RMQ_ACK_INBOX_H

#include <pthread.h>

#include "base/event.h"
#include "base/list.h"
#include "base/status.h"

/* What an admitted put waits for. */
struct rmq_ack_need {
    uint64_t term; /* number of the role: the put of an ended role may be cut from the log, and
                      never gets OK */
    int32_t copies;
    bool needs_all;
};

/* Receives resolved puts for which no thread waits. */
struct rmq_ack_inbox {
    pthread_mutex_t lock;
    int fd; /* an eventfd, readable while the inbox holds puts; -1: none */
    bool is_readable;
    struct rmq_ack_waiter *first, **end;
};

/* A put that waits. On the stack of the waiting caller. A put with an inbox may be anywhere, until
 * it was taken from the inbox or withdrawn. */
struct rmq_ack_waiter {
    struct rmq_ack_need need;
    int64_t end_offset;
    struct rmq_link place;        /* in its line */
    struct rmq_ack_waiter *after; /* in the chain of resolved puts */
    struct rmq_ack_inbox *inbox;  /* NULL: `resolved` is notified */
    struct rmq_event resolved;
    bool is_resolved; /* under the board's lock */
    int32_t status;   /* enum rmq_put_status */
    int32_t copies;   /* number of copies when it was resolved */
    void *owner;      /* the caller's */
};

/* Notifies a chain of resolved puts, in order. The caller must not hold a lock: waking takes
 * time. */
void rmq_ack_notify(struct rmq_ack_waiter *chain);

/* Makes an inbox without a descriptor, for an owner that polls. */
void rmq_ack_inbox_init(struct rmq_ack_inbox *inbox);
/* RMQ_IO: no descriptor is left. */
int rmq_ack_inbox_open(struct rmq_ack_inbox *inbox, struct rmq_error *err);
/* No put of the inbox may be waiting. */
void rmq_ack_inbox_close(struct rmq_ack_inbox *inbox);
/* Takes all resolved puts, as a chain by `after`, in the order in which they were resolved; NULL
 * when there are none. */
struct rmq_ack_waiter *rmq_ack_inbox_take(struct rmq_ack_inbox *inbox);

#endif
