# The commit log as bytes: appending what another log holds, record boundaries, cutting, starting again.


cdef class LogHandle(StoreHandle):
    """What replication, repair and verification do to the log of a store, and to the files beside it."""

    def append_raw(self, physical_offset, data):
        """Append bytes of another log, as a slave does: *physical_offset* must be the end of this one, or a file border
        when it is empty.

        Bytes may hold parts of records. Raises OffsetOutOfRange when they do not fit the end.
        """
        cdef int64_t offset = integer_of("physical_offset", physical_offset, 0, INT64_MAX)
        cdef rmq_store *handle = self.enter()
        cdef Py_buffer view
        cdef rmq_error err
        cdef int status

        try:
            get_buffer("data", data, &view)
            try:
                with nogil:
                    status = rmq_store_append_raw(handle, offset, <const uint8_t *>view.buf, <size_t>view.len, &err)
            finally:
                PyBuffer_Release(&view)
        finally:
            self.leave()

        check(status, &err)

    def truncate_to(self, physical_offset):
        """End the log at *physical_offset*, for good: queues, index, confirm offset and checkpoint follow, and nothing
        behind it comes back after a crash.

        Raises OffsetOutOfRange unless a record begins there or the log ends there; at the end nothing happens.
        """
        cdef int64_t offset = integer_of("physical_offset", physical_offset, INT64_MIN, INT64_MAX)
        cdef rmq_error err
        cdef rmq_store *handle = self.enter()
        cdef int status
        try:
            if self.views:
                raise ViewsOpenError(f"store {self.path} has {self.views} views of records open; release them first")
            with nogil:
                status = rmq_store_truncate(handle, offset, &err)
        finally:
            self.leave()
        check(status, &err)

    def _copy_cut(self, int64_t start, int64_t stop):
        """Copy the bytes from *start* to *stop*, which are about to be cut; return the path of the copy below the root.

        Raises OffsetOutOfRange unless all of them are held, DiskError.
        """
        cdef rmq_error err
        cdef rmq_store *handle = self.enter()
        cdef char path[RMQ_CUT_PATH_SIZE]
        cdef int status
        try:
            with nogil:
                status = rmq_store_copy_cut(handle, start, stop, path, &err)
        finally:
            self.leave()
        check(status, &err)
        return path.decode()

    def _restart(self, int64_t physical_offset):
        """Give up all bytes; the next one is that at *physical_offset*, where a log file of this store's size begins:
        at 0, or not below the log's end.

        Raises OffsetOutOfRange for any other offset, and nothing happens then.
        """
        cdef rmq_error err
        cdef rmq_store *handle = self.enter()
        cdef int status
        try:
            if self.views:
                raise ViewsOpenError(f"store {self.path} has {self.views} views of records open; release them first")
            with nogil:
                status = rmq_store_restart(handle, physical_offset, &err)
        finally:
            self.leave()
        check(status, &err)

    def _settle_raw(self, int64_t whole_end):
        """Cut the log behind its last whole record, which ends at *whole_end*, and let puts go on, dispatched or not.
        """
        cdef rmq_error err
        cdef rmq_store *handle = self.enter()
        cdef int status
        try:
            with nogil:
                status = rmq_store_settle(handle, whole_end, &err)
        finally:
            self.leave()
        check(status, &err)

    def _remove_queues(self, topic, int64_t log_offset):
        """Remove the files of the queues of a deleted topic, with the units of records before *log_offset*, a record
        boundary. Queue offsets continue after the removed ones.

        Raises DiskError, OffsetOutOfRange, NotWritable.
        """
        cdef rmq_error err
        cdef rmq_slice name
        cdef object kept = sought_text("topic", topic, &name)
        cdef rmq_store *handle = self.enter()
        cdef int status
        try:
            with nogil:
                status = rmq_store_remove_queues(handle, name.data, name.size, log_offset, &err)
        finally:
            self.leave()
        check(status, &err)

    @property
    def _cuts(self):
        """The number of cuts and restarts of the log since it was opened."""
        return rmq_store_cuts(self.alive())

    def _begin_queues(self, starts):
        """Let queues without messages continue at queue offsets, if the log begins after 0: *starts* are (topic, queue,
        queue offset) each. Queues with messages are left out, and so are lower offsets and impossible ones.

        Raises DiskError, NotWritable.
        """
        cdef rmq_error err
        cdef list kept = list(starts)
        cdef size_t count = <size_t>len(kept), i
        cdef rmq_queue_start *begun = <rmq_queue_start *>PyMem_Malloc(count * sizeof(rmq_queue_start) if count else 1)
        cdef rmq_slice name
        cdef list names = []
        cdef rmq_store *handle
        cdef int status
        if begun == NULL:
            raise MemoryError
        try:
            for i in range(count):
                topic, queue, offset = kept[i]
                names.append(sought_text("topic", topic, &name))
                begun[i].topic, begun[i].topic_size = name.data, name.size
                begun[i].queue_id = queue_of(queue)
                begun[i].next_offset = integer_of("queue offset", offset, 0, INT64_MAX)
            handle = self.enter()
            try:
                with nogil:
                    status = rmq_store_begin_queues(handle, begun, count, &err)
            finally:
                self.leave()
            check(status, &err)
        finally:
            PyMem_Free(begun)

    @property
    def _raw_end(self):
        """Physical offset after the last byte appended raw since the log was settled, 0 when there is none."""
        return rmq_store_raw_end(self.alive())

    def _whole_end(self, int64_t border):
        """(end of the last whole record behind *border*, what is wrong there or None): records are checked, CRCs
        included."""
        cdef rmq_error err
        cdef rmq_store *handle = self.enter()
        cdef int64_t at = border
        cdef int status
        try:
            with nogil:
                status = rmq_store_advance_border(handle, &at, rmq_store_end(handle), &err)
        finally:
            self.leave()
        if status == RMQ_CORRUPT:
            return at, error_of(&err)
        check(status, &err)
        return at, None

    def _is_border(self, int64_t physical_offset):
        """Whether a record begins, or the log ends, at *physical_offset*."""
        return bool(rmq_store_is_border(self.alive(), physical_offset))

    def _last_record(self):
        """Physical offset of the last whole record, -1 when there is none."""
        cdef rmq_store *handle = self.enter()
        cdef int64_t at
        try:
            with nogil:
                at = rmq_store_last_record(handle)
        finally:
            self.leave()
        return at

    def _log_bytes(self, int64_t physical_offset, Py_ssize_t size):
        """A copy of *size* bytes of the log. Raises OffsetOutOfRange unless all of them are held."""
        cdef rmq_error err
        cdef rmq_store *handle
        cdef bytes result
        cdef uint8_t *out
        cdef int status

        if size < 0:
            raise ArgumentError(f"size must not be negative: {size}")

        handle = self.enter()
        try:
            result = PyBytes_FromStringAndSize(NULL, size)
            out = <uint8_t *>PyBytes_AS_STRING(result)
            with nogil:
                status = rmq_store_copy(handle, physical_offset, out, <size_t>size, &err)
        finally:
            self.leave()

        check(status, &err)
        return result

    # -- files beside the log

    def _replace_file(self, str name, bytes data):
        """Put *data* in the place of a file under the root, whole or not at all; durable on return."""
        cdef rmq_error err
        cdef rmq_store *handle = self.enter()
        cdef bytes native = name.encode()
        cdef const char *path = native
        cdef const char *bytes_ = PyBytes_AS_STRING(data)
        cdef size_t size = <size_t>len(data)
        cdef int status
        try:
            with nogil:
                status = rmq_store_replace_file(handle, path, bytes_, size, &err)
        finally:
            self.leave()
        check(status, &err)

    def _remove_file(self, str name):
        """Remove a file under the root if it is there; durable on return."""
        cdef rmq_error err
        cdef rmq_store *handle = self.enter()
        cdef bytes native = name.encode()
        cdef const char *path = native
        cdef int status
        try:
            with nogil:
                status = rmq_store_remove_file(handle, path, &err)
        finally:
            self.leave()
        check(status, &err)

    def _see_whole_files(self):
        """Let the log end where its last file does, whatever lies there: for verification, read-only, and before
        anything else is read."""
        cdef rmq_error err
        cdef rmq_store *handle = self.alive()
        if not self.read_only:
            raise ArgumentError("only a store opened read-only shows what lies behind its end")
        check(rmq_store_show_whole_files(handle, &err), &err)
