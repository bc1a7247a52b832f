/* CRC-32 by carry-less multiplication.
 *
 * Data are a polynomial over GF(2) whose highest power is the lowest bit of the first byte. Folding
 * moves an accumulator D bits onward: its two 64-bit words are multiplied by x^(D+64) mod P and x^D
 * mod P and added to the data at that position. A mirrored product of two 64-bit words comes out
 * one power too high, therefore the constants below are x^(D+63) and x^(D-1) mod P, mirrored in 64
 * bits.
 *
 * The last step takes a 96-bit S, congruent to the data times x^32, to the remainder by Barrett's
 * method: q = (S div x^32) * MU div x^63 with MU = x^95 div P, and S + q * P. tests/c/test_crc32.py
 * derives all constants.
 */
#include "base/crc32_versions.h"

#if RMQ_CRC32_X86

#include <assert.h>
#include <immintrin.h>

#define PAGE_SIZE 4096 /* the smallest of x86 */

/* Multipliers of the first and the second word of each 128 bits. */
static const uint64_t FOLD_128[2] = {0x65673B4600000000, 0x9BA54C6F00000000};
static const uint64_t FOLD_256[2] = {0x9570D49500000000, 0x01B5FD1D00000000};
static const uint64_t FOLD_384[2] = {0x69CCFC0D00000000, 0x2A28386200000000};
static const uint64_t FOLD_512[2] = {0x653D982200000000, 0xCAD38E8F00000000};
static const uint64_t FOLD_1024[2] = {0x7D657A1000000000, 0x7406FA9500000000};
static const uint64_t FOLD_1536[2] = {0x67F7947600000000, 0xC56D949600000000};
static const uint64_t FOLD_2048[2] = {0x7CC8E1E700000000, 0x03F9F86300000000};
/* Takes the eight words of 512 bits, or the last two of them, to their place in S: x^(64 * j + 31)
 * mod P where j words follow. */
static const uint64_t TO_S[8] = {
    0x1D9513D700000000, 0x3DB1ECDC00000000, 0xAF44924700000000, 0xF1DA05AA00000000,
    0x8125652700000000, 0xAE68919100000000, 0xCCAA009E00000000, 0x0000000100000000,
};
static const uint64_t BARRETT[2] = {0xB4E5B025F7011641, 0x00000001DB710641}; /* MU and P */

#define PCLMUL __attribute__((target("pclmul,sse4.1")))
#define VPCLMUL __attribute__((target("pclmul,avx512f,avx512bw,avx512vbmi,vpclmulqdq")))

/* ---- 128 bits ---- */

PCLMUL static inline __m128i load128(const uint8_t *from)
{
    return _mm_loadu_si128((const __m128i *)from);
}

PCLMUL static inline __m128i words(const uint64_t *constants)
{
    return _mm_loadu_si128((const __m128i *)constants);
}

PCLMUL static inline __m128i multiply128(__m128i value, __m128i constants)
{
    return _mm_xor_si128(_mm_clmulepi64_si128(value, constants, 0x00),
                         _mm_clmulepi64_si128(value, constants, 0x11));
}

PCLMUL static inline __m128i fold128(__m128i value, const uint64_t *constants, __m128i onto)
{
    return _mm_xor_si128(multiply128(value, words(constants)), onto);
}

PCLMUL static inline uint32_t reduce_s(__m128i s)
{
    __m128i constants = words(BARRETT);
    __m128i q = _mm_clmulepi64_si128(_mm_srli_si128(s, 4), constants, 0x00);
    __m128i product = _mm_clmulepi64_si128(q, constants, 0x10);
    return (uint32_t)_mm_extract_epi32(s, 3) ^ (uint32_t)_mm_extract_epi32(product, 2);
}

/* Folds the last 1 to 15 bytes, which end at end. The accumulator and these bytes form one row. Its
 * last 16 bytes stay, and the bytes before are folded onto them. */
PCLMUL static inline __m128i fold_tail128(__m128i value, const uint8_t *end, size_t tail)
{
    assert(tail > 0 && tail < 16);

    __m128i places = _mm_setr_epi8(0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15);
    __m128i shift = _mm_set1_epi8((char)tail);
    __m128i from = _mm_and_si128(_mm_add_epi8(places, shift), _mm_set1_epi8(15));
    __m128i wrapped = _mm_cmplt_epi8(from, shift);
    __m128i turned = _mm_shuffle_epi8(value, from);
    __m128i last = _mm_blendv_epi8(turned, load128(end - 16), wrapped);
    return fold128(_mm_and_si128(turned, wrapped), FOLD_128, last);
}

/* For 64 bytes and more. The remainder of less than 64 bytes is left: *at moves up to it. */
PCLMUL static inline __m128i fold_blocks128(__m128i value, const uint8_t **at, const uint8_t *end)
{
    assert(end - *at >= 64);

    const uint8_t *from = *at;
    __m128i a = value;
    __m128i b = load128(from + 16);
    __m128i c = load128(from + 32);
    __m128i d = load128(from + 48);

    for (from += 64; end - from >= 64; from += 64) {
        a = fold128(a, FOLD_512, load128(from));
        b = fold128(b, FOLD_512, load128(from + 16));
        c = fold128(c, FOLD_512, load128(from + 32));
        d = fold128(d, FOLD_512, load128(from + 48));
    }
    assert(end - from >= 0 && end - from < 64);
    *at = from;
    return fold128(a, FOLD_384, fold128(b, FOLD_256, fold128(c, FOLD_128, d)));
}

PCLMUL uint32_t rmq_crc32_pclmul(uint32_t crc, const void *data, size_t size)
{
    if (size < 16)
        return rmq_crc32_sliced16(crc, data, size);

    const uint8_t *at = data;
    assert(data);
    const uint8_t *end = at + size;
    __m128i value = _mm_xor_si128(load128(at), _mm_cvtsi32_si128((int)~crc));
    if (size >= 64)
        value = fold_blocks128(value, &at, end);
    else
        at += 16;
    for (; end - at >= 16; at += 16)
        value = fold128(value, FOLD_128, load128(at));
    assert(end - at >= 0 && end - at < 16);
    if (at < end)
        value = fold_tail128(value, end, (size_t)(end - at));
    return ~reduce_s(multiply128(value, words(TO_S + 6)));
}

/* ---- 512 bits ---- */

VPCLMUL static inline __m512i load512(const uint8_t *from)
{
    return _mm512_loadu_si512(from);
}

VPCLMUL static inline __m512i fold512(__m512i value, const uint64_t *constants, __m512i onto)
{
    __m512i wide = _mm512_broadcast_i32x4(words(constants));
    __m512i low = _mm512_clmulepi64_epi128(value, wide, 0x00);
    __m512i high = _mm512_clmulepi64_epi128(value, wide, 0x11);
    return _mm512_ternarylogic_epi64(low, high, onto, 0x96); /* xor of the three words */
}

VPCLMUL static inline __m512i places512(void)
{
    return _mm512_set_epi64(0x3F3E3D3C3B3A3938, 0x3736353433323130, 0x2F2E2D2C2B2A2928,
                            0x2726252423222120, 0x1F1E1D1C1B1A1918, 0x1716151413121110,
                            0x0F0E0D0C0B0A0908, 0x0706050403020100);
}

/* Shifts bytes towards the first by `by` (1 to 63); the bytes shifted out come back in at the
 * end. */
VPCLMUL static inline __m512i turn512(__m512i value, size_t by)
{
    return _mm512_permutexvar_epi8(_mm512_add_epi8(places512(), _mm512_set1_epi8((char)by)), value);
}

/* As fold_tail128, for the last 1 to 63 bytes. */
VPCLMUL static inline __m512i fold_tail512(__m512i value, const uint8_t *end, size_t tail)
{
    assert(tail > 0 && tail < 64);

    __mmask64 wrapped = ~(uint64_t)0 << (64 - tail);
    __m512i turned = turn512(value, tail);
    __m512i last = _mm512_mask_blend_epi8(wrapped, turned, load512(end - 64));
    return fold512(_mm512_maskz_mov_epi8(wrapped, turned), FOLD_512, last);
}

VPCLMUL static inline uint32_t reduce512(__m512i value)
{
    __m512i constants = _mm512_loadu_si512(TO_S);
    __m512i sum = _mm512_xor_si512(_mm512_clmulepi64_epi128(value, constants, 0x00),
                                   _mm512_clmulepi64_epi128(value, constants, 0x11));
    __m256i half = _mm256_xor_si256(_mm512_castsi512_si256(sum), _mm512_extracti64x4_epi64(sum, 1));
    return reduce_s(_mm_xor_si128(_mm256_castsi256_si128(half), _mm256_extracti128_si256(half, 1)));
}

/* For 256 bytes and more. The remainder of less than 64 bytes is left: *at moves up to it. */
VPCLMUL static inline __m512i fold_blocks512(__m512i value, const uint8_t **at, const uint8_t *end)
{
    assert(end - *at >= 256);

    const uint8_t *from = *at;
    __m512i a = value;
    __m512i b = load512(from + 64);
    __m512i c = load512(from + 128);
    __m512i d = load512(from + 192);

    for (from += 256; end - from >= 256; from += 256) {
        a = fold512(a, FOLD_2048, load512(from));
        b = fold512(b, FOLD_2048, load512(from + 64));
        c = fold512(c, FOLD_2048, load512(from + 128));
        d = fold512(d, FOLD_2048, load512(from + 192));
    }
    assert(end - from >= 0 && end - from < 256);
    *at = from;
    return fold512(a, FOLD_1536, fold512(b, FOLD_1024, fold512(c, FOLD_512, d)));
}

/* 4 to 63 bytes: zeros before the data do not change a CRC that begins with 0, so they fill up the
 * register. The first value is added to the first four bytes of data, wherever they are in the
 * register. A masked load reads no byte outside the data, but it is slow when it touches a missing
 * page: the side is chosen so that it never does. */
VPCLMUL static inline __m512i load_short(__m512i first, const uint8_t *data, size_t size)
{
    assert(size >= 4 && size < 64);

    uintptr_t address = (uintptr_t)data;
    if (address % PAGE_SIZE <= PAGE_SIZE - 64) {
        __m512i value = _mm512_maskz_loadu_epi8(~(uint64_t)0 >> (64 - size), data);
        return turn512(_mm512_xor_si512(value, first), size);
    }
    const void *before = (const void *)(address + size - 64);
    __m512i value = _mm512_maskz_loadu_epi8(~(uint64_t)0 << (64 - size), before);
    return _mm512_xor_si512(value, turn512(first, size));
}

VPCLMUL uint32_t rmq_crc32_vpclmul(uint32_t crc, const void *data, size_t size)
{
    if (size < 4)
        return rmq_crc32_sliced16(crc, data, size);

    const uint8_t *at = data;
    assert(data);
    const uint8_t *end = at + size;
    __m512i first = _mm512_zextsi128_si512(_mm_cvtsi32_si128((int)~crc));
    if (size < 64)
        return ~reduce512(load_short(first, at, size));

    __m512i value = _mm512_xor_si512(load512(at), first);
    if (size >= 256)
        value = fold_blocks512(value, &at, end);
    else
        at += 64;
    for (; end - at >= 64; at += 64)
        value = fold512(value, FOLD_512, load512(at));
    assert(end - at >= 0 && end - at < 64);
    if (at < end)
        value = fold_tail512(value, end, (size_t)(end - at));
    return ~reduce512(value);
}

/* ---- checks of the processor ---- */

bool rmq_crc32_has_pclmul(void)
{
    __builtin_cpu_init();
    return __builtin_cpu_supports("pclmul") && __builtin_cpu_supports("sse4.1");
}

bool rmq_crc32_has_vpclmul(void)
{
    return rmq_crc32_has_pclmul() && __builtin_cpu_supports("avx512f") &&
           __builtin_cpu_supports("avx512bw") && __builtin_cpu_supports("avx512vbmi") &&
           __builtin_cpu_supports("vpclmulqdq");
}

#endif
