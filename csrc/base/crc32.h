/* crc32.h -- CRC-32 of zlib and java.util.zip (polynomial 0x04C11DB7, reflected, inverted at both
 * ends).
 *
 * The fastest version the processor has is chosen once, when the library is loaded: AVX-512 with
 * VPCLMULQDQ, PCLMULQDQ, or slicing by 16, which is also the version of every other machine.
 */
#ifndef RMQ_CRC32_H
#define RMQ_CRC32_H

#include <stddef.h>
#include <stdint.h>

/* Continues crc (0 to begin) over size bytes; rmq_crc32(rmq_crc32(0, a), b) is the CRC of a
 * followed by b. */
uint32_t rmq_crc32(uint32_t crc, const void *data, size_t size);

/* RocketMQ stores a CRC without its sign bit. */
static inline int32_t rmq_crc32_java(const void *data, size_t size)
{
    return (int32_t)(rmq_crc32(0, data, size) & 0x7FFFFFFFu);
}

/* The single versions, for tests and benchmarks. An entry with a NULL name ends the table;
 * supported is false where the processor lacks the instructions. */
struct rmq_crc32_version {
    const char *name;
    uint32_t (*run)(uint32_t crc, const void *data, size_t size);
    int supported;
};
const struct rmq_crc32_version *rmq_crc32_versions(void);
const char *rmq_crc32_chosen(void);

#endif
