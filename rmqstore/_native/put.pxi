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
        admission.is_flushed = durability is DISK or self.flushes_each_put
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
