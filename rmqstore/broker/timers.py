"""Timer messages: which slot of the wheel each waits in, and how far delivery has come.

Queue 0 of rmq_sys_wheel_timer has all timer messages, and the slot of a message follows from its
record alone. So the wheel of every member can be made from its own log. Slots are read in the order
of their times, however late. A message that is found after its slot was read waits in the next
slot to be read. A delivery names the place of its message, its origin, so the log shows deliveries
that do not count yet (`made_since`).

Nothing here reads a clock or the store.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import NamedTuple

from rmqstore.broker.delays import LoggedMessage
from rmqstore.broker.operations.timer_rules import (
    OUT_MS,
    TIMER_ORIGIN,
    UNIQUE_KEY,
    deletion_keys,
)
from rmqstore.store.delay import REAL_TOPIC
from rmqstore.store.metadata import TimerProgress
from rmqstore.topic_names import TIMER_TOPIC

__all__ = [
    "LAP_SLOTS",
    "Deletions",
    "TimerState",
    "Timers",
    "Unit",
    "due_ms_of",
    "made_since",
]

LAP_SLOTS = 2 * 604_800
"""Slots of the wheel."""
_QUIET_BYTES = 64 << 20
"""The part of the log that a new master reads at most where nothing was delivered for long."""
_TIME_MAX = 2**53
_AHEAD_MS_MAX = 2**31 - 1
"""How far ahead a unit of the timer log can be."""
_SET_BACK_MS = 2000
"""How far a clock may be set back without a second reading of slots."""


class Unit(NamedTuple):
    """Where a message waits."""

    slot_ms: int
    write_ms: int
    """The time of the wheel when the message came."""
    is_rolled: bool
    """Whether the message is further away than the window, and then is entered again."""


class _Mark(NamedTuple):
    """Progress that counts once the log is safe up to its place."""

    progress: TimerProgress
    changes: int


class Timers:
    """The place in the queue up to which messages are in the wheel, the next slot to be read, and
    deliveries that do not count yet."""

    def __init__(self, progress: TimerProgress, *, precision_ms: int, window_slots: int) -> None:
        self.progress = progress
        """The deliveries that count."""
        self.read_ms = progress.read_ms
        """The next slot to be read."""
        self.offset = 0
        """Of the next message that enters the wheel."""
        self.made: set[int] = set()
        """Offsets of messages that an earlier master delivered."""
        self._precision_ms = precision_ms
        window_slots = min(window_slots, _AHEAD_MS_MAX // precision_ms)
        self._window_ms = window_slots * precision_ms
        self._third_ms = window_slots // 3 * precision_ms
        self._half_ms = window_slots // 2 * precision_ms
        self._late: deque[tuple[int, int]] = deque()
        """Offset and slot of messages that came after their slot was read."""
        self._changes = self._saved_changes = 0
        """Deliveries and new messages, and those before the progress that was saved last."""
        self._mark: _Mark | None = None
        self._done: list[tuple[int, int]] = []
        """Before the clock was set back: messages before an offset, in slots before a time."""

    def floor(self, time_ms: int) -> int:
        """Return the time of the slot that a time is in."""
        return time_ms // self._precision_ms * self._precision_ms

    def enter(self, offset: int, *, stored_ms: int, due_ms: int) -> Unit | None:
        """Take the next message of the queue; return where it waits, None where it is done."""
        self.offset = offset + 1
        write_ms = self.floor(stored_ms)
        slot_ms, is_rolled = self._slot_of(write_ms, due_ms)
        known = self.progress
        if offset < known.queue_offset and slot_ms < known.read_ms:
            return None
        self._changes += 1
        lap_end_ms = self.read_ms + (LAP_SLOTS - 1) * self._precision_ms
        if slot_ms < self.read_ms:
            # Its deletion is late, too, and enters the same slot.
            slot_ms = write_ms = self.read_ms
            self._late.append((offset, slot_ms))
        elif slot_ms > lap_end_ms:
            slot_ms, is_rolled = lap_end_ms, True
        return Unit(slot_ms, min(write_ms, slot_ms), is_rolled)

    def _slot_of(self, write_ms: int, due_ms: int) -> tuple[int, bool]:
        """Returns the slot as RocketMQ finds it, and whether the message is further away."""
        beyond_ms = due_ms - write_ms - self._window_ms
        if beyond_ms < 0:
            return self.floor(due_ms), False
        # Enough time is left for the next round.
        ahead_ms = self._half_ms if beyond_ms < self._third_ms else self._window_ms
        return write_ms + ahead_ms, True

    def readable(self, now_ms: int) -> int:
        """Return the end of the slots that may be read: each begins a precision earlier at
        least."""
        return self.floor(now_ms)

    def follow(self, now_ms: int) -> None:
        """Take the present time. Where the clock was set back, slots are read again, for messages
        that come from now on."""
        end_ms = self.floor(now_ms)
        if self.read_ms > end_ms + _SET_BACK_MS:
            self._done.append((self.offset, self.read_ms))
            self.read_ms = end_ms

    def is_done(self, offset: int, slot_ms: int) -> bool:
        """Whether a message was done before the clock was set back."""
        return any(offset < end and slot_ms < end_ms for end, end_ms in self._done)

    def read(self, end_ms: int, delivered: int = 0) -> None:
        """Take that the slots before *end_ms* are done: all deliveries are in the log, of which
        there were *delivered*."""
        self.read_ms = end_ms
        self._changes += delivered
        self._done = [each for each in self._done if each[1] > end_ms]
        while self._late and self._late[0][1] < end_ms:
            self._late.popleft()
            self._changes += 1

    def settle(self, safe_offset: int, log_end: int) -> TimerProgress | None:
        """Count deliveries before *safe_offset*, the end of what the disk and every member have,
        where records end at *log_end*; return the progress where it is to be saved."""
        mark = self._mark
        # The deliveries of an earlier master lie before the mark, and some are not passed yet. So
        # are messages that were done before the clock was set back.
        if self.made or self._done or (mark is not None and safe_offset < mark.progress.log_offset):
            return None
        offset = self._late[0][0] if self._late else self.offset
        self._mark = _Mark(TimerProgress(self.read_ms, offset, log_end), self._changes)
        if mark is None or (
            mark.changes == self._saved_changes
            and mark.progress.log_offset < self.progress.log_offset + _QUIET_BYTES
        ):
            return None
        self.progress, self._saved_changes = mark
        return self.progress

    @property
    def is_settled(self) -> bool:
        """Whether all deliveries count."""
        return self._changes == self._saved_changes and not (self.made or self._done)


@dataclass(frozen=True, slots=True)
class TimerState:
    """What waits."""

    waiting: int = 0
    """Messages in the wheel."""
    unread: int = 0
    """Messages that have not entered the wheel."""
    behind_ms: int = 0
    """How long ago the next slot to be read was over."""


class Deletions:
    """The messages that deletions of one slot name."""

    def __init__(self) -> None:
        self._keys: set[str] = set()

    def add(self, properties: Mapping[str, str]) -> None:
        """Take a deletion."""
        self._keys.update(deletion_keys(properties))

    def holds(self, properties: Mapping[str, str]) -> bool:
        """Whether a message is deleted. A deletion of RocketMQ 5.5.0 names the key alone."""
        key = properties.get(UNIQUE_KEY)
        if not self._keys or key is None:
            return False
        return key in self._keys or f"{properties.get(REAL_TOPIC)}+{key}" in self._keys


def due_ms_of(properties: Mapping[str, str]) -> int | None:
    """Return the time that a stored timer message waits for; None for a record that is none, which
    RocketMQ's clients can send."""
    text, topic = properties.get(OUT_MS, ""), properties.get(REAL_TOPIC)
    if not (text.isascii() and text.isdecimal()) or not topic or topic == TIMER_TOPIC:
        return None
    return min(int(text[:20]), _TIME_MAX)


def made_since(
    records: Iterable[LoggedMessage], offset: int = 0
) -> dict[int, tuple[str, str | None]]:
    """Return topic and unique key of each delivery in a part of the log, by the place of its
    message in the queue. The caller compares the message there, as for `delays.made_since`."""
    found = {}
    for record in records:
        if TIMER_ORIGIN not in record.properties_text:
            continue
        origin = record.properties.get(TIMER_ORIGIN, "")
        if origin.isascii() and origin.isdecimal() and int(origin) >= offset:
            found[int(origin)] = record.topic, record.unique_key
    return found
