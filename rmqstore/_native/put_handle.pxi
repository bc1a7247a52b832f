# Puts that are waited for later, many at once.


@cython.final
@cython.freelist(256)
cdef class PutHandle:
    """A message that `Store.put_async` appended, and what it waits for.

    Dropping it costs nothing: the message stays in the log. It may be used from any thread.
    """

    cdef Admission admission  # None: it waits for nothing
    cdef StoreHandle store
    cdef readonly Receipt receipt
    cdef object wanted
    cdef object error  # once it cannot be acknowledged any more
    cdef int late_status  # enum rmq_put_status: why it has no copies yet
    cdef bint is_on_disk
    cdef bint is_acknowledged

    def __init__(self, *args, **kwargs):
        raise TypeError("handles come from Store.put_async")

    @property
    def durability(self):
        """The requested durability; `receipt.durability` is the one that is known to be reached."""
        return self.wanted

    @property
    def done(self):
        """Whether the outcome is known. Looks, and waits for nothing; no sync begins because of it."""
        if self.is_pending() and self.store.handle != NULL and not self.store.closing:
            self.store.enter()
            try:
                look_at(self.store, [self])
            finally:
                self.store.leave()
        return not self.is_pending()

    @property
    def status(self):
        """The PutStatus of the put; None while its outcome is not known."""
        if self.error is not None:
            return PutStatus(getattr(self.error, "status", FlushTimeout.status))
        return PutStatus.PUT_OK if self.is_acknowledged else None

    def result(self, timeout=None):
        """Return the Receipt of the message once it is as durable as asked; as `Store.wait` with one handle."""
        return wait_for_handles(self.store, (self,), timeout)[0]

    def __repr__(self):
        state = "pending" if self.is_pending() else self.status.name
        return f"<PutHandle {self.receipt.topic!r} queue_offset={self.receipt.queue_offset} {self.wanted.name} {state}>"

    cdef bint is_pending(self) noexcept:
        return not self.is_acknowledged and self.error is None

    cdef int64_t end(self) noexcept:
        return self.receipt.physical_offset + self.receipt.size


cdef PutHandle new_handle(StoreHandle store, Admission admission, Receipt receipt, object wanted):
    cdef PutHandle handle = PutHandle.__new__(PutHandle)
    handle.store, handle.admission, handle.receipt, handle.wanted = store, admission, receipt, wanted
    handle.is_acknowledged = admission is None
    return handle


cdef list handles_of(StoreHandle store, object handles):
    """The handles of an argument, as a list."""
    cdef list result = []
    for number, handle in enumerate(arguments.items("handles", handles, "an iterable of handles")):
        if type(handle) is not PutHandle:
            raise ArgumentTypeError(
                f"handles[{number}] is {arguments.shown(handle)}; give what put_async returned")
        if (<PutHandle>handle).store is not store:
            raise ArgumentError(f"handles[{number}] is of store {(<PutHandle>handle).store.path}, not of {store.path}")
        result.append(handle)
    return result


cdef list wait_for_handles(StoreHandle store, object handles, object timeout):
    cdef int64_t limit_ms = -1 if timeout is None else milliseconds_of("timeout", timeout)
    cdef list found = handles_of(store, handles)
    cdef list pending = pending_of(found)
    if pending:
        store.enter()
        try:
            settle_handles(store, pending, limit_ms)
        finally:
            store.leave()
    return outcomes_of(found)


cdef list pending_of(list handles):
    cdef PutHandle handle
    return [handle for handle in handles if handle.is_pending()]


cdef list outcomes_of(list handles):
    """The receipts of handles; raises the error of the first that has none."""
    cdef PutHandle handle
    cdef list result = []
    for handle in handles:
        if handle.error is not None:
            raise handle.error
        if not handle.is_acknowledged:
            raise late_handle(handle)
        result.append(handle.receipt)
    return result


cdef object late_handle(PutHandle handle):
    """The error of a handle whose time was up; it may be waited for again."""
    cdef Admission admission = handle.admission
    if admission.is_flushed and not handle.is_on_disk:
        return flush_timeout(handle.store, handle.receipt)
    return replica_timeout(handle.store.path, PUT_STATUSES[handle.late_status or RMQ_PUT_FLUSH_SLAVE_TIMEOUT],
                           handle.receipt, copies=rmq_ack_board_copies_of(admission.board.board, handle.end()),
                           needed=admission.need.copies,
                           needs_all=admission.need.needs_all and admission.outcome() == RMQ_PUT_OK)


cdef int settle_handles(StoreHandle store, list pending, int64_t limit_ms) except -1:
    """Wait until handles have what they wait for, -1 for the limits of the disk and of the rule. One sync, and one wait
    for each number of copies, serves all. Inside of a call."""
    cdef PutHandle last = last_on_disk(pending)
    cdef int64_t until_ms = deadline_ms(limit_ms)
    cdef int32_t copies = 1
    cdef rmq_error err
    cdef list line
    cdef int status

    if last is not None:
        if wait_flushed(store, store.handle, last.end(), store.flush_timeout_ms if limit_ms < 0 else limit_ms,
                        &err) == RMQ_CLOSED:
            check(RMQ_CLOSED, &err)

    for line in lines_of(pending):
        last = line[len(line) - 1]
        if last.admission.is_flushed and rmq_store_flushed(store.handle) < last.end():
            continue
        status = wait_copies(last.admission.board, &last.admission.need, last.end(),
                             limit_ms if limit_ms < 0 else max(until_ms - rmq_monotonic_ms(), <int64_t>0), &copies)
        check_still_open(store)
        if status == RMQ_PUT_OK:
            acknowledge_line(store, line, last.end(), copies)

    return look_at(store, pending)


cdef int acknowledge_resolved(StoreHandle store, list pending, object resolved) except -1:
    """Acknowledge the lines of the puts of `deciding` that have their copies."""
    cdef Admission admission
    cdef Receipt reached
    cdef PutHandle handle
    for admission, reached in resolved:
        for line in lines_of(pending):
            if any([handle.admission is admission for handle in line]):
                acknowledge_line(store, line, reached.physical_offset + reached.size, reached.copies)
    return 0


cdef int acknowledge_line(StoreHandle store, list line, int64_t end, int32_t copies) except -1:
    """Acknowledge the handles of one need up to *end*, which has its copies. Called when a wait for copies is over: a
    board that is frozen by then shows no copies to a second look."""
    cdef PutHandle handle
    for handle in line:
        if handle.end() <= end and (not handle.admission.is_flushed
                                    or rmq_store_flushed(store.handle) >= handle.end()):
            acknowledge_handle(handle, REPLICATED, copies)
    return 0


cdef int check_still_open(StoreHandle store) except -1:
    """A signal handler may close the store during a wait of the main thread."""
    cdef rmq_error err
    return check(closed_by_signal(store, &err), &err) if store.handle == NULL else 0


cdef PutHandle last_on_disk(list pending):
    """The one that is on the disk last; None where none waits for the disk."""
    cdef PutHandle handle, last = None
    for handle in pending:
        if (handle.admission.is_flushed and not handle.is_on_disk and not handle.admission.was_cut()
                and (last is None or handle.end() > last.end())):
            last = handle
    return last


cdef list lines_of(list pending):
    """Those that wait for copies: a list for each need, by end offset. The last one is served last."""
    cdef PutHandle handle
    cdef dict lines = {}
    for _, _, handle in sorted([(handle.end(), number, handle) for number, handle in enumerate(pending)]):
        if handle.admission.is_replicated and not handle.admission.was_cut():
            need = (id(handle.admission.board), handle.admission.need.term, handle.admission.need.copies,
                    handle.admission.need.needs_all)
            lines.setdefault(need, []).append(handle)
    return list(lines.values())


cdef int look_at(StoreHandle store, list pending) except -1:
    """Acknowledge the handles that have all they wait for, and fail those that never will. Inside of a call."""
    cdef rmq_error err
    cdef PutHandle handle
    # In this order: a sync that succeeded before the failure is seen.
    cdef bint has_failed = rmq_store_may_change(store.handle, &err) != RMQ_OK
    cdef int64_t flushed = rmq_store_flushed(store.handle)

    for handle in pending:
        if not handle.is_pending():
            continue  # Another thread was first.
        if handle.admission.was_cut():
            handle.error = put_was_cut(store.path, handle.receipt)
        elif handle.end() <= flushed:
            handle.is_on_disk = True
        elif has_failed and handle.admission.is_flushed:
            handle.error = put_not_flushed(error_of(&err), handle.receipt, is_unknown=True)
        if handle.is_pending() and not handle.admission.is_replicated and handle.is_on_disk:
            acknowledge_handle(handle, DISK, 1)

    for line in lines_of(pending_of(pending)):
        look_at_line(store, line)
    return 0


cdef int look_at_line(StoreHandle store, list line) except -1:
    """Acknowledge the handles of one need that have their copies. Nearly always that is all or none."""
    cdef PutHandle last, handle
    cdef int32_t copies = 1
    cdef list ready = [handle for handle in line if handle.is_on_disk or not handle.admission.is_flushed]
    cdef int status, of_last
    if not ready:
        return 0
    last = ready[len(ready) - 1]
    of_last = wait_copies(last.admission.board, &last.admission.need, last.end(), 0, &copies)
    for handle in ready:
        status = of_last
        if of_last != RMQ_PUT_OK and handle is not last:
            status = wait_copies(handle.admission.board, &handle.admission.need, handle.end(), 0, &copies)
        handle.late_status = status
        if status != RMQ_PUT_OK:
            break
        acknowledge_handle(handle, REPLICATED, copies)
    return check_still_open(store)


cdef int acknowledge_handle(PutHandle handle, object durability, int copies) except -1:
    """Unless its role or its lease has ended, the log was cut, or another thread was first."""
    if handle.is_pending() and handle.admission.outcome() == RMQ_PUT_OK and not handle.admission.was_cut():
        handle.receipt = receipt_with(handle.receipt, durability, copies)
        handle.is_acknowledged = True
    return 0


cdef list deciding(list pending):
    """(Admission, Receipt) of each handle for which nothing else has to be waited for: the last one on the disk, and the
    last one of each need."""
    cdef PutHandle handle, last = last_on_disk(pending)
    cdef list found = [line[len(line) - 1] for line in lines_of(pending)]
    if last is not None and last not in found:
        found.append(last)
    return [(handle.admission, receipt_with(handle.receipt, MEMORY, 1)) for handle in found]
