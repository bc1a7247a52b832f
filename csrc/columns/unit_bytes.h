/* unit_bytes.h -- consume queue units, and comparisons of bytes, for files that no store has
 * open. */
#ifndef RMQ_UNIT_BYTES_H
#define RMQ_UNIT_BYTES_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* Writes the physical offsets in [start, stop) of consume queue units (20 bytes each) to out, in
 * their order, and returns their number. out has room for unit_count offsets. Unwritten units and
 * fill units are left out. */
size_t rmq_unit_positions(const uint8_t *units, size_t unit_count, int64_t start, int64_t stop,
                          int64_t *out);
/* The index of the first byte that differs, or -1. */
int64_t rmq_first_difference(const uint8_t *a, const uint8_t *b, size_t size);

/* Sizes of records by the file of the log in which they begin. */
struct rmq_file_sums {
    int64_t start; /* physical offset of the first file */
    int64_t stop;  /* records that begin at or after it are left out */
    int64_t file_size;
    size_t file_count;
    int64_t *sizes; /* of each file: the sum of its records */
    int64_t *ends;  /* physical offset after the last of these records */
};

/* Adds the records of units, of unit_size bytes each, at least 20. Records before start are left
 * out. False: the physical offsets do not ascend from *last on, or are past the files. */
bool rmq_unit_add_sizes(const uint8_t *units, size_t unit_count, size_t unit_size,
                        struct rmq_file_sums *sums, int64_t *last);

#endif
