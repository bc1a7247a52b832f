/* arrow_export.h -- column buffers exported as Arrow structs.
 *
 * The buffers then belong to the owner of the struct. They do not refer to the store, and release
 * frees them from any thread. Children may be moved out and released one by one.
 */
#ifndef RMQ_ARROW_EXPORT_H
#define RMQ_ARROW_EXPORT_H

#include "columns/arrow_abi.h"
#include "columns/columns.h"

/* The schema of batches of these columns: a struct with one child per column. RMQ_NO_MEMORY. */
int rmq_arrow_schema(const struct rmq_columns *columns, struct ArrowSchema *out,
                     struct rmq_error *err);
/* Moves the present rows into one struct array, and begins the next batch. RMQ_NO_MEMORY: the rows
 * are lost. */
int rmq_arrow_batch(struct rmq_columns *columns, struct ArrowArray *out, struct rmq_error *err);

#endif
