"""Two copies of a range of a log: where their bytes differ, and which records are there.

Nothing here needs Spark.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Iterator, Sequence
from contextlib import ExitStack, closing
from dataclasses import dataclass, replace
from typing import Any, Literal

from rmqstore._native import core
from rmqstore.check import log_bytes
from rmqstore.spark import files
from rmqstore.spark.pipelines import work
from rmqstore.spark.pipelines.report import Damage
from rmqstore.spark.read.layout import Layout, LogFile
from rmqstore.spark.read.ranges import Split

__all__ = [
    "HASH_SIZE",
    "HASH_WINDOW",
    "Difference",
    "LogBytes",
    "Mark",
    "RangePair",
    "difference",
    "differences_in",
    "differing_windows",
    "digest",
    "filler",
    "marks",
    "merged",
    "overlapping",
]

Kind = Literal["divergence", "damage", "filler"]

HASH_WINDOW = 1 << 20
"""Bytes of the log that share a hash."""

HASH_SIZE = 16

_SAMPLE = 256 << 10
"""Bytes of each side compared at once: both windows stay in the processor's cache."""

_REMOTE_SAMPLE = 8 << 20
"""The same where each read is a request."""

_RUN_UP = 8 << 20
"""How far before a range to look for the first record's start: longer than any record."""

_BLANK_SIZE = 8
_BATCH_ROWS = 4096
_BATCH_BYTES = 8 << 20


@dataclass(frozen=True, slots=True)
class Difference:
    """A range of the log that is not the same on both sides."""

    start: int
    stop: int
    first: int
    """Physical offset of the first byte that differs; -1 when only hashes were compared."""

    kind: Kind
    """"filler" is the space after the last record of a file: no message is touched by it."""

    records_a: int
    records_b: int
    """Whole records in the range, by side."""

    state_a: str
    state_b: str
    """"whole" where all bytes of the side are records, else "broken"."""

    def __str__(self) -> str:
        at = "" if self.first < 0 else f", first at {self.first}"
        return (
            f"{self.kind} {self.start} to {self.stop}: {self.stop - self.start} bytes differ{at}; "
            f"A {self.state_a}, {self.records_a} records; "
            f"B {self.state_b}, {self.records_b} records"
        )

    def as_json(self) -> dict[str, Any]:
        """Return the fields for `--json`."""
        return {
            "type": "difference",
            "kind": self.kind,
            "start": self.start,
            "stop": self.stop,
            "firstDifference": self.first,
            "recordsA": self.records_a,
            "recordsB": self.records_b,
            "stateA": self.state_a,
            "stateB": self.state_b,
        }


@dataclass(frozen=True, slots=True)
class RangePair:
    """A range of the log, and the files of both sides that hold it."""

    start: int
    stop: int
    a: tuple[LogFile, ...]
    b: tuple[LogFile, ...]
    boundary: int | None = None
    floor: int = 0
    """Differences that begin before this offset were reported with an earlier range."""


def overlapping(layout: Layout, start: int, stop: int) -> tuple[LogFile, ...]:
    """Return the files of *layout* that hold bytes between two physical offsets."""
    return tuple(
        file for file in layout.files if file.start < stop and file.start + file.size > start
    )


class LogBytes:
    """The bytes of a log by physical offset, in all of its files. A context manager."""

    def __init__(self, log_files: Sequence[LogFile]) -> None:
        self._files = log_files
        self._opened = ExitStack()
        self._data: dict[int, files.RangeFile] = {}

    def __enter__(self) -> LogBytes:
        return self

    def __exit__(self, *error: object) -> None:
        self._opened.close()

    def read_into(self, offset: int, view: memoryview) -> None:
        """Fill *view* with the bytes from *offset* on; zeros stand where no file has them."""
        end = 0
        for file in self._files:
            first = max(offset, file.start) - offset
            last = min(offset + len(view), file.start + file.size) - offset
            if first < last:
                view[end:first] = bytes(first - end)
                got = self._of(file).read_into(offset + first - file.start, view[first:last])
                end = first + got
        view[end:] = bytes(len(view) - end)

    def _of(self, file: LogFile) -> files.RangeFile:
        data = self._data.get(file.start)
        if data is None:
            data = self._opened.enter_context(files.open_file(file.path))
            self._data[file.start] = data
        return data


def differing_windows(pair: RangePair) -> Iterator[tuple[int, int]]:
    """Yield the windows of a range in which bytes differ."""
    for start, stop, _ in _windows(pair, pair.start, pair.stop):
        yield start, stop


def _windows(pair: RangePair, start: int, stop: int) -> Iterator[tuple[int, int, int]]:
    is_local = all(files.is_local(each.path) for each in (*pair.a, *pair.b))
    size = _SAMPLE if is_local else _REMOTE_SAMPLE
    with LogBytes(pair.a) as a, LogBytes(pair.b) as b:
        yield from log_bytes.differing_windows(a, b, start, stop, window_bytes=size)


def digest(data: bytes | memoryview, by: str) -> bytes:
    if by == "crc32":
        return core.crc32(data).to_bytes(4, "big")
    return hashlib.blake2b(data, digest_size=HASH_SIZE).digest()


@dataclass(frozen=True, slots=True)
class Mark:
    """A record, or bytes in the place of one, as one side has it."""

    offset: int
    size: int
    state: str
    """"whole", "broken", or "blank" for the head of what fills the rest of a file."""

    digest: bytes


def marks(log_files: Sequence[LogFile], start: int, stop: int) -> Iterator[Mark]:
    """Yield what one side has between two physical offsets, in the order of the log.

    A record across *start* or *stop* is reported whole.
    """
    for file in log_files:
        first, last = max(start, file.start), min(stop, file.start + file.size)
        if first < last:
            for each in _marks_in(file, first, last):
                if each.offset + each.size > first:
                    yield each


def _marks_in(file: LogFile, first: int, last: int) -> Iterator[Mark]:
    begin = max(file.start, first - _RUN_UP)
    selection = core.ArrowSelection(
        ("physical_offset", "size", "record"),
        batch_rows=_BATCH_ROWS,
        batch_bytes=_BATCH_BYTES,
        large_binary=False,
    )

    end = file.start + file.size
    split = Split("", file, begin, last, end, None)
    scan = core.SegmentScan(
        selection, start=begin, stop=last, file_end=end, check_crc=True, unwrap=False
    )

    with closing(scan):
        for each in work.walk(split, scan):
            if isinstance(each, Damage):
                # A run-up may begin within a record.
                at = max(each.start, first) if each.start == begin else each.start
                yield from _broken(file, at, min(each.stop, last))
            else:
                for offset, size, record in zip(
                    *(column.to_pylist() for column in each.columns), strict=True
                ):
                    yield Mark(offset, size, "whole", digest(record, "blake2b"))

        if scan.ending == "blank":
            yield Mark(scan.offset, _BLANK_SIZE, "blank", b"")


def _broken(file: LogFile, start: int, stop: int) -> Iterator[Mark]:
    if start >= stop:
        return
    state = hashlib.blake2b(digest_size=HASH_SIZE)
    with files.open_file(file.path) as data:
        for at in range(start, stop, HASH_WINDOW):
            state.update(data.read(at - file.start, min(HASH_WINDOW, stop - at)))
    yield Mark(start, stop - start, "broken", state.digest())


def differing(a: Iterable[Mark], b: Iterable[Mark], boundary: int | None) -> Iterator[Difference]:
    """Yield a difference for each place where two sides do not have the same."""
    left = {each.offset: each for each in a}
    right = {each.offset: each for each in b}
    for offset in sorted(left.keys() | right.keys()):
        pair = left.get(offset), right.get(offset)
        if pair[0] != pair[1]:
            yield difference(pair[0], pair[1], boundary)


def difference(a: Mark | None, b: Mark | None, boundary: int | None) -> Difference:
    """Return the description of an offset at which two sides differ; one of them may have
    nothing."""
    there = [each for each in (a, b) if each is not None]
    start = there[0].offset
    return Difference(
        start=start,
        stop=max(each.offset + each.size for each in there),
        first=-1,
        kind="divergence" if boundary is not None and start >= boundary else "damage",
        records_a=int(a is not None and a.state == "whole"),
        records_b=int(b is not None and b.state == "whole"),
        state_a=_state(a),
        state_b=_state(b),
    )


def _state(mark: Mark | None) -> str:
    if mark is None:
        return ""
    return "broken" if mark.state == "broken" else "whole"


def merged(differences: Iterable[Difference]) -> Iterator[Difference]:
    """Yield ascending differences with those taken together that touch and are alike."""
    last: Difference | None = None
    for each in differences:
        if last is not None and each.start <= last.stop and _are_alike(last, each):
            firsts = [found for found in (last.first, each.first) if found >= 0]
            last = Difference(
                start=last.start,
                stop=max(last.stop, each.stop),
                first=min(firsts, default=-1),
                kind=last.kind,
                records_a=last.records_a + each.records_a,
                records_b=last.records_b + each.records_b,
                state_a=last.state_a or each.state_a,
                state_b=last.state_b or each.state_b,
            )
            continue
        if last is not None:
            yield last
        last = each
    if last is not None:
        yield last


def _are_alike(a: Difference, b: Difference) -> bool:
    return (
        a.kind == b.kind
        and (a.state_a == b.state_a or not (a.state_a and b.state_a))
        and (a.state_b == b.state_b or not (a.state_b and b.state_b))
    )


def differences_in(pair: RangePair) -> Iterator[Difference]:
    """Yield the differing records of a range in which bytes differ."""
    sides = [list(marks(side, pair.start, pair.stop)) for side in (pair.a, pair.b)]
    found = list(differing(sides[0], sides[1], pair.boundary))
    if not found:
        found = [filler(pair)]
    for each in merged(each for each in found if each.start >= pair.floor):
        yield replace(each, first=_first_difference(pair, each))


def filler(pair: RangePair) -> Difference:
    """Return a difference in what no record holds."""
    return Difference(pair.start, pair.stop, -1, "filler", 0, 0, "whole", "whole")


def _first_difference(pair: RangePair, found: Difference) -> int:
    windows = _windows(pair, found.start, found.stop)
    return next((place for _, _, place in windows), -1)
