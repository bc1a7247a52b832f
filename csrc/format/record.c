#include "format/record.h"

#include <assert.h>
#include <stdatomic.h>
#include <string.h>

#include "base/bytes.h"
#include "base/crc32.h"
#include "base/hash.h"

#define TOPIC_SIZE_MAX_V1 127
#define CRC_NAME "__CRC32#"
#define CRC_NAME_SIZE 8
#define CRC_DIGITS 10
#define SECTOR_SIZE 512u
_Static_assert(CRC_NAME_SIZE + 1 + CRC_DIGITS + 1 == RMQ_PROPERTY_CRC_SIZE, "CRC property layout");
_Static_assert(RMQ_RECORD_FIXED_SIZE + 2 * 8 + 1 + 2 == RMQ_RECORD_SIZE_MIN, "record layout");

/* The bytes before the body. */
static size_t head_size(bool born_v6, bool store_v6)
{
    return RMQ_RECORD_FIXED_SIZE + rmq_host_size(born_v6) + rmq_host_size(store_v6);
}

/* ---- encoding ---- */

static bool lacks_separator(const char *text, size_t size)
{
    return size > 0 && text[size - 1] != RMQ_PROPERTY_SEPARATOR;
}

static int check_topic(const struct rmq_message *message, bool version_by_topic_size,
                       struct rmq_error *err)
{
    if (message->topic_size == 0)
        return rmq_fail(err, RMQ_MESSAGE_ILLEGAL, -1, "topic is empty");

    size_t limit = version_by_topic_size ? RMQ_TOPIC_SIZE_MAX : TOPIC_SIZE_MAX_V1;
    if (message->topic_size > limit)
        return rmq_fail(err, RMQ_MESSAGE_ILLEGAL, -1, "topic has %zu bytes, the limit is %zu",
                        message->topic_size, limit);
    return RMQ_OK;
}

static int plan_properties(const struct rmq_message *message, struct rmq_record_plan *plan,
                           struct rmq_error *err)
{
    assert(message->properties || message->properties_size == 0);

    size_t own = message->properties_size;
    size_t more = message->more_properties_size;
    if (own > RMQ_PROPERTIES_SIZE_MAX || more > RMQ_PROPERTIES_SIZE_MAX)
        return rmq_fail(err, RMQ_PROPERTIES_TOO_LARGE, -1,
                        "properties have %zu and %zu bytes, the limit is %d", own, more,
                        RMQ_PROPERTIES_SIZE_MAX);

    bool own_is_open = lacks_separator(message->properties, own);
    bool more_is_open = lacks_separator(message->more_properties, more);
    plan->separate_own = own_is_open && more > 0;
    plan->separate_last = plan->has_crc_property && (more > 0 ? more_is_open : own_is_open);
    size_t size = own + more + plan->separate_own + plan->separate_last +
                  (plan->has_crc_property ? RMQ_PROPERTY_CRC_SIZE : 0);
    if (size > RMQ_PROPERTIES_SIZE_MAX)
        return rmq_fail(err, RMQ_PROPERTIES_TOO_LARGE, -1,
                        "properties take %zu bytes, the limit is %d", size,
                        RMQ_PROPERTIES_SIZE_MAX);

    plan->properties_size = (uint16_t)size;
    return RMQ_OK;
}

int rmq_record_plan(const struct rmq_message *message, const struct rmq_record_limits *limits,
                    struct rmq_record_plan *plan, struct rmq_error *err)
{
    assert(message->born_host.size == 4 || message->born_host.size == 16);
    assert(message->store_host.size == 4 || message->store_host.size == 16);
    assert(limits->body_size_max >= 0 && limits->record_size_max >= 0);

    int status = check_topic(message, limits->version_by_topic_size, err);
    if (status != RMQ_OK)
        return status;

    /* Characters need not be counted first: a topic of more than 127 characters has more than 127
     * bytes. */
    plan->is_v2 = message->topic_size > TOPIC_SIZE_MAX_V1;
    plan->has_crc_property = limits->append_property_crc;
    status = plan_properties(message, plan, err);
    if (status != RMQ_OK)
        return status;

    if (message->body_size > (size_t)limits->body_size_max)
        return rmq_fail(err, RMQ_MESSAGE_ILLEGAL, -1,
                        "body has %zu bytes, the limit is %d (maxMessageSize)", message->body_size,
                        limits->body_size_max);

    bool born_v6 = message->born_host.size == 16;
    bool store_v6 = message->store_host.size == 16;
    size_t total_size = head_size(born_v6, store_v6) + message->body_size + (plan->is_v2 ? 2 : 1) +
                        message->topic_size + 2 + plan->properties_size;
    if (total_size > (size_t)limits->record_size_max)
        return rmq_fail(err, RMQ_MESSAGE_ILLEGAL, -1, "record takes %zu bytes, the limit is %d",
                        total_size, limits->record_size_max);

    assert(total_size > RMQ_RECORD_SIZE_MIN);
    plan->total_size = (int32_t)total_size;
    plan->sys_flag = (message->sys_flag & ~(RMQ_FLAG_BORN_V6 | RMQ_FLAG_STORE_V6)) |
                     (born_v6 ? RMQ_FLAG_BORN_V6 : 0) | (store_v6 ? RMQ_FLAG_STORE_V6 : 0);
    return RMQ_OK;
}

static uint8_t *put_host(uint8_t *to, const struct rmq_host *host)
{
    /* The compiler turns copies of constant size into plain moves. */
    if (host->size == 4)
        memcpy(to, host->address, 4);
    else
        memcpy(to, host->address, 16);

    rmq_put_i32(to + host->size, host->port);
    return to + host->size + 4;
}

/* memcpy must not get NULL, which absent parts may be. */
static uint8_t *put_bytes(uint8_t *to, const void *from, size_t size)
{
    if (size > 0)
        memcpy(to, from, size);
    return to + size;
}

static void put_crc_property(uint8_t *to, uint32_t crc)
{
    assert(crc <= INT32_MAX);

    memcpy(to, CRC_NAME, CRC_NAME_SIZE);
    to[CRC_NAME_SIZE] = RMQ_NAME_VALUE_SEPARATOR;
    for (int i = 0; i < CRC_DIGITS; ++i, crc /= 10)
        to[CRC_NAME_SIZE + 1 + i] = (uint8_t)('0' + crc % 10);
    to[RMQ_PROPERTY_CRC_SIZE - 1] = RMQ_PROPERTY_SEPARATOR;
    assert(crc == 0);
}

void rmq_record_encode(uint8_t *out, const struct rmq_message *message,
                       const struct rmq_record_plan *plan, const struct rmq_placement *placement)
{
    assert(plan->total_size > RMQ_RECORD_SIZE_MIN);
    assert(message->body_size < (size_t)plan->total_size);

    /* A reader in another process treats bytes with a size as a whole record, so the size is stored
     * last. The CRC property covers the size; such a reader then checks the CRC instead. */
    if (plan->has_crc_property)
        rmq_put_i32(out, plan->total_size);
    rmq_put_i32(out + 4, (int32_t)(plan->is_v2 ? RMQ_MAGIC_V2 : RMQ_MAGIC_V1));
    rmq_put_i32(out + 8, placement->body_crc);
    rmq_put_i32(out + 12, message->queue_id);
    rmq_put_i32(out + 16, message->flag);
    rmq_put_i64(out + 20, placement->queue_offset);
    rmq_put_i64(out + 28, placement->physical_offset);
    rmq_put_i32(out + 36, plan->sys_flag);
    rmq_put_i64(out + 40, message->born_timestamp == RMQ_BORN_WHEN_STORED
                              ? placement->store_timestamp
                              : message->born_timestamp);

    uint8_t *to = put_host(out + 48, &message->born_host);
    rmq_put_i64(to, placement->store_timestamp);
    to = put_host(to + 8, &message->store_host);

    rmq_put_i32(to, message->reconsume_times);
    rmq_put_i64(to + 4, message->prepared_transaction_offset);
    rmq_put_i32(to + 12, (int32_t)message->body_size);
    to = put_bytes(to + 16, message->body, message->body_size);

    if (plan->is_v2) {
        rmq_put_i16(to, (int16_t)message->topic_size);
        to += 2;
    } else {
        *to++ = (uint8_t)message->topic_size;
    }

    to = put_bytes(to, message->topic, message->topic_size);

    rmq_put_i16(to, (int16_t)plan->properties_size);
    to = put_bytes(to + 2, message->properties, message->properties_size);
    if (plan->separate_own)
        *to++ = RMQ_PROPERTY_SEPARATOR;
    to = put_bytes(to, message->more_properties, message->more_properties_size);
    if (plan->separate_last)
        *to++ = RMQ_PROPERTY_SEPARATOR;

    if (plan->has_crc_property) {
        put_crc_property(to, (uint32_t)rmq_crc32_java(out, (size_t)(to - out)));
        to += RMQ_PROPERTY_CRC_SIZE;
    }
    assert(to == out + plan->total_size);
    if (!plan->has_crc_property) {
        atomic_thread_fence(memory_order_release);
        rmq_put_i32(out, plan->total_size);
    }
}

void rmq_blank_encode(uint8_t *out, int32_t bytes_left)
{
    assert(bytes_left >= RMQ_BLANK_SIZE);
    rmq_put_i32(out, bytes_left);
    rmq_put_i32(out + 4, (int32_t)RMQ_MAGIC_BLANK);
}

/* ---- decoding ---- */

/* Classifies the first bytes of a record. RMQ_OK: a record of *size bytes, all of which are
 * available. The size is read once: a second read may return another size, if a writer cuts its
 * log. */
static int decode_head(const uint8_t *data, size_t available, int64_t place, int32_t *size,
                       struct rmq_record *record, struct rmq_error *err)
{
    record->total_size = 0;
    if (available < RMQ_BLANK_SIZE) {
        for (size_t at = 0; at < available; ++at)
            if (data[at] != 0)
                return rmq_fail(err, RMQ_CORRUPT, place, "record at %lld: only %zu bytes are left",
                                (long long)place, available);
        return RMQ_END;
    }

    int32_t total_size = *size = rmq_get_i32(data);
    /* A writer in another process stores the size last. */
    atomic_thread_fence(memory_order_acquire);

    uint32_t magic = (uint32_t)rmq_get_i32(data + 4);
    if (magic != RMQ_MAGIC_V1 && magic != RMQ_MAGIC_V2) {
        if (magic == RMQ_MAGIC_BLANK) {
            record->total_size = RMQ_BLANK_SIZE;
            return RMQ_END;
        }
        if (magic == 0 && total_size == 0)
            return RMQ_END;
        return rmq_fail(err, RMQ_CORRUPT, place, "record at %lld: unknown magic 0x%08X",
                        (long long)place, magic);
    }

    if (total_size < RMQ_RECORD_SIZE_MIN)
        return rmq_fail(err, RMQ_CORRUPT, place,
                        "record at %lld: %d bytes are less than any record takes", (long long)place,
                        total_size);
    if ((size_t)total_size > available)
        return rmq_fail(err, RMQ_CORRUPT, place, "record at %lld: says %d bytes, %zu are left",
                        (long long)place, total_size, available);

    record->version = magic == RMQ_MAGIC_V2 ? 2 : 1;
    record->data = data;
    return RMQ_OK;
}

static const uint8_t *get_host(const uint8_t *from, bool v6, struct rmq_host *host)
{
    host->size = v6 ? 16 : 4;
    if (v6)
        memcpy(host->address, from, 16);
    else
        memcpy(host->address, from, 4);

    host->port = rmq_get_i32(from + host->size);
    return from + host->size + 4;
}

/* Reads topic and properties after the body; false unless they end exactly at the end of the
 * record. */
static bool decode_tail(const uint8_t *at, size_t left, struct rmq_record *record)
{
    size_t length_size = record->version == 2 ? 2 : 1;
    if (left < length_size + 2)
        return false;

    record->topic_size = length_size == 2 ? rmq_get_i16(at) : (int8_t)at[0];
    at += length_size;
    left -= length_size + 2;
    if (record->topic_size < 0 || (size_t)record->topic_size > left)
        return false;

    record->topic = (const char *)at;
    at += record->topic_size;
    left -= (size_t)record->topic_size;

    int32_t properties_size = rmq_get_i16(at);
    record->properties_size = properties_size > 0 ? properties_size : 0;
    record->properties = (const char *)at + 2;
    return (size_t)record->properties_size == left;
}

/* Fills the fields of a record of total_size bytes; false when its lengths disagree. */
static bool decode_fields(const uint8_t *data, size_t total_size, struct rmq_record *record)
{
    assert(total_size >= RMQ_RECORD_SIZE_MIN);

    record->sys_flag = rmq_get_i32(data + 36);
    bool born_v6 = (record->sys_flag & RMQ_FLAG_BORN_V6) != 0;
    bool store_v6 = (record->sys_flag & RMQ_FLAG_STORE_V6) != 0;
    size_t before_body = head_size(born_v6, store_v6);
    if (total_size < before_body)
        return false;

    record->body_crc = rmq_get_i32(data + 8);
    record->queue_id = rmq_get_i32(data + 12);
    record->flag = rmq_get_i32(data + 16);
    record->queue_offset = rmq_get_i64(data + 20);
    record->physical_offset = rmq_get_i64(data + 28);
    record->born_timestamp = rmq_get_i64(data + 40);

    const uint8_t *at = get_host(data + 48, born_v6, &record->born_host);
    record->store_timestamp = rmq_get_i64(at);
    at = get_host(at + 8, store_v6, &record->store_host);

    record->reconsume_times = rmq_get_i32(at);
    record->prepared_transaction_offset = rmq_get_i64(at + 4);
    int32_t body_size = rmq_get_i32(at + 12);
    record->body_size = body_size > 0 ? body_size : 0;
    record->body = at + 16;

    size_t left = total_size - before_body;
    if ((size_t)record->body_size > left)
        return false;
    return decode_tail(record->body + record->body_size, left - (size_t)record->body_size, record);
}

/* Whether the properties end in a CRC property; *matches is whether it matches the bytes before it.
 * If one byte of its name or of a separator is damaged, the record stays protected, because the
 * digits still match the record. */
static bool has_crc_property(const struct rmq_record *record, bool *matches)
{
    assert(record->total_size > record->properties_size && record->properties_size >= 0);

    static const uint8_t separator = RMQ_PROPERTY_SEPARATOR;
    *matches = false;
    if (record->properties_size < RMQ_PROPERTY_CRC_SIZE)
        return false;

    const uint8_t *tail = record->data + record->total_size - RMQ_PROPERTY_CRC_SIZE;
    bool begins_pair = record->properties_size == RMQ_PROPERTY_CRC_SIZE || tail[-1] == separator;
    int unlike = !begins_pair + (tail[RMQ_PROPERTY_CRC_SIZE - 1] != separator);
    for (size_t i = 0; i <= CRC_NAME_SIZE && unlike <= 1; ++i)
        unlike += tail[i] != (uint8_t)(CRC_NAME "\x01")[i];
    if (unlike > 1)
        return false;

    size_t size = (size_t)(tail - record->data);
    uint32_t crc = begins_pair ? rmq_crc32(0, record->data, size)
                               : rmq_crc32(rmq_crc32(0, record->data, size - 1), &separator, 1);
    uint8_t expected[RMQ_PROPERTY_CRC_SIZE];
    put_crc_property(expected, crc & 0x7FFFFFFFu);

    bool agrees = memcmp(tail + CRC_NAME_SIZE + 1, expected + CRC_NAME_SIZE + 1, CRC_DIGITS) == 0;
    *matches = agrees && unlike == 0;
    return agrees || unlike == 0;
}

/* Whether a disk sector, which is written whole or not at all, holds only zeros of the record.
 * Lengths and CRC cover the bytes before the end of the body. */
static bool has_lost_sector(const struct rmq_record *record)
{
    const uint8_t *end = record->data + record->total_size;
    const uint8_t *tail = record->body + record->body_size;
    /* Two zeros at the end mean that there are no properties. */
    const uint8_t *stop = record->properties_size > 0 ? end : end - 2;
    for (const uint8_t *at = tail + (SECTOR_SIZE - (uintptr_t)tail % SECTOR_SIZE) % SECTOR_SIZE;
         at < stop; at += SECTOR_SIZE) {
        size_t size = (size_t)(end - at) < SECTOR_SIZE ? (size_t)(end - at) : SECTOR_SIZE;
        if (at[0] == 0 && memcmp(at, at + 1, size - 1) == 0)
            return true;
    }
    return false;
}

static bool ends_in_nul(const struct rmq_record *record)
{
    assert(record->topic_size > 0);

    return record->topic[record->topic_size - 1] == 0 ||
           (record->properties_size > 0 && record->properties[record->properties_size - 1] == 0);
}

static int check_record(const struct rmq_record *record, int64_t place, unsigned checks,
                        struct rmq_error *err)
{
    if ((checks & RMQ_CHECK_PLACE) && record->physical_offset != place)
        return rmq_fail(err, RMQ_CORRUPT, place, "record at %lld: says it lies at %lld",
                        (long long)place, (long long)record->physical_offset);

    if ((checks & RMQ_CHECK_BODY_CRC) && record->body_size > 0) {
        int32_t crc = rmq_crc32_java(record->body, (size_t)record->body_size);
        if (crc != record->body_crc)
            return rmq_fail(err, RMQ_CORRUPT, place,
                            "record at %lld: body CRC is 0x%08X, stored is 0x%08X",
                            (long long)place, (unsigned)crc, (unsigned)record->body_crc);
    }

    if ((checks & RMQ_CHECK_LOST) && has_lost_sector(record))
        return rmq_fail(err, RMQ_CORRUPT, place, "record at %lld: a part of it was never written",
                        (long long)place);

    if (checks & (RMQ_CHECK_PROPERTY_CRC | RMQ_NEED_PROPERTY_CRC)) {
        bool matches;
        if (!has_crc_property(record, &matches)) {
            if (checks & RMQ_NEED_PROPERTY_CRC)
                return rmq_fail(err, RMQ_CORRUPT, place, "record at %lld: has no CRC property",
                                (long long)place);

            if ((checks & RMQ_CHECK_TAIL) && record->topic_size > 0 && ends_in_nul(record))
                return rmq_fail(err, RMQ_CORRUPT, place,
                                "record at %lld: topic or properties end in a NUL",
                                (long long)place);
        } else if (!matches) {
            return rmq_fail(err, RMQ_CORRUPT, place,
                            "record at %lld: CRC property does not match its bytes",
                            (long long)place);
        }
    }
    return RMQ_OK;
}

int rmq_record_decode(const uint8_t *data, size_t available, int64_t place, unsigned checks,
                      struct rmq_record *record, struct rmq_error *err)
{
    assert(data || available == 0);
    assert(record);

    int32_t total_size = 0;
    int status = decode_head(data, available, place, &total_size, record, err);
    if (status != RMQ_OK)
        return status;

    if (!decode_fields(data, (size_t)total_size, record))
        return rmq_fail(err, RMQ_CORRUPT, place,
                        "record at %lld: its lengths do not add up to its %d bytes",
                        (long long)place, total_size);

    record->total_size = total_size;
    return checks == RMQ_CHECK_FORM ? RMQ_OK : check_record(record, place, checks, err);
}

/* ---- moving ---- */

bool rmq_record_has_crc_property(const struct rmq_record *record)
{
    assert(record->data && record->total_size >= RMQ_RECORD_SIZE_MIN);

    static const uint8_t name[] = {RMQ_PROPERTY_SEPARATOR,  '_', '_', 'C', 'R', 'C', '3', '2', '#',
                                   RMQ_NAME_VALUE_SEPARATOR};
    _Static_assert(sizeof name == 1 + CRC_NAME_SIZE + 1, "separator, name, separator");
    if (record->properties_size < RMQ_PROPERTY_CRC_SIZE)
        return false;

    const uint8_t *tail = record->data + record->total_size - RMQ_PROPERTY_CRC_SIZE;
    if (tail[RMQ_PROPERTY_CRC_SIZE - 1] != RMQ_PROPERTY_SEPARATOR)
        return false;

    return record->properties_size == RMQ_PROPERTY_CRC_SIZE
               ? memcmp(tail, name + 1, sizeof name - 1) == 0
               : memcmp(tail - 1, name, sizeof name) == 0;
}

void rmq_record_move(uint8_t *out, const struct rmq_record *record,
                     const struct rmq_placement *placement)
{
    assert(record->total_size >= RMQ_RECORD_SIZE_MIN);
    assert(record->born_host.size == 4 || record->born_host.size == 16);

    size_t size = (size_t)record->total_size;
    bool has_crc = rmq_record_has_crc_property(record);

    /* The size is stored first or last, as in rmq_record_encode. */
    if (has_crc)
        rmq_put_i32(out, record->total_size);
    memcpy(out + 4, record->data + 4, size - 4);
    rmq_put_i64(out + 20, placement->queue_offset);
    rmq_put_i64(out + 28, placement->physical_offset);
    rmq_put_i64(out + 48 + record->born_host.size + 4, placement->store_timestamp);

    if (has_crc) {
        uint8_t *tail = out + size - RMQ_PROPERTY_CRC_SIZE;
        put_crc_property(tail, (uint32_t)rmq_crc32_java(out, size - RMQ_PROPERTY_CRC_SIZE));
    } else {
        atomic_thread_fence(memory_order_release);
        rmq_put_i32(out, record->total_size);
    }
}

/* ---- copies ---- */

bool rmq_record_is_unchanged(const uint8_t *copy, const uint8_t *data, size_t size)
{
    assert((copy && data) || size == 0);

    atomic_thread_fence(memory_order_acquire);
    return memcmp(copy, data, size) == 0;
}

bool rmq_record_head_is_unchanged(const struct rmq_record *record)
{
    assert(record->data);

    atomic_thread_fence(memory_order_acquire);
    const uint8_t *data = record->data;
    const uint8_t *store_timestamp = data + 48 + record->born_host.size + 4;

    return rmq_get_i32(data) == record->total_size && rmq_get_i32(data + 8) == record->body_crc &&
           rmq_get_i32(data + 12) == record->queue_id &&
           rmq_get_i64(data + 20) == record->queue_offset &&
           rmq_get_i64(data + 28) == record->physical_offset &&
           rmq_get_i64(store_timestamp) == record->store_timestamp;
}

/* ---- values derived from a record ---- */

#define SCHEDULE_TOPIC "SCHEDULE_TOPIC_XXXX"
#define UNKNOWN_DELAY_MS 1000

int64_t rmq_record_tags_code(const struct rmq_record *record,
                             const struct rmq_dispatch_properties *properties,
                             const int64_t *delays_ms, size_t delay_count)
{
    bool is_scheduled = record->topic_size == sizeof SCHEDULE_TOPIC - 1 &&
                        memcmp(record->topic, SCHEDULE_TOPIC, sizeof SCHEDULE_TOPIC - 1) == 0;

    if (is_scheduled && properties->delay_level > 0) {
        int64_t delay_ms = UNKNOWN_DELAY_MS;
        if (delay_count > 0) {
            size_t level = (size_t)properties->delay_level;
            delay_ms = delays_ms[(level < delay_count ? level : delay_count) - 1];
        }
        /* The timestamp comes from the disk: the sum wraps as in Java. */
        return (int64_t)((uint64_t)record->store_timestamp + (uint64_t)delay_ms);
    }

    if (properties->tags.size == 0)
        return 0;
    return rmq_java_hash(0, properties->tags.data, properties->tags.size);
}

static bool begins_with(const char *text, size_t size, const char *prefix)
{
    assert(text || size == 0);

    size_t prefix_size = strlen(prefix);
    return size >= prefix_size && memcmp(text, prefix, prefix_size) == 0;
}

bool rmq_topic_allows_light(const char *topic, size_t topic_size)
{
    return !begins_with(topic, topic_size, "%RETRY%") &&
           !begins_with(topic, topic_size, SCHEDULE_TOPIC) &&
           !begins_with(topic, topic_size, "rmq_sys_");
}

int32_t rmq_light_queue_id(struct rmq_slice name, int32_t queue_id)
{
    return begins_with(name.data, name.size, "%LMQ%") ? 0 : queue_id;
}

size_t rmq_message_id(const struct rmq_host *host, int64_t physical_offset,
                      char out[RMQ_MESSAGE_ID_SIZE_MAX])
{
    static const char digits[] = "0123456789ABCDEF";
    assert(host->size == 4 || host->size == 16);

    uint8_t raw[16 + 4 + 8];
    memcpy(raw, host->address, host->size);
    rmq_put_i32(raw + host->size, host->port);
    rmq_put_i64(raw + host->size + 4, physical_offset);

    size_t size = host->size + 12u;
    assert(size <= sizeof raw);
    for (size_t i = 0; i < size; ++i) {
        out[2 * i] = digits[raw[i] >> 4];
        out[2 * i + 1] = digits[raw[i] & 15];
    }
    out[2 * size] = '\0';
    return 2 * size;
}
