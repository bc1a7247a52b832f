#include "jni/java_values.h"

#include <assert.h>
#include <stdlib.h>
#include <string.h>

void rmq_java_throw(JNIEnv *env, const char *class_name, const char *text)
{
    assert(class_name && text);

    jclass class = (*env)->FindClass(env, class_name);
    if (class)
        (*env)->ThrowNew(env, class, text);
}

void rmq_java_throw_status(JNIEnv *env, int status, const struct rmq_error *err)
{
    assert(status != RMQ_OK);

    if (status == RMQ_NO_MEMORY)
        rmq_java_throw(env, "java/lang/OutOfMemoryError", err->detail);
    else if (status == RMQ_CORRUPT)
        rmq_java_throw(env, "org/rmqstore/spark/CorruptBytesException", err->detail);
    else
        rmq_java_throw(env, "java/lang/IllegalArgumentException", err->detail);
}

void rmq_java_throw_no_memory(JNIEnv *env)
{
    rmq_java_throw(env, "java/lang/OutOfMemoryError", "no memory for a segment");
}

void rmq_java_free_slices(struct rmq_slice *slices, size_t count)
{
    assert(slices || count == 0);

    for (size_t i = 0; slices && i < count; ++i)
        free((void *)(uintptr_t)slices[i].data);
    free(slices);
}

struct rmq_slice rmq_java_copy(JNIEnv *env, jbyteArray from)
{
    assert(from);

    jsize size = (*env)->GetArrayLength(env, from);
    char *copy = malloc((size_t)size + 1);
    if (!copy) {
        rmq_java_throw_no_memory(env);
        return (struct rmq_slice){NULL, 0};
    }
    (*env)->GetByteArrayRegion(env, from, 0, size, (jbyte *)copy);
    return (struct rmq_slice){copy, (size_t)size};
}

struct rmq_slice *rmq_java_slices(JNIEnv *env, jobjectArray from, size_t *count)
{
    assert(from && count);

    jsize given = (*env)->GetArrayLength(env, from);
    struct rmq_slice *made = calloc((size_t)given + 1, sizeof *made);
    if (!made) {
        rmq_java_throw_no_memory(env);
        return NULL;
    }

    for (*count = 0; *count < (size_t)given; ++*count) {
        jbyteArray each = (*env)->GetObjectArrayElement(env, from, (jsize)*count);
        made[*count] = rmq_java_copy(env, each);
        (*env)->DeleteLocalRef(env, each);
        if (!made[*count].data) {
            rmq_java_free_slices(made, *count);
            return NULL;
        }
    }
    return made;
}

int32_t *rmq_java_ints(JNIEnv *env, jintArray from, size_t *count)
{
    assert(from && count);

    *count = (size_t)(*env)->GetArrayLength(env, from);
    int32_t *made = calloc(*count + 1, sizeof *made);
    if (!made)
        rmq_java_throw_no_memory(env);
    else
        (*env)->GetIntArrayRegion(env, from, 0, (jsize)*count, (jint *)made);
    return made;
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
bool rmq_java_columns(JNIEnv *env, jobjectArray names, uint8_t *chosen, size_t *count)
{
    assert(names && chosen && count);

    jsize given = (*env)->GetArrayLength(env, names);
    if (given > RMQ_COLUMN_COUNT) {
        rmq_java_throw(env, "java/lang/IllegalArgumentException", "more columns than there are");
        return false;
    }

    for (jsize i = 0; i < given; ++i) {
        jstring name = (*env)->GetObjectArrayElement(env, names, i);
        const char *text = (*env)->GetStringUTFChars(env, name, NULL);
        if (!text)
            return false;
        int column = column_named(text);
        if (column == RMQ_COLUMN_COUNT)
            rmq_java_throw(env, "java/lang/IllegalArgumentException", text);
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
uint8_t *rmq_java_buffer(JNIEnv *env, jobject buffer, int64_t size)
{
    uint8_t *data = (*env)->GetDirectBufferAddress(env, buffer);
    if (data && size >= 0 && size <= (*env)->GetDirectBufferCapacity(env, buffer))
        return data;
    rmq_java_throw(env, "java/lang/IllegalArgumentException", "not a direct buffer of this size");
    return NULL;
}

jbyteArray rmq_java_bytes(JNIEnv *env, const char *data, size_t size)
{
    assert(data || size == 0);

    jbyteArray made = (*env)->NewByteArray(env, (jsize)size);
    if (made)
        (*env)->SetByteArrayRegion(env, made, 0, (jsize)size, (const jbyte *)data);
    return made;
}
