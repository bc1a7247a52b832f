# Puts that wait for copies without a thread of their own, and the loop they wait on.

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
    cdef object receipts  # a Receipt, or a list of them
    cdef int64_t until_ms

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
        if self in self.inbox.expected and withdraw(self):
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


cdef int note_copies(object receipts, int copies) except -1:
    """Of receipts that nobody has seen yet."""
    cdef Receipt receipt
    for receipt in receipts if isinstance(receipts, list) else (receipts,):
        receipt.durability = REPLICATED
        receipt.copies = copies
    return 0


@cython.final
cdef class AckInbox:
    """Where puts of one or more boards arrive that were resolved.

    A loop whose tasks put makes them futures by `expect`, and calls `settle` when the descriptor is readable. Then
    all calls come from that loop's thread; once the loop is closed, `take` lets go of what nobody waits for any more.
    """

    cdef rmq_ack_inbox inbox
    cdef bint is_open
    cdef set expected
    cdef AckBoard to_send  # its log is sent by `_send_now`
    cdef int64_t alarm_ms  # when the loop will call `_expire`; INT64_MAX: nobody waits

    def __cinit__(self, *, bint has_descriptor=True):
        cdef rmq_error err
        self.expected = set()
        self.alarm_ms = INT64_MAX
        if has_descriptor:
            check(rmq_ack_inbox_open(&self.inbox, &err), &err)
        else:
            rmq_ack_inbox_init(&self.inbox)
        self.is_open = True

    def __dealloc__(self):
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
        have the copies that were admitted, or of a ReplicaTimeout.

        *receipts* are the caller's alone; they get the durability that was reached. *timeout* is in seconds, None for the rule's.
        """
        cdef AckWait waiting = AckWait.__new__(AckWait)
        cdef Receipt last = receipts[len(receipts) - 1] if isinstance(receipts, list) else receipts
        cdef int64_t now_ms = rmq_monotonic_ms()

        waiting.board, waiting.inbox, waiting.receipts = admission.board, self, receipts
        waiting.token = loop.create_future()
        waiting.waiter.need = admission.need
        waiting.waiter.end_offset = last.physical_offset + last.size
        waiting.until_ms = now_ms + (rmq_ack_board_timeout_ms(admission.board.board) if timeout is None
                                     else <int64_t>(min(max(<double>timeout, 0.0), 1e9) * 1000))

        self.expected.add(waiting)
        if begin(waiting) and self.to_send is None:
            # What tasks put until the loop comes round again goes out together.
            loop.call_soon(self._send_now)
            self.to_send = waiting.board

        if waiting.until_ms < self.alarm_ms:
            self.set_alarm(loop, waiting.until_ms, now_ms)

        return waiting

    def settle(self):
        """Tell the tasks of all that was resolved."""
        self.tell_all(self.take())

    cdef int tell_all(self, list waits) except -1:
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
        if waiter.status == RMQ_PUT_OK:
            note_copies(waiting.receipts, waiter.copies)
            waiting.token.set_result(waiting.receipts)
        else:
            waiting.token.set_exception(
                replica_timeout(waiting.board.store.path, PUT_STATUSES[waiter.status], waiting.receipts,
                                copies=waiter.copies, needed=waiter.need.copies,
                                needs_all=waiter.need.needs_all))
        return 0

    cdef int set_alarm(self, loop, int64_t until_ms, int64_t now_ms) except -1:
        self.alarm_ms = until_ms
        # Never cancelled: one timer serves all puts whose time is up later, and one that comes too early does no harm.
        loop.call_later(max(until_ms - now_ms, 1) / 1000, self._expire, loop)
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

    def _expire(self, loop):
        cdef int64_t now_ms = rmq_monotonic_ms()
        cdef int64_t next_ms = INT64_MAX
        cdef AckWait waiting
        cdef list late = []
        self.alarm_ms = INT64_MAX
        for waiting in list(self.expected):
            if waiting.until_ms > now_ms:
                next_ms = min(next_ms, waiting.until_ms)
            elif withdraw(waiting):
                late.append(waiting)
        if next_ms < INT64_MAX:
            self.set_alarm(loop, next_ms, now_ms)
        self.tell_all(late)


