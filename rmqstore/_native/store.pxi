# Opening, closing, and what concerns the store as a whole.


cdef class AckBoard
cdef class AckInbox


cdef class StoreHandle:
    """The native half of `rmqstore.Store`; see there."""

    cdef rmq_store *handle      # the first field: tests/support/native_store.py reads it
    cdef rmq_gate *gate          # through which Arrow streams step
    cdef int calls              # of this object that run outside of the GIL
    cdef bint closing
    cdef int suspended          # calls of the main thread that signal handlers interrupt
    cdef list background        # of _Task: calls that go on although their callers do not wait any more
    cdef int views              # memoryviews into mapped files
    cdef rmq_host host
    cdef readonly object default_durability
    cdef bint flushes_each_put
    cdef int64_t flush_timeout_ms
    cdef readonly str path
    cdef readonly bint read_only
    cdef public object _master_hint  # where messages are taken, while the role refuses them here
    cdef public AckBoard _board      # of the replicas, while the store is master
    cdef object inboxes              # weak: those of loops whose puts wait for the disk
    cdef dict __dict__

    def __cinit__(self):
        self.handle = NULL
        self.background = []
        self.inboxes = WeakSet()
        self.gate = rmq_gate_create()
        if self.gate == NULL:
            raise MemoryError

    def __dealloc__(self):
        cdef rmq_error err
        if self.gate != NULL:
            rmq_gate_close(self.gate)
            rmq_gate_release(self.gate)
        if self.handle != NULL:
            # The store was not closed. Flushing it here could take long and fail unseen: let the next start recover it.
            rmq_store_abandon(self.handle)
            self.handle = NULL

    cdef rmq_store *enter(self) except NULL:
        """Begin a call that lets go of the GIL; every return goes through leave()."""
        self.alive()
        self.calls += 1
        return self.handle

    cdef rmq_store *enter_again(self) except NULL:
        """As enter(), after alive() has found that the process is the one that opened the store."""
        if self.handle == NULL or self.closing:
            raise StoreClosedError(f"store {self.path} is closed")
        self.calls += 1
        return self.handle

    cdef void leave(self) noexcept:
        self.calls -= 1

    cdef rmq_store *alive(self) except NULL:
        """The handle, for a call that keeps the GIL."""
        cdef rmq_error err
        if self.handle == NULL or self.closing:
            raise StoreClosedError(f"store {self.path} is closed")
        check(rmq_store_check(self.handle, &err), &err)
        return self.handle

    cdef bint is_forked(self) noexcept:
        """Whether this is a child of the process that opened the store: threads that were inside of calls stayed
        there, with the locks they held."""
        return self.handle != NULL and rmq_store_check(self.handle, NULL) == RMQ_FORKED

    def _disown(self):
        """Let the lock go in a forked child, where the parent has it."""
        if self.handle != NULL:
            rmq_store_disown(self.handle)

    cdef void give(self, rmq_store *handle) noexcept:
        self.handle = handle

    def _open(self, str path, dict settings):
        """Open the directory. *settings* has a value for each key read below; sizes in bytes, times in ms."""
        cdef rmq_store_options options
        cdef rmq_error err
        cdef rmq_store *handle = NULL
        cdef int status
        cdef bytes root = path.encode("utf-8", "surrogateescape")
        cdef list directories = [entry.encode("utf-8", "surrogateescape") for entry in settings["log_directories"]]
        cdef list read_only = [entry.encode("utf-8", "surrogateescape")
                               for entry in settings["read_only_log_directories"]]
        cdef const char *names[64]
        cdef Py_ssize_t i

        if self.handle != NULL:
            raise ArgumentError("the store is open already")
        if len(directories) > 32 or len(read_only) > 32:
            raise ArgumentError("more than 32 commit log paths")

        for i in range(len(directories)):
            names[i] = directories[i]
        for i in range(len(read_only)):
            names[32 + i] = read_only[i]

        memset(&options, 0, sizeof(options))
        options.root = root
        options.log_directories = names
        options.log_directory_count = <size_t>len(directories)
        options.read_only_log_directories = names + 32
        options.read_only_log_directory_count = <size_t>len(read_only)

        fill_options(&options, settings)

        self.path = path
        self.read_only = settings["read_only"]
        self.default_durability = settings["durability"]
        self.flushes_each_put = settings["flushes_each_put"]
        self.flush_timeout_ms = settings["flush_timeout_ms"]
        self.host = parse_host("store_host", settings["store_host"])

        with nogil:
            status = rmq_store_open(&options, &handle, &err)

        if status == RMQ_LOCKED and err.at_offset == getpid():
            raise StoreLockedError(f"{path} is open in this process already; use that store, or close it first",
                                   process_id=err.at_offset)
        check(status, &err)

        self.handle = handle

    def close(self):
        """Dispatch and flush everything, write the checkpoint and let the directory go. A second call does nothing.

        When a signal handler raises while calls run, the store stays open; the closing continues when they end.
        Raises ViewsOpenError while memoryviews of scanned records live, DiskError when the last flush failed (the
        store is closed nevertheless, and its next start recovers it).
        """
        cdef rmq_error err
        cdef rmq_store *handle
        cdef timespec nap
        cdef bint is_main = is_main_thread()
        cdef int interrupted
        cdef int status

        if self.handle == NULL or self.closing:
            return
        if self.views:
            raise ViewsOpenError(f"store {self.path} has {self.views} views of records open; release them first")

        # Called by a signal handler: what it interrupts cannot go on before the handler is through.
        interrupted = self.suspended if is_main else 0
        self.closing = True
        try:
            self.detach_board()
            with nogil:
                rmq_gate_close(self.gate)

            nap.tv_sec = 0
            nap.tv_nsec = 200000
            while (self.calls > interrupted or has_background(self)) and not self.is_forked():
                with nogil:
                    nanosleep(&nap, NULL)
                if is_main:
                    PyErr_CheckSignals()

            handle = self.let_go()
            status = close_store(handle, is_main, &err)
        finally:
            self.closing = False

        check(status, &err)

    def abandon(self):
        """End as a process that dies does: nothing is flushed, the abort marker stays. For tests of recovery."""
        cdef rmq_store *handle = self.alive()
        self.detach_board()
        while has_background(self):
            (<_Task>self.background[0]).is_over(SLICE_MS)
        self.let_go()
        with nogil:
            rmq_gate_close(self.gate)
            rmq_store_abandon(handle)

    cdef int detach_board(self) except -1:
        """Let no put wait any more for replicas."""
        cdef AckBoard board = self._board
        self._board = None
        if board is not None and not self.is_forked():
            rmq_ack_board_detach(board.board)
        return 0

    cdef rmq_store *let_go(self) except NULL:
        """Take the handle from all calls and loops, whose puts then fail, and return it."""
        cdef rmq_store *handle = self.handle
        cdef list inboxes = list(self.inboxes)
        for inbox in inboxes:
            (<AckInbox>inbox).forget_disk()
        self.handle = NULL
        for inbox in inboxes:
            (<AckInbox>inbox).wake()
        return handle

    @property
    def closed(self):
        """Whether the store was closed, or never opened."""
        return self.handle == NULL

    # -- positions

    @property
    def start_offset(self):
        """Physical offset of the first byte kept; -1 while the log is empty."""
        return rmq_store_start(self.alive())

    @property
    def end_offset(self):
        """Physical offset after the last record."""
        return rmq_store_end(self.alive())

    @property
    def flushed_offset(self):
        """Physical offset below which everything is on the disk."""
        return rmq_store_flushed(self.alive())

    @property
    def dispatched_offset(self):
        """Physical offset below which queues and index are built."""
        cdef rmq_store *handle = self.alive()
        if self.read_only:
            return rmq_store_end(handle)
        return rmq_store_dispatched(handle)

    @property
    def confirm_offset(self):
        """Physical offset below which records may be read."""
        cdef rmq_store *handle = self.alive()
        if self.read_only:
            return rmq_store_end(handle)
        return rmq_store_dispatch_limit(handle)

    @property
    def _confirm_bound(self):
        """The confirm offset that was set, wherever the log ends; -1: none."""
        cdef rmq_confirm confirm = rmq_store_confirm_bound(self.alive())
        return confirm.offset if confirm.mode == RMQ_CONFIRM_BOUND else -1

    def _set_confirm_offset(self, offset):
        """Dispatch no further than *offset*, and keep it in the checkpoint; -1: dispatch everything."""
        cdef rmq_error err
        cdef int64_t bound = integer_of("offset", offset, -1, INT64_MAX - 1)
        check(rmq_store_set_confirm_offset(self.alive(), rmq_confirm_unset() if bound < 0 else rmq_confirm_at(bound),
                                           &err), &err)

    def _recovery(self):
        """What opening found, by the names of struct rmq_recovery."""
        cdef rmq_recovery found = rmq_store_recovery(self.alive())[0]
        return {
            "was_closed": bool(found.was_closed),
            "start_offset": found.start_offset,
            "end_offset": found.end_offset,
            "records": found.records,
            "cut_bytes": found.cut_bytes,
            "cut_path": found.cut_path.decode(),
            "was_cut": bool(found.was_cut),
            "doubtful_offset": found.doubtful_offset,
            "was_incomplete": bool(found.was_incomplete),
            "milliseconds": found.milliseconds,
        }

    def _checkpoint(self):
        """The checkpoint's fields as they would be written now."""
        cdef const rmq_checkpoint *fields = rmq_store_checkpoint(self.alive())
        return {
            "physic_timestamp": fields.physic_timestamp,
            "logics_timestamp": fields.logics_timestamp,
            "index_timestamp": fields.index_timestamp,
            "master_flushed_offset": fields.master_flushed_offset,
            "confirm_offset": fields.confirm_offset,
            "logics_physical_offset": fields.logics_physical_offset,
        }

    def _index_files_skipped(self):
        """Read-only: how many index files have another size than configured."""
        return rmq_store_index_files_skipped(self.alive())

    def _failure(self):
        """What keeps the store from working, as an exception; None while all is well."""
        cdef rmq_error err
        if rmq_store_check_health(self.alive(), &err) == RMQ_OK:
            return None
        return error_of(&err)

    def _files(self):
        """(path, start offset, size) of each commit log file, oldest first."""
        cdef rmq_store *handle = self.alive()
        cdef rmq_mapped_file *file = NULL
        cdef size_t i = 0
        cdef list result = []
        while rmq_store_pin_at(handle, i, &file, NULL) == RMQ_OK:
            result.append((file.path.decode("utf-8", "surrogateescape"), file.start, file.size))
            rmq_mapped_file_unpin(file)
            i += 1
        return result

    def _queues(self):
        """(topic, queue id, min, max, takes batches) of each queue with files, in no order; none of a deleted topic."""
        cdef rmq_queue *queue = rmq_store_first_queue(self.alive())
        cdef list result = []
        while queue != NULL:
            if queue.removed_until > 0 and rmq_queue_physical_end(queue) < 0:
                queue = rmq_queue_table_next(queue)
                continue
            result.append((text_of(queue.topic, <Py_ssize_t>queue.topic_size), queue.queue_id, rmq_queue_min(queue),
                           rmq_queue_max(queue), bool(queue.is_batch)))
            queue = rmq_queue_table_next(queue)
        return result

    def _declare_batch_queue(self, topic, queue_id):
        """Make the queue one for inner batches unless it is known already."""
        cdef rmq_queue *queue = NULL
        cdef rmq_error err
        cdef rmq_slice name
        cdef object kept = sought_text("topic", topic, &name)
        cdef int32_t number = queue_of(queue_id)
        check(rmq_store_declare_batch_queue(self.alive(), name.data, name.size, number, &queue, &err), &err)
        if not queue.is_batch:
            raise ArgumentError(f"queue {topic}/{queue_id} is a simple one already; it cannot take inner batches")

    # -- acts

    def flush(self):
        """Bring everything to the disk: log, queues, index, checkpoint. Raises DiskError or NotWritable."""
        cdef rmq_error err
        cdef rmq_store *handle = self.enter()
        cdef int status
        try:
            if is_main_thread():
                status = run_task(self, flush_task, 0, rmq_monotonic_ms() + FOREVER_MS, &err)
            else:
                with nogil:
                    status = rmq_store_flush(handle, &err)
        finally:
            self.leave()
        check(status, &err)

    def _wait_dispatched(self, int64_t offset, int64_t timeout_ms):
        cdef rmq_error err
        cdef rmq_store *handle = self.enter()
        cdef int status
        try:
            status = wait_dispatched(self, handle, offset, True, timeout_ms, &err)
        finally:
            self.leave()
        check(status, &err)

    def _wait_progress(self, int64_t seen, int64_t timeout_ms):
        """Whether `dispatched_offset` moved beyond *seen*, waiting at most so long."""
        cdef rmq_error err
        cdef rmq_store *handle = self.enter()
        cdef int status
        try:
            status = wait_dispatched(self, handle, seen + 1, False, timeout_ms, &err)
        finally:
            self.leave()
        if status == RMQ_TIMEOUT:
            return False
        check(status, &err)
        return True

    def _wait_flushed(self, int64_t offset, int64_t timeout_ms):
        cdef rmq_error err
        cdef rmq_store *handle = self.enter()
        cdef int status
        try:
            status = wait_flushed(self, handle, offset, timeout_ms, &err)
        finally:
            self.leave()
        check(status, &err)

    def _expire(self, size_t file_count):
        cdef rmq_error err
        cdef rmq_store *handle = self.enter()
        cdef int status
        try:
            with nogil:
                status = rmq_store_expire(handle, file_count, &err)
        finally:
            self.leave()
        check(status, &err)

    def _refuse(self, reason, bint refused=True):
        """Refuse messages because of the "role" or the "disk", or accept them again; neither undoes the other.

        A full disk refuses what comes raw from a master, too.
        """
        cdef unsigned number = {"role": RMQ_REFUSE_ROLE, "disk": RMQ_REFUSE_DISK}[reason]
        cdef rmq_store *handle = self.enter()
        try:
            with nogil:
                rmq_store_refuse(handle, number, refused)
        finally:
            self.leave()

    def refresh(self):
        """Take notice of what the writer in another process did since; for read-only stores."""
        cdef rmq_error err
        cdef rmq_store *handle = self.enter()
        cdef int status
        try:
            with nogil:
                status = rmq_store_refresh(handle, &err)
        finally:
            self.leave()
        check(status, &err)
