/* target_columns.c -- records into column buffers, handed over as Arrow arrays. */
#include <stdlib.h>
#include <string.h>

#include "columns/arrow_export.h"
#include "columns/columns.h"
#include "fuzz.h"

#define RECORDS_MAX 256

static bool bit_at(const void *bits, int64_t index)
{
    return ((const uint8_t *)bits)[index / 8] >> (index % 8) & 1;
}

/* Every byte of a buffer is there: the sanitizer looks. */
static void touch(const void *buffer, size_t size)
{
    volatile uint8_t sum = 0;
    for (size_t i = 0; i < size; ++i)
        sum = (uint8_t)(sum ^ ((const uint8_t *)buffer)[i]);
}

static void check_narrow(const struct ArrowArray *array, bool is_text)
{
    const int32_t *offsets = array->buffers[1];
    const uint8_t *data = array->buffers[2];
    FUZZ_REQUIRE(offsets != NULL && offsets[0] == 0);
    for (int64_t i = 0; i < array->length; ++i) {
        FUZZ_REQUIRE(offsets[i] <= offsets[i + 1]);
        if (is_text && offsets[i] < offsets[i + 1])
            FUZZ_REQUIRE(fuzz_is_utf8(data + offsets[i], (size_t)(offsets[i + 1] - offsets[i])));
    }
    touch(data, (size_t)offsets[array->length]);
}

static void check_wide(const struct ArrowArray *array)
{
    const int64_t *offsets = array->buffers[1];
    FUZZ_REQUIRE(offsets != NULL && offsets[0] == 0);
    for (int64_t i = 0; i < array->length; ++i)
        FUZZ_REQUIRE(offsets[i] <= offsets[i + 1]);
    touch(array->buffers[2], (size_t)offsets[array->length]);
}

static void check_map(const struct ArrowArray *array)
{
    const int32_t *offsets = array->buffers[1];
    FUZZ_REQUIRE(offsets != NULL && offsets[0] == 0 && array->n_children == 1);
    const struct ArrowArray *entries = array->children[0];
    for (int64_t i = 0; i < array->length; ++i)
        FUZZ_REQUIRE(offsets[i] <= offsets[i + 1]);
    FUZZ_REQUIRE(offsets[array->length] == entries->length && entries->n_children == 2);
    for (int i = 0; i < 2; ++i) {
        FUZZ_REQUIRE(entries->children[i]->length == entries->length);
        check_narrow(entries->children[i], true);
    }
}

static void check_column(const struct ArrowArray *array, const struct ArrowSchema *schema,
                         int64_t rows)
{
    int64_t nulls = 0;
    FUZZ_REQUIRE(array->length == rows && array->offset == 0);
    for (int64_t i = 0; array->buffers[0] && i < rows; ++i)
        nulls += !bit_at(array->buffers[0], i);
    FUZZ_REQUIRE(nulls == array->null_count);
    FUZZ_REQUIRE(nulls == 0 || (schema->flags & ARROW_FLAG_NULLABLE));
    switch (schema->format[0]) {
    case 'u':
    case 'z':
        check_narrow(array, schema->format[0] == 'u');
        break;
    case 'Z':
        check_wide(array);
        break;
    case '+':
        check_map(array);
        break;
    case 'b':
        touch(array->buffers[1], (size_t)(rows + 7) / 8);
        break;
    default:
        touch(array->buffers[1], (size_t)rows * (schema->format[0] == 'i' ? 4 : 8));
        break;
    }
}

static void check_batch(struct rmq_columns *columns)
{
    struct ArrowSchema schema;
    struct ArrowArray array;
    int64_t rows = columns->rows;
    size_t count = columns->column_count;
    FUZZ_REQUIRE(rows <= columns->max_rows);
    FUZZ_REQUIRE(rmq_arrow_schema(columns, &schema, NULL) == RMQ_OK);
    FUZZ_REQUIRE(rmq_arrow_batch(columns, &array, NULL) == RMQ_OK);
    FUZZ_REQUIRE(array.length == rows && (size_t)array.n_children == count);
    FUZZ_REQUIRE((size_t)schema.n_children == count && columns->rows == 0);
    for (size_t i = 0; i < count; ++i)
        check_column(array.children[i], schema.children[i], rows);
    /* A child that was moved out is let go of by itself. */
    struct ArrowArray moved = *array.children[0];
    array.children[0]->release = NULL;
    array.release(&array);
    moved.release(&moved);
    schema.release(&schema);
}

static size_t decode_all(const uint8_t *data, size_t size, struct rmq_record *records)
{
    size_t count = 0, at = 0;
    while (count < RECORDS_MAX && rmq_record_decode(data + at, size - at, 0, RMQ_CHECK_FORM,
                                                    &records[count], NULL) == RMQ_OK)
        at += (size_t)records[count++].total_size;
    return count;
}

/* columns 4 (bits), rows 2, bytes 4, flags 1, rotation 1, then records one behind the other. */
void fuzz_columns(const uint8_t *data, size_t size)
{
    struct fuzz_input input = {data, size};
    struct rmq_columns columns;
    struct rmq_error err = {0};
    uint8_t chosen[RMQ_COLUMN_COUNT];
    struct rmq_columns_options options = {.columns = chosen};
    uint32_t bits = (uint32_t)fuzz_take(&input, 4);
    options.max_rows = (int64_t)fuzz_take(&input, 2);
    options.max_bytes = (int64_t)fuzz_take(&input, 4);
    options.large_binary = fuzz_take(&input, 1) & 1;
    size_t rotation = (size_t)fuzz_take(&input, 1);
    for (size_t i = 0; i < RMQ_COLUMN_COUNT; ++i) {
        size_t column = (i + rotation) % RMQ_COLUMN_COUNT;
        if (bits >> column & 1)
            chosen[options.column_count++] = (uint8_t)column;
    }
    int status = rmq_columns_open(&columns, &options, &err);
    if (status != RMQ_OK) {
        FUZZ_ALLOW(status, &err, FUZZ_BIT(INVALID));
        return;
    }
    struct rmq_record *records = malloc(RECORDS_MAX * sizeof *records);
    FUZZ_REQUIRE(records != NULL);
    size_t count = decode_all(input.data, input.left, records), done = 0;
    while (done < count) {
        size_t taken = 0;
        FUZZ_REQUIRE(rmq_columns_append(&columns, records + done, count - done, &taken, &err) ==
                     RMQ_OK);
        FUZZ_REQUIRE(taken <= count - done);
        FUZZ_REQUIRE(columns.rows > 0);
        done += taken;
        if (done < count)
            check_batch(&columns);
    }
    if (columns.rows > 0)
        check_batch(&columns);
    rmq_columns_close(&columns);
    free(records);
}
