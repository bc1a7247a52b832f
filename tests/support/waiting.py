"""Bounded waits for conditions."""

from __future__ import annotations

import asyncio
import inspect
import time
from collections.abc import Callable

from rmqstore.replication import ReplicatedStore

WAIT_S = 40.0
"""Longer than any load makes a healthy run take."""
POLL_S = 0.002


def wait_until(
    replica: ReplicatedStore, condition: Callable[[], object], what: str, *, timeout: float = WAIT_S
) -> None:
    """Return once *condition* holds; *what* names it in the message of a failure.

    The condition is evaluated on the thread of *replica*, so never in the middle of a change. That
    thread must not be kept busy.
    """
    spin_until(lambda: replica._call(lambda: bool(condition())), what, timeout=timeout)


def spin_until(
    condition: Callable[[], object], what: str, *, timeout: float = WAIT_S, pause: float = POLL_S
) -> None:
    """Return once *condition* holds; for conditions that no event reports.

    The condition is evaluated every *pause* seconds: a loop without a pause would take processor
    time from the threads it waits for.
    """
    deadline = time.monotonic() + timeout
    while not condition():
        assert time.monotonic() < deadline, f"took over {timeout} s: {what}"
        time.sleep(pause)


async def until(
    condition: Callable[[], object], what: str, *, timeout: float = WAIT_S, pause: float = POLL_S
) -> None:
    """Return once *condition*, a function or a coroutine function, holds; evaluated on the running
    loop, as `spin_until` does."""
    loop = asyncio.get_running_loop()
    deadline = loop.time() + timeout
    while True:
        found = condition()
        if await found if inspect.isawaitable(found) else found:
            return
        assert loop.time() < deadline, f"took over {timeout} s: {what}"
        await asyncio.sleep(pause)
