/* store_internal.h -- the parts of a store, for the files of this folder.
 *
 * All other files use a store through the calls of store.h, store_view.h, read.h and walk.h.
 */
#ifndef RMQ_STORE_INTERNAL_H
#define RMQ_STORE_INTERNAL_H

#include "file/wakeup.h"
#include "log/flusher.h"
#include "log/recover.h"
#include "store/store.h"

struct rmq_store {
    struct rmq_vfs *vfs;
    char *root;
    char *abort_path;
    bool read_only;
    bool has_index;
    int lock_fd;
    volatile uint8_t *fork_mark; /* a page that reads as 0 in a forked child */
    struct rmq_clock clock;
    struct rmq_failure failure;
    struct rmq_commit_log log;
    struct rmq_queue_table queues;
    struct rmq_index index;
    size_t index_files_skipped; /* read-only: number of skipped files of other sizes */
    struct rmq_dispatcher dispatcher;
    struct rmq_flusher flusher;
    struct rmq_recovery recovery;
    _Atomic int64_t raw_end;   /* end of the raw bytes: messages wait until these are dispatched */
    _Atomic unsigned refusals; /* the RMQ_REFUSE_... reasons in force */
    _Atomic int64_t cuts; /* raised before each cut. After the first cut, bytes copied out of the
                             log are compared with the log again */
    struct rmq_wakeups wakeups; /* of threads that follow the log */
    _Atomic int32_t streams; /* links of pumps that send or append (replica/pump.h); the log is not
                                cut while there are any */
    pthread_mutex_t structure_lock; /* truncation, expiry, closing, refreshing */
};

/* See rmq_queue_ends_save. On a full disk the former file stays, which costs the next recovery
 * time. */
int rmq_store_save_queue_ends(struct rmq_store *store, bool is_closed, struct rmq_error *err);

/* Whether this is a child of the process that opened the store. */
static inline bool rmq_store_is_forked(const struct rmq_store *store)
{
    return store->fork_mark && *store->fork_mark == 0;
}

/* A folder listing is not atomic, and files may be removed while a reader opens them, so the work
 * of a writer may look like damage. A reader tries this often before it reports damage. */
#define RMQ_READ_ONLY_TRIES 10
static inline bool rmq_may_be_writer_at_work(int status)
{
    return status == RMQ_CORRUPT || status == RMQ_NOT_FOUND;
}

#endif
