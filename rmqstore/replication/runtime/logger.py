"""The logger of replication, and the clock of its timers."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import logging

__all__ = ["Seldom", "log", "now_ms"]


def log() -> logging.Logger:
    """Return the logger of replication."""
    import logging

    return logging.getLogger("rmqstore.replication")


def now_ms() -> int:
    """Return a clock that never goes back, the one of all timers and leases of replication."""
    return time.monotonic_ns() // 1_000_000


class Seldom:
    """Writes at most a few warnings a second."""

    def __init__(self, *, per_second: int = 5) -> None:
        self._per_second = per_second
        self._second = -1
        self._count = 0

    def warning(self, text: str, *values: object) -> None:
        """Write a warning, unless there were too many."""
        second = now_ms() // 1000
        if second != self._second:
            self._second, self._count = second, 0
        self._count += 1
        if self._count <= self._per_second:
            log().warning(text, *values)
