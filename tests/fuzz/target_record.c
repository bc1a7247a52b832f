/* target_record.c -- one record: decoding any bytes, encoding any message. */
#include <stdlib.h>
#include <string.h>

#include "base/bytes.h"
#include "base/crc32.h"
#include "fuzz.h"

/* flags 1, place 8, record. */
enum { CHECKS = 15, CHECK_TAIL = 0x10, MEND_CONTENT = 0x20, MEND_HEAD = 0x40, VERSION_2 = 0x80 };

static void check_derived(const struct rmq_record *record)
{
    static const int64_t delays[] = {1000, 5000};
    struct rmq_dispatch_properties properties;
    char id[RMQ_MESSAGE_ID_SIZE_MAX];
    rmq_properties_scan(record->properties, (size_t)record->properties_size, &properties);
    int64_t code = rmq_record_tags_code(record, &properties, delays, 2);
    FUZZ_REQUIRE(properties.delay_level > 0 || (code >= INT32_MIN && code <= INT32_MAX));
    FUZZ_REQUIRE(rmq_message_id(&record->store_host, record->physical_offset, id) == strlen(id));
}

/* A record that is whole stays one whatever follows it, and is none when its last byte is gone. */
static void check_borders(const struct rmq_record *record, int64_t place)
{
    struct rmq_record other;
    size_t size = (size_t)record->total_size;
    FUZZ_REQUIRE(rmq_record_decode(record->data, size, place, 0, &other, NULL) == RMQ_OK);
    uint8_t *shorter = fuzz_copy(record->data, size - 1);
    FUZZ_REQUIRE(rmq_record_decode(shorter, size - 1, place, 0, &other, NULL) == RMQ_CORRUPT);
    FUZZ_REQUIRE(other.total_size == 0);
    free(shorter);
}

static void check_decoding(const uint8_t *data, size_t size, int64_t place, unsigned checks)
{
    struct rmq_record record;
    struct rmq_error err = {0};
    int status = rmq_record_decode(data, size, place, checks, &record, &err);
    if (status == RMQ_END) {
        FUZZ_REQUIRE(record.total_size == 0 || record.total_size == RMQ_BLANK_SIZE);
        return;
    }
    if (status != RMQ_OK) {
        FUZZ_ALLOW(status, &err, FUZZ_BIT(CORRUPT));
        FUZZ_REQUIRE(err.at_offset == place);
        FUZZ_REQUIRE(record.total_size >= 0 && (size_t)record.total_size <= size);
        return;
    }
    fuzz_check_record(&record, data, size);
    if (checks & RMQ_CHECK_PLACE)
        FUZZ_REQUIRE(record.physical_offset == place);
    if ((checks & RMQ_CHECK_BODY_CRC) && record.body_size > 0)
        FUZZ_REQUIRE(rmq_crc32_java(record.body, (size_t)record.body_size) == record.body_crc);
    check_derived(&record);
    check_borders(&record, place);
    fuzz_check_encoding(&record);
}

void fuzz_record(const uint8_t *data, size_t size)
{
    struct fuzz_input input = {data, size};
    struct rmq_record record;
    unsigned flags = (unsigned)fuzz_take(&input, 1);
    int64_t place = (int64_t)fuzz_take(&input, 8);
    uint8_t *copy = fuzz_copy(input.data, input.left);
    /* What chance seldom gets right is set right on demand. */
    if ((flags & MEND_HEAD) && input.left >= RMQ_BLANK_SIZE) {
        rmq_put_i32(copy, (int32_t)input.left);
        rmq_put_i32(copy + 4, (int32_t)(flags & VERSION_2 ? RMQ_MAGIC_V2 : RMQ_MAGIC_V1));
    }
    if ((flags & MEND_CONTENT) &&
        rmq_record_decode(copy, input.left, place, 0, &record, NULL) == RMQ_OK) {
        rmq_put_i64(copy + 28, place);
        rmq_put_i32(copy + 8, rmq_crc32_java(record.body, (size_t)record.body_size));
    }
    unsigned checks = (flags & CHECKS) | (flags & CHECK_TAIL ? (unsigned)RMQ_CHECK_TAIL : 0u);
    check_decoding(copy, input.left, place, checks);
    free(copy);
}

/* ---- encoding ---- */

#define TEXT_MAX 40000

/* size bytes of the input, over and over. */
static char *text_of(struct fuzz_input *input, size_t *size)
{
    size_t wanted = (size_t)fuzz_take(input, 2), length = (size_t)fuzz_take(input, 1), taken;
    const uint8_t *from = fuzz_take_bytes(input, length, &taken);
    *size = taken && wanted < TEXT_MAX ? wanted : taken;
    char *text = malloc(*size ? *size : 1);
    FUZZ_REQUIRE(text != NULL);
    for (size_t i = 0; i < *size; ++i)
        text[i] = (char)from[i % taken];
    return text;
}

static void take_host(struct fuzz_input *input, bool v6, struct rmq_host *host)
{
    host->size = v6 ? 16 : 4;
    for (size_t i = 0; i < host->size; ++i)
        host->address[i] = (uint8_t)fuzz_take(input, 1);
    host->port = (int32_t)fuzz_take(input, 4);
}

static void check_host(const struct rmq_host *a, const struct rmq_host *b)
{
    FUZZ_REQUIRE(a->size == b->size && a->port == b->port);
    FUZZ_REQUIRE(memcmp(a->address, b->address, a->size) == 0);
}

static void check_round_trip(const struct rmq_message *message, const struct rmq_record_plan *plan,
                             const struct rmq_placement *placement)
{
    size_t size = (size_t)plan->total_size;
    uint8_t *out = malloc(size);
    FUZZ_REQUIRE(out != NULL);
    rmq_record_encode(out, message, plan, placement);
    struct rmq_record record;
    unsigned checks = RMQ_CHECK_BODY_CRC | RMQ_CHECK_PROPERTY_CRC | RMQ_CHECK_PLACE |
                      (plan->has_crc_property ? RMQ_NEED_PROPERTY_CRC : 0u);
    int status = rmq_record_decode(out, size, placement->physical_offset, checks, &record, NULL);
    /* Text that only looks like a CRC property is treated like one. */
    if (status == RMQ_CORRUPT && !plan->has_crc_property)
        status = rmq_record_decode(out, size, placement->physical_offset,
                                   checks & ~(unsigned)RMQ_CHECK_PROPERTY_CRC, &record, NULL);
    FUZZ_REQUIRE(status == RMQ_OK && record.total_size == plan->total_size);
    fuzz_check_record(&record, out, size);
    FUZZ_REQUIRE((size_t)record.topic_size == message->topic_size);
    FUZZ_REQUIRE(memcmp(record.topic, message->topic, message->topic_size) == 0);
    FUZZ_REQUIRE((size_t)record.body_size == message->body_size);
    FUZZ_REQUIRE(memcmp(record.body, message->body, message->body_size) == 0);
    FUZZ_REQUIRE((size_t)record.properties_size >= message->properties_size);
    FUZZ_REQUIRE(memcmp(record.properties, message->properties, message->properties_size) == 0);
    FUZZ_REQUIRE(record.queue_offset == placement->queue_offset);
    FUZZ_REQUIRE(record.store_timestamp == placement->store_timestamp);
    bool is_born_now = message->born_timestamp == RMQ_BORN_WHEN_STORED;
    FUZZ_REQUIRE(record.born_timestamp ==
                 (is_born_now ? placement->store_timestamp : message->born_timestamp));
    FUZZ_REQUIRE(record.queue_id == message->queue_id && record.flag == message->flag);
    FUZZ_REQUIRE(record.reconsume_times == message->reconsume_times);
    FUZZ_REQUIRE(record.sys_flag == plan->sys_flag);
    check_host(&record.born_host, &message->born_host);
    check_host(&record.store_host, &message->store_host);
    fuzz_check_encoding(&record);
    free(out);
}

/* flags 1, limits 4 + 4, numbers, hosts, four texts. */
void fuzz_encode(const uint8_t *data, size_t size)
{
    struct fuzz_input input = {data, size};
    struct rmq_message message = {0};
    struct rmq_record_plan plan;
    struct rmq_error err = {0};
    unsigned flags = (unsigned)fuzz_take(&input, 1);
    struct rmq_record_limits limits = {
        .body_size_max = (int32_t)(fuzz_take(&input, 4) & INT32_MAX),
        .record_size_max = (int32_t)(fuzz_take(&input, 4) & INT32_MAX),
        .version_by_topic_size = flags & 1,
        .append_property_crc = flags & 2,
    };
    message.born_timestamp = (int64_t)fuzz_take(&input, 8);
    message.prepared_transaction_offset = (int64_t)fuzz_take(&input, 8);
    message.queue_id = (int32_t)fuzz_take(&input, 4);
    message.flag = (int32_t)fuzz_take(&input, 4);
    message.sys_flag = (int32_t)fuzz_take(&input, 4);
    message.reconsume_times = (int32_t)fuzz_take(&input, 4);
    take_host(&input, flags & 4, &message.born_host);
    take_host(&input, flags & 8, &message.store_host);
    struct rmq_placement placement = {
        .queue_offset = (int64_t)fuzz_take(&input, 8),
        .physical_offset = (int64_t)fuzz_take(&input, 8),
        .store_timestamp = (int64_t)fuzz_take(&input, 8),
    };
    char *topic = text_of(&input, &message.topic_size);
    char *body = text_of(&input, &message.body_size);
    char *properties = text_of(&input, &message.properties_size);
    char *more = text_of(&input, &message.more_properties_size);
    message.topic = topic;
    message.body = (const uint8_t *)body;
    message.properties = properties;
    message.more_properties = more;
    placement.body_crc = rmq_crc32_java(message.body, message.body_size);
    int status = rmq_record_plan(&message, &limits, &plan, &err);
    if (status == RMQ_OK) {
        FUZZ_REQUIRE(plan.total_size <= limits.record_size_max);
        FUZZ_REQUIRE(message.body_size <= (size_t)limits.body_size_max);
        check_round_trip(&message, &plan, &placement);
    } else {
        FUZZ_ALLOW(status, &err, FUZZ_BIT(MESSAGE_ILLEGAL) | FUZZ_BIT(PROPERTIES_TOO_LARGE));
    }
    free(topic);
    free(body);
    free(properties);
    free(more);
}
