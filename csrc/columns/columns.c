#include "columns/columns.h"

#include <assert.h>
#include <stdlib.h>
#include <string.h>

#include "base/bytes.h"
#include "base/crc32.h"
#include "base/hash.h"
#include "columns/column_buffer.h"
#include "columns/host_text.h"

/* Records whose properties are scanned together. */
#define CHUNK 128
#define BIT(column) (1u << RMQ_COLUMN_##column)
#define NEEDS_PROPERTIES (BIT(TAGS) | BIT(KEYS) | BIT(UNIQUE_KEY) | BIT(TAGS_CODE))
_Static_assert(RMQ_COLUMN_COUNT <= 32, "a set of columns is 32 bits");

const struct rmq_column_info *rmq_column_infos(void)
{
    static const struct rmq_column_info infos[RMQ_COLUMN_COUNT] = {
#define RMQ_COLUMN_INFO(id, name, type, nullable) {name, RMQ_TYPE_##type, nullable},
        RMQ_COLUMN_TABLE(RMQ_COLUMN_INFO)
#undef RMQ_COLUMN_INFO
    };
    return infos;
}

int rmq_columns_options_check(const struct rmq_columns_options *options, struct rmq_error *err)
{
    assert(options->columns || options->column_count == 0);

    uint32_t seen = 0;
    if (options->column_count < 1 || options->column_count > RMQ_COLUMN_COUNT)
        return rmq_fail(err, RMQ_INVALID, -1, "%zu columns were asked for; 1 to %d can be",
                        options->column_count, RMQ_COLUMN_COUNT);

    for (size_t i = 0; i < options->column_count; ++i) {
        if (options->columns[i] >= RMQ_COLUMN_COUNT)
            return rmq_fail(err, RMQ_INVALID, -1, "there is no column number %d",
                            options->columns[i]);
        if (seen & 1u << options->columns[i])
            return rmq_fail(err, RMQ_INVALID, -1, "column %s was asked for twice",
                            rmq_column_infos()[options->columns[i]].name);
        seen |= 1u << options->columns[i];
    }

    if (options->max_rows < 1 || options->max_rows > RMQ_BATCH_ROWS_MAX)
        return rmq_fail(err, RMQ_INVALID, -1, "batches of %lld rows; 1 to %d are possible",
                        (long long)options->max_rows, RMQ_BATCH_ROWS_MAX);
    if (options->max_bytes < 1 || options->max_bytes > RMQ_BATCH_BYTES_MAX)
        return rmq_fail(err, RMQ_INVALID, -1, "batches of %lld bytes; 1 to %d are possible",
                        (long long)options->max_bytes, RMQ_BATCH_BYTES_MAX);
    return RMQ_OK;
}

/* ---- hosts ---- */

static bool put_host(struct rmq_column_builder *builder, const struct rmq_host *host)
{
    bool is_last = host->size == builder->host.size && host->port == builder->host.port &&
                   memcmp(host->address, builder->host.address, host->size) == 0;
    if (!is_last) {
        builder->host = *host;
        builder->host_text_size = rmq_host_text(host, builder->host_text);
        assert(builder->host_text_size <= sizeof builder->host_text);
    }

    return rmq_buffer_put(&builder->buffers[RMQ_BUFFER_DATA], builder->host_text,
                          builder->host_text_size);
}

/* ---- the map of properties ---- */

/* A pair takes four bytes at least: name, 0x01, value, 0x02; the last may lack the end. */
#define PAIRS_MAX ((RMQ_PROPERTIES_SIZE_MAX + 1) / 4)
#define PAIR_SLOTS 16384
_Static_assert(PAIR_SLOTS >= 2 * PAIRS_MAX, "slots stay half empty");

/* The pairs of one record, each name once. A slot holds a pair number + 1; all slots are 0 between
 * records. */
struct rmq_pair_table {
    struct rmq_slice names[PAIRS_MAX];
    struct rmq_slice values[PAIRS_MAX];
    uint16_t used[PAIRS_MAX]; /* slots to clear */
    uint16_t slots[PAIR_SLOTS];
};

static void collect_pair(struct rmq_pair_table *pairs, size_t *count, struct rmq_slice name,
                         struct rmq_slice value)
{
    size_t slot = rmq_table_hash(name.data, name.size, 0) % PAIR_SLOTS;
    for (; pairs->slots[slot]; slot = (slot + 1) % PAIR_SLOTS) {
        size_t pair = pairs->slots[slot] - 1u;
        if (pairs->names[pair].size == name.size &&
            memcmp(pairs->names[pair].data, name.data, name.size) == 0) {
            pairs->values[pair] = value;
            return;
        }
    }

    assert(*count < PAIRS_MAX);
    pairs->names[*count] = name;
    pairs->values[*count] = value;
    pairs->used[*count] = (uint16_t)slot;
    pairs->slots[slot] = (uint16_t)++*count;
}

static bool put_pairs(struct rmq_column_builder *builder, struct rmq_pair_table *pairs,
                      const struct rmq_record *record)
{
    assert(pairs);

    struct rmq_buffer *buffers = builder->buffers;
    struct rmq_buffer *values = &buffers[RMQ_BUFFER_VALUE_DATA];
    struct rmq_slice name, value;
    size_t count = 0;
    bool ok = true;

    for (size_t at = 0; rmq_properties_next(record->properties, (size_t)record->properties_size,
                                            &at, &name, &value);)
        collect_pair(pairs, &count, name, value);

    for (size_t i = 0; i < count; ++i) {
        pairs->slots[pairs->used[i]] = 0;
        ok = ok && rmq_buffer_put_text(&buffers[RMQ_BUFFER_DATA], pairs->names[i]) &&
             rmq_buffer_put_offset(&buffers[RMQ_BUFFER_OFFSETS], buffers[RMQ_BUFFER_DATA].size) &&
             rmq_buffer_put_text(values, pairs->values[i]) &&
             rmq_buffer_put_offset(&buffers[RMQ_BUFFER_VALUE_OFFSETS], values->size);
    }

    builder->entry_count += (int64_t)count;
    return ok &&
           rmq_buffer_put_offset(&buffers[RMQ_BUFFER_ENTRY_OFFSETS], (size_t)builder->entry_count);
}

/* ---- columns ---- */

int rmq_columns_open(struct rmq_columns *columns, const struct rmq_columns_options *options,
                     struct rmq_error *err)
{
    assert(columns && options);

    memset(columns, 0, sizeof *columns);
    int status = rmq_columns_options_check(options, err);
    if (status != RMQ_OK)
        return status;

    columns->column_count = options->column_count;
    columns->max_rows = options->max_rows;
    columns->max_bytes = options->max_bytes;
    columns->large_binary = options->large_binary;
    columns->microseconds = options->microseconds;
    columns->all_nullable = options->all_nullable;

    columns->pool = rmq_buffer_pool_new();
    if (!columns->pool)
        return rmq_fail(err, RMQ_NO_MEMORY, -1, "no memory for a pool of buffers");

    for (size_t i = 0; i < options->column_count; ++i) {
        columns->builders[i].column = (enum rmq_column)options->columns[i];
        columns->chosen |= 1u << options->columns[i];
    }
    if (columns->chosen & BIT(PROPERTIES)) {
        columns->pairs = calloc(1, sizeof *columns->pairs);
        if (!columns->pairs) {
            rmq_columns_close(columns);
            return rmq_fail(err, RMQ_NO_MEMORY, -1, "no memory for %zu bytes",
                            sizeof *columns->pairs);
        }
    }

    rmq_columns_restart(columns);
    return RMQ_OK;
}

void rmq_columns_restart(struct rmq_columns *columns)
{
    assert(columns->column_count <= RMQ_COLUMN_COUNT);

    for (size_t i = 0; i < columns->column_count; ++i) {
        struct rmq_column_builder *builder = &columns->builders[i];
        for (size_t role = 0; role < RMQ_BUFFER_ROLES; ++role) {
            struct rmq_buffer *buffer = &builder->buffers[role];
            rmq_buffer_give(buffer->data);
            /* A little more than last time, so that batches of similar size never grow a buffer. */
            *buffer = (struct rmq_buffer){.pool = columns->pool,
                                          .expected = buffer->size + buffer->size / 8};
        }
        builder->null_count = 0;
        builder->entry_count = 0;
    }

    columns->rows = 0;
    columns->bytes = 0;
}

void rmq_columns_close(struct rmq_columns *columns)
{
    rmq_columns_restart(columns);
    free(columns->pairs);
    columns->pairs = NULL;
    rmq_buffer_pool_close(columns->pool);
    columns->pool = NULL;
}

struct chunk {
    struct rmq_columns *columns;
    const struct rmq_record *records;
    size_t count;
    struct rmq_dispatch_properties properties[CHUNK]; /* filled when NEEDS_PROPERTIES */
};

#define FILL(type, expression)                                                            \
    do {                                                                                  \
        struct rmq_buffer *data = &builder->buffers[RMQ_BUFFER_DATA];                     \
        type *to = (type *)(void *)rmq_buffer_reserve(data, chunk->count * sizeof(type)); \
        if (!to)                                                                          \
            return false;                                                                 \
        for (size_t i = 0; i < chunk->count; ++i)                                         \
            to[i] = chunk->records[i].expression;                                         \
        data->size += chunk->count * sizeof(type);                                        \
        return true;                                                                      \
    } while (0)

static bool fill_fixed(const struct chunk *chunk, struct rmq_column_builder *builder)
{
    switch (builder->column) {
    case RMQ_COLUMN_QUEUE_ID:
        FILL(int32_t, queue_id);
    case RMQ_COLUMN_QUEUE_OFFSET:
        FILL(int64_t, queue_offset);
    case RMQ_COLUMN_PHYSICAL_OFFSET:
        FILL(int64_t, physical_offset);
    case RMQ_COLUMN_SIZE:
        FILL(int32_t, total_size);
    case RMQ_COLUMN_SYS_FLAG:
        FILL(int32_t, sys_flag);
    case RMQ_COLUMN_FLAG:
        FILL(int32_t, flag);
    case RMQ_COLUMN_RECONSUME_TIMES:
        FILL(int32_t, reconsume_times);
    case RMQ_COLUMN_PREPARED_TRANSACTION_OFFSET:
        FILL(int64_t, prepared_transaction_offset);
    case RMQ_COLUMN_VERSION:
        FILL(int32_t, version);
    default:
        assert(!"a column of another type");
        return false;
    }
}
#undef FILL

static bool fill_timestamp(const struct chunk *chunk, struct rmq_column_builder *builder)
{
    assert(chunk->count <= CHUNK);

    struct rmq_buffer *data = &builder->buffers[RMQ_BUFFER_DATA];
    int64_t *to = (int64_t *)(void *)rmq_buffer_reserve(data, chunk->count * sizeof *to);
    if (!to)
        return false;

    for (size_t i = 0; i < chunk->count; ++i) {
        int64_t time = builder->column == RMQ_COLUMN_STORE_TIMESTAMP
                           ? chunk->records[i].store_timestamp
                           : chunk->records[i].born_timestamp;
        if (chunk->columns->microseconds && __builtin_mul_overflow(time, 1000, &to[i]))
            to[i] = time < 0 ? INT64_MIN : INT64_MAX;
        else if (!chunk->columns->microseconds)
            to[i] = time;
    }

    data->size += chunk->count * sizeof *to;
    return true;
}

static bool fill_tags_code(const struct chunk *chunk, struct rmq_column_builder *builder)
{
    assert(chunk->columns->chosen & BIT(TAGS_CODE));

    /* messageDelayLevel of RocketMQ: 1s 5s 10s 30s, 1m to 10m, 20m 30m 1h 2h. */
    static const int64_t delays_ms[] = {1000,   5000,   10000,   30000,   60000,   120000,
                                        180000, 240000, 300000,  360000,  420000,  480000,
                                        540000, 600000, 1200000, 1800000, 3600000, 7200000};
    struct rmq_buffer *data = &builder->buffers[RMQ_BUFFER_DATA];
    int64_t *to = (int64_t *)(void *)rmq_buffer_reserve(data, chunk->count * sizeof *to);
    if (!to)
        return false;

    for (size_t i = 0; i < chunk->count; ++i)
        to[i] = rmq_record_tags_code(&chunk->records[i], &chunk->properties[i], delays_ms,
                                     sizeof delays_ms / sizeof *delays_ms);

    data->size += chunk->count * sizeof *to;
    return true;
}

/* Whether the record is a message of an inner batch, whose body is a part of the stored body. */
static bool is_inside_batch(const struct rmq_record *record)
{
    assert(record->data && record->total_size >= RMQ_RECORD_SIZE_MIN);

    return record->body != record->data + rmq_record_body_at(record->sys_flag);
}

/* The stored CRC covers all messages of an inner batch, and the CRC of each is stored as 0. */
static bool fill_body_crc(const struct chunk *chunk, struct rmq_column_builder *builder)
{
    assert(builder->column == RMQ_COLUMN_BODY_CRC);

    struct rmq_buffer *data = &builder->buffers[RMQ_BUFFER_DATA];
    int32_t *to = (int32_t *)(void *)rmq_buffer_reserve(data, chunk->count * sizeof *to);
    if (!to)
        return false;

    for (size_t i = 0; i < chunk->count; ++i) {
        const struct rmq_record *record = &chunk->records[i];
        to[i] = is_inside_batch(record) ? rmq_crc32_java(record->body, (size_t)record->body_size)
                                        : record->body_crc;
    }

    data->size += chunk->count * sizeof *to;
    return true;
}

/* Checks the whole stored body, also for a message of an inner batch. */
static bool is_body_intact(const struct rmq_record *record)
{
    size_t at = rmq_record_body_at(record->sys_flag);
    const uint8_t *body = record->data + at;
    int32_t size = is_inside_batch(record) ? rmq_get_i32(body - 4) : record->body_size;

    /* An empty body has no bytes to check, and no reader uses its stored CRC. */
    if (size <= 0)
        return true;
    /* In a log that is cut meanwhile, the size may change. */
    return (size_t)size <= (size_t)record->total_size - at &&
           rmq_crc32_java(body, (size_t)size) == record->body_crc;
}

static bool fill_crc_ok(const struct chunk *chunk, struct rmq_column_builder *builder)
{
    assert(builder->column == RMQ_COLUMN_BODY_CRC_OK);

    struct rmq_buffer *bits = &builder->buffers[RMQ_BUFFER_DATA];
    int64_t row = chunk->columns->rows;
    if (!rmq_buffer_extend_bits(bits, row, chunk->count))
        return false;

    bool ok = false;
    for (size_t i = 0; i < chunk->count; ++i) {
        /* Messages of one inner batch share its checksum. */
        if (i == 0 || chunk->records[i].data != chunk->records[i - 1].data)
            ok = is_body_intact(&chunk->records[i]);
        rmq_buffer_set_bit(bits, row + (int64_t)i, ok);
    }
    return true;
}

static bool fill_binary(const struct chunk *chunk, struct rmq_column_builder *builder)
{
    assert(builder->column == RMQ_COLUMN_BODY || builder->column == RMQ_COLUMN_RECORD);

    struct rmq_buffer *data = &builder->buffers[RMQ_BUFFER_DATA];
    struct rmq_buffer *offsets = &builder->buffers[RMQ_BUFFER_OFFSETS];
    bool whole = builder->column == RMQ_COLUMN_RECORD;
    for (size_t i = 0; i < chunk->count; ++i) {
        const struct rmq_record *record = &chunk->records[i];
        if (!rmq_buffer_put(data, whole ? record->data : record->body,
                            (size_t)(whole ? record->total_size : record->body_size)))
            return false;
        if (!(chunk->columns->large_binary ? rmq_buffer_put_large_offset
                                           : rmq_buffer_put_offset)(offsets, data->size))
            return false;
    }
    return true;
}

static bool fill_property(const struct chunk *chunk, struct rmq_column_builder *builder)
{
    assert(NEEDS_PROPERTIES >> builder->column & 1);

    struct rmq_buffer *data = &builder->buffers[RMQ_BUFFER_DATA];
    struct rmq_buffer *offsets = &builder->buffers[RMQ_BUFFER_OFFSETS];
    struct rmq_buffer *validity = &builder->buffers[RMQ_BUFFER_VALIDITY];
    int64_t row = chunk->columns->rows;
    int32_t *ends = rmq_buffer_reserve_offsets(offsets, chunk->count);
    if (!ends || !rmq_buffer_extend_bits(validity, row, chunk->count))
        return false;

    for (size_t i = 0; i < chunk->count; ++i) {
        const struct rmq_dispatch_properties *properties = &chunk->properties[i];
        struct rmq_slice text = builder->column == RMQ_COLUMN_TAGS   ? properties->tags
                                : builder->column == RMQ_COLUMN_KEYS ? properties->keys
                                                                     : properties->unique_key;

        builder->null_count += !text.data;
        rmq_buffer_set_bit(validity, row + (int64_t)i, text.data != NULL);
        if (!rmq_buffer_put_text(data, text))
            return false;
        ends[i] = (int32_t)data->size;
    }

    assert(data->size <= INT32_MAX);
    offsets->size += chunk->count * sizeof *ends;
    return true;
}

static bool put_id(struct rmq_buffer *data, const struct rmq_record *record)
{
    char id[RMQ_MESSAGE_ID_SIZE_MAX];
    size_t size = rmq_message_id(&record->store_host, record->physical_offset, id);
    return rmq_buffer_put(data, id, size);
}

static bool fill_text(const struct chunk *chunk, struct rmq_column_builder *builder)
{
    assert(chunk->count <= CHUNK);

    struct rmq_buffer *data = &builder->buffers[RMQ_BUFFER_DATA];
    struct rmq_buffer *offsets = &builder->buffers[RMQ_BUFFER_OFFSETS];
    int32_t *ends = rmq_buffer_reserve_offsets(offsets, chunk->count);
    bool ok = ends != NULL;

    for (size_t i = 0; i < chunk->count && ok; ++i) {
        const struct rmq_record *record = &chunk->records[i];
        if (builder->column == RMQ_COLUMN_TOPIC)
            ok = rmq_buffer_put_text(data,
                                     (struct rmq_slice){record->topic, (size_t)record->topic_size});
        else if (builder->column == RMQ_COLUMN_MESSAGE_ID)
            ok = put_id(data, record);
        else
            ok = put_host(builder, builder->column == RMQ_COLUMN_BORN_HOST ? &record->born_host
                                                                           : &record->store_host);
        ends[i] = (int32_t)data->size;
    }

    assert(data->size <= INT32_MAX);
    offsets->size += ok ? chunk->count * sizeof *ends : 0;
    return ok;
}

static bool fill_map(const struct chunk *chunk, struct rmq_column_builder *builder)
{
    assert(builder->column == RMQ_COLUMN_PROPERTIES);

    bool ok = true;
    for (size_t i = 0; i < chunk->count && ok; ++i)
        ok = put_pairs(builder, chunk->columns->pairs, &chunk->records[i]);
    return ok;
}

static bool fill_column(const struct chunk *chunk, struct rmq_column_builder *builder)
{
    assert(builder->column < RMQ_COLUMN_COUNT);

    switch (rmq_column_infos()[builder->column].type) {
    case RMQ_TYPE_TIMESTAMP:
        return fill_timestamp(chunk, builder);
    case RMQ_TYPE_BOOL:
        return fill_crc_ok(chunk, builder);
    case RMQ_TYPE_BINARY:
        return fill_binary(chunk, builder);
    case RMQ_TYPE_MAP:
        return fill_map(chunk, builder);
    case RMQ_TYPE_UTF8:
        return (NEEDS_PROPERTIES >> builder->column & 1 ? fill_property : fill_text)(chunk,
                                                                                     builder);
    default:
        break;
    }
    if (builder->column == RMQ_COLUMN_TAGS_CODE)
        return fill_tags_code(chunk, builder);
    return (builder->column == RMQ_COLUMN_BODY_CRC ? fill_body_crc : fill_fixed)(chunk, builder);
}

/* The number of records that the batch still takes, estimated by their bodies or whole records,
 * which are the parts that can be large. */
static size_t count_fitting(const struct rmq_columns *columns, const struct rmq_record *records,
                            size_t count)
{
    assert(records || count == 0);
    assert(columns->rows <= columns->max_rows);

    int64_t bytes = columns->bytes;

    if (columns->rows > 0 && rmq_columns_is_full(columns))
        return 0;
    if ((int64_t)count > columns->max_rows - columns->rows)
        count = (size_t)(columns->max_rows - columns->rows);

    for (size_t i = 0; i < count; ++i) {
        if (columns->chosen & BIT(BODY))
            bytes += records[i].body_size;
        if (columns->chosen & BIT(RECORD))
            bytes += records[i].total_size;
        if (bytes > columns->max_bytes && columns->rows + (int64_t)i > 0)
            return i;
    }
    return count;
}

static int64_t variable_bytes(const struct rmq_columns *columns)
{
    assert(columns->column_count > 0);

    size_t bytes = 0;
    for (size_t i = 0; i < columns->column_count; ++i) {
        const struct rmq_column_builder *builder = &columns->builders[i];
        if (rmq_column_infos()[builder->column].type >= RMQ_TYPE_UTF8)
            bytes += builder->buffers[RMQ_BUFFER_DATA].size +
                     builder->buffers[RMQ_BUFFER_VALUE_DATA].size;
    }
    return (int64_t)bytes;
}

int rmq_columns_append(struct rmq_columns *columns, const struct rmq_record *records, size_t count,
                       size_t *taken, struct rmq_error *err)
{
    assert((records || count == 0) && taken);

    struct chunk chunk;
    chunk.columns = columns;

    for (*taken = 0; *taken < count; *taken += chunk.count) {
        size_t left = count - *taken;
        chunk.records = records + *taken;
        chunk.count = count_fitting(columns, chunk.records, left < CHUNK ? left : CHUNK);
        if (chunk.count == 0)
            break;

        for (size_t i = 0; columns->chosen & NEEDS_PROPERTIES && i < chunk.count; ++i)
            rmq_properties_scan(chunk.records[i].properties,
                                (size_t)chunk.records[i].properties_size, &chunk.properties[i]);
        for (size_t i = 0; i < columns->column_count; ++i)
            if (!fill_column(&chunk, &columns->builders[i]))
                return rmq_fail(err, RMQ_NO_MEMORY, -1,
                                "no memory for a batch of %lld rows and %lld bytes so far",
                                (long long)columns->rows, (long long)columns->bytes);

        columns->rows += (int64_t)chunk.count;
        columns->bytes = variable_bytes(columns);
    }
    assert(*taken <= count && columns->rows <= columns->max_rows);
    return RMQ_OK;
}
