/* store_view.h -- what an open store holds, for all that stands beside it: columns, replicas, the
 * binding.
 *
 * Offsets are those of the commit log. Each call reads the present state, without the lock of
 * anything that writes to a disk. The store must stay open during the call; what a pointer leads to
 * lives until the store is closed.
 */
#ifndef RMQ_STORE_VIEW_H
#define RMQ_STORE_VIEW_H

#include "file/wakeup.h"
#include "log/log_end.h"
#include "log/recover.h"
#include "log/scan.h"
#include "store/store.h"

bool rmq_store_is_read_only(const struct rmq_store *store);
const struct rmq_recovery *rmq_store_recovery(const struct rmq_store *store);
/* Read-only: how many index files were left out because they have another size. */
size_t rmq_store_index_files_skipped(const struct rmq_store *store);

/* ---- the log ---- */

/* The first byte kept; -1: the log has no file. */
int64_t rmq_store_start(const struct rmq_store *store);
/* After the last byte appended. */
int64_t rmq_store_end(const struct rmq_store *store);
/* All bytes before it are on the device. */
int64_t rmq_store_flushed(const struct rmq_store *store);
/* After the last byte appended raw since the log was settled; 0: there is none. */
int64_t rmq_store_raw_end(const struct rmq_store *store);
/* How often the log was cut, a cut in progress included. While the number is what it was before an
 * append, the offsets of that append belong to its record. */
int64_t rmq_store_cuts(const struct rmq_store *store);
int64_t rmq_store_log_file_size(const struct rmq_store *store);

/* As rmq_file_queue_pin, rmq_file_queue_pin_at, rmq_scan_begin and rmq_border_advance, with the
 * files of the log. */
int rmq_store_pin(struct rmq_store *store, int64_t offset, struct rmq_mapped_file **file,
                  struct rmq_error *err);
int rmq_store_pin_at(struct rmq_store *store, size_t index, struct rmq_mapped_file **file,
                     struct rmq_error *err);
void rmq_store_scan(struct rmq_store *store, struct rmq_scan *scan, int64_t from, int64_t limit,
                    unsigned checks);
int rmq_store_advance_border(struct rmq_store *store, int64_t *border, int64_t end,
                             struct rmq_error *err);

/* Read-only: the log ends with its last file, whatever that file holds. For verification, before
 * anything else is read. */
int rmq_store_show_whole_files(struct rmq_store *store, struct rmq_error *err);
/* Read-only: what ended the log before records that its queues know of. See log_end.h. */
int rmq_store_classify_end(struct rmq_store *store, enum rmq_log_end *found, struct rmq_error *err);

/* The log's end, or how far the log is flushed, dispatched or confirmed. */
enum rmq_store_event { RMQ_GREW, RMQ_FLUSHED, RMQ_DISPATCHED, RMQ_CONFIRMED };
/* Those to wake when that offset moves: see wakeup.h. */
struct rmq_wakeups *rmq_store_wakeups(struct rmq_store *store, enum rmq_store_event event);

/* ---- queues ---- */

/* NULL: there is no such queue. */
struct rmq_queue *rmq_store_find_queue(struct rmq_store *store, const char *topic,
                                       size_t topic_size, int32_t queue_id);
/* The first of all queues, in no order; rmq_queue_table_next leads to the others. */
struct rmq_queue *rmq_store_first_queue(struct rmq_store *store);
/* Makes a queue for inner batches unless it is known already, of whatever kind. */
int rmq_store_declare_batch_queue(struct rmq_store *store, const char *topic, size_t topic_size,
                                  int32_t queue_id, struct rmq_queue **queue,
                                  struct rmq_error *err);

/* ---- dispatching and the confirm offset ---- */

/* Records before it are in their queues and in the index. */
int64_t rmq_store_dispatched(const struct rmq_store *store);
/* Where dispatching goes at most. */
int64_t rmq_store_dispatch_limit(struct rmq_store *store);
/* Until records before offset are dispatched, be that below the limit or not: as
 * rmq_dispatcher_wait. */
int rmq_store_await_dispatch(struct rmq_store *store, int64_t offset, int64_t timeout_ms,
                             struct rmq_error *err);
/* The confirm offset as it was set; -1: none, INT64_MAX: the log's end. */
int64_t rmq_store_confirm_bound(const struct rmq_store *store);
/* As rmq_dispatcher_confirmed, rmq_dispatcher_confirm and rmq_dispatcher_hold: the confirm offset
 * in memory. The next checkpoint keeps it. */
int64_t rmq_store_confirmed(struct rmq_store *store);
void rmq_store_confirm(struct rmq_store *store, int64_t offset);
int64_t rmq_store_hold_confirmed(struct rmq_store *store);

/* ---- flushing ---- */

/* As rmq_flusher_wait, rmq_flusher_sync_ms, rmq_flusher_ask and rmq_flusher_forget. */
int rmq_store_wait_flushed(struct rmq_store *store, int64_t offset, int64_t timeout_ms,
                           struct rmq_error *err);
int64_t rmq_store_sync_ms(struct rmq_store *store);
int rmq_store_ask_flush(struct rmq_store *store, struct rmq_flush_watch *watch, int64_t offset,
                        struct rmq_error *err);
void rmq_store_forget_flush(struct rmq_store *store, struct rmq_flush_watch *watch);
/* Runs when more of the log is on the device. */
struct rmq_hook *rmq_store_on_flushed(struct rmq_store *store);
/* The fields as they would be written now. They change at any moment. */
const struct rmq_checkpoint *rmq_store_checkpoint(const struct rmq_store *store);

/* ---- streams ---- */

/* From here to rmq_store_end_stream the log is not cut: a replica sends it from offset on, or
 * appends to it at offset. RMQ_OUT_OF_RANGE: offset is not in the log, or, of one that appends, not
 * its end; a log without a file takes any. */
int rmq_store_begin_stream(struct rmq_store *store, int64_t offset, bool appends,
                           struct rmq_error *err);
void rmq_store_end_stream(struct rmq_store *store);

/* ---- files beside the log ---- */

/* As rmq_small_file_replace and rmq_small_file_remove, under the root. RMQ_READ_ONLY, RMQ_FORKED,
 * RMQ_NOT_WRITABLE. */
int rmq_store_replace_file(struct rmq_store *store, const char *name, const void *data, size_t size,
                           struct rmq_error *err);
int rmq_store_remove_file(struct rmq_store *store, const char *name, struct rmq_error *err);

#endif
