"""Tests that are coroutine functions."""

from __future__ import annotations

import asyncio
import functools
from collections.abc import Callable, Coroutine
from typing import Any

from rmqstore.net.identity_log import IdentityLog
from rmqstore.net.runtime import LoopRuntime
from rmqstore.remoting.client import RemotingClient
from tests.support.waiting import WAIT_S, until

__all__ = ["ShiftedRuntime", "on_loop", "runtime_with"]


def on_loop(test: Callable[..., Coroutine[Any, Any, None]]) -> Callable[..., None]:
    """Make a plain test of a coroutine function; all its tasks must have ended at its end.

    The limit ends a test that hangs: programs that it starts may need most of a minute each.
    """

    @functools.wraps(test)
    def run(*values: Any, **named: Any) -> None:
        async def main() -> None:
            async with asyncio.timeout(8 * WAIT_S):
                await test(*values, **named)
            # Transports, and tasks of streams, end some turns of the loop after they were closed.
            await until(lambda: len(asyncio.all_tasks()) == 1, "all tasks end")
            await asyncio.sleep(0)

        asyncio.run(main())

    return run


def runtime_with(clock: Callable[[], float]) -> LoopRuntime:
    """Return the world of a server whose monotonic clock is *clock*, in seconds."""
    return LoopRuntime(
        "test", log=IdentityLog("rmqstore.test"), client=RemotingClient(), clock=clock
    )


class ShiftedRuntime(LoopRuntime):
    """A runtime whose wall clock a test sets ahead."""

    def __init__(self, wall_ms: int) -> None:
        super().__init__("broker", log=IdentityLog("rmqstore.broker"), client=RemotingClient())
        self._ahead_ms = 0
        self.set_wall(wall_ms)

    def set_wall(self, wall_ms: int) -> None:
        """Have this time of day."""
        self._ahead_ms = wall_ms - super().wall_ms()

    def wall_ms(self) -> int:
        return super().wall_ms() + self._ahead_ms
