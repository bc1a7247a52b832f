#include "format/properties.h"

#include <assert.h>
#include <stdint.h>
#include <string.h>

/* The piece from *at up to the next 0x02 or the end; moves *at past the 0x02. The caller ensures
 * that *at < size. */
static struct rmq_slice next_piece(const char *text, size_t size, size_t *at)
{
    const char *start = text + *at;
    const char *end = memchr(start, RMQ_PROPERTY_SEPARATOR, size - *at);
    struct rmq_slice piece = {start, end ? (size_t)(end - start) : size - *at};
    *at += piece.size + (end ? 1 : 0);
    return piece;
}

bool rmq_properties_next(const char *text, size_t size, size_t *at, struct rmq_slice *name,
                         struct rmq_slice *value)
{
    while (*at < size) {
        struct rmq_slice piece = next_piece(text, size, at);
        if (piece.size < 3)
            continue;

        const char *separator = memchr(piece.data, RMQ_NAME_VALUE_SEPARATOR, piece.size);
        if (!separator || separator == piece.data || separator == piece.data + piece.size - 1)
            continue;

        name->data = piece.data;
        name->size = (size_t)(separator - piece.data);
        value->data = separator + 1;
        value->size = piece.size - name->size - 1;
        return true;
    }
    return false;
}

static bool is_name(struct rmq_slice slice, const char *name, size_t name_size)
{
    return slice.size == name_size && memcmp(slice.data, name, name_size) == 0;
}

struct rmq_slice rmq_properties_find(const char *text, size_t size, const char *name)
{
    assert(text || size == 0);
    assert(name);

    size_t name_size = strlen(name);
    struct rmq_slice found = {NULL, 0};
    struct rmq_slice pair_name;
    struct rmq_slice pair_value;

    for (size_t at = 0; rmq_properties_next(text, size, &at, &pair_name, &pair_value);)
        if (is_name(pair_name, name, name_size))
            found = pair_value;
    return found;
}

bool rmq_properties_have(const char *text, size_t size, const char *name,
                         const struct rmq_slice *values, size_t value_count)
{
    assert(values || value_count == 0);

    struct rmq_slice found = rmq_properties_find(text, size, name);
    for (size_t i = 0; found.data && i < value_count; ++i)
        if (found.size == values[i].size && memcmp(found.data, values[i].data, found.size) == 0)
            return true;
    return false;
}

bool rmq_properties_have_tag(const char *text, size_t size, const struct rmq_slice *tags,
                             size_t tag_count)
{
    return rmq_properties_have(text, size, "TAGS", tags, tag_count);
}

static int64_t parse_or(struct rmq_slice text, int64_t lowest, int64_t highest, int64_t otherwise)
{
    int64_t value;
    if (!rmq_parse_i64(text, &value) || value < lowest || value > highest)
        return otherwise;
    return value;
}

#define IS(literal) (memcmp(name.data, literal, sizeof literal - 1) == 0)

void rmq_properties_scan(const char *text, size_t size, struct rmq_dispatch_properties *out)
{
    assert(text || size == 0);

    *out = (struct rmq_dispatch_properties){.inner_num = -1, .inner_base = -1};

    struct rmq_slice name;
    struct rmq_slice value;

    for (size_t at = 0; rmq_properties_next(text, size, &at, &name, &value);) {
        switch (name.size) {
        case 4:
            if (IS("TAGS"))
                out->tags = value;
            else if (IS("KEYS"))
                out->keys = value;
            break;
        case 5:
            if (IS("DELAY"))
                out->delay_level = (int32_t)parse_or(value, INT32_MIN, INT32_MAX, 0);
            break;
        case 8:
            if (IS("UNIQ_KEY"))
                out->unique_key = value;
            break;
        case 9:
            if (IS("INNER_NUM"))
                out->inner_num = (int32_t)parse_or(value, INT32_MIN, INT32_MAX, -1);
            break;
        case 10:
            if (IS("INNER_BASE"))
                out->inner_base = parse_or(value, INT64_MIN, INT64_MAX, -1);
            break;
        case 20:
            if (IS("INNER_MULTI_DISPATCH"))
                out->multi_dispatch = value;
            break;
        case 24:
            if (IS("INNER_MULTI_QUEUE_OFFSET"))
                out->multi_queue_offset = value;
            break;
        default:
            break;
        }
    }
}

#undef IS

bool rmq_parse_i64(struct rmq_slice text, int64_t *value)
{
    assert(text.data || text.size == 0);

    size_t at = 0;
    bool negative = false;
    if (text.size > 0 && (text.data[0] == '-' || text.data[0] == '+')) {
        negative = text.data[0] == '-';
        at = 1;
    }
    if (at == text.size)
        return false;

    uint64_t limit = (uint64_t)INT64_MAX + (negative ? 1 : 0);
    uint64_t sum = 0;
    for (; at < text.size; ++at) {
        char digit = text.data[at];
        if (digit < '0' || digit > '9')
            return false;
        uint64_t units = (uint64_t)(digit - '0');
        if (sum > (limit - units) / 10)
            return false;
        sum = sum * 10 + units;
    }

    assert(sum <= limit);
    /* 0 - sum, because -(int64_t)sum would overflow for the lowest number. */
    *value = (int64_t)(negative ? 0 - sum : sum);
    return true;
}

bool rmq_properties_append(char *buffer, size_t capacity, size_t *at, const char *name,
                           struct rmq_slice value)
{
    assert(*at <= capacity);
    assert(buffer && name);
    assert(value.data || value.size == 0);

    size_t name_size = strlen(name);
    size_t left = capacity - *at;
    if (left < 2 || name_size > left - 2 || value.size > left - 2 - name_size)
        return false;

    char *to = buffer + *at;
    memcpy(to, name, name_size);
    to[name_size] = RMQ_NAME_VALUE_SEPARATOR;
    if (value.size > 0)
        memcpy(to + name_size + 1, value.data, value.size);
    to[name_size + 1 + value.size] = RMQ_PROPERTY_SEPARATOR;
    *at += name_size + value.size + 2;
    assert(*at <= capacity);
    return true;
}
