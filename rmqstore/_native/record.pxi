# What comes back: receipts of puts, records of reads.


cdef tuple host_of(const rmq_host *host):
    cdef bytes packed = PyBytes_FromStringAndSize(<const char *>host.address, host.size)
    import ipaddress

    return str(ipaddress.ip_address(packed)), host.port


cdef str message_id_of(const rmq_host *host, int64_t physical_offset):
    cdef char text[57]
    cdef size_t size = rmq_message_id(host, physical_offset, text)
    return text[:size].decode("ascii")


# Receipts and records refer to nothing that refers to them: the cycle collector need not walk the many there may be.
@cython.final
@cython.no_gc
@cython.freelist(64)
cdef class Receipt:
    """Where a message lies, and what had happened to it when its put returned.

    `durability` is what was reached: MEMORY, DISK or REPLICATED. `copies` is how many replicas, this store included,
    held it by then; 1 where no replica was waited for.
    """

    cdef readonly str topic
    cdef readonly int queue
    cdef readonly int64_t queue_offset
    cdef readonly int64_t physical_offset
    cdef readonly int64_t store_timestamp
    cdef readonly int size
    cdef readonly object durability
    cdef readonly int copies
    cdef rmq_host host

    def __init__(self, *args, **kwargs):
        raise TypeError("receipts come from Store.put")

    @property
    def status(self):
        """PutStatus.PUT_OK: a put that did not succeed raises."""
        return PutStatus.PUT_OK

    @property
    def message_id(self):
        """The offset message id: store host and physical offset in upper-case hex."""
        return message_id_of(&self.host, self.physical_offset)

    @property
    def end_offset(self):
        """The physical offset behind the record."""
        return self.physical_offset + self.size

    def _of_batch(self, int number):
        """The receipt of one message of an inner batch, whose first message has this one."""
        cdef Receipt receipt = receipt_with(self, self.durability, self.copies)
        receipt.queue_offset += number
        return receipt

    def __repr__(self):
        copies = f", copies={self.copies}" if self.copies > 1 else ""
        return (f"Receipt({self.topic!r}, queue={self.queue}, queue_offset={self.queue_offset}, "
                f"physical_offset={self.physical_offset}, size={self.size}, {self.durability.name}{copies})")


@cython.nonecheck(False)  # The receipt is new.
cdef Receipt make_receipt(str topic, const rmq_message *message, const rmq_receipt *stored, object durability,
                          int copies):
    cdef Receipt receipt = Receipt.__new__(Receipt)
    receipt.topic = topic
    receipt.queue = message.queue_id
    receipt.queue_offset = stored.queue_offset
    receipt.physical_offset = stored.physical_offset
    receipt.store_timestamp = stored.store_timestamp
    receipt.size = stored.size
    receipt.durability = durability
    receipt.copies = copies
    receipt.host = message.store_host
    return receipt


cdef Receipt receipt_with(Receipt known, object durability, int copies):
    """A copy of a receipt, after more has happened to the message."""
    cdef Receipt receipt = Receipt.__new__(Receipt)
    receipt.topic, receipt.queue, receipt.queue_offset = known.topic, known.queue, known.queue_offset
    receipt.physical_offset, receipt.size = known.physical_offset, known.size
    receipt.store_timestamp, receipt.host = known.store_timestamp, known.host
    receipt.durability = durability
    receipt.copies = copies
    return receipt


cdef class _Pin:
    """A mapped file that records look into: one pin for all that an iterator yields of it."""

    cdef rmq_mapped_file *file

    def __dealloc__(self):
        if self.file != NULL:
            rmq_mapped_file_unpin(self.file)


@cython.nonecheck(False)  # A pin that is None is not looked into, and another one is new.
cdef _Pin pin_of(_Pin last, rmq_mapped_file *file):
    """The pin of the file: the last one, where it is that."""
    cdef _Pin pin = last
    if pin is None or pin.file != file:
        pin = _Pin.__new__(_Pin)
        rmq_mapped_file_pin(file)
        pin.file = file
    return pin


cdef enum:
    # Of a record of one key and one tag what stands around the body takes some 160 bytes.
    ENVELOPE_ROOM = 192


cdef class _Body:
    """The body's bytes without a copy, for memoryview(); keeps its record."""

    cdef Record record

    def __getbuffer__(self, Py_buffer *buffer, int flags):
        PyBuffer_FillInfo(buffer, self, <void *>self.record.fields.body, self.record.fields.body_size, 1, flags)
        if self.record.pin is not None:
            self.record.store.views += 1

    def __releasebuffer__(self, Py_buffer *buffer):
        if self.record.pin is not None:
            self.record.store.views -= 1


@cython.final
@cython.no_gc
@cython.freelist(64)
cdef class Record:
    """A stored message with its envelope.

    Fields are decoded when asked for. A record owns a copy of its bytes and outlives everything, except one that
    `scan` yields: that one looks into the mapped file, which it pins; nothing is copied until `body` is asked for, and
    the store does not close while a `body_view` of it lives.
    """

    cdef rmq_record fields      # pointers lead into the record's own bytes, or into the pinned file
    cdef bytes stored_body      # None with a pinned file
    cdef bytes large_envelope   # what stands before and after the body, where room is too small for it
    cdef uint8_t room[ENVELOPE_ROOM]
    cdef _Pin pin               # None with own bytes
    cdef StoreHandle store      # of a pinned record: it counts views
    cdef readonly int64_t queue_offset

    def __init__(self, *args, **kwargs):
        raise TypeError("records come from a store")

    # -- place

    @property
    def topic(self):
        """The topic the message was put to."""
        return text_of(self.fields.topic, self.fields.topic_size)

    @property
    def queue(self):
        """Queue id within the topic."""
        return self.fields.queue_id

    @property
    def stored_queue_offset(self):
        """The queue offset that the record itself holds; `queue_offset` is the offset in the queue that it was read
        from, which differs for light queues and within inner batches."""
        return self.fields.queue_offset

    @property
    def physical_offset(self):
        """Byte position in the commit log."""
        return self.fields.physical_offset

    @property
    def size(self):
        """Bytes of the whole record in the commit log."""
        return self.fields.total_size

    @property
    def version(self):
        """1, or 2 for topics over 127 bytes."""
        return self.fields.version

    @property
    def message_id(self):
        """The offset message id: store host and physical offset in upper-case hex."""
        return message_id_of(&self.fields.store_host, self.fields.physical_offset)

    # -- body

    @property
    def body(self):
        """The body as stored, maybe compressed: see `rmqstore.decompress`."""
        if self.stored_body is not None:
            return self.stored_body
        return PyBytes_FromStringAndSize(<const char *>self.fields.body, self.fields.body_size)

    @property
    def body_view(self):
        """A read-only memoryview of the body, without a copy."""
        cdef _Body body = _Body.__new__(_Body)
        body.record = self
        return memoryview(body)

    @property
    def body_size(self):
        """Bytes of the stored body."""
        return self.fields.body_size

    @property
    def body_crc(self):
        """CRC-32 of the stored body without its sign bit, as the record says it."""
        return self.fields.body_crc

    @property
    def is_body_intact(self):
        """Whether the body sums up to `body_crc`."""
        return rmq_crc32_java(self.fields.body, <size_t>self.fields.body_size) == self.fields.body_crc

    @property
    def raw(self):
        """The whole record as it is in the commit log."""
        cdef Py_ssize_t head, size = self.fields.total_size
        cdef bytes whole
        cdef char *out
        if self.pin is not None:
            return PyBytes_FromStringAndSize(<const char *>self.fields.data, size)
        head = <Py_ssize_t>rmq_record_body_at(self.fields.sys_flag)
        whole = PyBytes_FromStringAndSize(NULL, size)
        out = PyBytes_AS_STRING(whole)
        memcpy(out, self.fields.data, <size_t>head)
        memcpy(out + head, self.fields.body, <size_t>self.fields.body_size)
        head += self.fields.body_size
        memcpy(out + head, self.fields.data + (head - self.fields.body_size), <size_t>(size - head))
        return whole

    # -- properties

    cdef str find(self, const char *name):
        cdef rmq_slice value = rmq_properties_find(self.fields.properties, <size_t>self.fields.properties_size, name)
        if value.data == NULL:
            return None
        return text_of(value.data, <Py_ssize_t>value.size)

    @property
    def tags(self):
        """The property TAGS, None without one."""
        return self.find(b"TAGS")

    @property
    def keys(self):
        """The index keys of the property KEYS."""
        cdef str text = self.find(b"KEYS")
        return [key for key in text.split(" ") if key] if text else []

    @property
    def unique_key(self):
        """The property UNIQ_KEY, None without one."""
        return self.find(b"UNIQ_KEY")

    @property
    def properties_text(self):
        """The property text as stored."""
        return text_of(self.fields.properties, self.fields.properties_size)

    @property
    def properties(self):
        """All properties as a dict; of two pairs with one name the later one wins."""
        cdef size_t at = 0
        cdef rmq_slice name, value
        cdef dict result = {}
        while rmq_properties_next(self.fields.properties, <size_t>self.fields.properties_size, &at, &name, &value):
            result[text_of(name.data, <Py_ssize_t>name.size)] = text_of(value.data, <Py_ssize_t>value.size)
        return result

    # -- the rest

    @property
    def flag(self):
        """The application's own 32 bits."""
        return self.fields.flag

    @property
    def sys_flag(self):
        """`SysFlag` bits."""
        return self.fields.sys_flag

    @property
    def born_timestamp(self):
        """When the producer made the message, ms since the epoch."""
        return self.fields.born_timestamp

    @property
    def store_timestamp(self):
        """When the store took the message, ms since the epoch."""
        return self.fields.store_timestamp

    @property
    def born_host(self):
        """(address, port) of the producer."""
        return host_of(&self.fields.born_host)

    @property
    def store_host(self):
        """(address, port) of the broker."""
        return host_of(&self.fields.store_host)

    @property
    def reconsume_times(self):
        """How often consuming the message failed."""
        return self.fields.reconsume_times

    @property
    def prepared_transaction_offset(self):
        """Of a transaction's end: where its half message lies."""
        return self.fields.prepared_transaction_offset

    def messages(self):
        """Return what an inner batch holds, as (body, properties text, flag) each; [] for other records.

        Raises CorruptionError when the batch cannot be read.
        """
        cdef size_t at = 0
        cdef rmq_batch_item item
        cdef rmq_error err
        cdef int status
        cdef list result = []

        if not self.fields.sys_flag & RMQ_FLAG_INNER_BATCH:
            return result

        while True:
            status = rmq_batch_next(self.fields.body, <size_t>self.fields.body_size, &at, &item, &err)
            if status == RMQ_END:
                return result
            check(status, &err)
            result.append((PyBytes_FromStringAndSize(<const char *>item.body, item.body_size),
                           text_of(item.properties, item.properties_size), item.flag))

    def __repr__(self):
        return (f"Record({self.topic!r}, queue={self.queue}, queue_offset={self.queue_offset}, "
                f"physical_offset={self.physical_offset}, body_size={self.body_size})")


cdef cut_while_read(int64_t physical_offset):
    return CorruptionError(f"record at {physical_offset} was cut from the log while it was read; refresh",
                           physical_offset=physical_offset)


@cython.nonecheck(False)  # The record is new.
cdef Record make_record(StoreHandle store, const rmq_record *found, int64_t queue_offset, _Pin pin):
    """The record that was found; None when its bytes changed since.

    With *pin* it looks into that file.
    """
    cdef Record record = Record.__new__(Record)

    record.fields = found[0]
    record.queue_offset = queue_offset
    if pin is None:
        return record if copy_bytes(store, record) else None
    if not rmq_store_keeps_bytes(store.handle) and not rmq_record_head_is_unchanged(found):
        return None

    record.store = store
    record.pin = pin
    return record


@cython.nonecheck(False)  # Both are there.
cdef bint copy_bytes(StoreHandle store, Record record) except -1:
    """Give the record its own bytes; False when those in the log are no longer the ones that were decoded."""
    cdef rmq_record *fields = &record.fields
    cdef const uint8_t *data = fields.data
    cdef const uint8_t *body = fields.body
    cdef const uint8_t *tail = body + fields.body_size
    cdef size_t head_size = <size_t>(body - data)
    cdef size_t tail_size = <size_t>(data + fields.total_size - tail)
    cdef uint8_t *envelope = record.room
    cdef bint is_whole

    record.stored_body = PyBytes_FromStringAndSize(<const char *>body, fields.body_size)
    if head_size + tail_size > ENVELOPE_ROOM:
        record.large_envelope = PyBytes_FromStringAndSize(NULL, <Py_ssize_t>(head_size + tail_size))
        envelope = <uint8_t *>PyBytes_AS_STRING(record.large_envelope)
    memcpy(envelope, data, head_size)
    memcpy(envelope + head_size, tail, tail_size)

    is_whole = rmq_store_keeps_bytes(store.handle) or (
        rmq_record_is_unchanged(<const uint8_t *>PyBytes_AS_STRING(record.stored_body), body, <size_t>fields.body_size)
        and rmq_record_is_unchanged(envelope + head_size, tail, tail_size)
        and rmq_record_is_unchanged(envelope, data, head_size) and rmq_record_head_is_unchanged(fields))

    fields.data = envelope
    fields.body = <const uint8_t *>PyBytes_AS_STRING(record.stored_body)
    fields.topic = <const char *>envelope + head_size + (<const uint8_t *>fields.topic - tail)
    fields.properties = <const char *>envelope + head_size + (<const uint8_t *>fields.properties - tail)
    return is_whole
