# Waits that let Python's signal handlers run: at least ten times a second on the main thread, where handlers run.

cdef extern from "Python.h":
    int PyErr_CheckSignals() except -1

cdef extern from "base/task.h" nogil:
    struct rmq_task:
        pass
    ctypedef int rmq_task_work(void *subject, int64_t number, rmq_error *err) noexcept
    int rmq_task_start(rmq_task **task, rmq_task_work *work, void *subject, int64_t number, rmq_error *err)
    bint rmq_task_wait(rmq_task *task, int64_t timeout_ms)
    int rmq_task_finish(rmq_task *task, rmq_error *err)
    void rmq_task_leave(rmq_task *task)

cdef enum:
    SLICE_MS = 50

cdef int64_t FOREVER_MS = <int64_t>1 << 50  # Longer than any wait, and no overflow when a clock is added.


cdef extern from "<unistd.h>" nogil:
    int getpid()
    int gettid()


cdef bint is_main_thread() noexcept nogil:
    """Whether signal handlers run on this thread. No Python code may run to find out: handlers would run there."""
    return gettid() == getpid()


cdef int64_t deadline_ms(int64_t timeout_ms) noexcept nogil:
    return rmq_monotonic_ms() + min(max(timeout_ms, <int64_t>0), FOREVER_MS)


cdef int64_t slice_until(int64_t until_ms) noexcept nogil:
    """The length of the next slice of a wait; at or below 0 when its time is up."""
    return min(until_ms - rmq_monotonic_ms(), <int64_t>SLICE_MS)


cdef bint is_closed_by_signal(StoreHandle store) except -1:
    """Run the handlers of pending signals, and raise what they raise; return whether one has closed the store, which
    then must not be touched. Called on the main thread, inside of a call."""
    store.suspended += 1  # A handler may close the store: it does not wait for the call that it interrupts.
    try:
        PyErr_CheckSignals()
    finally:
        store.suspended -= 1
    return store.handle == NULL


cdef int closed_by_signal(StoreHandle store, rmq_error *err):
    return rmq_fail(err, RMQ_CLOSED, -1, "a signal handler closed the store during the wait")


# ---- calls on a thread of their own

cdef int flush_task(void *subject, int64_t number, rmq_error *err) noexcept nogil:
    return rmq_store_flush(<rmq_store *>subject, err)


cdef int close_task(void *subject, int64_t number, rmq_error *err) noexcept nogil:
    return rmq_store_close(<rmq_store *>subject, err)


cdef int sync_task(void *subject, int64_t number, rmq_error *err) noexcept nogil:
    return rmq_store_wait_flushed(<rmq_store *>subject, number, FOREVER_MS, err)


@cython.final
cdef class _Task:
    """A call on a thread of its own."""

    cdef rmq_task *task

    def __dealloc__(self):
        if self.task != NULL:
            rmq_task_leave(self.task)

    cdef int start(self, rmq_task_work *work, rmq_store *handle, int64_t number, rmq_error *err) except -1:
        return rmq_task_start(&self.task, work, handle, number, err)

    cdef bint is_over(self, int64_t wait_ms) noexcept:
        cdef bint result
        with nogil:
            result = rmq_task_wait(self.task, wait_ms)
        return result

    cdef int finish(self, rmq_error *err) except -1:
        cdef rmq_task *task = self.task
        self.task = NULL
        return rmq_task_finish(task, err)


cdef bint has_background(StoreHandle store) except -1:
    """Whether calls that a signal or a time limit ended for their callers still use the store."""
    while store.background:
        if not (<_Task>store.background[0]).is_over(0):
            return True
        forget_task(store, store.background[0])
    return False


cdef int forget_task(StoreHandle store, _Task task) except -1:
    store.background.remove(task)
    Py_DECREF(store)
    return 0


cdef int run_task(StoreHandle store, rmq_task_work *work, int64_t number, int64_t until_ms, rmq_error *err) except -1:
    """Run a call on a thread of its own, for the main thread, inside of a call. When a handler raises, closes the store
    or the time is up (RMQ_TIMEOUT), the call goes on by itself, and the store waits for it when it is closed."""
    cdef _Task task = _Task()
    cdef int64_t wait_ms
    cdef int status = task.start(work, store.handle, number, err)

    if status != RMQ_OK:
        return status

    store.background.append(task)
    Py_INCREF(store)  # Until the call is over.
    wait_ms = slice_until(until_ms)

    while not task.is_over(max(wait_ms, <int64_t>0)):
        if wait_ms <= 0:
            return RMQ_TIMEOUT
        if is_closed_by_signal(store):
            return closed_by_signal(store, err)
        wait_ms = slice_until(until_ms)

    forget_task(store, task)
    return task.finish(err)


cdef int close_store(rmq_store *handle, bint is_main, rmq_error *err) except -1:
    """Close on a thread of its own, for the main thread; when a handler raises, the closing goes on by itself."""
    cdef _Task task = _Task()
    cdef int status
    if not is_main or rmq_store_check(handle, NULL) != RMQ_OK or task.start(close_task, handle, 0, err) != RMQ_OK:
        with nogil:
            status = rmq_store_close(handle, err)
        return status
    while not task.is_over(SLICE_MS):
        PyErr_CheckSignals()
    return task.finish(err)


# ---- waits

cdef int wait_flushed(StoreHandle store, rmq_store *handle, int64_t offset, int64_t timeout_ms, rmq_error *err) except -1:
    """As rmq_store_wait_flushed. While syncs are short, the caller leads them on its own thread, as with os.fsync."""
    cdef int64_t until_ms = deadline_ms(timeout_ms)
    cdef int64_t wait_ms = slice_until(until_ms)
    cdef int status = RMQ_FLUSH_TIMEOUT

    if rmq_store_sync_ms(handle) < SLICE_MS:
        with nogil:
            status = rmq_store_wait_flushed(handle, offset, max(wait_ms, <int64_t>0), err)

    while status == RMQ_FLUSH_TIMEOUT:
        wait_ms = slice_until(until_ms)
        if not is_main_thread():
            wait_ms = until_ms - rmq_monotonic_ms()
        elif not has_background(store):
            status = run_task(store, sync_task, offset, until_ms, err)
            break
        elif is_closed_by_signal(store):
            return closed_by_signal(store, err)

        if wait_ms <= 0:
            break
        with nogil:
            status = rmq_store_wait_flushed(handle, offset, wait_ms, err)

    if status == RMQ_FLUSH_TIMEOUT or status == RMQ_TIMEOUT:
        status = rmq_fail(err, RMQ_FLUSH_TIMEOUT, offset, "not flushed in %lld ms (syncFlushTimeout)",
                          <long long>timeout_ms)
    return status


cdef int wait_raw(StoreHandle store, rmq_store *handle, rmq_error *err) except -1:
    """Wait for what a put waits for before its append."""
    cdef int64_t goal = rmq_store_raw_goal(handle)
    return RMQ_OK if goal < 0 else wait_dispatched(store, handle, goal, False, RMQ_RAW_WAIT_MS, err)


cdef int wait_dispatched(StoreHandle store, rmq_store *handle, int64_t offset, bint is_bound, int64_t timeout_ms,
                         rmq_error *err) except -1:
    """As rmq_store_wait_dispatched with *is_bound*, which waits for nothing that may not be read yet, else as
    rmq_store_await_dispatch."""
    cdef int64_t until_ms = deadline_ms(timeout_ms)
    cdef int64_t wait_ms
    cdef int status = RMQ_TIMEOUT
    while status == RMQ_TIMEOUT:
        wait_ms = max(slice_until(until_ms), <int64_t>0)
        with nogil:
            status = (rmq_store_wait_dispatched(handle, offset, wait_ms, err) if is_bound
                      else rmq_store_await_dispatch(handle, offset, wait_ms, err))
        if status != RMQ_TIMEOUT:
            return status
        if wait_ms == 0:
            break
        if is_main_thread() and is_closed_by_signal(store):
            return closed_by_signal(store, err)
    return rmq_fail(err, status, offset, "dispatch reached %lld, not %lld, in %lld ms",
                    <long long>rmq_store_dispatched(handle), <long long>offset, <long long>timeout_ms)


cdef int wait_copies(AckBoard board, const rmq_ack_need *need, int64_t end_offset, int64_t timeout_ms,
                     int32_t *copies) except -1:
    """Wait until an appended put has its copies, *timeout_ms* at most, a negative one for the rule's; return an enum
    rmq_put_status."""
    cdef rmq_ack_waiter waiter
    cdef int64_t rule_ms, until_ms
    cdef bint is_over

    memset(&waiter, 0, sizeof(waiter))
    waiter.need, waiter.end_offset = need[0], end_offset
    with nogil:
        rule_ms = rmq_ack_board_begin_wait(board.board, &waiter)
        until_ms = deadline_ms(rule_ms if timeout_ms < 0 else timeout_ms)
        is_over = rmq_ack_waiter_await(&waiter, slice_until(until_ms))

    try:
        while not is_over and slice_until(until_ms) > 0:
            # A handler that closes the store ends the wait, too.
            if is_main_thread():
                is_closed_by_signal(board.store)
            with nogil:
                is_over = rmq_ack_waiter_await(&waiter, slice_until(until_ms))
    finally:
        with nogil:
            rmq_ack_board_end_wait(board.board, &waiter)

    copies[0] = waiter.copies
    return waiter.status
