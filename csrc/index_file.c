#include "index_file.h"

#include <assert.h>
#include <inttypes.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "bytes.h"
#include "hash.h"

#define ENTRY_WINDOW (1LL << 20)
#define NAME_TRIES 1000

_Static_assert(RMQ_INDEX_ENTRY_SIZE == 4 + 8 + 4 + 4, "entry layout");
_Static_assert(RMQ_INDEX_NEXT_ENTRY + 4 == RMQ_INDEX_HEADER_SIZE, "header layout");

static void set_header(uint8_t *base, enum rmq_index_field field, int64_t value)
{
    void *at = base + field;
    __atomic_store_n((uint64_t *)at, RMQ_BIG64((uint64_t)value), __ATOMIC_RELAXED);
}

static int64_t index_file_size(const struct rmq_index *index)
{
    return rmq_index_entry_at(index, index->options.entry_count);
}

/* ---- the array of files ---- */

static int insert_last(struct rmq_index *index, struct rmq_mapped_file *file, struct rmq_error *err)
{
    int status = RMQ_OK;
    pthread_mutex_lock(&index->lock);
    if (index->count == index->capacity) {
        size_t capacity = index->capacity ? index->capacity * 2 : 8;
        struct rmq_mapped_file **files = realloc(index->files, capacity * sizeof *files);
        if (files) {
            index->files = files;
            index->capacity = capacity;
        } else {
            status = rmq_fail(err, RMQ_NO_MEMORY, -1, "no memory for %zu index files", capacity);
        }
    }
    if (status == RMQ_OK)
        index->files[index->count++] = file;
    pthread_mutex_unlock(&index->lock);
    return status;
}

static void remove_at(struct rmq_index *index, size_t at)
{
    pthread_mutex_lock(&index->lock);
    struct rmq_mapped_file *file = index->files[at];
    memmove(index->files + at, index->files + at + 1,
            (index->count - at - 1) * sizeof *index->files);
    --index->count;
    pthread_mutex_unlock(&index->lock);
    rmq_mapped_file_unpin(file);
}

/* Pins the last file of the array; NULL when there is none. */
static struct rmq_mapped_file *pin_last(struct rmq_index *index)
{
    pthread_mutex_lock(&index->lock);
    struct rmq_mapped_file *file = index->count ? index->files[index->count - 1] : NULL;
    if (file)
        rmq_mapped_file_pin(file);
    pthread_mutex_unlock(&index->lock);
    return file;
}

static int unlink_synced(struct rmq_index *index, struct rmq_mapped_file *file,
                         struct rmq_error *err)
{
    struct rmq_vfs *vfs = index->options.vfs;
    int status = rmq_mapped_file_unlink(file, err);
    return status == RMQ_OK ? vfs->sync_directory(vfs, index->options.directory, err) : status;
}

/* Syncs all of a file: entries, slots and header lie far apart. */
static int sync_file(struct rmq_mapped_file *file, struct rmq_error *err)
{
    int64_t wrote = atomic_load_explicit(&file->wrote, memory_order_acquire);
    int status = file->vfs->sync_map(file->vfs, rmq_mapped_file_base(file), file->size, err);
    if (status == RMQ_OK)
        atomic_store_explicit(&file->flushed, wrote, memory_order_release);
    return status;
}

/* ---- loading ---- */

struct loading {
    struct rmq_index *index;
    size_t *skipped;
    struct rmq_error *err;
    char empty_name[RMQ_INDEX_NAME_SIZE + 8];  /* newest of the zero-length files */
    char newest_name[RMQ_INDEX_NAME_SIZE + 8]; /* newest of the others */
};

static bool is_index_name(const char *name)
{
    size_t size = strspn(name, "0123456789");
    return size == RMQ_INDEX_NAME_SIZE - 1 && name[size] == '\0';
}

static int path_of(const struct rmq_index *index, const char *name, char path[PATH_MAX],
                   struct rmq_error *err)
{
    return rmq_path_join(path, PATH_MAX, index->options.directory, name, err);
}

static int visit(void *context, const char *name, bool is_directory)
{
    struct loading *loading = context;
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
        return read_only ? RMQ_OK
                         : rmq_fail(err, RMQ_CORRUPT, -1, "%s/%s is no index file; move it away",
                                    index->options.directory, name);
    }
    int status = path_of(index, name, path, err);
    if (status == RMQ_OK)
        status = vfs->stat(vfs, path, &info, err);
    if (status != RMQ_OK)
        return status == RMQ_NOT_FOUND ? RMQ_OK : status;
    char *newest = info.size ? loading->newest_name : loading->empty_name;
    if (strcmp(name, newest) > 0)
        memcpy(newest, name, RMQ_INDEX_NAME_SIZE);
    if (info.size == 0)
        return RMQ_OK;
    if (info.size != index_file_size(index)) {
        ++*loading->skipped;
        return read_only
                   ? RMQ_OK
                   : rmq_fail(err, RMQ_CORRUPT, -1,
                              "%s has %" PRId64 " bytes, expected %" PRId64
                              "; open the store with the slot and entry counts it was written with",
                              path, info.size, index_file_size(index));
    }
    struct rmq_mapped_file_options options = {
        .vfs = vfs, .start = 0, .size = info.size, .writable = !read_only};
    struct rmq_mapped_file *file = NULL;
    status = rmq_mapped_file_load(path, &options, &file, err);
    if (status != RMQ_OK)
        return status;
    status = rmq_mapped_file_map(file, err);
    if (status == RMQ_OK)
        status = insert_last(index, file, err);
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
    /* Names follow the clock of the wall, which may have been set back. */
    if (begin_a != begin_b)
        return begin_a < begin_b ? -1 : 1;
    return strcmp(a->path, b->path);
}

/* Reserves blocks for the holes in [0, upto) of a file that may be sparse. */
static int reserve_holes(struct rmq_mapped_file *file, int64_t upto, struct rmq_error *err)
{
    const int64_t page = 4096;
    struct rmq_vfs *vfs = file->vfs;
    int fd = -1;
    int status = vfs->open(vfs, file->path, RMQ_OPEN_WRITE, &fd, err);
    if (status != RMQ_OK)
        return status;
    for (int64_t at = 0; at < upto && status == RMQ_OK;) {
        int64_t data = at;
        status = vfs->next_data(vfs, fd, at, &data, err);
        if (data > upto)
            data = upto;
        if (status == RMQ_OK && data > at)
            status = vfs->allocate(vfs, fd, at, data - at, err);
        at = data - data % page + page;
    }
    (void)vfs->close(vfs, fd, NULL);
    return status;
}

/* Makes the last file of the array the writer's, unless it is full. */
static int choose_newest(struct rmq_index *index, struct rmq_error *err)
{
    if (index->options.read_only || index->count == 0)
        return RMQ_OK;
    struct rmq_mapped_file *last = index->files[index->count - 1];
    int32_t next = rmq_index_next_entry(index, last);
    if (next >= index->options.entry_count)
        return RMQ_OK;
    int64_t end = rmq_index_entry_at(index, next);
    /* Every page of entries below the end was stored to already; slots are hit at random. */
    int status = reserve_holes(last, rmq_index_entry_at(index, 0), err);
    if (status == RMQ_OK) {
        rmq_mapped_file_set_end(last, end);
        index->newest = last;
    }
    return status;
}

/* A zero-length newest file was never written. One with others behind it is damage. */
static int judge_empty(struct rmq_index *index, const struct loading *loading,
                       struct rmq_error *err)
{
    char path[PATH_MAX];
    struct rmq_vfs *vfs = index->options.vfs;
    if (!*loading->empty_name || index->options.read_only)
        return RMQ_OK;
    int status = path_of(index, loading->empty_name, path, err);
    if (status != RMQ_OK)
        return status;
    if (strcmp(loading->empty_name, loading->newest_name) < 0)
        return rmq_fail(err, RMQ_CORRUPT, -1, "%s is empty, and files follow it; remove it", path);
    status = vfs->unlink(vfs, path, err);
    return status == RMQ_OK ? vfs->sync_directory(vfs, index->options.directory, err) : status;
}

int rmq_index_open(struct rmq_index *index, const struct rmq_index_options *options,
                   size_t *skipped, struct rmq_error *err)
{
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
        status = judge_empty(index, &loading, err);
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

/* A header that tells of no entries, or of others than are there, may itself be what did not reach
 * the device. */
static bool is_doubtful(const struct rmq_index *index, struct rmq_mapped_file *file)
{
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
    return safe;
}

/* What has to be entered again when files number safe and up are gone. */
static int64_t begin_behind(const struct rmq_index *index, size_t safe)
{
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
    size_t safe = count_safe(index, safe_timestamp, safe_physical_offset);
    *rebuild_from = begin_behind(index, safe);
    /* Those behind the first unsafe one go with it, though a clock set back may make them look
     * older: a record that lies before the last one of the index is taken for entered. */
    for (size_t i = index->count; i-- > safe;) {
        struct rmq_mapped_file *file = index->files[i];
        if (file == index->newest)
            index->newest = NULL;
        int status = unlink_synced(index, file, err);
        if (status != RMQ_OK)
            return status;
        remove_at(index, i);
    }
    return RMQ_OK;
}

/* ---- what the newest file says ---- */

static int64_t newest_header(struct rmq_index *index, enum rmq_index_field at, int64_t if_none)
{
    struct rmq_mapped_file *file = pin_last(index);
    if (!file)
        return if_none;
    int64_t value = rmq_index_header(file, at);
    bool has_entries = rmq_index_next_entry(index, file) > 1;
    bool has_inherited = rmq_index_header(file, RMQ_INDEX_END_TIMESTAMP) != 0;
    if (!has_entries && !has_inherited)
        value = if_none;
    rmq_mapped_file_unpin(file);
    return value;
}

int64_t rmq_index_last_physical_offset(struct rmq_index *index)
{
    return newest_header(index, RMQ_INDEX_END_OFFSET, -1);
}

int64_t rmq_index_newest_begin(struct rmq_index *index)
{
    return newest_header(index, RMQ_INDEX_BEGIN_OFFSET, INT64_MAX);
}

/* ---- making files ---- */

void rmq_index_file_name(int64_t now_ms, char out[18])
{
    time_t seconds = (time_t)(now_ms / 1000);
    struct tm local;
    localtime_r(&seconds, &local);
    /* Years of other than four digits do not occur; the modulo shows the compiler that the text
     * fits. */
    snprintf(out, RMQ_INDEX_NAME_SIZE, "%04u%02u%02u%02u%02u%02u%03u",
             (unsigned)(local.tm_year + 1900) % 10000u, (unsigned)(local.tm_mon + 1) % 100u,
             (unsigned)local.tm_mday % 100u, (unsigned)local.tm_hour % 100u,
             (unsigned)local.tm_min % 100u, (unsigned)local.tm_sec % 100u,
             (unsigned)(now_ms % 1000) % 1000u);
}

/* Adds one to a name as a number: digits are all RocketMQ asks of it beyond its order. */
static void next_name(char name[RMQ_INDEX_NAME_SIZE])
{
    for (int i = RMQ_INDEX_NAME_SIZE - 2; i >= 0; --i) {
        if (name[i] != '9') {
            ++name[i];
            return;
        }
        name[i] = '0';
    }
}

/* A name no file has, behind that of the last file, so that names tell the order of files. */
static int choose_path(struct rmq_index *index, const struct rmq_mapped_file *last, int64_t now_ms,
                       char path[PATH_MAX], struct rmq_error *err)
{
    struct rmq_vfs *vfs = index->options.vfs;
    char name[RMQ_INDEX_NAME_SIZE];
    rmq_index_file_name(now_ms, name);
    if (last) {
        const char *last_name = strrchr(last->path, '/') + 1;
        if (strcmp(name, last_name) <= 0) {
            memcpy(name, last_name, RMQ_INDEX_NAME_SIZE);
            next_name(name);
        }
    }
    for (int i = 0; i < NAME_TRIES; ++i) {
        struct rmq_file_info info;
        int status = path_of(index, name, path, err);
        if (status == RMQ_OK)
            status = vfs->stat(vfs, path, &info, err);
        if (status != RMQ_OK)
            return status == RMQ_NOT_FOUND ? RMQ_OK : status;
        next_name(name);
    }
    return rmq_fail(err, RMQ_CORRUPT, -1, "%s and %d names before it are taken", path, NAME_TRIES);
}

/* A file that could neither be finished nor taken back would lie before the next one, where it
 * looks like damage. */
static int remove_unfinished(struct rmq_index *index, struct rmq_error *err)
{
    char path[PATH_MAX];
    if (!*index->unfinished)
        return RMQ_OK;
    int status = path_of(index, index->unfinished, path, err);
    if (status == RMQ_OK)
        status = index->options.vfs->unlink(index->options.vfs, path, err);
    if (status != RMQ_OK && status != RMQ_NOT_FOUND)
        return status;
    *index->unfinished = '\0';
    return RMQ_OK;
}

/* Adds the file that follows the last one and makes it the writer's. */
static int make_newest(struct rmq_index *index, int64_t now_ms, struct rmq_error *err)
{
    char path[PATH_MAX];
    struct rmq_vfs *vfs = index->options.vfs;
    struct rmq_mapped_file_options options = {
        .vfs = vfs, .start = 0, .size = index_file_size(index), .writable = true};
    struct rmq_mapped_file *file = NULL, *last = pin_last(index);
    int status = vfs->make_directory(vfs, index->options.directory, err);
    if (status == RMQ_OK)
        status = remove_unfinished(index, err);
    if (status == RMQ_OK)
        status = choose_path(index, last, now_ms, path, err);
    if (status == RMQ_OK) {
        memcpy(index->unfinished, strrchr(path, '/') + 1, RMQ_INDEX_NAME_SIZE);
        status = rmq_mapped_file_create(path, &options, &file, err);
    }
    if (status == RMQ_OK) {
        status = rmq_mapped_file_reserve(file, rmq_index_entry_at(index, 1), ENTRY_WINDOW, err);
        if (status == RMQ_OK)
            rmq_index_store_i32(rmq_mapped_file_base(file) + RMQ_INDEX_NEXT_ENTRY, 1);
        if (status == RMQ_OK && last) {
            int64_t offset = rmq_index_header(last, RMQ_INDEX_END_OFFSET);
            int64_t timestamp = rmq_index_header(last, RMQ_INDEX_END_TIMESTAMP);
            uint8_t *base = rmq_mapped_file_base(file);
            set_header(base, RMQ_INDEX_BEGIN_OFFSET, offset > 0 ? offset : 0);
            set_header(base, RMQ_INDEX_END_OFFSET, offset > 0 ? offset : 0);
            set_header(base, RMQ_INDEX_BEGIN_TIMESTAMP, timestamp > 0 ? timestamp : 0);
            set_header(base, RMQ_INDEX_END_TIMESTAMP, timestamp > 0 ? timestamp : 0);
        }
        if (status == RMQ_OK)
            status = vfs->sync_directory(vfs, index->options.directory, err);
        if (status == RMQ_OK)
            status = insert_last(index, file, err);
        if (status == RMQ_OK) {
            index->newest = file;
            *index->unfinished = '\0';
        } else {
            (void)rmq_mapped_file_unlink(file, NULL);
            rmq_mapped_file_unpin(file);
        }
    }
    if (last)
        rmq_mapped_file_unpin(last);
    return status;
}

int rmq_index_roll(struct rmq_index *index, int64_t *rolled_timestamp, struct rmq_error *err)
{
    struct rmq_mapped_file *newest = index->newest;
    if (!newest || rmq_index_next_entry(index, newest) <= 1)
        return RMQ_OK;
    int status = sync_file(newest, err);
    if (status == RMQ_OK) {
        *rolled_timestamp = rmq_index_header(newest, RMQ_INDEX_END_TIMESTAMP);
        index->newest = NULL;
    }
    return status;
}

int rmq_index_flush(struct rmq_index *index, struct rmq_error *err)
{
    struct rmq_mapped_file *last = pin_last(index);
    int status = RMQ_OK;
    if (!last)
        return RMQ_OK;
    if (atomic_load_explicit(&last->flushed, memory_order_acquire) <
        atomic_load_explicit(&last->wrote, memory_order_acquire))
        status = sync_file(last, err);
    rmq_mapped_file_unpin(last);
    return status;
}

/* ---- putting ---- */

static int32_t seconds_since(int64_t begin, int64_t timestamp)
{
    if (begin <= 0 || timestamp <= begin)
        return 0;
    int64_t seconds = (timestamp - begin) / 1000;
    return seconds > INT32_MAX ? INT32_MAX : (int32_t)seconds;
}

/* A file that takes one more entry, rolling when the newest is full. */
static int make_room(struct rmq_index *index, int64_t now_ms, int64_t *rolled_timestamp,
                     struct rmq_error *err)
{
    struct rmq_mapped_file *newest = index->newest;
    int status = RMQ_OK;
    if (newest && rmq_index_next_entry(index, newest) >= index->options.entry_count)
        status = rmq_index_roll(index, rolled_timestamp, err);
    if (status == RMQ_OK && !index->newest)
        status = make_newest(index, now_ms, err);
    return status;
}

static int put_hash(struct rmq_index *index, const struct rmq_index_request *request, int32_t hash,
                    int64_t now_ms, int64_t *rolled_timestamp, struct rmq_error *err)
{
    int status = make_room(index, now_ms, rolled_timestamp, err);
    if (status != RMQ_OK)
        return status;
    struct rmq_mapped_file *file = index->newest;
    int32_t next = rmq_index_next_entry(index, file);
    int64_t at = rmq_index_entry_at(index, next);
    if (at > atomic_load_explicit(&file->reserved, memory_order_relaxed) - RMQ_INDEX_ENTRY_SIZE) {
        status = rmq_mapped_file_reserve(file, at + RMQ_INDEX_ENTRY_SIZE, ENTRY_WINDOW, err);
        if (status != RMQ_OK)
            return status;
    }

    uint8_t *base = rmq_mapped_file_base(file), *entry = base + at;
    uint8_t *slot = base + rmq_index_slot_at(hash % index->options.slot_count);
    int32_t previous = rmq_index_load_i32(slot);
    if (previous < 0 || previous > next)
        previous = 0;
    rmq_put_i32(entry, hash);
    rmq_put_i64(entry + 4, request->physical_offset);
    int64_t begin = rmq_index_header(file, RMQ_INDEX_BEGIN_TIMESTAMP);
    rmq_put_i32(entry + 12, seconds_since(begin, request->store_timestamp));
    rmq_put_i32(entry + 16, previous);
    rmq_index_store_i32(slot, next);

    if (next <= 1) {
        set_header(base, RMQ_INDEX_BEGIN_OFFSET, request->physical_offset);
        set_header(base, RMQ_INDEX_BEGIN_TIMESTAMP, request->store_timestamp);
    }
    if (previous == 0)
        rmq_put_i32(base + RMQ_INDEX_SLOTS_USED, rmq_get_i32(base + RMQ_INDEX_SLOTS_USED) + 1);
    set_header(base, RMQ_INDEX_END_OFFSET, request->physical_offset);
    set_header(base, RMQ_INDEX_END_TIMESTAMP, request->store_timestamp);
    rmq_index_store_i32(base + RMQ_INDEX_NEXT_ENTRY, next + 1);
    atomic_store_explicit(&file->wrote, at + RMQ_INDEX_ENTRY_SIZE, memory_order_release);
    return RMQ_OK;
}

int rmq_index_put(struct rmq_index *index, const struct rmq_index_request *request, int64_t now_ms,
                  int64_t *rolled_timestamp, struct rmq_error *err)
{
    assert(!index->options.read_only);
    int status = make_room(index, now_ms, rolled_timestamp, err);
    if (status != RMQ_OK)
        return status;
    if (request->physical_offset < rmq_index_header(index->newest, RMQ_INDEX_END_OFFSET))
        return RMQ_OK;

    bool has_tag = index->options.tag_keys && request->tags.data && request->tags.size > 0;
    if (!request->unique_key.data && !request->keys.data && !has_tag)
        return RMQ_OK;
    int32_t prefix =
        rmq_java_hash(rmq_java_hash(0, request->topic.data, request->topic.size), "#", 1);
    if (request->unique_key.data) {
        int32_t hash = rmq_java_hash(prefix, request->unique_key.data, request->unique_key.size);
        status = put_hash(index, request, rmq_index_hash(hash), now_ms, rolled_timestamp, err);
    }
    const char *keys = request->keys.data;
    size_t left = keys ? request->keys.size : 0;
    while (status == RMQ_OK && left > 0) {
        const char *space = memchr(keys, ' ', left);
        size_t size = space ? (size_t)(space - keys) : left;
        if (size > 0) {
            int32_t hash = rmq_java_hash(prefix, keys, size);
            status = put_hash(index, request, rmq_index_hash(hash), now_ms, rolled_timestamp, err);
        }
        size_t step = space ? size + 1 : size;
        keys += step;
        left -= step;
    }
    if (status == RMQ_OK && has_tag) {
        int32_t hash =
            rmq_java_hash(rmq_java_hash(prefix, "T#", 2), request->tags.data, request->tags.size);
        status = put_hash(index, request, rmq_index_hash(hash), now_ms, rolled_timestamp, err);
    }
    return status;
}

/* ---- expiry ---- */

int rmq_index_expire(struct rmq_index *index, int64_t log_start, struct rmq_error *err)
{
    assert(!index->options.read_only);
    for (;;) {
        struct rmq_mapped_file *oldest = NULL;
        pthread_mutex_lock(&index->lock);
        if (index->count > 1)
            oldest = index->files[0];
        pthread_mutex_unlock(&index->lock);
        if (!oldest || rmq_index_header(oldest, RMQ_INDEX_END_OFFSET) >= log_start)
            return RMQ_OK;
        int status = unlink_synced(index, oldest, err);
        if (status != RMQ_OK)
            return status;
        remove_at(index, 0);
    }
}
