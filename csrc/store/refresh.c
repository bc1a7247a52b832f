/* refresh.c -- how a read-only store finds the changes that its writer has made. */
#include "store/store_internal.h"

#include <assert.h>

#include "index/removed_queues.h"

static int refresh_queue(struct rmq_queue *queue, struct rmq_error *err)
{
    if (!atomic_load_explicit(&queue->is_open, memory_order_acquire))
        return RMQ_OK;

    if (queue->is_batch)
        return rmq_file_queue_refresh(&queue->batch.files, err);

    int status = rmq_file_queue_refresh(&queue->simple.files, err);
    if (status == RMQ_OK && queue->has_ext)
        status = rmq_file_queue_refresh(&queue->ext.files, err);
    return status;
}

static int refresh(struct rmq_store *store, struct rmq_error *err)
{
    assert(store->read_only);

    int status = rmq_file_queue_refresh(&store->log.files, err);
    if (status == RMQ_OK)
        status = rmq_queue_table_load(&store->queues, err);
    if (status == RMQ_OK)
        status = rmq_removed_queues_load(&store->queues, err);

    for (struct rmq_queue *queue = rmq_queue_table_first(&store->queues); queue && status == RMQ_OK;
         queue = rmq_queue_table_next(queue))
        status = refresh_queue(queue, err);
    if (status == RMQ_OK)
        status = rmq_recover_read_only(&store->log.files, &store->queues, store->root,
                                       &store->recovery, err);

    if (status == RMQ_OK && store->has_index)
        status = rmq_index_refresh(&store->index, &store->index_files_skipped, err);
    return status;
}

int rmq_store_refresh(struct rmq_store *store, struct rmq_error *err)
{
    int status = rmq_store_check(store, err);
    if (status != RMQ_OK || !store->read_only)
        return status;

    pthread_mutex_lock(&store->structure_lock);
    int tries = 0;
    do {
        status = refresh(store, err);
    } while (rmq_may_be_writer_at_work(status) && ++tries < RMQ_READ_ONLY_TRIES);
    pthread_mutex_unlock(&store->structure_lock);
    return status;
}
