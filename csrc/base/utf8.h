/* utf8.h -- stored text as java.lang.String decodes it, and made safe for readers that trust their
 * UTF-8.
 *
 * The bytes of topics and properties are whatever a producer sent. Arrow promises its readers
 * well-formed UTF-8, so malformed text is repaired as java.lang.String decodes it: U+FFFD for each
 * maximal bad sequence, one for an encoded surrogate.
 */
#ifndef RMQ_UTF8_H
#define RMQ_UTF8_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define RMQ_UTF8_REPLACEMENT 0xFFFDu

/* Decodes the character at text and returns its size in bytes. left > 0 is the number of bytes that
 * may be read. A bad sequence decodes to RMQ_UTF8_REPLACEMENT. */
size_t rmq_utf8_decode(const uint8_t *text, size_t left, uint32_t *character);

/* One bad byte becomes the three of U+FFFD. */
#define RMQ_UTF8_MEND_FACTOR 3

bool rmq_utf8_is_valid(const char *text, size_t size);
/* Writes the repaired text to out, which has room for RMQ_UTF8_MEND_FACTOR * size bytes; returns
 * the bytes written. */
size_t rmq_utf8_mend(char *out, const char *text, size_t size);

#endif
