# What replicas acknowledged, the puts that wait for it, and the log's growth for its senders.

cdef tuple PUT_STATUSES = tuple(PutStatus)  # In the order of enum rmq_put_status.


@cython.final
cdef class VirtualLog:
    """Stands for a store under an AckBoard where there are no files: the caller sets the offsets and the time.

    The simulator and the scenarios run the board of production on it. All calls come from one thread.
    """

    cdef rmq_ack_model model

    def __cinit__(self, *, end_offset=0, flushed_offset=0, confirm_offset=0):
        rmq_ack_model_init(&self.model, 0, 0, 0)
        end_offset = integer_of("end_offset", end_offset, 0, INT64_MAX - 1)
        flushed_offset = integer_of("flushed_offset", flushed_offset, 0, end_offset)
        confirm_offset = integer_of("confirm_offset", confirm_offset, 0, end_offset)
        rmq_ack_model_destroy(&self.model)
        rmq_ack_model_init(&self.model, end_offset, flushed_offset, confirm_offset)

    def __dealloc__(self):
        rmq_ack_model_destroy(&self.model)

    @property
    def end_offset(self):
        """End of the log. It never goes back."""
        return self.model.end_offset

    @end_offset.setter
    def end_offset(self, offset):
        rmq_ack_model_append(&self.model, integer_of("end_offset", offset, self.model.end_offset, INT64_MAX - 1))

    @property
    def flushed_offset(self):
        """End of the durable part. It never goes back."""
        return self.model.flushed_offset

    @flushed_offset.setter
    def flushed_offset(self, offset):
        rmq_ack_model_flush(&self.model, integer_of("flushed_offset", offset, self.model.flushed_offset,
                                                    self.model.end_offset))

    @property
    def now_ms(self):
        """The time by which leases end."""
        return self.model.now_ms

    @now_ms.setter
    def now_ms(self, now_ms):
        self.model.now_ms = integer_of("now_ms", now_ms, 0, INT64_MAX - 1)


@cython.no_gc_clear  # While the flusher may call it, it keeps its log.
cdef class AckBoard:
    """What the replicas of a master hold, by slots; puts wait here, and the confirm offset is raised.

    Takes no decision: the caller freezes it, decides, and thaws it with another rule (csrc/replica/ack_board.h).
    `_board` of the store is the board while the store is master. A board of a closed store does nothing any more.
    """

    cdef rmq_ack_board *board
    cdef readonly StoreHandle store  # None: `virtual` is the log
    cdef VirtualLog virtual

    def __cinit__(self):
        self.board = NULL

    def __init__(self, log not None):
        cdef rmq_ack_log found
        if self.board != NULL:
            raise ArgumentError("the board is made already")
        if isinstance(log, VirtualLog):
            self.virtual = log
            found = rmq_ack_log_of_model(&self.virtual.model)
        else:
            found = log_of_store(arguments.instance("log", log, StoreHandle))
            self.store = log
        self.board = rmq_ack_board_create(found)
        if self.board == NULL:
            raise MemoryError

    def __dealloc__(self):
        if self.board == NULL:
            return
        if self.store is None:
            rmq_ack_board_detach(self.board)
        elif self.store.is_forked():
            return
        elif self.store.handle != NULL:
            rmq_ack_board_detach(self.board)
        rmq_ack_board_destroy(self.board)

    cdef rmq_ack_board *alive(self) except NULL:
        if self.board == NULL:
            raise ArgumentError("the board was not made")
        if self.store is not None:
            self.store.alive()
        return self.board

    cdef rmq_ack_board *enter(self) except NULL:
        """Begin a call that releases the GIL; every return goes through leave()."""
        cdef rmq_ack_board *board = self.alive()
        if self.store is not None:
            self.store.enter()
        return board

    cdef void leave(self) noexcept:
        if self.store is not None:
            self.store.leave()

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
        caller has validated it.

        Raises ArgumentError for a negative offset.
        """
        cdef rmq_ack_board *board
        integer_of("offset", offset, 0, INT64_MAX)
        board = self.enter()
        try:
            with nogil:
                rmq_ack_board_ack(board, slot, epoch, offset)
        finally:
            self.leave()

    def copies_of(self, int64_t end_offset):
        """Return the number of copies of all below *end_offset*, the master's own included."""
        return rmq_ack_board_copies_of(self.alive(), end_offset)

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
        than that is refused. From *lease_end_ms* on, in monotonic milliseconds, no put is admitted or acknowledged.
        *timeout_ms* is how long a put waits that names no limit, *waiting_max* how many may. With *available*, those
        that asked for more copies than that and did not get them fail with SLAVE_NOT_AVAILABLE.

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

        board = self.enter()
        try:
            with nogil:
                code = rmq_ack_board_thaw(board, &rule, &err)
        finally:
            self.leave()

        check(code, &err)

    def abandon(self):
        """End the role: waiting puts, and puts admitted earlier, fail with FLUSH_SLAVE_TIMEOUT. Frozen until the next
        thaw."""
        cdef rmq_ack_board *board = self.enter()
        try:
            with nogil:
                rmq_ack_board_abandon(board)
        finally:
            self.leave()

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
        cdef rmq_ack_board *board

        if self.store is None:
            raise ArgumentError("no thread can wait in virtual time; use begin")

        board = self.enter()
        try:
            rmq_ack_board_admit(board, True, validate_copies(copies), &need)
            status = wait_copies(self, &need, end_offset, limit, &reached)
        finally:
            self.leave()

        return PUT_STATUSES[status], reached

    def admit(self, copies=None, *, bint is_replicated=True):
        """Return leave to append a message that needs *copies*, None for what the rule has.

        A put that waits for no replica is not *is_replicated*: only the end of the lease refuses it. Raises as put does
        when it refuses one.
        """
        cdef Admission admission = Admission.__new__(Admission)
        cdef rmq_ack_board *board = self.alive()
        cdef int status = rmq_ack_board_admit(board, is_replicated, validate_copies(copies), &admission.need)
        if status != RMQ_PUT_OK:
            raise refusal_of(self.store, self, status, &admission.need)
        admission.board, admission.store, admission.is_replicated = self, self.store, is_replicated
        if self.store is not None:
            admission.cuts = rmq_store_cuts(self.store.handle)
        return admission

    def begin(self, AckInbox inbox not None, Admission admission not None, int64_t end_offset, token):
        """Let an appended put wait; *inbox* receives it once it is resolved. The board knows no time limit for it."""
        cdef AckWait waiting = AckWait.__new__(AckWait)
        self.alive()
        if admission.board is not self:
            raise ArgumentError("the put was admitted by another board")
        waiting.board, waiting.inbox, waiting.token = self, inbox, token
        waiting.waiter.need = admission.need
        waiting.waiter.end_offset = end_offset
        begin(waiting)
        return waiting

    def withdraw(self, AckWait waiting not None):
        """End the wait of a put whose time is up; False: it was resolved before and is in its inbox, or soon will be.

        A store that is closed has resolved all.
        """
        if waiting.board is not self:
            raise ArgumentError("the put waits at another board")
        return withdraw(waiting)


cdef rmq_ack_log log_of_store(StoreHandle store) except *:
    cdef rmq_store *handle = store.alive()
    if store.read_only:
        raise ArgumentError(f"store {store.path} is opened read-only and cannot be a master's")
    return rmq_ack_log_of_store(handle)


cdef size_t fill_slots(int32_t *out, list slots) except? 0:
    cdef size_t i
    if len(slots) > RMQ_ACK_SLOTS_MAX:
        raise ArgumentError(f"{len(slots)} slots; there are {RMQ_ACK_SLOTS_MAX} at most")
    for i in range(<size_t>len(slots)):
        out[i] = slots[i]
    return <size_t>len(slots)


cdef int32_t validate_copies(copies) except -1:
    """0 for None, which is the rule's number."""
    return 0 if copies is None else <int32_t>integer_of("copies", copies, 1, INT32_MAX)


@cython.final
@cython.freelist(64)
cdef class Admission:
    """Leave to append a put, and what it then waits for."""

    cdef rmq_ack_need need
    cdef readonly AckBoard board  # None: the store is not a master
    cdef StoreHandle store         # None: the board has a model of a log
    cdef int64_t cuts              # of its log when the put was admitted
    cdef bint is_flushed           # the put also waits for this store's own disk
    cdef bint is_replicated        # and for copies

    def __init__(self, *args, **kwargs):
        raise TypeError("an Admission comes from a store, which admits a put")

    cdef int outcome(self) noexcept:
        return RMQ_PUT_OK if self.board is None else rmq_ack_board_acknowledge(self.board.board, &self.need)

    def acknowledge(self):
        """Return the status of the appended put, which has all that it waited for: FLUSH_SLAVE_TIMEOUT once the role or
        the lease under which it was admitted has ended."""
        return PUT_STATUSES[self.outcome()]

    cdef bint was_cut(self) noexcept:
        """Whether the log was cut since: its offsets may belong to other messages by now."""
        return self.store is not None and self.store.handle != NULL and rmq_store_cuts(self.store.handle) != self.cuts

    def check(self, receipts):
        """Raise the error of the appended put, with *receipts*, that has all that it waited for and must not be
        acknowledged: ReplicaTimeout where `acknowledge` does not return PUT_OK, PutError after a cut of the log."""
        cdef int status = self.outcome()
        if status != RMQ_PUT_OK:
            raise replica_timeout(self.store.path, PUT_STATUSES[status], receipts, copies=self.need.copies,
                                  needed=self.need.copies, needs_all=False)
        if self.was_cut():
            raise put_was_cut(self.store.path, receipts)

    @property
    def copies(self):
        """How many copies the put needs."""
        return self.need.copies

    @property
    def needs_all(self):
        """Whether it also needs one on each member of the sync-state set."""
        return bool(self.need.needs_all)


cdef dict LOG_EVENTS = {"grew": RMQ_GREW, "flushed": RMQ_FLUSHED, "dispatched": RMQ_DISPATCHED,
                        "confirmed": RMQ_CONFIRMED}


@cython.no_gc_clear  # While the store knows it, it has its store.
cdef class LogWatch:
    """A descriptor that becomes readable when an offset of a store moves: "grew" (the log's end), "flushed",
    "dispatched" or "confirmed".

    A store that is opened read-only moves none of them without `refresh`.
    """

    cdef rmq_wakeup wakeup
    cdef StoreHandle store
    cdef object __weakref__

    def __cinit__(self):
        self.wakeup.fd = -1

    def __init__(self, StoreHandle store not None, str event="grew"):
        cdef rmq_store *handle = store.alive()
        cdef rmq_error err
        if event not in LOG_EVENTS:
            raise ArgumentError(f"event is {arguments.shown(event)}; give {', '.join(LOG_EVENTS)}")
        if self.wakeup.fd >= 0:
            raise ArgumentError("the watch is open already")
        check(rmq_wakeup_open(&self.wakeup, rmq_store_wakeups(handle, LOG_EVENTS[event]), &err), &err)
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

    def arm(self, int64_t seen):
        """Return True when the offset is above *seen* already; else the descriptor becomes readable once it moves,
        once."""
        self.open_one()
        return rmq_wakeup_arm(&self.wakeup, seen)

    def clear(self):
        """Disarm; the descriptor is readable no more."""
        self.open_one()
        rmq_wakeup_clear(&self.wakeup)

    def close(self):
        """Let the descriptor go. A second call does nothing."""
        self.let_go()

    def disown(self):
        """Let the descriptor of a forked child go."""
        if self.wakeup.fd >= 0:
            rmq_wakeup_abandon(&self.wakeup)
