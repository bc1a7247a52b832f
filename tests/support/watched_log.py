"""A store whose log is watched by what it has dispatched, on a loop in virtual time."""

from __future__ import annotations

from typing import Self

from rmqstore.sim.virtual_loop import VirtualLoop

__all__ = ["RECORD_SIZE", "WatchedLog"]

RECORD_SIZE = 100
_DESCRIPTOR = 7


class WatchedLog:
    """The store, and the watch of its log at the same time."""

    def __init__(self, loop: VirtualLoop, dispatched_offset: int = 0) -> None:
        self._loop = loop
        self._armed_at: int | None = None
        self.watchers = self
        self.closed = False
        self.dispatched_offset = dispatched_offset

    def add_records(self, count: int = 1) -> None:
        """Dispatch further records, and wake the coroutine that waits for them."""
        self.dispatched_offset += count * RECORD_SIZE
        if self._armed_at is not None and self.dispatched_offset > self._armed_at:
            self._armed_at = None
            self._loop.readable(_DESCRIPTOR)

    def subscribe(self, event: str) -> Self:
        assert event == "dispatched"
        return self

    def fileno(self) -> int:
        return _DESCRIPTOR

    def arm(self, seen: int) -> bool:
        self._armed_at = seen
        return self.dispatched_offset > seen

    def clear(self) -> None:
        self._armed_at = None

    def close(self) -> None:
        self._armed_at = None
