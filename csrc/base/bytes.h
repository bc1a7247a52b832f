/* bytes.h -- big-endian integers in byte buffers, at any alignment. */
#ifndef RMQ_BYTES_H
#define RMQ_BYTES_H

#include <stdint.h>
#include <string.h>

#if __BYTE_ORDER__ == __ORDER_LITTLE_ENDIAN__
#define RMQ_BIG16(x) __builtin_bswap16(x)
#define RMQ_BIG32(x) __builtin_bswap32(x)
#define RMQ_BIG64(x) __builtin_bswap64(x)
#else
#define RMQ_BIG16(x) (x)
#define RMQ_BIG32(x) (x)
#define RMQ_BIG64(x) (x)
#endif

#define RMQ_BYTES_PAIR(bits)                                          \
    static inline int##bits##_t rmq_get_i##bits(const void *from)     \
    {                                                                 \
        uint##bits##_t value;                                         \
        memcpy(&value, from, sizeof value);                           \
        return (int##bits##_t)RMQ_BIG##bits(value);                   \
    }                                                                 \
    static inline void rmq_put_i##bits(void *to, int##bits##_t value) \
    {                                                                 \
        uint##bits##_t bytes = RMQ_BIG##bits((uint##bits##_t)value);  \
        memcpy(to, &bytes, sizeof bytes);                             \
    }
RMQ_BYTES_PAIR(16)
RMQ_BYTES_PAIR(32)
RMQ_BYTES_PAIR(64)
#undef RMQ_BYTES_PAIR

#endif
