"""A store driven through more of the core's calls than Calls has: batches, raw bytes, walks,
Arrow streams.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

from tests.c.store_calls import Calls, Failed, Put

WAIT_MS = 40
"""For waits that a failure may have made vain."""
WAITS_MAX = 500
"""Of so many milliseconds each, on a machine that is busy with other things."""
BATCH_TOPIC = b"batches"
BATCH_COUNT = 3
SETTINGS = {"enable_ext": True}
WALK_RECORDS_MAX = 1000
INNER_BATCH_FLAG = 0x80
PHYSICAL_OFFSET_COLUMN, BODY_COLUMN, PROPERTIES_COLUMN = 3, 13, 12


def body_of(number: int) -> bytes:
    return b"%08d" % number + bytes((number,)) * (number * 53 % 700)


def time_of(body: bytes) -> int:
    """Return the store time that the message with this body gets; it rises with the numbers."""
    return 10**12 + int(body[:8])


class Row(NamedTuple):
    """A record as a walk over the log shows it."""

    topic: bytes
    queue_id: int
    queue_offset: int
    physical_offset: int
    size: int
    body: bytes
    is_batch: bool


class Store(Calls):
    """The calls of a test, with those that few tests need."""

    def __init__(self, core: Any, root: Path, vfs: Any = None, **settings: Any) -> None:
        self.kept: list[Any] = []
        self.stored: list[Put] = []
        self.is_open = False
        self.has_failed: Callable[[], bool] = lambda: False
        """Whether an inner call failed, so that what is waited for may never come."""
        super().__init__(core, root, vfs, **{**SETTINGS, **settings})
        self.is_open = True

    def close(self) -> None:
        self.is_open = False
        super().close()

    def abandon(self) -> None:
        self.is_open = False
        super().abandon()

    def wait_dispatched(self, offset: int, timeout_ms: int = WAIT_MS) -> None:
        for _ in range(WAITS_MAX):
            has_failed = self.has_failed()
            try:
                return super().wait_dispatched(offset, timeout_ms)
            except Failed as failure:
                if failure.status != self.lib.RMQ_TIMEOUT or has_failed:
                    raise
        raise AssertionError(f"the dispatcher does not reach {offset}")

    def slice(self, text: bytes) -> Any:
        self.kept.append(self.ffi.new("char[]", text))
        return {"data": self.kept[-1], "size": len(text)}

    def fill(self, message: Any, body: bytes, *, topic: bytes, queue_id: int) -> None:
        inner = topic == BATCH_TOPIC
        properties = b"KEYS\x01k" + body[:8] + b"\x02"
        if inner:
            properties += b"INNER_NUM\x01%d\x02" % BATCH_COUNT
            message.sys_flag = INNER_BATCH_FLAG
        kept = [self.ffi.new("char[]", topic), self.ffi.new("char[]", properties)]
        kept.append(self.ffi.new("uint8_t[]", body))
        self.kept += kept
        message.topic, message.topic_size = kept[0], len(topic)
        message.properties, message.properties_size = kept[1], len(properties)
        message.body, message.body_size = kept[2], len(body)
        message.born_host.size = message.store_host.size = 4
        message.born_timestamp = 1
        message.store_timestamp = time_of(body)
        message.queue_id = queue_id

    def put(self, body: bytes, *, topic: bytes = b"orders", queue_id: int = 0) -> Put:
        return self.put_many([body], topic=topic, queue_ids=(queue_id,))[0]

    def put_many(
        self,
        bodies: list[bytes],
        *,
        topic: bytes = b"orders",
        queue_ids: tuple[int, ...] = (0, 1),
        together: bool = False,
    ) -> list[Put]:
        """Put into the queues in turn; after a failure `stored` has what is in the log."""
        messages = self.ffi.new("struct rmq_message[]", len(bodies))
        for number, body in enumerate(bodies):
            queue_id = 0 if together or topic == BATCH_TOPIC else queue_ids[number % len(queue_ids)]
            self.fill(messages[number], body, topic=topic, queue_id=queue_id)

        receipts = self.ffi.new("struct rmq_receipt[]", len(bodies))
        stored = self.ffi.new("size_t *")
        status = self.lib.rmq_store_put(
            self.store, messages, len(bodies), together, receipts, stored, self.error
        )

        self.stored = [
            Put(
                messages[i].queue_id,
                receipts[i].queue_offset,
                receipts[i].physical_offset,
                receipts[i].size,
                bodies[i],
            )
            for i in range(stored[0])
        ]

        self.check(status)
        assert stored[0] == len(bodies)
        return self.stored

    def append_raw(self, at: int, data: bytes) -> None:
        self.check(self.lib.rmq_store_append_raw(self.store, at, data, len(data), self.error))

    def place(self, run: bytes) -> int:
        """Bring records made elsewhere, with their store times, into the log."""
        placing = self.ffi.new("struct rmq_run *")
        kept = self.ffi.from_buffer(run)
        placing.data, placing.size, placing.keeps_timestamps = kept, len(run), True
        status = self.lib.rmq_store_place(self.store, placing, self.error)
        self.check(status)
        return int(placing.records)

    def refresh(self) -> None:
        self.check(self.lib.rmq_store_refresh(self.store, self.error))

    def at(self, physical_offset: int) -> bytes:
        """Return the whole record at an offset of the log."""
        found = self.ffi.new("struct rmq_found *")
        status = self.lib.rmq_store_at(self.store, physical_offset, True, found, self.error)
        self.check(status)
        data = bytes(self.ffi.buffer(found.record.data, found.record.total_size))
        self.lib.rmq_found_release(found, 1)
        return data

    def offset_by_time(self, queue_id: int, timestamp: int, *, upper: bool) -> int:
        topic = self.slice(b"orders")
        out = self.ffi.new("int64_t *")
        status = self.lib.rmq_store_offset_by_time(
            self.store, topic["data"], topic["size"], queue_id, timestamp, upper, out, self.error
        )
        self.check(status)
        return int(out[0])

    def walk(self, *, queue_id: int | None = None, topic: bytes = b"orders") -> list[Row]:
        """Return the records of the log, or of a queue, up to its end."""
        options = self.ffi.new("struct rmq_walk_options *")
        options.queue_id = -1 if queue_id is None else queue_id
        options.by_queue = queue_id is not None

        if options.by_queue:
            options.topic = self.slice(topic)
        else:
            options.start = self.start_offset
        options.stop = options.end_ms = 2**62
        options.begin_ms = -1
        options.check_crc = True

        walk = self.ffi.new("struct rmq_walk *")
        self.check(self.lib.rmq_walk_begin(walk, self.store, options, self.error))

        rows: list[Row] = []
        try:
            for _ in range(WALK_RECORDS_MAX):
                status = self.lib.rmq_walk_next(walk, 100, 1 << 20, self.error)
                if status == self.lib.RMQ_END:
                    return rows
                self.check(status)
                rows += [self._row(walk.records[i]) for i in range(walk.count)]
        finally:
            self.lib.rmq_walk_finish(walk)
        raise AssertionError("the walk does not end")

    def _row(self, record: Any) -> Row:
        def text(data: Any, size: int) -> bytes:
            return bytes(self.ffi.buffer(data, size)) if size else b""

        is_batch = bool(record.sys_flag & INNER_BATCH_FLAG)
        queue_offset = record.queue_offset
        if is_batch:
            properties = text(record.properties, record.properties_size)
            queue_offset = int(properties.split(b"INNER_BASE\x01")[1].split(b"\x02")[0])
        return Row(
            text(record.topic, record.topic_size),
            record.queue_id,
            queue_offset,
            record.physical_offset,
            record.total_size,
            text(record.body, record.body_size),
            is_batch,
        )

    def arrow(self, *, queue_id: int | None = None) -> list[int]:
        """Return the physical offsets that a stream of Arrow batches has."""
        options = self.ffi.new("struct rmq_arrow_options *")
        columns = self.ffi.new(
            "uint8_t[]", [PHYSICAL_OFFSET_COLUMN, BODY_COLUMN, PROPERTIES_COLUMN]
        )

        options.columns.columns, options.columns.column_count = columns, 3
        options.columns.max_rows, options.columns.max_bytes = 4, 1 << 20
        options.store, options.gate = self.store, self.lib.rmq_gate_create()
        if options.gate == self.ffi.NULL:
            raise Failed(self.lib.RMQ_NO_MEMORY, "no memory for a gate", 0)

        options.by_queue = queue_id is not None
        options.queue_id = -1 if queue_id is None else queue_id
        if options.by_queue:
            options.topic = self.slice(b"orders")
        else:
            options.start = self.start_offset
        options.stop = options.end_ms = 2**62
        options.begin_ms = -1
        options.check_crc = True

        made = self.ffi.new("struct rmq_arrow_stream **")
        try:
            self.check(self.lib.rmq_arrow_stream_open(options, made, self.error))
            try:
                return self._read_stream(made[0])
            finally:
                self.lib.rmq_arrow_stream_release(made[0])
        finally:
            self.lib.rmq_gate_release(options.gate)

    def _read_stream(self, made: Any) -> list[int]:
        stream = self.ffi.new("struct ArrowArrayStream *")
        schema = self.ffi.new("struct ArrowSchema *")
        array = self.ffi.new("struct ArrowArray *")
        self.lib.rmq_arrow_stream_export(made, stream)

        offsets: list[int] = []
        try:
            self._step(stream, stream.get_schema(stream, schema))
            schema.release(schema)
            for _ in range(WALK_RECORDS_MAX):
                self._step(stream, stream.get_next(stream, array))
                if array.release == self.ffi.NULL:
                    return offsets
                values = self.ffi.cast("int64_t *", array.children[0].buffers[1])
                offsets += [int(values[i]) for i in range(array.length)]
                array.release(array)
        finally:
            stream.release(stream)

        raise AssertionError("the stream does not end")

    def _step(self, stream: Any, os_errno: int) -> None:
        if os_errno:
            detail = bytes(self.ffi.string(stream.get_last_error(stream))).decode()
            raise Failed(self.lib.RMQ_IO, detail, os_errno)

    @property
    def start_offset(self) -> int:
        return max(int(self.store.log.files.start_offset), 0)

    def check_agreement(self) -> list[Row]:
        """Log, queues and index say the same; returns the records of the log."""
        self.wait_dispatched(self.end_offset)
        rows = self.walk()
        queues: dict[tuple[bytes, int], list[Row]] = {}
        for row in rows:
            queues.setdefault((row.topic, row.queue_id), []).append(row)
        for (topic, queue_id), members in queues.items():
            queue = self.lib.rmq_queue_table_find(
                self.ffi.addressof(self.store, "queues"),
                self.ffi.new("char[]", topic),
                len(topic),
                queue_id,
            )
            # Records of a deleted topic are in the log alone.
            held = [row for row in members if row.physical_offset >= queue.removed_until]
            assert self.walk(queue_id=queue_id, topic=topic) == held
            next_offset = members[0].queue_offset
            for row in members:
                assert row.queue_offset == next_offset, row
                next_offset += BATCH_COUNT if row.is_batch else 1
                assert row.physical_offset in self.find(b"k" + row.body[:8], topic=topic), row
        return rows
