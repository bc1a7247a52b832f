#include "replica/ack_slots.h"

#include <assert.h>

#define RMQ_SLOT_BITS 10
#define RMQ_SLOT_LIVES (1 << (31 - RMQ_SLOT_BITS))
_Static_assert(RMQ_ACK_SLOTS_MAX == 1 << RMQ_SLOT_BITS, "a slot's place fits its number");

int32_t rmq_ack_slots_open(struct rmq_ack_slots *slots)
{
    assert(slots->used >= 0 && slots->used <= RMQ_ACK_SLOTS_MAX);

    int32_t place = 0;
    while (place < slots->used && slots->slots[place].is_open)
        ++place;
    if (place == RMQ_ACK_SLOTS_MAX)
        return -1;

    struct rmq_ack_slot *slot = &slots->slots[place];
    if (place == slots->used)
        ++slots->used;

    slot->is_open = true;
    slot->ack = slot->held = -1;
    slot->epoch = -1;
    slot->rank = -1;
    return slot->life << RMQ_SLOT_BITS | place;
}

struct rmq_ack_slot *rmq_ack_slots_find(struct rmq_ack_slots *slots, int32_t number)
{
    struct rmq_ack_slot *slot = &slots->slots[number & (RMQ_ACK_SLOTS_MAX - 1)];
    bool is_it = number >= 0 && slot->is_open && slot->life == number >> RMQ_SLOT_BITS;
    return is_it ? slot : NULL;
}

/* ---- the order of the slots that count ---- */

static int64_t held_at(const struct rmq_ack_slots *slots, int32_t rank)
{
    assert(rank >= 0 && rank < slots->counted_count);
    return slots->slots[slots->counted[rank]].held;
}

static void put_at(struct rmq_ack_slots *slots, int32_t rank, int32_t place)
{
    assert(rank >= 0 && rank < RMQ_ACK_SLOTS_MAX && place >= 0 && place < slots->used);

    slots->counted[rank] = place;
    slots->slots[place].rank = rank;
}

/* Moves a slot that counts to the position of its offset. */
static void sort_in(struct rmq_ack_slots *slots, const struct rmq_ack_slot *slot)
{
    int32_t rank = slot->rank, last = slots->counted_count - 1;
    assert(rank >= 0 && rank <= last);

    int32_t place = slots->counted[rank];

    for (; rank > 0 && held_at(slots, rank - 1) < slot->held; --rank)
        put_at(slots, rank, slots->counted[rank - 1]);
    for (; rank < last && held_at(slots, rank + 1) > slot->held; ++rank)
        put_at(slots, rank, slots->counted[rank + 1]);

    put_at(slots, rank, place);
    assert(rank == 0 || held_at(slots, rank - 1) >= slot->held);
}

static void weigh(const struct rmq_ack_slots *slots, struct rmq_ack_slot *slot)
{
    /* An empty log stores no epochs, and has no bytes to lose. */
    bool knows = slot->epoch >= slots->epoch || slot->ack == 0;
    assert(slot->ack >= -1);
    slot->held = knows && slot->ack >= slots->epoch_start ? slot->ack : -1;
}

void rmq_ack_slots_ack(struct rmq_ack_slots *slots, struct rmq_ack_slot *slot, int32_t epoch,
                       int64_t offset)
{
    assert(slot->is_open && offset >= 0);

    slot->epoch = epoch;
    slot->ack = offset;

    weigh(slots, slot);
    if (slot->rank >= 0)
        sort_in(slots, slot);
}

void rmq_ack_slots_begin(struct rmq_ack_slots *slots, int32_t epoch, int64_t epoch_start)
{
    assert(slots->used <= RMQ_ACK_SLOTS_MAX);

    slots->epoch = epoch;
    slots->epoch_start = epoch_start;
    for (int32_t place = 0; place < slots->used; ++place)
        weigh(slots, &slots->slots[place]);
}

void rmq_ack_slots_close(struct rmq_ack_slots *slots, struct rmq_ack_slot *slot)
{
    assert(slot->is_open);

    if (slot->rank >= 0) {
        --slots->counted_count;
        for (int32_t rank = slot->rank; rank < slots->counted_count; ++rank)
            put_at(slots, rank, slots->counted[rank + 1]);
        slot->rank = -1;
    }

    slot->is_open = slot->is_waited = false;
    slot->life = (slot->life + 1) % RMQ_SLOT_LIVES;
}

void rmq_ack_slots_choose(struct rmq_ack_slots *slots, const int32_t *counted, size_t counted_count,
                          const int32_t *waited, size_t waited_count)
{
    assert((counted || counted_count == 0) && (waited || waited_count == 0));

    for (int32_t place = 0; place < slots->used; ++place) {
        slots->slots[place].rank = -1;
        slots->slots[place].is_waited = false;
    }

    slots->counted_count = 0;
    for (size_t i = 0; i < counted_count; ++i) {
        struct rmq_ack_slot *slot = rmq_ack_slots_find(slots, counted[i]);
        assert(slot);
        if (slot->rank >= 0)
            continue;
        put_at(slots, slots->counted_count++, (int32_t)(slot - slots->slots));
        sort_in(slots, slot);
    }

    for (size_t i = 0; i < waited_count; ++i) {
        struct rmq_ack_slot *slot = rmq_ack_slots_find(slots, waited[i]);
        assert(slot);
        slot->is_waited = true;
    }
}

/* ---- questions ---- */

size_t rmq_ack_slots_list(const struct rmq_ack_slots *slots, int32_t *numbers, int32_t *epochs,
                          int64_t *offsets)
{
    assert(numbers && epochs && offsets);

    size_t found = 0;
    for (int32_t place = 0; place < slots->used; ++place) {
        const struct rmq_ack_slot *slot = &slots->slots[place];
        if (!slot->is_open)
            continue;

        numbers[found] = slot->life << RMQ_SLOT_BITS | place;
        epochs[found] = slot->epoch;
        offsets[found++] = slot->ack;
    }
    return found;
}

int32_t rmq_ack_slots_copies_of(const struct rmq_ack_slots *slots, int64_t end_offset)
{
    int32_t rank = 0;
    while (rank < slots->counted_count && held_at(slots, rank) >= end_offset)
        ++rank;
    assert(rank <= slots->counted_count);
    return rank + 1;
}

int64_t rmq_ack_slots_end_of_copies(const struct rmq_ack_slots *slots, int32_t copies, int64_t end)
{
    if (copies <= 1)
        return end;

    if (copies - 1 > slots->counted_count)
        return -1;

    int64_t held = held_at(slots, copies - 2);
    return held < end ? held : end;
}

int64_t rmq_ack_slots_end_of_waited(const struct rmq_ack_slots *slots, int64_t end)
{
    assert(slots->used <= RMQ_ACK_SLOTS_MAX);

    for (int32_t place = 0; place < slots->used; ++place) {
        const struct rmq_ack_slot *slot = &slots->slots[place];
        if (slot->is_waited && slot->held < end)
            end = slot->held;
    }
    return end;
}
