#include "store/walk.h"

#include <assert.h>
#include <inttypes.h>
#include <string.h>

#include "store/store_internal.h"

/* Most records examined in one call, so that the caller can report progress. */
#define LOOKED_AT_MAX 4096

static int64_t minimum(int64_t a, int64_t b)
{
    return a < b ? a : b;
}

int rmq_walk_begin(struct rmq_walk *walk, struct rmq_store *store,
                   const struct rmq_walk_options *options, struct rmq_error *err)
{
    assert(store && options);

    memset(walk, 0, sizeof *walk);
    int status = rmq_store_check(store, err);
    if (status != RMQ_OK)
        return status;

    walk->store = store;
    walk->options = *options;
    if (walk->options.start < 0)
        walk->options.start = 0;

    if (!options->by_queue) {
        struct rmq_file_queue *files = &store->log.files;
        unsigned checks = RMQ_CHECK_PLACE | (options->check_crc ? RMQ_CHECK_READER : 0u);
        walk->options.stop = minimum(options->stop, rmq_file_queue_end(files));
        rmq_scan_begin(&walk->scan, files, walk->options.start, walk->options.stop, checks);
        return RMQ_OK;
    }

    struct rmq_queue *queue = rmq_queue_table_find(&store->queues, options->topic.data,
                                                   options->topic.size, options->queue_id);
    if (!queue)
        return rmq_fail(err, RMQ_NOT_FOUND, -1, "no queue %d of topic %.*s", options->queue_id,
                        (int)options->topic.size, options->topic.data);

    walk->options.stop = minimum(options->stop, rmq_queue_max(queue));
    walk->offset = walk->options.start;
    return RMQ_OK;
}

void rmq_walk_let_go(struct rmq_walk *walk)
{
    assert(walk->found_count <= RMQ_WALK_PORTION);

    if (walk->file)
        rmq_mapped_file_unpin(walk->file);
    walk->file = NULL;

    rmq_found_release(walk->found, walk->found_count);
    walk->found_count = 0;
    walk->count = 0;
}

void rmq_walk_finish(struct rmq_walk *walk)
{
    rmq_walk_let_go(walk);
    assert(walk->count == 0);
    rmq_scan_finish(&walk->scan);
}

static bool is_in_time(const struct rmq_walk_options *options, const struct rmq_record *record)
{
    return record->store_timestamp >= options->begin_ms &&
           record->store_timestamp < options->end_ms;
}

/* ---- over the commit log ---- */

static bool is_wanted(const struct rmq_walk_options *options, const struct rmq_record *record)
{
    assert(options->tags || options->tag_count == 0);

    if (options->queue_id >= 0 && record->queue_id != options->queue_id)
        return false;

    if (options->topic.data &&
        ((size_t)record->topic_size != options->topic.size ||
         memcmp(record->topic, options->topic.data, options->topic.size) != 0))
        return false;

    if (!is_in_time(options, record))
        return false;
    return options->tag_count == 0 ||
           rmq_properties_have_tag(record->properties, (size_t)record->properties_size,
                                   options->tags, options->tag_count);
}

/* Reads records up to the first bytes that are not a record, the end of the file, or a limit.
 * Returns the status of the scan. */
static int collect(struct rmq_walk *walk, size_t max_count, int64_t max_bytes,
                   struct rmq_error *err)
{
    assert(max_count <= RMQ_WALK_PORTION && walk->count == 0);

    int64_t bytes = 0;
    for (size_t seen = 0; walk->count < max_count && seen < LOOKED_AT_MAX; ++seen) {
        struct rmq_record *record = &walk->records[walk->count];

        int status = rmq_scan_next(&walk->scan, record, err);
        if (status != RMQ_OK)
            return status;

        /* The missing part of a record that is appended raw, piece by piece, reads as zeros. */
        if (walk->scan.offset > rmq_file_queue_end(walk->scan.files)) {
            walk->scan.offset -= record->total_size;
            walk->scan.verdict = RMQ_SCAN_LIMIT;
            return RMQ_END;
        }

        if (!is_wanted(&walk->options, record))
            continue;

        bytes += record->total_size;
        assert(bytes > 0);
        if (walk->count > 0 && (walk->scan.file != walk->file || bytes > max_bytes)) {
            walk->scan.offset -= record->total_size;
            return RMQ_OK;
        }

        if (walk->count++ == 0) {
            walk->file = walk->scan.file;
            rmq_mapped_file_pin(walk->file);
        }
    }
    return RMQ_OK;
}

/* Continues after the position where the scan stopped, which is before the end of the walk. */
static int pass_over(struct rmq_walk *walk, struct rmq_error *err)
{
    assert(walk->scan.offset < walk->scan.limit);

    struct rmq_scan *scan = &walk->scan;
    int64_t from = scan->offset;
    int64_t log_start = rmq_file_queue_start(scan->files);

    if (from < log_start) {
        scan->offset = minimum(log_start, scan->limit);
        walk->counts.expired += scan->offset - from;
        return RMQ_OK;
    }

    if (!walk->options.skip_corrupt) {
        if (scan->verdict != RMQ_SCAN_BAD)
            return rmq_fail(err, RMQ_CORRUPT, from,
                            "no record at offset %" PRId64 ", although the log goes on to %" PRId64,
                            from, rmq_file_queue_end(scan->files));
        return rmq_fail(err, RMQ_CORRUPT, scan->error.at_offset, "%s", scan->error.detail);
    }

    int status = RMQ_OK;
    if (scan->verdict == RMQ_SCAN_BAD && scan->bad_size > 0)
        scan->offset += scan->bad_size;
    else
        status = rmq_scan_resync(scan, err);

    if (status != RMQ_OK && status != RMQ_END)
        return status;
    if (status == RMQ_END || scan->offset > scan->limit)
        scan->offset = scan->limit;

    ++walk->counts.skipped;
    walk->counts.skipped_bytes += scan->offset - from;
    return RMQ_OK;
}

static int next_of_log(struct rmq_walk *walk, size_t max_count, int64_t max_bytes,
                       struct rmq_error *err)
{
    int status = collect(walk, max_count, max_bytes, err);
    if (status == RMQ_OK || walk->count > 0)
        return RMQ_OK;
    if (status != RMQ_END || walk->scan.verdict == RMQ_SCAN_LIMIT)
        return status;

    assert(walk->count == 0);
    /* The log may have been cut meanwhile. */
    if (walk->scan.offset >= minimum(walk->scan.limit, rmq_file_queue_end(walk->scan.files)))
        return RMQ_END;
    return pass_over(walk, err);
}

/* ---- over a queue ---- */

static int pass_over_unit(struct rmq_walk *walk)
{
    const struct rmq_walk_options *options = &walk->options;
    struct rmq_unit unit;
    size_t count = 0;
    struct rmq_queue *queue = rmq_queue_table_find(&walk->store->queues, options->topic.data,
                                                   options->topic.size, options->queue_id);

    assert(queue);

    int64_t next = walk->offset + 1, behind = next;
    if (rmq_queue_read(queue, walk->offset, &unit, 1, &count, NULL) == RMQ_OK && count == 1)
        behind = unit.queue_offset + unit.batch_size;
    else if (queue->is_batch)
        behind = rmq_batch_consume_queue_next(&queue->batch, walk->offset);
    if (behind > next)
        next = behind;

    assert(next > walk->offset);
    walk->offset = next;
    ++walk->counts.skipped;
    return RMQ_OK;
}

/* How to continue after a get without records. */
static int follow(struct rmq_walk *walk, const struct rmq_get_result *result, struct rmq_error *err)
{
    assert(result->count == 0);

    const struct rmq_walk_options *options = &walk->options;
    if (result->status == RMQ_GET_OFFSET_FOUND_NULL && !options->skip_corrupt)
        return rmq_fail(err, RMQ_CORRUPT, -1,
                        "consume queue %.*s/%d: no file holds the offset %" PRId64
                        "; rebuild it with rmqstore repair",
                        (int)options->topic.size, options->topic.data, options->queue_id,
                        walk->offset);
    if (result->status == RMQ_GET_OFFSET_FOUND_NULL)
        ++walk->counts.skipped;

    int64_t next = minimum(result->next_offset, options->stop);
    if (next <= walk->offset)
        return RMQ_END;

    if (result->status == RMQ_GET_OFFSET_TOO_SMALL ||
        result->status == RMQ_GET_MESSAGE_WAS_REMOVING)
        walk->counts.expired += next - walk->offset;

    walk->offset = next;
    return RMQ_OK;
}

static int next_of_queue(struct rmq_walk *walk, size_t max_count, int64_t max_bytes,
                         struct rmq_error *err)
{
    assert(max_count <= RMQ_WALK_PORTION);

    const struct rmq_walk_options *options = &walk->options;
    if (walk->offset >= options->stop)
        return RMQ_END;

    int64_t left = options->stop - walk->offset;
    struct rmq_get_request request = {
        .topic = options->topic.data,
        .topic_size = options->topic.size,
        .offset = walk->offset,
        .max_bytes = max_bytes,
        .tags = options->tags,
        .tag_count = options->tag_count,
        .max_count = left < (int64_t)max_count ? (size_t)left : max_count,
        .queue_id = options->queue_id,
        .check_crc = options->check_crc,
    };

    struct rmq_get_result result;
    int status = rmq_store_get(walk->store, &request, walk->found, &result, err);
    walk->found_count = result.count;
    assert(walk->found_count <= max_count);

    if (result.count == 0) {
        if (status == RMQ_CORRUPT && result.next_offset > walk->offset)

            walk->offset = result.next_offset; /* units before the requested ones */
        if (status == RMQ_CORRUPT && options->skip_corrupt)
            return pass_over_unit(walk);
        return status != RMQ_OK ? status : follow(walk, &result, err);
    }

    for (size_t i = 0; i < result.count && walk->found[i].queue_offset < options->stop; ++i) {
        const struct rmq_found *found = &walk->found[i];
        if (!is_in_time(options, &found->record))
            continue;
        walk->records[walk->count] = found->record;
        walk->offsets[walk->count++] = found->queue_offset;
    }
    walk->offset = result.next_offset;
    return RMQ_OK;
}

/* ---- both ---- */

int rmq_walk_next(struct rmq_walk *walk, size_t max_count, int64_t max_bytes, struct rmq_error *err)
{
    assert(max_count > 0);

    rmq_walk_let_go(walk);
    int status = rmq_store_check(walk->store, err);
    if (status != RMQ_OK)
        return status;

    if (max_count > RMQ_WALK_PORTION)
        max_count = RMQ_WALK_PORTION;
    return (walk->options.by_queue ? next_of_queue : next_of_log)(walk, max_count, max_bytes, err);
}

void rmq_walk_back(struct rmq_walk *walk, size_t index)
{
    assert(index <= walk->count);

    if (index == walk->count)
        return;

    if (walk->options.by_queue)
        walk->offset = walk->offsets[index];
    else
        walk->scan.offset = walk->records[index].physical_offset;
    walk->count = index;
}
