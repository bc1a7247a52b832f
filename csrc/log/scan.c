#include "log/scan.h"

#include <assert.h>
#include <string.h>

#include "base/bytes.h"

void rmq_scan_begin(struct rmq_scan *scan, struct rmq_file_queue *files, int64_t from,
                    int64_t limit, unsigned checks)
{
    assert(files);

    memset(scan, 0, sizeof *scan);
    scan->files = files;
    scan->offset = from;
    scan->limit = limit;
    scan->checks = checks;
}

void rmq_scan_finish(struct rmq_scan *scan)
{
    if (scan->file)
        rmq_mapped_file_unpin(scan->file);
    scan->file = NULL;
}

/* Pins the file that contains scan->offset; RMQ_NOT_FOUND when there is none. */
static int enter_file(struct rmq_scan *scan, struct rmq_error *err)
{
    if (scan->file && scan->offset >= scan->file->start &&
        scan->offset < scan->file->start + scan->file->size)
        return RMQ_OK;

    rmq_scan_finish(scan);
    return rmq_file_queue_pin(scan->files, scan->offset, &scan->file, err);
}

static int over(struct rmq_scan *scan, enum rmq_scan_verdict verdict)
{
    assert(verdict <= RMQ_SCAN_BAD);

    scan->verdict = verdict;
    return RMQ_END;
}

/* Records of one log tend to have similar sizes: the record four positions ahead is probably near
 * the guess. A wrong guess costs nothing: no address faults. */
static inline void prefetch_ahead(const struct rmq_record *record)
{
    uintptr_t ahead = (uintptr_t)record->data + 4 * (uintptr_t)record->total_size;
    __builtin_prefetch((const void *)ahead);
    __builtin_prefetch((const void *)(ahead - 64));
    __builtin_prefetch((const void *)(ahead + 64));
}

int rmq_scan_next(struct rmq_scan *scan, struct rmq_record *record, struct rmq_error *err)
{
    for (;;) {
        if (scan->offset >= scan->limit)
            return over(scan, RMQ_SCAN_LIMIT);
        int status = enter_file(scan, err);
        if (status == RMQ_NOT_FOUND)
            return over(scan, RMQ_SCAN_END);
        if (status != RMQ_OK)
            return status;

        int64_t at = scan->offset - scan->file->start;
        assert(at >= 0 && at < scan->file->size);
        status = rmq_record_decode(rmq_mapped_file_base(scan->file) + at,
                                   (size_t)(scan->file->size - at), scan->offset, scan->checks,
                                   record, &scan->error);

        if (status == RMQ_OK) {
            scan->offset += record->total_size;
            prefetch_ahead(record);
            return RMQ_OK;
        }
        if (status == RMQ_END && record->total_size == RMQ_BLANK_SIZE) {
            scan->offset = scan->file->start + scan->file->size;
            continue;
        }

        scan->bad_size = status == RMQ_END ? 0 : record->total_size;
        return over(scan, status == RMQ_END ? RMQ_SCAN_END : RMQ_SCAN_BAD);
    }
}

/* Whether there is a record here that is whole, matches its CRCs and has its own physical
 * offset. */
static bool is_record_at(const struct rmq_mapped_file *file, const uint8_t *base, int64_t at)
{
    assert(at >= 0 && at + RMQ_RECORD_SIZE_MIN <= file->size);

    struct rmq_record record;
    int32_t size = rmq_get_i32(base + at);
    if (size < RMQ_RECORD_SIZE_MIN || size > file->size - at)
        return false;
    return rmq_record_decode(base + at, (size_t)(file->size - at), file->start + at,
                             RMQ_CHECK_PLACE | RMQ_CHECK_BODY_CRC, &record, NULL) == RMQ_OK;
}

/* The magics share their first three bytes, which are 4 bytes after the record's start. */
static int64_t find_in_file(const struct rmq_mapped_file *file, const uint8_t *base, int64_t from)
{
    assert(base && from >= 0);

    static const uint8_t head[3] = {0xDA, 0xA3, 0x20};
    int64_t at = from;
    while (at + RMQ_RECORD_SIZE_MIN <= file->size) {
        const uint8_t *found =
            memmem(base + at + 4, (size_t)(file->size - at - 4), head, sizeof head);
        if (!found)
            return -1;

        at = (found - base) - 4;
        if (at + RMQ_RECORD_SIZE_MIN <= file->size && is_record_at(file, base, at))
            return at;
        ++at;
    }
    return -1;
}

int rmq_scan_resync(struct rmq_scan *scan, struct rmq_error *err)
{
    assert(scan->files);

    int64_t from = scan->offset + 1;
    while (from < scan->limit) {
        scan->offset = from;
        int status = enter_file(scan, err);
        if (status == RMQ_NOT_FOUND) {
            /* A missing file: continues in the next existing one. */
            int64_t file_size = scan->files->options.file_size;
            from = from - from % file_size + file_size;
            if (from > rmq_file_queue_end(scan->files))
                return over(scan, RMQ_SCAN_END);
            continue;
        }
        if (status != RMQ_OK)
            return status;

        int64_t at =
            find_in_file(scan->file, rmq_mapped_file_base(scan->file), from - scan->file->start);
        if (at >= 0) {
            scan->offset = scan->file->start + at;
            assert(scan->offset >= from);
            return scan->offset < scan->limit ? RMQ_OK : over(scan, RMQ_SCAN_LIMIT);
        }

        from = scan->file->start + scan->file->size;
    }
    return over(scan, RMQ_SCAN_LIMIT);
}
