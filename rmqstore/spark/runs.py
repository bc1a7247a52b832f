"""Where the messages of chosen queues lie: runs of units, file by file of the log."""

from __future__ import annotations

import struct
from bisect import bisect_left
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import pairwise

from rmqstore.spark.choices import Range
from rmqstore.spark.pieces import Piece, QueueRun, Times
from rmqstore.spark.records import LogFile
from rmqstore.spark.units import QueueFiles, Units

__all__ = ["Chosen", "chosen_bytes", "pieces_of"]

_EXACT_BELOW = 64 << 10
_READ_UNITS = 4096

Stretch = tuple[LogFile, int, int]
"""A part of a file, between two physical offsets."""


@dataclass(frozen=True, slots=True)
class Chosen:
    """A queue and the units of it that may be wanted, about *unit_bytes* of log each."""

    queue: QueueFiles
    range: Range
    first: int
    stop: int
    unit_bytes: int

    @classmethod
    def of(cls, queue: QueueFiles, range_: Range) -> Chosen:
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


def chosen_bytes(queues: Sequence[Chosen]) -> int:
    """Return about how many bytes the records of the chosen units have."""
    return sum((each.stop - each.first) * each.unit_bytes for each in queues)


def pieces_of(
    queues: Sequence[Chosen], stretches: Sequence[Stretch], times: Times, *, size: int
) -> list[Piece]:
    """Return pieces of at most about *size* bytes for the units that point into *stretches*, which
    ascend. Stretches without any are left out."""
    by_stretch = _runs_by_stretch(queues, stretches, times)
    finer = [
        (file, low, high)
        for (file, start, stop), runs in zip(stretches, by_stretch, strict=True)
        for low, high in pairwise([start, *_cuts(start, stop, runs, size), stop])
    ]
    if len(finer) > len(stretches):
        by_stretch = _runs_by_stretch(queues, finer, times)
    return [
        Piece(
            file,
            start,
            stop,
            min(_weight(runs), stop - start),
            tuple(run for run, _ in runs),
        )
        for (file, start, stop), runs in zip(finer, by_stretch, strict=True)
        if runs
    ]


_Runs = list[tuple[QueueRun, int]]
"""Runs with the bytes of log to a unit."""


def _runs_by_stretch(
    queues: Sequence[Chosen], stretches: Sequence[Stretch], times: Times
) -> list[_Runs]:
    runs: list[_Runs] = [[] for _ in stretches]
    for chosen in queues:
        for number, first, stop in _split(chosen, stretches):
            span = times.of_file(stretches[number][0])
            if times.may_overlap(*span, chosen.range.begin_ms, chosen.range.end_ms):
                runs[number].append((_run(chosen.queue, first, stop), chosen.unit_bytes))
    return runs


def _run(queue: QueueFiles, first: int, stop: int) -> QueueRun:
    return QueueRun(
        queue.topic,
        queue.queue_id,
        queue.path,
        queue.file_size,
        first,
        stop,
        queue.unit_size,
    )


def _split(chosen: Chosen, stretches: Sequence[Stretch]) -> Iterator[tuple[int, int, int]]:
    """Yield the number of each stretch that units point into, and these units' numbers."""
    at, stop = chosen.first, chosen.stop
    if at >= stop:
        return
    with Units.of(chosen.queue) as units:
        head, tail = units.unit(at).offset, units.unit(stop - 1).offset
        place = _Places(units, at, stop) if len(stretches) > 1 else units.place
        for number, (_, low, high) in enumerate(stretches):
            if high <= head:
                continue
            if low > tail or at >= stop:
                return
            first = at if low <= head else place(at, stop, low)
            at = stop if high > tail else place(first, stop, high)
            if first < at:
                yield number, first, at


class _Places:
    """Looks units up by the places of their records, all of them in memory where they may be."""

    def __init__(self, units: Units, first: int, stop: int) -> None:
        self._units = units
        self._first = first
        self._places = units.places(first, stop)

    def __call__(self, low: int, high: int, physical_offset: int) -> int:
        """Return the first unit of [*low*, *high*) that points at or behind a place."""
        if self._places is None:
            return self._units.place(low, high, physical_offset)
        first = self._first
        return first + bisect_left(self._places, physical_offset, low - first, high - first)


def _weight(runs: _Runs) -> int:
    return sum((run.stop - run.first) * unit_bytes for run, unit_bytes in runs)


def _cuts(start: int, stop: int, runs: _Runs, size: int) -> list[int]:
    """Return places within a stretch that part its runs into pieces of *size* bytes."""
    count = -(-min(_weight(runs), stop - start) // size)
    if count <= 1:
        return []
    places = _exact_cuts(runs, size) if size < _EXACT_BELOW else _even_cuts(runs, count)
    return [place for place in places if start < place < stop]


def _even_cuts(runs: _Runs, count: int) -> list[int]:
    """Return places that part the longest run, and so about everything, into equal parts."""
    run, _ = max(runs, key=lambda each: (each[0].stop - each[0].first) * each[1])
    with _units_of(run) as units:
        length = run.stop - run.first
        numbers = sorted({run.first + length * part // count for part in range(1, count)})
        return sorted({units.unit(number).offset for number in numbers})


def _exact_cuts(runs: _Runs, size: int) -> list[int]:
    sizes: dict[int, int] = {}
    for run, _ in runs:
        with _units_of(run) as units:
            sizes.update(_records(run, units))
    places = []
    piece = 0
    for place in sorted(sizes):
        if piece and piece + sizes[place] > size:
            places.append(place)
            piece = 0
        piece += sizes[place]
    return places


def _records(run: QueueRun, units: Units) -> Iterator[tuple[int, int]]:
    """Yield place and size of the records that the units of a run point at."""
    unit = struct.Struct(f">qi{run.unit_size - 12}x")
    number = run.first
    while number < run.stop:
        data = units.read(number, min(_READ_UNITS, run.stop - number))
        data = data[: len(data) // run.unit_size * run.unit_size]
        if not data:
            return
        number += len(data) // run.unit_size
        yield from unit.iter_unpack(data)


def _units_of(run: QueueRun) -> Units:
    return Units(run.path, file_size=run.file_size, unit_size=run.unit_size)
