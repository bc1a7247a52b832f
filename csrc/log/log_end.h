/* log_end.h -- whether RocketMQ cut a log where its records end.
 *
 * RocketMQ's truncation clears nothing. The bytes of the records it cut, and the units of queues
 * that point at them, stay until something else is written over them. Its next start walks the last
 * files and ends the log at the first bytes that are not a record. Damage ends that walk in the
 * same way, and RocketMQ does not distinguish them. Here the following bytes distinguish them:
 *
 *   - A queue has a unit whose record begins at that place: the record was there. Damage.
 *   - The last units of a queue lead to places before the end which hold something else by now:
 *     written over after a cut.
 *   - The next whole record is older than the last one before the end: left over from a cut.
 *   - Only zeros follow, though queues know of records there: damage.
 *   - No queue knows of a record there, and the checkpoint vouches for the last one before the end:
 *     left over from a cut.
 *   - Otherwise it is unknown.
 *
 * A cut whose new records end exactly where an old one begins leaves a log that reads on through
 * the old ones. RocketMQ's next start brings them back, and so they are read here as well.
 *
 * Stores that rmqstore wrote last have no such ends: its cuts clear what they cut.
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
    int64_t last_timestamp; /* store time of the last record before the end; -1: there is none */
    int64_t next_timestamp; /* store time of the first whole record after it; -1: there is none */
    bool is_inside;         /* a file of the log holds the end */
    bool has_bytes;         /* some byte after the end is not zero */
    bool is_vouched; /* after a clean stop the checkpoint vouches for the last record: see below */
    bool is_known;   /* a unit's record begins at the end */
    bool is_passed;  /* a unit's record begins at or after the end */
    bool is_overwritten; /* a unit leads to a place before the end that holds something else */
};

/* The rule above, for a place with bytes or units after it. */
enum rmq_log_end rmq_log_end_classify(const struct rmq_log_end_facts *facts);

/* Whether the checkpoint vouches for a log whose last record, by its queues, has this store time.
 * RocketMQ keeps in the checkpoint (field 0) the store time of the last record it flushed: after a
 * clean stop that of the last record, before one an older time. Where it does not vouch, the log
 * has to be walked from the beginning of a file, as RocketMQ does. */
bool rmq_log_end_is_vouched(int64_t last_timestamp, int64_t physic_timestamp, bool was_closed);

/* Gathers the facts about the end of a walk at `end`, and decides. Queues are recovered, with all
 * their units; last_timestamp and is_vouched as above. */
int rmq_log_end_find(struct rmq_file_queue *files, struct rmq_queue_table *queues, int64_t end,
                     int64_t last_timestamp, bool is_vouched, enum rmq_log_end *found,
                     struct rmq_error *err);

/* Whether the last unit of some queue leads into [from, end) and to no record of its size there:
 * where the log reads on through that place, something was written over what RocketMQ cut. */
int rmq_log_end_has_leftover(struct rmq_file_queue *files, struct rmq_queue_table *queues,
                             int64_t from, int64_t end, bool *found, struct rmq_error *err);

/* In a read-only store: ends each queue after its last unit whose record lies before `end` and is
 * the unit's own, or lies before `from`. */
int rmq_log_end_trim(struct rmq_file_queue *files, struct rmq_queue_table *queues, int64_t from,
                     int64_t end, struct rmq_error *err);

#endif
