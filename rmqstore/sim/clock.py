"""Virtual time: one timeline for the world, and two clocks on every machine.

Time is counted in microseconds from 0. Nothing happens between two actions of the timeline. Actions
at the same time run in the order in which they were planned.
"""

from __future__ import annotations

import heapq
from collections.abc import Callable
from typing import Any

__all__ = ["MachineClock", "Timeline"]

_EVENTS_MAX = 100_000
_WALL_START_MS = 1_700_000_000_000


class Timeline:
    """The actions that are planned."""

    __slots__ = ("_heap", "_number", "events", "now_us")

    def __init__(self) -> None:
        self.now_us = 0
        self.events = 0
        """Number of actions that have run."""
        self._heap: list[tuple[int, int, Callable[..., None], tuple[Any, ...]]] = []
        self._number = 0

    def at(self, when_us: int, action: Callable[..., None], *args: Any) -> None:
        """Plan an action; an action that is already due runs next."""
        if when_us < self.now_us:
            when_us = self.now_us
        self._number += 1
        heapq.heappush(self._heap, (when_us, self._number, action, args))

    def after(self, delay_us: int, action: Callable[..., None], *args: Any) -> None:
        """Plan an action for *delay_us* from now."""
        self._number += 1
        heapq.heappush(self._heap, (self.now_us + delay_us, self._number, action, args))

    def run(self, until_us: int) -> None:
        """Run all actions up to *until_us*, including actions that they plan."""
        heap = self._heap
        while heap and heap[0][0] <= until_us:
            assert self.events < _EVENTS_MAX, "the world never comes to rest"
            self.now_us, _, action, args = heapq.heappop(heap)
            self.events += 1
            action(*args)
        self.now_us = max(self.now_us, until_us)


class MachineClock:
    """The clocks of one machine.

    The machines of replication get only `monotonic_ms`. It never decreases, runs faster or slower
    than the world by *drift_ppm*, and begins at any value. `wall_ms` is the time in records; `jump`
    sets it forward or back, as an operator or a time server does.
    """

    __slots__ = ("_begin_us", "_drift_ppm", "_jumped_ms", "_set_back", "_timeline")

    def __init__(self, timeline: Timeline, *, begin_ms: int = 0, drift_ppm: int = 0) -> None:
        self._timeline = timeline
        self._begin_us = begin_ms * 1000
        self._drift_ppm = drift_ppm
        self._jumped_ms = 0
        self._set_back: list[tuple[int, int]] = []
        """When the time of day was set back, and the time of day before."""

    def monotonic_ms(self) -> int:
        """Return the time since an arbitrary moment; it never decreases."""
        now_us = self._timeline.now_us
        return (self._begin_us + now_us + now_us * self._drift_ppm // 1_000_000) // 1000

    def wall_ms(self) -> int:
        """Return the time of day, which may jump back."""
        return _WALL_START_MS + self._timeline.now_us // 1000 + self._jumped_ms

    def jump(self, by_ms: int) -> None:
        """Set the time of day forward, or back."""
        if by_ms < 0:
            self._set_back.append((self._timeline.now_us, self.wall_ms()))
        self._jumped_ms += by_ms

    def shown_ms(self, within_ms: int) -> int:
        """Return the latest time of day that it showed within the last *within_ms*."""
        since_us = self._timeline.now_us - within_ms * 1000
        return max(self.wall_ms(), *(ms for us, ms in self._set_back if us >= since_us), 0)

    def world_us(self, monotonic_ms: int) -> int:
        """Return a moment of the world at which `monotonic_ms` is not below *monotonic_ms*."""
        away_us = monotonic_ms * 1000 - self._begin_us
        return away_us * 1_000_000 // (1_000_000 + self._drift_ppm) + 1
