# Putting messages.

# Looking a member of an Enum up takes as long as encoding a record.
cdef object MEMORY = Durability.MEMORY
cdef object DISK = Durability.DISK
cdef object REPLICATED = Durability.REPLICATED

# The default of arguments that a Message has itself; CPython has one object of that value.
cdef object ZERO = 0

# Longer than any legal property text, so that the core names the limit.
cdef enum:
    TEXT_MAX = 33000


cdef struct Text:
    size_t size
    char data[TEXT_MAX]


cdef int add_text(Text *text, rmq_slice part) except -1:
    if part.size > TEXT_MAX - text.size:
        raise MessageRejected(f"properties take more than {RMQ_PROPERTIES_SIZE_MAX} bytes; shorten them",
                              status=PutStatus.PROPERTIES_SIZE_EXCEEDED)
    memcpy(text.data + text.size, part.data, part.size)
    text.size += part.size
    return 0


cdef int add_property(Text *text, name, value) except -1:
    cdef rmq_slice n, v
    cdef object kept_name = message_text("a name in properties", name, &n)
    cdef object kept_value
    if n.size == 8 and memcmp(n.data, b"__CRC32#", 8) == 0:
        return 0  # The store's own: one that came along with a copied message is left out.
    kept_value = message_text("a value in properties", value, &v)
    if v.size == 0:
        raise MessageRejected(f"property {arguments.shown(name)} has an empty value, which no reader of RocketMQ's format returns; give "
                              "a text, or leave the property out")
    if (memchr(n.data, 1, n.size) != NULL or memchr(n.data, 2, n.size) != NULL or memchr(n.data, 0, n.size) != NULL
            or memchr(v.data, 2, v.size) != NULL or memchr(v.data, 0, v.size) != NULL or n.size == 0):
        raise MessageRejected(f"property {arguments.shown(name)}: a name may not be empty nor hold the bytes 0, 1 and 2, a value not "
                              "0 and 2, which separate properties; leave them out")
    if n.size + v.size + 2 > TEXT_MAX - text.size:
        add_text(text, rmq_slice(NULL, TEXT_MAX + 1))
    add_text(text, n)
    text.data[text.size] = 1
    text.size += 1
    add_text(text, v)
    text.data[text.size] = 2
    text.size += 1
    return 0


cdef int add_properties(Text *text, properties) except -1:
    if type(properties) is not dict:
        arguments.mapping("properties", properties, "a mapping of str to str")
    for key, value in properties.items():
        if value is not None:
            add_property(text, key, value)
    return 0


cdef str join_keys(keys):
    if type(keys) is str:
        return keys
    if type(keys) is list or type(keys) is tuple:
        for key in keys:
            if type(key) is not str or not key or " " in key:
                break
        else:
            return " ".join(keys)
    return " ".join(split_keys(keys))


cdef inline bint is_message(object item):
    # Most bodies are bytes, and an isinstance that fails takes its time.
    return not PyBytes_CheckExact(item) and isinstance(item, Message)


cdef class _Bodies:
    """Buffers and texts of the messages of one call, released together."""

    cdef Py_buffer *views
    cdef size_t count  # bodies taken
    cdef size_t held
    cdef list kept     # objects whose bytes the messages point at

    def __cinit__(self, size_t capacity):
        self.views = <Py_buffer *>PyMem_Malloc(capacity * sizeof(Py_buffer) if capacity else 1)
        if self.views == NULL:
            raise MemoryError
        self.kept = []

    def __dealloc__(self):
        cdef size_t i
        for i in range(self.held):
            PyBuffer_Release(&self.views[i])
        PyMem_Free(self.views)

    cdef int take(self, body, rmq_message *message, Py_ssize_t number) except -1:
        """Takes the body of a message, or, with its *number* in the call, a body by itself."""
        cdef Py_buffer *view
        if PyBytes_CheckExact(body):
            message.body = <const uint8_t *>PyBytes_AS_STRING(body)
            message.body_size = <size_t>PyBytes_GET_SIZE(body)
            self.count += 1
            return 0
        view = &self.views[self.held]
        get_buffer("body" if number < 0 else f"messages[{number}]", body, view)
        self.count += 1
        self.held += 1
        message.body = <const uint8_t *>view.buf
        message.body_size = <size_t>view.len
        return 0


cdef int fill_from_message(Store store, rmq_message *out, object message) except -1:
    """Everything but topic, body and properties, which the caller keeps."""
    out.queue_id = <int32_t>message_integer("queue", message.queue, 0, INT32_MAX)
    out.flag = <int32_t>message_integer("flag", message.flag, INT32_MIN, INT32_MAX)
    out.sys_flag = <int32_t>message_integer("sys_flag", message.stored_sys_flag, INT32_MIN, INT32_MAX)
    out.reconsume_times = <int32_t>message_integer("reconsume_times", message.reconsume_times, INT32_MIN, INT32_MAX)
    out.prepared_transaction_offset = message_integer("prepared_transaction_offset",
                                                      message.prepared_transaction_offset, INT64_MIN, INT64_MAX)
    out.born_timestamp = born_at(message.born_timestamp)
    store_host = message.store_host
    out.store_host = store.host if store_host is None else parse_host("store_host", store_host)
    born_host = message.born_host
    out.born_host = out.store_host if born_host is None else parse_host("born_host", born_host)
    return 0


cdef int64_t born_at(timestamp) except? -1:
    if timestamp is None:
        return RMQ_BORN_WHEN_STORED
    return message_integer("born_timestamp", timestamp, INT64_MIN + 1, INT64_MAX)


# What a put waits for behind its append, and what came of it.
cdef struct Waited:
    rmq_ack_need need
    int64_t timeout_ms      # for the disk
    bint is_limited         # the caller's timeout bounds the wait for replicas, too
    int disk                # enum rmq_status
    int replicas            # enum rmq_put_status
    int32_t copies
    bint is_out_of_office   # the role or the lease ended before the put could be acknowledged


cdef int admit(Store store, AckBoard board, object durability, int32_t copies, object timeout,
               Waited *waited) except -1:
    """Judge, before anything is appended, whether the put may be; *copies* is 0 for the rule's number."""
    cdef int status
    waited.timeout_ms = store.flush_timeout_ms if timeout is None else milliseconds_of("timeout", timeout)
    waited.is_limited = timeout is not None
    waited.disk, waited.replicas, waited.copies = RMQ_OK, RMQ_PUT_OK, 1
    waited.is_out_of_office = False
    if board is None:
        if durability is REPLICATED:
            refuse_replicated(store)
        return 0
    status = rmq_ack_board_admit(board.board, durability is REPLICATED, copies, &waited.need)
    if status != RMQ_PUT_OK:
        raise not_admitted(store, board, status, &waited.need)
    return 0


cdef object not_admitted(Store store, AckBoard board, int status, const rmq_ack_need *need):
    cdef char reason[RMQ_ACK_REASON_SIZE]
    rmq_ack_board_reason(board.board, status, need, reason)
    text = f"store {store.path}: {(<const char *>reason).decode('utf-8', 'replace')}; nothing was stored"
    if status == RMQ_PUT_OS_PAGE_CACHE_BUSY:
        return PageCacheBusy(text)
    if status == RMQ_PUT_SERVICE_NOT_AVAILABLE:
        error = NotWritable(text)
        error.master_hint = store._master_hint
        return error
    return InSyncReplicasNotEnough(text, status=PUT_STATUSES[status])


cdef object reached(Store store, rmq_store *handle, AckBoard board, int64_t end_offset, object wanted, Waited *waited,
                    rmq_error *err):
    """Wait for the durability, then see whether the put may still be acknowledged; return what was reached."""
    cdef object found = MEMORY if wanted is MEMORY else wait_for(store, handle, board, end_offset, wanted, waited, err)
    if board is not None and waited.disk == RMQ_OK and waited.replicas == RMQ_PUT_OK:
        waited.replicas = rmq_ack_board_acknowledge(board.board, &waited.need)
        waited.is_out_of_office = waited.replicas != RMQ_PUT_OK
    return found


cdef object wait_for(Store store, rmq_store *handle, AckBoard board, int64_t end_offset, object wanted, Waited *waited,
                     rmq_error *err):
    """Wait for the disk, the replicas or both, without the GIL. A store that flushes every message waits for that, too,
    while replicas get theirs."""
    cdef int64_t timeout_ms = waited.timeout_ms
    cdef int64_t until_ms = rmq_monotonic_ms() + timeout_ms if wanted is REPLICATED else 0
    cdef object so_far = MEMORY
    if wanted is DISK or store.default_durability is DISK or rmq_ack_board_is_flushed(board.board):
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


cdef object refuse_replicated(Store store):
    raise InSyncReplicasNotEnough(f"store {store.path} has no replicas; ask for Durability.DISK, or replicate it")


cdef inline bint is_durability(object value):
    return value is MEMORY or value is DISK or value is REPLICATED


def asked_durability(Store store, durability, copies):
    """Return the durability that a put asks for with these arguments; None stands for the default of either."""
    if durability is not None and not is_durability(durability):
        arguments.member("durability", durability, Durability)
    if copies is None:
        return store.default_durability if durability is None else durability
    if durability is not None and durability is not REPLICATED:
        raise ArgumentError(f"copies={arguments.shown(copies)} asks for Durability.REPLICATED, not "
                            f"Durability.{durability.name}; give one of them")
    return REPLICATED


cdef object put_refused(Store store, const rmq_error *err):
    """The exception of a put that stored nothing. A failure of the disk, or a folder that is gone, is a PutError like
    every other reason."""
    error = error_of(err)
    if isinstance(error, NotWritable):
        error.master_hint = store._master_hint
    if isinstance(error, (DiskError, NotFoundError)):
        refused = NotWritable(str(error), status=PutStatus.CREATE_MAPPED_FILE_FAILED)
        refused.retriable = err.status == RMQ_NO_SPACE
        refused.__cause__ = error
        return refused
    return error


cdef object put_failed(Store store, const Waited *waited, const rmq_error *err, object receipt):
    """The exception of a put whose message is in the log."""
    cdef int status = waited.disk
    if status == RMQ_OK:
        return replica_timeout(store, PUT_STATUSES[waited.replicas], waited.need.copies,
                               waited.need.needs_all and not waited.is_out_of_office, waited.copies, receipt)
    error = error_of(err)
    if isinstance(error, PutError):
        error.receipt = receipt
        if status != RMQ_FLUSH_TIMEOUT:
            # Its sync failed: the bytes may be on the disk or not.
            error.stored = None
            error.status = PutStatus.FLUSH_DISK_TIMEOUT
    return error


cdef object replica_timeout(Store store, object status, int needed, bint needs_all, int copies, object receipt):
    """The exception of a put that is stored and did not get its copies in time, or may not be acknowledged any more."""
    if copies < needed:
        why = f"{copies} of {needed} copies were acknowledged in time (slaveTimeout)"
    elif needs_all:
        why = "not every member of the sync-state set acknowledged the message in time (slaveTimeout)"
    else:
        why = "this master's role or lease ended before the message was acknowledged"
    return ReplicaTimeout(f"store {store.path}: {why}; the message is stored and may still be replicated",
                          status=status, receipt=receipt)


cdef bytes encode_batch(list messages):
    """The messages as the body of an inner batch (csrc/batch.h)."""
    cdef rmq_batch_item item
    cdef Text text
    cdef Py_buffer view
    cdef bytearray body = bytearray()
    cdef size_t at = 0
    for message in messages:
        text.size = 0
        add_properties(&text, message.all_properties())
        if text.size > <size_t>RMQ_PROPERTIES_SIZE_MAX:
            raise MessageRejected(f"properties take {text.size} bytes, the limit is {RMQ_PROPERTIES_SIZE_MAX}",
                                  status=PutStatus.PROPERTIES_SIZE_EXCEEDED)
        get_buffer("body", message.body, &view)
        try:
            item.body, item.body_size = <const uint8_t *>view.buf, <int32_t>view.len
            item.properties, item.properties_size = text.data, <int32_t>text.size
            item.flag = <int32_t>message_integer("flag", message.flag, INT32_MIN, INT32_MAX)
            body.extend(bytes(rmq_batch_item_size(&item)))
            at += rmq_batch_put(<uint8_t *>PyByteArray_AS_STRING(body) + at, &item)
        finally:
            PyBuffer_Release(&view)
    return bytes(body)


cdef class Writer(Store):
    """The verbs that put."""

    def put(self, topic, body=None, *, queue=0, tags=None, keys=None, properties=None, unique_key=None, flag=0,
            born_timestamp=None, durability=None, copies=None, timeout=None):
        """Store one message and return its Receipt.

        *topic* is a name, with *body* any object with the buffer protocol, or a whole `Message`, which has the other
        fields itself. *keys* is a list or a text of keys separated by spaces. Empty *tags*, *keys* and *unique_key* are
        left out, as is a property whose value is None. *durability* None is the store's own: DISK with flushDiskType SYNC_FLUSH,
        else MEMORY. *copies*, this store's own included, asks for REPLICATED with that number in place of the quorum's;
        a store that flushes every message waits for its own disk as well. *timeout* is in seconds and bounds the wait
        for durability.

        Raises MessageRejected (too large, out of range, reserved characters), ArgumentError, NotWritable,
        PageCacheBusy, InSyncReplicasNotEnough; FlushTimeout and ReplicaTimeout (stored).
        """
        cdef rmq_message message
        cdef Text text
        cdef Py_buffer view
        cdef rmq_slice name
        if body is None or type(topic) is not str:
            if not isinstance(topic, str) or body is None:
                others = {"body": body, "queue": None if queue is ZERO else queue, "tags": tags, "keys": keys,
                          "properties": properties, "unique_key": unique_key, "flag": None if flag is ZERO else flag,
                          "born_timestamp": born_timestamp}
                return self._put_message(topic, others, durability, copies, timeout)
            topic = arguments.text("topic", topic)
        if durability is None and copies is None:
            durability = self.default_durability
        elif copies is not None or not is_durability(durability):
            durability = asked_durability(self, durability, copies)
        self.alive()
        memset(&message, 0, sizeof(message))
        message_text("topic", topic, &name)
        message.topic = name.data
        message.topic_size = name.size
        message.queue_id = <int32_t>message_integer("queue", queue, 0, INT32_MAX)
        message.flag = <int32_t>message_integer("flag", flag, INT32_MIN, INT32_MAX)
        message.store_host = self.host
        message.born_host = self.host
        message.born_timestamp = born_at(born_timestamp)
        text.size = 0
        if properties is not None:
            add_properties(&text, properties)
        if keys is not None:
            keys = join_keys(keys)
            if keys:
                add_property(&text, "KEYS", keys)
        if unique_key is not None:
            if type(unique_key) is not str:
                unique_key = arguments.text("unique_key", unique_key)
            if unique_key:
                add_property(&text, "UNIQ_KEY", unique_key)
        if tags is not None:
            if type(tags) is not str:
                tags = arguments.text("tags", tags)
            if tags:
                add_property(&text, "TAGS", tags)
        message.properties = text.data
        message.properties_size = text.size
        if PyBytes_CheckExact(body):
            message.body = <const uint8_t *>PyBytes_AS_STRING(body)
            message.body_size = <size_t>PyBytes_GET_SIZE(body)
            return self.put_one(<str>topic, &message, durability, copies, timeout)
        get_buffer("body", body, &view)
        try:
            message.body = <const uint8_t *>view.buf
            message.body_size = <size_t>view.len
            return self.put_one(<str>topic, &message, durability, copies, timeout)
        finally:
            PyBuffer_Release(&view)

    cdef Receipt put_one(self, str topic, rmq_message *message, object durability, object copies, object timeout):
        cdef rmq_store *handle = self.enter()
        cdef AckBoard board = self._board
        cdef rmq_receipt stored
        cdef size_t count = 0
        cdef rmq_error err
        cdef Waited waited
        cdef int status
        cdef Receipt receipt
        try:
            admit(self, board, durability, judge_copies(copies), timeout, &waited)
            status = wait_raw(self, handle, &err)
            # One small append costs less than giving the GIL away and taking it back.
            if status == RMQ_OK and message.body_size <= 65536:
                status = rmq_store_put(handle, message, 1, False, &stored, &count, &err)
            elif status == RMQ_OK:
                with nogil:
                    status = rmq_store_put(handle, message, 1, False, &stored, &count, &err)
            if status != RMQ_OK:
                raise put_refused(self, &err)
            if durability is MEMORY and board is None:
                return make_receipt(topic, message, &stored, durability, 1)
            durability = reached(self, handle, board, stored.physical_offset + stored.size, durability, &waited, &err)
            receipt = make_receipt(topic, message, &stored, durability, waited.copies)
            if waited.disk != RMQ_OK or waited.replicas != RMQ_PUT_OK:
                raise put_failed(self, &waited, &err, receipt)
            return receipt
        finally:
            self.leave()

    def _put_message(self, message, dict others, durability, copies, timeout):
        if isinstance(message, str):
            raise ArgumentTypeError("body is None; give bytes, or a Message in place of topic and body")
        arguments.instance("topic", message, Message, wanted="the name of a topic and a body, or a Message")
        for name, value in others.items():
            if value is not None:
                raise ArgumentError(f"{name} is {arguments.shown(value)} beside a Message; the Message has its own")
        return self._put_all([message], None, 0, durability, copies, timeout, False)[0]

    def _admit(self, copies=None, durability=REPLICATED):
        """Return leave to append a message that is to be on the disk or to have copies, for a caller that waits for that
        itself.

        Raises as put does when it refuses one.
        """
        cdef Admission admission = Admission.__new__(Admission)
        cdef AckBoard board = self._board
        cdef Waited waited
        self.alive()
        admit(self, board, durability, judge_copies(copies), None, &waited)
        admission.is_flushed = durability is DISK or self.default_durability is DISK
        if board is not None:
            admission.board, admission.need = board, waited.need
            if durability is REPLICATED and rmq_ack_board_is_flushed(board.board):
                admission.is_flushed = True
        return admission

    def put_many(self, messages, *, topic=None, queue=0, durability=None, copies=None, timeout=None):
        """Store messages in order under one lock and return their Receipts; one wait for durability covers all.

        *messages* holds Message objects or, with *topic*, bodies as well, which go to *queue* of that topic. All are
        judged first: MessageRejected means that none was stored. When the disk gives out in between, the error's
        `receipt` is the list of those stored.
        """
        return self._put_all(messages, topic, queue, durability, copies, timeout, False)

    def put_batch(self, messages, *, durability=None, copies=None, timeout=None):
        """Store messages of one topic and queue side by side in one commit log file, as RocketMQ stores a batch.

        In a topic of batch queues (`create_topic` with queue.type BatchCQ) they become one record, an inner batch;
        the receipts then share its physical offset. Raises MessageRejected for an empty batch, for several queues, and
        for messages with a transaction or a delay level. Otherwise as put_many.
        """
        cdef Py_ssize_t total = 0
        cdef Py_buffer view
        messages = list(arguments.items("messages", messages, "a list of Message"))
        if not messages:
            raise MessageRejected("messages is empty; a batch holds at least one message")
        for number, message in enumerate(messages):
            arguments.instance(f"messages[{number}]", message, Message)
            get_buffer(f"the body of messages[{number}]", message.body, &view)
            total += view.len
            PyBuffer_Release(&view)
            if message.topic != messages[0].topic or message.queue != messages[0].queue:
                raise MessageRejected("the messages of a batch go to one queue of one topic; use put_many")
            if message.transaction or message.delay_level:
                raise MessageRejected("a batch takes no transaction and no delay level; put such messages by "
                                      "themselves")
        if total > self.body_size_max:
            raise MessageRejected(f"the bodies of the batch are over the limit of {self.body_size_max} bytes "
                                  "(maxMessageSize); split it")
        if self._takes_batches(messages[0].topic, messages[0].queue):
            return self._put_inner_batch(messages, durability, copies, timeout)
        return self._put_all(messages, None, 0, durability, copies, timeout, True)

    def _takes_batches(self, topic, queue):
        """Whether the queue is known as one for inner batches."""
        cdef rmq_slice name
        cdef object kept = sought_text("topic", topic, &name)
        cdef rmq_queue *found = rmq_queue_table_find(&self.alive().queues, name.data, name.size,
                                                     <int32_t>message_integer("queue", queue, 0, INT32_MAX))
        return found != NULL and bool(found.is_batch)

    def _put_inner_batch(self, list messages, durability, copies, timeout):
        cdef Receipt first, receipt
        cdef rmq_message checked
        cdef list receipts = []
        for message in messages:
            fill_from_message(self, &checked, message)
        record = Message(messages[0].topic, encode_batch(messages), queue=messages[0].queue,
                         sys_flag=RMQ_FLAG_INNER_BATCH, properties={"INNER_NUM": str(len(messages))})
        first = self._put_all([record], None, 0, durability, copies, timeout, False)[0]
        for number in range(len(messages)):
            receipt = first._with_durability(first.durability, first.copies)
            receipt.queue_offset = first.queue_offset + number
            receipts.append(receipt)
        return receipts

    def _put_all(self, messages, topic, queue, durability, copies, timeout, bint together):
        cdef rmq_store *handle
        cdef AckBoard board = self._board
        cdef int32_t queue_id = <int32_t>message_integer("queue", queue, 0, INT32_MAX)
        cdef list items = [self._stored_form(item) if is_message(item) else item
                           for item in arguments.items("messages", messages, "an iterable of messages")]
        cdef size_t count = <size_t>len(items), stored = 0
        cdef rmq_message *out = NULL
        cdef rmq_receipt *receipts = NULL
        cdef _Bodies bodies
        cdef list topics = []
        cdef rmq_error err
        cdef Waited waited
        cdef int status
        cdef int64_t end_offset
        cdef list result
        if durability is None and copies is None and items and all(
                is_message(item) and not item.wait_store_ok for item in items):
            durability = MEMORY
        if topic is not None:
            topic = arguments.text("topic", topic)
        durability = asked_durability(self, durability, copies)
        handle = self.enter()
        try:
            admit(self, board, durability, judge_copies(copies), timeout, &waited)
            if count == 0:
                return []
            bodies = _Bodies(count)
            out = <rmq_message *>PyMem_Malloc(count * sizeof(rmq_message))
            receipts = <rmq_receipt *>PyMem_Malloc(count * sizeof(rmq_receipt))
            if out == NULL or receipts == NULL:
                raise MemoryError
            try:
                self.fill_all(items, topic, queue_id, out, bodies, topics)
            except MessageRejected as error:
                if count > 1:
                    error.add_note(f"message number {bodies.count} of the call, counted from 0; none was stored")
                raise
            status = wait_raw(self, handle, &err)
            if status == RMQ_OK:
                with nogil:
                    status = rmq_store_put(handle, out, count, together, receipts, &stored, &err)
            if status == RMQ_OK:
                end_offset = receipts[count - 1].physical_offset + receipts[count - 1].size
                durability = reached(self, handle, board, end_offset, durability, &waited, &err)
            else:
                durability = MEMORY
            result = [make_receipt(<str>topics[i], &out[i], &receipts[i], durability, waited.copies)
                      for i in range(stored)]
            if status != RMQ_OK:
                raise self._put_error(&err, result, count)
            if waited.disk != RMQ_OK or waited.replicas != RMQ_PUT_OK:
                raise put_failed(self, &waited, &err, result[0] if count == 1 else result)
            return result
        finally:
            PyMem_Free(out)
            PyMem_Free(receipts)
            self.leave()

    cdef object _put_error(self, const rmq_error *err, list stored, size_t count):
        error = put_refused(self, err)
        if isinstance(error, PutError):
            if err.at_offset >= 0 and count > 1 and isinstance(error, MessageRejected):
                error.add_note(f"message number {err.at_offset} of the call, counted from 0; none was stored")
            if stored:
                error.receipt = stored
                error.stored = None  # some are, some are not
        return error

    cdef int fill_all(self, list items, object topic, int32_t queue_id, rmq_message *out, _Bodies bodies,
                      list topics) except -1:
        """Fills *out* from messages and bodies; *topics* gets the topic of each."""
        cdef rmq_slice name
        cdef size_t i
        cdef Text text
        cdef bytes kept
        cdef rmq_message *message
        for i in range(<size_t>len(items)):
            item = items[i]
            message = &out[i]
            memset(message, 0, sizeof(rmq_message))
            if is_message(item):
                own_topic = item.topic
                if type(own_topic) is not str:
                    own_topic = arguments.text("topic", own_topic)
                topics.append(own_topic)
                message_text("topic", own_topic, &name)
                fill_from_message(self, message, item)
                text.size = 0
                add_properties(&text, item.all_properties())
                if text.size:
                    kept = text.data[:text.size]
                    bodies.kept.append(kept)
                    message.properties = PyBytes_AS_STRING(kept)
                    message.properties_size = text.size
                message.topic, message.topic_size = name.data, name.size
                body = item.body
                bodies.kept.append(body)
                bodies.take(body, message, -1)
                continue
            if topic is None:
                raise ArgumentTypeError(f"messages[{i}] is {arguments.shown(item)}; give Message objects, or bodies "
                                        "with topic=")
            message_text("topic", topic, &name)
            topics.append(topic)
            message.topic, message.topic_size = name.data, name.size
            message.queue_id = queue_id
            message.store_host = self.host
            message.born_host = self.host
            message.born_timestamp = RMQ_BORN_WHEN_STORED
            bodies.take(item, message, <Py_ssize_t>i)
        return 0

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

    def _put_raw_form(self, list forms, bint together):
        """Store messages given in their stored form, for tests of formats: (topic, queue, body, properties bytes,
        more properties bytes, flag, sys_flag, born timestamp, store timestamp, born host, store host, reconsume times,
        prepared transaction offset) each."""
        cdef rmq_store *handle = self.enter()
        cdef size_t count = <size_t>len(forms), stored = 0, i
        cdef rmq_message *out = <rmq_message *>PyMem_Malloc(count * sizeof(rmq_message))
        cdef rmq_receipt *receipts = <rmq_receipt *>PyMem_Malloc(count * sizeof(rmq_receipt))
        cdef rmq_error err
        cdef rmq_slice name
        cdef int status
        try:
            if out == NULL or receipts == NULL:
                raise MemoryError
            for i in range(count):
                (topic, queue, body, properties, more, flag, sys_flag, born, stored_at, born_host, store_host, times,
                 prepared) = forms[i]
                memset(&out[i], 0, sizeof(rmq_message))
                message_text("topic", topic, &name)
                out[i].topic, out[i].topic_size = name.data, name.size
                out[i].queue_id, out[i].flag, out[i].sys_flag = queue, flag, sys_flag
                out[i].body, out[i].body_size = <const uint8_t *>PyBytes_AS_STRING(body), <size_t>len(body)
                out[i].properties, out[i].properties_size = PyBytes_AS_STRING(properties), <size_t>len(properties)
                out[i].more_properties, out[i].more_properties_size = PyBytes_AS_STRING(more), <size_t>len(more)
                out[i].born_timestamp, out[i].store_timestamp = born, stored_at
                out[i].born_host, out[i].store_host = parse_host("born_host", born_host), parse_host("store_host", store_host)
                out[i].reconsume_times, out[i].prepared_transaction_offset = times, prepared
            with nogil:
                status = rmq_store_put(handle, out, count, together, receipts, &stored, &err)
            check(status, &err)
            return [(receipts[i].physical_offset, receipts[i].queue_offset) for i in range(count)]
        finally:
            PyMem_Free(out)
            PyMem_Free(receipts)
            self.leave()
