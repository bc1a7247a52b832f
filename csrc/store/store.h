/* store.h -- a whole store directory: commit log, queues, index, checkpoint, and their threads.
 *
 * Every call may come from any thread. Calls on a store that was opened before a fork return
 * RMQ_FORKED in the child. Calls on a store that is being closed must have ended before
 * rmq_store_close is called; the binding ensures this.
 */
#ifndef RMQ_STORE_H
#define RMQ_STORE_H

#include "log/cut_copy.h"
#include "log/flusher.h"
#include "log/place.h"

struct rmq_store_options {
    struct rmq_vfs *vfs; /* NULL: rmq_vfs_posix() */
    const char *root;
    const char *const *log_directories; /* NULL: root/commitlog */
    size_t log_directory_count;
    const char *const *read_only_log_directories;
    size_t read_only_log_directory_count;
    bool read_only;  /* takes no lock, writes nothing; may be used beside a running writer */
    bool allow_gaps; /* read-only: open although log files are missing in the middle */
    bool keep_confirm_offset; /* records after the checkpoint's confirm offset (unless that is 0 or
                                 missing) are dispatched only once rmq_store_set_confirm_offset
                                 raises it */
    bool index_enable;
    bool index_tags;
    bool need_property_crc;
    bool check_crc_on_recover;
    int64_t log_file_size;
    int64_t queue_file_size;
    int64_t batch_queue_file_size;
    int64_t ext_file_size;
    bool enable_ext;
    int64_t queue_mappings_max; /* see rmq_queue_options */
    int32_t queue_hot_uses;
    int32_t index_slot_count;
    int32_t index_entry_count;
    struct rmq_commit_log_options log;
    struct rmq_dispatch_options dispatch;
    struct rmq_flusher_options flush; /* the store sets checkpoint_path itself */
};

struct rmq_store;

/* Locks, loads, recovers, starts. RMQ_LOCKED: err->at_offset is the holder's pid, 0 when unknown.
 * RMQ_CORRUPT: see recover.h. On failure everything is released again. */
int rmq_store_open(const struct rmq_store_options *options, struct rmq_store **store,
                   struct rmq_error *err);
/* Dispatches and flushes all records, writes the checkpoint, removes the abort marker if all of
 * this succeeded, and frees the store. Pinned files stay mapped. The status is that of flushing;
 * the store is freed in any case. */
int rmq_store_close(struct rmq_store *store, struct rmq_error *err);
/* Closes as if the process had died here: threads end, nothing is flushed, the abort marker stays.
 * For tests of recovery. */
void rmq_store_abandon(struct rmq_store *store);

/* Called in a forked child, before anything else is done with the store there: releases the child's
 * share of the directory's lock, so that the lock ends with the process that took it. Every later
 * call returns RMQ_FORKED. */
void rmq_store_disown(struct rmq_store *store);
/* RMQ_OK, RMQ_FORKED. */
int rmq_store_check(const struct rmq_store *store, struct rmq_error *err);
/* Whether anything may be written: RMQ_OK, RMQ_FORKED, RMQ_READ_ONLY, RMQ_NOT_WRITABLE. */
int rmq_store_may_change(struct rmq_store *store, struct rmq_error *err);
/* As rmq_commit_log_put; more statuses: RMQ_READ_ONLY, RMQ_NOT_WRITABLE (a failure, or refused by
 * rmq_store_refuse). */
int rmq_store_put(struct rmq_store *store, const struct rmq_message *messages, size_t count,
                  bool together, struct rmq_receipt *receipts, size_t *stored,
                  struct rmq_error *err);
int rmq_store_append_raw(struct rmq_store *store, int64_t at, const uint8_t *data, size_t size,
                         struct rmq_error *err);
/* Appends a run of records to this log: see place.h. RMQ_READ_ONLY, RMQ_NOT_WRITABLE. */
int rmq_store_place(struct rmq_store *store, struct rmq_run *run, struct rmq_error *err);
/* Refuses appends with RMQ_NOT_WRITABLE, for two independent reasons. The role refuses messages and
 * runs of records, but not raw bytes from a master. The disk, when its use is over the limit,
 * refuses all appends. After return no running put can append against the role. */
#define RMQ_REFUSE_ROLE 1u
#define RMQ_REFUSE_DISK 2u
void rmq_store_refuse(struct rmq_store *store, unsigned reason, bool is_refused);

/* Sets the offset up to which raw bytes must be dispatched before puts continue, because the queue
 * offsets of their records are unknown before that. -1: puts do not wait. */
int64_t rmq_store_raw_goal(const struct rmq_store *store);
/* Sets the time limit of that wait. */
#define RMQ_RAW_WAIT_MS 30000

/* Everything stored before the call can be read (up to the dispatch limit). RMQ_NO_SPACE: see
 * rmq_dispatcher_wait. */
int rmq_store_wait_dispatched(struct rmq_store *store, int64_t offset, int64_t timeout_ms,
                              struct rmq_error *err);
/* Whether the bytes from offset to the end of the log are the beginning of a record whose rest the
 * master has not sent. */
bool rmq_store_ends_in_part(struct rmq_store *store, int64_t offset);
/* RMQ_NOT_WRITABLE after a permanent failure, RMQ_NO_SPACE while dispatching waits for room. */
int rmq_store_check_health(struct rmq_store *store, struct rmq_error *err);
int rmq_store_flush(struct rmq_store *store, struct rmq_error *err);

/* Ends the log at offset, which must be the start of a record or the end. Queues and index follow,
 * and so does the confirm offset. On return the bytes after offset can never come back. These bytes
 * may be a part of a record, or not a record at all. RMQ_OUT_OF_RANGE: offset is below the log's
 * start, or inside a record. For an offset at or after the end nothing happens. */
int rmq_store_truncate(struct rmq_store *store, int64_t offset, struct rmq_error *err);
/* Copies bytes of the log that are about to be cut or dropped: see cut_copy.h. RMQ_OUT_OF_RANGE:
 * the log does not hold all of them. */
int rmq_store_copy_cut(struct rmq_store *store, int64_t from, int64_t to,
                       char path[RMQ_CUT_PATH_SIZE], struct rmq_error *err);
/* Drops all bytes, with queues and index: the log then is empty and begins at offset, a multiple of
 * the file size that is 0 or not below the log's end; otherwise RMQ_OUT_OF_RANGE, and nothing
 * changes. A crash in between leaves the log whole, without its first files, or empty at its old or
 * new offset. Queues continue at the queue offsets of the next records. Until the store is closed
 * no queue offset is assigned twice, except when offset is 0, where queues begin again. */
int rmq_store_restart(struct rmq_store *store, int64_t offset, struct rmq_error *err);
/* Changes from raw appends to puts: cuts the log at whole_end, after its last whole record, and
 * lets puts continue there. Records that are not dispatched yet stay undispatched; their queue
 * offsets are not assigned again. Raw appends must have ended. */
int rmq_store_settle(struct rmq_store *store, int64_t whole_end, struct rmq_error *err);

/* Whether a record begins at offset, or the log ends there. */
bool rmq_store_is_border(struct rmq_store *store, int64_t offset);
/* Start of the last whole record; -1 when there is none. */
int64_t rmq_store_last_record(struct rmq_store *store);
/* Copies size bytes of the log from offset on. RMQ_OUT_OF_RANGE: the log does not hold all of
 * them. */
int rmq_store_copy(struct rmq_store *store, int64_t offset, uint8_t *out, size_t size,
                   struct rmq_error *err);

/* Removes the queue files of a deleted topic, with the units of records before log_offset. Later
 * records, which belong to a new topic of the same name, are dispatched again. Queue offsets
 * continue after the removed ones (removed_queues.h). After a crash either all or nothing is
 * removed, and records after log_offset are in the queues. Flushes everything first.
 * RMQ_OUT_OF_RANGE: no record begins at log_offset, and the log does not end there. */
int rmq_store_remove_queues(struct rmq_store *store, const char *topic, size_t topic_size,
                            int64_t log_offset, struct rmq_error *err);

/* The queue offset of the next message of a queue whose messages were deleted. */
struct rmq_queue_start {
    const char *topic;
    size_t topic_size;
    int32_t queue_id;
    int64_t next_offset;
};
/* Lets queues without messages continue at the given queue offsets, if the log begins after 0:
 * their messages were before its start, so this store does not count them. Other queues are left
 * out, and so are lower offsets, and those of more messages than the log before its start can have
 * held. On the device on return; after a failure a queue may have its offset only until the store
 * is closed. */
int rmq_store_begin_queues(struct rmq_store *store, const struct rmq_queue_start *starts,
                           size_t count, struct rmq_error *err);
/* Removes the first file_count commit log files (never the last one) and the units and entries of
 * their records. Flushes everything first, so that no queue offset of a removed message is assigned
 * again. Keeps files with messages that are not dispatched yet. */
int rmq_store_expire(struct rmq_store *store, size_t file_count, struct rmq_error *err);
/* Read-only: finds the changes that the writer has made. */
int rmq_store_refresh(struct rmq_store *store, struct rmq_error *err);

/* Whether appended bytes of the log never change. False in a read-only store, whose writer may cut
 * them, and from the first cut on. */
bool rmq_store_keeps_bytes(struct rmq_store *store);
/* Whether bytes that were copied out of the log are consistent. Called after the copy. */
bool rmq_store_copy_is_whole(struct rmq_store *store, const uint8_t *copy, const uint8_t *data,
                             size_t size);

/* RMQ_CONFIRM_BOUND: dispatches up to the offset only, and keeps it in the checkpoint.
 * RMQ_CONFIRM_UNSET: everything is dispatched again, and a confirm offset in the checkpoint follows
 * the dispatched offset. */
int rmq_store_set_confirm_offset(struct rmq_store *store, struct rmq_confirm confirm,
                                 struct rmq_error *err);

#endif
