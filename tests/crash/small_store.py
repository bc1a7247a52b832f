"""A store of a few messages with every kind of file, and a judge of what it says when damaged.

The judge knows what was put. An answer may be missing, where the damage is told; it may never be
another one.
"""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, NamedTuple

import rmqstore
from rmqstore import Message, Receipt, Record, Store, StoreError
from rmqstore.check import verify
from rmqstore.message import GetStatus
from tests.support.native_store import set_clock

BATCH_TOPIC = "batches"
BATCH_COUNT = 3
FILLER_TOPIC = "RMQ_SYS_DAMAGED"
"""Of records with which repair fills the place of damaged ones."""

CLOCK_MS = 1_700_000_000_000
SIZES: dict[str, Any] = {
    "commit_log_file_size_bytes": 1024,
    "consume_queue_file_size_bytes": 60,
    "consume_queue_ext_file_size_bytes": 512,
    "batch_consume_queue_file_size_bytes": 138,
    "enable_consume_queue_ext": True,
    "index_slot_count": 3,
    "index_entry_count": 7,
    "message_size_bytes_max": 600,
}
"""So small that log, queue and index have two files each."""


PARTS = (
    "commitlog",
    "consumequeue",
    "consumequeue_ext",
    "batchconsumequeue",
    "index",
    "config",
    "checkpoint",
    "lock",
    "queueEnds",
)
"""What lies in the folder of a closed store."""


class Shape(NamedTuple):
    """Everything a reader sees of a record."""

    topic: str
    queue: int
    queue_offset: int
    physical_offset: int
    body: bytes
    tags: str | None
    properties: str
    flag: int
    sys_flag: int
    born_timestamp: int
    store_timestamp: int
    born_host: tuple[str, int]
    store_host: tuple[str, int]
    reconsume_times: int
    prepared_transaction_offset: int
    version: int


def shape_of(record: Record) -> Shape:
    return Shape(
        record.topic,
        record.queue,
        record.queue_offset,
        record.physical_offset,
        record.body,
        record.tags,
        record.properties_text,
        record.flag,
        record.sys_flag,
        record.born_timestamp,
        record.store_timestamp,
        record.born_host,
        record.store_host,
        record.reconsume_times,
        record.prepared_transaction_offset,
        record.version,
    )


class WrongAnswer(AssertionError):
    """The store returned something that was never put there."""


@dataclass(slots=True)
class Heard:
    """What a store said of itself."""

    errors: list[StoreError] = field(default_factory=list)
    missing: set[int] = field(default_factory=set)
    """Physical offsets of messages that some answer lacked, whether an error said so or not."""

    untold: set[int] = field(default_factory=set)
    """Those that an answer lacked without an error."""

    @property
    def is_complete(self) -> bool:
        """Whether every answer was whole."""
        return not self.errors and not self.missing


class SmallStore:
    """What is in the store: its records, by queue and by key."""

    def __init__(self, root: Path, *, has_crc: bool, **settings: Any) -> None:
        self.root = root
        self.has_crc = has_crc
        crc: dict[str, Any] = (
            {"append_property_crc": True, "force_verify_property_crc": True} if has_crc else {}
        )
        with rmqstore.open(root, **SIZES, **crc, **settings) as store:
            set_clock(store, CLOCK_MS)
            store.create_topic(
                BATCH_TOPIC,
                read_queue_count=1,
                write_queue_count=1,
                attributes={"queue.type": "BatchCQ"},
            )
            self.receipts = list(_put_all(store))
            store.commit_offset("group", "orders", queue=0, offset=2)
            store.save_offsets()
            self.records = [shape_of(each) for each in store.scan_log()]
            self.shapes = {each.physical_offset: each for each in self.records}
            self.raw = {each.physical_offset: each.raw for each in store.scan_log()}
            self.queues: dict[tuple[str, int], list[Shape]] = {}
            self.keys: dict[tuple[str, str], list[Shape]] = {}
            for queue in store.queues():
                name = queue.topic, queue.number
                records = list(queue.records())
                self.queues[name] = [shape_of(each) for each in records]
                for record in records:
                    for key in record.keys:
                        self.keys.setdefault((queue.topic, key), []).append(shape_of(record))
        self.files = {
            path.relative_to(root): path.read_bytes()
            for path in sorted(root.rglob("*"))
            if path.is_file()
        }

        assert {name.parts[0] for name in self.files} == set(PARTS)

    def copy(self, target: Path) -> Path:
        return Path(shutil.copytree(self.root, target))

    def part(self, name: str) -> dict[Path, bytes]:
        """Return the files of one of PARTS."""
        return {path: data for path, data in self.files.items() if path.parts[0] == name}

    def record_in(self, physical_offset: int) -> int | None:
        """Return the physical offset of the record that holds a byte of the log."""
        for start, data in self.raw.items():
            if start <= physical_offset < start + len(data):
                return start
        return None

    # -- judging

    def listen(self, store: Store) -> Heard:
        """Ask for everything in every way; raise WrongAnswer for what was never put."""
        heard = Heard()
        for (topic, number), expected in self.queues.items():
            self._listen_to_queue(store, topic, number, expected, heard)
        for (topic, key), expected in self.keys.items():
            try:
                found = store.find(topic, key)
            except StoreError as error:
                self._told(expected, error, heard)
            else:
                self._compare(found, expected, heard)
        self._listen_to_log(store, heard)
        self._listen_to_arrow(store, heard)
        return heard

    def _listen_to_queue(
        self, store: Store, topic: str, number: int, expected: list[Shape], heard: Heard
    ) -> None:
        for shape in expected:
            try:
                record = store.get(topic, queue=number, offset=shape.queue_offset)
            except StoreError as error:
                self._told([shape], error, heard)
            else:
                self._compare([record], [shape], heard)

        try:
            result = store.get_many(topic, queue=number, offset=expected[0].queue_offset)
            if result.status is GetStatus.OFFSET_TOO_SMALL:
                result = store.get_many(topic, queue=number, offset=result.next_offset)
        except StoreError as error:
            self._told(expected, error, heard)
        else:
            self._compare(result.records, expected, heard)

        got: list[Record] = []
        try:
            for record in store.queue(topic, number).records():
                got.append(record)
        except StoreError as error:
            self._told(expected[len(got) :], error, heard)
            expected = expected[: len(got)]

        self._compare(got, expected, heard)

    def _listen_to_log(self, store: Store, heard: Heard) -> None:
        scan = store.scan_log(max(store.start_offset, 0), on_corrupt="stop")
        got = list(scan)
        expected = self.records
        if scan.error is not None:
            self._told(expected[len(got) :], scan.error, heard)
            expected = expected[: len(got)]
        self._compare(got, expected, heard)

    def _listen_to_arrow(self, store: Store, heard: Heard) -> None:
        columns = ["physical_offset", "record"]
        got: list[int] = []
        try:
            for batch in store.scan_arrow(columns=columns, check_crc=True, batch_rows=1):
                got += batch.column(0).to_pylist()
                self._compare_raw(got[-1], batch.column(1)[0].as_py())
        except (StoreError, OSError) as error:
            self._told(self.records[len(got) :], StoreError(str(error)), heard)
        else:
            self._lack({each.physical_offset for each in self.records} - set(got), heard)
        skipping = store.scan_arrow(columns=columns, check_crc=True, on_corrupt="skip")
        for offset, data in zip(*skipping.read_all().to_pydict().values(), strict=True):
            self._compare_raw(offset, data)

    def _compare(self, got: list[Record], expected: list[Shape], heard: Heard) -> None:
        """*got* is *expected*, in its order, perhaps with gaps."""
        left = iter(expected)
        for record in got:
            shape = shape_of(record)
            if shape.topic == FILLER_TOPIC:
                continue
            if not self._is_covered(shape):
                continue
            if not any(self._is_same(shape, each) for each in left):
                raise WrongAnswer(f"{shape} is none of {expected}")
        there = {record.physical_offset for record in got}
        self._lack({each.physical_offset for each in expected} - there, heard)

    def _is_covered(self, shape: Shape) -> bool:
        """Whether a CRC covers what makes this record another one than was put: with body CRCs
        alone, the right body may turn up under another name."""
        put = self.shapes.get(shape.physical_offset)
        return self.has_crc or put is None or put == shape or put.body != shape.body

    def _is_same(self, shape: Shape, other: Shape) -> bool:
        if self.has_crc:
            return shape == other
        return (shape.physical_offset, shape.body) == (other.physical_offset, other.body)

    def _compare_raw(self, offset: int, data: bytes) -> None:
        if FILLER_TOPIC.encode() in data:
            return
        expected = self.raw.get(offset)
        if expected is None or (self.has_crc and data != expected):
            raise WrongAnswer(f"the record at {offset} is {data!r}, not {expected!r}")

    @staticmethod
    def _told(shapes: list[Shape], error: StoreError, heard: Heard) -> None:
        assert str(error)
        heard.errors.append(error)
        heard.missing.update(shape.physical_offset for shape in shapes)

    @staticmethod
    def _lack(offsets: set[int], heard: Heard) -> None:
        heard.missing |= offsets
        heard.untold |= offsets


def _put_all(store: Store) -> Iterator[Receipt]:
    for number in range(3):
        yield store.put(
            "orders",
            b"message %d, " % number * 2,
            queue=number % 2,
            tags="A",
            keys=[f"k{number}"],
            flag=number,
            born_timestamp=CLOCK_MS - 1000,
        )
    yield from store.put_batch([Message(BATCH_TOPIC, b"in %d" % i) for i in range(BATCH_COUNT)])
    for number in range(3, 5):
        yield store.put(
            "orders",
            b"message %d, " % number * 8,
            tags="B",
            keys=[f"k{number}", "both"],
            properties={"colour": "blue"},
            born_timestamp=CLOCK_MS - 1000,
        )


def listen(small: SmallStore, root: Path, *, read_only: bool) -> Heard | StoreError:
    """Open and ask for everything; return what was heard, or why the store was not opened."""
    try:
        store = rmqstore.open(root, read_only=read_only)
    except StoreError as error:
        return error
    with store:
        return small.listen(store)


def is_told(root: Path) -> bool:
    """Whether verification finds damage, or so much of it that it cannot even begin."""
    try:
        return not verify(root, full=True).is_sound
    except StoreError:
        return True


def names_place(root: Path, error: StoreError) -> bool:
    """Whether the error tells where to look: a file, or an offset of the log."""
    return str(root) in str(error) or getattr(error, "physical_offset", -1) >= 0
