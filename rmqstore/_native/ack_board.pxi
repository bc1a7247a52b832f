# What replicas acknowledged, the puts that wait for it, and the log's growth for those who send it.

cdef tuple PUT_STATUSES = tuple(PutStatus)  # In the order of enum rmq_put_status.


@cython.no_gc_clear  # While it may be called by the store's flusher, it has its store.
cdef class AckBoard:
    """What the replicas of a master hold, by slots; puts wait here, and the confirm offset is raised.

    Takes no decision: whoever decides freezes it, decides, and thaws it with another rule (csrc/ack_board.h). `_board`
    of the store is the board while the store is master. A board of a closed store does nothing any more.
    """

    cdef rmq_ack_board *board
    cdef readonly Store store

    def __cinit__(self):
        self.board = NULL

    def __init__(self, Store store not None):
        cdef rmq_store *handle = store.alive()
        if store.read_only:
            raise ArgumentError(f"store {store.path} is opened read-only and cannot be a master's")
        if self.board != NULL:
            raise ArgumentError("the board is made already")
        self.store = store
        self.board = rmq_ack_board_create(handle)
        if self.board == NULL:
            raise MemoryError

    def __dealloc__(self):
        if self.board == NULL or self.store.is_forked():
            return
        if self.store.handle != NULL:
            rmq_ack_board_detach(self.board)
        rmq_ack_board_destroy(self.board)

    cdef rmq_ack_board *alive(self) except NULL:
        if self.board == NULL:
            raise ArgumentError("the board was not made")
        self.store.alive()
        return self.board

    def open_slot(self):
        """Return the slot of a replica that connected; no other replica ever has that number.

        Raises ViewsOpenError while 1024 are open.
        """
        cdef int32_t slot = -1
        cdef rmq_error err
        check(rmq_ack_board_open_slot(self.alive(), &slot, &err), &err)
        return slot

    def close_slot(self, int32_t slot):
        """Let a replica's copy count no more."""
        rmq_ack_board_close_slot(self.alive(), slot)

    def ack(self, int32_t slot, int64_t offset, *, int32_t epoch=-1):
        """Take what the replica of *slot* says it holds, and the last epoch that it is known to have stored; the
        caller has judged it.

        Raises ArgumentError for a negative offset.
        """
        cdef rmq_ack_board *board = self.alive()
        integer_of("offset", offset, 0, INT64_MAX)
        self.store.enter()
        try:
            with nogil:
                rmq_ack_board_ack(board, slot, epoch, offset)
        finally:
            self.store.leave()

    def acks(self):
        """Return what each open slot acknowledged last, offset and epoch, -1 for nothing yet."""
        cdef int32_t slots[RMQ_ACK_SLOTS_MAX]
        cdef int32_t epochs[RMQ_ACK_SLOTS_MAX]
        cdef int64_t offsets[RMQ_ACK_SLOTS_MAX]
        cdef size_t i, found = rmq_ack_board_acks(self.alive(), slots, epochs, offsets)
        return {slots[i]: (offsets[i], epochs[i]) for i in range(found)}

    def freeze(self):
        """Only write acknowledgements down from now on; return the confirm offset, which stays where it is."""
        return rmq_ack_board_freeze(self.alive())

    def thaw(self, *, counted=(), waited=None, bint is_missing=False, confirm_copies=1, epoch=-1,
             epoch_start=0, bint is_gated=True, status=PutStatus.PUT_OK, str reason="", copies=1, bint needs_all=False,
             bint is_flushed=False, lease_end_ms=None, waiting_max=1 << 20, timeout_ms=3000, available=None,
             present=None):
        """Take a rule, confirm and resolve by it.

        *counted* are the slots whose copies count, *waited* those all of whom must hold what is confirmed (None:
        there is no sync-state set), *is_missing* says that one of these has no slot, so that nothing more is
        confirmed. What a slot holds counts once it is known to have stored *epoch* and reaches *epoch_start*, where
        that begins. Without a set, confirmed is what has *confirm_copies*; without *is_gated*, all that is in the log.
        With *is_flushed* the master's own copy ends where its log is on the disk, and puts that ask for copies have it
        flushed.

        A put that asks for copies is refused with *status* and *reason* unless that is PUT_OK, and needs *copies*
        where it names no number, with *needs_all* also one on each of *waited*. With *present*, one that needs more
        than that is refused. From *lease_end_ms* on, in monotonic milliseconds, no put is admitted or told PUT_OK.
        *timeout_ms* is how long a put waits that names no limit, *waiting_max* how many may. With *available*, those
        that asked for more copies than that and did not get them are told SLAVE_NOT_AVAILABLE.

        Raises ArgumentError for a slot that is not open; nothing changed then.
        """
        cdef rmq_ack_rule rule
        cdef rmq_error err
        cdef int code
        cdef bytes text = reason.encode("utf-8", "replace")
        cdef list seen = list(counted), needed = [] if waited is None else list(waited)
        cdef int32_t counted_slots[RMQ_ACK_SLOTS_MAX]
        cdef int32_t waited_slots[RMQ_ACK_SLOTS_MAX]
        cdef rmq_ack_board *board = self.alive()
        memset(&rule, 0, sizeof(rule))
        rule.counted, rule.counted_count = counted_slots, fill_slots(counted_slots, seen)
        rule.waited, rule.waited_count = waited_slots, fill_slots(waited_slots, needed)
        rule.has_set = waited is not None
        rule.is_missing, rule.is_gated, rule.needs_all = is_missing, is_gated, needs_all
        rule.is_flushed = is_flushed
        rule.confirm_copies = <int32_t>integer_of("confirm_copies", confirm_copies, 1, INT32_MAX)
        rule.epoch = <int32_t>integer_of("epoch", epoch, -1, INT32_MAX)
        rule.epoch_start = integer_of("epoch_start", epoch_start, 0, INT64_MAX)
        rule.copies = <int32_t>integer_of("copies", copies, 1, INT32_MAX)
        rule.status = <int32_t>PUT_STATUSES.index(PutStatus(status))
        rule.reason = text
        rule.lease_end_ms = INT64_MAX if lease_end_ms is None else lease_end_ms
        rule.waiting_max = integer_of("waiting_max", waiting_max, 0, INT64_MAX)
        rule.timeout_ms = integer_of("timeout_ms", timeout_ms, 0, INT64_MAX // 2)
        rule.available = -1 if available is None else <int32_t>integer_of("available", available, 0, INT32_MAX)
        rule.present = -1 if present is None else <int32_t>integer_of("present", present, 0, INT32_MAX)
        self.store.enter()
        try:
            with nogil:
                code = rmq_ack_board_thaw(board, &rule, &err)
        finally:
            self.store.leave()
        check(code, &err)

    def abandon(self):
        """End the role: every put that waits is told FLUSH_SLAVE_TIMEOUT, and no admission of before is worth
        anything. Frozen until the next thaw."""
        cdef rmq_ack_board *board = self.alive()
        self.store.enter()
        try:
            with nogil:
                rmq_ack_board_abandon(board)
        finally:
            self.store.leave()

    @property
    def confirm_offset(self):
        """Physical offset below which the rule has everything confirmed."""
        return rmq_ack_board_confirm_offset(self.alive())

    @property
    def waiting(self):
        """How many puts wait for copies."""
        return rmq_ack_board_waiting(self.alive())

    def wait(self, int64_t end_offset, copies=None, timeout_ms=None):
        """Wait until all below *end_offset* has *copies*, None for what the rule has; return the status, and how many
        copies there are.

        None for *timeout_ms* is the rule's limit.
        """
        cdef rmq_ack_need need
        cdef int64_t limit = -1 if timeout_ms is None else integer_of("timeout_ms", timeout_ms, 0, INT64_MAX // 2)
        cdef int32_t reached = 0
        cdef int status
        cdef rmq_ack_board *board = self.alive()
        rmq_ack_board_admit(board, True, judge_copies(copies), &need)
        self.store.enter()
        try:
            status = wait_copies(self, &need, end_offset, limit, &reached)
        finally:
            self.store.leave()
        return PUT_STATUSES[status], reached

    def _begin(self, AckInbox inbox not None, Admission admission not None, int64_t end_offset, token):
        """Let *inbox* be told of an appended put; no time limit is kept."""
        cdef AckWait waiting = AckWait.__new__(AckWait)
        self.alive()
        waiting.board, waiting.inbox, waiting.token = self, inbox, token
        waiting.waiter.need = admission.need
        waiting.waiter.end_offset = end_offset
        begin(waiting)
        return waiting

    def _withdraw(self, AckWait waiting not None):
        """End the wait of a put whose time is up; False: it was resolved before and is in its inbox, or soon will be.

        A store that is closed has resolved all.
        """
        if waiting.board is not self:
            raise ArgumentError("the put waits at another board")
        return withdraw(waiting)


cdef size_t fill_slots(int32_t *out, list slots) except? 0:
    cdef size_t i
    if len(slots) > RMQ_ACK_SLOTS_MAX:
        raise ArgumentError(f"{len(slots)} slots; there are {RMQ_ACK_SLOTS_MAX} at most")
    for i in range(<size_t>len(slots)):
        out[i] = slots[i]
    return <size_t>len(slots)


cdef int32_t judge_copies(copies) except -1:
    """0 for None, which is the rule's number."""
    return 0 if copies is None else <int32_t>integer_of("copies", copies, 1, INT32_MAX)


@cython.final
@cython.freelist(64)
cdef class Admission:
    """Leave to append a put, and what it then waits for."""

    cdef rmq_ack_need need
    cdef readonly AckBoard board  # None: the store is no master
    cdef readonly bint is_flushed  # the put also waits for this store's own disk

    def __init__(self, *args, **kwargs):
        raise TypeError("admissions come from Store._admit")

    def check(self, receipts):
        """Raise ReplicaTimeout with *receipts* when the appended put, which has all it waited for, may not be
        acknowledged: the role or the lease under which it was admitted has ended."""
        cdef int status
        if self.board is None:
            return
        status = rmq_ack_board_acknowledge(self.board.board, &self.need)
        if status != RMQ_PUT_OK:
            raise replica_timeout(self.board.store, PUT_STATUSES[status], self.need.copies, False, self.need.copies,
                                  receipts)

    @property
    def copies(self):
        """How many copies the put needs."""
        return self.need.copies

    @property
    def needs_all(self):
        """Whether it also needs one on each member of the sync-state set."""
        return bool(self.need.needs_all)


@cython.no_gc_clear  # While the store knows it, it has its store.
cdef class LogWatch:
    """A descriptor that becomes readable when the log of a store grows."""

    cdef rmq_wakeup wakeup
    cdef Store store
    cdef object __weakref__

    def __cinit__(self):
        self.wakeup.fd = -1

    def __init__(self, Store store not None):
        cdef rmq_store *handle = store.alive()
        cdef rmq_error err
        if self.wakeup.fd >= 0:
            raise ArgumentError("the watch is open already")
        check(rmq_wakeup_open(&self.wakeup, &handle.wakeups, &err), &err)
        self.store = store

    def __dealloc__(self):
        self.let_go()

    cdef void let_go(self) noexcept:
        if self.wakeup.fd < 0:
            return
        if self.store is not None and self.store.handle != NULL:
            rmq_wakeup_close(&self.wakeup)
        else:
            rmq_wakeup_abandon(&self.wakeup)

    cdef int open_one(self) except -1:
        if self.wakeup.fd < 0:
            raise ArgumentError("the watch is closed")
        self.store.alive()
        return 0

    def fileno(self):
        """Return the descriptor, -1 once it is closed."""
        return self.wakeup.fd

    def arm(self, int64_t seen_end):
        """Return True when the log ends behind *seen_end* already; else the descriptor becomes readable once it does,
        once."""
        self.open_one()
        return rmq_wakeup_arm(&self.wakeup, seen_end)

    def clear(self):
        """Disarm; the descriptor is readable no more."""
        self.open_one()
        rmq_wakeup_clear(&self.wakeup)

    def close(self):
        """Let the descriptor go. Twice is harmless."""
        self.let_go()

    def _disown(self):
        """Let the descriptor of a forked child go."""
        if self.wakeup.fd >= 0:
            rmq_wakeup_abandon(&self.wakeup)
