/* cut_copy.h -- copies of bytes that are about to be cut from the log, in the folder `cut` of its
 * store.
 *
 * A copy holds the bytes as they were; its name is the offset of its first byte in 20 digits, with
 * .1, .2 and so on for other bytes of the same offset. Nothing here removes a copy.
 */
#ifndef RMQ_CUT_COPY_H
#define RMQ_CUT_COPY_H

#include "file/file_queue.h"

#define RMQ_CUT_PATH_SIZE 64
/* The greatest number of different copies of one offset. */
#define RMQ_CUT_COPIES_MAX 1000

/* Copies the bytes [from, to), all of which the files must hold. On return the copy is on the
 * device, and path is its path below root. A copy with the same bytes is not made again, so the
 * caller may repeat the call. After a failure no copy has been added. RMQ_IO, RMQ_NO_SPACE;
 * RMQ_INVALID: the path is too long, or there are RMQ_CUT_COPIES_MAX copies. */
int rmq_cut_copy(struct rmq_file_queue *files, const char *root, int64_t from, int64_t to,
                 char path[RMQ_CUT_PATH_SIZE], struct rmq_error *err);

#endif
