#include "replica/pump_link.h"

#include <assert.h>
#include <errno.h>
#include <stdlib.h>
#include <sys/socket.h>

void rmq_pump_link_end(struct rmq_pump_link *link, enum rmq_pump_end end,
                       const struct rmq_error *error)
{
    assert(end != RMQ_PUMP_RUNS && end != RMQ_PUMP_ACKED);

    if (link->end != RMQ_PUMP_RUNS)
        return;

    link->end = end;
    if (error)
        link->error = *error;
}

void rmq_pump_link_free(struct rmq_pump_link *link)
{
    assert(link);

    if (link->fd >= 0)
        (void)close(link->fd);
    free(link->input);
    free(link);
}

static void break_off(struct rmq_pump_link *link, int os_errno, const char *verb)
{
    assert(os_errno != 0 && verb);

    struct rmq_error error;
    rmq_fail_os(&error, os_errno, "%s on the connection of a replica", verb);

    bool is_ours = os_errno == EFAULT || os_errno == ENOMEM || os_errno == ENOBUFS;
    rmq_pump_link_end(link, is_ours ? RMQ_PUMP_ERROR : RMQ_PUMP_CLOSED, &error);
}

bool rmq_pump_link_read(struct rmq_pump_link *link)
{
    assert(link->input_end <= link->input_capacity);

    size_t room = link->input_capacity - link->input_end;
    ssize_t came;
    assert(room > 0);

    do
        came = recv(link->fd, link->input + link->input_end, room, MSG_DONTWAIT);
    while (came < 0 && errno == EINTR);

    if (came > 0) {
        link->input_end += (size_t)came;
        assert(link->input_end <= link->input_capacity);
        /* Fewer bytes than there was room for: the socket is empty, and further bytes make an edge.
         * The end of the stream may have made its edge already. */
        if ((size_t)came < room && !link->is_hung_up)
            link->may_read = false;
        return true;
    }

    if (came == 0) {
        rmq_pump_link_end(link, RMQ_PUMP_CLOSED, NULL);
        return false;
    }

    if (errno == EAGAIN || errno == EWOULDBLOCK)
        link->may_read = false;
    else
        break_off(link, errno, "receiving");
    return false;
}

size_t rmq_pump_link_write(struct rmq_pump_link *link, const struct iovec *parts, size_t count)
{
    assert(parts && count > 0);

    struct msghdr message = {.msg_iov = (struct iovec *)parts, .msg_iovlen = count};
    ssize_t sent;

    do
        sent = sendmsg(link->fd, &message, MSG_NOSIGNAL | MSG_DONTWAIT);
    while (sent < 0 && errno == EINTR);

    if (sent > 0) {
        link->progress.wrote_ms = rmq_monotonic_ms();
        link->progress.blocked_ms = -1;
        return (size_t)sent;
    }
    if (sent < 0 && errno != EAGAIN && errno != EWOULDBLOCK) {
        break_off(link, errno, "sending");
        return 0;
    }

    link->may_write = false;
    if (link->progress.blocked_ms < 0)
        link->progress.blocked_ms = rmq_monotonic_ms();
    return 0;
}
