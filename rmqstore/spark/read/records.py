"""Single records, where they end and where to split between them, for planning on the driver.

All of it is the core's scan over a few bytes of a file, or over one file in windows; nothing is
mapped.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Iterator, Sequence
from contextlib import closing
from dataclasses import dataclass
from typing import Any, Self

from rmqstore._native import core
from rmqstore.spark.files import OpenFiles, RangeFile, open_file

__all__ = [
    "BLANK",
    "Fact",
    "Log",
    "LogFile",
    "Prefix",
    "Tail",
    "prefix_of",
    "split_boundaries",
    "tail_of",
]

BLANK = bytes.fromhex("cbd43194")
"""The magic of the blank record at the end of a file."""

_WINDOW_BYTES = 1 << 20
_ZEROS = bytes(_WINDOW_BYTES)
_GUESSED_RECORD_BYTES = 4096
_OPEN_FILES_MAX = 64
_BATCH_ROWS = 65_536
_LOOK_AHEAD_BYTES = 16 << 20
"""How far behind a place without a record the next one is looked for where all of the rest would be
too dear: longer than any record."""


_BLANK_ENDS_MAX = 4096
_blank_ends: OrderedDict[tuple[str, int, int], tuple[int, ...]] = OrderedDict()
"""Ranges, as path, start and stop, that were all zero, each with the state of its file then."""


@dataclass(frozen=True, slots=True)
class LogFile:
    """A file of the commit log; its first byte is at the physical offset *start*."""

    path: str
    start: int
    size: int

    @property
    def end(self) -> int:
        """The physical offset after its last byte."""
        return self.start + self.size


@dataclass(frozen=True, slots=True)
class Fact:
    """What planning needs of a record that is whole."""

    offset: int
    size: int
    topic: bytes
    queue_id: int
    queue_offset: int
    store_timestamp: int


class Log:
    """Reads single records of a commit log, with a few of its files open. Close it."""

    def __init__(self, files: Sequence[LogFile]) -> None:
        self._files = files
        self._open = OpenFiles(_OPEN_FILES_MAX)

    def file_of(self, offset: int) -> LogFile | None:
        """Return the file that holds the byte at a physical offset, None when none does."""
        low, high = 0, len(self._files)
        while low < high:
            middle = (low + high) // 2
            if self._files[middle].end <= offset:
                low = middle + 1
            else:
                high = middle
        if low < len(self._files) and self._files[low].start <= offset:
            return self._files[low]
        return None

    def record(self, offset: int, *, size: int = _GUESSED_RECORD_BYTES) -> Fact | None:
        """Return the record that begins at a physical offset, None when there is none, or not a
        whole one. *size* guesses how many bytes it has.

        Raises NotFoundError when its file is gone, DiskError where the system refuses.
        """
        file = self.file_of(offset)
        if file is None:
            return None

        data = self._open[file.path]
        scan = core.SegmentScan(
            None, start=offset, stop=offset + 1, file_end=file.end, check_crc=True, unwrap=False
        )

        with closing(scan):
            wanted = max(min(size, file.end - offset, _WINDOW_BYTES), 8)
            while (state := scan.summarize()) == "more":
                wanted = max(wanted, scan.needed)
                got = data.read(scan.offset - file.start, wanted)
                if len(got) < scan.needed:
                    return None
                scan.feed(got, scan.offset)
            facts = scan.summary() if state == "over" else []

        if not facts:
            return None
        topic, queue_id, _, _, byte_count, _, queue_offset, _, timestamp, *_ = facts[0]
        return Fact(offset, byte_count, topic, queue_id, queue_offset, timestamp)

    def raw(self, offset: int, size: int) -> bytes:
        """Return bytes of the log, fewer only where a file ends or is missing."""
        file = self.file_of(offset)
        return b"" if file is None else self._open[file.path].read(offset - file.start, size)

    def begins_at(self, offset: int) -> bool:
        """Return whether a record begins at a physical offset, or nothing but zeros, or a blank."""
        head = self.raw(offset, 8)
        if not head:
            return False
        return not head.strip(b"\0") or head[4:] == BLANK or self.record(offset) is not None

    def is_blank(self, file: LogFile) -> bool:
        """Return whether nothing was written where the file's first record belongs."""
        return not self._open[file.path].read(0, 8).strip(b"\0")

    def close(self) -> None:
        """Close the files."""
        self._open.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


@dataclass(frozen=True, slots=True)
class Tail:
    """How a file ends."""

    end: int
    """After the last whole record."""
    dirt_end: int
    """After the last byte that is neither of a record nor blank; *end* when there is none."""
    met_dirt: bool = False
    """Whether bytes that are not a record were passed or follow."""


def tail_of(file: LogFile, start: int, *, stop: int, was_closed: bool) -> Tail:
    """Return how the records from *start*, where one begins, to *stop* end.

    Of a log that was closed, everything that is not a record is dirt, and all of the file is
    looked through for records after it. A log in use ends at bytes that were never written,
    or shortly after a record that is being written.
    """
    stop = min(stop, file.end)
    if start >= stop:
        return Tail(start, start)
    with open_file(file.path) as data:
        feeder = _Feeder(data, file)
        scan = core.SegmentScan(
            None, start=start, stop=stop, file_end=stop, check_crc=True, unwrap=False
        )
        with closing(scan):
            met_dirt = False
            while True:
                state = scan.summarize()
                if state == "more" and feeder.feed(scan):
                    continue
                end = scan.offset
                if state == "over" and scan.ending != "unwritten":
                    return Tail(end, end, met_dirt)
                if state == "over" and not (
                    was_closed and _first_written(data, file, end, stop) is not None
                ):
                    return Tail(end, end, met_dirt)
                met_dirt = True
                looks_to = stop
                if not (was_closed and data.is_local):
                    looks_to = min(stop, end + _LOOK_AHEAD_BYTES)
                if state == "more" or not _finds_more(scan, feeder, looks_to):
                    return Tail(end, _written_end(data, file, end) if was_closed else end, met_dirt)


@dataclass(frozen=True, slots=True)
class Prefix:
    """The whole records from a place in a file on, up to the first bytes that are not one."""

    end: int
    last_timestamp: int
    """Store time of the last record, -1 without one."""
    next: int | None
    """Where the first whole record after those bytes begins, None when there is none."""
    has_bytes: bool
    """Whether some byte after *end* is not zero."""


def prefix_of(file: LogFile, start: int, *, stop: int) -> Prefix:
    """Return the whole records from *start*, where one begins, to *stop* or the first bytes that
    are not a record."""
    import pyarrow as pa

    last_timestamp = -1
    with open_file(file.path) as data:
        feeder = _Feeder(data, file)
        selection = core.ArrowSelection(
            ("store_timestamp",),
            batch_rows=_BATCH_ROWS,
            batch_bytes=_WINDOW_BYTES,
            large_binary=False,
        )
        scan = core.SegmentScan(
            selection, start=start, stop=stop, file_end=file.end, check_crc=True, unwrap=False
        )
        with closing(scan):
            state = "full"
            while state == "full" or (state == "more" and feeder.feed(scan)):
                state = scan.fill()
                batch = scan.take() if state != "more" else None
                if batch is not None and len(batch):
                    times = pa.record_batch(batch).column(0)
                    last_timestamp = times.cast(pa.int64())[-1].as_py()
            end = scan.offset
            if state == "over" and scan.ending != "unwritten":
                return Prefix(end, last_timestamp, None, has_bytes=False)
            has_bytes = _first_written(data, file, end, file.end) is not None
            is_followed = has_bytes and _finds_more(scan, feeder, file.end)
            return Prefix(end, last_timestamp, scan.offset if is_followed else None, has_bytes)


def split_boundaries(file: LogFile, start: int, stop: int, *, size: int) -> list[tuple[int, int]]:
    """Return the physical offset and store timestamp of records that part [*start*, *stop*) into
    splits of about *size* bytes, a record each when they are larger; found by a walk over all.

    Where bytes are not a record the walk ends: the rest is one split.
    """
    found = []
    begin = previous = start
    previous_timestamp = 0
    for offset, timestamp in _record_starts(file, start, stop):
        if offset - begin > size and previous > begin:
            found.append((previous, previous_timestamp))
            begin = previous
        previous, previous_timestamp = offset, timestamp
    if stop - begin > size and previous > begin:
        found.append((previous, previous_timestamp))
    return found


class _Feeder:
    """Hands a scan the bytes of its file, a window at a time."""

    def __init__(self, data: RangeFile, file: LogFile) -> None:
        self._data = data
        self._file = file
        self._window = bytearray(_WINDOW_BYTES)

    def feed(self, scan: core.SegmentScan) -> bool:
        """Hand over the bytes from the scan's offset on; False when the file lacks them."""
        at = scan.offset
        wanted = min(max(scan.needed, _WINDOW_BYTES), self._file.end - at)
        if len(self._window) < wanted:
            self._window = bytearray(wanted)
        view = memoryview(self._window)[: max(wanted, 0)]
        got = self._data.read_into(at - self._file.start, view)
        if got < scan.needed:
            return False
        scan.feed(view[:got], at)
        return True


def _finds_more(scan: core.SegmentScan, feeder: _Feeder, looks_to: int) -> bool:
    while (state := scan.resync()) == "more" and scan.offset < looks_to:
        if not feeder.feed(scan):
            return False
    return state == "found"


def _first_written(data: RangeFile, file: LogFile, start: int, stop: int) -> int | None:
    """Return where the first window begins that is not all zero, None when there is none.

    Zeros are read once for each state of the file. The state does not show each record that a
    running writer adds, but the first of these is at *start*, where the caller has just looked.
    """
    if not data.is_local:
        stop = min(stop, start + _LOOK_AHEAD_BYTES)
    range_, state = (file.path, start, stop), data.state()
    if state is not None and _blank_ends.get(range_) == state:
        return None

    at = data.next_data(start - file.start)
    while at is not None and file.start + at < stop:
        window = data.read(at, _WINDOW_BYTES)
        # A copy of a store may hold a gigabyte of zeros: these are compared, not stripped.
        if window != _ZEROS[: len(window)]:
            return file.start + at
        at = data.next_data(at + _WINDOW_BYTES)

    if state is not None:
        _blank_ends[range_] = state
        while len(_blank_ends) > _BLANK_ENDS_MAX:
            _blank_ends.popitem(last=False)
    return None


def _written_end(data: RangeFile, file: LogFile, start: int) -> int:
    """Return the end of the bytes from *start* on that are not zero, gaps of less than a window
    included."""
    end = start
    at: int | None = _first_written(data, file, start, file.end)
    while at is not None:
        end = at + len(data.read(at - file.start, _WINDOW_BYTES).rstrip(b"\0"))
        at = _first_written(data, file, at + _WINDOW_BYTES, file.end)
    return end


def _record_starts(file: LogFile, start: int, stop: int) -> Iterator[tuple[int, int]]:
    import pyarrow as pa

    selection = core.ArrowSelection(
        ("physical_offset", "store_timestamp"),
        batch_rows=_BATCH_ROWS,
        batch_bytes=_WINDOW_BYTES,
        large_binary=False,
    )
    with open_file(file.path) as data:
        feeder = _Feeder(data, file)
        scan = core.SegmentScan(selection, start=start, stop=stop, file_end=file.end, unwrap=False)
        with closing(scan):
            while (state := scan.fill()) in ("full", "more"):
                if state == "full":
                    yield from _pairs(pa.record_batch(scan.take()))
                elif not feeder.feed(scan):
                    break
            filled = scan.take()
            if filled is not None:
                yield from _pairs(pa.record_batch(filled))


def _pairs(batch: Any) -> Iterator[tuple[int, int]]:
    views = [memoryview(batch.column(n).buffers()[1]).cast("q")[: batch.num_rows] for n in (0, 1)]
    return zip(*views, strict=True)
