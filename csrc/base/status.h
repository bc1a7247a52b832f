/* status.h -- the results that a call of the core may return.
 *
 * Every function that can fail returns one of these and fills a struct rmq_error only when it does.
 * The table is the single source: rmqstore/errors.py maps the same names, and a test compares the
 * two.
 */
#ifndef RMQ_STATUS_H
#define RMQ_STATUS_H

#include <stdbool.h>
#include <stdint.h>

#define RMQ_STATUS_TABLE(X)                             \
    X(OK, 0, "ok")                                      \
    X(NOT_FOUND, 1, "not found")                        \
    X(END, 2, "end of data")                            \
    X(INVALID, 3, "invalid argument")                   \
    X(NO_MEMORY, 4, "out of memory")                    \
    X(IO, 5, "input/output error")                      \
    X(NO_SPACE, 6, "no space left on device")           \
    X(CORRUPT, 7, "corrupt data")                       \
    X(LOCKED, 8, "store is held by another process")    \
    X(CLOSED, 9, "store is closed")                     \
    X(READ_ONLY, 10, "store is opened read-only")       \
    X(OUT_OF_RANGE, 11, "offset out of range")          \
    X(MESSAGE_ILLEGAL, 12, "message rejected")          \
    X(PROPERTIES_TOO_LARGE, 13, "properties too large") \
    X(NOT_WRITABLE, 14, "store is not writable")        \
    X(PAGE_CACHE_BUSY, 15, "page cache is busy")        \
    X(FLUSH_TIMEOUT, 16, "flush timed out")             \
    X(TIMEOUT, 17, "timed out")                         \
    X(BUSY, 18, "still in use")                         \
    X(UNSUPPORTED, 19, "not supported")                 \
    X(FORKED, 20, "store was opened before fork")

enum rmq_status {
#define RMQ_STATUS_ENUM(name, code, text) RMQ_##name = (code),
    RMQ_STATUS_TABLE(RMQ_STATUS_ENUM)
#undef RMQ_STATUS_ENUM
};

/* Where and why a call failed. os_errno is 0 unless the system refused something; at_offset is -1
 * unless a byte or queue offset shows the position. */
struct rmq_error {
    int32_t status;
    int32_t os_errno;
    int64_t at_offset;
    char detail[400];
};

const char *rmq_status_text(int status);

/* Fills *err (which may be NULL) and returns status, so that callers can write
 * `return rmq_fail(err, RMQ_CORRUPT, offset, "...")`. The text is cut to fit. */
int rmq_fail(struct rmq_error *err, int status, int64_t at_offset, const char *format, ...)
    __attribute__((format(printf, 4, 5)));

/* As rmq_fail for a failed system call: os_errno is kept, its text is appended,
 * and ENOSPC, EDQUOT become RMQ_NO_SPACE, all others RMQ_IO. */
int rmq_fail_os(struct rmq_error *err, int os_errno, const char *format, ...)
    __attribute__((format(printf, 3, 4)));

/* Whether the system had no file descriptor to give. The failed call did nothing, and the same call
 * may succeed later. */
bool rmq_error_lacks_descriptor(const struct rmq_error *err);

#endif
