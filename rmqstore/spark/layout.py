"""What a store directory holds and up to where it may be read, found out from its files alone.

The same for a store that is closed, in use, crashed or remote, and for a bare commit log directory.
Nothing is opened as a store, and nothing is written.
"""

from __future__ import annotations

import struct
import zlib
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from itertools import pairwise

from rmqstore.errors import CorruptionError, NotFoundError
from rmqstore.replication.epoch import EpochEntry, parse_epochs
from rmqstore.spark.files import Folder, is_local, join
from rmqstore.spark.liveness import is_held
from rmqstore.spark.records import Log, LogFile, tail_of
from rmqstore.spark.units import BATCH_UNIT_SIZE, UNIT_SIZE, QueueFiles, Unit, Units, queue_of

__all__ = ["Layout", "LogFile", "QueueFiles"]

_CHECKPOINT = struct.Struct(">6q")
_MARK = struct.Struct(">qI")
_REMOTE_THREADS = 32
_TRIES = 3
_BORDER_QUEUES = 8
_RECOVERY_MARGIN_MS = 3000
"""RocketMQ trusts its checkpoint's times up to so much before them."""


@dataclass(frozen=True, slots=True)
class _Marks:
    """What the checkpoint says; None where it does not."""

    flushed_offset: int | None = None
    confirm_offset: int = 0
    flushed_ms: int = 0
    """Store timestamp up to which both log and queues are on the device."""


@dataclass(frozen=True, slots=True)
class Layout:
    """The files of a store and the physical offsets between which they can be read."""

    name: str
    """The root without a slash at its end: one for each store, and the same every time."""
    root: str
    files: tuple[LogFile, ...]
    """Those that are not empty, in order; there may be gaps between them."""
    start: int
    end: int
    """Behind the last whole record. Of a log in use whose durable end is known, perhaps only behind
    that, unless `up_to` is "max"."""
    readable_end: int
    """A border between records. Where a closed log ends in bytes that are no record, it lies behind
    these, so that a read meets them."""
    queues: tuple[QueueFiles, ...] | None
    """None: there are no queue files, or nobody asked for them."""
    epochs: tuple[EpochEntry, ...]
    was_closed: bool
    dispatched_end: int
    """Up to here the queues know of every message."""
    doubtful: frozenset[str] = frozenset()
    """Topics whose queue files are not whole."""
    topics: frozenset[str] = frozenset()
    """Topics that have a folder for queues."""

    @classmethod
    def of(cls, path: str, *, up_to: str = "confirm", with_queues: bool = True) -> Layout:
        """Return what the store, or the bare commit log directory, at *path* holds.

        With *up_to* "confirm" a store in use is readable up to its durable or confirmed end, with
        "max" up to its last whole record. Raises NotFoundError when there is no log,
        CorruptionError naming both files when their sizes do not go together, DiskError naming
        what the system refuses to show.
        """
        root = path if path.strip("/") == "" else path.rstrip("/")
        for attempt in range(_TRIES):
            try:
                return _Finding(root, up_to, with_queues).layout()
            except NotFoundError:
                # Retention may delete files while they are looked at.
                if attempt == _TRIES - 1 or not Folder(_log_folder(root)[0]).has(""):
                    raise
        raise AssertionError("unreachable")

    def again(self, *, up_to: str = "confirm") -> Layout:
        """Return the store as it is by now, without queues, at the cost of what was written since.

        Where the end known from before is no border between records any more, the log was cut, and
        is looked at as if for the first time.
        """
        finding = _Finding(self.root, up_to, with_queues=False)
        return finding.layout(known_end=self.end)


def _log_folder(root: str) -> tuple[str, str | None]:
    """Return the folder of the log's files, and that of the store around it, None for none."""
    below = join(root, "commitlog")
    if Folder(below).has(""):
        return below, root
    base, _, query = root.partition("?")
    if not is_local(root) and query:
        query = f"?{query}"
    parent, _, name = base.rpartition("/")
    return root, (parent or "/") + query if name == "commitlog" else None


class _Finding:
    """One look at a directory."""

    def __init__(self, root: str, up_to: str, with_queues: bool) -> None:
        self._root = root
        self._up_to = up_to
        self._folder, self._store = _log_folder(root)
        self._queue_folders = self._with_queues() if with_queues and self._store == root else None

    def _with_queues(self) -> list[tuple[str, int]] | None:
        """Return the folders of queues with their units' sizes, None when queues are elsewhere."""
        below = [
            (join(self._root, "consumequeue"), UNIT_SIZE),
            (join(self._root, "batchconsumequeue"), BATCH_UNIT_SIZE),
        ]
        has_files = Folder(below[0][0]).has("") and not Folder(below[0][0]).has("CURRENT")
        if Folder(join(self._root, "consumequeue_rocksdb")).has("CURRENT"):
            has_files = False
        return below if has_files else None

    def layout(self, *, known_end: int | None = None) -> Layout:
        # The marks first: what they promise is in the files that are listed after them.
        store = Folder(self._store) if self._store is not None else None
        was_closed = store is None or not store.has("abort")
        marks = _marks(store.read("checkpoint", 60) if store else None)
        epochs = _epochs(store)
        files = _log_files(self._folder)
        layout = Layout(
            self._root, self._root, files, 0, 0, 0, None, epochs, was_closed, dispatched_end=0
        )
        if not files:
            return replace(layout, queues=None if self._queue_folders is None else ())
        with Log(files) as log:
            start = files[0].start
            layout = replace(layout, start=start, dispatched_end=start)
            if self._queue_folders is not None:
                layout = self._with_found_queues(layout, log)
            known = layout.dispatched_end
            if known_end is not None and _is_border(log, files, known_end):
                known = known_end
            layout = self._with_ends(layout, log, known, marks)
            return _cautious(layout, log, marks)

    # ---- queues ----

    def _with_found_queues(self, layout: Layout, log: Log) -> Layout:
        assert self._queue_folders is not None
        found: list[QueueFiles] = []
        doubtful = set()
        folders = [
            (topic, queue, size, join(folder, topic, queue))
            for folder, size in self._queue_folders
            for topic in Folder(folder).folders()
            for queue in Folder(join(folder, topic)).folders()
            if queue.isascii() and queue.isdecimal()
        ]
        for (topic, *_), queue in zip(folders, self._looked_at(folders, layout, log), strict=True):
            if isinstance(queue, CorruptionError):
                doubtful.add(topic)
            elif queue is not None:
                found.append(queue)
        return replace(
            layout,
            queues=tuple(found),
            doubtful=frozenset(doubtful),
            topics=frozenset(topic for topic, *_ in folders),
            dispatched_end=max([layout.start, *(queue.log_end for queue in found)]),
        )

    def _looked_at(
        self, folders: list[tuple[str, str, int, str]], layout: Layout, log: Log
    ) -> Iterator[QueueFiles | CorruptionError | None]:
        end = layout.files[-1].end

        def look(
            folder: tuple[str, str, int, str], log: Log
        ) -> QueueFiles | CorruptionError | None:
            topic, queue, size, path = folder
            try:
                return queue_of(
                    path,
                    topic,
                    int(queue),
                    unit_size=size,
                    log=log,
                    log_start=layout.start,
                    log_end=end,
                )
            except NotFoundError:
                return None  # deleted meanwhile
            except CorruptionError as error:
                return error

        if is_local(self._root):
            yield from (look(folder, log) for folder in folders)
            return

        def look_alone(
            folder: tuple[str, str, int, str],
        ) -> QueueFiles | CorruptionError | None:
            with Log(layout.files) as own:
                return look(folder, own)

        with ThreadPoolExecutor(_REMOTE_THREADS) as pool:
            yield from pool.map(look_alone, folders)

    # ---- ends ----

    def _with_ends(self, layout: Layout, log: Log, known: int, marks: _Marks) -> Layout:
        limit = layout.files[-1].end
        bound = None
        if not layout.was_closed and self._up_to == "confirm":
            if marks.flushed_offset is not None:
                bound = min(marks.flushed_offset, limit)
            elif layout.epochs and marks.confirm_offset > 0:
                bound = min(marks.confirm_offset, limit)
        if bound is not None and bound <= known:
            border = known if bound == known else _border(layout, bound)
            readable, _ = _end_of(layout, log, border, stop=bound)
            return replace(layout, end=known, readable_end=readable)
        end, dirt_end = _end_of(layout, log, known, stop=limit if bound is None else bound)
        return replace(layout, end=end, readable_end=dirt_end)


def _log_files(folder: str) -> tuple[LogFile, ...]:
    where = Folder(folder)
    if where.is_file():
        raise NotFoundError(f"{folder} is a file; give the directory of a store or its commit log")
    try:
        sizes = where.names()
    except NotFoundError as error:
        raise NotFoundError(f"{folder} does not exist") from error
    if not sizes and not folder.endswith("commitlog"):
        raise NotFoundError(
            f"{folder} is no store: it has neither a folder commitlog nor files of a commit log"
        )
    files = [LogFile(join(folder, name), int(name), size) for name, size in sizes.items() if size]
    usual = min((after.start - file.start for file, after in pairwise(files)), default=0)
    for file in files if usual else ():
        # A shorter one was cut, or copied without the zeros at its end: what is missing is a gap.
        if file.size > usual:
            other = next((each for each in files if each.size == usual), files[files[0] is file])
            raise CorruptionError(
                f"{file.path} has {file.size} bytes, {other.path} has {other.size} and the files "
                f"begin {usual} bytes apart: the files of a commit log have one size",
                path=file.path,
                kind="commit log",
                suggested_command=f"rmqstore verify {folder}",
            )
    return tuple(files)


def _marks(data: bytes | None) -> _Marks:
    if data is None or len(data) < _CHECKPOINT.size:
        return _Marks()
    physic_ms, logics_ms, _, _, confirm_offset, _ = _CHECKPOINT.unpack_from(data)
    flushed: int | None = None
    if len(data) >= _CHECKPOINT.size + _MARK.size:
        offset, crc = _MARK.unpack_from(data, _CHECKPOINT.size)
        if offset >= 0 and crc == zlib.crc32(data[: _CHECKPOINT.size + 8]):
            flushed = offset
    return _Marks(flushed, confirm_offset, min(physic_ms, logics_ms))


def _epochs(store: Folder | None) -> tuple[EpochEntry, ...]:
    if store is None:
        return ()
    for name in ("epochFileCheckpoint", "epochFileCheckpoint.bak"):
        data = store.read(name, 1 << 20)
        if data is not None:
            try:
                return parse_epochs(data.decode("ascii", "replace"))
            except CorruptionError:
                continue
    return ()


def _is_border(log: Log, files: Sequence[LogFile], offset: int) -> bool:
    """Whether a record begins here, or may some time."""
    return log.begins_at(offset) if log.file_of(offset) else offset == files[-1].end


def _border(layout: Layout, bound: int) -> int:
    """Return a border between records at or before *bound*, close to it where queues tell."""
    file = max((each.start for each in layout.files if each.start <= bound), default=layout.start)
    last = sorted(layout.queues or (), key=lambda queue: queue.log_end)[-_BORDER_QUEUES:]
    for queue in last:
        with Units.of(queue) as units:
            behind = units.find(
                queue.start_unit, queue.end_unit, lambda unit: _ends_behind(unit, bound)
            )
            if behind > queue.start_unit:
                unit = units.unit(behind - 1)
                file = max(file, unit.offset + unit.size)
    return file


def _ends_behind(unit: Unit, bound: int) -> bool:
    return unit.offset + unit.size > bound


def _end_of(layout: Layout, log: Log, start: int, *, stop: int) -> tuple[int, int]:
    """Return the end behind the last whole record from the border *start* to *stop*, and behind
    bytes that follow it and are none."""
    files = [file for file in layout.files if file.end > start and file.start < stop]
    # What lies before the last file is for the read to walk over; only the end matters here.
    written = [n for n, file in enumerate(files) if n and not log.is_blank(file)]
    end = dirt_end = start
    for file in files[written[-1] if written else 0 :]:
        begin = max(start, file.start)
        tail = tail_of(file, begin, stop=min(stop, file.end), was_closed=layout.was_closed)
        if tail.dirt_end > begin:
            end, dirt_end = tail.end, tail.dirt_end
    return end, dirt_end


def _cautious(layout: Layout, log: Log, marks: _Marks) -> Layout:
    """Trust queues of a store that nobody holds and nobody closed only as far as RocketMQ would.

    When the power fails, one queue may have reached the device and another not. RocketMQ fills the
    queues anew from a file on that lies before the times of the checkpoint.
    """
    if layout.was_closed or not layout.queues or is_held(join(layout.root, "lock")):
        return layout
    for file in reversed(layout.files):
        if file.start < layout.dispatched_end:
            first = log.record(file.start)
            if first and first.store_timestamp <= marks.flushed_ms - _RECOVERY_MARGIN_MS:
                return replace(layout, dispatched_end=max(file.start, layout.start))
    return replace(layout, dispatched_end=layout.start)
