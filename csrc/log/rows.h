/* rows.h -- rows of Arrow columns encoded as records, one record for each row: a run for place.h.
 *
 *   column      Arrow type                 null means
 *   topic       utf8                       refused
 *   body        binary or utf8             refused
 *   queue id    int32                      0
 *   tags        utf8                       none
 *   keys        utf8, or list of utf8      none; null and empty keys of a list are left out
 *   properties  map of utf8 to utf8        none; pairs with a null value are left out
 *   born        timestamp in microseconds  born when it is stored
 *   stored      timestamp in microseconds  refused
 *
 * Integers are in native byte order, offsets are int32: the layout of the Arrow columnar format.
 * All columns except topic and body may be absent. Keys and tags are stored as the properties KEYS
 * and TAGS; if a map has these properties too, the values must be equal. A CRC property in the map
 * is left out. Times are rounded down to milliseconds. Physical offsets are those in the run, queue
 * offsets are 0.
 */
#ifndef RMQ_ROWS_H
#define RMQ_ROWS_H

#include "format/record.h"

/* The cells of one Arrow array. */
struct rmq_cells {
    const uint8_t *validity; /* one bit for each cell, lowest first; NULL: no cell is null */
    const uint8_t *values;   /* integers; for texts, lists and maps the offsets */
    const uint8_t *data;     /* bytes of texts */
    size_t validity_size;    /* bytes */
    size_t values_size;      /* bytes */
    size_t data_size;
    int64_t offset; /* number of cells before the first row's */
};

enum rmq_rows_column {
    RMQ_ROWS_TOPIC,
    RMQ_ROWS_BODY,
    RMQ_ROWS_QUEUE_ID,
    RMQ_ROWS_TAGS,
    RMQ_ROWS_KEYS,      /* texts, or lists of RMQ_ROWS_KEY_ITEMS */
    RMQ_ROWS_KEY_ITEMS, /* used with lists only */
    RMQ_ROWS_PROPERTIES,
    RMQ_ROWS_NAMES,  /* of the pairs of the maps */
    RMQ_ROWS_VALUES, /* likewise */
    RMQ_ROWS_BORN,
    RMQ_ROWS_STORED,
    RMQ_ROWS_COLUMN_COUNT,
};

struct rmq_rows {
    int64_t count;
    bool has[RMQ_ROWS_COLUMN_COUNT];
    struct rmq_cells cells[RMQ_ROWS_COLUMN_COUNT];
    struct rmq_record_limits limits;
    int64_t log_file_size; /* of the log the run is for */
    struct rmq_host host;  /* born and store host */
};

/* Whether the buffers hold as many cells as there are rows. RMQ_INVALID names the column. */
int rmq_rows_check(const struct rmq_rows *rows, struct rmq_error *err);

/* Encodes rows from number *row on, as many as fit into capacity bytes at out, and moves *row and
 * *used past them. place is the offset of out in the run, now_ms the store timestamp of rows
 * without one. capacity is at least limits.record_size_max, so that one row always fits.
 * RMQ_MESSAGE_ILLEGAL, RMQ_PROPERTIES_TOO_LARGE: row number *row cannot be a message of that log.
 * RMQ_INVALID: its offsets are outside the buffers. The rows before it are encoded. */
int rmq_rows_encode(const struct rmq_rows *rows, int64_t *row, int64_t place, int64_t now_ms,
                    uint8_t *out, size_t capacity, size_t *used, struct rmq_error *err);

#endif
