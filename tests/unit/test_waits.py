"""Waits of a replica's callers in virtual time."""

from __future__ import annotations

import pytest

from rmqstore.errors import ArgumentError, StoreClosedError, StoreTimeout
from rmqstore.replication.runtime.waits import Waits
from tests.support.virtual import VirtualProcess


class Value:
    """A value that other threads change: a refresh shows the change."""

    def __init__(self) -> None:
        self.process = VirtualProcess()
        self.changes_at_ms = self.process.now_ms() + 1000
        self.is_known = False
        self.refreshes = 0
        self.waits = Waits(self.process.runtime, refresh=self._refresh)

    def _refresh(self) -> None:
        self.refreshes += 1
        self.is_known = self.process.now_ms() >= self.changes_at_ms


def test_a_change_without_an_event_is_noticed_within_milliseconds() -> None:
    value = Value()
    begun_ms = value.process.now_ms()
    value.process.run(value.waits.wait(lambda: value.is_known, 30.0, "the change"))
    assert 1000 <= value.process.now_ms() - begun_ms <= 1010
    refreshes = value.refreshes
    value.process.pass_time(1.0)
    assert value.refreshes == refreshes, "without a caller nothing is polled"


def test_a_wait_ends_at_its_limit_and_says_for_what_it_waited() -> None:
    value = Value()
    with pytest.raises(StoreTimeout, match=r"waited 0\.5 s for the change"):
        value.process.run(value.waits.wait(lambda: value.is_known, 0.5, "the change"))
    assert not value.waits


def test_an_error_of_a_condition_is_for_its_caller_alone() -> None:
    value = Value()

    def fail() -> bool:
        raise ArgumentError("not a slave")

    other = value.process.loop.create_task(
        value.waits.wait(lambda: value.is_known, 30.0, "the change")
    )
    with pytest.raises(ArgumentError):
        value.process.run(value.waits.wait(fail, 30.0, "a slave"))
    value.process.pass_time(1.1)
    assert other.done()
    assert other.exception() is None


def test_the_end_of_a_replica_ends_every_wait() -> None:
    value = Value()
    waits = [
        value.process.loop.create_task(value.waits.wait(lambda: False, 30.0, "nothing"))
        for _ in range(2)
    ]
    value.process.pass_time(0.1)
    value.process.loop.run(lambda: value.waits.end(StoreClosedError("closed")))
    value.process.pass_time(0.001)
    assert [type(each.exception()) for each in waits] == [StoreClosedError, StoreClosedError]
