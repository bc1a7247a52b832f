"""A store against a list of messages, over any history of puts, cuts, crashes and expiries."""

from __future__ import annotations

import shutil
import tempfile
from collections import defaultdict
from pathlib import Path
from typing import Any, NamedTuple

from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import (
    RuleBasedStateMachine,
    initialize,
    invariant,
    precondition,
    rule,
)

import rmqstore
from rmqstore import Durability, GetStatus, Message, OffsetOutOfRange, TransactionType
from tests.support.agreement import check_agreement
from tests.support.effort import rounds

FILES: dict[str, Any] = {
    "commit_log_file_size_bytes": 2048,
    "consume_queue_file_size_bytes": 100,
    "index_slot_count": 8,
    "index_entry_count": 16,
    "message_size_bytes_max": 1200,
}
TOPICS = ("orders", "t" * 130)
QUEUES = 2


class Stored(NamedTuple):
    """A message as the model knows it."""

    message: Message
    queue_offset: int
    physical_offset: int
    end_offset: int


@st.composite
def messages(draw: st.DrawFn) -> Message:
    """Return a message of any kind the store gives a place in the log."""
    transaction = draw(st.sampled_from([TransactionType.NONE] * 6 + list(TransactionType)))
    return Message(
        draw(st.sampled_from(TOPICS)),
        bytes(draw(st.integers(0, 255)) for _ in range(1)) * draw(st.integers(0, 900)),
        queue=draw(st.integers(0, QUEUES - 1)),
        tags=draw(st.sampled_from([None, "Aa", "BB"])),
        keys=draw(st.lists(st.sampled_from(["a", "b", "Aa", "BB"]), max_size=2)),
        transaction=transaction,
    )


def takes_offset(message: Message) -> bool:
    return message.transaction in (TransactionType.NONE, TransactionType.COMMIT)


class StoreMachine(RuleBasedStateMachine):
    """Rules change store and model alike; what they must agree in is checked after each."""

    def __init__(self) -> None:
        super().__init__()
        self.directory = Path(tempfile.mkdtemp())
        self.stored: list[Stored] = []
        self.next_offsets: dict[tuple[str, int], int] = defaultdict(int)

    @initialize(crc=st.booleans())
    def open(self, crc: bool) -> None:
        self.settings = {"append_property_crc": crc, **FILES}
        self.store = rmqstore.open(self.directory / "store", **self.settings)

    def teardown(self) -> None:
        self.store.close()
        shutil.rmtree(self.directory)

    def note(self, message: Message, receipt: rmqstore.Receipt) -> None:
        place = message.topic, message.queue
        if takes_offset(message):
            assert receipt.queue_offset == self.next_offsets[place]
            self.next_offsets[place] += 1
        if self.stored:
            assert receipt.physical_offset >= self.stored[-1].end_offset
        stored = (receipt.queue_offset, receipt.physical_offset, receipt.end_offset)
        self.stored.append(Stored(message, *stored))

    @rule(message=messages(), durability=st.sampled_from([Durability.MEMORY, Durability.DISK]))
    def put(self, message: Message, durability: Durability) -> None:
        self.note(message, self.store.put(message, durability=durability))

    @rule(batch=st.lists(messages(), max_size=12))
    def put_many(self, batch: list[Message]) -> None:
        receipts = self.store.put_many(batch)
        for message, receipt in zip(batch, receipts, strict=True):
            self.note(message, receipt)

    @precondition(lambda self: self.stored)
    @rule(data=st.data())
    def truncate(self, data: st.DataObject) -> None:
        number = data.draw(st.integers(0, len(self.stored) - 1))
        self.store.truncate_to(self.stored[number].physical_offset)
        for each in reversed(self.stored[number:]):
            if takes_offset(each.message):
                self.next_offsets[each.message.topic, each.message.queue] = each.queue_offset
        del self.stored[number:]

    @rule()
    def close_and_reopen(self) -> None:
        self.store.close()
        self.store = rmqstore.open(self.directory / "store", **self.settings)
        assert self.store.recovery.was_closed

    @rule(dispatched=st.booleans())
    def crash_and_reopen(self, dispatched: bool) -> None:
        if dispatched:
            self.store.wait_dispatched()
        self.store.abandon()
        self.store = rmqstore.open(self.directory / "store", **self.settings)
        assert not self.store.recovery.was_closed
        assert self.store.recovery.cut_bytes == 0

    @rule(count=st.integers(1, 3))
    def expire(self, count: int) -> None:
        self.store.wait_dispatched()
        self.store.expire_files(count)
        start = max(self.store.start_offset, 0)
        self.stored = [each for each in self.stored if each.physical_offset >= start]

    @precondition(lambda self: self.stored)
    @rule(data=st.data())
    def get_one(self, data: st.DataObject) -> None:
        stored = data.draw(st.sampled_from(self.stored))
        record = self.store.record_at(stored.physical_offset)
        if takes_offset(stored.message):
            place = {"queue": stored.message.queue, "offset": stored.queue_offset}
            assert self.store.get(stored.message.topic, **place).raw == record.raw
        assert record.body == stored.message.body
        assert (record.tags, tuple(record.keys)) == (stored.message.tags, stored.message.keys)

    @rule(
        topic=st.sampled_from(TOPICS), queue=st.integers(0, QUEUES - 1), tag=st.sampled_from("AB")
    )
    def get_by_tag(self, topic: str, queue: int, tag: str) -> None:
        wanted = {"A": "Aa", "B": "BB"}[tag]
        self.store.wait_dispatched()
        found = self.store.get_many(topic, queue=queue, offset=self.low(topic, queue), tags=wanted)
        expected = [
            each.queue_offset for each in self.in_queue(topic, queue) if each.message.tags == wanted
        ]
        assert [each.queue_offset for each in found.records] == expected[:32]
        assert (found.status is GetStatus.FOUND) == bool(expected)

    @rule(topic=st.sampled_from(TOPICS), key=st.sampled_from(["a", "b", "Aa", "BB"]))
    def find(self, topic: str, key: str) -> None:
        expected = [
            each.physical_offset
            for each in self.stored
            if each.message.topic == topic
            and key in each.message.keys
            and each.message.transaction is not TransactionType.ROLLBACK
        ]
        found = self.store.find(topic, key, max_count=1000)
        assert [each.physical_offset for each in found] == expected

    def in_queue(self, topic: str, queue: int) -> list[Stored]:
        return [
            each
            for each in self.stored
            if (each.message.topic, each.message.queue) == (topic, queue)
            and takes_offset(each.message)
        ]

    def low(self, topic: str, queue: int) -> int:
        there = self.in_queue(topic, queue)
        return there[0].queue_offset if there else self.next_offsets[topic, queue]

    @invariant()
    def log_is_the_model(self) -> None:
        records = check_agreement(self.store, key_count=0)
        assert [each.physical_offset for each in records] == [
            each.physical_offset for each in self.stored
        ]
        assert [each.body for each in records] == [each.message.body for each in self.stored]

    @invariant()
    def nothing_lies_behind_the_end(self) -> None:
        for offset in (self.store.end_offset, self.store.end_offset + 100):
            try:
                self.store.record_at(offset)
            except OffsetOutOfRange:
                continue
            raise AssertionError(offset)


TestStoreMachine = StoreMachine.TestCase
TestStoreMachine.settings = settings(
    max_examples=rounds(80, 5000),
    stateful_step_count=25,
    deadline=None,
    suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large],
)
