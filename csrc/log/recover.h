/* recover.h -- from files as they were found to a store that may go on.
 *
 * After a clean stop queues are taken as they are, and the log is walked from the file that holds
 * their last record. After a crash only what the checkpoint calls durable is taken: queues are cut
 * to it, index files written later are dropped, and both are rebuilt from the log. In both cases
 * the log ends behind the last record that is whole and right; what follows is made to read as
 * zeros, so that it can never come back.
 *
 * Where bytes that were durable turn out to be no records, that is damage, not a torn tail:
 * recovery then refuses and changes nothing. So it walks twice: the first walk checks all that may
 * be refused, the second one enters records into queues and index. The first one also compares
 * units with what the files of the queues hold; the second one begins where queues or index have
 * something to store, which after a crash of the process alone may be nowhere. A log that RocketMQ
 * cut ends where it was cut (log_end.h). Whole records that a torn tail leaves behind a bad one are
 * copied to the folder `cut` first.
 *
 * The walk begins earlier where files of queues or index may be lost (queue_ends.h), and again at
 * the start of the log when the first walk meets a record whose queue lacks the units before it. A
 * queue that begins after a record of its own in the log is cleared, and entered as a whole.
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
    bool was_closed;        /* no abort marker was found */
    bool check_crc;         /* checkCRCOnRecover */
    bool need_property_crc; /* forceVerifyPropCRC */
    int64_t
        dispatch_until; /* records that end behind it only raise queue offsets; INT64_MAX: none */
    const char *root;   /* for the folder `cut` */
    const char *checkpoint_path;
    const char *abort_path; /* made when the store was closed, before anything changes */
};

struct rmq_recovery {
    int64_t start_offset;      /* where the walk began */
    int64_t end_offset;        /* where the log ends */
    int64_t dispatched_offset; /* a record's end: those before it are entered */
    int64_t records;           /* walked */
    int64_t cut_bytes; /* non-zero bytes dropped behind the end; 0 when only zeros were there */
    int64_t milliseconds;
    bool was_closed;
    bool was_cut; /* RocketMQ cut the log and left bytes or units of it: see log_end.h */
    /* Queues or index lacked entries of records in the log, which the log brought back; read-only:
     * they lack what they had when the store was closed. */
    bool was_incomplete;
    bool is_vouched; /* read-only: the checkpoint of a closed store vouches for its last record */
    int64_t doubtful_offset; /* read-only: here RocketMQ cut the log, or it is damaged; -1: sure */
    char cut_path[RMQ_CUT_PATH_SIZE]; /* where whole records behind a bad one were copied to; ""
                                         when there were none */
};

/* Log files, queues and index are loaded, the dispatcher is not started. On RMQ_OK all positions
 * are set and everything is on the device. The checkpoint is lowered, and written, before anything
 * that it vouches for is dropped. RMQ_CORRUPT: damage; err names place and cure. */
int rmq_recover(struct rmq_dispatcher *dispatcher, struct rmq_checkpoint *checkpoint,
                const struct rmq_recovery_options *options, struct rmq_recovery *recovery,
                struct rmq_error *err);

/* Finds the ends of log and queues of the store under root without changing anything: for a
 * read-only store, at opening and again whenever its writer may have gone on. */
int rmq_recover_read_only(struct rmq_file_queue *files, struct rmq_queue_table *queues,
                          const char *root, struct rmq_recovery *recovery, struct rmq_error *err);

/* Drops index files with entries at or after log_end and enters the rest of their range again.
 * The checkpoint must vouch for nothing from rmq_index_unsafe_begin on, so that a crash in between
 * does not leave keys out. */
int rmq_recover_index(struct rmq_dispatcher *dispatcher, int64_t log_end, struct rmq_error *err);

/* Before the log ends at log_end, where records that removed queues (removed_queues.h) were counted
 * by may go: counts them again by what stays, so that other records that take their place are
 * entered. On the device on return. */
int rmq_recover_removed(struct rmq_dispatcher *dispatcher, int64_t log_end, struct rmq_error *err);

#endif
