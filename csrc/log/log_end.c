#include "log/log_end.h"

#include <assert.h>
#include <string.h>

#include "log/scan.h"

#define PORTION 64

enum rmq_log_end rmq_log_end_classify(const struct rmq_log_end_facts *facts)
{
    assert(facts);

    if (facts->is_inside && (facts->is_known || !facts->has_bytes))
        return RMQ_LOG_END_DAMAGED;
    if (facts->is_overwritten || (!facts->is_passed && facts->is_vouched))
        return RMQ_LOG_END_CUT;
    if (facts->next_timestamp >= 0 && facts->next_timestamp < facts->last_timestamp)
        return RMQ_LOG_END_CUT;
    return RMQ_LOG_END_UNKNOWN;
}

bool rmq_log_end_is_vouched(int64_t last_timestamp, int64_t physic_timestamp, bool was_closed)
{
    return was_closed ? last_timestamp == physic_timestamp : last_timestamp >= physic_timestamp;
}

/* ---- units ---- */

static bool names_queue(const struct rmq_record *record, const struct rmq_queue *queue)
{
    assert(queue->topic);

    static const char further[] = "INNER_MULTI_DISPATCH\1";
    const char *text = record->properties;
    if (record->properties_size <= 0)
        return false;

    size_t size = (size_t)record->properties_size;
    return memmem(text, size, further, sizeof further - 1) &&
           memmem(text, size, queue->topic, queue->topic_size);
}

enum leads {
    LEADS_NOWHERE,   /* to bytes that are not a record of the unit's size */
    LEADS_ELSEWHERE, /* to a record with another position in another queue */
    LEADS_HOME,
};

/* A unit whose file was deleted cannot be shown to be wrong. */
static enum leads follow(struct rmq_file_queue *files, const struct rmq_queue *queue,
                         const struct rmq_unit *unit)
{
    assert(unit);

    struct rmq_mapped_file *file = NULL;
    struct rmq_record record;
    if (unit->physical_offset < rmq_file_queue_start(files))
        return LEADS_HOME;
    if (rmq_file_queue_pin(files, unit->physical_offset, &file, NULL) != RMQ_OK)
        return LEADS_NOWHERE;

    int64_t at = unit->physical_offset - file->start;
    enum leads leads = LEADS_NOWHERE;

    if (rmq_record_decode(rmq_mapped_file_base(file) + at, (size_t)(file->size - at),
                          unit->physical_offset, RMQ_CHECK_PLACE, &record, NULL) == RMQ_OK &&
        record.total_size == unit->size) {
        bool own = record.queue_id == queue->queue_id &&
                   (queue->is_batch || record.queue_offset == unit->queue_offset);
        if ((size_t)record.topic_size != queue->topic_size ||
            memcmp(record.topic, queue->topic, queue->topic_size) != 0)
            own = names_queue(&record, queue);
        leads = own ? LEADS_HOME : LEADS_ELSEWHERE;
    }

    rmq_mapped_file_unpin(file);
    return leads;
}

/* Goes back from the queue's last unit to the last unit whose record is before `from`, or is before
 * `end` and is the unit's own. *kept is the number after that unit. */
static int look_back(struct rmq_file_queue *files, struct rmq_queue *queue, int64_t from,
                     int64_t end, int64_t *kept, struct rmq_log_end_facts *facts,
                     struct rmq_error *err)
{
    assert(kept && facts);

    struct rmq_unit units[PORTION];
    int64_t first = 0;
    rmq_queue_numbers(queue, &first, kept);

    while (*kept > first) {
        size_t count = 0;
        int64_t low = *kept - first > PORTION ? *kept - PORTION : first;
        int status = rmq_queue_units(queue, low, *kept, units, &count, err);
        if (status != RMQ_OK || count < (size_t)(*kept - low))
            return status; /* fewer than requested: the file was removed meanwhile */

        for (; count > 0; --count, --*kept) {
            const struct rmq_unit *unit = &units[count - 1];
            if (rmq_unit_is_fill(unit))
                continue;
            if (unit->physical_offset >= end) {
                facts->is_passed = true;
                facts->is_known |= unit->physical_offset == end;
            } else if (unit->physical_offset < from || follow(files, queue, unit) == LEADS_HOME) {
                return RMQ_OK;
            } else {
                facts->is_overwritten = true;
            }
        }
    }
    return RMQ_OK;
}

/* ---- the log ---- */

static int look_ahead(struct rmq_file_queue *files, int64_t end, struct rmq_log_end_facts *facts,
                      struct rmq_error *err)
{
    assert(end >= 0);

    struct rmq_mapped_file *file = NULL;
    struct rmq_scan scan;
    struct rmq_record record;
    int64_t last = end;

    int status = rmq_file_queue_last_byte(files, end, &last, err);
    if (status != RMQ_OK)
        return status;

    facts->is_inside = rmq_file_queue_pin(files, end, &file, NULL) == RMQ_OK;
    if (file)
        rmq_mapped_file_unpin(file);
    facts->has_bytes = last > end;
    if (!facts->has_bytes)
        return RMQ_OK;

    rmq_scan_begin(&scan, files, end, last, RMQ_CHECK_PLACE | RMQ_CHECK_BODY_CRC);
    status = rmq_scan_resync(&scan, err);
    if (status == RMQ_OK)
        status = rmq_scan_next(&scan, &record, err);
    if (status == RMQ_OK)
        facts->next_timestamp = record.store_timestamp;
    rmq_scan_finish(&scan);
    return status == RMQ_END ? RMQ_OK : status;
}

int rmq_log_end_find(struct rmq_file_queue *files, struct rmq_queue_table *queues, int64_t end,
                     int64_t last_timestamp, bool is_vouched, enum rmq_log_end *found,
                     struct rmq_error *err)
{
    assert(found);

    struct rmq_log_end_facts facts = {
        .last_timestamp = last_timestamp, .next_timestamp = -1, .is_vouched = is_vouched};
    int status = look_ahead(files, end, &facts, err);

    for (struct rmq_queue *queue = rmq_queue_table_first(queues); queue && status == RMQ_OK;
         queue = rmq_queue_table_next(queue)) {
        int64_t kept = 0;
        status = look_back(files, queue, 0, end, &kept, &facts, err);
    }

    if (status == RMQ_OK)
        *found = rmq_log_end_classify(&facts);
    return status;
}

int rmq_log_end_has_leftover(struct rmq_file_queue *files, struct rmq_queue_table *queues,
                             int64_t from, int64_t end, bool *found, struct rmq_error *err)
{
    assert(found);

    int status = RMQ_OK;
    *found = false;
    for (struct rmq_queue *queue = rmq_queue_table_first(queues);
         queue && status == RMQ_OK && !*found; queue = rmq_queue_table_next(queue)) {
        struct rmq_unit unit;
        int64_t first = 0, last = 0;
        size_t count = 0;
        rmq_queue_numbers(queue, &first, &last);

        if (last > first)
            status = rmq_queue_units(queue, last - 1, last, &unit, &count, err);
        *found = status == RMQ_OK && count && !rmq_unit_is_fill(&unit) &&
                 unit.physical_offset >= from && unit.physical_offset < end &&
                 follow(files, queue, &unit) == LEADS_NOWHERE;
    }
    return status;
}

int rmq_log_end_trim(struct rmq_file_queue *files, struct rmq_queue_table *queues, int64_t from,
                     int64_t end, struct rmq_error *err)
{
    struct rmq_log_end_facts ignored = {0};
    int status = RMQ_OK;
    assert(files->options.read_only);
    for (struct rmq_queue *queue = rmq_queue_table_first(queues); queue && status == RMQ_OK;
         queue = rmq_queue_table_next(queue)) {
        int64_t kept = 0;
        status = look_back(files, queue, from, end, &kept, &ignored, err);
        if (status == RMQ_OK)
            status = rmq_queue_end_at(queue, kept, err);
    }
    return status;
}
