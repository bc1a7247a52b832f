"""The store of a simulated broker: the faces of `AsyncStore` and `Store` over the model of a log.

It is a model, not the C store over files in memory: threads of the C store would take turns that no
seed repeats. The queues, the times and the keys are found in the records of the log, which name
their messages (`contents`). Records are in their queues as soon as readers see them.

    at  size  field of a record that a pull returns   (integers are big-endian)
    0   8     queue offset
    8   8     number of the put
    16  8     place in the log
"""

from __future__ import annotations

import struct
from bisect import bisect_left, bisect_right
from collections.abc import Callable, Coroutine, Iterable, Iterator
from dataclasses import dataclass
from operator import attrgetter
from typing import Any, Protocol, Self

from rmqstore.config import Configuration, ReplicaConfig, StoreConfig
from rmqstore.errors import NotFoundError, OffsetOutOfRange, PutError, StoreClosedError
from rmqstore.message import (
    Durability,
    GetStatus,
    PutStatus,
    decode_properties,
    encode_properties,
    java_string_hash,
    message_id,
)
from rmqstore.sim.clock import MachineClock
from rmqstore.sim.contents import Content, Contents
from rmqstore.sim.disk import ModelLog, ModelRecord
from rmqstore.sim.virtual_loop import VirtualLoop
from rmqstore.sim.witness import Put
from rmqstore.store.metadata import TopicConfig
from rmqstore.topic_names import SCHEDULE_TOPIC

__all__ = ["AsyncModelStore", "ModelStore", "Sends", "StoreMachine", "records_in"]

_RECORD = struct.Struct(">qqq")
_STORED_MS = attrgetter("stored_ms")
_OFFSET = attrgetter("queue_offset")


def records_in(body: bytes) -> list[tuple[int, int, int]]:
    """Return queue offset, put number and place in the log of each record that a pull returned."""
    return list(_RECORD.iter_unpack(body))


class Sends(Protocol):
    """Takes the messages that clients send."""

    @property
    def contents(self) -> Contents:
        """The contents of all messages."""

    def new_put(self, content: Content, durability: Durability, clock: MachineClock) -> Put:
        """Return the put of a message, with a new number, that a machine with *clock* stores."""


class StoreMachine(Protocol):
    """The machine and the process that a store belongs to."""

    @property
    def number(self) -> int:
        """The number of the machine."""

    @property
    def clock(self) -> MachineClock:
        """Its clocks."""

    @property
    def loop(self) -> VirtualLoop:
        """The loop of the process."""

    @property
    def log(self) -> ModelLog:
        """The log on its disk."""

    @property
    def removed_queues(self) -> dict[str, int]:
        """By deleted topic the offset before which its records are in no queue; on the disk."""

    @property
    def visible_end(self) -> int:
        """The end of the last message that readers see."""

    def store_message(self, put: Put, done: Callable[[Put], None]) -> None:
        """Admit and append a message; *done* is called once it is acknowledged or refused."""

    def flush_log(self) -> None:
        """Bring the log to the disk."""

    def close_log(self) -> None:
        """Bring the log to the disk, and record that it was closed."""


@dataclass(frozen=True, slots=True)
class Receipt:
    """The place and the size of a stored message."""

    topic: str
    size: int
    message_id: str
    queue: int
    queue_offset: int
    physical_offset: int
    end_offset: int
    """The physical offset after the record."""


@dataclass(frozen=True, slots=True)
class Message:
    """A record as readers get it; see `Record`."""

    content: Content
    queue_offset: int
    physical_offset: int
    size: int
    store_timestamp: int
    raw: bytes

    flag = 0
    born_timestamp = 0
    born_host = ("10.0.0.1", 1)
    store_host = ("10.0.0.2", 1)

    @property
    def sys_flag(self) -> int:
        """`SysFlag` bits."""
        return self.content.sys_flag

    @property
    def prepared_transaction_offset(self) -> int:
        """The half message of a committed one."""
        return self.content.prepared_transaction_offset

    @property
    def topic(self) -> str:
        """Its topic."""
        return self.content.topic

    @property
    def queue(self) -> int:
        """Its queue."""
        return self.content.queue

    @property
    def body(self) -> bytes:
        """The body as stored."""
        return self.content.body

    @property
    def properties(self) -> dict[str, str]:
        """All properties."""
        return dict(self.content.properties)

    @property
    def properties_text(self) -> str:
        """All properties as stored."""
        return encode_properties(self.content.properties)

    @property
    def unique_key(self) -> str:
        """The unique key."""
        return self.content.key

    @property
    def message_id(self) -> str:
        """The place of the record, as text."""
        return message_id(*self.store_host, self.physical_offset)

    @property
    def reconsume_times(self) -> int:
        """How often consuming it failed."""
        return self.content.reconsume_times


@dataclass(frozen=True, slots=True)
class Recovery:
    """The state in which the log was found."""

    was_closed: bool


class ModelWatch:
    """Notifies a reader of the loop of records that become visible; see `LogWatch`."""

    def __init__(self, store: ModelStore, number: int) -> None:
        self._store = store
        self._number = number
        self._armed_at: int | None = None

    def fileno(self) -> int:
        """Return the descriptor that becomes readable."""
        return self._number

    def arm(self, seen: int) -> bool:
        """Be notified once records at or past *seen* are visible; True if they are already."""
        self._armed_at = seen
        return self._store.dispatched_offset > seen

    def clear(self) -> None:
        """Take the notice."""
        self._armed_at = None

    def close(self) -> None:
        """Notify no more."""
        self._armed_at = None
        self._store.watches.pop(self._number, None)

    def look(self) -> None:
        """Notify the loop if records became visible."""
        if self._armed_at is not None and self._store.dispatched_offset > self._armed_at:
            self._armed_at = None
            self._store.machine.loop.readable(self._number)


class Watchers:
    """The subscribers to the events of a model store."""

    def __init__(self, store: ModelStore) -> None:
        self._store = store

    def subscribe(self, event: str) -> ModelWatch:
        """Return what notifies of *event*."""
        assert event == "dispatched", "a broker watches what its readers see"
        number = len(self._store.watches) + 1
        watch = self._store.watches[number] = ModelWatch(self._store, number)
        return watch


class ModelQueue:
    """One queue of a topic; see `Queue`."""

    def __init__(self, store: ModelStore, topic: str, number: int) -> None:
        self._store = store
        self._topic = topic
        self._number = number

    @property
    def start(self) -> int:
        """The first offset that readers see."""
        return (self._store._bounds(self._topic, self._number) or (0, 0))[0]

    @property
    def end(self) -> int:
        """The offset after the last one that readers see."""
        return (self._store._bounds(self._topic, self._number) or (0, 0))[1]

    def get(self, offset: int) -> Message:
        """Return the message at *offset*. Raises OffsetOutOfRange."""
        found = self._store._get_one(self._topic, self._number, offset)
        if found is None:
            raise OffsetOutOfRange(f"queue {self._topic}/{self._number} has no offset {offset}")
        return found

    def offset_at(self, timestamp_ms: int) -> int:
        """Return the offset of the first message at or after a store time."""
        return self._store._offset_by_time(self._topic, self._number, timestamp_ms, False)


class ModelStore:
    """The store of one life of a broker."""

    def __init__(self, machine: StoreMachine, sends: Sends, config: Configuration) -> None:
        self.machine = machine
        self.path = str(config.store.root_path)
        self.closed = False
        self.watchers = Watchers(self)
        self.watches: dict[int, ModelWatch] = {}
        self._sends = sends
        self._both = config
        self._queues: dict[int, list[ModelRecord]] = {}
        """Visible records by queue, in the order of their offsets."""
        self._indexed = 0, 0, 0
        """Up to which visible end, from which start and after how many cuts they are known."""

    @property
    def config(self) -> StoreConfig:
        """The settings."""
        return self._both.store

    @property
    def replica_config(self) -> ReplicaConfig:
        """The settings of the replica."""
        return self._both.replica

    @property
    def recovery(self) -> Recovery:
        """The state in which the log was found."""
        return Recovery(self._log.was_closed)

    @property
    def _log(self) -> ModelLog:
        if self.closed:
            raise StoreClosedError(f"store {self.path} is closed")
        return self.machine.log

    @property
    def start_offset(self) -> int:
        """Start of the log."""
        return self._log.start_offset

    @property
    def end_offset(self) -> int:
        """End of the log."""
        return self._log.end_offset

    @property
    def flushed_offset(self) -> int:
        """End of the part of the log that is on the disk."""
        return self._log.flushed_offset

    @property
    def confirm_offset(self) -> int:
        """End of the part of the log that readers may see."""
        return min(self._log.confirm_offset, self.machine.visible_end)

    @property
    def dispatched_offset(self) -> int:
        """End of the records that are in their queues."""
        return self._log.start_offset if self.closed else self.machine.visible_end

    def queue(self, topic: str, number: int) -> ModelQueue:
        """Return a queue of a topic."""
        return ModelQueue(self, topic, number)

    def scan_log(self, start: int | None = None, *, on_corrupt: str = "fail") -> Iterator[Message]:
        """Yield the visible messages from *start* on. No record of a model log is damaged."""
        log = self._log
        for record in log.records(max(start or 0, log.start_offset), self.machine.visible_end):
            yield self._message(record)

    def flush(self) -> None:
        """Bring the log to the disk."""
        self.machine.flush_log()

    def look(self) -> None:
        """Notify those that watch."""
        for watch in tuple(self.watches.values()):
            watch.look()

    # ---- puts

    def _put_encoded(
        self,
        topic: str,
        body: bytes,
        text: bytes,
        *,
        queue: int,
        reconsume_times: int,
        sys_flag: int,
        prepared_transaction_offset: int = 0,
        **envelope: Any,
    ) -> Content:
        return Content(
            topic,
            queue,
            body,
            decode_properties(text.decode()),
            reconsume_times,
            sys_flag,
            prepared_transaction_offset,
        )

    def _put_encoded_batch(self, *batch: Any, **envelope: Any) -> Any:
        raise AssertionError("clients of the simulator send no batches")

    def _takes_batches(self, topic: str, queue: int) -> bool:
        return False

    def _declare(self, topic: TopicConfig) -> None:
        """Do nothing: the model of a log has one kind of queue."""

    # ---- reads

    def _records(self, topic: str, queue: int) -> list[ModelRecord]:
        """Return the visible records of a queue, in the order of their offsets."""
        log, end = self._log, self.machine.visible_end
        upto, start, cuts = self._indexed
        if (log.start_offset, log.cuts) != (start, cuts) or end < upto:
            self._queues, upto = {}, log.start_offset
        for each in log.records(upto, end):
            self._queues.setdefault(each.queue, []).append(each)
        self._indexed = end, log.start_offset, log.cuts

        found = self._queues.get(self._sends.contents.queue_number(topic, queue), [])
        removed = self.machine.removed_queues.get(topic)
        if removed is None:
            return found
        return [each for each in found if each.physical_offset >= removed]

    def _get_raw(
        self,
        topic: str,
        queue: int,
        offset: int,
        messages_max: int,
        bytes_max: int,
        tags: tuple[str, ...] | None,
        check_crc: bool,
    ) -> tuple[GetStatus, int, int, int, int, bytes]:
        def is_wanted(record: ModelRecord) -> bool:
            return tags is None or self._tag(record) in tags

        return self._get_wanted(topic, queue, offset, messages_max, is_wanted)

    def _get_selected(
        self,
        topic: str,
        queue: int,
        offset: int,
        messages_max: int,
        bytes_max: int,
        looked_max: int,
        names: tuple[str, ...],
        selects: Callable[[tuple[str | None, ...]], bool],
        check_crc: bool,
    ) -> tuple[GetStatus, int, int, int, int, bytes]:
        def is_wanted(record: ModelRecord) -> bool:
            properties = self._sends.contents.of(record.number).properties
            return selects(tuple(map(properties.get, names)))

        return self._get_wanted(topic, queue, offset, min(messages_max, looked_max), is_wanted)

    def _get_wanted(
        self,
        topic: str,
        queue: int,
        offset: int,
        looked_max: int,
        is_wanted: Callable[[ModelRecord], bool],
    ) -> tuple[GetStatus, int, int, int, int, bytes]:
        records, bounds = self._records(topic, queue), self._bounds(topic, queue)
        if bounds is None:
            return GetStatus.NO_MATCHED_LOGIC_QUEUE, 0, 0, 0, 0, b""
        low, high = bounds
        if offset < low:
            return GetStatus.OFFSET_TOO_SMALL, low, low, high, 0, b""
        if offset >= high:
            is_next = offset == high
            status = GetStatus.OFFSET_OVERFLOW_ONE if is_next else GetStatus.OFFSET_OVERFLOW_BADLY
            return status, high, low, high, 0, b""

        at = bisect_left(records, offset, key=_OFFSET)
        seen = records[at : at + looked_max]
        found = [each for each in seen if is_wanted(each)]
        body = b"".join(self._message(each).raw for each in found)
        status = GetStatus.FOUND if found else GetStatus.NO_MATCHED_MESSAGE
        return status, seen[-1].queue_offset + 1, low, high, len(found), body

    def _bounds(self, topic: str, queue: int) -> tuple[int, int] | None:
        records = self._records(topic, queue)
        if records:
            return records[0].queue_offset, records[-1].queue_offset + 1
        number = self._sends.contents.queue_number(topic, queue)
        begun = self._log.queue_offsets_at(self._log.start_offset).get(number)
        return None if begun is None else (begun, begun)

    def _units(self, topic: str, queue: int, offset: int, count: int) -> list[Any]:
        records = self._records(topic, queue)
        at = bisect_left(records, offset, key=_OFFSET)
        return [
            (each.queue_offset, each.physical_offset, each.size, self._code(each), 1, None, b"")
            for each in records[at : at + count]
        ]

    def _code(self, record: ModelRecord) -> int:
        """Returns the tags code of a unit: of a delayed message, the time when it is due."""
        topic, queue = self._sends.contents.queue_named(record.queue)
        if topic == SCHEDULE_TOPIC:
            return record.stored_ms + self.config.delay_levels_ms[queue]
        return java_string_hash(self._tag(record) or "")

    def _next_offset(self, topic: str, queue: int) -> int:
        log, number = self._log, self._sends.contents.queue_number(topic, queue)
        return log.queue_offsets_at(log.whole_end).get(number, 0)

    def _offset_by_time(self, topic: str, queue: int, timestamp_ms: int, is_upper: bool) -> int:
        records = self._records(topic, queue)
        if not records:
            raise NotFoundError(f"there is no queue {topic}/{queue}")
        if is_upper:
            at = bisect_right(records, timestamp_ms, key=_STORED_MS)
            return records[max(at - 1, 0)].queue_offset
        at = bisect_left(records, timestamp_ms, key=_STORED_MS)
        return records[at].queue_offset if at < len(records) else records[-1].queue_offset + 1

    def _get_one(self, topic: str, queue: int, offset: int) -> Message | None:
        records = self._records(topic, queue)
        at = bisect_left(records, offset, key=_OFFSET)
        is_there = at < len(records) and records[at].queue_offset == offset
        return self._message(records[at]) if is_there else None

    def _record_at(self, physical_offset: int, check_crc: bool) -> Message:
        log = self._log
        for record in log.records(max(physical_offset, log.start_offset), log.whole_end):
            if record.physical_offset == physical_offset:
                return self._message(record)
            break
        raise NotFoundError(f"no record begins at {physical_offset}")

    def _query(
        self, topic: str, word: str, is_tag: bool, begin_ms: int, end_ms: int, count_max: int
    ) -> list[Message]:
        found = [
            each
            for each in self.scan_log(self._log.start_offset)
            if each.topic == topic and begin_ms <= each.store_timestamp <= end_ms
        ]
        found = [each for each in found if self._has_word(each, word, is_tag)]
        return found[-count_max:]

    def _has_word(self, message: Message, word: str, is_tag: bool) -> bool:
        _, number, _ = _RECORD.unpack(message.raw)
        content = self._sends.contents.of(number)
        return content.properties.get("TAGS") == word if is_tag else word in content.words

    def _remove_queues(self, topic: str, log_offset: int) -> None:
        self._log.change()
        removed = self.machine.removed_queues
        removed[topic] = max(log_offset, removed.get(topic, 0))

    @property
    def _cuts(self) -> int:
        return self._log.cuts

    def _begin_queues(self, starts: Iterable[tuple[str, int, int]]) -> None:
        """Let queues without messages continue at queue offsets."""
        self._log.change()
        number_of = self._sends.contents.queue_number
        begun = {number_of(topic, queue): offset for topic, queue, offset in starts}
        self._log.begin_queues(begun)

    def _tag(self, record: ModelRecord) -> str | None:
        return self._sends.contents.of(record.number).properties.get("TAGS")

    def _message(self, record: ModelRecord) -> Message:
        return Message(
            self._sends.contents.of(record.number),
            record.queue_offset,
            record.physical_offset,
            _RECORD.size,
            record.stored_ms,
            _RECORD.pack(record.queue_offset, record.number, record.physical_offset),
        )


class AsyncModelStore:
    """The store of *machine* in one life of its broker, for `async with`."""

    def __init__(self, machine: StoreMachine, sends: Sends, config: Configuration) -> None:
        self.store = ModelStore(machine, sends, config)
        self._machine = machine
        self._sends = sends

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.close()

    async def close(self) -> None:
        """Bring the log to the disk."""
        if not self.store.closed:
            self.store.closed = True
            self._machine.close_log()

    def append(
        self, put: Callable[[], Content], durability: Durability | None = None
    ) -> Coroutine[Any, Any, Receipt]:
        """Store a message; return a coroutine that returns its receipt once it is acknowledged,
        and raises PutError otherwise."""
        if self.store.closed:
            raise StoreClosedError(f"store {self.store.path} is closed")
        content = put()
        wanted = durability or Durability.REPLICATED
        one = self._sends.new_put(content, wanted, self._machine.clock)
        answered = self._machine.loop.create_future()

        def done(put: Put) -> None:
            if not answered.done():
                answered.set_result(put)

        self._machine.store_message(one, done)
        return self._acknowledged(one, content, answered)

    async def _acknowledged(self, put: Put, content: Content, answered: Any) -> Receipt:
        await answered
        receipt = None
        if put.record is not None:
            place, begin = put.record.queue_offset, put.record.physical_offset
            name = message_id(*Message.store_host, begin)
            end = begin + put.record.size
            receipt = Receipt(content.topic, put.size, name, content.queue, place, begin, end)
        if put.status is PutStatus.PUT_OK and receipt is not None:
            return receipt
        raise PutError(f"not acknowledged: {put.status}", status=str(put.status), receipt=receipt)
