"""Stretches of the log, and where to cut them between two records.

A cut lies where a unit of one of the largest queues points and a whole record is; where no unit
helps, as in a log without queues, the records are walked over from the last cut.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from itertools import islice, pairwise

from rmqstore.spark.files import is_local
from rmqstore.spark.layout import Layout
from rmqstore.spark.records import Log, LogFile, cuts
from rmqstore.spark.units import QueueFiles, Units

__all__ = ["Cutter", "Piece", "QueueRun", "Times"]

_GUIDES = 8
_PROBED_QUEUES = 64
_LIGHT_PREFIX = "%LMQ%"
"""Queues of such topics show records of other topics."""
_WALKED_BELOW = 64 << 10
"""Pieces of this size are cut exactly, at the cost of a look at every record."""
_REMOTE_WALK_MAX = 64 << 20


@dataclass(frozen=True, slots=True)
class QueueRun:
    """Units of one queue, by their numbers in [*first*, *stop*)."""

    topic: str
    queue_id: int
    path: str
    file_size: int
    first: int
    stop: int
    unit_size: int


@dataclass(frozen=True, slots=True)
class Piece:
    """A stretch of one file, and how many bytes of it a task would read."""

    file: LogFile
    start: int
    stop: int
    weight: int
    queues: tuple[QueueRun, ...] | None = None
    """Where the records are, None for all."""

    @classmethod
    def plain(cls, file: LogFile, start: int, stop: int) -> Piece:
        """Return a stretch all of which is read."""
        return cls(file, start, stop, stop - start)


_Guide = tuple[QueueFiles, Units, int]
"""A queue, its open units, and the first that points into the stretch to be cut."""


class Times:
    """Tells from the store timestamps of single records what cannot lie in a range of time.

    Timestamps follow the writer's clock, which may step back anywhere in the log. A few records say
    nothing about those between them, unless the largest step is known.
    """

    def __init__(self, layout: Layout, log: Log, *, max_step_ms: int | None) -> None:
        """Without *max_step_ms* nothing is looked at, and everything may lie in any range."""
        self._max_step_ms = max_step_ms
        self._by_start: dict[int, tuple[int, int]] = {}
        if max_step_ms is None:
            return
        known = []
        for file in layout.files:
            record = log.record(file.start) if file.start < layout.end else None
            if record is not None:
                known.append((file.start, record.store_timestamp))
        times = [time for _, time in known]
        if all(before <= after + max_step_ms for before, after in pairwise(times)):
            for (start, first), following in zip(known, [*times[1:], 2**63 - 1], strict=True):
                self._by_start[start] = (first, following)

    def of_file(self, file: LogFile) -> tuple[int, int]:
        """Return the store timestamps of the file's first record and of the next file's; the
        widest range where they are not known."""
        return self._by_start.get(file.start, (-(2**63), 2**63 - 1))

    def may_overlap(self, first: int, following: int, begin_ms: int, end_ms: int) -> bool:
        """Return whether records between one stored at *first* and one at *following* may have
        been stored in [*begin_ms*, *end_ms*)."""
        step_ms = self._max_step_ms
        return step_ms is None or (following + step_ms >= begin_ms and first - step_ms < end_ms)


class Cutter:
    """Cuts stretches of one log."""

    def __init__(self, layout: Layout, log: Log, times: Times) -> None:
        self._log = log
        self._times = times
        self._is_local = is_local(layout.root)
        self._queues = sorted(
            (
                queue
                for queue in layout.queues or ()
                if queue.topic not in layout.doubtful and not queue.topic.startswith(_LIGHT_PREFIX)
            ),
            key=lambda queue: queue.start_unit - queue.end_unit,
        )

    def plain(self, piece: Piece, *, size: int, begin_ms: int, end_ms: int) -> Iterator[Piece]:
        """Yield the parts of *piece* of about *size* bytes that may hold records stored in
        [*begin_ms*, *end_ms*)."""
        first, following = self._times.of_file(piece.file)
        borders = [
            (piece.start, first),
            *(self._cuts(piece, size) if piece.stop - piece.start > size else ()),
            (piece.stop, following),
        ]
        for (start, time), (stop, later) in pairwise(borders):
            if self._times.may_overlap(time, later, begin_ms, end_ms):
                yield Piece.plain(piece.file, start, stop)

    def _cuts(self, piece: Piece, size: int) -> list[tuple[int, int]]:
        """Return physical offsets and store timestamps of the records to cut before."""
        found: list[tuple[int, int]] = []
        count = -(-(piece.stop - piece.start) // size)
        step = (piece.stop - piece.start) / count
        at = piece.start
        if size >= _WALKED_BELOW:
            with ExitStack() as stack:
                guides = self._guides(piece, stack)
                for number in range(1, count):
                    wanted = piece.start + int(number * step)
                    cut = self._guided(guides, wanted, min(wanted + int(step / 2), piece.stop))
                    if cut is None:
                        break
                    if cut[0] > at:
                        found.append(cut)
                        at = cut[0]
                else:
                    return found
        if self._is_local or piece.stop - at <= _REMOTE_WALK_MAX:
            found += cuts(piece.file, at, piece.stop, size=size)
        return found

    def _guides(self, piece: Piece, stack: ExitStack) -> list[_Guide]:
        """Return some of the largest queues with units that point into *piece*."""
        guides: list[_Guide] = []
        near = (queue for queue in self._queues if queue.log_end > piece.start)
        for queue in islice(near, _PROBED_QUEUES):
            units = stack.enter_context(Units.of(queue))
            first = units.place(queue.start_unit, queue.end_unit, piece.start)
            if first < queue.end_unit and units.unit(first).offset < piece.stop:
                guides.append((queue, units, first))
                if len(guides) == _GUIDES:
                    break
        return guides

    def _guided(self, guides: Sequence[_Guide], low: int, high: int) -> tuple[int, int] | None:
        """Return a record in [*low*, *high*) that a unit points at, the first of those known."""
        candidates = []
        for queue, units, first in guides:
            number = units.place(first, queue.end_unit, low)
            if number < queue.end_unit:
                unit = units.unit(number)
                if low <= unit.offset < high:
                    candidates.append((unit.offset, unit, queue))
        for offset, unit, queue in sorted(candidates, key=lambda each: each[0]):
            record = self._log.record(offset, size=unit.size)
            if (
                record is not None
                and record.size == unit.size
                and record.topic == queue.topic.encode()
                and record.queue_id == queue.queue_id
                and (queue.is_batch or record.queue_offset == unit.queue_offset)
            ):
                return offset, record.store_timestamp
        return None
