# Records out of the bytes of a commit log file, without a store.


cdef extern from "columns/arrow_abi.h" nogil:
    struct ArrowArray:
        void (*release)(ArrowArray *)


cdef extern from "columns/arrow_export.h" nogil:
    int rmq_arrow_batch(rmq_columns *columns, ArrowArray *out, rmq_error *err)


cdef extern from "columns/topic_filter.h" nogil:
    enum:
        RMQ_EVERY_QUEUE

    struct rmq_queue_range:
        int32_t queue_id
        int64_t start
        int64_t stop
        int64_t begin_ms
        int64_t end_ms

    struct rmq_topic_filter:
        pass

    int rmq_topic_filter_put(rmq_topic_filter *filter, rmq_slice topic, const rmq_queue_range *ranges,
                             size_t range_count, rmq_error *err)


cdef extern from "columns/summary.h" nogil:
    enum:
        RMQ_SUMMARY_SIZES

    struct rmq_summary_row:
        char *topic
        size_t topic_size
        int32_t queue_id
        int64_t messages
        int64_t records
        int64_t bytes
        int64_t body_bytes
        int64_t min_queue_offset
        int64_t max_queue_offset
        int64_t min_store_timestamp
        int64_t max_store_timestamp
        int64_t min_physical_offset
        int64_t max_physical_offset
        int64_t sizes[24]

    struct rmq_summary:
        rmq_summary_row *rows
        size_t count


cdef extern from "columns/segment.h" nogil:
    struct rmq_segment_options:
        int64_t start
        int64_t stop
        int64_t file_end
        bint check_crc
        bint unwrap
        bint dispatched_only
        bint by_topic
        int64_t begin_ms
        int64_t end_ms
        const rmq_slice *tags
        size_t tag_count

    enum rmq_segment_state:
        RMQ_SEGMENT_FULL, RMQ_SEGMENT_MORE, RMQ_SEGMENT_TOPIC, RMQ_SEGMENT_CORRUPT, RMQ_SEGMENT_OVER
        RMQ_SEGMENT_FOUND

    enum rmq_segment_ending:
        RMQ_ENDING_NONE, RMQ_ENDING_STOP, RMQ_ENDING_BLANK, RMQ_ENDING_UNWRITTEN

    struct rmq_segment:
        rmq_columns columns
        bint has_columns
        rmq_topic_filter topics
        rmq_summary summary
        int64_t offset
        int64_t needed
        rmq_slice topic
        rmq_segment_ending ending
        rmq_error error
        int64_t records
        int64_t bytes

    int rmq_segment_open(rmq_segment *segment, const rmq_segment_options *options, const rmq_columns_options *columns,
                         rmq_error *err)
    void rmq_segment_close(rmq_segment *segment)
    int rmq_segment_visit(rmq_segment *segment, const uint8_t *positions, size_t count, rmq_error *err)
    int rmq_segment_feed(rmq_segment *segment, const uint8_t *data, size_t size, int64_t at, rmq_error *err)
    int rmq_segment_fill(rmq_segment *segment, rmq_segment_state *state, rmq_error *err)
    int rmq_segment_summarize(rmq_segment *segment, rmq_segment_state *state, rmq_error *err)
    rmq_segment_state rmq_segment_resync(rmq_segment *segment)
    bint rmq_segment_can_resync(const rmq_segment *segment)


cdef extern from "columns/unit_bytes.h" nogil:
    struct rmq_file_sums:
        int64_t start
        int64_t stop
        int64_t file_size
        size_t file_count
        int64_t *sizes
        int64_t *ends

    size_t rmq_unit_positions(const uint8_t *units, size_t unit_count, int64_t start, int64_t stop, int64_t *out)
    int64_t rmq_first_difference(const uint8_t *a, const uint8_t *b, size_t size)
    bint rmq_unit_add_sizes(const uint8_t *units, size_t unit_count, size_t unit_size, rmq_file_sums *sums,
                            int64_t *last)


cdef tuple SEGMENT_STATES = ("full", "more", "topic", "corrupt", "over", "found")
cdef tuple SEGMENT_ENDINGS = (None, "stop", "blank", "unwritten")


cdef void free_array_capsule(object capsule) noexcept:
    cdef ArrowArray *array = <ArrowArray *>PyCapsule_GetPointer(capsule, "arrow_array")
    if array.release != NULL:
        array.release(array)
    free(array)


@cython.final
@cython.no_gc
cdef class ArrowBatch:
    """Rows to be imported once by the Arrow PyCapsule interface."""

    cdef object schema
    cdef object array
    cdef readonly int64_t rows

    def __init__(self, *args, **kwargs):
        raise TypeError("batches come from SegmentScan.take")

    def __len__(self):
        return self.rows

    def __arrow_c_array__(self, requested_schema=None):
        """Return capsules named arrow_schema and arrow_array. *requested_schema* is not looked at."""
        cdef object schema = self.schema, array = self.array
        if array is None:
            raise ArgumentError("these rows were handed over before")
        self.schema = self.array = None
        return schema, array


cdef ArrowBatch take_rows(rmq_columns *columns, int64_t rows):
    cdef ArrowBatch batch = ArrowBatch.__new__(ArrowBatch)
    cdef rmq_error err
    cdef ArrowSchema *schema = <ArrowSchema *>calloc(1, sizeof(ArrowSchema))
    cdef ArrowArray *array

    if schema == NULL:
        raise MemoryError
    batch.schema = PyCapsule_New(schema, "arrow_schema", free_schema_capsule)

    array = <ArrowArray *>calloc(1, sizeof(ArrowArray))
    if array == NULL:
        raise MemoryError
    batch.array = PyCapsule_New(array, "arrow_array", free_array_capsule)

    check(rmq_arrow_schema(columns, schema, &err), &err)
    check(rmq_arrow_batch(columns, array, &err), &err)
    batch.rows = rows
    return batch


cdef class SegmentScan:
    """The messages of one commit log file, out of its bytes handed over piece by piece, in ascending order.

    `fill` works until it needs something and says what: "full" (take the batch), "more" (feed bytes from `offset` on,
    at least `needed`), "topic" (choose about `topic`), "corrupt" (the bytes at `offset` are not a record, see `error`) or
    "over" (see `ending`). `summarize` does the same without rows. One thread at a time.
    """

    cdef rmq_segment segment
    cdef Py_buffer fed
    cdef Py_buffer visited
    cdef bint has_fed
    cdef bint has_visited
    cdef bint is_open
    cdef bint is_busy
    cdef _Tags tags
    cdef bytes asked

    def __init__(self, ArrowSelection selection or None, *, int64_t start, int64_t stop, int64_t file_end,
                 bint check_crc=False, bint unwrap=True, bint dispatched_only=False, int64_t begin_ms=INT64_MIN,
                 int64_t end_ms=INT64_MAX, tags=None, bint by_topic=False):
        cdef rmq_segment_options options
        cdef rmq_error err
        cdef int status

        if self.tags is not None:
            raise TypeError("a scan is begun once")
        self.tags = _Tags(tags)

        memset(&options, 0, sizeof(options))
        options.start = start
        options.stop = stop
        options.file_end = file_end
        options.check_crc = check_crc
        options.unwrap = unwrap
        options.dispatched_only = dispatched_only
        options.by_topic = by_topic
        options.begin_ms = begin_ms
        options.end_ms = end_ms

        options.tags = self.tags.slices
        options.tag_count = self.tags.count

        status = rmq_segment_open(&self.segment, &options, NULL if selection is None else &selection.options, &err)
        if status != RMQ_OK:
            rmq_segment_close(&self.segment)

        if status == RMQ_INVALID:
            raise ArgumentError(err.detail.decode())
        check(status, &err)
        self.is_open = True

    def __dealloc__(self):
        if self.is_open:
            rmq_segment_close(&self.segment)
        self.let_go()

    cdef void let_go(self) noexcept:
        if self.has_fed:
            PyBuffer_Release(&self.fed)
        if self.has_visited:
            PyBuffer_Release(&self.visited)
        self.has_fed = self.has_visited = False

    cdef int enter(self) except -1:
        if not self.is_open:
            raise ArgumentError("the scan is closed")
        if self.is_busy:
            raise ArgumentError("the scan is at work in another thread")
        return 0

    cdef void shut(self) noexcept:
        self.is_open = False
        rmq_segment_close(&self.segment)
        self.let_go()

    cdef str leave(self, int status, rmq_segment_state state, const rmq_error *err):
        """What a step came to; without memory there is no way on."""
        self.is_busy = False
        if status != RMQ_OK:
            self.shut()
            raise error_of(err)
        if state == RMQ_SEGMENT_TOPIC:
            self.asked = PyBytes_FromStringAndSize(self.segment.topic.data, <Py_ssize_t>self.segment.topic.size)
        return SEGMENT_STATES[<int>state]

    def visit(self, positions):
        """Read only the records at these physical offsets: an array of native int64, ascending, held until the next.

        Those before `offset` are left out. Raises CorruptionError when they do not ascend.
        """
        cdef Py_buffer view
        cdef rmq_error err
        self.enter()
        PyObject_GetBuffer(positions, &view, PyBUF_SIMPLE)
        if view.len % sizeof(int64_t):
            PyBuffer_Release(&view)
            raise ArgumentError(f"{view.len} bytes are not a whole number of int64")
        if self.has_visited:
            PyBuffer_Release(&self.visited)
        memcpy(&self.visited, &view, sizeof(view))
        self.has_visited = True
        check(rmq_segment_visit(&self.segment, <const uint8_t *>self.visited.buf,
                                <size_t>self.visited.len // sizeof(int64_t), &err), &err)

    def choose(self, bytes topic not None, queues):
        """Decide which messages of *topic* are wanted; a later decision replaces an earlier one.

        *queues* holds (queue id, or -1 for all that are not named; start and stop queue offset; begin and end of the
        store timestamp in ms); None or nothing: the topic is not wanted.
        """
        cdef list ranges = [] if queues is None else list(queues)
        cdef size_t count = <size_t>len(ranges), i = 0
        cdef rmq_slice name
        cdef rmq_error err
        cdef rmq_queue_range *made

        self.enter()
        made = <rmq_queue_range *>calloc(count + 1, sizeof(rmq_queue_range))
        if made == NULL:
            raise MemoryError

        try:
            for queue_id, start, stop, begin_ms, end_ms in ranges:
                if queue_id < RMQ_EVERY_QUEUE:
                    raise ArgumentError(f"queue ids begin at 0, -1 stands for all others: {queue_id}")
                made[i].queue_id, made[i].start, made[i].stop = queue_id, start, stop
                made[i].begin_ms, made[i].end_ms = begin_ms, end_ms
                i += 1

            name.data, name.size = PyBytes_AS_STRING(topic), <size_t>len(topic)
            check(rmq_topic_filter_put(&self.segment.topics, name, made, count, &err), &err)
        finally:
            free(made)

    def feed(self, data, int64_t offset):
        """Hand over bytes of the file that begin at this physical offset; they must hold `scan.offset`.

        They are held until the next feed or close.
        """
        cdef Py_buffer view
        cdef rmq_error err
        cdef int status
        self.enter()
        PyObject_GetBuffer(data, &view, PyBUF_SIMPLE)
        status = rmq_segment_feed(&self.segment, <const uint8_t *>view.buf, <size_t>view.len, offset, &err)
        if status != RMQ_OK:
            PyBuffer_Release(&view)
            raise ArgumentError(err.detail.decode())
        if self.has_fed:
            PyBuffer_Release(&self.fed)
        memcpy(&self.fed, &view, sizeof(view))
        self.has_fed = True

    def fill(self):
        """Make rows until the batch is "full", or for another reason: see the class."""
        cdef rmq_segment_state state = RMQ_SEGMENT_OVER
        cdef rmq_error err
        cdef int status
        self.enter()
        if not self.segment.has_columns:
            raise ArgumentError("a scan without a selection makes no rows")
        self.is_busy = True
        with nogil:
            status = rmq_segment_fill(&self.segment, &state, &err)
        return self.leave(status, state, &err)

    def summarize(self):
        """Add messages to the summary; states are those of `fill` but "full"."""
        cdef rmq_segment_state state = RMQ_SEGMENT_OVER
        cdef rmq_error err
        cdef int status
        self.enter()
        self.is_busy = True
        with nogil:
            status = rmq_segment_summarize(&self.segment, &state, &err)
        return self.leave(status, state, &err)

    def resync(self):
        """Go on after "corrupt", or after an end that is "unwritten": "found", "more" (feed and call again) or "over".

        A record whose form is right is passed over whole; else the next place is looked for where a record lies that
        sums up and names its own place. `offset` tells where.
        """
        cdef rmq_segment_state state
        self.enter()
        if not rmq_segment_can_resync(&self.segment):
            raise ArgumentError("there is nothing to pass over")
        self.is_busy = True
        with nogil:
            state = rmq_segment_resync(&self.segment)
        return self.leave(RMQ_OK, state, NULL)

    def take(self):
        """Return the rows made so far, as an object with __arrow_c_array__; None when there are none."""
        self.enter()
        if not self.segment.has_columns or self.segment.columns.rows == 0:
            return None
        try:
            return take_rows(&self.segment.columns, self.segment.columns.rows)
        except BaseException:
            # The rows may be lost: a caller that went on would miss them.
            self.shut()
            raise

    def summary(self):
        """Return the sums so far, a tuple for each topic and queue, in the order they were met.

        (topic, queue id, messages, records, bytes, body bytes, least and greatest queue offset, least and greatest
        store timestamp, least and greatest physical offset, sizes): sizes are 24 counts of records by size, number i
        for 2**i to 2**(i+1) - 1 bytes, the last one for all larger ones too.
        """
        cdef list result = []
        cdef const rmq_summary_row *row
        cdef size_t i
        cdef int size
        self.enter()
        for i in range(self.segment.summary.count):
            row = &self.segment.summary.rows[i]
            result.append((
                PyBytes_FromStringAndSize(row.topic, <Py_ssize_t>row.topic_size), row.queue_id, row.messages,
                row.records, row.bytes, row.body_bytes, row.min_queue_offset, row.max_queue_offset,
                row.min_store_timestamp, row.max_store_timestamp, row.min_physical_offset, row.max_physical_offset,
                tuple([row.sizes[size] for size in range(RMQ_SUMMARY_SIZES)])))
        return result

    @property
    def rows(self):
        """Rows of the batch that is being made."""
        return self.segment.columns.rows if self.segment.has_columns else 0

    @property
    def offset(self):
        """Physical offset where reading goes on: of the next record, or of the bytes that are none."""
        return self.segment.offset

    @property
    def needed(self):
        """How many bytes from `offset` on must be fed after "more"; never beyond the file's end."""
        return self.segment.needed

    @property
    def topic(self):
        """The topic that was asked about last; empty bytes before that."""
        return self.asked or b""

    @property
    def ending(self):
        """Why it is over: "stop", "blank" (so is the rest of the file), "unwritten" (zeros at `offset`); else None."""
        return SEGMENT_ENDINGS[<int>self.segment.ending]

    @property
    def error(self):
        """The CorruptionError of the bytes at `offset`, after "corrupt"; else None."""
        return error_of(&self.segment.error) if self.segment.error.status != RMQ_OK else None

    @property
    def records(self):
        """Records with a message that was wanted, so far."""
        return self.segment.records

    @property
    def bytes(self):
        """Bytes of these records."""
        return self.segment.bytes

    def close(self):
        """Let go of buffers and bytes. Harmless when repeated."""
        if not self.is_open:
            return
        self.enter()
        self.shut()


def unit_positions(data, int64_t start, int64_t stop):
    """Return the physical offsets of the consume queue units in *data* that lie in [start, stop), as native int64.

    *data* holds whole units of 20 bytes. Units never written, and those that only fill, are left out.
    """
    cdef Py_buffer view
    cdef size_t count
    cdef bytes out
    cdef int64_t *to

    PyObject_GetBuffer(data, &view, PyBUF_SIMPLE)
    try:
        if view.len % 20:
            raise ArgumentError(f"{view.len} bytes are not a whole number of units of 20 bytes")
        count = <size_t>view.len // 20
        # One more: the core writes before it checks.
        out = PyBytes_FromStringAndSize(NULL, <Py_ssize_t>((count + 1) * sizeof(int64_t)))
        to = <int64_t *>PyBytes_AS_STRING(out)
        with nogil:
            count = rmq_unit_positions(<const uint8_t *>view.buf, count, start, stop, to)
    finally:
        PyBuffer_Release(&view)

    return out[:count * sizeof(int64_t)]


def first_difference(a, b):
    """Return the index of the first byte in which *a* and *b*, of equal length, differ; -1 when they are equal."""
    cdef Py_buffer first, second
    cdef int64_t result

    PyObject_GetBuffer(a, &first, PyBUF_SIMPLE)
    try:
        PyObject_GetBuffer(b, &second, PyBUF_SIMPLE)
        try:
            if first.len != second.len:
                raise ArgumentError(f"{first.len} and {second.len} bytes are not of equal length")
            with nogil:
                result = rmq_first_difference(<const uint8_t *>first.buf, <const uint8_t *>second.buf,
                                              <size_t>first.len)
        finally:
            PyBuffer_Release(&second)
    finally:
        PyBuffer_Release(&first)

    return result


cdef class UnitSums:
    """Sizes of the records that consume queues point at, by the file of the log in which they begin.

    The log's files are *file_count* of *file_size* bytes from *start* on. Records that begin before *start*, or at
    *stop* or after it, are left out.
    """

    cdef rmq_file_sums sums

    def __init__(self, *, int64_t start, int64_t stop, int64_t file_size, int64_t file_count):
        if file_size < 1 or file_count < 1 or file_count > (1 << 30):
            raise ArgumentError(f"{file_count} files of {file_size} bytes are not a log")
        if self.sums.sizes != NULL:
            raise TypeError("sums are begun once")
        self.sums.start = start
        self.sums.stop = stop
        self.sums.file_size = file_size
        self.sums.file_count = <size_t>file_count
        self.sums.sizes = <int64_t *>PyMem_Malloc(2 * <size_t>file_count * sizeof(int64_t))
        if self.sums.sizes == NULL:
            raise MemoryError()
        memset(self.sums.sizes, 0, 2 * <size_t>file_count * sizeof(int64_t))
        self.sums.ends = self.sums.sizes + file_count

    def __dealloc__(self):
        PyMem_Free(self.sums.sizes)

    def add(self, data, *, int64_t unit_size, int64_t last):
        """Add the whole units in *data* and return the offset of the last record, *last* without one.

        Returns None where the units of one queue do not ascend from *last* on, or point past the files.
        """
        cdef Py_buffer view
        cdef bint ascends
        if self.sums.sizes == NULL:
            raise TypeError("sums were not begun")
        if unit_size < 20:
            raise ArgumentError(f"units of {unit_size} bytes; 20 are the least")
        PyObject_GetBuffer(data, &view, PyBUF_SIMPLE)
        try:
            with nogil:
                ascends = rmq_unit_add_sizes(<const uint8_t *>view.buf, <size_t>(view.len // unit_size),
                                             <size_t>unit_size, &self.sums, &last)
        finally:
            PyBuffer_Release(&view)
        return last if ascends else None

    def files(self):
        """Return the sum of each file's records, and the physical offset after the last of them, 0 without one."""
        return [(self.sums.sizes[i], self.sums.ends[i]) for i in range(self.sums.file_count)]
