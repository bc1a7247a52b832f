/* unsynced_folders.h -- folders in which names were made that may not be on the device yet.
 *
 * The writer of a queue makes a name in a folder, lists the folder, and only then publishes what it
 * wrote. The flusher syncs the listed folders before the checkpoint records the published units as
 * durable.
 */
#ifndef RMQ_UNSYNCED_FOLDERS_H
#define RMQ_UNSYNCED_FOLDERS_H

#include <pthread.h>
#include <stddef.h>

#include "base/vfs.h"

struct rmq_unsynced_folders {
    pthread_mutex_t lock;
    char **paths; /* a folder may be listed several times */
    size_t count, capacity;
};

void rmq_unsynced_folders_init(struct rmq_unsynced_folders *folders);
void rmq_unsynced_folders_destroy(struct rmq_unsynced_folders *folders);

int rmq_unsynced_folders_add(struct rmq_unsynced_folders *folders, const char *path,
                             struct rmq_error *err);

/* Syncs the listed folders. On return every name that was made in a folder listed before the call
 * is on the device, or was removed since. Removed folders are skipped. After a failure the folders
 * are listed again. RMQ_NO_MEMORY: some are not listed again, and their names must never be
 * recorded as durable. */
int rmq_unsynced_folders_sync(struct rmq_unsynced_folders *folders, struct rmq_vfs *vfs,
                              struct rmq_error *err);

#endif
