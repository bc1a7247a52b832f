"""Consume queues as they are on the disk: where they begin and end, and which unit is where.

A unit is looked up by reading it alone, so that planning over thousands of queues takes few steps.
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from itertools import islice
from typing import NamedTuple, Self

from rmqstore._native import core
from rmqstore.errors import CorruptionError
from rmqstore.queue_units import (
    BATCH_UNIT,
    BATCH_UNIT_BYTES,
    FILL_UNIT,
    UNIT,
    UNIT_BYTES,
)
from rmqstore.spark.files import Folder, OpenFiles, join
from rmqstore.spark.read.records import Log

__all__ = [
    "QueueFiles",
    "Unit",
    "Units",
    "UnitsAt",
    "queue_of",
    "units_at",
]

_FILL_UNITS = 1024
_OFFSETS_MAX = 1 << 20
_FURTHER_QUEUES = b"INNER_MULTI_DISPATCH\1"
_OPEN_FILES_MAX = 4
_LISTED_MAX = 8


@dataclass(frozen=True, slots=True)
class QueueFiles:
    """The files of one queue; *first*, *start_unit* and *end_unit* are numbers of units."""

    topic: str
    queue_id: int
    path: str
    file_size: int
    first: int
    """The first unit that the files have room for."""
    start: int
    """Queue offset of the first message whose record is in the log."""
    end: int
    """Queue offset after the last one."""
    start_unit: int
    end_unit: int
    unit_size: int = UNIT_BYTES
    log_end: int = 0
    """Physical offset after the record of the last unit, 0 without one."""
    limit: int = 0
    """The number after the last unit that the files have room for."""

    @property
    def is_batch(self) -> bool:
        """Whether a unit counts several messages, and its number is not a queue offset."""
        return self.unit_size == BATCH_UNIT_BYTES


class Unit(NamedTuple):
    """A unit as it is stored. A size of 0: never written."""

    offset: int
    size: int
    queue_offset: int
    message_count: int


class Units:
    """Reads single units of a queue by their numbers. Close it."""

    def __init__(self, path: str, *, file_size: int, unit_size: int) -> None:
        self._path = path
        self._file_size = file_size
        self._unit_size = unit_size
        self._open = OpenFiles(_OPEN_FILES_MAX)

    @classmethod
    def of(cls, queue: QueueFiles) -> Units:
        """Return a reader of this queue's units."""
        return cls(queue.path, file_size=queue.file_size, unit_size=queue.unit_size)

    def unit(self, number: int) -> Unit:
        """Return a unit.

        Raises NotFoundError when its file is gone, DiskError where the system refuses.
        """
        return self._decoded(number, self.read(number, 1))

    def read(self, number: int, count: int) -> bytes:
        """Return the bytes of units from *number* on, at most *count* and to the file's end."""
        at = number * self._unit_size
        start = at - at % self._file_size
        return self._open[join(self._path, f"{start:020d}")].read(
            at - start, min(count * self._unit_size, self._file_size - (at - start))
        )

    def is_fill(self, number: int) -> bool:
        """Return whether a unit fills the place of a message that is not in the queue."""
        return self._unit_size == UNIT_BYTES and self.read(number, 1) == FILL_UNIT

    def real(self, number: int, high: int) -> int:
        """Return the first unit from *number* on that is not a fill unit, *high* when all are."""
        while number < high:
            data = self.read(number, min(_FILL_UNITS, high - number))
            here = len(data) // UNIT_BYTES
            for at in range(0, here * UNIT_BYTES, UNIT_BYTES) if data != FILL_UNIT * here else ():
                if not data.startswith(FILL_UNIT, at):
                    return number + at // UNIT_BYTES
            if not here:
                return number
            number += here
        return high

    def find(self, low: int, high: int, is_behind: Callable[[Unit], bool]) -> int:
        """Return the first unit of [*low*, *high*) that *is_behind*, *high* when none is.

        Those that are behind must follow all that are not. Fill units count as the real unit that
        follows them, or as behind when none does.
        """
        while low < high:
            number = (low + high) // 2
            data = self.read(number, 1)
            if data == FILL_UNIT:
                real = self.real(number, high)
                data = self.read(real, 1) if real < high else b""
            else:
                real = number
            if data and not is_behind(self._decoded(real, data)):
                low = real + 1
            else:
                high = number
        return low

    def first_at(self, low: int, high: int, physical_offset: int) -> int:
        """Return the first unit of [*low*, *high*) whose record begins at or past a physical
        offset."""
        return self.find(low, high, lambda unit: unit.offset >= physical_offset)

    def offsets(self, low: int, high: int) -> memoryview | None:
        """Return the offsets of the records of [*low*, *high*) as native int64; None when there are
        fill units or too many."""
        if high - low > _OFFSETS_MAX:
            return None

        parts = []
        number = low
        while number < high:
            data = self.read(number, high - number)
            if len(data) < self._unit_size:
                return None
            if self._unit_size == UNIT_BYTES:
                parts.append(core.unit_positions(data, 0, 2**63 - 1))
            else:
                found = [unit[0] for unit in BATCH_UNIT.iter_unpack(data)]
                parts.append(struct.pack(f"={len(found)}q", *found))
            number += len(data) // self._unit_size

        offsets = memoryview(b"".join(parts)).cast("q")
        return offsets if len(offsets) == high - low else None

    def close(self) -> None:
        """Close the files."""
        self._open.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def _decoded(self, number: int, data: bytes) -> Unit:
        if len(data) < self._unit_size:
            return Unit(0, 0, 0, 0)
        if self._unit_size == UNIT_BYTES:
            offset, size, _ = UNIT.unpack(data)
            return Unit(offset, size, number, 1)
        offset, size, _, _, base, count, _, _ = BATCH_UNIT.unpack(data)
        return Unit(offset, size, base, count)


def queue_of(
    path: str, topic: str, queue_id: int, *, unit_size: int, log: Log, log_start: int, log_end: int
) -> QueueFiles | None:
    """Return what the queue at *path* holds of a log between two physical offsets; None when it
    has no files.

    Units at the end that do not point at a record of their queue are left out. Raises
    CorruptionError when files are missing or of odd sizes.
    """
    sizes = {int(name): size for name, size in Folder(path).names().items() if size}

    if not sizes:
        return None
    starts = list(sizes)
    file_size = starts[1] - starts[0] if len(starts) > 1 else sizes[starts[0]]

    last = starts[-1]
    expected = list(range(starts[0], last + 1, file_size)) if file_size > 0 else []
    is_whole = starts == expected and all(sizes[start] == file_size for start in starts[:-1])
    if not is_whole or starts[0] % unit_size or file_size % unit_size:
        root = path.rsplit("/", 3)[0]
        raise CorruptionError(
            f"{path}: the files begin at {_listed(starts)} and have {_listed(sizes.values())} "
            f"bytes; a queue has files of one size, a multiple of {unit_size}, side by side; "
            f"rebuild it with rmqstore repair {root}",
            path=path,
            kind="consume queue",
            suggested_command=f"rmqstore repair {root}",
        )

    first, limit = starts[0] // unit_size, (last + min(sizes[last], file_size)) // unit_size
    with Units(path, file_size=file_size, unit_size=unit_size) as units:
        end = units.find(
            first, limit, lambda unit: unit.size <= 0 or not 0 <= unit.offset < log_end
        )
        check = _UnitCheck(log, topic.encode(), queue_id, is_batch=unit_size != UNIT_BYTES)

        if end > first and not check.holds(units.unit(end - 1)):
            end = units.find(first, end, lambda unit: not check.holds(unit, log_start))

        start = first
        if end > first and (units.unit(first).offset < log_start or units.is_fill(first)):
            start = units.real(units.first_at(first, end, log_start), end)

        head = units.unit(start) if start < end else None
        tail = units.unit(end - 1) if start < end else None

    is_batch = unit_size != UNIT_BYTES
    return QueueFiles(
        topic,
        queue_id,
        path,
        file_size,
        first,
        head.queue_offset if is_batch and head else (0 if is_batch else start),
        tail.queue_offset + tail.message_count if is_batch and tail else (0 if is_batch else end),
        start,
        end,
        unit_size,
        tail.offset + tail.size if tail else 0,
        limit,
    )


class UnitsAt(NamedTuple):
    """What follows from the units of a queue for a physical offset; see csrc/log/log_end.h."""

    is_known: bool
    """A unit's record begins there."""
    is_passed: bool
    """A unit's record begins there or later."""
    is_overwritten: bool
    """The last unit before it leads to something else than its record."""


def units_at(queue: QueueFiles, at: int, *, log: Log, log_start: int) -> UnitsAt:
    """Return what follows from the units of *queue* for the physical offset *at*."""
    check = _UnitCheck(log, queue.topic.encode(), queue.queue_id, is_batch=queue.is_batch)
    with Units.of(queue) as units:
        number = units.find(
            queue.first, queue.limit, lambda unit: unit.size <= 0 or unit.offset >= at
        )
        after = units.unit(number) if number < queue.limit else Unit(0, 0, 0, 0)
        before = units.unit(number - 1) if number > queue.first else None
        is_fill = before is not None and units.is_fill(number - 1)
        return UnitsAt(
            is_known=after.size > 0 and after.offset == at,
            is_passed=after.size > 0,
            is_overwritten=not (before is None or is_fill or check.holds(before, log_start)),
        )


@dataclass(frozen=True, slots=True)
class _UnitCheck:
    """Knows whether a unit points at a record of its queue.

    RocketMQ leaves units of messages that it cut off the log after the end of their queue.
    """

    log: Log
    topic: bytes
    queue_id: int
    is_batch: bool

    def holds(self, unit: Unit, log_start: int = 0) -> bool:
        if unit.offset < log_start:
            return True  # deleted from the log, so that nothing contradicts it
        record = self.log.record(unit.offset, size=unit.size)
        if record is None or record.size != unit.size:
            return False
        if record.topic != self.topic:
            # A record may name further queues that are to show it.
            raw = self.log.raw(unit.offset, unit.size)
            return _FURTHER_QUEUES in raw and self.topic in raw
        return record.queue_id == self.queue_id and (
            self.is_batch or record.queue_offset == unit.queue_offset
        )


def _listed(numbers: Iterable[int]) -> str:
    """The first of *numbers* as text."""
    first = list(islice(numbers, _LISTED_MAX + 1))
    text = ", ".join(map(str, first[:_LISTED_MAX]))
    return f"{text}, ..." if len(first) > _LISTED_MAX else text
