/* hash.h -- java.lang.String.hashCode of UTF-8 text, which tags codes and index keys are made of.
 *
 * h = 31 * h + c over UTF-16 code units, wrapping at 32 bits. Text beyond the basic plane counts as
 * its two surrogates. Malformed UTF-8 is hashed as Java decodes it: U+FFFD for each maximal bad
 * sequence.
 */
#ifndef RMQ_HASH_H
#define RMQ_HASH_H

#include <stddef.h>
#include <stdint.h>

/* Continues hash (0 to begin), so that the hash of "a#b" needs no joined copy. */
int32_t rmq_java_hash(int32_t hash, const char *text, size_t size);

/* A fast hash for tables in memory; never stored. */
uint64_t rmq_table_hash(const void *data, size_t size, uint64_t seed);

#endif
