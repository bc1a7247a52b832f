/* border.h -- the end of the whole records in a log whose bytes arrive in pieces.
 *
 * Frames of replication need not carry a checksum, and do not show where records begin. So a slave
 * checks its appended bytes again as records become whole: form, physical offset, and every CRC
 * that they hold.
 */
#ifndef RMQ_BORDER_H
#define RMQ_BORDER_H

#include "file/file_queue.h"

/* Moves *border, where a record begins, past the last record that ends at or before end; end is at
 * most the log's end. A blank record is whole once its file is. No other thread may append or cut
 * meanwhile. RMQ_CORRUPT: the bytes at *border cannot be in any log. RMQ_NOT_FOUND: no file
 * contains *border. */
int rmq_border_advance(struct rmq_file_queue *files, int64_t *border, int64_t end,
                       struct rmq_error *err);

#endif
