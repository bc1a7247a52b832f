# Records as Arrow columns, by the Arrow PyCapsule interface.

from cpython.pycapsule cimport PyCapsule_GetPointer, PyCapsule_New
from cpython.ref cimport Py_DECREF, Py_INCREF
from libc.stdlib cimport calloc, free


cdef extern from "Python.h":
    int Py_IsInitialized() nogil


cdef extern from "columns/arrow_abi.h" nogil:
    struct ArrowSchema:
        void (*release)(ArrowSchema *)

    struct ArrowArrayStream:
        int (*get_schema)(ArrowArrayStream *, ArrowSchema *out)
        void (*release)(ArrowArrayStream *)


cdef extern from "columns/columns.h" nogil:
    enum:
        RMQ_COLUMN_COUNT

    struct rmq_column_info:
        const char *name

    struct rmq_columns_options:
        const uint8_t *columns
        size_t column_count
        int64_t max_rows
        int64_t max_bytes
        bint large_binary
        bint microseconds
        bint all_nullable

    struct rmq_columns:
        int64_t rows

    const rmq_column_info *rmq_column_infos()
    int rmq_columns_options_check(const rmq_columns_options *options, rmq_error *err)
    int rmq_columns_open(rmq_columns *columns, const rmq_columns_options *options, rmq_error *err)
    void rmq_columns_close(rmq_columns *columns)


cdef extern from "columns/arrow_export.h" nogil:
    int rmq_arrow_schema(const rmq_columns *columns, ArrowSchema *out, rmq_error *err)


cdef extern from "columns/arrow_stream.h" nogil:
    struct rmq_arrow_options:
        rmq_store *store
        rmq_gate *gate
        rmq_columns_options columns
        bint by_queue
        rmq_slice topic
        int32_t queue_id
        const rmq_slice *tags
        size_t tag_count
        int64_t start
        int64_t stop
        int64_t begin_ms
        int64_t end_ms
        bint unwrap
        bint check_crc
        bint skip_corrupt
        void (*released)(void *context) noexcept
        void *context

    struct rmq_arrow_counts:
        int64_t rows
        int64_t skipped
        int64_t skipped_bytes
        int64_t expired

    struct rmq_arrow_stream:
        pass

    int rmq_arrow_stream_open(const rmq_arrow_options *options, rmq_arrow_stream **stream, rmq_error *err)
    void rmq_arrow_stream_release(rmq_arrow_stream *stream)
    void rmq_arrow_stream_export(rmq_arrow_stream *stream, ArrowArrayStream *out)
    void rmq_arrow_stream_counts(const rmq_arrow_stream *stream, rmq_arrow_counts *counts)


cdef void let_store_go(void *store) noexcept with gil:
    # A reader may outlive the interpreter, and is then released after everything else.
    if Py_IsInitialized():
        Py_DECREF(<object>store)


cdef void free_stream_capsule(object capsule) noexcept:
    cdef ArrowArrayStream *stream = <ArrowArrayStream *>PyCapsule_GetPointer(capsule, "arrow_array_stream")
    if stream.release != NULL:
        stream.release(stream)
    free(stream)


cdef void free_schema_capsule(object capsule) noexcept:
    cdef ArrowSchema *schema = <ArrowSchema *>PyCapsule_GetPointer(capsule, "arrow_schema")
    if schema.release != NULL:
        schema.release(schema)
    free(schema)


def arrow_columns():
    """Return the names of all columns, in the order of the core's table."""
    cdef const rmq_column_info *infos = rmq_column_infos()
    cdef int i
    return tuple([infos[i].name.decode() for i in range(RMQ_COLUMN_COUNT)])


cdef class ArrowSelection:
    """A choice of columns by name, in order, with the size of batches; made of names that exist.

    With *microseconds* timestamps have that unit, those out of its range being its ends; *all_nullable* makes the
    schema say that every column may be null.
    """

    cdef rmq_columns_options options
    cdef uint8_t numbers[RMQ_COLUMN_COUNT]
    cdef readonly tuple names

    def __init__(self, names, *, int64_t batch_rows, int64_t batch_bytes, bint large_binary, bint microseconds=False,
                 bint all_nullable=False):
        cdef tuple known = arrow_columns()
        cdef rmq_error err
        cdef Py_ssize_t i

        self.names = tuple(names)
        if len(self.names) > RMQ_COLUMN_COUNT:
            raise ArgumentError(f"{len(self.names)} columns; there are {RMQ_COLUMN_COUNT}")

        for i in range(len(self.names)):
            self.numbers[i] = known.index(self.names[i])

        memset(&self.options, 0, sizeof(self.options))
        self.options.columns = self.numbers
        self.options.column_count = <size_t>len(self.names)
        self.options.max_rows = batch_rows
        self.options.max_bytes = batch_bytes
        self.options.large_binary = large_binary
        self.options.microseconds = microseconds
        self.options.all_nullable = all_nullable

        if rmq_columns_options_check(&self.options, &err) != RMQ_OK:
            raise ArgumentError(err.detail.decode())

    def __arrow_c_schema__(self):
        """Return the schema as a capsule named arrow_schema."""
        cdef rmq_columns columns
        cdef rmq_error err
        cdef int status
        cdef ArrowSchema *schema = <ArrowSchema *>calloc(1, sizeof(ArrowSchema))
        if schema == NULL:
            raise MemoryError
        capsule = PyCapsule_New(schema, "arrow_schema", free_schema_capsule)
        status = rmq_columns_open(&columns, &self.options, &err)
        if status == RMQ_OK:
            status = rmq_arrow_schema(&columns, schema, &err)
        rmq_columns_close(&columns)
        check(status, &err)
        return capsule


cdef class ArrowStream:
    """Records of a store as Arrow batches; see `rmqstore.store.arrow.ArrowStream`.

    Each call of `__arrow_c_stream__` reads again; the counts are those of the last one.
    """

    cdef StoreHandle store
    cdef ArrowSelection selection
    cdef rmq_arrow_stream *last
    cdef object topic
    cdef object tags
    cdef int32_t queue_id
    cdef bint by_queue
    cdef int64_t start
    cdef int64_t stop
    cdef int64_t begin_ms
    cdef int64_t end_ms
    cdef bint unwrap
    cdef bint check_crc
    cdef bint skip_corrupt

    def __init__(self, StoreHandle store, ArrowSelection selection, *, bint by_queue, topic, int32_t queue_id, tags,
                 int64_t start, int64_t stop, int64_t begin_ms, int64_t end_ms, bint unwrap, bint check_crc,
                 bint skip_corrupt):
        self.store = store
        self.selection = selection
        self.by_queue = by_queue
        self.topic = topic
        self.queue_id = queue_id
        self.tags = tags
        self.start = start
        self.stop = stop
        self.begin_ms = begin_ms
        self.end_ms = end_ms
        self.unwrap = unwrap
        self.check_crc = check_crc
        self.skip_corrupt = skip_corrupt

    def __dealloc__(self):
        if self.last != NULL:
            rmq_arrow_stream_release(self.last)

    def __arrow_c_schema__(self):
        """Return the schema as a capsule named arrow_schema."""
        return self.selection.__arrow_c_schema__()

    def __arrow_c_stream__(self, requested_schema=None):
        """Return a capsule named arrow_array_stream. *requested_schema* is not looked at: columns are chosen before."""
        cdef rmq_arrow_options options
        cdef rmq_arrow_stream *stream = NULL
        cdef rmq_error err
        cdef _Tags tags = _Tags(self.tags)
        cdef ArrowArrayStream *out

        memset(&options, 0, sizeof(options))
        options.store = self.store.alive()
        options.gate = self.store.gate
        options.columns = self.selection.options
        options.by_queue = self.by_queue

        if self.topic is not None:
            kept = sought_text("topic", self.topic, &options.topic)
        options.queue_id = self.queue_id
        options.tags = tags.slices
        options.tag_count = tags.count

        options.start = self.start
        options.stop = self.stop
        options.begin_ms = self.begin_ms
        options.end_ms = self.end_ms

        options.unwrap = self.unwrap
        options.check_crc = self.check_crc
        options.skip_corrupt = self.skip_corrupt

        options.released = let_store_go
        options.context = <void *>self.store

        out = <ArrowArrayStream *>calloc(1, sizeof(ArrowArrayStream))
        if out == NULL:
            raise MemoryError
        capsule = PyCapsule_New(out, "arrow_array_stream", free_stream_capsule)

        check(rmq_arrow_stream_open(&options, &stream, &err), &err)
        Py_INCREF(self.store)
        rmq_arrow_stream_export(stream, out)

        if self.last != NULL:
            rmq_arrow_stream_release(self.last)
        self.last = stream

        return capsule

    cdef rmq_arrow_counts counts(self) noexcept:
        cdef rmq_arrow_counts counts
        memset(&counts, 0, sizeof(counts))
        if self.last != NULL:
            rmq_arrow_stream_counts(self.last, &counts)
        return counts

    @property
    def rows(self):
        """Rows handed out so far."""
        return self.counts().rows

    @property
    def skipped(self):
        """Corrupt places passed over so far, with on_corrupt="skip"."""
        return self.counts().skipped

    @property
    def skipped_bytes(self):
        """Bytes of the commit log passed over as corrupt; 0 when a queue is read."""
        return self.counts().skipped_bytes

    @property
    def expired(self):
        """What retention had deleted of the range: bytes of the commit log, or messages of the queue."""
        return self.counts().expired
