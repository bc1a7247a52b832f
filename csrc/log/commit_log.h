/* commit_log.h -- appending records to the commit log files.
 *
 * One put lock orders all writers. Under the lock a message gets its store timestamp, its queue
 * offset and its physical offset, is encoded into the mapped file, and becomes visible when the end
 * moves. Validation and the CRC of the body come before the lock. A second thread makes files and
 * pages ready ahead of the writer (warmer.h), so that an append normally makes no system call.
 *
 * Placement: a record is put where 8 more bytes follow it in the file; otherwise a blank record
 * fills the file and the record opens the next one. Source: CommitLog and its
 * DefaultAppendMessageCallback of RocketMQ 5.3.3.
 */
#ifndef RMQ_COMMIT_LOG_H
#define RMQ_COMMIT_LOG_H

#include "base/clock.h"
#include "base/hook.h"
#include "base/spin_lock.h"
#include "file/warmer.h"
#include "format/record.h"
#include "index/queue_table.h"

struct rmq_receipt {
    int64_t physical_offset;
    int64_t queue_offset;
    int64_t store_timestamp;
    int32_t size;
};

struct rmq_commit_log_options {
    struct rmq_record_limits limits;
    struct rmq_warmer_options warmer;
    bool multi_dispatch;        /* honour INNER_MULTI_DISPATCH */
    int64_t page_cache_busy_ms; /* new messages are refused while another writer has held the put
                                   lock longer than this; 0: never */
};

struct rmq_commit_log {
    struct rmq_file_queue files;
    struct rmq_commit_log_options options;
    struct rmq_queue_table *queues;
    struct rmq_clock *clock;

    struct rmq_spin_lock put_lock;
    bool is_shut;                    /* under put_lock: no writer may append */
    _Atomic int64_t locked_since_ms; /* when the put lock was taken; 0 while it is free */
    struct rmq_warmer warmer;
    _Atomic int64_t hold_at; /* writers whose bytes end at or after this offset run on_far_ahead */
    struct rmq_hook on_far_ahead; /* the writer is too far ahead of the checkpoint: see flusher.h */
};

/* log->files must be open and recovered. */
int rmq_commit_log_start(struct rmq_commit_log *log, const struct rmq_commit_log_options *options,
                         struct rmq_queue_table *queues, struct rmq_clock *clock,
                         struct rmq_error *err);
/* Stops the warmer. The files stay open. */
void rmq_commit_log_stop(struct rmq_commit_log *log);

/* Called after bytes were appended, without the put lock, so that warmer and checkpoint keep up.
 * May wait for the checkpoint. */
static inline void rmq_commit_log_follow(struct rmq_commit_log *log)
{
    rmq_warmer_follow(&log->warmer);
    if (rmq_file_queue_end(&log->files) >=
        atomic_load_explicit(&log->hold_at, memory_order_relaxed))
        rmq_hook_run(&log->on_far_ahead, true);
}

/* Appends count messages in order. With `together`, all are stored in one file, as a batch of
 * RocketMQ is. *stored is the number of stored messages; their receipts are receipts[0 .. *stored).
 * Messages are validated before the first one is stored: after RMQ_MESSAGE_ILLEGAL and
 * RMQ_PROPERTIES_TOO_LARGE no message is stored, and err->at_offset is the index of the invalid
 * one. RMQ_NO_SPACE, RMQ_IO: the log cannot grow; earlier messages are stored. RMQ_PAGE_CACHE_BUSY:
 * no message is stored. */
int rmq_commit_log_put(struct rmq_commit_log *log, const struct rmq_message *messages, size_t count,
                       bool together, struct rmq_receipt *receipts, size_t *stored,
                       struct rmq_error *err);

/* Appends raw bytes of another log. `at` must be the end of this log or, for an empty log, the file
 * boundary at which it is to begin. The bytes may contain parts of records and may cross file
 * boundaries. RMQ_OUT_OF_RANGE: `at` is neither. RMQ_NOT_WRITABLE: the bytes after the end of the
 * log do not read as zeros, and further appends are refused. */
int rmq_commit_log_append_raw(struct rmq_commit_log *log, int64_t at, const uint8_t *data,
                              size_t size, struct rmq_error *err);

/* RMQ_MESSAGE_ILLEGAL: no record may have that topic. */
int rmq_topic_validate(const char *topic, size_t size, struct rmq_error *err);

#endif
