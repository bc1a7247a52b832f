"""File ranges of the log, and where to split them between two records.

A split begins where a unit of one of the largest queues points and a whole record is; where no unit
helps, as in a log without queues, the records are walked over from the last split.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import ExitStack
from itertools import islice, pairwise

from rmqstore.spark.files import is_local
from rmqstore.spark.read.layout import Layout
from rmqstore.spark.read.ranges import FileRange, Split
from rmqstore.spark.read.records import Log, LogFile, split_boundaries
from rmqstore.spark.read.units import QueueFiles, Units
from rmqstore.topic_names import LIGHT_PREFIX

__all__ = ["Splitter", "Times"]

_GUIDES = 8
_PROBED_QUEUES = 64
"""Queues of such topics show records of other topics."""
_WALKED_BELOW = 64 << 10
"""Splits smaller than this are cut exactly, at the cost of a look at every record."""
_REMOTE_WALK_MAX = 64 << 20


_Guide = tuple[QueueFiles, Units, int]
"""A queue, its open units, and the first that points into the range to be split."""


class Times:
    """Decides by the store timestamps of single records what cannot be in a range of time.

    Timestamps follow the writer's clock, which may step back anywhere in the log. Nothing
    follows from a few records for those between them, unless the largest step is known.
    """

    def __init__(self, layout: Layout, log: Log, *, max_step_ms: int | None) -> None:
        """Without *max_step_ms* nothing is read, and everything may be in any range."""
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


class Splitter:
    """Splits file ranges of one log."""

    def __init__(self, layout: Layout, log: Log, times: Times) -> None:
        self._layout = layout
        self._log = log
        self._times = times
        self._is_local = is_local(layout.root)
        self._queues = sorted(
            (
                queue
                for queue in layout.queues or ()
                if queue.topic not in layout.doubtful and not queue.topic.startswith(LIGHT_PREFIX)
            ),
            key=lambda queue: queue.start_unit - queue.end_unit,
        )

    def splits(
        self, range_: FileRange, *, size: int, begin_ms: int, end_ms: int
    ) -> Iterator[Split]:
        """Yield the splits of *range_* of about *size* bytes that may hold records stored in
        [*begin_ms*, *end_ms*)."""
        first, following = self._times.of_file(range_.file)
        boundaries = [
            (range_.start, first),
            *(self._boundaries(range_, size) if range_.stop - range_.start > size else ()),
            (range_.stop, following),
        ]
        for (start, time), (stop, later) in pairwise(boundaries):
            if self._times.may_overlap(time, later, begin_ms, end_ms):
                yield Split.whole(self._layout, FileRange(range_.file, start, stop))

    def _boundaries(self, range_: FileRange, size: int) -> list[tuple[int, int]]:
        """Return physical offsets and store timestamps of the records to split before."""
        found: list[tuple[int, int]] = []
        count = -(-(range_.stop - range_.start) // size)
        step = (range_.stop - range_.start) / count
        at = range_.start

        if size >= _WALKED_BELOW:
            with ExitStack() as stack:
                guides = self._guides(range_, stack)
                for number in range(1, count):
                    wanted = range_.start + int(number * step)
                    cut = self._guided(guides, wanted, min(wanted + int(step / 2), range_.stop))
                    if cut is None:
                        break
                    if cut[0] > at:
                        found.append(cut)
                        at = cut[0]
                else:
                    return found

        if self._is_local or range_.stop - at <= _REMOTE_WALK_MAX:
            found += split_boundaries(range_.file, at, range_.stop, size=size)
        return found

    def _guides(self, range_: FileRange, stack: ExitStack) -> list[_Guide]:
        """Return some of the largest queues with units that point into *range_*."""
        guides: list[_Guide] = []
        near = (queue for queue in self._queues if queue.log_end > range_.start)
        for queue in islice(near, _PROBED_QUEUES):
            units = stack.enter_context(Units.of(queue))
            first = units.first_at(queue.start_unit, queue.end_unit, range_.start)
            if first < queue.end_unit and units.unit(first).offset < range_.stop:
                guides.append((queue, units, first))
                if len(guides) == _GUIDES:
                    break
        return guides

    def _guided(self, guides: Sequence[_Guide], low: int, high: int) -> tuple[int, int] | None:
        """Return a record in [*low*, *high*) that a unit points at, the first of those known."""

        candidates = []
        for queue, units, first in guides:
            number = units.first_at(first, queue.end_unit, low)
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
