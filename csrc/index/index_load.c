/* index_load.c -- opening the index, and choosing the valid files after a crash. */
#include <assert.h>
#include <inttypes.h>
#include <limits.h>
#include <stdlib.h>
#include <string.h>

#include "index/index_file.h"

/* ---- opening ---- */

struct loading {
    struct rmq_index *index;
    size_t *skipped;
    struct rmq_error *err;
    char empty_name[RMQ_INDEX_NAME_SIZE + 8];  /* newest of the zero-length files */
    char newest_name[RMQ_INDEX_NAME_SIZE + 8]; /* newest of the others */
};

static bool is_index_name(const char *name)
{
    assert(name);

    size_t size = strspn(name, "0123456789");
    return size == RMQ_INDEX_NAME_SIZE - 1 && name[size] == '\0';
}

static int visit(void *context, const char *name, bool is_directory)
{
    struct loading *loading = context;
    assert(name && loading->skipped);

    struct rmq_index *index = loading->index;
    struct rmq_vfs *vfs = index->options.vfs;
    struct rmq_error *err = loading->err;
    bool read_only = index->options.read_only;
    char path[PATH_MAX];
    struct rmq_file_info info;

    if (is_directory)
        return RMQ_OK;
    if (!is_index_name(name)) {
        ++*loading->skipped;
        return read_only
                   ? RMQ_OK
                   : rmq_fail(err, RMQ_CORRUPT, -1, "%s/%s is not an index file; move it away",
                              index->options.directory, name);
    }

    int status = rmq_path_join(path, sizeof path, index->options.directory, name, err);
    if (status == RMQ_OK)
        status = vfs->stat(vfs, path, &info, err);
    if (status != RMQ_OK)
        return status == RMQ_NOT_FOUND ? RMQ_OK : status;

    char *newest = info.size ? loading->newest_name : loading->empty_name;
    if (strcmp(name, newest) > 0)
        memcpy(newest, name, RMQ_INDEX_NAME_SIZE);

    if (info.size == 0)
        return RMQ_OK;
    if (info.size != rmq_index_file_size(index)) {
        ++*loading->skipped;
        return read_only
                   ? RMQ_OK
                   : rmq_fail(err, RMQ_CORRUPT, -1,
                              "%s has %" PRId64 " bytes, expected %" PRId64
                              "; open the store with the slot and entry counts it was written with",
                              path, info.size, rmq_index_file_size(index));
    }

    struct rmq_mapped_file_options options = {
        .vfs = vfs, .start = 0, .size = info.size, .writable = !read_only};
    struct rmq_mapped_file *file = NULL;
    status = rmq_mapped_file_load(path, &options, &file, err);
    if (status != RMQ_OK)
        return status;

    status = rmq_mapped_file_map(file, err);
    if (status == RMQ_OK)
        status = rmq_index_add(index, file, err);
    if (status != RMQ_OK)
        rmq_mapped_file_unpin(file);
    return status;
}

static int by_first_record(const void *left, const void *right)
{
    struct rmq_mapped_file *a = *(struct rmq_mapped_file *const *)left;
    struct rmq_mapped_file *b = *(struct rmq_mapped_file *const *)right;
    int64_t begin_a = rmq_index_header(a, RMQ_INDEX_BEGIN_OFFSET);
    int64_t begin_b = rmq_index_header(b, RMQ_INDEX_BEGIN_OFFSET);
    /* Names follow the wall clock, which may have been set back. */
    if (begin_a != begin_b)
        return begin_a < begin_b ? -1 : 1;
    return strcmp(a->path, b->path);
}

/* Makes the last file of the array the writer's, unless it is full. */
static int choose_newest(struct rmq_index *index, struct rmq_error *err)
{
    assert(!index->newest);

    if (index->options.read_only || index->count == 0)
        return RMQ_OK;
    struct rmq_mapped_file *last = index->files[index->count - 1];
    int32_t next = rmq_index_next_entry(index, last);
    if (next >= index->options.entry_count)
        return RMQ_OK;

    int64_t end = rmq_index_entry_at(index, next);

    /* Every page of entries below the end was stored to already; slots are used at random. */
    int status = rmq_mapped_file_fill_holes(last, 0, rmq_index_entry_at(index, 0), err);
    if (status == RMQ_OK) {
        rmq_mapped_file_set_end(last, end);
        index->newest = last;
    }
    return status;
}

/* A zero-length newest file was never written. A zero-length file before others is damage. */
static int validate_empty(struct rmq_index *index, const struct loading *loading,
                          struct rmq_error *err)
{
    if (!*loading->empty_name || index->options.read_only)
        return RMQ_OK;
    if (strcmp(loading->empty_name, loading->newest_name) < 0)
        return rmq_fail(err, RMQ_CORRUPT, -1, "%s/%s is empty, and files follow it; remove it",
                        index->options.directory, loading->empty_name);

    memcpy(index->unfinished, loading->empty_name, RMQ_INDEX_NAME_SIZE);
    return RMQ_OK;
}

int rmq_index_open(struct rmq_index *index, const struct rmq_index_options *options,
                   size_t *skipped, struct rmq_error *err)
{
    assert(options->vfs && options->directory && skipped);

    if (options->slot_count < 1 || options->entry_count < 2)
        return rmq_fail(err, RMQ_INVALID, -1,
                        "index %s: %" PRId32 " slots and %" PRId32
                        " entries; at least 1 and 2 are needed",
                        options->directory, options->slot_count, options->entry_count);

    struct loading loading = {.index = index, .skipped = skipped, .err = err};
    struct rmq_vfs *vfs = options->vfs;
    *skipped = 0;
    *index = (struct rmq_index){.options = *options};
    pthread_mutex_init(&index->lock, NULL);
    index->options.directory = strdup(options->directory);

    int status = RMQ_OK;
    if (!index->options.directory)
        status = rmq_fail(err, RMQ_NO_MEMORY, -1, "no memory for a folder name");

    if (status == RMQ_OK) {
        status = vfs->list(vfs, index->options.directory, visit, &loading, err);
        if (status == RMQ_NOT_FOUND)
            status = RMQ_OK;
    }
    if (status == RMQ_OK)
        status = validate_empty(index, &loading, err);
    if (status == RMQ_OK && index->count) {
        qsort(index->files, index->count, sizeof *index->files, by_first_record);
        status = choose_newest(index, err);
    }

    if (status != RMQ_OK)
        rmq_index_close(index);
    return status;
}

void rmq_index_close(struct rmq_index *index)
{
    assert(index->files || index->count == 0);

    for (size_t i = 0; i < index->count; ++i)
        rmq_mapped_file_unpin(index->files[i]);

    free(index->files);
    free((char *)index->options.directory);
    index->files = NULL;
    index->newest = NULL;
    index->options.directory = NULL;
    index->count = index->capacity = 0;

    pthread_mutex_destroy(&index->lock);
}

/* ---- after a crash ---- */

/* A header without entries, or with others than the file has, may not have reached the device. */
static bool is_doubtful(const struct rmq_index *index, struct rmq_mapped_file *file)
{
    assert(rmq_mapped_file_base(file));

    int32_t next = rmq_index_next_entry(index, file);
    if (next <= 1 || next > index->options.entry_count)
        return true;

    const uint8_t *base = rmq_mapped_file_base(file);
    return rmq_get_i64(base + rmq_index_entry_at(index, 1) + 4) !=
               rmq_index_header(file, RMQ_INDEX_BEGIN_OFFSET) ||
           rmq_get_i64(base + rmq_index_entry_at(index, next - 1) + 4) !=
               rmq_index_header(file, RMQ_INDEX_END_OFFSET);
}

static size_t count_safe(const struct rmq_index *index, int64_t safe_timestamp,
                         int64_t safe_physical_offset)
{
    size_t safe = 0;
    while (safe < index->count && !is_doubtful(index, index->files[safe]) &&
           rmq_index_header(index->files[safe], RMQ_INDEX_END_OFFSET) < safe_physical_offset &&
           rmq_index_header(index->files[safe], RMQ_INDEX_END_TIMESTAMP) <= safe_timestamp)
        ++safe;
    assert(safe <= index->count);
    return safe;
}

/* The first record that has to be entered again when files from number safe on are removed. */
static int64_t begin_behind(const struct rmq_index *index, size_t safe)
{
    assert(safe <= index->count);

    int64_t from = INT64_MAX;
    for (size_t i = safe; i < index->count; ++i) {
        struct rmq_mapped_file *file = index->files[i];
        int64_t begin = rmq_index_header(file, RMQ_INDEX_BEGIN_OFFSET);
        if (is_doubtful(index, file))
            begin = safe > 0 ? rmq_index_header(index->files[safe - 1], RMQ_INDEX_END_OFFSET) : 0;
        from = begin < from ? begin : from;
    }
    return from;
}

int64_t rmq_index_unsafe_begin(struct rmq_index *index, int64_t safe_timestamp,
                               int64_t safe_physical_offset)
{
    return begin_behind(index, count_safe(index, safe_timestamp, safe_physical_offset));
}

int rmq_index_discard_unsafe(struct rmq_index *index, int64_t safe_timestamp,
                             int64_t safe_physical_offset, int64_t *rebuild_from,
                             struct rmq_error *err)
{
    assert(!index->options.read_only);
    assert(rebuild_from);

    size_t safe = count_safe(index, safe_timestamp, safe_physical_offset);
    *rebuild_from = begin_behind(index, safe);
    /* Files after the first unsafe one are removed with it, though a clock set back may make them
     * look older: otherwise a record before the last one of the index would count as entered. */
    for (size_t i = index->count; i-- > safe;) {
        if (index->files[i] == index->newest)
            index->newest = NULL;
        int status = rmq_index_drop(index, i, err);
        if (status != RMQ_OK)
            return status;
    }
    return RMQ_OK;
}
