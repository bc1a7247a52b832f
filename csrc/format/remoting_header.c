#include "format/remoting_header.h"

#include <assert.h>
#include <string.h>

#include "base/bytes.h"
#include "base/utf8.h"

/* The header and the position that is read next. */
struct cursor {
    const uint8_t *data;
    size_t size;
    size_t at;
};

/* ---- JSON ---- */

static uint8_t skip_space(struct cursor *in)
{
    while (in->at < in->size) {
        uint8_t c = in->data[in->at];
        if (c != ' ' && c != '\n' && c != '\t' && c != '\r')
            return c;
        ++in->at;
    }
    return 0;
}

static bool take(struct cursor *in, uint8_t wanted)
{
    if (skip_space(in) != wanted)
        return false;
    ++in->at;
    return true;
}

static bool take_text(struct cursor *in, struct rmq_remoting_text *text)
{
    if (!take(in, '"'))
        return false;

    size_t start = in->at;
    text->has_escapes = false;
    while (in->at < in->size) {
        uint8_t c = in->data[in->at];
        if (c == '"') {
            text->bytes = (struct rmq_slice){(const char *)in->data + start, in->at - start};
            ++in->at;
            return true;
        }
        if (c < 0x20)
            return false;
        if (c == '\\') {
            text->has_escapes = true;
            if (++in->at == in->size)
                return false;
        }
        ++in->at;
    }
    return false;
}

/* A number of 32 bits, as JSON writes one: no sign but '-', no zeros before it, no fraction. */
static bool take_i32(struct cursor *in, int32_t *number)
{
    uint8_t first = skip_space(in);
    bool is_negative = first == '-';
    if (is_negative)
        ++in->at;

    size_t start = in->at;
    int64_t value = 0;
    while (in->at < in->size && in->data[in->at] >= '0' && in->data[in->at] <= '9') {
        value = value * 10 + (in->data[in->at] - '0');
        if (value > -(int64_t)INT32_MIN)
            return false;
        ++in->at;
    }

    size_t digits = in->at - start;
    if (digits == 0 || (digits > 1 && in->data[start] == '0'))
        return false;
    if (is_negative)
        value = -value;
    if (value > INT32_MAX)
        return false;
    /* The caller checks the character after the number: ',' or '}'. */
    *number = (int32_t)value;
    return true;
}

static bool take_fields(struct cursor *in, struct rmq_remoting_header *header)
{
    header->has_fields = true;
    header->field_count = 0;
    if (!take(in, '{'))
        return false;
    if (skip_space(in) == '}')
        return take(in, '}');

    do {
        if (header->field_count == RMQ_REMOTING_FIELDS_MAX)
            return false;
        struct rmq_remoting_field *field = &header->fields[header->field_count++];
        if (!take_text(in, &field->key) || !take(in, ':') || !take_text(in, &field->value))
            return false;
        /* It may be a reference of fastjson. */
        if (field->key.bytes.size > 0 && field->key.bytes.data[0] == '$')
            return false;
    } while (take(in, ','));
    return take(in, '}');
}

static bool is_key(const struct rmq_remoting_text *key, const char *name)
{
    size_t size = strlen(name);
    return key->bytes.size == size && memcmp(key->bytes.data, name, size) == 0;
}

static bool take_language(struct cursor *in, struct rmq_remoting_header *header)
{
    header->language_name = (struct rmq_slice){NULL, 0};
    if (skip_space(in) != '"')
        return take_i32(in, &header->language);
    struct rmq_remoting_text name;
    if (!take_text(in, &name) || name.has_escapes)
        return false;
    header->language_name = name.bytes;
    return true;
}

static bool take_pair(struct cursor *in, struct rmq_remoting_header *header)
{
    struct rmq_remoting_text key;
    if (!take_text(in, &key) || !take(in, ':'))
        return false;

    if (is_key(&key, "code"))
        return take_i32(in, &header->code);
    if (is_key(&key, "extFields"))
        return take_fields(in, header);
    if (is_key(&key, "flag"))
        return take_i32(in, &header->flag);
    if (is_key(&key, "language"))
        return take_language(in, header);
    if (is_key(&key, "opaque"))
        return take_i32(in, &header->opaque);
    if (is_key(&key, "remark"))
        return take_text(in, &header->remark);
    if (is_key(&key, "version"))
        return take_i32(in, &header->version);
    struct rmq_remoting_text ignored;
    return is_key(&key, "serializeTypeCurrentRPC") && take_text(in, &ignored) &&
           !ignored.has_escapes && rmq_utf8_is_valid(ignored.bytes.data, ignored.bytes.size);
}

static bool read_json(struct cursor *in, struct rmq_remoting_header *header)
{
    if (!take(in, '{'))
        return false;
    if (skip_space(in) != '}') {
        do {
            if (!take_pair(in, header))
                return false;
        } while (take(in, ','));
    }
    if (!take(in, '}'))
        return false;
    skip_space(in);
    return in->at == in->size;
}

/* ---- binary ---- */

/* A text of size bytes; negative sizes and those beyond the header are refused. */
static bool take_piece(struct cursor *in, int32_t size, struct rmq_remoting_text *text)
{
    if (size < 0 || (size_t)size > in->size - in->at)
        return false;
    text->bytes = (struct rmq_slice){(const char *)in->data + in->at, (size_t)size};
    text->has_escapes = false;
    in->at += (size_t)size;
    return true;
}

static bool take_sized(struct cursor *in, size_t size_of_size, struct rmq_remoting_text *text)
{
    assert(size_of_size == 2 || size_of_size == 4);
    if (in->size - in->at < size_of_size)
        return false;
    const uint8_t *from = in->data + in->at;
    in->at += size_of_size;
    return take_piece(in, size_of_size == 2 ? rmq_get_i16(from) : rmq_get_i32(from), text);
}

static bool read_binary(struct cursor *in, struct rmq_remoting_header *header)
{
    enum { FIXED_SIZE = 2 + 1 + 2 + 4 + 4 };
    if (in->size < FIXED_SIZE)
        return false;
    header->code = rmq_get_i16(in->data);
    header->language = (int8_t)in->data[2];
    header->version = rmq_get_i16(in->data + 3);
    header->opaque = rmq_get_i32(in->data + 5);
    header->flag = rmq_get_i32(in->data + 9);
    in->at = FIXED_SIZE;

    if (!take_sized(in, 4, &header->remark))
        return false;
    if (header->remark.bytes.size == 0)
        header->remark.bytes.data = NULL;

    if (in->size - in->at < 4)
        return false;
    int32_t entries_size = rmq_get_i32(in->data + in->at);
    in->at += 4;
    if (entries_size < 0 || (size_t)entries_size != in->size - in->at)
        return false;
    while (in->at < in->size) {
        if (header->field_count == RMQ_REMOTING_FIELDS_MAX)
            return false;
        struct rmq_remoting_field *field = &header->fields[header->field_count++];
        if (!take_sized(in, 2, &field->key) || !take_sized(in, 4, &field->value))
            return false;
    }
    header->has_fields = header->field_count > 0;
    return true;
}

bool rmq_remoting_header_read(const uint8_t *data, size_t size, enum rmq_remoting_type type,
                              struct rmq_remoting_header *header)
{
    assert(type == RMQ_REMOTING_JSON || type == RMQ_REMOTING_BINARY);

    struct cursor in = {data, size, 0};
    header->code = header->flag = header->opaque = header->version = header->language = 0;
    header->language_name = (struct rmq_slice){NULL, 0};
    header->remark = (struct rmq_remoting_text){{NULL, 0}, false};
    header->has_fields = false;
    header->field_count = 0;

    bool is_read = type == RMQ_REMOTING_JSON ? read_json(&in, header) : read_binary(&in, header);
    assert(!is_read || in.at == size);
    assert(header->field_count <= RMQ_REMOTING_FIELDS_MAX);
    return is_read;
}

/* ---- escapes ---- */

/* The number of four hexadecimal digits at text, -1 for others. */
static int32_t hex4(const char *text)
{
    int32_t value = 0;
    for (int i = 0; i < 4; ++i) {
        char c = text[i];
        int32_t digit;
        if (c >= '0' && c <= '9')
            digit = c - '0';
        else if (c >= 'a' && c <= 'f')
            digit = c - 'a' + 10;
        else if (c >= 'A' && c <= 'F')
            digit = c - 'A' + 10;
        else
            return -1;
        value = value * 16 + digit;
    }
    return value;
}

static size_t put_utf8(char *out, uint32_t character)
{
    if (character < 0x80) {
        out[0] = (char)character;
        return 1;
    }
    if (character < 0x800) {
        out[0] = (char)(0xC0 | character >> 6);
        out[1] = (char)(0x80 | (character & 0x3F));
        return 2;
    }
    if (character < 0x10000) {
        out[0] = (char)(0xE0 | character >> 12);
        out[1] = (char)(0x80 | (character >> 6 & 0x3F));
        out[2] = (char)(0x80 | (character & 0x3F));
        return 3;
    }
    out[0] = (char)(0xF0 | character >> 18);
    out[1] = (char)(0x80 | (character >> 12 & 0x3F));
    out[2] = (char)(0x80 | (character >> 6 & 0x3F));
    out[3] = (char)(0x80 | (character & 0x3F));
    return 4;
}

/* Reads the uXXXX at *at of text, with the second half of a pair when it follows; moves *at. */
static bool take_unicode(struct rmq_slice text, size_t *at, uint32_t *character)
{
    if (text.size - *at < 5)
        return false;
    int32_t first = hex4(text.data + *at + 1);
    if (first < 0)
        return false;
    *at += 5;
    *character = (uint32_t)first;
    if (first < 0xD800 || first > 0xDFFF)
        return true;

    *character = RMQ_UTF8_REPLACEMENT;
    if (first < 0xDC00 && text.size - *at >= 6 && memcmp(text.data + *at, "\\u", 2) == 0) {
        int32_t second = hex4(text.data + *at + 2);
        if (second >= 0xDC00 && second <= 0xDFFF) {
            *character = (uint32_t)(0x10000 + ((first - 0xD800) << 10) + (second - 0xDC00));
            *at += 6;
        }
    }
    return true;
}

bool rmq_remoting_unescape(struct rmq_slice text, char *out, size_t *written)
{
    static const char NAMES[] = "\"\\/bfnrt";
    static const char MEANT[] = "\"\\/\b\f\n\r\t";

    size_t at = 0, size = 0;
    while (at < text.size) {
        const char *next = memchr(text.data + at, '\\', text.size - at);
        size_t plain = (next == NULL ? text.size : (size_t)(next - text.data)) - at;
        memcpy(out + size, text.data + at, plain);
        size += plain;
        at += plain;
        if (next == NULL)
            break;

        if (++at == text.size)
            return false;
        if (text.data[at] == 'u') {
            uint32_t character;
            if (!take_unicode(text, &at, &character))
                return false;
            size += put_utf8(out + size, character);
            continue;
        }
        const char *name = memchr(NAMES, text.data[at], sizeof NAMES - 1);
        if (name == NULL)
            return false;
        out[size++] = MEANT[name - NAMES];
        ++at;
    }
    assert(size <= text.size);
    *written = size;
    return true;
}
