"""Calls to the thread of replication, and waits for it."""

from __future__ import annotations

from concurrent.futures import Future
from typing import TypeVar

import pytest

from rmqstore.replication import calls, links

T = TypeVar("T")
LIMIT_S = 60


class LateFuture(Future[T]):
    """A future that is done at the very end of every bounded wait."""

    def result(self, timeout: float | None = None) -> T:
        if timeout is None:
            return super().result(LIMIT_S)
        super().exception(LIMIT_S)
        raise TimeoutError


def test_call_that_ends_at_the_end_of_a_wait_returns_what_it_returned(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(links, "Future", LateFuture)

    def fail() -> None:
        raise TimeoutError("its own")

    thread = links.LoopThread("test")
    try:
        assert thread.call(lambda: 5) == 5
        with pytest.raises(TimeoutError, match="its own"):
            thread.call(fail)
    finally:
        thread.stop()


def test_wait_that_ends_at_the_end_of_its_time_is_over(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(calls, "Future", LateFuture)
    waiting = calls.Waiting(lambda: True)
    assert waiting.look()
    waiting.result(0.0, "nothing")
