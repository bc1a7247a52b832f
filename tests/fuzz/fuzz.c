#include "fuzz.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/bytes.h"

typedef void fuzz_target(const uint8_t *data, size_t size);

static const struct {
    const char *name;
    fuzz_target *run;
} TARGETS[] = {
#define FUZZ_ENTRY(name) {#name, fuzz_##name},
    FUZZ_TARGET_TABLE(FUZZ_ENTRY)
#undef FUZZ_ENTRY
};

static fuzz_target *chosen;

int LLVMFuzzerInitialize(int *argc, char ***argv)
{
    (void)argc;
    (void)argv;
    const char *wanted = getenv("FUZZ_TARGET");
    for (size_t i = 0; wanted && i < sizeof TARGETS / sizeof *TARGETS; ++i)
        if (strcmp(TARGETS[i].name, wanted) == 0)
            chosen = TARGETS[i].run;
    if (chosen)
        return 0;
    fprintf(stderr, "FUZZ_TARGET names no target; there are");
    for (size_t i = 0; i < sizeof TARGETS / sizeof *TARGETS; ++i)
        fprintf(stderr, " %s", TARGETS[i].name);
    fprintf(stderr, "\n");
    exit(2);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    chosen(data, size);
    return 0;
}

_Noreturn void fuzz_fail(const char *file, int line, const char *what)
{
    fprintf(stderr, "%s:%d: not true: %s\n", file, line, what);
    abort();
}

uint64_t fuzz_take(struct fuzz_input *input, size_t bytes)
{
    uint64_t value = 0;
    for (size_t i = 0; i < bytes; ++i) {
        value <<= 8;
        if (input->left > 0) {
            value |= *input->data++;
            --input->left;
        }
    }
    return value;
}

const uint8_t *fuzz_take_bytes(struct fuzz_input *input, size_t size, size_t *taken)
{
    const uint8_t *from = input->data;
    *taken = size < input->left ? size : input->left;
    input->data += *taken;
    input->left -= *taken;
    return from;
}

uint8_t *fuzz_copy(const uint8_t *data, size_t size)
{
    uint8_t *copy = malloc(size ? size : 1);
    FUZZ_REQUIRE(copy != NULL);
    if (size > 0)
        memcpy(copy, data, size);
    return copy;
}

void fuzz_allow_at(const char *file, int line, int status, const struct rmq_error *err,
                   unsigned allowed)
{
    if (status == RMQ_OK)
        return;
    FUZZ_REQUIRE(err->status == status);
    FUZZ_REQUIRE(memchr(err->detail, 0, sizeof err->detail) != NULL && err->detail[0] != 0);
    if (allowed >> status & 1)
        return;
    fprintf(stderr, "%s: %s\n", rmq_status_text(status), err->detail);
    fuzz_fail(file, line, "the status is one of those allowed");
}

/* ---- records ---- */

static bool lies_in(const void *part, size_t size, const uint8_t *data, size_t available)
{
    const uint8_t *from = part;
    return from >= data && from <= data + available && size <= (size_t)(data + available - from);
}

void fuzz_check_record(const struct rmq_record *record, const uint8_t *data, size_t available)
{
    FUZZ_REQUIRE(record->data == data);
    FUZZ_REQUIRE(record->total_size >= RMQ_RECORD_SIZE_MIN);
    size_t size = (size_t)record->total_size;
    FUZZ_REQUIRE(size <= available);
    FUZZ_REQUIRE(record->body_size >= 0 && record->topic_size >= 0);
    FUZZ_REQUIRE(record->properties_size >= 0);
    FUZZ_REQUIRE(lies_in(record->body, (size_t)record->body_size, data, size));
    FUZZ_REQUIRE(lies_in(record->topic, (size_t)record->topic_size, data, size));
    FUZZ_REQUIRE(lies_in(record->properties, (size_t)record->properties_size, data, size));
    FUZZ_REQUIRE((const uint8_t *)record->properties + record->properties_size == data + size);
    FUZZ_REQUIRE(record->version == 1 || record->version == 2);
}

/* Readers take a negative size of body or properties for 0, and version 2 for a short topic;
 * writers write neither, nor a record without a topic. */
static bool is_canonical(const struct rmq_record *record)
{
    return rmq_get_i32(record->body - 4) >= 0 && rmq_get_i16(record->properties - 2) >= 0 &&
           record->topic_size > 0 && (record->version == 1) == (record->topic_size <= 127);
}

static void check_same(const struct rmq_record *record, int32_t properties_size, bool with_crc)
{
    struct rmq_message message = {
        .topic = record->topic,
        .topic_size = (size_t)record->topic_size,
        .body = record->body,
        .body_size = (size_t)record->body_size,
        .properties = record->properties,
        .properties_size = (size_t)properties_size,
        .born_host = record->born_host,
        .store_host = record->store_host,
        .born_timestamp = record->born_timestamp,
        .store_timestamp = record->store_timestamp,
        .prepared_transaction_offset = record->prepared_transaction_offset,
        .queue_id = record->queue_id,
        .flag = record->flag,
        .sys_flag = record->sys_flag,
        .reconsume_times = record->reconsume_times,
    };
    struct rmq_placement placement = {
        .queue_offset = record->queue_offset,
        .physical_offset = record->physical_offset,
        .store_timestamp = record->store_timestamp,
        .body_crc = record->body_crc,
    };
    struct rmq_record_limits limits = {INT32_MAX, INT32_MAX, true, with_crc};
    struct rmq_record_plan plan;
    FUZZ_REQUIRE(rmq_record_plan(&message, &limits, &plan, NULL) == RMQ_OK);
    FUZZ_REQUIRE(plan.total_size == record->total_size);
    uint8_t *out = malloc((size_t)plan.total_size);
    FUZZ_REQUIRE(out != NULL);
    rmq_record_encode(out, &message, &plan, &placement);
    FUZZ_REQUIRE(memcmp(out, record->data, (size_t)plan.total_size) == 0);
    free(out);
}

void fuzz_check_encoding(const struct rmq_record *record)
{
    if (!is_canonical(record))
        return;
    check_same(record, record->properties_size, false);
    int32_t own = record->properties_size - RMQ_PROPERTY_CRC_SIZE;
    if (own < 0 || rmq_record_decode(record->data, (size_t)record->total_size, 0,
                                     RMQ_CHECK_PROPERTY_CRC | RMQ_NEED_PROPERTY_CRC,
                                     &(struct rmq_record){0}, NULL) != RMQ_OK)
        return;
    check_same(record, own, true);
}

/* ---- text ---- */

bool fuzz_is_utf8(const uint8_t *text, size_t size)
{
    static const struct {
        uint8_t first, last, second_first, second_last;
        size_t length;
    } rows[] = {
        {0x00, 0x7F, 0, 0, 1},       {0xC2, 0xDF, 0x80, 0xBF, 2}, {0xE0, 0xE0, 0xA0, 0xBF, 3},
        {0xE1, 0xEC, 0x80, 0xBF, 3}, {0xED, 0xED, 0x80, 0x9F, 3}, {0xEE, 0xEF, 0x80, 0xBF, 3},
        {0xF0, 0xF0, 0x90, 0xBF, 4}, {0xF1, 0xF3, 0x80, 0xBF, 4}, {0xF4, 0xF4, 0x80, 0x8F, 4},
    };
    for (size_t at = 0; at < size;) {
        size_t length = 0;
        for (size_t i = 0; i < sizeof rows / sizeof *rows && length == 0; ++i) {
            if (text[at] < rows[i].first || text[at] > rows[i].last)
                continue;
            length = rows[i].length;
            if (length > size - at || (length > 1 && (text[at + 1] < rows[i].second_first ||
                                                      text[at + 1] > rows[i].second_last)))
                return false;
        }
        for (size_t i = 2; i < length; ++i)
            if (text[at + i] < 0x80 || text[at + i] > 0xBF)
                return false;
        if (length == 0)
            return false;
        at += length;
    }
    return true;
}
