"""Pulls that wait for messages, in virtual time: woken by the log, ended by their times."""

from __future__ import annotations

from typing import Any

from rmqstore.broker.held_pulls import HeldPulls
from rmqstore.broker.holds import Hold, Queue
from rmqstore.sim.virtual_loop import VirtualLoop
from tests.support.model_peer import ModelPeer
from tests.support.virtual import VirtualProcess
from tests.support.watched_log import WatchedLog


class Log(WatchedLog):
    """A store whose queues grow."""

    def __init__(self, loop: VirtualLoop) -> None:
        super().__init__(loop)
        self.ends: dict[Queue, int] = {}

    def grow(self, number: int = 0) -> None:
        """Add a message to a queue."""
        self.ends["T", number] = self.end_of(("T", number)) + 1
        self.add_records()

    def end_of(self, queue: Queue) -> int:
        return self.ends.get(queue, 0)


class Pulls:
    """Held pulls over such a log. A pull is answered once its queue has a message for it."""

    def __init__(self) -> None:
        self.process = VirtualProcess()
        self.log = Log(self.process.loop)
        self.store: Any = self.log
        self.answered: list[tuple[str, int]] = []
        """Names of pulls that got messages, with the time."""
        self.given_up: list[tuple[str, int]] = []
        self.held = HeldPulls(
            self.process.runtime, look=self._look, give_up=self._give_up, end_of=self.log.end_of
        )
        self.peer = ModelPeer()
        self.began_ms = self.process.now_ms()
        self.process.loop.run(lambda: self.held.start(self.store))

    @property
    def passed_ms(self) -> int:
        return self.process.now_ms() - self.began_ms

    def _look(self, hold: Hold) -> bool:
        if self.log.end_of(hold.queue) <= hold.offset:
            return False
        self.answered.append((hold.pull, self.passed_ms))
        return True

    def _give_up(self, hold: Hold) -> None:
        self.given_up.append((hold.pull, self.passed_ms))

    def hold(
        self, name: str, *, until_ms: int = 60_000, number: int = 0, grows: bool = False
    ) -> None:
        """Hold a pull that found no message; *grows*: another thread has added one meanwhile."""
        hold = Hold(("T", number), 0, self.began_ms + until_ms, self.peer, name)

        def add() -> None:
            if grows:
                self.log.grow(number)
            self.held.add(hold)

        self.process.loop.run(add)


def test_growth_wakes_the_pulls_of_the_queue_alone() -> None:
    pulls = Pulls()
    pulls.hold("of 0")
    pulls.hold("of 1", number=1)
    for number in (0, 1):
        pulls.process.pass_time(1)
        pulls.log.grow(number)
    pulls.process.pass_time(0.1)
    assert pulls.answered == [("of 0", 1000), ("of 1", 2000)]


def test_growth_between_the_look_and_the_hold_wakes_the_pull() -> None:
    pulls = Pulls()
    pulls.hold("late", grows=True)
    pulls.process.pass_time(0.1)
    assert pulls.answered == [("late", 0)]


def test_growth_between_the_look_and_the_hold_wakes_the_pull_while_others_wait() -> None:
    pulls = Pulls()
    pulls.hold("of 1", number=1)
    pulls.log.grow()
    pulls.process.pass_time(1)
    pulls.hold("late", grows=True)
    pulls.process.pass_time(0.1)
    assert pulls.answered == [("late", 1000)]


def test_each_pull_is_given_up_at_its_own_time() -> None:
    pulls = Pulls()
    pulls.hold("second", until_ms=2000)
    pulls.hold("third", until_ms=3000)
    pulls.hold("first", until_ms=1000)
    pulls.process.pass_time(10)
    assert pulls.given_up == [("first", 1000), ("second", 2000), ("third", 3000)]
    assert len(pulls.held) == 0


def test_pulls_of_a_client_that_is_gone_are_dropped() -> None:
    pulls = Pulls()
    pulls.hold("gone", until_ms=1000)
    pulls.process.loop.run(pulls.peer.lose)
    assert len(pulls.held) == 0
    pulls.hold("too late")
    pulls.log.grow()
    pulls.process.pass_time(10)
    assert (pulls.answered, pulls.given_up) == ([], [])


def test_a_client_that_does_not_read_gets_its_messages_once_it_does() -> None:
    pulls = Pulls()
    pulls.hold("slow")
    pulls.peer.is_writable = False
    pulls.log.grow()
    pulls.process.pass_time(1)
    assert pulls.answered == []
    pulls.peer.is_writable = True
    pulls.process.pass_time(0.1)
    assert [name for name, _ in pulls.answered] == ["slow"]


def test_pulls_are_held_on_from_one_run_to_the_next() -> None:
    pulls = Pulls()
    pulls.hold("short", until_ms=4000)
    pulls.hold("long", number=1)
    pulls.process.pass_time(1)
    pulls.process.loop.run(pulls.held.stop)
    pulls.log.grow(1)
    pulls.process.pass_time(1)
    assert pulls.answered == []
    pulls.process.loop.run(lambda: pulls.held.start(pulls.store))
    pulls.process.pass_time(10)
    assert pulls.answered == [("long", 2000)]
    assert pulls.given_up == [("short", 4000)]
