/* ack_log.h -- the log of an acknowledgement board: its end, its confirm offset and its clock.
 *
 * Production boards use a store. Scenarios and the simulator run the same board on a model, a log
 * without files: the caller sets its offsets and its time.
 */
#ifndef RMQ_ACK_LOG_H
#define RMQ_ACK_LOG_H

#include "base/hook.h"
#include "store/store.h"

/* Offsets are physical offsets. confirmed, confirm and hold are those of dispatch.h. */
struct rmq_ack_log_calls {
    int64_t (*end)(void *owner);
    int64_t (*flushed)(void *owner); /* end of the durable part */
    int64_t (*confirmed)(void *owner);
    void (*confirm)(void *owner, struct rmq_confirm confirm);
    int64_t (*hold)(void *owner);
    struct rmq_hook *(*on_flushed)(void *owner); /* runs when flushed has grown */
    int64_t (*now_ms)(
        void *owner); /* monotonic; the only call that is allowed once the owner is closed */
};

struct rmq_ack_log {
    const struct rmq_ack_log_calls *calls;
    void *owner;
};

struct rmq_ack_log rmq_ack_log_of_store(struct rmq_store *store);

/* A log without files. One thread makes all calls for it, and for a board on it. */
struct rmq_ack_model {
    int64_t end_offset;
    int64_t flushed_offset;
    struct rmq_confirm confirm;
    int64_t now_ms; /* set by the caller */
    struct rmq_hook on_flushed;
};

/* flushed_offset and confirm_offset are at most end_offset. */
void rmq_ack_model_init(struct rmq_ack_model *model, int64_t end_offset, int64_t flushed_offset,
                        int64_t confirm_offset);
void rmq_ack_model_destroy(struct rmq_ack_model *model);
/* Neither offset may decrease. */
void rmq_ack_model_append(struct rmq_ack_model *model, int64_t end_offset);
void rmq_ack_model_flush(struct rmq_ack_model *model, int64_t flushed_offset);
struct rmq_ack_log rmq_ack_log_of_model(struct rmq_ack_model *model);

#endif
