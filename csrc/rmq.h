/* rmq.h -- the whole core, in the order to read it.
 *
 * A message is encoded (record.h) into a mapped file of the commit log (commit_log.h); the
 * dispatcher (dispatch.h) enters it into its consume queue and the index; the flusher (flusher.h)
 * brings all of it to the disk; recovery (recover.h) makes sense of what a crash left; store.h
 * holds these together, read.h finds messages again.
 */
#ifndef RMQ_H
#define RMQ_H

/* Ground: outcomes, bytes, sums, time, and the one door to the file system. */
#include "bytes.h"
#include "clock.h"
#include "crc32.h"
#include "hash.h"
#include "status.h"
#include "vfs.h"

/* Formats. */
#include "batch.h"
#include "properties.h"
#include "record.h"

/* Files. */
#include "file_queue.h"
#include "mapped_file.h"

/* What lies in them. */
#include "batch_consume_queue.h"
#include "checkpoint.h"
#include "consume_queue.h"
#include "consume_queue_ext.h"
#include "index_file.h"

/* What happens to a message. */
#include "commit_log.h"
#include "dispatch.h"
#include "failure.h"
#include "flusher.h"
#include "queue_table.h"
#include "read.h"
#include "recover.h"
#include "scan.h"
#include "store.h"

/* Records as columns. */
#include "arrow_stream.h"
#include "columns.h"

#endif
