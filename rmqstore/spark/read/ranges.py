"""The intervals of a read, from what is wanted to what a task reads. One word for each:

    QueueRange   messages of a queue, by queue offset and store time: what the options choose
    FileRange    bytes of one log file, by physical offset
    UnitRange    units of one queue, by number
    Split        a FileRange between two record boundaries, to be read whole, or where the units of
                 its UnitRanges point: what planning cuts and weighs
    Partition    the splits that one task reads
    window       bytes of a file that are in memory at once

A boundary is a physical offset where a record ends or begins. All intervals include their start and
exclude their stop. The other way round, a task of the writer stages a file, in chunks with a CRC
each (`rmqstore.spark.write`).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

from rmqstore.spark.read.layout import Layout
from rmqstore.spark.read.records import LogFile

__all__ = ["FileRange", "Partition", "QueueRange", "Split", "UnitRange"]


class QueueRange(NamedTuple):
    """Messages of a queue, or with queue id -1 of all queues that no other range of the topic
    names."""

    queue_id: int
    start: int
    """First queue offset."""
    stop: int
    begin_ms: int
    """First store timestamp."""
    end_ms: int


class FileRange(NamedTuple):
    """Bytes of one file, between two physical offsets."""

    file: LogFile
    start: int
    stop: int


@dataclass(frozen=True, slots=True)
class UnitRange:
    """Units of one queue, by their numbers in [*first*, *stop*)."""

    topic: str
    queue_id: int
    path: str
    file_size: int
    first: int
    stop: int
    unit_size: int


@dataclass(frozen=True, slots=True)
class Split:
    """The records of one file that begin in [*start*, *stop*)."""

    store: str
    """Name of the layout."""
    file: LogFile
    start: int
    stop: int
    log_end: int
    """No record reaches past it."""
    units: tuple[UnitRange, ...] | None = None
    """Only what these units point at, with duplicates perhaps; None: every record."""
    weight: int = 0
    """About how many bytes a task reads of it."""

    @property
    def reach(self) -> int:
        """Where the last record that may be read ends at most."""
        return min(self.file.end, self.log_end)

    @classmethod
    def of(
        cls, layout: Layout, range_: FileRange, units: tuple[UnitRange, ...], *, weight: int
    ) -> Split:
        """Return a split that is read where *units* point."""
        log_end = max(layout.end, layout.readable_end)
        return cls(layout.name, *range_, log_end, units, min(weight, range_.stop - range_.start))

    @classmethod
    def whole(cls, layout: Layout, range_: FileRange) -> Split:
        """Return a split all of which is read."""
        log_end = max(layout.end, layout.readable_end)
        return cls(layout.name, *range_, log_end, weight=range_.stop - range_.start)


@dataclass(frozen=True, slots=True)
class Partition:
    """What one task reads, in ascending order."""

    splits: tuple[Split, ...]
