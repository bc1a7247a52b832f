"""The changes of a master that each member of its group holds.

A slave that requests the changes after a number holds all changes up to that number. Numbers count
from the start of a master's role, which has an id; numbers of different ids are unrelated.
"""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass

__all__ = ["Holders", "Spread"]

_ASKS_EVERY_MS = 10_000
"""A change does not wait for a slave without a request in this time."""


@dataclass(frozen=True, slots=True)
class Spread:
    """The number of members of the sync-state set that hold a change, including the master."""

    held: int = 1
    members: int = 1
    missing: tuple[int, ...] = ()
    """Broker ids of members that have not reported the change."""
    is_leading: bool = True
    """Whether no other master can have been elected when the members held the change."""

    @property
    def remark(self) -> str | None:
        """The remark of an answer: None when every member holds the change."""
        if not self.is_leading:
            return (
                "stored here, but this master holds no lease: another one may have been elected, "
                "which lacks the change; send it again when this broker or the new master leads"
            )
        if not self.missing:
            return None
        return (
            f"stored on {self.held} of {self.members} members of the sync-state set; not yet "
            f"reported by broker ids {', '.join(map(str, self.missing))}"
        )


class Holders:
    """The reports of the slaves of one master, for one id."""

    def __init__(self) -> None:
        self._held: dict[int, tuple[int, int]] = {}

    def report(self, broker_id: int, number: int, *, now_ms: int) -> None:
        """Record that a slave holds all changes up to *number*."""
        self._held[broker_id] = (number, now_ms)

    def forget(self) -> None:
        """Drop all reports, because a new id begins."""
        self._held.clear()

    def spread(self, number: int, others: Collection[int]) -> Spread:
        """Return the spread of the change *number*; *others* are the members except the master."""
        missing = tuple(
            sorted(each for each in others if self._held.get(each, (-1, 0))[0] < number)
        )
        return Spread(1 + len(others) - len(missing), 1 + len(others), missing)

    def holding(self, number: int) -> frozenset[int]:
        """Return the slaves that hold all changes up to *number*."""
        return frozenset(each for each, (held, _) in self._held.items() if held >= number)

    def is_awaited(self, spread: Spread, *, now_ms: int) -> bool:
        """Whether a slave with regular requests lacks the change. Java slaves never report."""
        return any(
            each in self._held and now_ms - self._held[each][1] <= _ASKS_EVERY_MS
            for each in spread.missing
        )

    def has_gone_silent(self, missing: Collection[int], *, now_ms: int) -> bool:
        """Whether a slave in *missing* reported earlier, and has sent no request for long."""
        return any(
            each in self._held and now_ms - self._held[each][1] > _ASKS_EVERY_MS for each in missing
        )
