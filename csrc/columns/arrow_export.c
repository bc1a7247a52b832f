#include "columns/arrow_export.h"

#include <assert.h>
#include <stdlib.h>
#include <string.h>

#define BUFFERS_MAX 3

/* ---- schema ---- */

/* Children follow the array of pointers to them, in one allocation. */
static void release_schema(struct ArrowSchema *schema)
{
    assert(schema->release);

    for (int64_t i = 0; i < schema->n_children; ++i)
        if (schema->children[i]->release)
            schema->children[i]->release(schema->children[i]);

    free(schema->private_data);
    schema->release = NULL;
}

static bool make_schema(struct ArrowSchema *out, const char *format, const char *name,
                        bool nullable, size_t child_count)
{
    assert(format && name);

    memset(out, 0, sizeof *out);

    if (child_count > 0) {
        out->children = calloc(child_count, sizeof *out->children + sizeof **out->children);
        if (!out->children)
            return false;
        struct ArrowSchema *children = (struct ArrowSchema *)(void *)(out->children + child_count);
        for (size_t i = 0; i < child_count; ++i)
            out->children[i] = &children[i];
    }

    out->private_data = out->children;
    out->n_children = (int64_t)child_count;
    out->format = format;
    out->name = name;
    out->flags = nullable ? ARROW_FLAG_NULLABLE : 0;
    out->release = release_schema;
    return true;
}

static bool make_column_schema(struct ArrowSchema *out, enum rmq_column column,
                               const struct rmq_columns *columns)
{
    assert(column < RMQ_COLUMN_COUNT);

    const struct rmq_column_info *info = &rmq_column_infos()[column];
    bool nullable = info->nullable || columns->all_nullable;
    const char *format = NULL;

    switch (info->type) {
    case RMQ_TYPE_INT32:
        format = "i";
        break;
    case RMQ_TYPE_INT64:
        format = "l";
        break;
    case RMQ_TYPE_TIMESTAMP:
        format = columns->microseconds ? "tsu:UTC" : "tsm:UTC";
        break;
    case RMQ_TYPE_BOOL:
        format = "b";
        break;
    case RMQ_TYPE_UTF8:
        format = "u";
        break;
    case RMQ_TYPE_BINARY:
        format = columns->large_binary ? "Z" : "z";
        break;
    case RMQ_TYPE_MAP:
        format = "+m";
        break;
    }

    assert(format);
    if (info->type != RMQ_TYPE_MAP)
        return make_schema(out, format, info->name, nullable, 0);
    return make_schema(out, format, info->name, nullable, 1) &&
           make_schema(out->children[0], "+s", "entries", false, 2) &&
           make_schema(out->children[0]->children[0], "u", "key", false, 0) &&
           make_schema(out->children[0]->children[1], "u", "value", true, 0);
}

int rmq_arrow_schema(const struct rmq_columns *columns, struct ArrowSchema *out,
                     struct rmq_error *err)
{
    assert(columns->column_count > 0);

    bool ok = make_schema(out, "+s", "", false, columns->column_count);
    for (size_t i = 0; ok && i < columns->column_count; ++i)
        ok = make_column_schema(out->children[i], columns->builders[i].column, columns);

    if (ok)
        return RMQ_OK;
    if (out->release)
        out->release(out);
    return rmq_fail(err, RMQ_NO_MEMORY, -1, "no memory for a schema of %zu columns",
                    columns->column_count);
}

/* ---- arrays ---- */

struct array_owner {
    const void *buffers[BUFFERS_MAX];
    struct ArrowArray **children; /* NULL without children; otherwise followed by them */
};

static void release_array(struct ArrowArray *array)
{
    struct array_owner *owner = array->private_data;
    assert(owner);

    for (int64_t i = 0; i < array->n_children; ++i)
        if (array->children[i]->release)
            array->children[i]->release(array->children[i]);

    for (size_t i = 0; i < BUFFERS_MAX; ++i)
        rmq_buffer_give(owner->buffers[i]);
    free(owner->children);
    free(owner);
    array->release = NULL;
}

static bool make_array(struct ArrowArray *out, int64_t length, int64_t buffer_count,
                       size_t child_count)
{
    assert(buffer_count <= BUFFERS_MAX);
    assert(length >= 0 && buffer_count >= 1);

    memset(out, 0, sizeof *out);
    struct array_owner *owner = calloc(1, sizeof *owner);
    if (!owner)
        return false;

    if (child_count > 0) {
        owner->children = calloc(child_count, sizeof *owner->children + sizeof **owner->children);
        if (!owner->children) {
            free(owner);
            return false;
        }
        struct ArrowArray *children = (struct ArrowArray *)(void *)(owner->children + child_count);
        for (size_t i = 0; i < child_count; ++i)
            owner->children[i] = &children[i];
    }

    out->length = length;
    out->n_buffers = buffer_count;
    out->buffers = owner->buffers;
    out->n_children = (int64_t)child_count;
    out->children = owner->children;
    out->private_data = owner;
    out->release = release_array;
    return true;
}

/* The builder keeps the size, from which it estimates the next one. */
static void hand_over(struct ArrowArray *array, size_t index, struct rmq_buffer *buffer)
{
    assert(index < BUFFERS_MAX && array->release);

    array->buffers[index] = buffer->data;
    buffer->data = NULL;
}

static bool make_text(struct ArrowArray *out, int64_t length, struct rmq_buffer *offsets,
                      struct rmq_buffer *data)
{
    assert(length >= 0);

    /* A map without entries has no offsets yet; readers need the first offset nevertheless. */
    if (!offsets->data) {
        offsets->data = rmq_buffer_take(NULL, sizeof(int64_t), &offsets->capacity);
        if (!offsets->data)
            return false;
        memset(offsets->data, 0, offsets->capacity);
    }

    if (!make_array(out, length, 3, 0))
        return false;
    hand_over(out, 1, offsets);
    hand_over(out, 2, data);
    return true;
}

static bool make_map(struct ArrowArray *out, int64_t rows, struct rmq_column_builder *builder)
{
    assert(builder->entry_count >= 0);

    struct rmq_buffer *buffers = builder->buffers;
    if (!make_array(out, rows, 2, 1))
        return false;

    hand_over(out, 1, &buffers[RMQ_BUFFER_ENTRY_OFFSETS]);

    struct ArrowArray *entries = out->children[0];
    return make_array(entries, builder->entry_count, 1, 2) &&
           make_text(entries->children[0], builder->entry_count, &buffers[RMQ_BUFFER_OFFSETS],
                     &buffers[RMQ_BUFFER_DATA]) &&
           make_text(entries->children[1], builder->entry_count, &buffers[RMQ_BUFFER_VALUE_OFFSETS],
                     &buffers[RMQ_BUFFER_VALUE_DATA]);
}

static bool make_column(struct ArrowArray *out, int64_t rows, struct rmq_column_builder *builder)
{
    assert(rows > 0 && builder->null_count <= rows);

    struct rmq_buffer *buffers = builder->buffers;

    switch (rmq_column_infos()[builder->column].type) {
    case RMQ_TYPE_MAP:
        return make_map(out, rows, builder);
    case RMQ_TYPE_UTF8:
    case RMQ_TYPE_BINARY:
        if (!make_text(out, rows, &buffers[RMQ_BUFFER_OFFSETS], &buffers[RMQ_BUFFER_DATA]))
            return false;
        break;
    default:
        if (!make_array(out, rows, 2, 0))
            return false;
        hand_over(out, 1, &buffers[RMQ_BUFFER_DATA]);
        break;
    }

    out->null_count = builder->null_count;
    if (builder->null_count > 0)
        hand_over(out, 0, &buffers[RMQ_BUFFER_VALIDITY]);
    return true;
}

int rmq_arrow_batch(struct rmq_columns *columns, struct ArrowArray *out, struct rmq_error *err)
{
    assert(columns->rows > 0);
    assert(out);

    bool ok = make_array(out, columns->rows, 1, columns->column_count);
    for (size_t i = 0; ok && i < columns->column_count; ++i)
        ok = make_column(out->children[i], columns->rows, &columns->builders[i]);

    if (!ok && out->release)
        out->release(out);
    rmq_columns_restart(columns);
    return ok ? RMQ_OK : rmq_fail(err, RMQ_NO_MEMORY, -1, "no memory for an Arrow array");
}
