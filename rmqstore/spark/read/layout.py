"""What a store directory holds and up to where it may be read, found out from its files alone.

The same for a store that is closed, in use, crashed or remote, and for a bare commit log directory.
Nothing is opened as a store, and nothing is written.
"""

from __future__ import annotations

import logging
import socket
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from itertools import pairwise

from rmqstore._native import core
from rmqstore.checkpoint import CHECKPOINT, CHECKPOINT_BYTES, Checkpoint
from rmqstore.epochs import EpochEntry, parse_epochs
from rmqstore.errors import ArgumentError, CorruptionError, NotFoundError
from rmqstore.queue_units import BATCH_UNIT_BYTES, UNIT_BYTES
from rmqstore.spark.files import Folder, expand, is_local, join
from rmqstore.spark.options import Options
from rmqstore.spark.read.liveness import is_held
from rmqstore.spark.read.records import Log, LogFile, prefix_of, tail_of
from rmqstore.spark.read.units import (
    QueueFiles,
    Unit,
    Units,
    queue_of,
    units_at,
)

__all__ = ["Layout", "LogFile", "QueueFiles", "layouts_of", "roots_of"]

_log = logging.getLogger("rmqstore.spark")

_REMOTE_THREADS = 32
_TRIES = 3
_BOUNDARY_QUEUES = 8
_RECOVERY_MARGIN_MS = 3000
"""RocketMQ trusts its checkpoint's times up to so much before them."""


_NO_CHECKPOINT = Checkpoint(0, 0, 0, 0, 0, 0, None)


def roots_of(options: Options) -> list[str]:
    """Return the directories that the paths of *options* name, each once.

    Raises NotFoundError where a path names none, ArgumentError for several directories whose log
    should be in one list of folders.
    """
    roots = list(dict.fromkeys(root for path in options.paths for root in expand(path)))
    if options.log_folders and len(roots) > 1:
        raise ArgumentError(
            f"storePathCommitLog: names the folders of one log, and there are {len(roots)} stores, "
            f"{', '.join(roots[:2])}{', ...' if len(roots) > 2 else ''}; read one store at a time"
        )
    return roots


def layouts_of(options: Options, *, queues_of_remote: bool = True) -> list[Layout]:
    """Return what the directories of *options* hold; raises as `roots_of` and `Layout.of`.

    A look at a queue costs a request where it is remote: with *queues_of_remote* off these are
    looked at only if they choose messages.
    """
    return [
        Layout.of(
            root,
            up_to=options.up_to,
            with_queues=queues_of_remote or options.by_topic or is_local(root),
            log_folders=options.log_folders,
        )
        for root in roots_of(options)
    ]


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
    """After the last whole record. Of a log in use whose durable end is known, perhaps only after
    that, unless `up_to` is "max"."""
    readable_end: int
    """A record boundary. Where a closed log ends in bytes that are not a record, it is after
    these, so that a read meets them."""
    queues: tuple[QueueFiles, ...] | None
    """None: there are no queue files, or they were not requested."""
    epochs: tuple[EpochEntry, ...]
    was_closed: bool
    dispatched_end: int
    """Below this offset every message is in its queue."""
    doubtful: frozenset[str] = frozenset()
    """Topics whose queue files are not whole."""
    topics: frozenset[str] = frozenset()
    """Topics that have a folder for queues."""
    log_folders: tuple[str, ...] = ()
    """Where the log is, if not in `commitlog` or in the root itself."""

    @classmethod
    def of(
        cls,
        path: str,
        *,
        up_to: str = "confirm",
        with_queues: bool = True,
        log_folders: Sequence[str] = (),
    ) -> Layout:
        """Return what the store, or the bare commit log directory, at *path* holds.

        With *up_to* "confirm" a store in use is readable up to its durable or confirmed end, with
        "max" up to its last whole record. *log_folders* hold the files of the one log of a store
        that has none in `commitlog`. Raises NotFoundError when there is no log,
        CorruptionError naming both files when their sizes do not go together, DiskError naming
        what the system refuses to show.
        """
        root = path if path.strip("/") == "" else path.rstrip("/")
        for attempt in range(_TRIES):
            try:
                return _Finding(root, up_to, with_queues, log_folders).layout()
            except NotFoundError:
                # Retention may delete files while they are looked at.
                folders, _ = _log_folders(root, log_folders)
                if attempt == _TRIES - 1 or not all(Folder(each).has("") for each in folders):
                    raise
        raise AssertionError("unreachable")

    def again(self, *, up_to: str = "confirm") -> Layout:
        """Return the store as it is by now, without queues, at the cost of what was written since.

        Where the previous end is no longer a record boundary, the log was cut, and is examined
        without the previous end.
        """
        finding = _Finding(self.root, up_to, with_queues=False, log_folders=self.log_folders)
        return finding.layout(known_end=self.end)

    def afresh(self, *, up_to: str = "confirm") -> Layout:
        """Return the store as it is by now, found out from its beginning, with its queues."""
        return Layout.of(self.root, up_to=up_to, log_folders=self.log_folders)


def _log_folders(root: str, given: Sequence[str]) -> tuple[tuple[str, ...], str | None]:
    """Return the folders of the log's files, and that of the store around them, None for none."""
    if given:
        return tuple(folder for each in given for folder in expand(each)), root
    below = join(root, "commitlog")
    if Folder(below).has(""):
        return (below,), root
    base, _, query = root.partition("?")
    if not is_local(root) and query:
        query = f"?{query}"
    parent, _, name = base.rpartition("/")
    return (root,), (parent or "/") + query if name == "commitlog" else None


class _Finding:
    """One look at a directory."""

    def __init__(
        self, root: str, up_to: str, with_queues: bool, log_folders: Sequence[str]
    ) -> None:
        self._root = root
        self._up_to = up_to
        self._given_folders = tuple(log_folders)
        self._folders, self._store = _log_folders(root, log_folders)
        self._with_queues = with_queues
        self._queue_folders = self._found_folders() if self._store == root else None

    def _found_folders(self) -> list[tuple[str, int]] | None:
        """Return the folders of queues with their units' sizes, None when queues are elsewhere."""
        below = [
            (join(self._root, "consumequeue"), UNIT_BYTES),
            (join(self._root, "batchconsumequeue"), BATCH_UNIT_BYTES),
        ]
        has_files = Folder(below[0][0]).has("") and not Folder(below[0][0]).has("CURRENT")
        if Folder(join(self._root, "consumequeue_rocksdb")).has("CURRENT"):
            has_files = False
        return below if has_files else None

    def layout(self, *, known_end: int | None = None) -> Layout:
        # The marks first: what they promise is in the files that are listed after them.
        store = Folder(self._store) if self._store is not None else None
        was_closed = store is None or not store.has("abort")
        data = store.read(CHECKPOINT, CHECKPOINT_BYTES) if store else None
        marks = Checkpoint.parse(data) or _NO_CHECKPOINT
        epochs = _epochs(store)

        files = _log_files(self._folders)
        layout = Layout(
            self._root,
            self._root,
            files,
            0,
            0,
            0,
            None,
            epochs,
            was_closed,
            dispatched_end=0,
            log_folders=self._given_folders,
        )

        if not files and marks.physic_ms > 0:
            raise NotFoundError(
                f"{', '.join(self._folders)}: host {socket.gethostname()} has no file of the "
                f"commit log there, and the checkpoint in {self._store} names messages; mount the "
                "log, or name its folders in the option storePathCommitLog"
            )
        if not files:
            return replace(layout, queues=() if self._asks_for_queues() else None)

        with Log(files) as log:
            start = files[0].start
            layout = replace(layout, start=start, dispatched_end=start)
            if self._asks_for_queues():
                layout = self._with_found_queues(layout, log, files[-1].end)

            known = layout.dispatched_end
            if known_end is not None and _is_boundary(log, files, known_end):
                known = known_end
            layout = self._with_ends(layout, log, known, marks)
            return _cautious(layout, log, marks)

    # ---- queues ----

    def _asks_for_queues(self) -> bool:
        return self._with_queues and self._queue_folders is not None

    def _with_found_queues(self, layout: Layout, log: Log, end: int) -> Layout:
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

        for (topic, *_), queue in zip(
            folders, self._looked_at(folders, layout, log, end), strict=True
        ):
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
        self, folders: list[tuple[str, str, int, str]], layout: Layout, log: Log, end: int
    ) -> Iterator[QueueFiles | CorruptionError | None]:
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

    def _with_ends(self, layout: Layout, log: Log, known: int, marks: Checkpoint) -> Layout:
        limit = layout.files[-1].end
        bound = None

        if not layout.was_closed and self._up_to == "confirm":
            if marks.flushed_offset is not None:
                bound = min(marks.flushed_offset, limit)
            elif layout.epochs and marks.confirm_offset > 0:
                bound = min(marks.confirm_offset, limit)

        if bound is not None and bound <= known:
            boundary = known if bound == known else _boundary(layout, bound)
            readable, _, met_dirt = _end_of(layout, log, boundary, stop=bound)
            ended = replace(layout, end=known, readable_end=readable)
        else:
            end, dirt_end, met_dirt = _end_of(
                layout, log, known, stop=limit if bound is None else bound
            )
            ended = replace(layout, end=end, readable_end=dirt_end)

        if marks.flushed_offset is not None or self._store is None:
            return ended
        if not met_dirt and self._is_vouched(ended, log, known, marks):
            return ended
        return self._cut(ended, log, marks)

    # ---- where RocketMQ cut the log: csrc/log/log_end.h ----

    def _is_vouched(self, layout: Layout, log: Log, known: int, marks: Checkpoint) -> bool:
        """Whether the checkpoint vouches for the log up to its end, which queues lead to."""
        timestamp = -1
        if layout.end > known:
            file = max(layout.files, key=lambda each: _place_in(each, layout.end))
            begin = max(file.start, known)
            timestamp = prefix_of(file, begin, stop=layout.end).last_timestamp
        if timestamp < 0:
            last = max(layout.queues or (), key=lambda each: each.log_end, default=None)
            if last is None or last.log_end != known:
                return True  # known from an earlier look, which compared them
            with Units.of(last) as units:
                record = log.record(units.unit(last.end_unit - 1).offset)
            timestamp = record.store_timestamp if record else -1
        return core.is_log_end_vouched(timestamp, marks.physic_ms, was_closed=layout.was_closed)

    def _cut(self, layout: Layout, log: Log, marks: Checkpoint) -> Layout:
        """Return the layout with the end that a walk from a file's beginning finds, where RocketMQ
        cut the log there."""
        known = max(layout.end, layout.dispatched_end)

        file = max(layout.files, key=lambda each: _place_in(each, known))
        prefix = prefix_of(file, file.start, stop=file.end)
        at = prefix.end
        if at >= max(known, layout.readable_end):
            return layout

        queued = layout if layout.queues is not None else None
        if queued is None and self._queue_folders is not None:
            queued = self._with_found_queues(layout, log, layout.files[-1].end)
        found = [
            units_at(queue, at, log=log, log_start=layout.start)
            for queue in (queued.queues if queued and queued.queues else ())
        ]

        follower = log.record(prefix.next) if prefix.next is not None else None
        verdict = core.classify_log_end(
            last_timestamp=prefix.last_timestamp,
            next_timestamp=follower.store_timestamp if follower else -1,
            is_inside=at < layout.files[-1].end,
            has_bytes=prefix.has_bytes,
            is_vouched=bool(found)
            and layout.was_closed
            and core.is_log_end_vouched(prefix.last_timestamp, marks.physic_ms, was_closed=True),
            is_known=any(units.is_known for units in found),
            is_passed=any(units.is_passed for units in found),
            is_overwritten=any(units.is_overwritten for units in found),
        )

        if verdict == "unknown":
            _log.warning(
                "%s: either RocketMQ cut the log at %d, or it is damaged there; which of the two "
                "is unknown, and records after that offset are read",
                layout.root,
                at,
            )

        if verdict != "cut":
            return layout

        cut = replace(layout, end=at, readable_end=min(layout.readable_end, at))
        if layout.queues is not None:
            cut = self._with_found_queues(cut, log, at)
        return replace(cut, dispatched_end=min(cut.dispatched_end, at))


def _place_in(file: LogFile, offset: int) -> tuple[bool, int]:
    """Orders files so that the one that holds the byte before *offset* comes last."""
    return file.start < offset, file.start


def _log_files(folders: Sequence[str]) -> tuple[LogFile, ...]:
    """Return the files of one log, in its order, whichever folder each is in."""
    found = [file for folder in folders for file in _files_in(folder)]
    if not found and not any(folder.endswith("commitlog") for folder in folders):
        raise NotFoundError(
            f"{', '.join(folders)} is not a store: it has neither a folder commitlog nor files of "
            "a commit log; give the directory of a store or of its commit log, or the folders of "
            "a log that is elsewhere in the option storePathCommitLog"
        )

    files = sorted((file for file in found if file.size), key=lambda file: file.start)
    for file, after in pairwise(files):
        if file.start == after.start:
            raise CorruptionError(
                f"{file.path} and {after.path} are the same part of a log; the option "
                "storePathCommitLog names folders of one log, and each of its files is in one",
                path=after.path,
                kind="commit log",
            )

    usual = min((after.start - file.start for file, after in pairwise(files)), default=0)
    for file in files if usual else ():
        # A shorter one was cut, or copied without the zeros at its end: what is missing is a gap.
        if file.size > usual:
            other = next((each for each in files if each.size == usual), files[files[0] is file])
            raise CorruptionError(
                f"{file.path} has {file.size} bytes, {other.path} has {other.size} and the files "
                f"begin {usual} bytes apart; the files of a commit log have one size, bring "
                "the file back from a copy",
                path=file.path,
                kind="commit log",
                suggested_command=f"rmqstore verify {folders[0].removesuffix('/commitlog')}",
            )

    return tuple(files)


def _files_in(folder: str) -> list[LogFile]:
    where = Folder(folder)
    if where.is_file():
        raise NotFoundError(
            f"{folder} is a file; give the directory of a store or of its commit log"
        )

    try:
        sizes = where.names()
    except NotFoundError as error:
        raise NotFoundError(
            f"{folder} does not exist; give the directory of a store or of its commit log"
        ) from error

    return [LogFile(join(folder, name), int(name), size) for name, size in sizes.items()]


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


def _is_boundary(log: Log, files: Sequence[LogFile], offset: int) -> bool:
    """Whether a record begins here, or may some time."""
    return log.begins_at(offset) if log.file_of(offset) else offset == files[-1].end


def _boundary(layout: Layout, bound: int) -> int:
    """Return a record boundary at or before *bound*, close to it where queues name boundaries."""
    file = max((each.start for each in layout.files if each.start <= bound), default=layout.start)
    last = sorted(layout.queues or (), key=lambda queue: queue.log_end)[-_BOUNDARY_QUEUES:]
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


def _end_of(layout: Layout, log: Log, start: int, *, stop: int) -> tuple[int, int, bool]:
    """Return the end after the last whole record from the boundary *start* to *stop*, and after
    bytes that follow it and are none; and whether there are such bytes."""
    files = [file for file in layout.files if file.end > start and file.start < stop]
    # The read itself walks over the earlier files; only the end matters here.
    written = [n for n, file in enumerate(files) if n and not log.is_blank(file)]
    end = dirt_end = start
    met_dirt = False
    for file in files[written[-1] if written else 0 :]:
        begin = max(start, file.start)
        tail = tail_of(file, begin, stop=min(stop, file.end), was_closed=layout.was_closed)
        if tail.dirt_end > begin:
            end, dirt_end = tail.end, tail.dirt_end
        met_dirt |= tail.met_dirt
    return end, dirt_end, met_dirt


def _cautious(layout: Layout, log: Log, marks: Checkpoint) -> Layout:
    """Trust queues of a store without a writer that was not closed as far as RocketMQ would.

    When the power fails, one queue may have reached the device and another not. RocketMQ fills the
    queues again from a file on that is before the times of the checkpoint.
    """
    if layout.was_closed or not layout.queues or is_held(join(layout.root, "lock")):
        return layout
    flushed_ms = min(marks.physic_ms, marks.logics_ms)
    for file in reversed(layout.files):
        if file.start < layout.dispatched_end:
            first = log.record(file.start)
            if first and first.store_timestamp <= flushed_ms - _RECOVERY_MARGIN_MS:
                return replace(layout, dispatched_end=max(file.start, layout.start))
    return replace(layout, dispatched_end=layout.start)
