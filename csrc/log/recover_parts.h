/* recover_parts.h -- functions of recovery that writable and read-only stores share. */
#ifndef RMQ_RECOVER_PARTS_H
#define RMQ_RECOVER_PARTS_H

#include "log/recover.h"

/* Start of the newest file whose first record begins at or before bound; the log's start when there
 * is no such file. */
int rmq_recover_find_start(struct rmq_file_queue *files, int64_t bound, int64_t *start,
                           struct rmq_error *err);
/* Calls verb with each queue and offset, until one call fails. */
int rmq_recover_each_queue(struct rmq_queue_table *queues,
                           int (*verb)(struct rmq_queue *, int64_t, struct rmq_error *),
                           int64_t offset, struct rmq_error *err);
/* Whether topic or properties of the record at offset hold a NUL. */
int rmq_recover_holds_nul(struct rmq_file_queue *files, int64_t offset, bool *holds,
                          struct rmq_error *err);

#endif
