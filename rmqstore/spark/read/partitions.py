"""Which splits of which files each task reads; `rmqstore.spark.read.ranges` has the terms.

Without topics, the log is split at record boundaries into parts of about equal size. With
topics whose queues exist, only the records that their units point at are read, and the log after
the last unit as without topics. Both ways give the same rows.
"""

from __future__ import annotations

import logging
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

from rmqstore.errors import NotFoundError, OffsetOutOfRange
from rmqstore.spark.options import Options
from rmqstore.spark.read.absent import check_topics
from rmqstore.spark.read.conditions import EVERYTHING, Conditions, Interval
from rmqstore.spark.read.coverage import covers
from rmqstore.spark.read.layout import Layout, QueueFiles
from rmqstore.spark.read.queue_ranges import narrowed, range_of, ranges_of
from rmqstore.spark.read.queue_splits import WantedUnits, splits_of, wanted_bytes
from rmqstore.spark.read.ranges import FileRange, Partition, QueueRange, Split
from rmqstore.spark.read.records import Log
from rmqstore.spark.read.splitting import Splitter, Times
from rmqstore.spark.read.units import Units

__all__ = ["Plan", "plan"]

_SPARSE = 0.5
"""Up to this share of the log, reading a topic by its queues costs less than reading everything."""
_NAMED_MAX = 10
_EVER = -(2**63), 2**63 - 1

_log = logging.getLogger("rmqstore.spark")


@dataclass(frozen=True, slots=True)
class Plan:
    """All that a query reads. A record belongs to exactly one partition."""

    options: Options
    partitions: tuple[Partition, ...]
    expired: tuple[str, ...] = ()
    """Descriptions of requested messages that have expired."""


def plan(
    layouts: Sequence[Layout],
    options: Options,
    *,
    start: Mapping[str, int] | None = None,
    stop: Mapping[str, int] | None = None,
    conditions: Conditions = EVERYTHING,
) -> Plan:
    """Return the partitions for reading the stores by *options*.

    *start* and *stop* are record boundaries by name of store. A store with a start continues an
    earlier query, and its starting options no longer count. With a mapping, even an empty one,
    topics may be missing at first. *conditions* narrow what is read and are no reason for an
    error; a reader has to apply them as well. Raises OffsetOutOfRange for bounds that no queue or
    log has (any longer) and NotFoundError for files that are missing in between; both become notes
    with `fail_on_data_loss` off. Raises NotFoundError, too, for topics that are not there and for
    queues without any message since the requested time.
    """
    if start is None:
        check_topics(layouts, options)

    plans = [
        _StorePlan(
            layout,
            options,
            conditions,
            start=(start or {}).get(layout.name),
            stop=(stop or {}).get(layout.name),
        )
        for layout in _distinct(layouts)
    ]

    total = sum(each.bytes for each in plans)
    size = options.max_partition_bytes
    if options.min_partitions is not None:
        size = max(1, min(size, total // options.min_partitions))

    splits = [split for each in plans for split in each.splits(size)]
    notes = tuple(note for each in plans for note in each.notes)
    for note in notes:
        _log.warning("data loss: %s", note)

    return Plan(options, tuple(_packed(splits, size)), notes)


class _StorePlan:
    """The part of one store in a plan."""

    def __init__(
        self,
        layout: Layout,
        options: Options,
        conditions: Conditions,
        *,
        start: int | None,
        stop: int | None,
    ) -> None:
        self.notes: list[str] = []
        self._layout = layout
        self._options = options
        self._conditions = conditions

        self._goes_on = start is not None
        self._start = max(layout.start, layout.start if start is None else start)
        self._stop = min(layout.readable_end, layout.readable_end if stop is None else stop)

        if start is not None and start < layout.start and start < self._stop:
            self._lose(
                f"{layout.root}: physical offset {start} was deleted, the log begins at "
                f"{layout.start}",
                (layout.start, layout.readable_end, layout.start),
            )

        self._ranges = self._found_ranges()
        self._queues, self._queues_end = self._chosen_queues()

        scanned = sum(
            stop - max(start, self._queues_end)
            for _, start, stop in self._ranges
            if stop > self._queues_end
        )
        self.bytes = wanted_bytes(self._queues) + scanned

    def splits(self, size: int) -> list[Split]:
        """Return what to read, in splits of about *size* bytes."""
        layout, options = self._layout, self._options
        begin_ms = max(options.begin_ms, self._conditions.store_ms[0])
        end_ms = min(options.end_ms, self._conditions.store_ms[1])
        is_timed = _is_timed(options) or self._conditions.is_timed
        max_step_ms = options.max_clock_step_ms if is_timed else None

        by_queue = [
            FileRange(file, start, min(stop, self._queues_end))
            for file, start, stop in self._ranges
            if start < self._queues_end
        ]
        by_log = [
            FileRange(file, max(start, self._queues_end), stop)
            for file, start, stop in self._ranges
            if stop > self._queues_end
        ]

        if not self._ranges or self._conditions.excludes_all:
            return []

        with Log(layout.files) as log:
            times = Times(layout, log, max_step_ms=max_step_ms)
            splits = splits_of(layout, self._queues, by_queue, times, size=size)
            splitter = Splitter(layout, log, times)
            for each in by_log:
                if times.may_overlap(*times.of_file(each.file), begin_ms, end_ms):
                    splits += splitter.splits(each, size=size, begin_ms=begin_ms, end_ms=end_ms)
        return list(_within(splits, self._conditions.physical_offsets))

    def _lose(self, text: str, bounds: tuple[int, int, int] | None = None) -> None:
        """Raise an error about something that is gone, or note it where that is accepted.

        *bounds* are start, end and the nearest offset, where it is about an offset.
        """
        if not self._options.fail_on_data_loss:
            self.notes.append(text)
            return
        text += "; with the option failOnDataLoss false, what is left is read"
        if bounds is None:
            raise NotFoundError(text)
        start, end, nearest = bounds
        raise OffsetOutOfRange(text, start=start, end=end, nearest=nearest)

    def _found_ranges(self) -> list[FileRange]:
        """Return the parts of files to be read; what no file holds is lost."""
        ranges: list[FileRange] = []
        at = self._start
        for file in self._layout.files:
            if file.end <= self._start or file.start >= self._stop:
                continue
            if file.start > at:
                self._lose_gap(at, file.start)
            ranges.append(FileRange(file, max(file.start, self._start), min(file.end, self._stop)))
            at = file.end
        if at < self._stop:
            self._lose_gap(at, self._stop)
        return ranges

    def _lose_gap(self, start: int, stop: int) -> None:
        files = self._layout.files
        before = max((each.path for each in files if each.end <= start), default="nothing")
        after = min((each.path for each in files if each.start >= stop), default="nothing")
        self._lose(
            f"{self._layout.root}: no file holds the physical offsets {start} to {stop}, between "
            f"{before} and {after}; name all folders of a log that is in several in the option "
            "storePathCommitLog"
        )

    def _chosen_queues(self) -> tuple[list[WantedUnits], int]:
        """Return the queues to read by, and the end of the log up to which they are complete."""
        layout, options = self._layout, self._options
        if layout.queues is None:
            return [], self._start
        if not options.by_topic:
            return self._queues_of_conditions(layout.queues)

        wanted = [
            (queue, range_)
            for queue in layout.queues
            if (range_ := range_of(options, queue.topic, queue.queue_id)) is not None
        ]

        if not self._goes_on:
            for queue, range_ in wanted:
                self._check_bounds(queue, range_)
            self._check_times(wanted)

        end = min(max(layout.dispatched_end, self._start), self._stop)
        if any(ranges_of(options, topic) for topic in layout.doubtful):
            return [], self._start

        chosen = [
            WantedUnits.of(queue, narrowed(range_, self._conditions))
            for queue, range_ in wanted
            if _may_have(queue, range_, self._conditions)
        ]
        if wanted_bytes(chosen) > _SPARSE * (end - self._start):
            return [], self._start

        return chosen, end

    def _queues_of_conditions(self, queues: Sequence[QueueFiles]) -> tuple[list[WantedUnits], int]:
        """Return the queues of the topics that conditions name, where these topics are a small part
        of the log and no record of it is outside of all queues."""
        layout, conditions = self._layout, self._conditions
        nothing: tuple[list[WantedUnits], int] = [], self._start
        if conditions.topics is None:
            return nothing

        chosen = [
            # A unit's number need not be the queue offset of its record.
            WantedUnits.of(queue, QueueRange(queue.queue_id, *_EVER, *conditions.store_ms))
            for queue in queues
            if queue.topic in conditions.topics
            and (conditions.queues is None or queue.queue_id in conditions.queues)
        ]
        end = min(max(layout.dispatched_end, self._start), self._stop)
        is_sparse = wanted_bytes(chosen) <= _SPARSE * (end - self._start)
        return (chosen, end) if is_sparse and covers(layout, end) else nothing

    def _check_bounds(self, queue: QueueFiles, range_: QueueRange) -> None:
        layout = self._layout
        if 0 <= range_.start < queue.start:
            self._lose_offset("startingOffsets", queue, range_.start)
        if layout.dispatched_end < layout.readable_end:
            return  # there may be more messages than the queue has
        if queue.end < range_.start < 2**63 - 1:
            self._lose_offset("startingOffsets", queue, range_.start)
        if queue.end < range_.stop < 2**63 - 1:
            self._lose_offset("endingOffsets", queue, range_.stop)

    def _lose_offset(self, option: str, queue: QueueFiles, offset: int) -> None:
        self._lose(
            f"{self._layout.root}: {option} names offset {offset} of {queue.topic}/"
            f"{queue.queue_id}, which has the offsets {queue.start} to {queue.end}",
            (queue.start, queue.end, queue.start if offset < queue.start else queue.end),
        )

    def _check_times(self, wanted: Sequence[tuple[QueueFiles, QueueRange]]) -> None:
        """Raise NotFoundError for queues whose last message is older than the requested time."""
        layout, options = self._layout, self._options

        timed = [(queue, range_) for queue, range_ in wanted if range_.begin_ms > -(2**63)]
        if options.starting_strategy != "error" or not timed:
            return
        if layout.dispatched_end < layout.readable_end:
            return  # what is not in the queues yet may be younger

        late = []
        with Log(layout.files) as log:
            for queue, range_ in timed:
                newest = _newest_ms(queue, log)
                if newest is not None and newest < range_.begin_ms:
                    late.append(f"{queue.topic}/{queue.queue_id}")

        if late:
            named = ", ".join(late[:_NAMED_MAX])
            more = f" and {len(late) - _NAMED_MAX} more" if len(late) > _NAMED_MAX else ""
            raise NotFoundError(
                f"{layout.root}: the last message of {named}{more} was stored before the starting "
                "timestamp; with the option startingOffsetsByTimestampStrategy latest, such queues "
                "are read without this error"
            )


def _newest_ms(queue: QueueFiles, log: Log) -> int | None:
    """Return the store timestamp of a queue's last message; the smallest int64 when it has none,
    None when it cannot be read."""
    if queue.start_unit == queue.end_unit:
        return -(2**63)
    with Units.of(queue) as units:
        unit = units.unit(queue.end_unit - 1)
    record = log.record(unit.offset, size=unit.size)
    return None if record is None else record.store_timestamp


def _may_have(queue: QueueFiles, range_: QueueRange, conditions: Conditions) -> bool:
    """Return whether *conditions* leave anything of the queue's range."""
    topics, queues = conditions.topics, conditions.queues
    left = narrowed(range_, conditions)
    return (
        (topics is None or queue.topic in topics)
        and (queues is None or queue.queue_id in queues)
        and left.start < left.stop
        and left.begin_ms < left.end_ms
    )


def _within(splits: Iterable[Split], offsets: Interval) -> Iterator[Split]:
    """Yield what may hold records that begin at these physical offsets."""
    first, stop = offsets
    for split in splits:
        if split.start < stop and split.stop > first:
            yield replace(split, stop=min(split.stop, stop))


def _is_timed(options: Options) -> bool:
    bounds = (
        options.starting_ms,
        options.ending_ms,
        options.starting_ms_by_queue,
        options.ending_ms_by_queue,
    )
    return any(bound is not None for bound in bounds)


def _distinct(layouts: Sequence[Layout]) -> list[Layout]:
    """Return layouts without those of a log that another one is of, too."""
    by_log = {layout.files[0].path if layout.files else layout.root: layout for layout in layouts}
    return list(by_log.values())


def _packed(splits: Sequence[Split], size: int) -> Iterator[Partition]:
    """Yield neighbouring splits together, up to *size* bytes to read."""
    group: list[Split] = []
    weight = 0
    for split in splits:
        if group and weight + split.weight > size:
            yield Partition(tuple(group))
            group, weight = [], 0
        if group and _continues(group[-1], split):
            group[-1] = _joined(group[-1], split)
        else:
            group.append(split)
        weight += split.weight
    if group:
        yield Partition(tuple(group))


def _continues(before: Split, split: Split) -> bool:
    return (
        before.file == split.file
        and before.stop == split.start
        and (before.units is None) == (split.units is None)
    )


def _joined(before: Split, split: Split) -> Split:
    joined = replace(before, stop=split.stop, weight=before.weight + split.weight)
    if before.units is None or split.units is None:
        return joined
    units = {each.path: each for each in before.units}
    for each in split.units:
        earlier = units.get(each.path)
        units[each.path] = each if earlier is None else replace(earlier, stop=each.stop)
    return replace(joined, units=tuple(units.values()))
