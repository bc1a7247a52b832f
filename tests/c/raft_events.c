/* raft_events.c -- the queue between the thread of a Raft node and its user, for the sanitizers.
 *
 * Two threads add events of all sizes, one takes them when the descriptor says that there are some.
 * The queue is full again and again. At the end its bound is removed while a thread waits for room,
 * and it is destroyed with events in it.
 *
 * usage: raft_events EVENTS_PER_THREAD. Exits 0 when all went well.
 */
#include <inttypes.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "raft/raft_events.h"

#define ADDERS 2
#define LARGE_SIZE (3u * 1024 * 1024)
/* Far beyond any load: what takes longer hangs. */
#define PATIENCE_MS 240000

struct adder {
    struct rmq_raft_events *events;
    uint64_t number, count;
};

static void check(const char *act, bool is_right)
{
    if (!is_right) {
        fprintf(stderr, "%s\n", act);
        exit(1);
    }
}

static size_t size_of(uint64_t index)
{
    return index % 50 == 7 ? LARGE_SIZE : (size_t)(index * 37 % 500);
}

static void add(struct rmq_raft_events *events, uint64_t request, uint64_t index, size_t size)
{
    struct rmq_raft_event *event = rmq_raft_event_new(RMQ_RAFT_APPLY, size);
    check("memory for an event", event != NULL);
    event->request = request;
    event->index = index;
    memset(event->data, (int)(index % 251), size);
    rmq_raft_events_add(events, event);
}

static void *run_adder(void *argument)
{
    struct adder *adder = argument;
    for (uint64_t index = 0; index < adder->count; ++index)
        add(adder->events, adder->number, index, size_of(index));
    return NULL;
}

static size_t bytes_of(struct rmq_raft_events *events)
{
    pthread_mutex_lock(&events->lock);
    size_t bytes = events->bytes;
    pthread_mutex_unlock(&events->lock);
    return bytes;
}

static void wait_for_bytes(struct rmq_raft_events *events, size_t bytes)
{
    for (int waited = 0; bytes_of(events) < bytes; ++waited) {
        check("the queue fills", waited < PATIENCE_MS);
        usleep(1000);
    }
}

static void check_event(const struct rmq_raft_event *event, uint64_t expected[ADDERS])
{
    check("an adder's number", event->request < ADDERS);
    check("the order of an adder", event->index == expected[event->request]++);
    check("the size of an event", event->size == size_of(event->index));
    for (size_t at = 0; at < event->size; at += 97)
        check("the data of an event", event->data[at] == event->index % 251);
}

static void take_all(struct rmq_raft_events *events, uint64_t total)
{
    uint64_t expected[ADDERS] = {0};
    uint64_t taken = 0;
    while (taken < total) {
        struct pollfd pollfd = {.fd = events->fd, .events = POLLIN};
        check("the descriptor announces events", poll(&pollfd, 1, PATIENCE_MS) == 1);
        uint64_t count;
        check("the descriptor is read", read(events->fd, &count, sizeof count) == sizeof count);
        check("the bound holds", bytes_of(events) <= RMQ_RAFT_EVENTS_BYTES_MAX);
        struct rmq_raft_event *event;
        while ((event = rmq_raft_events_take(events)) != NULL) {
            check_event(event, expected);
            free(event);
            ++taken;
        }
    }
    check("nothing comes twice", taken == total && rmq_raft_events_take(events) == NULL);
}

static void pass_through(struct rmq_raft_events *events, uint64_t count)
{
    pthread_t threads[ADDERS];
    struct adder adders[ADDERS];
    for (uint64_t i = 0; i < ADDERS; ++i) {
        adders[i] = (struct adder){.events = events, .number = i, .count = count};
        check("a thread", pthread_create(&threads[i], NULL, run_adder, &adders[i]) == 0);
    }
    wait_for_bytes(events, RMQ_RAFT_EVENTS_BYTES_MAX - 2 * LARGE_SIZE);
    take_all(events, ADDERS * count);
    for (int i = 0; i < ADDERS; ++i)
        pthread_join(threads[i], NULL);
}

static void *add_three(void *events)
{
    for (uint64_t index = 0; index < 3; ++index)
        add(events, 0, index, 100);
    return NULL;
}

int main(int argc, char **argv)
{
    check("usage: raft_events EVENTS_PER_THREAD", argc == 2);
    struct rmq_raft_events events;
    check("the queue", rmq_raft_events_init(&events) == 0);
    pass_through(&events, strtoull(argv[1], NULL, 10));

    /* A single event may be larger than the bound; the next one waits. */
    add(&events, 0, 0, RMQ_RAFT_EVENTS_BYTES_MAX + 1);
    size_t bytes = bytes_of(&events);
    pthread_t thread;
    check("a thread", pthread_create(&thread, NULL, add_three, &events) == 0);
    usleep(20000);
    check("a full queue takes nothing more", bytes_of(&events) == bytes);
    rmq_raft_events_unbound(&events);
    pthread_join(thread, NULL);
    check("without a bound it takes all", bytes_of(&events) > bytes + 300);
    rmq_raft_events_destroy(&events);
    return 0;
}
