#include "utf8.h"

#include <stdint.h>
#include <string.h>

static bool is_continuation(uint8_t byte)
{
    return (byte & 0xC0) == 0x80;
}

/* Whether second may follow first in a sequence of three or four bytes. */
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

/* The bytes of the character, or of the bad sequence, at text; left > 0 of them may be read. */
static size_t step(const uint8_t *text, size_t left, bool *is_good)
{
    uint8_t first = text[0];
    *is_good = first < 0x80;
    if (first < 0xC2 || first > 0xF4)
        return 1;
    if (left < 2)
        return 1;
    if (first < 0xE0) {
        *is_good = is_continuation(text[1]);
        return *is_good ? 2 : 1;
    }
    if (!may_follow(first, text[1]))
        return 1;
    if (left < 3 || !is_continuation(text[2]))
        return 2;
    if (first < 0xF0) {
        *is_good = first != 0xED || text[1] < 0xA0;
        return 3;
    }
    if (left < 4 || !is_continuation(text[3]))
        return 3;
    *is_good = true;
    return 4;
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
        bool is_good;
        at += step(bytes + at, size - at, &is_good);
        if (!is_good)
            return false;
    }
    return true;
}

size_t rmq_utf8_mend(char *out, const char *text, size_t size)
{
    size_t wrote = 0;
    for (size_t at = 0; at < size;) {
        bool is_good;
        size_t taken = step((const uint8_t *)text + at, size - at, &is_good);
        if (is_good)
            memcpy(out + wrote, text + at, taken);
        else
            memcpy(out + wrote, "\xEF\xBF\xBD", 3);
        wrote += is_good ? taken : 3;
        at += taken;
    }
    return wrote;
}
