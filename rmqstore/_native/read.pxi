# Reading by queue offset, physical offset, key and time.

cdef enum:
    FOUND_MAX = 512
    UNITS_MAX = 65536
    QUERY_MAX = 65536
    SLICED_NAMES_MAX = 16

# By the value of enum rmq_get_status, which is RocketMQ's order.
cdef tuple GET_STATUSES = tuple(GetStatus)


cdef class _Tags:
    """Tags to filter by, as slices the core reads."""

    cdef rmq_slice slices[64]
    cdef size_t count
    cdef list texts

    def __cinit__(self, tags):
        if tags is None:
            return
        found = arguments.texts("tags", tags)
        if not 1 <= len(found) <= 64:
            raise ArgumentError(f"tags holds {len(found)} tags to filter by; give 1 to 64, or None for all messages")
        self.texts = []
        for text in found:
            self.texts.append(sought_text("tags", text, &self.slices[self.count]))
            self.count += 1


cdef class _Found:
    """What one call of the core found; pinned as long as the object lives."""

    cdef rmq_found *entries
    cdef size_t count

    def __cinit__(self, size_t room):
        self.entries = <rmq_found *>PyMem_Malloc(room * sizeof(rmq_found) if room else 1)
        if self.entries == NULL:
            raise MemoryError

    def __dealloc__(self):
        rmq_found_release(self.entries, self.count)
        PyMem_Free(self.entries)

    cdef Record take(self, StoreHandle store, size_t number):
        """The record of an entry as an object with its own bytes."""
        cdef rmq_found *entry = &self.entries[number]
        cdef Record record = make_record(store, &entry.record, entry.queue_offset, None)
        if record is None:
            raise cut_while_read(entry.record.physical_offset)
        return record


cdef tuple values_of(const rmq_record *record, tuple names):
    """The values of some properties, None for each absent one; of two pairs with one name the later one counts."""
    cdef Py_ssize_t i, count = len(names)
    cdef size_t at = 0
    cdef rmq_slice name, value
    cdef rmq_slice wanted[SLICED_NAMES_MAX]
    cdef rmq_slice values[SLICED_NAMES_MAX]
    cdef dict found = {}
    if count > SLICED_NAMES_MAX:
        while rmq_properties_next(record.properties, <size_t>record.properties_size, &at, &name, &value):
            found[text_of(name.data, <Py_ssize_t>name.size)] = text_of(value.data, <Py_ssize_t>value.size)
        return tuple([found.get(each) for each in names])

    for i in range(count):
        wanted[i].data = PyUnicode_AsUTF8AndSize(names[i], <Py_ssize_t *>&wanted[i].size)
        values[i].data = NULL
    while rmq_properties_next(record.properties, <size_t>record.properties_size, &at, &name, &value):
        for i in range(count):
            if name.size == wanted[i].size and memcmp(name.data, wanted[i].data, name.size) == 0:
                values[i] = value
    return tuple([None if values[i].data == NULL else text_of(values[i].data, <Py_ssize_t>values[i].size)
                  for i in range(count)])


cdef tuple unit_fields(rmq_queue *queue, const rmq_unit *unit):
    cdef rmq_ext_unit ext
    cdef rmq_error err
    cdef uint8_t buffer[RMQ_EXT_UNIT_SIZE_MAX]
    if rmq_unit_is_fill(unit):
        return (unit.queue_offset, -1, 0, 0, 1, None, b"")
    if not queue.has_ext or not rmq_ext_is_address(unit.tags_code):
        return (unit.queue_offset, unit.physical_offset, unit.size, unit.tags_code, unit.batch_size, None, b"")
    check(rmq_consume_queue_ext_read(&queue.ext, unit.tags_code, buffer, &ext, &err), &err)
    return (unit.queue_offset, unit.physical_offset, unit.size, ext.tags_code, unit.batch_size, unit.tags_code,
            PyBytes_FromStringAndSize(<const char *>ext.bitmap, ext.bitmap_size))


cdef class StoreReader(StoreWriter):
    """The verbs that read."""

    def _get(self, topic, queue, offset, max_count, max_bytes, tags, check_crc):
        """(status, next offset, min offset, max offset, records)."""
        cdef rmq_get_result result
        cdef list records = []
        cdef rmq_slice name
        cdef object kept = sought_text("topic", topic, &name)
        cdef _Tags wanted = _Tags(tags)
        cdef int32_t number = queue_of(queue)
        cdef int64_t at = integer_of("offset", offset, INT64_MIN, INT64_MAX)
        cdef size_t room = <size_t>integer_of("max_count", max_count, 1, INT64_MAX)
        cdef int64_t limit = integer_of("max_bytes", max_bytes, 1, INT64_MAX)
        cdef bint checks = boolean_of("check_crc", check_crc)
        cdef _Found found
        cdef size_t i

        self.enter()
        try:
            found = self.find_records(name, number, at, room, limit, wanted, checks, &result)
            for i in range(found.count):
                records.append(found.take(self, i))
            return GET_STATUSES[result.status], result.next_offset, result.min_offset, result.max_offset, records
        finally:
            self.leave()

    cdef _Found find_records(self, rmq_slice topic, int queue, int64_t offset, size_t max_count, int64_t max_bytes,
                             _Tags tags, bint check_crc, rmq_get_result *result):
        """What a get finds, of which there is at most FOUND_MAX; the caller has entered the store."""
        cdef rmq_store *handle = self.handle
        cdef rmq_get_request request
        cdef rmq_error err
        cdef int status
        cdef _Found found

        memset(&request, 0, sizeof(request))
        request.topic, request.topic_size = topic.data, topic.size
        request.queue_id, request.offset = queue, offset
        request.max_count = max_count if max_count < FOUND_MAX else FOUND_MAX
        request.max_bytes, request.check_crc = max_bytes, check_crc
        request.tags, request.tag_count = tags.slices, tags.count

        found = _Found(request.max_count)
        if max_count <= 4:
            status = rmq_store_get(handle, &request, found.entries, result, &err)
        else:
            with nogil:
                status = rmq_store_get(handle, &request, found.entries, result, &err)
        found.count = result.count
        # What was found before a damaged record is handed out; the next call meets the damage.
        if status != RMQ_OK and result.count == 0:
            raise error_of(&err)
        return found

    def _get_raw(self, str topic not None, int32_t queue, int64_t offset, size_t max_count, int64_t max_bytes,
                 tags, bint check_crc):
        """(status, next offset, min offset, max offset, messages, records back to back): copied once, into the answer.

        At most 512 records of some 65,536 units; the first one always passes *max_bytes*. What was found before a damaged record, or one that
        is cut at the same time, is handed out; the next call meets the damage.
        """
        cdef rmq_store *handle = self.enter()
        cdef rmq_get_request request
        cdef rmq_get_result result
        cdef _Found found
        cdef const rmq_record *record
        cdef rmq_slice name
        cdef rmq_error err
        cdef _Tags wanted = _Tags(tags)
        cdef int status
        cdef size_t i, at = 0, messages = 0
        cdef Py_ssize_t size = 0
        cdef object kept = sought_text("topic", topic, &name)
        cdef bytes records
        cdef uint8_t *out
        memset(&request, 0, sizeof(request))
        request.topic, request.topic_size = name.data, name.size
        request.queue_id, request.offset = queue, offset
        request.max_count = min(max(max_count, <size_t>1), <size_t>FOUND_MAX)
        request.max_bytes, request.check_crc = max(max_bytes, <int64_t>1), check_crc
        request.max_units = UNITS_MAX
        request.tags, request.tag_count = wanted.slices, wanted.count
        try:
            found = _Found(request.max_count)
            with nogil:
                status = rmq_store_get(handle, &request, found.entries, &result, &err)
            found.count = result.count
            for i in range(result.count):
                size += found.entries[i].record.total_size
            records = PyBytes_FromStringAndSize(NULL, size)
            out = <uint8_t *>PyBytes_AS_STRING(records)
            for i in range(result.count):
                record = &found.entries[i].record
                memcpy(out + at, record.data, <size_t>record.total_size)
                if not rmq_store_copy_is_whole(handle, out + at, record.data, <size_t>record.total_size):
                    result.next_offset = found.entries[i].queue_offset
                    break
                at += <size_t>record.total_size
                messages += <size_t>found.entries[i].batch_size
            if <Py_ssize_t>at < size:
                if at == 0:
                    raise cut_while_read(found.entries[0].record.physical_offset)
                records = records[:at]
            if status != RMQ_OK and result.count == 0:
                raise error_of(&err)
            return (GET_STATUSES[result.status], result.next_offset, result.min_offset, result.max_offset, messages,
                    records)
        finally:
            self.leave()

    def _get_selected(self, str topic not None, int32_t queue, int64_t offset, size_t max_count, int64_t max_bytes,
                      size_t max_units, tuple names not None, selects not None, bint check_crc):
        """As _get_raw, but only records that *selects* returns true for. It gets the values of the properties *names*,
        None for an absent one. At most *max_units* records are looked at, and 512."""
        cdef rmq_store *handle = self.enter()
        cdef rmq_get_request request
        cdef rmq_get_result result
        cdef rmq_error err
        cdef _Found found
        cdef rmq_found *entry
        cdef rmq_slice name
        cdef int status
        cdef size_t i, messages = 0
        cdef int64_t size = 0
        cdef object kept = sought_text("topic", topic, &name), is_selected
        cdef bytes copied
        cdef list records = []
        memset(&request, 0, sizeof(request))
        request.topic, request.topic_size = name.data, name.size
        request.queue_id, request.offset = queue, offset
        request.max_count = min(max(max_units, <size_t>1), <size_t>FOUND_MAX)
        request.max_units, request.max_bytes = request.max_count, INT64_MAX
        try:
            found = _Found(request.max_count)
            with nogil:
                status = rmq_store_get(handle, &request, found.entries, &result, &err)
            found.count = result.count
            if status != RMQ_OK and result.count == 0:
                raise error_of(&err)

            for i in range(result.count):
                entry = &found.entries[i]
                is_selected = selects(values_of(&entry.record, names))
                if not is_selected and rmq_store_keeps_bytes(handle):
                    continue
                if is_selected and messages > 0 and (messages + <size_t>entry.batch_size > max_count
                                                     or size + entry.record.total_size > max_bytes):
                    result.next_offset = entry.queue_offset
                    break
                copied = PyBytes_FromStringAndSize(<const char *>entry.record.data, entry.record.total_size)
                if not rmq_store_copy_is_whole(handle, <const uint8_t *>PyBytes_AS_STRING(copied), entry.record.data,
                                               <size_t>entry.record.total_size):
                    if not records:
                        raise cut_while_read(entry.record.physical_offset)
                    result.next_offset = entry.queue_offset
                    break
                if not is_selected:
                    continue
                if check_crc:
                    # Only of these: the bodies of all others are not read.
                    status = rmq_record_decode(<const uint8_t *>PyBytes_AS_STRING(copied),
                                               <size_t>entry.record.total_size, entry.record.physical_offset,
                                               RMQ_CHECK_PLACE | RMQ_CHECK_READER, &entry.record, &err)
                    if status != RMQ_OK:
                        if not records:
                            raise error_of(&err)
                        result.next_offset = entry.queue_offset
                        break
                records.append(copied)
                size += len(copied)
                messages += <size_t>entry.batch_size
                if messages >= max_count:
                    result.next_offset = entry.queue_offset + entry.batch_size
                    break

            if not records and result.count > 0:
                result.status = RMQ_GET_NO_MATCHED_MESSAGE
            return (GET_STATUSES[result.status], result.next_offset, result.min_offset, result.max_offset, messages,
                    b"".join(records))
        finally:
            self.leave()

    @cython.nonecheck(False)  # Nothing here can be None; the check is paid for by every get.
    def _get_one(self, topic, queue, offset):
        """The record that holds *offset*, its CRC checked; None when there is none."""
        cdef rmq_slice name
        cdef object kept = sought_text("topic", topic, &name)
        cdef int32_t number = queue_of(queue)
        cdef int64_t at = integer_of("offset", offset, INT64_MIN, INT64_MAX)
        cdef rmq_store *handle = self.enter()
        cdef rmq_get_request request
        cdef rmq_get_result result
        cdef rmq_found found
        cdef rmq_error err
        cdef Record record
        cdef int status

        memset(&request, 0, sizeof(request))
        request.topic, request.topic_size = name.data, name.size
        request.queue_id, request.offset = number, at
        request.max_count = request.max_bytes = 1
        request.check_crc = True

        try:
            status = rmq_store_get(handle, &request, &found, &result, &err)
            if result.count == 0:
                check(status, &err)
                return None

            try:
                if found.queue_offset > at:
                    return None  # the next one behind a gap
                record = make_record(self, &found.record, found.queue_offset, None)
                if record is None:
                    raise cut_while_read(found.record.physical_offset)
                return record
            finally:
                rmq_found_release(&found, 1)
        finally:
            self.leave()

    def _bounds(self, topic, queue):
        """(min, max) of the queue, None when there is no such queue."""
        cdef rmq_slice name
        cdef object kept = sought_text("topic", topic, &name)
        cdef rmq_queue *found = rmq_store_find_queue(self.alive(), name.data, name.size, queue_of(queue))
        if found == NULL:
            return None
        return rmq_queue_min(found), rmq_queue_max(found)

    def _units(self, topic, queue, int64_t offset, count):
        """Up to *count* (256) units of the queue from the one that holds *offset* on, as (queue offset, physical
        offset, size, tags code, messages, extension address or None, bit map) each; a fill unit has the physical offset
        -1. [] at the end."""
        cdef rmq_slice name
        cdef object kept = sought_text("topic", topic, &name)
        cdef int32_t number = queue_of(queue)
        cdef size_t capacity = <size_t>min(integer_of("count", count, 0, INT64_MAX), <int64_t>256), taken = 0, i
        cdef rmq_unit units[256]
        cdef rmq_error err
        cdef list result = []
        cdef rmq_store *handle = self.enter()
        cdef rmq_queue *found = rmq_store_find_queue(handle, name.data, name.size, number)

        try:
            if found == NULL or offset >= rmq_queue_max(found):
                return result

            if found.has_ext:
                # Read as they are stored: rmq_queue_read puts the codes in place of the addresses.
                check(rmq_consume_queue_read(&found.simple, offset, units, capacity, &taken, &err), &err)
            else:
                check(rmq_queue_read(found, offset, units, capacity, &taken, &err), &err)

            for i in range(taken):
                result.append(unit_fields(found, &units[i]))
            return result
        finally:
            self.leave()

    def _next_offset(self, topic, queue):
        """The queue offset the next message gets; 0 when there is no such queue."""
        cdef rmq_slice name
        cdef object kept = sought_text("topic", topic, &name)
        cdef rmq_queue *found = rmq_store_find_queue(self.alive(), name.data, name.size, queue_of(queue))
        if found == NULL:
            return 0
        return rmq_queue_max(found) if self.read_only else found.next_offset

    def _record_at(self, physical_offset, bint check_crc):
        cdef int64_t at = integer_of("physical_offset", physical_offset, INT64_MIN, INT64_MAX)
        cdef rmq_store *handle = self.enter()
        cdef _Found found
        cdef rmq_error err
        try:
            found = _Found(1)
            check(rmq_store_at(handle, at, check_crc, found.entries, &err), &err)
            found.count = 1
            return found.take(self, 0)
        finally:
            self.leave()

    def _offset_by_time(self, topic, queue, timestamp_ms, bint upper):
        cdef rmq_slice name
        cdef object kept = sought_text("topic", topic, &name)
        cdef int32_t number = queue_of(queue)
        cdef int64_t timestamp = integer_of("timestamp_ms", timestamp_ms, INT64_MIN, INT64_MAX)
        cdef rmq_store *handle = self.enter()
        cdef int64_t offset = 0
        cdef rmq_error err
        cdef int status

        try:
            with nogil:
                status = rmq_store_offset_by_time(handle, name.data, name.size, number, timestamp, upper, &offset, &err)
        finally:
            self.leave()

        check(status, &err)
        return offset

    def _query(self, topic, key, bint tag, begin_ms, end_ms, max_count):
        cdef rmq_slice topic_text, key_text
        cdef object topic_kept = sought_text("topic", topic, &topic_text)
        cdef object key_kept = sought_text("tag" if tag else "key", key, &key_text)
        cdef int64_t begin = integer_of("begin_ms", begin_ms, INT64_MIN, INT64_MAX)
        cdef int64_t end = integer_of("end_ms", end_ms, INT64_MIN, INT64_MAX)
        # The room is made before anything is found, so that a bound must not be the caller's alone.
        cdef size_t room = <size_t>min(integer_of("max_count", max_count, 0, INT64_MAX), <int64_t>QUERY_MAX)
        cdef rmq_store *handle = self.enter()
        cdef _Found found
        cdef size_t count = 0, i
        cdef rmq_error err
        cdef int status
        cdef list records = []

        try:
            found = _Found(room)
            with nogil:
                status = rmq_store_query(handle, topic_text, key_text, tag, begin, end, room, found.entries, &count,
                                         &err)
            check(status, &err)
            found.count = count

            for i in range(count):
                records.append(found.take(self, i))
            return records
        finally:
            self.leave()

    def read_raw(self, physical_offset, max_bytes):
        """Return up to *max_bytes* of the commit log from *physical_offset*, not beyond its file or the end.

        b"" at the end. Raises OffsetOutOfRange outside of the log.
        """
        cdef int64_t at = integer_of("physical_offset", physical_offset, INT64_MIN, INT64_MAX)
        cdef int64_t limit = integer_of("max_bytes", max_bytes, 0, INT64_MAX)
        cdef rmq_store *handle = self.enter()
        cdef rmq_mapped_file *file = NULL
        cdef rmq_error err
        cdef int64_t end, size

        try:
            end = rmq_store_end(handle)
            if at == end:
                return b""
            if at > end or at < rmq_store_start(handle):
                raise OffsetOutOfRange(f"offset {at} is outside of the log",
                                       start=rmq_store_start(handle), end=end)

            check(rmq_store_pin(handle, at, &file, &err), &err)
            try:
                size = min(min(end, file.start + file.size) - at, limit)
                return PyBytes_FromStringAndSize(<const char *>rmq_mapped_file_base(file) + (at - file.start), size)
            finally:
                rmq_mapped_file_unpin(file)
        finally:
            self.leave()


cdef class RecordIterator:
    """The records of one queue from an offset on, found ahead in batches; ends at `stop`.

    Records are checked and decoded a batch at a time, and copied one at a time, when they are taken. Until its last
    record is taken, a batch pins its files.
    """

    cdef StoreReader store
    cdef str topic
    cdef rmq_slice name
    cdef object kept  # whose bytes `name` points at
    cdef int32_t queue
    cdef int64_t next_offset
    cdef int64_t stop
    cdef _Tags tags
    cdef bint zero_copy
    cdef bint check_crc
    cdef _Found batch  # None: nothing is found ahead
    cdef _Pin pin      # of the last record, while it looks into a file
    cdef size_t at

    def __cinit__(self, StoreReader store, topic, queue, start, stop, tags, zero_copy, check_crc):
        self.store = store
        self.topic = arguments.text("topic", topic)
        self.kept = sought_text("topic", topic, &self.name)
        self.queue = queue_of(queue)
        self.next_offset = integer_of("start", start, 0, INT64_MAX)
        self.stop = integer_of("stop", stop, INT64_MIN, INT64_MAX)
        self.tags = _Tags(tags)
        self.zero_copy = boolean_of("zero_copy", zero_copy)
        self.check_crc = boolean_of("check_crc", check_crc)

    def __iter__(self):
        return self

    @cython.nonecheck(False)  # A batch that is None is not looked into.
    def __next__(self):
        cdef _Found batch
        cdef rmq_found *entry
        cdef Record record

        while True:
            self.store.alive()
            batch = self.batch
            if batch is None:
                if not self.find():
                    raise StopIteration
                continue

            entry = &batch.entries[self.at]
            if entry.queue_offset >= self.stop:
                self.close()
                raise StopIteration

            if self.zero_copy:
                self.pin = pin_of(self.pin, entry.file)
            record = make_record(self.store, &entry.record, entry.queue_offset, self.pin)
            if record is not None:
                self.at += 1
                if self.at == batch.count:
                    self.batch = self.pin = None
                return record

            # The log was cut after the batch was found: the queue may hold other records from here on.
            if self.at == 0:
                raise cut_while_read(entry.record.physical_offset)
            self.next_offset = entry.queue_offset
            self.batch = self.pin = None

    cdef bint find(self) except -1:
        """Find the next batch; False at the end. A batch may hold nothing yet, while tags filter."""
        cdef rmq_get_result result
        cdef size_t count
        cdef _Found batch

        if self.next_offset >= self.stop:
            return False

        # While tags filter, any number of units may have to be looked at for one record.
        count = <size_t>min(self.stop - self.next_offset, <int64_t>256)
        self.store.enter()
        try:
            batch = self.store.find_records(self.name, self.queue, self.next_offset,
                                            256 if self.tags.count else count, 8 << 20, self.tags, self.check_crc,
                                            &result)
        finally:
            self.store.leave()
        if batch.count > 0:
            self.at = 0
            self.batch = batch

        if GET_STATUSES[result.status] is GetStatus.OFFSET_TOO_SMALL:
            raise before_the_start(f"queue {self.topic}/{self.queue}", self.next_offset, result.min_offset,
                                   result.max_offset)

        if GET_STATUSES[result.status] is GetStatus.OFFSET_FOUND_NULL:
            raise missing_file(f"queue {self.topic}/{self.queue}", self.next_offset)

        if result.next_offset <= self.next_offset:
            return False
        self.next_offset = result.next_offset
        return True

    def close(self):
        """Let go of what was found ahead."""
        self.batch = self.pin = None
        self.next_offset = self.stop
