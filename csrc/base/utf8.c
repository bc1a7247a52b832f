#include "base/utf8.h"

#include <assert.h>
#include <string.h>

static bool is_continuation(uint8_t byte)
{
    return (byte & 0xC0) == 0x80;
}

/* Whether second may follow first in a sequence of three or four bytes. Surrogates (0xED
 * 0xA0..0xBF) are allowed: Java rejects a surrogate only when its sequence is complete, and then as
 * one. */
static bool may_follow(uint8_t first, uint8_t second)
{
    if (!is_continuation(second))
        return false;
    if (first == 0xE0)
        return second >= 0xA0;
    if (first == 0xF0)
        return second >= 0x90;
    return first != 0xF4 || second < 0x90;
}

size_t rmq_utf8_decode(const uint8_t *text, size_t left, uint32_t *character)
{
    assert(left > 0);

    uint8_t first = text[0];
    *character = RMQ_UTF8_REPLACEMENT;
    if (first < 0x80) {
        *character = first;
        return 1;
    }

    if (first < 0xC2 || first > 0xF4)
        return 1;
    if (first < 0xE0) {
        if (left < 2 || !is_continuation(text[1]))
            return 1;
        *character = (first & 0x1Fu) << 6 | (text[1] & 0x3Fu);
        return 2;
    }

    if (left < 2 || !may_follow(first, text[1]))
        return 1;
    if (left < 3 || !is_continuation(text[2]))
        return 2;
    uint32_t high = (text[1] & 0x3Fu) << 6 | (text[2] & 0x3Fu);
    if (first < 0xF0) {
        uint32_t value = (first & 0x0Fu) << 12 | high;
        if (value < 0xD800 || value > 0xDFFF)
            *character = value;
        return 3;
    }

    if (left < 4 || !is_continuation(text[3]))
        return 3;
    *character = (first & 0x07u) << 18 | high << 6 | (text[3] & 0x3Fu);
    return 4;
}

/* Whether the bytes that decoded to character are its own encoding. */
static bool is_sound(const uint8_t *text, size_t taken, uint32_t character)
{
    return character != RMQ_UTF8_REPLACEMENT ||
           (taken == 3 && memcmp(text, "\xEF\xBF\xBD", 3) == 0);
}

static size_t ascii_run(const uint8_t *text, size_t size)
{
    size_t at = 0;
    while (size - at >= 8) {
        uint64_t eight;
        memcpy(&eight, text + at, sizeof eight);
        if (eight & 0x8080808080808080u)
            break;
        at += 8;
    }
    while (at < size && text[at] < 0x80)
        ++at;
    return at;
}

bool rmq_utf8_is_valid(const char *text, size_t size)
{
    const uint8_t *bytes = (const uint8_t *)text;
    for (size_t at = 0; at < size;) {
        at += ascii_run(bytes + at, size - at);
        if (at == size)
            return true;

        uint32_t character;
        size_t taken = rmq_utf8_decode(bytes + at, size - at, &character);
        assert(taken > 0 && taken <= size - at);
        if (!is_sound(bytes + at, taken, character))
            return false;
        at += taken;
    }
    return true;
}

size_t rmq_utf8_mend(char *out, const char *text, size_t size)
{
    assert((text && out) || size == 0);

    const uint8_t *bytes = (const uint8_t *)text;
    size_t wrote = 0;
    for (size_t at = 0; at < size;) {
        uint32_t character;
        size_t taken = rmq_utf8_decode(bytes + at, size - at, &character);
        assert(taken > 0 && taken <= size - at);
        bool is_kept = is_sound(bytes + at, taken, character);
        memcpy(out + wrote, is_kept ? text + at : "\xEF\xBF\xBD", is_kept ? taken : 3);
        wrote += is_kept ? taken : 3;
        at += taken;
    }
    assert(wrote <= RMQ_UTF8_MEND_FACTOR * size);
    return wrote;
}
