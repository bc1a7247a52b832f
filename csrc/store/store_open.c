#include <assert.h>
#include <inttypes.h>
#include <limits.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "index/queue_ends.h"
#include "index/removed_queues.h"
#include "store/store_internal.h"

/* How long closing waits for the flush that dispatching needs. */
#define RMQ_CLOSE_WAIT_MS 10000

/* ---- fork ---- */

/* A page that the kernel zeroes in a forked child; on a kernel without this feature the mark never
 * changes. */
static volatile uint8_t *make_fork_mark(void)
{
    size_t size = (size_t)sysconf(_SC_PAGESIZE);
    assert(size > 0);
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
    assert(store->vfs);

    if (store->fork_mark)
        *store->fork_mark = 0;

    assert(store->lock_fd >= -1);
    if (store->lock_fd >= 0)
        store->vfs->close_inherited(store->vfs, store->lock_fd);
    store->lock_fd = -1;
}

int rmq_store_check(const struct rmq_store *store, struct rmq_error *err)
{
    if (rmq_store_is_forked(store))
        return rmq_fail(err, RMQ_FORKED, -1,
                        "%s was opened before fork; open another store in the child", store->root);
    return RMQ_OK;
}

/* ---- opening ---- */

/* The lock is taken first: a second writer must not even search for the end of the log. */
static int take_lock(struct rmq_store *store, struct rmq_error *err)
{
    assert(!store->read_only && store->lock_fd < 0);

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

        /* The holder of the lock writes its pid into the abort marker. */
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
    assert(options->read_only == store->read_only);

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
    assert(store->root);

    struct rmq_queue_options queues = {
        .vfs = store->vfs,
        .root = store->root,
        .mappings_max = options->queue_mappings_max,
        .hot_uses = options->queue_hot_uses,
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
    assert(!store->has_index);

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
    assert(!store->read_only && checkpoint_path);

    bool crashed = false, found = false;
    int status = rmq_abort_exists(store->vfs, store->abort_path, &crashed, err);
    if (status == RMQ_OK)
        status = rmq_checkpoint_read(store->vfs, checkpoint_path, checkpoint, &found, err);
    if (status != RMQ_OK)
        return status;

    struct rmq_confirm confirm = options->keep_confirm_offset
                                     ? rmq_confirm_from_checkpoint(checkpoint->confirm_offset)
                                     : rmq_confirm_unset();

    struct rmq_recovery_options recovery = {
        .was_closed = !crashed,
        .check_crc = options->check_crc_on_recover,
        .need_property_crc = options->need_property_crc,
        .confirm = confirm,
        .root = store->root,
        .checkpoint_path = checkpoint_path,
        .abort_path = store->abort_path,
    };
    status = rmq_recover(&store->dispatcher, checkpoint, &recovery, &store->recovery, err);
    if (status != RMQ_OK)
        return status;

    /* If the log has lost its tail, other bytes may follow its end. */
    if (confirm.offset > store->recovery.end_offset)
        confirm.offset = store->recovery.end_offset;
    rmq_confirm_store(&store->dispatcher.confirm, confirm);
    return RMQ_OK;
}

static int start_writing(struct rmq_store *store, const struct rmq_store_options *options,
                         const struct rmq_checkpoint *checkpoint, const char *checkpoint_path,
                         struct rmq_error *err)
{
    assert(!store->read_only && checkpoint_path);

    struct rmq_flusher_options flush = options->flush;
    flush.checkpoint_path = checkpoint_path;
    int status = rmq_flusher_init(&store->flusher, &flush, store->vfs, &store->log, &store->queues,
                                  &store->dispatcher, &store->failure, checkpoint, err);
    if (status != RMQ_OK)
        return status;

    /* Another process may have left the marker: it gets this process's id from here on. All
     * recovered bytes are on the device. */
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
    assert(!store->dispatcher.has_thread && !store->flusher.has_thread);

    struct rmq_checkpoint checkpoint;
    char checkpoint_path[PATH_MAX];
    int status =
        rmq_path_join(checkpoint_path, sizeof checkpoint_path, store->root, "checkpoint", err);

    if (status == RMQ_OK)
        status = rmq_queue_table_load(&store->queues, err);
    if (status == RMQ_OK)
        status = rmq_removed_queues_load(&store->queues, err);

    if (status != RMQ_OK)
        return status;

    status = rmq_queue_ends_load(&store->queues, store->has_index ? &store->index : NULL, err);
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
    assert(store->vfs);

    if (store->lock_fd >= 0)
        (void)store->vfs->close(store->vfs, store->lock_fd, NULL);
    free_fork_mark(store->fork_mark);

    rmq_wakeups_destroy(&store->wakeups);
    free(store->root);
    free(store->abort_path);
    free(store);
}

static int64_t end_of(const void *files)
{
    return rmq_file_queue_end(files);
}

static int make_store(const struct rmq_store_options *options, struct rmq_store **out,
                      struct rmq_error *err)
{
    assert(options->root);

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
    rmq_wakeups_init(&store->wakeups, end_of, &store->log.files);

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
        assert(store->root && store->abort_path);
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
    assert(options && out);

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
    assert(store->read_only || (!store->dispatcher.has_thread && !store->flusher.has_thread));

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

int rmq_store_save_queue_ends(struct rmq_store *store, bool is_closed, struct rmq_error *err)
{
    int status = rmq_queue_ends_save(&store->queues, store->has_index ? &store->index : NULL,
                                     is_closed, err);
    return status == RMQ_NO_SPACE ? RMQ_OK : status;
}

int rmq_store_close(struct rmq_store *store, struct rmq_error *err)
{
    int status = rmq_store_check(store, err);
    if (status == RMQ_FORKED)
        return RMQ_OK; /* A child must not end the parent's threads, locks and files. */

    if (!store->read_only) {
        /* Records that may only be dispatched after a flush must be flushed while the dispatcher
         * still runs. */
        if (store->dispatcher.options.limit_to_flushed)
            (void)rmq_flusher_wait(&store->flusher, rmq_file_queue_end(&store->log.files),
                                   RMQ_CLOSE_WAIT_MS, NULL);

        rmq_dispatcher_stop(&store->dispatcher);
        rmq_flusher_stop(&store->flusher);
        status = rmq_flusher_flush_all(&store->flusher, err);

        /* The next start, or a later one, enters the unconfirmed records. */
        bool is_behind = atomic_load(&store->dispatcher.dispatched_offset) <
                         rmq_dispatcher_limit(&store->dispatcher);
        if (status == RMQ_OK && !is_behind)
            status = rmq_flusher_unmark(&store->flusher, err);
        if (status == RMQ_OK && !is_behind)
            status = rmq_store_save_queue_ends(store, true, err);
        if (status == RMQ_OK && !is_behind)
            status = rmq_abort_remove(store->vfs, store->abort_path, err);
    }

    assert(store->read_only || store->dispatcher.resting);
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
