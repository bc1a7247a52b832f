/* store_view.h -- the contents of an open store, for columns, replicas and the binding.
 *
 * Offsets are those of the commit log. Each call reads the present state, and takes no lock that is
 * held during disk writes. The store must stay open during the call. Returned pointers are valid
 * until the store is closed.
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

/* Offset of the first byte kept; -1: the log has no file. */
int64_t rmq_store_start(const struct rmq_store *store);
/* Offset after the last appended byte. */
int64_t rmq_store_end(const struct rmq_store *store);
/* All bytes before it are on the device. */
int64_t rmq_store_flushed(const struct rmq_store *store);
/* Offset after the last raw byte since the log was settled; 0: there is none. */
int64_t rmq_store_raw_end(const struct rmq_store *store);
/* The number of cuts of the log, a cut in progress included. As long as the number is the same as
 * before an append, the offsets of that append belong to its record. */
int64_t rmq_store_cuts(const struct rmq_store *store);
int64_t rmq_store_log_file_size(const struct rmq_store *store);

/* As rmq_file_queue_pin, rmq_file_queue_pin_at, rmq_scan_begin and rmq_border_advance, for the
 * files of the log. */
int rmq_store_pin(struct rmq_store *store, int64_t offset, struct rmq_mapped_file **file,
                  struct rmq_error *err);
int rmq_store_pin_at(struct rmq_store *store, size_t index, struct rmq_mapped_file **file,
                     struct rmq_error *err);
void rmq_store_scan(struct rmq_store *store, struct rmq_scan *scan, int64_t from, int64_t limit,
                    unsigned checks);
int rmq_store_advance_border(struct rmq_store *store, int64_t *border, int64_t end,
                             struct rmq_error *err);

/* Read-only: lets the log end with its last file, whatever that file holds. For verification;
 * called before any other read. */
int rmq_store_show_whole_files(struct rmq_store *store, struct rmq_error *err);
/* Read-only: why the log ended before records that its queues point at. See log_end.h. */
int rmq_store_classify_end(struct rmq_store *store, enum rmq_log_end *found, struct rmq_error *err);

/* The log's end, or how far the log is flushed, dispatched or confirmed. */
enum rmq_store_event { RMQ_GREW, RMQ_FLUSHED, RMQ_DISPATCHED, RMQ_CONFIRMED };
/* The wakeups of that offset: see wakeup.h. */
struct rmq_wakeups *rmq_store_wakeups(struct rmq_store *store, enum rmq_store_event event);

/* ---- queues ---- */

/* NULL: there is no such queue. */
struct rmq_queue *rmq_store_find_queue(struct rmq_store *store, const char *topic,
                                       size_t topic_size, int32_t queue_id);
/* The first of all queues, in any order; rmq_queue_table_next returns the others. */
struct rmq_queue *rmq_store_first_queue(struct rmq_store *store);
/* Makes a queue for inner batches, unless a queue of either form exists. */
int rmq_store_declare_batch_queue(struct rmq_store *store, const char *topic, size_t topic_size,
                                  int32_t queue_id, struct rmq_queue **queue,
                                  struct rmq_error *err);

/* ---- dispatching and the confirm offset ---- */

/* Records before it are in their queues and in the index. */
int64_t rmq_store_dispatched(const struct rmq_store *store);
/* The limit of dispatching. */
int64_t rmq_store_dispatch_limit(struct rmq_store *store);
/* Waits until the records before offset are dispatched, even if offset is above the limit: as
 * rmq_dispatcher_wait. */
int rmq_store_await_dispatch(struct rmq_store *store, int64_t offset, int64_t timeout_ms,
                             struct rmq_error *err);
/* The confirm offset as it was set; it may be past the log's end. */
struct rmq_confirm rmq_store_confirm_bound(const struct rmq_store *store);
/* As rmq_dispatcher_confirmed, rmq_dispatcher_confirm and rmq_dispatcher_hold: the confirm offset
 * in memory. The next checkpoint keeps it. */
int64_t rmq_store_confirmed(struct rmq_store *store);
void rmq_store_confirm(struct rmq_store *store, struct rmq_confirm confirm);
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
/* The fields that a checkpoint written at this moment would have. They change at any time. */
const struct rmq_checkpoint *rmq_store_checkpoint(const struct rmq_store *store);

/* ---- streams ---- */

/* From here to rmq_store_end_stream the log is not cut. A replica sends the log from offset on, or
 * appends to it at offset. RMQ_OUT_OF_RANGE: offset is not in the log or, for an append, not its
 * end; a log without a file accepts any offset. */
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
