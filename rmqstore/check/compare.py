"""What two stores have in common: the bytes of their logs, the ends of their queues, epochs."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from rmqstore.check.epochs import effective, read_epoch_files
from rmqstore.check.log import Progress
from rmqstore.check.log_bytes import (
    Holder,
    LogBytes,
    first_difference,
    holder,
    written_end,
)
from rmqstore.epochs import EpochEntry, common_end
from rmqstore.store import Store

__all__ = ["Comparison", "Difference", "QueueEnds", "Side", "compare"]


@dataclass(frozen=True, slots=True)
class Side:
    """One of the two stores."""

    path: str
    start: int
    end: int
    """After the last whole record."""

    epochs: tuple[EpochEntry, ...]
    """Empty without an epoch file that can be read."""

    was_closed: bool
    written_end: int
    """After the last byte that is not zero; beyond *end*, a record is torn or half copied."""

    def epochs_of(self, start: int, stop: int) -> list[int]:
        """Return the epochs in which the bytes between two physical offsets were written."""
        stops = [*(each.start_offset for each in self.epochs[1:]), max(self.end, stop)]
        return [
            each.epoch
            for each, end in zip(self.epochs, stops, strict=False)
            if each.start_offset < stop and end > start
        ]


@dataclass(frozen=True, slots=True)
class Difference:
    """The first byte that differs, and the holder of this byte on either side."""

    offset: int
    a: Holder
    b: Holder

    @property
    def is_filler(self) -> bool:
        """Whether the bytes are after the last record of a file: no message is touched."""
        return self.a.kind == self.b.kind == "filler"


@dataclass(frozen=True, slots=True)
class QueueEnds:
    """A queue that does not end at the same offset in both; None: the queue is not there."""

    topic: str
    queue: int
    a: int | None
    b: int | None


@dataclass(frozen=True, slots=True)
class Comparison:
    """What two stores have in common and what not."""

    a: Side
    b: Side
    differences: tuple[Difference, ...]
    """Where the bytes of the common range part for good, if they do; places in what fills files up
    come before it."""

    queues: tuple[QueueEnds, ...]
    tail_difference: int | None = None
    """Where bytes after the nearer end, which are not a whole record there, differ from the other
    side; None where they are, or where there are none."""

    @property
    def common(self) -> tuple[int, int]:
        """The range of the log that both hold; empty when its end is not behind its start."""
        start = max(self.a.start, self.b.start)
        return start, max(start, min(self.a.end, self.b.end))

    @property
    def parting(self) -> Difference | None:
        """The one difference that is not filler: from there on records differ."""
        return next((each for each in self.differences if not each.is_filler), None)

    @property
    def is_same_range(self) -> bool:
        """Whether both logs begin and end at the same offsets."""
        return (self.a.start, self.a.end) == (self.b.start, self.b.end)

    @property
    def is_equal(self) -> bool:
        """Whether both hold the same log, to the byte, and queues that end alike."""
        return self.is_same_range and not self.differences and not self.queues

    @property
    def epochs_part_at(self) -> int | None:
        """Return up to where the two logs are the same by their epochs; None where one has none,
        -1 where they have no epoch in common."""
        if not (self.a.epochs and self.b.epochs):
            return None
        return common_end(self.a.epochs, self.b.epochs, our_end=self.a.end, their_end=self.b.end)

    def only_in(self, side: Side) -> Iterator[tuple[int, int]]:
        """Yield the ranges of the log that one *side* holds alone."""
        other = self.b if side is self.a else self.a
        if other.start >= other.end or other.end <= side.start or side.end <= other.start:
            if side.start < side.end:
                yield side.start, side.end
            return
        if side.start < other.start:
            yield side.start, other.start
        if other.end < side.end:
            yield other.end, side.end


def compare(a: Store, b: Store, *, progress: Progress | None = None) -> Comparison:
    """Return what two stores that are open read-only have in common and what not.

    The bytes of both logs are read in windows, from the first offset both have to the nearer end.
    Writers may be at work on both: what they add meanwhile is not compared. *progress* is called
    periodically with the bytes that are compared, and all there are.
    """
    sides = _side(a), _side(b)
    start = max(sides[0].start, sides[1].start)
    stop = min(sides[0].end, sides[1].end)
    with LogBytes(a) as left, LogBytes(b) as right:
        found = tuple(_differences((a, left), (b, right), start, stop, progress))
        tail = None
        if start < stop and all(each.is_filler for each in found):
            behind = min(sides[0].written_end, sides[1].written_end)
            tail = first_difference(left, right, stop, behind)
    return Comparison(*sides, found, tuple(_queues(a, b)), tail)


def _side(store: Store) -> Side:
    root = Path(store.path)
    file = effective(read_epoch_files(root))
    entries = file.entries if file is not None and file.fault is None else ()
    start = max(store.start_offset, 0)
    end = max(store.end_offset, start)
    return Side(
        store.path, start, end, entries, store.directory.was_closed, written_end(store, end)
    )


def _differences(
    a: tuple[Store, LogBytes],
    b: tuple[Store, LogBytes],
    start: int,
    stop: int,
    progress: Progress | None,
) -> Iterator[Difference]:
    def report(reached: int) -> None:
        if progress is not None:
            progress(reached - start, stop - start)

    at = start
    while at < stop:
        place = first_difference(a[1], b[1], at, stop, report=report)
        if place is None:
            return
        found = Difference(place, holder(a[0], place), holder(b[0], place))
        yield found
        if not found.is_filler or found.a.end != found.b.end:
            return
        at = found.a.end


def _queues(a: Store, b: Store) -> Iterator[QueueEnds]:
    left, right = _ends(a), _ends(b)
    for name in sorted(left.keys() | right.keys()):
        ends = left.get(name), right.get(name)
        if ends[0] != ends[1]:
            yield QueueEnds(*name, *ends)


def _ends(store: Store) -> dict[tuple[str, int], int]:
    # A queue whose messages were all cut off stays, empty, and is as good as none.
    return {(queue.topic, queue.number): end for queue in store.queues() if (end := queue.end) > 0}
