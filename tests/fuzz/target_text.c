/* target_text.c -- property text, UTF-8, and messages packed into one body. */
#include <stdlib.h>
#include <string.h>

#include "base/utf8.h"
#include "format/batch.h"
#include "format/properties.h"
#include "fuzz.h"

/* ---- properties ---- */

static bool slices_equal(struct rmq_slice a, struct rmq_slice b)
{
    return a.size == b.size && (a.data == NULL) == (b.data == NULL) &&
           (a.size == 0 || memcmp(a.data, b.data, a.size) == 0);
}

static void check_pairs(const char *text, size_t size)
{
    struct rmq_slice name, value;
    size_t at = 0, before = 0, wrote = 0, copied = 0;
    char *copy = malloc(size + 1);
    FUZZ_REQUIRE(copy != NULL);
    while (rmq_properties_next(text, size, &at, &name, &value)) {
        FUZZ_REQUIRE(at > before && at <= size);
        FUZZ_REQUIRE(name.size > 0 && value.size > 0 && name.data >= text + before);
        FUZZ_REQUIRE(value.data == name.data + name.size + 1);
        FUZZ_REQUIRE(value.size <= (size_t)(text + at - value.data));
        FUZZ_REQUIRE(memchr(name.data, 1, name.size) == NULL);
        FUZZ_REQUIRE(memchr(name.data, 2, name.size + 1 + value.size) == NULL);
        before = at;
        if (memchr(name.data, 0, name.size))
            continue;
        char *as_string = (char *)fuzz_copy((const uint8_t *)name.data, name.size + 1);
        as_string[name.size] = 0;
        FUZZ_REQUIRE(rmq_properties_append(copy, size + 1, &wrote, as_string, value));
        FUZZ_REQUIRE(rmq_properties_find(text, size, as_string).data >= value.data);
        ++copied;
        free(as_string);
    }
    for (at = 0; rmq_properties_next(copy, wrote, &at, &name, &value);)
        --copied;
    FUZZ_REQUIRE(copied == 0);
    free(copy);
}

void fuzz_properties(const uint8_t *data, size_t size)
{
    const char *text = (const char *)data;
    struct rmq_dispatch_properties found;
    int64_t number = 0;
    check_pairs(text, size);
    rmq_properties_scan(text, size, &found);
    FUZZ_REQUIRE(slices_equal(found.tags, rmq_properties_find(text, size, "TAGS")));
    FUZZ_REQUIRE(slices_equal(found.keys, rmq_properties_find(text, size, "KEYS")));
    FUZZ_REQUIRE(slices_equal(found.unique_key, rmq_properties_find(text, size, "UNIQ_KEY")));
    FUZZ_REQUIRE(slices_equal(found.multi_dispatch,
                              rmq_properties_find(text, size, "INNER_MULTI_DISPATCH")));
    FUZZ_REQUIRE(slices_equal(found.multi_queue_offset,
                              rmq_properties_find(text, size, "INNER_MULTI_QUEUE_OFFSET")));
    struct rmq_slice base = rmq_properties_find(text, size, "INNER_BASE");
    if (!rmq_parse_i64(base, &number))
        number = -1;
    FUZZ_REQUIRE(found.inner_base == number);
    (void)rmq_parse_i64((struct rmq_slice){text, size}, &number);
}

/* ---- UTF-8 ---- */

void fuzz_utf8(const uint8_t *data, size_t size)
{
    const char *text = (const char *)data;
    for (size_t at = 0; at < size;) {
        uint32_t character = 0;
        size_t taken = rmq_utf8_decode(data + at, size - at, &character);
        FUZZ_REQUIRE(taken >= 1 && taken <= 4 && taken <= size - at);
        FUZZ_REQUIRE(character <= 0x10FFFF && (character < 0xD800 || character > 0xDFFF));
        if (character != RMQ_UTF8_REPLACEMENT)
            FUZZ_REQUIRE(fuzz_is_utf8(data + at, taken));
        at += taken;
    }
    bool is_valid = rmq_utf8_is_valid(text, size);
    FUZZ_REQUIRE(is_valid == fuzz_is_utf8(data, size));

    char *mended = malloc(size * RMQ_UTF8_MEND_FACTOR + 1);
    FUZZ_REQUIRE(mended != NULL);
    size_t mended_size = rmq_utf8_mend(mended, text, size);
    FUZZ_REQUIRE(mended_size <= size * RMQ_UTF8_MEND_FACTOR);
    FUZZ_REQUIRE(fuzz_is_utf8((const uint8_t *)mended, mended_size));
    if (is_valid)
        FUZZ_REQUIRE(mended_size == size && (size == 0 || memcmp(mended, text, size) == 0));
    free(mended);
}

/* ---- batches ---- */

void fuzz_batch(const uint8_t *data, size_t size)
{
    struct rmq_batch_item item;
    struct rmq_error err = {0};
    size_t at = 0, before = 0;
    int status;
    while ((status = rmq_batch_next(data, size, &at, &item, &err)) == RMQ_OK) {
        size_t item_size = rmq_batch_item_size(&item);
        FUZZ_REQUIRE(at <= size && at - before == item_size);
        FUZZ_REQUIRE(item.body_size >= 0 && item.properties_size >= 0);
        FUZZ_REQUIRE(item.body == data + before + 20);
        FUZZ_REQUIRE((const uint8_t *)item.properties + item.properties_size == data + at);
        uint8_t *out = malloc(item_size);
        FUZZ_REQUIRE(out != NULL && rmq_batch_put(out, &item) == item_size);
        /* Magic and CRC are not looked at and written as 0. */
        FUZZ_REQUIRE(memcmp(out, data + before, 4) == 0);
        FUZZ_REQUIRE(memcmp(out + 12, data + before + 12, item_size - 12) == 0);
        free(out);
        before = at;
    }
    FUZZ_REQUIRE(at == before);
    if (status == RMQ_END)
        FUZZ_REQUIRE(at == size);
    else
        FUZZ_ALLOW(status, &err, FUZZ_BIT(CORRUPT));
}
