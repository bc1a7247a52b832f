/* removed_queues.h -- queues whose topic was deleted: where their numbers go on, and up to where
 * the log's records are in no queue any more.
 *
 *   at  size  field of `removedQueues` (integers are big-endian)
 *   0   4     magic 0x524D5251
 *   4   4     number of entries
 *   8   4     CRC-32 of the entries
 *   then for each entry
 *   0   8     next_offset: the queue offset after the last message of the deleted topic
 *   8   8     log_offset: records before it are not entered into the queue
 *   16  4     queue id
 *   20  1     1 for a queue of inner batches
 *   21  1     size of the topic
 *   22  n     topic
 *
 * The log still holds the records of a deleted topic, and their queue offsets with them. A topic of
 * the same name therefore goes on behind them: were its numbers to begin again at 0, a rebuilt queue
 * would hold the old record of a number in place of the new one. Entries are kept for good, because
 * the log of another replica may begin earlier than this one.
 *
 * The file is of this library: RocketMQ neither reads nor writes it, and begins again at 0. A queue
 * with units goes on behind these, whatever its entry says.
 */
#ifndef RMQ_REMOVED_QUEUES_H
#define RMQ_REMOVED_QUEUES_H

#include "index/queue_table.h"

#define RMQ_REMOVED_QUEUES_NAME "removedQueues"
#define RMQ_REMOVED_QUEUES_MAGIC 0x524D5251u
#define RMQ_REMOVED_HEADER_SIZE 12
#define RMQ_REMOVED_ENTRY_SIZE 22 /* without the topic */

/* Reads the file, if it is there, into the entries of the table, which are added where they are
 * missing. RMQ_CORRUPT: it is damaged. */
int rmq_removed_queues_load(struct rmq_queue_table *table, struct rmq_error *err);
/* Puts the entries of the table in the place of the file; on the device on return. After a failure
 * the old entries stand; or the new ones, and *is_unsure, which may be NULL, is true. */
int rmq_removed_queues_save(struct rmq_queue_table *table, bool *is_unsure, struct rmq_error *err);

/* Counts a record of the log that calls for unit: before removed_until the numbers go on behind it,
 * from there on not behind it. */
void rmq_removed_queue_count(struct rmq_queue *queue, const struct rmq_unit *unit);

/* Removes files and folders of the queue, which is in the saved entries. */
int rmq_removed_queue_clear(struct rmq_queue_table *table, struct rmq_queue *queue,
                            struct rmq_error *err);

#endif
