#include "recording_vfs.h"

#include <assert.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#define BLOCK 512

/* A file by what it is, not by its name. */
struct file {
    uint64_t device, inode;
    bool is_gone;    /* its inode has another file */
    int64_t size;    /* as far as effects tell */
    uint8_t *shadow; /* what is known of the mapped bytes; NULL without a mapping */
    int64_t shadow_size;
    int32_t mappings;
};

struct mapping {
    uint8_t *base;
    int64_t size;
    int32_t file;
};

/* The lock covers all but the first two members, and every call of the inner door that has an
 * effect, so that the order of the effects is the order in which they happened. */
struct recorder {
    struct rmq_vfs vfs; /* first, so that the door is the object */
    struct rmq_vfs *inner;
    pthread_mutex_t lock;
    struct rmq_effect *effects;
    size_t count, capacity;
    struct file *files;
    size_t file_count, file_capacity;
    struct mapping *mappings;
    size_t mapping_count, mapping_capacity;
    int32_t *descriptors; /* by descriptor: number of the file plus one, 0 when it is not open */
    size_t descriptor_count;
};

static struct recorder *recorder_of(struct rmq_vfs *vfs)
{
    return (struct recorder *)vfs;
}

static struct rmq_vfs *inner_of(struct rmq_vfs *vfs)
{
    return recorder_of(vfs)->inner;
}

/* ---- memory ---- */

/* A recording with a hole would prove nothing, and only tests make one. */
static void *checked(void *memory)
{
    if (!memory)
        abort();
    return memory;
}

static void *grown(void *items, size_t count, size_t *capacity, size_t item_size)
{
    if (count < *capacity)
        return items;
    *capacity = *capacity ? *capacity * 2 : 64;
    return checked(realloc(items, *capacity * item_size));
}

static char *copy_text(const char *text)
{
    return text ? checked(strdup(text)) : NULL;
}

/* ---- effects; the caller holds the lock ---- */

static struct rmq_effect *append(struct recorder *recorder, enum rmq_effect_kind kind, int32_t file)
{
    recorder->effects =
        grown(recorder->effects, recorder->count, &recorder->capacity, sizeof *recorder->effects);
    struct rmq_effect *effect = &recorder->effects[recorder->count++];
    *effect = (struct rmq_effect){.kind = (int32_t)kind, .file = file};
    return effect;
}

static void append_range(struct recorder *recorder, enum rmq_effect_kind kind, int32_t file,
                         int64_t at, int64_t size)
{
    struct rmq_effect *effect = append(recorder, kind, file);
    effect->at = at;
    effect->size = size;
}

static void append_path(struct recorder *recorder, enum rmq_effect_kind kind, int32_t file,
                        const char *path)
{
    append(recorder, kind, file)->path = copy_text(path);
}

static void append_store(struct recorder *recorder, int32_t file, int64_t at, const void *data,
                         size_t size)
{
    struct rmq_effect *effect = append(recorder, RMQ_EFFECT_STORE, file);
    effect->at = at;
    effect->size = (int64_t)size;
    effect->data = checked(malloc(size ? size : 1));
    if (size > 0)
        memcpy(effect->data, data, size);
}

static int64_t minimum(int64_t a, int64_t b)
{
    return a < b ? a : b;
}

/* Records what differs between a block as it is mapped and as it was known. */
static void note_block(struct recorder *recorder, int32_t number, const uint8_t *mapped, int64_t at,
                       int64_t size)
{
    uint8_t seen[BLOCK];
    uint8_t *known = recorder->files[number].shadow + at;
    if (memcmp(known, mapped + at, (size_t)size) == 0)
        return;
    /* Other threads may be storing: what is recorded is what is known from here on. */
    memcpy(seen, mapped + at, (size_t)size);
    int64_t first = 0, stop = size;
    while (first < stop && seen[first] == known[first])
        ++first;
    while (stop > first && seen[stop - 1] == known[stop - 1])
        --stop;
    if (first == stop)
        return;
    memcpy(known + first, seen + first, (size_t)(stop - first));
    append_store(recorder, number, at + first, seen + first, (size_t)(stop - first));
}

static void note_mapped_stores(struct recorder *recorder)
{
    for (size_t i = 0; i < recorder->mapping_count; ++i) {
        const struct mapping *mapping = &recorder->mappings[i];
        const struct file *file = &recorder->files[mapping->file];
        /* Pages behind the end of the file must not be touched. */
        int64_t size = minimum(minimum(mapping->size, file->shadow_size), file->size);
        for (int64_t at = 0; at < size; at += BLOCK)
            note_block(recorder, mapping->file, mapping->base, at, minimum(BLOCK, size - at));
    }
}

static struct recorder *begin(struct rmq_vfs *vfs)
{
    struct recorder *recorder = recorder_of(vfs);
    pthread_mutex_lock(&recorder->lock);
    note_mapped_stores(recorder);
    return recorder;
}

static int end(struct recorder *recorder, int status)
{
    pthread_mutex_unlock(&recorder->lock);
    return status;
}

/* ---- files; the caller holds the lock ---- */

static int32_t file_of(const struct recorder *recorder, int fd)
{
    assert(fd >= 0 && (size_t)fd < recorder->descriptor_count && recorder->descriptors[fd] > 0);
    return recorder->descriptors[fd] - 1;
}

static void bind_descriptor(struct recorder *recorder, int fd, int32_t number)
{
    if ((size_t)fd >= recorder->descriptor_count) {
        size_t count = (size_t)fd + 64;
        recorder->descriptors =
            checked(realloc(recorder->descriptors, count * sizeof *recorder->descriptors));
        memset(recorder->descriptors + recorder->descriptor_count, 0,
               (count - recorder->descriptor_count) * sizeof *recorder->descriptors);
        recorder->descriptor_count = count;
    }
    recorder->descriptors[fd] = number + 1;
}

/* The number of the file behind the descriptor; a file just made may have the inode of one that is
 * gone. */
static int32_t find_file(struct recorder *recorder, int fd, bool is_new)
{
    struct stat status;
    if (fstat(fd, &status) == -1)
        abort();
    for (size_t i = recorder->file_count; i-- > 0;) {
        struct file *file = &recorder->files[i];
        if (file->is_gone || file->device != (uint64_t)status.st_dev ||
            file->inode != (uint64_t)status.st_ino)
            continue;
        if (!is_new)
            return (int32_t)i;
        file->is_gone = true;
    }
    recorder->files = grown(recorder->files, recorder->file_count, &recorder->file_capacity,
                            sizeof *recorder->files);
    recorder->files[recorder->file_count] = (struct file){.device = (uint64_t)status.st_dev,
                                                          .inode = (uint64_t)status.st_ino,
                                                          .size = status.st_size};
    return (int32_t)recorder->file_count++;
}

/* The shadow follows what was recorded: the mapping shows it too, and is not to be blamed for it.
 */
static void follow(struct recorder *recorder, int32_t number, int64_t at, const uint8_t *data,
                   int64_t size)
{
    struct file *file = &recorder->files[number];
    int64_t stop = minimum(at + size, file->shadow_size);
    if (!file->shadow || at >= stop)
        return;
    if (data)
        memcpy(file->shadow + at, data, (size_t)(stop - at));
    else
        memset(file->shadow + at, 0, (size_t)(stop - at));
}

static size_t find_mapping(const struct recorder *recorder, const uint8_t *base)
{
    for (size_t i = 0; i < recorder->mapping_count; ++i) {
        const struct mapping *mapping = &recorder->mappings[i];
        if (base >= mapping->base && base < mapping->base + mapping->size)
            return i;
    }
    return recorder->mapping_count;
}

/* ---- calls with effects ---- */

static int record_open(struct rmq_vfs *vfs, const char *path, unsigned flags, int *fd,
                       struct rmq_error *err)
{
    struct rmq_file_info info;
    struct recorder *recorder = begin(vfs);
    struct rmq_vfs *inner = recorder->inner;
    bool is_new = (flags & RMQ_OPEN_CREATE) && inner->stat(inner, path, &info, NULL) != RMQ_OK;
    int status = inner->open(inner, path, flags, fd, err);
    if (status == RMQ_OK) {
        int32_t number = find_file(recorder, *fd, is_new);
        bind_descriptor(recorder, *fd, number);
        append_path(recorder, is_new ? RMQ_EFFECT_CREATE : RMQ_EFFECT_OPEN, number, path);
    }
    return end(recorder, status);
}

static void record_close_inherited(struct rmq_vfs *vfs, int fd)
{
    inner_of(vfs)->close_inherited(inner_of(vfs), fd);
}

static int record_close(struct rmq_vfs *vfs, int fd, struct rmq_error *err)
{
    struct recorder *recorder = begin(vfs);
    recorder->descriptors[fd] = 0;
    return end(recorder, recorder->inner->close(recorder->inner, fd, err));
}

static int record_write(struct rmq_vfs *vfs, int fd, const void *data, size_t size, int64_t at,
                        struct rmq_error *err)
{
    struct recorder *recorder = begin(vfs);
    int status = recorder->inner->write(recorder->inner, fd, data, size, at, err);
    if (status == RMQ_OK) {
        int32_t number = file_of(recorder, fd);
        struct file *file = &recorder->files[number];
        append_store(recorder, number, at, data, size);
        follow(recorder, number, at, data, (int64_t)size);
        if (file->size < at + (int64_t)size)
            file->size = at + (int64_t)size;
    }
    return end(recorder, status);
}

static int record_resize(struct rmq_vfs *vfs, int fd, int64_t size, struct rmq_error *err)
{
    struct recorder *recorder = begin(vfs);
    int status = recorder->inner->resize(recorder->inner, fd, size, err);
    if (status == RMQ_OK) {
        int32_t number = file_of(recorder, fd);
        struct file *file = &recorder->files[number];
        if (size < file->size)
            follow(recorder, number, size, NULL, file->size - size);
        file->size = size;
        append_range(recorder, RMQ_EFFECT_RESIZE, number, 0, size);
    }
    return end(recorder, status);
}

static int record_zero(struct rmq_vfs *vfs, int fd, int64_t at, int64_t size, struct rmq_error *err)
{
    struct recorder *recorder = begin(vfs);
    int status = recorder->inner->zero(recorder->inner, fd, at, size, err);
    if (status == RMQ_OK) {
        int32_t number = file_of(recorder, fd);
        follow(recorder, number, at, NULL, size);
        append_range(recorder, RMQ_EFFECT_ZERO, number, at, size);
    }
    return end(recorder, status);
}

static int record_sync(struct rmq_vfs *vfs, int fd, struct rmq_error *err)
{
    (void)err;
    struct recorder *recorder = begin(vfs);
    int32_t number = file_of(recorder, fd);
    append_range(recorder, RMQ_EFFECT_SYNC, number, 0, recorder->files[number].size);
    return end(recorder, RMQ_OK);
}

static void record_start_sync(struct rmq_vfs *vfs, int fd)
{
    inner_of(vfs)->start_sync(inner_of(vfs), fd);
}

static int record_sync_map(struct rmq_vfs *vfs, uint8_t *base, int64_t size, struct rmq_error *err)
{
    (void)err;
    struct recorder *recorder = begin(vfs);
    size_t index = find_mapping(recorder, base);
    assert(index < recorder->mapping_count);
    const struct mapping *mapping = &recorder->mappings[index];
    int64_t page = sysconf(_SC_PAGESIZE);
    int64_t at = base - mapping->base;
    int64_t first = at - at % page;
    int64_t stop = (at + size + page - 1) / page * page;
    append_range(recorder, RMQ_EFFECT_SYNC, mapping->file, first, stop - first);
    return end(recorder, RMQ_OK);
}

static int record_map(struct rmq_vfs *vfs, int fd, int64_t size, bool writable, uint8_t **base,
                      struct rmq_error *err)
{
    struct recorder *recorder = begin(vfs);
    int status = recorder->inner->map(recorder->inner, fd, size, writable, base, err);
    if (status == RMQ_OK && writable) {
        int32_t number = file_of(recorder, fd);
        struct file *file = &recorder->files[number];
        recorder->mappings = grown(recorder->mappings, recorder->mapping_count,
                                   &recorder->mapping_capacity, sizeof *recorder->mappings);
        recorder->mappings[recorder->mapping_count++] =
            (struct mapping){.base = *base, .size = size, .file = number};
        if (file->mappings++ == 0) {
            file->shadow_size = minimum(size, file->size);
            file->shadow = checked(malloc((size_t)file->shadow_size + 1));
            memcpy(file->shadow, *base, (size_t)file->shadow_size);
        }
    }
    return end(recorder, status);
}

static int record_unmap(struct rmq_vfs *vfs, uint8_t *base, int64_t size, struct rmq_error *err)
{
    struct recorder *recorder = begin(vfs);
    size_t index = find_mapping(recorder, base);
    if (index < recorder->mapping_count) {
        struct file *file = &recorder->files[recorder->mappings[index].file];
        recorder->mappings[index] = recorder->mappings[--recorder->mapping_count];
        if (--file->mappings == 0) {
            free(file->shadow);
            file->shadow = NULL;
            file->shadow_size = 0;
        }
    }
    return end(recorder, recorder->inner->unmap(recorder->inner, base, size, err));
}

static int record_rename(struct rmq_vfs *vfs, const char *from, const char *to,
                         struct rmq_error *err)
{
    struct recorder *recorder = begin(vfs);
    int status = recorder->inner->rename(recorder->inner, from, to, err);
    if (status == RMQ_OK) {
        struct rmq_effect *effect = append(recorder, RMQ_EFFECT_RENAME, -1);
        effect->path = copy_text(from);
        effect->other_path = copy_text(to);
    }
    return end(recorder, status);
}

/* An effect on a name: recorded when the inner door carried it out. */
#define NAMED(kind, name)                                           \
    struct recorder *recorder = begin(vfs);                         \
    int status = recorder->inner->name(recorder->inner, path, err); \
    if (status == RMQ_OK)                                           \
        append_path(recorder, (kind), -1, path);                    \
    return end(recorder, status)

static int record_unlink(struct rmq_vfs *vfs, const char *path, struct rmq_error *err)
{
    NAMED(RMQ_EFFECT_UNLINK, unlink);
}

static int record_make_directory(struct rmq_vfs *vfs, const char *path, struct rmq_error *err)
{
    NAMED(RMQ_EFFECT_MAKE_DIRECTORY, make_directory);
}

static int record_make_unsynced_directory(struct rmq_vfs *vfs, const char *path,
                                          struct rmq_error *err)
{
    NAMED(RMQ_EFFECT_MAKE_UNSYNCED_DIRECTORY, make_unsynced_directory);
}

static int record_remove_directory(struct rmq_vfs *vfs, const char *path, struct rmq_error *err)
{
    NAMED(RMQ_EFFECT_REMOVE_DIRECTORY, remove_directory);
}

static int record_sync_directory(struct rmq_vfs *vfs, const char *path, struct rmq_error *err)
{
    struct rmq_file_info info;
    struct recorder *recorder = begin(vfs);
    int status = recorder->inner->stat(recorder->inner, path, &info, err);
    if (status == RMQ_OK)
        append_path(recorder, RMQ_EFFECT_SYNC_DIRECTORY, -1, path);
    return end(recorder, status);
}

/* ---- calls without effects ---- */

static int record_stat(struct rmq_vfs *vfs, const char *path, struct rmq_file_info *info,
                       struct rmq_error *err)
{
    return inner_of(vfs)->stat(inner_of(vfs), path, info, err);
}

static int record_read(struct rmq_vfs *vfs, int fd, void *buffer, size_t size, int64_t at,
                       size_t *got, struct rmq_error *err)
{
    return inner_of(vfs)->read(inner_of(vfs), fd, buffer, size, at, got, err);
}

static int record_allocate(struct rmq_vfs *vfs, int fd, int64_t at, int64_t size,
                           struct rmq_error *err)
{
    return inner_of(vfs)->allocate(inner_of(vfs), fd, at, size, err);
}

static int record_allocate_unwritten(struct rmq_vfs *vfs, int fd, int64_t at, int64_t size,
                                     struct rmq_error *err)
{
    return inner_of(vfs)->allocate_unwritten(inner_of(vfs), fd, at, size, err);
}

static int record_next_data(struct rmq_vfs *vfs, int fd, int64_t at, int64_t *found,
                            struct rmq_error *err)
{
    return inner_of(vfs)->next_data(inner_of(vfs), fd, at, found, err);
}

static int record_next_hole(struct rmq_vfs *vfs, int fd, int64_t at, int64_t *found,
                            struct rmq_error *err)
{
    return inner_of(vfs)->next_hole(inner_of(vfs), fd, at, found, err);
}

static int record_advise(struct rmq_vfs *vfs, uint8_t *base, int64_t size, enum rmq_advice advice,
                         struct rmq_error *err)
{
    return inner_of(vfs)->advise(inner_of(vfs), base, size, advice, err);
}

static int record_list(struct rmq_vfs *vfs, const char *path, rmq_list_visit *visit, void *context,
                       struct rmq_error *err)
{
    return inner_of(vfs)->list(inner_of(vfs), path, visit, context, err);
}

static int record_lock(struct rmq_vfs *vfs, int fd, int64_t *holder, struct rmq_error *err)
{
    return inner_of(vfs)->lock(inner_of(vfs), fd, holder, err);
}

static int record_disk_usage(struct rmq_vfs *vfs, const char *path, struct rmq_disk_usage *usage,
                             struct rmq_error *err)
{
    return inner_of(vfs)->disk_usage(inner_of(vfs), path, usage, err);
}

/* ---- life ---- */

struct rmq_vfs *rmq_vfs_record_new(struct rmq_vfs *inner)
{
    struct recorder *recorder = calloc(1, sizeof *recorder);
    if (!recorder)
        return NULL;
    recorder->vfs = (struct rmq_vfs){
        .open = record_open,
        .close = record_close,
        .close_inherited = record_close_inherited,
        .stat = record_stat,
        .read = record_read,
        .write = record_write,
        .resize = record_resize,
        .allocate = record_allocate,
        .allocate_unwritten = record_allocate_unwritten,
        .zero = record_zero,
        .next_data = record_next_data,
        .next_hole = record_next_hole,
        .sync = record_sync,
        .start_sync = record_start_sync,
        .sync_map = record_sync_map,
        .map = record_map,
        .unmap = record_unmap,
        .advise = record_advise,
        .rename = record_rename,
        .unlink = record_unlink,
        .make_directory = record_make_directory,
        .make_unsynced_directory = record_make_unsynced_directory,
        .remove_directory = record_remove_directory,
        .sync_directory = record_sync_directory,
        .list = record_list,
        .lock = record_lock,
        .disk_usage = record_disk_usage,
    };
    recorder->inner = inner;
    pthread_mutex_init(&recorder->lock, NULL);
    return &recorder->vfs;
}

void rmq_vfs_record_free(struct rmq_vfs *vfs)
{
    if (!vfs)
        return;
    struct recorder *recorder = recorder_of(vfs);
    assert(recorder->mapping_count == 0);
    for (size_t i = 0; i < recorder->count; ++i) {
        free(recorder->effects[i].data);
        free(recorder->effects[i].path);
        free(recorder->effects[i].other_path);
    }
    free(recorder->effects);
    free(recorder->files);
    free(recorder->mappings);
    free(recorder->descriptors);
    pthread_mutex_destroy(&recorder->lock);
    free(recorder);
}

void rmq_vfs_record_mark(struct rmq_vfs *vfs, int64_t number)
{
    struct recorder *recorder = begin(vfs);
    append(recorder, RMQ_EFFECT_MARK, -1)->at = number;
    (void)end(recorder, RMQ_OK);
}

int64_t rmq_vfs_record_count(struct rmq_vfs *vfs)
{
    struct recorder *recorder = begin(vfs);
    int64_t count = (int64_t)recorder->count;
    (void)end(recorder, RMQ_OK);
    return count;
}

void rmq_vfs_record_get(struct rmq_vfs *vfs, int64_t index, struct rmq_effect *effect)
{
    struct recorder *recorder = recorder_of(vfs);
    pthread_mutex_lock(&recorder->lock);
    assert(index >= 0 && (size_t)index < recorder->count);
    *effect = recorder->effects[index];
    pthread_mutex_unlock(&recorder->lock);
}
