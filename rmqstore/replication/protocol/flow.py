"""How many bytes a master may send to one slave in a second.

RocketMQ's FlowMonitor, with two differences: heads and bodies count in both protocols, and a
connection without allowance waits for the next second. RocketMQ's classic master counts heads only
and then sends empty frames without a pause (H10).
"""

from __future__ import annotations

__all__ = ["PAUSE_MS_MAX", "FlowControl"]

_SECOND_MS = 1000
PAUSE_MS_MAX = _SECOND_MS
"""The longest time without an allowance."""


class FlowControl:
    """The allowance of one connection; *bytes_per_second* of 0 means no limit."""

    def __init__(self, *, bytes_per_second: int) -> None:
        self._limit = bytes_per_second
        self._second_ms = 0
        self._spent = 0

    def allowed(self, now_ms: int) -> int | None:
        """Return how many bytes may go out at once, None for any number."""
        if self._limit == 0:
            return None
        if not 0 <= now_ms - self._second_ms < _SECOND_MS:
            self._second_ms, self._spent = now_ms, 0
        return max(self._limit - self._spent, 0)

    def spend(self, size: int) -> None:
        """Count *size* bytes that went out. A frame's head may exceed the allowance."""
        self._spent += size

    def opens_ms(self) -> int:
        """Return when bytes may go out again after an allowance of 0."""
        return self._second_ms + _SECOND_MS
