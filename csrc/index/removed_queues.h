/* removed_queues.h -- queues whose topic was deleted, and queues of a replica whose messages are
 * before the start of its log: the next queue offset of each, and the log offset before which its
 * records are in no queue.
 *
 *   at  size  field of `removedQueues` (integers are big-endian)
 *   0   4     magic 0x524D5251
 *   4   4     number of entries
 *   8   4     CRC-32 of the entries
 *   then for each entry
 *   0   8     next_offset: the queue offset after the last message of the deleted topic
 *   8   8     log_offset: records before it are not entered into the queue; 1: the topic was not
 *             deleted, but the log began after the queue's messages
 *   16  4     queue id
 *   20  1     1 for a queue of inner batches
 *   21  1     size of the topic
 *   22  n     topic
 *
 * The log still holds the records of a deleted topic with their queue offsets. A topic of the same
 * name therefore continues after these queue offsets. If it began at 0, a rebuilt queue would hold
 * the old record of a queue offset instead of the new one. Entries are never removed, because the
 * log of another replica may begin earlier than this one.
 *
 * A replica that begins at the first byte that its master has kept finds no record of a queue whose
 * messages are all deleted. Its master knows where the queue continues. If the replica began the
 * queue at 0, consumers that have read the deleted messages would miss the new ones.
 *
 * RocketMQ neither reads nor writes this file, and begins at 0. A queue that has units continues
 * after its last unit; its entry then has no effect on the next queue offset.
 */
#ifndef RMQ_REMOVED_QUEUES_H
#define RMQ_REMOVED_QUEUES_H

#include "index/queue_table.h"

#define RMQ_REMOVED_QUEUES_NAME "removedQueues"
#define RMQ_REMOVED_QUEUES_MAGIC 0x524D5251u
#define RMQ_REMOVED_BY_RETENTION 1 /* log_offset without a deleted topic */
#define RMQ_REMOVED_HEADER_SIZE 12
#define RMQ_REMOVED_ENTRY_SIZE 22 /* without the topic */

/* Reads the file, if it exists, into the entries of the table; adds missing queues. RMQ_CORRUPT:
 * the file is damaged. */
int rmq_removed_queues_load(struct rmq_queue_table *table, struct rmq_error *err);
/* Replaces the file by the entries of the table; on the device on return. After a failure the file
 * has the old entries, or it may have the new ones; *is_unsure, which may be NULL, is then true. */
int rmq_removed_queues_save(struct rmq_queue_table *table, bool *is_unsure, struct rmq_error *err);

/* Counts a record of the log that requires unit. Before removed_until, the next queue offset moves
 * past the unit; from removed_until on, the queue offset of the unit is free again. */
void rmq_removed_queue_count(struct rmq_queue *queue, const struct rmq_unit *unit);

/* Removes files and folders of the queue, which is in the saved entries. */
int rmq_removed_queue_clear(struct rmq_queue_table *table, struct rmq_queue *queue,
                            struct rmq_error *err);

#endif
