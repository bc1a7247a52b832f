"""Waiting for what a test needs: bounded, and woken by what it waits for."""

from __future__ import annotations

import time
from collections.abc import Callable

from rmqstore.replication import ReplicatedStore

WAIT_S = 20.0
"""Longer than any load makes a healthy run take."""


def wait_until(
    replica: ReplicatedStore, condition: Callable[[], object], what: str, *, timeout: float = WAIT_S
) -> None:
    """Return once *condition* holds; *what* says it in words.

    It is judged as those of `wait_in_sync` and its like are: on the thread of *replica*, which
    must not be kept busy, at each change and, while somebody waits, at short intervals.
    Raises StoreTimeout.
    """
    replica._wait(lambda: replica._roles._begin_wait(lambda: bool(condition())), timeout, what)


def spin_until(condition: Callable[[], object], what: str, *, timeout: float = WAIT_S) -> None:
    """Return once *condition* holds, of which nothing tells; other threads run in between."""
    deadline = time.monotonic() + timeout
    while not condition():
        assert time.monotonic() < deadline, f"took over {timeout} s: {what}"
        time.sleep(0)  # lets another thread run, for no time
