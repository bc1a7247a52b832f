/* segment_jni.c -- the records of a commit log file for a Java virtual machine.
 *
 * The binding of columns/segment.h to the class org.rmqstore.spark.NativeSegment: it checks what
 * Java hands over, calls the core, and turns a status into an exception. Columns leave as addresses
 * of Arrow buffers, which Java reads in place and lets go of by number.
 *
 * Bytes and positions are direct buffers; Java keeps them until the next ones, and its class sees
 * to it that one thread at a time is in here.
 */
#include <assert.h>
#include <ctype.h>
#include <jni.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "columns/arrow_export.h"
#include "columns/segment.h"

#define RMQ_JNI_CLASS "org/rmqstore/spark/NativeSegment"
#define RMQ_TEXT(name) RMQ_TEXT_OF(name)
#define RMQ_TEXT_OF(name) #name

/* Of a column: three buffers and the count of nulls, for a map also those of its keys and values. */
#define RMQ_PLACES_PER_ARRAY 4
#define RMQ_PLACES_PER_COLUMN (3 * RMQ_PLACES_PER_ARRAY)
#define RMQ_PLACES_MAX (1 + RMQ_COLUMN_COUNT * RMQ_PLACES_PER_COLUMN)
#define RMQ_NUMBERS_PER_RANGE 5
#define RMQ_NUMBERS_PER_SUM 8

enum rmq_jni_flag {
    RMQ_JNI_CHECK_CRC = 1,
    RMQ_JNI_DISPATCHED_ONLY = 2,
    RMQ_JNI_BY_TOPIC = 4,
};

enum rmq_jni_number {
    RMQ_JNI_START,
    RMQ_JNI_STOP,
    RMQ_JNI_FILE_END,
    RMQ_JNI_BEGIN_MS,
    RMQ_JNI_END_MS,
    RMQ_JNI_MAX_ROWS,
    RMQ_JNI_MAX_BYTES,
    RMQ_JNI_NUMBERS,
};

/* What a step tells Java, in this order. */
enum rmq_jni_fact {
    RMQ_JNI_OFFSET,
    RMQ_JNI_NEEDED,
    RMQ_JNI_ENDING,
    RMQ_JNI_ROWS,
    RMQ_JNI_FACTS,
};

struct rmq_jni_segment {
    struct rmq_segment segment;
    struct rmq_slice *tags;
    size_t tag_count;
};

/* ---- errors ---- */

static void throw_new(JNIEnv *env, const char *class_name, const char *text)
{
    assert(class_name && text);

    jclass class = (*env)->FindClass(env, class_name);
    if (class)
        (*env)->ThrowNew(env, class, text);
}

static void throw_status(JNIEnv *env, int status, const struct rmq_error *err)
{
    assert(status != RMQ_OK);

    if (status == RMQ_NO_MEMORY)
        throw_new(env, "java/lang/OutOfMemoryError", err->detail);
    else if (status == RMQ_CORRUPT)
        throw_new(env, "org/rmqstore/spark/CorruptBytesException", err->detail);
    else
        throw_new(env, "java/lang/IllegalArgumentException", err->detail);
}

static void throw_no_memory(JNIEnv *env)
{
    throw_new(env, "java/lang/OutOfMemoryError", "no memory for a segment");
}

/* ---- what Java hands over ---- */

static struct rmq_jni_segment *segment_of(jlong handle)
{
    assert(handle != 0);

    return (struct rmq_jni_segment *)(intptr_t)handle;
}

static void free_slices(struct rmq_slice *slices, size_t count)
{
    assert(slices || count == 0);

    for (size_t i = 0; slices && i < count; ++i)
        free((void *)(uintptr_t)slices[i].data);
    free(slices);
}

/* A copy of the bytes of a byte[]. Data is NULL, and an exception is pending, without memory. */
static struct rmq_slice copied(JNIEnv *env, jbyteArray from)
{
    assert(from);

    jsize size = (*env)->GetArrayLength(env, from);
    char *copy = malloc((size_t)size + 1);
    if (!copy) {
        throw_no_memory(env);
        return (struct rmq_slice){NULL, 0};
    }
    (*env)->GetByteArrayRegion(env, from, 0, size, (jbyte *)copy);
    return (struct rmq_slice){copy, (size_t)size};
}

/* False: an exception is pending. */
static bool copy_tags(JNIEnv *env, struct rmq_jni_segment *held, jobjectArray tags)
{
    assert(!held->tags && tags);

    jsize count = (*env)->GetArrayLength(env, tags);
    held->tags = calloc((size_t)count + 1, sizeof *held->tags);
    if (!held->tags) {
        throw_no_memory(env);
        return false;
    }

    for (jsize i = 0; i < count; ++i) {
        jbyteArray tag = (*env)->GetObjectArrayElement(env, tags, i);
        held->tags[i] = copied(env, tag);
        (*env)->DeleteLocalRef(env, tag);
        if (!held->tags[i].data)
            return false;
        ++held->tag_count;
    }
    return true;
}

/* The number of the column of this name, RMQ_COLUMN_COUNT for none. */
static int column_named(const char *name)
{
    assert(name);

    const struct rmq_column_info *infos = rmq_column_infos();
    int column = 0;
    while (column < RMQ_COLUMN_COUNT && strcmp(infos[column].name, name) != 0)
        ++column;
    return column;
}

/* False: an exception is pending. chosen has room for RMQ_COLUMN_COUNT. */
static bool choose_columns(JNIEnv *env, jobjectArray names, uint8_t *chosen, size_t *count)
{
    assert(names && chosen && count);

    jsize given = (*env)->GetArrayLength(env, names);
    if (given > RMQ_COLUMN_COUNT) {
        throw_new(env, "java/lang/IllegalArgumentException", "more columns than there are");
        return false;
    }

    for (jsize i = 0; i < given; ++i) {
        jstring name = (*env)->GetObjectArrayElement(env, names, i);
        const char *text = (*env)->GetStringUTFChars(env, name, NULL);
        if (!text)
            return false;
        int column = column_named(text);
        if (column == RMQ_COLUMN_COUNT)
            throw_new(env, "java/lang/IllegalArgumentException", text);
        (*env)->ReleaseStringUTFChars(env, name, text);
        (*env)->DeleteLocalRef(env, name);
        if (column == RMQ_COLUMN_COUNT)
            return false;
        chosen[i] = (uint8_t)column;
    }
    *count = (size_t)given;
    return true;
}

/* The bytes of a direct buffer; NULL, with an exception pending, for any other or a shorter one. */
static uint8_t *bytes_of(JNIEnv *env, jobject buffer, int64_t size)
{
    uint8_t *data = (*env)->GetDirectBufferAddress(env, buffer);
    if (data && size >= 0 && size <= (*env)->GetDirectBufferCapacity(env, buffer))
        return data;
    throw_new(env, "java/lang/IllegalArgumentException", "not a direct buffer of this size");
    return NULL;
}

/* ---- life ---- */

static void release_segment(struct rmq_jni_segment *held)
{
    assert(held);

    rmq_segment_close(&held->segment);
    free_slices(held->tags, held->tag_count);
    free(held);
}

/* columns: names, none for a segment that is only summed up; numbers: by enum rmq_jni_number. */
static jlong JNICALL segment_open(JNIEnv *env, jclass class, jobjectArray columns,
                                  jlongArray numbers, jint flags, jobjectArray tags)
{
    (void)class;
    assert(columns && numbers && tags);

    jlong given[RMQ_JNI_NUMBERS];
    (*env)->GetLongArrayRegion(env, numbers, 0, RMQ_JNI_NUMBERS, given);
    if ((*env)->ExceptionCheck(env))
        return 0;

    uint8_t chosen[RMQ_COLUMN_COUNT];
    size_t count = 0;
    if (!choose_columns(env, columns, chosen, &count))
        return 0;

    struct rmq_jni_segment *held = calloc(1, sizeof *held);
    if (!held) {
        throw_no_memory(env);
        return 0;
    }
    if (!copy_tags(env, held, tags)) {
        release_segment(held);
        return 0;
    }

    struct rmq_columns_options made = {
        .columns = chosen,
        .column_count = count,
        .max_rows = given[RMQ_JNI_MAX_ROWS],
        .max_bytes = given[RMQ_JNI_MAX_BYTES],
        .microseconds = true,
        .all_nullable = true,
    };
    struct rmq_segment_options options = {
        .start = given[RMQ_JNI_START],
        .stop = given[RMQ_JNI_STOP],
        .file_end = given[RMQ_JNI_FILE_END],
        .begin_ms = given[RMQ_JNI_BEGIN_MS],
        .end_ms = given[RMQ_JNI_END_MS],
        .check_crc = (flags & RMQ_JNI_CHECK_CRC) != 0,
        .dispatched_only = (flags & RMQ_JNI_DISPATCHED_ONLY) != 0,
        .by_topic = (flags & RMQ_JNI_BY_TOPIC) != 0,
        .unwrap = true,
        .tags = held->tags,
        .tag_count = held->tag_count,
    };

    struct rmq_error err;
    int status = rmq_segment_open(&held->segment, &options, count > 0 ? &made : NULL, &err);
    if (status != RMQ_OK) {
        release_segment(held);
        throw_status(env, status, &err);
        return 0;
    }
    return (jlong)(intptr_t)held;
}

static void JNICALL segment_close(JNIEnv *env, jclass class, jlong handle)
{
    (void)env, (void)class;
    release_segment(segment_of(handle));
}

/* ---- bytes and choices ---- */

static void JNICALL segment_feed(JNIEnv *env, jclass class, jlong handle, jobject buffer,
                                 jint size, jlong at)
{
    (void)class;
    assert(buffer && size >= 0 && at >= 0);

    uint8_t *data = bytes_of(env, buffer, size);
    if (!data)
        return;
    struct rmq_error err;
    int status = rmq_segment_feed(&segment_of(handle)->segment, data, (size_t)size, at, &err);
    if (status != RMQ_OK)
        throw_status(env, status, &err);
}

static void JNICALL segment_visit(JNIEnv *env, jclass class, jlong handle, jobject buffer,
                                  jint count)
{
    (void)class;
    assert(buffer && count >= 0);

    uint8_t *positions = bytes_of(env, buffer, (int64_t)count * (int64_t)sizeof(int64_t));
    if (!positions)
        return;
    struct rmq_error err;
    int status = rmq_segment_visit(&segment_of(handle)->segment, positions, (size_t)count, &err);
    if (status != RMQ_OK)
        throw_status(env, status, &err);
}

/* numbers: queue id, start, stop, begin_ms and end_ms of each range; none: an unwanted topic. */
static void JNICALL segment_choose(JNIEnv *env, jclass class, jlong handle, jbyteArray topic,
                                   jlongArray numbers)
{
    (void)class;
    assert(topic && numbers);

    size_t count = (size_t)(*env)->GetArrayLength(env, numbers) / RMQ_NUMBERS_PER_RANGE;
    struct rmq_queue_range *ranges = calloc(count + 1, sizeof *ranges);
    struct rmq_slice name = copied(env, topic);
    if (!ranges || !name.data) {
        if (name.data)
            throw_no_memory(env);
        free((void *)(uintptr_t)name.data);
        free(ranges);
        return;
    }

    for (size_t i = 0; i < count; ++i) {
        jlong of[RMQ_NUMBERS_PER_RANGE];
        (*env)->GetLongArrayRegion(env, numbers, (jsize)(i * RMQ_NUMBERS_PER_RANGE),
                                   RMQ_NUMBERS_PER_RANGE, of);
        ranges[i] = (struct rmq_queue_range){(int32_t)of[0], of[1], of[2], of[3], of[4]};
    }

    struct rmq_error err;
    int status =
        rmq_topic_filter_put(&segment_of(handle)->segment.topics, name, ranges, count, &err);
    free((void *)(uintptr_t)name.data);
    free(ranges);
    if (status != RMQ_OK)
        throw_status(env, status, &err);
}

/* ---- steps ---- */

static jint step_result(JNIEnv *env, const struct rmq_segment *segment,
                        enum rmq_segment_state state, jlongArray facts)
{
    assert(facts);

    jlong values[RMQ_JNI_FACTS] = {
        [RMQ_JNI_OFFSET] = segment->offset,
        [RMQ_JNI_NEEDED] = segment->needed,
        [RMQ_JNI_ENDING] = (jlong)segment->ending,
        [RMQ_JNI_ROWS] = segment->has_columns ? segment->columns.rows : 0,
    };
    (*env)->SetLongArrayRegion(env, facts, 0, RMQ_JNI_FACTS, values);
    return (jint)state;
}

static jint JNICALL segment_fill(JNIEnv *env, jclass class, jlong handle, jlongArray facts)
{
    (void)class;
    assert(facts);

    struct rmq_segment *segment = &segment_of(handle)->segment;
    enum rmq_segment_state state = RMQ_SEGMENT_OVER;
    struct rmq_error err;
    if (!segment->has_columns) {
        throw_new(env, "java/lang/IllegalStateException", "a segment without columns has no rows");
        return 0;
    }
    int status = rmq_segment_fill(segment, &state, &err);
    if (status != RMQ_OK)
        throw_status(env, status, &err);
    return step_result(env, segment, state, facts);
}

static jint JNICALL segment_summarize(JNIEnv *env, jclass class, jlong handle, jlongArray facts)
{
    (void)class;
    assert(facts);

    struct rmq_segment *segment = &segment_of(handle)->segment;
    enum rmq_segment_state state = RMQ_SEGMENT_OVER;
    struct rmq_error err;
    int status = rmq_segment_summarize(segment, &state, &err);
    if (status != RMQ_OK)
        throw_status(env, status, &err);
    return step_result(env, segment, state, facts);
}

static jint JNICALL segment_resync(JNIEnv *env, jclass class, jlong handle, jlongArray facts)
{
    (void)class;
    assert(facts);

    struct rmq_segment *segment = &segment_of(handle)->segment;
    if (!rmq_segment_can_resync(segment)) {
        throw_new(env, "java/lang/IllegalStateException", "there is nothing to pass over");
        return 0;
    }
    return step_result(env, segment, rmq_segment_resync(segment), facts);
}

static jbyteArray bytes_for_java(JNIEnv *env, const char *data, size_t size)
{
    assert(data || size == 0);

    jbyteArray made = (*env)->NewByteArray(env, (jsize)size);
    if (made)
        (*env)->SetByteArrayRegion(env, made, 0, (jsize)size, (const jbyte *)data);
    return made;
}

/* The topic that was asked about last. */
static jbyteArray JNICALL segment_topic(JNIEnv *env, jclass class, jlong handle)
{
    (void)class;
    const struct rmq_slice *topic = &segment_of(handle)->segment.topic;
    return bytes_for_java(env, topic->data, topic->size);
}

/* Whether the text has this number, as a word of digits. */
static bool has_number(const char *text, const char *number)
{
    assert(text && *number);

    size_t size = strlen(number);
    for (const char *at = text; (at = strstr(at, number)) != NULL; ++at)
        if ((at == text || !isdigit((unsigned char)at[-1])) && !isdigit((unsigned char)at[size]))
            return true;
    return false;
}

/* What is wrong at the offset, in the words of rmqstore.errors.for_status; NULL for nothing. */
static jbyteArray JNICALL segment_error(JNIEnv *env, jclass class, jlong handle)
{
    (void)class;
    const struct rmq_error *error = &segment_of(handle)->segment.error;
    if (error->status == RMQ_OK)
        return NULL;

    char text[sizeof error->detail + 64], number[24];
    snprintf(number, sizeof number, "%lld", (long long)error->at_offset);
    bool is_told = error->at_offset < 0 || has_number(error->detail, number);
    int size = snprintf(text, sizeof text, "%s: %s%s%s%s", rmq_status_text(error->status),
                        error->detail, is_told ? "" : " (offset ", is_told ? "" : number,
                        is_told ? "" : ")");
    assert(size > 0 && (size_t)size < sizeof text);
    return bytes_for_java(env, text, (size_t)size);
}

/* ---- rows ---- */

static size_t put_places(const struct ArrowArray *array, jlong *places)
{
    assert(array->n_buffers <= RMQ_PLACES_PER_ARRAY - 1);

    for (int64_t i = 0; i < RMQ_PLACES_PER_ARRAY - 1; ++i)
        places[i] = i < array->n_buffers ? (jlong)(intptr_t)array->buffers[i] : 0;
    places[RMQ_PLACES_PER_ARRAY - 1] = array->null_count;
    return RMQ_PLACES_PER_ARRAY;
}

/* Takes the rows so far: places gets the number to release them by, then of each column validity,
 * two buffers and the count of nulls, and of a map the same of its keys and of its values. */
static jlong JNICALL segment_take(JNIEnv *env, jclass class, jlong handle, jlongArray places)
{
    (void)class;
    assert(segment_of(handle)->segment.has_columns);

    struct rmq_columns *columns = &segment_of(handle)->segment.columns;
    int64_t rows = columns->rows;
    struct ArrowArray *batch = calloc(1, sizeof *batch);
    if (!batch) {
        throw_no_memory(env);
        return 0;
    }

    struct rmq_error err;
    int status = rmq_arrow_batch(columns, batch, &err);
    if (status != RMQ_OK) {
        free(batch);
        throw_status(env, status, &err);
        return 0;
    }

    jlong found[RMQ_PLACES_MAX] = {(jlong)(intptr_t)batch};
    size_t count = 1;
    for (int64_t i = 0; i < batch->n_children; ++i) {
        const struct ArrowArray *column = batch->children[i];
        count += put_places(column, found + count);
        if (column->n_children == 1) {
            const struct ArrowArray *entries = column->children[0];
            assert(entries->n_children == 2);
            count += put_places(entries->children[0], found + count);
            count += put_places(entries->children[1], found + count);
        }
    }
    assert(count <= RMQ_PLACES_MAX);
    (*env)->SetLongArrayRegion(env, places, 0, (jsize)count, found);
    if ((*env)->ExceptionCheck(env)) {
        batch->release(batch);
        free(batch);
    }
    return rows;
}

static void JNICALL segment_release(JNIEnv *env, jclass class, jlong number)
{
    (void)env, (void)class;
    assert(number != 0);

    struct ArrowArray *batch = (struct ArrowArray *)(intptr_t)number;
    batch->release(batch);
    free(batch);
}

/* ---- sums ---- */

/* The topic of each row of the summary. */
static jobjectArray JNICALL segment_topics(JNIEnv *env, jclass class, jlong handle)
{
    (void)class;
    const struct rmq_summary *summary = &segment_of(handle)->segment.summary;
    assert(summary->rows || summary->count == 0);

    jclass of_bytes = (*env)->FindClass(env, "[B");
    jobjectArray made =
        of_bytes ? (*env)->NewObjectArray(env, (jsize)summary->count, of_bytes, NULL) : NULL;
    for (size_t i = 0; made && i < summary->count; ++i) {
        const struct rmq_summary_row *row = &summary->rows[i];
        jbyteArray topic = bytes_for_java(env, row->topic, row->topic_size);
        if (!topic)
            return NULL;
        (*env)->SetObjectArrayElement(env, made, (jsize)i, topic);
        (*env)->DeleteLocalRef(env, topic);
    }
    return made;
}

/* Queue id, messages, least and greatest queue offset, store timestamp and physical offset of each
 * row of the summary. */
static jlongArray JNICALL segment_sums(JNIEnv *env, jclass class, jlong handle)
{
    (void)class;
    const struct rmq_summary *summary = &segment_of(handle)->segment.summary;
    assert(summary->rows || summary->count == 0);

    jlongArray made =
        (*env)->NewLongArray(env, (jsize)(summary->count * RMQ_NUMBERS_PER_SUM));
    for (size_t i = 0; made && i < summary->count; ++i) {
        const struct rmq_summary_row *row = &summary->rows[i];
        jlong numbers[RMQ_NUMBERS_PER_SUM] = {
            row->queue_id,
            row->messages,
            row->min_queue_offset,
            row->max_queue_offset,
            row->min_store_timestamp,
            row->max_store_timestamp,
            row->min_physical_offset,
            row->max_physical_offset,
        };
        (*env)->SetLongArrayRegion(env, made, (jsize)(i * RMQ_NUMBERS_PER_SUM),
                                   RMQ_NUMBERS_PER_SUM, numbers);
    }
    return made;
}

/* rmq_unit_positions from one direct buffer into another, which has room for count numbers. */
static jint JNICALL unit_positions(JNIEnv *env, jclass class, jobject units, jint count,
                                   jlong start, jlong stop, jobject out)
{
    (void)class;
    assert(units && out && count >= 0);

    uint8_t *from = bytes_of(env, units, (int64_t)count * 20);
    /* The core writes before it checks, so there is room for one more. */
    uint8_t *to = from ? bytes_of(env, out, ((int64_t)count + 1) * (int64_t)sizeof(int64_t)) : NULL;
    if (!to)
        return 0;
    return (jint)rmq_unit_positions(from, (size_t)count, start, stop, (int64_t *)(void *)to);
}

static jstring JNICALL version(JNIEnv *env, jclass class)
{
    (void)class;
    return (*env)->NewStringUTF(env, RMQ_TEXT(RMQ_JNI_VERSION));
}

/* ---- names ---- */

static char *const METHODS[][2] = {
    {"open", "([Ljava/lang/String;[JI[[B)J"},
    {"close", "(J)V"},
    {"feed", "(JLjava/nio/ByteBuffer;IJ)V"},
    {"visit", "(JLjava/nio/ByteBuffer;I)V"},
    {"choose", "(J[B[J)V"},
    {"fill", "(J[J)I"},
    {"summarize", "(J[J)I"},
    {"resync", "(J[J)I"},
    {"topic", "(J)[B"},
    {"error", "(J)[B"},
    {"take", "(J[J)J"},
    {"release", "(J)V"},
    {"topics", "(J)[[B"},
    {"sums", "(J)[J"},
    {"unitPositions", "(Ljava/nio/ByteBuffer;IJJLjava/nio/ByteBuffer;)I"},
    {"version", "()Ljava/lang/String;"},
};

JNIEXPORT jint JNICALL JNI_OnLoad(JavaVM *machine, void *reserved)
{
    (void)reserved;
    assert(machine);

    enum { COUNT = sizeof METHODS / sizeof *METHODS };
    /* In the order of METHODS. */
    void *functions[COUNT] = {
        (void *)segment_open,
        (void *)segment_close,
        (void *)segment_feed,
        (void *)segment_visit,
        (void *)segment_choose,
        (void *)segment_fill,
        (void *)segment_summarize,
        (void *)segment_resync,
        (void *)segment_topic,
        (void *)segment_error,
        (void *)segment_take,
        (void *)segment_release,
        (void *)segment_topics,
        (void *)segment_sums,
        (void *)unit_positions,
        (void *)version,
    };

    JNIEnv *env = NULL;
    if ((*machine)->GetEnv(machine, (void **)&env, JNI_VERSION_1_8) != JNI_OK)
        return JNI_ERR;
    jclass class = (*env)->FindClass(env, RMQ_JNI_CLASS);
    if (!class)
        return JNI_ERR;

    JNINativeMethod methods[COUNT];
    for (size_t i = 0; i < COUNT; ++i)
        methods[i] = (JNINativeMethod){METHODS[i][0], METHODS[i][1], functions[i]};
    return (*env)->RegisterNatives(env, class, methods, COUNT) == JNI_OK ? JNI_VERSION_1_8
                                                                        : JNI_ERR;
}
