"""Pops that wait for messages, in virtual time: which messages wake which pops, and how many."""

from __future__ import annotations

from collections.abc import Iterator
from types import SimpleNamespace
from typing import Any

import pytest

from rmqstore.broker.held_pops import HeldPops
from rmqstore.broker.holds import Hold, Holds, Queue
from rmqstore.errors import CorruptionError
from rmqstore.sim.virtual_loop import VirtualLoop
from tests.support.model_peer import ModelPeer
from tests.support.virtual import VirtualProcess
from tests.support.watched_log import RECORD_SIZE, WatchedLog

ANY = ("T@g", -1)


class Log(WatchedLog):
    """A store with the topics of its records."""

    def __init__(self, loop: VirtualLoop) -> None:
        super().__init__(loop, dispatched_offset=RECORD_SIZE)
        self.topics: list[str] = []
        self.is_damaged = False
        self.scanned: list[str] = []

    def put(self, *topics: str) -> None:
        """Add messages of these topics."""
        self.topics += topics
        self.add_records(len(topics))

    def scan_log(self, since: int, end: int, *, check_crc: bool) -> Iterator[Any]:
        if self.is_damaged:
            raise CorruptionError("a bad record")
        for topic in self.topics[since // RECORD_SIZE - 1 : end // RECORD_SIZE - 1]:
            self.scanned.append(topic)
            yield SimpleNamespace(topic=topic, properties_text="")


class Pops:
    """Held pops over such a log: each message of a topic goes to one pop of each group."""

    def __init__(self) -> None:
        self.process = VirtualProcess()
        self.log = Log(self.process.loop)
        self.taken: dict[str, int] = {}
        self.answered: list[tuple[str, str]] = []
        """The name of a pop and how it was answered."""
        self.attempts = 0
        self.looked: list[Queue] = []
        self.peer = ModelPeer()
        self.held = HeldPops(
            self.process.runtime,
            attempt=self._attempt,
            give_up=lambda hold: self.answered.append((hold.pull, "given up")),
            stored=self._stored,
            pairs_of=lambda topic: [topic.removeprefix("%RETRY%")] if "%" in topic else [],
            holds=Holds(holds_max_of_queue=3),
        )
        store: Any = self.log
        self.process.loop.run(lambda: self.held.start(store))

    def pass_ms(self, ms: int) -> None:
        self.process.pass_time(ms / 1000)

    def _count(self, name: str) -> int:
        topic = name.partition("@")[0]
        return self.log.topics.count(topic) + self.log.topics.count(f"%RETRY%{name}")

    def _stored(self, hold: Hold) -> int:
        self.looked.append(hold.queue)
        return self._count(hold.queue[0])

    async def _attempt(self, hold: Hold) -> bool | None:
        self.attempts += 1
        name = hold.queue[0]
        left = self._count(name) - self.taken.get(name, 0)
        if left <= 0:
            return None
        self.taken[name] = self.taken.get(name, 0) + 1
        self.answered.append((hold.pull, "found"))
        return left > 1

    def hold(self, name: str, key: Queue = ANY, *, ms: int = 1000, is_late: bool = False) -> bool:
        hold = Hold(key, self._count(key[0]), self.process.now_ms() + ms, self.peer, name)
        held: list[bool] = []
        self.process.loop.run(lambda: held.append(self.held.hold(hold, is_late=is_late)))
        return held[0]


def test_a_message_wakes_the_first_pop_of_its_topic_alone() -> None:
    pops = Pops()
    for name, key in (("a", ANY), ("b", ANY), ("c", ("U@g", -1))):
        assert pops.hold(name, key)
    pops.pass_ms(5)
    pops.log.put("T")
    pops.pass_ms(20)
    assert pops.answered == [("a", "found")]
    assert len(pops.held) == 2


def test_each_group_and_each_retry_topic_wakes_its_own_pop() -> None:
    pops = Pops()
    for name, key in (("a", ("T@g", 0)), ("b", ("T@h", -1))):
        pops.hold(name, key)
    pops.pass_ms(5)
    pops.log.put("%RETRY%T@h")
    pops.pass_ms(20)
    assert pops.answered == [("b", "found")]
    pops.log.put("T")
    pops.pass_ms(20)
    assert pops.answered == [("b", "found"), ("a", "found")]


def test_rest_of_the_messages_wakes_the_next_pops() -> None:
    pops = Pops()
    for name in ("a", "b", "c"):
        pops.hold(name)
    pops.pass_ms(5)
    pops.log.put("T")
    pops.log.put("T")
    pops.pass_ms(20)
    assert pops.answered == [("a", "found"), ("b", "found")]
    assert pops.attempts == 2


def test_other_topics_cost_no_look_at_a_key() -> None:
    pops = Pops()
    pops.hold("a")
    pops.pass_ms(5)
    pops.log.put("T")
    pops.pass_ms(20)
    pops.hold("b")
    pops.pass_ms(20)
    pops.looked.clear()
    pops.log.put("U")
    pops.pass_ms(20)
    assert "U" in pops.log.scanned
    assert pops.looked == []


@pytest.mark.parametrize("kind", ["damaged", "many"])
def test_every_key_is_looked_at_where_the_records_are_not(kind: str) -> None:
    pops = Pops()
    pops.hold("a")
    pops.pass_ms(20)
    pops.log.is_damaged = kind == "damaged"
    pops.log.put(*["U"] * (20_000 if kind == "many" else 0), "T")
    pops.pass_ms(20)
    assert pops.answered == [("a", "found")]


def test_pop_that_came_too_late_for_a_message_is_made_again_at_once() -> None:
    pops = Pops()
    pops.log.put("T")
    pops.hold("a", is_late=True)
    pops.pass_ms(1)
    assert pops.answered == [("a", "found")]


def test_pops_are_given_up_at_their_time_and_at_the_close() -> None:
    pops = Pops()
    pops.hold("a", ms=50)
    pops.hold("b", ms=5000)
    pops.pass_ms(100)
    assert pops.answered == [("a", "given up")]
    pops.process.run(pops.held.close())
    assert pops.answered == [("a", "given up"), ("b", "given up")]
    assert not pops.hold("c")


def test_pops_of_one_key_are_bounded() -> None:
    pops = Pops()
    assert [pops.hold(name) for name in "abcd"] == [True, True, True, False]
    assert pops.hold("e", ("T@g", 0))


def test_client_that_does_not_read_gets_its_messages_once_it_does() -> None:
    pops = Pops()
    pops.hold("a")
    pops.pass_ms(5)
    pops.peer.is_writable = False
    pops.log.put("T")
    pops.pass_ms(100)
    assert pops.answered == []
    pops.peer.is_writable = True
    pops.pass_ms(100)
    assert pops.answered == [("a", "found")]
