/* raft_events.h -- the events that a Raft node passes to its user, in order.
 *
 * The node's thread adds events and the user's thread takes them. A descriptor becomes readable
 * when there are events, so that an event loop can wait for them. Adding waits while the queue is
 * full; this slows the node down, and the leader that replicates to it.
 */
#ifndef RMQ_RAFT_EVENTS_H
#define RMQ_RAFT_EVENTS_H

#include <pthread.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* Limit of waiting events in bytes; a single event may be larger. */
#define RMQ_RAFT_EVENTS_BYTES_MAX (16u * 1024 * 1024)

enum rmq_raft_event_kind {
    RMQ_RAFT_APPLY = 1,  /* index, term, data: a committed command */
    RMQ_RAFT_RESTORE,    /* data: a state that replaces the present one */
    RMQ_RAFT_SNAPSHOT,   /* the user passes the state at this point to rmq_raft_give_snapshot */
    RMQ_RAFT_DONE,       /* request, status, index: a proposal or barrier ended */
    RMQ_RAFT_LEADERSHIP, /* term, request: id of the leader or 0, status: 1 where this node leads */
    RMQ_RAFT_FAILED,     /* data: why the node ends; RMQ_RAFT_CLOSED follows */
    RMQ_RAFT_CLOSED,     /* the last event */
};

struct rmq_raft_event {
    struct rmq_raft_event *next;
    enum rmq_raft_event_kind kind;
    int status;
    uint64_t index;
    uint64_t term;
    uint64_t request;
    size_t size;
    uint8_t data[];
};

struct rmq_raft_events {
    pthread_mutex_t lock;
    pthread_cond_t room;
    struct rmq_raft_event *first, *last;
    size_t bytes;
    bool is_unbounded;
    int fd;
};

/* Returns 0 or an errno. */
int rmq_raft_events_init(struct rmq_raft_events *events);

/* Frees the queue and its events. No thread may use the queue any more. */
void rmq_raft_events_destroy(struct rmq_raft_events *events);

/* Returns a new event with room for size bytes; NULL where there is no memory. */
struct rmq_raft_event *rmq_raft_event_new(enum rmq_raft_event_kind kind, size_t size);

/* Adds an event, whose memory the queue then owns. */
void rmq_raft_events_add(struct rmq_raft_events *events, struct rmq_raft_event *event);

/* Returns the first event, which the caller frees with free(); NULL where there is none. */
struct rmq_raft_event *rmq_raft_events_take(struct rmq_raft_events *events);

/* Removes the bound, so that the node's thread continues while no events are taken. */
void rmq_raft_events_unbound(struct rmq_raft_events *events);

#endif
