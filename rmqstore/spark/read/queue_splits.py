"""The splits of chosen queues: ranges of their units, for each range of a log file."""

from __future__ import annotations

import struct
from bisect import bisect_left
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import pairwise

from rmqstore.spark.read.layout import Layout
from rmqstore.spark.read.ranges import FileRange, QueueRange, Split, UnitRange
from rmqstore.spark.read.splitting import Times
from rmqstore.spark.read.units import QueueFiles, Units

__all__ = ["WantedUnits", "splits_of", "wanted_bytes"]

_EXACT_BELOW = 64 << 10
_READ_UNITS = 4096


@dataclass(frozen=True, slots=True)
class WantedUnits:
    """A queue and the units of it that may be wanted, about *unit_bytes* of log each."""

    queue: QueueFiles
    range: QueueRange
    first: int
    stop: int
    unit_bytes: int

    @classmethod
    def of(cls, queue: QueueFiles, range_: QueueRange) -> WantedUnits:
        """Return the units of *queue* within the queue offsets of a range."""
        first, stop = queue.start_unit, queue.end_unit
        if not queue.is_batch:
            # Of a batch queue the scan leaves out what is not wanted.
            first, stop = max(first, range_.start), min(stop, range_.stop)
        unit_bytes = 0
        if first < stop:
            with Units.of(queue) as units:
                unit_bytes = (units.unit(first).size + units.unit(stop - 1).size) // 2
        return cls(queue, range_, first, max(first, stop), max(unit_bytes, 1))


def wanted_bytes(queues: Sequence[WantedUnits]) -> int:
    """Return about how many bytes the records of the chosen units have."""
    return sum((each.stop - each.first) * each.unit_bytes for each in queues)


def splits_of(
    layout: Layout,
    queues: Sequence[WantedUnits],
    ranges: Sequence[FileRange],
    times: Times,
    *,
    size: int,
) -> list[Split]:
    """Return splits of at most about *size* bytes for the units that point into *ranges*, which
    ascend. Ranges without any are left out."""
    units = _units_by_range(queues, ranges, times)
    finer = [
        FileRange(file, low, high)
        for (file, start, stop), found in zip(ranges, units, strict=True)
        for low, high in pairwise([start, *_boundaries(start, stop, found, size), stop])
    ]
    if len(finer) > len(ranges):
        units = _units_by_range(queues, finer, times)
    return [
        Split.of(layout, range_, tuple(each for each, _ in found), weight=_weight(found))
        for range_, found in zip(finer, units, strict=True)
        if found
    ]


_Weighed = list[tuple[UnitRange, int]]
"""Ranges of units, each with the bytes of log to a unit."""


def _units_by_range(
    queues: Sequence[WantedUnits], ranges: Sequence[FileRange], times: Times
) -> list[_Weighed]:
    found: list[_Weighed] = [[] for _ in ranges]
    for wanted in queues:
        for number, first, stop in _by_range(wanted, ranges):
            stored = times.of_file(ranges[number].file)
            if times.may_overlap(*stored, wanted.range.begin_ms, wanted.range.end_ms):
                found[number].append((_unit_range(wanted.queue, first, stop), wanted.unit_bytes))
    return found


def _unit_range(queue: QueueFiles, first: int, stop: int) -> UnitRange:
    return UnitRange(
        queue.topic,
        queue.queue_id,
        queue.path,
        queue.file_size,
        first,
        stop,
        queue.unit_size,
    )


def _by_range(wanted: WantedUnits, ranges: Sequence[FileRange]) -> Iterator[tuple[int, int, int]]:
    """Yield the number of each file range that units point into, and these units' numbers."""
    at, stop = wanted.first, wanted.stop
    if at >= stop:
        return
    with Units.of(wanted.queue) as units:
        head, tail = units.unit(at).offset, units.unit(stop - 1).offset
        first_at = _Lookup(units, at, stop) if len(ranges) > 1 else units.first_at
        for number, (_, low, high) in enumerate(ranges):
            if high <= head:
                continue
            if low > tail or at >= stop:
                return
            first = at if low <= head else first_at(at, stop, low)
            at = stop if high > tail else first_at(first, stop, high)
            if first < at:
                yield number, first, at


class _Lookup:
    """Looks units up by the offsets of their records, all of them in memory where they may be."""

    def __init__(self, units: Units, first: int, stop: int) -> None:
        self._units = units
        self._first = first
        self._offsets = units.offsets(first, stop)

    def __call__(self, low: int, high: int, physical_offset: int) -> int:
        """Return the first unit of [*low*, *high*) that points at or past a physical offset."""
        if self._offsets is None:
            return self._units.first_at(low, high, physical_offset)
        first = self._first
        return first + bisect_left(self._offsets, physical_offset, low - first, high - first)


def _weight(found: _Weighed) -> int:
    return sum((each.stop - each.first) * unit_bytes for each, unit_bytes in found)


def _boundaries(start: int, stop: int, found: _Weighed, size: int) -> list[int]:
    """Return boundaries within a file range that part its units into splits of *size* bytes."""
    count = -(-min(_weight(found), stop - start) // size)
    if count <= 1:
        return []
    offsets = (
        _exact_boundaries(found, size) if size < _EXACT_BELOW else _even_boundaries(found, count)
    )
    return [offset for offset in offsets if start < offset < stop]


def _even_boundaries(found: _Weighed, count: int) -> list[int]:
    """Return boundaries that part the longest range, and so about everything, into equal parts."""
    units, _ = max(found, key=lambda each: (each[0].stop - each[0].first) * each[1])
    with _opened(units) as opened:
        length = units.stop - units.first
        numbers = sorted({units.first + length * part // count for part in range(1, count)})
        return sorted({opened.unit(number).offset for number in numbers})


def _exact_boundaries(found: _Weighed, size: int) -> list[int]:
    sizes: dict[int, int] = {}
    for units, _ in found:
        with _opened(units) as opened:
            sizes.update(_records(units, opened))
    boundaries = []
    weight = 0
    for offset in sorted(sizes):
        if weight and weight + sizes[offset] > size:
            boundaries.append(offset)
            weight = 0
        weight += sizes[offset]
    return boundaries


def _records(units: UnitRange, opened: Units) -> Iterator[tuple[int, int]]:
    """Yield offset and size of the records that units point at."""
    unit = struct.Struct(f">qi{units.unit_size - 12}x")
    number = units.first
    while number < units.stop:
        data = opened.read(number, min(_READ_UNITS, units.stop - number))
        data = data[: len(data) // units.unit_size * units.unit_size]
        if not data:
            return
        number += len(data) // units.unit_size
        yield from unit.iter_unpack(data)


def _opened(units: UnitRange) -> Units:
    return Units(units.path, file_size=units.file_size, unit_size=units.unit_size)
