/* raft_guard.c -- guards around libraft's own disk and connections.
 *
 * Disk: libraft goes on after a failed write, and would count the next successful one in its
 * place. Here the first failure fails all that follows, and ends the node.
 *
 * Connections: only the peers of the group are accepted, and each is reached at the address that
 * this node's configuration names, whichever the log of the group has.
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
    raft_index first; /* of the entries that a leader appends; 0: a follower's */
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
     * write on. The first such write takes the entries of later ones along, and truncating from an
     * entry that is gone destroys memory. The memory of later writes is not freed. */
    if (status == 0 || first <= raft_last_index(&node->raft))
        caller->cb(caller, status);
}

static int guarded_append(struct raft_io *io, struct raft_io_append *req,
                          const struct raft_entry entries[], unsigned n, raft_io_append_cb cb)
{
    struct rmq_raft *node = node_of(io);
    assert(n > 0);
    if (node->is_failed)
        return RAFT_IOERR;
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
    return checked(node, "writing a snapshot", status);
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

void rmq_raft_guard_disk(struct rmq_raft *node)
{
    assert(node->disk.append == NULL);
    node->disk = node->io;
    node->io.append = guarded_append;
    node->io.snapshot_put = guarded_snapshot_put;
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
    /* The address comes from the connection, unchecked, perhaps without an end. */
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
