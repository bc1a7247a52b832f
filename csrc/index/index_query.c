/* index_query.c -- lookup in index files, beside the writer. */
#include <assert.h>
#include <stdlib.h>

#include "base/hash.h"
#include "index/index_file.h"

int rmq_index_refresh(struct rmq_index *index, size_t *skipped, struct rmq_error *err)
{
    assert(index->options.read_only);

    struct rmq_index fresh;
    int status = rmq_index_open(&fresh, &index->options, skipped, err);
    if (status != RMQ_OK)
        return status;

    pthread_mutex_lock(&index->lock);
    struct rmq_mapped_file **files = index->files;
    size_t count = index->count, capacity = index->capacity;
    index->files = fresh.files;
    index->count = fresh.count;
    index->capacity = fresh.capacity;
    pthread_mutex_unlock(&index->lock);

    fresh.files = files;
    fresh.count = count;
    fresh.capacity = capacity;
    rmq_index_close(&fresh);
    return RMQ_OK;
}

struct search {
    int32_t hash;
    int64_t begin_ms, end_ms;
    int64_t *offsets;
    size_t capacity, count;
};

static bool times_overlap(const struct search *search, int64_t begin, int64_t end)
{
    return (search->begin_ms < begin && search->end_ms > end) ||
           (search->begin_ms >= begin && search->begin_ms <= end) ||
           (search->end_ms >= begin && search->end_ms <= end);
}

/* Walks one chain from its newest entry. */
static void search_file(const struct rmq_index *index, struct rmq_mapped_file *file,
                        struct search *search)
{
    assert(search->hash >= 0 && search->count <= search->capacity);

    const uint8_t *base = rmq_mapped_file_base(file);
    int64_t begin = rmq_index_header(file, RMQ_INDEX_BEGIN_TIMESTAMP);
    int32_t entry =
        rmq_index_load_i32(base + rmq_index_slot_at(search->hash % index->options.slot_count));

    /* Read after the slot, the count is not below the slot's number, unless the file is damaged. */
    int32_t next = rmq_index_next_entry(index, file);
    if (next <= 1)
        return;

    for (int32_t steps = 0; steps < next && search->count < search->capacity; ++steps) {
        if (entry <= 0 || entry > next || entry >= index->options.entry_count)
            return;
        const uint8_t *bytes = base + rmq_index_entry_at(index, entry);
        int32_t seconds = rmq_get_i32(bytes + 12);
        int32_t previous = rmq_get_i32(bytes + 16);
        if (seconds < 0)
            return;

        int64_t time = (int64_t)((uint64_t)begin + (uint64_t)seconds * 1000);
        if (rmq_get_i32(bytes) == search->hash && time >= search->begin_ms &&
            time <= search->end_ms)
            search->offsets[search->count++] = rmq_get_i64(bytes + 4);
        if (previous == entry || time < search->begin_ms)
            return;
        entry = previous;
    }
}

/* Pins all files, so that a query sees one state of the index. */
static int pin_all(struct rmq_index *index, struct rmq_mapped_file ***files, size_t *count,
                   struct rmq_error *err)
{
    assert(files && count);

    int status = RMQ_OK;

    pthread_mutex_lock(&index->lock);
    *count = index->count;
    *files = malloc((index->count ? index->count : 1) * sizeof **files);
    if (!*files)
        status = rmq_fail(err, RMQ_NO_MEMORY, -1, "no memory for %zu index files", index->count);
    for (size_t i = 0; status == RMQ_OK && i < index->count; ++i) {
        (*files)[i] = index->files[i];
        rmq_mapped_file_pin(index->files[i]);
    }
    pthread_mutex_unlock(&index->lock);
    return status;
}

int rmq_index_query(struct rmq_index *index, struct rmq_slice topic, struct rmq_slice key,
                    int64_t begin_ms, int64_t end_ms, int64_t *offsets, size_t capacity,
                    size_t *count, struct rmq_error *err)
{
    assert((offsets || capacity == 0) && count);

    struct rmq_mapped_file **files = NULL;
    size_t file_count = 0;
    *count = 0;
    int status = pin_all(index, &files, &file_count, err);
    if (status != RMQ_OK)
        return status;

    int32_t hash = rmq_java_hash(rmq_java_hash(0, topic.data, topic.size), "#", 1);
    struct search search = {.hash = rmq_index_hash(rmq_java_hash(hash, key.data, key.size)),
                            .begin_ms = begin_ms,
                            .end_ms = end_ms,
                            .offsets = offsets,
                            .capacity = capacity};

    for (size_t i = file_count; i-- > 0 && search.count < capacity;) {
        int64_t begin = rmq_index_header(files[i], RMQ_INDEX_BEGIN_TIMESTAMP);
        if (times_overlap(&search, begin, rmq_index_header(files[i], RMQ_INDEX_END_TIMESTAMP)))
            search_file(index, files[i], &search);
        if (begin < begin_ms)
            break;
    }

    for (size_t i = 0; i < file_count; ++i)
        rmq_mapped_file_unpin(files[i]);
    free(files);
    *count = search.count;
    assert(*count <= capacity);
    return RMQ_OK;
}
