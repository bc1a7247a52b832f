/* rmq.h -- the whole core, in the order to read it.
 *
 * A message is encoded (record.h) into a mapped file of the commit log (commit_log.h); the
 * dispatcher (dispatch.h) enters it into its consume queue and the index; the flusher (flusher.h)
 * brings all of it to the disk; recovery (recover.h) restores a valid state after a crash; store.h
 * combines these parts; read.h finds messages.
 */
#ifndef RMQ_H
#define RMQ_H

/* Not in the order of the alphabet. */
/* clang-format off */

/* Basics: statuses, bytes, checksums, time, waiting, and the only door to the file system. */
#include "base/status.h"
#include "base/bytes.h"
#include "base/crc32.h"
#include "base/hash.h"
#include "base/clock.h"
#include "base/spin_lock.h"
#include "base/event.h"
#include "base/hook.h"
#include "base/list.h"
#include "base/task.h"
#include "base/for_each.h"
#include "base/vfs.h"

/* Formats. */
#include "format/properties.h"
#include "base/utf8.h"
#include "format/record.h"
#include "format/batch.h"
#include "format/inner_batch.h"
#include "format/remoting_header.h"

/* Files. */
#include "file/mapped_file.h"
#include "file/unsynced_folders.h"
#include "file/file_queue.h"
#include "file/warmer.h"
#include "file/wakeup.h"
#include "base/small_file.h"

/* Contents of the files. */
#include "index/consume_queue.h"
#include "index/consume_queue_ext.h"
#include "index/batch_consume_queue.h"
#include "index/index_file.h"
#include "file/checkpoint.h"

/* Messages that wait for their time. */
#include "timer/timer_log.h"
#include "timer/timer_wheel.h"
#include "timer/timer_index.h"

/* The way of a message. */
#include "index/queue_table.h"
#include "index/queue_ends.h"
#include "index/removed_queues.h"
#include "log/commit_log.h"
#include "log/confirm.h"
#include "log/turn.h"
#include "log/rows.h"
#include "log/place.h"
#include "base/failure.h"
#include "log/dispatch.h"
#include "log/flusher.h"
#include "log/scan.h"
#include "log/scan_ahead.h"
#include "log/border.h"
#include "log/cut_copy.h"
#include "log/recover.h"
#include "store/store.h"
#include "store/store_view.h"
#include "store/read.h"
#include "store/walk.h"

/* Records as columns and sums. */
#include "columns/buffer_pool.h"
#include "columns/columns.h"
#include "columns/column_buffer.h"
#include "columns/host_text.h"
#include "columns/arrow_abi.h"
#include "columns/arrow_export.h"
#include "base/gate.h"
#include "columns/arrow_stream.h"
#include "columns/topic_filter.h"
#include "columns/message_filter.h"
#include "columns/summary.h"
#include "columns/segment.h"
#include "columns/unit_bytes.h"

/* Frames and state of replication. */
#include "format/ha_frame.h"
#include "replica/ack_slots.h"
#include "replica/ack_inbox.h"
#include "replica/ack_log.h"
#include "replica/ack_board.h"
#include "replica/pump.h"
#include "replica/pump_link.h"

/* clang-format on */

#endif
