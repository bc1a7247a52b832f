"""Calls to a thread with an event loop, and waits for it."""

from __future__ import annotations

import asyncio
from concurrent.futures import Future
from typing import TypeVar

import pytest

from rmqstore.errors import StoreTimeout
from rmqstore.net import loop_thread
from rmqstore.net.identity_log import IdentityLog
from rmqstore.net.runtime import LoopRuntime
from rmqstore.replication.runtime.waits import Waits

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
    monkeypatch.setattr(loop_thread, "Future", LateFuture)

    def fail() -> None:
        raise TimeoutError("its own")

    thread = loop_thread.LoopThread("test", what="the test")
    try:
        assert thread.call(lambda: 5) == 5
        with pytest.raises(TimeoutError, match="its own"):
            thread.call(fail)
    finally:
        thread.stop()


def test_wait_that_ends_at_the_end_of_its_time_is_over() -> None:
    async def wait() -> None:
        runtime = LoopRuntime("test", log=IdentityLog("rmqstore.test"))
        waits = Waits(runtime, refresh=lambda: None)
        await waits.wait(lambda: True, 0.0, "nothing")
        assert not waits
        with pytest.raises(StoreTimeout, match=r"waited 0\.0 s for a sign"):
            await waits.wait(lambda: False, 0.0, "a sign")
        assert not waits

    asyncio.run(wait())
