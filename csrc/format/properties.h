/* properties.h -- the property text of a message.
 *
 * name 0x01 value 0x02, repeated, UTF-8. Writers end every pair with 0x02; readers accept a last
 * pair without it, drop pairs shorter than three bytes, with an empty name or an empty value, split
 * at the first 0x01, and let a later pair of the same name win. (MessageDecoder of RocketMQ counts
 * characters where this counts bytes, so only a pair of one non-ASCII character without a separator
 * could differ, and it is dropped because it has no 0x01.)
 */
#ifndef RMQ_PROPERTIES_H
#define RMQ_PROPERTIES_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define RMQ_NAME_VALUE_SEPARATOR 0x01
#define RMQ_PROPERTY_SEPARATOR 0x02
#define RMQ_PROPERTIES_SIZE_MAX 32767

/* A run of bytes inside a buffer of the caller. data is NULL when there is no value. */
struct rmq_slice {
    const char *data;
    size_t size;
};

/* Walks the pairs from *at (0 to begin), false at the end. Skips dropped pairs. */
bool rmq_properties_next(const char *text, size_t size, size_t *at, struct rmq_slice *name,
                         struct rmq_slice *value);

/* The value of name as a reader sees it (the last one), or a NULL slice. */
struct rmq_slice rmq_properties_find(const char *text, size_t size, const char *name);

/* Whether the value of name is one of these texts. */
bool rmq_properties_have(const char *text, size_t size, const char *name,
                         const struct rmq_slice *values, size_t value_count);
/* The same for TAGS. */
bool rmq_properties_have_tag(const char *text, size_t size, const struct rmq_slice *tags,
                             size_t tag_count);

/* The properties that dispatch needs, found in one pass. Absent ones are NULL slices or the value
 * named below. */
struct rmq_dispatch_properties {
    struct rmq_slice tags;
    struct rmq_slice keys;
    struct rmq_slice unique_key;
    struct rmq_slice multi_dispatch;     /* INNER_MULTI_DISPATCH: queue names, by ',' */
    struct rmq_slice multi_queue_offset; /* INNER_MULTI_QUEUE_OFFSET: their offsets, by ',' */
    int32_t delay_level;                 /* DELAY; 0 when absent or not a number */
    int32_t inner_num;                   /* INNER_NUM; -1 when absent or not a number */
    int64_t inner_base;                  /* INNER_BASE; -1 when absent or not a number */
};
void rmq_properties_scan(const char *text, size_t size, struct rmq_dispatch_properties *out);

/* Decimal text as Java's Integer.parseInt / Long.parseLong accept it; false otherwise. */
bool rmq_parse_i64(struct rmq_slice text, int64_t *value);

/* Appends name 0x01 value 0x02 at *at of buffer and moves *at; false (nothing written) when it does
 * not fit. */
bool rmq_properties_append(char *buffer, size_t capacity, size_t *at, const char *name,
                           struct rmq_slice value);

#endif
