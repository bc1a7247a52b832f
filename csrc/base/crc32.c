#include "base/crc32.h"

#include "base/crc32_versions.h"

#include <assert.h>
#include <stdbool.h>
#include <string.h>

#define POLYNOMIAL 0xEDB88320u /* 0x04C11DB7 with its bits mirrored */
#define SLICES 16

/* table[k][b]: what byte b adds to the CRC when k more bytes follow it in the slice. */
static uint32_t table[SLICES][256];

uint32_t rmq_crc32_sliced16(uint32_t crc, const void *data, size_t size)
{
    assert(data || size == 0);

    const uint8_t *at = data;
    crc = ~crc;
    for (; size >= SLICES; size -= SLICES, at += SLICES) {
        uint8_t head[4];
        for (int i = 0; i < 4; ++i)
            head[i] = (uint8_t)(at[i] ^ (uint8_t)(crc >> 8 * i));
        crc = table[15][head[0]] ^ table[14][head[1]] ^ table[13][head[2]] ^ table[12][head[3]] ^
              table[11][at[4]] ^ table[10][at[5]] ^ table[9][at[6]] ^ table[8][at[7]] ^
              table[7][at[8]] ^ table[6][at[9]] ^ table[5][at[10]] ^ table[4][at[11]] ^
              table[3][at[12]] ^ table[2][at[13]] ^ table[1][at[14]] ^ table[0][at[15]];
    }
    for (; size > 0; --size, ++at)
        crc = table[0][(uint8_t)(crc ^ *at)] ^ crc >> 8;
    return ~crc;
}

/* The fastest version is last. The checks of the processor and the choice are made once, before
 * main, and only read afterwards. */
static struct rmq_crc32_version versions[] = {
    {"sliced16", rmq_crc32_sliced16, true},
#if RMQ_CRC32_X86
    {"pclmul", rmq_crc32_pclmul, false},
    {"vpclmul", rmq_crc32_vpclmul, false},
#endif
    {NULL, NULL, false},
};
static const struct rmq_crc32_version *chosen = versions;

static void fill_table(void)
{
    for (uint32_t byte = 0; byte < 256; ++byte) {
        uint32_t crc = byte;
        for (int bit = 0; bit < 8; ++bit)
            crc = crc >> 1 ^ (crc & 1 ? POLYNOMIAL : 0);
        table[0][byte] = crc;
        assert(byte == 0 || crc != 0);
    }
    for (uint32_t byte = 0; byte < 256; ++byte)
        for (int slice = 1; slice < SLICES; ++slice) {
            uint32_t before = table[slice - 1][byte];
            table[slice][byte] = table[0][before & 0xFF] ^ before >> 8;
        }
}

__attribute__((constructor)) static void choose(void)
{
    fill_table();
#if RMQ_CRC32_X86
    versions[1].supported = rmq_crc32_has_pclmul();
    versions[2].supported = rmq_crc32_has_vpclmul();
#endif

    for (const struct rmq_crc32_version *version = versions; version->name; ++version)
        if (version->supported)
            chosen = version;
}

uint32_t rmq_crc32(uint32_t crc, const void *data, size_t size)
{
    return chosen->run(crc, data, size);
}

const struct rmq_crc32_version *rmq_crc32_versions(void)
{
    return versions;
}

const char *rmq_crc32_chosen(void)
{
    return chosen->name;
}
