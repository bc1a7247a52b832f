/* pump.h -- the thread that moves the log between two replicas.
 *
 * A pump serves connections that are past their handshake. It does what needs no decision, and
 * hands the connection back with whatever else it meets, for rmqstore/replication to decide.
 *
 * Master's link. Bytes of the log from next_offset on go out in frames (ha_frame.h) of at most
 * batch_size body bytes, each within one log file, with the confirm offset of the moment and one
 * epoch label. Acknowledgements from the last one to what was sent are taken, each with the last
 * epoch that its slave has stored: the frame names it where it carries checks; else the link's is
 * known to be stored once bytes behind proof_offset are acknowledged. The link is handed back
 * before a frame that would reach `until`: that one carries the next label. When the confirm offset
 * rises and no frame carries it, an empty frame does, RMQ_PUMP_TELL_MS later.
 *
 * With is_checked all frames carry checks (ha_frame.h), without it none may.
 *
 * Slave's link. Data frames with the link's label that continue the log are appended, and their
 * records checked as they become whole (border.h). Only then the confirm offset rises (where the
 * store has one) and the end of the checked records is acknowledged, once for all frames that had
 * arrived; where the disk is acknowledged, as far as they are on it. No link syncs: the flusher
 * does (rmq_flusher_ask), and the link goes on until too much waits for the disk. Empty frames of
 * the label at the log's end are heard.
 *
 * Handed back are connections in the state in which a parser would be: `leftover` are the bytes
 * received from the first one that was not understood on. Of a frame that went out in part,
 * `unsent` is the rest.
 *
 * Memory: a link keeps RMQ_PUMP_ACKS_SIZE (master) or from RMQ_PUMP_RECEIVE_SIZE to
 * RMQ_HA_FRAME_SIZE_MAX bytes (slave, growing with what came of a large frame), and what it was
 * given as leftover; what waits to be sent lies in the log and in the socket.
 *
 * The log must not be cut while links run: rmq_store_truncate refuses. Every call may come from any
 * thread but the pump's. All return soon, unless a slave's link needs the next log file from a disk
 * that does not answer.
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
/* Two frames of the largest size: one that is not whole, and one behind it. */
#define RMQ_PUMP_LEFTOVER_SIZE_MAX (2 * RMQ_HA_FRAME_SIZE_MAX)
#define RMQ_PUMP_TELL_MS 10
/* Between two reports that a link goes on. */
#define RMQ_PUMP_REPORT_MS 10
#define RMQ_PUMP_NAP_MS 1

enum rmq_pump_end {
    RMQ_PUMP_RUNS,
    RMQ_PUMP_ACKED,   /* it runs, and acknowledgements moved */
    RMQ_PUMP_STOPPED, /* by rmq_pump_stop */
    RMQ_PUMP_CLOSED,  /* by the peer, or the connection broke */
    RMQ_PUMP_FOREIGN, /* the leftover begins with what is not for the pump */
    RMQ_PUMP_UNTIL,
    RMQ_PUMP_DAMAGED, /* error.at_offset: nothing from there on was acknowledged as whole records */
    RMQ_PUMP_ERROR,
};

/* Times are those of CLOCK_MONOTONIC in milliseconds. */
struct rmq_link_progress {
    int64_t next_offset;    /* behind the last byte sent (frames begun count), or appended */
    int64_t acked_offset;   /* heard or sent last; -1: none yet */
    int32_t acked_epoch;    /* with it, named or proven; -1: none */
    int64_t heard_ms;       /* when the last whole frame was taken; -1: none yet */
    int64_t wrote_ms;       /* when bytes last went out */
    int64_t blocked_ms;     /* since when the peer reads nothing of what waits; -1: nothing waits */
    int64_t caught_up_ms;   /* master: the last moment whose log the slave is known to hold; -1 */
    int64_t confirm_offset; /* master: sent last; slave: the greatest one the master named; -1 */
    int64_t border;         /* slave: up to here records are whole and checked */
};

/* The epoch of a slave whose protocol has none and whose log is known to be its master's. */
#define RMQ_LINK_NO_EPOCHS INT32_MAX

struct rmq_pump_send_options {
    int fd; /* non-blocking; duplicated */
    bool has_epochs;
    bool is_checked;
    int32_t batch_size; /* 1 to RMQ_HA_FRAME_SIZE_MAX less a head */
    int32_t slot;       /* of the board; negative: none */
    int32_t epoch;
    int64_t epoch_start;
    int64_t next_offset;
    int64_t acked_offset;
    int32_t acked_epoch;
    int64_t proof_offset; /* without checks: who holds more has stored `epoch`, or compared its log
                             where the protocol has no epochs */
    int64_t until;        /* -1: none */
    int64_t said_confirm;
    const uint8_t *leftover; /* copied */
    size_t leftover_size;
};

struct rmq_pump_receive_options {
    int fd;
    bool has_epochs;
    bool is_checked;
    bool ack_flushed; /* acknowledge what is on the disk */
    int32_t epoch;
    int64_t epoch_start;
    int64_t next_offset;  /* the log's end, or where an empty log shall begin */
    int64_t acked_offset; /* sent last on this connection; -1: nothing */
    int32_t acked_epoch;  /* and the epoch named with it */
    int64_t border;       /* records below are checked; a record begins there */
    const uint8_t *leftover;
    size_t leftover_size;
};

struct rmq_pump_report {
    int64_t link;
    enum rmq_pump_end end;
    struct rmq_link_progress progress;
    struct rmq_error error; /* with CLOSED (status RMQ_OK: in good order), DAMAGED, ERROR */
    uint8_t *leftover;
    size_t leftover_begin, leftover_end; /* its bytes lie between */
    uint8_t *unsent;
    size_t unsent_size;
};

struct rmq_pump;

struct rmq_pump_options {
    struct rmq_store *store;
    struct rmq_gate *gate; /* the store's; retained */
    /* One pump at a time has it. NULL: acknowledgements are reported, and nothing else. */
    struct rmq_ack_board *board;
};

/* Starts the thread. */
int rmq_pump_open(const struct rmq_pump_options *options, struct rmq_pump **pump,
                  struct rmq_error *err);
/* Stops every link, ends the thread, frees the pump. The store is open or was closed: not between.
 * In a forked child, where there is no thread, descriptors and memory go. */
void rmq_pump_close(struct rmq_pump *pump, bool is_forked);

/* Around a fork: on return of the first the pump stands still, until the parent lets it go on and
 * the child disowns its copy: that closes the child's descriptors, connections among them. The
 * parent's stay. The pump is not closed meanwhile. */
void rmq_pump_before_fork(struct rmq_pump *pump);
void rmq_pump_go_on(struct rmq_pump *pump);
void rmq_pump_disown(struct rmq_pump *pump);

/* Readable when there is something to poll. */
int rmq_pump_notice_fd(const struct rmq_pump *pump);

/* RMQ_BUSY: RMQ_PUMP_LINKS_MAX links run. RMQ_OUT_OF_RANGE: next_offset is not in the log, or, of a
 * slave's link, not its end. RMQ_CLOSED, RMQ_NO_MEMORY, RMQ_IO. */
int rmq_pump_send(struct rmq_pump *pump, const struct rmq_pump_send_options *options, int64_t *link,
                  struct rmq_error *err);
int rmq_pump_receive(struct rmq_pump *pump, const struct rmq_pump_receive_options *options,
                     int64_t *link, struct rmq_error *err);

/* RMQ_NOT_FOUND, here and below: no such link, or its end was reported. */
int rmq_pump_set_until(struct rmq_pump *pump, int64_t link, int64_t until, struct rmq_error *err);
/* Sends an empty frame that names next_offset, or the last acknowledgement again; nothing while a
 * frame was sent in part. */
int rmq_pump_heartbeat(struct rmq_pump *pump, int64_t link, struct rmq_error *err);
/* Has the log made durable below offset, for the one who polls, and does not wait for it: once a
 * sync is over, well or not, rmq_pump_notice_fd is readable, be there a report or none. Nothing
 * comes where it is durable by now. As rmq_flusher_ask; RMQ_CLOSED. */
int rmq_pump_flush(struct rmq_pump *pump, int64_t offset, struct rmq_error *err);
int rmq_pump_progress(struct rmq_pump *pump, int64_t link, struct rmq_link_progress *progress,
                      struct rmq_error *err);
/* Ends the link: on return the pump touches neither its descriptor nor the log for it. A link that
 * had ended already reports that end. */
int rmq_pump_stop(struct rmq_pump *pump, int64_t link, struct rmq_pump_report *report,
                  struct rmq_error *err);

/* The next report, RMQ_END when there is none. After one with another end than RMQ_PUMP_ACKED the
 * link is gone. */
int rmq_pump_poll(struct rmq_pump *pump, struct rmq_pump_report *report);
void rmq_pump_report_finish(struct rmq_pump_report *report);

/* For callers that wait for replicas: sends what was just appended, on the caller's thread when it
 * may and no other one is at it, else on the pump's, soon. Never waits. owner is the pump. With a
 * board waiting puts notify the pump; an append without a waiting put is then sent within
 * RMQ_PUMP_NAP_MS, and costs the one who appends nothing. */
void rmq_pump_kick(void *owner, bool may_send);

#endif
