#include "columns/host_text.h"

#include <assert.h>

static size_t put_decimal(char *to, uint32_t value)
{
    char digits[10];
    size_t count = 0;
    do {
        digits[count++] = (char)('0' + value % 10);
        value /= 10;
    } while (value > 0);

    assert(count > 0 && count <= sizeof digits);
    for (size_t i = 0; i < count; ++i)
        to[i] = digits[count - 1 - i];
    return count;
}

static size_t put_group(char *to, uint32_t value)
{
    assert(value <= UINT16_MAX);

    size_t size = 0;
    for (int shift = 12; shift >= 0; shift -= 4)
        if (shift == 0 || size > 0 || value >> shift)
            to[size++] = "0123456789abcdef"[value >> shift & 15];
    assert(size > 0 && size <= 4);
    return size;
}

size_t rmq_host_text(const struct rmq_host *host, char *to)
{
    assert(host->size == 4 || host->size == 16);

    size_t size = 0;
    if (host->size == 16)
        to[size++] = '[';

    for (size_t i = 0; i < host->size; i += host->size == 16 ? 2 : 1) {
        if (i > 0)
            to[size++] = host->size == 16 ? ':' : '.';
        if (host->size == 16)
            size += put_group(to + size, (uint32_t)(host->address[i] << 8 | host->address[i + 1]));
        else
            size += put_decimal(to + size, host->address[i]);
    }
    if (host->size == 16)
        to[size++] = ']';
    to[size++] = ':';

    if (host->port < 0)
        to[size++] = '-';
    return size + put_decimal(to + size,
                              host->port < 0 ? 0u - (uint32_t)host->port : (uint32_t)host->port);
}
