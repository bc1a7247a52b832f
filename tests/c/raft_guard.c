/* raft_guard.c -- what a Raft node's guards let through, over a disk and a network that are made
 * up.
 *
 * usage: raft_guard. Exits 0 when all went well.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "raft/raft_internal.h"

#define APPENDS_MAX 8

static struct {
    struct raft_io_append *appends[APPENDS_MAX];
    size_t append_count;
    struct raft_io_snapshot_put *put;
    int status; /* of each call */
    int calls;
    const char *address;
    raft_uv_accept_cb accept;
    raft_io_recv_cb receive;
    struct raft_append_entries_result sent;
} below;

/* What libraft's log was told, and what it does with a message. */
static struct {
    void (*handle)(struct rmq_raft *node);
    int count;
    int status;
    struct raft_io_append *last;
    int put_status;
    const char *address;
} above;

static void check(const char *act, bool is_right)
{
    if (!is_right) {
        fprintf(stderr, "%s\n", act);
        exit(1);
    }
}

static int disk_append(struct raft_io *io, struct raft_io_append *req,
                       const struct raft_entry entries[], unsigned n, raft_io_append_cb cb)
{
    (void)io, (void)entries, (void)n;
    req->cb = cb;
    check("room for an append", below.append_count < APPENDS_MAX);
    below.appends[below.append_count++] = req;
    ++below.calls;
    return below.status;
}

static int disk_put(struct raft_io *io, unsigned trailing, struct raft_io_snapshot_put *req,
                    const struct raft_snapshot *snapshot, raft_io_snapshot_put_cb cb)
{
    (void)io, (void)trailing, (void)snapshot;
    req->cb = cb;
    below.put = req;
    ++below.calls;
    return below.status;
}

static int disk_get(struct raft_io *io, struct raft_io_snapshot_get *req,
                    raft_io_snapshot_get_cb cb)
{
    (void)io, (void)req, (void)cb;
    ++below.calls;
    return below.status;
}

static int disk_call(struct raft_io *io, raft_index number)
{
    (void)io, (void)number;
    ++below.calls;
    return below.status;
}

static int disk_start(struct raft_io *io, unsigned msecs, raft_io_tick_cb tick,
                      raft_io_recv_cb receive)
{
    (void)io, (void)msecs, (void)tick;
    below.receive = receive;
    return 0;
}

static int disk_send(struct raft_io *io, struct raft_io_send *req,
                     const struct raft_message *message, raft_io_send_cb cb)
{
    (void)io, (void)req, (void)cb;
    if (message->type == RAFT_IO_APPEND_ENTRIES_RESULT)
        below.sent = message->append_entries_result;
    return 0;
}

static int net_listen(struct raft_uv_transport *transport, raft_uv_accept_cb accept)
{
    (void)transport;
    below.accept = accept;
    return 0;
}

static int net_connect(struct raft_uv_transport *transport, struct raft_uv_connect *req, raft_id id,
                       const char *address, raft_uv_connect_cb cb)
{
    (void)transport, (void)req, (void)id, (void)cb;
    below.address = address;
    return 0;
}

static void log_appended(struct raft_io_append *req, int status)
{
    ++above.count;
    above.status = status;
    above.last = req;
}

static void log_put(struct raft_io_snapshot_put *req, int status)
{
    (void)req;
    above.put_status = status;
}

static void accepted(struct raft_uv_transport *transport, raft_id id, const char *address,
                     struct uv_stream_s *stream)
{
    (void)transport, (void)id, (void)stream;
    ++above.count;
    above.address = address;
}

static struct rmq_raft *new_node(void)
{
    static struct rmq_raft_known known[] = {{1, "127.0.0.1:1001"}, {2, "127.0.0.1:1002"}};
    static char disk;
    memset(&below, 0, sizeof below);
    memset(&above, 0, sizeof above);

    struct rmq_raft *node = calloc(1, sizeof *node);
    check("a node", node != NULL && rmq_raft_events_init(&node->events) == 0);
    node->last = &node->first;
    node->known = known;
    node->known_count = 2;
    node->raft.id = 1;
    pthread_mutex_init(&node->lock, NULL);
    pthread_cond_init(&node->given, NULL);
    check("a loop", uv_loop_init(&node->loop) == 0);
    rmq_raft_make_handles(node);

    node->io.impl = &disk;
    node->io.start = disk_start;
    node->io.send = disk_send;
    node->io.append = disk_append;
    node->io.snapshot_put = disk_put;
    node->io.snapshot_get = disk_get;
    node->io.truncate = disk_call;
    node->io.set_term = disk_call;
    node->io.set_vote = disk_call;
    node->transport.listen = net_listen;
    node->transport.connect = net_connect;
    rmq_raft_guard_io(node);
    rmq_raft_guard_connections(node);
    return node;
}

static void free_node(struct rmq_raft *node)
{
    uv_close((struct uv_handle_s *)&node->prepare, NULL);
    uv_close((struct uv_handle_s *)&node->wake, NULL);
    uv_run(&node->loop, UV_RUN_DEFAULT);
    check("the loop is empty", uv_loop_close(&node->loop) == 0);
    pthread_cond_destroy(&node->given);
    pthread_mutex_destroy(&node->lock);
    rmq_raft_events_destroy(&node->events);
    free(node);
}

static void append(struct rmq_raft *node, struct raft_io_append *req)
{
    struct raft_entry entry = {0};
    check("an append is taken", node->io.append(&node->io, req, &entry, 1, log_appended) == 0);
}

static void end_append(size_t number, int status)
{
    below.appends[number]->cb(below.appends[number], status);
}

/* Makes the log of libraft end at an index. */
static void end_log(struct rmq_raft *node, raft_index last)
{
    node->raft.log.offset = last;
}

static void check_ended(struct rmq_raft *node, const char *reason)
{
    struct rmq_raft_event *event = rmq_raft_events_take(&node->events);
    check("the node reports its end", event != NULL && event->kind == RMQ_RAFT_FAILED);
    check(reason, event->size == strlen(reason) && memcmp(event->data, reason, event->size) == 0);
    free(event);
    check("it reports the end once", rmq_raft_events_take(&node->events) == NULL);

    int calls = below.calls;
    struct raft_io_append req = {0};
    struct raft_entry entry = {0};
    struct raft_io *io = &node->io;
    struct raft_snapshot snapshot = {.n_bufs = 1};
    struct raft_io_snapshot_put put_req = {0};
    check("no append", io->append(io, &req, &entry, 1, log_appended) == RAFT_IOERR);
    check("no snapshot", io->snapshot_put(io, 1, &put_req, &snapshot, log_put) == RAFT_IOERR);
    struct raft_io_snapshot_get get_req = {0};
    check("no snapshot for a peer", io->snapshot_get(io, &get_req, NULL) == RAFT_IOERR);
    check("no truncation", io->truncate(io, 1) == RAFT_IOERR);
    check("no term", io->set_term(io, 1) == RAFT_IOERR);
    check("no vote", io->set_vote(io, 1) == RAFT_IOERR);
    check("the disk is left alone", below.calls == calls);
}

static void test_success_passes(void)
{
    struct rmq_raft *node = new_node();
    struct raft_io_append req = {0};
    append(node, &req);
    end_append(0, 0);
    check("a write is reported", above.count == 1 && above.status == 0 && above.last == &req);
    check("nothing else is", rmq_raft_events_take(&node->events) == NULL);
    free_node(node);
}

static void test_failed_write_fails_the_next_that_succeeds(void)
{
    struct rmq_raft *node = new_node();
    struct raft_io_append first = {0}, second = {0};
    append(node, &first);
    append(node, &second);
    end_append(0, RAFT_IOERR);
    end_append(1, 0);
    check("both have failed", above.count == 2 && above.status == RAFT_IOERR);
    check_ended(node, "writing the log: I/O error");
    free_node(node);
}

static void test_leader_truncates_its_log_once(void)
{
    struct rmq_raft *node = new_node();
    struct raft_io_append first = {0}, second = {0};
    node->raft.state = RAFT_LEADER;
    end_log(node, 5);
    append(node, &first);
    end_log(node, 6);
    append(node, &second);
    end_append(0, RAFT_IOERR);
    check("the first failure is reported", above.count == 1 && above.last == &first);
    end_log(node, 4); /* So libraft does on that report. */
    end_append(1, RAFT_CANCELED);
    check("not the second, whose entries are gone", above.count == 1);
    check_ended(node, "writing the log: I/O error");
    node->raft.state = RAFT_UNAVAILABLE;
    free_node(node);
}

static void test_write_that_is_refused_at_once_keeps_its_memory(void)
{
    struct rmq_raft *node = new_node();
    struct raft_io_append req = {0};
    below.status = RAFT_IOERR;
    append(node, &req); /* An error would let libraft's log free what its disk still holds. */
    check("the log is told nothing", above.count == 0);
    check_ended(node, "writing the log: I/O error");
    end_append(0, RAFT_CANCELED);
    free_node(node);
}

static void test_failed_snapshot_and_term_end_the_node(void)
{
    struct rmq_raft *node = new_node();
    struct raft_io_snapshot_put req = {0};
    struct raft_snapshot snapshot = {.n_bufs = 1};
    node->is_taking = true;
    check("no end while a snapshot is taken", !rmq_raft_may_close(node));
    check("taken", node->io.snapshot_put(&node->io, 1, &req, &snapshot, log_put) == 0);
    check("an end while a snapshot is written", rmq_raft_may_close(node));
    below.put->cb(below.put, RAFT_IOERR);
    check("no end before the snapshot is given up", !rmq_raft_may_close(node));
    node->is_taking = false;
    check("a failed snapshot is reported", above.put_status == RAFT_IOERR);
    check_ended(node, "writing a snapshot: I/O error");
    free_node(node);

    node = new_node();
    below.status = RAFT_IOERR;
    strcpy(node->io.errmsg, "no space");
    check("a failed term is reported", node->io.set_term(&node->io, 3) == RAFT_IOERR);
    check_ended(node, "writing the term: no space");
    free_node(node);
}

static struct uv_stream_s *new_stream(struct rmq_raft *node)
{
    struct uv_tcp_s *stream = raft_malloc(sizeof *stream);
    check("a stream", stream != NULL && uv_tcp_init(&node->loop, stream) == 0);
    return (struct uv_stream_s *)stream;
}

static void free_stream(struct uv_handle_s *stream)
{
    raft_free(stream);
}

static void test_only_peers_connect_at_addresses_that_are_configured(void)
{
    struct rmq_raft *node = new_node();
    struct raft_uv_transport *net = &node->transport;
    check("it listens", net->listen(net, accepted) == 0);
    below.accept(net, 9, "127.0.0.1:1009", new_stream(node));
    below.accept(net, 1, "127.0.0.1:1001", new_stream(node));
    check("neither a stranger nor itself", above.count == 0);
    struct uv_stream_s *stream = new_stream(node);
    below.accept(net, 2, "elsewhere", stream);
    check("a peer", above.address != NULL && strcmp(above.address, "127.0.0.1:1002") == 0);
    uv_close((struct uv_handle_s *)stream, free_stream);

    struct raft_uv_connect req = {0};
    check("it connects", net->connect(net, &req, 2, "2", NULL) == 0);
    check("where it is", strcmp(below.address, "127.0.0.1:1002") == 0);
    free_node(node);
}

static void receive(struct raft_io *io, struct raft_message *message)
{
    (void)message;
    if (above.handle != NULL)
        above.handle((struct rmq_raft *)((char *)io - offsetof(struct rmq_raft, io)));
}

/* Makes a follower of term 5: 7 entries, of which 3 are applied. */
static struct rmq_raft *new_follower(void)
{
    struct rmq_raft *node = new_node();
    check("it starts", node->io.start(&node->io, 100, NULL, receive) == 0);
    node->raft.current_term = 5;
    node->raft.last_applied = 3;
    end_log(node, 7);
    return node;
}

static void take_entries(struct rmq_raft *node, raft_index prev, unsigned n)
{
    struct raft_message message = {.type = RAFT_IO_APPEND_ENTRIES};
    message.append_entries.term = node->raft.current_term;
    message.append_entries.prev_log_index = prev;
    message.append_entries.n_entries = n;
    below.receive(&node->io, &message);
}

static void take_snapshot(struct rmq_raft *node, raft_index last, raft_term last_term)
{
    struct raft_message message = {.type = RAFT_IO_INSTALL_SNAPSHOT};
    message.install_snapshot.term = node->raft.current_term;
    message.install_snapshot.last_index = last;
    message.install_snapshot.last_term = last_term;
    below.receive(&node->io, &message);
}

static void answer(struct rmq_raft *node, raft_index rejected, raft_index last)
{
    struct raft_message message = {.type = RAFT_IO_APPEND_ENTRIES_RESULT};
    message.append_entries_result.term = node->raft.current_term;
    message.append_entries_result.rejected = rejected;
    message.append_entries_result.last_log_index = last;
    check("it is sent", node->io.send(&node->io, NULL, &message, NULL) == 0);
}

static void check_sent(const char *act, raft_index rejected, raft_index last)
{
    check(act, below.sent.rejected == rejected && below.sent.last_log_index == last);
}

static void succeed(struct rmq_raft *node)
{
    answer(node, 0, 7);
}

static void reject_the_sixth(struct rmq_raft *node)
{
    answer(node, 6, 7);
}

static void reject_the_second(struct rmq_raft *node)
{
    answer(node, 2, 7);
}

static void write_later(struct rmq_raft *node)
{
    static struct raft_io_append req;
    append(node, &req);
}

static void test_success_reports_what_was_compared(void)
{
    struct rmq_raft *node = new_follower();
    above.handle = succeed;
    take_entries(node, 4, 0);
    check_sent("not entries of a former leader", 0, 4);
    take_entries(node, 4, 2);
    check_sent("the entries that it has already", 0, 6);
    take_entries(node, 4, 0);
    check_sent("they stay", 0, 6);

    node->raft.current_term = 6;
    take_entries(node, 4, 0);
    check_sent("not under another leader", 0, 4);
    free_node(node);
}

static void test_success_reports_what_was_written_since(void)
{
    struct rmq_raft *node = new_follower();
    answer(node, 0, 7);
    check_sent("what is applied", 0, 3);
    above.handle = write_later;
    take_entries(node, 4, 3);
    answer(node, 0, 5);
    check_sent("what is written", 0, 5);
    answer(node, 0, 9);
    check_sent("what the leader sent", 0, 7);
    end_append(0, 0);
    free_node(node);
}

static void test_rejection_tells_the_leader_where_to_go_on(void)
{
    struct rmq_raft *node = new_follower();
    above.handle = reject_the_sixth;
    take_entries(node, 6, 1);
    check_sent("after what is applied", 6, 3);
    above.handle = succeed;
    take_entries(node, 4, 0);
    check_sent("a rejection is no comparison", 0, 4);
    above.handle = reject_the_sixth;
    take_entries(node, 6, 1);
    check_sent("after what was compared", 6, 4);
    free_node(node);
}

static void test_comparison_with_what_is_applied_succeeds(void)
{
    struct rmq_raft *node = new_follower();
    above.handle = reject_the_second;
    take_entries(node, 2, 9);
    check_sent("although it is compacted here", 0, 3);
    free_node(node);
}

static void test_snapshot_of_the_log_is_compared_by_its_term(void)
{
    struct rmq_raft *node = new_follower();
    struct raft_entry entries[] = {{.term = 2}, {.term = 4}, {.term = 0}};
    node->raft.log.entries = entries;
    node->raft.log.size = 3;
    node->raft.log.back = 2;
    end_log(node, 5); /* The entries are 6 and 7. */
    above.handle = succeed;
    take_snapshot(node, 7, 3);
    check_sent("not an entry of a lost leader", 0, 3);
    take_snapshot(node, 8, 4);
    check_sent("no entry", 0, 3);
    take_snapshot(node, 7, 4);
    check_sent("the snapshot's own entry", 0, 7);
    node->raft.log = (struct raft_log){0};
    free_node(node);
}

int main(void)
{
    test_success_passes();
    test_failed_write_fails_the_next_that_succeeds();
    test_leader_truncates_its_log_once();
    test_write_that_is_refused_at_once_keeps_its_memory();
    test_failed_snapshot_and_term_end_the_node();
    test_only_peers_connect_at_addresses_that_are_configured();
    test_success_reports_what_was_compared();
    test_success_reports_what_was_written_since();
    test_rejection_tells_the_leader_where_to_go_on();
    test_comparison_with_what_is_applied_succeeds();
    test_snapshot_of_the_log_is_compared_by_its_term();
    return 0;
}
