/* small_file.h -- files of a few lines beside a store's own, replaced as a whole.
 *
 * At every moment the file holds either the whole old text or the whole new text.
 */
#ifndef RMQ_SMALL_FILE_H
#define RMQ_SMALL_FILE_H

#include "base/vfs.h"

/* Replaces directory/name with size bytes, by way of directory/name.tmp. On return the file and its
 * name are on the device. After a failure the file holds the old text, or the new text if only the
 * sync of the folder failed. */
int rmq_small_file_replace(struct rmq_vfs *vfs, const char *directory, const char *name,
                           const void *data, size_t size, struct rmq_error *err);
/* Removes directory/name if it is there; on return the removal is on the device. */
int rmq_small_file_remove(struct rmq_vfs *vfs, const char *directory, const char *name,
                          struct rmq_error *err);

#endif
