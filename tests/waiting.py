"""Waiting for what a test needs, for a bounded while."""

from __future__ import annotations

import os
import time
from collections.abc import Callable

from rmqstore.replication import ReplicatedStore

WAIT_S = 40.0
"""Longer than any load makes a healthy run take."""


def wait_until(
    replica: ReplicatedStore, condition: Callable[[], object], what: str, *, timeout: float = WAIT_S
) -> None:
    """Return once *condition* holds; *what* says it in words.

    It is judged on the thread of *replica*, which must not be kept busy, and so never in the middle
    of a change.
    """
    spin_until(lambda: replica._call(lambda: bool(condition())), what, timeout=timeout)


def spin_until(condition: Callable[[], object], what: str, *, timeout: float = WAIT_S) -> None:
    """Return once *condition* holds, of which nothing tells; other threads run in between."""
    deadline = time.monotonic() + timeout
    while not condition():
        assert time.monotonic() < deadline, f"took over {timeout} s: {what}"
        os.sched_yield()
