/* pump.c -- a master and a slave whose connection breaks again and again, for the sanitizers.
 *
 * Writers put on the master and wait for the slave's copy; meanwhile connections are stopped in the
 * middle, on either side first, and made again where the slave's log ends; some acknowledge memory,
 * some the disk. At the end both logs are the same.
 *
 * usage: pump DIRECTORY DIRECTORY MESSAGES_PER_WRITER CONNECTIONS. Exits 0 when all went well.
 */
#include <fcntl.h>
#include <inttypes.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "replica/pump.h"

#define WRITERS 3
#define BODY_SIZE 300
/* Far beyond any load: what takes longer hangs. */
#define PATIENCE_MS 240000

struct side {
    struct rmq_store *store;
    struct rmq_gate *gate;
    struct rmq_pump *pump;
    int64_t link;
};

struct writer {
    struct rmq_store *store;
    struct rmq_ack_board *board;
    int64_t messages;
    int32_t number;
    _Atomic int *running;
};

static void die(const char *act, const struct rmq_error *err)
{
    fprintf(stderr, "%s: %s\n", act, err->detail);
    exit(1);
}

static void check(const char *act, bool is_right)
{
    if (!is_right) {
        fprintf(stderr, "%s\n", act);
        exit(1);
    }
}

static void open_side(struct side *side, const char *directory, struct rmq_ack_board **board)
{
    struct rmq_error err;
    struct rmq_store_options options = {
        .root = directory,
        .index_enable = true,
        .check_crc_on_recover = true,
        .log_file_size = 1 << 18,
        .queue_file_size = 20000,
        .batch_queue_file_size = 46000,
        .ext_file_size = 1 << 16,
        .index_slot_count = 997,
        .index_entry_count = 5000,
        .log = {.limits = {1 << 16, (1 << 16) + 65536, true, false}},
        .flush = {.log_interval_ms = 5,
                  .log_thorough_ms = 50,
                  .log_least_pages = 1,
                  .queue_interval_ms = 5,
                  .queue_thorough_ms = 50,
                  .queue_least_pages = 1}};
    if (rmq_store_open(&options, &side->store, &err) != RMQ_OK)
        die("open", &err);
    side->gate = rmq_gate_create();
    if (board)
        *board = rmq_ack_board_create(rmq_ack_log_of_store(side->store));
    struct rmq_pump_options pump = {
        .store = side->store, .gate = side->gate, .board = board ? *board : NULL};
    if (rmq_pump_open(&pump, &side->pump, &err) != RMQ_OK)
        die("pump", &err);
}

static void *write_all(void *argument)
{
    struct writer *writer = argument;
    uint8_t body[BODY_SIZE];
    memset(body, 'a' + writer->number, sizeof body);
    struct rmq_host host = {.address = {127, 0, 0, 1}, .port = 10911, .size = 4};
    struct rmq_message message = {.topic = "pump",
                                  .topic_size = 4,
                                  .queue_id = writer->number,
                                  .body = body,
                                  .body_size = sizeof body,
                                  .born_timestamp = 1,
                                  .born_host = host,
                                  .store_host = host};
    for (int64_t i = 0; i < writer->messages; ++i) {
        struct rmq_error err;
        struct rmq_receipt receipt;
        size_t stored = 0;
        struct rmq_ack_need need;
        int32_t copies = 0;
        check("refused", rmq_ack_board_admit(writer->board, true, 2, &need) == RMQ_PUT_OK);
        if (rmq_store_put(writer->store, &message, 1, false, &receipt, &stored, &err) != RMQ_OK)
            die("put", &err);
        check("no copy", i % 8 != 0 || rmq_ack_board_wait(writer->board, &need,
                                                          receipt.physical_offset + receipt.size,
                                                          PATIENCE_MS, &copies) == RMQ_PUT_OK);
    }
    atomic_fetch_sub(writer->running, 1);
    return NULL;
}

static void set_rule(struct rmq_ack_board *board, int32_t slot)
{
    struct rmq_error err;
    struct rmq_ack_rule rule = {.counted = &slot,
                                .counted_count = 1,
                                .is_gated = true,
                                .confirm_copies = 2,
                                .reason = "",
                                .copies = 2,
                                .present = -1,
                                .available = -1,
                                .lease_end_ms = INT64_MAX,
                                .waiting_max = 1 << 20,
                                .timeout_ms = PATIENCE_MS};
    rmq_ack_board_freeze(board);
    if (rmq_ack_board_thaw(board, &rule, &err) != RMQ_OK)
        die("thaw", &err);
}

static void await_first_append(const struct side *side)
{
    struct rmq_error err;
    struct rmq_wakeup wakeup;
    if (rmq_wakeup_open(&wakeup, rmq_store_wakeups(side->store, RMQ_GREW), &err) != RMQ_OK)
        die("wakeup", &err);
    if (!rmq_wakeup_arm(&wakeup, 0)) {
        struct pollfd wanted = {.fd = wakeup.fd, .events = POLLIN};
        check("nothing is put", poll(&wanted, 1, PATIENCE_MS) == 1);
    }
    rmq_wakeup_close(&wakeup);
}

static void connect_sides(struct side *master, struct side *slave, int64_t border, int32_t slot,
                          bool acks_disk, int ends[2])
{
    struct rmq_error err;
    int64_t offset = rmq_store_end(slave->store);
    check("socketpair", socketpair(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK, 0, ends) == 0);
    struct rmq_pump_send_options send = {.fd = ends[0],
                                         .has_epochs = true,
                                         .is_checked = offset % 16 != 8,
                                         .batch_size = 1000,
                                         .slot = slot,
                                         .epoch = 7,
                                         .next_offset = offset,
                                         .acked_offset = -1,
                                         .until = -1,
                                         .said_confirm = -1};
    struct rmq_pump_receive_options receive = {.fd = ends[1],
                                               .has_epochs = true,
                                               .is_checked = send.is_checked,
                                               .ack_flushed = acks_disk,
                                               .epoch = 7,
                                               .next_offset = offset,
                                               .acked_offset = -1,
                                               .border = border};
    if (rmq_pump_send(master->pump, &send, &master->link, &err) != RMQ_OK)
        die("send", &err);
    if (rmq_pump_receive(slave->pump, &receive, &slave->link, &err) != RMQ_OK)
        die("receive", &err);
}

/* Polls until the link has acknowledged offset, or nobody writes any more. */
static void follow(struct side *master, int64_t offset)
{
    struct rmq_error err;
    struct rmq_pump_report report;
    struct rmq_link_progress progress = {.acked_offset = -1};
    int64_t until_ms = rmq_monotonic_ms() + PATIENCE_MS;
    while (progress.acked_offset < offset) {
        struct pollfd wanted = {.fd = rmq_pump_notice_fd(master->pump), .events = POLLIN};
        check("nothing moves", rmq_monotonic_ms() < until_ms);
        (void)poll(&wanted, 1, 20);
        while (rmq_pump_poll(master->pump, &report) == RMQ_OK)
            check("an end nobody asked for", report.end == RMQ_PUMP_ACKED);
        if (rmq_pump_progress(master->pump, master->link, &progress, &err) != RMQ_OK)
            die("progress", &err);
        (void)rmq_pump_heartbeat(master->pump, master->link, &err);
    }
}

static int64_t stop_link(struct side *side)
{
    struct rmq_error err;
    struct rmq_pump_report report;
    if (rmq_pump_stop(side->pump, side->link, &report, &err) != RMQ_OK)
        die("stop", &err);
    check("another end", report.end == RMQ_PUMP_STOPPED || report.end == RMQ_PUMP_CLOSED);
    rmq_pump_report_finish(&report);
    return report.progress.border;
}

static void compare(struct side *master, struct side *slave)
{
    int64_t end = rmq_store_end(master->store);
    check("ends differ", end == rmq_store_end(slave->store));
    for (int64_t at = 0; at < end; at += 1 << 18) {
        struct rmq_mapped_file *ours, *theirs;
        struct rmq_error err;
        size_t size = (size_t)(end - at < 1 << 18 ? end - at : 1 << 18);
        if (rmq_store_pin(master->store, at, &ours, &err) != RMQ_OK ||
            rmq_store_pin(slave->store, at, &theirs, &err) != RMQ_OK)
            die("pin", &err);
        check("logs differ",
              memcmp(rmq_mapped_file_base(ours), rmq_mapped_file_base(theirs), size) == 0);
        rmq_mapped_file_unpin(ours);
        rmq_mapped_file_unpin(theirs);
    }
}

static void close_side(struct side *side)
{
    struct rmq_error err;
    rmq_pump_close(side->pump, false);
    rmq_gate_close(side->gate);
    rmq_gate_release(side->gate);
    if (rmq_store_close(side->store, &err) != RMQ_OK)
        die("close", &err);
}

int main(int argc, char **argv)
{
    if (argc != 5)
        return 2;
    struct side master, slave;
    struct rmq_ack_board *board;
    struct rmq_error err;
    struct writer writers[WRITERS];
    pthread_t threads[WRITERS];
    _Atomic int running = WRITERS;
    int64_t border = 0, connections = atoll(argv[4]);
    open_side(&master, argv[1], &board);
    open_side(&slave, argv[2], NULL);
    if (rmq_store_set_confirm_offset(slave.store, rmq_confirm_at(0), &err) != RMQ_OK)
        die("confirm", &err);
    for (int32_t i = 0; i < WRITERS; ++i)
        writers[i] = (struct writer){master.store, board, atoll(argv[3]), i, &running};
    for (int64_t round = 0; round < connections; ++round) {
        int ends[2];
        int32_t slot;
        if (rmq_ack_board_open_slot(board, &slot, &err) != RMQ_OK)
            die("slot", &err);
        set_rule(board, slot);
        if (round == 0) {
            for (int i = 0; i < WRITERS; ++i)
                check("thread", pthread_create(&threads[i], NULL, write_all, &writers[i]) == 0);
            await_first_append(&master);
        }
        connect_sides(&master, &slave, border, slot, round % 3 == 1, ends);
        bool is_last = round + 1 == connections;
        if (is_last)
            for (int i = 0; i < WRITERS; ++i)
                pthread_join(threads[i], NULL);
        int64_t end = rmq_store_end(master.store);
        follow(&master, end);
        if (round % 2 == 0)
            (void)stop_link(&master);
        border = stop_link(&slave);
        if (round % 2 != 0)
            (void)stop_link(&master);
        rmq_ack_board_close_slot(board, slot);
        close(ends[0]);
        close(ends[1]);
    }
    check("writers wait", atomic_load(&running) == 0);
    compare(&master, &slave);
    printf("%" PRId64 "\n", rmq_store_end(slave.store));
    rmq_pump_close(master.pump, false);
    rmq_ack_board_freeze(board);
    rmq_ack_board_abandon(board);
    rmq_ack_board_detach(board);
    rmq_ack_board_destroy(board);
    rmq_gate_close(master.gate);
    rmq_gate_release(master.gate);
    if (rmq_store_close(master.store, &err) != RMQ_OK)
        die("close", &err);
    close_side(&slave);
    return 0;
}
