/* consume_queue_ext.h -- fields that do not fit into a consume queue unit (option
 * enableConsumeQueueExt).
 *
 *   at  size  field
 *   0   2     unit size, 20 + bitmap size
 *   2   8     tags code
 *   10  8     store timestamp
 *   18  2     bitmap size
 *   20  n     filter bitmap
 *
 * Source: ConsumeQueueExt of RocketMQ 5.3.3. The consume queue's tags code field then holds an
 * address: the offset of the unit here plus INT64_MIN; every value <= -2147483649 is an address. A
 * unit needs size <= bytes left in the file - 4; else an int16 -1 ends the file. One writer, any
 * number of readers.
 */
#ifndef RMQ_CONSUME_QUEUE_EXT_H
#define RMQ_CONSUME_QUEUE_EXT_H

#include "file/file_queue.h"

#define RMQ_EXT_HEAD_SIZE 20
#define RMQ_EXT_UNIT_SIZE_MAX 32767

struct rmq_ext_unit {
    const uint8_t *bitmap; /* into the caller's copy buffer when read */
    int64_t tags_code;
    int64_t store_timestamp;
    int32_t bitmap_size;
};

struct rmq_consume_queue_ext {
    struct rmq_file_queue files;
};

static inline bool rmq_ext_is_address(int64_t tags_code)
{
    return tags_code <= -2147483649LL;
}
static inline int64_t rmq_ext_offset(int64_t address)
{
    return (int64_t)((uint64_t)address + (1ULL << 63));
}

int rmq_consume_queue_ext_open(struct rmq_consume_queue_ext *ext, struct rmq_vfs *vfs,
                               const char *directory, int64_t file_size, bool read_only,
                               struct rmq_error *err);
void rmq_consume_queue_ext_close(struct rmq_consume_queue_ext *ext);
/* Walks the units from the first file on: the extension ends after the last whole one. Changes no
 * file. A writer must call rmq_consume_queue_ext_rewind and _truncate afterwards. */
int rmq_consume_queue_ext_recover(struct rmq_consume_queue_ext *ext, struct rmq_error *err);
/* *address is the value that the consume queue unit stores. RMQ_INVALID: the bitmap is too
 * large. */
int rmq_consume_queue_ext_append(struct rmq_consume_queue_ext *ext, const struct rmq_ext_unit *unit,
                                 int64_t *address, struct rmq_error *err);
/* Copies the unit to buffer (RMQ_EXT_UNIT_SIZE_MAX bytes). RMQ_NOT_FOUND: there is no whole unit at
 * address.
 */
int rmq_consume_queue_ext_read(struct rmq_consume_queue_ext *ext, int64_t address, uint8_t *buffer,
                               struct rmq_ext_unit *unit, struct rmq_error *err);
/* The offset after the unit at address `last`, or 0 when last is not an address. RMQ_NOT_FOUND:
 * there is no whole unit at last. */
int rmq_consume_queue_ext_end_of(struct rmq_consume_queue_ext *ext, int64_t last, int64_t *end,
                                 struct rmq_error *err);
/* Ends the extension at its start, or at an offset that rmq_consume_queue_ext_end_of returned. At 0
 * every file is removed. Rewinding changes no file. Truncating must follow; it cuts the units that
 * were not appended again. */
void rmq_consume_queue_ext_rewind(struct rmq_consume_queue_ext *ext, int64_t end);
int rmq_consume_queue_ext_truncate(struct rmq_consume_queue_ext *ext, int64_t end,
                                   struct rmq_error *err);
/* Unlinks files that end before the unit at address `first`. */
int rmq_consume_queue_ext_expire(struct rmq_consume_queue_ext *ext, int64_t first,
                                 struct rmq_error *err);
int rmq_consume_queue_ext_flush(struct rmq_consume_queue_ext *ext, struct rmq_error *err);

#endif
