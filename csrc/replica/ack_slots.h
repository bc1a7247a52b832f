/* ack_slots.h -- what each connected replica holds, and how many replicas hold a given offset.
 *
 * The copy of a replica counts once the replica has stored the present epoch. Before that, a
 * replica with a later epoch may overrule it, and it may lose what it holds (Raft's figure 8).
 * Slots that count are sorted by offset, so that the offset with n copies is one array access. Not
 * locked: the board's lock is held around every call.
 */
#ifndef RMQ_ACK_SLOTS_H
#define RMQ_ACK_SLOTS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define RMQ_ACK_SLOTS_MAX 1024

struct rmq_ack_slot {
    int64_t ack;   /* -1: no acknowledgement yet */
    int64_t held;  /* the offset that counts; -1: none */
    int32_t epoch; /* the last epoch that the replica is known to have stored */
    int32_t life;  /* how often the slot was opened before; the upper bits of its number */
    int32_t rank;  /* index in `counted`; -1: it does not count */
    bool is_open;
    bool is_waited;
};

/* Zeroed: all slots are closed. */
struct rmq_ack_slots {
    struct rmq_ack_slot slots[RMQ_ACK_SLOTS_MAX];
    int32_t used;        /* entries of `slots` that were ever open */
    int32_t epoch;       /* the present epoch; -1: every copy counts */
    int64_t epoch_start; /* a replica with a lower offset has not stored the epoch for good */
    int32_t counted[RMQ_ACK_SLOTS_MAX]; /* indexes of slots, highest offset first */
    int32_t counted_count;
};

/* Returns a number that no slot of the table had before; -1 when all are open. */
int32_t rmq_ack_slots_open(struct rmq_ack_slots *slots);
/* NULL when the number is not open. */
struct rmq_ack_slot *rmq_ack_slots_find(struct rmq_ack_slots *slots, int32_t number);
void rmq_ack_slots_close(struct rmq_ack_slots *slots, struct rmq_ack_slot *slot);
void rmq_ack_slots_ack(struct rmq_ack_slots *slots, struct rmq_ack_slot *slot, int32_t epoch,
                       int64_t offset);
/* Begins an epoch, or continues it. rmq_ack_slots_choose must follow. */
void rmq_ack_slots_begin(struct rmq_ack_slots *slots, int32_t epoch, int64_t epoch_start);
/* Sets which open slots count, and which are waited for; replaces earlier choices. */
void rmq_ack_slots_choose(struct rmq_ack_slots *slots, const int32_t *counted, size_t counted_count,
                          const int32_t *waited, size_t waited_count);
/* Writes open slots and their acknowledged offsets, whether they count or not; returns their
 * number. */
size_t rmq_ack_slots_list(const struct rmq_ack_slots *slots, int32_t *numbers, int32_t *epochs,
                          int64_t *offsets);

/* Number of copies of all bytes below end_offset, the master's own included. */
int32_t rmq_ack_slots_copies_of(const struct rmq_ack_slots *slots, int64_t end_offset);
/* The greatest offset with so many copies, the master's own, which ends at `end`, included; -1 when
 * there is none. */
int64_t rmq_ack_slots_end_of_copies(const struct rmq_ack_slots *slots, int32_t copies, int64_t end);
/* The greatest offset that every waited replica holds, `end` at most; -1: one of them has no copy
 * that counts. */
int64_t rmq_ack_slots_end_of_waited(const struct rmq_ack_slots *slots, int64_t end);

#endif
