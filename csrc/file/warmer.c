#include "file/warmer.h"

#include <assert.h>
#include <string.h>

/* The next file is made once this part of a file is used: making a file means a journal commit,
 * which may have to wait for all data being flushed. */
#define PREPARE_PART 8

static int64_t smaller(int64_t a, int64_t b)
{
    return a < b ? a : b;
}

/* ---- ranges ---- */

static int reserve_piece(struct rmq_warmer *warmer, struct rmq_mapped_file *file, int64_t upto,
                         int64_t window, struct rmq_error *err)
{
    assert(upto <= file->size && window > 0);

    bool syncs = atomic_load_explicit(&warmer->syncs_ahead, memory_order_relaxed);
    return rmq_mapped_file_reserve_written(file, upto, window,
                                           syncs ? RMQ_SYNCED_PIECE : RMQ_WRITTEN_WINDOW, err);
}

/* A separate descriptor: an error of the device is then reported to the flusher's descriptor as
 * well, and need not be handled here. */
static void sync_file(struct rmq_mapped_file *file)
{
    assert(file->writable);

    struct rmq_vfs *vfs = file->vfs;
    int fd = -1;
    if (vfs->open(vfs, file->path, RMQ_OPEN_WRITE, &fd, NULL) == RMQ_OK) {
        (void)vfs->sync(vfs, fd, NULL);
        (void)vfs->close(vfs, fd, NULL);
    }
}

static void populate(struct rmq_mapped_file *file, int64_t from, int64_t upto)
{
    assert(0 <= from && upto <= file->size);

    uint8_t *base = rmq_mapped_file_base(file);
    assert(base);
    if (from < upto)
        (void)file->vfs->advise(file->vfs, base + from, upto - from, RMQ_ADVISE_POPULATE_WRITE,
                                NULL);
}

/* Makes [from, upto) of the file ready for stores. Failures are not reported here: the writer gets
 * them itself. */
static void warm_range(struct rmq_warmer *warmer, struct rmq_mapped_file *file, int64_t from,
                       int64_t upto, bool lock)
{
    assert(from >= 0 && upto <= file->size);

    int64_t reserved = atomic_load_explicit(&file->reserved, memory_order_acquire);
    bool populates = !atomic_load_explicit(&warmer->syncs_ahead, memory_order_relaxed);
    if (populates)
        populate(file, from, smaller(upto, reserved));

    /* A fast writer stores to a piece as soon as it is reserved, and would take the page faults
     * itself. */
    int status = RMQ_OK;
    for (int64_t at = reserved; at < upto && status == RMQ_OK;) {
        int64_t next = smaller(upto, at + RMQ_WRITTEN_WINDOW);
        status = reserve_piece(warmer, file, next, 1, NULL);
        if (status == RMQ_OK && populates)
            populate(file, at, next);
        at = next;
    }
    if (upto <= from || status != RMQ_OK)
        return;

    if (!populates && reserved < upto)
        sync_file(file);
    if (lock)
        (void)file->vfs->advise(file->vfs, rmq_mapped_file_base(file) + from, upto - from,
                                RMQ_ADVISE_LOCK, NULL);
}

int rmq_warmer_reserve(struct rmq_warmer *warmer, struct rmq_mapped_file *file, int64_t upto,
                       struct rmq_error *err)
{
    if (upto > atomic_load_explicit(&file->reserved, memory_order_acquire) &&
        atomic_load_explicit(&warmer->is_bypassed, memory_order_relaxed)) {
        atomic_store_explicit(&warmer->is_bypassed, false, memory_order_relaxed);
        rmq_warmer_wake(warmer);
    }
    return reserve_piece(warmer, file, upto, RMQ_WRITTEN_WINDOW, err);
}

int rmq_warmer_store(struct rmq_warmer *warmer, struct rmq_mapped_file *file, int64_t at,
                     const uint8_t *data, int64_t size, struct rmq_error *err)
{
    uint8_t *base = rmq_mapped_file_base(file);
    assert(base && size > 0 && size <= file->size - at);

    bool is_large = size >= warmer->options.large_append;
    if (is_large && !atomic_load_explicit(&warmer->is_bypassed, memory_order_relaxed))
        atomic_store_explicit(&warmer->is_bypassed, true, memory_order_relaxed);

    int status = RMQ_OK;
    if (is_large) {
        status = rmq_mapped_file_write(file, at, data, size, err);
        /* The records are soon read through the mapping: one call maps the pages that were
         * written. */
        if (status == RMQ_OK)
            (void)file->vfs->advise(file->vfs, base + at, size, RMQ_ADVISE_POPULATE_READ, NULL);
        return status;
    }

    status = rmq_warmer_reserve(warmer, file, at + size, err);
    if (status == RMQ_OK)
        memcpy(base + at, data, (size_t)size);
    return status;
}

/* ---- files ---- */

static bool is_made(struct rmq_warmer *warmer, int64_t start)
{
    assert(start > 0);

    pthread_mutex_lock(&warmer->lock);
    bool is_there = warmer->prepared && warmer->prepared->start == start;
    pthread_mutex_unlock(&warmer->lock);
    return is_there;
}

/* Makes the file after the last one unless it exists. The caller holds the lock. */
static void prepare_next(struct rmq_warmer *warmer, int64_t start)
{
    assert(start > 0 && start % warmer->files->options.file_size == 0);

    struct rmq_file_queue *files = warmer->files;
    if (warmer->prepared && warmer->prepared->start == start)
        return;
    if (warmer->prepared && rmq_file_queue_discard(files, warmer->prepared, NULL) != RMQ_OK)
        return;

    warmer->prepared = NULL;
    if (rmq_file_queue_prepare(files, start, &warmer->prepared, NULL) != RMQ_OK) {
        warmer->prepared = NULL;
        return;
    }

    assert(warmer->prepared->start == start);
    bool whole = warmer->options.whole_file;
    int64_t size = warmer->prepared->size;
    warm_range(warmer, warmer->prepared, 0, whole ? size : smaller(size, RMQ_WARM_AHEAD), whole);
}

int rmq_warmer_roll(struct rmq_warmer *warmer, int64_t offset, struct rmq_error *err)
{
    assert(offset >= 0);

    pthread_mutex_lock(&warmer->lock);
    struct rmq_mapped_file *ready = warmer->prepared;
    int status = rmq_file_queue_roll(warmer->files, offset, ready, err);
    if (status == RMQ_OK && ready == warmer->files->last)
        warmer->prepared = NULL;

    pthread_mutex_unlock(&warmer->lock);
    rmq_warmer_wake(warmer);
    return status;
}

int rmq_warmer_truncate(struct rmq_warmer *warmer, int64_t offset, struct rmq_error *err)
{
    assert(offset >= 0);

    int status = RMQ_OK;
    pthread_mutex_lock(&warmer->lock);
    if (warmer->prepared)
        status = rmq_file_queue_discard(warmer->files, warmer->prepared, err);
    if (status == RMQ_OK) {
        warmer->prepared = NULL;
        status = rmq_file_queue_truncate(warmer->files, offset, err);
    }
    pthread_mutex_unlock(&warmer->lock);
    return status;
}

int rmq_warmer_restart(struct rmq_warmer *warmer, int64_t offset, struct rmq_error *err)
{
    assert(offset >= 0);

    int status = RMQ_OK;
    pthread_mutex_lock(&warmer->lock);
    warmer->is_held = true;
    while (warmer->is_busy)
        pthread_cond_wait(&warmer->rested, &warmer->lock);

    assert(!warmer->is_busy);
    if (warmer->prepared)
        status = rmq_file_queue_discard(warmer->files, warmer->prepared, err);
    if (status == RMQ_OK) {
        warmer->prepared = NULL;
        status = rmq_file_queue_restart(warmer->files, offset, err);
    }

    warmer->is_held = false;
    pthread_mutex_unlock(&warmer->lock);
    rmq_event_count_advance(&warmer->calls);
    return status;
}

/* ---- the thread ---- */

/* State that the thread keeps between rounds. */
struct warmth {
    int64_t upto; /* pages are warm below this offset */
    int64_t end;
    int64_t waits;
};

/* Zeros are synced ahead while few bytes are appended for each wait for a sync. */
static void choose_way(struct rmq_warmer *warmer, struct warmth *warmth, int64_t end)
{
    assert(end >= 0);

    int64_t waits = atomic_load_explicit(&warmer->waits, memory_order_relaxed);
    if (end > warmth->end && !warmer->options.syncs_ahead)
        atomic_store_explicit(&warmer->syncs_ahead,
                              (end - warmth->end) / RMQ_WAIT_SIZE_WORTH_ZEROS <
                                  waits - warmth->waits,
                              memory_order_relaxed);
    warmth->end = end;
    warmth->waits = waits;
}

/* The offset up to which pages should be warm. If the allocated blocks end soon: all of their
 * pages, and then the first pages of the next allocation. */
static int64_t goal_of(const struct rmq_warmer *warmer, struct rmq_mapped_file *file, int64_t wrote,
                       bool makes_next)
{
    assert(wrote >= 0 && wrote <= file->size);

    int64_t ahead = makes_next ? RMQ_WARM_BEFORE_A_WAIT : RMQ_WARM_AHEAD;
    int64_t goal = smaller(file->size, wrote + ahead);
    if (atomic_load_explicit(&warmer->syncs_ahead, memory_order_relaxed))
        return goal;

    int64_t allocated = rmq_mapped_file_allocated_ahead(file);
    bool is_near = allocated >= 0 && allocated - wrote < smaller(wrote / 2, RMQ_WARM_BEFORE_A_WAIT);
    if (!is_near || allocated + RMQ_WRITTEN_WINDOW <= goal)
        return goal;
    return smaller(file->size, allocated + RMQ_WRITTEN_WINDOW);
}

/* One round: pages ahead of `end`, then the next file. */
static void warm(struct rmq_warmer *warmer, struct warmth *warmth, int64_t end)
{
    assert(end >= 0);

    struct rmq_file_queue *files = warmer->files;
    struct rmq_mapped_file *last = NULL;
    if (rmq_file_queue_start(files) < 0 ||
        rmq_file_queue_pin(files, end > 0 ? end - 1 : 0, &last, NULL))
        return;

    choose_way(warmer, warmth, end);

    int64_t wrote = end - last->start;
    int64_t next = last->start + last->size;
    bool makes_next = (wrote > last->size / PREPARE_PART || last->size <= 2 * RMQ_WARM_AHEAD) &&
                      !is_made(warmer, next);
    int64_t goal = goal_of(warmer, last, wrote, makes_next);
    int64_t from = warmth->upto > end && warmth->upto < last->start + last->size
                       ? warmth->upto - last->start
                       : wrote;
    assert(from >= 0 && goal <= last->size);

    if (!atomic_load_explicit(&warmer->is_bypassed, memory_order_relaxed)) {
        warm_range(warmer, last, from, goal, false);
        warmth->upto = last->start + goal;
    }

    if (makes_next) {
        pthread_mutex_lock(&warmer->lock);
        /* Files roll and are cut only under this lock. If the files had moved on meanwhile, the
         * file after `last` would hold records. */
        if (!warmer->stop && files->last == last)
            prepare_next(warmer, next);
        pthread_mutex_unlock(&warmer->lock);
    }
    rmq_mapped_file_unpin(last);
}

/* Whether the thread may work on the files. If so, it is busy until `rest`. */
static bool begin_round(struct rmq_warmer *warmer, bool *stop)
{
    assert(!warmer->is_busy);

    pthread_mutex_lock(&warmer->lock);
    *stop = warmer->stop;
    warmer->is_busy = !warmer->stop && !warmer->is_held;
    bool may_work = warmer->is_busy;
    pthread_mutex_unlock(&warmer->lock);
    return may_work;
}

static void rest(struct rmq_warmer *warmer)
{
    pthread_mutex_lock(&warmer->lock);
    assert(warmer->is_busy);
    warmer->is_busy = false;
    pthread_cond_signal(&warmer->rested);
    pthread_mutex_unlock(&warmer->lock);
}

static void *run(void *argument)
{
    struct rmq_warmer *warmer = argument;
    struct warmth warmth = {0};
    for (;;) {

        bool stop = false, is_ahead = true;
        uint32_t calls = rmq_event_count_read(&warmer->calls);
        if (begin_round(warmer, &stop)) {
            int64_t end = rmq_file_queue_end(warmer->files);
            warm(warmer, &warmth, end);
            /* The writer may be past this offset already; it then requests pages again. */
            atomic_store(&warmer->wake_at, end + RMQ_WARM_AHEAD / 2);
            rest(warmer);
            is_ahead = rmq_file_queue_end(warmer->files) <= end + RMQ_WARM_AHEAD / 2;
        }

        if (stop)
            return NULL;
        if (is_ahead)
            rmq_event_count_await(&warmer->calls, calls, -1);
    }
}

void rmq_warmer_wake(struct rmq_warmer *warmer)
{
    /* Wakes the thread once for each half of the warm range; the thread sets the mark again. */
    atomic_store_explicit(&warmer->wake_at, INT64_MAX, memory_order_relaxed);
    rmq_event_count_advance(&warmer->calls);
}

int rmq_warmer_start(struct rmq_warmer *warmer, struct rmq_file_queue *files,
                     const struct rmq_warmer_options *options, struct rmq_error *err)
{
    assert(files && options);

    warmer->files = files;
    warmer->options = *options;
    if (warmer->options.large_append <= 0)
        warmer->options.large_append = RMQ_LARGE_APPEND;
    warmer->prepared = NULL;
    warmer->stop = warmer->is_busy = warmer->is_held = false;

    atomic_init(&warmer->wake_at, 0);
    atomic_init(&warmer->waits, 0);
    atomic_init(&warmer->syncs_ahead, options->syncs_ahead);
    atomic_init(&warmer->is_bypassed, false);
    atomic_init(&warmer->calls.count, 0);

    pthread_mutex_init(&warmer->lock, NULL);
    pthread_cond_init(&warmer->rested, NULL);

    warmer->has_thread = !files->options.read_only;
    if (warmer->has_thread) {
        int error = pthread_create(&warmer->thread, NULL, run, warmer);
        if (error) {
            warmer->has_thread = false;
            rmq_warmer_stop(warmer);
            return rmq_fail_os(err, error, "starting the commit log's warmer thread");
        }
    }
    return RMQ_OK;
}

void rmq_warmer_stop(struct rmq_warmer *warmer)
{
    assert(warmer->files);

    if (warmer->has_thread) {
        pthread_mutex_lock(&warmer->lock);
        warmer->stop = true;
        pthread_mutex_unlock(&warmer->lock);
        rmq_event_count_advance(&warmer->calls);
        pthread_join(warmer->thread, NULL);
        warmer->has_thread = false;
    }
    if (warmer->prepared) {
        (void)rmq_mapped_file_unlink(warmer->prepared, NULL);
        rmq_mapped_file_unpin(warmer->prepared);
        warmer->prepared = NULL;
    }

    pthread_mutex_destroy(&warmer->lock);
    pthread_cond_destroy(&warmer->rested);
}
