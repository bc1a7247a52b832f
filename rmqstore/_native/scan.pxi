# Walking the commit log itself.


cdef class LogScan:
    """The records of the commit log from an offset to another, in the order they were stored.

    After the last one `offset` is where the walk stopped and `verdict` says why: "limit", "end", or "bad" with
    `error` (a CorruptionError) for bytes that are no record; `resync` then goes on behind them.
    """

    cdef Reader store
    cdef rmq_scan scan
    cdef bint zero_copy
    cdef bint is_over

    def __cinit__(self, Reader store, start, stop, check_crc, zero_copy):
        cdef unsigned checks = RMQ_CHECK_PLACE
        cdef int64_t first = integer_of("start", start, 0, INT64_MAX)
        cdef int64_t last = integer_of("stop", stop, 0, INT64_MAX)
        if boolean_of("check_crc", check_crc):
            checks |= RMQ_CHECK_READER
        self.store = store
        self.zero_copy = boolean_of("zero_copy", zero_copy)
        rmq_scan_begin(&self.scan, &store.alive().log.files, first, last, checks)

    def __dealloc__(self):
        rmq_scan_finish(&self.scan)

    def __iter__(self):
        return self

    def __next__(self):
        cdef rmq_record record
        cdef rmq_error err
        cdef int status
        if self.is_over:
            raise StopIteration
        self.store.enter()
        try:
            status = rmq_scan_next(&self.scan, &record, &err)
            if status == RMQ_END:
                self.is_over = True
                raise StopIteration
            check(status, &err)
            return make_record(self.store, record.data, record.total_size, record.physical_offset, record.queue_offset,
                               self.scan.file if self.zero_copy else NULL)
        finally:
            self.store.leave()

    def count(self):
        """Walk to the end without making records; return how many there were and their bytes."""
        cdef rmq_record record
        cdef rmq_error err
        cdef int status = RMQ_OK
        cdef int64_t records = 0, size = 0
        self.store.enter()
        try:
            with nogil:
                while status == RMQ_OK:
                    status = rmq_scan_next(&self.scan, &record, &err)
                    if status == RMQ_OK:
                        records += 1
                        size += record.total_size
        finally:
            self.store.leave()
        self.is_over = True
        if status != RMQ_END:
            raise error_of(&err)
        return records, size

    def resync(self):
        """After a bad record: move to the next place where a whole record lies; False when there is none."""
        cdef rmq_error err
        cdef int status
        self.store.enter()
        try:
            with nogil:
                status = rmq_scan_resync(&self.scan, &err)
        finally:
            self.store.leave()
        if status == RMQ_END:
            return False
        check(status, &err)
        self.is_over = False
        return True

    @property
    def offset(self):
        """Physical offset the walk stands at: behind the last record, or at the bad bytes."""
        return self.scan.offset

    @property
    def verdict(self):
        """Why the walk ended: "limit", "end" or "bad"; None while it goes on."""
        if not self.is_over:
            return None
        return {RMQ_SCAN_LIMIT: "limit", RMQ_SCAN_END: "end", RMQ_SCAN_BAD: "bad"}[self.scan.verdict]

    @property
    def error(self):
        """The CorruptionError of a bad end, None for other ends."""
        if not self.is_over or self.scan.verdict != RMQ_SCAN_BAD:
            return None
        return error_of(&self.scan.error)

    def close(self):
        """Let go of the mapped file."""
        rmq_scan_finish(&self.scan)
        self.is_over = True


def crc32_version():
    """Name the CRC-32 the processor runs: vpclmul, pclmul or sliced16."""
    return rmq_crc32_chosen().decode()


def crc32(data):
    """Return the CRC-32 of *data* as zlib.crc32 does, by the core's own code."""
    cdef Py_buffer view
    cdef uint32_t result
    PyObject_GetBuffer(data, &view, PyBUF_SIMPLE)
    try:
        with nogil:
            result = rmq_crc32(0, view.buf, <size_t>view.len)
        return result
    finally:
        PyBuffer_Release(&view)
