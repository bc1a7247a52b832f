/* commit_log.h -- appending records to the run of commit log files.
 *
 * One put lock orders all writers. Under it a message gets its store timestamp, its queue offset
 * and its place, is encoded straight into the mapped file, and becomes visible by moving the end.
 * What can be done before (judging the message, the CRC of its body) is done before. A second
 * thread, the warmer, makes the next file and faults pages in ahead of the writer, so that an
 * append normally makes no system call. While puts wait for syncs it writes and syncs zeros ahead
 * instead: the disk then has to write a page, and no journal.
 *
 * Placement: a record is put where 8 more bytes follow it in the file; otherwise a blank record
 * fills the file and the record opens the next one. Source: CommitLog and its
 * DefaultAppendMessageCallback of RocketMQ 5.3.3.
 */
#ifndef RMQ_COMMIT_LOG_H
#define RMQ_COMMIT_LOG_H

#include "clock.h"
#include "file_queue.h"
#include "queue_table.h"
#include "record.h"
#include "spin_lock.h"

/* How far the warmer keeps pages ready ahead of the end, and how much is reserved at a time: by
 * allocation, and by writing zeros, which takes longer. */
#define RMQ_WARM_AHEAD (8 << 20)
#define RMQ_RESERVE_WINDOW (4 << 20)
#define RMQ_WRITTEN_WINDOW (256 << 10)
/* Writing zeros ahead makes the disk write everything twice; with fewer bytes than this to each
 * wait for a sync, the shorter syncs are worth it. */
#define RMQ_WAIT_SIZE_WORTH_ZEROS (128 << 10)

struct rmq_receipt {
    int64_t physical_offset;
    int64_t queue_offset;
    int64_t store_timestamp;
    int32_t size;
};

struct rmq_commit_log_options {
    struct rmq_record_limits limits;
    bool multi_dispatch;        /* honour INNER_MULTI_DISPATCH */
    bool warm_whole_file;       /* fault in a whole new file, lock it in memory */
    bool write_ahead;           /* puts wait for syncs as a rule: always write zeros ahead */
    int64_t page_cache_busy_ms; /* a put lock held longer by another writer refuses new messages; 0:
                                   never */
};

struct rmq_commit_log {
    struct rmq_file_queue files;
    struct rmq_commit_log_options options;
    struct rmq_queue_table *queues;
    struct rmq_clock *clock;

    struct rmq_spin_lock put_lock;
    _Atomic int64_t locked_since_ms; /* 0 while nobody holds it */

    /* The warmer. */
    pthread_t thread;
    bool has_thread;
    pthread_mutex_t warm_lock; /* prepared, and the creation of files */
    pthread_cond_t warm_wanted;
    struct rmq_mapped_file *prepared; /* the next file, made ahead */
    bool stop;
    _Atomic int64_t warm_at; /* an end beyond this offset wakes the warmer */
    _Atomic int64_t waits;   /* for syncs, since opening */
    _Atomic bool writes_ahead;
};

/* log->files must be open and recovered. The warmer starts at once unless the queue is read-only.
 */
int rmq_commit_log_start(struct rmq_commit_log *log, const struct rmq_commit_log_options *options,
                         struct rmq_queue_table *queues, struct rmq_clock *clock,
                         struct rmq_error *err);
/* Stops the warmer and removes the file it made ahead. The files stay open. */
void rmq_commit_log_stop(struct rmq_commit_log *log);

/* As rmq_file_queue_truncate; the file made ahead goes first, so that no crash leaves a hole before
 * it. The caller holds put_lock. */
int rmq_commit_log_truncate(struct rmq_commit_log *log, int64_t offset, struct rmq_error *err);

/* Appends count messages in order. With `together`, all lie in one file, as RocketMQ's batch does.
 * *stored says how many are in the log, in receipts[0 .. *stored). Messages are judged before the
 * first one is stored: RMQ_MESSAGE_ILLEGAL, RMQ_PROPERTIES_TOO_LARGE mean that none is, and
 * err->at_offset is the index of the bad one. RMQ_NO_SPACE, RMQ_IO: the log cannot grow; those
 * before are stored. RMQ_PAGE_CACHE_BUSY: none is stored. */
int rmq_commit_log_put(struct rmq_commit_log *log, const struct rmq_message *messages, size_t count,
                       bool together, struct rmq_receipt *receipts, size_t *stored,
                       struct rmq_error *err);

/* Appends bytes as they come from another log. at must be the end of this log, or, when it is
 * empty, a file border it shall begin at. Bytes may hold parts of records and may cross file
 * borders. RMQ_OUT_OF_RANGE: at is neither. */
int rmq_commit_log_append_raw(struct rmq_commit_log *log, int64_t at, const uint8_t *data,
                              size_t size, struct rmq_error *err);

#endif
