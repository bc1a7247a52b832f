#include <assert.h>
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>

#include "replica/pump_link.h"

#define EVENTS_MAX 64
/* Share of RMQ_PUMP_NAP_MS; afterwards the thread sleeps until it is woken. */
#define NAPS_MAX 20
/* Identifies the source of an event; links have greater numbers. */
enum { OF_WAKE, OF_LOG };

/* ---- the lock, and notifications ---- */

void rmq_pump_enter(struct rmq_pump *pump)
{
    atomic_fetch_add(&pump->callers, 1);
    pthread_mutex_lock(&pump->lock);
}

void rmq_pump_leave(struct rmq_pump *pump)
{
    int32_t before = atomic_fetch_sub(&pump->callers, 1);
    assert(before > 0);
    if (before == 1)
        pthread_cond_signal(&pump->no_callers);
    pthread_mutex_unlock(&pump->lock);

    /* For a caller that found the lock taken. The thread may be asleep. */
    if (atomic_load(&pump->is_kicked))
        rmq_pump_write_one(pump->wake_fd);
}

static void notice(struct rmq_pump *pump)
{
    if (!pump->is_noticed)
        rmq_pump_write_one(pump->notice_fd);
    pump->is_noticed = true;
}

/* ---- links ---- */

struct rmq_pump_link *rmq_pump_find(const struct rmq_pump *pump, int64_t id)
{
    assert(pump->count <= pump->capacity);

    for (size_t i = 0; i < pump->count; ++i)
        if (pump->links[i]->id == id)
            return pump->links[i];
    return NULL;
}

void rmq_pump_remove_link(struct rmq_pump *pump, struct rmq_pump_link *link)
{
    assert(pump->count > 0);

    size_t at = 0;
    while (pump->links[at] != link) {
        ++at;
        assert(at < pump->count);
    }

    memmove(pump->links + at, pump->links + at + 1, (pump->count - at - 1) * sizeof *pump->links);
    --pump->count;
    rmq_pump_link_free(link);
}

/* The connection's new owner must have its descriptor alone. */
void rmq_pump_let_go(struct rmq_pump *pump, struct rmq_pump_link *link)
{
    if (link->fd < 0)
        return;

    (void)epoll_ctl(pump->epoll_fd, EPOLL_CTL_DEL, link->fd, NULL);
    (void)close(link->fd);
    link->fd = -1;

    if (!pump->is_shut)
        rmq_store_end_stream(link->store);
}

/* ---- the thread ---- */

static void run_turn(struct rmq_pump *pump, struct rmq_pump_link *link)
{
    assert(link->store);

    if (link->end != RMQ_PUMP_RUNS)
        return;

    if (link->is_master)
        rmq_pump_send_turn(link, &pump->options);
    else
        rmq_pump_receive_turn(link);
}

/* Milliseconds until the link needs another turn: 0 at once, -1 only after an event. */
static int next_turn(struct rmq_pump *pump, struct rmq_pump_link *link)
{
    if (link->end != RMQ_PUMP_RUNS) {
        notice(pump);
        return -1;
    }

    if (link->has_more)
        return 0;

    int wait = link->is_master && rmq_pump_send_must_tell(link) ? RMQ_PUMP_TELL_MS : -1;

    if (link->has_news) {
        int64_t left = link->reported_ms + RMQ_PUMP_REPORT_MS - rmq_monotonic_ms();
        if (left <= 0)
            notice(pump);
        else if (wait < 0 || left < wait)
            wait = (int)left;
    }
    assert(wait >= -1);
    return wait;
}

/* How long the thread may sleep after it has read the log up to log_end. While the log grows from
 * time to time the thread sleeps for short times, and no append has to wake it: puts that wait for
 * replicas do so (kick). */
static int await_log(struct rmq_pump *pump, int64_t log_end, int wait)
{
    assert(wait != 0);

    if (pump->is_armed)
        return wait;

    if (log_end != pump->seen_end)
        pump->naps = 0;
    pump->seen_end = log_end;

    if (pump->options.board && pump->naps < NAPS_MAX) {
        ++pump->naps;
        return RMQ_PUMP_NAP_MS;
    }

    pump->is_armed = !rmq_wakeup_arm(&pump->wakeup, log_end);
    return pump->is_armed ? wait : 0;
}

/* Gives each link a turn; returns how long the thread may sleep then. */
static int run_turns(struct rmq_pump *pump)
{
    int wait = -1;
    bool is_sending = false;
    int64_t log_end = rmq_store_end(pump->options.store);

    for (size_t i = 0; i < pump->count; ++i) {
        struct rmq_pump_link *link = pump->links[i];
        run_turn(pump, link);
        int link_wait = next_turn(pump, link);
        if (link_wait >= 0 && (wait < 0 || link_wait < wait))
            wait = link_wait;
        is_sending = is_sending || (link->is_master && link->end == RMQ_PUMP_RUNS);
    }

    assert(wait >= -1);
    return wait != 0 && is_sending ? await_log(pump, log_end, wait) : wait;
}

void rmq_pump_end_all(struct rmq_pump *pump)
{
    assert(pump->count <= pump->capacity);

    struct rmq_error error;
    rmq_fail(&error, RMQ_CLOSED, -1, "the store was closed");

    pump->is_shut = true;
    for (size_t i = 0; i < pump->count; ++i) {
        rmq_pump_link_end(pump->links[i], RMQ_PUMP_ERROR, &error);
        rmq_pump_let_go(pump, pump->links[i]);
        notice(pump);
    }
}

static void take_events(struct rmq_pump *pump, const struct epoll_event *events, int count)
{
    assert(count <= EVENTS_MAX);

    for (int i = 0; i < count; ++i) {
        uint32_t what = events[i].events;
        if (events[i].data.u64 == OF_WAKE) {
            rmq_pump_read_all(pump->wake_fd);
            continue;
        }

        if (events[i].data.u64 == OF_LOG) {
            pump->is_armed = false;
            continue;
        }

        struct rmq_pump_link *link = rmq_pump_find(pump, (int64_t)events[i].data.u64);
        if (!link || link->end != RMQ_PUMP_RUNS)
            continue;

        if (what & (EPOLLIN | EPOLLRDHUP | EPOLLHUP | EPOLLERR))
            link->may_read = true;
        if (what & (EPOLLRDHUP | EPOLLHUP | EPOLLERR))
            link->is_hung_up = true;
        if (what & (EPOLLOUT | EPOLLHUP | EPOLLERR))
            link->may_write = true;
    }
}

static void *run(void *argument)
{
    struct rmq_pump *pump = argument;
    struct epoll_event events[EVENTS_MAX];

    pthread_mutex_lock(&pump->lock);
    while (!pump->stop) {
        int wait = -1;
        if (!pump->is_shut && rmq_gate_enter(pump->options.gate)) {
            wait = run_turns(pump);
            rmq_gate_leave(pump->options.gate);
        } else {
            rmq_pump_end_all(pump);
        }

        while (atomic_load(&pump->callers) > 0)
            pthread_cond_wait(&pump->no_callers, &pump->lock);
        pthread_mutex_unlock(&pump->lock);

        if (atomic_exchange(&pump->is_kicked, false))
            wait = 0;

        int count = epoll_wait(pump->epoll_fd, events, EVENTS_MAX, wait);
        pthread_mutex_lock(&pump->lock);
        take_events(pump, events, count);
    }
    pthread_mutex_unlock(&pump->lock);
    return NULL;
}

/* The thread inside checks the mark before it leaves, and sends what was appended before the
 * mark. */
void rmq_pump_kick(void *owner, bool may_send)
{
    struct rmq_pump *pump = owner;
    assert(pump);
    bool was_kicked = atomic_exchange(&pump->is_kicked, true);

    if (!may_send) {
        if (!was_kicked)
            rmq_pump_write_one(pump->wake_fd);
        return;
    }

    while (atomic_load(&pump->is_kicked) && pthread_mutex_trylock(&pump->lock) == 0) {
        bool has_more = false;
        atomic_store(&pump->is_kicked, false);

        for (size_t i = 0; i < pump->count && !pump->stop && !pump->is_shut; ++i) {
            struct rmq_pump_link *link = pump->links[i];
            if (!link->is_master || link->end != RMQ_PUMP_RUNS)
                continue;
            rmq_pump_send_frames(link);
            has_more = has_more || link->has_more || link->end != RMQ_PUMP_RUNS;
        }

        if (has_more)
            rmq_pump_write_one(pump->wake_fd);
        pthread_mutex_unlock(&pump->lock);
    }
}

/* ---- opening and closing ---- */

static void free_pump(struct rmq_pump *pump)
{
    assert(pump->count == 0);

    if (pump->epoll_fd >= 0)
        (void)close(pump->epoll_fd);
    if (pump->wake_fd >= 0)
        (void)close(pump->wake_fd);
    if (pump->notice_fd >= 0)
        (void)close(pump->notice_fd);

    pthread_cond_destroy(&pump->no_callers);
    pthread_mutex_destroy(&pump->lock);

    rmq_gate_release(pump->options.gate);
    free(pump->links);
    free(pump);
}

static int watch(struct rmq_pump *pump, int fd, uint64_t what)
{
    assert(fd >= 0);

    /* Each write to an eventfd makes an edge, even if the previous one was not read. */
    struct epoll_event event = {.events = EPOLLIN | EPOLLET, .data.u64 = what};
    return epoll_ctl(pump->epoll_fd, EPOLL_CTL_ADD, fd, &event);
}

static int start(struct rmq_pump *pump, struct rmq_error *err)
{
    assert(pump->options.store && pump->wake_fd >= 0);

    struct rmq_wakeups *growth = rmq_store_wakeups(pump->options.store, RMQ_GREW);
    int status = rmq_wakeup_open(&pump->wakeup, growth, err);
    if (status != RMQ_OK)
        return status;

    int error = 0;
    if (watch(pump, pump->wake_fd, OF_WAKE) != 0 || watch(pump, pump->wakeup.fd, OF_LOG) != 0)
        error = errno;

    if (!error)
        error = pthread_create(&pump->thread, NULL, run, pump);
    if (!error) {
        if (pump->options.board)
            rmq_hook_set(rmq_ack_board_on_wait(pump->options.board), rmq_pump_kick, pump);
        return RMQ_OK;
    }

    rmq_wakeup_close(&pump->wakeup);
    return rmq_fail_os(err, error, "starting the thread of a pump");
}

int rmq_pump_open(const struct rmq_pump_options *options, struct rmq_pump **out,
                  struct rmq_error *err)
{
    assert(options->store && options->gate && out);

    struct rmq_pump *pump = calloc(1, sizeof *pump);
    if (!pump)
        return rmq_fail(err, RMQ_NO_MEMORY, -1, "a pump");

    pump->options = *options;
    rmq_gate_retain(options->gate);
    pthread_mutex_init(&pump->lock, NULL);
    pthread_cond_init(&pump->no_callers, NULL);

    pump->next_link = OF_LOG + 1;
    pump->epoll_fd = epoll_create1(EPOLL_CLOEXEC);
    pump->wake_fd = eventfd(0, EFD_NONBLOCK | EFD_CLOEXEC);
    pump->notice_fd = eventfd(0, EFD_NONBLOCK | EFD_CLOEXEC);
    pump->synced.fd = pump->wake_fd;
    pump->flushed.fd = pump->notice_fd;

    int status = RMQ_OK;
    if (pump->epoll_fd < 0 || pump->wake_fd < 0 || pump->notice_fd < 0)
        status = rmq_fail_os(err, errno, "making the descriptors of a pump");
    if (status == RMQ_OK)
        status = start(pump, err);

    if (status != RMQ_OK) {
        free_pump(pump);
        return status;
    }
    *out = pump;
    return RMQ_OK;
}

void rmq_pump_close(struct rmq_pump *pump, bool is_forked)
{
    if (!is_forked) {
        /* An open store stays open until it has no pointer to the pump. */
        bool is_open = rmq_gate_enter(pump->options.gate);
        if (pump->options.board)
            rmq_hook_unset(rmq_ack_board_on_wait(pump->options.board), pump);

        rmq_pump_enter(pump);
        pump->stop = true;
        rmq_pump_write_one(pump->wake_fd);
        rmq_pump_leave(pump);
        pthread_join(pump->thread, NULL);

        if (is_open) {
            for (size_t i = 0; i < pump->count; ++i)
                rmq_pump_let_go(pump, pump->links[i]);
            rmq_wakeup_close(&pump->wakeup);
            rmq_store_forget_flush(pump->options.store, &pump->synced);
            rmq_store_forget_flush(pump->options.store, &pump->flushed);
            rmq_gate_leave(pump->options.gate);
        } else {
            rmq_wakeup_abandon(&pump->wakeup);
        }
    }

    while (pump->count > 0)
        rmq_pump_remove_link(pump, pump->links[0]);
    free_pump(pump);
}

void rmq_pump_before_fork(struct rmq_pump *pump)
{
    rmq_pump_enter(pump);
}

void rmq_pump_go_on(struct rmq_pump *pump)
{
    rmq_pump_leave(pump);
}

static void disown_fd(int *fd)
{
    if (*fd >= 0)
        (void)close(*fd);
    *fd = -1;
}

void rmq_pump_disown(struct rmq_pump *pump)
{
    /* The epoll instance is shared with the parent: no descriptor is removed from it. */
    for (size_t i = 0; i < pump->count; ++i)
        disown_fd(&pump->links[i]->fd);

    disown_fd(&pump->wakeup.fd);
    disown_fd(&pump->epoll_fd);
    disown_fd(&pump->wake_fd);
    disown_fd(&pump->notice_fd);

    pthread_mutex_unlock(&pump->lock);
}

int rmq_pump_notice_fd(const struct rmq_pump *pump)
{
    return pump->notice_fd;
}
