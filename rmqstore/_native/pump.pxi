# The thread that moves the log between two replicas.


cdef extern from "replica/pump.h" nogil:
    enum rmq_pump_end:
        RMQ_PUMP_RUNS, RMQ_PUMP_ACKED, RMQ_PUMP_STOPPED, RMQ_PUMP_CLOSED, RMQ_PUMP_FOREIGN, RMQ_PUMP_UNTIL, RMQ_PUMP_DAMAGED
        RMQ_PUMP_ERROR

    struct rmq_link_progress:
        int64_t next_offset
        int64_t acked_offset
        int32_t acked_epoch
        int64_t heard_ms
        int64_t wrote_ms
        int64_t blocked_ms
        int64_t caught_up_ms
        int64_t confirm_offset
        int64_t border

    struct rmq_pump_send_options:
        int fd
        bint has_epochs
        bint is_checked
        int32_t batch_size
        int32_t slot
        int32_t epoch
        int64_t epoch_start
        int64_t next_offset
        int64_t acked_offset
        int32_t acked_epoch
        int64_t proof_offset
        int64_t until
        int64_t said_confirm
        const uint8_t *leftover
        size_t leftover_size

    struct rmq_pump_receive_options:
        int fd
        bint has_epochs
        bint is_checked
        bint ack_flushed
        int32_t epoch
        int64_t epoch_start
        int64_t next_offset
        int64_t acked_offset
        int32_t acked_epoch
        int64_t border
        const uint8_t *leftover
        size_t leftover_size

    struct rmq_pump_report:
        int64_t link
        rmq_pump_end end
        rmq_link_progress progress
        rmq_error error
        uint8_t *leftover
        size_t leftover_begin
        size_t leftover_end
        uint8_t *unsent
        size_t unsent_size

    struct rmq_pump:
        pass

    struct rmq_pump_options:
        rmq_store *store
        rmq_gate *gate
        rmq_ack_board *board

    int rmq_pump_open(const rmq_pump_options *options, rmq_pump **pump, rmq_error *err)
    void rmq_pump_close(rmq_pump *pump, bint is_forked)
    void rmq_pump_before_fork(rmq_pump *pump)
    void rmq_pump_go_on(rmq_pump *pump)
    void rmq_pump_disown(rmq_pump *pump)
    int rmq_pump_notice_fd(const rmq_pump *pump)
    int rmq_pump_send(rmq_pump *pump, const rmq_pump_send_options *options, int64_t *link, rmq_error *err)
    int rmq_pump_receive(rmq_pump *pump, const rmq_pump_receive_options *options, int64_t *link, rmq_error *err)
    int rmq_pump_set_until(rmq_pump *pump, int64_t link, int64_t until, rmq_error *err)
    int rmq_pump_heartbeat(rmq_pump *pump, int64_t link, rmq_error *err)
    int rmq_pump_flush(rmq_pump *pump, int64_t offset, rmq_error *err)
    int rmq_pump_progress(rmq_pump *pump, int64_t link, rmq_link_progress *progress, rmq_error *err)
    int rmq_pump_stop(rmq_pump *pump, int64_t link, rmq_pump_report *report, rmq_error *err)
    int rmq_pump_poll(rmq_pump *pump, rmq_pump_report *report)
    void rmq_pump_report_finish(rmq_pump_report *report)


# In the order of enum rmq_pump_end.
cdef tuple HA_ENDS = ("runs", "acked", "stopped", "closed", "foreign", "until", "damaged", "error")


@cython.final
cdef class PumpReport:
    """How far a link of a pump has come, and why it is reported. Times are those of time.monotonic, in milliseconds.

    *reason* is "runs" (asked for), "acked" (it runs, acknowledgements moved) or an end: "stopped", "closed" by the
    peer, "foreign" (the leftover begins with what is not for the pump), "until", "damaged" from *offset* on, "error".
    """

    cdef readonly int64_t link
    cdef readonly str reason
    cdef readonly int64_t next_offset     # after the last byte sent (frames begun count) or appended
    cdef readonly int64_t acked_offset    # heard or sent last; -1: none yet
    cdef readonly int32_t acked_epoch     # with it, named or proven; -1: none
    cdef readonly int64_t heard_ms        # when the last whole frame was taken; -1: none yet
    cdef readonly int64_t wrote_ms        # when bytes last went out
    cdef readonly object blocked_ms       # since when the peer reads nothing of what waits; None: nothing waits
    cdef readonly object caught_up_ms     # master's link: the last moment whose log the slave is known to hold
    cdef readonly int64_t confirm_offset  # master's link: sent last; slave's: the greatest one the master named; or -1
    cdef readonly int64_t border          # slave's link: up to here records are whole and checked
    cdef readonly int64_t offset          # with an end: the place of the trouble, -1 for none
    cdef readonly str detail              # with an end: what the trouble was
    cdef readonly bytes leftover          # with an end: what was received, from the first byte not understood on
    cdef readonly bytes unsent            # with an end: what must go out before anything else on this connection

    def __init__(self, *args, **kwargs):
        raise TypeError("reports are made by Pump")

    def __repr__(self):
        return (f"PumpReport(link={self.link}, reason={self.reason!r}, next_offset={self.next_offset}, "
                f"acked_offset={self.acked_offset}, detail={self.detail!r})")


cdef PumpReport pump_report_of(int64_t link, rmq_pump_end end, const rmq_link_progress *progress):
    cdef PumpReport result = PumpReport.__new__(PumpReport)
    result.link = link
    result.reason = HA_ENDS[<int>end]
    result.next_offset = progress.next_offset
    result.acked_offset, result.acked_epoch = progress.acked_offset, progress.acked_epoch
    result.heard_ms = progress.heard_ms
    result.wrote_ms = progress.wrote_ms
    result.blocked_ms = None if progress.blocked_ms < 0 else progress.blocked_ms
    result.caught_up_ms = None if progress.caught_up_ms < 0 else progress.caught_up_ms

    result.confirm_offset = progress.confirm_offset
    result.border = progress.border

    result.offset = -1
    result.detail = ""
    result.leftover = result.unsent = b""

    return result


cdef PumpReport take_pump_report(rmq_pump_report *report):
    """The report as an object; gives its memory back."""
    cdef PumpReport result

    try:
        result = pump_report_of(report.link, report.end, &report.progress)
        if report.error.status != RMQ_OK:
            result.offset = report.error.at_offset
            result.detail = (<const char *>report.error.detail).decode("utf-8", "replace")
        if report.leftover != NULL:
            result.leftover = PyBytes_FromStringAndSize(
                <const char *>report.leftover + report.leftover_begin,
                <Py_ssize_t>(report.leftover_end - report.leftover_begin))
        if report.unsent != NULL:
            result.unsent = PyBytes_FromStringAndSize(<const char *>report.unsent, <Py_ssize_t>report.unsent_size)
    finally:
        rmq_pump_report_finish(report)

    return result


cdef bint ha_kind_has_epochs(str kind) except *:
    if kind not in ("classic", "transfer"):
        raise ArgumentError(f"no such kind of link: {kind!r}; there are classic and transfer")
    return kind == "transfer"


@cython.final
@cython.no_gc_clear  # the store is looked at when the pump goes
cdef class Pump:
    """A thread that sends the log of *store* to slaves, and appends to it what a master sends (csrc/replica/pump.h).

    Sockets are given as descriptors in non-blocking mode; the pump works on duplicates. Close it before the store. A
    board has one pump at a time; puts that wait on it see to it that they are sent at once.
    After a report other than "acked" its link is gone. Numbers of links that are gone raise ArgumentError.
    """

    cdef rmq_pump *pump
    cdef StoreHandle store
    cdef AckBoard board
    cdef int calls  # of this object that run outside of the GIL
    cdef rmq_pump *held  # over a fork
    cdef object __weakref__

    def __init__(self, StoreHandle store not None, AckBoard board=None):
        cdef rmq_pump_options options
        cdef rmq_error err

        if self.pump != NULL:
            raise ArgumentError("the pump runs already")

        memset(&options, 0, sizeof(options))
        options.store = store.alive()
        options.gate = store.gate
        if store.read_only:
            raise ArgumentError(f"store {store.path} is opened read-only: it takes part in no replication")

        if board is not None:
            if board.store is not store:
                raise ArgumentError("the board is another store's")
            options.board = board.alive()

        self.store, self.board = store, board
        check(rmq_pump_open(&options, &self.pump, &err), &err)

    def __dealloc__(self):
        self.end()

    cdef void end(self) noexcept:
        cdef rmq_pump *pump = self.pump
        cdef bint is_forked
        cdef timespec nap

        self.pump = NULL
        if pump == NULL:
            return

        nap.tv_sec = 0
        nap.tv_nsec = 200000
        is_forked = self.store.is_forked()
        while (self.store.closing or self.calls > 0) and not is_forked:
            with nogil:
                nanosleep(&nap, NULL)

        with nogil:
            rmq_pump_close(pump, is_forked)

    cdef rmq_pump *alive(self) except NULL:
        if self.pump == NULL:
            raise StoreClosedError("the pump is closed")
        if self.store.handle != NULL and not self.store.closing:
            self.store.alive()
        return self.pump

    def close(self):
        """Stop every link and end the thread. A second call does nothing."""
        self.end()

    def __enter__(self):
        return self

    def __exit__(self, *exception):
        self.end()

    def before_fork(self):
        """Let the pump stand still until `after_fork` in the parent and `disown` in the child."""
        cdef rmq_pump *pump = self.pump
        if pump == NULL:
            return
        self.calls += 1
        with nogil:
            rmq_pump_before_fork(pump)
        self.held = pump

    def after_fork(self):
        if self.held == NULL:
            return
        rmq_pump_go_on(self.held)
        self.held = NULL
        self.calls -= 1

    def disown(self):
        """Close the descriptors of a forked child."""
        if self.held == NULL:
            return
        rmq_pump_disown(self.held)
        self.held = NULL
        self.calls = 0

    def fileno(self):
        """The descriptor that is readable when there is something to `poll`."""
        return rmq_pump_notice_fd(self.alive())

    def stream(self, int fd, *, str kind, int64_t next_offset, int64_t acked_offset=-1, int32_t acked_epoch=-1,
               int64_t proof_offset=0, int32_t slot=-1, int32_t epoch=0, int64_t epoch_start=0, until=None,
               int32_t batch_bytes=32768, int64_t said_confirm=-1, bint is_checked=False, leftover=b""):
        """Send the log from *next_offset* on to a slave and return the link.

        *kind* is "classic" or "transfer"; the latter's frames are labelled *epoch*, *epoch_start*, and carry checks
        with *is_checked*. The link is handed back before a frame that would reach *until*. Bodies have at most
        *batch_bytes*. The last acknowledgement was *acked_offset* with *acked_epoch*; without checks one after
        *proof_offset* shows that *epoch* is stored, too. The last confirm offset sent was *said_confirm*; *leftover*
        was received and is not parsed yet. Acknowledgements go to *slot* of the board. ArgumentError,
        OffsetOutOfRange.
        """
        cdef rmq_pump_send_options options
        cdef rmq_error err
        cdef Py_buffer view
        cdef rmq_pump *pump = self.alive()
        cdef int64_t link = 0
        cdef int status

        memset(&options, 0, sizeof(options))
        if slot >= 0 and self.board is None:
            raise ArgumentError(f"acknowledgements for slot {slot}; the pump was made without a board")

        options.fd, options.has_epochs = fd, ha_kind_has_epochs(kind)
        options.batch_size, options.slot = batch_bytes, slot
        options.epoch, options.epoch_start, options.next_offset = epoch, epoch_start, next_offset
        options.acked_offset, options.said_confirm = acked_offset, said_confirm
        options.acked_epoch, options.proof_offset, options.is_checked = acked_epoch, proof_offset, is_checked
        options.until = -1 if until is None else until

        PyObject_GetBuffer(leftover, &view, PyBUF_SIMPLE)
        options.leftover, options.leftover_size = <const uint8_t *>view.buf, <size_t>view.len

        self.calls += 1
        with nogil:
            status = rmq_pump_send(pump, &options, &link, &err)
        self.calls -= 1
        PyBuffer_Release(&view)

        if status == RMQ_INVALID:
            raise ArgumentError((<const char *>err.detail).decode())
        check(status, &err)
        return link

    def receive(self, int fd, *, str kind, int64_t next_offset, int64_t border, int64_t acked_offset=-1,
                int32_t acked_epoch=-1, int32_t epoch=0, int64_t epoch_start=0, bint ack_flushed=False,
                bint is_checked=False, leftover=b""):
        """Append what a master sends from *next_offset*, the log's end, on, and return the link.

        Frames of a "transfer" must carry the label *epoch*, *epoch_start*, which the log's epoch list ends with, and
        checks with *is_checked*; acknowledgements then name the epoch. Records are whole and checked up to *border*.
        With *ack_flushed* only what is on the disk is acknowledged. ArgumentError, OffsetOutOfRange.
        """
        cdef rmq_pump_receive_options options
        cdef rmq_error err
        cdef Py_buffer view
        cdef rmq_pump *pump = self.alive()
        cdef int64_t link = 0
        cdef int status

        memset(&options, 0, sizeof(options))
        options.fd, options.has_epochs, options.ack_flushed = fd, ha_kind_has_epochs(kind), ack_flushed
        options.epoch, options.epoch_start, options.next_offset = epoch, epoch_start, next_offset
        options.acked_offset, options.border = acked_offset, border
        options.acked_epoch, options.is_checked = acked_epoch, is_checked

        PyObject_GetBuffer(leftover, &view, PyBUF_SIMPLE)
        options.leftover, options.leftover_size = <const uint8_t *>view.buf, <size_t>view.len

        self.calls += 1
        with nogil:
            status = rmq_pump_receive(pump, &options, &link, &err)
        self.calls -= 1
        PyBuffer_Release(&view)

        if status == RMQ_INVALID:
            raise ArgumentError((<const char *>err.detail).decode())
        check(status, &err)
        return link

    cdef int check_link(self, int status, const rmq_error *err) except -1:
        if status == RMQ_NOT_FOUND:
            raise ArgumentError((<const char *>err.detail).decode())
        return check(status, err)

    def set_until(self, int64_t link, until):
        """Hand the slave's connection back at *until*; None: never. Later bytes may have been sent already."""
        cdef rmq_error err
        cdef rmq_pump *pump = self.alive()
        cdef int64_t offset = -1 if until is None else until
        cdef int status
        if offset < -1:
            raise ArgumentError(f"no offset is negative: {offset}")
        self.calls += 1
        with nogil:
            status = rmq_pump_set_until(pump, link, offset, &err)
        self.calls -= 1
        self.check_link(status, &err)

    def heartbeat(self, int64_t link):
        """Send an empty frame naming next_offset, or the last acknowledgement again; nothing while a frame is under
        way."""
        cdef rmq_error err
        cdef rmq_pump *pump = self.alive()
        cdef int status
        self.calls += 1
        with nogil:
            status = rmq_pump_heartbeat(pump, link, &err)
        self.calls -= 1
        self.check_link(status, &err)

    def flush(self, int64_t offset):
        """Have the log brought to the disk below *offset*, and do not wait for it.

        Once a sync is over, well or not, `fileno` is readable, whether there is a report or none; nothing comes where
        it is on the disk by now. Raises NotWritable when a sync failed.
        """
        cdef rmq_error err
        cdef rmq_pump *pump = self.alive()
        cdef int status
        self.calls += 1
        with nogil:
            status = rmq_pump_flush(pump, offset, &err)
        self.calls -= 1
        check(status, &err)

    def progress(self, int64_t link):
        """Return where the link stands; its reason is "runs"."""
        cdef rmq_error err
        cdef rmq_link_progress progress
        cdef rmq_pump *pump = self.alive()
        cdef int status
        self.calls += 1
        with nogil:
            status = rmq_pump_progress(pump, link, &progress, &err)
        self.calls -= 1
        self.check_link(status, &err)
        return pump_report_of(link, RMQ_PUMP_RUNS, &progress)

    def stop(self, int64_t link):
        """End the link and return its last report: on return the pump touches neither socket nor log for it."""
        cdef rmq_error err
        cdef rmq_pump_report report
        cdef rmq_pump *pump = self.alive()
        cdef int status
        self.calls += 1
        with nogil:
            status = rmq_pump_stop(pump, link, &report, &err)
        self.calls -= 1
        self.check_link(status, &err)
        return take_pump_report(&report)

    def poll(self):
        """Return the reports there are, in no order; `fileno` is no longer readable."""
        cdef rmq_pump_report report
        cdef rmq_pump *pump = self.alive()
        cdef list result = []
        cdef int status
        while True:
            self.calls += 1
            with nogil:
                status = rmq_pump_poll(pump, &report)
            self.calls -= 1
            if status != RMQ_OK:
                return result
            result.append(take_pump_report(&report))
