/* raft_machine.c -- the state machine of a Raft node. It turns all of libraft's calls into
 * events. */
#include <assert.h>
#include <endian.h>
#include <stdlib.h>
#include <string.h>

#include "raft/raft_internal.h"

static int machine_apply(struct raft_fsm *fsm, const struct raft_buffer *buf, void **result)
{
    struct rmq_raft *node = fsm->data;
    *result = NULL;
    uint64_t head[2] = {0};
    static_assert(sizeof head == RMQ_RAFT_HEAD_SIZE, "term and size");
    if (buf->len >= sizeof head)
        memcpy(head, buf->base, sizeof head);
    uint64_t size = be64toh(head[1]);
    if (buf->len < sizeof head || size > buf->len - sizeof head) {
        rmq_raft_fail(node, "applying a command", "the entry was not written by this program");
        return RAFT_CORRUPT;
    }
    struct rmq_raft_event *event = rmq_raft_event_new(RMQ_RAFT_APPLY, size);
    if (event == NULL) {
        /* libraft would skip the entry later. */
        rmq_raft_fail(node, "applying a command", "no memory");
        return RAFT_NOMEM;
    }

    event->term = be64toh(head[0]);
    /* libraft counts the entry as applied after this call. */
    event->index = raft_last_applied(&node->raft) + 1;
    memcpy(event->data, (const uint8_t *)buf->base + RMQ_RAFT_HEAD_SIZE, size);
    rmq_raft_add_event(node, event);
    return 0;
}

static int machine_restore(struct raft_fsm *fsm, struct raft_buffer *buf)
{
    struct rmq_raft *node = fsm->data;
    struct rmq_raft_event *event = rmq_raft_event_new(RMQ_RAFT_RESTORE, buf->len);
    if (event == NULL)
        return RAFT_NOMEM;
    memcpy(event->data, buf->base, buf->len);
    raft_free(buf->base);
    rmq_raft_add_event(node, event);
    return 0;
}

/* On the loop's thread: the event follows all commands that the snapshot covers. */
static int machine_snapshot(struct raft_fsm *fsm, struct raft_buffer *bufs[], unsigned *n_bufs)
{
    struct rmq_raft *node = fsm->data;
    assert(!node->is_taking);
    if (node->is_failed || rmq_raft_is_closing(node))
        return RAFT_BUSY;
    struct rmq_raft_event *event = rmq_raft_event_new(RMQ_RAFT_SNAPSHOT, 0);
    if (event == NULL)
        return RAFT_BUSY;

    *bufs = NULL;
    *n_bufs = 0;
    pthread_mutex_lock(&node->lock);
    assert(node->stage == RMQ_RAFT_NO_SNAPSHOT);
    node->stage = RMQ_RAFT_WANTED;
    pthread_mutex_unlock(&node->lock);
    node->is_taking = true;
    event->index = raft_last_applied(&node->raft);
    rmq_raft_add_event(node, event);
    return 0;
}

/* On a thread of libuv's pool: waits for the user. */
static int machine_snapshot_async(struct raft_fsm *fsm, struct raft_buffer *bufs[],
                                  unsigned *n_bufs)
{
    struct rmq_raft *node = fsm->data;
    pthread_mutex_lock(&node->lock);
    while (node->stage == RMQ_RAFT_WANTED && !node->is_closing)
        pthread_cond_wait(&node->given, &node->lock);
    assert(node->stage != RMQ_RAFT_NO_SNAPSHOT);
    struct raft_buffer state = node->state;
    node->state = (struct raft_buffer){0};
    node->stage = RMQ_RAFT_NO_SNAPSHOT;
    pthread_mutex_unlock(&node->lock);

    if (state.base == NULL)
        return RAFT_CANCELED;
    *bufs = raft_malloc(sizeof **bufs);
    if (*bufs == NULL) {
        raft_free(state.base);
        return RAFT_NOMEM;
    }
    (*bufs)[0] = state;
    *n_bufs = 1;
    return 0;
}

/* On the loop's thread: the snapshot is written, or was abandoned. */
static int machine_snapshot_finalize(struct raft_fsm *fsm, struct raft_buffer *bufs[],
                                     unsigned *n_bufs)
{
    struct rmq_raft *node = fsm->data;
    assert(node->is_taking);
    assert(*n_bufs <= 1);
    node->is_taking = false;
    if (*bufs != NULL) {
        raft_free((*bufs)[0].base);
        raft_free(*bufs);
    }
    *bufs = NULL;
    *n_bufs = 0;
    return 0;
}

void rmq_raft_init_machine(struct rmq_raft *node)
{
    assert(node->fsm.data == NULL);
    node->fsm = (struct raft_fsm){
        .version = 3,
        .data = node,
        .apply = machine_apply,
        .restore = machine_restore,
        .snapshot = machine_snapshot,
        .snapshot_async = machine_snapshot_async,
        .snapshot_finalize = machine_snapshot_finalize,
    };
}
