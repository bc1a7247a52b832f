/* segment_jni.c -- the records of a commit log file for a Java virtual machine.
 *
 * The binding of columns/segment.h to the class org.rmqstore.spark.NativeSegment: it checks the
 * values from Java, calls the core, and turns a status into an exception. Columns are returned as
 * addresses of Arrow buffers, which Java reads in place and releases by number.
 *
 * Bytes and positions are direct buffers, which Java keeps until the next ones. The Java class
 * ensures that one thread at a time calls these functions.
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
#include "columns/unit_bytes.h"
#include "jni/java_values.h"

#define RMQ_JNI_CLASS "org/rmqstore/spark/NativeSegment"
#define RMQ_TEXT(name) RMQ_TEXT_OF(name)
#define RMQ_TEXT_OF(name) #name

/* Numbers for each column: three buffers and the count of nulls; for a map also those of keys and
 * values. */
#define RMQ_PLACES_PER_ARRAY 4
#define RMQ_PLACES_PER_COLUMN (3 * RMQ_PLACES_PER_ARRAY)
#define RMQ_PLACES_MAX (1 + RMQ_COLUMN_COUNT * RMQ_PLACES_PER_COLUMN)
#define RMQ_NUMBERS_PER_RANGE 5
#define RMQ_NUMBERS_PER_SUM 8

enum rmq_jni_flag {
    RMQ_JNI_CHECK_CRC = 1,
    RMQ_JNI_DISPATCHED_ONLY = 2,
    RMQ_JNI_BY_TOPIC = 4,
    RMQ_JNI_SUMS_BY_TAG = 8,
};

enum rmq_jni_number {
    RMQ_JNI_START,
    RMQ_JNI_STOP,
    RMQ_JNI_FILE_END,
    RMQ_JNI_BEGIN_MS,
    RMQ_JNI_END_MS,
    RMQ_JNI_MAX_ROWS,
    RMQ_JNI_MAX_BYTES,
    RMQ_JNI_BORN_BEGIN_MS,
    RMQ_JNI_BORN_END_MS,
    RMQ_JNI_SAMPLE_SEED,
    RMQ_JNI_SAMPLE_BEGIN,
    RMQ_JNI_SAMPLE_END,
    RMQ_JNI_NUMBERS,
};

/* The results of a step, in this order. */
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
    struct rmq_message_filter filter;
};

static struct rmq_jni_segment *segment_of(jlong handle)
{
    assert(handle != 0);

    return (struct rmq_jni_segment *)(intptr_t)handle;
}

/* ---- life ---- */

static void release_segment(struct rmq_jni_segment *held)
{
    assert(held);

    rmq_segment_close(&held->segment);
    rmq_java_free_slices(held->tags, held->tag_count);
    rmq_java_free_slices((struct rmq_slice *)(uintptr_t)held->filter.keys, held->filter.key_count);
    free((void *)(uintptr_t)held->filter.sys_flags);
    free(held);
}

/* False: an exception is pending. */
static bool copy_choices(JNIEnv *env, struct rmq_jni_segment *held, jobjectArray tags,
                         jobjectArray keys, jintArray sys_flags)
{
    struct rmq_message_filter *filter = &held->filter;
    held->tags = rmq_java_slices(env, tags, &held->tag_count);
    filter->keys = held->tags ? rmq_java_slices(env, keys, &filter->key_count) : NULL;
    filter->sys_flags =
        filter->keys ? rmq_java_ints(env, sys_flags, &filter->sys_flag_count) : NULL;
    return filter->sys_flags != NULL;
}

static bool is_filtered(const struct rmq_message_filter *filter)
{
    return filter->key_count > 0 || filter->sys_flag_count > 0 ||
           filter->born_begin_ms != INT64_MIN || filter->born_end_ms != INT64_MAX ||
           filter->sample_begin != 0 || filter->sample_end != RMQ_SAMPLE_NUMBERS;
}

/* columns: names, none for a segment that is only summed up; numbers: by enum rmq_jni_number. */
static jlong JNICALL segment_open(JNIEnv *env, jclass class, jobjectArray columns,
                                  jlongArray numbers, jint flags, jobjectArray tags,
                                  jobjectArray keys, jintArray sys_flags)
{
    (void)class;
    assert(columns && numbers && tags);

    jlong given[RMQ_JNI_NUMBERS];
    (*env)->GetLongArrayRegion(env, numbers, 0, RMQ_JNI_NUMBERS, given);
    if ((*env)->ExceptionCheck(env))
        return 0;

    uint8_t chosen[RMQ_COLUMN_COUNT];
    size_t count = 0;
    if (!rmq_java_columns(env, columns, chosen, &count))
        return 0;

    struct rmq_jni_segment *held = calloc(1, sizeof *held);
    if (!held) {
        rmq_java_throw_no_memory(env);
        return 0;
    }
    held->filter.born_begin_ms = given[RMQ_JNI_BORN_BEGIN_MS];
    held->filter.born_end_ms = given[RMQ_JNI_BORN_END_MS];
    held->filter.sample_seed = (uint64_t)given[RMQ_JNI_SAMPLE_SEED];
    held->filter.sample_begin = given[RMQ_JNI_SAMPLE_BEGIN];
    held->filter.sample_end = given[RMQ_JNI_SAMPLE_END];
    if (!copy_choices(env, held, tags, keys, sys_flags)) {
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
        .filter = is_filtered(&held->filter) ? &held->filter : NULL,
        .sums_by_tag = (flags & RMQ_JNI_SUMS_BY_TAG) != 0,
    };

    struct rmq_error err;
    int status = rmq_segment_open(&held->segment, &options, count > 0 ? &made : NULL, &err);
    if (status != RMQ_OK) {
        release_segment(held);
        rmq_java_throw_status(env, status, &err);
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

static void JNICALL segment_feed(JNIEnv *env, jclass class, jlong handle, jobject buffer, jint size,
                                 jlong at)
{
    (void)class;
    assert(buffer && size >= 0 && at >= 0);

    uint8_t *data = rmq_java_buffer(env, buffer, size);
    if (!data)
        return;
    struct rmq_error err;
    int status = rmq_segment_feed(&segment_of(handle)->segment, data, (size_t)size, at, &err);
    if (status != RMQ_OK)
        rmq_java_throw_status(env, status, &err);
}

static void JNICALL segment_visit(JNIEnv *env, jclass class, jlong handle, jobject buffer,
                                  jint count)
{
    (void)class;
    assert(buffer && count >= 0);

    uint8_t *positions = rmq_java_buffer(env, buffer, (int64_t)count * (int64_t)sizeof(int64_t));
    if (!positions)
        return;
    struct rmq_error err;
    int status = rmq_segment_visit(&segment_of(handle)->segment, positions, (size_t)count, &err);
    if (status != RMQ_OK)
        rmq_java_throw_status(env, status, &err);
}

/* numbers: queue id, start, stop, begin_ms and end_ms of each range; none: the topic is not
 * wanted. */
static void JNICALL segment_choose(JNIEnv *env, jclass class, jlong handle, jbyteArray topic,
                                   jlongArray numbers)
{
    (void)class;
    assert(topic && numbers);

    size_t count = (size_t)(*env)->GetArrayLength(env, numbers) / RMQ_NUMBERS_PER_RANGE;
    struct rmq_queue_range *ranges = calloc(count + 1, sizeof *ranges);
    struct rmq_slice name = rmq_java_copy(env, topic);
    if (!ranges || !name.data) {
        if (name.data)
            rmq_java_throw_no_memory(env);
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
        rmq_java_throw_status(env, status, &err);
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
    int status =
        (segment->has_columns ? rmq_segment_fill : rmq_segment_summarize)(segment, &state, &err);
    if (status != RMQ_OK)
        rmq_java_throw_status(env, status, &err);
    return step_result(env, segment, state, facts);
}

static jint JNICALL segment_resync(JNIEnv *env, jclass class, jlong handle, jlongArray facts)
{
    (void)class;
    assert(facts);

    struct rmq_segment *segment = &segment_of(handle)->segment;
    if (!rmq_segment_can_resync(segment)) {
        rmq_java_throw(env, "java/lang/IllegalStateException", "there is nothing to pass over");
        return 0;
    }
    return step_result(env, segment, rmq_segment_resync(segment), facts);
}

/* The topic of the last decision. */
static jbyteArray JNICALL segment_topic(JNIEnv *env, jclass class, jlong handle)
{
    (void)class;
    const struct rmq_slice *topic = &segment_of(handle)->segment.topic;
    return rmq_java_bytes(env, topic->data, topic->size);
}

/* Whether the text contains this number, as a word of digits. */
static bool has_number(const char *text, const char *number)
{
    assert(text && *number);

    size_t size = strlen(number);
    for (const char *at = text; (at = strstr(at, number)) != NULL; ++at)
        if ((at == text || !isdigit((unsigned char)at[-1])) && !isdigit((unsigned char)at[size]))
            return true;
    return false;
}

/* The problem at the offset, in the words of rmqstore.errors.for_status; NULL when there is
 * none. */
static jbyteArray JNICALL segment_error(JNIEnv *env, jclass class, jlong handle)
{
    (void)class;
    const struct rmq_error *error = &segment_of(handle)->segment.error;
    if (error->status == RMQ_OK)
        return NULL;

    char text[sizeof error->detail + 64], number[24];
    snprintf(number, sizeof number, "%lld", (long long)error->at_offset);
    bool is_named = error->at_offset < 0 || has_number(error->detail, number);
    int size =
        snprintf(text, sizeof text, "%s: %s%s%s%s", rmq_status_text(error->status), error->detail,
                 is_named ? "" : " (offset ", is_named ? "" : number, is_named ? "" : ")");
    assert(size > 0 && (size_t)size < sizeof text);
    return rmq_java_bytes(env, text, (size_t)size);
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

/* Takes the present rows: places gets the number to release them by, then of each column validity,
 * two buffers and the count of nulls, and of a map the same of its keys and of its values. */
static jlong JNICALL segment_take(JNIEnv *env, jclass class, jlong handle, jlongArray places)
{
    (void)class;
    assert(segment_of(handle)->segment.has_columns);

    struct rmq_columns *columns = &segment_of(handle)->segment.columns;
    int64_t rows = columns->rows;
    struct ArrowArray *batch = calloc(1, sizeof *batch);
    if (!batch) {
        rmq_java_throw_no_memory(env);
        return 0;
    }

    struct rmq_error err;
    int status = rmq_arrow_batch(columns, batch, &err);
    if (status != RMQ_OK) {
        free(batch);
        rmq_java_throw_status(env, status, &err);
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

/* Topic and tag, NULL for none, of each row of the summary. */
static jobjectArray JNICALL segment_groups(JNIEnv *env, jclass class, jlong handle)
{
    (void)class;
    const struct rmq_summary *summary = &segment_of(handle)->segment.summary;
    assert(summary->rows || summary->count == 0);

    jclass of_bytes = (*env)->FindClass(env, "[B");
    jobjectArray made =
        of_bytes ? (*env)->NewObjectArray(env, (jsize)summary->count * 2, of_bytes, NULL) : NULL;
    for (size_t i = 0; made && i < summary->count; ++i) {
        const struct rmq_summary_row *row = &summary->rows[i];
        jbyteArray topic = rmq_java_bytes(env, row->topic, row->topic_size);
        if (!topic)
            return NULL;
        (*env)->SetObjectArrayElement(env, made, (jsize)i * 2, topic);
        (*env)->DeleteLocalRef(env, topic);

        jbyteArray tag = row->tag ? rmq_java_bytes(env, row->tag, row->tag_size) : NULL;
        if (row->tag && !tag)
            return NULL;
        (*env)->SetObjectArrayElement(env, made, (jsize)i * 2 + 1, tag);
        (*env)->DeleteLocalRef(env, tag);
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

    jlongArray made = (*env)->NewLongArray(env, (jsize)(summary->count * RMQ_NUMBERS_PER_SUM));
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
        (*env)->SetLongArrayRegion(env, made, (jsize)(i * RMQ_NUMBERS_PER_SUM), RMQ_NUMBERS_PER_SUM,
                                   numbers);
    }
    return made;
}

/* rmq_unit_positions from one direct buffer into another, which has room for count numbers. */
static jint JNICALL unit_positions(JNIEnv *env, jclass class, jobject units, jint count,
                                   jlong start, jlong stop, jobject out)
{
    (void)class;
    assert(units && out && count >= 0);

    uint8_t *from = rmq_java_buffer(env, units, (int64_t)count * 20);
    /* The core writes before it checks, so the buffer has room for one more. */
    int64_t size = ((int64_t)count + 1) * (int64_t)sizeof(int64_t);
    uint8_t *to = from ? rmq_java_buffer(env, out, size) : NULL;
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
    {"open", "([Ljava/lang/String;[JI[[B[[B[I)J"},
    {"close", "(J)V"},
    {"feed", "(JLjava/nio/ByteBuffer;IJ)V"},
    {"visit", "(JLjava/nio/ByteBuffer;I)V"},
    {"choose", "(J[B[J)V"},
    {"fill", "(J[J)I"},
    {"resync", "(J[J)I"},
    {"topic", "(J)[B"},
    {"error", "(J)[B"},
    {"take", "(J[J)J"},
    {"release", "(J)V"},
    {"groups", "(J)[[B"},
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
        (void *)segment_open,   (void *)segment_close,   (void *)segment_feed,
        (void *)segment_visit,  (void *)segment_choose,  (void *)segment_fill,
        (void *)segment_resync, (void *)segment_topic,   (void *)segment_error,
        (void *)segment_take,   (void *)segment_release, (void *)segment_groups,
        (void *)segment_sums,   (void *)unit_positions,  (void *)version,
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
