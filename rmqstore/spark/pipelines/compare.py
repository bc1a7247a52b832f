"""Which byte ranges of two replicas differ, and whether that is divergence or damage.

First the bytes are compared, range by range, at the speed of memory. Only where they differ are the
records of both sides looked at: a range is reported by whole records if it has any. Stores that
no single host can read are compared by the hashes of their ranges, joined by place.

A difference at or after the place where the epochs of the two part is divergence: the sides were
written by different masters from there on. Elsewhere it is damage.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import astuple, dataclass
from itertools import pairwise
from typing import TYPE_CHECKING, Any, Literal

from rmqstore.epochs import common_end
from rmqstore.errors import ArgumentError
from rmqstore.spark.pipelines import work
from rmqstore.spark.pipelines.differences import (
    HASH_SIZE,
    HASH_WINDOW,
    Difference,
    LogBytes,
    Mark,
    RangePair,
    difference,
    differences_in,
    differing_windows,
    digest,
    filler,
    marks,
    merged,
    overlapping,
)
from rmqstore.spark.pipelines.report import Report, bytes_text
from rmqstore.spark.read.layout import Layout, LogFile

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql import SparkSession

__all__ = ["Comparison", "Difference", "compare"]

RANGE = 32 << 20
"""Bytes of the log that one task compares, at most."""

_WAYS = ("bytes", "crc32", "blake2b")
_BATCH_ROWS = 4096

_WINDOWS = work.Table(start="BIGINT", stop="BIGINT")
_HASHES = work.Table(start="BIGINT", stop="BIGINT", digest="BINARY")
_MARKS = work.Table(
    region="BIGINT", offset="BIGINT", size="BIGINT", state="STRING", digest="BINARY"
)
_DIFFERENCES = work.Table(
    start="BIGINT",
    stop="BIGINT",
    first="BIGINT",
    kind="STRING",
    records_a="BIGINT",
    records_b="BIGINT",
    state_a="STRING",
    state_b="STRING",
)


@dataclass(frozen=True, slots=True)
class Comparison(Report):
    """What two replicas have in common and what they have not."""

    a: str
    b: str
    start: int
    end: int
    """The part of the log that both have and may be read."""

    end_a: int
    end_b: int
    boundary: int | None
    """End offset of the equal part according to their epochs; None if that is everything."""

    differences: tuple[Difference, ...]

    @property
    def is_sound(self) -> bool:
        """Whether all records that both have are the same."""
        return all(each.kind == "filler" for each in self.differences)

    def lines(self) -> Iterator[str]:
        """Yield the differences and a verdict."""
        yield from map(str, self.differences)
        for side, own, other in (("A", self.end_a, self.end_b), ("B", self.end_b, self.end_a)):
            if own < other:
                yield f"note {side} lacks the last {bytes_text(other - own)}"
        if self.boundary is not None:
            yield f"note the epochs of both sides part at {self.boundary}"
        differing = sum(each.stop - each.start for each in self.differences)
        verdict = f"{bytes_text(differing)} differ" if differing else "no difference"
        yield f"{self.a}, {self.b}: {verdict} in {self.end - self.start} bytes compared, " + (
            f"from {self.start} to {self.end}"
        )

    def as_json(self) -> Iterator[dict[str, Any]]:
        """Yield a line for each difference and a summary."""
        yield from (each.as_json() for each in self.differences)
        yield {
            "type": "summary",
            "a": self.a,
            "b": self.b,
            "sound": self.is_sound,
            "startOffset": self.start,
            "endOffset": self.end,
            "endOffsetA": self.end_a,
            "endOffsetB": self.end_b,
            "epochBorder": self.boundary,
            "differences": len(self.differences),
            "bytesDiffering": sum(each.stop - each.start for each in self.differences),
        }


def compare(
    spark: SparkSession,
    a: str,
    b: str,
    *,
    up_to: Literal["confirm", "max"] = "confirm",
    by: Literal["bytes", "crc32", "blake2b"] = "bytes",
    progress: work.Progress | None = None,
) -> Comparison:
    """Return where the stores at *a* and *b* differ, up to the smaller of their readable ends.

    With *by* "bytes" each task reads both sides. "crc32" and "blake2b" read each side on its own
    and bring the hashes together, so that no task needs to read both. *up_to* "max" also compares
    what is not confirmed. Raises NotFoundError where there is no log, ArgumentError when the two
    have no part of it in common.
    """
    if by not in _WAYS:
        raise ArgumentError(f"by is {by!r}; give one of {', '.join(_WAYS)}")

    sides = tuple(Layout.of(path, up_to=up_to) for path in (a, b))
    start = max(side.start for side in sides)
    end = min(side.readable_end for side in sides)

    if start > end:
        ranges = " and ".join(f"{each.start} to {each.readable_end}" for each in sides)
        raise ArgumentError(
            f"{a} and {b} have no part of the log in common: they hold {ranges}; "
            "compare replicas of one log"
        )

    boundary = epoch_boundary(sides[0], sides[1])
    pairs = pairs_of(sides, start, end)
    if by == "bytes":
        found = _by_bytes(spark, sides, pairs, boundary, progress)
    else:
        found = _by_hash(spark, sides, pairs, boundary, by, progress)

    return Comparison(
        a,
        b,
        start,
        end,
        sides[0].readable_end,
        sides[1].readable_end,
        boundary,
        tuple(merged(sorted(found, key=lambda each: (each.start, each.stop)))),
    )


def epoch_boundary(a: Layout, b: Layout) -> int | None:
    """Return the physical offset up to which two replicas are equal according to their epochs.

    None if that is all that both have, and also if one side has no epochs, since nothing is known
    then.
    """
    if not a.epochs or not b.epochs:
        return None
    end = common_end(a.epochs, b.epochs, our_end=a.end, their_end=b.end)
    return None if end >= min(a.end, b.end) else max(end, 0)


def pairs_of(sides: Sequence[Layout], start: int, end: int) -> list[RangePair]:
    """Cut [start, end) where files begin, and then into ranges of the same size."""
    begins = (file.start for side in sides for file in side.files)
    boundaries = sorted({start, end, *(at for at in begins if start < at < end)})
    pairs = []
    for first, last in pairwise(boundaries):
        for at in range(first, last, RANGE):
            stop = min(at + RANGE, last)
            a, b = (overlapping(side, at, stop) for side in sides)
            pairs.append(RangePair(at, stop, a, b))
    return pairs


def _windows_task(pair: RangePair) -> Iterator[pa.RecordBatch]:
    yield _WINDOWS.batch(differing_windows(pair))


@dataclass(frozen=True, slots=True)
class _Hashing:
    """A range of one side, to be hashed window by window."""

    start: int
    stop: int
    files: tuple[LogFile, ...]
    by: str


def _digests(task: _Hashing) -> bytes:
    window = bytearray(HASH_WINDOW)
    digests = bytearray()
    with LogBytes(task.files) as log:
        for at in range(task.start, task.stop, HASH_WINDOW):
            view = memoryview(window)[: min(HASH_WINDOW, task.stop - at)]
            log.read_into(at, view)
            digests += digest(view, task.by)
    return bytes(digests)


def _hash_task(task: _Hashing) -> Iterator[pa.RecordBatch]:
    yield _HASHES.batch([(task.start, task.stop, _digests(task))])


def _differences_task(pair: RangePair) -> Iterator[pa.RecordBatch]:
    yield _DIFFERENCES.batch(astuple(each) for each in differences_in(pair))


def _by_bytes(
    spark: SparkSession,
    sides: Sequence[Layout],
    pairs: Sequence[RangePair],
    boundary: int | None,
    progress: work.Progress | None,
) -> Iterable[Difference]:
    count = work.parallelism(spark, sum(pair.stop - pair.start for pair in pairs))
    frame = work.distribute(spark, pairs, _windows_task, _WINDOWS, partitions=count)
    windows = [(row.start, row.stop) for row in work.collect(frame, progress)]
    regions = regions_of(sides, windows, boundary)
    if not regions:
        return ()
    frame = work.distribute(spark, regions, _differences_task, _DIFFERENCES)
    return [Difference(**row.asDict()) for row in work.collect(frame, progress)]


def regions_of(
    sides: Sequence[Layout], windows: Iterable[tuple[int, int]], boundary: int | None
) -> list[RangePair]:
    """Return the ranges to look at record by record: neighbouring windows, not too many in one."""
    regions: list[RangePair] = []
    for start, stop in sorted(windows):
        before = regions[-1] if regions and regions[-1].stop == start else None
        if before is not None and stop - before.start <= RANGE:
            start = before.start
            regions.pop()
        a, b = (overlapping(side, start, stop) for side in sides)
        floor = regions[-1].stop if regions else 0
        regions.append(RangePair(start, stop, a, b, boundary, floor))
    return regions


def _by_hash(
    spark: SparkSession,
    sides: Sequence[Layout],
    pairs: Sequence[RangePair],
    boundary: int | None,
    by: str,
    progress: work.Progress | None,
) -> Iterable[Difference]:
    count = work.parallelism(spark, sum(pair.stop - pair.start for pair in pairs))
    a, b = (
        work.distribute(
            spark,
            [_Hashing(each.start, each.stop, own, by) for each, own in ranges],
            _hash_task,
            _HASHES,
            partitions=count,
        )
        for ranges in (
            [(pair, pair.a) for pair in pairs],
            [(pair, pair.b) for pair in pairs],
        )
    )

    joined = a.alias("a").join(b.alias("b"), "start", "full_outer")
    rows = work.collect(
        joined.where("NOT (a.digest <=> b.digest)").select(
            "start", "a.stop", "a.digest", b["digest"].alias("other")
        ),
        progress,
    )

    size = 4 if by == "crc32" else HASH_SIZE
    windows = [
        window
        for row in rows
        for window in _unequal(row.start, row.stop, bytes(row.digest), bytes(row.other), size)
    ]

    regions = regions_of(sides, windows, boundary)
    return _by_marks(spark, regions, boundary, progress) if regions else ()


def _unequal(start: int, stop: int, a: bytes, b: bytes, size: int) -> Iterator[tuple[int, int]]:
    for number, at in enumerate(range(start, stop, HASH_WINDOW)):
        place = slice(number * size, (number + 1) * size)
        if a[place] != b[place]:
            yield at, min(at + HASH_WINDOW, stop)


@dataclass(frozen=True, slots=True)
class _Marking:
    """A range of one side whose records are to be reported."""

    number: int
    start: int
    stop: int
    files: tuple[LogFile, ...]


def _marks_task(task: _Marking) -> Iterator[pa.RecordBatch]:
    found = marks(task.files, task.start, task.stop)
    for rows in work.batched(found, _BATCH_ROWS):
        yield _MARKS.batch((task.number, *astuple(each)) for each in rows)


def _by_marks(
    spark: SparkSession,
    regions: Sequence[RangePair],
    boundary: int | None,
    progress: work.Progress | None,
) -> Iterable[Difference]:
    a, b = (
        work.distribute(
            spark,
            [
                _Marking(number, each.start, each.stop, own)
                for number, (each, own) in enumerate(ranges)
            ],
            _marks_task,
            _MARKS,
        )
        for ranges in (
            [(region, region.a) for region in regions],
            [(region, region.b) for region in regions],
        )
    )
    keys = ["region", "offset"]
    same = "a.size <=> b.size AND a.state <=> b.state AND a.digest <=> b.digest"
    joined = a.alias("a").join(b.alias("b"), keys, "full_outer").where(f"NOT ({same})")
    columns = [f"{side}.{name} AS {name}_{side}" for side in "ab" for name in ("size", "state")]
    ordered = joined.selectExpr(*keys, *columns).orderBy(*keys)
    seen: set[int] = set()

    def answer() -> Iterator[Difference]:
        for row in ordered.toLocalIterator():
            seen.add(row.region)
            if row.offset < regions[row.region].floor:
                continue
            a, b = (
                None if state is None else Mark(row.offset, size, state, b"")
                for size, state in ((row.size_a, row.state_a), (row.size_b, row.state_b))
            )
            yield difference(a, b, boundary)

    found = list(work.watched(spark, lambda: list(merged(answer())), progress))
    fillers = [filler(each) for number, each in enumerate(regions) if number not in seen]
    return found + fillers
