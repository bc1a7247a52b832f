#include "fold.h"

#include "base/crc32.h"

#if defined(__x86_64__)
#include <immintrin.h>

#define WIDE __attribute__((target("avx512f,avx512vl,avx512dq,vpclmulqdq,pclmul,sse4.1")))

int fold_is_supported(void)
{
    return __builtin_cpu_supports("vpclmulqdq") && __builtin_cpu_supports("avx512vl") &&
           __builtin_cpu_supports("avx512dq") && __builtin_cpu_supports("pclmul");
}

/* x^(D+32) in the low half, x^(D-32) in the high one. */
#define DISTANCE_128 _mm_set_epi64x(0x0ccaa009e, 0x1751997d0)
#define DISTANCE_512 _mm_set_epi64x(0x1c6e41596, 0x154442bd4)
#define DISTANCE_2048 _mm_set_epi64x(0x1322d1430, 0x11542778a)

WIDE static inline __m512i carry4(__m512i remainder, __m512i constants, __m512i next)
{
    return _mm512_ternarylogic_epi64(_mm512_clmulepi64_epi128(remainder, constants, 0x00),
                                     _mm512_clmulepi64_epi128(remainder, constants, 0x11), next,
                                     0x96);
}

WIDE static inline __m128i carry1(__m128i remainder, __m128i next)
{
    const __m128i constants = DISTANCE_128;
    __m128i low = _mm_clmulepi64_si128(remainder, constants, 0x00);
    __m128i high = _mm_clmulepi64_si128(remainder, constants, 0x11);
    return _mm_xor_si128(_mm_xor_si128(low, high), next);
}

/* 16 bytes whose CRC, begun at zero, is wanted: to 64 bits by two products, then Barrett. */
WIDE static inline uint32_t reduce(__m128i x)
{
    const __m128i low32 = _mm_set_epi32(0, 0, 0, -1);
    x = _mm_xor_si128(_mm_srli_si128(x, 8),
                      _mm_clmulepi64_si128(x, _mm_cvtsi64_si128(0x0ccaa009e), 0x00));
    x = _mm_xor_si128(
        _mm_srli_si128(x, 4),
        _mm_clmulepi64_si128(_mm_and_si128(x, low32), _mm_cvtsi64_si128(0x163cd6124), 0x00));
    const __m128i barrett = _mm_set_epi64x(0x1f7011641, 0x1db710641);
    __m128i quotient =
        _mm_and_si128(_mm_clmulepi64_si128(_mm_and_si128(x, low32), barrett, 0x10), low32);
    return (uint32_t)_mm_extract_epi32(
        _mm_xor_si128(x, _mm_clmulepi64_si128(quotient, barrett, 0x00)), 1);
}

WIDE static uint32_t fold_wide(uint32_t crc, const uint8_t *at, size_t size)
{
    const __m512i far = _mm512_broadcast_i64x2(DISTANCE_2048);
    const __m512i near = _mm512_broadcast_i64x2(DISTANCE_512);
    __m512i sum[4];
    for (int i = 0; i < 4; ++i)
        sum[i] = _mm512_loadu_si512(at + 64 * i);
    sum[0] = _mm512_xor_si512(sum[0], _mm512_zextsi128_si512(_mm_cvtsi32_si128((int)~crc)));
    for (at += 256, size -= 256; size >= 256; at += 256, size -= 256)
        for (int i = 0; i < 4; ++i)
            sum[i] = carry4(sum[i], far, _mm512_loadu_si512(at + 64 * i));
    for (int i = 1; i < 4; ++i)
        sum[0] = carry4(sum[0], near, sum[i]);
    for (; size >= 64; at += 64, size -= 64)
        sum[0] = carry4(sum[0], near, _mm512_loadu_si512(at));
    __m128i x = _mm512_extracti64x2_epi64(sum[0], 0);
    x = carry1(x, _mm512_extracti64x2_epi64(sum[0], 1));
    x = carry1(x, _mm512_extracti64x2_epi64(sum[0], 2));
    x = carry1(x, _mm512_extracti64x2_epi64(sum[0], 3));
    for (; size >= 16; at += 16, size -= 16)
        x = carry1(x, _mm_loadu_si128((const __m128i *)at));
    crc = ~reduce(x);
    return size ? rmq_crc32(crc, at, size) : crc;
}

uint32_t fold_crc32(uint32_t crc, const void *data, size_t size)
{
    return size < 256 ? rmq_crc32(crc, data, size) : fold_wide(crc, data, size);
}

#else

int fold_is_supported(void)
{
    return 0;
}

uint32_t fold_crc32(uint32_t crc, const void *data, size_t size)
{
    return rmq_crc32(crc, data, size);
}

#endif
