/* unit_array.h -- common to both forms of queue: units as an array over a series of files. */
#ifndef RMQ_UNIT_ARRAY_H
#define RMQ_UNIT_ARRAY_H

#include "file/file_queue.h"

#define RMQ_FILL_UNIT_SIZE_FIELD 0x7FFFFFFF
/* Units read at once from a file without a mapping: a page of simple units. */
#define RMQ_UNIT_BLOCK 208
#define RMQ_UNIT_SIZE_MAX 46

/* One entry of a queue, of either form; queue_offset, batch_size and store_timestamp are stored in
 * batch units only; for simple units they are computed (n, 1, -1). */
struct rmq_unit {
    int64_t physical_offset;
    int64_t tags_code;
    int64_t queue_offset;
    int64_t store_timestamp;
    int32_t size;
    int32_t batch_size;
};

static inline bool rmq_unit_is_fill(const struct rmq_unit *unit)
{
    return unit->size == RMQ_FILL_UNIT_SIZE_FIELD && unit->physical_offset == 0;
}

struct rmq_unit_layout {
    int32_t unit_size; /* divides the file size */
    void (*decode)(const uint8_t *bytes, int64_t number, struct rmq_unit *unit);
};

enum rmq_unit_side {
    RMQ_UNIT_BEFORE,
    RMQ_UNIT_BEHIND,
    RMQ_UNIT_NEUTRAL, /* a fill unit: has no position in the order */
};
typedef enum rmq_unit_side rmq_unit_compare(const struct rmq_unit *unit, int64_t sought);

/* Copies units number from .. upto - 1, all of which were written. *count is smaller when a file
 * was removed meanwhile. */
int rmq_unit_read(struct rmq_file_queue *files, const struct rmq_unit_layout *layout, int64_t from,
                  int64_t upto, struct rmq_unit *units, size_t *count, struct rmq_error *err);

/* First number in [low, high) whose unit is after, by compare; high when there is none. In the
 * array all units that are after follow all that are before. A unit whose file was removed
 * meanwhile counts as before. */
int rmq_unit_search(struct rmq_file_queue *files, const struct rmq_unit_layout *layout, int64_t low,
                    int64_t high, rmq_unit_compare *compare, int64_t sought, int64_t *found,
                    struct rmq_error *err);

#endif
