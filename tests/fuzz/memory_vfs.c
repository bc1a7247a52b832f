#include "memory_vfs.h"

#include <errno.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "file/file_queue.h"
#include "fuzz.h"

#define OPEN_MAX 1024
#define MAPS_MAX 1024
#define FIRST_FD 1000
#define PAGE_SIZE 4096

struct file {
    uint8_t *data;
    int64_t size;
    int references; /* the name, each descriptor, each mapping */
    int maps;
    bool locked;
};

struct node {
    char *path;
    struct file *file; /* NULL: a folder */
};

struct descriptor {
    struct file *file;
    bool writable;
    bool holds_lock;
};

struct map {
    uint8_t *base;
    struct file *file;
};

struct memory_vfs {
    struct rmq_vfs door;
    pthread_mutex_t lock;
    bool frozen;
    struct node *nodes;
    size_t count, capacity;
    struct descriptor descriptors[OPEN_MAX];
    struct map maps[MAPS_MAX];
};

/* ---- nodes; the caller holds the lock ---- */

/* Zeros that begin where a page does, as a mapping does. */
static uint8_t *new_data(int64_t size)
{
    void *data = NULL;
    size_t bytes = size > 0 ? (size_t)size : 1;
    FUZZ_REQUIRE(posix_memalign(&data, PAGE_SIZE, bytes) == 0);
    return memset(data, 0, bytes);
}

static struct file *new_file(int64_t size)
{
    struct file *file = calloc(1, sizeof *file);
    FUZZ_REQUIRE(file != NULL);
    file->data = new_data(size);
    file->size = size;
    file->references = 1;
    return file;
}

static void let_go(struct file *file)
{
    FUZZ_REQUIRE(file->references > 0);
    if (--file->references > 0)
        return;
    free(file->data);
    free(file);
}

static struct node *find(struct memory_vfs *vfs, const char *path)
{
    for (size_t i = 0; i < vfs->count; ++i)
        if (strcmp(vfs->nodes[i].path, path) == 0)
            return &vfs->nodes[i];
    return NULL;
}

static void add_node(struct memory_vfs *vfs, const char *path, struct file *file)
{
    FUZZ_REQUIRE(!vfs->frozen);
    if (vfs->count == vfs->capacity) {
        vfs->capacity = vfs->capacity ? vfs->capacity * 2 : 32;
        vfs->nodes = realloc(vfs->nodes, vfs->capacity * sizeof *vfs->nodes);
        FUZZ_REQUIRE(vfs->nodes != NULL);
    }
    char *copy = strdup(path);
    FUZZ_REQUIRE(copy != NULL);
    vfs->nodes[vfs->count++] = (struct node){copy, file};
}

static void remove_node(struct memory_vfs *vfs, struct node *node)
{
    FUZZ_REQUIRE(!vfs->frozen);
    if (node->file)
        let_go(node->file);
    free(node->path);
    *node = vfs->nodes[--vfs->count];
}

/* RMQ_OK when the folder above path is there; RMQ_IO when something on the way is a file. */
static int look_above(struct memory_vfs *vfs, const char *path, struct rmq_error *err)
{
    char folder[4096];
    for (size_t i = 1; path[i]; ++i) {
        if (path[i] != '/')
            continue;
        FUZZ_REQUIRE(i < sizeof folder);
        memcpy(folder, path, i);
        folder[i] = 0;
        struct node *node = find(vfs, folder);
        if (!node) {
            (void)rmq_fail_os(err, ENOENT, "%s", path);
            if (err)
                err->status = RMQ_NOT_FOUND;
            return RMQ_NOT_FOUND;
        }
        if (node->file)
            return rmq_fail_os(err, ENOTDIR, "%s", path);
    }
    return RMQ_OK;
}

static int missing(const char *path, struct rmq_error *err)
{
    (void)rmq_fail_os(err, ENOENT, "%s", path);
    if (err)
        err->status = RMQ_NOT_FOUND;
    return RMQ_NOT_FOUND;
}

static struct descriptor *descriptor(struct memory_vfs *vfs, int fd)
{
    FUZZ_REQUIRE(fd >= FIRST_FD && fd < FIRST_FD + OPEN_MAX);
    struct descriptor *found = &vfs->descriptors[fd - FIRST_FD];
    FUZZ_REQUIRE(found->file != NULL);
    return found;
}

static struct memory_vfs *enter(struct rmq_vfs *door)
{
    struct memory_vfs *vfs = (struct memory_vfs *)(void *)door;
    pthread_mutex_lock(&vfs->lock);
    return vfs;
}

static int leave(struct memory_vfs *vfs, int status)
{
    pthread_mutex_unlock(&vfs->lock);
    return status;
}

/* ---- files ---- */

static int open_file(struct rmq_vfs *door, const char *path, unsigned flags, int *fd,
                     struct rmq_error *err)
{
    struct memory_vfs *vfs = enter(door);
    int status = look_above(vfs, path, err);
    if (status != RMQ_OK)
        return leave(vfs, status);
    struct node *node = find(vfs, path);
    if (node && !node->file)
        return leave(vfs, rmq_fail_os(err, EISDIR, "%s", path));
    if (node && (flags & RMQ_OPEN_EXCLUSIVE))
        return leave(vfs, rmq_fail_os(err, EEXIST, "%s", path));
    if (!node) {
        if (!(flags & RMQ_OPEN_CREATE))
            return leave(vfs, missing(path, err));
        if (vfs->count >= MEMORY_FILES_MAX)
            return leave(vfs, rmq_fail_os(err, EIO, "%s", path));
        add_node(vfs, path, new_file(0));
        node = &vfs->nodes[vfs->count - 1];
    }
    FUZZ_REQUIRE(!vfs->frozen || !(flags & RMQ_OPEN_WRITE));
    for (int i = 0; i < OPEN_MAX; ++i) {
        if (vfs->descriptors[i].file)
            continue;
        vfs->descriptors[i] = (struct descriptor){node->file, flags & RMQ_OPEN_WRITE, false};
        ++node->file->references;
        *fd = FIRST_FD + i;
        return leave(vfs, RMQ_OK);
    }
    return leave(vfs, rmq_fail_os(err, EMFILE, "%s", path));
}

static int close_file(struct rmq_vfs *door, int fd, struct rmq_error *err)
{
    (void)err;
    struct memory_vfs *vfs = enter(door);
    struct descriptor *closed = descriptor(vfs, fd);
    if (closed->holds_lock)
        closed->file->locked = false;
    let_go(closed->file);
    *closed = (struct descriptor){0};
    return leave(vfs, RMQ_OK);
}

static int stat_path(struct rmq_vfs *door, const char *path, struct rmq_file_info *info,
                     struct rmq_error *err)
{
    struct memory_vfs *vfs = enter(door);
    int status = look_above(vfs, path, err);
    struct node *node = status == RMQ_OK ? find(vfs, path) : NULL;
    if (status == RMQ_OK && !node)
        status = missing(path, err);
    if (node)
        *info = (struct rmq_file_info){.size = node->file ? node->file->size : 0,
                                       .is_directory = !node->file,
                                       .is_regular = node->file != NULL};
    return leave(vfs, status);
}

static int read_at(struct rmq_vfs *door, int fd, void *buffer, size_t size, int64_t at, size_t *got,
                   struct rmq_error *err)
{
    (void)err;
    struct memory_vfs *vfs = enter(door);
    const struct file *file = descriptor(vfs, fd)->file;
    FUZZ_REQUIRE(at >= 0);
    int64_t left = at < file->size ? file->size - at : 0;
    *got = (int64_t)size < left ? size : (size_t)left;
    if (*got > 0)
        memcpy(buffer, file->data + at, *got);
    return leave(vfs, RMQ_OK);
}

static int resize(struct memory_vfs *vfs, struct file *file, int64_t size, struct rmq_error *err)
{
    FUZZ_REQUIRE(size >= 0 && !vfs->frozen);
    if (size == file->size)
        return RMQ_OK;
    FUZZ_REQUIRE(file->maps == 0);
    if (size > MEMORY_FILE_SIZE_MAX)
        return rmq_fail_os(err, ENOSPC, "resize to %lld", (long long)size);
    uint8_t *data = new_data(size);
    memcpy(data, file->data, (size_t)(size < file->size ? size : file->size));
    free(file->data);
    file->data = data;
    file->size = size;
    return RMQ_OK;
}

static int write_at(struct rmq_vfs *door, int fd, const void *data, size_t size, int64_t at,
                    struct rmq_error *err)
{
    struct memory_vfs *vfs = enter(door);
    struct descriptor *target = descriptor(vfs, fd);
    FUZZ_REQUIRE(target->writable && at >= 0 && !vfs->frozen);
    int status = RMQ_OK;
    if (at > target->file->size - (int64_t)size)
        status = resize(vfs, target->file, at + (int64_t)size, err);
    if (status == RMQ_OK && size > 0)
        memcpy(target->file->data + at, data, size);
    return leave(vfs, status);
}

static int resize_file(struct rmq_vfs *door, int fd, int64_t size, struct rmq_error *err)
{
    struct memory_vfs *vfs = enter(door);
    FUZZ_REQUIRE(descriptor(vfs, fd)->writable);
    return leave(vfs, resize(vfs, descriptor(vfs, fd)->file, size, err));
}

static int allocate_range(struct rmq_vfs *door, int fd, int64_t at, int64_t size,
                          struct rmq_error *err)
{
    (void)err;
    struct memory_vfs *vfs = enter(door);
    const struct descriptor *target = descriptor(vfs, fd);
    FUZZ_REQUIRE(target->writable && at >= 0 && size >= 0 && size <= target->file->size - at);
    return leave(vfs, RMQ_OK);
}

static int zero_range(struct rmq_vfs *door, int fd, int64_t at, int64_t size, struct rmq_error *err)
{
    (void)err;
    struct memory_vfs *vfs = enter(door);
    const struct descriptor *target = descriptor(vfs, fd);
    FUZZ_REQUIRE(target->writable && at >= 0 && size >= 0 && !vfs->frozen);
    FUZZ_REQUIRE(size <= target->file->size - at);
    memset(target->file->data + at, 0, (size_t)size);
    return leave(vfs, RMQ_OK);
}

static int next_data(struct rmq_vfs *door, int fd, int64_t at, int64_t *found,
                     struct rmq_error *err)
{
    (void)err;
    struct memory_vfs *vfs = enter(door);
    const struct file *file = descriptor(vfs, fd)->file;
    for (*found = at; *found < file->size && file->data[*found] == 0;)
        ++*found;
    if (*found > file->size)
        *found = file->size;
    return leave(vfs, RMQ_OK);
}

/* A byte that is 0 is in a hole. */
static int next_hole(struct rmq_vfs *door, int fd, int64_t at, int64_t *found,
                     struct rmq_error *err)
{
    (void)err;
    struct memory_vfs *vfs = enter(door);
    const struct file *file = descriptor(vfs, fd)->file;
    for (*found = at; *found < file->size && file->data[*found] != 0;)
        ++*found;
    if (*found > file->size)
        *found = file->size;
    return leave(vfs, RMQ_OK);
}

static int sync_file(struct rmq_vfs *door, int fd, struct rmq_error *err)
{
    (void)err;
    struct memory_vfs *vfs = enter(door);
    (void)descriptor(vfs, fd);
    return leave(vfs, RMQ_OK);
}

/* ---- mappings ---- */

static struct map *find_map(struct memory_vfs *vfs, const uint8_t *base)
{
    for (int i = 0; i < MAPS_MAX; ++i)
        if (vfs->maps[i].file && base >= vfs->maps[i].base &&
            base < vfs->maps[i].base + vfs->maps[i].file->size)
            return &vfs->maps[i];
    fuzz_fail(__FILE__, __LINE__, "the address lies in a mapping");
}

static void start_sync(struct rmq_vfs *door, int fd)
{
    (void)door;
    (void)fd;
}

static int sync_map(struct rmq_vfs *door, uint8_t *base, int64_t size, struct rmq_error *err)
{
    (void)err;
    struct memory_vfs *vfs = enter(door);
    const struct map *map = find_map(vfs, base);
    FUZZ_REQUIRE(size > 0 && size <= map->file->size - (base - map->base));
    return leave(vfs, RMQ_OK);
}

static int map_file(struct rmq_vfs *door, int fd, int64_t size, bool writable, uint8_t **base,
                    struct rmq_error *err)
{
    struct memory_vfs *vfs = enter(door);
    const struct descriptor *mapped = descriptor(vfs, fd);
    FUZZ_REQUIRE(size > 0 && size <= mapped->file->size);
    FUZZ_REQUIRE(!writable || mapped->writable);
    for (int i = 0; i < MAPS_MAX; ++i) {
        if (vfs->maps[i].file)
            continue;
        vfs->maps[i] = (struct map){mapped->file->data, mapped->file};
        ++mapped->file->references;
        ++mapped->file->maps;
        *base = mapped->file->data;
        return leave(vfs, RMQ_OK);
    }
    return leave(vfs, rmq_fail_os(err, ENOMEM, "map"));
}

static int unmap_file(struct rmq_vfs *door, uint8_t *base, int64_t size, struct rmq_error *err)
{
    (void)err;
    struct memory_vfs *vfs = enter(door);
    struct map *map = find_map(vfs, base);
    FUZZ_REQUIRE(map->base == base && size > 0);
    --map->file->maps;
    let_go(map->file);
    *map = (struct map){0};
    return leave(vfs, RMQ_OK);
}

static int advise_map(struct rmq_vfs *door, uint8_t *base, int64_t size, enum rmq_advice advice,
                      struct rmq_error *err)
{
    (void)advice;
    (void)err;
    struct memory_vfs *vfs = enter(door);
    const struct map *map = find_map(vfs, base);
    FUZZ_REQUIRE(size >= 0 && size <= map->file->size - (base - map->base));
    return leave(vfs, RMQ_OK);
}

/* ---- names ---- */

static int rename_file(struct rmq_vfs *door, const char *from, const char *to,
                       struct rmq_error *err)
{
    struct memory_vfs *vfs = enter(door);
    int status = look_above(vfs, to, err);
    if (status != RMQ_OK)
        return leave(vfs, status);
    struct node *source = find(vfs, from);
    if (!source)
        return leave(vfs, missing(from, err));
    FUZZ_REQUIRE(source->file && strcmp(from, to) != 0);
    struct file *file = source->file;
    ++file->references;
    remove_node(vfs, source);
    struct node *target = find(vfs, to);
    if (target)
        remove_node(vfs, target);
    add_node(vfs, to, file);
    return leave(vfs, RMQ_OK);
}

static int unlink_file(struct rmq_vfs *door, const char *path, struct rmq_error *err)
{
    struct memory_vfs *vfs = enter(door);
    int status = look_above(vfs, path, err);
    struct node *node = status == RMQ_OK ? find(vfs, path) : NULL;
    if (status == RMQ_OK && !node)
        status = missing(path, err);
    if (node && !node->file)
        status = rmq_fail_os(err, EISDIR, "%s", path);
    else if (node)
        remove_node(vfs, node);
    return leave(vfs, status);
}

static int make_folders(struct memory_vfs *vfs, const char *path, struct rmq_error *err)
{
    char folder[4096];
    for (size_t i = 1;; ++i) {
        FUZZ_REQUIRE(i < sizeof folder);
        if (path[i] && path[i] != '/')
            continue;
        memcpy(folder, path, i);
        folder[i] = 0;
        struct node *node = find(vfs, folder);
        if (node && node->file)
            return rmq_fail_os(err, ENOTDIR, "%s", folder);
        if (!node)
            add_node(vfs, folder, NULL);
        if (!path[i])
            return RMQ_OK;
    }
}

static int make_directory(struct rmq_vfs *door, const char *path, struct rmq_error *err)
{
    struct memory_vfs *vfs = enter(door);
    return leave(vfs, make_folders(vfs, path, err));
}

static int make_unsynced_directory(struct rmq_vfs *door, const char *path, struct rmq_error *err)
{
    struct memory_vfs *vfs = enter(door);
    int status = look_above(vfs, path, err);
    return leave(vfs, status == RMQ_OK ? make_folders(vfs, path, err) : status);
}

/* The name right below the folder that path leads through, copied to name; false when it does
 * not. */
static bool name_below(const char *folder, const char *path, char name[256])
{
    size_t size = strlen(folder);
    if (strncmp(path, folder, size) != 0 || path[size] != '/' || strchr(path + size + 1, '/'))
        return false;
    size_t name_size = strlen(path + size + 1);
    FUZZ_REQUIRE(name_size > 0 && name_size < 256);
    memcpy(name, path + size + 1, name_size + 1);
    return true;
}

static int remove_directory(struct rmq_vfs *door, const char *path, struct rmq_error *err)
{
    struct memory_vfs *vfs = enter(door);
    char name[256];
    struct node *node = find(vfs, path);
    if (!node)
        return leave(vfs, missing(path, err));
    for (size_t i = 0; i < vfs->count; ++i)
        if (name_below(path, vfs->nodes[i].path, name))
            return leave(vfs, rmq_fail_os(err, ENOTEMPTY, "%s", path));
    remove_node(vfs, node);
    return leave(vfs, RMQ_OK);
}

static int sync_directory(struct rmq_vfs *door, const char *path, struct rmq_error *err)
{
    struct memory_vfs *vfs = enter(door);
    return leave(vfs, find(vfs, path) ? RMQ_OK : missing(path, err));
}

struct listed {
    char name[256];
    bool is_directory;
};

static int list_directory(struct rmq_vfs *door, const char *path, rmq_list_visit *visit,
                          void *context, struct rmq_error *err)
{
    struct memory_vfs *vfs = enter(door);
    struct node *node = find(vfs, path);
    if (!node)
        return leave(vfs, missing(path, err));
    if (node->file)
        return leave(vfs, rmq_fail_os(err, ENOTDIR, "%s", path));
    struct listed *found = calloc(vfs->count, sizeof *found);
    size_t count = 0;
    FUZZ_REQUIRE(found != NULL);
    for (size_t i = 0; i < vfs->count; ++i)
        if (name_below(path, vfs->nodes[i].path, found[count].name))
            found[count++].is_directory = !vfs->nodes[i].file;
    (void)leave(vfs, RMQ_OK);
    int status = RMQ_OK;
    for (size_t i = 0; i < count && status == RMQ_OK; ++i)
        status = visit(context, found[i].name, found[i].is_directory);
    free(found);
    return status;
}

static int lock_file(struct rmq_vfs *door, int fd, int64_t *holder, struct rmq_error *err)
{
    struct memory_vfs *vfs = enter(door);
    struct descriptor *locking = descriptor(vfs, fd);
    *holder = 0;
    if (locking->file->locked)
        return leave(vfs, rmq_fail(err, RMQ_LOCKED, 0, "descriptor %d is locked", fd));
    locking->file->locked = locking->holds_lock = true;
    return leave(vfs, RMQ_OK);
}

static int disk_usage(struct rmq_vfs *door, const char *path, struct rmq_disk_usage *usage,
                      struct rmq_error *err)
{
    (void)door;
    (void)path;
    (void)err;
    *usage = (struct rmq_disk_usage){1 << 30, 1 << 29};
    return RMQ_OK;
}

/* ---- the whole ---- */

struct memory_vfs *memory_vfs_new(void)
{
    struct memory_vfs *vfs = calloc(1, sizeof *vfs);
    FUZZ_REQUIRE(vfs != NULL);
    pthread_mutex_init(&vfs->lock, NULL);
    vfs->door = (struct rmq_vfs){
        .open = open_file,
        .close = close_file,
        .stat = stat_path,
        .read = read_at,
        .write = write_at,
        .resize = resize_file,
        .allocate = allocate_range,
        .zero = zero_range,
        .next_data = next_data,
        .next_hole = next_hole,
        .sync = sync_file,
        .start_sync = start_sync,
        .sync_map = sync_map,
        .map = map_file,
        .unmap = unmap_file,
        .advise = advise_map,
        .rename = rename_file,
        .unlink = unlink_file,
        .make_directory = make_directory,
        .make_unsynced_directory = make_unsynced_directory,
        .remove_directory = remove_directory,
        .sync_directory = sync_directory,
        .list = list_directory,
        .lock = lock_file,
        .disk_usage = disk_usage,
    };
    return vfs;
}

struct rmq_vfs *memory_vfs_door(struct memory_vfs *vfs)
{
    return &vfs->door;
}

void memory_vfs_freeze(struct memory_vfs *vfs)
{
    vfs->frozen = true;
}

void memory_vfs_free(struct memory_vfs *vfs)
{
    for (int i = 0; i < OPEN_MAX; ++i)
        FUZZ_REQUIRE(vfs->descriptors[i].file == NULL);
    for (int i = 0; i < MAPS_MAX; ++i)
        FUZZ_REQUIRE(vfs->maps[i].file == NULL);
    for (size_t i = 0; i < vfs->count; ++i) {
        if (vfs->nodes[i].file)
            let_go(vfs->nodes[i].file);
        free(vfs->nodes[i].path);
    }
    free(vfs->nodes);
    pthread_mutex_destroy(&vfs->lock);
    free(vfs);
}

struct memory_vfs *memory_vfs_copy(struct memory_vfs *vfs)
{
    struct memory_vfs *copy = memory_vfs_new();
    (void)enter(&vfs->door);
    for (size_t i = 0; i < vfs->count; ++i) {
        struct file *file = vfs->nodes[i].file;
        struct file *twin = file ? new_file(file->size) : NULL;
        if (file && file->size > 0)
            memcpy(twin->data, file->data, (size_t)file->size);
        add_node(copy, vfs->nodes[i].path, twin);
    }
    (void)leave(vfs, RMQ_OK);
    return copy;
}

bool memory_vfs_add(struct memory_vfs *vfs, const char *path, int64_t size, const uint8_t *content,
                    size_t content_size)
{
    char folder[4096];
    size_t path_size = strlen(path);
    if (vfs->count >= MEMORY_FILES_MAX / 2 || path_size >= sizeof folder || path[0] != '/' ||
        path[path_size - 1] == '/')
        return false;
    for (const char *part = path; part; part = strchr(part + 1, '/')) {
        const char *end = strchr(part + 1, '/');
        size_t part_size = end ? (size_t)(end - part - 1) : strlen(part + 1);
        if (part_size == 0 || part_size > 255 || strncmp(part + 1, ".", part_size) == 0 ||
            strncmp(part + 1, "..", part_size) == 0)
            return false;
    }
    memcpy(folder, path, path_size + 1);
    *strrchr(folder, '/') = 0;
    if (folder[0] && make_folders(vfs, folder, NULL) != RMQ_OK)
        return false;
    struct node *node = find(vfs, path);
    if (node && !node->file)
        return false;
    if (node)
        remove_node(vfs, node);
    struct file *file = new_file(size);
    if ((int64_t)content_size > size)
        content_size = (size_t)size;
    if (content_size > 0)
        memcpy(file->data, content, content_size);
    add_node(vfs, path, file);
    return true;
}

static bool holds_all(struct memory_vfs *a, struct memory_vfs *b, const char *folder)
{
    size_t size = strlen(folder);
    for (size_t i = 0; i < a->count; ++i) {
        const struct node *one = &a->nodes[i];
        if (!one->file || strncmp(one->path, folder, size) != 0 || one->path[size] != '/')
            continue;
        const struct node *other = find(b, one->path);
        if (!other || !other->file || other->file->size != one->file->size ||
            memcmp(other->file->data, one->file->data, (size_t)one->file->size) != 0)
            return false;
    }
    return true;
}

bool memory_vfs_equal(struct memory_vfs *a, struct memory_vfs *b, const char *folder)
{
    return holds_all(a, b, folder) && holds_all(b, a, folder);
}

void memory_vfs_add_queue(struct memory_vfs *vfs, const char *folder, int64_t start,
                          int64_t file_size, size_t count, struct fuzz_input *content)
{
    char path[4096], name[RMQ_FILE_NAME_SIZE];
    FUZZ_REQUIRE(make_folders(vfs, folder, NULL) == RMQ_OK);
    for (size_t i = 0; i < count; ++i) {
        size_t taken = 0;
        const uint8_t *from = fuzz_take_bytes(content, (size_t)file_size, &taken);
        rmq_file_name(start + (int64_t)i * file_size, name);
        snprintf(path, sizeof path, "%s/%s", folder, name);
        FUZZ_REQUIRE(memory_vfs_add(vfs, path, file_size, from, taken));
    }
}
