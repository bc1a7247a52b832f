/* rmq.h -- the whole core, in the order to read it.
 *
 * A message is encoded (record.h) into a mapped file of the commit log (commit_log.h); the
 * dispatcher (dispatch.h) enters it into its consume queue and the index; the flusher (flusher.h)
 * brings all of it to the disk; recovery (recover.h) makes sense of what a crash left; store.h
 * holds these together, read.h finds messages again.
 */
#ifndef RMQ_H
#define RMQ_H

/* Not in the order of the alphabet. */
/* clang-format off */

/* Ground: outcomes, bytes, sums, time, waiting, and the one door to the file system. */
#include "status.h"
#include "bytes.h"
#include "crc32.h"
#include "hash.h"
#include "clock.h"
#include "spin_lock.h"
#include "event.h"
#include "hook.h"
#include "task.h"
#include "vfs.h"

/* Formats. */
#include "properties.h"
#include "utf8.h"
#include "record.h"
#include "batch.h"
#include "inner_batch.h"

/* Files. */
#include "mapped_file.h"
#include "file_queue.h"
#include "warmer.h"
#include "wakeup.h"
#include "small_file.h"

/* What lies in them. */
#include "consume_queue.h"
#include "consume_queue_ext.h"
#include "batch_consume_queue.h"
#include "index_file.h"
#include "checkpoint.h"

/* What happens to a message. */
#include "queue_table.h"
#include "commit_log.h"
#include "rows.h"
#include "place.h"
#include "failure.h"
#include "dispatch.h"
#include "flusher.h"
#include "scan.h"
#include "scan_ahead.h"
#include "border.h"
#include "cut_copy.h"
#include "recover.h"
#include "store.h"
#include "read.h"
#include "walk.h"

/* Records as columns and sums. */
#include "buffer_pool.h"
#include "columns.h"
#include "arrow_abi.h"
#include "arrow_export.h"
#include "gate.h"
#include "arrow_stream.h"
#include "topic_filter.h"
#include "summary.h"
#include "segment.h"

/* What replicas say to each other. */
#include "ha_frame.h"
#include "ack_slots.h"
#include "ack_inbox.h"
#include "ack_board.h"
#include "ha_pump.h"
#include "ha_link.h"

/* clang-format on */

#endif
