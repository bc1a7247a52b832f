"""The verification as a whole."""

from __future__ import annotations

import os
import struct
import time
import zlib
from collections.abc import Iterator, Mapping
from contextlib import closing
from dataclasses import replace
from pathlib import Path
from typing import NamedTuple

from rmqstore import arguments
from rmqstore._native import core
from rmqstore.check.findings import Finding, Kind, Level, Report
from rmqstore.check.index import IndexCheck
from rmqstore.check.log import LogFiles, LogWalk, Progress, open_view
from rmqstore.check.queues import QueueCheck
from rmqstore.checkpoint import CHECKPOINT_FIELDS, CHECKPOINT_MARK
from rmqstore.config import StoreConfig
from rmqstore.errors import StoreError, disk_errors
from rmqstore.regular_file import read_regular
from rmqstore.store import Store
from rmqstore.store import open as open_store
from rmqstore.store.directory import Directory
from rmqstore.store.metadata import (
    ConsumerOffsets,
    DelayOffsets,
    FilterTable,
    LightConsumerOffsets,
    TopicTable,
)
from rmqstore.store.settings import is_remembered, remembered

__all__ = ["verify"]

_NO_LIMIT = 2**63


class _Ends(NamedTuple):
    """How a read-only opening sees the end of the log; see csrc/log/log_end.h."""

    cut: int | None = None
    """Where RocketMQ cut the log, None when it did not."""

    doubtful: int | None = None
    """Where it cut the log, or the log is damaged; which of the two is unknown."""

    queues: Mapping[tuple[str, int], int] = {}
    """Where the queues of a cut log end."""


_CHECKPOINT_5_3 = struct.Struct(">5q")
_MARK_AT = CHECKPOINT_FIELDS.size


@disk_errors("verifying the store")
def verify(
    path: str | os.PathLike[str],
    *,
    config: StoreConfig | None = None,
    full: bool = False,
    log_file_size: int | None = None,
    progress: Progress | None = None,
) -> Report:
    """Return what is right and wrong with the store at *path*; nothing is written.

    Every record is checked, with its CRC, after damage too; every queue entry is compared with
    its record, every record with its entries. Of the index about every hundredth record's keys are
    looked up, with *full* those of all. *log_file_size* is needed only where the only log file was
    cut. A store in use may be verified: what its writer does meanwhile shows as notes.

    Raises NotFoundError when there is no log, DiskError, ArgumentError.
    """
    began = time.monotonic()
    root = Path(arguments.absolute_path("path", path))
    if config is not None:
        arguments.instance("config", config, StoreConfig)
    arguments.boolean("full", full)
    if log_file_size is not None:
        log_file_size = arguments.integer("log_file_size", log_file_size, low=1)
    if progress is not None:
        arguments.function("progress", progress)

    settings = config or remembered(root)
    is_told = config is not None or is_remembered(root)
    facts = _facts(root, settings, is_told=is_told)
    # Beside a log of DLedger queues, index and checkpoint are about that log as well.
    has_whole_log = not facts.dledger_folder
    has_queues = facts.has_file_queues and has_whole_log

    # Read before the log is walked: a writer beside this is then never ahead of what is seen.
    checkpoint = _read(root / "checkpoint")
    files = LogFiles.find(root, config=config, file_size=log_file_size)
    index_folder = root / "index"
    index = IndexCheck(index_folder, facts, full=full)

    with (
        open_view(files, index=index_folder if facts.has_index else None, facts=facts) as view,
        closing(_queue_check(root, settings, is_told=is_told)) as queues,
    ):
        ends = _ends(root, config) if has_whole_log else _Ends()
        walk = LogWalk(view, files, stop=ends.cut, progress=progress)
        last_timestamp, newest_timestamp = _walk(
            walk, view, queues if has_queues else None, index if has_whole_log else None
        )

        def log_limit() -> int:
            later = LogFiles.find(root, config=config, file_size=files.file_size)
            limit = files.end if later.end > files.end else _NO_LIMIT
            return limit if ends.cut is None else min(limit, ends.cut)

        built_to = _built_to(facts, checkpoint)
        findings = [*_log_findings(files, walk, facts, ends)]
        if has_whole_log:
            findings += [
                *queues.findings(
                    view,
                    built_to=built_to,
                    log_start=files.start,
                    log_limit=log_limit,
                    kept_ends=ends.queues,
                ),
                *index.findings(built_to=built_to, log_end=walk.end, was_cut=ends.cut is not None),
                *_checkpoint_findings(
                    root / "checkpoint",
                    checkpoint,
                    log_end=_NO_LIMIT if ends.cut is not None else walk.end,
                    last_timestamp=last_timestamp,
                    newest_timestamp=newest_timestamp,
                ),
            ]
        findings += _config_findings(root)

        return Report(
            path=root,
            facts=facts,
            files=files,
            records=walk.records,
            end=walk.end,
            last_byte=walk.last_byte,
            was_cut=ends.cut is not None,
            holes=tuple(walk.holes),
            queues=queues.count,
            units=queues.matched,
            keys=index.keys,
            bad_queues=frozenset(queues.bad),
            orphan_queues=frozenset(queues.orphans),
            has_light_queues=queues.light_queues,
            queue_file_size=queues.file_size(is_batch=False),
            extension_file_size=queues.extension_size,
            findings=tuple(findings),
            milliseconds=int((time.monotonic() - began) * 1000),
        )


def _facts(root: Path, settings: StoreConfig, *, is_told: bool) -> Directory:
    """Returns what lies in the directory, with the sizes of index files that *settings* name."""
    facts = Directory.inspect(root, commit_log_paths=settings.commit_log_paths)
    if not is_told or facts.index_slot_count is not None:
        return facts
    return replace(
        facts,
        index_slot_count=settings.index_slot_count,
        index_entry_count=settings.index_entry_count,
    )


def _queue_check(root: Path, settings: StoreConfig, *, is_told: bool) -> QueueCheck:
    """Returns the check of the queues; without told settings it finds the sizes of their files."""
    return QueueCheck(
        root,
        delays_ms=settings.delay_levels_ms,
        queue_size=settings.consume_queue_file_whole_units_bytes if is_told else None,
        batch_size=settings.batch_consume_queue_file_size_bytes if is_told else None,
        extension_size=settings.consume_queue_ext_file_size_bytes if is_told else None,
    )


def _walk(
    walk: LogWalk, view: Store, queues: QueueCheck | None, index: IndexCheck | None
) -> tuple[int, int]:
    """Compares all records with queues and index; returns the last and the newest store time."""
    last_timestamp = newest_timestamp = 0
    for record in walk:
        last_timestamp = record.store_timestamp
        newest_timestamp = max(newest_timestamp, last_timestamp)
        if queues is not None:
            queues.see(record)
        if index is not None:
            index.see(record, view)
    return last_timestamp, newest_timestamp


def _ends(root: Path, config: StoreConfig | None) -> _Ends:
    try:
        with open_store(root, config, read_only=True) as store:
            found = store.recovery
            if not found.was_cut and core.classify_read_only_end(store) != "cut":
                return _Ends(doubtful=None if found.doubtful_offset < 0 else found.doubtful_offset)
            ends = {(queue.topic, queue.number): queue.end for queue in store.queues()}
            return _Ends(cut=found.end_offset, queues=ends)
    except (StoreError, OSError):
        return _Ends()  # what keeps it from opening is found by looking at its parts


def _log_findings(
    files: LogFiles, walk: LogWalk, facts: Directory, ends: _Ends
) -> Iterator[Finding]:
    if not facts.was_closed:
        text = "the store is in use or was not closed (abort is there)"
        yield Finding(Kind.LOG, str(facts.path), text, level=Level.NOTE)

    for part in facts.left_alone:
        yield Finding(Kind.LOG, str(facts.path), f"{part}: not looked at", level=Level.NOTE)
    if facts.dledger_folder:
        text = (
            f"queues, index and checkpoint also point into {facts.dledger_folder}/: "
            "only the records of the commit log are checked"
        )
        yield Finding(Kind.LOG, str(facts.path), text, level=Level.NOTE)

    for path in files.foreign:
        cure = "repair moves it to cut/"
        text = "is not a commit log file of this store"
        if path.exists() and not path.is_file():
            text = "is not a regular file"
        yield Finding(Kind.LOG, str(path), text, cure)

    for file in files.wrong_sizes:
        text = f"has {file.size} bytes instead of {files.file_size}"
        cure = "repair gives it its size back; what is gone stays gone"
        yield Finding(Kind.LOG, str(file.path), text, cure, offset=file.start)

    for start in files.missing:
        text = "the file is missing"
        cure = "bring it back; else repair puts an empty one in its place, its messages stay lost"
        yield Finding(Kind.LOG, str(files.path_of(start)), text, cure, offset=start)

    for hole in walk.holes:
        place = f"{hole.start} to {hole.stop}"
        text = f"{hole.size} bytes are not records: {hole.reason}"
        cure = "repair copies them to cut/ and lets readers pass; their messages stay lost"
        yield Finding(Kind.LOG, place, text, cure, offset=hole.start)

    if ends.doubtful is not None:
        text = "RocketMQ cut the log here, or it is damaged; which of the two is unknown"
        yield Finding(Kind.LOG, str(ends.doubtful), text, level=Level.NOTE, offset=ends.doubtful)

    if ends.cut is not None:
        place = f"{walk.end} to {walk.last_byte}"
        text = (
            f"RocketMQ cut its log and left {walk.last_byte - walk.end} bytes after its end at "
            f"{walk.end}, and the units and keys of what it cut; no reader sees them"
        )
        cure = "opening for writing copies the records among them to cut/ and clears the rest"
        yield Finding(Kind.LOG, place, text, cure, Level.NOTE, walk.end)
    elif walk.last_byte > walk.end:
        place = f"{walk.end} to {walk.last_byte}"
        text = f"the log ends in {walk.last_byte - walk.end} bytes that are not a record"
        cure = "repair copies them to cut/ and ends the log before them"
        yield Finding(Kind.LOG, place, text, cure, offset=walk.end)


def _built_to(facts: Directory, checkpoint: bytes | None) -> int:
    """Return up to where the log must be in queues and index.

    A store that was not closed may lag behind its log by anything; a replica that was holds back
    what is not confirmed (docs/replication.md, "Confirm offset").
    """
    if not facts.was_closed:
        return 0
    if not facts.has_epochs or checkpoint is None or len(checkpoint) < _CHECKPOINT_5_3.size:
        return _NO_LIMIT
    confirm = _CHECKPOINT_5_3.unpack_from(checkpoint)[4]
    return _NO_LIMIT if confirm == 0 else max(confirm, 0)


def _read(path: Path) -> bytes | None:
    try:
        return read_regular(path)
    except FileNotFoundError:
        return None


def _checkpoint_findings(
    path: Path,
    data: bytes | None,
    *,
    log_end: int,
    last_timestamp: int,
    newest_timestamp: int,
) -> Iterator[Finding]:
    rebuilt = "repair writes another; recovery then reads the whole log"
    if data is None:
        text = "is missing: a crash would be recovered by reading the whole log"
        yield Finding(Kind.CHECKPOINT, str(path), text, level=Level.NOTE)
        return

    if len(data) < _CHECKPOINT_5_3.size:
        yield Finding(Kind.CHECKPOINT, str(path), f"has {len(data)} bytes only", rebuilt)
        return

    physic, logics, indexed, _, confirm, logics_offset = CHECKPOINT_FIELDS.unpack_from(
        data.ljust(48, b"\0")
    )

    marked = _flushed_offset(data)
    if marked > log_end:
        text = f"says that the log was flushed up to {marked}, but it ends at {log_end}"
        yield Finding(Kind.CHECKPOINT, str(path), text, rebuilt, offset=marked)

    names = {"records": physic, "queues": logics, "index entries": indexed}
    for name, timestamp in names.items():
        if timestamp > newest_timestamp or timestamp < 0:
            text = (
                f"says that {name} were flushed up to time {timestamp}, but the last record is of "
                f"{newest_timestamp}: records may be lost"
            )
            yield Finding(Kind.CHECKPOINT, str(path), text, rebuilt)
        elif name == "records" and timestamp > last_timestamp and marked < 0:
            text = (
                f"the last record is of {last_timestamp}, older than the last one that was flushed "
                f"({timestamp}): the clock was set back, or RocketMQ cut the log and its next "
                "start brings back what it cut; which of the two is unknown"
            )
            yield Finding(Kind.CHECKPOINT, str(path), text, level=Level.NOTE)

    for name, offset in {"confirm offset": confirm, "queue offset": logics_offset}.items():
        if offset > log_end or offset < -1:
            text = f"has the {name} {offset}, but the log ends at {log_end}: records may be lost"
            yield Finding(Kind.CHECKPOINT, str(path), text, rebuilt, offset=offset)


def _flushed_offset(data: bytes) -> int:
    """What rmqstore adds to the checkpoint; -1 where it did not, or RocketMQ has written since."""
    if len(data) < _MARK_AT + CHECKPOINT_MARK.size:
        return -1
    offset, crc = CHECKPOINT_MARK.unpack_from(data, _MARK_AT)
    is_ours = crc == zlib.crc32(data[: _MARK_AT + 8]) and offset >= 0
    return int(offset) if is_ours else -1


def _config_findings(root: Path) -> Iterator[Finding]:
    for table in (TopicTable, ConsumerOffsets, LightConsumerOffsets, DelayOffsets, FilterTable):
        try:
            table.load(root)
        except StoreError as error:
            cure = "repair leaves it alone; mend it by hand or bring back a copy"
            yield Finding(Kind.CONFIG, str(root / "config"), str(error), cure)
