/* stress_flush.c -- everybody who may wait for a sync of one log, for the sanitizers.
 *
 * Waiters put and wait in groups; some of them have so little time that they leave the queue while
 * a leader releases it. Watchers put, request a sync and poll a descriptor, as a loop does; now and
 * then one forgets its watch and requests again. Nobody is forgotten, and nobody is notified of
 * what is not flushed.
 */
#include "stress_flush.h"

#include <inttypes.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include "rmq.h"

#define WAITERS 6
#define WATCHERS 2
#define FORGETS_EVERY 7
/* Far beyond any load: what takes longer hangs. */
#define PATIENCE_MS 120000

struct caller {
    struct rmq_store *store;
    int64_t puts;
    bool is_hasty;
};

static void fail(const char *what)
{
    fprintf(stderr, "flush: %s\n", what);
    exit(1);
}

/* Appends one message; returns where it ends. */
static int64_t append(struct rmq_store *store)
{
    struct rmq_error err;
    struct rmq_receipt receipt;
    size_t stored = 0;
    struct rmq_host host = {.address = {127, 0, 0, 1}, .port = 10911, .size = 4};
    struct rmq_message message = {.topic = "flush",
                                  .topic_size = 5,
                                  .body = (const uint8_t *)"flushed",
                                  .body_size = 7,
                                  .born_host = host,
                                  .store_host = host};
    if (rmq_store_put(store, &message, 1, false, &receipt, &stored, &err) != RMQ_OK)
        fail(err.detail);
    return receipt.physical_offset + receipt.size;
}

static void *wait_often(void *argument)
{
    struct caller *caller = argument;
    struct rmq_error err;
    for (int64_t i = 0; i < caller->puts; ++i) {
        int64_t end = append(caller->store);
        int status = rmq_store_wait_flushed(caller->store, end,
                                            caller->is_hasty ? i % 2 : PATIENCE_MS, &err);
        if (status != RMQ_OK && !(caller->is_hasty && status == RMQ_FLUSH_TIMEOUT))
            fail(err.detail);
        if (status == RMQ_OK && rmq_store_flushed(caller->store) < end)
            fail("a wait ended before its sync");
    }
    return NULL;
}

static void *watch_often(void *argument)
{
    struct caller *caller = argument;
    struct rmq_error err;
    struct rmq_flush_watch watch = {.fd = eventfd(0, EFD_NONBLOCK | EFD_CLOEXEC)};
    struct pollfd poller = {.fd = watch.fd, .events = POLLIN};
    uint64_t count;
    for (int64_t i = 0; i < caller->puts; ++i) {
        int64_t end = append(caller->store);
        while (rmq_store_flushed(caller->store) < end) {
            if (rmq_store_ask_flush(caller->store, &watch, end, &err) != RMQ_OK)
                fail(err.detail);
            if (i % FORGETS_EVERY == 0) {
                rmq_store_forget_flush(caller->store, &watch);
                if (rmq_store_ask_flush(caller->store, &watch, end, &err) != RMQ_OK)
                    fail(err.detail);
            }
            if (rmq_store_flushed(caller->store) < end && poll(&poller, 1, PATIENCE_MS) != 1)
                fail("a watch was forgotten");
            (void)!read(watch.fd, &count, sizeof count);
        }
    }
    rmq_store_forget_flush(caller->store, &watch);
    close(watch.fd);
    return NULL;
}

void stress_flush(struct rmq_store *store, int64_t puts)
{
    pthread_t threads[WAITERS + WATCHERS];
    struct caller callers[WAITERS + WATCHERS];
    for (int i = 0; i < WAITERS + WATCHERS; ++i) {
        callers[i] = (struct caller){store, puts, i % 3 == 2};
        pthread_create(&threads[i], NULL, i < WAITERS ? wait_often : watch_often, &callers[i]);
    }
    for (int i = 0; i < WAITERS + WATCHERS; ++i)
        pthread_join(threads[i], NULL);
}
