/* small_file.h -- files of a few lines beside a store's own, replaced as a whole.
 *
 * At every moment the name stands for all of the old text or all of the new one.
 */
#ifndef RMQ_SMALL_FILE_H
#define RMQ_SMALL_FILE_H

#include "base/vfs.h"

/* Puts size bytes in the place of directory/name, by way of directory/name.tmp; on the device, name
 * included, on return. After a failure the old text stands; or the new one, where only the folder
 * could not be synced. */
int rmq_small_file_replace(struct rmq_vfs *vfs, const char *directory, const char *name,
                           const void *data, size_t size, struct rmq_error *err);
/* Removes directory/name if it is there; the name is off the device on return. */
int rmq_small_file_remove(struct rmq_vfs *vfs, const char *directory, const char *name,
                          struct rmq_error *err);

#endif
