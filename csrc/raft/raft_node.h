/* raft_node.h -- a node of a Raft group: libraft and its libuv loop on a separate thread.
 *
 * The user proposes commands and takes events (raft_events.h). The node never calls the user, and
 * its threads wait for the user in two cases only: for room in a full queue of events, and, on a
 * thread of libuv's pool, for a snapshot.
 *
 * An entry of the log: integers are big-endian.
 *
 *   at  size  field
 *   0   8     term in which it was proposed
 *   8   8     size of the command
 *
 * The command follows, then zeros up to a multiple of 8 bytes: libraft cannot read other sizes.
 *
 * The node is fail-stop: after the first failure of a disk operation it acknowledges nothing more,
 * adds RMQ_RAFT_FAILED, and closes.
 */
#ifndef RMQ_RAFT_NODE_H
#define RMQ_RAFT_NODE_H

#include <stddef.h>
#include <stdint.h>

#include "raft/raft_events.h"

#define RMQ_RAFT_ERROR_SIZE 320
/* Outcomes of a request, in the status of RMQ_RAFT_DONE. */
enum { RMQ_RAFT_OK, RMQ_RAFT_NOT_LEADER, RMQ_RAFT_UNKNOWN };

struct rmq_raft_peer {
    uint64_t id;         /* not 0 */
    const char *address; /* "IPv4:port" */
};

struct rmq_raft_options {
    const char *directory;    /* exists */
    uint64_t id;              /* one of the peers */
    const char *bind_address; /* "IPv4:port" */
    const struct rmq_raft_peer *peers;
    size_t peer_count;
    unsigned election_ms, heartbeat_ms; /* heartbeat_ms < election_ms */
    unsigned snapshot_entries;          /* applied entries between two snapshots */
    unsigned trailing_entries;          /* entries before a snapshot that stay in the log */
};

struct rmq_raft;

/* Writes the first entry of a new group, the same on each node, to an empty directory. Returns 0,
 * or a code of libraft with a text in error. The options are not kept. */
int rmq_raft_found(const struct rmq_raft_options *options, char error[RMQ_RAFT_ERROR_SIZE]);

/* Reads the directory and starts the node. Returns 0, or a code of libraft with a text in error.
 * The strings of the options are copied. */
int rmq_raft_open(struct rmq_raft **node, const struct rmq_raft_options *options,
                  char error[RMQ_RAFT_ERROR_SIZE]);

/* Proposes a command; RMQ_RAFT_DONE reports the outcome. Returns 0 or ENOMEM. Any thread. */
int rmq_raft_propose(struct rmq_raft *node, uint64_t request, const void *command, size_t size);

/* RMQ_RAFT_DONE with RMQ_RAFT_OK: this node led after the call. Returns 0 or ENOMEM. Any thread. */
int rmq_raft_barrier(struct rmq_raft *node, uint64_t request);

/* Answers RMQ_RAFT_SNAPSHOT. Returns 0, or ENOMEM, after which the snapshot is abandoned. */
int rmq_raft_give_snapshot(struct rmq_raft *node, const void *state, size_t size);

struct rmq_raft_events *rmq_raft_events_of(struct rmq_raft *node);

/* Begins to close; RMQ_RAFT_CLOSED reports the end. Further calls do nothing. */
void rmq_raft_close(struct rmq_raft *node);

/* Closes the node unless it is closing already, waits for its thread, and frees it. */
void rmq_raft_free(struct rmq_raft *node);

#endif
