/* raft_guard.c -- guards around libraft's own disk and connections.
 *
 * Disk: libraft continues after a failed write, and would count the next successful write in its
 * place. Here the first failure fails all later operations, and ends the node.
 *
 * Messages: the answers of a follower of libraft 0.15 mislead the leader in two ways.
 * First, a success reports the end of the whole log, which includes entries of former leaders after
 * the compared entries. The leader counts these entries as stored, and commits entries that only
 * one node holds.
 * Second, a comparison with an entry that the follower has compacted is rejected. The leader goes
 * back by one entry with each heartbeat, and sends old snapshots meanwhile.
 * Here an answer reports exactly the entries that were compared with this leader's log or are
 * applied. A comparison with an applied entry succeeds, because every later leader has the entry.
 *
 * Connections: only the peers of the group are accepted. Each peer is reached at the address in
 * this node's configuration; an address in the group's log is ignored.
 */
#include <assert.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>

#include "raft/raft_internal.h"

/* A disk operation with a callback. */
struct guarded {
    struct rmq_raft *node;
    union {
        struct raft_io_append append;
        struct raft_io_snapshot_put put;
    };
    void *caller;
    raft_index first; /* first entry that a leader appends; 0: a follower appends */
};

static struct rmq_raft *node_of(struct raft_io *io)
{
    struct rmq_raft *node = (struct rmq_raft *)((char *)io - offsetof(struct rmq_raft, io));
    assert(node->disk.impl == io->impl);
    return node;
}

/* Returns the status that libraft gets. */
static int checked(struct rmq_raft *node, const char *act, int status)
{
    if (status == 0 || rmq_raft_is_closing(node))
        return status;
    const char *reason = node->io.errmsg[0] != '\0' ? node->io.errmsg : raft_strerror(status);
    rmq_raft_fail(node, act, reason);
    return status;
}

static void appended(struct raft_io_append *req, int status)
{
    struct guarded *guarded = req->data;
    struct rmq_raft *node = guarded->node;
    struct raft_io_append *caller = guarded->caller;
    raft_index first = guarded->first;
    assert(caller->cb != NULL);
    free(guarded);

    status = checked(node, "writing the log", status);
    if (status == 0 && node->is_failed)
        status = RAFT_IOERR;
    /* For each failed write of a leader libraft 0.15 truncates its log from the first entry of the
     * write on. The first failed write also removes the entries of later writes, and truncating
     * from a removed entry corrupts memory. The memory of later writes is not freed. */
    if (status == 0 || first <= raft_last_index(&node->raft))
        caller->cb(caller, status);
}

/* Records that the log equals the leader's up to the end of the message in progress. */
static void agree(struct rmq_raft *node)
{
    if (node->agreed.term != node->offered.term)
        node->agreed = (struct rmq_raft_agreement){.term = node->offered.term};
    if (node->agreed.end < node->offered.end)
        node->agreed.end = node->offered.end;
}

static int guarded_append(struct raft_io *io, struct raft_io_append *req,
                          const struct raft_entry entries[], unsigned n, raft_io_append_cb cb)
{
    struct rmq_raft *node = node_of(io);
    assert(n > 0);
    if (node->is_failed)
        return RAFT_IOERR;
    if (node->offered.end > 0)
        agree(node);
    struct guarded *guarded = calloc(1, sizeof *guarded);
    if (guarded == NULL)
        return checked(node, "writing the log", RAFT_NOMEM);
    guarded->node = node;
    guarded->caller = req;
    guarded->append.data = guarded;
    if (raft_state(&node->raft) == RAFT_LEADER) {
        guarded->first = raft_last_index(&node->raft) - n + 1;
        assert(guarded->first > 0);
    }
    req->cb = cb;
    /* After a failure libraft's disk may still hold the request, which its log would free. */
    (void)checked(node, "writing the log",
                  node->disk.append(io, &guarded->append, entries, n, appended));
    return 0;
}

static void put(struct raft_io_snapshot_put *req, int status)
{
    struct guarded *guarded = req->data;
    struct rmq_raft *node = guarded->node;
    struct raft_io_snapshot_put *caller = guarded->caller;
    assert(caller->cb != NULL);
    free(guarded);
    node->is_storing = false;
    caller->cb(caller, checked(node, "writing a snapshot", status));
}

static int guarded_snapshot_put(struct raft_io *io, unsigned trailing,
                                struct raft_io_snapshot_put *req,
                                const struct raft_snapshot *snapshot, raft_io_snapshot_put_cb cb)
{
    struct rmq_raft *node = node_of(io);
    assert(snapshot->n_bufs == 1);
    if (node->is_failed)
        return RAFT_IOERR;
    struct guarded *guarded = calloc(1, sizeof *guarded);
    if (guarded == NULL)
        return checked(node, "writing a snapshot", RAFT_NOMEM);
    guarded->node = node;
    guarded->caller = req;
    guarded->put.data = guarded;
    req->cb = cb;
    int status = node->disk.snapshot_put(io, trailing, &guarded->put, snapshot, put);
    node->is_storing = status == 0;
    return checked(node, "writing a snapshot", status);
}

/* libraft removes the entries of a failed write, and then requests a snapshot for a peer that has
 * them. If the disk has no snapshot yet, libraft uses uninitialized memory for one. */
static int guarded_snapshot_get(struct raft_io *io, struct raft_io_snapshot_get *req,
                                raft_io_snapshot_get_cb cb)
{
    struct rmq_raft *node = node_of(io);
    return node->is_failed ? RAFT_IOERR : node->disk.snapshot_get(io, req, cb);
}

static int guarded_truncate(struct raft_io *io, raft_index index)
{
    struct rmq_raft *node = node_of(io);
    return node->is_failed ? RAFT_IOERR
                           : checked(node, "truncating the log", node->disk.truncate(io, index));
}

static int guarded_set_term(struct raft_io *io, raft_term term)
{
    struct rmq_raft *node = node_of(io);
    return node->is_failed ? RAFT_IOERR
                           : checked(node, "writing the term", node->disk.set_term(io, term));
}

static int guarded_set_vote(struct raft_io *io, raft_id id)
{
    struct rmq_raft *node = node_of(io);
    return node->is_failed ? RAFT_IOERR
                           : checked(node, "writing the vote", node->disk.set_vote(io, id));
}

/* Returns the term of an entry of the log, or 0 where it has none there. */
static raft_term term_of(const struct raft_log *log, raft_index index)
{
    assert(log->size == 0 || log->front < log->size);
    if (log->size == 0 || index <= log->offset)
        return 0;
    size_t count = (log->back + log->size - log->front) % log->size;
    size_t number = (size_t)(index - log->offset - 1);
    return number < count ? log->entries[(log->front + number) % log->size].term : 0;
}

static void receive(struct raft_io *io, struct raft_message *message)
{
    struct rmq_raft *node = node_of(io);
    assert(node->offered.end == 0);
    if (message->type == RAFT_IO_APPEND_ENTRIES) {
        const struct raft_append_entries *entries = &message->append_entries;
        node->offered.term = entries->term;
        node->offered.end = entries->prev_log_index + entries->n_entries;
    } else if (message->type == RAFT_IO_INSTALL_SNAPSHOT) {
        const struct raft_install_snapshot *snapshot = &message->install_snapshot;
        node->offered.term = snapshot->term;
        /* libraft accepts a later term there as the snapshot's; it belongs to a lost entry. */
        if (term_of(&node->raft.log, snapshot->last_index) == snapshot->last_term)
            node->offered.end = snapshot->last_index;
    }
    node->receive(io, message);
    node->offered.end = 0;
}

static int guarded_start(struct raft_io *io, unsigned msecs, raft_io_tick_cb tick,
                         raft_io_recv_cb recv)
{
    struct rmq_raft *node = node_of(io);
    assert(recv != NULL);
    node->receive = recv;
    return node->disk.start(io, msecs, tick, receive);
}

static int guarded_send(struct raft_io *io, struct raft_io_send *req,
                        const struct raft_message *message, raft_io_send_cb cb)
{
    struct rmq_raft *node = node_of(io);
    if (message->type != RAFT_IO_APPEND_ENTRIES_RESULT)
        return node->disk.send(io, req, message, cb);

    struct raft_message answer = *message;
    struct raft_append_entries_result *result = &answer.append_entries_result;
    /* A success that is sent while a message is handled answers that message. */
    if (result->rejected == 0 && node->offered.end > 0)
        agree(node);
    raft_index applied = raft_last_applied(&node->raft), end = applied;
    if (result->rejected <= applied) {
        result->rejected = 0;
        if (result->last_log_index < applied)
            result->last_log_index = applied;
    }
    if (node->agreed.term == result->term && node->agreed.end > end)
        end = node->agreed.end;
    if (result->last_log_index > end)
        result->last_log_index = end;
    return node->disk.send(io, req, &answer, cb);
}

void rmq_raft_guard_io(struct rmq_raft *node)
{
    assert(node->disk.append == NULL);
    node->disk = node->io;
    node->io.start = guarded_start;
    node->io.send = guarded_send;
    node->io.append = guarded_append;
    node->io.snapshot_put = guarded_snapshot_put;
    node->io.snapshot_get = guarded_snapshot_get;
    node->io.truncate = guarded_truncate;
    node->io.set_term = guarded_set_term;
    node->io.set_vote = guarded_set_vote;
}

static struct rmq_raft *node_at(struct raft_uv_transport *transport)
{
    return (struct rmq_raft *)((char *)transport - offsetof(struct rmq_raft, transport));
}

static const char *address_of(const struct rmq_raft *node, raft_id id)
{
    assert(node->known_count > 0);
    for (size_t i = 0; i < node->known_count; ++i)
        if (node->known[i].id == id)
            return node->known[i].address;
    return NULL;
}

static void free_stream(struct uv_handle_s *stream)
{
    raft_free(stream);
}

static void accept_peer(struct raft_uv_transport *transport, raft_id id, const char *address,
                        struct uv_stream_s *stream)
{
    struct rmq_raft *node = node_at(transport);
    assert(node->accept != NULL);
    /* The address comes from the connection: it is unchecked and may lack its terminator. */
    address = address_of(node, id);
    if (address == NULL || id == node->raft.id)
        uv_close((struct uv_handle_s *)stream, free_stream);
    else
        node->accept(transport, id, address, stream);
}

static int guarded_listen(struct raft_uv_transport *transport, raft_uv_accept_cb accept)
{
    struct rmq_raft *node = node_at(transport);
    assert(node->accept == NULL);
    node->accept = accept;
    return node->tcp.listen(transport, accept_peer);
}

static int guarded_connect(struct raft_uv_transport *transport, struct raft_uv_connect *req,
                           raft_id id, const char *address, raft_uv_connect_cb cb)
{
    struct rmq_raft *node = node_at(transport);
    const char *known = address_of(node, id);
    return node->tcp.connect(transport, req, id, known != NULL ? known : address, cb);
}

void rmq_raft_guard_connections(struct rmq_raft *node)
{
    assert(node->tcp.listen == NULL);
    node->tcp = node->transport;
    node->transport.listen = guarded_listen;
    node->transport.connect = guarded_connect;
}
