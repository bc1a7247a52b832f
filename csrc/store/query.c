/* query.c -- finding records by key. */
#include <assert.h>
#include <stdlib.h>
#include <string.h>

#include "store/read.h"
#include "store/store_internal.h"

/* Offsets that one query requests from the index at most; a file has 20 million by default. */
#define RMQ_QUERY_MAX (1 << 24)
/* The factor by which a query requests more offsets, when it got too few. */
#define RMQ_QUERY_GROWTH 16
/* The index stores whole seconds since the first entry of a file: a record may seem older by up to
 * this. */
#define RMQ_INDEX_SECOND_MS 1000

static bool holds_key(struct rmq_slice keys, struct rmq_slice key)
{
    assert(key.data || key.size == 0);

    for (size_t at = 0; keys.data && at <= keys.size;) {
        const char *space = memchr(keys.data + at, ' ', keys.size - at);
        size_t end = space ? (size_t)(space - keys.data) : keys.size;
        if (end - at == key.size && memcmp(keys.data + at, key.data, key.size) == 0)
            return true;
        at = end + 1;
    }
    return false;
}

/* The key and range of a query. */
struct lookup {
    struct rmq_slice topic;
    struct rmq_slice key;
    bool tag;
    int64_t begin_ms, end_ms;
    size_t max_count;
};

static bool is_meant(const struct lookup *lookup, const struct rmq_record *record)
{
    struct rmq_slice topic = lookup->topic, key = lookup->key;
    assert((topic.data || topic.size == 0) && (key.data || key.size == 0));

    struct rmq_dispatch_properties properties;
    if (record->store_timestamp < lookup->begin_ms || record->store_timestamp > lookup->end_ms ||
        (size_t)record->topic_size != topic.size ||
        memcmp(record->topic, topic.data, topic.size) != 0)
        return false;

    rmq_properties_scan(record->properties, (size_t)record->properties_size, &properties);
    struct rmq_slice single = lookup->tag ? properties.tags : properties.unique_key;
    if (single.size == key.size && single.size && memcmp(single.data, key.data, key.size) == 0)
        return true;

    return !lookup->tag && holds_key(properties.keys, key);
}

static int ascending(const void *a, const void *b)
{
    int64_t x = ((const struct rmq_found *)a)->record.physical_offset,
            y = ((const struct rmq_found *)b)->record.physical_offset;
    return (x > y) - (x < y);
}

/* Keeps the offsets (newest first) of matching records, each once. If an offset has no record, the
 * record expired or was cut, or the index is damaged. */
static int keep_meant(struct rmq_store *store, const struct lookup *lookup, const int64_t *offsets,
                      size_t offset_count, struct rmq_found *found, size_t *count,
                      struct rmq_error *err)
{
    assert(offsets || offset_count == 0);

    size_t kept = 0;
    for (size_t i = 0; i < offset_count && kept < lookup->max_count; ++i) {
        bool seen = false;
        for (size_t j = kept; j-- > 0 && !seen;)
            seen = found[j].record.physical_offset == offsets[i];
        if (seen)
            continue;

        int status = rmq_store_at(store, offsets[i], true, &found[kept], err);
        if (status == RMQ_OUT_OF_RANGE || status == RMQ_NOT_FOUND || status == RMQ_CORRUPT)
            continue;
        if (status != RMQ_OK) {
            rmq_found_release(found, kept);
            return status;
        }

        if (is_meant(lookup, &found[kept].record))
            ++kept;
        else
            rmq_found_release(&found[kept], 1);
    }

    assert(kept <= lookup->max_count);
    *count = kept;
    return RMQ_OK;
}

/* Looks up in the index, newest first. Entries that collide with the key's hash, or whose records
 * are outside the time range, may use up the requested number: then more are requested. */
static int look_up(struct rmq_store *store, const struct lookup *lookup, struct rmq_slice asked,
                   struct rmq_found *found, size_t *count, struct rmq_error *err)
{
    size_t max_count = lookup->max_count, offset_count = 0;
    size_t capacity = max_count < RMQ_QUERY_MAX / 4 ? max_count * 4 + 16 : RMQ_QUERY_MAX;
    int64_t begin_ms =
        lookup->begin_ms > RMQ_INDEX_SECOND_MS ? lookup->begin_ms - RMQ_INDEX_SECOND_MS : 0;
    for (;;) {
        int64_t *offsets = malloc(capacity * sizeof *offsets);
        if (!offsets)
            return rmq_fail(err, RMQ_NO_MEMORY, -1, "no memory for %zu offsets", capacity);

        int status = rmq_index_query(&store->index, lookup->topic, asked, begin_ms, lookup->end_ms,
                                     offsets, capacity, &offset_count, err);
        if (status == RMQ_OK)
            status = keep_meant(store, lookup, offsets, offset_count, found, count, err);
        free(offsets);

        if (status != RMQ_OK || *count == max_count || offset_count < capacity ||
            capacity == RMQ_QUERY_MAX)
            return status;
        rmq_found_release(found, *count);
        *count = 0;
        capacity = capacity < RMQ_QUERY_MAX / RMQ_QUERY_GROWTH ? capacity * RMQ_QUERY_GROWTH
                                                               : RMQ_QUERY_MAX;
    }
}

int rmq_store_query(struct rmq_store *store, struct rmq_slice topic, struct rmq_slice key, bool tag,
                    int64_t begin_ms, int64_t end_ms, size_t max_count, struct rmq_found *found,
                    size_t *count, struct rmq_error *err)
{
    assert(found && count);

    *count = 0;
    int status = rmq_store_check(store, err);
    if (status != RMQ_OK)
        return status;

    if (!store->has_index)
        return rmq_fail(err, RMQ_UNSUPPORTED, -1, "%s keeps no index (messageIndexEnable is false)",
                        store->root);

    char tag_key[2 + 32767];
    if (tag) {
        if (key.size > sizeof tag_key - 2)
            return rmq_fail(err, RMQ_INVALID, -1, "a tag of %zu bytes; the limit is 32767",
                            key.size);
        memcpy(tag_key, "T#", 2);
        memcpy(tag_key + 2, key.data, key.size);
    }

    struct rmq_slice asked = {tag ? tag_key : key.data, tag ? key.size + 2 : key.size};
    const struct lookup lookup = {topic, key, tag, begin_ms, end_ms, max_count};
    status = look_up(store, &lookup, asked, found, count, err);
    if (status == RMQ_OK)
        qsort(found, *count, sizeof *found, ascending);
    return status;
}
