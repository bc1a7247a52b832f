#include "log/dispatch.h"

#include <assert.h>
#include <errno.h>
#include <inttypes.h>
#include <linux/membarrier.h>
#include <stddef.h>
#include <string.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "base/bytes.h"

/* Records entered before positions are published and the limit is read again. */
#define RMQ_DISPATCH_CHUNK 256
/* While idle the thread checks for records this many times, at this interval, before it parks. */
#define RMQ_IDLE_NAP_US 50
#define RMQ_IDLE_NAPS 40
/* The interval where a confirm offset bounds the log. The confirm offset rises with every
 * acknowledgement; waking the thread for each would cost puts that wait for replicas a quarter of
 * their time. */
#define RMQ_BOUND_NAP_US 1000
/* A parked thread checks at this interval for a failure that another thread caused. */
#define RMQ_PARK_US 50000
/* The interval while a record cannot be entered, such as an incomplete one, or while there is no
 * fence between the stores of other threads and their read of `parked`. */
#define RMQ_RETRY_US 1000
/* The interval while the disk has no room. */
#define RMQ_NO_ROOM_RETRY_US 10000
/* A full disk delays the closing of a store by at most this long; the abort marker then stays. */
#define RMQ_STOP_PATIENCE_MS 1000

#define RMQ_CACHE_LINE 64
_Static_assert(offsetof(struct rmq_dispatcher, recent) -
                       offsetof(struct rmq_dispatcher, waits_for_room) >
                   RMQ_CACHE_LINE,
               "appends read no cache line that the thread writes for every record");

/* ---- walking ---- */

int64_t rmq_dispatcher_confirmed(const struct rmq_dispatcher *dispatcher)
{
    assert(dispatcher->log);

    /* The bound is read last: see rmq_dispatcher_hold. */
    int64_t end = rmq_file_queue_end(&dispatcher->log->files);
    return rmq_confirm_limit(rmq_confirm_load(&dispatcher->confirm), end);
}

int64_t rmq_dispatcher_limit(struct rmq_dispatcher *dispatcher)
{
    int64_t limit = rmq_dispatcher_confirmed(dispatcher);
    if (dispatcher->options.limit_to_flushed) {
        int64_t flushed = rmq_file_queue_flushed(&dispatcher->log->files);
        if (flushed < limit)
            limit = flushed;
    }
    return limit;
}

void rmq_dispatcher_confirm(struct rmq_dispatcher *dispatcher, struct rmq_confirm confirm)
{
    if (!rmq_confirm_raise(&dispatcher->confirm, confirm))
        return;

    /* Readers that wait for records must not wait for the end of the thread's sleep. */
    if (atomic_load(&dispatcher->waiters) > 0)
        rmq_event_count_advance(&dispatcher->calls);
    else
        rmq_dispatcher_nudge(dispatcher);
    rmq_wakeups_nudge(&dispatcher->confirmed);
}

int64_t rmq_dispatcher_hold(struct rmq_dispatcher *dispatcher)
{
    struct rmq_file_queue *files = &dispatcher->log->files;
    if (!rmq_dispatcher_is_bound(dispatcher)) {
        rmq_confirm_store(&dispatcher->confirm, rmq_confirm_at(rmq_file_queue_end(files)));
        /* The thread may have read a later end before it could see the bound, and entered records
         * by it; readers get these records. That end is at most the present end. */
        atomic_thread_fence(memory_order_seq_cst);
        rmq_confirm_store(&dispatcher->confirm, rmq_confirm_at(rmq_file_queue_end(files)));
    }
    return rmq_dispatcher_confirmed(dispatcher);
}

static void publish(struct rmq_dispatcher *dispatcher, int64_t offset)
{
    assert(offset >= 0);

    atomic_store_explicit(&dispatcher->dispatched_offset, offset, memory_order_seq_cst);

    rmq_wakeups_nudge(&dispatcher->dispatched);
    if (atomic_load(&dispatcher->waiters) > 0) {
        pthread_mutex_lock(&dispatcher->lock);
        pthread_cond_broadcast(&dispatcher->progressed);
        pthread_mutex_unlock(&dispatcher->lock);
    }
}

/* Enters up to one chunk of records of one file; *moved is true if any was entered. An incomplete
 * record (bytes of a replica arrive in pieces) ends the chunk. */
static int dispatch_chunk(struct rmq_dispatcher *dispatcher, struct rmq_mapped_file *file,
                          int64_t limit, int64_t *offset, struct rmq_error *err)
{
    assert(*offset >= file->start && *offset < file->start + file->size);

    const uint8_t *base = rmq_mapped_file_base(file);
    int64_t file_end = file->start + file->size;
    int64_t stop = limit < file_end ? limit : file_end;
    for (int i = 0; i < RMQ_DISPATCH_CHUNK && *offset < stop; ++i) {
        struct rmq_record record;
        const uint8_t *data = base + (*offset - file->start);
        size_t available = (size_t)(stop - *offset);

        if (available < RMQ_BLANK_SIZE)
            return RMQ_OK;
        int32_t size = rmq_get_i32(data);
        bool is_blank = (uint32_t)rmq_get_i32(data + 4) == RMQ_MAGIC_BLANK;
        if (!is_blank && size > 0 && (size_t)size > available && stop < file_end)
            return RMQ_OK;

        int status = rmq_record_decode(data, available, *offset, RMQ_CHECK_PLACE, &record, err);
        if (status == RMQ_END && record.total_size == RMQ_BLANK_SIZE) {
            *offset = file_end;
            return RMQ_OK;
        }

        if (status == RMQ_END)
            return rmq_fail(err, RMQ_CORRUPT, *offset,
                            "%s: no record at offset %" PRId64 ", though the log ends at %" PRId64,
                            file->path, *offset, rmq_file_queue_end(&dispatcher->log->files));
        if (status == RMQ_OK)
            status = rmq_dispatch_record(dispatcher, &record, RMQ_TO_QUEUES | RMQ_TO_INDEX, err);
        if (status != RMQ_OK)
            return status;

        *offset += record.total_size;
        assert(*offset <= file_end);
    }
    return RMQ_OK;
}

/* One turn. *moved is false when there was no record to enter, or no room for it. */
static int dispatch_some(struct rmq_dispatcher *dispatcher, bool *moved, struct rmq_error *err)
{
    int64_t before = atomic_load_explicit(&dispatcher->dispatched_offset, memory_order_relaxed);
    int64_t limit = rmq_dispatcher_limit(dispatcher);
    int64_t start = rmq_file_queue_start(&dispatcher->log->files);
    int64_t offset = before;
    *moved = false;
    if (offset < start)
        offset =
            start; /* Records that expired before they were dispatched are gone from the log. */
    if (start < 0)
        return RMQ_OK;

    int status = RMQ_OK;
    if (offset < limit) {
        struct rmq_mapped_file *file = NULL;
        status = rmq_file_queue_pin(&dispatcher->log->files, offset, &file, err);
        if (status == RMQ_NOT_FOUND)
            return RMQ_OK; /* The file has just expired. */
        if (status != RMQ_OK)
            return status;
        status = dispatch_chunk(dispatcher, file, limit, &offset, err);
        rmq_mapped_file_unpin(file);
    }

    assert(offset >= before);
    if (offset != before) {
        *moved = true;
        publish(dispatcher, offset);
    }
    return status;
}

/* ---- the thread ---- */

/* Whether every other thread of the process has passed a fence (or, at first, whether the system
 * can make them do so). False in a sandbox that forbids the call. */
static bool membarrier(int command)
{
    return syscall(SYS_membarrier, command, 0, 0) == 0;
}

/* Sleeps a little, then until it is called; `calls` was read before the last check for records. */
static void idle(struct rmq_dispatcher *dispatcher, uint32_t calls, int *naps)
{
    assert(*naps >= 0 && *naps <= RMQ_IDLE_NAPS);

    if (*naps < RMQ_IDLE_NAPS) {
        ++*naps;
        rmq_event_count_await(&dispatcher->calls, calls,
                              rmq_dispatcher_is_bound(dispatcher) ? RMQ_BOUND_NAP_US
                                                                  : RMQ_IDLE_NAP_US);
        return;
    }

    atomic_store_explicit(&dispatcher->parked, true, memory_order_relaxed);
    bool may_park = dispatcher->has_barrier && membarrier(MEMBARRIER_CMD_PRIVATE_EXPEDITED);
    if (rmq_dispatcher_limit(dispatcher) > atomic_load(&dispatcher->dispatched_offset))
        may_park = false;

    rmq_event_count_await(&dispatcher->calls, calls,
                          may_park                     ? RMQ_PARK_US
                          : dispatcher->waits_for_room ? RMQ_NO_ROOM_RETRY_US
                                                       : RMQ_RETRY_US);
    atomic_store_explicit(&dispatcher->parked, false, memory_order_relaxed);
}

/* What the thread does next. */
enum turn { RMQ_TURN_WORK, RMQ_TURN_REST, RMQ_TURN_END };

static enum turn next_turn(struct rmq_dispatcher *dispatcher)
{
    assert(dispatcher->failure);

    enum turn turn = RMQ_TURN_WORK;
    pthread_mutex_lock(&dispatcher->lock);
    if (dispatcher->pause || atomic_load(&dispatcher->failure->status) != RMQ_OK)
        turn = dispatcher->stop ? RMQ_TURN_END : RMQ_TURN_REST;

    dispatcher->resting = turn != RMQ_TURN_WORK;
    if (dispatcher->resting)
        pthread_cond_broadcast(&dispatcher->progressed);
    pthread_mutex_unlock(&dispatcher->lock);
    return turn;
}

/* Whether the thread may end; status is that of its last check for records. */
static bool is_done(struct rmq_dispatcher *dispatcher, int status)
{
    pthread_mutex_lock(&dispatcher->lock);
    /* Only an incomplete record is left, or records wait for room on the disk. */
    bool is_over =
        dispatcher->stop && (status == RMQ_OK || rmq_monotonic_ms() >= dispatcher->stop_by_ms);

    if (is_over) {
        dispatcher->resting = true;
        pthread_cond_broadcast(&dispatcher->progressed);
    }
    pthread_mutex_unlock(&dispatcher->lock);
    return is_over;
}

/* Records for callers whether the last check for records found a full disk, or a process without a
 * free descriptor. */
static void note_room(struct rmq_dispatcher *dispatcher, bool lacks_room,
                      const struct rmq_error *error)
{
    assert(!lacks_room || error->status != RMQ_OK);

    if (!lacks_room && !dispatcher->waits_for_room)
        return;

    pthread_mutex_lock(&dispatcher->lock);
    dispatcher->waits_for_room = lacks_room;
    if (lacks_room) {
        dispatcher->no_room = *error;
        dispatcher->no_room_offset = atomic_load(&dispatcher->dispatched_offset);
        ++dispatcher->refused_looks;
        pthread_cond_broadcast(&dispatcher->progressed);
    }
    pthread_mutex_unlock(&dispatcher->lock);
}

static void *run(void *argument)
{
    struct rmq_dispatcher *dispatcher = argument;
    int naps = 0;
    for (;;) {
        struct rmq_error error;
        bool moved = false;
        uint32_t calls = rmq_event_count_read(&dispatcher->calls);
        enum turn turn = next_turn(dispatcher);

        if (turn == RMQ_TURN_END)
            return NULL;
        if (turn == RMQ_TURN_REST) {
            rmq_event_count_await(&dispatcher->calls, calls, -1);
            continue;
        }

        int status = dispatch_some(dispatcher, &moved, &error);
        bool lacks_room =
            status != RMQ_OK && (status == RMQ_NO_SPACE || rmq_error_lacks_descriptor(&error));
        if (status != RMQ_OK && !lacks_room)
            rmq_failure_set(dispatcher->failure, &error);
        note_room(dispatcher, lacks_room, &error);

        if (moved)
            naps = 0;
        else if (is_done(dispatcher, status))
            return NULL;
        else
            idle(dispatcher, calls, &naps);
    }
}

static int64_t dispatched_of(const void *dispatcher)
{
    return atomic_load(&((const struct rmq_dispatcher *)dispatcher)->dispatched_offset);
}

static int64_t confirmed_of(const void *dispatcher)
{
    return rmq_dispatcher_confirmed(dispatcher);
}

void rmq_dispatcher_init(struct rmq_dispatcher *dispatcher, struct rmq_commit_log *log,
                         struct rmq_queue_table *queues, struct rmq_index *index,
                         struct rmq_clock *clock, struct rmq_failure *failure,
                         const struct rmq_dispatch_options *options)
{
    assert(log && queues && clock && failure);

    memset(dispatcher, 0, sizeof *dispatcher);
    dispatcher->log = log;
    dispatcher->queues = queues;
    dispatcher->index = index;
    dispatcher->clock = clock;
    dispatcher->failure = failure;
    dispatcher->options = *options;

    dispatcher->resting = true;
    rmq_confirm_store(&dispatcher->confirm, rmq_confirm_unset());
    atomic_init(&dispatcher->last_offset, -1);

    rmq_wakeups_init(&dispatcher->dispatched, dispatched_of, dispatcher);
    rmq_wakeups_init(&dispatcher->confirmed, confirmed_of, dispatcher);
    pthread_mutex_init(&dispatcher->lock, NULL);

    pthread_condattr_t monotonic;
    pthread_condattr_init(&monotonic);
    pthread_condattr_setclock(&monotonic, CLOCK_MONOTONIC);
    pthread_cond_init(&dispatcher->progressed, &monotonic);
    pthread_condattr_destroy(&monotonic);
}

int rmq_dispatcher_start(struct rmq_dispatcher *dispatcher, struct rmq_error *err)
{
    assert(!dispatcher->has_thread);

    dispatcher->has_barrier = membarrier(MEMBARRIER_CMD_REGISTER_PRIVATE_EXPEDITED);
    int error = pthread_create(&dispatcher->thread, NULL, run, dispatcher);
    if (error)
        return rmq_fail_os(err, error, "starting the dispatcher thread");
    dispatcher->has_thread = true;
    return RMQ_OK;
}

void rmq_dispatcher_stop(struct rmq_dispatcher *dispatcher)
{
    if (!dispatcher->has_thread)
        return;

    pthread_mutex_lock(&dispatcher->lock);
    dispatcher->stop = true;
    dispatcher->stop_by_ms = rmq_monotonic_ms() + RMQ_STOP_PATIENCE_MS;
    pthread_mutex_unlock(&dispatcher->lock);

    rmq_event_count_advance(&dispatcher->calls);
    pthread_join(dispatcher->thread, NULL);
    assert(dispatcher->resting);
    dispatcher->has_thread = false;
}

void rmq_dispatcher_destroy(struct rmq_dispatcher *dispatcher)
{
    assert(!dispatcher->has_thread);

    rmq_wakeups_destroy(&dispatcher->confirmed);
    rmq_wakeups_destroy(&dispatcher->dispatched);
    pthread_cond_destroy(&dispatcher->progressed);
    pthread_mutex_destroy(&dispatcher->lock);
}

/* The caller holds the lock. */
static int fail_for_room(const struct rmq_dispatcher *dispatcher, struct rmq_error *err)
{
    assert(dispatcher->no_room.status != RMQ_OK);

    const struct rmq_error *why = &dispatcher->no_room;
    int64_t offset = atomic_load(&dispatcher->dispatched_offset);
    int status = rmq_fail(err, RMQ_NO_SPACE, offset,
                          "records from offset %" PRId64
                          " on are stored, and enter their queues once there is room: %s",
                          offset, why->detail);

    if (err)
        err->os_errno = why->os_errno;
    return status;
}

int rmq_dispatcher_check_room(struct rmq_dispatcher *dispatcher, struct rmq_error *err)
{
    pthread_mutex_lock(&dispatcher->lock);
    /* Once that record is entered there was room, though the thread has not recorded this yet. */
    bool waits = dispatcher->waits_for_room &&
                 atomic_load(&dispatcher->dispatched_offset) == dispatcher->no_room_offset;
    int status = waits ? fail_for_room(dispatcher, err) : RMQ_OK;
    pthread_mutex_unlock(&dispatcher->lock);
    return status;
}

int rmq_dispatcher_wait(struct rmq_dispatcher *dispatcher, int64_t offset, int64_t timeout_ms,
                        struct rmq_error *err)
{
    assert(timeout_ms >= 0);

    if (atomic_load_explicit(&dispatcher->dispatched_offset, memory_order_acquire) >= offset)
        return RMQ_OK;
    int status = RMQ_OK;
    struct timespec until = rmq_monotonic_after(timeout_ms);

    pthread_mutex_lock(&dispatcher->lock);

    /* The next refusal may come from an attempt that began before this call. */
    uint64_t refused_looks = dispatcher->refused_looks + 2;
    atomic_fetch_add(&dispatcher->waiters, 1);
    rmq_event_count_advance(&dispatcher->calls);

    while (atomic_load(&dispatcher->dispatched_offset) < offset && status == RMQ_OK) {
        status = rmq_failure_check(dispatcher->failure, err);
        if (status == RMQ_OK && dispatcher->refused_looks >= refused_looks)
            status = fail_for_room(dispatcher, err);
        if (status == RMQ_OK &&
            pthread_cond_timedwait(&dispatcher->progressed, &dispatcher->lock, &until) ==
                ETIMEDOUT &&
            atomic_load(&dispatcher->dispatched_offset) < offset)
            status = rmq_fail(err, RMQ_TIMEOUT, atomic_load(&dispatcher->dispatched_offset),
                              "dispatch reached %" PRId64 ", not %" PRId64 ", in %" PRId64 " ms",
                              atomic_load(&dispatcher->dispatched_offset), offset, timeout_ms);
    }

    assert(atomic_load(&dispatcher->waiters) > 0);
    atomic_fetch_sub(&dispatcher->waiters, 1);
    pthread_mutex_unlock(&dispatcher->lock);
    return status;
}

void rmq_dispatcher_pause(struct rmq_dispatcher *dispatcher)
{
    pthread_mutex_lock(&dispatcher->lock);
    dispatcher->pause = true;
    assert(dispatcher->has_thread || dispatcher->resting);
    rmq_event_count_advance(&dispatcher->calls);

    while (!dispatcher->resting)
        pthread_cond_wait(&dispatcher->progressed, &dispatcher->lock);
    pthread_mutex_unlock(&dispatcher->lock);
}

void rmq_dispatcher_resume(struct rmq_dispatcher *dispatcher, int64_t offset)
{
    assert(offset >= 0);

    pthread_mutex_lock(&dispatcher->lock);
    assert(dispatcher->pause && dispatcher->resting);
    atomic_store(&dispatcher->dispatched_offset, offset);
    dispatcher->pause = false;
    pthread_mutex_unlock(&dispatcher->lock);
    rmq_event_count_advance(&dispatcher->calls);
    rmq_wakeups_nudge(&dispatcher->dispatched);
    rmq_wakeups_nudge(&dispatcher->confirmed);
}
