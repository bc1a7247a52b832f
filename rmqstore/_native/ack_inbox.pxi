# Puts that wait for the disk or for copies without a thread of their own, and the loop they wait on.

cdef extern from "<unistd.h>" nogil:
    Py_ssize_t read_fd "read" (int fd, void *data, size_t size)
    Py_ssize_t write_fd "write" (int fd, const void *data, size_t size)


@cython.final
@cython.freelist(64)
cdef class AckWait:
    """A put that waits without a thread of its own; `status` and `copies` are set once it was resolved.

    `token` is whatever its maker gave it, or the future of a task.
    """

    cdef rmq_ack_waiter waiter
    cdef AckBoard board
    cdef AckInbox inbox
    cdef readonly object token
    cdef Admission admission  # of a task's put
    cdef object receipts  # a Receipt, or a list of them
    cdef object error  # of a put that is not to be acknowledged
    cdef int64_t limit_ms  # -1: the limits of the disk and of the rule
    cdef int64_t until_ms
    cdef bint awaits_disk  # and stands in the inbox's list

    def __init__(self, *args, **kwargs):
        raise TypeError("waits come from AckBoard.begin and AckInbox.expect")

    @property
    def status(self):
        """The PutStatus it was resolved with."""
        return PUT_STATUSES[self.waiter.status]

    @property
    def copies(self):
        """How many copies there were by then."""
        return self.waiter.copies

    def withdraw(self):
        """Stop notifying of an expected put; harmless when it was resolved."""
        if self not in self.inbox.expected:
            return
        if self.awaits_disk:
            self.inbox.leave_disk(self)
        elif not withdraw(self):
            return
        self.inbox.expected.discard(self)


cdef bint begin(AckWait waiting):
    waiting.waiter.inbox = &waiting.inbox.inbox
    waiting.waiter.owner = <void *>waiting
    Py_INCREF(waiting)  # Until it was taken or withdrawn.
    # A few microseconds at most: less than giving the GIL away and taking it back.
    return rmq_ack_board_begin(waiting.board.board, &waiting.waiter)


cdef bint withdraw(AckWait waiting):
    if not rmq_ack_board_withdraw(waiting.board.board, &waiting.waiter):
        return False
    Py_DECREF(waiting)
    return True


cdef int note_durability(object receipts, object durability, int copies) except -1:
    """Of receipts that no caller has yet."""
    cdef Receipt receipt
    for receipt in receipts if isinstance(receipts, list) else (receipts,):
        receipt.durability = durability
        receipt.copies = copies
    return 0


@cython.final
@cython.no_gc_clear  # While a sync may notify it, it keeps its store.
cdef class AckInbox:
    """Where puts of one or more boards arrive that were resolved, and the news of syncs of one store's log.

    A loop whose tasks put makes them futures by `expect`, and calls `settle` when the descriptor is readable. Then
    all calls come from that loop's thread; once the loop is closed, `take` releases puts without a waiter.
    """

    cdef rmq_ack_inbox inbox
    cdef bint is_open
    cdef set expected
    cdef AckBoard to_send  # its log is sent by `_send_now`
    cdef StoreHandle store  # whose syncs puts wait for
    cdef rmq_flush_watch watch
    cdef list disk  # of AckWait: the puts that wait for a sync, by end offset
    cdef bint is_asking  # the loop will call `_ask_now`
    cdef int64_t alarm_ms  # when the loop will call `_expire`; INT64_MAX: no put waits
    cdef object __weakref__

    def __cinit__(self, *, bint has_descriptor=True):
        cdef rmq_error err
        self.expected = set()
        self.disk = []
        self.alarm_ms = INT64_MAX
        if has_descriptor:
            check(rmq_ack_inbox_open(&self.inbox, &err), &err)
        else:
            rmq_ack_inbox_init(&self.inbox)
        self.is_open = True
        self.watch.fd = self.inbox.fd

    def __dealloc__(self):
        self.forget_disk()
        if self.is_open:
            rmq_ack_inbox_close(&self.inbox)

    def fileno(self):
        """Return a descriptor that is readable while something is there; -1: it has none, its owner polls."""
        return self.inbox.fd

    def take(self):
        """Return the AckWaits there are, in the order in which they were resolved."""
        cdef rmq_ack_waiter *waiter = rmq_ack_inbox_take(&self.inbox)
        cdef list result = []
        while waiter != NULL:
            waiting = <AckWait>waiter.owner
            waiter = waiter.after
            result.append(waiting)
            Py_DECREF(waiting)
        return result

    def expect(self, loop, Admission admission not None, receipts, timeout):
        """Return the wait of a put on *loop*, whose `token` is a future: of its *receipts*, one or a list, once they
        are as durable as was admitted, or of the put's error.

        *receipts* are the caller's alone; they get the durability that was reached. *timeout* is in seconds, None for
        the limits of the disk and of the rule.
        """
        cdef AckWait waiting = AckWait.__new__(AckWait)
        cdef Receipt last = receipts[len(receipts) - 1] if isinstance(receipts, list) else receipts
        cdef int64_t now_ms = rmq_monotonic_ms()

        admission.store.alive()
        waiting.admission, waiting.board, waiting.inbox, waiting.receipts = admission, admission.board, self, receipts
        waiting.token = loop.create_future()
        waiting.waiter.need = admission.need
        waiting.waiter.end_offset = last.physical_offset + last.size
        waiting.limit_ms = -1 if timeout is None else <int64_t>(min(max(<double>timeout, 0.0), 1e9) * 1000)
        if waiting.limit_ms >= 0:
            waiting.until_ms = now_ms + waiting.limit_ms

        self.expected.add(waiting)
        if admission.is_flushed:
            self.await_disk(loop, waiting, now_ms)
        else:
            self.await_copies(loop, waiting, now_ms)
        return waiting

    def settle(self):
        """Resolve the futures of all puts whose outcome is there."""
        cdef uint64_t count
        if self.store is not None:
            read_fd(self.inbox.fd, &count, sizeof(count))  # Before the look at what was flushed and resolved.
            self.settle_disk()
        self.notify_all(self.take())

    # -- the disk

    cdef int await_disk(self, loop, AckWait waiting, int64_t now_ms) except -1:
        cdef StoreHandle store = waiting.admission.store
        cdef Py_ssize_t at = len(self.disk)

        if self.store is None:
            self.store = store
            store.inboxes.add(self)

        if waiting.limit_ms < 0:
            waiting.until_ms = now_ms + store.flush_timeout_ms

        if rmq_store_flushed(store.handle) >= waiting.waiter.end_offset:
            if self.is_over(loop, waiting):
                self.notify(waiting)
            return 0

        # Nearly always the end of the list.
        while at > 0 and (<AckWait>self.disk[at - 1]).waiter.end_offset > waiting.waiter.end_offset:
            at -= 1
        self.disk.insert(at, waiting)
        waiting.awaits_disk = True

        if waiting.limit_ms == 0:
            self._expire(loop)
        else:
            self.ask_soon(loop)
            self.set_alarm(loop, waiting.until_ms, now_ms)
        return 0

    cdef int leave_disk(self, AckWait waiting) except -1:
        self.disk.remove(waiting)
        waiting.awaits_disk = False
        return 0

    cdef int ask_soon(self, loop) except -1:
        # One sync serves all that tasks put until the loop comes round again.
        if not self.is_asking:
            loop.call_soon(self._ask_now, loop)
            self.is_asking = True
        return 0

    def _ask_now(self, loop):
        cdef rmq_error err
        cdef int status
        cdef AckWait waiting
        self.is_asking = False
        if not self.disk or self.store.handle == NULL or self.store.closing:
            return

        waiting = self.disk[len(self.disk) - 1]
        status = rmq_store_ask_flush(self.store.alive(), &self.watch, waiting.waiter.end_offset, &err)
        # What a sync reached before the watch was listed; of a failed one, what was durable before.
        waiting = self.disk[0]
        if rmq_store_flushed(self.store.handle) >= waiting.waiter.end_offset:
            self.settle_disk()
        if status != RMQ_OK and self.disk:
            self.fail_disk(loop, &err)

    cdef int settle_disk(self) except -1:
        """Continues with the puts that are on the disk. A sync is requested once their tasks have had their turn, so that
        what these put next is in it."""
        cdef int64_t flushed
        cdef AckWait waiting
        cdef list done = []

        if not self.disk:
            return 0
        loop = (<AckWait>self.disk[0]).token.get_loop()
        if self.store.handle == NULL:
            return self.close_disk()

        flushed = rmq_store_flushed(self.store.handle)
        for waiting in self.disk:
            if waiting.waiter.end_offset > flushed:
                break
            done.append(waiting)
        if done:
            del self.disk[:len(done)]
            self.notify_all([waiting for waiting in done if self.is_over(loop, waiting)])
        if self.disk:
            self.ask_soon(loop)
        return 0

    cdef int fail_disk(self, loop, const rmq_error *err) except -1:
        """Ends the waits that a failed sync, or a cut of the log, concerns."""
        cdef AckWait waiting
        cdef list failed = [waiting for waiting in self.disk
                            if err.status != RMQ_OUT_OF_RANGE or waiting.admission.was_cut()]
        for waiting in failed:
            waiting.awaits_disk = False
            waiting.error = (put_was_cut(self.store.path, waiting.receipts) if waiting.admission.was_cut()
                             else put_not_flushed(error_of(err), waiting.receipts, is_unknown=True))
        self.disk = [waiting for waiting in self.disk if waiting.awaits_disk]
        if self.disk:
            self.ask_soon(loop)
        return self.notify_all(failed)

    cdef int close_disk(self) except -1:
        cdef AckWait waiting
        cdef list closed = self.disk
        self.disk = []
        for waiting in closed:
            waiting.awaits_disk = False
            waiting.error = StoreClosedError(f"store {self.store.path} is closed")
        return self.notify_all(closed)

    cdef int forget_disk(self) except -1:
        """Let no sync notify the loop any more."""
        if self.store is not None and self.store.handle != NULL and not self.store.is_forked():
            rmq_store_forget_flush(self.store.handle, &self.watch)
        return 0

    cdef int wake(self) except -1:
        """Have the loop settle, from any thread."""
        cdef uint64_t one = 1
        write_fd(self.inbox.fd, &one, sizeof(one))
        return 0

    cdef bint is_over(self, loop, AckWait waiting) except -1:
        """Whether a put that is on the disk has all it waits for; else it waits for its copies from now on."""
        waiting.awaits_disk = False
        note_durability(waiting.receipts, DISK, 1)
        if not waiting.admission.is_replicated or waiting.token.done():
            return True
        self.await_copies(loop, waiting, rmq_monotonic_ms())
        return False

    # -- copies

    cdef int await_copies(self, loop, AckWait waiting, int64_t now_ms) except -1:
        if waiting.limit_ms < 0:
            waiting.until_ms = now_ms + rmq_ack_board_timeout_ms(waiting.board.board)
        if begin(waiting) and self.to_send is None:
            # What tasks put until the loop comes round again goes out together.
            loop.call_soon(self._send_now)
            self.to_send = waiting.board
        self.set_alarm(loop, waiting.until_ms, now_ms)
        return 0

    def _send_now(self):
        cdef AckBoard board = self.to_send
        self.to_send = None
        if board.store.handle == NULL or board.store.closing:
            return
        board.store.enter()
        try:
            with nogil:
                rmq_ack_board_send_now(board.board)
        finally:
            board.store.leave()

    # -- outcomes

    cdef int notify_all(self, list waits) except -1:
        cdef AckWait waiting
        failed = None
        for waiting in waits:
            try:
                self.notify(waiting)
            except BaseException as error:
                failed = error  # The remaining watchers must still be notified.
        if failed is not None:
            raise failed
        return 0

    cdef int notify(self, AckWait waiting) except -1:
        cdef rmq_ack_waiter *waiter = &waiting.waiter
        self.expected.discard(waiting)
        if waiting.token.done():
            return 0  # Its task was cancelled.
        if waiting.error is not None:
            waiting.token.set_exception(waiting.error)
        elif waiter.status != RMQ_PUT_OK:
            waiting.token.set_exception(
                replica_timeout(waiting.board.store.path, PUT_STATUSES[waiter.status], waiting.receipts,
                                copies=waiter.copies, needed=waiter.need.copies,
                                needs_all=waiter.need.needs_all))
        else:
            if waiting.admission.is_replicated:
                note_durability(waiting.receipts, REPLICATED, waiter.copies)
            waiting.token.set_result(waiting.receipts)
        return 0

    cdef int set_alarm(self, loop, int64_t until_ms, int64_t now_ms) except -1:
        if until_ms < self.alarm_ms:
            self.alarm_ms = until_ms
            # Never cancelled: one timer serves all puts whose time is up later, and one that comes too early does no
            # harm.
            loop.call_later(max(until_ms - now_ms, 1) / 1000, self._expire, loop)
        return 0

    def _expire(self, loop):
        cdef int64_t now_ms = rmq_monotonic_ms()
        cdef int64_t next_ms = INT64_MAX
        cdef AckWait waiting
        cdef list late = []
        self.alarm_ms = INT64_MAX
        for waiting in list(self.expected):
            if waiting.until_ms > now_ms:
                next_ms = min(next_ms, waiting.until_ms)
            elif waiting.awaits_disk:
                waiting.awaits_disk = False
                waiting.error = flush_timeout(waiting.admission.store, waiting.receipts)
                late.append(waiting)
            elif withdraw(waiting):
                late.append(waiting)
        if late:
            self.disk = [waiting for waiting in self.disk if waiting.awaits_disk]
        if next_ms < INT64_MAX:
            self.set_alarm(loop, next_ms, now_ms)
        self.notify_all(late)


cdef object flush_timeout(StoreHandle store, object receipts):
    return FlushTimeout(f"store {store.path}: not flushed in time (syncFlushTimeout)", receipt=receipts)
