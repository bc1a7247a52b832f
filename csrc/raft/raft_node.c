#include "raft/raft_node.h"

#include <assert.h>
#include <endian.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "raft/raft_internal.h"

void rmq_raft_add_event(struct rmq_raft *node, struct rmq_raft_event *event)
{
    rmq_raft_events_add(&node->events, event);
}

bool rmq_raft_is_closing(struct rmq_raft *node)
{
    pthread_mutex_lock(&node->lock);
    bool is_closing = node->is_closing;
    pthread_mutex_unlock(&node->lock);
    return is_closing;
}

void rmq_raft_fail(struct rmq_raft *node, const char *act, const char *reason)
{
    if (node->is_failed)
        return;
    node->is_failed = true;

    char text[RMQ_RAFT_ERROR_SIZE];
    int written = snprintf(text, sizeof text, "%s: %s", act, reason);
    assert(written > 0);
    size_t size = strlen(text);
    rmq_raft_close(node);
    struct rmq_raft_event *event = rmq_raft_event_new(RMQ_RAFT_FAILED, size);
    if (event != NULL) { /* Without memory only RMQ_RAFT_CLOSED reports the end. */
        memcpy(event->data, text, size);
        rmq_raft_add_event(node, event);
    }
}

/* Requests. */

static void finish(struct rmq_raft_request *request, int outcome, raft_index index)
{
    struct rmq_raft *node = request->node;
    assert(outcome >= RMQ_RAFT_OK && outcome <= RMQ_RAFT_UNKNOWN);
    if (request->id != 0) {
        struct rmq_raft_event *event = rmq_raft_event_new(RMQ_RAFT_DONE, 0);
        if (event != NULL) { /* Without memory the user waits until its timeout. */
            event->request = request->id;
            event->status = outcome;
            event->index = index;
            rmq_raft_add_event(node, event);
        }
    }
    free(request);
}

static void applied(struct raft_apply *apply, int status, void *result)
{
    struct rmq_raft_request *request = apply->data;
    (void)result;
    finish(request, status == 0 ? RMQ_RAFT_OK : RMQ_RAFT_UNKNOWN, apply->index);
}

static void passed(struct raft_barrier *barrier, int status)
{
    struct rmq_raft_request *request = barrier->data;
    struct rmq_raft *node = request->node;
    if (status == 0 && request->id == 0)
        node->leading_term = request->term;
    finish(request, status == 0 ? RMQ_RAFT_OK : RMQ_RAFT_UNKNOWN, barrier->index);
}

static void submit(struct rmq_raft_request *request)
{
    struct rmq_raft *node = request->node;
    assert(request->next == NULL);
    int status = node->is_failed || node->is_close_begun ? RAFT_NOTLEADER : 0;

    if (request->kind == RMQ_RAFT_BARRIER) {
        request->barrier.data = request;
        if (status == 0)
            status = raft_barrier(&node->raft, &request->barrier, passed);
    } else {
        uint64_t term = htobe64(node->raft.current_term);
        memcpy(request->entry.base, &term, sizeof term);
        request->apply.data = request;
        if (status == 0)
            status = raft_apply(&node->raft, &request->apply, &request->entry, 1, applied);
        /* After another failure a write that libraft began may still read the entry. */
        if (status == RAFT_NOTLEADER)
            raft_free(request->entry.base);
    }
    if (status == 0)
        return;
    if (request->id == 0)
        node->barrier_term = 0; /* The next turn of the loop tries again. */
    finish(request, status == RAFT_NOTLEADER ? RMQ_RAFT_NOT_LEADER : RMQ_RAFT_UNKNOWN, 0);
}

static void woken(struct uv_async_s *wake)
{
    struct rmq_raft *node = wake->data;
    pthread_mutex_lock(&node->lock);
    struct rmq_raft_request *request = node->first;
    node->first = NULL;
    node->last = &node->first;
    pthread_mutex_unlock(&node->lock);

    while (request != NULL) {
        struct rmq_raft_request *next = request->next;
        request->next = NULL;
        submit(request);
        request = next;
    }
}

static int enqueue(struct rmq_raft *node, struct rmq_raft_request *request)
{
    assert(request->next == NULL);
    request->node = node;
    pthread_mutex_lock(&node->lock);
    bool is_closing = node->is_closing;
    if (!is_closing) {
        *node->last = request;
        node->last = &request->next;
        /* Under the lock: the handle is closed by a thread that has seen is_closing. */
        uv_async_send(&node->wake);
    }
    pthread_mutex_unlock(&node->lock);
    if (is_closing) {
        raft_free(request->entry.base);
        finish(request, RMQ_RAFT_NOT_LEADER, 0);
    }
    return 0;
}

int rmq_raft_propose(struct rmq_raft *node, uint64_t id, const void *command, size_t size)
{
    assert(id != 0);
    struct rmq_raft_request *request = calloc(1, sizeof *request);
    if (request == NULL)
        return ENOMEM;
    request->kind = RMQ_RAFT_PROPOSAL;
    request->id = id;
    request->entry.len = (RMQ_RAFT_HEAD_SIZE + size + 7) / 8 * 8;
    request->entry.base = raft_calloc(1, request->entry.len);
    if (request->entry.base == NULL) {
        free(request);
        return ENOMEM;
    }
    uint64_t stored_size = htobe64(size);
    uint8_t *entry = request->entry.base;
    memcpy(entry + RMQ_RAFT_HEAD_SIZE - sizeof stored_size, &stored_size, sizeof stored_size);
    memcpy(entry + RMQ_RAFT_HEAD_SIZE, command, size);
    return enqueue(node, request);
}

int rmq_raft_barrier(struct rmq_raft *node, uint64_t id)
{
    assert(id != 0);
    struct rmq_raft_request *request = calloc(1, sizeof *request);
    if (request == NULL)
        return ENOMEM;
    request->kind = RMQ_RAFT_BARRIER;
    request->id = id;
    return enqueue(node, request);
}

int rmq_raft_give_snapshot(struct rmq_raft *node, const void *state, size_t size)
{
    struct raft_buffer copy = {.base = raft_malloc(size > 0 ? size : 1), .len = size};
    if (copy.base != NULL)
        memcpy(copy.base, state, size);

    pthread_mutex_lock(&node->lock);
    if (node->stage == RMQ_RAFT_WANTED) {
        assert(node->state.base == NULL);
        node->state = copy;
        node->stage = RMQ_RAFT_GIVEN;
        pthread_cond_broadcast(&node->given);
    } else {
        raft_free(copy.base);
    }
    pthread_mutex_unlock(&node->lock);
    return copy.base == NULL ? ENOMEM : 0;
}

/* Leadership. */

/* A new leader acts once an entry of its own term is applied. */
static void propose_own_entry(struct rmq_raft *node)
{
    raft_term term = node->raft.current_term;
    if (raft_state(&node->raft) != RAFT_LEADER || node->barrier_term == term)
        return;
    assert(term > 0);
    struct rmq_raft_request *request = calloc(1, sizeof *request);
    if (request == NULL)
        return;
    request->kind = RMQ_RAFT_BARRIER;
    request->node = node;
    request->term = term;
    node->barrier_term = term;
    submit(request);
}

static void tell_leadership(struct rmq_raft *node)
{
    raft_term term = node->raft.current_term;
    int state = raft_state(&node->raft);
    bool leads = state == RAFT_LEADER && node->leading_term == term && !node->is_failed;
    raft_id leader = leads ? node->raft.id : 0;
    if (state == RAFT_FOLLOWER) {
        const char *address;
        raft_leader(&node->raft, &leader, &address);
    }
    if (term == node->told_term && leader == node->told_leader && leads == node->told_leads)
        return;

    struct rmq_raft_event *event = rmq_raft_event_new(RMQ_RAFT_LEADERSHIP, 0);
    if (event == NULL)
        return;
    event->term = node->told_term = term;
    event->request = node->told_leader = leader;
    event->status = node->told_leads = leads;
    assert(!leads || leader == node->raft.id);
    rmq_raft_add_event(node, event);
}

/* The loop. */

static void closed(struct raft *raft)
{
    struct rmq_raft *node = raft->data;
    assert(node->is_close_begun);
    uv_close((struct uv_handle_s *)&node->prepare, NULL);
    uv_close((struct uv_handle_s *)&node->wake, NULL);
}

/* libraft must not get a snapshot while it closes. After a failed write its disk keeps a snapshot
 * that it has got until it closes. */
bool rmq_raft_may_close(const struct rmq_raft *node)
{
    return !node->is_taking || node->is_storing;
}

/* Runs before the loop waits, after every callback that may have changed something. */
static void before_waiting(struct uv_prepare_s *prepare)
{
    struct rmq_raft *node = prepare->data;
    if (node->is_close_begun)
        return;
    if (raft_state(&node->raft) == RAFT_UNAVAILABLE && !rmq_raft_is_closing(node))
        rmq_raft_fail(node, "the group", raft_errmsg(&node->raft));
    if (!node->is_failed && !rmq_raft_is_closing(node)) {
        propose_own_entry(node);
        tell_leadership(node);
        return;
    }
    if (rmq_raft_may_close(node)) {
        node->is_close_begun = true;
        raft_close(&node->raft, closed);
    }
}

void *rmq_raft_run(void *argument)
{
    struct rmq_raft *node = argument;
    uv_run(&node->loop, UV_RUN_DEFAULT);
    assert(node->is_close_begun);
    woken(&node->wake); /* Requests that arrived too late for the loop. */
    assert(node->first == NULL);
    struct rmq_raft_event *event = node->last_event;
    node->last_event = NULL;
    rmq_raft_add_event(node, event);
    return NULL;
}

void rmq_raft_make_handles(struct rmq_raft *node)
{
    int status = uv_async_init(&node->loop, &node->wake, woken);
    assert(status == 0);
    status = uv_prepare_init(&node->loop, &node->prepare);
    assert(status == 0);
    status = uv_prepare_start(&node->prepare, before_waiting);
    assert(status == 0);
    node->wake.data = node;
    node->prepare.data = node;
}

struct rmq_raft_events *rmq_raft_events_of(struct rmq_raft *node)
{
    return &node->events;
}

void rmq_raft_close(struct rmq_raft *node)
{
    pthread_mutex_lock(&node->lock);
    if (!node->is_closing) {
        node->is_closing = true;
        pthread_cond_broadcast(&node->given);
        uv_async_send(&node->wake);
    }
    pthread_mutex_unlock(&node->lock);
    rmq_raft_events_unbound(&node->events);
}
