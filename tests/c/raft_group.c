/* raft_group.c -- three Raft nodes in one process, for the sanitizers.
 *
 * Commands are committed while snapshots are taken. Then all nodes close, the leader with writes
 * under way, and start again: they have one history, which begins with what was committed.
 *
 * usage: raft_group DIRECTORY COMMANDS PORT PORT PORT. Exits 0 when all went well.
 */
#include <inttypes.h>
#include <poll.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "raft/raft_node.h"

#define NODES 3
#define IN_FLIGHT 16
#define LATE 400
#define ADDRESS_SIZE 32
#define PATH_SIZE 512
/* Far beyond any load: what takes longer hangs. */
#define PATIENCE_MS 240000

struct member {
    struct rmq_raft *node;
    pthread_t thread;
    char address[ADDRESS_SIZE], directory[PATH_SIZE];
    _Atomic bool leads;
    _Atomic uint64_t ended, committed; /* requests */
    pthread_mutex_t lock;
    uint64_t *history; /* the commands that are applied */
    size_t count, room;
    uint64_t last_index;
};

static struct member members[NODES];
static struct rmq_raft_peer peers[NODES];

static void check(const char *act, bool is_right)
{
    if (!is_right) {
        fprintf(stderr, "%s\n", act);
        exit(1);
    }
}

static void resize(struct member *member, size_t count)
{
    while (member->room < count)
        member->room = member->room * 2 + 64;
    member->history = realloc(member->history, member->room * sizeof *member->history);
    check("memory for the history", member->history != NULL);
    member->count = count;
}

/* Commands have all sizes: libraft alone cannot read back each of them. */
static size_t size_of(uint64_t command)
{
    return sizeof command + command % 11;
}

static void apply(struct member *member, const struct rmq_raft_event *event)
{
    uint64_t command;
    check("a command has a number", event->size >= sizeof command);
    memcpy(&command, event->data, sizeof command);
    check("the size of a command", event->size == size_of(command));
    for (size_t at = sizeof command; at < event->size; ++at)
        check("the bytes of a command", event->data[at] == 'x');
    pthread_mutex_lock(&member->lock);
    check("commands come in order", event->index > member->last_index && event->term > 0);
    member->last_index = event->index;
    resize(member, member->count + 1);
    member->history[member->count - 1] = command;
    pthread_mutex_unlock(&member->lock);
}

static void restore(struct member *member, const struct rmq_raft_event *event)
{
    pthread_mutex_lock(&member->lock);
    check("the size of a state", event->size % sizeof *member->history == 0);
    resize(member, event->size / sizeof *member->history);
    memcpy(member->history, event->data, event->size);
    pthread_mutex_unlock(&member->lock);
}

static void handle(struct member *member, const struct rmq_raft_event *event)
{
    switch (event->kind) {
    case RMQ_RAFT_APPLY:
        apply(member, event);
        break;
    case RMQ_RAFT_RESTORE:
        restore(member, event);
        break;
    case RMQ_RAFT_SNAPSHOT:
        check("a snapshot", rmq_raft_give_snapshot(member->node, member->history,
                                                   member->count * sizeof(uint64_t)) == 0);
        break;
    case RMQ_RAFT_DONE:
        if (event->status == RMQ_RAFT_OK)
            ++member->committed;
        ++member->ended;
        break;
    case RMQ_RAFT_LEADERSHIP:
        member->leads = event->status;
        break;
    case RMQ_RAFT_FAILED:
        fprintf(stderr, "%.*s\n", (int)event->size, (const char *)event->data);
        check("no node fails", false);
        break;
    case RMQ_RAFT_CLOSED:
        break;
    }
}

static void *run_member(void *argument)
{
    struct member *member = argument;
    struct rmq_raft_events *events = rmq_raft_events_of(member->node);
    bool is_closed = false;
    while (!is_closed) {
        struct pollfd pollfd = {.fd = events->fd, .events = POLLIN};
        check("the descriptor announces events", poll(&pollfd, 1, PATIENCE_MS) == 1);
        uint64_t count;
        check("it is read", read(events->fd, &count, sizeof count) == sizeof count);
        struct rmq_raft_event *event;
        while ((event = rmq_raft_events_take(events)) != NULL) {
            handle(member, event);
            is_closed = is_closed || event->kind == RMQ_RAFT_CLOSED;
            free(event);
        }
    }
    return NULL;
}

static struct rmq_raft_options options_of(int number)
{
    return (struct rmq_raft_options){
        .directory = members[number].directory,
        .id = peers[number].id,
        .bind_address = members[number].address,
        .peers = peers,
        .peer_count = NODES,
        .election_ms = 1000,
        .heartbeat_ms = 100,
        .snapshot_entries = 50,
        .trailing_entries = 20,
    };
}

static void start(int number)
{
    struct member *member = &members[number];
    char error[RMQ_RAFT_ERROR_SIZE] = "";
    struct rmq_raft_options options = options_of(number);
    member->leads = false;
    member->count = member->last_index = 0;
    check(error, rmq_raft_open(&member->node, &options, error) == 0);
    check("a thread", pthread_create(&member->thread, NULL, run_member, member) == 0);
}

static void end(int number)
{
    struct member *member = &members[number];
    rmq_raft_close(member->node);
    pthread_join(member->thread, NULL);
    rmq_raft_free(member->node);
}

static struct member *leader(void)
{
    for (int waited = 0; waited < PATIENCE_MS; ++waited) {
        for (int i = 0; i < NODES; ++i)
            if (members[i].leads)
                return &members[i];
        usleep(1000);
    }
    check("a node leads", false);
    return NULL;
}

static void propose(struct member *member, uint64_t command)
{
    uint8_t data[32];
    memset(data, 'x', sizeof data);
    memcpy(data, &command, sizeof command);
    check("a proposal", rmq_raft_propose(member->node, command, data, size_of(command)) == 0);
}

static void wait_for(_Atomic uint64_t *value, uint64_t least)
{
    for (int waited = 0; *value < least; ++waited) {
        check("a request ends", waited < PATIENCE_MS);
        usleep(1000);
    }
}

/* Commits so many commands, of consecutive numbers; where leadership changes some are not. */
static uint64_t commit(uint64_t first, uint64_t count)
{
    uint64_t committed = 0, proposed = 0;
    while (committed < count) {
        struct member *member = leader();
        uint64_t ended = member->ended, before = member->committed;
        for (int i = 0; i < IN_FLIGHT; ++i)
            propose(member, first + proposed++);
        wait_for(&member->ended, ended + IN_FLIGHT);
        committed += member->committed - before;
    }
    return proposed;
}

static bool are_equal(size_t least)
{
    bool is_equal = true;
    for (int i = 0; i < NODES; ++i)
        pthread_mutex_lock(&members[i].lock);
    for (int i = 0; i < NODES; ++i)
        is_equal = is_equal && members[i].count >= least && members[i].count == members[0].count &&
                   memcmp(members[i].history, members[0].history,
                          members[0].count * sizeof(uint64_t)) == 0;
    for (int i = 0; i < NODES; ++i)
        pthread_mutex_unlock(&members[i].lock);
    return is_equal;
}

static void wait_for_one_history(size_t least)
{
    for (int waited = 0; !are_equal(least); ++waited) {
        check("all nodes have one history", waited < PATIENCE_MS);
        usleep(1000);
    }
}

int main(int argc, char **argv)
{
    check("usage: raft_group DIRECTORY COMMANDS PORT PORT PORT", argc == 3 + NODES);
    uint64_t count = strtoull(argv[2], NULL, 10);
    for (int i = 0; i < NODES; ++i) {
        struct member *member = &members[i];
        snprintf(member->address, ADDRESS_SIZE, "127.0.0.1:%s", argv[3 + i]);
        snprintf(member->directory, PATH_SIZE, "%s/%d", argv[1], i);
        peers[i] = (struct rmq_raft_peer){.id = (uint64_t)i + 1, .address = member->address};
        pthread_mutex_init(&member->lock, NULL);
        check("a directory", mkdir(member->directory, 0755) == 0);
    }
    for (int i = 0; i < NODES; ++i) {
        char error[RMQ_RAFT_ERROR_SIZE] = "";
        struct rmq_raft_options options = options_of(i);
        check(error, rmq_raft_found(&options, error) == 0);
    }
    for (int i = 0; i < NODES; ++i)
        start(i);
    uint64_t next = 1 + commit(1, count);
    wait_for_one_history(count);
    size_t held = members[0].count;
    uint64_t *former = malloc(held * sizeof *former);
    check("memory", former != NULL);
    memcpy(former, members[0].history, held * sizeof *former);

    struct member *late = leader();
    for (uint64_t i = 0; i < LATE; ++i)
        propose(late, next + i);
    end((int)(late - members));
    for (int i = 0; i < NODES; ++i)
        if (&members[i] != late)
            end(i);

    for (int i = 0; i < NODES; ++i)
        start(i);
    struct member *last = leader();
    uint64_t ended = last->ended;
    check("a barrier", rmq_raft_barrier(last->node, UINT64_MAX) == 0);
    wait_for(&last->ended, ended + 1);
    wait_for_one_history(held);
    check("it begins as before", memcmp(former, members[0].history, held * sizeof *former) == 0);
    for (int i = 0; i < NODES; ++i) {
        end(i);
        free(members[i].history);
    }
    free(former);
    return 0;
}
