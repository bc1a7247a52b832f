#include "base/hash.h"

#include <assert.h>
#include <string.h>

#include "base/utf8.h"

int32_t rmq_java_hash(int32_t hash, const char *text, size_t size)
{
    assert(text || size == 0);

    const uint8_t *bytes = (const uint8_t *)text;
    uint32_t h = (uint32_t)hash;
    size_t at = 0;
    while (at < size) {
        /* Four at a time shorten the chain of multiplications for ASCII, which names and keys
         * nearly always are. */
        while (size - at >= 4) {
            uint32_t four;
            memcpy(&four, bytes + at, sizeof four);
            if (four & 0x80808080u)
                break;
            h = h * (31u * 31u * 31u * 31u) + bytes[at] * (31u * 31u * 31u) +
                bytes[at + 1] * (31u * 31u) + bytes[at + 2] * 31u + bytes[at + 3];
            at += 4;
        }

        if (at == size)
            break;
        uint32_t character = bytes[at];
        at += character < 0x80 ? 1 : rmq_utf8_decode(bytes + at, size - at, &character);

        if (character > 0xFFFF) {
            h = h * 31u + (0xD7C0u + (character >> 10));
            character = 0xDC00u + (character & 0x3FFu);
        }
        h = h * 31u + character;
    }
    return (int32_t)h;
}

/* Multiplies to 128 bits and combines the halves, so that every input bit affects every output
 * bit. */
static uint64_t mix(uint64_t a, uint64_t b)
{
    unsigned __int128 product = (unsigned __int128)a * b;
    return (uint64_t)product ^ (uint64_t)(product >> 64);
}

static uint64_t load(const uint8_t *from, size_t size)
{
    uint64_t value = 0;
    memcpy(&value, from, size);
    return value;
}

uint64_t rmq_table_hash(const void *data, size_t size, uint64_t seed)
{
    assert(data || size == 0);

    const uint64_t odd1 = 0x9E3779B97F4A7C15u; /* the golden ratio */
    const uint64_t odd2 = 0xC2B2AE3D27D4EB4Fu;
    const uint8_t *bytes = data;
    uint64_t h = seed ^ odd1;
    size_t at = 0;
    for (; size - at > 16; at += 16)
        h = mix(h ^ load(bytes + at, 8) ^ odd1, load(bytes + at + 8, 8) ^ odd2);

    size_t left = size - at;
    assert(left <= 16);
    uint64_t a = 0;
    uint64_t b = 0;
    if (left >= 8) {
        a = load(bytes + at, 8);
        b = load(bytes + size - 8, 8);
    } else if (left >= 4) {
        a = load(bytes + at, 4);
        b = load(bytes + size - 4, 4);
    } else if (left > 0) {
        a = (uint64_t)bytes[at] << 16 | (uint64_t)bytes[at + left / 2] << 8 | bytes[size - 1];
    }
    return mix(h ^ a ^ odd2, b ^ odd1 ^ size * odd2);
}
