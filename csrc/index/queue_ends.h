/* queue_ends.h -- where queues and index files began and ended when the store was last closed.
 *
 *   at  size  field of `queueEnds` (integers are big-endian)
 *   0   4     magic 0x524D5145
 *   4   4     number of queues
 *   8   4     number of index files
 *   12  4     CRC-32 of what follows
 *   then for each queue with units
 *   0   8     byte offset of its first file
 *   8   8     queue offset after its last unit
 *   16  4     queue id
 *   20  1     1 for a queue of inner batches
 *   21  1     size of the topic
 *   22  n     topic
 *   then for each index file
 *   0   8     physical offset of its first record
 *   8   8     physical offset of its last record
 *
 * Files of queues and index may be lost while a store is closed, for example when it is restored
 * from a copy, and nothing else shows it. If a listed queue or index file is missing, recovery
 * walks the log from its start; only the records of the log decide what is missing. So an outdated
 * file only costs time. The file is replaced when queues lose units to expiry, or to the deletion
 * of their topic.
 *
 * RocketMQ neither reads nor writes this file.
 */
#ifndef RMQ_QUEUE_ENDS_H
#define RMQ_QUEUE_ENDS_H

#include "index/index_file.h"
#include "index/queue_table.h"

#define RMQ_QUEUE_ENDS_NAME "queueEnds"
#define RMQ_QUEUE_ENDS_MAGIC 0x524D5145u
#define RMQ_QUEUE_ENDS_HEADER_SIZE 16
#define RMQ_QUEUE_ENDS_QUEUE_SIZE 22 /* without the topic */
#define RMQ_QUEUE_ENDS_INDEX_SIZE 16
#define RMQ_QUEUE_ENDS_SIZE_MAX (1 << 30) /* of a file that is being read */

/* Reads the file, if it is there: kept_start and kept_end of each loaded queue, lacks_queues and
 * lost_index_end of the table. index may be NULL. A damaged file counts as one that lists a missing
 * queue. */
int rmq_queue_ends_load(struct rmq_queue_table *table, struct rmq_index *index,
                        struct rmq_error *err);
/* Replaces the file by the present state; on the device on return. Unless is_closed, queues may
 * have units that are not on the device: their ends stay as they were at the last close. */
int rmq_queue_ends_save(struct rmq_queue_table *table, struct rmq_index *index, bool is_closed,
                        struct rmq_error *err);

#endif
