# Walking the commit log itself.


cdef bint is_corrupt_end(const rmq_scan *scan, rmq_store *handle) noexcept nogil:
    """Whether a walk that is over ended before its limit, and before the last whole record."""
    if scan.verdict == RMQ_SCAN_LIMIT or (scan.verdict == RMQ_SCAN_END and
                                          scan.offset >= rmq_file_queue_end(scan.files)):
        return False
    return not rmq_store_ends_in_part(handle, scan.offset)


cdef int scan_on(rmq_scan *scan, rmq_store *handle, bint skips, int64_t *skipped, rmq_record *record, rmq_error *err) noexcept nogil:
    """As rmq_scan_next, past corrupt places where these are skipped."""
    cdef int status = rmq_scan_next(scan, record, err)
    while status == RMQ_END and skips and is_corrupt_end(scan, handle):
        status = rmq_scan_resync(scan, err)
        if status == RMQ_OK or status == RMQ_END:
            skipped[0] += 1
        if status == RMQ_OK:
            status = rmq_scan_next(scan, record, err)
    return status


cdef class LogScan:
    """The records of the commit log from an offset to another, in the order they were stored.

    Bytes before the end of the log that are not a record raise CorruptionError, a file that was deleted meanwhile
    OffsetOutOfRange. With *on_corrupt* "skip" the walk goes
    on at the next whole record and counts the places in `skipped`; with "stop" the iteration ends there, and only
    `verdict` and `error` say so.

    When it is over, `offset` is where the walk stopped and `verdict` says why: "limit", "end" (nothing was written
    there, or the file is missing) or "bad", with `error`; `resync` then goes on at the next whole record.
    """

    cdef StoreReader store
    cdef rmq_scan scan
    cdef _Pin pin  # of the last record, while it looks into a file
    cdef bint zero_copy
    cdef bint is_over
    cdef bint raises
    cdef bint skips
    cdef object failure
    cdef readonly int64_t skipped

    def __cinit__(self, StoreReader store, start, stop, check_crc, zero_copy, on_corrupt):
        cdef unsigned checks = RMQ_CHECK_PLACE
        cdef int64_t first = integer_of("start", start, 0, INT64_MAX)
        cdef int64_t last = integer_of("stop", stop, 0, INT64_MAX)
        if boolean_of("check_crc", check_crc):
            checks |= RMQ_CHECK_READER
        self.store = store
        self.zero_copy = boolean_of("zero_copy", zero_copy)
        self.raises = on_corrupt == "fail"
        self.skips = on_corrupt == "skip"
        rmq_store_scan(store.alive(), &self.scan, first, last, checks)

    def __dealloc__(self):
        rmq_scan_finish(&self.scan)

    def __iter__(self):
        return self

    cdef object failure_here(self):
        """What the end of the walk is called; the store is entered."""
        cdef rmq_file_queue *files = self.scan.files
        if not is_corrupt_end(&self.scan, self.store.alive()):
            return None
        if self.scan.verdict == RMQ_SCAN_BAD:
            return error_of(&self.scan.error)
        at, start, end = self.scan.offset, rmq_file_queue_start(files), rmq_file_queue_end(files)
        if at < start:
            return OffsetOutOfRange(f"physical offset {at} was deleted; the log begins at {start}",
                                    start=start, end=end, nearest=start)
        return for_status(RMQ_CORRUPT, rmq_status_text(RMQ_CORRUPT).decode(),
                          f"commit log: no record at offset {at}, but the log ends at {end}", 0, at)

    cdef int finish(self) except -1:
        """The walk is over: raises what its end is called, where that was asked for."""
        self.is_over = True
        self.pin = None
        self.failure = self.failure_here()
        if self.raises and self.failure is not None:
            raise self.failure
        return 0

    def __next__(self):
        cdef rmq_record found
        cdef rmq_error err
        cdef rmq_store *handle
        cdef Record record
        cdef int status

        if self.is_over:
            raise StopIteration

        handle = self.store.enter()
        try:
            status = scan_on(&self.scan, handle, self.skips, &self.skipped, &found, &err)
            if status == RMQ_END:
                self.finish()
                raise StopIteration
            check(status, &err)
            if self.zero_copy:
                self.pin = pin_of(self.pin, self.scan.file)
            record = make_record(self.store, &found, found.queue_offset, self.pin)
            if record is None:
                raise cut_while_read(found.physical_offset)
            return record
        finally:
            self.store.leave()

    def count(self):
        """Walk to the end without making records; return how many there were and their bytes."""
        cdef rmq_record record
        cdef rmq_error err
        cdef int status = RMQ_OK
        cdef int64_t records = 0, size = 0
        cdef int64_t *skipped = &self.skipped
        cdef rmq_scan *scan = &self.scan
        cdef bint skips = self.skips
        cdef rmq_store *handle = self.store.enter()

        try:
            with nogil:
                while status == RMQ_OK:
                    status = scan_on(scan, handle, skips, skipped, &record, &err)
                    if status == RMQ_OK:
                        records += 1
                        size += record.total_size

            if status != RMQ_END:
                raise error_of(&err)
            self.finish()
        finally:
            self.store.leave()

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
        self.failure = None
        return True

    @property
    def offset(self):
        """Physical offset that the walk has reached: after the last record, or at the bad bytes."""
        return self.scan.offset

    @property
    def verdict(self):
        """Why the walk ended: "limit", "end" or "bad"; None while it goes on."""
        if not self.is_over:
            return None
        return {RMQ_SCAN_LIMIT: "limit", RMQ_SCAN_END: "end", RMQ_SCAN_BAD: "bad"}[self.scan.verdict]

    @property
    def error(self):
        """What an end before the end of the log raises with "fail": CorruptionError for damage, OffsetOutOfRange
        for a file that was deleted; None for other ends."""
        return self.failure if self.is_over else None

    def close(self):
        """Let go of the mapped file."""
        rmq_scan_finish(&self.scan)
        self.pin = None
        self.is_over = True


cdef tuple LOG_ENDS = ("cut", "damaged", "unknown")


def classify_log_end(*, int64_t last_timestamp, int64_t next_timestamp, bint is_inside, bint has_bytes, bint is_vouched,
                  bint is_known, bint is_passed, bint is_overwritten):
    """Return what ended a log before records that its queues know of: "cut" (by RocketMQ), "damaged" or "unknown".

    The facts are those of csrc/log/log_end.h; a timestamp of -1: there is no such record.
    """
    cdef rmq_log_end_facts facts = rmq_log_end_facts(last_timestamp, next_timestamp, is_inside, has_bytes, is_vouched,
                                                     is_known, is_passed, is_overwritten)
    return LOG_ENDS[<int>rmq_log_end_classify(&facts)]


def classify_read_only_end(StoreReader store not None):
    """As classify_log_end, for what follows the end of a read-only store, which was closed and whose end its queues know."""
    cdef rmq_log_end found = RMQ_LOG_END_UNKNOWN
    cdef rmq_error err
    check(rmq_store_classify_end(store.alive(), &found, &err), &err)
    return LOG_ENDS[<int>found]


def is_log_end_vouched(int64_t last_timestamp, int64_t physic_timestamp, *, bint was_closed):
    """Return whether the checkpoint vouches for a log whose last record has *last_timestamp*; see csrc/log/log_end.h."""
    return rmq_log_end_is_vouched(last_timestamp, physic_timestamp, was_closed)


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
