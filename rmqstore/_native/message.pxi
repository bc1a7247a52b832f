# From the arguments of a put to the messages that the core takes.

# Longer than any legal property text, so that the core names the limit.
cdef enum:
    TEXT_MAX = 33000


cdef struct Text:
    size_t size
    char data[TEXT_MAX]


cdef int add_text(Text *text, rmq_slice part) except -1:
    if part.size > TEXT_MAX - text.size:
        raise properties_too_large(RMQ_PROPERTIES_SIZE_MAX)
    memcpy(text.data + text.size, part.data, part.size)
    text.size += part.size
    return 0


cdef inline bint holds(rmq_slice text, int byte):
    return memchr(text.data, byte, text.size) != NULL


cdef inline int add_pair(Text *text, rmq_slice n, value) except -1:
    """Add a property whose name is valid."""
    cdef rmq_slice v
    cdef object kept_value = message_text("a value in properties", value, &v)

    if v.size == 0 or holds(v, 0) or holds(v, 2):
        raise property_rejected(n.data[:n.size].decode(), value)
    if n.size + v.size + 2 > TEXT_MAX - text.size:
        raise properties_too_large(RMQ_PROPERTIES_SIZE_MAX)

    add_text(text, n)
    text.data[text.size] = 1
    text.size += 1
    add_text(text, v)
    text.data[text.size] = 2
    text.size += 1

    return 0


cdef int add_property(Text *text, name, value) except -1:
    cdef rmq_slice n
    cdef object kept_name = message_text("a name in properties", name, &n)

    if n.size == 8 and memcmp(n.data, b"__CRC32#", 8) == 0:
        return 0  # The store's own: one that came along with a copied message is left out.
    if n.size == 0 or holds(n, 0) or holds(n, 1) or holds(n, 2):
        raise property_rejected(name, arguments.text("a value in properties", value))
    return add_pair(text, n, value)


cdef inline int add_argument(Text *text, const char *name, value) except -1:
    """Add the property that an argument of a put stands for."""
    cdef rmq_slice n
    n.data, n.size = name, strlen(name)
    return add_pair(text, n, value)


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
        """Takes the body of a message, or, with its *number* in the call, a body alone."""
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


cdef int fill_from_message(StoreHandle store, rmq_message *out, object message) except -1:
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


cdef bytes encode_batch(list messages):
    """The messages as the body of an inner batch (csrc/format/batch.h)."""
    cdef rmq_batch_item item
    cdef Text text
    cdef Py_buffer view
    cdef bytearray body = bytearray()
    cdef size_t at = 0

    for message in messages:
        text.size = 0
        add_properties(&text, message.all_properties())
        if text.size > <size_t>RMQ_PROPERTIES_SIZE_MAX:
            raise properties_too_large(RMQ_PROPERTIES_SIZE_MAX)

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
