/* record.h -- one message as the commit log stores it.
 *
 * Source: MessageExtEncoder, CommitLog.checkMessageAndReturnSize and MessageDecoder of RocketMQ
 * 5.3.3. Integers are big-endian. B is 8 when the born host is IPv4 and 20 when it is IPv6 (sys
 * flag 0x10), S the same for the store host (0x20). Offsets in the table are for IPv4 and IPv4.
 *
 *   at   size  field
 *   0    4     total size of the record
 *   4    4     magic: version 1 0xDAA320A7, version 2 0xDAA320AB
 *   8    4     CRC-32 of the body without its sign bit
 *   12   4     queue id
 *   16   4     flag of the application
 *   20   8     queue offset; 0 for prepared and rollback records
 *   28   8     physical offset of this record
 *   36   4     sys flag
 *   40   8     born timestamp, ms
 *   48   B     born host: address, port as 4 bytes
 *   56   8     store timestamp, ms
 *   64   S     store host
 *   72   4     reconsume times
 *   76   8     prepared transaction offset
 *   84   4     body size
 *   88   n     body
 *        1|2   topic size: 1 byte in version 1, 2 in version 2, both signed
 *        n     topic, UTF-8
 *        2     properties size, signed; <= 0 means none
 *        n     properties
 *
 * Where no further record fits, a blank record ends the file: 4 bytes left in the file, 4 bytes
 * magic 0xCBD43194. A record is placed only where 8 more bytes of the file follow it, so that the
 * blank always fits.
 *
 * With the property CRC on, the last 20 bytes of the properties are `__CRC32#` 0x01 ten digits
 * 0x02: the CRC-32 without sign bit of all bytes before them, in decimal, least significant digit
 * first, padded with '0' at the end.
 */
#ifndef RMQ_RECORD_H
#define RMQ_RECORD_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/status.h"
#include "format/properties.h"

#define RMQ_MAGIC_V1 0xDAA320A7u
#define RMQ_MAGIC_V2 0xDAA320ABu
#define RMQ_MAGIC_BLANK 0xCBD43194u
#define RMQ_BLANK_SIZE 8
#define RMQ_RECORD_SIZE_MIN 91 /* version 1, IPv4 hosts, nothing variable */
#define RMQ_PROPERTY_CRC_SIZE 20
#define RMQ_TOPIC_SIZE_MAX 32767

enum rmq_sys_flag {
    RMQ_FLAG_COMPRESSED = 0x1,
    RMQ_FLAG_MULTI_TAGS = 0x2,
    RMQ_FLAG_TRANSACTION = 0xC,
    RMQ_FLAG_PREPARED = 0x4,
    RMQ_FLAG_COMMIT = 0x8,
    RMQ_FLAG_ROLLBACK = 0xC,
    RMQ_FLAG_BORN_V6 = 0x10,
    RMQ_FLAG_STORE_V6 = 0x20,
    RMQ_FLAG_NEED_UNWRAP = 0x40,
    RMQ_FLAG_INNER_BATCH = 0x80,
    RMQ_FLAG_COMPRESSION = 0x700,
};

struct rmq_host {
    uint8_t address[16];
    int32_t port;
    uint8_t size; /* 4 or 16 */
};

static inline size_t rmq_host_size(bool v6)
{
    return v6 ? 20 : 8;
}

/* The size of the fields before the body, without the two hosts. */
#define RMQ_RECORD_FIXED_SIZE 72
/* Position of the body in a record. */
static inline size_t rmq_record_body_at(int32_t sys_flag)
{
    return RMQ_RECORD_FIXED_SIZE + rmq_host_size((sys_flag & RMQ_FLAG_BORN_V6) != 0) +
           rmq_host_size((sys_flag & RMQ_FLAG_STORE_V6) != 0);
}

/* Prepared and rollback records are not in a queue. */
static inline bool rmq_takes_queue_offset(int32_t sys_flag)
{
    int32_t transaction = sys_flag & RMQ_FLAG_TRANSACTION;
    return transaction != RMQ_FLAG_PREPARED && transaction != RMQ_FLAG_ROLLBACK;
}

/* Whether messages of a topic enter the queues that INNER_MULTI_DISPATCH names: not where they
 * wait, or are tried again, because they enter these queues from their own topic. */
bool rmq_topic_allows_light(const char *topic, size_t topic_size);
/* The number of a queue that INNER_MULTI_DISPATCH names: light queues have 0, queues of another
 * name that of the message. */
int32_t rmq_light_queue_id(struct rmq_slice name, int32_t queue_id);

/* Whether a record can have that offset in its queue. Every message of a queue occupies a record of
 * the log, or a share of a record that holds many messages, so the offset is bounded by the size of
 * the log. */
static inline bool rmq_is_queue_offset_possible(int64_t queue_offset, int64_t physical_offset,
                                                bool is_batch)
{
    int64_t records = physical_offset / RMQ_RECORD_SIZE_MIN;
    return queue_offset >= 0 && queue_offset / (is_batch ? INT16_MAX : 1) <= records;
}

/* The born timestamp of a message that is born when it is stored: the clock is read once, not
 * twice. */
#define RMQ_BORN_WHEN_STORED INT64_MIN

/* A message to encode. Nothing is copied; the memory must stay until the call returns.
 * Zero-initialise, then fill. */
struct rmq_message {
    const char *topic;
    size_t topic_size;
    const uint8_t *body;
    size_t body_size;
    const char *properties; /* text as it is to be stored, without the CRC property */
    size_t properties_size;
    const char
        *more_properties; /* batch properties (5.3) or store-made ones, appended after properties */
    size_t more_properties_size;
    struct rmq_host born_host;
    struct rmq_host store_host;
    int64_t born_timestamp;  /* RMQ_BORN_WHEN_STORED: the store timestamp */
    int64_t store_timestamp; /* 0: the store's clock, read under the put lock */
    int64_t prepared_transaction_offset;
    int32_t queue_id;
    int32_t flag;
    int32_t sys_flag; /* the V6 flags are set by the encoder from the hosts */
    int32_t reconsume_times;
};

/* Values that encoding needs beyond the message. */
struct rmq_placement {
    int64_t queue_offset;
    int64_t physical_offset;
    int64_t store_timestamp;
    int32_t body_crc; /* rmq_crc32_java of the body, computed outside the put lock */
};

/* The form of an encoded message; filled by rmq_record_plan. */
struct rmq_record_plan {
    int32_t total_size;
    int32_t sys_flag;
    uint16_t properties_size; /* as stored: with separators and the CRC property */
    bool is_v2;
    bool has_crc_property;
    bool separate_own;  /* a 0x02 goes between properties and more_properties */
    bool separate_last; /* a 0x02 goes before the CRC property */
};

struct rmq_record_limits {
    int32_t body_size_max;
    int32_t record_size_max;
    bool version_by_topic_size; /* write version 2 for topics over 127 characters */
    bool append_property_crc;
};

/* Validates the message and computes its form. RMQ_MESSAGE_ILLEGAL: topic empty, of more than 127
 * characters with versions off, over 32767 bytes, or a version 1 topic of more than 127 bytes; body
 * over the limit; record over the limit. RMQ_PROPERTIES_TOO_LARGE: over 32767 bytes with everything
 * the store adds. The detail has limit and size. A topic that needs two length bytes but counts 127
 * or fewer characters is written as version 2 (the Java store would write a negative length). */
int rmq_record_plan(const struct rmq_message *message, const struct rmq_record_limits *limits,
                    struct rmq_record_plan *plan, struct rmq_error *err);

/* Writes plan->total_size bytes to out. Does not fail. */
void rmq_record_encode(uint8_t *out, const struct rmq_message *message,
                       const struct rmq_record_plan *plan, const struct rmq_placement *placement);

/* Writes the 8 bytes of a blank record. */
void rmq_blank_encode(uint8_t *out, int32_t bytes_left);

/* A record as read. Pointers lead into the buffer it was decoded from. */
struct rmq_record {
    const uint8_t *data; /* first byte of the record */
    const uint8_t *body;
    const char *topic;
    const char *properties;
    int64_t queue_offset;
    int64_t physical_offset;
    int64_t born_timestamp;
    int64_t store_timestamp;
    int64_t prepared_transaction_offset;
    int32_t total_size;
    int32_t body_size;
    int32_t topic_size;
    int32_t properties_size;
    int32_t queue_id;
    int32_t flag;
    int32_t sys_flag;
    int32_t body_crc;
    int32_t reconsume_times;
    int32_t version; /* 1 or 2 */
    struct rmq_host born_host;
    struct rmq_host store_host;
};

enum rmq_record_check {
    RMQ_CHECK_FORM = 0, /* sizes and magic; always done */
    RMQ_CHECK_BODY_CRC = 1,
    RMQ_CHECK_PROPERTY_CRC = 2, /* checked where present */
    RMQ_NEED_PROPERTY_CRC = 4,  /* a record without a property CRC is corrupt */
    RMQ_CHECK_PLACE = 8,        /* the stored physical offset equals `place` */
    RMQ_CHECK_LOST = 16,        /* no sector of it reads as unwritten; data is mapped */
    RMQ_CHECK_TAIL = 32, /* with PROPERTY_CRC, for a record without one: topic and properties do not
                            end in a NUL, which a partly written record may have there */
    RMQ_CHECK_READER = RMQ_CHECK_BODY_CRC | RMQ_CHECK_PROPERTY_CRC | RMQ_CHECK_TAIL,
};

/* Decodes the record at data, of which available bytes may be read. place is the commit log offset
 * of data. RMQ_OK: *record is filled. RMQ_END: a blank record, or unwritten bytes (size and magic
 * both 0): the walk continues in the next file, or the log ends here; *record->total_size is 0 for
 * unwritten bytes and 8 for a blank. RMQ_CORRUPT: anything else. record->total_size then holds the
 * record's size if form and lengths are valid but a CRC or the offset is wrong, so that a salvaging
 * reader can skip the record; it is 0 if the size is unknown. err->at_offset is place. No byte
 * outside [data, data + available) is read, whatever it holds. */
int rmq_record_decode(const uint8_t *data, size_t available, int64_t place, unsigned checks,
                      struct rmq_record *record, struct rmq_error *err);

/* Whether the record ends in a CRC property, correct or not. */
bool rmq_record_has_crc_property(const struct rmq_record *record);
/* Stores a decoded record again at another offset: out gets record->total_size bytes, with the
 * queue offset, physical offset and store timestamp of the placement. A CRC property is computed
 * again. The placement's body CRC is not read. */
void rmq_record_move(uint8_t *out, const struct rmq_record *record,
                     const struct rmq_placement *placement);

/* Whether the bytes at data still equal the copy that was taken of them. Checked after copying out
 * of a log that another thread may cut and write again: if they are equal, the copy is
 * consistent. */
bool rmq_record_is_unchanged(const uint8_t *copy, const uint8_t *data, size_t size);
/* The same for a record whose parts were copied. A cut, and a record written over this one, change
 * the fields that are compared. */
bool rmq_record_head_is_unchanged(const struct rmq_record *record);

/* The tags code a consume queue unit of this record carries: Java hash of TAGS,
 * sign-extended; or the deliver time for SCHEDULE_TOPIC_XXXX with a delay level. delays_ms[0] is
 * level 1. */
int64_t rmq_record_tags_code(const struct rmq_record *record,
                             const struct rmq_dispatch_properties *properties,
                             const int64_t *delays_ms, size_t delay_count);

#define RMQ_MESSAGE_ID_SIZE_MAX 57 /* 56 hex digits and a NUL */
/* Offset message id: host address, port and physical offset in upper-case hex; returns 32 or 56. */
size_t rmq_message_id(const struct rmq_host *host, int64_t physical_offset,
                      char out[RMQ_MESSAGE_ID_SIZE_MAX]);
#endif
