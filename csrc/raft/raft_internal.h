/* raft_internal.h -- the parts of a Raft node; included by csrc/raft alone. */
#ifndef RMQ_RAFT_INTERNAL_H
#define RMQ_RAFT_INTERNAL_H

#include <raft.h>
#include <raft/uv.h>
#include <uv.h>

#include "raft/raft_node.h"

#define RMQ_RAFT_ADDRESS_SIZE 32
#define RMQ_RAFT_HEAD_SIZE 16 /* of an entry */

struct rmq_raft_known {
    raft_id id;
    char address[RMQ_RAFT_ADDRESS_SIZE];
};

enum rmq_raft_request_kind { RMQ_RAFT_PROPOSAL, RMQ_RAFT_BARRIER };

/* A request of the user: first in the inbox, then owned by libraft until its callback. */
struct rmq_raft_request {
    struct rmq_raft_request *next;
    struct rmq_raft *node;
    enum rmq_raft_request_kind kind;
    uint64_t id;    /* 0: the barrier of a new leader */
    raft_term term; /* term of that barrier */
    union {
        struct raft_apply apply;
        struct raft_barrier barrier;
    };
    struct raft_buffer entry; /* of a proposal, in memory of libraft */
};

enum rmq_raft_snapshot_stage { RMQ_RAFT_NO_SNAPSHOT, RMQ_RAFT_WANTED, RMQ_RAFT_GIVEN };

/* This node's log equals the log of the leader of term, up to end. */
struct rmq_raft_agreement {
    raft_term term;
    raft_index end;
};

struct rmq_raft {
    struct raft raft;
    struct raft_io io, disk; /* disk: libraft's functions, which the functions of io guard */
    raft_io_recv_cb receive; /* libraft's function, guarded too */
    struct raft_uv_transport transport, tcp; /* tcp: libraft's functions; transport guards them */
    struct raft_fsm fsm;
    raft_uv_accept_cb accept;
    struct uv_loop_s loop;
    struct uv_async_s wake;
    struct uv_prepare_s prepare;
    pthread_t thread;
    bool has_thread;
    struct rmq_raft_events events;
    struct rmq_raft_event *last_event; /* allocated in advance, so that it never lacks memory */

    size_t known_count;
    struct rmq_raft_known *known;

    /* Used by the loop's thread only. */
    bool is_failed; /* a disk operation failed: the node acknowledges nothing from then on */
    bool is_close_begun;
    bool is_taking;  /* from fsm.snapshot to fsm.snapshot_finalize */
    bool is_storing; /* libraft's disk has a snapshot to write */
    struct rmq_raft_agreement agreed;
    struct rmq_raft_agreement offered;    /* by the message in progress; end 0: no message */
    raft_term barrier_term, leading_term; /* terms in which the barrier was proposed, and done */
    raft_term told_term;
    raft_id told_leader;
    bool told_leads;

    pthread_mutex_t lock; /* protects the following fields */
    pthread_cond_t given;
    struct rmq_raft_request *first, **last;
    bool is_closing;
    enum rmq_raft_snapshot_stage stage;
    struct raft_buffer state; /* the snapshot from the user; base NULL: abandoned */
};

/* Ends the node and reports the first reason. */
void rmq_raft_fail(struct rmq_raft *node, const char *act, const char *reason);
/* Returns whether libraft may be closed now. */
bool rmq_raft_may_close(const struct rmq_raft *node);

void rmq_raft_add_event(struct rmq_raft *node, struct rmq_raft_event *event);

bool rmq_raft_is_closing(struct rmq_raft *node);

/* The handles for the user's requests on the loop; they close once rmq_raft_close was called. */
void rmq_raft_make_handles(struct rmq_raft *node);

/* The thread of the loop. */
void *rmq_raft_run(void *node);

/* The state machine. */
void rmq_raft_init_machine(struct rmq_raft *node);

/* Puts guards around the disk, the messages and the connections of libraft. */
void rmq_raft_guard_io(struct rmq_raft *node);
void rmq_raft_guard_connections(struct rmq_raft *node);

#endif
