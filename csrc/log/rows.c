#include "log/rows.h"

#include <assert.h>
#include <inttypes.h>
#include <string.h>

#include "base/crc32.h"
#include "log/commit_log.h"

#define MICROSECONDS 1000 /* microseconds in a millisecond */

/* ---- cells ---- */

static const char *const column_names[RMQ_ROWS_COLUMN_COUNT] = {
    "topic",      "body",           "queue id",        "tags", "keys",  "items of keys",
    "properties", "property names", "property values", "born", "stored"};

static size_t cell_size(int column)
{
    assert(column >= 0 && column < RMQ_ROWS_COLUMN_COUNT);
    return column == RMQ_ROWS_BORN || column == RMQ_ROWS_STORED ? 8 : 4;
}

/* Cells from the first row's on. Texts, lists and maps have one more offset than cells. */
static int64_t cell_count(const struct rmq_rows *rows, int column)
{
    const struct rmq_cells *cells = &rows->cells[column];
    bool has_offsets = cell_size(column) == 4 && column != RMQ_ROWS_QUEUE_ID;
    int64_t count = (int64_t)(cells->values_size / cell_size(column)) - has_offsets;
    assert(count >= -1);

    if (cells->validity && count > (int64_t)cells->validity_size * 8)
        count = (int64_t)cells->validity_size * 8;
    return cells->offset >= 0 && cells->offset <= count ? count - cells->offset : 0;
}

int rmq_rows_check(const struct rmq_rows *rows, struct rmq_error *err)
{
    assert(rows->count >= 0);

    for (int column = 0; column < RMQ_ROWS_COLUMN_COUNT; ++column) {
        bool is_item =
            column == RMQ_ROWS_KEY_ITEMS || column == RMQ_ROWS_NAMES || column == RMQ_ROWS_VALUES;
        if (rows->has[column] && !is_item && rows->count > cell_count(rows, column))
            return rmq_fail(err, RMQ_INVALID, -1,
                            "column %s has %" PRId64 " cells for %" PRId64 " rows",
                            column_names[column], cell_count(rows, column), rows->count);
    }

    if (!rows->has[RMQ_ROWS_TOPIC] || !rows->has[RMQ_ROWS_BODY])
        return rmq_fail(err, RMQ_INVALID, -1, "topic and body are needed");
    if (rows->has[RMQ_ROWS_PROPERTIES] &&
        !(rows->has[RMQ_ROWS_NAMES] && rows->has[RMQ_ROWS_VALUES]))
        return rmq_fail(err, RMQ_INVALID, -1, "properties need names and values");
    return RMQ_OK;
}

/* index is at most cell_count. */
static bool is_there(const struct rmq_rows *rows, int column, int64_t index)
{
    assert(index >= 0);

    const struct rmq_cells *cells = &rows->cells[column];
    if (!rows->has[column])
        return false;

    int64_t bit = cells->offset + index;
    return !cells->validity || (cells->validity[bit / 8] >> (bit % 8) & 1);
}

static int32_t get_int32(const struct rmq_rows *rows, int column, int64_t index)
{
    assert(rows->has[column] && index >= 0);

    const struct rmq_cells *cells = &rows->cells[column];
    int32_t value;
    memcpy(&value, cells->values + (size_t)(cells->offset + index) * sizeof value, sizeof value);
    return value;
}

static int64_t get_int64(const struct rmq_rows *rows, int column, int64_t index)
{
    assert(rows->has[column] && index >= 0);

    const struct rmq_cells *cells = &rows->cells[column];
    int64_t value;
    memcpy(&value, cells->values + (size_t)(cells->offset + index) * sizeof value, sizeof value);
    return value;
}

/* The offsets of a text, list or map, which must ascend up to `limit`. */
static int get_range(const struct rmq_rows *rows, int column, int64_t index, int64_t limit,
                     int64_t *begin, int64_t *end, struct rmq_error *err)
{
    assert(limit >= 0);

    *begin = get_int32(rows, column, index);
    *end = get_int32(rows, column, index + 1);
    if (*begin < 0 || *begin > *end || *end > limit)
        return rmq_fail(err, RMQ_INVALID, index,
                        "column %s: offsets %" PRId64 " and %" PRId64 " of cell %" PRId64
                        " lead out of %" PRId64,
                        column_names[column], *begin, *end, index, limit);
    return RMQ_OK;
}

static int get_text(const struct rmq_rows *rows, int column, int64_t index, struct rmq_slice *text,
                    struct rmq_error *err)
{
    assert(text);

    const struct rmq_cells *cells = &rows->cells[column];
    int64_t begin, end;
    int status = get_range(rows, column, index, (int64_t)cells->data_size, &begin, &end, err);
    if (status != RMQ_OK)
        return status;

    text->data = cells->data ? (const char *)cells->data + begin : "";
    text->size = (size_t)(end - begin);
    return RMQ_OK;
}

/* ---- properties ---- */

struct text {
    size_t size;
    char data[RMQ_PROPERTIES_SIZE_MAX];
};

static int add(struct text *text, const char *data, size_t size, struct rmq_error *err)
{
    assert(text->size <= sizeof text->data);

    if (size > sizeof text->data - text->size)
        return rmq_fail(err, RMQ_PROPERTIES_TOO_LARGE, -1,
                        "properties take more than the limit of %d bytes", RMQ_PROPERTIES_SIZE_MAX);

    if (size > 0)
        memcpy(text->data + text->size, data, size);
    text->size += size;
    return RMQ_OK;
}

static bool holds(struct rmq_slice text, char byte)
{
    return text.size > 0 && memchr(text.data, byte, text.size);
}

static int add_pair(struct text *text, struct rmq_slice name, struct rmq_slice value,
                    struct rmq_error *err)
{
    assert(text->size <= sizeof text->data);

    static const char name_end = RMQ_NAME_VALUE_SEPARATOR, pair_end = RMQ_PROPERTY_SEPARATOR;
    if (name.size == 0 || holds(name, 0) || holds(name, name_end) || holds(name, pair_end) ||
        holds(value, 0) || holds(value, pair_end))
        return rmq_fail(err, RMQ_MESSAGE_ILLEGAL, -1,
                        "property %.*s: a name may not be empty nor hold the bytes 0, 1 and 2, a "
                        "value not 0 and 2, which separate properties",
                        (int)(name.size < 100 ? name.size : 100), name.data);

    int status = add(text, name.data, name.size, err);
    if (status == RMQ_OK)
        status = add(text, &name_end, 1, err);
    if (status == RMQ_OK)
        status = add(text, value.data, value.size, err);
    return status == RMQ_OK ? add(text, &pair_end, 1, err) : status;
}

static bool is_text(struct rmq_slice text, const char *expected)
{
    assert(expected);
    return text.size == strlen(expected) && memcmp(text.data, expected, text.size) == 0;
}

/* Keys of a list, separated by spaces. */
static int join_keys(const struct rmq_rows *rows, int64_t row, struct text *joined,
                     struct rmq_error *err)
{
    assert(joined->size == 0);

    int64_t at, end;
    int status =
        get_range(rows, RMQ_ROWS_KEYS, row, cell_count(rows, RMQ_ROWS_KEY_ITEMS), &at, &end, err);

    for (; at < end && status == RMQ_OK; ++at) {
        struct rmq_slice key;
        if (!is_there(rows, RMQ_ROWS_KEY_ITEMS, at))
            continue;

        status = get_text(rows, RMQ_ROWS_KEY_ITEMS, at, &key, err);
        if (status != RMQ_OK || key.size == 0)
            continue;

        if (holds(key, ' '))
            return rmq_fail(err, RMQ_MESSAGE_ILLEGAL, -1,
                            "key %.*s holds a space, which separates keys; give two keys",
                            (int)(key.size < 100 ? key.size : 100), key.data);

        if (joined->size > 0)
            status = add(joined, " ", 1, err);
        if (status == RMQ_OK)
            status = add(joined, key.data, key.size, err);
    }
    return status;
}

/* Whether the pair has the same name and value as another column. */
static int is_repeated(struct rmq_slice name, struct rmq_slice value, struct rmq_slice own,
                       bool *repeated, struct rmq_error *err)
{
    assert(repeated);

    *repeated = own.size > 0;
    if (!*repeated || (own.size == value.size && memcmp(own.data, value.data, own.size) == 0))
        return RMQ_OK;

    return rmq_fail(err, RMQ_MESSAGE_ILLEGAL, -1,
                    "property %.*s says something else than the column for it; leave one out",
                    (int)name.size, name.data);
}

static int add_map(const struct rmq_rows *rows, int64_t row, struct rmq_slice keys,
                   struct rmq_slice tags, struct text *text, struct rmq_error *err)
{
    assert(text->size == 0);

    int64_t at, end, names = cell_count(rows, RMQ_ROWS_NAMES),
                     values = cell_count(rows, RMQ_ROWS_VALUES);
    int status =
        get_range(rows, RMQ_ROWS_PROPERTIES, row, names < values ? names : values, &at, &end, err);

    for (; at < end && status == RMQ_OK; ++at) {
        struct rmq_slice name, value;
        bool repeated = false;
        if (!is_there(rows, RMQ_ROWS_VALUES, at))
            continue;

        status = get_text(rows, RMQ_ROWS_NAMES, at, &name, err);
        if (status == RMQ_OK)
            status = get_text(rows, RMQ_ROWS_VALUES, at, &value, err);
        if (status != RMQ_OK || is_text(name, "__CRC32#"))
            continue;

        if (is_text(name, "KEYS"))
            status = is_repeated(name, value, keys, &repeated, err);
        else if (is_text(name, "TAGS"))
            status = is_repeated(name, value, tags, &repeated, err);

        if (status == RMQ_OK && !repeated)
            status = add_pair(text, name, value, err);
    }
    return status;
}

static int make_properties(const struct rmq_rows *rows, int64_t row, struct text *text,
                           struct rmq_error *err)
{
    assert(row >= 0 && row < rows->count);

    struct rmq_slice keys = {NULL, 0}, tags = {NULL, 0};
    struct text joined;
    int status = RMQ_OK;
    joined.size = text->size = 0;

    if (is_there(rows, RMQ_ROWS_KEYS, row) && rows->has[RMQ_ROWS_KEY_ITEMS]) {
        status = join_keys(rows, row, &joined, err);
        keys = (struct rmq_slice){joined.data, joined.size};
    } else if (is_there(rows, RMQ_ROWS_KEYS, row)) {
        status = get_text(rows, RMQ_ROWS_KEYS, row, &keys, err);
    }

    if (status == RMQ_OK && is_there(rows, RMQ_ROWS_TAGS, row))
        status = get_text(rows, RMQ_ROWS_TAGS, row, &tags, err);
    if (status == RMQ_OK && is_there(rows, RMQ_ROWS_PROPERTIES, row))
        status = add_map(rows, row, keys, tags, text, err);
    if (status == RMQ_OK && keys.size > 0)
        status = add_pair(text, (struct rmq_slice){"KEYS", 4}, keys, err);
    if (status == RMQ_OK && tags.size > 0)
        status = add_pair(text, (struct rmq_slice){"TAGS", 4}, tags, err);
    return status;
}

/* ---- records ---- */

static int64_t milliseconds(int64_t microseconds)
{
    int64_t whole = microseconds / MICROSECONDS;
    return microseconds % MICROSECONDS < 0 ? whole - 1 : whole;
}

static int fill_message(const struct rmq_rows *rows, int64_t row, struct rmq_message *message,
                        struct text *properties, struct rmq_error *err)
{
    assert(row >= 0 && row < rows->count);

    struct rmq_slice topic, body;
    if (!is_there(rows, RMQ_ROWS_TOPIC, row))
        return rmq_fail(err, RMQ_MESSAGE_ILLEGAL, row, "topic is null");
    if (!is_there(rows, RMQ_ROWS_BODY, row))
        return rmq_fail(err, RMQ_MESSAGE_ILLEGAL, row, "body is null; an empty one may be stored");

    int status = get_text(rows, RMQ_ROWS_TOPIC, row, &topic, err);
    if (status == RMQ_OK)
        status = get_text(rows, RMQ_ROWS_BODY, row, &body, err);
    if (status == RMQ_OK)
        status = rmq_topic_validate(topic.data, topic.size, err);
    if (status == RMQ_OK)
        status = make_properties(rows, row, properties, err);
    if (status != RMQ_OK)
        return status;

    *message = (struct rmq_message){
        .topic = topic.data,
        .topic_size = topic.size,
        .body = (const uint8_t *)body.data,
        .body_size = body.size,
        .properties = properties->data,
        .properties_size = properties->size,
        .born_host = rows->host,
        .store_host = rows->host,
        .born_timestamp = RMQ_BORN_WHEN_STORED,
    };

    if (is_there(rows, RMQ_ROWS_QUEUE_ID, row))
        message->queue_id = get_int32(rows, RMQ_ROWS_QUEUE_ID, row);
    if (message->queue_id < 0)
        return rmq_fail(err, RMQ_MESSAGE_ILLEGAL, row, "queue %d is negative", message->queue_id);

    if (is_there(rows, RMQ_ROWS_BORN, row))
        message->born_timestamp = milliseconds(get_int64(rows, RMQ_ROWS_BORN, row));

    if (!rows->has[RMQ_ROWS_STORED])
        return RMQ_OK;
    if (is_there(rows, RMQ_ROWS_STORED, row))
        message->store_timestamp = milliseconds(get_int64(rows, RMQ_ROWS_STORED, row));
    if (message->store_timestamp <= 0)
        return rmq_fail(err, RMQ_MESSAGE_ILLEGAL, row,
                        "store timestamp is null, or not after 1970; fill it, or leave the column "
                        "out");
    return RMQ_OK;
}

static int encode_row(const struct rmq_rows *rows, int64_t row, int64_t place, int64_t now_ms,
                      uint8_t *out, size_t capacity, int32_t *size, struct rmq_error *err)
{
    assert(place >= 0 && out && size);

    struct rmq_message message;
    struct rmq_record_plan plan;
    struct text properties;
    int64_t room = rows->log_file_size - RMQ_BLANK_SIZE;

    int status = fill_message(rows, row, &message, &properties, err);
    if (status == RMQ_OK)
        status = rmq_record_plan(&message, &rows->limits, &plan, err);
    if (status != RMQ_OK)
        return status;
    if (plan.total_size > room)
        return rmq_fail(err, RMQ_MESSAGE_ILLEGAL, row,
                        "record of %d bytes does not fit a commit log file; the limit is "
                        "%" PRId64 " bytes (mappedFileSizeCommitLog - 8)",
                        plan.total_size, room);

    *size = plan.total_size;
    if ((size_t)plan.total_size > capacity)
        return RMQ_END;

    struct rmq_placement placement = {
        .physical_offset = place,
        .store_timestamp = message.store_timestamp ? message.store_timestamp : now_ms,
        .body_crc = rmq_crc32_java(message.body, message.body_size)};
    rmq_record_encode(out, &message, &plan, &placement);
    return RMQ_OK;
}

int rmq_rows_encode(const struct rmq_rows *rows, int64_t *row, int64_t place, int64_t now_ms,
                    uint8_t *out, size_t capacity, size_t *used, struct rmq_error *err)
{
    assert(*row >= 0 && capacity >= (size_t)rows->limits.record_size_max);

    *used = 0;
    for (; *row < rows->count; ++*row) {
        int32_t size = 0;
        int status = encode_row(rows, *row, place + (int64_t)*used, now_ms, out + *used,
                                capacity - *used, &size, err);
        if (status == RMQ_END)
            return RMQ_OK;
        if (status != RMQ_OK)
            return status;
        *used += (size_t)size;
        assert(*used <= capacity);
    }
    return RMQ_OK;
}
