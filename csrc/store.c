#include "store.h"

#include <assert.h>
#include <inttypes.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

/* How long a put waits for bytes appended raw before it to be dispatched. */
#define RMQ_RAW_WAIT_MS 30000
/* How long closing waits for a flush that dispatching waits for. */
#define RMQ_CLOSE_WAIT_MS 10000
/* How long expiry waits for messages to be dispatched before it leaves their files for later. */
#define RMQ_EXPIRE_WAIT_MS 1000

static int path_in(const char *root, const char *name, char out[PATH_MAX], struct rmq_error *err)
{
    int size = snprintf(out, PATH_MAX, "%s/%s", root, name);
    if (size < 0 || size >= PATH_MAX)
        return rmq_fail(err, RMQ_INVALID, -1, "path too long: %s/%s", root, name);
    return RMQ_OK;
}

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
    int status = path_in(store->root, "lock", path, err);
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
    int status = path_in(store->root, "commitlog", path, err);
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
    int status = path_in(store->root, "index", path, err);
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
    struct rmq_recovery_options recovery = {
        .was_closed = !crashed,
        .check_crc = options->check_crc_on_recover,
        .need_property_crc = options->need_property_crc,
        .dispatch_until = options->keep_confirm_offset ? checkpoint->confirm_offset : INT64_MAX,
        .root = store->root,
        .checkpoint_path = checkpoint_path,
    };
    /* What recovery enters into queues and index may reach the disk in part: from here on a start
     * must find the marker, until the store is closed. */
    if (!crashed)
        status = rmq_abort_create(store->vfs, store->abort_path, err);
    if (status == RMQ_OK)
        status = rmq_recover(&store->dispatcher, checkpoint, &recovery, &store->recovery, err);
    if (status != RMQ_OK && !crashed)
        (void)rmq_abort_remove(store->vfs, store->abort_path, NULL);
    if (options->keep_confirm_offset)
        atomic_store(&store->dispatcher.confirm_offset, checkpoint->confirm_offset);
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
    if (status == RMQ_OK && !store->recovery.was_closed)
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
    int status = path_in(store->root, "checkpoint", checkpoint_path, err);
    if (status == RMQ_OK)
        status = rmq_queue_table_load(&store->queues, err);
    if (status != RMQ_OK)
        return status;
    rmq_dispatcher_init(&store->dispatcher, &store->log, &store->queues,
                        store->has_index ? &store->index : NULL, &store->clock, &store->failure,
                        &options->dispatch);
    if (store->read_only)
        status = rmq_recover_read_only(&store->log.files, &store->queues, err);
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
    free(store->root);
    free(store->abort_path);
    free(store);
}

static int make_store(const struct rmq_store_options *options, struct rmq_store **out,
                      struct rmq_error *err)
{
    struct rmq_store *store = calloc(1, sizeof *store);
    char abort_path[PATH_MAX];
    int status = path_in(options->root, "abort", abort_path, err);
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
        bool is_behind = atomic_load(&store->dispatcher.dispatched_offset) <
                         rmq_file_queue_end(&store->log.files);
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

static int may_write(struct rmq_store *store, struct rmq_error *err)
{
    int status = rmq_store_check(store, err);
    if (status != RMQ_OK)
        return status;
    if (store->read_only)
        return rmq_fail(err, RMQ_READ_ONLY, -1, "%s is opened read-only", store->root);
    status = rmq_failure_check(&store->failure, err);
    int refusal = atomic_load_explicit(&store->refusal, memory_order_relaxed);
    if (status != RMQ_OK || refusal == RMQ_OK)
        return status;
    if (refusal == RMQ_NO_SPACE)
        return rmq_fail(err, RMQ_NOT_WRITABLE, -1,
                        "the disk of %s is fuller than diskSpaceWarningLevelRatio allows",
                        store->root);
    return rmq_fail(err, RMQ_NOT_WRITABLE, -1, "%s takes no messages in its present role",
                    store->root);
}

/* Queue offsets of replicated records are known once they are dispatched. */
static int wait_for_raw(struct rmq_store *store, struct rmq_error *err)
{
    int64_t raw_end = atomic_load_explicit(&store->raw_end, memory_order_acquire);
    if (atomic_load_explicit(&store->dispatcher.dispatched_offset, memory_order_acquire) >= raw_end)
        return RMQ_OK;
    return rmq_dispatcher_wait(&store->dispatcher, raw_end, RMQ_RAW_WAIT_MS, err);
}

int rmq_store_put(struct rmq_store *store, const struct rmq_message *messages, size_t count,
                  bool together, struct rmq_receipt *receipts, size_t *stored,
                  struct rmq_error *err)
{
    *stored = 0;
    int status = may_write(store, err);
    if (status != RMQ_OK)
        return status;
    status = wait_for_raw(store, err);
    if (status != RMQ_OK)
        return status;
    status = rmq_commit_log_put(&store->log, messages, count, together, receipts, stored, err);
    rmq_dispatcher_nudge(&store->dispatcher);
    return status;
}

int rmq_store_append_raw(struct rmq_store *store, int64_t at, const uint8_t *data, size_t size,
                         struct rmq_error *err)
{
    int status = may_write(store, err);
    if (status == RMQ_OK)
        status = rmq_commit_log_append_raw(&store->log, at, data, size, err);
    if (status == RMQ_OK)
        atomic_store_explicit(&store->raw_end, rmq_file_queue_end(&store->log.files),
                              memory_order_release);
    rmq_dispatcher_nudge(&store->dispatcher);
    return status;
}

int rmq_store_place(struct rmq_store *store, struct rmq_run *run, struct rmq_error *err)
{
    int status = may_write(store, err);
    if (status == RMQ_OK)
        status = wait_for_raw(store, err);
    if (status == RMQ_OK)
        status = rmq_run_judge(run, &store->log, err);
    while (status == RMQ_OK && run->at < run->size) {
        status = rmq_run_place(run, &store->log, err);
        rmq_dispatcher_nudge(&store->dispatcher);
    }
    return status;
}

void rmq_store_refuse(struct rmq_store *store, int status)
{
    assert(status == RMQ_OK || status == RMQ_NOT_WRITABLE || status == RMQ_NO_SPACE);
    atomic_store(&store->refusal, status);
}

int rmq_store_wait_dispatched(struct rmq_store *store, int64_t offset, int64_t timeout_ms,
                              struct rmq_error *err)
{
    int status = rmq_store_check(store, err);
    if (status != RMQ_OK || store->read_only)
        return status;
    int64_t limit = rmq_dispatcher_limit(&store->dispatcher);
    return rmq_dispatcher_wait(&store->dispatcher, offset < limit ? offset : limit, timeout_ms,
                               err);
}

int rmq_store_flush(struct rmq_store *store, struct rmq_error *err)
{
    int status = may_write(store, err);
    return status == RMQ_OK ? rmq_flusher_flush_all(&store->flusher, err) : status;
}

/* ---- cutting both ends ---- */

/* Whether offset is where a record, a blank or the end is. */
static int check_border(struct rmq_store *store, int64_t offset, struct rmq_error *err)
{
    struct rmq_mapped_file *file = NULL;
    struct rmq_record record;
    int64_t end = rmq_file_queue_end(&store->log.files);
    int status = rmq_file_queue_pin(&store->log.files, offset, &file, err);
    if (status != RMQ_OK)
        return rmq_fail(err, RMQ_OUT_OF_RANGE, offset,
                        "cannot cut at %" PRId64 ": the log holds %" PRId64 " to %" PRId64, offset,
                        rmq_file_queue_start(&store->log.files), end);
    int64_t at = offset - file->start;
    status = rmq_record_decode(rmq_mapped_file_base(file) + at, (size_t)(file->size - at), offset,
                               RMQ_CHECK_PLACE, &record, NULL);
    rmq_mapped_file_unpin(file);
    if (status == RMQ_OK || (status == RMQ_END && record.total_size == RMQ_BLANK_SIZE))
        return RMQ_OK;
    return rmq_fail(err, RMQ_OUT_OF_RANGE, offset,
                    "cannot cut at %" PRId64 ": no record begins there", offset);
}

/* The checkpoint may name nothing behind the cut before the cut is made: a crash in between then
 * only recovers more. */
static int lower_checkpoint(struct rmq_store *store, int64_t offset, struct rmq_error *err)
{
    int64_t last = atomic_load(&store->dispatcher.last_offset);
    if (last < offset)
        return rmq_flusher_lower(&store->flusher, offset, last,
                                 atomic_load(&store->dispatcher.last_timestamp), err);
    return rmq_flusher_lower(&store->flusher, offset, 0, 0, err);
}

/* What lies below the cut and was not dispatched yet has its queue offsets all the same. */
static int keep_queue_offsets(struct rmq_store *store, int64_t log_end, struct rmq_error *err)
{
    struct rmq_scan scan;
    struct rmq_record record;
    int64_t from = atomic_load(&store->dispatcher.dispatched_offset),
            start = rmq_file_queue_start(&store->log.files);
    rmq_scan_begin(&scan, &store->log.files, from > start ? from : start, log_end, RMQ_CHECK_PLACE);
    int status;
    while ((status = rmq_scan_next(&scan, &record, err)) == RMQ_OK) {
        status = rmq_dispatch_record(&store->dispatcher, &record, RMQ_TO_OFFSETS, err);
        if (status != RMQ_OK)
            break;
    }
    rmq_scan_finish(&scan);
    return status == RMQ_END ? RMQ_OK : status;
}

static int cut(struct rmq_store *store, int64_t offset, struct rmq_error *err)
{
    int status = lower_checkpoint(store, offset, err);
    for (struct rmq_queue *queue = rmq_queue_table_first(&store->queues); queue && status == RMQ_OK;
         queue = rmq_queue_table_next(queue)) {
        status = rmq_queue_truncate(queue, offset, err);
        atomic_store(&queue->next_offset, rmq_queue_max(queue));
    }
    if (status == RMQ_OK)
        status = keep_queue_offsets(store, offset, err);
    if (status == RMQ_OK)
        status = rmq_warmer_truncate(&store->log.warmer, offset, err);
    if (status == RMQ_OK)
        status = rmq_recover_index(&store->dispatcher, offset, err);
    if (atomic_load(&store->dispatcher.last_offset) >= offset) {
        atomic_store(&store->dispatcher.last_timestamp, 0);
        atomic_store(&store->dispatcher.last_offset, 0);
    }
    return status;
}

int rmq_store_truncate(struct rmq_store *store, int64_t offset, struct rmq_error *err)
{
    struct rmq_error own;
    if (!err)
        err = &own;
    int status = may_write(store, err);
    if (status != RMQ_OK)
        return status;
    pthread_mutex_lock(&store->structure_lock);
    pthread_mutex_lock(&store->flusher.round_lock);
    rmq_spin_lock(&store->log.put_lock);
    if (offset < rmq_file_queue_end(&store->log.files)) {
        status = check_border(store, offset, err);
        if (status == RMQ_OK) {
            rmq_dispatcher_pause(&store->dispatcher);
            atomic_store(&store->was_cut, true);
            status = cut(store, offset, err);
            int64_t dispatched = atomic_load(&store->dispatcher.dispatched_offset);
            if (atomic_load(&store->raw_end) > offset)
                atomic_store(&store->raw_end, offset);
            if (status != RMQ_OK)
                rmq_failure_set(&store->failure, err);
            rmq_dispatcher_resume(&store->dispatcher, dispatched < offset ? dispatched : offset);
        }
    }
    rmq_spin_unlock(&store->log.put_lock);
    pthread_mutex_unlock(&store->flusher.round_lock);
    pthread_mutex_unlock(&store->structure_lock);
    return status;
}

/* How many of the first file_count log files may go: those whose messages are all in their queues,
 * and the queues on the device, which then are all that tells which queue offsets were given. */
static int count_removable(struct rmq_store *store, size_t *file_count, struct rmq_error *err)
{
    struct rmq_file_queue *files = &store->log.files;
    int64_t start = rmq_file_queue_start(files), size = files->options.file_size;
    int64_t count = (rmq_file_queue_end(files) - start - 1) / size;
    if (start < 0 || count <= 0) {
        *file_count = 0;
        return RMQ_OK;
    }
    count = (size_t)count < *file_count ? count : (int64_t)*file_count;
    int64_t end = start + count * size, limit = rmq_dispatcher_limit(&store->dispatcher);
    (void)rmq_dispatcher_wait(&store->dispatcher, end < limit ? end : limit, RMQ_EXPIRE_WAIT_MS,
                              NULL);
    int64_t dispatched = atomic_load(&store->dispatcher.dispatched_offset);
    if (dispatched < end)
        count = dispatched > start ? (dispatched - start) / size : 0;
    *file_count = (size_t)count;
    int status = count ? rmq_flusher_flush_all(&store->flusher, err) : RMQ_OK;
    /* A checkpoint that finds no room claims less; a full disk is what files are removed for. */
    if (status == RMQ_NO_SPACE)
        status = rmq_failure_check(&store->failure, err);
    return status;
}

int rmq_store_expire(struct rmq_store *store, size_t file_count, struct rmq_error *err)
{
    int status = rmq_store_check(store, err);
    if (status != RMQ_OK)
        return status;
    if (store->read_only)
        return rmq_fail(err, RMQ_READ_ONLY, -1, "%s is opened read-only", store->root);
    status = count_removable(store, &file_count, err);
    if (status != RMQ_OK)
        return status;
    pthread_mutex_lock(&store->structure_lock);
    /* Queues have one writer, and their lower bounds are about to move. */
    rmq_dispatcher_pause(&store->dispatcher);
    status = rmq_file_queue_delete_head(&store->log.files, file_count, err);
    int64_t start = rmq_file_queue_start(&store->log.files);
    for (struct rmq_queue *queue = rmq_queue_table_first(&store->queues); queue && status == RMQ_OK;
         queue = rmq_queue_table_next(queue))
        status = rmq_queue_expire(queue, start, err);
    if (status == RMQ_OK && store->has_index)
        status = rmq_index_expire(&store->index, start, err);
    rmq_dispatcher_resume(&store->dispatcher, atomic_load(&store->dispatcher.dispatched_offset));
    pthread_mutex_unlock(&store->structure_lock);
    return status;
}

/* ---- replication's fields ---- */

static int set_field(struct rmq_store *store, int64_t *field, int64_t offset, struct rmq_error *err)
{
    int status = may_write(store, err);
    if (status != RMQ_OK)
        return status;
    pthread_mutex_lock(&store->flusher.checkpoint_lock);
    *field = offset;
    pthread_mutex_unlock(&store->flusher.checkpoint_lock);
    return RMQ_OK;
}

int rmq_store_set_confirm_offset(struct rmq_store *store, int64_t offset, struct rmq_error *err)
{
    int status = set_field(store, &store->flusher.checkpoint.confirm_offset, offset, err);
    if (status == RMQ_OK) {
        atomic_store(&store->dispatcher.confirm_offset, offset);
        rmq_dispatcher_nudge(&store->dispatcher);
    }
    return status;
}

int rmq_store_set_master_flushed(struct rmq_store *store, int64_t offset, struct rmq_error *err)
{
    return set_field(store, &store->flusher.checkpoint.master_flushed_offset, offset, err);
}
