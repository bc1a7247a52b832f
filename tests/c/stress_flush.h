/* stress_flush.h -- see stress_flush.c. */
#ifndef STRESS_FLUSH_H
#define STRESS_FLUSH_H

#include "store/store.h"

/* Exits the process when something is wrong. Each of the callers puts so often. */
void stress_flush(struct rmq_store *store, int64_t puts);

#endif
