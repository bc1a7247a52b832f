/* scan.h -- walking the commit log record by record.
 *
 * Common to recovery, verification and reading without queues: the order of the files, blank
 * records, and the end of the walk.
 */
#ifndef RMQ_SCAN_H
#define RMQ_SCAN_H

#include "file/file_queue.h"
#include "format/record.h"

enum rmq_scan_verdict {
    RMQ_SCAN_LIMIT, /* the scan reached its limit */
    RMQ_SCAN_END,   /* unwritten from here on, or there is no further file */
    RMQ_SCAN_BAD,   /* bytes that are not a record: see scan->error */
};

struct rmq_scan {
    struct rmq_file_queue *files;
    int64_t offset;  /* of the next record; after the last one when the walk has ended */
    int64_t limit;   /* stop at or after it; files are read to their size, whatever `wrote` is */
    unsigned checks; /* enum rmq_record_check */
    enum rmq_scan_verdict verdict;
    struct rmq_error error; /* with RMQ_SCAN_BAD */
    int32_t bad_size;       /* with RMQ_SCAN_BAD: size of the record if its form is valid, else 0 */
    struct rmq_mapped_file *file; /* pinned: holds the record last returned */
};

void rmq_scan_begin(struct rmq_scan *scan, struct rmq_file_queue *files, int64_t from,
                    int64_t limit, unsigned checks);
/* RMQ_OK: *record is the next one, valid until the next call. RMQ_END: the walk has ended, see
 * verdict. Others: the file could not be mapped. */
int rmq_scan_next(struct rmq_scan *scan, struct rmq_record *record, struct rmq_error *err);
/* After RMQ_SCAN_BAD: continues at the next record with its own physical offset, in the same file
 * or in a later one. RMQ_END when there is none below the limit. */
int rmq_scan_resync(struct rmq_scan *scan, struct rmq_error *err);
/* Drops the pin. */
void rmq_scan_finish(struct rmq_scan *scan);

#endif
