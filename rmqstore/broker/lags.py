"""How far consumer groups are behind, summed over the queues of a topic."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

__all__ = ["GroupLag", "QueuePlace", "added"]


@dataclass(frozen=True, slots=True)
class QueuePlace:
    """How far a group is in one queue."""

    topic: str
    group: str
    queue: int
    committed: int
    pulled: int
    """The next offset to be pulled; one below *committed* does not count."""


@dataclass(frozen=True, slots=True)
class GroupLag:
    """How far a group is behind on one topic."""

    lag: int = 0
    """Messages that it has not committed."""
    ready: int = 0
    """Those of them that it has not pulled."""
    oldest_ms: int | None = None
    """When the oldest message was stored that it has not committed; None without one."""
    oldest_ready_ms: int | None = None
    """When the oldest message was stored that it has not pulled."""

    @property
    def in_flight(self) -> int:
        """Messages that it has pulled and not committed."""
        return self.lag - self.ready


def added(
    lag: GroupLag, place: QueuePlace, end: int, stored_ms: Callable[[int], int | None]
) -> GroupLag:
    """Return *lag* with that of one more queue, which ends at *end*; *stored_ms* returns when the
    message at an offset was stored, None without one."""
    behind = max(end - place.committed, 0)
    if not behind:
        return lag
    pulled = min(max(place.pulled, place.committed), end)
    return GroupLag(
        lag.lag + behind,
        lag.ready + end - pulled,
        _earlier(lag.oldest_ms, stored_ms(place.committed)),
        _earlier(lag.oldest_ready_ms, stored_ms(pulled) if pulled < end else None),
    )


def _earlier(known: int | None, other: int | None) -> int | None:
    return min((each for each in (known, other) if each is not None), default=None)
