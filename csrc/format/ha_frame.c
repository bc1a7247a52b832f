#include "format/ha_frame.h"

#include <assert.h>
#include <stdlib.h>
#include <string.h>

#include "base/bytes.h"
#include "base/crc32.h"

enum { STATE_SIZE = 4, STATE_HANDSHAKE = 1, STATE_TRANSFER = 2, HELD_SIZE_MIN = 256 };
enum { CRC_SIZE = 4, STATE_CHECKED = 0x434B0000 };

static const struct {
    const char *name;
    uint8_t head_size;
    uint8_t checked_size; /* size of the head with checks; 0: the frame never has checks */
    bool has_body;
} kinds[] = {
    [RMQ_HA_REPORT] = {"report", 8, 0, false},
    [RMQ_HA_CLASSIC_DATA] = {"data frame", 12, 0, true},
    [RMQ_HA_HANDSHAKE] = {"handshake", 16, 0, false},
    [RMQ_HA_HANDSHAKE_REPLY] = {"handshake reply", 20, 32, true},
    [RMQ_HA_TRANSFER] = {"transfer", 36, RMQ_HA_HEAD_SIZE_MAX, true},
    [RMQ_HA_ACK] = {"acknowledgement", 12, 20, false},
};

static uint32_t get_crc(const uint8_t *from)
{
    return (uint32_t)rmq_get_i32(from);
}

static void put_crc(uint8_t *to, uint32_t crc)
{
    rmq_put_i32(to, (int32_t)crc);
}

size_t rmq_ha_head_size(enum rmq_ha_kind kind, bool is_checked)
{
    assert(kind <= RMQ_HA_ACK && (!is_checked || kinds[kind].checked_size > 0));
    return is_checked ? kinds[kind].checked_size : kinds[kind].head_size;
}

/* ---- validation ---- */

static int check_least(const struct rmq_ha_frame *frame, const char *field, int64_t value,
                       int64_t least, struct rmq_error *err)
{
    assert(frame->kind <= RMQ_HA_ACK && field);

    if (value >= least)
        return RMQ_OK;

    return rmq_fail(err, RMQ_CORRUPT, -1, "a %s with %s %lld, which is below %lld",
                    kinds[frame->kind].name, field, (long long)value, (long long)least);
}

static int check_body_size(const struct rmq_ha_frame *frame, int32_t frame_size_max,
                           struct rmq_error *err)
{
    assert(kinds[frame->kind].has_body);

    const char *name = kinds[frame->kind].name;
    int32_t body_size_max =
        frame_size_max - (int32_t)rmq_ha_head_size(frame->kind, frame->is_checked);
    int status = check_least(frame, "body size", frame->body_size, 0, err);
    if (status != RMQ_OK)
        return status;

    if (frame->body_size > body_size_max)
        return rmq_fail(err, RMQ_OUT_OF_RANGE, -1,
                        "a %s with body size %d, which is above the limit of %d", name,
                        frame->body_size, body_size_max);

    if (frame->kind == RMQ_HA_HANDSHAKE_REPLY) {
        if (frame->body_size % RMQ_HA_ENTRY_SIZE != 0)
            return rmq_fail(err, RMQ_CORRUPT, -1,
                            "a %s with body size %d, which is not a whole number of entries of %d "
                            "bytes",
                            name, frame->body_size, RMQ_HA_ENTRY_SIZE);
        return RMQ_OK;
    }

    if (frame->offset > INT64_MAX - frame->body_size)
        return rmq_fail(err, RMQ_CORRUPT, -1,
                        "a %s of %d bytes at offset %lld, which ends behind the greatest offset",
                        name, frame->body_size, (long long)frame->offset);
    return RMQ_OK;
}

int rmq_ha_frame_check(const struct rmq_ha_frame *frame, int32_t frame_size_max,
                       struct rmq_error *err)
{
    assert(frame->kind <= RMQ_HA_ACK);
    assert(frame_size_max >= RMQ_HA_HEAD_SIZE_MAX && frame_size_max <= RMQ_HA_FRAME_SIZE_MAX);

    int status = RMQ_OK;

    if (frame->is_checked && kinds[frame->kind].checked_size == 0)
        return rmq_fail(err, RMQ_CORRUPT, -1, "a %s carries no checks", kinds[frame->kind].name);
    if (frame->kind == RMQ_HA_HANDSHAKE && frame->offers_checks && frame->sync_from_last_file &&
        frame->is_learner)
        return rmq_fail(err, RMQ_CORRUPT, -1, "a handshake with both flags has no room to offer");

    if (frame->kind == RMQ_HA_HANDSHAKE)
        return check_least(frame, "broker id", frame->broker_id, 0, err);
    if (kinds[frame->kind].has_body)
        status = check_body_size(frame, frame_size_max, err);

    /* A master may send a transfer without a body before it knows what it will send. */
    int64_t least = frame->kind == RMQ_HA_TRANSFER && frame->body_size == 0 ? -1 : 0;
    if (status == RMQ_OK)
        status = check_least(frame, "offset", frame->offset, least, err);

    bool has_last_epoch =
        frame->kind == RMQ_HA_HANDSHAKE_REPLY || (frame->kind == RMQ_HA_ACK && frame->is_checked);
    if (status == RMQ_OK && has_last_epoch)
        status = check_least(frame, "epoch", frame->epoch, -1, err);
    if (status != RMQ_OK || frame->kind != RMQ_HA_TRANSFER)
        return status;

    status = check_least(frame, "epoch", frame->epoch, least, err);
    if (status == RMQ_OK)
        status = check_least(frame, "epoch start", frame->epoch_start, least, err);
    if (status == RMQ_OK)
        status = check_least(frame, "confirm offset", frame->confirm_offset, -1, err);
    return status;
}

int rmq_ha_entries_check(const uint8_t *body, int32_t body_size, struct rmq_error *err)
{
    assert(body_size >= 0 && body_size % RMQ_HA_ENTRY_SIZE == 0);
    assert(body || body_size == 0);

    size_t count = (size_t)body_size / RMQ_HA_ENTRY_SIZE;
    struct rmq_ha_entry before = {-1, 0};

    for (size_t i = 0; i < count; ++i) {
        struct rmq_ha_entry entry = rmq_ha_entry_decode(body, i);
        if (entry.epoch <= before.epoch || entry.start_offset < before.start_offset)
            return rmq_fail(err, RMQ_CORRUPT, -1,
                            "a handshake reply in which epoch %d at %lld follows epoch %d at %lld",
                            entry.epoch, (long long)entry.start_offset, before.epoch,
                            (long long)before.start_offset);
        before = entry;
    }
    return RMQ_OK;
}

/* ---- reading ---- */

static int find_kind(enum rmq_ha_stream stream, const uint8_t *data, struct rmq_ha_frame *frame,
                     struct rmq_error *err)
{
    assert(stream <= RMQ_HA_SWITCH_MASTER && data);

    if (stream == RMQ_HA_CLASSIC_SLAVE || stream == RMQ_HA_CLASSIC_MASTER) {
        frame->kind = stream == RMQ_HA_CLASSIC_SLAVE ? RMQ_HA_REPORT : RMQ_HA_CLASSIC_DATA;
        return RMQ_OK;
    }

    int32_t state = rmq_get_i32(data);
    bool is_slave = stream == RMQ_HA_SWITCH_SLAVE;
    bool is_reply = state == (STATE_CHECKED | STATE_HANDSHAKE) && !is_slave;
    frame->is_checked = is_reply || state == (STATE_CHECKED | STATE_TRANSFER);

    if (state == STATE_HANDSHAKE || is_reply)
        frame->kind = is_slave ? RMQ_HA_HANDSHAKE : RMQ_HA_HANDSHAKE_REPLY;
    else if (state == STATE_TRANSFER || frame->is_checked)
        frame->kind = is_slave ? RMQ_HA_ACK : RMQ_HA_TRANSFER;
    else
        return rmq_fail(err, RMQ_CORRUPT, -1, "state %d; there are %d (handshake) and %d (%s)",
                        state, STATE_HANDSHAKE, STATE_TRANSFER,
                        is_slave ? "acknowledgement" : "transfer");
    return RMQ_OK;
}

/* An offer is in the first flag that is 0. */
static int read_flag(const uint8_t *from, const char *name, bool *flag, bool *offer,
                     struct rmq_error *err)
{
    assert(name && flag);

    int16_t value = rmq_get_i16(from);
    *flag = value == 1;

    if (value == RMQ_HA_OFFER && offer) {
        *offer = true;
        return RMQ_OK;
    }

    if (value != 0 && value != 1)
        return rmq_fail(err, RMQ_CORRUPT, -1, "a handshake with %s %d; it is 0 or 1", name, value);
    return RMQ_OK;
}

static int read_head(const uint8_t *data, struct rmq_ha_frame *frame, struct rmq_error *err)
{
    assert(frame->kind <= RMQ_HA_ACK);

    int status = RMQ_OK;
    switch (frame->kind) {
    case RMQ_HA_REPORT:
        frame->offset = rmq_get_i64(data);
        break;
    case RMQ_HA_CLASSIC_DATA:
        frame->offset = rmq_get_i64(data);
        frame->body_size = rmq_get_i32(data + 8);
        break;
    case RMQ_HA_HANDSHAKE:
        status = read_flag(data + 4, "sync-from-last-file flag", &frame->sync_from_last_file,
                           &frame->offers_checks, err);
        if (status == RMQ_OK)
            status = read_flag(data + 6, "learner flag", &frame->is_learner,
                               frame->sync_from_last_file ? &frame->offers_checks : NULL, err);
        frame->broker_id = rmq_get_i64(data + 8);
        break;
    case RMQ_HA_HANDSHAKE_REPLY:
    case RMQ_HA_TRANSFER:
        frame->body_size = rmq_get_i32(data + 4);
        frame->offset = rmq_get_i64(data + 8);
        frame->epoch = rmq_get_i32(data + 16);
        if (frame->kind == RMQ_HA_TRANSFER) {
            frame->epoch_start = rmq_get_i64(data + 20);
            frame->confirm_offset = rmq_get_i64(data + 28);
            frame->body_crc = frame->is_checked ? get_crc(data + 36) : 0;
        } else if (frame->is_checked) {
            frame->handshake_crc = get_crc(data + 20);
            frame->body_crc = get_crc(data + 24);
        }
        break;
    case RMQ_HA_ACK:
        frame->offset = rmq_get_i64(data + 4);
        frame->epoch = frame->is_checked ? rmq_get_i32(data + 12) : 0;
        break;
    }
    return status;
}

static int check_crc(const struct rmq_ha_frame *frame, const char *of, uint32_t crc, uint32_t said,
                     struct rmq_error *err)
{
    assert(of);

    if (crc == said)
        return RMQ_OK;

    return rmq_fail(err, RMQ_CORRUPT, -1, "a %s whose %s has the CRC %08x; it says %08x",
                    kinds[frame->kind].name, of, (unsigned)crc, (unsigned)said);
}

int rmq_ha_frame_decode(enum rmq_ha_stream stream, int32_t frame_size_max, const uint8_t *data,
                        size_t available, struct rmq_ha_frame *frame, size_t *needed,
                        struct rmq_error *err)
{
    assert(frame_size_max >= RMQ_HA_HEAD_SIZE_MAX && frame_size_max <= RMQ_HA_FRAME_SIZE_MAX);
    assert(data || available == 0);
    assert(frame && needed);

    *frame = (struct rmq_ha_frame){0};

    /* The first four bytes show the kind; a classic frame is longer anyway. */
    *needed = STATE_SIZE;
    if (available < *needed)
        return RMQ_END;

    int status = find_kind(stream, data, frame, err);
    if (status != RMQ_OK)
        return status;

    *needed = rmq_ha_head_size(frame->kind, frame->is_checked);
    if (available < *needed)
        return RMQ_END;

    /* Before the size is used. */
    if (frame->is_checked)
        status = check_crc(frame, "head", rmq_crc32(0, data, *needed - CRC_SIZE),
                           get_crc(data + *needed - CRC_SIZE), err);

    if (status == RMQ_OK)
        status = read_head(data, frame, err);
    if (status == RMQ_OK)
        status = rmq_ha_frame_check(frame, frame_size_max, err);
    if (status != RMQ_OK)
        return status;

    frame->body = data + *needed;
    *needed += (size_t)frame->body_size;
    assert(*needed <= (size_t)frame_size_max);
    if (available < *needed)
        return RMQ_END;

    if (frame->is_checked && kinds[frame->kind].has_body)
        status = check_crc(frame, "body", rmq_crc32(0, frame->body, (size_t)frame->body_size),
                           frame->body_crc, err);
    if (status == RMQ_OK && frame->kind == RMQ_HA_HANDSHAKE_REPLY)
        status = rmq_ha_entries_check(frame->body, frame->body_size, err);
    return status;
}

struct rmq_ha_entry rmq_ha_entry_decode(const uint8_t *body, size_t index)
{
    assert(body);

    const uint8_t *at = body + index * RMQ_HA_ENTRY_SIZE;
    return (struct rmq_ha_entry){rmq_get_i32(at), rmq_get_i64(at + 4)};
}

/* ---- writing ---- */

size_t rmq_ha_head_encode(const struct rmq_ha_frame *frame, uint8_t out[RMQ_HA_HEAD_SIZE_MAX])
{
    assert(rmq_ha_frame_check(frame, RMQ_HA_FRAME_SIZE_MAX, NULL) == RMQ_OK);

    size_t size = rmq_ha_head_size(frame->kind, frame->is_checked);
    assert(size <= RMQ_HA_HEAD_SIZE_MAX);
    int32_t mark = frame->is_checked ? STATE_CHECKED : 0;

    switch (frame->kind) {
    case RMQ_HA_REPORT:
        rmq_put_i64(out, frame->offset);
        break;
    case RMQ_HA_CLASSIC_DATA:
        rmq_put_i64(out, frame->offset);
        rmq_put_i32(out + 8, frame->body_size);
        break;
    case RMQ_HA_HANDSHAKE:
        rmq_put_i32(out, STATE_HANDSHAKE);
        rmq_put_i16(out + 4, frame->sync_from_last_file);
        rmq_put_i16(out + 6, frame->is_learner);
        if (frame->offers_checks)
            rmq_put_i16(out + (frame->sync_from_last_file ? 6 : 4), RMQ_HA_OFFER);
        rmq_put_i64(out + 8, frame->broker_id);
        break;
    case RMQ_HA_HANDSHAKE_REPLY:
    case RMQ_HA_TRANSFER:
        rmq_put_i32(out,
                    mark | (frame->kind == RMQ_HA_TRANSFER ? STATE_TRANSFER : STATE_HANDSHAKE));
        rmq_put_i32(out + 4, frame->body_size);
        rmq_put_i64(out + 8, frame->offset);
        rmq_put_i32(out + 16, frame->epoch);
        if (frame->kind == RMQ_HA_TRANSFER) {
            rmq_put_i64(out + 20, frame->epoch_start);
            rmq_put_i64(out + 28, frame->confirm_offset);
        } else if (frame->is_checked) {
            put_crc(out + 20, frame->handshake_crc);
        }

        if (frame->is_checked)
            put_crc(out + size - 2 * CRC_SIZE, frame->body_crc);
        break;
    case RMQ_HA_ACK:
        rmq_put_i32(out, mark | STATE_TRANSFER);
        rmq_put_i64(out + 4, frame->offset);
        if (frame->is_checked)
            rmq_put_i32(out + 12, frame->epoch);
        break;
    }
    if (frame->is_checked)
        put_crc(out + size - CRC_SIZE, rmq_crc32(0, out, size - CRC_SIZE));
    return size;
}

void rmq_ha_entry_encode(uint8_t out[RMQ_HA_ENTRY_SIZE], struct rmq_ha_entry entry)
{
    assert(out);

    rmq_put_i32(out, entry.epoch);
    rmq_put_i64(out + 4, entry.start_offset);
}

/* ---- a stream ---- */

void rmq_ha_parser_begin(struct rmq_ha_parser *parser, enum rmq_ha_stream stream,
                         int32_t frame_size_max)
{
    assert(stream <= RMQ_HA_SWITCH_MASTER);
    assert(frame_size_max >= RMQ_HA_HEAD_SIZE_MAX && frame_size_max <= RMQ_HA_FRAME_SIZE_MAX);
    *parser = (struct rmq_ha_parser){.stream = stream, .frame_size_max = frame_size_max};
}

void rmq_ha_parser_feed(struct rmq_ha_parser *parser, const uint8_t *data, size_t size)
{
    assert(parser->input_size == 0 || parser->failure.status != RMQ_OK);
    assert(data || size == 0);

    parser->input = data;
    parser->input_size = size;
}

static int fail(struct rmq_ha_parser *parser, struct rmq_error *err)
{
    assert(parser->failure.status != RMQ_OK);

    *err = parser->failure;
    return parser->failure.status;
}

static int make_room(struct rmq_ha_parser *parser, size_t size)
{
    assert(parser->held_size <= parser->capacity);

    size_t capacity = parser->capacity > HELD_SIZE_MIN ? parser->capacity : HELD_SIZE_MIN;
    if (size <= parser->capacity)
        return RMQ_OK;

    /* Doubled each time, so that a frame in many pieces is not copied once for each piece. */
    while (capacity < size)
        capacity *= 2;
    if (capacity > (size_t)parser->frame_size_max)
        capacity = (size_t)parser->frame_size_max;
    assert(size <= capacity);

    uint8_t *held = realloc(parser->held, capacity);
    if (!held)
        return rmq_fail(&parser->failure, RMQ_NO_MEMORY, parser->position,
                        "%zu bytes for the beginning of a frame", capacity);

    parser->held = held;
    parser->capacity = capacity;
    return RMQ_OK;
}

/* Moves input after the held bytes, until `needed` bytes are held or no input is left. */
static int hold(struct rmq_ha_parser *parser, size_t needed)
{
    assert(needed > parser->held_size);

    size_t size = needed - parser->held_size;
    if (size > parser->input_size)
        size = parser->input_size;

    int status = make_room(parser, parser->held_size + size);
    if (status != RMQ_OK)
        return status;

    memcpy(parser->held + parser->held_size, parser->input, size);
    parser->held_size += size;
    parser->input += size;
    parser->input_size -= size;
    assert(parser->held_size <= needed && parser->held_size <= parser->capacity);
    return RMQ_OK;
}

static int decode(struct rmq_ha_parser *parser, const uint8_t *data, size_t size,
                  struct rmq_ha_frame *frame, size_t *needed)
{
    assert(data || size == 0);

    int status = rmq_ha_frame_decode(parser->stream, parser->frame_size_max, data, size, frame,
                                     needed, &parser->failure);

    if (status == RMQ_OK)
        parser->position += (int64_t)*needed;
    else if (status != RMQ_END)
        parser->failure.at_offset = parser->position;
    return status;
}

int rmq_ha_parser_next(struct rmq_ha_parser *parser, struct rmq_ha_frame *frame,
                       struct rmq_error *err)
{
    assert(parser->held_size <= parser->capacity);

    size_t needed = 0;
    int status = RMQ_END;
    if (parser->failure.status != RMQ_OK)
        return fail(parser, err);

    if (parser->is_held_over) {
        parser->is_held_over = false;
        parser->held_size = 0;
    }

    if (parser->held_size == 0) {
        status = decode(parser, parser->input, parser->input_size, frame, &needed);

        if (status == RMQ_OK) {
            parser->input += needed;
            parser->input_size -= needed;
            return RMQ_OK;
        }
    } else {
        status = decode(parser, parser->held, parser->held_size, frame, &needed);
    }

    /* Three rounds at most: for the kind, the head, and the body. */
    while (status == RMQ_END && parser->input_size > 0) {
        if (hold(parser, needed) != RMQ_OK)
            return fail(parser, err);
        status = decode(parser, parser->held, parser->held_size, frame, &needed);
    }
    if (status == RMQ_OK)
        parser->is_held_over = true;
    return status == RMQ_OK || status == RMQ_END ? status : fail(parser, err);
}

void rmq_ha_parser_release(struct rmq_ha_parser *parser)
{
    assert(parser->held_size <= parser->capacity);

    parser->held_size = 0;
    parser->is_held_over = false;
}

void rmq_ha_parser_finish(struct rmq_ha_parser *parser)
{
    assert(parser->held || parser->capacity == 0);

    free(parser->held);
    parser->held = NULL;
    parser->capacity = parser->held_size = 0;
}
