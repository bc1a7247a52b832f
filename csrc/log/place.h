/* place.h -- appending records that were encoded before.
 *
 * A run is a series of whole records without gaps, as rows.h makes them, or as another log holds
 * them. A record keeps its body, topic, properties, hosts, flags and born timestamp. It gets a new
 * physical offset, queue offset and store timestamp; a CRC property is computed again. Blank
 * records are made where files end.
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
    const uint8_t *data; /* the caller's; must not change while it is placed */
    size_t size;
    bool keeps_timestamps;
    int64_t least_timestamp; /* in: lower bound for the first record's timestamp; out: the last
                                record's timestamp. Only with keeps_timestamps */
    /* Set to 0 by the caller. */
    size_t at;               /* bytes of the run that are placed */
    int64_t records;         /* records that are placed */
    struct rmq_queue *queue; /* of the last record placed */
};

/* Whether every record of the run may be placed: it is whole and correct, fits the limits of this
 * log, and has an acceptable timestamp. RMQ_CORRUPT: bytes that are not a record.
 * RMQ_MESSAGE_ILLEGAL: an inner batch, or a message for light queues, whose properties name queue
 * offsets; a record without a CRC property in a log that has one in each; topic, queue id, size or
 * timestamp. The detail names the byte of the run. */
int rmq_run_validate(const struct rmq_run *run, const struct rmq_commit_log *log,
                     struct rmq_error *err);

/* Places some records of a validated run, in one turn of the put lock, and moves run->at.
 * RMQ_NO_SPACE, RMQ_IO: the log cannot grow; the records before run->at are stored.
 * RMQ_PAGE_CACHE_BUSY: no record is stored. */
int rmq_run_place(struct rmq_run *run, struct rmq_commit_log *log, struct rmq_error *err);

#endif
