#include "replica/ack_log.h"

#include <assert.h>

#include "store/store_view.h"

/* ---- a store ---- */

static int64_t store_end(void *owner)
{
    return rmq_store_end(owner);
}

static int64_t store_flushed(void *owner)
{
    return rmq_store_flushed(owner);
}

static int64_t store_confirmed(void *owner)
{
    return rmq_store_confirmed(owner);
}

static void store_confirm(void *owner, struct rmq_confirm confirm)
{
    rmq_store_confirm(owner, confirm);
}

static int64_t store_hold(void *owner)
{
    return rmq_store_hold_confirmed(owner);
}

static struct rmq_hook *store_on_flushed(void *owner)
{
    return rmq_store_on_flushed(owner);
}

static int64_t store_now_ms(void *owner)
{
    (void)owner; /* The store may be closed. */
    return rmq_monotonic_ms();
}

struct rmq_ack_log rmq_ack_log_of_store(struct rmq_store *store)
{
    static const struct rmq_ack_log_calls calls = {
        .end = store_end,
        .flushed = store_flushed,
        .confirmed = store_confirmed,
        .confirm = store_confirm,
        .hold = store_hold,
        .on_flushed = store_on_flushed,
        .now_ms = store_now_ms,
    };
    assert(store && !rmq_store_is_read_only(store));

    return (struct rmq_ack_log){.calls = &calls, .owner = store};
}

/* ---- a model ---- */

static int64_t model_end(void *owner)
{
    const struct rmq_ack_model *model = owner;
    return model->end_offset;
}

static int64_t model_flushed(void *owner)
{
    const struct rmq_ack_model *model = owner;
    return model->flushed_offset;
}

static int64_t model_confirmed(void *owner)
{
    const struct rmq_ack_model *model = owner;
    return rmq_confirm_limit(model->confirm, model->end_offset);
}

static void model_confirm(void *owner, struct rmq_confirm confirm)
{
    struct rmq_ack_model *model = owner;
    if (rmq_confirm_is_below(model->confirm, confirm))
        model->confirm = confirm;
}

static int64_t model_hold(void *owner)
{
    struct rmq_ack_model *model = owner;
    if (model->confirm.mode != RMQ_CONFIRM_BOUND)
        model->confirm = rmq_confirm_at(model->end_offset);
    return model_confirmed(model);
}

static struct rmq_hook *model_on_flushed(void *owner)
{
    struct rmq_ack_model *model = owner;
    return &model->on_flushed;
}

static int64_t model_now_ms(void *owner)
{
    const struct rmq_ack_model *model = owner;
    return model->now_ms;
}

void rmq_ack_model_init(struct rmq_ack_model *model, int64_t end_offset, int64_t flushed_offset,
                        int64_t confirm_offset)
{
    assert(0 <= flushed_offset && flushed_offset <= end_offset);
    assert(0 <= confirm_offset && confirm_offset <= end_offset);

    model->end_offset = end_offset;
    model->flushed_offset = flushed_offset;
    model->confirm = rmq_confirm_at(confirm_offset);
    model->now_ms = 0;
    rmq_hook_init(&model->on_flushed);
}

void rmq_ack_model_destroy(struct rmq_ack_model *model)
{
    rmq_hook_destroy(&model->on_flushed);
}

void rmq_ack_model_append(struct rmq_ack_model *model, int64_t end_offset)
{
    assert(end_offset >= model->end_offset);
    model->end_offset = end_offset;
}

void rmq_ack_model_flush(struct rmq_ack_model *model, int64_t flushed_offset)
{
    assert(flushed_offset >= model->flushed_offset && flushed_offset <= model->end_offset);
    model->flushed_offset = flushed_offset;
    rmq_hook_run(&model->on_flushed, false);
}

struct rmq_ack_log rmq_ack_log_of_model(struct rmq_ack_model *model)
{
    static const struct rmq_ack_log_calls calls = {
        .end = model_end,
        .flushed = model_flushed,
        .confirmed = model_confirmed,
        .confirm = model_confirm,
        .hold = model_hold,
        .on_flushed = model_on_flushed,
        .now_ms = model_now_ms,
    };
    return (struct rmq_ack_log){.calls = &calls, .owner = model};
}
