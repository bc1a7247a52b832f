/* stress_board.c -- one acknowledgement board under everybody who may touch it, for the sanitizers.
 *
 * Writers put and wait, one producer hears of its puts through an inbox, two replicas follow the
 * log by their wakeups and acknowledge, and one thread freezes, changes the rule, takes a
 * third replica in and out, and now and then ends the role. A caller that gets PUT_OK finds the
 * message confirmed; nobody is forgotten.
 */
#include "stress_board.h"

#include <inttypes.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "rmq.h"

#define WRITERS 3
#define REPLICAS 2
#define COPIES 2
#define IN_FLIGHT_MAX 64
/* Far beyond any load: what takes longer hangs. */
#define PATIENCE_MS 120000

struct stage {
    struct rmq_store *store;
    struct rmq_ack_board *board;
    int64_t puts;
    int32_t slots[REPLICAS];
    _Atomic int writing;
    _Atomic int64_t acknowledged;
};

static void fail(const char *what)
{
    fprintf(stderr, "board: %s\n", what);
    exit(1);
}

/* Appends one message with leave to; returns where it ends. */
static int64_t append(struct stage *stage, struct rmq_ack_need *need)
{
    struct rmq_error err;
    struct rmq_receipt receipt;
    size_t stored = 0;
    struct rmq_host host = {.address = {127, 0, 0, 1}, .port = 10911, .size = 4};
    struct rmq_message message = {.topic = "board",
                                  .topic_size = 5,
                                  .body = (const uint8_t *)"acknowledged",
                                  .body_size = 12,
                                  .born_host = host,
                                  .store_host = host};
    int64_t until_ms = rmq_monotonic_ms() + PATIENCE_MS;
    while (rmq_ack_board_admit(stage->board, true, COPIES, need) != RMQ_PUT_OK)
        if (rmq_monotonic_ms() > until_ms)
            fail("no leave to put");
    if (rmq_store_put(stage->store, &message, 1, false, &receipt, &stored, &err) != RMQ_OK)
        fail(err.detail);
    return receipt.physical_offset + receipt.size;
}

static void check(struct stage *stage, int status, int32_t copies, int64_t end_offset)
{
    if (status == RMQ_PUT_FLUSH_SLAVE_TIMEOUT)
        return; /* The role ended. */
    if (status != RMQ_PUT_OK || copies < COPIES)
        fail("a status that nothing here can cause");
    if (rmq_store_confirmed(stage->store) < end_offset)
        fail("told before it was confirmed");
    atomic_fetch_add(&stage->acknowledged, 1);
}

static void *write_all(void *argument)
{
    struct stage *stage = argument;
    for (int64_t i = 0; i < stage->puts; ++i) {
        struct rmq_ack_need need;
        int32_t copies = 0;
        int64_t began_ms = rmq_monotonic_ms(), end_offset = append(stage, &need);
        int status = rmq_ack_board_wait(stage->board, &need, end_offset, PATIENCE_MS, &copies);
        if (rmq_monotonic_ms() - began_ms >= PATIENCE_MS)
            fail("a put was forgotten");
        check(stage, status, copies, end_offset);
    }
    atomic_fetch_sub(&stage->writing, 1);
    return NULL;
}

static void *produce(void *argument)
{
    struct stage *stage = argument;
    struct rmq_error err;
    struct rmq_ack_inbox inbox;
    struct rmq_ack_waiter waiters[IN_FLIGHT_MAX];
    if (rmq_ack_inbox_open(&inbox, &err) != RMQ_OK)
        fail(err.detail);
    for (int64_t done = 0; done < stage->puts;) {
        int in_flight = 0;
        for (; in_flight < IN_FLIGHT_MAX; ++in_flight) {
            struct rmq_ack_waiter *waiter = &waiters[in_flight];
            memset(waiter, 0, sizeof *waiter);
            waiter->end_offset = append(stage, &waiter->need);
            waiter->inbox = &inbox;
            rmq_ack_board_begin(stage->board, waiter);
        }
        if (rmq_ack_board_withdraw(stage->board, &waiters[0]))
            --in_flight;
        done += in_flight;
        while (in_flight > 0) {
            struct pollfd wanted = {.fd = inbox.fd, .events = POLLIN};
            (void)poll(&wanted, 1, PATIENCE_MS);
            struct rmq_ack_waiter *waiter = rmq_ack_inbox_take(&inbox);
            if (!waiter)
                fail("an inbox was forgotten");
            for (; waiter; waiter = waiter->after, --in_flight)
                check(stage, waiter->status, waiter->copies, waiter->end_offset);
        }
    }
    rmq_ack_inbox_close(&inbox);
    atomic_fetch_sub(&stage->writing, 1);
    return NULL;
}

struct replica {
    struct stage *stage;
    int number;
};

/* Until the log ends behind seen, or a little time has passed; where it ends. */
static int64_t await_append(struct stage *stage, struct rmq_wakeup *wakeup, int64_t seen)
{
    if (!rmq_wakeup_arm(wakeup, seen)) {
        struct pollfd wanted = {.fd = wakeup->fd, .events = POLLIN};
        (void)poll(&wanted, 1, 20);
        rmq_wakeup_clear(wakeup);
    }
    return rmq_store_end(stage->store);
}

static void *follow(void *argument)
{
    struct replica *replica = argument;
    struct stage *stage = replica->stage;
    struct rmq_error err;
    struct rmq_wakeup wakeup;
    int64_t seen = 0;
    if (rmq_wakeup_open(&wakeup, rmq_store_wakeups(stage->store, RMQ_GREW), &err) != RMQ_OK)
        fail(err.detail);
    while (atomic_load(&stage->writing)) {
        seen = await_append(stage, &wakeup, seen);
        rmq_ack_board_ack(stage->board, stage->slots[replica->number], 7, seen);
    }
    rmq_wakeup_close(&wakeup);
    return NULL;
}

static void *decide(void *argument)
{
    struct stage *stage = argument;
    struct rmq_error err;
    struct rmq_ack_rule rule = {.counted = stage->slots,
                                .counted_count = REPLICAS,
                                .epoch = 7,
                                .copies = 1,
                                .confirm_copies = COPIES,
                                .is_gated = true,
                                .present = -1,
                                .available = -1,
                                .lease_end_ms = INT64_MAX,
                                .waiting_max = 1000,
                                .timeout_ms = PATIENCE_MS};
    struct rmq_wakeup wakeup;
    int64_t seen = 0;
    if (rmq_wakeup_open(&wakeup, rmq_store_wakeups(stage->store, RMQ_GREW), &err) != RMQ_OK)
        fail(err.detail);
    for (int64_t round = 0; atomic_load(&stage->writing); ++round) {
        int32_t third = -1;
        rmq_ack_board_freeze(stage->board);
        if (rmq_ack_board_open_slot(stage->board, &third, &err) != RMQ_OK)
            fail(err.detail);
        rmq_ack_board_ack(stage->board, third, 7, 0);
        rmq_ack_board_close_slot(stage->board, third);
        if (round % 16 == 15)
            rmq_ack_board_abandon(stage->board);
        rule.is_gated = round % 3 != 1;
        rule.has_set = round % 3 == 2;
        if (rmq_ack_board_thaw(stage->board, &rule, &err) != RMQ_OK)
            fail(err.detail);
        seen = await_append(stage, &wakeup, seen);
    }
    rmq_wakeup_close(&wakeup);
    return NULL;
}

int64_t stress_board(struct rmq_store *store, int64_t puts)
{
    struct rmq_error err;
    struct stage stage = {.store = store, .puts = puts, .writing = WRITERS + 1};
    struct replica replicas[REPLICAS];
    pthread_t threads[WRITERS + 2 + REPLICAS];
    int count = 0;
    stage.board = rmq_ack_board_create(rmq_ack_log_of_store(store));
    for (int i = 0; i < REPLICAS; ++i)
        if (rmq_ack_board_open_slot(stage.board, &stage.slots[i], &err) != RMQ_OK)
            fail(err.detail);
    for (int i = 0; i < REPLICAS; ++i) {
        replicas[i] = (struct replica){&stage, i};
        pthread_create(&threads[count++], NULL, follow, &replicas[i]);
    }
    pthread_create(&threads[count++], NULL, decide, &stage);
    pthread_create(&threads[count++], NULL, produce, &stage);
    for (int i = 0; i < WRITERS; ++i)
        pthread_create(&threads[count++], NULL, write_all, &stage);
    for (int i = 0; i < count; ++i)
        pthread_join(threads[i], NULL);
    if (rmq_ack_board_waiting(stage.board) != 0)
        fail("somebody still waits");
    rmq_ack_board_detach(stage.board);
    rmq_ack_board_destroy(stage.board);
    if (rmq_store_set_confirm_offset(store, rmq_confirm_unset(), &err) != RMQ_OK)
        fail(err.detail);
    return atomic_load(&stage.acknowledged);
}
