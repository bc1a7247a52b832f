#include "store.h"

#include <assert.h>
#include <inttypes.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

/* How long somebody who waits for dispatching does not notice that the log was cut. */
#define RMQ_LOOK_AGAIN_MS 100
/* How long closing waits for a flush that dispatching waits for. */
#define RMQ_CLOSE_WAIT_MS 10000

/* ---- fork ---- */

/* A page the kernel wipes in a forked child; without that feature the mark never changes. */
static volatile uint8_t *make_fork_mark(void)
{
    size_t size = (size_t)sysconf(_SC_PAGESIZE);
    uint8_t *page = mmap(NULL, size, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (page == MAP_FAILED)
        return NULL;
    (void)madvise(page, size, MADV_WIPEONFORK);
    page[0] = 1;
    return page;
}

static void free_fork_mark(volatile uint8_t *mark)
{
    if (mark)
        (void)munmap((void *)(uintptr_t)mark, (size_t)sysconf(_SC_PAGESIZE));
}

void rmq_store_disown(struct rmq_store *store)
{
    if (store->fork_mark)
        *store->fork_mark = 0;
    if (store->lock_fd >= 0)
        store->vfs->close_inherited(store->vfs, store->lock_fd);
    store->lock_fd = -1;
}

int rmq_store_check(const struct rmq_store *store, struct rmq_error *err)
{
    if (store->fork_mark && *store->fork_mark == 0)
        return rmq_fail(err, RMQ_FORKED, -1, "%s was opened before fork; open it anew in the child",
                        store->root);
    return RMQ_OK;
}

/* ---- opening ---- */

/* The lock comes first: a second writer must not so much as look for the end of the log. */
static int take_lock(struct rmq_store *store, struct rmq_error *err)
{
    char path[PATH_MAX];
    struct rmq_vfs *vfs = store->vfs;
    int64_t holder = 0;
    int status = rmq_path_join(path, sizeof path, store->root, "lock", err);
    if (status == RMQ_OK)
        status = vfs->open(vfs, path, RMQ_OPEN_WRITE | RMQ_OPEN_CREATE, &store->lock_fd, err);
    if (status == RMQ_OK)
        status = vfs->lock(vfs, store->lock_fd, &holder, err);
    if (status == RMQ_LOCKED) {
        char text[32] = "";
        size_t got = 0;
        int fd = -1;
        /* Holders write their pid into the abort marker. */
        if (holder <= 0 && vfs->open(vfs, store->abort_path, 0, &fd, NULL) == RMQ_OK) {
            if (vfs->read(vfs, fd, text, sizeof text - 1, 0, &got, NULL) == RMQ_OK)
                holder = strtoll(text, NULL, 10);
            (void)vfs->close(vfs, fd, NULL);
        }
        return rmq_fail(err, RMQ_LOCKED, holder,
                        "%s is in use by process %" PRId64 "; open it read-only, or stop that "
                        "process",
                        store->root, holder);
    }
    if (status == RMQ_OK)
        status = vfs->write(vfs, store->lock_fd, "lock", 4, 0, err);
    return status;
}

static int open_log(struct rmq_store *store, const struct rmq_store_options *options,
                    struct rmq_error *err)
{
    char path[PATH_MAX];
    const char *fallback[1] = {path};
    int status = rmq_path_join(path, sizeof path, store->root, "commitlog", err);
    if (status != RMQ_OK)
        return status;
    struct rmq_file_queue_options files = {
        .vfs = store->vfs,
        .directories = options->log_directory_count ? options->log_directories : fallback,
        .directory_count = options->log_directory_count ? options->log_directory_count : 1,
        .read_only_directories = options->read_only_log_directories,
        .read_only_count = options->read_only_log_directory_count,
        .file_size = options->log_file_size,
        .window = RMQ_WRITTEN_WINDOW,
        .read_only = options->read_only,
        .keep_descriptor = true,
        .allow_gaps = options->read_only && options->allow_gaps,
    };
    return rmq_file_queue_open(&store->log.files, &files, err);
}

static int open_queues(struct rmq_store *store, const struct rmq_store_options *options,
                       struct rmq_error *err)
{
    struct rmq_queue_options queues = {
        .vfs = store->vfs,
        .root = store->root,
        .queue_file_size = options->queue_file_size,
        .batch_file_size = options->batch_queue_file_size,
        .ext_file_size = options->ext_file_size,
        .enable_ext = options->enable_ext,
        .read_only = options->read_only,
    };
    return rmq_queue_table_open(&store->queues, &queues, err);
}

static int open_index(struct rmq_store *store, const struct rmq_store_options *options,
                      struct rmq_error *err)
{
    char path[PATH_MAX];
    int status = rmq_path_join(path, sizeof path, store->root, "index", err);
    if (status != RMQ_OK || !options->index_enable)
        return status;
    struct rmq_index_options index = {
        .vfs = store->vfs,
        .directory = path,
        .slot_count = options->index_slot_count,
        .entry_count = options->index_entry_count,
        .read_only = options->read_only,
        .tag_keys = options->index_tags,
    };
    status = rmq_index_open(&store->index, &index, &store->index_files_skipped, err);
    store->has_index = status == RMQ_OK;
    return status;
}

static int recover(struct rmq_store *store, const struct rmq_store_options *options,
                   struct rmq_checkpoint *checkpoint, const char *checkpoint_path,
                   struct rmq_error *err)
{
    bool crashed = false, found = false;
    int status = rmq_abort_exists(store->vfs, store->abort_path, &crashed, err);
    if (status == RMQ_OK)
        status = rmq_checkpoint_read(store->vfs, checkpoint_path, checkpoint, &found, err);
    if (status != RMQ_OK)
        return status;
    int64_t kept = checkpoint->confirm_offset;
    bool is_bound = options->keep_confirm_offset && (kept > 0 || kept == RMQ_NOTHING_CONFIRMED);
    int64_t confirm = kept > 0 ? kept : 0;
    struct rmq_recovery_options recovery = {
        .was_closed = !crashed,
        .check_crc = options->check_crc_on_recover,
        .need_property_crc = options->need_property_crc,
        .dispatch_until = is_bound ? confirm : INT64_MAX,
        .root = store->root,
        .checkpoint_path = checkpoint_path,
        .abort_path = store->abort_path,
    };
    status = rmq_recover(&store->dispatcher, checkpoint, &recovery, &store->recovery, err);
    /* Where the log has lost its tail, other bytes may come. */
    if (confirm > store->recovery.end_offset)
        confirm = store->recovery.end_offset;
    if (is_bound)
        atomic_store(&store->dispatcher.confirm_offset, confirm);
    return status;
}

static int start_writing(struct rmq_store *store, const struct rmq_store_options *options,
                         const struct rmq_checkpoint *checkpoint, const char *checkpoint_path,
                         struct rmq_error *err)
{
    struct rmq_flusher_options flush = options->flush;
    flush.checkpoint_path = checkpoint_path;
    int status = rmq_flusher_init(&store->flusher, &flush, store->vfs, &store->log, &store->queues,
                                  &store->dispatcher, &store->failure, checkpoint, err);
    if (status != RMQ_OK)
        return status;
    /* Another process may have left the marker: it names this one from here on. Everything
     * recovered is on the device. */
    store->flusher.checkpoint.flushed_offset = store->recovery.end_offset;
    if (!store->recovery.was_closed)
        status = rmq_abort_create(store->vfs, store->abort_path, err);
    if (status == RMQ_OK && (!store->recovery.was_closed || store->recovery.was_cut))
        status = rmq_flusher_lower(&store->flusher, store->recovery.end_offset,
                                   atomic_load(&store->dispatcher.last_offset),
                                   atomic_load(&store->dispatcher.last_timestamp), err);
    if (status == RMQ_OK)
        status = rmq_flusher_save(&store->flusher, err);
    if (status == RMQ_OK)
        status = rmq_dispatcher_start(&store->dispatcher, err);
    if (status == RMQ_OK)
        status = rmq_flusher_start(&store->flusher, err);
    if (status != RMQ_OK) {
        rmq_dispatcher_stop(&store->dispatcher);
        rmq_flusher_destroy(&store->flusher);
    }
    return status;
}

static int load(struct rmq_store *store, const struct rmq_store_options *options,
                struct rmq_error *err)
{
    struct rmq_checkpoint checkpoint;
    char checkpoint_path[PATH_MAX];
    int status =
        rmq_path_join(checkpoint_path, sizeof checkpoint_path, store->root, "checkpoint", err);
    if (status == RMQ_OK)
        status = rmq_queue_table_load(&store->queues, err);
    if (status != RMQ_OK)
        return status;
    rmq_dispatcher_init(&store->dispatcher, &store->log, &store->queues,
                        store->has_index ? &store->index : NULL, &store->clock, &store->failure,
                        &options->dispatch);
    if (store->read_only)
        status = rmq_recover_read_only(&store->log.files, &store->queues, store->root,
                                       &store->recovery, err);
    else
        status = recover(store, options, &checkpoint, checkpoint_path, err);
    if (status == RMQ_OK)
        status =
            rmq_commit_log_start(&store->log, &options->log, &store->queues, &store->clock, err);
    if (status == RMQ_OK && !store->read_only) {
        status = start_writing(store, options, &checkpoint, checkpoint_path, err);
        if (status != RMQ_OK)
            rmq_commit_log_stop(&store->log);
    }
    if (status != RMQ_OK)
        rmq_dispatcher_destroy(&store->dispatcher);
    return status;
}

static void free_store(struct rmq_store *store)
{
    if (store->lock_fd >= 0)
        (void)store->vfs->close(store->vfs, store->lock_fd, NULL);
    free_fork_mark(store->fork_mark);
    rmq_wakeups_destroy(&store->wakeups);
    free(store->root);
    free(store->abort_path);
    free(store);
}

static int make_store(const struct rmq_store_options *options, struct rmq_store **out,
                      struct rmq_error *err)
{
    struct rmq_store *store = calloc(1, sizeof *store);
    char abort_path[PATH_MAX];
    int status = rmq_path_join(abort_path, sizeof abort_path, options->root, "abort", err);
    if (status != RMQ_OK || !store) {
        free(store);
        return store ? status : rmq_fail(err, RMQ_NO_MEMORY, -1, "no memory for a store");
    }
    store->vfs = options->vfs ? options->vfs : rmq_vfs_posix();
    store->root = strdup(options->root);
    store->abort_path = strdup(abort_path);
    store->read_only = options->read_only;
    store->lock_fd = -1;
    store->fork_mark = make_fork_mark();
    rmq_failure_init(&store->failure);
    pthread_mutex_init(&store->structure_lock, NULL);
    rmq_wakeups_init(&store->wakeups, &store->log.files);
    if (!store->root || !store->abort_path) {
        free_store(store);
        return rmq_fail(err, RMQ_NO_MEMORY, -1, "no memory for a store");
    }
    *out = store;
    return RMQ_OK;
}

static int open_once(const struct rmq_store_options *options, struct rmq_store **out,
                     struct rmq_error *err)
{
    struct rmq_store *store = NULL;
    int status = make_store(options, &store, err);
    if (status != RMQ_OK)
        return status;
    if (!store->read_only) {
        status = store->vfs->make_directory(store->vfs, store->root, err);
        if (status == RMQ_OK)
            status = take_lock(store, err);
    }
    if (status == RMQ_OK)
        status = open_log(store, options, err);
    if (status != RMQ_OK)
        goto no_log;
    status = open_queues(store, options, err);
    if (status != RMQ_OK)
        goto no_queues;
    status = open_index(store, options, err);
    if (status == RMQ_OK)
        status = load(store, options, err);
    if (status == RMQ_OK) {
        *out = store;
        return RMQ_OK;
    }
    if (store->has_index)
        rmq_index_close(&store->index);
    rmq_queue_table_close(&store->queues);
no_queues:
    rmq_file_queue_close(&store->log.files);
no_log:
    free_store(store);
    return status;
}

int rmq_store_open(const struct rmq_store_options *options, struct rmq_store **out,
                   struct rmq_error *err)
{
    int tries = 0, status;
    do {
        status = open_once(options, out, err);
    } while (options->read_only && rmq_may_be_writer_at_work(status) &&
             ++tries < RMQ_READ_ONLY_TRIES);
    return status;
}

/* ---- closing ---- */

static void let_go(struct rmq_store *store)
{
    rmq_commit_log_stop(&store->log);
    rmq_dispatcher_destroy(&store->dispatcher);
    if (!store->read_only)
        rmq_flusher_destroy(&store->flusher);
    if (store->has_index)
        rmq_index_close(&store->index);
    rmq_queue_table_close(&store->queues);
    rmq_file_queue_close(&store->log.files);
    free_store(store);
}

int rmq_store_close(struct rmq_store *store, struct rmq_error *err)
{
    int status = rmq_store_check(store, err);
    if (status == RMQ_FORKED)
        return RMQ_OK; /* The parent's threads, locks and files are not the child's to end. */
    if (!store->read_only) {
        /* What may not be dispatched before it is flushed must be flushed while there is still
         * somebody to dispatch it. */
        if (store->dispatcher.options.limit_to_flushed)
            (void)rmq_flusher_wait(&store->flusher, rmq_file_queue_end(&store->log.files),
                                   RMQ_CLOSE_WAIT_MS, NULL);
        rmq_dispatcher_stop(&store->dispatcher);
        rmq_flusher_stop(&store->flusher);
        status = rmq_flusher_flush_all(&store->flusher, err);
        /* What is not confirmed yet is entered by the next start, or a later one. */
        bool is_behind = atomic_load(&store->dispatcher.dispatched_offset) <
                         rmq_dispatcher_limit(&store->dispatcher);
        if (status == RMQ_OK && !is_behind)
            status = rmq_flusher_unmark(&store->flusher, err);
        if (status == RMQ_OK && !is_behind)
            status = rmq_abort_remove(store->vfs, store->abort_path, err);
    }
    let_go(store);
    return status;
}

void rmq_store_abandon(struct rmq_store *store)
{
    struct rmq_error died;
    if (rmq_store_check(store, NULL) == RMQ_FORKED)
        return; /* As in rmq_store_close. */
    if (!store->read_only) {
        rmq_fail(&died, RMQ_CLOSED, -1, "abandoned");
        rmq_failure_set(&store->failure, &died);
        rmq_dispatcher_stop(&store->dispatcher);
        rmq_flusher_stop(&store->flusher);
    }
    let_go(store);
}

/* ---- writing ---- */

int rmq_store_may_change(struct rmq_store *store, struct rmq_error *err)
{
    int status = rmq_store_check(store, err);
    if (status != RMQ_OK)
        return status;
    if (store->read_only)
        return rmq_fail(err, RMQ_READ_ONLY, -1, "%s is opened read-only", store->root);
    return rmq_failure_check(&store->failure, err);
}

/* Of *reasons*, what is in force refuses. */
static int may_write(struct rmq_store *store, unsigned reasons, struct rmq_error *err)
{
    int status = rmq_store_may_change(store, err);
    unsigned found = reasons & atomic_load_explicit(&store->refusals, memory_order_relaxed);
    if (status != RMQ_OK || !found)
        return status;
    if (found & RMQ_REFUSE_ROLE)
        return rmq_fail(err, RMQ_NOT_WRITABLE, -1, "%s takes no messages in its present role",
                        store->root);
    return rmq_fail(err, RMQ_NOT_WRITABLE, -1,
                    "the disk of %s is fuller than diskSpaceWarningLevelRatio allows", store->root);
}

static void tell_growth(struct rmq_store *store)
{
    rmq_dispatcher_nudge(&store->dispatcher);
    rmq_wakeups_nudge(&store->wakeups);
}

/* Queue offsets of replicated records are known once they are dispatched. */
static int wait_for_raw(struct rmq_store *store, struct rmq_error *err)
{
    int64_t goal = rmq_store_raw_goal(store);
    return goal < 0 ? RMQ_OK : rmq_dispatcher_wait(&store->dispatcher, goal, RMQ_RAW_WAIT_MS, err);
}

/* A log that took all the room that is left would leave none to the queues, and so could not expire
 * either. */
static int wait_for_room(struct rmq_store *store, struct rmq_error *err)
{
    struct rmq_dispatcher *dispatcher = &store->dispatcher;
    if (!atomic_load_explicit(&dispatcher->waits_for_room, memory_order_relaxed))
        return RMQ_OK;
    return rmq_dispatcher_wait(dispatcher, rmq_dispatcher_limit(dispatcher), RMQ_RAW_WAIT_MS, err);
}

int rmq_store_put(struct rmq_store *store, const struct rmq_message *messages, size_t count,
                  bool together, struct rmq_receipt *receipts, size_t *stored,
                  struct rmq_error *err)
{
    *stored = 0;
    int status = may_write(store, RMQ_REFUSE_ROLE | RMQ_REFUSE_DISK, err);
    if (status == RMQ_OK)
        status = wait_for_raw(store, err);
    if (status == RMQ_OK)
        status = wait_for_room(store, err);
    if (status != RMQ_OK)
        return status;
    status = rmq_commit_log_put(&store->log, messages, count, together, receipts, stored, err);
    tell_growth(store);
    return status;
}

int rmq_store_append_raw(struct rmq_store *store, int64_t at, const uint8_t *data, size_t size,
                         struct rmq_error *err)
{
    int status = may_write(store, RMQ_REFUSE_DISK, err);
    if (status != RMQ_OK)
        return status;
    int64_t before = rmq_file_queue_end(&store->log.files);
    status = rmq_commit_log_append_raw(&store->log, at, data, size, err);
    int64_t end = rmq_file_queue_end(&store->log.files);
    /* A full disk may have taken a part. */
    if (end > before)
        atomic_store_explicit(&store->raw_end, end, memory_order_release);
    tell_growth(store);
    return status;
}

int rmq_store_place(struct rmq_store *store, struct rmq_run *run, struct rmq_error *err)
{
    int status = may_write(store, RMQ_REFUSE_ROLE | RMQ_REFUSE_DISK, err);
    if (status == RMQ_OK)
        status = wait_for_raw(store, err);
    if (status == RMQ_OK)
        status = wait_for_room(store, err);
    if (status == RMQ_OK)
        status = rmq_run_judge(run, &store->log, err);
    while (status == RMQ_OK && run->at < run->size) {
        status = rmq_run_place(run, &store->log, err);
        tell_growth(store);
    }
    return status;
}

void rmq_store_refuse(struct rmq_store *store, unsigned reason, bool is_refused)
{
    assert(reason == RMQ_REFUSE_ROLE || reason == RMQ_REFUSE_DISK);
    if (is_refused)
        atomic_fetch_or(&store->refusals, reason);
    else
        atomic_fetch_and(&store->refusals, ~reason);
    if (reason == RMQ_REFUSE_ROLE) {
        rmq_spin_lock(&store->log.put_lock);
        store->log.is_shut = is_refused;
        rmq_spin_unlock(&store->log.put_lock);
    }
}

int rmq_store_wait_dispatched(struct rmq_store *store, int64_t offset, int64_t timeout_ms,
                              struct rmq_error *err)
{
    int64_t deadline_ms = rmq_monotonic_ms() + timeout_ms;
    for (;;) {
        int status = rmq_store_check(store, err);
        if (status != RMQ_OK || store->read_only)
            return status;
        int64_t limit = rmq_dispatcher_limit(&store->dispatcher);
        int64_t left_ms = deadline_ms - rmq_monotonic_ms();
        if (offset > limit)
            offset = limit;
        /* In pieces: what is waited for may be cut off meanwhile. */
        status =
            rmq_dispatcher_wait(&store->dispatcher, offset,
                                left_ms < RMQ_LOOK_AGAIN_MS ? left_ms : RMQ_LOOK_AGAIN_MS, err);
        if (status != RMQ_TIMEOUT)
            return status;
        if (left_ms <= RMQ_LOOK_AGAIN_MS)
            return rmq_fail(err, RMQ_TIMEOUT, offset,
                            "dispatch reached %" PRId64 ", not %" PRId64 ", in %" PRId64 " ms",
                            atomic_load(&store->dispatcher.dispatched_offset), offset, timeout_ms);
    }
}

bool rmq_store_ends_in_part(struct rmq_store *store, int64_t offset)
{
    struct rmq_file_queue *files = &store->log.files;
    struct rmq_mapped_file *file = NULL;
    if (store->read_only || offset < atomic_load(&store->dispatcher.dispatched_offset))
        return false;
    int64_t left = rmq_file_queue_end(files) - offset;
    if (left <= 0 || rmq_file_queue_pin(files, offset, &file, NULL) != RMQ_OK)
        return false;
    int64_t at = offset - file->start;
    bool is_part = left < file->size - at &&
                   (left < RMQ_BLANK_SIZE || rmq_get_i32(rmq_mapped_file_base(file) + at) > left);
    rmq_mapped_file_unpin(file);
    return is_part;
}

int rmq_store_check_health(struct rmq_store *store, struct rmq_error *err)
{
    int status = rmq_failure_check(&store->failure, err);
    if (status != RMQ_OK || store->read_only)
        return status;
    return rmq_dispatcher_check_room(&store->dispatcher, err);
}

int rmq_store_flush(struct rmq_store *store, struct rmq_error *err)
{
    int status = rmq_store_may_change(store, err);
    return status == RMQ_OK ? rmq_flusher_flush_all(&store->flusher, err) : status;
}

/* ---- replication's fields ---- */

int rmq_store_set_confirm_offset(struct rmq_store *store, int64_t offset, struct rmq_error *err)
{
    struct rmq_flusher *flusher = &store->flusher;
    int64_t *kept = &flusher->checkpoint.confirm_offset;
    int64_t before = atomic_load(&store->dispatcher.confirm_offset);
    int status = rmq_store_may_change(store, err);
    if (status != RMQ_OK)
        return status;
    /* The next checkpoint takes it from the dispatcher, and one under way is not waited for. */
    if (before >= 0 && offset > before) {
        rmq_dispatcher_confirm(&store->dispatcher, offset);
        return RMQ_OK;
    }
    pthread_mutex_lock(&flusher->checkpoint_lock);
    if (offset >= 0)
        *kept = offset > 0 ? offset : RMQ_NOTHING_CONFIRMED;
    else if (before > 0)
        *kept = rmq_dispatcher_confirmed(&store->dispatcher);
    else if (*kept == RMQ_NOTHING_CONFIRMED)
        *kept = 0;
    pthread_mutex_unlock(&flusher->checkpoint_lock);
    atomic_store(&store->dispatcher.confirm_offset, offset);
    rmq_dispatcher_nudge(&store->dispatcher);
    /* Before anything is held back, it is on the device that it is: a crash must not show it. */
    return (before < 0) != (offset < 0) ? rmq_flusher_save(flusher, err) : RMQ_OK;
}

int rmq_store_set_master_flushed(struct rmq_store *store, int64_t offset, struct rmq_error *err)
{
    int status = rmq_store_may_change(store, err);
    if (status != RMQ_OK)
        return status;
    pthread_mutex_lock(&store->flusher.checkpoint_lock);
    store->flusher.checkpoint.master_flushed_offset = offset;
    pthread_mutex_unlock(&store->flusher.checkpoint_lock);
    return RMQ_OK;
}
