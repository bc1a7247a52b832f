/* vfs.h -- the only door to the file system.
 *
 * The core opens no file directly: each operation goes through a struct rmq_vfs. Tests pass a
 * replacement of the POSIX one (vfs_posix.c) that fails or records calls. All offsets and sizes are
 * bytes. Paths are absolute or relative to the working directory, NUL-terminated. Functions are
 * safe to call from any thread.
 */
#ifndef RMQ_VFS_H
#define RMQ_VFS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/status.h"

enum rmq_open_flag {
    RMQ_OPEN_WRITE = 1,     /* read and write; otherwise read only */
    RMQ_OPEN_CREATE = 2,    /* make the file when it is missing */
    RMQ_OPEN_EXCLUSIVE = 4, /* with CREATE: RMQ_IO (EEXIST) when the file exists */
};

enum rmq_advice {
    RMQ_ADVISE_WILL_NEED, /* read ahead */
    RMQ_ADVISE_SEQUENTIAL,
    RMQ_ADVISE_RANDOM, /* a page fault reads only its own page */
    RMQ_ADVISE_DONT_NEED,
    RMQ_ADVISE_POPULATE_READ,  /* fault pages in for reading; a hint */
    RMQ_ADVISE_POPULATE_WRITE, /* fault pages in for writing without changing them; a hint */
    RMQ_ADVISE_LOCK,           /* mlock */
    RMQ_ADVISE_UNLOCK,
};

struct rmq_file_info {
    int64_t size;
    int64_t modified_ms;
    uint64_t
        identity; /* two existing files, open or mapped ones included, never have the same one */
    bool is_directory;
    bool is_regular; /* neither a folder nor a FIFO, socket or device */
};

struct rmq_disk_usage {
    int64_t total_bytes;
    int64_t free_bytes; /* available to this user */
};

/* Called once for each entry of a directory, "." and ".." left out, in any order. A status other
 * than RMQ_OK ends the listing and becomes its result. */
typedef int rmq_list_visit(void *context, const char *name, bool is_directory);

struct rmq_vfs {
    /* RMQ_NOT_FOUND when the file or a folder of its path is missing, RMQ_CORRUPT for what is
     * neither a regular file nor a folder. */
    int (*open)(struct rmq_vfs *vfs, const char *path, unsigned flags, int *fd,
                struct rmq_error *err);
    /* The descriptor is closed whatever the result. */
    /* Closing releases a lock of the file, even where a forked child still has the open file. */
    int (*close)(struct rmq_vfs *vfs, int fd, struct rmq_error *err);
    /* Closes a descriptor in a forked child, which shares the open file with its parent: the lock
     * stays the parent's. Takes no lock of the process. */
    void (*close_inherited)(struct rmq_vfs *vfs, int fd);
    int (*stat)(struct rmq_vfs *vfs, const char *path, struct rmq_file_info *info,
                struct rmq_error *err);
    /* Reads up to size bytes; *got is smaller only at the end of the file. */
    int (*read)(struct rmq_vfs *vfs, int fd, void *buffer, size_t size, int64_t at, size_t *got,
                struct rmq_error *err);
    /* Writes everything or fails; after a failure any part may have been written. */
    int (*write)(struct rmq_vfs *vfs, int fd, const void *data, size_t size, int64_t at,
                 struct rmq_error *err);
    int (*resize)(struct rmq_vfs *vfs, int fd, int64_t size, struct rmq_error *err);
    /* Reserves blocks for [at, at + size) without changing bytes or file size, so that a later
     * store through a mapping cannot fail for lack of space. Where the file system has no such
     * call, blocks are reserved by writing zeros, so the range must not hold data yet. */
    int (*allocate)(struct rmq_vfs *vfs, int fd, int64_t at, int64_t size, struct rmq_error *err);
    /* As allocate, but RMQ_UNSUPPORTED where zeros would have to be written. */
    int (*allocate_unwritten)(struct rmq_vfs *vfs, int fd, int64_t at, int64_t size,
                              struct rmq_error *err);
    /* Makes [at, at + size) read as zeros, by freeing the blocks where that is possible. */
    int (*zero)(struct rmq_vfs *vfs, int fd, int64_t at, int64_t size, struct rmq_error *err);
    /* First offset >= at that may hold data; the file's size when only a hole follows. */
    int (*next_data)(struct rmq_vfs *vfs, int fd, int64_t at, int64_t *found,
                     struct rmq_error *err);
    /* First offset >= at that may be in a hole, which has no blocks; the file's size when there is
     * none. */
    int (*next_hole)(struct rmq_vfs *vfs, int fd, int64_t at, int64_t *found,
                     struct rmq_error *err);
    /* Data and what is needed to find it are on the device when this returns RMQ_OK, stores through
     * mappings of the file included. After a failure the state of unsynced bytes is unknown, and a
     * later success does not change that. */
    int (*sync)(struct rmq_vfs *vfs, int fd, struct rmq_error *err);
    /* Has the device begin to write what sync would wait for. A hint: it promises nothing. */
    void (*start_sync)(struct rmq_vfs *vfs, int fd);
    /* As sync, for the file of a mapping whose descriptor may be closed already. The range [base,
     * base + size) is widened to whole pages. */
    int (*sync_map)(struct rmq_vfs *vfs, uint8_t *base, int64_t size, struct rmq_error *err);
    int (*map)(struct rmq_vfs *vfs, int fd, int64_t size, bool writable, uint8_t **base,
               struct rmq_error *err);
    int (*unmap)(struct rmq_vfs *vfs, uint8_t *base, int64_t size, struct rmq_error *err);
    /* base is page aligned down by the callee; failures of hints are ignored, LOCK may fail. */
    int (*advise)(struct rmq_vfs *vfs, uint8_t *base, int64_t size, enum rmq_advice advice,
                  struct rmq_error *err);
    int (*rename)(struct rmq_vfs *vfs, const char *from, const char *to, struct rmq_error *err);
    /* RMQ_NOT_FOUND: the file is missing. */
    int (*unlink)(struct rmq_vfs *vfs, const char *path, struct rmq_error *err);
    /* Makes the folder and its parents; RMQ_OK when it exists. New folders are synced into their
     * parents. */
    int (*make_directory)(struct rmq_vfs *vfs, const char *path, struct rmq_error *err);
    /* Makes the one folder and syncs nothing; RMQ_OK when it exists. RMQ_NOT_FOUND: its parent is
     * missing. */
    int (*make_unsynced_directory)(struct rmq_vfs *vfs, const char *path, struct rmq_error *err);
    /* Removes an empty folder. */
    int (*remove_directory)(struct rmq_vfs *vfs, const char *path, struct rmq_error *err);
    /* On return the names that were made, renamed or unlinked in the folder are on the device. */
    int (*sync_directory)(struct rmq_vfs *vfs, const char *path, struct rmq_error *err);
    int (*list)(struct rmq_vfs *vfs, const char *path, rmq_list_visit *visit, void *context,
                struct rmq_error *err);
    /* Exclusive advisory lock of byte 0, which java.nio's FileLock also takes, held by the open
     * file until its descriptor is closed: a second one in the same process conflicts too.
     * RMQ_LOCKED with the holder's pid in *holder (0 when unknown). */
    int (*lock)(struct rmq_vfs *vfs, int fd, int64_t *holder, struct rmq_error *err);
    int (*disk_usage)(struct rmq_vfs *vfs, const char *path, struct rmq_disk_usage *usage,
                      struct rmq_error *err);
};

/* The file system of the machine. The object is constant and shared. */
struct rmq_vfs *rmq_vfs_posix(void);

/* directory/name, with its NUL. RMQ_INVALID: it is longer than capacity. */
int rmq_path_join(char *out, size_t capacity, const char *directory, const char *name,
                  struct rmq_error *err);

#endif
