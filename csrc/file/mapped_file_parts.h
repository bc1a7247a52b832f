/* mapped_file_parts.h -- what the parts of mapped_file.h share. */
#ifndef RMQ_MAPPED_FILE_PARTS_H
#define RMQ_MAPPED_FILE_PARTS_H

#include "file/mapped_file.h"

/* Blocks and pages are multiples of it. */
#define RMQ_BLOCK_SIZE 4096

/* Leaves file->fd open; the caller holds the lock or is alone. */
int rmq_mapped_file_open_descriptor(struct rmq_mapped_file *file, struct rmq_error *err);
/* After it, and under the same lock. */
void rmq_mapped_file_close_unless_kept(struct rmq_mapped_file *file);

#endif
