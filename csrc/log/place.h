/* place.h -- records that were made elsewhere, brought to their places in a log.
 *
 * A run is whole records side by side, as rows.h makes them, or as they lie in the middle of
 * another log. A record keeps its body, topic, properties, hosts, flags and born timestamp. It gets
 * the physical and queue offset of its place, a store timestamp, and the CRC property (where it
 * has one) that goes with them. Blank records are made where files end.
 *
 * Store timestamps. RocketMQ finds messages by time with a binary search over a queue, and after a
 * crash chooses the file to recover from by the timestamps of the files' first records: both need
 * store timestamps that do not descend in the log. A placed record gets the log's clock, as every
 * put does. It keeps its own timestamp only if that is not older than the previous one and not
 * newer than the clock.
 */
#ifndef RMQ_PLACE_H
#define RMQ_PLACE_H

#include "log/commit_log.h"

struct rmq_run {
    const uint8_t *data; /* the caller's; not changed while it is placed */
    size_t size;
    bool keeps_timestamps;
    int64_t least_timestamp; /* in: what the first record's may not be below; out: the last one's.
                                Only with keeps_timestamps */
    /* Set to 0 by the caller. */
    size_t at;               /* bytes of the run that are in the log */
    int64_t records;         /* that are in the log */
    struct rmq_queue *queue; /* of the last record placed */
};

/* Whether every record of the run may be placed: it is whole and right, fits the limits of this
 * log, and has an acceptable timestamp. RMQ_CORRUPT: bytes that are no record. RMQ_MESSAGE_ILLEGAL:
 * an inner batch, or a message for light queues, whose properties name queue offsets; a record
 * without a CRC property in a log that has one in each; topic, queue id, size or timestamp. The
 * detail names the byte of the run. */
int rmq_run_validate(const struct rmq_run *run, const struct rmq_commit_log *log,
                     struct rmq_error *err);

/* Places some records of a validated run, in one turn of the put lock, and moves run->at.
 * RMQ_NO_SPACE, RMQ_IO: the log cannot grow; those before run->at are stored.
 * RMQ_PAGE_CACHE_BUSY. */
int rmq_run_place(struct rmq_run *run, struct rmq_commit_log *log, struct rmq_error *err);

#endif
