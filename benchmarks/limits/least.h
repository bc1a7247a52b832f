/* least.h -- the least work that makes a commit log record and its consume queue unit, and the
 * fastest CRC there is to do it with.
 *
 * Nothing is validated, looked up or locked: the cost of an append if all of that were free.
 * The layout is that of csrc/format/record.h and csrc/index/consume_queue.h; topic and properties
 * are those of benchmarks/workloads.py.
 */
#ifndef LIMITS_LEAST_H
#define LIMITS_LEAST_H

#include "base/bytes.h"
#include "base/crc32.h"
#include "fold.h"
#include "measure.h"

#define TOPIC "bench0"
#define PROPERTIES "TAGS\1TagA\2"
#define TAGS_CODE 2598919
#define UNIT_SIZE 20
#define CRC_TRY_S 0.004

typedef uint32_t crc_function(uint32_t crc, const void *data, size_t size);

struct crc_choice {
    const char *name;
    crc_function *run;
};

static inline size_t record_size(size_t body_size)
{
    return 91 + body_size + sizeof TOPIC - 1 + sizeof PROPERTIES - 1;
}

static inline void put_record(uint8_t *out, int64_t physical_offset, int64_t queue_offset,
                              const uint8_t *body, size_t body_size, crc_function *crc)
{
    const size_t topic_size = sizeof TOPIC - 1, properties_size = sizeof PROPERTIES - 1;
    rmq_put_i32(out, (int32_t)record_size(body_size));
    rmq_put_i32(out + 4, (int32_t)0xDAA320A7u);
    rmq_put_i32(out + 8, (int32_t)(crc(0, body, body_size) & 0x7FFFFFFFu));
    rmq_put_i32(out + 12, 3);
    rmq_put_i32(out + 16, 0);
    rmq_put_i64(out + 20, queue_offset);
    rmq_put_i64(out + 28, physical_offset);
    rmq_put_i32(out + 36, 0);
    rmq_put_i64(out + 40, 1700000000000);
    rmq_put_i64(out + 48, 0x7F00000100002A9F);
    rmq_put_i64(out + 56, 1700000000001);
    rmq_put_i64(out + 64, 0x7F00000100002A9F);
    rmq_put_i32(out + 72, 0);
    rmq_put_i64(out + 76, 0);
    rmq_put_i32(out + 84, (int32_t)body_size);
    memcpy(out + 88, body, body_size);
    uint8_t *tail = out + 88 + body_size;
    tail[0] = (uint8_t)topic_size;
    memcpy(tail + 1, TOPIC, topic_size);
    rmq_put_i16(tail + 1 + topic_size, (int16_t)properties_size);
    memcpy(tail + 3 + topic_size, PROPERTIES, properties_size);
}

static inline void put_unit(uint8_t *out, int64_t physical_offset, size_t size)
{
    rmq_put_i64(out, physical_offset);
    rmq_put_i32(out + 8, (int32_t)size);
    rmq_put_i64(out + 12, TAGS_CODE);
}

static inline double time_crc(crc_function *crc, const uint8_t *pool, size_t size, size_t ops)
{
    uint32_t sum = 0;
    double began = cpu_s();
    for (size_t op = 0, from = 0; op < ops; ++op) {
        sum ^= crc(0, pool + from, size);
        from += size;
        if (from + size > POOL_SIZE)
            from = 0;
    }
    double seconds = cpu_s() - began;
    keep(sum);
    return seconds;
}

/* Fills choices, room for RUNS_MAX, with every version this processor has; returns how many. */
static inline size_t crc_choices(struct crc_choice *choices)
{
    size_t count = 0;
    for (const struct rmq_crc32_version *each = rmq_crc32_versions(); each->name; ++each)
        if (each->supported)
            choices[count++] = (struct crc_choice){each->name, each->run};
    if (fold_is_supported())
        choices[count++] = (struct crc_choice){"independent", fold_crc32};
    return count;
}

/* The one that is fastest on bodies of this size here. */
static inline struct crc_choice fastest_crc(const uint8_t *pool, size_t size)
{
    struct crc_choice choices[RUNS_MAX];
    size_t count = crc_choices(choices), best = 0;
    double least = 1e9;
    for (size_t i = 0; i < count; ++i) {
        double once = time_crc(choices[i].run, pool, size, 100) / 100;
        size_t ops = (size_t)(CRC_TRY_S / (once > 1e-9 ? once : 1e-9)) + 1;
        double took = time_crc(choices[i].run, pool, size, ops) / (double)ops;
        if (took < least) {
            least = took;
            best = i;
        }
    }
    return choices[best];
}

/* Every version agrees with the first one, slicing by 16. */
static inline void check_crcs(const uint8_t *pool)
{
    struct crc_choice choices[RUNS_MAX];
    size_t count = crc_choices(choices);
    for (size_t i = 1; i < count; ++i)
        for (size_t size = 0; size < 3000; size += 1 + size / 50)
            if (choices[i].run(size & 7, pool + size % 61, size) !=
                choices[0].run(size & 7, pool + size % 61, size)) {
                fprintf(stderr, "CRC version %s is wrong at %zu bytes\n", choices[i].name, size);
                exit(1);
            }
}

#endif
