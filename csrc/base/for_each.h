/* for_each.h -- one piece of work for each of many items, by a few threads.
 *
 * For syncs: a file system commits concurrent syncs of several threads together, so syncing
 * thousands of files takes a fraction of the time that one thread needs.
 */
#ifndef RMQ_FOR_EACH_H
#define RMQ_FOR_EACH_H

#include <stddef.h>

#include "base/status.h"

/* At least this many items are worth threads. */
#define RMQ_ITEMS_WORTH_THREADS 64
/* the caller's thread included */
#define RMQ_FOR_EACH_THREADS 8

typedef int rmq_item_work(void *context, size_t item, struct rmq_error *err);

/* Does the work for items 0 .. count - 1, each once, in any order where there are threads. Returns
 * when all work is done. After the first failure no further item is begun. Of several failures *err
 * is the first one that is not a lack of descriptors, if there is one. */
int rmq_for_each(size_t count, rmq_item_work *work, void *context, struct rmq_error *err);

#endif
