/* log_end.h -- whether RocketMQ cut a log where its records end.
 *
 * RocketMQ's truncation clears nothing. The bytes of the records it cut, and the units of queues
 * that point at them, stay until they are overwritten. The next start of RocketMQ walks the last
 * files and ends the log at the first bytes that are not a record. Damage ends that walk in the
 * same way, and RocketMQ does not distinguish them. Here the following bytes distinguish them:
 *
 *   - A queue has a unit whose record begins at the end: the record existed. Damage.
 *   - The last units of a queue lead to places before the end which hold something else by now:
 *     written over after a cut.
 *   - The next whole record is older than the last one before the end: left over from a cut.
 *   - Only zeros follow, though queues know of records there: damage.
 *   - No queue knows of a record there, and the checkpoint vouches for the last one before the end:
 *     left over from a cut.
 *   - Otherwise it is unknown.
 *
 * If the records written after a cut end exactly where an old record begins, the log continues with
 * the old records. RocketMQ's next start brings them back, so they are read here as well.
 *
 * A store that rmqstore wrote last has no such end: rmqstore clears the bytes that it cuts.
 *
 * Source: CommitLog.recoverNormally, ConsumeQueue.recover and truncateDirtyLogicFiles, RocketMQ
 * 5.3.3 and 5.5.0; both were observed.
 */
#ifndef RMQ_LOG_END_H
#define RMQ_LOG_END_H

#include "index/queue_table.h"

enum rmq_log_end {
    RMQ_LOG_END_CUT,
    RMQ_LOG_END_DAMAGED,
    RMQ_LOG_END_UNKNOWN,
};

struct rmq_log_end_facts {
    int64_t last_timestamp; /* store time of the last record before the end; -1: no record */
    int64_t next_timestamp; /* store time of the first whole record after the end; -1: no record */
    bool is_inside;         /* a file of the log contains the end */
    bool has_bytes;         /* some byte after the end is not zero */
    bool is_vouched; /* after a clean stop the checkpoint vouches for the last record: see below */
    bool is_known;   /* a unit's record begins at the end */
    bool is_passed;  /* a unit's record begins at or after the end */
    bool is_overwritten; /* a unit points before the end, to bytes that are not its record */
};

/* The rule above, for an end with bytes or units after it. */
enum rmq_log_end rmq_log_end_classify(const struct rmq_log_end_facts *facts);

/* Whether the checkpoint vouches for a log whose last record, by its queues, has this store time.
 * RocketMQ keeps in the checkpoint (field 0) the store time of the last record it flushed: after a
 * clean stop that of the last record, otherwise an older one. If the checkpoint does not vouch, the
 * log has to be walked from the beginning of a file, as RocketMQ does. */
bool rmq_log_end_is_vouched(int64_t last_timestamp, int64_t physic_timestamp, bool was_closed);

/* Gathers the facts about the end of a walk at `end`, and decides. Queues are recovered, with all
 * their units; last_timestamp and is_vouched as above. */
int rmq_log_end_find(struct rmq_file_queue *files, struct rmq_queue_table *queues, int64_t end,
                     int64_t last_timestamp, bool is_vouched, enum rmq_log_end *found,
                     struct rmq_error *err);

/* Whether the last unit of some queue points into [from, end), and not to a record of its size. If
 * so, the log continues there with records that were written over a cut. */
int rmq_log_end_has_leftover(struct rmq_file_queue *files, struct rmq_queue_table *queues,
                             int64_t from, int64_t end, bool *found, struct rmq_error *err);

/* For a read-only store: ends each queue after its last unit whose record is before `from`, or is
 * before `end` and is the unit's own. */
int rmq_log_end_trim(struct rmq_file_queue *files, struct rmq_queue_table *queues, int64_t from,
                     int64_t end, struct rmq_error *err);

#endif
