/* remoting_header.h -- the header of a remoting frame, for brokers that read one for each message.
 *
 * The layouts are in docs/protocols.md. Only plain headers are read here: a binary one that is
 * well formed, and strict JSON with RocketMQ's own keys, texts as extFields and numbers without
 * fractions. Other headers are read in Python, by rmqstore/remoting/frames.py, which also raises
 * the errors that describe a fault.
 */
#ifndef RMQ_REMOTING_HEADER_H
#define RMQ_REMOTING_HEADER_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "format/properties.h"

#define RMQ_REMOTING_FIELDS_MAX 64

enum rmq_remoting_type { RMQ_REMOTING_JSON, RMQ_REMOTING_BINARY };

/* A text of the header. It may be invalid UTF-8. */
struct rmq_remoting_text {
    struct rmq_slice bytes;
    bool has_escapes; /* encoded; rmq_remoting_unescape decodes it */
};

struct rmq_remoting_field {
    struct rmq_remoting_text key;
    struct rmq_remoting_text value;
};

/* All slices point into the header that was read. */
struct rmq_remoting_header {
    int32_t code;
    int32_t flag;
    int32_t opaque;
    int32_t version;
    int32_t language; /* a number, unless language_name has data */
    struct rmq_slice language_name;
    struct rmq_remoting_text remark; /* without data: the header has no such field */
    bool has_fields;
    size_t field_count;
    struct rmq_remoting_field fields[RMQ_REMOTING_FIELDS_MAX]; /* keys may occur several times */
};

/* Reads a whole header. False: the header is not plain or not well formed, and *header is
 * undefined. */
bool rmq_remoting_header_read(const uint8_t *data, size_t size, enum rmq_remoting_type type,
                              struct rmq_remoting_header *header);

/* Decodes an escaped text to out, which has room for text.size bytes; *written is the decoded size.
 * Half of a surrogate pair becomes U+FFFD. False: the text has an escape that is not JSON. */
bool rmq_remoting_unescape(struct rmq_slice text, char *out, size_t *written);

#endif
