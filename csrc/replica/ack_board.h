/* ack_board.h -- what replicas hold, how far that confirms the log, and the puts that wait for it.
 *
 * A connected replica has a slot. Each acknowledgement on it is one atomic step: the confirm offset
 * rises as far as the rule allows, then every put that has its copies is resolved, whatever its
 * place in the line. The rule is decided in rmqstore/replication/group/quorum.py. A decision
 * (group/board.py) freezes the board, then thaws it with the new rule, so that nothing is confirmed
 * by a rule that is about to change.
 *
 * Copies include the master's own, which ends where the log ends at that moment, or at its flushed
 * end where copies count on the disk only. All offsets are physical. Any thread may make any call,
 * except where one thread is named, or on a model (ack_log.h). Only wait and take sleep.
 */
#ifndef RMQ_ACK_BOARD_H
#define RMQ_ACK_BOARD_H

#include "replica/ack_inbox.h"
#include "replica/ack_log.h"
#include "replica/ack_slots.h"

/* Needs of more copies than can be: such puts wait until their time is up. */
#define RMQ_ACK_COPIES_MAX 1026
#define RMQ_ACK_REASON_SIZE 240

/* RocketMQ's PutMessageStatus; the numbers are places in its order. */
enum rmq_put_status {
    RMQ_PUT_OK = 0,
    RMQ_PUT_FLUSH_SLAVE_TIMEOUT = 2,
    RMQ_PUT_SLAVE_NOT_AVAILABLE = 3,
    RMQ_PUT_SERVICE_NOT_AVAILABLE = 4,
    RMQ_PUT_OS_PAGE_CACHE_BUSY = 8,
    RMQ_PUT_IN_SYNC_REPLICAS_NOT_ENOUGH = 10,
};

struct rmq_ack_rule {
    const int32_t *counted; /* slots whose copies count */
    size_t counted_count;
    const int32_t *waited; /* slots all of which must hold what is confirmed */
    size_t waited_count;
    bool has_set;           /* there is a sync-state set: waited has a meaning */
    bool is_missing;        /* one that is waited for has no slot: nothing more is confirmed */
    bool is_gated;          /* false: everything is confirmed once it is in the log */
    int32_t confirm_copies; /* without a set: confirmed is what has so many copies */
    int32_t epoch;          /* copies of replicas that have stored this one count, -1: all */
    int64_t epoch_start;    /* and holds what there was when it began */
    int32_t status;         /* what is said to a put that asks for copies; RMQ_PUT_OK admits it */
    const char *reason;     /* why not; shortened to RMQ_ACK_REASON_SIZE - 1 bytes */
    int32_t copies;         /* what such a put needs that names no number */
    bool needs_all;         /* it also needs a copy on each that is waited for */
    bool is_flushed;        /* the master's own copy counts once it is on the disk */
    int32_t present;        /* -1, or: a put that needs more copies than this is refused */
    int32_t available;      /* -1, or: one in vain that asked for more gets SLAVE_NOT_AVAILABLE */
    int64_t lease_end_ms;   /* from then on, by the log's clock, no put is admitted or
                               acknowledged; INT64_MAX for no lease */
    int64_t waiting_max;
    int64_t timeout_ms;
};

struct rmq_ack_board;

/* The log's owner must outlive the board, or rmq_ack_board_detach. NULL without memory. */
struct rmq_ack_board *rmq_ack_board_create(struct rmq_ack_log log);
/* Neither waits nor calls may be left. */
void rmq_ack_board_destroy(struct rmq_ack_board *board);

/* A slot that this board has not used before; its acknowledged offset is -1. RMQ_BUSY:
 * RMQ_ACK_SLOTS_MAX are open. */
int rmq_ack_board_open_slot(struct rmq_ack_board *board, int32_t *slot, struct rmq_error *err);
/* Its copy no longer counts; a replica that was waited for and is gone lets nothing be confirmed
 * until the next rule. A slot that is not open: nothing to do. */
void rmq_ack_board_close_slot(struct rmq_ack_board *board, int32_t slot);
/* What the replica says it holds, as the truth of this moment, also when it is less than before,
 * and the last epoch that it is known to have stored. Judged by the caller: 0 <= offset <= the
 * log's end. A slot that is not open: nothing to do. */
void rmq_ack_board_ack(struct rmq_ack_board *board, int32_t slot, int32_t epoch, int64_t offset);
/* Number of copies of all below end_offset by the present rule, the master's own included. */
int32_t rmq_ack_board_copies_of(struct rmq_ack_board *board, int64_t end_offset);
/* Up to RMQ_ACK_SLOTS_MAX open slots, their epochs and offsets; returns how many. */
size_t rmq_ack_board_acks(struct rmq_ack_board *board, int32_t *slots, int32_t *epochs,
                          int64_t *offsets);

/* From now on acknowledgements are only written down. Returns the confirm offset, which moves no
 * more. One thread decides: freeze and thaw come from it, in turn. */
int64_t rmq_ack_board_freeze(struct rmq_ack_board *board);
/* Takes the rule, confirms and resolves by it. RMQ_INVALID: it names a slot that is not open;
 * nothing changed. The first thaw lets a board work. */
int rmq_ack_board_thaw(struct rmq_ack_board *board, const struct rmq_ack_rule *rule,
                       struct rmq_error *err);
/* Ends the role. Waiting puts, and puts admitted earlier, fail with FLUSH_SLAVE_TIMEOUT. The board
 * is frozen. */
void rmq_ack_board_abandon(struct rmq_ack_board *board);
/* Abandons, and touches the store no more. Before the store is closed. */
void rmq_ack_board_detach(struct rmq_ack_board *board);
int64_t rmq_ack_board_confirm_offset(struct rmq_ack_board *board);
int64_t rmq_ack_board_waiting(struct rmq_ack_board *board);

/* Whether a put may be appended, and what it then waits for: an enum rmq_put_status. copies is 0
 * for what the rule has. With is_replicated false only a lease that is over refuses. */
int rmq_ack_board_admit(struct rmq_ack_board *board, bool is_replicated, int32_t copies,
                        struct rmq_ack_need *need);
/* Why rmq_ack_board_admit refused that need. */
void rmq_ack_board_reason(struct rmq_ack_board *board, int status, const struct rmq_ack_need *need,
                          char reason[RMQ_ACK_REASON_SIZE]);

/* Run, without any lock of the board, when a put begins to wait: the sender of the log need not be
 * woken by every append then; and when the confirm offset rose by no acknowledgement. */
struct rmq_hook *rmq_ack_board_on_wait(struct rmq_ack_board *board);

/* Waits until there are the copies that an appended put needs, timeout_ms at most, a negative one
 * standing for the rule's. Returns an enum rmq_put_status, and how many copies there were. */
int rmq_ack_board_wait(struct rmq_ack_board *board, const struct rmq_ack_need *need,
                       int64_t end_offset, int64_t timeout_ms, int32_t *copies);
/* The same in three steps, for a caller that does something else between slices of the wait. The
 * waiter (need, end_offset are set, the rest is zeros) is the board's until the wait is ended.
 * begin_wait returns the rule's time limit. await is true once the put is resolved. end_wait ends
 * the wait of a put that is not: status and copies are set on return. */
int64_t rmq_ack_board_begin_wait(struct rmq_ack_board *board, struct rmq_ack_waiter *waiter);
bool rmq_ack_waiter_await(struct rmq_ack_waiter *waiter, int64_t timeout_ms);
void rmq_ack_board_end_wait(struct rmq_ack_board *board, struct rmq_ack_waiter *waiter);
/* Whether an appended put that has all it waited for may be acknowledged: RMQ_PUT_OK, or
 * RMQ_PUT_FLUSH_SLAVE_TIMEOUT when the role or the lease under which it was admitted has ended. The
 * last check of every put, whatever its durability: another master may have been elected while the
 * put was appended, flushed or woken. Takes no lock. */
int rmq_ack_board_acknowledge(struct rmq_ack_board *board, const struct rmq_ack_need *need);
/* Lets waiter (need, end_offset, inbox, owner are set) wait. Its inbox receives it once it is
 * resolved. Returns false when it is resolved already. The board keeps no time limit for it. */
bool rmq_ack_board_begin(struct rmq_ack_board *board, struct rmq_ack_waiter *waiter);
/* Sends the log up to the puts that have begun to wait, on this thread where it may; inside of the
 * store's gate. One call serves all earlier puts. Without a call the pump sends the log later. */
void rmq_ack_board_send_now(struct rmq_ack_board *board);
/* Ends the wait of one whose time is up: status and copies are set. False: it was resolved before,
 * and is in its inbox or about to be. */
bool rmq_ack_board_withdraw(struct rmq_ack_board *board, struct rmq_ack_waiter *waiter);
/* Whether a put that asks for copies should have its own flushed: nothing is resolved before. */
bool rmq_ack_board_is_flushed(struct rmq_ack_board *board);
int64_t rmq_ack_board_timeout_ms(struct rmq_ack_board *board);

#endif
