/* arrow_export.h -- column buffers handed over as Arrow structs.
 *
 * What is handed over belongs to the owner of the struct: it refers to nothing of the store, and
 * its release frees it from any thread. Children may be moved out and released by themselves.
 */
#ifndef RMQ_ARROW_EXPORT_H
#define RMQ_ARROW_EXPORT_H

#include "columns/arrow_abi.h"
#include "columns/columns.h"

/* The schema of batches of these columns: a struct with one child per column. RMQ_NO_MEMORY. */
int rmq_arrow_schema(const struct rmq_columns *columns, struct ArrowSchema *out,
                     struct rmq_error *err);
/* Takes the rows so far as one struct array, and begins the next batch. RMQ_NO_MEMORY: the rows are
 * lost. */
int rmq_arrow_batch(struct rmq_columns *columns, struct ArrowArray *out, struct rmq_error *err);

#endif
