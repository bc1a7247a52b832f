"""Repairs a damaged store: plans the repair, then applies it.

What the plan does, in this order: files get their size and place back, bytes that are not a record
get out of the way, damaged queues and the index go, and the store is opened once, which builds them
again from the log. What is overwritten or cut is copied to a folder below `cut/` first, and what is
taken away is moved there.

Bytes in the middle of the log cannot be taken out, for all that follows would lie elsewhere than
its queues and ids say. They are overwritten with records of the same size, of a topic without
readers and of a kind (a transaction rolled back) that enters no queue; where they reach the end of
a file, with a blank. Both are RocketMQ's own format. Queue offsets of lost messages stay empty.
"""

from __future__ import annotations

import fcntl
import os
import shutil
import struct
import time
import zlib
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Any, Literal, NamedTuple

from rmqstore import arguments
from rmqstore import store as store_module
from rmqstore.check import Kind, Level, Report, verify
from rmqstore.check.log import LogFiles, Progress, file_size_of
from rmqstore.checkpoint import CHECKPOINT_FIELDS
from rmqstore.config import StoreConfig
from rmqstore.errors import (
    DiskError,
    NotFoundError,
    StoreError,
    StoreLockedError,
    disk_errors,
)
from rmqstore.message import TransactionType
from rmqstore.queue_units import BATCH_UNIT_BYTES
from rmqstore.store import Recovery
from rmqstore.store.settings import is_remembered, remembered

__all__ = ["Action", "Outcome", "Plan", "apply", "exclusive", "filler", "plan"]

_FILLER_TOPIC = b"RMQ_SYS_DAMAGED"
_FILLER_HEAD = struct.Struct(">IIiiiqqiq8sq8siqi")
_FILLER_SIZE_MIN = _FILLER_HEAD.size + 3
_FILLER_SIZE_MAX = 1 << 20
_CRC_PROPERTY_SIZE = 20
_MAGIC_V1 = 0xDAA320A7
_BLANK = struct.Struct(">II")
_BLANK_MAGIC = 0xCBD43194
_CHECKPOINT_SIZE = 4096
_COPY_BYTES = 1 << 20
_HOST = bytes((127, 0, 0, 1, 0, 0, 0, 0))
_QUEUE_FOLDERS = ("consumequeue", "batchconsumequeue")

Verb = Literal["resize", "make", "move", "copy", "drop", "fill", "blank", "cut", "build"]
_Sizes = dict[str, Any]


@dataclass(frozen=True, slots=True)
class Action:
    """One step of a plan."""

    verb: Verb
    path: Path
    text: str
    """What is done, for people."""

    start: int = 0
    """First physical offset that is written; a file size with `resize`."""

    stop: int = 0
    timestamp: int = 0
    """Store time of the record that fills."""


@dataclass(frozen=True, slots=True)
class Plan:
    """What a repair would do, in order; nothing, when the store is sound."""

    report: Report
    config: StoreConfig | None
    actions: tuple[Action, ...]
    losses: tuple[str, ...]
    """What no repair brings back."""

    obstacles: tuple[str, ...]
    """Why the repair cannot be done; empty when it can."""

    notes: tuple[str, ...]
    """What to know before."""

    is_rebuild: bool
    """Whether queues and index are rebuilt; else opening the store once is all."""

    @property
    def is_empty(self) -> bool:
        """Whether there is nothing to do."""
        return not self.actions


class Outcome(NamedTuple):
    """What a repair did."""

    recovery: Recovery
    """What opening the store found afterwards."""

    report: Report
    """Another verification, of the repaired store."""

    cut: Path | None
    """The folder with everything that was overwritten, cut or moved; None when nothing was."""


@contextmanager
def exclusive(path: str | os.PathLike[str]) -> Iterator[None]:
    """Keep writers out of the store at *path* while the block runs, as an open store does.

    Raises StoreLockedError when there is one, DiskError when the folder cannot be written.
    """
    root = Path(arguments.absolute_path("path", path))
    if not _is_folder(root):
        raise NotFoundError(f"{root} does not exist; give the folder that holds commitlog/")

    try:
        descriptor = os.open(root / "lock", os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o644)
    except OSError as error:
        raise DiskError(error.errno or 0, f"opening {root / 'lock'}: {error.strerror}") from error

    try:
        try:
            fcntl.lockf(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB, 1, 0)
        except (BlockingIOError, PermissionError) as error:
            raise StoreLockedError(
                f"{root} is in use by another process; stop it before repairing"
            ) from error
        yield
    finally:
        os.close(descriptor)


@disk_errors("planning the repair")
def plan(
    path: str | os.PathLike[str],
    *,
    config: StoreConfig | None = None,
    rebuild: bool = False,
    log_file_size: int | None = None,
    progress: Progress | None = None,
) -> Plan:
    """Return what has to be done with the store at *path*, changing nothing.

    The whole store is verified for it. *rebuild* rebuilds queues and index even if they are
    sound. Hold `exclusive` from here until `apply` when the store might be in use. Raises
    UnsupportedStoreError when its queues cannot be rebuilt, otherwise as `verify` does.
    """
    arguments.boolean("rebuild", rebuild)
    report = verify(path, config=config, full=True, log_file_size=log_file_size, progress=progress)
    report.facts.require_writable_parts()

    is_damaged = any(finding.kind is not Kind.CONFIG for finding in report.damage)
    is_rebuild = rebuild or is_damaged
    # Opening clears what RocketMQ cut, and copies what is worth it.
    is_cleared = report.was_cut and not is_rebuild
    log_actions = () if is_cleared else _log_actions(report)
    actions = [*_file_actions(report), *log_actions, *_queue_actions(report)]

    extension = report.path / "consumequeue_ext"
    if is_rebuild:
        if extension.is_dir():
            text = "copy the extensions of all queues to cut/"
            actions.insert(0, Action("copy", extension, text))
        text = "build queues and index from the log again"
        actions.append(Action("build", report.path, text))
    elif report.was_cut:
        text = (
            f"open the store once, which ends it at {report.end} as RocketMQ cut it, and close it"
        )
        actions.append(Action("build", report.path, text))
    elif not report.facts.was_closed:
        text = "open the store once, which recovers it, and close it"
        actions.append(Action("build", report.path, text))

    return Plan(
        report,
        config,
        actions=tuple(actions),
        losses=tuple(_losses(report, is_rebuild=is_rebuild)),
        obstacles=tuple(_obstacles(report, config or remembered(report.path))),
        notes=tuple(_notes(report, config)) if is_rebuild else (),
        is_rebuild=is_rebuild,
    )


@disk_errors("repairing the store")
def apply(plan: Plan, *, progress: Progress | None = None) -> Outcome:
    """Do what *plan* says and return the outcome.

    Done in an order in which a crash leaves a store that a second repair completes. Raises
    StoreError when the plan has obstacles or the store is not as it was when planned, and whatever
    opening the store raises.
    """
    arguments.instance("plan", plan, Plan)
    if progress is not None:
        arguments.function("progress", progress)

    report = plan.report
    if plan.obstacles:
        raise StoreError(f"{report.path} cannot be repaired: {'; '.join(plan.obstacles)}")

    cut = _new_folder(report.path / "cut")
    with exclusive(report.path):
        files = LogFiles.find(report.path, config=plan.config, file_size=report.files.file_size)
        if files != report.files or (report.path / "abort").exists() == report.facts.was_closed:
            raise StoreError(f"{report.path} has changed since the repair was planned; plan again")

        # The log comes first: it is sound before anything that only it can bring back is given up.
        queues = [
            action
            for action in plan.actions
            if action.verb in ("move", "drop") and action.path.is_dir()
        ]
        for action in plan.actions:
            if action not in queues:
                _do(action, report, cut)
        if plan.is_rebuild:
            _distrust(report, cut)
        for action in queues:
            _do(action, report, cut)
        _sync_folder(report.path)

    recovery = _open_once(plan)
    after = verify(
        report.path,
        config=plan.config,
        log_file_size=report.files.file_size,
        progress=progress,
    )
    return Outcome(recovery, after, cut if cut.exists() else None)


def _new_folder(parent: Path) -> Path:
    """The path of a folder below *parent* for what this repair takes away, named after now."""
    name = time.strftime("repair-%Y%m%d-%H%M%S")
    path, number = parent / name, 1
    while path.exists():
        number += 1
        path = parent / f"{name}-{number}"
    return path


# ---- planning


def _file_actions(report: Report) -> Iterator[Action]:
    files = report.files
    for path in files.foreign:
        yield Action("move", path, f"move {path} to cut/: it is not a commit log file")

    for finding in report.findings:
        path = Path(finding.place)
        if finding.fault == "foreign" and finding.kind is not Kind.LOG and path.is_file():
            yield Action("move", path, f"move {path} to cut/: it {finding.text}")

    previous_end = files.start
    for file in files.files:
        # After the end of the log files are only kept where they can be used.
        is_placed = file.start == previous_end and file.size == files.file_size
        if file.start >= report.end and not is_placed:
            yield Action("move", file.path, f"move {file.path} to cut/: no record is in it")
            continue

        previous_end = file.start + files.file_size
        if file.size == files.file_size:
            continue
        act = "lengthen" if file.size < files.file_size else "shorten"
        text = f"{act} {file.path} from {file.size} to {files.file_size} bytes"
        yield Action("resize", file.path, text, files.file_size)

    for start in files.missing:
        path = files.path_of(start)
        if start < report.end:
            text = f"make {path} of zeros in place of the missing file"
            yield Action("make", path, text, files.file_size)


def _log_actions(report: Report) -> Iterator[Action]:
    files = report.files
    for hole in report.holes:
        timestamp = hole.timestamp
        at = hole.start
        while at < hole.stop:
            file_end = at - at % files.file_size + files.file_size
            path = files.path_of(at)
            if file_end <= hole.stop:
                text = f"mark {at} to {file_end}, the rest of its file, as empty"
                yield Action("blank", path, text, at, file_end)
                at = file_end
                continue
            text = f"fill {at} to {hole.stop} with records that are never read (copied to cut/)"
            yield Action("fill", path, text, at, hole.stop, timestamp)
            at = hole.stop
    if report.last_byte > report.end and not report.records:
        # A log that is cut to nothing is none.
        stop = max(report.last_byte, report.end + _FILLER_SIZE_MIN + _CRC_PROPERTY_SIZE)
        text = f"fill {report.end} to {stop} with records that are never read (copied to cut/)"
        now_ms = time.time_ns() // 1_000_000
        yield Action("fill", files.path_of(report.end), text, report.end, stop, now_ms)
    elif report.last_byte > report.end:
        count = report.last_byte - report.end
        text = f"end the log at {report.end}, cutting {count} bytes (copied to cut/)"
        yield Action("cut", files.path_of(report.end), text, report.end, report.last_byte)


def _queue_actions(report: Report) -> Iterator[Action]:
    for topic, number, is_batch in sorted(report.bad_queues):
        folder = report.path / _QUEUE_FOLDERS[is_batch] / topic / str(number)
        if folder.is_dir():
            text = f"move the queue {topic}/{number} to cut/, to be built again"
            yield Action("move", folder, text)

        extension = report.path / "consumequeue_ext" / topic / str(number)
        if extension.is_dir() and not is_batch:
            text = f"take the extension of {topic}/{number} away, to be built again"
            yield Action("drop", extension, text)

    for topic, number, is_batch in sorted(report.orphan_queues):
        yield from _orphan_actions(report.path / _QUEUE_FOLDERS[is_batch] / topic / str(number))

    index = report.path / "index"
    if index.is_dir() and any(
        finding.kind is Kind.INDEX and finding.level is Level.DAMAGE for finding in report.findings
    ):
        yield Action("move", index, "move the index to cut/, to be built again")


def _orphan_actions(folder: Path) -> Iterator[Action]:
    """A queue without messages in the log is kept: its last files keep where it continues."""
    files = [path for path in folder.iterdir() if path.name.isdecimal()]
    files.sort(key=lambda path: int(path.name), reverse=True)
    size = file_size_of([(int(path.name), path.stat().st_size) for path in files])
    next_start: int | None = None
    for path in files:
        start, actual = int(path.name), path.stat().st_size
        if size is None or (actual == 0 and next_start is None):
            continue
        if start % size or not actual or next_start not in (None, start + size):
            yield Action("move", path, f"move {path} to cut/: the files after it go on elsewhere")
            continue
        next_start = start
        if actual != size:
            yield Action("resize", path, f"resize {path} from {actual} to {size} bytes", size)


def _losses(report: Report, *, is_rebuild: bool) -> Iterator[str]:
    for hole in report.holes:
        yield f"messages between {hole.start} and {hole.stop} ({hole.reason})"
    if report.last_byte > report.end and not report.was_cut:
        yield f"what the {report.last_byte - report.end} bytes after {report.end} were part of"
    for finding in report.damage:
        if finding.kind is Kind.QUEUE and finding.fault == "lost":
            yield f"messages of {finding.place}: {finding.text}"
    if is_rebuild and (report.path / "consumequeue_ext").is_dir():
        yield "the filter bit maps in the extensions of the queues; they are not in the log"


def _notes(report: Report, config: StoreConfig | None) -> Iterator[str]:
    if config is None and report.queue_file_size is None:
        yield "no queue is left that shows the size of its files: they get RocketMQ's default size"
    if config is None and report.facts.has_index and report.facts.index_slot_count is None:
        yield "no index file tells how many slots it has: the index gets RocketMQ's default"


def _obstacles(report: Report, config: StoreConfig) -> Iterator[str]:
    least = _FILLER_SIZE_MIN
    if config.force_verify_property_crc:
        least += _CRC_PROPERTY_SIZE
    for hole in report.holes:
        start = max(hole.start, hole.stop - hole.stop % report.files.file_size)
        if 0 < hole.stop - start < least:
            yield (
                f"the {hole.stop - start} bytes from {start} on are too few for a record "
                f"({least} bytes) to fill them; bring the file back from a copy"
            )


# ---- doing


def filler(at: int, size: int, *, timestamp: int) -> bytes:
    """Return *size* bytes of records for offset *at* of a commit log, which enter no queue.

    *timestamp* is their store time. *size* is 91 or more; a long run is made of several records.
    """
    assert size >= _FILLER_SIZE_MIN
    parts = []
    while size:
        part = min(size, _FILLER_SIZE_MAX)
        if 0 < size - part < _FILLER_SIZE_MIN + _CRC_PROPERTY_SIZE:
            part -= _FILLER_SIZE_MIN + _CRC_PROPERTY_SIZE
        parts.append(_filler_record(at, part, timestamp))
        at += part
        size -= part
    return b"".join(parts)


def _filler_record(at: int, size: int, timestamp: int) -> bytes:
    """A record of *size* bytes, with the property CRC of the whole where there is room for it."""
    room = size - _FILLER_SIZE_MIN
    crc_size = _CRC_PROPERTY_SIZE if room >= _CRC_PROPERTY_SIZE else 0
    topic = _FILLER_TOPIC[: room - crc_size]
    body = bytes(room - crc_size - len(topic))

    queue = flag = queue_offset = reconsumed = prepared_offset = 0
    head = _FILLER_HEAD.pack(
        size,
        _MAGIC_V1,
        zlib.crc32(body) & 0x7FFFFFFF,
        queue,
        flag,
        queue_offset,
        at,
        TransactionType.ROLLBACK,
        timestamp,
        _HOST,
        timestamp,
        _HOST,
        reconsumed,
        prepared_offset,
        len(body),
    )

    record = head + body + bytes((len(topic),)) + topic + crc_size.to_bytes(2)
    if not crc_size:
        return record
    digits = f"{zlib.crc32(record) & 0x7FFFFFFF:010}"[::-1]
    return record + b"__CRC32#\1" + digits.encode() + b"\2"


def _distrust(report: Report, cut: Path) -> None:
    """Let the next start take nothing for granted: as after a crash, from the log's beginning."""

    path = report.path / "checkpoint"
    fields = [0] * 6
    if path.exists():
        _copy(path, 0, path.stat().st_size, cut / path.name)
        data = path.read_bytes().ljust(CHECKPOINT_FIELDS.size, b"\0")
        fields = list(CHECKPOINT_FIELDS.unpack_from(data))

    _, _, _, master_flushed, confirm, queues_offset = fields
    # Only a checkpoint of 5.5 has the last field; it must go on to say so.
    queues_offset = report.files.start + 1 if queues_offset and report.records else 0
    master_flushed, confirm = (max(-1, min(each, report.end)) for each in (master_flushed, confirm))
    data = CHECKPOINT_FIELDS.pack(0, 0, 0, master_flushed, confirm, queues_offset)
    with path.open("wb") as file:
        file.write(data.ljust(_CHECKPOINT_SIZE, b"\0"))
        _sync(file)

    with (report.path / "abort").open("ab") as file:
        _sync(file)
    _sync_folder(report.path)


def _do(action: Action, report: Report, cut: Path) -> None:
    if action.verb == "move":
        _move(action.path, report.path, cut)
    elif action.verb == "copy":
        shutil.copytree(action.path, cut / action.path.name)
    elif action.verb == "drop":
        shutil.rmtree(action.path)
    elif action.verb == "resize":
        _resize(action.path, action.start, cut)
    elif action.verb == "make":
        with action.path.open("xb") as file:
            file.truncate(action.start)
            _sync(file)
        _sync_folder(action.path.parent)
    elif action.verb == "blank":
        data = _BLANK.pack(action.stop - action.start, _BLANK_MAGIC)
        _overwrite(action.path, report, action.start, data, cut)
    elif action.verb == "fill":
        data = filler(action.start, action.stop - action.start, timestamp=action.timestamp)
        _overwrite(action.path, report, action.start, data, cut)
    elif action.verb == "cut":
        for each in report.files.files:
            start = max(action.start, each.start)
            stop = min(action.stop, each.start + report.files.file_size)
            if start < stop and each.path.exists():
                _overwrite(each.path, report, start, bytes(stop - start), cut)


def _overwrite(path: Path, report: Report, offset: int, data: bytes, cut: Path) -> None:
    at = offset % report.files.file_size
    _copy(path, at, len(data), cut / "commitlog" / f"{offset:020}")
    with path.open("r+b") as file:
        file.seek(at)
        file.write(data)
        _sync(file)


def _copy(path: Path, at: int, size: int, target: Path) -> None:
    """Copies bytes of a file into one of their own, on the device when this returns."""
    target.parent.mkdir(parents=True, exist_ok=True)
    with path.open("rb") as source, target.open("wb") as copy:
        source.seek(at)
        while size > 0 and (data := source.read(min(size, _COPY_BYTES))):
            copy.write(data)
            size -= len(data)
        _sync(copy)
    _sync_folder(target.parent)


def _move(path: Path, root: Path, cut: Path) -> None:
    """Moves a file or folder below cut, under its place in the store."""
    place = (
        path.relative_to(root) if path.is_relative_to(root) else Path(path.parent.name, path.name)
    )
    target = cut / place
    target.parent.mkdir(parents=True, exist_ok=True)
    try:
        shutil.move(path, target)
    except OSError as error:
        raise DiskError(error.errno or 0, f"moving {path} to {target}: {error}") from error
    _sync_folder(target.parent)
    _sync_folder(path.parent)


def _resize(path: Path, size: int, cut: Path) -> None:
    actual = path.stat().st_size
    if actual > size:
        _copy(path, size, actual - size, cut / path.parent.name / f"{path.name}-from-{size}")
    with path.open("r+b") as file:
        file.truncate(size)
        _sync(file)


def _open_once(plan: Plan) -> Recovery:
    report = plan.report
    sizes: _Sizes = {"commit_log_file_size_bytes": report.files.file_size}

    if plan.config is None and not is_remembered(report.path):
        # Found out before, for the files that showed it may be gone.
        facts = report.facts
        batch_size = facts.batch_consume_queue_file_size
        sizes |= {
            "consume_queue_file_size_bytes": report.queue_file_size,
            "batch_consume_queue_file_size_bytes": (
                batch_size if batch_size and batch_size % BATCH_UNIT_BYTES == 0 else None
            ),
            "consume_queue_ext_file_size_bytes": report.extension_file_size,
            "enable_consume_queue_ext": True if facts.ext_file_size else None,
            "index_slot_count": facts.index_slot_count,
            "index_entry_count": facts.index_entry_count,
        }

    settings = {name: value for name, value in sizes.items() if value is not None}
    if report.has_light_queues:
        settings["enable_multi_dispatch"] = True

    with store_module.open(report.path, plan.config, **settings) as store:
        return store.recovery


@disk_errors("looking at the store's files")
def _is_folder(path: Path) -> bool:
    return path.is_dir()


def _sync(file: IO[bytes]) -> None:
    file.flush()
    os.fsync(file.fileno())


def _sync_folder(folder: Path) -> None:
    descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
