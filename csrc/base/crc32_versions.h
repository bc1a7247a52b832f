/* crc32_versions.h -- the versions among which rmq_crc32 chooses; for crc32.c and crc32_x86.c
 * alone. */
#ifndef RMQ_CRC32_VERSIONS_H
#define RMQ_CRC32_VERSIONS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#if defined(__x86_64__)
#define RMQ_CRC32_X86 1
#else
#define RMQ_CRC32_X86 0
#endif

/* Slicing by 16: any machine. */
uint32_t rmq_crc32_sliced16(uint32_t crc, const void *data, size_t size);

#if RMQ_CRC32_X86
/* Folding with 128-bit and 512-bit registers. A few bytes are left to slicing. Only for processors
 * with these instructions. */
uint32_t rmq_crc32_pclmul(uint32_t crc, const void *data, size_t size);
uint32_t rmq_crc32_vpclmul(uint32_t crc, const void *data, size_t size);
bool rmq_crc32_has_pclmul(void);
bool rmq_crc32_has_vpclmul(void);
#endif

#endif
