#include "log/scan_ahead.h"

#include <assert.h>
#include <string.h>

/* A walk over fewer bytes has ended before a thread could start. */
#define RMQ_AHEAD_MIN (64 << 10)
/* How often the thread publishes its position: seldom enough that waking costs little, often enough
 * that the caller has work and finds the bytes in the cache. */
#define RMQ_AHEAD_STEP (2 << 20)

/* Bytes that a waiting caller maps at a time, and their least and greatest distance from the
 * checked bytes: not at the thread's position, and not much further than the thread gets soon. */
#define RMQ_AHEAD_PIECE (2 << 20)
#define RMQ_AHEAD_LEAD_MIN (4 << 20)
#define RMQ_AHEAD_LEAD_MAX (64 << 20)

static void say(struct rmq_scan_ahead *ahead, bool is_over)
{
    pthread_mutex_lock(&ahead->lock);
    assert(!ahead->is_over && ahead->checked <= ahead->front.offset);
    ahead->checked = ahead->front.offset;
    ahead->is_over = is_over;
    pthread_cond_signal(&ahead->moved);
    pthread_mutex_unlock(&ahead->lock);
}

static void *run(void *argument)
{
    struct rmq_scan_ahead *ahead = argument;
    struct rmq_record record;
    int64_t said = ahead->front.offset;
    int status = RMQ_OK;

    while (status == RMQ_OK && !atomic_load_explicit(&ahead->stop, memory_order_relaxed)) {
        status = rmq_scan_next(&ahead->front, &record, &ahead->front_error);
        if (status == RMQ_OK && ahead->front.offset - said >= RMQ_AHEAD_STEP) {
            said = ahead->front.offset;
            say(ahead, false);
        }
    }

    ahead->front_status = status;
    say(ahead, true);
    return NULL;
}

/* No pages are mapped after the end of the data: they would fill memory with zeros. */
static int64_t find_data_end(struct rmq_file_queue *files)
{
    struct rmq_mapped_file *last = NULL;
    int64_t end = rmq_file_queue_end(files), inside = 0;
    if (end == 0 || rmq_file_queue_pin(files, end - 1, &last, NULL) != RMQ_OK)
        return 0;

    if (rmq_mapped_file_extent_end(last, &inside, NULL) != RMQ_OK)
        inside = 0;
    int64_t data_end = last->start + inside;
    rmq_mapped_file_unpin(last);
    assert(data_end >= 0);
    return data_end;
}

void rmq_scan_ahead_begin(struct rmq_scan_ahead *ahead, struct rmq_file_queue *files, int64_t from,
                          int64_t end, unsigned checks, bool is_repeated)
{
    assert(files && from >= 0);

    memset(ahead, 0, sizeof *ahead);
    pthread_mutex_init(&ahead->lock, NULL);
    pthread_cond_init(&ahead->moved, NULL);

    ahead->checked = from;
    ahead->kept_until =
        is_repeated && from <= INT64_MAX - RMQ_AHEAD_KEPT_SIZE ? from + RMQ_AHEAD_KEPT_SIZE : 0;
    rmq_scan_begin(&ahead->front, files, from, INT64_MAX, checks);

    if (end - from >= RMQ_AHEAD_MIN)
        ahead->has_thread = pthread_create(&ahead->thread, NULL, run, ahead) == 0;

    if (ahead->has_thread)
        ahead->data_end = find_data_end(files);
    if (ahead->has_thread)
        rmq_scan_begin(&ahead->scan, files, from, from, checks & RMQ_CHECK_PLACE);
    else
        rmq_scan_begin(&ahead->scan, files, from, INT64_MAX, checks);
}

/* Maps the next piece for the thread, which has checked bytes up to `checked`; false when no piece
 * is within the distance. A failure shows when the thread gets to it. */
static bool map_ahead(struct rmq_scan_ahead *ahead, int64_t checked)
{
    struct rmq_mapped_file *file = NULL;
    int64_t at = checked + RMQ_AHEAD_LEAD_MIN;
    if (at < ahead->mapped)
        at = ahead->mapped;
    if (at >= ahead->data_end || at - checked >= RMQ_AHEAD_LEAD_MAX ||
        rmq_file_queue_pin(ahead->scan.files, at, &file, NULL) != RMQ_OK)
        return false;

    int64_t inside = at - file->start, size = RMQ_AHEAD_PIECE;
    if (size > file->size - inside)
        size = file->size - inside;
    if (size > ahead->data_end - at)
        size = ahead->data_end - at;

    assert(inside >= 0 && size > 0);
    (void)file->vfs->advise(file->vfs, rmq_mapped_file_base(file) + inside, size,
                            RMQ_ADVISE_POPULATE_READ, NULL);
    rmq_mapped_file_unpin(file);
    ahead->mapped = at + size;
    return true;
}

/* Waits until more records are checked than the caller has returned; false when no more will be
 * checked. */
static bool wait_for_more(struct rmq_scan_ahead *ahead)
{
    assert(ahead->has_thread);

    pthread_mutex_lock(&ahead->lock);
    while (ahead->checked <= ahead->scan.limit && !ahead->is_over) {
        int64_t checked = ahead->checked;
        pthread_mutex_unlock(&ahead->lock);
        bool is_busy = map_ahead(ahead, checked);
        pthread_mutex_lock(&ahead->lock);
        if (!is_busy && ahead->checked == checked && !ahead->is_over)
            pthread_cond_wait(&ahead->moved, &ahead->lock);
    }

    bool is_more = ahead->checked > ahead->scan.limit;
    ahead->scan.limit = ahead->checked;
    pthread_mutex_unlock(&ahead->lock);
    return is_more;
}

/* Notes the file that scan is in. */
static void enter_file(struct rmq_scan_ahead *ahead, struct rmq_mapped_file *file)
{
    assert(file != ahead->walked || !file);

    struct rmq_mapped_file *walked = ahead->walked;
    if (walked) {
        int64_t end = walked->start + walked->size;
        if (end > ahead->kept_until || end <= ahead->kept_from)
            (void)walked->vfs->advise(walked->vfs, rmq_mapped_file_base(walked), walked->size,
                                      RMQ_ADVISE_DONT_NEED, NULL);
        rmq_mapped_file_unpin(walked);
    }

    if (file)
        rmq_mapped_file_pin(file);
    ahead->walked = file;
}

int rmq_scan_ahead_next(struct rmq_scan_ahead *ahead, struct rmq_record *record,
                        struct rmq_error *err)
{
    for (;;) {
        int status = rmq_scan_next(&ahead->scan, record, err);
        if (status == RMQ_OK && ahead->scan.file != ahead->walked)
            enter_file(ahead, ahead->scan.file);
        if (!ahead->has_thread || status != RMQ_END || ahead->scan.verdict != RMQ_SCAN_LIMIT)
            return status;
        if (wait_for_more(ahead))
            continue;

        /* Both are at the same offset; the thread's verdict about it is the end. */
        assert(ahead->scan.offset == ahead->front.offset);
        ahead->scan.verdict = ahead->front.verdict;
        ahead->scan.bad_size = ahead->front.bad_size;
        ahead->scan.error = ahead->front.error;
        if (ahead->front_status != RMQ_END && err)
            *err = ahead->front_error;
        return ahead->front_status;
    }
}

void rmq_scan_ahead_finish(struct rmq_scan_ahead *ahead)
{
    if (ahead->has_thread) {
        atomic_store_explicit(&ahead->stop, true, memory_order_relaxed);
        pthread_join(ahead->thread, NULL);
    }

    enter_file(ahead, NULL);
    assert(!ahead->walked);
    rmq_scan_finish(&ahead->scan);
    rmq_scan_finish(&ahead->front);

    pthread_cond_destroy(&ahead->moved);
    pthread_mutex_destroy(&ahead->lock);
}
