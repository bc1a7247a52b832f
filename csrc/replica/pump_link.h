/* pump_link.h -- one connection of a pump (pump.h), what the pump's thread does for it, and the
 * pump itself.
 *
 * The pump's lock is held around all calls. Calls that use the log are inside the store's gate.
 */
#ifndef RMQ_PUMP_LINK_H
#define RMQ_PUMP_LINK_H

#include <sys/uio.h>
#include <unistd.h>

#include "file/wakeup.h"
#include "log/border.h"
#include "replica/pump.h"

/* Bytes of bodies sent or received in one turn of a link; other links wait that long. */
#define RMQ_PUMP_TURN_SIZE (2 << 20)

struct rmq_pump_link {
    struct rmq_store *store;
    int64_t id;
    int fd;
    bool is_master;
    bool has_epochs;
    bool is_checked;
    bool may_read,
        may_write; /* readable or writable as far as known: the descriptor is edge-triggered */
    bool is_hung_up;
    bool has_more; /* the turn ended with work left */
    bool has_news; /* acknowledgements to be reported while the link runs */
    bool lagged;
    bool wants_empty_frame;
    struct rmq_flush_watch
        *flush_watch; /* slave: the pump's watcher, when the disk is acknowledged */
    enum rmq_pump_end end;
    struct rmq_error error;
    struct rmq_link_progress progress;
    int32_t epoch;
    int64_t epoch_start;
    int64_t reported_ms; /* when the link was last reported as running */

    uint8_t *input; /* received and unprocessed bytes: from input_begin to input_end */
    size_t input_begin, input_end, input_capacity;

    /* The frame being sent: its head, then bytes of the log. `sent` counts up to head_size +
     * body_size. */
    uint8_t head[RMQ_HA_HEAD_SIZE_MAX];
    size_t head_size;
    int64_t body_offset;
    int32_t body_size;
    size_t sent;

    /* Master. */
    int32_t batch_size;
    int32_t slot;
    int64_t until;
    int64_t proof_offset;
    int64_t whole_offset;         /* after the last byte of completely sent frames */
    int64_t mark_offset, mark_ms; /* the end of the log at that time; -1: no mark */
    int64_t told_ms;              /* when confirm_offset was sent */
};

/* Also closes a link that was opened in part. */
void rmq_pump_link_free(struct rmq_pump_link *link);
/* Ends the link. Later ends have no effect. */
void rmq_pump_link_end(struct rmq_pump_link *link, enum rmq_pump_end end,
                       const struct rmq_error *error);
/* Receives into the room after input_end. False: nothing was received. */
bool rmq_pump_link_read(struct rmq_pump_link *link);
/* Sends parts of one or several frames. Returns the number of bytes sent, 0 when the socket is
 * full. */
size_t rmq_pump_link_write(struct rmq_pump_link *link, const struct iovec *parts, size_t count);
static inline size_t rmq_pump_link_unsent(const struct rmq_pump_link *link)
{
    return link->head_size + (size_t)link->body_size - link->sent;
}

/* One turn of a master's link: acknowledgements, then frames. */
void rmq_pump_send_turn(struct rmq_pump_link *link, const struct rmq_pump_options *options);
/* Sends frames only. */
void rmq_pump_send_frames(struct rmq_pump_link *link);
/* Whether there is a confirm offset that the slave could use and has not been sent. */
bool rmq_pump_send_must_tell(const struct rmq_pump_link *link);

/* One turn of a slave's link. */
void rmq_pump_receive_turn(struct rmq_pump_link *link);
/* Sends the rest of an acknowledgement that was sent in part. */
void rmq_pump_receive_flush(struct rmq_pump_link *link);
/* Sends the last acknowledgement again. */
void rmq_pump_receive_heartbeat(struct rmq_pump_link *link);

/* ---- the pump ---- */

struct rmq_pump {
    struct rmq_pump_options options;
    pthread_mutex_t lock;
    _Atomic int32_t callers; /* callers that want or hold the lock: they precede the next turn */
    pthread_cond_t no_callers;
    _Atomic bool is_kicked;
    struct rmq_pump_link **links;
    size_t count, capacity;
    int64_t next_link;
    int epoll_fd;
    int wake_fd;   /* wakes the thread */
    int notice_fd; /* wakes the poller */
    bool is_noticed;
    bool stop;
    bool is_shut;  /* the store was closed */
    bool is_armed; /* the next append makes an edge */
    int64_t seen_end;
    int naps; /* since when the log has been seen to grow */
    pthread_t thread;
    struct rmq_wakeup wakeup;
    struct rmq_flush_watch synced;  /* wakes the thread */
    struct rmq_flush_watch flushed; /* wakes the poller */
};

static inline void rmq_pump_write_one(int fd)
{
    const uint64_t one = 1;
    (void)!write(fd, &one, sizeof one);
}

static inline void rmq_pump_read_all(int fd)
{
    uint64_t count;
    (void)!read(fd, &count, sizeof count);
}

struct rmq_pump_link *rmq_pump_find(const struct rmq_pump *pump, int64_t id);
/* Closes the descriptor, and allows cutting the log. The caller is inside the store's gate, or
 * is_shut is set. */
void rmq_pump_let_go(struct rmq_pump *pump, struct rmq_pump_link *link);
/* Removes the link and frees it. */
void rmq_pump_remove_link(struct rmq_pump *pump, struct rmq_pump_link *link);
/* Ends every link, because the store was closed. */
void rmq_pump_end_all(struct rmq_pump *pump);
/* Takes the pump's lock; the thread lets callers go first. */
void rmq_pump_enter(struct rmq_pump *pump);
void rmq_pump_leave(struct rmq_pump *pump);

#endif
