/* store_remove.c -- the queues of deleted topics, and queues whose messages are before the log: see
 * index/removed_queues.h.
 */
#include <assert.h>
#include <inttypes.h>
#include <string.h>

#include "index/removed_queues.h"
#include "store/store_internal.h"

static bool is_of(const struct rmq_queue *queue, const char *topic, size_t topic_size)
{
    return queue->topic_size == topic_size && memcmp(queue->topic, topic, topic_size) == 0;
}

/* Marks the queues of the topic with their next offsets. Returns the end of the log at that
 * moment. */
static int64_t mark(struct rmq_store *store, const char *topic, size_t topic_size,
                    int64_t log_offset)
{
    assert(topic);

    /* No put may come in between. */
    rmq_spin_lock(&store->log.put_lock);
    for (struct rmq_queue *queue = rmq_queue_table_first(&store->queues); queue;
         queue = rmq_queue_table_next(queue))
        if (is_of(queue, topic, topic_size)) {
            atomic_store(&queue->removed_next, atomic_load(&queue->next_offset));
            queue->removed_before = queue->removed_until;
            queue->removed_until = log_offset;
        }
    int64_t end = rmq_file_queue_end(&store->log.files);
    rmq_spin_unlock(&store->log.put_lock);
    return end;
}

/* The queues keep their units after the failure. */
static void unmark(struct rmq_store *store, const char *topic, size_t topic_size)
{
    assert(topic);

    for (struct rmq_queue *queue = rmq_queue_table_first(&store->queues); queue;
         queue = rmq_queue_table_next(queue))
        if (is_of(queue, topic, topic_size)) {
            queue->removed_until = queue->removed_before;
            if (queue->removed_until == 0)
                atomic_store(&queue->removed_next, 0);
        }
}

/* Counts records that are not in queues yet, and records from log_offset on. first: the first
 * record from log_offset on; its physical_offset is -1 when there is none. */
static int count_records(struct rmq_store *store, int64_t log_offset, int64_t end,
                         struct rmq_record *first, struct rmq_error *err)
{
    assert(first);

    struct rmq_scan scan;
    struct rmq_record record;
    int64_t from = atomic_load(&store->dispatcher.dispatched_offset);
    if (from > log_offset)
        from = log_offset;
    *first = (struct rmq_record){.physical_offset = -1};
    if (from >= end)
        return RMQ_OK;

    rmq_scan_begin(&scan, &store->log.files, from, end, RMQ_CHECK_PLACE);
    int status;
    while ((status = rmq_scan_next(&scan, &record, err)) == RMQ_OK) {
        if (first->physical_offset < 0 && record.physical_offset >= log_offset)
            *first = record;
        status = rmq_dispatch_record(&store->dispatcher, &record, RMQ_TO_REMOVED, err);
        if (status != RMQ_OK)
            break;
    }
    rmq_scan_finish(&scan);
    return status == RMQ_END ? RMQ_OK : status;
}

/* Units of records from `first` on are removed with the others. After a crash before they are
 * entered again, recovery must walk from `first`. */
static int lower_checkpoint(struct rmq_store *store, const struct rmq_record *first,
                            struct rmq_error *err)
{
    assert(first->physical_offset >= 0);

    struct rmq_dispatcher *dispatcher = &store->dispatcher;
    if (atomic_load(&dispatcher->last_offset) >= first->physical_offset) {
        atomic_store(&dispatcher->last_timestamp, 0);
        atomic_store(&dispatcher->last_offset, 0);
    }
    return rmq_flusher_lower(&store->flusher, INT64_MAX, first->physical_offset,
                             first->store_timestamp, err);
}

/* The dispatcher is resting. */
static int remove_queues(struct rmq_store *store, const char *topic, size_t topic_size,
                         int64_t log_offset, struct rmq_error *err)
{
    assert(store->dispatcher.resting);

    struct rmq_record first;
    int64_t end = mark(store, topic, topic_size, log_offset);

    int status = count_records(store, log_offset, end, &first, err);
    if (status == RMQ_OK && first.physical_offset >= 0)
        status = lower_checkpoint(store, &first, err);
    bool is_unsure = false;
    if (status == RMQ_OK)
        status = rmq_removed_queues_save(&store->queues, &is_unsure, err);
    if (status != RMQ_OK && !is_unsure) {
        unmark(store, topic, topic_size);
        return status;
    }

    for (struct rmq_queue *queue = rmq_queue_table_first(&store->queues); queue && status == RMQ_OK;
         queue = rmq_queue_table_next(queue))
        if (is_of(queue, topic, topic_size))
            status = rmq_removed_queue_clear(&store->queues, queue, err);
    if (status == RMQ_OK)
        status = rmq_store_save_queue_ends(store, false, err);
    if (status != RMQ_OK)
        rmq_failure_set(&store->failure, err);
    return status;
}

/* A topic without a queue has nothing to remove or to remember. */
static bool has_queues(struct rmq_store *store, const char *topic, size_t topic_size)
{
    struct rmq_queue *queue = rmq_queue_table_first(&store->queues);
    while (queue && !is_of(queue, topic, topic_size))
        queue = rmq_queue_table_next(queue);
    return queue != NULL;
}

int rmq_store_remove_queues(struct rmq_store *store, const char *topic, size_t topic_size,
                            int64_t log_offset, struct rmq_error *err)
{
    assert(topic);

    struct rmq_error own;
    if (!err)
        err = &own;
    int status = rmq_store_may_change(store, err);
    if (status != RMQ_OK || !has_queues(store, topic, topic_size))
        return status;

    /* A record that an entry counts must not be lost while the entry is kept. */
    status = rmq_flusher_flush_all(&store->flusher, err);
    if (status != RMQ_OK)
        return status;

    pthread_mutex_lock(&store->structure_lock);
    pthread_mutex_lock(&store->flusher.round_lock);
    rmq_dispatcher_pause(&store->dispatcher);

    int64_t start = rmq_file_queue_start(&store->log.files);
    int64_t dispatched = atomic_load(&store->dispatcher.dispatched_offset);
    if (log_offset < start)
        log_offset = start; /* The queue's files have expired meanwhile. */
    if (!rmq_store_is_border(store, log_offset)) {
        status = rmq_fail(err, RMQ_OUT_OF_RANGE, log_offset,
                          "cannot remove the queues of a topic up to %" PRId64
                          ": no record begins there",
                          log_offset);
    } else if (log_offset > 0) {
        status = remove_queues(store, topic, topic_size, log_offset, err);
        if (dispatched > log_offset)
            dispatched = log_offset;
    }

    rmq_dispatcher_resume(&store->dispatcher, dispatched);
    pthread_mutex_unlock(&store->flusher.round_lock);
    pthread_mutex_unlock(&store->structure_lock);
    return status;
}

static int begin_queue(struct rmq_store *store, const struct rmq_queue_start *start,
                       bool *is_changed, struct rmq_error *err)
{
    assert(is_changed);

    struct rmq_queue *queue = NULL;
    int status = rmq_queue_table_get(&store->queues, start->topic, start->topic_size,
                                     start->queue_id, false, &queue, err);
    if (status != RMQ_OK)
        return status;
    if (rmq_queue_physical_end(queue) >= 0 ||
        start->next_offset <= atomic_load(&queue->removed_next) ||
        !rmq_is_queue_offset_possible(start->next_offset, rmq_file_queue_start(&store->log.files),
                                      queue->is_batch))
        return RMQ_OK;

    /* No put may come in between. */
    rmq_spin_lock(&store->log.put_lock);
    if (atomic_load(&queue->next_offset) < start->next_offset)
        atomic_store(&queue->next_offset, start->next_offset);
    atomic_store(&queue->removed_next, start->next_offset);
    if (queue->removed_until == 0)
        queue->removed_until = RMQ_REMOVED_BY_RETENTION;
    rmq_spin_unlock(&store->log.put_lock);
    *is_changed = true;
    return RMQ_OK;
}

int rmq_store_begin_queues(struct rmq_store *store, const struct rmq_queue_start *starts,
                           size_t count, struct rmq_error *err)
{
    assert(starts || count == 0);

    int status = rmq_store_may_change(store, err);
    if (status != RMQ_OK || rmq_file_queue_start(&store->log.files) <= 0)
        return status;

    pthread_mutex_lock(&store->structure_lock);
    pthread_mutex_lock(&store->flusher.round_lock);
    rmq_dispatcher_pause(&store->dispatcher);

    bool is_changed = false;
    for (size_t i = 0; i < count && status == RMQ_OK; ++i)
        status = begin_queue(store, &starts[i], &is_changed, err);
    if (is_changed && status == RMQ_OK)
        status = rmq_removed_queues_save(&store->queues, NULL, err);

    rmq_dispatcher_resume(&store->dispatcher, atomic_load(&store->dispatcher.dispatched_offset));
    pthread_mutex_unlock(&store->flusher.round_lock);
    pthread_mutex_unlock(&store->structure_lock);
    return status;
}
