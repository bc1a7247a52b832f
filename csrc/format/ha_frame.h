/* ha_frame.h -- what two replicas of one log say to each other.
 *
 * Every number is a signed big-endian integer, but for CRCs, which have no sign. Frames follow each
 * other without anything between them; bodies are bytes of the commit log and know nothing of where
 * a record begins.
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
 * but 1 for 0. A master that accepts answers, and from there on both sides send, these frames only:
 *
 * Checked reply
 *
 *   at  size  field
 *   0   4     0x434B0001
 *   4   4     size of the entries
 *   8   8     end of the master's log
 *   16  4     the master's last epoch, -1 when it has none
 *   20  4     CRC of the handshake as it came
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
 * RocketMQ sends it so. A heartbeat says -1 for what its master does not know yet.
 *
 * Every byte is hostile until it was validated: sizes are bounded, offsets and ids are not
 * negative, flags are 0 or 1, a body does not end behind the greatest offset, epochs ascend.
 * Whether an offset lies in the log is for the reader to check.
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

/* RocketMQ's slave reads into 4 MiB: a larger frame would never become whole there. */
#define RMQ_HA_FRAME_SIZE_MAX 4194304
#define RMQ_HA_HEAD_SIZE_MAX 44
#define RMQ_HA_ENTRY_SIZE 12
#define RMQ_HA_OFFER 0x434B

/* Who speaks, in which protocol. */
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

/* One frame; what its kind does not have is 0. */
struct rmq_ha_frame {
    enum rmq_ha_kind kind;
    bool is_checked; /* it carries checks */
    int32_t epoch;
    int64_t offset; /* the first field of 8 bytes, but for a handshake */
    int64_t epoch_start;
    int64_t confirm_offset;
    int64_t broker_id;
    bool sync_from_last_file;
    bool is_learner;
    bool offers_checks;
    uint32_t handshake_crc; /* of a checked handshake reply */
    uint32_t body_crc;      /* of a checked frame with a body */
    int32_t body_size;      /* of the entries, in a handshake reply */
    const uint8_t *body;    /* where it was read from; not looked at when a head is encoded */
};

struct rmq_ha_entry {
    int32_t epoch;
    int64_t start_offset;
};

/* ---- one frame ---- */

/* Bytes before the body. */
size_t rmq_ha_head_size(enum rmq_ha_kind kind, bool is_checked);

/* Judges the numbers of a frame: all but the bytes of its body.
 * RMQ_OUT_OF_RANGE: it is larger than frame_size_max; RMQ_CORRUPT: it says what no peer may say. */
int rmq_ha_frame_check(const struct rmq_ha_frame *frame, int32_t frame_size_max,
                       struct rmq_error *err);

/* Judges the entries of a handshake reply: epochs ascend, offsets do not descend. RMQ_CORRUPT. */
int rmq_ha_entries_check(const uint8_t *body, int32_t body_size, struct rmq_error *err);

/* Reads the frame at data, of which available bytes are there. frame->body points into them.
 * RMQ_END: more are needed before anything else is known; *needed is how many from data on,
 * at most frame_size_max. RMQ_OUT_OF_RANGE, RMQ_CORRUPT as above, as soon as it shows; RMQ_CORRUPT
 * also for a CRC that does not fit. */
int rmq_ha_frame_decode(enum rmq_ha_stream stream, int32_t frame_size_max, const uint8_t *data,
                        size_t available, struct rmq_ha_frame *frame, size_t *needed,
                        struct rmq_error *err);

/* Writes all but the body of a frame that passes rmq_ha_frame_check, with the body_crc that it
 * names; returns the bytes written. */
size_t rmq_ha_head_encode(const struct rmq_ha_frame *frame, uint8_t out[RMQ_HA_HEAD_SIZE_MAX]);

struct rmq_ha_entry rmq_ha_entry_decode(const uint8_t *body, size_t index);
void rmq_ha_entry_encode(uint8_t out[RMQ_HA_ENTRY_SIZE], struct rmq_ha_entry entry);

/* ---- a stream of them, in pieces of any size ---- */

/* Holds the beginning of a frame whose end was not fed yet, in memory that grows with what came, to
 * frame_size_max at most. Not for several threads at once. */
struct rmq_ha_parser {
    enum rmq_ha_stream stream;
    int32_t frame_size_max;
    const uint8_t *input;
    size_t input_size;
    uint8_t *held;
    size_t held_size;
    size_t capacity;
    bool is_held_over;        /* the frame handed out last lies in held */
    int64_t position;         /* in the stream, of the frame that comes next */
    struct rmq_error failure; /* status RMQ_OK: none */
};

/* frame_size_max: RMQ_HA_HEAD_SIZE_MAX to RMQ_HA_FRAME_SIZE_MAX. */
void rmq_ha_parser_begin(struct rmq_ha_parser *parser, enum rmq_ha_stream stream,
                         int32_t frame_size_max);

/* Hands over the bytes that come next in the stream; they must live until rmq_ha_parser_next has
 * answered RMQ_END or failed, and so must those before have. */
void rmq_ha_parser_feed(struct rmq_ha_parser *parser, const uint8_t *data, size_t size);

/* Finds the next frame. Its body lies in the bytes fed last or, when it came in pieces, in the
 * parser, where it stays until the next call.
 * RMQ_END: all that was fed is used up. RMQ_OUT_OF_RANGE, RMQ_CORRUPT: no frame, err->at_offset
 * says where in the stream it begins. RMQ_NO_MEMORY. After a failure every call fails likewise. */
int rmq_ha_parser_next(struct rmq_ha_parser *parser, struct rmq_ha_frame *frame,
                       struct rmq_error *err);

/* Forgets the held beginning of a frame: another reader continues there. */
void rmq_ha_parser_release(struct rmq_ha_parser *parser);

/* Gives the memory back. Harmless when repeated. */
void rmq_ha_parser_finish(struct rmq_ha_parser *parser);

#endif
