"""A store with messages of known content, looked at in every way there is."""

from __future__ import annotations

import zlib
from pathlib import Path
from typing import Any, NamedTuple

from tests.c.store_calls import Calls

TOPIC = b"orders"
QUEUES = 2
BEGAN_MS = 1_700_000_000_000
SETTINGS: dict[str, Any] = {"index_slot_count": 120, "index_entry_count": 10}
"""Index files of two blocks, so that slots and entries may be lost alone. Each message has two
keys: those of every fifth lie in two files."""


class Record(NamedTuple):
    """A message as the log holds it."""

    physical_offset: int
    size: int
    queue_id: int
    queue_offset: int
    body: bytes
    properties: bytes

    @property
    def end_offset(self) -> int:
        return self.physical_offset + self.size

    @property
    def key(self) -> bytes:
        return self.properties[len(b"KEYS\x01") :].split(b" ")[0]


class Driven(Calls):
    """A store with messages of known content, and a full look at what it holds."""

    def __init__(self, core: Any, root: Path, vfs: Any, **settings: Any) -> None:
        super().__init__(core, root, vfs, **{**SETTINGS, **settings})

    def _fill(self, message: Any, number: int, body: bytes, properties: bytes) -> list[Any]:
        kept = [self.ffi.new("char[]", TOPIC), self.ffi.from_buffer(body)]
        kept.append(self.ffi.new("char[]", properties))
        message.topic, message.topic_size = kept[0], len(TOPIC)
        message.body, message.body_size = kept[1], len(body)
        message.properties, message.properties_size = kept[2], len(properties)
        message.born_host.size = message.store_host.size = 4
        # Some messages share a millisecond with those before them.
        message.born_timestamp = message.store_timestamp = BEGAN_MS + number // 3
        message.queue_id = number % QUEUES
        return kept

    def put_messages(self, contents: list[tuple[int, bytes, bytes]]) -> list[Record]:
        """Put messages, each of a number, a body and properties, by one call."""
        messages = self.ffi.new("struct rmq_message[]", len(contents))
        receipts = self.ffi.new("struct rmq_receipt[]", len(contents))
        stored = self.ffi.new("size_t *")

        kept = [
            self._fill(each, *content) for each, content in zip(messages, contents, strict=True)
        ]

        status = self.lib.rmq_store_put(
            self.store, messages, len(contents), False, receipts, stored, self.error
        )
        self.check(status)
        assert stored[0] == len(contents) == len(kept)

        return [
            Record(
                receipt.physical_offset,
                receipt.size,
                number % QUEUES,
                receipt.queue_offset,
                body,
                properties,
            )
            for receipt, (number, body, properties) in zip(receipts, contents, strict=True)
        ]

    def encode(self, record: Record, number: int) -> bytes:
        """Return the bytes of a record, as another log would send them."""
        message = self.ffi.new("struct rmq_message *")
        kept = self._fill(message, number, record.body, record.properties)
        limits = self.ffi.addressof(self.store.log.options, "limits")
        plan = self.ffi.new("struct rmq_record_plan *")
        self.check(self.lib.rmq_record_plan(message, limits, plan, self.error))
        placement = self.ffi.new("struct rmq_placement *")
        placement.queue_offset = record.queue_offset
        placement.physical_offset = record.physical_offset
        placement.store_timestamp = message.store_timestamp
        placement.body_crc = zlib.crc32(record.body) & 0x7FFFFFFF
        out = self.ffi.new("uint8_t[]", plan.total_size)
        self.lib.rmq_record_encode(out, message, plan, placement)
        assert kept
        return bytes(out)

    def append_raw(self, at: int, data: bytes) -> None:
        self.check(self.lib.rmq_store_append_raw(self.store, at, data, len(data), self.error))

    def remove_queues(self, log_offset: int) -> None:
        """Remove the queues of the topic, as if it were deleted."""
        topic, size = self.ffi.new("char[]", TOPIC), len(TOPIC)
        self.check(
            self.lib.rmq_store_remove_queues(self.store, topic, size, log_offset, self.error)
        )

    def next_offset(self, queue_id: int) -> int:
        """Return the queue offset that the next message of a queue gets."""
        queue = self.lib.rmq_queue_table_find(self._queues, TOPIC, len(TOPIC), queue_id)
        return int(queue.next_offset) if queue else 0

    @property
    def _queues(self) -> Any:
        return self.ffi.addressof(self.store, "queues")

    @property
    def start_offset(self) -> int:
        return int(self.store.log.files.start_offset)

    # ---- looking ----

    def records(self) -> list[Record]:
        """Return every record of the log, having checked that there is nothing else in it."""
        scan = self.ffi.new("struct rmq_scan *")
        raw = self.ffi.new("struct rmq_record *")
        files = self.ffi.addressof(self.store.log, "files")
        checks = self.lib.RMQ_CHECK_PLACE | self.lib.RMQ_CHECK_BODY_CRC
        start = max(self.start_offset, 0)
        self.lib.rmq_scan_begin(scan, files, start, self.end_offset, checks)

        found = []
        while (status := self.lib.rmq_scan_next(scan, raw, self.error)) == self.lib.RMQ_OK:
            assert bytes(self.ffi.buffer(raw.topic, raw.topic_size)) == TOPIC
            found.append(
                Record(
                    raw.physical_offset,
                    raw.total_size,
                    raw.queue_id,
                    raw.queue_offset,
                    bytes(self.ffi.buffer(raw.body, raw.body_size)),
                    bytes(self.ffi.buffer(raw.properties, raw.properties_size)),
                )
            )

        verdict, offset = scan.verdict, scan.offset
        self.lib.rmq_scan_finish(scan)

        assert status == self.lib.RMQ_END, status
        assert verdict == self.lib.RMQ_SCAN_LIMIT, (verdict, offset, self.end_offset)
        assert offset == max(self.end_offset, 0), (offset, self.end_offset)

        return found

    def look(self) -> Seen:
        """Read everything by every way there is; the ways must agree."""
        self.wait_dispatched(self.end_offset)
        records = self.records()

        next_offsets, removed_until = [], []
        for queue_id in range(QUEUES):
            queue = self.lib.rmq_queue_table_find(self._queues, TOPIC, len(TOPIC), queue_id)
            low = int(self.lib.rmq_queue_min(queue)) if queue else 0
            high = int(self.lib.rmq_queue_max(queue)) if queue else 0

            removed_until.append(int(queue.removed_until) if queue else 0)
            expected = [
                each
                for each in records
                if each.queue_id == queue_id and each.physical_offset >= removed_until[-1]
            ]
            offsets = [each.queue_offset for each in expected]
            assert offsets == list(range(low, high)), (queue_id, low, high, offsets)

            for each in expected:
                found = self.read(queue_id, each.queue_offset)
                assert found == (each.physical_offset, each.body), (each, found)

            next_offsets.append(self.next_offset(queue_id))
            assert not expected or next_offsets[-1] == high, (queue_id, next_offsets, high)

        for each in records:
            assert b"\0" not in each.properties, each
            if self.store.has_index:
                assert self.find(each.key) == [each.physical_offset], each

        everything = [each.physical_offset for each in records]
        # The newest 64; each message carries the shared key.
        if self.store.has_index:
            assert self.find(b"all") == everything[-64:], (self.find(b"all"), everything)

        return Seen(
            self.start_offset,
            self.end_offset,
            tuple(records),
            tuple(next_offsets),
            tuple(removed_until),
        )


class Seen(NamedTuple):
    """What a store showed."""

    start_offset: int
    end_offset: int
    records: tuple[Record, ...]
    next_offsets: tuple[int, ...]
    removed_until: tuple[int, ...]
    """For each queue the log offset before which records are in no queue."""
