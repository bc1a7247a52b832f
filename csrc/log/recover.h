/* recover.h -- from the files that a stop or crash left to a store that can continue.
 *
 * After a clean stop queues are taken as they are, and the log is walked from the file that holds
 * their last record. After a crash only the bytes that the checkpoint covers are taken: queues are
 * cut to it, index files written later are dropped, and both are rebuilt from the log. In both
 * cases the log ends after the last whole and correct record. The bytes after it are made to read
 * as zeros, so that they can never come back.
 *
 * Durable bytes that are not records are damage, not a torn tail: recovery then fails and changes
 * nothing. So it walks twice: the first walk makes every check that may fail, the second one enters
 * records into queues and index. The first walk also compares units with the files of the queues.
 * The second walk begins where queues or index have something to store; after a crash of the
 * process alone they may have nothing. A log that RocketMQ cut ends at the cut (log_end.h). Whole
 * records after a bad one in a torn tail are first copied to the folder `cut`.
 *
 * The walk begins earlier where files of queues or index may be lost (queue_ends.h), and it begins
 * again at the start of the log when it finds a record whose queue lacks the units before it. A
 * queue that begins after one of its records in the log is cleared, and all its records are
 * entered.
 *
 * Source of the rules: CommitLog.recoverNormally and recoverAbnormally, RocketMQ 5.3.3 and 5.5.0.
 * Departures: a blank record at the end of the last file stays; queues are placed by queue offset;
 * index files are rebuilt whole.
 */
#ifndef RMQ_RECOVER_H
#define RMQ_RECOVER_H

#include "file/checkpoint.h"
#include "log/cut_copy.h"
#include "log/dispatch.h"
#include "log/scan_ahead.h"

struct rmq_recovery_options {
    bool was_closed;            /* no abort marker was found */
    bool check_crc;             /* checkCRCOnRecover */
    bool need_property_crc;     /* forceVerifyPropCRC */
    struct rmq_confirm confirm; /* records that end after it only raise queue offsets */
    const char *root;           /* for the folder `cut` */
    const char *checkpoint_path;
    const char *abort_path; /* made when the store was closed; runs before anything changes */
};

struct rmq_recovery {
    int64_t start_offset;      /* where the walk began */
    int64_t end_offset;        /* where the log ends */
    int64_t dispatched_offset; /* end of a record: all records before it are entered */
    int64_t records;           /* records walked */
    int64_t cut_bytes; /* non-zero bytes dropped after the end; 0 when there were only zeros */
    int64_t milliseconds;
    bool was_closed;
    bool was_cut; /* RocketMQ cut the log and left bytes or units of it: see log_end.h */
    /* Queues or index lacked entries of records in the log. Recovery entered these records again; a
     * read-only store still lacks the entries. */
    bool was_incomplete;
    bool is_vouched; /* read-only: the checkpoint of a closed store vouches for its last record */
    int64_t doubtful_offset; /* read-only: at this offset RocketMQ cut the log, or the log is
                                damaged; -1: no such doubt */
    char cut_path[RMQ_CUT_PATH_SIZE]; /* copy of the whole records after a bad one; "" when there
                                         were none */
};

/* Log files, queues and index are loaded, the dispatcher is not started. On RMQ_OK all positions
 * are set and all bytes are on the device. The checkpoint is lowered and written before anything
 * that it covers is dropped. RMQ_CORRUPT: damage; err has the position and the cure. */
int rmq_recover(struct rmq_dispatcher *dispatcher, struct rmq_checkpoint *checkpoint,
                const struct rmq_recovery_options *options, struct rmq_recovery *recovery,
                struct rmq_error *err);

/* Finds the ends of log and queues of the store under root without changing a file: for a read-only
 * store, at opening and whenever its writer may have appended. */
int rmq_recover_read_only(struct rmq_file_queue *files, struct rmq_queue_table *queues,
                          const char *root, struct rmq_recovery *recovery, struct rmq_error *err);

/* Drops index files with entries at or after log_end and enters their remaining records again. The
 * checkpoint must not cover records from rmq_index_unsafe_begin on; otherwise a crash in between
 * leaves out keys. */
int rmq_recover_index(struct rmq_dispatcher *dispatcher, int64_t log_end, struct rmq_error *err);

/* Called before the log is cut at log_end, if removed queues (removed_queues.h) counted records
 * after it. Counts again by the remaining records, so that other records at the same queue offsets
 * are entered. On the device on return. */
int rmq_recover_removed(struct rmq_dispatcher *dispatcher, int64_t log_end, struct rmq_error *err);

#endif
