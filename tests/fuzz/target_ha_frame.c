/* target_ha_frame.c -- a stream of replication frames, in pieces.
 *
 * An input: who speaks (1; above 3: with checks that fit), the limit of a frame's size (4), how
 * many pieces come first (1), their sizes (2 each), the stream.
 */
#include "base/bytes.h"
#include "base/crc32.h"
#include "format/ha_frame.h"

#include <stdlib.h>
#include <string.h>

#include "fuzz.h"

enum { REFUSALS = FUZZ_BIT(CORRUPT) | FUZZ_BIT(OUT_OF_RANGE) };

struct stream {
    enum rmq_ha_stream speaker;
    int32_t frame_size_max;
    const uint8_t *data;
    size_t size;
    size_t at; /* of the next frame */
};

/* The frame is the one at the stream's place, and encodes to the same bytes. */
static void check_frame(struct stream *stream, const struct rmq_ha_frame *frame)
{
    uint8_t head[RMQ_HA_HEAD_SIZE_MAX];
    struct rmq_error err = {0};
    size_t head_size = rmq_ha_head_size(frame->kind, frame->is_checked);
    size_t size = head_size + (size_t)frame->body_size;
    FUZZ_REQUIRE(frame->body_size >= 0 && size <= (size_t)stream->frame_size_max);
    FUZZ_REQUIRE(size <= stream->size - stream->at);
    FUZZ_REQUIRE(rmq_ha_frame_check(frame, stream->frame_size_max, &err) == RMQ_OK);
    FUZZ_REQUIRE(rmq_ha_head_encode(frame, head) == head_size);
    FUZZ_REQUIRE(memcmp(head, stream->data + stream->at, head_size) == 0);
    FUZZ_REQUIRE(memcmp(frame->body, stream->data + stream->at + head_size, size - head_size) == 0);

    if (frame->kind == RMQ_HA_HANDSHAKE_REPLY) {
        FUZZ_REQUIRE(rmq_ha_entries_check(frame->body, frame->body_size, &err) == RMQ_OK);
        for (size_t i = 0; i < (size_t)frame->body_size / RMQ_HA_ENTRY_SIZE; ++i) {
            rmq_ha_entry_encode(head, rmq_ha_entry_decode(frame->body, i));
            const uint8_t *entry = frame->body + i * RMQ_HA_ENTRY_SIZE;
            FUZZ_REQUIRE(memcmp(head, entry, RMQ_HA_ENTRY_SIZE) == 0);
        }
    }
    stream->at += size;
}

static void put_crc(uint8_t *to, const uint8_t *data, size_t size)
{
    rmq_put_i32(to, (int32_t)rmq_crc32(0, data, size));
}

/* Gives frames the checks they need to be looked into, as far as they are whole. */
static void mend(const struct stream *stream, uint8_t *data)
{
    size_t at = 0, size = 0;
    while (stream->size - at >= 8) {
        size_t left = stream->size - at;
        int32_t state = rmq_get_i32(data + at), body_size = rmq_get_i32(data + at + 4);
        bool is_checked = state >> 16 == 0x434B, is_transfer = (state & 0xFFFF) == 2;
        bool is_slave = stream->speaker == RMQ_HA_SWITCH_SLAVE;
        enum rmq_ha_kind kind = is_slave ? (is_transfer ? RMQ_HA_ACK : RMQ_HA_HANDSHAKE)
                                         : (is_transfer ? RMQ_HA_TRANSFER : RMQ_HA_HANDSHAKE_REPLY);
        is_checked = is_checked && kind != RMQ_HA_HANDSHAKE;
        size = rmq_ha_head_size(kind, is_checked);
        if (left < size || (!is_slave && (body_size < 0 || left - size < (size_t)body_size)))
            return;
        if (is_checked && !is_slave)
            put_crc(data + at + size - 8, data + at + size, (size_t)body_size);
        if (is_checked)
            put_crc(data + at + size - 4, data + at, size - 4);
        at += size + (is_slave ? 0 : (size_t)body_size);
    }
}

/* Feeds a piece in a block of its own; tells whether more may follow. */
static bool feed(struct stream *stream, struct rmq_ha_parser *parser, const uint8_t *data,
                 size_t size)
{
    struct rmq_ha_frame frame;
    struct rmq_error err = {0};
    uint8_t *piece = fuzz_copy(data, size);
    int status;
    rmq_ha_parser_feed(parser, piece, size);
    while ((status = rmq_ha_parser_next(parser, &frame, &err)) == RMQ_OK) {
        check_frame(stream, &frame);
        FUZZ_REQUIRE(parser->position == (int64_t)stream->at);
    }
    free(piece);
    FUZZ_REQUIRE(parser->capacity <= (size_t)stream->frame_size_max);
    FUZZ_REQUIRE(parser->position == (int64_t)stream->at);
    if (status == RMQ_END) {
        size_t fed = (size_t)(data + size - stream->data);
        FUZZ_REQUIRE(stream->at + parser->held_size == fed);
        return true;
    }
    FUZZ_ALLOW(status, &err, REFUSALS);
    FUZZ_REQUIRE(err.at_offset == parser->position);
    FUZZ_REQUIRE(rmq_ha_parser_next(parser, &frame, &err) == status);
    return false;
}

/* What one look at all that is left says, the parser said after the last piece. */
static void check_end(const struct stream *stream, bool went_on)
{
    struct rmq_ha_frame frame;
    struct rmq_error err = {0};
    size_t needed = 0, left = stream->size - stream->at;
    uint8_t *rest = fuzz_copy(stream->data + stream->at, left);
    int status = rmq_ha_frame_decode(stream->speaker, stream->frame_size_max, rest, left, &frame,
                                     &needed, &err);
    free(rest);
    if (went_on) {
        FUZZ_REQUIRE(status == RMQ_END);
        FUZZ_REQUIRE(needed > left && needed <= (size_t)stream->frame_size_max);
    } else {
        FUZZ_ALLOW(status, &err, REFUSALS);
    }
}

void fuzz_ha_frame(const uint8_t *data, size_t size)
{
    struct fuzz_input input = {data, size};
    struct rmq_ha_parser parser;
    uint64_t speaker = fuzz_take(&input, 1) % 8;
    struct stream stream = {.speaker = (enum rmq_ha_stream)(speaker % 4)};
    uint64_t room = RMQ_HA_FRAME_SIZE_MAX - RMQ_HA_HEAD_SIZE_MAX + 1;
    stream.frame_size_max = (int32_t)(RMQ_HA_HEAD_SIZE_MAX + fuzz_take(&input, 4) % room);
    size_t pieces = (size_t)fuzz_take(&input, 1) % 8, sizes[8] = {0};
    for (size_t i = 0; i < pieces; ++i)
        sizes[i] = (size_t)fuzz_take(&input, 2);
    stream.size = input.left;
    uint8_t *said = fuzz_copy(input.data, input.left);
    if (speaker > RMQ_HA_SWITCH_MASTER && stream.speaker >= RMQ_HA_SWITCH_SLAVE)
        mend(&stream, said);
    input.data = stream.data = said;

    bool goes_on = true;
    rmq_ha_parser_begin(&parser, stream.speaker, stream.frame_size_max);
    for (size_t i = 0; i < pieces && goes_on; ++i) {
        size_t taken = 0;
        const uint8_t *piece = fuzz_take_bytes(&input, sizes[i], &taken);
        goes_on = feed(&stream, &parser, piece, taken);
    }
    if (goes_on)
        goes_on = feed(&stream, &parser, input.data, input.left);
    check_end(&stream, goes_on);
    rmq_ha_parser_finish(&parser);
    free(said);
}
