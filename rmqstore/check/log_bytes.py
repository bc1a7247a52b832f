"""Comparison of two commit logs byte by byte, and the holder of a byte of one."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import closing
from dataclasses import dataclass
from io import FileIO
from pathlib import Path
from typing import Literal, Protocol, Self

from rmqstore._native import core
from rmqstore.check.log import LogFile, LogFiles
from rmqstore.errors import DiskError, OffsetOutOfRange
from rmqstore.store import Store
from rmqstore.store.inspection import InspectionView

__all__ = [
    "Bytes",
    "Holder",
    "LogBytes",
    "differing_windows",
    "first_difference",
    "holder",
    "written_end",
]

_WINDOW = 256 << 10
"""Bytes of each side that are compared at once: both windows stay in the processor's cache."""

_RUN_UP = 8 << 20
"""How far before a byte to begin looking for its record: longer than any record."""

_REPORT_EVERY = 256


@dataclass(frozen=True, slots=True)
class Holder:
    """The range that holds a byte of a log; *start* and *end* are physical offsets."""

    kind: Literal["record", "filler", "nothing"]
    """"filler" is the space after the last record of a file; "nothing" is bytes that are not a
    whole record."""

    start: int
    end: int
    topic: str = ""
    queue: int = 0
    queue_offset: int = 0
    store_timestamp: int = 0


class Bytes(Protocol):
    """The bytes of a log by physical offset."""

    def read_into(self, offset: int, view: memoryview) -> None: ...


class LogBytes:
    """The bytes of a store's log by physical offset, read from its files. A context manager."""

    def __init__(self, store: Store) -> None:
        self._store = store
        self._places = InspectionView(store).log_files()
        self._open: tuple[int, int, FileIO] | None = None

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *error: object) -> None:
        self._close()

    def read_into(self, offset: int, view: memoryview) -> None:
        """Fill *view* with the bytes from *offset* on.

        Raises OffsetOutOfRange when they are no longer there, DiskError when a file ends before
        them.
        """
        done = 0
        while done < len(view):
            start, size, file = self._file_at(offset + done)
            at = offset + done - start
            file.seek(at)
            got = file.readinto(view[done : min(len(view), done + size - at)])
            if not got:
                raise DiskError(0, f"{file.name!r} ends before byte {at}; it has {size} in its log")
            done += got

    def _file_at(self, offset: int) -> tuple[int, int, FileIO]:
        opened = self._open
        if opened is not None and opened[0] <= offset < opened[0] + opened[1]:
            return opened

        self._close()
        for path, start, size in self._places:
            if start <= offset < start + size:
                try:
                    self._open = start, size, Path(path).open("rb", buffering=0)
                except FileNotFoundError:
                    break
                return self._open

        self._store.refresh()
        raise OffsetOutOfRange(
            f"{self._store.path}: the log's file with byte {offset} was deleted meanwhile; "
            "try again",
            start=self._store.start_offset,
            end=self._store.end_offset,
        )

    def _close(self) -> None:
        if self._open is not None:
            self._open[2].close()
            self._open = None


def differing_windows(
    a: Bytes,
    b: Bytes,
    start: int,
    stop: int,
    *,
    window_bytes: int = _WINDOW,
    report: Callable[[int], None] | None = None,
) -> Iterator[tuple[int, int, int]]:
    """Yield the windows of [*start*, *stop*) in which bytes differ: their start and stop, and the
    physical offset of the first byte that differs.

    *report* is called periodically with the offset that is reached.
    """
    left, right = bytearray(window_bytes), bytearray(window_bytes)
    for number, at in enumerate(range(start, stop, window_bytes)):
        size = min(window_bytes, stop - at)
        views = memoryview(left)[:size], memoryview(right)[:size]
        a.read_into(at, views[0])
        b.read_into(at, views[1])
        place = core.first_difference(*views)
        if place >= 0:
            yield at, at + size, at + place
        elif report is not None and number % _REPORT_EVERY == 0:
            report(at)


def first_difference(
    a: Bytes, b: Bytes, start: int, stop: int, *, report: Callable[[int], None] | None = None
) -> int | None:
    """Return the physical offset of the first byte in [*start*, *stop*) that differs, None when
    none does; *report* as in `differing_windows`."""
    windows = differing_windows(a, b, start, stop, report=report)
    return next((place for _, _, place in windows), None)


def holder(store: Store, offset: int) -> Holder:
    """Return the holder of the byte *offset*, which must be in the log of *store*."""
    file_start, file_end = next(
        (file.start_offset, file.end_offset)
        for file in InspectionView(store).log_files()
        if file.start_offset <= offset < file.end_offset
    )

    begin = max(file_start, offset - _RUN_UP)
    # A run-up begins within a record, most likely.
    is_hole = begin > file_start
    edge = offset if is_hole else begin
    end = min(file_end, store.end_offset)

    with closing(store.scan_log(begin, end, on_corrupt="stop")) as scan:
        while True:
            for record in scan:
                start, end = record.physical_offset, record.physical_offset + record.size
                if start > offset:
                    return Holder("nothing", edge, start)
                if offset < end:
                    name = record.topic, record.queue, record.queue_offset
                    return Holder("record", start, end, *name, record.store_timestamp)
                edge, is_hole = end, False
            if scan.verdict != "bad":
                break
            is_hole = True
            if not scan.resync():
                break

    return Holder("nothing" if is_hole else "filler", edge, file_end)


def written_end(store: Store, end: int) -> int:
    """Return the offset after the last byte of a log that is not zero; *end*, which is where its
    records ended, when a writer has gone on since."""
    files = tuple(
        LogFile(Path(file.path), file.start_offset, file.size)
        for file in InspectionView(store).log_files()
    )
    size = store.config.commit_log_file_size_bytes
    try:
        written = LogFiles((), size, files, ()).last_byte(end)
    except FileNotFoundError:
        return end
    store.refresh()
    return written if max(store.end_offset, 0) <= end else end
