#include <assert.h>
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>

#include "replica/pump_link.h"

/* ---- beginning ---- */

/* The common beginning of every kind of link. */
static int make_link(const struct rmq_pump *pump, const uint8_t *leftover, size_t leftover_size,
                     size_t capacity, struct rmq_pump_link **out, struct rmq_error *err)
{
    assert(leftover || leftover_size == 0);

    if (leftover_size > RMQ_PUMP_LEFTOVER_SIZE_MAX)
        return rmq_fail(err, RMQ_INVALID, -1, "%zu bytes left over; the limit is %d", leftover_size,
                        RMQ_PUMP_LEFTOVER_SIZE_MAX);

    struct rmq_pump_link *link = calloc(1, sizeof *link);
    if (!link)
        return rmq_fail(err, RMQ_NO_MEMORY, -1, "a link");

    link->fd = -1;
    /* One more byte, so that there is room to receive after an incomplete frame. */
    link->input_capacity = capacity > leftover_size ? capacity : leftover_size + 1;
    link->input = malloc(link->input_capacity);
    if (!link->input) {
        int status = rmq_fail(err, RMQ_NO_MEMORY, -1, "%zu bytes for a link", link->input_capacity);
        rmq_pump_link_free(link);
        return status;
    }

    if (leftover_size > 0)
        memcpy(link->input, leftover, leftover_size);
    link->input_end = leftover_size;

    link->store = pump->options.store;
    link->may_read = link->may_write = true;
    link->progress = (struct rmq_link_progress){
        .heard_ms = -1,
        .wrote_ms = rmq_monotonic_ms(),
        .blocked_ms = -1,
        .caught_up_ms = -1,
    };

    link->slot = -1;
    link->until = link->mark_offset = -1;
    link->told_ms = link->progress.wrote_ms;
    *out = link;
    return RMQ_OK;
}

/* Room for one more link. */
static int make_place(struct rmq_pump *pump, struct rmq_error *err)
{
    assert(pump->count <= pump->capacity && pump->capacity <= 2 * RMQ_PUMP_LINKS_MAX);

    if (pump->count == RMQ_PUMP_LINKS_MAX)
        return rmq_fail(err, RMQ_BUSY, -1, "%zu links run, which is the limit", pump->count);
    if (pump->count < pump->capacity)
        return RMQ_OK;

    size_t capacity = pump->capacity ? pump->capacity * 2 : 8;
    struct rmq_pump_link **links = realloc(pump->links, capacity * sizeof *links);
    if (!links)
        return rmq_fail(err, RMQ_NO_MEMORY, -1, "places for %zu links", capacity);

    pump->links = links;
    pump->capacity = capacity;
    return RMQ_OK;
}

/* Adds the link, with a duplicate of fd, to the running links; frees it on failure. From here on
 * the log is not cut. The duplicate is made under the pump's lock, which is held during a fork, so
 * a child finds every descriptor that it has to close. */
static int add_link(struct rmq_pump *pump, struct rmq_pump_link *link, int fd, int64_t *id,
                    struct rmq_error *err)
{
    assert(link->fd < 0 && link->end == RMQ_PUMP_RUNS);

    link->fd = fcntl(fd, F_DUPFD_CLOEXEC, 0);
    int status = link->fd < 0 ? rmq_fail_os(err, errno, "duplicating a socket") : RMQ_OK;
    if (status == RMQ_OK)
        status =
            rmq_store_begin_stream(link->store, link->progress.next_offset, !link->is_master, err);
    if (status != RMQ_OK) {
        rmq_pump_link_free(link);
        return status;
    }

    status = make_place(pump, err);
    link->id = pump->next_link;
    struct epoll_event event = {.events = EPOLLIN | EPOLLOUT | EPOLLRDHUP | EPOLLET,
                                .data.u64 = (uint64_t)link->id};

    if (status == RMQ_OK && epoll_ctl(pump->epoll_fd, EPOLL_CTL_ADD, link->fd, &event) != 0)
        status = rmq_fail_os(err, errno, "waiting for a socket");
    if (status != RMQ_OK) {
        rmq_pump_let_go(pump, link);
        rmq_pump_link_free(link);
        return status;
    }

    assert(pump->count < pump->capacity);
    ++pump->next_link;
    pump->links[pump->count++] = link;
    *id = link->id;
    rmq_pump_write_one(pump->wake_fd);
    return RMQ_OK;
}

/* ---- reports ---- */

/* Reads the rest of a frame that was sent in part from the log. */
static int take_unsent(struct rmq_pump_link *link, struct rmq_pump_report *report,
                       struct rmq_error *err)
{
    assert(report);

    struct rmq_mapped_file *file = NULL;
    size_t size = rmq_pump_link_unsent(link);
    if (size == 0)
        return RMQ_OK;

    uint8_t *unsent = malloc(size);
    if (!unsent)
        return rmq_fail(err, RMQ_NO_MEMORY, -1, "%zu bytes for the rest of a frame", size);

    if (link->body_size > 0) {
        int status = rmq_store_pin(link->store, link->body_offset, &file, err);
        if (status != RMQ_OK) {
            free(unsent);
            return status;
        }
    }

    size_t of_head = link->sent < link->head_size ? link->head_size - link->sent : 0;
    assert(of_head <= size);
    memcpy(unsent, link->head + (link->head_size - of_head), of_head);
    if (file) {
        const uint8_t *body = rmq_mapped_file_base(file) + (link->body_offset - file->start);
        memcpy(unsent + of_head, body + ((size_t)link->body_size - (size - of_head)),
               size - of_head);
        rmq_mapped_file_unpin(file);
    }

    report->unsent = unsent;
    report->unsent_size = size;
    return RMQ_OK;
}

/* Moves the state of an ended link to its report, and removes the link. */
static void report_end(struct rmq_pump *pump, struct rmq_pump_link *link,
                       struct rmq_pump_report *report)
{
    assert(link->end != RMQ_PUMP_RUNS);

    struct rmq_error error;
    /* The log of a closed store cannot be read: such a connection cannot be used any further. */
    if (!pump->is_shut && take_unsent(link, report, &error) != RMQ_OK) {
        link->end = RMQ_PUMP_ERROR;
        link->error = error;
    }

    rmq_pump_let_go(pump, link);

    report->end = link->end;
    report->error = link->error;
    report->progress = link->progress;
    report->leftover = link->input;
    report->leftover_begin = link->input_begin;
    report->leftover_end = link->input_end;

    link->input = NULL;
    rmq_pump_remove_link(pump, link);
}

void rmq_pump_report_finish(struct rmq_pump_report *report)
{
    assert(report);

    free(report->leftover);
    free(report->unsent);
    report->leftover = report->unsent = NULL;
}

/* ---- calls ---- */

/* Takes the lock and enters the gate. RMQ_CLOSED: neither was taken. */
static int enter_store(struct rmq_pump *pump, struct rmq_error *err)
{
    rmq_pump_enter(pump);
    if (!pump->is_shut && rmq_gate_enter(pump->options.gate))
        return RMQ_OK;
    rmq_pump_leave(pump);
    return rmq_fail(err, RMQ_CLOSED, -1, "the store was closed");
}

static void leave_store(struct rmq_pump *pump)
{
    rmq_gate_leave(pump->options.gate);
    rmq_pump_leave(pump);
}

/* Takes the lock, and enters the gate of an open store. False: the store was closed, and every link
 * has ended. */
static bool enter_store_if_open(struct rmq_pump *pump)
{
    rmq_pump_enter(pump);
    if (!pump->is_shut && rmq_gate_enter(pump->options.gate))
        return true;

    rmq_pump_end_all(pump);
    return false;
}

/* Frees the link if it cannot run. */
static int run_link(struct rmq_pump *pump, struct rmq_pump_link *link, int fd, int64_t *id,
                    struct rmq_error *err)
{
    assert(id);

    int status = enter_store(pump, err);
    if (status != RMQ_OK) {
        rmq_pump_link_free(link);
        return status;
    }

    status = add_link(pump, link, fd, id, err);
    leave_store(pump);
    return status;
}

static int no_link(int64_t link, struct rmq_error *err)
{
    return rmq_fail(err, RMQ_NOT_FOUND, -1, "no link %" PRId64 " runs", link);
}

int rmq_pump_send(struct rmq_pump *pump, const struct rmq_pump_send_options *options, int64_t *id,
                  struct rmq_error *err)
{
    assert(options && id);

    struct rmq_pump_link *link = NULL;
    bool has_checks_alone = options->is_checked && !options->has_epochs;
    size_t head_size =
        has_checks_alone
            ? 0
            : rmq_ha_head_size(options->has_epochs ? RMQ_HA_TRANSFER : RMQ_HA_CLASSIC_DATA,
                               options->is_checked);
    if (options->batch_size < 1 || options->batch_size > RMQ_HA_FRAME_SIZE_MAX - (int)head_size ||
        options->epoch < 0 || options->epoch_start < 0 || options->until < -1 || has_checks_alone ||
        options->acked_offset < -1 || options->acked_offset > options->next_offset)
        return rmq_fail(err, RMQ_INVALID, -1,
                        "a batch of %d bytes, epoch %d from %" PRId64 ", until %" PRId64
                        ", acknowledged %" PRId64 " of %" PRId64,
                        options->batch_size, options->epoch, options->epoch_start, options->until,
                        options->acked_offset, options->next_offset);

    int status =
        make_link(pump, options->leftover, options->leftover_size, RMQ_PUMP_ACKS_SIZE, &link, err);
    if (status != RMQ_OK)
        return status;

    link->is_master = true;
    link->has_epochs = options->has_epochs;
    link->is_checked = options->is_checked;
    link->proof_offset = options->proof_offset;
    link->epoch = options->epoch;
    link->epoch_start = options->epoch_start;
    link->batch_size = options->batch_size;
    link->slot = options->slot;
    link->until = options->until;
    link->lagged = true;

    link->progress.next_offset = link->whole_offset = options->next_offset;
    link->progress.acked_offset = options->acked_offset;
    link->progress.acked_epoch = options->acked_epoch;
    link->progress.confirm_offset = options->said_confirm;

    return run_link(pump, link, options->fd, id, err);
}

int rmq_pump_receive(struct rmq_pump *pump, const struct rmq_pump_receive_options *options,
                     int64_t *id, struct rmq_error *err)
{
    assert(options && id);

    struct rmq_pump_link *link = NULL;
    if ((options->is_checked && !options->has_epochs) || options->border < 0 ||
        options->border > options->next_offset || options->acked_offset < -1 ||
        options->acked_offset > options->next_offset)
        return rmq_fail(err, RMQ_INVALID, -1,
                        "border %" PRId64 ", acknowledged %" PRId64 ", next %" PRId64,
                        options->border, options->acked_offset, options->next_offset);

    int status = make_link(pump, options->leftover, options->leftover_size, RMQ_PUMP_RECEIVE_SIZE,
                           &link, err);
    if (status != RMQ_OK)
        return status;

    link->has_epochs = options->has_epochs;
    link->is_checked = options->is_checked;
    link->epoch = options->epoch;
    link->epoch_start = options->epoch_start;
    link->flush_watch = options->ack_flushed ? &pump->synced : NULL;

    link->progress.next_offset = options->next_offset;
    link->progress.acked_offset = options->acked_offset;
    link->progress.acked_epoch = options->acked_epoch;
    link->progress.confirm_offset = -1;
    link->progress.border = options->border;

    return run_link(pump, link, options->fd, id, err);
}

int rmq_pump_set_until(struct rmq_pump *pump, int64_t id, int64_t until, struct rmq_error *err)
{
    rmq_pump_enter(pump);

    struct rmq_pump_link *link = rmq_pump_find(pump, id);

    if (link && link->is_master) {
        link->until = until;
        rmq_pump_write_one(pump->wake_fd);
    }

    rmq_pump_leave(pump);
    return link && link->is_master ? RMQ_OK : no_link(id, err);
}

int rmq_pump_heartbeat(struct rmq_pump *pump, int64_t id, struct rmq_error *err)
{
    int status = enter_store(pump, err);
    if (status != RMQ_OK)
        return status;

    struct rmq_pump_link *link = rmq_pump_find(pump, id);
    if (link && link->end == RMQ_PUMP_RUNS && link->is_master) {
        link->wants_empty_frame = rmq_pump_link_unsent(link) == 0;
        rmq_pump_write_one(pump->wake_fd);
    } else if (link && link->end == RMQ_PUMP_RUNS) {
        rmq_pump_receive_heartbeat(link);
    }

    leave_store(pump);
    return link ? RMQ_OK : no_link(id, err);
}

int rmq_pump_flush(struct rmq_pump *pump, int64_t offset, struct rmq_error *err)
{
    int status = enter_store(pump, err);
    if (status != RMQ_OK)
        return status;

    status = rmq_store_ask_flush(pump->options.store, &pump->flushed, offset, err);
    leave_store(pump);
    return status;
}

int rmq_pump_progress(struct rmq_pump *pump, int64_t id, struct rmq_link_progress *progress,
                      struct rmq_error *err)
{
    assert(progress);

    rmq_pump_enter(pump);

    const struct rmq_pump_link *link = rmq_pump_find(pump, id);
    if (link)
        *progress = link->progress;
    rmq_pump_leave(pump);
    return link ? RMQ_OK : no_link(id, err);
}

int rmq_pump_stop(struct rmq_pump *pump, int64_t id, struct rmq_pump_report *report,
                  struct rmq_error *err)
{
    assert(report);

    *report = (struct rmq_pump_report){.link = id};
    bool is_inside = enter_store_if_open(pump);

    struct rmq_pump_link *link = rmq_pump_find(pump, id);
    if (link) {
        rmq_pump_link_end(link, RMQ_PUMP_STOPPED, NULL);
        report_end(pump, link, report);
    }

    if (is_inside)
        rmq_gate_leave(pump->options.gate);
    rmq_pump_leave(pump);
    return link ? RMQ_OK : no_link(id, err);
}

int rmq_pump_poll(struct rmq_pump *pump, struct rmq_pump_report *report)
{
    assert(report);

    *report = (struct rmq_pump_report){.link = -1};
    bool is_inside = enter_store_if_open(pump);
    int64_t now = rmq_monotonic_ms();

    for (size_t i = 0; i < pump->count && report->link < 0; ++i) {
        struct rmq_pump_link *link = pump->links[i];
        if (link->end != RMQ_PUMP_RUNS) {
            report->link = link->id;
            report_end(pump, link, report);
        } else if (link->has_news && now - link->reported_ms >= RMQ_PUMP_REPORT_MS) {
            link->has_news = false;
            link->reported_ms = now;
            report->link = link->id;
            report->end = RMQ_PUMP_ACKED;
            report->progress = link->progress;
        }
    }

    if (report->link < 0) {
        rmq_pump_read_all(pump->notice_fd);
        pump->is_noticed = false;
    }

    if (is_inside)
        rmq_gate_leave(pump->options.gate);
    rmq_pump_leave(pump);
    return report->link < 0 ? RMQ_END : RMQ_OK;
}
