/* index_file.h -- hash index from keys to commit log offsets.
 *
 *   at  size  header
 *   0   8     store timestamp of the first record, ms
 *   8   8     store timestamp of the last record, ms
 *   16  8     physical offset of the first record
 *   24  8     physical offset of the last record
 *   32  4     used slots
 *   36  4     next entry number, from 1; entry 0 is never used
 *
 *   slot i, at 40 + 4 i:                    4   newest entry of the slot, 0 when empty
 *   entry k, at 40 + 4 slots + 20 k:
 *   0   4     hash of "topic#key": |Java string hash|, 0 for INT32_MIN
 *   4   8     physical offset
 *   12  4     seconds since the header's first timestamp
 *   16  4     previous entry of the slot, 0 at the end
 *
 * Source: IndexFile, IndexHeader, IndexService of RocketMQ 5.3.3; tag keys "topic#T#tag" of 5.5.0.
 * A file is named after the local time it was made at, yyyyMMddHHmmssSSS. One writer (the
 * dispatcher), any number of readers.
 */
#ifndef RMQ_INDEX_FILE_H
#define RMQ_INDEX_FILE_H

#include "base/bytes.h"
#include "file/mapped_file.h"
#include "format/properties.h"

#define RMQ_INDEX_HEADER_SIZE 40
#define RMQ_INDEX_SLOT_SIZE 4
#define RMQ_INDEX_ENTRY_SIZE 20

struct rmq_index_options {
    struct rmq_vfs *vfs;
    const char *directory;
    int32_t slot_count;  /* maxHashSlotNum */
    int32_t entry_count; /* maxIndexNum */
    bool read_only;
    bool tag_keys; /* also index "topic#T#tag" (5.5) */
};

/* One record's keys. */
struct rmq_index_request {
    struct rmq_slice topic;
    struct rmq_slice unique_key;
    struct rmq_slice keys;
    struct rmq_slice tags;
    int64_t physical_offset;
    int64_t store_timestamp;
};

#define RMQ_INDEX_NAME_SIZE 18 /* 17 digits and a NUL */

struct rmq_index {
    struct rmq_index_options options; /* the folder name is a copy of its own */
    pthread_mutex_t lock;             /* protects the array of files, not their contents */
    struct rmq_mapped_file **files;   /* oldest first */
    size_t count, capacity;
    struct rmq_mapped_file *newest; /* the writer's; NULL when the next put must make a file */
    char unfinished[RMQ_INDEX_NAME_SIZE]; /* name of a file whose making failed, and that may still
                                             exist; "": none */
};

/* ---- the bytes of a mapped file, which readers load while the writer stores ---- */

enum rmq_index_field {
    RMQ_INDEX_BEGIN_TIMESTAMP = 0,
    RMQ_INDEX_END_TIMESTAMP = 8,
    RMQ_INDEX_BEGIN_OFFSET = 16,
    RMQ_INDEX_END_OFFSET = 24,
    RMQ_INDEX_SLOTS_USED = 32,
    RMQ_INDEX_NEXT_ENTRY = 36,
};

/* One of the four int64 fields. */
static inline int64_t rmq_index_header(struct rmq_mapped_file *file, enum rmq_index_field field)
{
    const void *at = rmq_mapped_file_base(file) + field;
    return (int64_t)RMQ_BIG64(__atomic_load_n((const uint64_t *)at, __ATOMIC_RELAXED));
}

/* Slots and the entry count: a reader of either sees everything that was stored before it. */
static inline int32_t rmq_index_load_i32(const void *at)
{
    return (int32_t)RMQ_BIG32(__atomic_load_n((const uint32_t *)at, __ATOMIC_ACQUIRE));
}
static inline void rmq_index_store_i32(void *at, int32_t value)
{
    __atomic_store_n((uint32_t *)at, RMQ_BIG32((uint32_t)value), __ATOMIC_RELEASE);
}

static inline int64_t rmq_index_slot_at(int32_t slot)
{
    return RMQ_INDEX_HEADER_SIZE + (int64_t)slot * RMQ_INDEX_SLOT_SIZE;
}
static inline int64_t rmq_index_entry_at(const struct rmq_index *index, int32_t entry)
{
    return rmq_index_slot_at(index->options.slot_count) + (int64_t)entry * RMQ_INDEX_ENTRY_SIZE;
}
static inline int64_t rmq_index_file_size(const struct rmq_index *index)
{
    return rmq_index_entry_at(index, index->options.entry_count);
}

/* The number of the next entry, in 1 .. entry_count even if the file has another value. */
static inline int32_t rmq_index_next_entry(const struct rmq_index *index,
                                           struct rmq_mapped_file *file)
{
    int32_t next = rmq_index_load_i32(rmq_mapped_file_base(file) + RMQ_INDEX_NEXT_ENTRY);
    if (next < 1)
        return 1;
    return next < index->options.entry_count ? next : index->options.entry_count;
}

/* The hash that an entry stores, from the Java hash of "topic#key". */
static inline int32_t rmq_index_hash(int32_t java_hash)
{
    if (java_hash == INT32_MIN)
        return 0;
    return java_hash < 0 ? -java_hash : java_hash;
}

/* ---- opening and closing ---- */

/* Loads the existing files, in the order of their first records. Files of another size (other slot
 * or entry counts) or with a foreign name are RMQ_CORRUPT, except with read_only, where they are
 * left out and counted in *skipped. A zero-length newest file is left out, for a writer to remove
 * by rmq_index_remove_unfinished. Changes no file; the folder is made with the first one. */
int rmq_index_open(struct rmq_index *index, const struct rmq_index_options *options,
                   size_t *skipped, struct rmq_error *err);
void rmq_index_close(struct rmq_index *index);

/* Removes a newest file that was made but never written. */
int rmq_index_remove_unfinished(struct rmq_index *index, struct rmq_error *err);

/* After a crash: unlinks every file that has entries of records at or after safe_physical_offset,
 * or that was written after safe_timestamp (its last timestamp > safe_timestamp), and all files
 * after it, newest first. *rebuild_from is the smallest first physical offset of the removed files,
 * INT64_MAX when there are none. A file is also removed if its header has no entries, or others
 * than the file has, because the header may not have reached the device; records after the last one
 * kept must then be entered again. If the newest file was removed, the remaining files get no
 * further entries. */
int rmq_index_discard_unsafe(struct rmq_index *index, int64_t safe_timestamp,
                             int64_t safe_physical_offset, int64_t *rebuild_from,
                             struct rmq_error *err);
/* The *rebuild_from that rmq_index_discard_unsafe would return. */
int64_t rmq_index_unsafe_begin(struct rmq_index *index, int64_t safe_timestamp,
                               int64_t safe_physical_offset);

/* Physical offset of the last record in the index, -1 when it is empty. */
int64_t rmq_index_last_physical_offset(struct rmq_index *index);
/* Physical offset of the first record of the newest file, INT64_MAX when the index is empty. */
int64_t rmq_index_newest_begin(struct rmq_index *index);

/* Enters one record: its unique key, then each token of keys split at single spaces, then
 * (tag_keys) its tag. A record before the newest file's last record is entered already. now_ms
 * names a new file. A full file is replaced by a new one before the first key, even when the record
 * has no key. Rolling syncs the full file and sets *rolled_timestamp to its last timestamp;
 * otherwise *rolled_timestamp is unchanged. */
int rmq_index_put(struct rmq_index *index, const struct rmq_index_request *request, int64_t now_ms,
                  int64_t *rolled_timestamp, struct rmq_error *err);

/* Whether the record has a key or tag to be indexed by. */
static inline bool rmq_index_has_keys(const struct rmq_index *index,
                                      const struct rmq_index_request *request)
{
    return request->unique_key.data || request->keys.data ||
           (index->options.tag_keys && request->tags.data && request->tags.size > 0);
}

/* Whether entering the record may make a file, which needs now_ms: reading the clock is slow. */
static inline bool rmq_index_may_roll(const struct rmq_index *index,
                                      const struct rmq_index_request *request)
{
    /* Number of index entries at most: the unique key, the tag, and keys of one byte with spaces
     * between them. */
    size_t entries_max = 2 + (request->keys.size + 1) / 2;
    return !index->newest || (size_t)(index->options.entry_count -
                                      rmq_index_next_entry(index, index->newest)) <= entries_max;
}

/* Syncs the newest file. */
int rmq_index_flush(struct rmq_index *index, struct rmq_error *err);
/* Ends the newest file: the next put starts another file. Syncs it, and sets *rolled_timestamp to
 * its last timestamp. */
int rmq_index_roll(struct rmq_index *index, int64_t *rolled_timestamp, struct rmq_error *err);
/* Finds files that another process's writer has added or removed. Read-only only. New entries of
 * the newest file are visible without this call. */
int rmq_index_refresh(struct rmq_index *index, size_t *skipped, struct rmq_error *err);
/* Offsets of records with this key and a store time in [begin_ms, end_ms], newest first, at most
 * capacity, by the rules of IndexFile.selectPhyOffset over the files newest to oldest. Hash
 * collisions are not removed. */
int rmq_index_query(struct rmq_index *index, struct rmq_slice topic, struct rmq_slice key,
                    int64_t begin_ms, int64_t end_ms, int64_t *offsets, size_t capacity,
                    size_t *count, struct rmq_error *err);

/* Unlinks files whose last record is before log_start, but never the newest file. */
int rmq_index_expire(struct rmq_index *index, int64_t log_start, struct rmq_error *err);

/* ---- for index_load.c ---- */

/* Moves the file, and its pin, to the end of the array. */
int rmq_index_add(struct rmq_index *index, struct rmq_mapped_file *file, struct rmq_error *err);
/* Unlinks file number `at`, on the device too, and removes it from the array. After a failure it
 * stays in the array. */
int rmq_index_drop(struct rmq_index *index, size_t at, struct rmq_error *err);

/* ---- names ---- */

/* yyyyMMddHHmmssSSS in local time. */
void rmq_index_file_name(int64_t now_ms, char out[18]);

#endif
