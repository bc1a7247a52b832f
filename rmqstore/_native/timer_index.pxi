# Timer log and wheel of a broker.

cdef enum:
    TIMER_UNITS_AT_ONCE = 256

cdef int64_t TIMER_MS_MAX = 1 << 59


@cython.final
cdef class TimerIndex:
    """Which messages wait for which time: the files timerlog/ and timerwheel in the folder *root*.

    Units of messages at or past the physical offset *bound* are removed. A unit is (position, magic, physical offset,
    size). With *is_new* files of a timer log are removed first. Raises DiskError, and CorruptionError for files that are
    not those of a timer log.
    """

    cdef rmq_timer_index index
    cdef bint is_open
    cdef int callers  # without the GIL

    def __init__(self, root, *, file_size, precision_ms, bound, bint is_new=False):
        cdef bytes folder = os.fsencode(os.path.join(root, "timerlog"))
        cdef bytes wheel = os.fsencode(os.path.join(root, "timerwheel"))
        cdef rmq_timer_index_options options
        cdef rmq_error err
        cdef int status

        if self.is_open:
            raise RuntimeError("the index is open")
        options.vfs = rmq_vfs_posix()
        options.log_directory = folder
        options.wheel_path = wheel
        options.file_size = integer_of("file_size", file_size, 1, INT32_MAX)
        options.precision_ms = integer_of("precision_ms", precision_ms, 1, INT32_MAX)
        options.bound = integer_of("bound", bound, 0, INT64_MAX)
        with nogil:
            status = rmq_timer_index_clear(&options, &err) if is_new else RMQ_OK
            if status == RMQ_OK:
                status = rmq_timer_index_open(&self.index, &options, &err)
        check(status, &err)
        self.is_open = True

    def __dealloc__(self):
        self.close()

    cpdef close(self):
        """Close the files, without a flush, once no call is in progress. A second call does nothing."""
        if self.is_open:
            self.is_open = False
            self.leave(0)

    cdef int enter(self) except -1:
        self.need_open()
        self.callers += 1
        return 0

    cdef void leave(self, int count) noexcept:
        self.callers -= count
        if not self.is_open and self.callers == 0:
            rmq_timer_index_close(&self.index)

    cdef int need_open(self) except -1:
        if not self.is_open:
            raise StoreClosedError("the timer index is closed")
        return 0

    @property
    def last_offset(self):
        """The physical offset of the last unit's message, -1 without units."""
        self.need_open()
        return self.index.last_offset

    @property
    def flushed_position(self):
        """The end of the part of the timer log that is on the disk."""
        self.need_open()
        return rmq_file_queue_flushed(&self.index.log.files)

    def add(self, due_ms, *, write_ms, magic, physical_offset, size, topic_hash):
        """Append a unit to the slot of a time. Raises DiskError."""
        cdef rmq_timer_unit unit
        cdef rmq_error err
        cdef int64_t due = integer_of("due_ms", due_ms, 0, TIMER_MS_MAX)
        self.need_open()
        unit.write_ms = integer_of("write_ms", write_ms, 0, TIMER_MS_MAX)
        unit.magic = integer_of("magic", magic, 1, 7)
        unit.physical_offset = integer_of("physical_offset", physical_offset, 0, INT64_MAX)
        unit.size = integer_of("size", size, 1, INT32_MAX)
        unit.topic_hash = integer_of("topic_hash", topic_hash, INT32_MIN, INT32_MAX)
        check(rmq_timer_index_add(&self.index, due, &unit, &err), &err)

    def units(self, due_ms):
        """The units of a slot, the oldest first. Raises DiskError."""
        cdef rmq_timer_unit units[TIMER_UNITS_AT_ONCE]
        cdef rmq_error err
        cdef int64_t due = integer_of("due_ms", due_ms, 0, TIMER_MS_MAX), at = -2
        cdef size_t count = 0, i
        cdef int status
        cdef list found = []
        self.enter()

        try:
            while at != -1:
                with nogil:
                    status = rmq_timer_index_units(&self.index, due, &at, units, TIMER_UNITS_AT_ONCE, &count, &err)
                check(status, &err)
                for i in range(count):
                    found.append((units[i].position, units[i].magic, units[i].physical_offset, units[i].size))
        finally:
            self.leave(1)
        found.reverse()
        return found

    def next(self, from_ms, upto_ms):
        """The time of the first slot in [*from_ms*, *upto_ms*) with units, *upto_ms* without one."""
        self.need_open()
        return rmq_timer_index_next(&self.index, integer_of("from_ms", from_ms, 0, TIMER_MS_MAX),
                                    integer_of("upto_ms", upto_ms, 0, TIMER_MS_MAX))

    def slot_count(self, due_ms):
        """Messages less deletions in the slot of a time."""
        self.need_open()
        return rmq_timer_index_slot_count(&self.index, integer_of("due_ms", due_ms, 0, TIMER_MS_MAX))

    def count(self, from_ms):
        """Messages less deletions in slots from a time on."""
        self.need_open()
        return rmq_timer_index_count(&self.index, integer_of("from_ms", from_ms, 0, TIMER_MS_MAX))

    def flush(self):
        """Return when log and wheel are on the disk. Raises DiskError."""
        cdef rmq_error err
        cdef int status
        self.enter()
        with nogil:
            status = rmq_timer_index_flush(&self.index, &err)
        self.leave(1)
        check(status, &err)

    def delete_before(self, physical_offset):
        """Remove files whose last message is before *physical_offset*, but never the last one. Raises DiskError."""
        cdef rmq_error err
        cdef int64_t bound = integer_of("physical_offset", physical_offset, 0, INT64_MAX)
        cdef int status
        self.enter()
        with nogil:
            status = rmq_timer_index_delete_before(&self.index, bound, &err)
        self.leave(1)
        check(status, &err)
