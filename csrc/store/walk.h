/* walk.h -- a range of records in portions, chosen by queue, tags and time.
 *
 * One walk goes over the commit log between two physical offsets, the other over one queue between
 * two queue offsets. Both end where the store ended when they began. Records of a portion are
 * decoded, were checked in form and physical offset, and stay pinned until the next portion is
 * requested. Deleted records are skipped and counted. Corrupt records are skipped and counted too,
 * or end the walk.
 */
#ifndef RMQ_WALK_H
#define RMQ_WALK_H

#include "log/scan.h"
#include "store/read.h"

#define RMQ_WALK_PORTION 128

struct rmq_walk_options {
    bool by_queue;                /* walk the queue of topic and queue_id; else the commit log */
    struct rmq_slice topic;       /* NULL data: every topic; a queue needs one */
    int32_t queue_id;             /* -1: every queue; a queue needs one */
    const struct rmq_slice *tags; /* records with one of these tags; none: all records */
    size_t tag_count;
    int64_t start;    /* queue or physical offset of the first record */
    int64_t stop;     /* records at or after it are left out */
    int64_t begin_ms; /* store timestamps in [begin_ms, end_ms) */
    int64_t end_ms;
    bool check_crc; /* body and property CRC; a record that fails is corrupt */
    bool skip_corrupt;
};

/* What a walk has skipped so far. */
struct rmq_walk_counts {
    _Atomic int64_t skipped;       /* corrupt places; units with a queue */
    _Atomic int64_t skipped_bytes; /* bytes of the corrupt places; 0 with a queue */
    _Atomic int64_t
        expired; /* offsets from start on that were deleted: bytes, or messages of a queue */
};

struct rmq_walk {
    struct rmq_store *store;
    struct rmq_walk_options options; /* topic and tags are the caller's and must outlive the walk */
    struct rmq_walk_counts counts;
    size_t count; /* records of this portion */
    struct rmq_record records[RMQ_WALK_PORTION];
    /* Over the commit log. */
    struct rmq_scan scan;
    struct rmq_mapped_file *file; /* pinned: holds the records of this portion */
    /* Over a queue. */
    int64_t offset; /* of the next message */
    int64_t offsets[RMQ_WALK_PORTION];
    struct rmq_found found[RMQ_WALK_PORTION];
    size_t found_count;
};

/* RMQ_NOT_FOUND: there is no such queue. RMQ_FORKED. */
int rmq_walk_begin(struct rmq_walk *walk, struct rmq_store *store,
                   const struct rmq_walk_options *options, struct rmq_error *err);
/* Fills records and count, with at most max_count records (at least 1) of which all but the first
 * keep the sum of sizes within max_bytes. RMQ_OK with a count of 0: no record matched so far, call
 * again. RMQ_END: the walk has ended. RMQ_CORRUPT: err has the position; a further call finds the
 * same damage. */
int rmq_walk_next(struct rmq_walk *walk, size_t max_count, int64_t max_bytes,
                  struct rmq_error *err);
/* Returns the records of this portion from number index on: the next portion begins with them. */
void rmq_walk_back(struct rmq_walk *walk, size_t index);
/* Drops the pins of this portion. One file, that of the walk's position, stays pinned. */
void rmq_walk_let_go(struct rmq_walk *walk);
/* Drops all pins. Does nothing for a zeroed walk; may be called after the store was closed. */
void rmq_walk_finish(struct rmq_walk *walk);

#endif
