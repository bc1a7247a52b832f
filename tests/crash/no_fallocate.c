/* no_fallocate.c -- preloaded, it makes every file system one that cannot allocate or free blocks
 * without a write, as NFS 3.
 */
#include <errno.h>
#include <fcntl.h>

int fallocate(int fd, int mode, off_t at, off_t size)
{
    (void)fd, (void)mode, (void)at, (void)size;
    errno = EOPNOTSUPP;
    return -1;
}

int fallocate64(int fd, int mode, off64_t at, off64_t size)
{
    return fallocate(fd, mode, at, size);
}
