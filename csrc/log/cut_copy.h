/* cut_copy.h -- copies of what is about to be taken off the log, in the folder `cut` of its store.
 *
 * A copy holds the bytes as they were; its name is the offset of its first byte in 20 digits, with
 * .1, .2 and so on for other bytes of the same offset. Nothing here removes a copy.
 */
#ifndef RMQ_CUT_COPY_H
#define RMQ_CUT_COPY_H

#include "file/file_queue.h"

#define RMQ_CUT_PATH_SIZE 64
/* Different copies of one offset. */
#define RMQ_CUT_COPIES_MAX 1000

/* Copies the bytes from `from` up to `to`, which files hold. On return they are on the device, and
 * path names the copy below root; one that holds the same bytes already is not made again, so the
 * caller may repeat the call. After a failure no copy has been added.
 * RMQ_IO, RMQ_NO_SPACE; RMQ_INVALID: the path is too long, or there are RMQ_CUT_COPIES_MAX. */
int rmq_cut_copy(struct rmq_file_queue *files, const char *root, int64_t from, int64_t to,
                 char path[RMQ_CUT_PATH_SIZE], struct rmq_error *err);

#endif
