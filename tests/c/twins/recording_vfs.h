/* recording_vfs.h -- a file system that keeps every effect on files and folders, in order.
 *
 * For models of a power loss: tests/support/disk_model.py makes of the effects each state in which
 * a disk may be found afterwards.
 */
#ifndef RMQ_RECORDING_VFS_H
#define RMQ_RECORDING_VFS_H

#include "base/vfs.h"

enum rmq_effect_kind {
    RMQ_EFFECT_CREATE, /* a file came to be at path: data and size are 0 */
    RMQ_EFFECT_OPEN,   /* a file that was there */
    RMQ_EFFECT_STORE,  /* bytes, by write or through a mapping */
    RMQ_EFFECT_ZERO,
    RMQ_EFFECT_RESIZE,
    RMQ_EFFECT_SYNC, /* [at, at + size) of the file and its size are durable */
    RMQ_EFFECT_RENAME,
    RMQ_EFFECT_UNLINK,
    RMQ_EFFECT_MAKE_DIRECTORY, /* with its parents, each synced into its own */
    RMQ_EFFECT_REMOVE_DIRECTORY,
    RMQ_EFFECT_SYNC_DIRECTORY,
    RMQ_EFFECT_MAKE_UNSYNCED_DIRECTORY, /* may be there already */
    RMQ_EFFECT_MARK,                    /* rmq_vfs_record_mark; at is its number */
};

/* One effect. Pointers live as long as the recorder. */
struct rmq_effect {
    int32_t kind;
    int32_t file;     /* number of the file, the same over renames; -1 where there is none */
    int64_t at;       /* STORE, ZERO, SYNC: first byte */
    int64_t size;     /* bytes; RESIZE: of the file */
    uint8_t *data;    /* STORE */
    char *path;       /* CREATE, OPEN, and all that names a folder's entry */
    char *other_path; /* RENAME: the target */
};

/* A twin of inner that keeps every effect on files and folders, in one order. What was stored
 * through writable mappings is found by comparing them with what is known, before every other
 * effect and mark, and lands there as STOREs of at most 512 bytes that do not cross a border of
 * 512. Syncs are recorded and not carried out: what they promise is the reader's to model. Free it
 * after everything opened through it is closed. NULL: no memory. */
struct rmq_vfs *rmq_vfs_record_new(struct rmq_vfs *inner);
void rmq_vfs_record_free(struct rmq_vfs *vfs);
void rmq_vfs_record_mark(struct rmq_vfs *vfs, int64_t number);
/* How many effects there are. */
int64_t rmq_vfs_record_count(struct rmq_vfs *vfs);
/* Effect number index, below the count. */
void rmq_vfs_record_get(struct rmq_vfs *vfs, int64_t index, struct rmq_effect *effect);

#endif
