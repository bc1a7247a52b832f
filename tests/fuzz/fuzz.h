/* fuzz.h -- what the fuzz targets share.
 *
 * A target takes any bytes, feeds them to one part of the core and checks what it answers. It ends
 * the process through FUZZ_REQUIRE or a sanitizer when an answer is wrong, and returns otherwise.
 * The input lies in a block of exactly its size, so that a look behind it is seen.
 */
#ifndef RMQ_FUZZ_H
#define RMQ_FUZZ_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/status.h"
#include "format/record.h"

/* Each name is a target, a folder under corpus/ and a function fuzz_NAME. */
#define FUZZ_TARGET_TABLE(X) \
    X(append_raw)            \
    X(batch)                 \
    X(batch_queue)           \
    X(checkpoint)            \
    X(columns)               \
    X(consume_queue)         \
    X(directory)             \
    X(encode)                \
    X(extension)             \
    X(ha_frame)              \
    X(index)                 \
    X(properties)            \
    X(record)                \
    X(remoting)              \
    X(segment)               \
    X(timer_log)             \
    X(utf8)

#define FUZZ_DECLARE(name) void fuzz_##name(const uint8_t *data, size_t size);
FUZZ_TARGET_TABLE(FUZZ_DECLARE)
#undef FUZZ_DECLARE

/* ---- the entry points libFuzzer knows; driver.c calls the same ---- */

/* The target is named by the environment variable FUZZ_TARGET. */
int LLVMFuzzerInitialize(int *argc, char ***argv);
int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

/* ---- checks ---- */

_Noreturn void fuzz_fail(const char *file, int line, const char *what);
#define FUZZ_REQUIRE(condition) ((condition) ? (void)0 : fuzz_fail(__FILE__, __LINE__, #condition))

/* ---- taking an input apart ---- */

struct fuzz_input {
    const uint8_t *data;
    size_t left;
};

/* The next 1 to 8 bytes as a big-endian number; zeros stand for what is missing. */
uint64_t fuzz_take(struct fuzz_input *input, size_t bytes);
/* The next size bytes, or all that are left; *taken says how many. */
const uint8_t *fuzz_take_bytes(struct fuzz_input *input, size_t size, size_t *taken);
/* A copy in a block of exactly size bytes (at least 1). */
uint8_t *fuzz_copy(const uint8_t *data, size_t size);

/* ---- checks several targets make ---- */

/* The record lies inside of [data, data + available), and its parts inside of the record. */
void fuzz_check_record(const struct rmq_record *record, const uint8_t *data, size_t available);
/* The same record encoded again has the same bytes, where the format leaves no choice. */
void fuzz_check_encoding(const struct rmq_record *record);
/* The call succeeded, or failed with a status whose bit (FUZZ_BIT) is in `allowed` and told why. */
#define FUZZ_BIT(name) (1u << RMQ_##name)
#define FUZZ_ALLOW(status, err, allowed) fuzz_allow_at(__FILE__, __LINE__, status, err, allowed)
void fuzz_allow_at(const char *file, int line, int status, const struct rmq_error *err,
                   unsigned allowed);
/* Well-formed by the table of RFC 3629. */
bool fuzz_is_utf8(const uint8_t *text, size_t size);

#endif
