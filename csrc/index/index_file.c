#include "index/index_file.h"

#include <assert.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "base/bytes.h"
#include "base/hash.h"

#define ENTRY_WINDOW (1LL << 20)
#define NAME_TRIES 1000

_Static_assert(RMQ_INDEX_ENTRY_SIZE == 4 + 8 + 4 + 4, "entry layout");
_Static_assert(RMQ_INDEX_NEXT_ENTRY + 4 == RMQ_INDEX_HEADER_SIZE, "header layout");

static void set_header(uint8_t *base, enum rmq_index_field field, int64_t value)
{
    assert(base && field % sizeof(uint64_t) == 0);

    void *at = base + field;
    __atomic_store_n((uint64_t *)at, RMQ_BIG64((uint64_t)value), __ATOMIC_RELAXED);
}

/* ---- the array of files ---- */

int rmq_index_add(struct rmq_index *index, struct rmq_mapped_file *file, struct rmq_error *err)
{
    assert(file && index->count <= index->capacity);

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

int rmq_index_drop(struct rmq_index *index, size_t at, struct rmq_error *err)
{
    assert(!index->options.read_only && at < index->count);

    struct rmq_vfs *vfs = index->options.vfs;
    struct rmq_mapped_file *file = index->files[at];
    int status = rmq_mapped_file_unlink(file, err);
    if (status == RMQ_OK)
        status = vfs->sync_directory(vfs, index->options.directory, err);
    if (status != RMQ_OK)
        return status;

    pthread_mutex_lock(&index->lock);
    memmove(index->files + at, index->files + at + 1,
            (index->count - at - 1) * sizeof *index->files);
    --index->count;
    pthread_mutex_unlock(&index->lock);

    rmq_mapped_file_unpin(file);
    return RMQ_OK;
}

/* Pins the last file of the array; NULL when there is none. */
static struct rmq_mapped_file *pin_last(struct rmq_index *index)
{
    pthread_mutex_lock(&index->lock);
    assert(index->count <= index->capacity);
    struct rmq_mapped_file *file = index->count ? index->files[index->count - 1] : NULL;
    if (file)
        rmq_mapped_file_pin(file);
    pthread_mutex_unlock(&index->lock);
    return file;
}

/* Syncs the whole file: entries, slots and header are far apart. */
static int sync_file(struct rmq_mapped_file *file, struct rmq_error *err)
{
    assert(rmq_mapped_file_base(file));

    int64_t wrote = atomic_load_explicit(&file->wrote, memory_order_acquire);
    int status = file->vfs->sync_map(file->vfs, rmq_mapped_file_base(file), file->size, err);
    if (status == RMQ_OK)
        atomic_store_explicit(&file->flushed, wrote, memory_order_release);
    return status;
}

/* ---- fields of the newest file ---- */

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
    assert(out);

    time_t seconds = (time_t)(now_ms / 1000);
    struct tm local;
    localtime_r(&seconds, &local);

    /* A year always has four digits; the modulo shows the compiler that the text fits. */
    snprintf(out, RMQ_INDEX_NAME_SIZE, "%04u%02u%02u%02u%02u%02u%03u",
             (unsigned)(local.tm_year + 1900) % 10000u, (unsigned)(local.tm_mon + 1) % 100u,
             (unsigned)local.tm_mday % 100u, (unsigned)local.tm_hour % 100u,
             (unsigned)local.tm_min % 100u, (unsigned)local.tm_sec % 100u,
             (unsigned)(now_ms % 1000) % 1000u);
}

/* Adds one to a name as a number: RocketMQ only requires digits and order. */
static void next_name(char name[RMQ_INDEX_NAME_SIZE])
{
    assert(name);

    for (int i = RMQ_INDEX_NAME_SIZE - 2; i >= 0; --i) {
        if (name[i] != '9') {
            ++name[i];
            return;
        }
        name[i] = '0';
    }
}

/* A name that no file has, after that of the last file, so that names keep the order of files. */
static int choose_path(struct rmq_index *index, const struct rmq_mapped_file *last, int64_t now_ms,
                       char path[PATH_MAX], struct rmq_error *err)
{
    assert(path);

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
        int status = rmq_path_join(path, PATH_MAX, index->options.directory, name, err);
        if (status == RMQ_OK)
            status = vfs->stat(vfs, path, &info, err);
        if (status != RMQ_OK)
            return status == RMQ_NOT_FOUND ? RMQ_OK : status;
        next_name(name);
    }
    return rmq_fail(err, RMQ_CORRUPT, -1, "%s and %d names before it are taken", path, NAME_TRIES);
}

/* A file that could neither be finished nor removed would be before the next one, and look like
 * damage. */
int rmq_index_remove_unfinished(struct rmq_index *index, struct rmq_error *err)
{
    assert(!index->options.read_only);

    char path[PATH_MAX];
    struct rmq_vfs *vfs = index->options.vfs;
    if (!*index->unfinished)
        return RMQ_OK;

    int status = rmq_path_join(path, sizeof path, index->options.directory, index->unfinished, err);
    if (status == RMQ_OK)
        status = vfs->unlink(vfs, path, err);
    if (status == RMQ_OK)
        status = vfs->sync_directory(vfs, index->options.directory, err);
    if (status != RMQ_OK && status != RMQ_NOT_FOUND)
        return status;

    *index->unfinished = '\0';
    return RMQ_OK;
}

/* Adds the file that follows the last one and makes it the writer's. */
static int make_newest(struct rmq_index *index, int64_t now_ms, struct rmq_error *err)
{
    assert(!index->options.read_only && !index->newest);

    char path[PATH_MAX];
    struct rmq_vfs *vfs = index->options.vfs;
    struct rmq_mapped_file_options options = {
        .vfs = vfs, .start = 0, .size = rmq_index_file_size(index), .writable = true};
    struct rmq_mapped_file *file = NULL, *last = pin_last(index);

    int status = vfs->make_directory(vfs, index->options.directory, err);

    if (status == RMQ_OK)
        status = rmq_index_remove_unfinished(index, err);
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
            status = rmq_index_add(index, file, err);
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
    assert(rolled_timestamp);

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
    assert(!index->options.read_only);

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
    assert(seconds >= 0);
    return seconds > INT32_MAX ? INT32_MAX : (int32_t)seconds;
}

/* Returns a file with room for one more entry; rolls when the newest is full. */
static int make_room(struct rmq_index *index, int64_t now_ms, int64_t *rolled_timestamp,
                     struct rmq_error *err)
{
    assert(index->options.entry_count >= 2);

    struct rmq_mapped_file *newest = index->newest;
    int status = RMQ_OK;

    if (newest && rmq_index_next_entry(index, newest) >= index->options.entry_count)
        status = rmq_index_roll(index, rolled_timestamp, err);
    if (status == RMQ_OK && !index->newest)
        status = make_newest(index, now_ms, err);
    assert(status != RMQ_OK || index->newest);
    return status;
}

static int put_hash(struct rmq_index *index, const struct rmq_index_request *request, int32_t hash,
                    int64_t now_ms, int64_t *rolled_timestamp, struct rmq_error *err)
{
    assert(hash >= 0);

    int status = make_room(index, now_ms, rolled_timestamp, err);
    if (status != RMQ_OK)
        return status;

    struct rmq_mapped_file *file = index->newest;
    int32_t next = rmq_index_next_entry(index, file);
    assert(next >= 1 && next < index->options.entry_count);
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

    if (!rmq_index_has_keys(index, request))
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
        assert(step > 0 && step <= left);
        keys += step;
        left -= step;
    }

    if (status == RMQ_OK && index->options.tag_keys && request->tags.data &&
        request->tags.size > 0) {
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
        int status = rmq_index_drop(index, 0, err);
        if (status != RMQ_OK)
            return status;
    }
}
