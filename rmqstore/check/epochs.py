"""The epoch list of a store: its file and the copy, and whether files, list and log agree."""

from __future__ import annotations

import re
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from typing import NamedTuple

from rmqstore.check.findings import Finding, Kind, Level
from rmqstore.epochs import EPOCH_FILE_CURE, EpochEntry, parse_epochs
from rmqstore.errors import CorruptionError
from rmqstore.store import Store
from rmqstore.store.directory import EPOCH_FILE

__all__ = ["EpochFile", "Reign", "check_epochs", "effective", "read_epoch_files", "reigns"]

_SIZE_MAX = 64 << 20
_HEAD_LINES = 2
_LOOKS_MAX, _LOOK_AGAIN_SECONDS = 3, 0.02


@dataclass(frozen=True, slots=True)
class EpochFile:
    """An epoch file as it is on the disk."""

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


class Reign(NamedTuple):
    """The bytes of the log that were written in one epoch, [*start*, *end*)."""

    epoch: int
    start: int
    end: int


def read_epoch_files(root: Path) -> tuple[EpochFile | None, EpochFile | None]:
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


def effective(files: Sequence[EpochFile | None]) -> EpochFile | None:
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
        fault = str(error).removeprefix("epoch file: ").removesuffix(EPOCH_FILE_CURE)
        return EpochFile(path, text, tuple(_readable(text.splitlines()[_HEAD_LINES:])), fault)


def _readable(lines: Sequence[str]) -> Iterator[EpochEntry]:
    for line in lines:
        # A file of this line alone; its CRC of 0 means no CRC.
        if re.fullmatch("[0-9]+-[0-9]+", line):
            try:
                yield from parse_epochs(f"1\n0\n{line}\n")
            except CorruptionError:
                continue


def reigns(entries: Sequence[EpochEntry], *, log_end: int) -> Iterator[Reign]:
    """Yield the bytes of the log that each epoch wrote, by the epoch list alone."""
    for entry, after in pairwise((*entries, None)):
        assert entry is not None
        end = max(log_end, entry.start_offset) if after is None else after.start_offset
        yield Reign(entry.epoch, entry.start_offset, end)


def check_epochs(
    root: Path, files: tuple[EpochFile | None, EpochFile | None], store: Store
) -> Iterator[Finding]:
    """Yield what is not right with the epoch files of the store at *root*, and with their list
    against the log of *store*.

    *files* must have been read before the store was opened.
    """
    yield from _check_files(root, *files)
    chosen = effective(files)
    if chosen is not None:
        place = str(chosen.path)
        yield from _check_list(place, chosen.entries, max(store.start_offset, 0), store.end_offset)
        yield from _check_starts(place, chosen.entries, store)


def _check_files(root: Path, file: EpochFile | None, copy: EpochFile | None) -> Iterator[Finding]:
    is_copy_sound = copy is not None and copy.fault is None

    if file is None and copy is not None:
        text = "is missing, though its copy is there"
        cure = "the copy counts; its list may be the previous one" if is_copy_sound else ""
        yield Finding(Kind.EPOCH, str(root / EPOCH_FILE), text, cure)
    elif file is not None and file.fault is not None:
        cure = "bring back the file; without epochs a fork of the log cannot be found"
        if is_copy_sound:
            cure = "the copy counts; its list may be the previous one"
        yield Finding(Kind.EPOCH, str(file.path), file.fault, cure)

    if copy is None:
        return

    if copy.fault is not None:
        yield Finding(Kind.EPOCH, str(copy.path), copy.fault, "the next epoch writes it again")
    elif file is not None and file.fault is None and copy.entries != file.entries:
        # RocketMQ renames the file to the copy and writes another.
        text = f"holds another list, of {len(copy.entries)} epochs, as RocketMQ leaves the last one"
        yield Finding(Kind.EPOCH, str(copy.path), text, level=Level.NOTE)


def _check_list(
    place: str, entries: Sequence[EpochEntry], log_start: int, log_end: int
) -> Iterator[Finding]:
    if entries and entries[0].start_offset > log_start:
        text = (
            f"the log's bytes from {log_start} to {min(entries[0].start_offset, log_end)} belong "
            "to no epoch: written before the store joined its group, or their epoch is lost"
        )
        yield Finding(Kind.EPOCH, place, text, level=Level.NOTE, offset=log_start)
    for number, start, end in reigns(entries, log_end=log_end):
        size = end - start
        if start > log_end:
            text = f"epoch {number} begins at {start}, after the end of the log at {log_end}"
            cure = (
                "rmqstore leaves it out when the store becomes a replica; RocketMQ acknowledges "
                "bytes that are not there"
            )
            yield Finding(Kind.EPOCH, place, text, cure, offset=start)
        elif size < 0:
            text = f"epoch {number} begins at {start}, the one after it before that, at {end}"
            yield Finding(Kind.EPOCH, place, text, offset=start)
        elif end < log_start:
            text = f"epoch {number} ends at {end}, before the log begins at {log_start}"
            yield Finding(Kind.EPOCH, place, text, level=Level.NOTE, offset=start)
        elif size == 0 and end < log_end:
            text = f"nothing that lasted was written in epoch {number}"
            yield Finding(Kind.EPOCH, place, text, level=Level.NOTE, offset=start)


def _check_starts(place: str, entries: Sequence[EpochEntry], store: Store) -> Iterator[Finding]:
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
                yield Finding(Kind.EPOCH, place, text, cure, offset=at)
        finally:
            scan.close()
