"""A store's commit log as it is on the disk, in any state; it is only read.

Opening refuses what it cannot trust, which is right for a store and useless for finding out what is
wrong. Here the log files are looked at one by one, and walked through a *view*: a temporary folder
of links to them, where copies of the right size stand in for files of a wrong one. It has no
queues, and is read to the end of its last file, after any damage.
"""

from __future__ import annotations

import math
import os
import shutil
import tempfile
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager
from dataclasses import dataclass
from io import BufferedReader
from pathlib import Path
from typing import Any

from rmqstore import store as store_module
from rmqstore._native.core import Record
from rmqstore.check.units import is_queue_offset_possible
from rmqstore.config import StoreConfig
from rmqstore.errors import ArgumentError, NotFoundError
from rmqstore.regular_file import open_regular
from rmqstore.store import Store
from rmqstore.store.directory import Directory
from rmqstore.store.inspection import InspectionView

__all__ = ["Hole", "LogFile", "LogFiles", "LogWalk", "Progress", "file_size_of", "open_view"]

Progress = Callable[[int, int], None]
"""Called periodically with the finished and the total bytes of the log."""

_REPORT_EVERY = 4096
_CHUNK = 1 << 20
_ZEROS = bytes(_CHUNK)


@dataclass(frozen=True, slots=True)
class LogFile:
    """One file of the commit log, of whatever size it has."""

    path: Path
    start: int
    size: int


@dataclass(frozen=True, slots=True)
class Hole:
    """Bytes of the log between *start* and *stop* that are not a record, though records follow."""

    start: int
    stop: int
    reason: str
    timestamp: int
    """Store time of the record after the hole."""

    @property
    def size(self) -> int:
        """Bytes between the last record before the hole and the first one after it."""
        return self.stop - self.start


@dataclass(frozen=True, slots=True)
class LogFiles:
    """The files of a commit log, by their first offsets."""

    directories: tuple[Path, ...]
    file_size: int
    files: tuple[LogFile, ...]
    foreign: tuple[Path, ...]
    """Files and folders beside them that are not log files."""

    @classmethod
    def find(
        cls, root: Path, *, config: StoreConfig | None = None, file_size: int | None = None
    ) -> LogFiles:
        """Return the log files of the store at *root*.

        The size that most files have, and that fits their names, is that of all unless *file_size*
        says otherwise. Raises NotFoundError without a log, ArgumentError when no size fits.
        """
        paths = config.commit_log_paths + config.commit_log_read_only_paths if config else ()
        directories = tuple(Path(path) for path in paths) or (root / "commitlog",)

        found: dict[int, LogFile] = {}
        foreign = []
        for directory in directories:
            for entry in sorted(_entries(directory), key=lambda entry: entry.name):
                path = Path(entry.path)
                start = int(entry.name) if entry.name.isdecimal() else -1
                if start < 0 or start in found or not entry.is_file():
                    foreign.append(path)
                else:
                    found[start] = LogFile(path, start, entry.stat().st_size)

        if not found:
            Directory.inspect(root, commit_log_paths=paths).require_store()
            raise NotFoundError(f"{root} has no commit log; give the folder that holds commitlog/")

        size = file_size or file_size_of([(file.start, file.size) for file in found.values()])
        if size is None:
            raise ArgumentError(
                f"{root}: the commit log files have {len(found)} names without a common file "
                "size; give the size they were made with (--log-file-size)"
            )

        misplaced = [start for start in found if start % size]
        foreign += [found.pop(start).path for start in misplaced]

        # Files made ahead of the writer and never written end a log without being part of it.
        files = sorted(found.values(), key=lambda file: file.start)
        while files and files[-1].size == 0:
            files.pop()
        if not files:
            raise NotFoundError(
                f"{root}: all {len(found)} commit log files are empty; bring them back from a copy"
            )

        return cls(directories, size, tuple(files), tuple(foreign))

    @property
    def start(self) -> int:
        """Offset of the first byte kept."""
        return self.files[0].start

    @property
    def end(self) -> int:
        """Offset after the last file."""
        return self.files[-1].start + self.file_size

    @property
    def wrong_sizes(self) -> tuple[LogFile, ...]:
        """The files of another size than the rest."""
        return tuple(file for file in self.files if file.size != self.file_size)

    @property
    def missing(self) -> tuple[int, ...]:
        """First offsets of the files that lack between the first and the last."""
        there = {file.start for file in self.files}
        wanted = range(self.start, self.end, self.file_size)
        return tuple(start for start in wanted if start not in there)

    def at(self, offset: int) -> LogFile | None:
        """Return the file that holds *offset*, None when it is missing."""
        start = offset - offset % self.file_size
        return next((file for file in self.files if file.start == start), None)

    def path_of(self, start: int) -> Path:
        """Return where the file that begins at *start* lies or would have to lie."""
        file = self.at(start)
        if file is not None:
            return file.path
        beside = max((each for each in self.files if each.start < start), key=lambda f: f.start)
        return beside.path.parent / f"{start:020}"

    def last_byte(self, start: int) -> int:
        """Return the offset after the last byte that is not zero at or after *start*."""
        for file in reversed(self.files):
            if file.start + file.size <= start:
                break
            with open_regular(file.path) as data:
                end = _last_byte(data, max(start - file.start, 0), min(file.size, self.file_size))
            if end is not None:
                return file.start + end
        return start


class LogWalk:
    """Iterates over the records of a view, in stored order, and notes what is not right between
    them."""

    def __init__(
        self,
        view: Store,
        files: LogFiles,
        *,
        stop: int | None = None,
        progress: Progress | None = None,
    ) -> None:
        self._view = view
        self._files = files
        self._stop = files.end if stop is None else stop
        """Where the log ends, whatever follows."""
        self._progress = progress
        self.holes: list[Hole] = []
        self.records = 0
        self.end = files.start
        """After the last record; known when the iteration is over."""
        self.last_byte = files.start
        """After the last byte that is not zero; beyond `end` when the log ends in a torn
        record."""

    def __iter__(self) -> Iterator[Record]:
        scan = self._view.scan_log(self._files.start, self._stop, on_corrupt="stop")
        hole: tuple[int, str] | None = None

        while True:
            for record in scan:
                if not _can_be_queued(record):
                    at, offset = record.physical_offset, record.stored_queue_offset
                    reason = f"the record at {at} cannot have the queue offset {offset}"
                    hole = hole or (at, reason)
                    continue

                self.records += 1
                if hole is not None:
                    stop = record.physical_offset
                    self.holes.append(Hole(hole[0], stop, hole[1], record.store_timestamp))
                    hole = None
                if self._progress and self.records % _REPORT_EVERY == 0:
                    self._report(record.physical_offset)
                yield record

            place = scan.offset
            # Where a place passes for a record and does not read as one, the hole goes on.
            stopped = hole[0] if hole else place
            if scan.verdict == "limit":
                break
            reason = str(scan.error) if scan.error else "nothing was written here"
            if self._files.at(stopped) is None:
                reason = "the file is missing"

            is_followed = scan.resync()
            if self._is_record(place):
                # A writer beside this has come by.
                scan.close()
                scan = self._view.scan_log(place, self._stop, on_corrupt="stop")
                continue

            if not is_followed:
                break
            hole = hole or (stopped, reason)

        self.end = min(stopped, self._stop)
        self.last_byte = self._files.last_byte(self.end)
        if self.last_byte > self.end and self.end < self._stop and self._is_record(self.end):
            self.last_byte = self.end
        self._report(self._files.end)

    def _is_record(self, offset: int) -> bool:
        scan = self._view.scan_log(offset, self._files.end, on_corrupt="stop")
        with closing(scan):
            record = next(scan, None)
            return record is not None and _can_be_queued(record)

    def _report(self, offset: int) -> None:
        if self._progress:
            self._progress(offset - self._files.start, self._files.end - self._files.start)


def _can_be_queued(record: Record) -> bool:
    return is_queue_offset_possible(
        record.stored_queue_offset,
        physical_offset=record.physical_offset,
        sys_flag=record.sys_flag,
    )


def file_size_of(found: list[tuple[int, int]]) -> int | None:
    """Return the size a run of files was made with, from the (first offset, size) of each.

    None when none of their sizes fits all their names and nothing else can be concluded.
    """
    starts = [start for start, _ in found]
    counts = Counter(size for _, size in found if size > 0)
    fitting = [size for size in counts if all(start % size == 0 for start in starts)]
    if fitting:
        return max(fitting, key=lambda size: (counts[size], size))
    # Most files have one size, and some name is foreign.
    size, count = counts.most_common(1)[0] if counts else (0, 0)
    if count * 2 > len(starts) and sum(start % size == 0 for start in starts) * 2 > len(starts):
        return size
    return math.gcd(*starts) or None if len(starts) > 1 else None


@contextmanager
def open_view(
    files: LogFiles, *, index: Path | None = None, facts: Directory | None = None
) -> Iterator[Store]:
    """Open a view of *files* read-only, together with the *index* folder of the store.

    *facts* name the slots and entries of index files. A context manager: the store closes and the
    temporary folder goes when the block is left.
    """
    with tempfile.TemporaryDirectory(prefix="rmqstore-view-") as name:
        root = Path(name)
        log = root / "commitlog"
        log.mkdir()
        for file in files.files:
            _stand_in(file, log / f"{file.start:020}", files.file_size)
        settings: dict[str, Any] = {}
        if index is not None and facts is not None and facts.index_slot_count is not None:
            (root / "index").symlink_to(index.absolute(), target_is_directory=True)
            settings["index_slot_count"] = facts.index_slot_count
            settings["index_entry_count"] = facts.index_entry_count or 0
        with store_module.open(
            root,
            read_only=True,
            commit_log_file_size_bytes=files.file_size,
            **settings,
        ) as view:
            InspectionView(view).show_whole_files()
            yield view


def _last_byte(file: BufferedReader, low: int, high: int) -> int | None:
    """The offset after the last byte in [low, high) that is not zero; None when all are."""
    for first, end in reversed(list(_extents(file.fileno(), low, high))):
        while end > first:
            size = min(_CHUNK, end - first)
            file.seek(end - size)
            chunk = file.read(size)
            if chunk != _ZEROS[: len(chunk)]:
                return end - size + len(chunk.rstrip(b"\0"))
            end -= size
    return None


def _extents(descriptor: int, low: int, high: int) -> Iterator[tuple[int, int]]:
    """The parts of a file that are not holes: most of a log's last file is one."""
    while low < high:
        try:
            low = os.lseek(descriptor, low, os.SEEK_DATA)
        except OSError:
            return
        end = min(os.lseek(descriptor, low, os.SEEK_HOLE), high)
        if low < end:
            yield low, end
        low = max(end, low + 1)


def _stand_in(file: LogFile, target: Path, size: int) -> None:
    if file.size == size:
        target.symlink_to(file.path.absolute())
        return
    with file.path.open("rb") as source, target.open("wb") as copy:
        shutil.copyfileobj(source, copy, _CHUNK)
        copy.truncate(size)


def _entries(directory: Path) -> list[os.DirEntry[str]]:
    try:
        with os.scandir(directory) as entries:
            return [entry for entry in entries if not entry.is_dir()]
    except (FileNotFoundError, NotADirectoryError):
        return []
