/* fold.h -- CRC-32 of zlib by carry-less multiplication, written apart from csrc/crc32*.c.
 *
 * It is the second candidate for "the fastest CRC", so that the product is not measured against
 * itself alone. Source of the method: Gopal et al., "Fast CRC Computation for Generic Polynomials
 * Using PCLMULQDQ Instruction", Intel 2009. A 128-bit remainder is carried over a distance of D
 * bits by multiplying its halves with x^(D+32) and x^(D-32) modulo the polynomial, both mirrored
 * and shifted left by one.
 */
#ifndef LIMITS_FOLD_H
#define LIMITS_FOLD_H

#include <stddef.h>
#include <stdint.h>

/* Whether this processor has VPCLMULQDQ and AVX-512. */
int fold_is_supported(void);
/* Continues crc, as rmq_crc32 does. */
uint32_t fold_crc32(uint32_t crc, const void *data, size_t size);

#endif
