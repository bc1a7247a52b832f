/* raft_open.c -- creating, founding, starting and freeing a Raft node. */
#include <assert.h>
#include <errno.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "raft/raft_internal.h"

#define CONNECT_RETRY_MS 200
#define INSTALL_TIMEOUT_MS 5000
#define SEGMENT_SIZE ((size_t)4 * 1024 * 1024)

static int failed(int status, const char *act, const char *reason, char error[RMQ_RAFT_ERROR_SIZE])
{
    assert(status != 0);
    snprintf(error, RMQ_RAFT_ERROR_SIZE, "%s: %s", act,
             reason[0] != '\0' ? reason : raft_strerror(status));
    return status;
}

static void free_parts(struct rmq_raft *node)
{
    /* A failed start of libraft may leave a handle open; the memory is then not freed. */
    if (uv_loop_close(&node->loop) != 0)
        return;
    assert(node->first == NULL);
    pthread_cond_destroy(&node->given);
    pthread_mutex_destroy(&node->lock);
    rmq_raft_events_destroy(&node->events);
    free(node->last_event);
    free(node->known);
    free(node);
}

static struct rmq_raft *new_node(const struct rmq_raft_options *options)
{
    struct rmq_raft *node = calloc(1, sizeof *node);
    if (node == NULL)
        return NULL;
    node->last = &node->first;
    node->raft.data = node;
    node->last_event = rmq_raft_event_new(RMQ_RAFT_CLOSED, 0);
    node->known = calloc(options->peer_count, sizeof *node->known);
    bool has_memory = node->last_event != NULL && node->known != NULL;
    if (!has_memory || rmq_raft_events_init(&node->events) != 0) {
        free(node->last_event);
        free(node->known);
        free(node);
        return NULL;
    }
    pthread_mutex_init(&node->lock, NULL);
    pthread_cond_init(&node->given, NULL);

    node->known_count = options->peer_count;
    for (size_t i = 0; i < options->peer_count; ++i) {
        assert(options->peers[i].id != 0);
        assert(strlen(options->peers[i].address) < RMQ_RAFT_ADDRESS_SIZE);
        node->known[i].id = options->peers[i].id;
        strcpy(node->known[i].address, options->peers[i].address);
    }
    return node;
}

static void set_options(struct rmq_raft *node, const struct rmq_raft_options *options)
{
    assert(options->heartbeat_ms > 0 && options->heartbeat_ms < options->election_ms);
    assert(options->snapshot_entries > 0);
    raft_set_election_timeout(&node->raft, options->election_ms);
    raft_set_heartbeat_timeout(&node->raft, options->heartbeat_ms);
    raft_set_install_snapshot_timeout(&node->raft, INSTALL_TIMEOUT_MS);
    raft_set_snapshot_threshold(&node->raft, options->snapshot_entries);
    raft_set_snapshot_trailing(&node->raft, options->trailing_entries);
    raft_set_pre_vote(&node->raft, true);
    raft_uv_set_connect_retry_delay(&node->io, CONNECT_RETRY_MS);
    raft_uv_set_segment_size(&node->io, SEGMENT_SIZE);
    /* It would move damaged segments away, with acknowledged entries in them, and continue. */
    raft_uv_set_auto_recovery(&node->io, false);
}

/* Creates a node, up to raft_init. After a failure nothing remains. */
static int make(struct rmq_raft **made, const struct rmq_raft_options *options,
                char error[RMQ_RAFT_ERROR_SIZE])
{
    assert(options->peer_count > 0);
    struct rmq_raft *node = new_node(options);
    if (node == NULL)
        return failed(RAFT_NOMEM, "opening the log", "no memory or descriptors", error);
    int status = uv_loop_init(&node->loop);
    if (status != 0) {
        failed(RAFT_IOERR, "opening the log", uv_strerror(status), error);
        free(node->last_event);
        free(node->known);
        free(node);
        return RAFT_IOERR;
    }
    rmq_raft_make_handles(node);

    status = raft_uv_tcp_init(&node->transport, &node->loop);
    if (status == 0) {
        status = raft_uv_tcp_set_bind_address(&node->transport, options->bind_address);
        rmq_raft_guard_connections(node);
        if (status == 0)
            status = raft_uv_init(&node->io, &node->loop, options->directory, &node->transport);
        if (status == 0) {
            node->io.version = 2; /* version 2 of raft_io has async_work */
            rmq_raft_guard_io(node);
            rmq_raft_init_machine(node);
            const char *own = options->bind_address;
            status = raft_init(&node->raft, &node->io, &node->fsm, options->id, own);
            if (status != 0)
                raft_uv_close(&node->io);
        }
        if (status != 0)
            raft_uv_tcp_close(&node->transport);
    }
    if (status != 0) {
        const char *reason = node->raft.errmsg[0] ? node->raft.errmsg : node->io.errmsg;
        failed(status, "opening the log", reason, error);
        uv_close((struct uv_handle_s *)&node->prepare, NULL);
        uv_close((struct uv_handle_s *)&node->wake, NULL);
        uv_run(&node->loop, UV_RUN_DEFAULT);
        free_parts(node);
        return status;
    }
    set_options(node, options);
    *made = node;
    return 0;
}

void rmq_raft_free(struct rmq_raft *node)
{
    rmq_raft_close(node);
    if (node->has_thread)
        pthread_join(node->thread, NULL);
    else
        uv_run(&node->loop, UV_RUN_DEFAULT);
    assert(node->is_close_begun);
    raft_uv_close(&node->io);
    raft_uv_tcp_close(&node->transport);
    raft_free(node->state.base);
    free_parts(node);
}

int rmq_raft_found(const struct rmq_raft_options *options, char error[RMQ_RAFT_ERROR_SIZE])
{
    struct rmq_raft *node;
    int status = make(&node, options, error);
    if (status != 0)
        return status;
    assert(!node->has_thread);

    struct raft_configuration group;
    raft_configuration_init(&group);
    for (size_t i = 0; status == 0 && i < options->peer_count; ++i) {
        /* Nodes are reached at the addresses of their options; the log has none. */
        char name[RMQ_RAFT_ADDRESS_SIZE];
        snprintf(name, sizeof name, "%llu", (unsigned long long)options->peers[i].id);
        status = raft_configuration_add(&group, options->peers[i].id, name, RAFT_VOTER);
    }
    if (status == 0)
        status = raft_bootstrap(&node->raft, &group);
    if (status != 0)
        failed(status, "founding the group", node->io.errmsg, error);
    raft_configuration_close(&group);
    rmq_raft_free(node);
    return status;
}

int rmq_raft_open(struct rmq_raft **made, const struct rmq_raft_options *options,
                  char error[RMQ_RAFT_ERROR_SIZE])
{
    struct rmq_raft *node;
    int status = make(&node, options, error);
    if (status != 0)
        return status;
    status = raft_start(&node->raft);
    if (status != 0) {
        failed(status, "reading the log", node->raft.errmsg, error);
        rmq_raft_free(node);
        return status;
    }
    assert(raft_state(&node->raft) != RAFT_UNAVAILABLE);

    /* Signals are for the threads of the user; SIGPIPE would end the process. */
    sigset_t all, former;
    sigfillset(&all);
    pthread_sigmask(SIG_SETMASK, &all, &former);
    status = pthread_create(&node->thread, NULL, rmq_raft_run, node);
    pthread_sigmask(SIG_SETMASK, &former, NULL);
    node->has_thread = status == 0;
    if (status != 0) {
        failed(RAFT_IOERR, "starting a thread", strerror(status), error);
        rmq_raft_free(node);
        return RAFT_IOERR;
    }
    *made = node;
    return 0;
}
