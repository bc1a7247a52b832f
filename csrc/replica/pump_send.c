#include <assert.h>
#include <inttypes.h>
#include <string.h>

#include "base/crc32.h"
#include "replica/pump_link.h"

/* Maximum number of frames sent in one call, and maximum size of the bodies of all but the last of
 * them together. */
#define GROUP_FRAMES_MAX 32
#define GROUP_SIZE (1 << 20)
/* Receive calls in one turn. */
#define HEAR_ROUNDS_MAX 16
/* A slave that lacks bytes which existed this long ago lags behind. */
#define LAG_MS 100

struct group {
    struct iovec parts[2 * GROUP_FRAMES_MAX];
    uint8_t heads[GROUP_FRAMES_MAX][RMQ_HA_HEAD_SIZE_MAX];
    size_t count; /* parts of frames; the head and the body of frame i are parts 2i and 2i + 1 */
};

static int64_t minimum(int64_t a, int64_t b)
{
    return a < b ? a : b;
}

static int64_t confirm_offset(const struct rmq_pump_link *link)
{
    return rmq_store_confirmed(link->store);
}

static size_t encode_head(const struct rmq_pump_link *link, int64_t offset, const uint8_t *body,
                          int32_t body_size, int64_t confirm, uint8_t out[RMQ_HA_HEAD_SIZE_MAX])
{
    assert(offset >= 0 && body_size >= 0 && (body || body_size == 0));

    struct rmq_ha_frame frame = {
        .kind = link->has_epochs ? RMQ_HA_TRANSFER : RMQ_HA_CLASSIC_DATA,
        .is_checked = link->is_checked,
        .offset = offset,
        .body_size = body_size,
        .body_crc = link->is_checked ? rmq_crc32(0, body, (size_t)body_size) : 0,
    };

    if (link->has_epochs) {
        frame.epoch = link->epoch;
        frame.epoch_start = link->epoch_start;
        frame.confirm_offset = confirm;
    }
    return rmq_ha_head_encode(&frame, out);
}

static void note_told(struct rmq_pump_link *link, int64_t confirm)
{
    assert(confirm >= 0);

    link->progress.confirm_offset = confirm;
    link->told_ms = link->progress.wrote_ms;
}

/* ---- a frame that went out in part ---- */

/* False: a part of it is not sent yet. */
static bool finish_frame(struct rmq_pump_link *link)
{
    while (rmq_pump_link_unsent(link) > 0) {
        struct rmq_mapped_file *file = NULL;
        struct iovec parts[2];
        size_t count = 0, in_body = 0;
        if (link->sent < link->head_size)
            parts[count++] = (struct iovec){link->head + link->sent, link->head_size - link->sent};
        else
            in_body = link->sent - link->head_size;

        if (link->body_size > 0) {
            struct rmq_error error;
            if (rmq_store_pin(link->store, link->body_offset, &file, &error) != RMQ_OK) {
                rmq_pump_link_end(link, RMQ_PUMP_ERROR, &error);
                return false;
            }
            parts[count++] = (struct iovec){rmq_mapped_file_base(file) +
                                                (link->body_offset - file->start) + in_body,
                                            (size_t)link->body_size - in_body};
        }

        size_t sent = rmq_pump_link_write(link, parts, count);
        if (file)
            rmq_mapped_file_unpin(file);
        if (sent == 0)
            return false;
        link->sent += sent;
        assert(link->sent <= link->head_size + (size_t)link->body_size);
    }

    link->head_size = link->sent = 0;
    link->body_size = 0;
    link->whole_offset = link->progress.next_offset;
    return true;
}

static void begin_empty_frame(struct rmq_pump_link *link)
{
    int64_t confirm = confirm_offset(link);
    assert(rmq_pump_link_unsent(link) == 0);

    link->wants_empty_frame = false;
    link->body_offset = link->progress.next_offset;
    link->head_size = encode_head(link, link->body_offset, NULL, 0, confirm, link->head);
    note_told(link, confirm);
}

/* ---- the log ---- */

/* Size of the next body: 0 when there are no bytes to send, -1 when the link is to be returned. */
static int32_t next_body(const struct rmq_pump_link *link, int64_t offset, int64_t log_end)
{
    assert(offset >= 0 && offset <= log_end);

    int64_t file_size = rmq_store_log_file_size(link->store);
    int64_t size = minimum(log_end - offset, file_size - offset % file_size);
    size = minimum(size, link->batch_size);

    if (link->until >= 0 && size >= link->until - offset)
        return -1;
    assert(size >= 0 && size <= link->batch_size);
    return (int32_t)size;
}

/* Plans at least one frame, all of one file, from next_offset on. */
static void plan(const struct rmq_pump_link *link, const struct rmq_mapped_file *file,
                 const uint8_t *base, int64_t log_end, int64_t confirm, struct group *group)
{
    assert(link->progress.next_offset >= file->start);

    int64_t offset = link->progress.next_offset;
    int64_t stop = minimum(minimum(log_end, file->start + file->size), offset + GROUP_SIZE);

    for (group->count = 0; group->count < GROUP_FRAMES_MAX && offset < stop; ++group->count) {
        size_t i = group->count;
        int32_t size = next_body(link, offset, log_end);
        if (size <= 0)
            break;

        const uint8_t *body = base + (offset - file->start);
        size_t head_size = encode_head(link, offset, body, size, confirm, group->heads[i]);
        group->parts[2 * i] = (struct iovec){group->heads[i], head_size};
        group->parts[2 * i + 1] = (struct iovec){(uint8_t *)(uintptr_t)body, (size_t)size};
        offset += size;
    }
    assert(group->count > 0);
}

/* Advances by the bytes sent. A frame that was sent in part is kept in the link. */
static void account(struct rmq_pump_link *link, const struct group *group, size_t sent)
{
    assert(link->sent == 0 && group->count <= GROUP_FRAMES_MAX);

    for (size_t i = 0; i < group->count && sent > 0; ++i) {
        const struct iovec *head = &group->parts[2 * i], *body = head + 1;
        int64_t offset = link->progress.next_offset;
        link->progress.next_offset = offset + (int64_t)body->iov_len;
        if (sent >= head->iov_len + body->iov_len) {
            link->whole_offset = link->progress.next_offset;
            sent -= head->iov_len + body->iov_len;
            continue;
        }

        memcpy(link->head, head->iov_base, head->iov_len);
        link->head_size = head->iov_len;
        link->body_offset = offset;
        link->body_size = (int32_t)body->iov_len;
        link->sent = sent;
        sent = 0;
    }
}

static void send_group(struct rmq_pump_link *link, int64_t log_end)
{
    assert(link->progress.next_offset < log_end);

    struct rmq_mapped_file *file = NULL;
    struct rmq_error error;
    struct group group;

    int status = rmq_store_pin(link->store, link->progress.next_offset, &file, &error);
    if (status != RMQ_OK) {
        /* Files were deleted before the slave had their bytes. */
        rmq_pump_link_end(link, RMQ_PUMP_ERROR, &error);
        return;
    }

    int64_t confirm = confirm_offset(link);
    plan(link, file, rmq_mapped_file_base(file), log_end, confirm, &group);
    size_t sent = rmq_pump_link_write(link, group.parts, 2 * group.count);
    rmq_mapped_file_unpin(file);

    if (sent == 0)
        return;

    account(link, &group, sent);
    note_told(link, confirm);
    if (link->mark_offset < 0) {
        link->mark_offset = log_end;
        link->mark_ms = link->progress.wrote_ms;
    }
}

void rmq_pump_send_frames(struct rmq_pump_link *link)
{
    assert(link->is_master);

    int64_t stop = link->progress.next_offset + RMQ_PUMP_TURN_SIZE;
    link->has_more = false;

    while (link->end == RMQ_PUMP_RUNS && link->may_write) {
        if (!finish_frame(link))
            return;

        int64_t log_end = rmq_store_end(link->store);
        if (log_end < link->progress.next_offset) {
            struct rmq_error error;
            rmq_fail(&error, RMQ_OUT_OF_RANGE, log_end,
                     "the log was cut at %" PRId64 " while %" PRId64 " comes next for a replica",
                     log_end, link->progress.next_offset);
            rmq_pump_link_end(link, RMQ_PUMP_ERROR, &error);
            return;
        }

        int32_t size = next_body(link, link->progress.next_offset, log_end);
        if (size < 0) {
            rmq_pump_link_end(link, RMQ_PUMP_UNTIL, NULL);
        } else if (size > 0 && link->progress.next_offset < stop) {
            send_group(link, log_end);
        } else if (size > 0) {
            link->has_more = true;
            return;
        } else if (link->wants_empty_frame) {
            begin_empty_frame(link);
        } else {
            return;
        }
    }
}

bool rmq_pump_send_must_tell(const struct rmq_pump_link *link)
{
    assert(link->is_master);

    return link->has_epochs && link->progress.confirm_offset < link->progress.next_offset &&
           link->progress.confirm_offset < confirm_offset(link);
}

/* ---- acknowledgements ---- */

static void note_ack(struct rmq_pump_link *link, int32_t epoch, int64_t offset)
{
    assert(offset >= 0);

    int64_t log_end = rmq_store_end(link->store);
    struct rmq_link_progress *progress = &link->progress;
    if (offset > progress->acked_offset || epoch > progress->acked_epoch)
        link->has_news = true;

    progress->acked_offset = offset;
    progress->acked_epoch = epoch;
    progress->heard_ms = rmq_monotonic_ms();

    if (offset == log_end)
        progress->caught_up_ms = progress->heard_ms;
    else if (link->mark_offset >= 0 && offset >= link->mark_offset)
        progress->caught_up_ms = link->mark_ms;

    if (link->mark_offset >= 0 && progress->heard_ms - link->mark_ms > LAG_MS)
        link->lagged = true;

    if (offset >= link->mark_offset)
        link->mark_offset = -1;
    if (offset == log_end && link->lagged) {
        link->lagged = false;
        link->reported_ms = 0;
    }
}

/* The last epoch that the sender has stored. Frames without checks do not carry it. But the slave
 * received the bytes after proof_offset in frames with the link's label, and stores that epoch
 * first. The classic protocol has no epochs: there such an offset shows that the slave compared its
 * log. */
static int32_t epoch_of(const struct rmq_pump_link *link, const struct rmq_ha_frame *frame,
                        int32_t before)
{
    assert(link->is_master);

    if (link->is_checked)
        return frame->epoch;
    int32_t label = link->has_epochs ? link->epoch : RMQ_LINK_NO_EPOCHS;
    return frame->offset > link->proof_offset && label > before ? label : before;
}

/* Processes the received bytes. Returns the greatest valid offset, -1 for none, and its epoch. Only
 * completely sent frames can be acknowledged. */
static int64_t take_acks(struct rmq_pump_link *link, int32_t *epoch)
{
    assert(link->input_begin <= link->input_end);

    enum rmq_ha_stream stream = link->has_epochs ? RMQ_HA_SWITCH_SLAVE : RMQ_HA_CLASSIC_SLAVE;
    int64_t last = link->progress.acked_offset > 0 ? link->progress.acked_offset : 0;
    int64_t taken = -1;
    *epoch = link->progress.acked_epoch;

    for (;;) {
        struct rmq_ha_frame frame;
        struct rmq_error error;
        size_t needed = 0;
        int status =
            rmq_ha_frame_decode(stream, RMQ_HA_FRAME_SIZE_MAX, link->input + link->input_begin,
                                link->input_end - link->input_begin, &frame, &needed, &error);
        if (status == RMQ_END)
            return taken;

        bool is_ack = status == RMQ_OK && (frame.kind == RMQ_HA_ACK || frame.kind == RMQ_HA_REPORT);
        bool fits = is_ack && frame.is_checked == link->is_checked && frame.offset >= last &&
                    frame.offset <= link->whole_offset;
        int32_t named = fits ? epoch_of(link, &frame, *epoch) : -1;
        if (!fits || named < *epoch || (link->is_checked && named > link->epoch)) {
            rmq_pump_link_end(link, RMQ_PUMP_FOREIGN, NULL);
            return taken;
        }

        last = taken = frame.offset;
        *epoch = named;
        link->input_begin += needed;
        assert(link->input_begin <= link->input_end);
    }
}

static void read_acks(struct rmq_pump_link *link, const struct rmq_pump_options *options)
{
    assert(link->is_master);

    for (int round = 0; link->end == RMQ_PUMP_RUNS; ++round) {
        int32_t epoch;
        int64_t offset = take_acks(link, &epoch);
        if (offset >= 0) {
            note_ack(link, epoch, offset);
            if (options->board && link->slot >= 0)
                rmq_ack_board_ack(options->board, link->slot, epoch, offset);
        }

        if (link->end != RMQ_PUMP_RUNS || !link->may_read || round == HEAR_ROUNDS_MAX)
            return;

        /* The rest is less than a frame. */
        size_t left = link->input_end - link->input_begin;
        memmove(link->input, link->input + link->input_begin, left);
        link->input_begin = 0;
        link->input_end = left;
        if (!rmq_pump_link_read(link))
            return;
    }
}

void rmq_pump_send_turn(struct rmq_pump_link *link, const struct rmq_pump_options *options)
{
    assert(link->is_master);

    read_acks(link, options);
    rmq_pump_send_frames(link);

    if (rmq_pump_send_must_tell(link) && rmq_monotonic_ms() - link->told_ms >= RMQ_PUMP_TELL_MS) {
        link->wants_empty_frame = true;
        rmq_pump_send_frames(link);
    }

    if (link->may_read)
        link->has_more = link->end == RMQ_PUMP_RUNS;
}
