# What a put waits for before and after its append. A failure becomes an exception in rmqstore/errors.py.

# Looking a member of an Enum up takes as long as encoding a record.
cdef object MEMORY = Durability.MEMORY
cdef object DISK = Durability.DISK
cdef object REPLICATED = Durability.REPLICATED


# What a put waits for after its append, and the outcome.
cdef struct Waited:
    rmq_ack_need need
    int64_t timeout_ms      # for the disk
    bint is_limited         # the caller's timeout bounds the wait for replicas, too
    int disk                # enum rmq_status
    int replicas            # enum rmq_put_status
    int32_t copies
    bint is_out_of_office   # the role or the lease ended before the put could be acknowledged


cdef int admit(StoreHandle store, AckBoard board, object durability, int32_t copies, object timeout,
               Waited *waited) except -1:
    """Judge, before anything is appended, whether the put may be; *copies* is 0 for the rule's number."""
    cdef int status
    waited.timeout_ms = store.flush_timeout_ms if timeout is None else milliseconds_of("timeout", timeout)
    waited.is_limited = timeout is not None
    waited.disk, waited.replicas, waited.copies = RMQ_OK, RMQ_PUT_OK, 1
    waited.is_out_of_office = False
    if board is None:
        if durability is REPLICATED:
            raise not_replicated(store.path)
        return 0
    status = rmq_ack_board_admit(board.board, durability is REPLICATED, copies, &waited.need)
    if status != RMQ_PUT_OK:
        raise refusal_of(store, board, status, &waited.need)
    return 0


cdef object refusal_of(StoreHandle store, AckBoard board, int status, const rmq_ack_need *need):
    cdef char reason[RMQ_ACK_REASON_SIZE]
    rmq_ack_board_reason(board.board, status, need, reason)
    return not_admitted("model" if store is None else store.path, PUT_STATUSES[status],
                        (<const char *>reason).decode("utf-8", "replace"),
                        master_hint=None if store is None else store._master_hint)


cdef object reached(StoreHandle store, rmq_store *handle, AckBoard board, int64_t end_offset, object wanted, Waited *waited,
                    rmq_error *err):
    """Wait for the durability, then see whether the put may still be acknowledged; return what was reached."""
    cdef object found = MEMORY if wanted is MEMORY else wait_for(store, handle, board, end_offset, wanted, waited, err)
    if board is not None and waited.disk == RMQ_OK and waited.replicas == RMQ_PUT_OK:
        waited.replicas = rmq_ack_board_acknowledge(board.board, &waited.need)
        waited.is_out_of_office = waited.replicas != RMQ_PUT_OK
    return found


cdef object wait_for(StoreHandle store, rmq_store *handle, AckBoard board, int64_t end_offset, object wanted, Waited *waited,
                     rmq_error *err):
    """Wait for the disk, the replicas or both, without the GIL. A store that flushes every message waits for that, too,
    while replicas get theirs."""
    cdef int64_t timeout_ms = waited.timeout_ms
    cdef int64_t until_ms = rmq_monotonic_ms() + timeout_ms if wanted is REPLICATED else 0
    cdef object so_far = MEMORY

    if wanted is DISK or store.flushes_each_put or rmq_ack_board_is_flushed(board.board):
        waited.disk = wait_flushed(store, handle, end_offset, timeout_ms, err)
        if waited.disk == RMQ_CLOSED:
            waited.disk = rmq_fail(err, RMQ_FLUSH_TIMEOUT, end_offset,
                                   "a signal handler closed the store before the message was seen on the disk")
        if waited.disk != RMQ_OK:
            return MEMORY
        so_far = DISK

    if wanted is DISK:
        return DISK

    timeout_ms = max(until_ms - rmq_monotonic_ms(), <int64_t>0) if waited.is_limited else -1
    waited.replicas = wait_copies(board, &waited.need, end_offset, timeout_ms, &waited.copies)
    return REPLICATED if waited.replicas == RMQ_PUT_OK else so_far


cdef inline bint is_durability(object value):
    return value is MEMORY or value is DISK or value is REPLICATED


cdef object refused_put(StoreHandle store, const rmq_error *err):
    """The exception of a put that stored nothing."""
    return put_refused(error_of(err), master_hint=store._master_hint, is_retriable=err.status == RMQ_NO_SPACE)


cdef object failed_put(StoreHandle store, const Waited *waited, const rmq_error *err, object receipt):
    """The exception of a put whose message is in the log."""
    if waited.disk != RMQ_OK:
        return put_not_flushed(error_of(err), receipt, is_unknown=waited.disk != RMQ_FLUSH_TIMEOUT)
    return replica_timeout(store.path, PUT_STATUSES[waited.replicas], receipt, copies=waited.copies,
                           needed=waited.need.copies,
                           needs_all=waited.need.needs_all and not waited.is_out_of_office)
