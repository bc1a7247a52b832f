"""`epoch`: the list of a store's epochs, and whether files, list and log agree."""

from __future__ import annotations

import re
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from typing import Any

from rmqstore.cli.errors import ExitCode, check_directory, command, opened
from rmqstore.cli.options import ConfigOption, JsonOption, StorePath
from rmqstore.cli.output import print_json, print_rows
from rmqstore.directory import EPOCH_FILE
from rmqstore.errors import CorruptionError, NotFoundError
from rmqstore.replication.epoch import EpochEntry, parse_epochs
from rmqstore.store import Store
from rmqstore.verify import Level

__all__ = ["EpochFile", "EpochFinding", "check", "epoch", "read_files", "used"]

_SIZE_MAX = 64 << 20
_HEAD_LINES = 2
_LOOKS_MAX, _LOOK_AGAIN_SECONDS = 3, 0.02


@dataclass(frozen=True, slots=True)
class EpochFile:
    """An epoch file as it lies on the disk."""

    path: Path
    text: str
    entries: tuple[EpochEntry, ...]
    """All lines that can be read; of a sound file that is every one."""

    fault: str | None
    """What is wrong with count, CRC, form or order; None for a sound file."""

    @property
    def crc(self) -> str:
        """The CRC's line, "0" for a file that has none."""
        return (self.text.splitlines()[1:_HEAD_LINES] or [""])[0]


@dataclass(frozen=True, slots=True)
class EpochFinding:
    """One thing about the epochs that is not as it should be, or is good to know."""

    place: str
    text: str
    cure: str = ""
    level: Level = Level.DAMAGE
    offset: int = -1
    """Physical offset, -1 where there is none."""

    def __str__(self) -> str:
        cure = f"; {self.cure}" if self.cure else ""
        return f"{self.level} {self.place}: {self.text}{cure}"

    def as_json(self) -> dict[str, Any]:
        """Return the fields for `--json`."""
        return {
            "level": str(self.level),
            "kind": "epoch",
            "place": self.place,
            "offset": self.offset,
            "text": self.text,
            "cure": self.cure,
        }


def read_files(root: Path) -> tuple[EpochFile | None, EpochFile | None]:
    """Return the epoch file of the store at *root* and its copy, None for one that is not there.

    Raises OSError where the system refuses.
    """
    for look in range(_LOOKS_MAX):
        if look:
            time.sleep(_LOOK_AGAIN_SECONDS)
        files = _read(root / EPOCH_FILE), _read(root / f"{EPOCH_FILE}.bak")
        # A running broker of RocketMQ's removes the file, then renames another to it.
        if files == (None, None) or (files[0] is not None and files[0].fault is None):
            break
    return files


def used(files: Sequence[EpochFile | None]) -> EpochFile | None:
    """Return the file whose list counts: the first sound one; else the first that is there."""
    there = [file for file in files if file is not None]
    return next((file for file in there if file.fault is None), there[0] if there else None)


def _read(path: Path) -> EpochFile | None:
    try:
        with path.open("rb") as file:
            text = file.read(_SIZE_MAX).decode("ascii", "replace")
    except FileNotFoundError:
        return None
    try:
        return EpochFile(path, text, parse_epochs(text), None)
    except CorruptionError as error:
        fault = str(error).removeprefix("epoch file: ")
        return EpochFile(path, text, tuple(_readable(text.splitlines()[_HEAD_LINES:])), fault)


def _readable(lines: Sequence[str]) -> Iterator[EpochEntry]:
    for line in lines:
        # A file of this line alone; its CRC of 0 is none.
        if re.fullmatch("[0-9]+-[0-9]+", line):
            try:
                yield from parse_epochs(f"1\n0\n{line}\n")
            except CorruptionError:
                continue


@command
def epoch(path: StorePath, json: JsonOption = False, config: ConfigOption = None) -> ExitCode:
    """Show the epochs of a store, and check list, files and log against each other.

    An epoch is the reign of one master; the file epochFileCheckpoint, which RocketMQ keeps as well,
    tells where in the log each begins. Nothing is written. Exits with 1 when something is damaged,
    or when there are no epochs.
    """
    check_directory(path)
    # Before the log: what a writer beside this adds then is never ahead of what is seen of the log.
    files = read_files(path)
    with opened(path, config) as store:
        found = tuple(check(path, files, store))
        start, end = max(store.start_offset, 0), store.end_offset
    chosen = used(files)
    if chosen is None:
        raise NotFoundError(
            f"{path} has no {EPOCH_FILE}: it was never part of a group that keeps epochs"
        )
    rows = list(_rows(chosen.entries, log_end=end))
    is_sound = all(each.level is Level.NOTE for each in found)
    if json:
        _print_as_json(path, chosen, rows, found, log=(start, end))
    else:
        print_rows(("epoch", "start", "end", "bytes"), rows)
        for each in found:
            print(each)
        damage = sum(each.level is Level.DAMAGE for each in found)
        verdict = "sound" if is_sound else f"{damage} findings of damage"
        print(f"{chosen.path}: {verdict}: {len(rows)} epochs; the log goes from {start} to {end}")
    return ExitCode.OK if is_sound else ExitCode.FAULT


def _print_as_json(
    root: Path,
    file: EpochFile,
    rows: Sequence[tuple[int, int, int, int]],
    found: Sequence[EpochFinding],
    *,
    log: tuple[int, int],
) -> None:
    for number, start, end, size in rows:
        print_json(
            {"type": "epoch", "epoch": number, "startOffset": start, "endOffset": end}
            | {"bytes": size}
        )
    for each in found:
        print_json({"type": "finding"} | each.as_json())
    damage = sum(each.level is Level.DAMAGE for each in found)
    print_json(
        {
            "type": "summary",
            "path": str(root),
            "file": str(file.path),
            "sound": not damage,
            "epochs": len(rows),
            "crc": file.crc,
            "startOffset": log[0],
            "endOffset": log[1],
            "damage": damage,
            "notes": len(found) - damage,
        }
    )


def _rows(entries: Sequence[EpochEntry], *, log_end: int) -> Iterator[tuple[int, int, int, int]]:
    for entry, after in pairwise((*entries, None)):
        assert entry is not None
        end = max(log_end, entry.start_offset) if after is None else after.start_offset
        yield entry.epoch, entry.start_offset, end, end - entry.start_offset


def check(
    root: Path, files: tuple[EpochFile | None, EpochFile | None], store: Store
) -> Iterator[EpochFinding]:
    """Yield what is not right with the epoch files of the store at *root*, and with their list
    against the log of *store*.

    *files* must have been read before the store was opened.
    """
    yield from _check_files(root, *files)
    chosen = used(files)
    if chosen is not None:
        place = str(chosen.path)
        yield from _check_list(place, chosen.entries, max(store.start_offset, 0), store.end_offset)
        yield from _check_borders(place, chosen.entries, store)


def _check_files(
    root: Path, file: EpochFile | None, copy: EpochFile | None
) -> Iterator[EpochFinding]:
    is_copy_sound = copy is not None and copy.fault is None
    if file is None and copy is not None:
        text = "is missing, though its copy is there"
        cure = "the copy counts; its list may be the one of before" if is_copy_sound else ""
        yield EpochFinding(str(root / EPOCH_FILE), text, cure)
    elif file is not None and file.fault is not None:
        cure = "bring back the file; without epochs a fork of the log cannot be told"
        if is_copy_sound:
            cure = "the copy counts; its list may be the one of before"
        yield EpochFinding(str(file.path), file.fault, cure)
    if copy is None:
        return
    if copy.fault is not None:
        yield EpochFinding(str(copy.path), copy.fault, "it is written anew with the next epoch")
    elif file is not None and file.fault is None and copy.entries != file.entries:
        # RocketMQ renames the file to the copy and writes another.
        text = (
            f"holds another list, of {len(copy.entries)} epochs: as RocketMQ leaves it, of before"
        )
        yield EpochFinding(str(copy.path), text, level=Level.NOTE)


def _check_list(
    place: str, entries: Sequence[EpochEntry], log_start: int, log_end: int
) -> Iterator[EpochFinding]:
    if entries and entries[0].start_offset > log_start:
        text = (
            f"the log's bytes from {log_start} to {min(entries[0].start_offset, log_end)} belong "
            "to no epoch: written before the store joined its group, or their epoch is lost"
        )
        yield EpochFinding(place, text, level=Level.NOTE, offset=log_start)
    for number, start, end, size in _rows(entries, log_end=log_end):
        if start > log_end:
            text = f"epoch {number} begins at {start}, behind the end of the log at {log_end}"
            cure = (
                "rmqstore leaves it out when the store becomes a replica; RocketMQ acknowledges "
                "bytes that are not there"
            )
            yield EpochFinding(place, text, cure, offset=start)
        elif size < 0:
            text = f"epoch {number} begins at {start}, the one after it before that, at {end}"
            yield EpochFinding(place, text, offset=start)
        elif end < log_start:
            text = f"epoch {number} ends at {end}, before the log begins at {log_start}"
            yield EpochFinding(place, text, level=Level.NOTE, offset=start)
        elif size == 0 and end < log_end:
            text = f"nothing that lasted was written in epoch {number}"
            yield EpochFinding(place, text, level=Level.NOTE, offset=start)


def _check_borders(
    place: str, entries: Sequence[EpochEntry], store: Store
) -> Iterator[EpochFinding]:
    for entry in entries:
        at = entry.start_offset
        if not max(store.start_offset, 0) <= at < store.end_offset:
            continue
        scan = store.scan_log(at, at + 1, check_crc=False, on_corrupt="stop")
        try:
            next(scan, None)
            if scan.verdict == "bad":
                text = f"epoch {entry.epoch} begins at {at}, where no record does"
                cure = "the list is of another log, or the log is damaged: rmqstore verify PATH"
                yield EpochFinding(place, text, cure, offset=at)
        finally:
            scan.close()
