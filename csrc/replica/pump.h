/* pump.h -- the thread that moves the log between two replicas.
 *
 * A pump serves connections after their handshake. It does all work that needs no decision. For
 * everything else it returns the connection, and rmqstore/replication decides.
 *
 * Master's link. Bytes of the log from next_offset on are sent in frames (ha_frame.h) of at most
 * batch_size body bytes, each within one log file, with the present confirm offset and one epoch
 * label. Valid acknowledgements are between the last one and the end of the sent bytes. Each comes
 * with the last epoch that its slave has stored: a frame with checks has this epoch; without checks
 * the link's epoch counts as stored once bytes after proof_offset are acknowledged. The link is
 * returned before a frame that would reach `until`, because that frame has the next label. When the
 * confirm offset rises and no frame carries it, an empty frame does so RMQ_PUMP_TELL_MS later.
 *
 * With is_checked all frames carry checks (ha_frame.h); without it no frame may carry checks.
 *
 * Slave's link. Data frames with the link's label that continue the log are appended, and their
 * records checked as they become whole (border.h). Only then the confirm offset rises (where the
 * store has one) and the end of the checked records is acknowledged, once for all frames that had
 * arrived. With the option to acknowledge the disk, only records on the disk are acknowledged. No
 * link syncs: the flusher does (rmq_flusher_ask), and the link continues until too many bytes wait
 * for the disk. Empty frames with the label, at the log's end, are heartbeats.
 *
 * A connection is returned in the state that a parser needs: `leftover` holds the received bytes
 * from the first unprocessed one on, and `unsent` the rest of a frame that was sent in part.
 *
 * Memory: a link keeps RMQ_PUMP_ACKS_SIZE (master) or from RMQ_PUMP_RECEIVE_SIZE to
 * RMQ_HA_FRAME_SIZE_MAX bytes (slave, growing with the received part of a large frame), and the
 * leftover it was given. Bytes that wait to be sent are in the log and in the socket.
 *
 * The log must not be cut while links run: rmq_store_truncate refuses. Every call may come from any
 * thread but the pump's. All calls return soon, unless a slave's link needs the next log file from
 * a disk that does not respond.
 */
#ifndef RMQ_PUMP_H
#define RMQ_PUMP_H

#include "base/gate.h"
#include "format/ha_frame.h"
#include "replica/ack_board.h"
#include "store/store_view.h"

#define RMQ_PUMP_LINKS_MAX 1024
#define RMQ_PUMP_ACKS_SIZE 4096
#define RMQ_PUMP_RECEIVE_SIZE 262144
/* Two frames of the largest size: an incomplete one, and the one after it. */
#define RMQ_PUMP_LEFTOVER_SIZE_MAX (2 * RMQ_HA_FRAME_SIZE_MAX)
#define RMQ_PUMP_TELL_MS 10
/* Milliseconds between two reports of a running link. */
#define RMQ_PUMP_REPORT_MS 10
#define RMQ_PUMP_NAP_MS 1

enum rmq_pump_end {
    RMQ_PUMP_RUNS,
    RMQ_PUMP_ACKED,   /* the link runs, and acknowledgements moved */
    RMQ_PUMP_STOPPED, /* ended by rmq_pump_stop */
    RMQ_PUMP_CLOSED,  /* closed by the peer, or the connection broke */
    RMQ_PUMP_FOREIGN, /* the leftover begins with a frame that the pump does not process */
    RMQ_PUMP_UNTIL,
    RMQ_PUMP_DAMAGED, /* error.at_offset: from there on nothing was acknowledged as whole records */
    RMQ_PUMP_ERROR,
};

/* Times are those of CLOCK_MONOTONIC in milliseconds. */
struct rmq_link_progress {
    int64_t next_offset;  /* after the last byte sent (frames begun count), or appended */
    int64_t acked_offset; /* acknowledgement received or sent last; -1: none yet */
    int32_t acked_epoch;  /* the epoch with it, from the frame or proven; -1: none */
    int64_t heard_ms;     /* when the last whole frame was received; -1: none yet */
    int64_t wrote_ms;     /* when bytes last went out */
    int64_t blocked_ms; /* since when the peer has not read the waiting bytes; -1: no bytes wait */
    int64_t
        caught_up_ms; /* master: the slave is known to hold the log of this moment; -1: unknown */
    int64_t confirm_offset; /* master: sent last; slave: the greatest one received; -1 */
    int64_t border;         /* slave: records before it are whole and checked */
};

/* The epoch of a slave whose protocol has no epochs, and whose log is known to equal its
 * master's. */
#define RMQ_LINK_NO_EPOCHS INT32_MAX

struct rmq_pump_send_options {
    int fd; /* non-blocking; duplicated */
    bool has_epochs;
    bool is_checked;
    int32_t batch_size; /* 1 to RMQ_HA_FRAME_SIZE_MAX less a head */
    int32_t slot;       /* slot of the board; negative: none */
    int32_t epoch;
    int64_t epoch_start;
    int64_t next_offset;
    int64_t acked_offset;
    int32_t acked_epoch;
    int64_t proof_offset; /* without checks: a slave that holds more has stored `epoch`, or, in the
                             protocol without epochs, has compared its log */
    int64_t until;        /* -1: no end */
    int64_t said_confirm;
    const uint8_t *leftover; /* copied */
    size_t leftover_size;
};

struct rmq_pump_receive_options {
    int fd;
    bool has_epochs;
    bool is_checked;
    bool ack_flushed; /* acknowledge only bytes on the disk */
    int32_t epoch;
    int64_t epoch_start;
    int64_t next_offset;  /* the log's end, or where an empty log shall begin */
    int64_t acked_offset; /* acknowledgement sent last on this connection; -1: none */
    int32_t acked_epoch;  /* and its epoch */
    int64_t border;       /* records before it are checked; a record begins at it */
    const uint8_t *leftover;
    size_t leftover_size;
};

struct rmq_pump_report {
    int64_t link;
    enum rmq_pump_end end;
    struct rmq_link_progress progress;
    struct rmq_error error; /* with CLOSED (status RMQ_OK: an orderly end), DAMAGED, ERROR */
    uint8_t *leftover;
    size_t leftover_begin,
        leftover_end; /* the rest of a frame; its body is the log between these offsets */
    uint8_t *unsent;
    size_t unsent_size;
};

struct rmq_pump;

struct rmq_pump_options {
    struct rmq_store *store;
    struct rmq_gate *gate; /* the store's; retained */
    /* One pump at a time uses it. NULL: acknowledgements are reported only. */
    struct rmq_ack_board *board;
};

/* Starts the thread. */
int rmq_pump_open(const struct rmq_pump_options *options, struct rmq_pump **pump,
                  struct rmq_error *err);
/* Stops every link, ends the thread, frees the pump. The store must be open, or its close must have
 * returned. In a forked child there is no thread; descriptors and memory are freed. */
void rmq_pump_close(struct rmq_pump *pump, bool is_forked);

/* Around a fork. After the first call the pump stands still. Then the parent lets it continue, and
 * the child disowns its copy, which closes the child's descriptors, connections among them. The
 * parent's descriptors stay open. The pump must not be closed meanwhile. */
void rmq_pump_before_fork(struct rmq_pump *pump);
void rmq_pump_go_on(struct rmq_pump *pump);
void rmq_pump_disown(struct rmq_pump *pump);

/* Readable when there are reports to poll. */
int rmq_pump_notice_fd(const struct rmq_pump *pump);

/* RMQ_BUSY: RMQ_PUMP_LINKS_MAX links run. RMQ_OUT_OF_RANGE: next_offset is not in the log, or, of a
 * slave's link, not its end. RMQ_CLOSED, RMQ_NO_MEMORY, RMQ_IO. */
int rmq_pump_send(struct rmq_pump *pump, const struct rmq_pump_send_options *options, int64_t *link,
                  struct rmq_error *err);
int rmq_pump_receive(struct rmq_pump *pump, const struct rmq_pump_receive_options *options,
                     int64_t *link, struct rmq_error *err);

/* RMQ_NOT_FOUND, here and below: there is no such link, or its end was reported. */
int rmq_pump_set_until(struct rmq_pump *pump, int64_t link, int64_t until, struct rmq_error *err);
/* Sends an empty frame with next_offset, or the last acknowledgement again. Does nothing while a
 * frame is sent in part. */
int rmq_pump_heartbeat(struct rmq_pump *pump, int64_t link, struct rmq_error *err);
/* Requests that the log becomes durable below offset, and returns at once. After the next sync,
 * successful or not, rmq_pump_notice_fd becomes readable, even without a report. If the log is
 * durable already, it does not. Statuses as rmq_flusher_ask; RMQ_CLOSED. */
int rmq_pump_flush(struct rmq_pump *pump, int64_t offset, struct rmq_error *err);
int rmq_pump_progress(struct rmq_pump *pump, int64_t link, struct rmq_link_progress *progress,
                      struct rmq_error *err);
/* Ends the link: on return the pump uses neither its descriptor nor the log for it. A link that had
 * already ended reports that end. */
int rmq_pump_stop(struct rmq_pump *pump, int64_t link, struct rmq_pump_report *report,
                  struct rmq_error *err);

/* Returns the next report, RMQ_END when there is none. After a report with any end but
 * RMQ_PUMP_ACKED the link is gone. */
int rmq_pump_poll(struct rmq_pump *pump, struct rmq_pump_report *report);
void rmq_pump_report_finish(struct rmq_pump_report *report);

/* For callers that wait for replicas: sends the bytes that were just appended. The caller's thread
 * sends them if it may and no other thread is sending; otherwise the pump's thread does so soon.
 * Never waits. owner is the pump. With a board, waiting puts notify the pump. An append without a
 * waiting put is then sent within RMQ_PUMP_NAP_MS, without work on the appending thread. */
void rmq_pump_kick(void *owner, bool may_send);

#endif
