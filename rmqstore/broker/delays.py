"""Delayed messages: which are due, and how far delivery has come on the disk of every member.

Queue n - 1 of SCHEDULE_TOPIC_XXXX has the messages of delay level n, in the order in which they are
due. A delivery is a copy in the log, of which every member of the sync-state set and its disk must
learn before it counts: until then it is uncounted, and a new master may have to make it again.
Deliveries name their origin, so the log itself shows those that do not count yet (`made_since`).

Nothing here reads a clock or the store.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import NamedTuple, Protocol

from rmqstore.broker.operations.message_rules import DELAY_ORIGIN

__all__ = ["Deliveries", "Level", "Origin", "Unit", "made_since"]

_UNCOUNTED_MAX = 10_000
"""Deliveries of a level that do not count; further messages wait until some do."""
_QUIET_BYTES = 64 << 20
"""The part of the log that a new master reads at most where nothing was delivered for long."""


class Unit(NamedTuple):
    """A message in the queue of its level."""

    offset: int
    due_ms: int
    """The time at which it is due, by the wall clock."""


class Origin(NamedTuple):
    """The place of a delayed message: its level, and the offset in the level's queue."""

    level: int
    offset: int

    @classmethod
    def parse(cls, text: str | None) -> Origin | None:
        """Return the origin that a property names, None for any other text."""
        level, separator, offset = (text or "").partition("-")
        is_whole = separator and level.isdecimal() and offset.isdecimal()
        return cls(int(level), int(offset)) if is_whole else None

    def __str__(self) -> str:
        return f"{self.level}-{self.offset}"


class Level:
    """One delay level: the next message, and deliveries that do not count yet."""

    def __init__(self, number: int, delay_ms: int, offset: int) -> None:
        self.number = number
        self.delay_ms = delay_ms
        self.offset = offset
        """Of the next message that is not delivered."""
        self.counted = offset
        """The offset before which deliveries count."""
        self.made: set[int] = set()
        """Offsets of messages that an earlier master delivered."""
        self._uncounted: deque[tuple[int, int]] = deque()
        """Offset after a message, and the end of its delivery in the log."""

    @property
    def is_full(self) -> bool:
        """Whether too many deliveries do not count yet."""
        return len(self._uncounted) >= _UNCOUNTED_MAX

    @property
    def is_settled(self) -> bool:
        """Whether all deliveries count."""
        return not self._uncounted

    def due(self, units: Iterable[Unit], now_ms: int) -> tuple[list[int], int | None]:
        """Return the offsets of *units*, of the queue from `offset` on, that are due, and the time
        in ms until the next one is; None where no unit waits.

        As in RocketMQ a message that would wait for longer than its level is due: the clock was set
        back, or the level was longer when the message came.
        """
        found: list[int] = []
        for unit in units:
            left_ms = unit.due_ms - now_ms
            if 0 < left_ms <= self.delay_ms:
                return found, left_ms
            found.append(unit.offset)
        return found, None

    def passed(self, offset: int, end_offset: int = 0) -> None:
        """Take that a message needs no more: its delivery ends at *end_offset* of the log, or it
        has none, as one that cannot be read."""
        self.offset = offset + 1
        self._uncounted.append((offset + 1, end_offset))

    def pass_made(self, end_offset: int) -> None:
        """Take that the next messages, as far as an earlier master delivered them, need no more:
        their deliveries end at *end_offset* of the log at the latest. They may not be due by the
        clock of this master."""
        while self.offset in self.made:
            self.made.discard(self.offset)
            self.passed(self.offset, end_offset)

    def count(self, log_offset: int) -> bool:
        """Count deliveries before *log_offset*; return whether there were any."""
        before = self.counted
        while self._uncounted and self._uncounted[0][1] <= log_offset:
            self.counted, _ = self._uncounted.popleft()
        return self.counted != before


@dataclass(slots=True)
class Deliveries:
    """All levels, and the place in the log up to which their deliveries count."""

    levels: Sequence[Level]
    log_offset: int
    """Deliveries before it count, those at or after it do not."""
    _mark: int = -1
    """An end of the log; deliveries before it count once it is safe."""

    def settle(self, safe_offset: int, log_end: int) -> Mapping[int, int] | None:
        """Count deliveries before *safe_offset*, the end of what the disk and every member have,
        where records end at *log_end*; return the new offsets of levels, None without a change
        for the tables."""
        # The deliveries of an earlier master lie before the mark, and some are not passed yet.
        if safe_offset < self._mark or any(level.made for level in self.levels):
            return None
        safe, self._mark = self._mark, log_end
        counted = {level.number: level.counted for level in self.levels if level.count(safe)}
        if not counted and safe < self.log_offset + _QUIET_BYTES:
            return None
        self.log_offset = safe
        return counted

    @property
    def is_settled(self) -> bool:
        """Whether all deliveries count."""
        return all(level.is_settled for level in self.levels)


class LoggedMessage(Protocol):
    """The part of a `Record` that shows whether it is a delivery."""

    @property
    def topic(self) -> str:
        """Its topic."""

    @property
    def unique_key(self) -> str | None:
        """Its unique key."""

    @property
    def properties_text(self) -> str:
        """All properties as stored."""

    @property
    def properties(self) -> Mapping[str, str]:
        """All properties."""


def made_since(
    records: Iterable[LoggedMessage], offsets: Mapping[int, int]
) -> dict[Origin, tuple[str, str | None]]:
    """Return topic and unique key of each delivery in a part of the log whose origin is at or past
    the *offsets* of its level.

    Clients can send the property too, with a message that they forward: the caller compares the
    message at the origin.
    """
    found = {}
    for record in records:
        if DELAY_ORIGIN not in record.properties_text:
            continue
        origin = Origin.parse(record.properties.get(DELAY_ORIGIN))
        if origin is not None and origin.offset >= offsets.get(origin.level, 0):
            found[origin] = record.topic, record.unique_key
    return found
