#include <assert.h>
#include <stdlib.h>
#include <string.h>

#include "replica/pump_link.h"

/* Checked bytes that may wait for an acknowledgement while more bytes can be received. */
#define UNACKED_SIZE_MAX (1 << 20)
/* With acknowledgements of the disk: checked bytes that may wait for the disk before the link stops
 * receiving. For so many bytes pages are ready, which need nothing from a disk that does not
 * respond. */
#define UNFLUSHED_SIZE_MAX (RMQ_WARM_AHEAD / 2)
/* Receive calls in one turn. */
#define ROUNDS_MAX 16

static void fail(struct rmq_pump_link *link, const struct rmq_error *error)
{
    rmq_pump_link_end(link, RMQ_PUMP_ERROR, error);
}

/* ---- frames ---- */

/* Bodies of consecutive frames, to be appended together. */
struct run {
    uint8_t *bytes;
    size_t size;
};

/* False: the bodies could not be appended. */
static bool append(struct rmq_pump_link *link, const uint8_t *bytes, size_t size)
{
    struct rmq_link_progress *progress = &link->progress;
    assert(progress->border <= progress->next_offset);

    struct rmq_error error;
    int status = rmq_store_append_raw(link->store, progress->next_offset, bytes, size, &error);
    if (status != RMQ_OK) {
        fail(link, &error);
        return false;
    }
    progress->next_offset += (int64_t)size;
    return true;
}

static bool append_run(struct rmq_pump_link *link, struct run *run)
{
    bool is_appended = run->size == 0 || append(link, run->bytes, run->size);
    *run = (struct run){0};
    return is_appended;
}

/* A link that acknowledges the disk stores to pages made ready: writing bytes may wait for a disk
 * that does not respond. */
static bool append_prepared(struct rmq_pump_link *link, const uint8_t *bytes, size_t size)
{
    assert(link->flush_watch);

    for (size_t at = 0, piece; at < size; at += piece) {
        piece = size - at < RMQ_LARGE_APPEND ? size - at : RMQ_LARGE_APPEND - 1;
        if (!append(link, bytes + at, piece))
            return false;
    }
    return true;
}

/* Moves the body to the end of the run in the input: writing large pieces takes less time than
 * copying them. */
static void join(struct run *run, uint8_t *body, size_t size)
{
    if (run->size == 0)
        run->bytes = body;
    else
        memmove(run->bytes + run->size, body, size);
    run->size += size;
}

/* False: the frame is not for the pump, or could not be appended. */
static bool take_frame(struct rmq_pump_link *link, const struct rmq_ha_frame *frame,
                       struct run *run)
{
    assert(link->progress.border <= link->progress.next_offset);

    struct rmq_link_progress *progress = &link->progress;
    int64_t next_offset = progress->next_offset + (int64_t)run->size;
    bool is_data = frame->kind == RMQ_HA_TRANSFER || frame->kind == RMQ_HA_CLASSIC_DATA;
    if (!is_data || frame->is_checked != link->is_checked || frame->offset != next_offset)
        return false;

    if (link->has_epochs &&
        (frame->epoch != link->epoch || frame->epoch_start != link->epoch_start))
        return false;

    size_t size = (size_t)frame->body_size;
    if (link->flush_watch && !append_prepared(link, frame->body, size))
        return false;
    if (!link->flush_watch && size > 0)
        join(run, link->input + (frame->body - link->input), size);

    if (frame->confirm_offset > progress->confirm_offset)
        progress->confirm_offset = frame->confirm_offset;
    return true;
}

static void take_frames(struct rmq_pump_link *link)
{
    assert(link->input_begin <= link->input_end && link->input_end <= link->input_capacity);

    enum rmq_ha_stream stream = link->has_epochs ? RMQ_HA_SWITCH_MASTER : RMQ_HA_CLASSIC_MASTER;
    size_t before = link->input_begin;
    struct run run = {0};
    bool is_foreign = false;

    while (link->end == RMQ_PUMP_RUNS) {
        struct rmq_ha_frame frame;
        struct rmq_error error;
        size_t needed = 0;
        int status =
            rmq_ha_frame_decode(stream, RMQ_HA_FRAME_SIZE_MAX, link->input + link->input_begin,
                                link->input_end - link->input_begin, &frame, &needed, &error);
        if (status == RMQ_END)
            break;

        is_foreign = status != RMQ_OK || !take_frame(link, &frame, &run);
        if (is_foreign)
            break;
        link->input_begin += needed;
    }

    if (append_run(link, &run) && is_foreign)
        rmq_pump_link_end(link, RMQ_PUMP_FOREIGN, NULL);

    assert(link->input_begin <= link->input_end);
    if (link->input_begin > before)
        link->progress.heard_ms = rmq_monotonic_ms();
}

/* Moves the beginning of a frame to the front, and allocates more room when it fills the buffer. */
static bool make_room(struct rmq_pump_link *link)
{
    assert(link->input_begin <= link->input_end && link->input_end <= link->input_capacity);

    size_t left = link->input_end - link->input_begin;
    if (link->input_begin > 0)
        memmove(link->input, link->input + link->input_begin, left);
    link->input_begin = 0;
    link->input_end = left;
    if (left < link->input_capacity)
        return true;
    assert(left < RMQ_HA_FRAME_SIZE_MAX);

    size_t capacity = link->input_capacity * 2;
    if (capacity > RMQ_HA_FRAME_SIZE_MAX)
        capacity = RMQ_HA_FRAME_SIZE_MAX;

    uint8_t *input = realloc(link->input, capacity);
    if (!input) {
        struct rmq_error error;
        rmq_fail(&error, RMQ_NO_MEMORY, -1, "%zu bytes for the beginning of a frame", capacity);
        fail(link, &error);
        return false;
    }

    assert(capacity > left);
    link->input = input;
    link->input_capacity = capacity;
    return true;
}

/* ---- appended bytes ---- */

static void raise_confirm(struct rmq_pump_link *link)
{
    assert(link->progress.border <= link->progress.next_offset);

    struct rmq_confirm confirm = rmq_store_confirm_bound(link->store);
    int64_t offset = link->progress.border;
    if (link->has_epochs && link->progress.confirm_offset < offset)
        offset = link->progress.confirm_offset;

    if (confirm.mode == RMQ_CONFIRM_BOUND && offset > confirm.offset)
        rmq_store_confirm(link->store, rmq_confirm_at(offset));
}

/* Checks the appended bytes. Damage ends the link, even if it has another end already. */
static void settle(struct rmq_pump_link *link)
{
    struct rmq_link_progress *progress = &link->progress;
    struct rmq_error error;
    int status = RMQ_OK;
    if (progress->border < progress->next_offset)
        status =
            rmq_store_advance_border(link->store, &progress->border, progress->next_offset, &error);

    if (status == RMQ_OK) {
        assert(progress->border <= progress->next_offset);
        raise_confirm(link);
        return;
    }

    link->end = RMQ_PUMP_RUNS;
    error.at_offset = progress->border;
    rmq_pump_link_end(link, status == RMQ_CORRUPT ? RMQ_PUMP_DAMAGED : RMQ_PUMP_ERROR, &error);
}

/* Counts only whole checked records: later bytes may show that an incomplete record is not a record
 * (docs/defects.md, H23). */
static int64_t ackable(struct rmq_pump_link *link)
{
    int64_t offset = link->progress.border;
    assert(offset >= 0);
    if (!link->flush_watch || offset <= link->progress.acked_offset)
        return offset;

    struct rmq_error error;
    if (rmq_store_ask_flush(link->store, link->flush_watch, offset, &error) != RMQ_OK)
        fail(link, &error);

    int64_t flushed = rmq_store_flushed(link->store);
    return flushed < offset ? flushed : offset;
}

/* Waits until the disk has some of the bytes; the end of a sync causes the next turn. */
static bool waits_for_disk(const struct rmq_pump_link *link)
{
    assert(link->progress.border >= 0);

    return link->flush_watch &&
           link->progress.border - rmq_store_flushed(link->store) >= UNFLUSHED_SIZE_MAX;
}

/* The last stored epoch for bytes before offset: frames with another label than the one stored last
 * are not for the pump. */
static int32_t epoch_of(const struct rmq_pump_link *link, int64_t offset)
{
    return link->is_checked && offset >= link->epoch_start ? link->epoch
                                                           : link->progress.acked_epoch;
}

static void begin_ack(struct rmq_pump_link *link, int64_t offset)
{
    assert(offset >= 0 && rmq_pump_link_unsent(link) == 0);

    link->progress.acked_epoch = epoch_of(link, offset);

    struct rmq_ha_frame frame = {.kind = link->has_epochs ? RMQ_HA_ACK : RMQ_HA_REPORT,
                                 .is_checked = link->is_checked,
                                 .epoch = link->is_checked ? link->progress.acked_epoch : 0,
                                 .offset = offset};
    assert(rmq_pump_link_unsent(link) == 0);

    link->head_size = rmq_ha_head_encode(&frame, link->head);
    link->sent = 0;
    link->progress.acked_offset = offset;
}

void rmq_pump_receive_flush(struct rmq_pump_link *link)
{
    assert(!link->is_master);

    while (rmq_pump_link_unsent(link) > 0 && link->may_write && link->end == RMQ_PUMP_RUNS) {
        struct iovec rest = {link->head + link->sent, link->head_size - link->sent};
        link->sent += rmq_pump_link_write(link, &rest, 1);
        assert(link->sent <= link->head_size);
    }
}

void rmq_pump_receive_heartbeat(struct rmq_pump_link *link)
{
    assert(!link->is_master);

    if (rmq_pump_link_unsent(link) > 0 || link->progress.acked_offset < 0)
        return;

    begin_ack(link, link->progress.acked_offset);
    rmq_pump_receive_flush(link);
}

static void acknowledge(struct rmq_pump_link *link)
{
    assert(!link->is_master);

    rmq_pump_receive_flush(link);
    if (link->end != RMQ_PUMP_RUNS || rmq_pump_link_unsent(link) > 0)
        return;

    int64_t offset = ackable(link);
    bool is_news = offset > link->progress.acked_offset ||
                   (offset == link->progress.acked_offset &&
                    epoch_of(link, offset) != link->progress.acked_epoch);
    if (link->end != RMQ_PUMP_RUNS || !is_news)
        return;

    begin_ack(link, offset);
    link->has_news = true;
    rmq_pump_receive_flush(link);
}

void rmq_pump_receive_turn(struct rmq_pump_link *link)
{
    assert(!link->is_master);

    struct rmq_link_progress *progress = &link->progress;
    int64_t stop = progress->next_offset + RMQ_PUMP_TURN_SIZE;
    link->has_more = false;

    take_frames(link);
    settle(link);

    for (int round = 0; round < ROUNDS_MAX && link->end == RMQ_PUMP_RUNS && link->may_read &&
                        progress->next_offset < stop && !waits_for_disk(link);
         ++round) {
        if (!make_room(link) || !rmq_pump_link_read(link))
            break;
        take_frames(link);
        settle(link);

        if (progress->border - progress->acked_offset >= UNACKED_SIZE_MAX)

            acknowledge(link);
    }
    acknowledge(link);
    link->has_more = link->may_read && link->end == RMQ_PUMP_RUNS && !waits_for_disk(link);
}
