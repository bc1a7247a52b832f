"""Waiting for an event count: no call is lost, whenever it comes."""

from __future__ import annotations

import threading
from pathlib import Path
from typing import Any

import pytest

from tests.c import library
from tests.support.waiting import WAIT_S

FOREVER = -1


class EventCount:
    """One struct rmq_event_count."""

    def __init__(self, core: tuple[Any, Any]) -> None:
        ffi, self.lib = core
        self.count = ffi.new("struct rmq_event_count *")

    def read(self) -> int:
        return int(self.lib.event_count_read(self.count))

    def advance(self) -> None:
        self.lib.event_count_advance(self.count)

    def start_waiter(self, seen: int, timeout_us: int) -> threading.Thread:
        """Start a thread that awaits a count other than *seen*."""
        arguments = self.count, seen, timeout_us
        waiter = threading.Thread(target=self.lib.event_count_await, args=arguments, daemon=True)
        waiter.start()
        return waiter


@pytest.fixture(scope="module")
def counting_core() -> tuple[Any, Any]:
    return library.load(
        [Path(__file__).with_name("event_count.c")],
        [],
        "uint32_t event_count_read(struct rmq_event_count *events);"
        "void event_count_advance(struct rmq_event_count *events);"
        "void event_count_await(struct rmq_event_count *events, uint32_t seen,"
        " int64_t timeout_us);",
    )


@pytest.fixture
def events(counting_core: tuple[Any, Any]) -> EventCount:
    return EventCount(counting_core)


def test_call_between_the_look_and_the_sleep_ends_the_sleep(events: EventCount) -> None:
    seen = events.read()
    events.advance()
    waiter = events.start_waiter(seen, FOREVER)
    waiter.join(WAIT_S)
    assert not waiter.is_alive()


def test_call_while_the_waiter_sleeps_ends_the_sleep(events: EventCount) -> None:
    for _ in range(100):
        waiter = events.start_waiter(events.read(), FOREVER)
        events.advance()
        waiter.join(WAIT_S)
        assert not waiter.is_alive()


def test_sleep_ends_with_its_time(events: EventCount) -> None:
    waiter = events.start_waiter(events.read(), 1000)
    waiter.join(WAIT_S)
    assert not waiter.is_alive()
