"""The entries of the tables that changed after a given number.

Each change gets the next number. An entry is kept once, at its last change, so the cost of the
changes after a number is proportional to their count, and memory is bounded by the present entries.
Only the last REMOVED_MAX removed entries are kept; a slave that is further behind requests the
whole tables.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

__all__ = ["REMOVED_MAX", "ChangeLog", "Entry"]

REMOVED_MAX = 10_000


class Entry(NamedTuple):
    """One entry of one table."""

    table: str
    key: str


class ChangeLog:
    """The order in which entries last changed. *urgent* tables are passed on at once."""

    def __init__(self, urgent: frozenset[str]) -> None:
        self.sequence = 0
        """The number of the last change."""
        self.floor = 0
        """Changes up to this number may be forgotten."""
        self.last_urgent = 0
        """The number of the last change of an urgent table."""
        self._urgent = urgent
        self._changed: dict[Entry, int] = {}
        """By the number of the change, ascending."""
        self._removed: dict[Entry, int] = {}

    def note(self, table: str, key: str, *, is_removed: bool = False) -> int:
        """Record a change of an entry and return its number."""
        entry = Entry(table, key)
        self.sequence += 1
        self._changed.pop(entry, None)
        self._changed[entry] = self.sequence
        if table in self._urgent:
            self.last_urgent = self.sequence

        self._removed.pop(entry, None)
        if is_removed:
            self._removed[entry] = self.sequence
            if len(self._removed) > REMOVED_MAX:
                oldest = next(iter(self._removed))
                self.floor = self._removed.pop(oldest)
                del self._changed[oldest]
        return self.sequence

    def after(self, number: int) -> Iterator[Entry]:
        """Yield the entries that changed after *number*, the last change first."""
        assert self.floor <= number, "a slave below the floor requests the whole tables"
        for entry, changed in reversed(self._changed.items()):
            if changed <= number:
                return
            yield entry
