"""The timer log and wheel of a simulated broker: the face of `TimerIndex` over a list of units.

It is a model, not the C index over files in memory, for the reason of `model_store`. A property
test compares the two.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import partial
from operator import attrgetter
from typing import Any, NamedTuple, Protocol

from rmqstore.errors import StoreClosedError
from rmqstore.sim.disk import ModelLog

__all__ = ["ModelTimerIndex", "TimerLog", "TimerMachine"]

_DELETE = 4
_UNIT_SIZE = 52


class Unit(NamedTuple):
    """A message in the timer log."""

    due_ms: int
    magic: int
    physical_offset: int
    size: int


@dataclass(slots=True)
class TimerLog:
    """The timer log on the disk of a machine. The wheel is made from it."""

    units: list[Unit] = field(default_factory=list)
    removed: int = 0
    """Units that were removed with their messages."""
    flushed: int = 0
    """The number of units that survive a loss of power, with those that were removed."""

    def power_loss(self) -> None:
        """Lose what is not flushed."""
        del self.units[max(self.flushed - self.removed, 0) :]

    def copy(self) -> TimerLog:
        """Return a copy, as it is now."""
        return TimerLog([*self.units], self.removed, self.flushed)


class TimerMachine(Protocol):
    """The machine that an index belongs to."""

    @property
    def log(self) -> ModelLog:
        """The log on its disk."""

    @property
    def timer_log(self) -> TimerLog:
        """The timer log on its disk."""

    def enter(self, action: Callable[[], Any]) -> Any:
        """Return the result of *action*, which the broker calls on its loop."""


class ModelTimerIndex:
    """The index of *machine* in one life of its broker."""

    def __init__(
        self,
        machine: TimerMachine,
        root: object,
        *,
        file_size: int,
        precision_ms: int,
        bound: int,
        is_new: bool = False,
    ) -> None:
        self._machine = machine
        self._log = machine.timer_log
        self._precision_ms = precision_ms
        self._is_open = True
        self._slots: dict[int, list[tuple[int, Unit]]] = {}
        """Position and unit of the messages of each slot."""
        units = self._log.units
        if is_new:
            units.clear()
        kept = bisect_left(units, bound, key=attrgetter("physical_offset"))
        del units[kept:]
        self._log.flushed = min(self._log.flushed, self._log.removed + len(units))
        for at, unit in enumerate(units):
            self._enter(self._log.removed + at, unit)

    def _enter(self, number: int, unit: Unit) -> None:
        slot = self._slots.setdefault(unit.due_ms // self._precision_ms, [])
        slot.append((number * _UNIT_SIZE, unit))

    @property
    def _units(self) -> list[Unit]:
        if not self._is_open:
            raise StoreClosedError("the timer index is closed")
        return self._log.units

    @property
    def last_offset(self) -> int:
        """The physical offset of the last unit's message, -1 without units."""
        return self._units[-1].physical_offset if self._units else -1

    @property
    def flushed_position(self) -> int:
        """The end of the part of the timer log that is on the disk."""
        return self._log.flushed * _UNIT_SIZE

    def add(
        self,
        due_ms: int,
        *,
        write_ms: int,
        magic: int,
        physical_offset: int,
        size: int,
        topic_hash: int,
    ) -> None:
        """Append a unit to the slot of a time. Raises DiskError."""
        assert physical_offset >= self.last_offset, "units are in the order of their messages"
        self._machine.enter(partial(self._machine.log.change, needs_room=True))
        unit = Unit(due_ms, magic, physical_offset, size)
        self._enter(self._log.removed + len(self._units), unit)
        self._units.append(unit)

    def units(self, due_ms: int) -> list[tuple[int, int, int, int]]:
        """Return position, magic, physical offset and size of the units of a slot."""
        first = self._log.removed * _UNIT_SIZE
        return [
            (position, unit.magic, unit.physical_offset, unit.size)
            for position, unit in self._slots.get(due_ms // self._precision_ms, [])
            if position >= first
        ]

    def next(self, from_ms: int, upto_ms: int) -> int:
        """Return the time of the first slot in [*from_ms*, *upto_ms*) with units, *upto_ms* without
        one."""
        first, end = from_ms // self._precision_ms, upto_ms // self._precision_ms
        found = min((each for each in self._slots if first <= each < end), default=end)
        return found * self._precision_ms

    def slot_count(self, due_ms: int) -> int:
        """Return the number of messages less deletions in the slot of a time."""
        return self._weight(due_ms // self._precision_ms)

    def count(self, from_ms: int) -> int:
        """Return the number of messages less deletions in slots from a time on."""
        first = from_ms // self._precision_ms
        return sum(self._weight(each) for each in self._slots if each >= first)

    def _weight(self, slot: int) -> int:
        return sum(-1 if unit.magic & _DELETE else 1 for _, unit in self._slots.get(slot, []))

    def flush(self) -> None:
        """Bring the log to the disk."""
        self._machine.enter(self._machine.log.change)
        self._log.flushed = self._log.removed + len(self._units)

    def delete_before(self, physical_offset: int) -> None:
        """Remove units of messages before *physical_offset*, but never the last one."""
        self._machine.enter(self._machine.log.change)
        units = self._units
        count = min(
            bisect_left(units, physical_offset, key=attrgetter("physical_offset")),
            max(len(units) - 1, 0),
        )
        del units[:count]
        self._log.removed += count

    def close(self) -> None:
        """End the use; a second call does nothing."""
        self._is_open = False
