#include "store/read.h"

#include <assert.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "base/bytes.h"
#include "base/hash.h"
#include "store/store_internal.h"

/* Units copied from a queue at a time. */
#define RMQ_UNIT_CHUNK 256
/* How many units ahead records are fetched into the cache, and at most how many bytes of each.
 * Records of a queue are not neighbours in the log, so the processor cannot predict their
 * addresses. */
#define RMQ_UNIT_PREFETCH 4
#define RMQ_UNIT_PREFETCH_SIZE 2048

/* ---- one record ---- */

void rmq_found_release(struct rmq_found *found, size_t count)
{
    assert(found || count == 0);

    for (size_t i = 0; i < count; ++i)
        if (found[i].owns_pin)
            rmq_mapped_file_unpin(found[i].file);
}

static int decode(struct rmq_store *store, struct rmq_mapped_file *file, int64_t offset,
                  bool check_crc, struct rmq_record *record, struct rmq_error *err)
{
    assert(offset >= file->start);

    int64_t at = offset - file->start;
    int64_t end = rmq_file_queue_end(&store->log.files);
    int64_t stop = end < file->start + file->size ? end : file->start + file->size;

    if (offset >= stop)
        return rmq_fail(err, RMQ_OUT_OF_RANGE, offset,
                        "offset %" PRId64 " is behind the log's end %" PRId64, offset, end);

    return rmq_record_decode(rmq_mapped_file_base(file) + at, (size_t)(stop - offset), offset,
                             RMQ_CHECK_PLACE | (check_crc ? RMQ_CHECK_READER : 0u), record, err);
}

int rmq_store_at(struct rmq_store *store, int64_t offset, bool check_crc, struct rmq_found *found,
                 struct rmq_error *err)
{
    assert(found);

    struct rmq_mapped_file *file = NULL;
    struct rmq_record *record = &found->record;
    int status = rmq_store_check(store, err);
    if (status != RMQ_OK)
        return status;

    int64_t start = rmq_file_queue_start(&store->log.files),
            end = rmq_file_queue_end(&store->log.files);
    if (offset < start || offset >= end || start < 0)
        return rmq_fail(err, RMQ_OUT_OF_RANGE, offset,
                        "offset %" PRId64 " is outside of the log, %" PRId64 " to %" PRId64, offset,
                        start, end);

    status = rmq_file_queue_pin(&store->log.files, offset, &file, err);
    if (status == RMQ_OK)
        status = decode(store, file, offset, check_crc, record, err);

    if (status == RMQ_OK) {
        assert(record->physical_offset == offset);
        found->file = file;
        found->owns_pin = true;
        found->queue_offset = record->queue_offset;
        found->batch_size = 1;
        return RMQ_OK;
    }

    if (file)
        rmq_mapped_file_unpin(file);
    if (status == RMQ_END)
        return rmq_fail(err, record->total_size == RMQ_BLANK_SIZE ? RMQ_NOT_FOUND : RMQ_CORRUPT,
                        offset, "no record begins at offset %" PRId64, offset);
    return status;
}

/* ---- by queue offset ---- */

struct getting {
    struct rmq_store *store;
    struct rmq_queue *queue;
    const struct rmq_get_request *request;
    struct rmq_found *found;
    struct rmq_get_result *result;
    struct rmq_mapped_file *file; /* held between units */
    bool is_pin_found;            /* an entry of found owns the pin of file */
    int64_t bytes;
    size_t messages;
    int64_t removed_until; /* commit log offset before which units are skipped */
};

static void leave_file(struct getting *getting)
{
    assert(getting->file || !getting->is_pin_found);

    if (getting->file && !getting->is_pin_found)
        rmq_mapped_file_unpin(getting->file);
    getting->file = NULL;
    getting->is_pin_found = false;
}

/* A unit shows the position of its record before the record is read. The prefetch cannot fault. */
static inline void prefetch_unit(const struct getting *getting, const struct rmq_unit *unit)
{
    struct rmq_mapped_file *file = getting->file;
    if (!file || unit->size <= 0 || unit->physical_offset < file->start ||
        unit->physical_offset - file->start >= file->size)
        return;

    uintptr_t head =
        (uintptr_t)rmq_mapped_file_base(file) + (uintptr_t)(unit->physical_offset - file->start);
    uintptr_t size = (uintptr_t)unit->size;

    /* Into the second-level cache: so many records do not fit the first level. */
    for (uintptr_t at = 0; at < size && at < RMQ_UNIT_PREFETCH_SIZE; at += 64)
        __builtin_prefetch((const void *)(head + at), 0, 2);
    __builtin_prefetch((const void *)(head + size - 1));
}

static int enter_file(struct getting *getting, const struct rmq_unit *unit, struct rmq_error *err)
{
    int64_t offset = unit->physical_offset;
    struct rmq_mapped_file *file = getting->file;
    if (file && offset >= file->start && offset - file->start < file->size)
        return RMQ_OK;

    leave_file(getting);
    int status = rmq_file_queue_pin(&getting->store->log.files, offset, &getting->file, err);
    assert(status == RMQ_OK || !getting->file);

    prefetch_unit(getting, unit); /* not prefetched before: the file was not known */
    return status;
}

static bool tag_code_wanted(const struct rmq_get_request *request, int64_t code)
{
    assert(request->tags || request->tag_count == 0);

    if (request->tag_count == 0)
        return true;
    for (size_t i = 0; i < request->tag_count; ++i)
        if (rmq_java_hash(0, request->tags[i].data, request->tags[i].size) == code)
            return true;
    return false;
}

static bool tag_wanted(const struct rmq_get_request *request, const struct rmq_record *record)
{
    return request->tag_count == 0 ||
           rmq_properties_have_tag(record->properties, (size_t)record->properties_size,
                                   request->tags, request->tag_count);
}

/* Units of delayed messages have the deliver time instead of the code. */
static bool codes_are_hashes(const struct rmq_get_request *request)
{
    assert(request->topic);

    static const char schedule[] = "SCHEDULE_TOPIC_XXXX";
    return request->topic_size != sizeof schedule - 1 ||
           memcmp(request->topic, schedule, sizeof schedule - 1) != 0;
}

/* The record's position in the queue of its topic, by the rules of dispatching. */
static bool is_own_unit(const struct getting *getting, const struct rmq_unit *unit,
                        const struct rmq_record *record)
{
    assert(getting->request && getting->queue);

    struct rmq_dispatch_properties properties;
    if (record->queue_id != getting->request->queue_id)
        return false;
    if (!getting->queue->is_batch && record->queue_offset == unit->queue_offset)
        return true;

    rmq_properties_scan(record->properties, (size_t)record->properties_size, &properties);
    bool is_inner =
        properties.inner_num > 0 && properties.inner_num <= INT16_MAX && properties.inner_base >= 0;

    return unit->queue_offset == (is_inner ? properties.inner_base : record->queue_offset) &&
           (!getting->queue->is_batch || unit->batch_size == (is_inner ? properties.inner_num : 1));
}

/* Light queues point at records of other topics, which contain queue name and offset. */
static bool is_light_unit(const struct rmq_get_request *request, const struct rmq_unit *unit,
                          const struct rmq_record *record)
{
    assert(request->topic);

    struct rmq_dispatch_properties properties;
    rmq_properties_scan(record->properties, (size_t)record->properties_size, &properties);
    struct rmq_slice names = properties.multi_dispatch, offsets = properties.multi_queue_offset;

    while (names.data && offsets.data) {
        const char *name_end = memchr(names.data, ',', names.size);
        const char *offset_end = memchr(offsets.data, ',', offsets.size);
        size_t name_size = name_end ? (size_t)(name_end - names.data) : names.size;
        struct rmq_slice offset = {offsets.data,
                                   offset_end ? (size_t)(offset_end - offsets.data) : offsets.size};

        int64_t value = -1;
        if (name_size == request->topic_size &&
            memcmp(names.data, request->topic, name_size) == 0 && rmq_parse_i64(offset, &value) &&
            value == unit->queue_offset)
            return true;

        names = name_end ? (struct rmq_slice){name_end + 1, names.size - name_size - 1}
                         : (struct rmq_slice){NULL, 0};
        offsets = offset_end ? (struct rmq_slice){offset_end + 1, offsets.size - offset.size - 1}
                             : (struct rmq_slice){NULL, 0};
    }
    return false;
}

static int check_owner(const struct getting *getting, const struct rmq_unit *unit,
                       const struct rmq_record *record, struct rmq_error *err)
{
    assert(record->total_size >= RMQ_RECORD_SIZE_MIN);

    const struct rmq_get_request *request = getting->request;
    bool is_own = (size_t)record->topic_size == request->topic_size &&
                  memcmp(record->topic, request->topic, request->topic_size) == 0;

    if (record->total_size == unit->size &&
        (is_own ? is_own_unit(getting, unit, record) : is_light_unit(request, unit, record)))
        return RMQ_OK;

    return rmq_fail(err, RMQ_CORRUPT, unit->physical_offset,
                    "consume queue %.*s/%d: unit %" PRId64 " points at another "
                    "record (physical offset %" PRId64 "); rebuild it with rmqstore repair",
                    (int)request->topic_size, request->topic, request->queue_id, unit->queue_offset,
                    unit->physical_offset);
}

enum take { TAKEN, PASSED, ENOUGH };

static int take_unit(struct getting *getting, const struct rmq_unit *unit, enum take *take,
                     struct rmq_error *err)
{
    const struct rmq_get_request *request = getting->request;

    *take = PASSED;
    if (rmq_unit_is_fill(unit) || unit->physical_offset < getting->removed_until)
        return RMQ_OK;
    if (codes_are_hashes(request) && !tag_code_wanted(request, unit->tags_code))
        return RMQ_OK;

    size_t count = getting->result->count;
    if (count > 0 && (getting->messages + (size_t)unit->batch_size > request->max_count ||
                      getting->bytes + unit->size > request->max_bytes)) {
        *take = ENOUGH;
        return RMQ_OK;
    }

    struct rmq_found *found = &getting->found[count];
    int status = enter_file(getting, unit, err);
    if (status == RMQ_NOT_FOUND &&
        unit->physical_offset < rmq_file_queue_start(&getting->store->log.files)) {
        /* Expired: the record's file was deleted, and its units are deleted next. */
        int64_t size = getting->store->log.files.options.file_size;
        getting->removed_until = unit->physical_offset - unit->physical_offset % size + size;
        if (count == 0)
            getting->result->status = RMQ_GET_MESSAGE_WAS_REMOVING;
        return RMQ_OK;
    }

    if (status == RMQ_OK)
        status = decode(getting->store, getting->file, unit->physical_offset, request->check_crc,
                        &found->record, err);
    if (status == RMQ_END || status == RMQ_NOT_FOUND || status == RMQ_OUT_OF_RANGE)
        status = rmq_fail(err, RMQ_CORRUPT, unit->physical_offset,
                          "consume queue %.*s/%d: unit %" PRId64 " points at physical offset "
                          "%" PRId64 ", where no record is; rebuild it with rmqstore repair",
                          (int)request->topic_size, request->topic, request->queue_id,
                          unit->queue_offset, unit->physical_offset);
    if (status == RMQ_OK)
        status = check_owner(getting, unit, &found->record, err);

    /* While the log is being cut, the queue's end was lowered before. */
    if (status == RMQ_CORRUPT && unit->queue_offset >= rmq_queue_max(getting->queue)) {
        *take = ENOUGH;
        return RMQ_OK;
    }

    if (status != RMQ_OK || !tag_wanted(request, &found->record))
        return status;

    found->file = getting->file;
    found->owns_pin = !getting->is_pin_found;
    found->queue_offset = unit->queue_offset;
    found->batch_size = unit->batch_size;
    getting->is_pin_found = true;

    ++getting->result->count;
    getting->messages += (size_t)unit->batch_size;
    getting->bytes += unit->size;
    *take = TAKEN;
    return RMQ_OK;
}

static int take_units(struct getting *getting, struct rmq_error *err)
{
    struct rmq_unit units[RMQ_UNIT_CHUNK];
    struct rmq_get_result *result = getting->result;
    int64_t offset = getting->request->offset;
    size_t seen = 0, max_units = getting->request->max_units;

    while (offset < result->max_offset && getting->messages < getting->request->max_count &&
           (max_units == 0 || seen < max_units)) {
        size_t count = 0;
        assert(offset >= 0);
        size_t room = getting->request->max_count - getting->messages;
        assert(room > 0);
        int status = rmq_queue_read(getting->queue, offset, units,
                                    room < RMQ_UNIT_CHUNK ? room : RMQ_UNIT_CHUNK, &count, err);
        if (status != RMQ_OK)
            return status;

        if (count == 0) {
            if (result->count == 0 && offset == getting->request->offset)
                result->status = RMQ_GET_OFFSET_FOUND_NULL;
            return RMQ_OK;
        }

        for (size_t i = 0; i < count; ++i) {
            enum take take = PASSED;
            if (i + RMQ_UNIT_PREFETCH < count)
                prefetch_unit(getting, &units[i + RMQ_UNIT_PREFETCH]);
            status = take_unit(getting, &units[i], &take, err);
            if (status != RMQ_OK || take == ENOUGH)
                return status;
            offset = units[i].queue_offset + units[i].batch_size;
            result->next_offset = offset;
        }
        seen += count;
    }
    return RMQ_OK;
}

static bool answer_from_bounds(const struct rmq_get_request *request, struct rmq_get_result *result)
{
    assert(request && result);

    if (result->max_offset == 0) {
        result->status = RMQ_GET_NO_MESSAGE_IN_QUEUE;
        result->next_offset = 0;
    } else if (request->offset < result->min_offset) {
        result->status = RMQ_GET_OFFSET_TOO_SMALL;
        result->next_offset = result->min_offset;
    } else if (request->offset == result->max_offset) {
        result->status = RMQ_GET_OFFSET_OVERFLOW_ONE;
        result->next_offset = request->offset;
    } else if (request->offset > result->max_offset) {
        result->status = RMQ_GET_OFFSET_OVERFLOW_BADLY;
        result->next_offset = result->max_offset;
    } else {
        return false;
    }
    return true;
}

static int get(struct rmq_store *store, const struct rmq_get_request *request,
               struct rmq_found *found, struct rmq_get_result *result, struct rmq_error *err)
{
    memset(result, 0, sizeof *result);
    int status = rmq_store_check(store, err);
    if (status != RMQ_OK)
        return status;

    struct rmq_queue *queue = rmq_queue_table_find(&store->queues, request->topic,
                                                   request->topic_size, request->queue_id);
    if (!queue) {
        result->status = RMQ_GET_NO_MATCHED_LOGIC_QUEUE;
        return RMQ_OK;
    }

    result->min_offset = rmq_queue_min(queue);
    result->max_offset = rmq_queue_max(queue);
    if (answer_from_bounds(request, result))
        return RMQ_OK;

    result->status = RMQ_GET_NO_MATCHED_MESSAGE;
    result->next_offset = request->offset;

    struct getting getting = {
        .store = store, .queue = queue, .request = request, .found = found, .result = result};
    status = take_units(&getting, err);
    leave_file(&getting);

    assert(result->count <= request->max_count);
    if (result->count > 0)
        result->status = RMQ_GET_FOUND;
    return status;
}

int rmq_store_get(struct rmq_store *store, const struct rmq_get_request *request,
                  struct rmq_found *found, struct rmq_get_result *result, struct rmq_error *err)
{
    assert(request->topic && result && (found || request->max_count == 0));

    int status = get(store, request, found, result, err);

    /* The queue's file was removed after its bounds were read, perhaps by another process. */
    for (int tries = 0; status == RMQ_OK && result->status == RMQ_GET_OFFSET_FOUND_NULL &&
                        tries < RMQ_READ_ONLY_TRIES;
         ++tries) {
        status = rmq_store_refresh(store, err);
        if (status == RMQ_OK)
            status = get(store, request, found, result, err);
    }
    return status;
}

/* ---- by time ---- */

/* Finds the first unit at or after *at, before stop, whose record can be read, and its store time.
 * Fill units and damaged records have no store time. *at is stop when there is no such unit.
 * *is_gone is set where the file of a unit was removed since the queue's bounds were known. */
static int find_time(struct rmq_store *store, struct rmq_queue *queue, int64_t stop, int64_t *at,
                     int64_t *timestamp, bool *is_gone, struct rmq_error *err)
{
    assert(at && timestamp && is_gone);

    while (*at < stop) {
        struct rmq_unit unit;
        struct rmq_mapped_file *file = NULL;
        struct rmq_record record;
        size_t count = 0;

        int status = rmq_queue_read(queue, *at, &unit, 1, &count, err);
        *is_gone = *is_gone || (status == RMQ_OK && count == 0);
        if (status == RMQ_OK && count == 1 && !rmq_unit_is_fill(&unit))
            status = rmq_file_queue_pin(&store->log.files, unit.physical_offset, &file, err);

        if (file) {
            status = decode(store, file, unit.physical_offset, false, &record, NULL);
            rmq_mapped_file_unpin(file);
            if (status == RMQ_OK) {
                *timestamp = record.store_timestamp;
                return RMQ_OK;
            }
        } else if (status != RMQ_OK && status != RMQ_NOT_FOUND) {
            return status;
        }

        int64_t next = count == 1 ? unit.queue_offset + unit.batch_size : stop;
        *at = next > *at && next < stop ? next : stop;
    }
    return RMQ_OK;
}

static int find_by_time(struct rmq_store *store, struct rmq_queue *queue, int64_t timestamp,
                        bool upper, int64_t *offset, bool *is_gone, struct rmq_error *err)
{
    assert(offset);

    int64_t min = rmq_queue_min(queue), max = rmq_queue_max(queue);
    int64_t low = min, high = max, last = min;

    while (low < high) {
        int64_t middle = low + (high - low) / 2, at = middle, found = 0;
        int status = find_time(store, queue, high, &at, &found, is_gone, err);
        if (status != RMQ_OK)
            return status;
        if (at < high && (found < timestamp || (upper && found == timestamp))) {
            last = at;
            low = at + 1;
        } else {
            high = middle;
        }
    }

    /* No record can be read between here and the first record that is late enough. */
    int64_t found = 0;
    int status = upper ? RMQ_OK : find_time(store, queue, max, &low, &found, is_gone, err);
    *offset = upper ? last : low;
    return status;
}

int rmq_store_offset_by_time(struct rmq_store *store, const char *topic, size_t topic_size,
                             int32_t queue_id, int64_t timestamp, bool upper, int64_t *offset,
                             struct rmq_error *err)
{
    assert(topic && offset);

    int status = rmq_store_check(store, err);
    if (status != RMQ_OK)
        return status;

    struct rmq_queue *queue = rmq_queue_table_find(&store->queues, topic, topic_size, queue_id);
    if (!queue)
        return rmq_fail(err, RMQ_NOT_FOUND, -1, "no queue %d of topic %.*s", queue_id,
                        (int)topic_size, topic);

    for (int tries = 0; tries < RMQ_READ_ONLY_TRIES; ++tries) {
        bool is_gone = false;
        status = find_by_time(store, queue, timestamp, upper, offset, &is_gone, err);
        if (status == RMQ_OK && is_gone)
            status = rmq_store_refresh(store, err);
        if (status != RMQ_OK || !is_gone)
            break;
    }
    return status;
}
