/* file_access.h -- the bytes of a mapped file, through its mapping or without one.
 *
 * Most queues of a store hold few units. Their files are read with pread and written with pwrite,
 * with a descriptor that is open during the call only. A file that was used hot_uses times is
 * mapped, as long as the budget lasts. Both ways, and other processes, see each other's bytes at
 * once, because all use the page cache.
 */
#ifndef RMQ_FILE_ACCESS_H
#define RMQ_FILE_ACCESS_H

#include "file/mapped_file.h"

/* Counts a use. Maps the file once it is hot, or at once when it has no budget. *base is NULL while
 * the file has no mapping. A hot file that cannot be mapped is used without a mapping. */
int rmq_file_access_base(struct rmq_mapped_file *file, uint8_t **base, struct rmq_error *err);

/* Reads size bytes, which must be inside the file, without a mapping. RMQ_NOT_FOUND: the file was
 * removed. */
int rmq_file_access_read(struct rmq_mapped_file *file, int64_t at, void *buffer, size_t size,
                         struct rmq_error *err);

/* Writes size bytes without a mapping, first those from split on, then the others. Counts the
 * blocks below their end as reserved. Only the writer may call it. RMQ_NO_SPACE: any part of the
 * bytes may have been written. */
int rmq_file_access_write(struct rmq_mapped_file *file, int64_t at, const uint8_t *data,
                          size_t size, size_t split, struct rmq_error *err);

#endif
