/* border.h -- where the whole records of a log end whose bytes come in pieces.
 *
 * Frames of replication carry no checksum and know nothing of records, so what a slave appended is
 * looked at once more as its records become whole: form, place, and every CRC they hold.
 */
#ifndef RMQ_BORDER_H
#define RMQ_BORDER_H

#include "file/file_queue.h"

/* Moves *border, where a record begins, behind the last record that lies whole below end; end is at
 * most the log's. A blank is whole once its file is. A thread that appends or cuts must not be at
 * it. RMQ_CORRUPT: from *border on lies what no log holds. RMQ_NOT_FOUND: no file holds *border. */
int rmq_border_advance(struct rmq_file_queue *files, int64_t *border, int64_t end,
                       struct rmq_error *err);

#endif
