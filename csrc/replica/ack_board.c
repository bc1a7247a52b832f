#include "replica/ack_board.h"

#include <assert.h>
#include <inttypes.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* Puts with one need, by end offset. */
struct line {
    struct rmq_link waiters; /* head */
    struct rmq_link place;   /* in the list of lines that are not empty */
};

struct rmq_ack_board {
    struct rmq_ack_log log;
    bool is_detached; /* the log is gone; its clock still works */
    pthread_mutex_t lock;
    struct rmq_ack_rule rule; /* its arrays are not kept */
    char reason[RMQ_ACK_REASON_SIZE];
    struct rmq_ack_slots slots;
    bool is_frozen;
    struct rmq_hook on_wait;
    struct line lines[2][RMQ_ACK_COPIES_MAX + 1]; /* sorted by needs_all and copies */
    struct rmq_link busy;                         /* head of the list of lines that are not empty */

    /* The fields that a put reads before its append, without the lock. term is read first: a put
     * with an older term and a newer rule is never acknowledged, whereas a newer term with an older
     * rule would be unsafe. */
    _Atomic uint64_t term;
    _Atomic int64_t lease_end_ms;
    _Atomic int64_t waiting, waiting_max;
    _Atomic int32_t status, copies, present;
    _Atomic bool needs_all, is_flushed;
};

struct rmq_ack_board *rmq_ack_board_create(struct rmq_ack_log log)
{
    assert(log.calls && log.owner);

    struct rmq_ack_board *board = calloc(1, sizeof *board);
    if (!board)
        return NULL;
    board->log = log;

    pthread_mutex_init(&board->lock, NULL);
    rmq_hook_init(&board->on_wait);
    rmq_list_init(&board->busy);
    for (int32_t copies = 0; copies <= RMQ_ACK_COPIES_MAX; ++copies) {
        rmq_list_init(&board->lines[false][copies].waiters);
        rmq_list_init(&board->lines[true][copies].waiters);
    }

    board->is_frozen = true;
    board->rule.is_gated = true;
    board->rule.is_missing = board->rule.has_set = true;
    board->rule.available = -1;

    atomic_init(&board->term, 1);
    atomic_init(&board->lease_end_ms, INT64_MAX);
    atomic_init(&board->waiting_max, INT64_MAX);
    atomic_init(&board->copies, 1);
    atomic_init(&board->status, RMQ_PUT_SERVICE_NOT_AVAILABLE);
    atomic_init(&board->present, -1);
    snprintf(board->reason, sizeof board->reason, "this store is not a master yet");
    return board;
}

void rmq_ack_board_destroy(struct rmq_ack_board *board)
{
    assert(rmq_list_is_empty(&board->busy));

    rmq_hook_destroy(&board->on_wait);
    pthread_mutex_destroy(&board->lock);
    free(board);
}

/* ---- the log; the caller holds the lock, except for the clock ---- */

static int64_t now_ms(const struct rmq_ack_board *board)
{
    return board->log.calls->now_ms(board->log.owner);
}

static int64_t confirmed(const struct rmq_ack_board *board)
{
    assert(!board->is_detached);
    return board->log.calls->confirmed(board->log.owner);
}

static int64_t hold(const struct rmq_ack_board *board)
{
    assert(!board->is_detached);
    return board->log.calls->hold(board->log.owner);
}

/* The end of the master's own copy. */
static int64_t own_end(const struct rmq_ack_board *board)
{
    assert(!board->is_detached);

    int64_t flushed =
        board->rule.is_flushed ? board->log.calls->flushed(board->log.owner) : INT64_MAX;
    int64_t end = board->log.calls->end(board->log.owner);
    return flushed < end ? flushed : end;
}

/* ---- copies on replicas; the caller holds the lock ---- */

/* -1: a waited replica has sent no acknowledgement. */
static int64_t end_of_all(const struct rmq_ack_board *board, int64_t end)
{
    return board->rule.is_missing ? -1 : rmq_ack_slots_end_of_waited(&board->slots, end);
}

static int64_t end_of_need(struct rmq_ack_board *board, int32_t copies, bool needs_all, int64_t end)
{
    assert(end >= 0);

    end = rmq_ack_slots_end_of_copies(&board->slots, copies, end);
    return needs_all && end >= 0 ? end_of_all(board, end) : end;
}

/* ---- confirming and resolving; the caller holds the lock ---- */

static bool holds_lease(struct rmq_ack_board *board)
{
    int64_t end_ms = atomic_load_explicit(&board->lease_end_ms, memory_order_relaxed);
    return end_ms == INT64_MAX || now_ms(board) < end_ms;
}

/* Whether the rule requires only the master's own copy: dispatching then follows the log without
 * the board, and an append need not notify the board. */
static bool follows_end(const struct rmq_ack_board *board)
{
    const struct rmq_ack_rule *rule = &board->rule;
    if (rule->is_flushed)
        return false;
    if (!rule->is_gated)
        return true;
    if (rule->has_set)
        return !rule->is_missing && rule->waited_count == 0;
    return rule->confirm_copies <= 1;
}

static struct rmq_confirm to_confirm(const struct rmq_ack_board *board, int64_t end)
{
    assert(end >= 0);

    const struct rmq_ack_rule *rule = &board->rule;
    if (follows_end(board))
        return rmq_confirm_log_end();
    if (!rule->is_gated)
        return rmq_confirm_at(end);

    end = rule->has_set ? end_of_all(board, end)
                        : rmq_ack_slots_end_of_copies(&board->slots, rule->confirm_copies, end);
    return rmq_confirm_at(end > 0 ? end : 0);
}

static struct line *line_of(struct rmq_ack_board *board, const struct rmq_ack_need *need)
{
    int32_t copies = need->copies < RMQ_ACK_COPIES_MAX ? need->copies : RMQ_ACK_COPIES_MAX;
    assert(copies >= 1);

    return &board->lines[need->needs_all][copies];
}

static struct rmq_ack_waiter *waiter_at(struct rmq_link *place)
{
    return (struct rmq_ack_waiter *)((char *)place - offsetof(struct rmq_ack_waiter, place));
}

static struct line *line_at(struct rmq_link *place)
{
    return (struct line *)((char *)place - offsetof(struct line, place));
}

static struct rmq_ack_waiter *first_of(struct line *line)
{
    assert(!rmq_list_is_empty(&line->waiters));
    return waiter_at(line->waiters.after);
}

static void stand_in_line(struct rmq_ack_board *board, struct rmq_ack_waiter *waiter)
{
    assert(!waiter->is_resolved);

    struct line *line = line_of(board, &waiter->need);

    if (rmq_list_is_empty(&line->waiters))
        rmq_list_insert(&line->place, &board->busy);

    /* Puts arrive nearly in the order of the log. */
    struct rmq_link *before = line->waiters.before;
    while (before != &line->waiters && waiter_at(before)->end_offset > waiter->end_offset)
        before = before->before;

    rmq_list_insert(&waiter->place, before);
    atomic_fetch_add_explicit(&board->waiting, 1, memory_order_relaxed);
}

static void leave_line(struct rmq_ack_board *board, struct rmq_ack_waiter *waiter)
{
    struct line *line = line_of(board, &waiter->need);
    assert(!rmq_list_is_empty(&line->waiters));

    rmq_list_remove(&waiter->place);
    if (rmq_list_is_empty(&line->waiters))
        rmq_list_remove(&line->place);
    atomic_fetch_sub_explicit(&board->waiting, 1, memory_order_relaxed);
}

static void settle(struct rmq_ack_board *board, struct rmq_ack_waiter *waiter, int32_t status)
{
    assert(!waiter->is_resolved);

    waiter->is_resolved = true;
    waiter->status = status;
    waiter->copies = rmq_ack_slots_copies_of(&board->slots, waiter->end_offset);
    assert(waiter->copies >= 1);
}

static void settle_late(struct rmq_ack_board *board, struct rmq_ack_waiter *waiter)
{
    int32_t available = board->rule.available;
    settle(board, waiter,
           available >= 0 && available < waiter->need.copies ? RMQ_PUT_SLAVE_NOT_AVAILABLE
                                                             : RMQ_PUT_FLUSH_SLAVE_TIMEOUT);
}

/* Adds the head of a line to a chain. */
static void resolve_first(struct rmq_ack_board *board, struct line *line, int32_t status,
                          struct rmq_ack_waiter ***chain_end)
{
    assert(!**chain_end);

    struct rmq_ack_waiter *waiter = first_of(line);
    leave_line(board, waiter);
    settle(board, waiter, status);

    waiter->after = NULL;
    **chain_end = waiter;
    *chain_end = &waiter->after;
}

/* Returns the chain of puts that have their copies. */
static struct rmq_ack_waiter *resolve(struct rmq_ack_board *board, int64_t end)
{
    struct rmq_ack_waiter *chain = NULL, **chain_end = &chain;

    struct rmq_link *next;
    for (struct rmq_link *place = board->busy.after; place != &board->busy; place = next) {
        struct line *line = line_at(place);
        const struct rmq_ack_need *need = &first_of(line)->need;
        int64_t reached = end_of_need(board, need->copies, need->needs_all, end);
        next = place->after;
        while (!rmq_list_is_empty(&line->waiters) && first_of(line)->end_offset <= reached)
            resolve_first(board, line, RMQ_PUT_OK, &chain_end);
    }
    return chain;
}

/* Confirms first, so that a put can be read when its caller is notified. Without the lease nothing
 * further is confirmed or acknowledged: a master that was elected meanwhile may lack it. */
static struct rmq_ack_waiter *evaluate(struct rmq_ack_board *board)
{
    bool is_led = holds_lease(board);
    if (board->is_frozen || (board->rule.is_gated && !is_led))
        return NULL;

    assert(!board->is_detached);
    int64_t end = own_end(board);
    board->log.calls->confirm(board->log.owner, to_confirm(board, end));
    return is_led ? resolve(board, end) : NULL;
}

/* ---- slots ---- */

int rmq_ack_board_open_slot(struct rmq_ack_board *board, int32_t *number, struct rmq_error *err)
{
    assert(number);

    pthread_mutex_lock(&board->lock);
    *number = rmq_ack_slots_open(&board->slots);
    pthread_mutex_unlock(&board->lock);
    return *number >= 0
               ? RMQ_OK
               : rmq_fail(err, RMQ_BUSY, -1, "%d replicas are connected, which is the limit",
                          RMQ_ACK_SLOTS_MAX);
}

void rmq_ack_board_close_slot(struct rmq_ack_board *board, int32_t number)
{
    pthread_mutex_lock(&board->lock);
    struct rmq_ack_slot *slot = rmq_ack_slots_find(&board->slots, number);
    if (slot) {
        if (slot->is_waited)
            board->rule.is_missing = true;
        rmq_ack_slots_close(&board->slots, slot);
    }
    pthread_mutex_unlock(&board->lock);
}

void rmq_ack_board_ack(struct rmq_ack_board *board, int32_t number, int32_t epoch, int64_t offset)
{
    assert(offset >= 0);

    struct rmq_ack_waiter *chain = NULL;

    pthread_mutex_lock(&board->lock);
    struct rmq_ack_slot *slot = rmq_ack_slots_find(&board->slots, number);
    if (slot && (slot->ack != offset || slot->epoch != epoch)) {
        rmq_ack_slots_ack(&board->slots, slot, epoch, offset);
        chain = evaluate(board);
    }
    pthread_mutex_unlock(&board->lock);
    rmq_ack_notify(chain);
}

int32_t rmq_ack_board_copies_of(struct rmq_ack_board *board, int64_t end_offset)
{
    pthread_mutex_lock(&board->lock);
    int32_t copies = rmq_ack_slots_copies_of(&board->slots, end_offset);
    assert(copies >= 1);
    pthread_mutex_unlock(&board->lock);
    return copies;
}

size_t rmq_ack_board_acks(struct rmq_ack_board *board, int32_t *slots, int32_t *epochs,
                          int64_t *offsets)
{
    assert(slots && epochs && offsets);

    pthread_mutex_lock(&board->lock);
    size_t found = rmq_ack_slots_list(&board->slots, slots, epochs, offsets);
    pthread_mutex_unlock(&board->lock);
    return found;
}

/* ---- the rule ---- */

int64_t rmq_ack_board_freeze(struct rmq_ack_board *board)
{
    pthread_mutex_lock(&board->lock);
    board->is_frozen = true;
    int64_t held = board->is_detached ? -1 : hold(board);
    assert(held >= -1);
    pthread_mutex_unlock(&board->lock);
    return held;
}

static int check_open(struct rmq_ack_board *board, const int32_t *slots, size_t slot_count,
                      struct rmq_error *err)
{
    assert(slots || slot_count == 0);

    for (size_t i = 0; i < slot_count; ++i)
        if (!rmq_ack_slots_find(&board->slots, slots[i]))
            return rmq_fail(err, RMQ_INVALID, -1, "the rule names slot %d, which is not open",
                            slots[i]);
    return RMQ_OK;
}

static void take_rule(struct rmq_ack_board *board, const struct rmq_ack_rule *rule)
{
    assert(rule->copies >= 1 && rule->confirm_copies >= 1);

    rmq_ack_slots_begin(&board->slots, rule->epoch, rule->epoch_start);
    rmq_ack_slots_choose(&board->slots, rule->counted, rule->counted_count, rule->waited,
                         rule->waited_count);

    board->rule = *rule;
    board->rule.counted = board->rule.waited = NULL;
    board->rule.is_missing = rule->has_set && rule->is_missing;
    board->rule.reason = NULL;

    snprintf(board->reason, sizeof board->reason, "%s", rule->reason ? rule->reason : "");

    atomic_store(&board->lease_end_ms, rule->lease_end_ms);
    atomic_store(&board->waiting_max, rule->waiting_max);
    atomic_store(&board->copies, rule->copies);
    atomic_store(&board->needs_all, rule->needs_all);
    atomic_store(&board->is_flushed, rule->is_flushed);
    atomic_store(&board->present, rule->present);
    atomic_store(&board->status, rule->status);
}

/* As evaluate. *is_news is set when the confirm offset rose: the sender of the log does not know
 * this yet, because no acknowledgement caused it. */
static struct rmq_ack_waiter *evaluate_unheard(struct rmq_ack_board *board, bool *is_news)
{
    assert(!board->is_detached);

    int64_t before = confirmed(board);

    struct rmq_ack_waiter *chain = evaluate(board);
    *is_news = confirmed(board) > before;
    return chain;
}

/* The flushed end of the master's copy has moved. */
static void flushed(void *owner, bool may_work)
{
    (void)may_work;
    struct rmq_ack_board *board = owner;
    assert(board);
    struct rmq_ack_waiter *chain = NULL;
    bool is_news = false;

    pthread_mutex_lock(&board->lock);
    if (board->rule.is_flushed && !board->is_detached)
        chain = evaluate_unheard(board, &is_news);
    pthread_mutex_unlock(&board->lock);

    rmq_ack_notify(chain);
    if (is_news)
        rmq_hook_run(&board->on_wait, false);
}

int rmq_ack_board_thaw(struct rmq_ack_board *board, const struct rmq_ack_rule *rule,
                       struct rmq_error *err)
{
    assert(rule->copies >= 1 && rule->confirm_copies >= 1);

    struct rmq_ack_waiter *chain = NULL;
    bool is_news = false;

    pthread_mutex_lock(&board->lock);
    int status = board->is_detached ? rmq_fail(err, RMQ_CLOSED, -1, "the board's store") : RMQ_OK;
    if (status == RMQ_OK)
        status = check_open(board, rule->counted, rule->counted_count, err);
    if (status == RMQ_OK)
        status = check_open(board, rule->waited, rule->waited_count, err);

    if (status == RMQ_OK) {
        (void)hold(board);
        take_rule(board, rule);
        if (rule->is_flushed)
            rmq_hook_set(board->log.calls->on_flushed(board->log.owner), flushed, board);
        board->is_frozen = false;
        chain = evaluate_unheard(board, &is_news);
    }
    pthread_mutex_unlock(&board->lock);

    rmq_ack_notify(chain);
    if (is_news)
        rmq_hook_run(&board->on_wait, false);
    return status;
}

static void end_role(struct rmq_ack_board *board, bool is_detached)
{
    struct rmq_ack_waiter *chain = NULL, **chain_end = &chain;

    pthread_mutex_lock(&board->lock);
    atomic_fetch_add(&board->term, 1);
    atomic_store(&board->status, RMQ_PUT_SERVICE_NOT_AVAILABLE);
    snprintf(board->reason, sizeof board->reason, "this store is no longer master");

    bool had_log = !board->is_detached;
    /* A frozen board has no lines, and the confirm offset may belong to another board already. */
    if (had_log && !board->is_frozen)
        (void)hold(board);

    board->is_frozen = true;
    board->is_detached |= is_detached;
    while (!rmq_list_is_empty(&board->busy))
        resolve_first(board, line_at(board->busy.after), RMQ_PUT_FLUSH_SLAVE_TIMEOUT, &chain_end);

    assert(rmq_list_is_empty(&board->busy) && atomic_load(&board->waiting) == 0);
    pthread_mutex_unlock(&board->lock);

    if (had_log)
        rmq_hook_unset(board->log.calls->on_flushed(board->log.owner), board);
    rmq_ack_notify(chain);
}

void rmq_ack_board_abandon(struct rmq_ack_board *board)
{
    end_role(board, false);
}

void rmq_ack_board_detach(struct rmq_ack_board *board)
{
    end_role(board, true);
}

int64_t rmq_ack_board_confirm_offset(struct rmq_ack_board *board)
{
    pthread_mutex_lock(&board->lock);
    int64_t offset = board->is_detached ? -1 : confirmed(board);
    pthread_mutex_unlock(&board->lock);
    return offset;
}

int64_t rmq_ack_board_waiting(struct rmq_ack_board *board)
{
    return atomic_load(&board->waiting);
}

bool rmq_ack_board_is_flushed(struct rmq_ack_board *board)
{
    return atomic_load(&board->is_flushed);
}

int64_t rmq_ack_board_timeout_ms(struct rmq_ack_board *board)
{
    pthread_mutex_lock(&board->lock);
    int64_t timeout_ms = board->rule.timeout_ms;
    pthread_mutex_unlock(&board->lock);
    return timeout_ms;
}

/* ---- puts ---- */

int rmq_ack_board_admit(struct rmq_ack_board *board, bool is_replicated, int32_t copies,
                        struct rmq_ack_need *need)
{
    assert(copies >= 0);

    need->term = atomic_load(&board->term);
    need->copies = 1;
    need->needs_all = false;

    if (!holds_lease(board))
        return RMQ_PUT_SERVICE_NOT_AVAILABLE;
    if (!is_replicated)
        return RMQ_PUT_OK;

    need->copies = copies ? copies : atomic_load_explicit(&board->copies, memory_order_relaxed);
    need->needs_all = atomic_load_explicit(&board->needs_all, memory_order_relaxed);
    if (atomic_load_explicit(&board->waiting, memory_order_relaxed) >=
        atomic_load_explicit(&board->waiting_max, memory_order_relaxed))
        return RMQ_PUT_OS_PAGE_CACHE_BUSY;

    int32_t present = atomic_load_explicit(&board->present, memory_order_relaxed);
    if (present >= 0 && present < need->copies)
        return RMQ_PUT_IN_SYNC_REPLICAS_NOT_ENOUGH;
    return atomic_load(&board->status);
}

void rmq_ack_board_reason(struct rmq_ack_board *board, int status, const struct rmq_ack_need *need,
                          char reason[RMQ_ACK_REASON_SIZE])
{
    assert(need && reason);

    pthread_mutex_lock(&board->lock);
    int32_t present = board->rule.present;

    if (status == RMQ_PUT_SERVICE_NOT_AVAILABLE && !holds_lease(board))
        snprintf(reason, RMQ_ACK_REASON_SIZE,
                 "this master's lease was not renewed; another may have been elected");
    else if (status == RMQ_PUT_OS_PAGE_CACHE_BUSY)
        snprintf(reason, RMQ_ACK_REASON_SIZE, "%" PRId64 " puts wait for replicas; slow down",
                 board->rule.waiting_max);
    else if (status == RMQ_PUT_IN_SYNC_REPLICAS_NOT_ENOUGH && present >= 0 &&
             present < need->copies)
        snprintf(reason, RMQ_ACK_REASON_SIZE, "%d of the %d replicas needed are in sync", present,
                 need->copies);
    else
        snprintf(reason, RMQ_ACK_REASON_SIZE, "%s", board->reason);
    pthread_mutex_unlock(&board->lock);
}

/* Whether the outcome of a new put is decided already; otherwise the put enters its line. The
 * caller holds the lock. */
static bool is_settled(struct rmq_ack_board *board, struct rmq_ack_waiter *waiter)
{
    assert(!waiter->is_resolved);

    const struct rmq_ack_need *need = &waiter->need;
    if (board->is_detached || need->term != atomic_load(&board->term)) {
        settle(board, waiter, RMQ_PUT_FLUSH_SLAVE_TIMEOUT);
        return true;
    }

    bool has_copies = need->copies <= 1 && !need->needs_all;
    if (!has_copies && !board->is_frozen) {
        int64_t end = own_end(board);
        has_copies = waiter->end_offset <= end_of_need(board, need->copies, need->needs_all, end);
    }

    bool is_over = has_copies && holds_lease(board);
    if (is_over)
        settle(board, waiter, RMQ_PUT_OK);
    else
        stand_in_line(board, waiter);
    return is_over;
}

int rmq_ack_board_acknowledge(struct rmq_ack_board *board, const struct rmq_ack_need *need)
{
    bool is_in_office = need->term == atomic_load(&board->term);
    return is_in_office && holds_lease(board) ? RMQ_PUT_OK : RMQ_PUT_FLUSH_SLAVE_TIMEOUT;
}

struct rmq_hook *rmq_ack_board_on_wait(struct rmq_ack_board *board)
{
    return &board->on_wait;
}

int64_t rmq_ack_board_begin_wait(struct rmq_ack_board *board, struct rmq_ack_waiter *waiter)
{
    assert(!waiter->inbox && !waiter->is_resolved);

    pthread_mutex_lock(&board->lock);
    int64_t timeout_ms = board->rule.timeout_ms;
    bool is_over = is_settled(board, waiter);
    pthread_mutex_unlock(&board->lock);

    /* The put is in its line: an acknowledgement may resolve it at once. */
    if (is_over)
        atomic_store_explicit(&waiter->resolved.has_happened, 1, memory_order_relaxed);
    else
        rmq_hook_run(&board->on_wait, true);
    return timeout_ms;
}

bool rmq_ack_waiter_await(struct rmq_ack_waiter *waiter, int64_t timeout_ms)
{
    return rmq_event_wait(&waiter->resolved, timeout_ms);
}

void rmq_ack_board_end_wait(struct rmq_ack_board *board, struct rmq_ack_waiter *waiter)
{
    if (rmq_event_wait(&waiter->resolved, 0) || rmq_ack_board_withdraw(board, waiter))
        return;
    /* The thread that resolved the put is about to notify it. */
    while (!rmq_event_wait(&waiter->resolved, 1000))
        ;
}

int rmq_ack_board_wait(struct rmq_ack_board *board, const struct rmq_ack_need *need,
                       int64_t end_offset, int64_t timeout_ms, int32_t *copies)
{
    assert(need && copies);

    struct rmq_ack_waiter waiter = {.need = *need, .end_offset = end_offset};
    int64_t rule_ms = rmq_ack_board_begin_wait(board, &waiter);
    (void)rmq_ack_waiter_await(&waiter, timeout_ms < 0 ? rule_ms : timeout_ms);
    rmq_ack_board_end_wait(board, &waiter);

    assert(waiter.is_resolved);
    *copies = waiter.copies;
    return waiter.status;
}

bool rmq_ack_board_begin(struct rmq_ack_board *board, struct rmq_ack_waiter *waiter)
{
    assert(waiter->inbox);

    waiter->is_resolved = false;
    waiter->after = NULL;

    pthread_mutex_lock(&board->lock);
    bool is_over = is_settled(board, waiter);
    pthread_mutex_unlock(&board->lock);

    if (is_over)
        rmq_ack_notify(waiter);
    return !is_over;
}

void rmq_ack_board_send_now(struct rmq_ack_board *board)
{
    rmq_hook_run(&board->on_wait, true);
}

bool rmq_ack_board_withdraw(struct rmq_ack_board *board, struct rmq_ack_waiter *waiter)
{
    assert(board && waiter);

    pthread_mutex_lock(&board->lock);
    bool is_late = !waiter->is_resolved;
    if (is_late) {
        leave_line(board, waiter);
        settle_late(board, waiter);
    }
    pthread_mutex_unlock(&board->lock);
    return is_late;
}
