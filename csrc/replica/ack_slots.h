/* ack_slots.h -- what each connected replica holds, and how many hold so much.
 *
 * What a replica holds counts once it has stored the present epoch: who has not may be overruled by
 * a replica with a later epoch than its own, and lose what it holds (Raft's figure 8). Those that
 * count are kept in order of what they hold, so that "up to where are there n copies" is one look.
 * Not locked: the board's lock is held around every call.
 */
#ifndef RMQ_ACK_SLOTS_H
#define RMQ_ACK_SLOTS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define RMQ_ACK_SLOTS_MAX 1024

struct rmq_ack_slot {
    int64_t ack;   /* -1: said nothing yet */
    int64_t held;  /* what of it counts; -1: nothing */
    int32_t epoch; /* the last one that it is known to have stored */
    int32_t life;  /* how often it was opened before; the upper bits of its number */
    int32_t rank;  /* where it stands in `counted`, -1: it does not count */
    bool is_open;
    bool is_waited;
};

/* Zeroed, all are closed. */
struct rmq_ack_slots {
    struct rmq_ack_slot slots[RMQ_ACK_SLOTS_MAX];
    int32_t used;                       /* places that were ever open */
    int32_t epoch;                      /* the present one; -1: whatever a replica holds counts */
    int64_t epoch_start;                /* who holds less has not stored it for good */
    int32_t counted[RMQ_ACK_SLOTS_MAX]; /* places, those that hold most first */
    int32_t counted_count;
};

/* A number that none had in the life of the table; -1 when all are open. */
int32_t rmq_ack_slots_open(struct rmq_ack_slots *slots);
/* NULL for a number that is not open. */
struct rmq_ack_slot *rmq_ack_slots_find(struct rmq_ack_slots *slots, int32_t number);
void rmq_ack_slots_close(struct rmq_ack_slots *slots, struct rmq_ack_slot *slot);
void rmq_ack_slots_ack(struct rmq_ack_slots *slots, struct rmq_ack_slot *slot, int32_t epoch,
                       int64_t offset);
/* Begins an epoch, or goes on with it; choose comes next. */
void rmq_ack_slots_begin(struct rmq_ack_slots *slots, int32_t epoch, int64_t epoch_start);
/* Which open slots count, and which are waited for; earlier choices are void. */
void rmq_ack_slots_choose(struct rmq_ack_slots *slots, const int32_t *counted, size_t counted_count,
                          const int32_t *waited, size_t waited_count);
/* Open slots and what they acknowledged, whether it counts or not; returns how many. */
size_t rmq_ack_slots_list(const struct rmq_ack_slots *slots, int32_t *numbers, int32_t *epochs,
                          int64_t *offsets);

/* How many hold all below end_offset, with the master's own copy. */
int32_t rmq_ack_slots_copies_of(const struct rmq_ack_slots *slots, int64_t end_offset);
/* Up to where there are so many copies, the master's own, which ends at `end`, included; -1 for
 * nowhere. */
int64_t rmq_ack_slots_end_of_copies(const struct rmq_ack_slots *slots, int32_t copies, int64_t end);
/* Up to where every replica that is waited for has a copy, `end` at most; -1: one has none that
 * counts. */
int64_t rmq_ack_slots_end_of_waited(const struct rmq_ack_slots *slots, int64_t end);

#endif
