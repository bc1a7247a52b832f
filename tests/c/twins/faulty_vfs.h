/* faulty_vfs.h -- the file system of the machine, with calls that fail or wait when a test plans
 * it.
 *
 * For tests of what the core does when a disk is full, fails or does not answer.
 */
#ifndef RMQ_FAULTY_VFS_H
#define RMQ_FAULTY_VFS_H

#include "base/vfs.h"

enum rmq_vfs_call {
    RMQ_CALL_ANY,
    RMQ_CALL_OPEN,
    RMQ_CALL_READ,
    RMQ_CALL_WRITE,
    RMQ_CALL_RESIZE,
    RMQ_CALL_ALLOCATE,
    RMQ_CALL_ZERO,
    RMQ_CALL_SYNC,
    RMQ_CALL_MAP,
    RMQ_CALL_RENAME,
    RMQ_CALL_UNLINK,
    RMQ_CALL_DIRECTORY, /* make, remove, sync, list */
};

/* A twin of the POSIX door that counts calls and fails chosen ones. Free it with rmq_vfs_fault_free
 * after everything opened through it is closed. */
struct rmq_vfs *rmq_vfs_fault_new(void);
void rmq_vfs_fault_free(struct rmq_vfs *vfs);
/* Calls number first .. first + count - 1 of this kind (counted from 0 since arming) fail with
 * os_errno. A failing write stores the first short_bytes bytes nevertheless. Arming again replaces
 * the plan. */
void rmq_vfs_fault_arm(struct rmq_vfs *vfs, enum rmq_vfs_call call, int64_t first, int64_t count,
                       int os_errno, size_t short_bytes);
/* How many calls of this kind were made since arming. */
int64_t rmq_vfs_fault_count(struct rmq_vfs *vfs, enum rmq_vfs_call call);
/* Longer than any test holds a call. */
#define RMQ_VFS_HELD_S 200
/* From now on calls of this kind wait, as those of a disk that does not answer, each for at most
 * RMQ_VFS_HELD_S: a test that fails meanwhile ends. */
void rmq_vfs_fault_hold(struct rmq_vfs *vfs, enum rmq_vfs_call call);
/* Those that wait go on, each as the plan says by then; none waits any more. */
void rmq_vfs_fault_release(struct rmq_vfs *vfs);
/* How many wait. */
int64_t rmq_vfs_fault_held(struct rmq_vfs *vfs);

#endif
