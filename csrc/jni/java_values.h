/* java_values.h -- conversions between Java values and C values. A function that fails leaves an
 * exception pending; its caller returns, which passes the exception on. */
#ifndef RMQ_JAVA_VALUES_H
#define RMQ_JAVA_VALUES_H

#include <jni.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "columns/columns.h"

void rmq_java_throw(JNIEnv *env, const char *class_name, const char *text);
/* The exception for a status other than RMQ_OK. */
void rmq_java_throw_status(JNIEnv *env, int status, const struct rmq_error *err);
void rmq_java_throw_no_memory(JNIEnv *env);

/* A copy of the bytes of a byte[], which the caller frees; data is NULL on failure. */
struct rmq_slice rmq_java_copy(JNIEnv *env, jbyteArray from);
/* Copies of the elements of a byte[][], NULL on failure. */
struct rmq_slice *rmq_java_slices(JNIEnv *env, jobjectArray from, size_t *count);
/* A copy of an int[], which the caller frees; NULL on failure. */
int32_t *rmq_java_ints(JNIEnv *env, jintArray from, size_t *count);
void rmq_java_free_slices(struct rmq_slice *slices, size_t count);

/* The columns with these names; chosen has room for RMQ_COLUMN_COUNT. False on failure. */
bool rmq_java_columns(JNIEnv *env, jobjectArray names, uint8_t *chosen, size_t *count);

/* The bytes of a direct buffer; NULL when it is another kind of buffer, or too short. */
uint8_t *rmq_java_buffer(JNIEnv *env, jobject buffer, int64_t size);
/* A byte[], NULL on failure. */
jbyteArray rmq_java_bytes(JNIEnv *env, const char *data, size_t size);

#endif
