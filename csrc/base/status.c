#include "base/status.h"

#include <assert.h>
#include <errno.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

const char *rmq_status_text(int status)
{
    switch (status) {
#define RMQ_STATUS_CASE(name, code, text) \
    case RMQ_##name:                      \
        return text;
        RMQ_STATUS_TABLE(RMQ_STATUS_CASE)
#undef RMQ_STATUS_CASE
    default:
        return "unknown status";
    }
}

static void fill(struct rmq_error *err, int status, int os_errno, int64_t at_offset,
                 const char *format, va_list arguments)
{
    assert(err && format);
    assert(status != RMQ_OK);

    err->status = status;
    err->os_errno = os_errno;
    err->at_offset = at_offset;
    if (vsnprintf(err->detail, sizeof err->detail, format, arguments) < 0)
        err->detail[0] = '\0';
}

int rmq_fail(struct rmq_error *err, int status, int64_t at_offset, const char *format, ...)
{
    assert(status != RMQ_OK);
    assert(format);

    if (err) {
        va_list arguments;
        va_start(arguments, format);
        fill(err, status, 0, at_offset, format, arguments);
        va_end(arguments);
    }
    return status;
}

bool rmq_error_lacks_descriptor(const struct rmq_error *err)
{
    assert(err);
    return err->os_errno == EMFILE || err->os_errno == ENFILE;
}

int rmq_fail_os(struct rmq_error *err, int os_errno, const char *format, ...)
{
    assert(os_errno != 0);
    assert(format);

    int status = os_errno == ENOSPC || os_errno == EDQUOT ? RMQ_NO_SPACE : RMQ_IO;

    if (err) {
        va_list arguments;
        va_start(arguments, format);
        fill(err, status, os_errno, -1, format, arguments);
        va_end(arguments);

        char buffer[128];
        const char *text = strerror_r(os_errno, buffer, sizeof buffer);
        size_t used = strlen(err->detail);
        assert(used < sizeof err->detail);
        (void)snprintf(err->detail + used, sizeof err->detail - used, ": %s", text);
    }
    return status;
}
