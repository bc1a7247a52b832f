#include "file/unsynced_folders.h"

#include <assert.h>
#include <stdlib.h>
#include <string.h>

#include "base/for_each.h"

/* A new queue lists its folder and two parents, which other queues list as well. */
#define RMQ_LAST_FOLDERS 3

void rmq_unsynced_folders_init(struct rmq_unsynced_folders *folders)
{
    memset(folders, 0, sizeof *folders);
    pthread_mutex_init(&folders->lock, NULL);
}

static void free_paths(char **paths, size_t count)
{
    assert(paths || count == 0);

    for (size_t i = 0; i < count; ++i)
        free(paths[i]);
    free(paths);
}

void rmq_unsynced_folders_destroy(struct rmq_unsynced_folders *folders)
{
    free_paths(folders->paths, folders->count);
    folders->paths = NULL;
    folders->count = folders->capacity = 0;
    pthread_mutex_destroy(&folders->lock);
}

/* ---- the list; the caller holds the lock ---- */

static bool is_among_last(const struct rmq_unsynced_folders *folders, const char *path)
{
    assert(path);

    size_t last = folders->count < RMQ_LAST_FOLDERS ? 0 : folders->count - RMQ_LAST_FOLDERS;
    for (size_t i = folders->count; i > last; --i)
        if (strcmp(folders->paths[i - 1], path) == 0)
            return true;
    return false;
}

static int make_room(struct rmq_unsynced_folders *folders, struct rmq_error *err)
{
    assert(folders->count <= folders->capacity);

    if (folders->count < folders->capacity)
        return RMQ_OK;

    size_t capacity = folders->capacity ? folders->capacity * 2 : 16;
    char **paths = realloc(folders->paths, capacity * sizeof *paths);
    if (!paths)
        return rmq_fail(err, RMQ_NO_MEMORY, -1, "no memory for the names of %zu folders", capacity);

    folders->paths = paths;
    folders->capacity = capacity;
    return RMQ_OK;
}

int rmq_unsynced_folders_add(struct rmq_unsynced_folders *folders, const char *path,
                             struct rmq_error *err)
{
    assert(path);

    int status = RMQ_OK;

    pthread_mutex_lock(&folders->lock);
    if (!is_among_last(folders, path)) {
        status = make_room(folders, err);
        char *copy = status == RMQ_OK ? strdup(path) : NULL;
        if (copy)
            folders->paths[folders->count++] = copy;
        else if (status == RMQ_OK)
            status = rmq_fail(err, RMQ_NO_MEMORY, -1, "%s: no memory for its name", path);
    }
    pthread_mutex_unlock(&folders->lock);
    return status;
}

/* Lists the folders of a failed call again. Returns status, or RMQ_NO_MEMORY. */
static int take_back(struct rmq_unsynced_folders *folders, char *const *paths, size_t count,
                     int status, struct rmq_error *err)
{
    assert(status != RMQ_OK);

    int added = RMQ_OK;
    for (size_t i = 0; i < count && added == RMQ_OK; ++i)
        added = rmq_unsynced_folders_add(folders, paths[i], err);
    return added == RMQ_OK ? status : added;
}

/* ---- syncing ---- */

static int compare_paths(const void *a, const void *b)
{
    return strcmp(*(char *const *)a, *(char *const *)b);
}

struct listed {
    char **paths; /* sorted */
    struct rmq_vfs *vfs;
};

static int sync_one(void *context, size_t item, struct rmq_error *err)
{
    const struct listed *listed = context;
    assert(listed->paths);

    char **path = listed->paths + item;
    if (item > 0 && strcmp(path[0], path[-1]) == 0)
        return RMQ_OK;
    int status = listed->vfs->sync_directory(listed->vfs, *path, err);
    return status == RMQ_NOT_FOUND ? RMQ_OK : status;
}

int rmq_unsynced_folders_sync(struct rmq_unsynced_folders *folders, struct rmq_vfs *vfs,
                              struct rmq_error *err)
{
    assert(vfs);

    /* The writer of a queue does not wait for these syncs. */
    pthread_mutex_lock(&folders->lock);
    char **paths = folders->paths;
    size_t count = folders->count;
    folders->paths = NULL;
    folders->count = folders->capacity = 0;
    pthread_mutex_unlock(&folders->lock);

    if (count > 0)
        qsort(paths, count, sizeof *paths, compare_paths);
    struct rmq_error own;
    struct listed listed = {paths, vfs};
    int status = rmq_for_each(count, sync_one, &listed, err ? err : &own);
    if (status != RMQ_OK)
        status = take_back(folders, paths, count, status, err);
    free_paths(paths, count);
    return status;
}
