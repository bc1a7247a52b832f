# Rows of Arrow columns as records, and records brought to their places in a log.


cdef extern from "log/place.h" nogil:
    struct rmq_run:
        const uint8_t *data
        size_t size
        bint keeps_timestamps
        int64_t least_timestamp
        size_t at
        int64_t records

    int rmq_store_place(rmq_store *store, rmq_run *run, rmq_error *err)


cdef extern from "log/rows.h" nogil:
    enum:
        RMQ_ROWS_COLUMN_COUNT

    struct rmq_cells:
        const uint8_t *validity
        const uint8_t *values
        const uint8_t *data
        size_t validity_size
        size_t values_size
        size_t data_size
        int64_t offset

    struct rmq_rows:
        int64_t count
        bint has[RMQ_ROWS_COLUMN_COUNT]
        rmq_cells cells[RMQ_ROWS_COLUMN_COUNT]
        rmq_record_limits limits
        int64_t log_file_size
        rmq_host host

    int rmq_rows_check(const rmq_rows *rows, rmq_error *err)
    int rmq_rows_encode(const rmq_rows *rows, int64_t *row, int64_t place, int64_t now_ms, uint8_t *out,
                        size_t capacity, size_t *used, rmq_error *err)


# In the order of enum rmq_rows_column.
cdef tuple ROWS_COLUMNS = ("topic", "body", "queue_id", "tags", "keys", "key_items", "properties", "names", "values",
                           "born", "stored")


cdef class RowEncoder:
    """Rows of Arrow columns as records side by side, to be brought into a log later by `place_records`.

    Begin with a batch, then encode until no bytes come back. Columns and what their nulls mean: csrc/log/rows.h.
    """

    cdef rmq_rows rows
    cdef Py_buffer views[RMQ_ROWS_COLUMN_COUNT * 3]
    cdef int held
    cdef readonly int64_t row  # number, in the batch, of the next one; after a failure that of the refused one

    def __init__(self, *, int body_size_max, int record_size_max, bint version_by_topic_size,
                 bint append_property_crc, int64_t log_file_size, tuple host):
        if body_size_max < 0 or record_size_max < 0:
            raise ArgumentError("a size limit must not be negative")
        self.rows.limits.body_size_max = body_size_max
        self.rows.limits.record_size_max = record_size_max
        self.rows.limits.version_by_topic_size = version_by_topic_size
        self.rows.limits.append_property_crc = append_property_crc
        self.rows.log_file_size = log_file_size
        self.rows.host = parse_host("host", host)

    def __dealloc__(self):
        self.let_go()

    cdef void let_go(self) noexcept:
        cdef int i
        self.rows.count = 0
        for i in range(self.held):
            PyBuffer_Release(&self.views[i])
        self.held = 0

    cdef const uint8_t *hold(self, buffer, size_t *size) except? NULL:
        cdef Py_buffer *view = &self.views[self.held]
        if buffer is None:
            size[0] = 0
            return NULL
        PyObject_GetBuffer(buffer, view, PyBUF_SIMPLE)
        self.held += 1
        size[0] = <size_t>view.len
        return <const uint8_t *>view.buf

    def begin(self, int64_t count, columns):
        """Take a batch of *count* rows; its buffers are held until the next one or the end.

        *columns* maps topic, body, queue_id, tags, keys, key_items, properties, names, values, born and stored to
        (offset, validity, values, data): an Arrow array's offset and buffers, None for those there are not.
        """
        cdef rmq_cells *cells
        cdef rmq_error err
        cdef int i
        cdef int status

        self.let_go()
        memset(self.rows.has, 0, sizeof(self.rows.has))
        memset(self.rows.cells, 0, sizeof(self.rows.cells))
        self.row = 0

        for name, (offset, validity, values, data) in columns.items():
            i = ROWS_COLUMNS.index(name)
            cells = &self.rows.cells[i]
            cells.offset = offset
            cells.validity = self.hold(validity, &cells.validity_size)
            cells.values = self.hold(values, &cells.values_size)
            cells.data = self.hold(data, &cells.data_size)
            self.rows.has[i] = True

        self.rows.count = count
        status = rmq_rows_check(&self.rows, &err)
        if status != RMQ_OK:
            self.let_go()
        check(status, &err)

    def encode(self, bytearray out, *, size_t begin, int64_t place, int64_t now_ms):
        """Encode rows into *out* from *begin* on, as many as fit, and return the bytes taken; 0 when no rows are left.

        *place* is where they will lie in the run. At *begin* at least record_size_max bytes are free. Raises
        MessageRejected for a row that is not a message; `row` is its number.
        """
        cdef uint8_t *target = <uint8_t *>PyByteArray_AS_STRING(out)
        cdef size_t capacity = <size_t>len(out), used = 0
        cdef rmq_error err
        cdef Py_buffer view
        cdef int status

        if begin > capacity or capacity - begin < <size_t>self.rows.limits.record_size_max:
            raise ArgumentError(f"{capacity} bytes from {begin} on may be too few for one record; at least "
                                f"{self.rows.limits.record_size_max} must be free")

        PyObject_GetBuffer(out, &view, PyBUF_SIMPLE)  # Keeps its size meanwhile.
        try:
            with nogil:
                status = rmq_rows_encode(&self.rows, &self.row, place, now_ms, target + begin, capacity - begin, &used,
                                         &err)
        finally:
            PyBuffer_Release(&view)

        check(status, &err)
        return used


def place_records(StoreHandle store, data, *, least_timestamp=None):
    """Append records that were made elsewhere, whole and side by side, and return how many, and the store timestamp of
    the last one.

    Each gets the physical and queue offset of its place. With *least_timestamp* they keep their store timestamps, which
    may not begin below it nor descend nor be in the future; without, they get the store's clock. All are validated before
    the first is stored: CorruptionError for bytes that are not a record, MessageRejected. When the disk gives out in
    between, DiskError or NotWritable; those before are stored.
    """
    cdef rmq_store *handle = store.enter()
    cdef rmq_run run
    cdef rmq_error err
    cdef Py_buffer view
    cdef AckBoard board = store._board
    cdef Waited waited
    cdef int status

    memset(&run, 0, sizeof(run))
    try:
        admit(store, board, MEMORY, 0, None, &waited)
        if least_timestamp is not None:
            run.keeps_timestamps = True
            run.least_timestamp = least_timestamp

        PyObject_GetBuffer(data, &view, PyBUF_SIMPLE)
        try:
            run.data = <const uint8_t *>view.buf
            run.size = <size_t>view.len
            status = wait_raw(store, handle, &err)
            if status == RMQ_OK:
                with nogil:
                    status = rmq_store_place(handle, &run, &err)
        finally:
            PyBuffer_Release(&view)

        check(status, &err)
        reached(store, handle, board, 0, MEMORY, &waited, &err)
        if waited.replicas != RMQ_PUT_OK:
            raise failed_put(store, &waited, &err, None)
    finally:
        store.leave()

    return run.records, run.least_timestamp
