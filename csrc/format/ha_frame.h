/* ha_frame.h -- the frames that two replicas of one log exchange.
 *
 * Every number is a signed big-endian integer, but for CRCs, which have no sign. Frames follow each
 * other without a gap. Bodies are bytes of the commit log; a body may begin or end inside a record.
 *
 * Classic protocol, slave to master: report of where the slave's log ends
 *
 *   at  size  field
 *   0   8     end of the slave's log
 *
 * Classic protocol, master to slave: data, or a heartbeat when the body is empty
 *
 *   at  size  field
 *   0   8     physical offset of the first body byte; of a heartbeat, where the next body begins
 *   8   4     body size
 *   12  n     body
 *
 * Auto-switch protocol, slave to master: handshake
 *
 *   at  size  field
 *   0   4     1, the ordinal of HANDSHAKE in HAConnectionState
 *   4   2     1: an empty slave begins at the master's last file; else 0, or RMQ_HA_OFFER
 *   6   2     1: the slave is a learner; else 0, or RMQ_HA_OFFER
 *   8   8     broker id
 *
 * Auto-switch protocol, master to slave: reply to the handshake
 *
 *   at  size  field
 *   0   4     1
 *   4   4     size of the entries
 *   8   8     end of the master's log
 *   16  4     the master's last epoch, -1 when it has none
 *   20  n     entries: epoch (4) and physical offset of its first byte (8), both ascending
 *
 * Auto-switch protocol, master to slave: transfer, or a heartbeat when the body is empty
 *
 *   at  size  field
 *   0   4     2, the ordinal of TRANSFER
 *   4   4     body size
 *   8   8     physical offset of the first body byte; of a heartbeat, where the next body begins
 *   16  4     epoch
 *   20  8     physical offset at which this epoch begins
 *   28  8     the master's confirm offset
 *   36  n     body
 *
 * Auto-switch protocol, slave to master: acknowledgement
 *
 *   at  size  field
 *   0   4     2
 *   4   8     end of the slave's log
 *
 * Between two replicas of this library the auto-switch frames carry checks. The slave offers them
 * with RMQ_HA_OFFER in the first flag of its handshake that is 0; RocketMQ's master takes any flag
 * but 1 for 0. A master that accepts replies with a checked frame. From then on both sides send
 * only these frames:
 *
 * Checked reply
 *
 *   at  size  field
 *   0   4     0x434B0001
 *   4   4     size of the entries
 *   8   8     end of the master's log
 *   16  4     the master's last epoch, -1 when it has none
 *   20  4     CRC of the handshake as received
 *   24  4     CRC of the entries
 *   28  4     CRC of the bytes before
 *   32  n     entries
 *
 * Checked transfer
 *
 *   at  size  field
 *   0   4     0x434B0002
 *   4   4     body size
 *   8   8     physical offset of the first body byte
 *   16  4     epoch
 *   20  8     physical offset at which this epoch begins
 *   28  8     the master's confirm offset
 *   36  4     CRC of the body
 *   40  4     CRC of the bytes before
 *   44  n     body
 *
 * Checked acknowledgement
 *
 *   at  size  field
 *   0   4     0x434B0002
 *   4   8     end of the slave's log
 *   12  4     the last epoch that the slave has stored and that begins there or before, -1 for none
 *   16  4     CRC of the bytes before
 *
 * The CRC is that of crc32.h. Bytes that do not match it are not a frame.
 *
 * A transfer that ends where its epoch does may carry the number and start of the next one:
 * RocketMQ does this. A heartbeat has -1 in fields that its master does not know yet.
 *
 * Every byte is hostile until it was validated: sizes are bounded, offsets and ids are not
 * negative, flags are 0 or 1, a body does not end past the greatest offset, epochs ascend. The
 * caller checks whether an offset is in the log.
 *
 * Source: DefaultHAConnection, DefaultHAClient, AutoSwitchHAConnection, AutoSwitchHAClient of
 * RocketMQ 5.3.3; 5.5.0 has the same frames.
 */
#ifndef RMQ_HA_FRAME_H
#define RMQ_HA_FRAME_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/status.h"

/* RocketMQ's slave reads into 4 MiB: it would never receive a larger frame completely. */
#define RMQ_HA_FRAME_SIZE_MAX 4194304
#define RMQ_HA_HEAD_SIZE_MAX 44
#define RMQ_HA_ENTRY_SIZE 12
#define RMQ_HA_OFFER 0x434B

/* The sender and its protocol. */
enum rmq_ha_stream {
    RMQ_HA_CLASSIC_SLAVE,
    RMQ_HA_CLASSIC_MASTER,
    RMQ_HA_SWITCH_SLAVE,
    RMQ_HA_SWITCH_MASTER,
};

enum rmq_ha_kind {
    RMQ_HA_REPORT,
    RMQ_HA_CLASSIC_DATA,
    RMQ_HA_HANDSHAKE,
    RMQ_HA_HANDSHAKE_REPLY,
    RMQ_HA_TRANSFER,
    RMQ_HA_ACK,
};

/* One frame. Fields that its kind does not have are 0. */
struct rmq_ha_frame {
    enum rmq_ha_kind kind;
    bool is_checked; /* it carries checks */
    int32_t epoch;
    int64_t offset; /* the first field of 8 bytes, except in a handshake */
    int64_t epoch_start;
    int64_t confirm_offset;
    int64_t broker_id;
    bool sync_from_last_file;
    bool is_learner;
    bool offers_checks;
    uint32_t handshake_crc; /* of a checked handshake reply */
    uint32_t body_crc;      /* of a checked frame with a body */
    int32_t body_size;      /* of the entries, in a handshake reply */
    const uint8_t *body;    /* the bytes after the head; not read when a head is encoded */
};

struct rmq_ha_entry {
    int32_t epoch;
    int64_t start_offset;
};

/* ---- one frame ---- */

/* Bytes before the body. */
size_t rmq_ha_head_size(enum rmq_ha_kind kind, bool is_checked);

/* Validates the fields of a frame, but not the bytes of its body. RMQ_OUT_OF_RANGE: the frame is
 * larger than frame_size_max; RMQ_CORRUPT: a field has a value that no peer may send. */
int rmq_ha_frame_check(const struct rmq_ha_frame *frame, int32_t frame_size_max,
                       struct rmq_error *err);

/* Validates the entries of a handshake reply: epochs ascend, offsets do not descend.
 * RMQ_CORRUPT. */
int rmq_ha_entries_check(const uint8_t *body, int32_t body_size, struct rmq_error *err);

/* Reads the frame at data; available bytes may be read. frame->body points into them. RMQ_END: more
 * bytes are needed; *needed is their number from data on, at most frame_size_max. RMQ_OUT_OF_RANGE,
 * RMQ_CORRUPT as above, as soon as the bytes show it; RMQ_CORRUPT also for a wrong CRC. */
int rmq_ha_frame_decode(enum rmq_ha_stream stream, int32_t frame_size_max, const uint8_t *data,
                        size_t available, struct rmq_ha_frame *frame, size_t *needed,
                        struct rmq_error *err);

/* Writes all but the body of a frame that passes rmq_ha_frame_check, with its body_crc. Returns the
 * number of bytes written. */
size_t rmq_ha_head_encode(const struct rmq_ha_frame *frame, uint8_t out[RMQ_HA_HEAD_SIZE_MAX]);

struct rmq_ha_entry rmq_ha_entry_decode(const uint8_t *body, size_t index);
void rmq_ha_entry_encode(uint8_t out[RMQ_HA_ENTRY_SIZE], struct rmq_ha_entry entry);

/* ---- a stream of them, in pieces of any size ---- */

/* Holds the beginning of a frame whose end was not fed yet. Its memory grows with the bytes held,
 * to frame_size_max at most. One thread at a time may use it. */
struct rmq_ha_parser {
    enum rmq_ha_stream stream;
    int32_t frame_size_max;
    const uint8_t *input;
    size_t input_size;
    uint8_t *held;
    size_t held_size;
    size_t capacity;
    bool is_held_over;        /* the last returned frame is in held */
    int64_t position;         /* position of the next frame in the stream */
    struct rmq_error failure; /* status RMQ_OK: no failure */
};

/* frame_size_max: RMQ_HA_HEAD_SIZE_MAX to RMQ_HA_FRAME_SIZE_MAX. */
void rmq_ha_parser_begin(struct rmq_ha_parser *parser, enum rmq_ha_stream stream,
                         int32_t frame_size_max);

/* Feeds the next bytes of the stream. They must stay valid until rmq_ha_parser_next returns RMQ_END
 * or fails. Feed more bytes only after that. */
void rmq_ha_parser_feed(struct rmq_ha_parser *parser, const uint8_t *data, size_t size);

/* Finds the next frame. Its body is in the bytes fed last or, when it arrived in pieces, in the
 * parser, where it stays until the next call. RMQ_END: all fed bytes are used up. RMQ_OUT_OF_RANGE,
 * RMQ_CORRUPT: the bytes are not a frame; err->at_offset is their position in the stream.
 * RMQ_NO_MEMORY. After a failure every call returns the same failure. */
int rmq_ha_parser_next(struct rmq_ha_parser *parser, struct rmq_ha_frame *frame,
                       struct rmq_error *err);

/* Drops the held beginning of a frame: another reader continues at it. */
void rmq_ha_parser_release(struct rmq_ha_parser *parser);

/* Frees the memory. Further calls do nothing. */
void rmq_ha_parser_finish(struct rmq_ha_parser *parser);

#endif
