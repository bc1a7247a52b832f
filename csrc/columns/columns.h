/* columns.h -- records turned into the column buffers of one Arrow batch.
 *
 * A batch is built for a chosen list of columns; no other field is read or stored. Records are
 * copied, so the memory they were decoded from is free once rmq_columns_append returns. One row per
 * record: a record that holds an inner batch is one row, unless its messages are appended each as a
 * record of its own (inner_batch.h).
 *
 * Buffers have the layouts of the Arrow columnar format, begin at multiples of 64 bytes and belong
 * to the builder until arrow_export.h hands them over. Text is well-formed UTF-8; malformed stored
 * bytes are repaired (utf8.h).
 */
#ifndef RMQ_COLUMNS_H
#define RMQ_COLUMNS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/status.h"
#include "columns/buffer_pool.h"
#include "format/record.h"

enum rmq_column_type {
    RMQ_TYPE_INT32,
    RMQ_TYPE_INT64,
    RMQ_TYPE_TIMESTAMP, /* UTC; milliseconds or, with that option, microseconds */
    RMQ_TYPE_BOOL,
    RMQ_TYPE_UTF8,
    RMQ_TYPE_BINARY, /* large_binary with that option */
    RMQ_TYPE_MAP,    /* of UTF-8 to UTF-8 */
};

/* id, name, type, whether a row may be null. Hosts are "address:port", IPv6 as
 * "[2001:db8:0:0:0:0:0:1]:port" without shortening, as Java prints it. keys is the raw text, keys
 * separated by spaces. properties has each name once, with the value a reader sees. body is as
 * stored, maybe compressed. body_crc is the CRC of body. It is the stored CRC; a message of an
 * inner batch has no stored CRC, and the reader computes one. body_crc_ok says whether the whole
 * stored body has the stored CRC; where it is true, body_crc matches every body that is not empty.
 * message_id is the offset message id of record.h. tags_code is what the queue's unit holds while
 * the delay levels are RocketMQ's own. record is the whole record as stored. */
#define RMQ_COLUMN_TABLE(X)                                                     \
    X(TOPIC, "topic", UTF8, false)                                              \
    X(QUEUE_ID, "queue_id", INT32, false)                                       \
    X(QUEUE_OFFSET, "queue_offset", INT64, false)                               \
    X(PHYSICAL_OFFSET, "physical_offset", INT64, false)                         \
    X(SIZE, "size", INT32, false)                                               \
    X(STORE_TIMESTAMP, "store_timestamp", TIMESTAMP, false)                     \
    X(BORN_TIMESTAMP, "born_timestamp", TIMESTAMP, false)                       \
    X(BORN_HOST, "born_host", UTF8, false)                                      \
    X(STORE_HOST, "store_host", UTF8, false)                                    \
    X(TAGS, "tags", UTF8, true)                                                 \
    X(KEYS, "keys", UTF8, true)                                                 \
    X(UNIQUE_KEY, "unique_key", UTF8, true)                                     \
    X(PROPERTIES, "properties", MAP, false)                                     \
    X(BODY, "body", BINARY, false)                                              \
    X(BODY_CRC, "body_crc", INT32, false)                                       \
    X(BODY_CRC_OK, "body_crc_ok", BOOL, false)                                  \
    X(SYS_FLAG, "sys_flag", INT32, false)                                       \
    X(FLAG, "flag", INT32, false)                                               \
    X(RECONSUME_TIMES, "reconsume_times", INT32, false)                         \
    X(PREPARED_TRANSACTION_OFFSET, "prepared_transaction_offset", INT64, false) \
    X(MESSAGE_ID, "message_id", UTF8, false)                                    \
    X(VERSION, "version", INT32, false)                                         \
    X(TAGS_CODE, "tags_code", INT64, false)                                     \
    X(RECORD, "record", BINARY, false)

enum rmq_column {
#define RMQ_COLUMN_ENUM(id, name, type, nullable) RMQ_COLUMN_##id,
    RMQ_COLUMN_TABLE(RMQ_COLUMN_ENUM)
#undef RMQ_COLUMN_ENUM
        RMQ_COLUMN_COUNT
};

struct rmq_column_info {
    const char *name;
    enum rmq_column_type type;
    bool nullable;
};
/* RMQ_COLUMN_COUNT entries, by enum rmq_column. */
const struct rmq_column_info *rmq_column_infos(void);

/* Int32 offsets hold far more than this, so that they cannot overflow. */
#define RMQ_BATCH_BYTES_MAX 1073741824
#define RMQ_BATCH_ROWS_MAX 16777216

struct rmq_columns_options {
    const uint8_t *columns; /* enum rmq_column each, in the order of the batch; none twice */
    size_t column_count;    /* 1 to RMQ_COLUMN_COUNT */
    int64_t max_rows;       /* of a batch, 1 to RMQ_BATCH_ROWS_MAX */
    /* Of text and binary data in a batch, 1 to RMQ_BATCH_BYTES_MAX. The first row always fits; a
     * batch exceeds the limit by at most the text of the records of one append. */
    int64_t max_bytes;
    bool large_binary;
    bool microseconds; /* timestamps; those outside its range become its first or last value */
    bool all_nullable; /* the schema marks every column so */
};

/* RMQ_INVALID: names the value and its limit. */
int rmq_columns_options_check(const struct rmq_columns_options *options, struct rmq_error *err);

struct rmq_buffer {
    uint8_t *data; /* NULL until something is reserved; of rmq_buffer_take */
    struct rmq_buffer_pool *pool;
    size_t size;
    size_t capacity;
    size_t expected; /* what the previous batch took, reserved at once */
};

/* Which buffer of a column is which. Fixed-size values and bits are in DATA. A map's keys are in
 * OFFSETS and DATA, its values in the last two, its rows in ENTRY_OFFSETS. */
enum rmq_buffer_role {
    RMQ_BUFFER_VALIDITY,
    RMQ_BUFFER_OFFSETS,
    RMQ_BUFFER_DATA,
    RMQ_BUFFER_ENTRY_OFFSETS,
    RMQ_BUFFER_VALUE_OFFSETS,
    RMQ_BUFFER_VALUE_DATA,
    RMQ_BUFFER_ROLES
};

struct rmq_column_builder {
    enum rmq_column column;
    struct rmq_buffer buffers[RMQ_BUFFER_ROLES];
    int64_t null_count;
    int64_t entry_count;  /* of a map */
    struct rmq_host host; /* the host whose text is the one below: hosts repeat */
    size_t host_text_size;
    char host_text[64];
};

struct rmq_pair_table;

struct rmq_columns {
    struct rmq_column_builder builders[RMQ_COLUMN_COUNT];
    size_t column_count;
    uint32_t chosen; /* bit 1 << enum rmq_column */
    int64_t rows;
    int64_t bytes;
    int64_t max_rows;
    int64_t max_bytes;
    bool large_binary;
    bool microseconds;
    bool all_nullable;
    struct rmq_pair_table *pairs; /* scratch of the map column */
    struct rmq_buffer_pool *pool;
};

/* An empty batch. RMQ_INVALID, RMQ_NO_MEMORY. */
int rmq_columns_open(struct rmq_columns *columns, const struct rmq_columns_options *options,
                     struct rmq_error *err);
/* Frees the buffers that were not exported. */
void rmq_columns_close(struct rmq_columns *columns);

/* Adds rows for the first *taken records; *taken < count when the batch is full. RMQ_NO_MEMORY: the
 * batch is unusable, and only rmq_columns_close may follow. */
int rmq_columns_append(struct rmq_columns *columns, const struct rmq_record *records, size_t count,
                       size_t *taken, struct rmq_error *err);
static inline bool rmq_columns_is_full(const struct rmq_columns *columns)
{
    return columns->rows >= columns->max_rows || columns->bytes >= columns->max_bytes;
}
/* Begins the next batch after the buffers of this one were taken. Buffers that were not taken are
 * freed. */
void rmq_columns_restart(struct rmq_columns *columns);

#endif
