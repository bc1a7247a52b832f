/* memory_vfs.h -- a door to files that live in memory.
 *
 * It answers as the one of the machine does, without a disk. A mapping is the block of bytes the
 * file consists of, so that the address sanitizer sees a look behind the file's end. What would
 * kill a process on a disk ends it here too: a file that shrinks while it is mapped.
 */
#ifndef RMQ_MEMORY_VFS_H
#define RMQ_MEMORY_VFS_H

#include "base/vfs.h"

/* Files larger than this are refused as if the disk were full. */
#define MEMORY_FILE_SIZE_MAX (4 << 20)
/* With this many files and folders no further one can be made. */
#define MEMORY_FILES_MAX 500

struct memory_vfs;

struct memory_vfs *memory_vfs_new(void);
/* Ends the process when a descriptor or a mapping is still open. */
void memory_vfs_free(struct memory_vfs *vfs);
/* The door itself. */
struct rmq_vfs *memory_vfs_door(struct memory_vfs *vfs);

/* Any change from here on ends the process. */
void memory_vfs_freeze(struct memory_vfs *vfs);
/* A copy of all names and bytes that may be changed. */
struct memory_vfs *memory_vfs_copy(struct memory_vfs *vfs);

/* Makes a file and the folders above it: size bytes, the first content_size of them given. A file
 * of that name is replaced. False when the path is none, or runs through a file. */
bool memory_vfs_add(struct memory_vfs *vfs, const char *path, int64_t size, const uint8_t *content,
                    size_t content_size);
/* Whether both hold the same files with the same bytes under this folder. Nobody may be at work. */
bool memory_vfs_equal(struct memory_vfs *a, struct memory_vfs *b, const char *folder);

/* Files "FOLDER/NAME" of file_size bytes, count of them from start on, filled from the input. */
struct fuzz_input;
void memory_vfs_add_queue(struct memory_vfs *vfs, const char *folder, int64_t start,
                          int64_t file_size, size_t count, struct fuzz_input *content);

#endif
