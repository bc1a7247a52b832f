# Putting messages.

# The default of arguments that a Message has itself; CPython has one object of that value.
cdef object ZERO = 0


cdef class StoreWriter(LogHandle):
    """The verbs that put."""

    def put(self, topic, body=None, *, queue=0, tags=None, keys=None, properties=None, unique_key=None, flag=0,
            born_timestamp=None, durability=None, copies=None, timeout=None):
        # Documented in rmqstore/store/store.py, which binds this method as it is.
        cdef rmq_message message
        cdef Text text
        cdef Py_buffer view
        cdef rmq_slice name

        if body is None or type(topic) is not str:
            if not isinstance(topic, str) or body is None:
                others = {"body": body, "queue": None if queue is ZERO else queue, "tags": tags, "keys": keys,
                          "properties": properties, "unique_key": unique_key, "flag": None if flag is ZERO else flag,
                          "born_timestamp": born_timestamp}
                return self._put_all([sole_message(topic, others)], None, 0, durability, copies, timeout, False)[0]
            topic = arguments.text("topic", topic)

        if durability is None and copies is None:
            durability = self.default_durability
        elif copies is not None or not is_durability(durability):
            durability = asked_durability(self.default_durability, durability, copies)

        self.alive()
        memset(&message, 0, sizeof(message))
        message_text("topic", topic, &name)
        message.topic = name.data
        message.topic_size = name.size
        message.queue_id = <int32_t>message_integer("queue", queue, 0, INT32_MAX)
        if flag is not ZERO:
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
                add_argument(&text, b"KEYS", keys)

        if unique_key is not None:
            if type(unique_key) is not str:
                unique_key = arguments.text("unique_key", unique_key)
            if unique_key:
                add_argument(&text, b"UNIQ_KEY", unique_key)

        if tags is not None:
            if type(tags) is not str:
                tags = arguments.text("tags", tags)
            if tags:
                add_argument(&text, b"TAGS", tags)

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
        cdef rmq_store *handle = self.enter_again()
        cdef AckBoard board = self._board
        cdef rmq_receipt stored
        cdef size_t count = 0
        cdef rmq_error err
        cdef Waited waited
        cdef int status
        cdef Receipt receipt

        try:
            admit(self, board, durability, validate_copies(copies), timeout, &waited)
            status = wait_raw(self, handle, &err)

            # One small append costs less than giving the GIL away and taking it back.
            if status == RMQ_OK and message.body_size <= 65536:
                status = rmq_store_put(handle, message, 1, False, &stored, &count, &err)
            elif status == RMQ_OK:
                with nogil:
                    status = rmq_store_put(handle, message, 1, False, &stored, &count, &err)

            if status != RMQ_OK:
                raise refused_put(self, &err)

            if durability is MEMORY and board is None:
                return make_receipt(topic, message, &stored, durability, 1)

            durability = reached(self, handle, board, stored.physical_offset + stored.size, durability, &waited, &err)
            receipt = make_receipt(topic, message, &stored, durability, waited.copies)
            if waited.disk != RMQ_OK or waited.replicas != RMQ_PUT_OK:
                raise failed_put(self, &waited, &err, receipt)
            return receipt
        finally:
            self.leave()

    def put_async(self, topic, body=None, *, queue=0, tags=None, keys=None, properties=None, unique_key=None, flag=0,
                  born_timestamp=None, durability=None, copies=None):
        # Documented in rmqstore/store/store.py, as is wait.
        cdef Admission admission = None
        if durability is None and copies is None and is_message(topic) and not topic.wait_store_ok:
            durability = MEMORY
        durability = asked_durability(self.default_durability, durability, copies)
        if durability is not MEMORY:
            admission = self._admit(copies, durability)  # Leave to append has to come before the append.
        receipt = self.put(topic, body, queue=queue, tags=tags, keys=keys, properties=properties, unique_key=unique_key,
                           flag=flag, born_timestamp=born_timestamp, durability=MEMORY)
        return new_handle(self, admission, receipt, durability)

    def wait(self, handles, *, timeout=None):
        return wait_for_handles(self, handles, timeout)

    def _deciding(self, handles):
        """Return (Admission, Receipt) for each put that has to be waited for, so that none of *handles* is late."""
        cdef list pending = pending_of(handles_of(self, handles))
        if pending:
            self.alive()
        return deciding(pending)

    def _outcomes(self, handles, resolved=()):
        """Return the receipts of *handles*, or raise the error of the first that has none, without waiting. *resolved*
        has the (Admission, Receipt) of each put of `_deciding` that was acknowledged."""
        cdef list found = handles_of(self, handles), pending = pending_of(found)
        if pending:
            self.enter()
            try:
                acknowledge_resolved(self, pending, resolved)
                look_at(self, pending)
            finally:
                self.leave()
        return outcomes_of(found)

    def _admit(self, copies=None, durability=REPLICATED):
        """Return leave to append a message that is to be on the disk or to have copies, for a caller that waits for that
        itself.

        Raises as put does when it refuses one.
        """
        cdef Admission admission = Admission.__new__(Admission)
        cdef AckBoard board = self._board
        cdef Waited waited
        self.alive()
        admit(self, board, durability, validate_copies(copies), None, &waited)
        admission.store, admission.cuts = self, rmq_store_cuts(self.handle)
        admission.is_flushed = durability is DISK or self.flushes_each_put
        admission.is_replicated = durability is REPLICATED
        if board is not None:
            admission.board, admission.need = board, waited.need
            if durability is REPLICATED and rmq_ack_board_is_flushed(board.board):
                admission.is_flushed = True
        return admission

    def _takes_batches(self, topic, queue):
        """Whether the queue is known as one for inner batches."""
        cdef rmq_slice name
        cdef object kept = sought_text("topic", topic, &name)
        cdef rmq_queue *found = rmq_store_find_queue(self.alive(), name.data, name.size,
                                                     <int32_t>message_integer("queue", queue, 0, INT32_MAX))
        return found != NULL and bool(found.is_batch)

    def _encode_batch(self, list messages):
        """The body of an inner batch of *messages*, each of which could be put alone."""
        cdef rmq_message checked
        for message in messages:
            fill_from_message(self, &checked, message)
        return encode_batch(messages)

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
        durability = asked_durability(self.default_durability, durability, copies)

        handle = self.enter()
        try:
            admit(self, board, durability, validate_copies(copies), timeout, &waited)
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
                raise put_refused(error, number=bodies.count, count=count)

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
                raise put_refused(error_of(&err), master_hint=self._master_hint, stored=result, number=err.at_offset,
                                  count=count, is_retriable=err.status == RMQ_NO_SPACE)
            if waited.disk != RMQ_OK or waited.replicas != RMQ_PUT_OK:
                raise failed_put(self, &waited, &err, result[0] if count == 1 else result)
            return result
        finally:
            PyMem_Free(out)
            PyMem_Free(receipts)
            self.leave()

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
                raise not_a_message(i, item)

            message_text("topic", topic, &name)
            topics.append(topic)
            message.topic, message.topic_size = name.data, name.size
            message.queue_id = queue_id
            message.store_host = self.host
            message.born_host = self.host
            message.born_timestamp = RMQ_BORN_WHEN_STORED
            bodies.take(item, message, <Py_ssize_t>i)

        return 0

    # As clients of a broker send them: properties as text, the address as a record holds it.

    def _put_encoded(self, str topic not None, bytes body not None, bytes properties not None, *, int32_t queue,
                     int32_t flag, int32_t sys_flag, int64_t born_timestamp, bytes born_host not None,
                     int32_t reconsume_times, int64_t prepared_transaction_offset=0):
        """Append one message and return its Receipt; nothing is awaited.

        The caller has validated *properties*: no 0 byte, no CRC property. *born_host* is address and port as a record
        holds them. Raises as put.
        """
        cdef rmq_message message
        self.alive()
        fill_encoded(self, &message, topic, queue, sys_flag, born_timestamp, born_host)
        message.flag = flag
        message.reconsume_times = reconsume_times
        message.prepared_transaction_offset = prepared_transaction_offset
        message.properties = PyBytes_AS_STRING(properties)
        message.properties_size = <size_t>PyBytes_GET_SIZE(properties)
        message.body = <const uint8_t *>PyBytes_AS_STRING(body)
        message.body_size = <size_t>PyBytes_GET_SIZE(body)
        return self.put_one(topic, &message, MEMORY, None, None)

    def _put_encoded_batch(self, str topic not None, bytes batch not None, size_t count, *, int32_t queue,
                           int32_t sys_flag, int64_t born_timestamp, bytes born_host not None,
                           int32_t reconsume_times, bytes appended not None):
        """Append the *count* messages of a batch (csrc/format/batch.h) side by side and return their Receipts;
        nothing is awaited. Each gets the text *appended* after its own properties.

        The caller has validated batch and text. Raises as put_many, and CorruptionError for a batch of another form or
        count.
        """
        cdef AckBoard board = self._board
        cdef rmq_store *handle = self.enter()
        cdef rmq_message first
        cdef rmq_message *out = NULL
        cdef rmq_receipt *receipts = NULL
        cdef char *texts = NULL
        cdef char *text
        cdef size_t appended_size = <size_t>PyBytes_GET_SIZE(appended)
        cdef rmq_batch_item item
        cdef rmq_error err
        cdef Waited waited
        cdef size_t at = 0, i, stored = 0
        cdef const uint8_t *data = <const uint8_t *>PyBytes_AS_STRING(batch)
        cdef int status
        try:
            admit(self, board, MEMORY, 0, None, &waited)
            fill_encoded(self, &first, topic, queue, sys_flag, born_timestamp, born_host)
            first.reconsume_times = reconsume_times
            out = <rmq_message *>PyMem_Malloc(count * sizeof(rmq_message) if count else 1)
            receipts = <rmq_receipt *>PyMem_Malloc(count * sizeof(rmq_receipt) if count else 1)
            # Of each message: its own text, the separator that it may lack, and the appended text.
            texts = <char *>PyMem_Malloc(<size_t>PyBytes_GET_SIZE(batch) + count * (1 + appended_size) + 1)
            if out == NULL or receipts == NULL or texts == NULL:
                raise MemoryError

            text = texts
            for i in range(count):
                check(rmq_batch_next(data, <size_t>PyBytes_GET_SIZE(batch), &at, &item, &err), &err)
                out[i] = first
                out[i].flag = item.flag
                out[i].body, out[i].body_size = item.body, <size_t>item.body_size
                out[i].properties = text
                text = joined_properties(text, &item, appended, appended_size)
                out[i].properties_size = <size_t>(text - out[i].properties)

            status = wait_raw(self, handle, &err)
            if status == RMQ_OK:
                with nogil:
                    status = rmq_store_put(handle, out, count, True, receipts, &stored, &err)
            result = [make_receipt(topic, &out[i], &receipts[i], MEMORY, 1) for i in range(stored)]
            if status != RMQ_OK:
                raise put_refused(error_of(&err), master_hint=self._master_hint, stored=result, number=err.at_offset,
                                  count=count, is_retriable=err.status == RMQ_NO_SPACE)
            return result
        finally:
            PyMem_Free(texts)
            PyMem_Free(out)
            PyMem_Free(receipts)
            self.leave()


cdef char *joined_properties(char *to, const rmq_batch_item *item, bytes appended, size_t appended_size) noexcept:
    """Write the properties of *item* and the *appended* ones to *to*; return their end."""
    memcpy(to, item.properties, <size_t>item.properties_size)
    to += item.properties_size
    if item.properties_size > 0 and appended_size > 0 and to[-1] != RMQ_PROPERTY_SEPARATOR:
        to[0] = RMQ_PROPERTY_SEPARATOR
        to += 1
    memcpy(to, PyBytes_AS_STRING(appended), appended_size)
    return to + appended_size


cdef int fill_encoded(StoreHandle store, rmq_message *message, str topic, int32_t queue, int32_t sys_flag,
                      int64_t born_timestamp, bytes born_host) except -1:
    cdef rmq_slice name
    memset(message, 0, sizeof(rmq_message))
    message_text("topic", topic, &name)
    message.topic, message.topic_size = name.data, name.size
    message.queue_id = queue
    message.sys_flag = sys_flag
    message.born_timestamp = born_timestamp
    message.born_host = host_of_bytes("born_host", born_host)
    message.store_host = store.host
    return 0


cdef rmq_host host_of_bytes(str name, bytes packed) except *:
    """The host of the bytes that a record holds: address, and port as 4 bytes."""
    cdef rmq_host host
    cdef Py_ssize_t size = PyBytes_GET_SIZE(packed) - 4
    cdef const uint8_t *data = <const uint8_t *>PyBytes_AS_STRING(packed)
    if size != 4 and size != 16:
        raise ArgumentError(f"{name} has {size + 4} bytes; give 8 (IPv4) or 20 (IPv6), the last 4 of them the port")
    memset(&host, 0, sizeof(host))
    host.size = <uint8_t>size
    memcpy(host.address, data, <size_t>size)
    host.port = <int32_t>(<uint32_t>data[size] << 24 | <uint32_t>data[size + 1] << 16 |
                          <uint32_t>data[size + 2] << 8 | data[size + 3])
    return host
