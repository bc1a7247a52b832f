/* ack_board.h -- what replicas hold, the confirm offset that follows from it, and the puts that
 * wait for copies.
 *
 * A connected replica has a slot. Each acknowledgement on it is one atomic step: the confirm offset
 * rises as far as the rule allows, then every put that has its copies is resolved, in any order.
 * The rule is decided in rmqstore/replication/group/quorum.py. A decision (group/board.py) freezes
 * the board, then thaws it with the new rule, so that no offset is confirmed by a rule that is
 * about to change.
 *
 * Copies include the master's own, which ends where the log ends at that moment, or at its flushed
 * end where copies count on the disk only. All offsets are physical. Any thread may make any call,
 * except where a comment restricts it, or on a model (ack_log.h). Only wait and take sleep.
 */
#ifndef RMQ_ACK_BOARD_H
#define RMQ_ACK_BOARD_H

#include "replica/ack_inbox.h"
#include "replica/ack_log.h"
#include "replica/ack_slots.h"

/* More copies than there can be: a put that needs this many waits until its time is up. */
#define RMQ_ACK_COPIES_MAX 1026
#define RMQ_ACK_REASON_SIZE 240

/* RocketMQ's PutMessageStatus; the numbers are positions in its order. */
enum rmq_put_status {
    RMQ_PUT_OK = 0,
    RMQ_PUT_FLUSH_SLAVE_TIMEOUT = 2,
    RMQ_PUT_SLAVE_NOT_AVAILABLE = 3,
    RMQ_PUT_SERVICE_NOT_AVAILABLE = 4,
    RMQ_PUT_OS_PAGE_CACHE_BUSY = 8,
    RMQ_PUT_IN_SYNC_REPLICAS_NOT_ENOUGH = 10,
};

struct rmq_ack_rule {
    const int32_t *counted; /* slots whose copies count as copies */
    size_t counted_count;
    const int32_t *waited; /* slots that must all hold the bytes before these are confirmed */
    size_t waited_count;
    bool has_set;           /* there is a sync-state set: waited has a meaning */
    bool is_missing;        /* a waited replica has no slot: no further offset is confirmed */
    bool is_gated;          /* false: every byte is confirmed once it is in the log */
    int32_t confirm_copies; /* without a set: bytes with this many copies are confirmed */
    int32_t epoch;          /* copies count on replicas that have stored this epoch; -1: on all */
    int64_t epoch_start;    /* and that hold the log up to where the epoch began */
    int32_t status;         /* result for a put that asks for copies; RMQ_PUT_OK admits it */
    const char *reason;     /* when not RMQ_PUT_OK; RMQ_ACK_REASON_SIZE - 1 bytes at most */
    int32_t copies;         /* copies for a put that does not set a number */
    bool needs_all;         /* such a put also needs a copy on each waited replica */
    bool is_flushed;        /* the master's own copy counts once it is on the disk */
    int32_t present;        /* a put that needs more copies is refused; -1: no limit */
    int32_t
        available; /* a put that times out and needs more gets SLAVE_NOT_AVAILABLE; -1: no limit */
    int64_t lease_end_ms; /* by the log's clock: from this time on no put is admitted or
                             acknowledged; INT64_MAX: no lease */
    int64_t waiting_max;
    int64_t timeout_ms;
};

struct rmq_ack_board;

/* The log's owner must live longer than the board, or until rmq_ack_board_detach. NULL without
 * memory. */
struct rmq_ack_board *rmq_ack_board_create(struct rmq_ack_log log);
/* No put may be waiting, and no call in progress. */
void rmq_ack_board_destroy(struct rmq_ack_board *board);

/* Returns a slot that this board has not used before; its acknowledged offset is -1. RMQ_BUSY:
 * RMQ_ACK_SLOTS_MAX slots are open. */
int rmq_ack_board_open_slot(struct rmq_ack_board *board, int32_t *slot, struct rmq_error *err);
/* Closes a slot: its copy no longer counts. If the replica was waited for, no further offset is
 * confirmed until the next rule. If the slot is not open, nothing happens. */
void rmq_ack_board_close_slot(struct rmq_ack_board *board, int32_t slot);
/* Records the offset that the replica holds, even when it is lower than before, and the last epoch
 * that the replica is known to have stored. The caller has validated: 0 <= offset <= the log's end.
 * If the slot is not open, nothing happens. */
void rmq_ack_board_ack(struct rmq_ack_board *board, int32_t slot, int32_t epoch, int64_t offset);
/* Number of copies of all bytes below end_offset by the present rule, the master's own included. */
int32_t rmq_ack_board_copies_of(struct rmq_ack_board *board, int64_t end_offset);
/* Writes up to RMQ_ACK_SLOTS_MAX open slots, their epochs and offsets; returns their number. */
size_t rmq_ack_board_acks(struct rmq_ack_board *board, int32_t *slots, int32_t *epochs,
                          int64_t *offsets);

/* From now on acknowledgements are only recorded. Returns the confirm offset, which stays until the
 * thaw. One thread makes decisions: freeze and thaw come from it, alternately. */
int64_t rmq_ack_board_freeze(struct rmq_ack_board *board);
/* Takes the new rule; confirms and resolves by it. RMQ_INVALID: the rule has a slot that is not
 * open; nothing changed. A board works from its first thaw on. */
int rmq_ack_board_thaw(struct rmq_ack_board *board, const struct rmq_ack_rule *rule,
                       struct rmq_error *err);
/* Ends the role. Waiting puts, and puts admitted earlier, fail with FLUSH_SLAVE_TIMEOUT. The board
 * is frozen. */
void rmq_ack_board_abandon(struct rmq_ack_board *board);
/* Detaches the board from the store: it never uses the store again. Call it before the store is
 * closed. */
void rmq_ack_board_detach(struct rmq_ack_board *board);
int64_t rmq_ack_board_confirm_offset(struct rmq_ack_board *board);
int64_t rmq_ack_board_waiting(struct rmq_ack_board *board);

/* Whether a put may be appended, and what it then waits for: an enum rmq_put_status. copies 0
 * stands for the rule's number. With is_replicated false only an expired lease refuses the put. */
int rmq_ack_board_admit(struct rmq_ack_board *board, bool is_replicated, int32_t copies,
                        struct rmq_ack_need *need);
/* The reason for which rmq_ack_board_admit refused that need. */
void rmq_ack_board_reason(struct rmq_ack_board *board, int status, const struct rmq_ack_need *need,
                          char reason[RMQ_ACK_REASON_SIZE]);

/* Runs, without any lock of the board, when a put begins to wait, so that the sender of the log
 * need not be woken by every append. Also runs when the confirm offset rose without an
 * acknowledgement. */
struct rmq_hook *rmq_ack_board_on_wait(struct rmq_ack_board *board);

/* Waits until an appended put has the copies that it needs, for timeout_ms at most; a negative
 * timeout stands for the rule's. Returns an enum rmq_put_status, and the number of copies. */
int rmq_ack_board_wait(struct rmq_ack_board *board, const struct rmq_ack_need *need,
                       int64_t end_offset, int64_t timeout_ms, int32_t *copies);
/* The same in three steps, for a caller that does other work between slices of the wait. The waiter
 * (need and end_offset set, the rest zero) belongs to the board until the wait has ended.
 * begin_wait returns the rule's time limit. await is true once the put is resolved. end_wait ends
 * the wait of a put that is not resolved: status and copies are set on return. */
int64_t rmq_ack_board_begin_wait(struct rmq_ack_board *board, struct rmq_ack_waiter *waiter);
bool rmq_ack_waiter_await(struct rmq_ack_waiter *waiter, int64_t timeout_ms);
void rmq_ack_board_end_wait(struct rmq_ack_board *board, struct rmq_ack_waiter *waiter);
/* Whether an appended put that has all its copies may be acknowledged: RMQ_PUT_OK, or
 * RMQ_PUT_FLUSH_SLAVE_TIMEOUT when the role or the lease under which it was admitted has ended. The
 * last check of every put, whatever its durability: another master may have been elected while the
 * put was appended, flushed or woken. Takes no lock. */
int rmq_ack_board_acknowledge(struct rmq_ack_board *board, const struct rmq_ack_need *need);
/* Lets waiter (need, end_offset, inbox, owner set) wait. Its inbox receives it once it is resolved.
 * Returns false when it is resolved already. The board keeps no time limit for it. */
bool rmq_ack_board_begin(struct rmq_ack_board *board, struct rmq_ack_waiter *waiter);
/* Sends the log up to the waiting puts, on this thread if possible; called inside the store's gate.
 * One call serves all earlier puts. Without a call the pump sends the log later. */
void rmq_ack_board_send_now(struct rmq_ack_board *board);
/* Ends the wait of a put whose time is up: status and copies are set. False: it was resolved
 * before, and is in its inbox or about to be. */
bool rmq_ack_board_withdraw(struct rmq_ack_board *board, struct rmq_ack_waiter *waiter);
/* Whether a put that asks for copies should have its own copy flushed first, because it is not
 * resolved before. */
bool rmq_ack_board_is_flushed(struct rmq_ack_board *board);
int64_t rmq_ack_board_timeout_ms(struct rmq_ack_board *board);

#endif
