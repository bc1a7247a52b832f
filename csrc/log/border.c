#include "log/border.h"

#include <assert.h>
#include <inttypes.h>

#include "base/bytes.h"
#include "format/record.h"

/* Whether the last `left` bytes are the beginning of something that may become whole in its file,
 * which ends file_left bytes later. */
static bool is_half(const uint8_t *data, int64_t left, int64_t file_left)
{
    assert(left > 0 && left <= file_left);

    if (left == file_left)
        return false;
    if (left < RMQ_BLANK_SIZE)
        return true;

    uint32_t magic = (uint32_t)rmq_get_i32(data + 4);
    if (magic == RMQ_MAGIC_BLANK)
        return rmq_get_i32(data) == file_left;

    int32_t size = rmq_get_i32(data);
    return (magic == RMQ_MAGIC_V1 || magic == RMQ_MAGIC_V2) && size > left && size <= file_left;
}

/* No CRC covers the queue offset, and an impossible queue offset would stop the dispatcher. */
static int check_queue_offset(const struct rmq_record *record, int64_t at, struct rmq_error *err)
{
    assert(at >= 0);

    bool is_batch = (record->sys_flag & RMQ_FLAG_INNER_BATCH) != 0;
    if (!rmq_takes_queue_offset(record->sys_flag) ||
        rmq_is_queue_offset_possible(record->queue_offset, at, is_batch))
        return RMQ_OK;

    return rmq_fail(err, RMQ_CORRUPT, at,
                    "record at %" PRId64 " has the queue offset %" PRId64
                    ", which no record there can have",
                    at, record->queue_offset);
}

/* Whether a blank or a record shows that its file ends elsewhere. */
static bool passes_file(const uint8_t *data, int64_t left, int64_t file_left)
{
    assert(left > 0 && left <= file_left);

    if (left < RMQ_BLANK_SIZE)
        return left == file_left;

    uint32_t magic = (uint32_t)rmq_get_i32(data + 4);
    int64_t size = rmq_get_i32(data);
    return (magic == RMQ_MAGIC_BLANK && size != file_left) ||
           ((magic == RMQ_MAGIC_V1 || magic == RMQ_MAGIC_V2) && size > file_left);
}

/* As rmq_border_advance, within one file. */
static int advance_in(const struct rmq_mapped_file *file, const uint8_t *base, int64_t *border,
                      int64_t end, struct rmq_error *err)
{
    assert(*border >= file->start && *border < file->start + file->size);

    const unsigned checks = RMQ_CHECK_PLACE | RMQ_CHECK_BODY_CRC | RMQ_CHECK_PROPERTY_CRC;
    int64_t file_end = file->start + file->size;
    int64_t stop = end < file_end ? end : file_end;
    while (*border < stop) {
        struct rmq_record record;
        const uint8_t *data = base + (*border - file->start);
        int64_t left = stop - *border;

        if (is_half(data, left, file_end - *border))
            return RMQ_OK;

        if (passes_file(data, left, file_end - *border))
            return rmq_fail(err, RMQ_CORRUPT, *border,
                            "%s: what begins at offset %" PRId64 " does not end with its file, of "
                            "which %" PRId64 " bytes are left; replicas need log files of one "
                            "size (mappedFileSizeCommitLog)",
                            file->path, *border, file_end - *border);

        int status = rmq_record_decode(data, (size_t)left, *border, checks, &record, err);
        if (status == RMQ_OK)
            status = check_queue_offset(&record, *border, err);
        if (status == RMQ_OK)
            *border += record.total_size;
        else if (status == RMQ_END && record.total_size == RMQ_BLANK_SIZE)
            *border = file_end;
        else if (status == RMQ_END)
            return rmq_fail(err, RMQ_CORRUPT, *border,
                            "%s: no record at offset %" PRId64 ", though bytes up to %" PRId64
                            " were appended",
                            file->path, *border, end);
        else
            return status;
    }
    return RMQ_OK;
}

int rmq_border_advance(struct rmq_file_queue *files, int64_t *border, int64_t end,
                       struct rmq_error *err)
{
    assert(*border >= 0 && end <= rmq_file_queue_end(files));

    while (*border < end) {
        struct rmq_mapped_file *file = NULL;
        int status = rmq_file_queue_pin(files, *border, &file, err);
        if (status != RMQ_OK)
            return status;

        int64_t file_end = file->start + file->size;
        status = advance_in(file, rmq_mapped_file_base(file), border, end, err);
        rmq_mapped_file_unpin(file);
        if (status != RMQ_OK || *border < file_end)
            return status;
    }
    return RMQ_OK;
}
