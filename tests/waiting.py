"""Waiting for what a test needs: bounded, and woken by what it waits for."""

from __future__ import annotations

import time
from collections.abc import Callable

from rmqstore.errors import StoreTimeout
from rmqstore.replication import ReplicatedStore

WAIT_S = 20.0
"""Longer than any load makes a healthy run take."""


def wait_until(
    replica: ReplicatedStore, condition: Callable[[], object], what: str, *, timeout: float = WAIT_S
) -> None:
    """Return once *condition* holds; *what* says it in words.

    It is judged on the thread of *replica*, which must not be kept busy, after each change and at
    short intervals; never in the middle of one, so it may ask for a status. Raises StoreTimeout.
    """
    deadline = time.monotonic() + timeout
    while not replica._call(lambda: bool(condition())):
        if time.monotonic() > deadline:
            raise StoreTimeout(f"waited {timeout} s for {what}")
        # Who begins to wait is looked at a few times at once.
        looks = iter((False,) * 4)
        replica._wait(
            lambda looks=looks: replica._roles._begin_wait(lambda: next(looks, True)),  # type: ignore[misc]
            timeout,
            "the next look",
        )


def spin_until(condition: Callable[[], object], what: str, *, timeout: float = WAIT_S) -> None:
    """Return once *condition* holds, of which nothing tells; other threads run in between."""
    deadline = time.monotonic() + timeout
    while not condition():
        assert time.monotonic() < deadline, f"took over {timeout} s: {what}"
        time.sleep(0)  # lets another thread run, for no time
