"""Index files compared with the records whose keys they hold, file by file.

The entries of a file are in the order they were made in, so that they and the records, sorted by
place, go by side by side. The chains of the slots need no records: they follow from the entries.
"""

from __future__ import annotations

import os
from array import array
from bisect import bisect_right
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import groupby

from rmqstore.check.findings import Finding, Kind, Level
from rmqstore.index_layout import INDEX_ENTRY, INDEX_HEADER, INDEX_SLOT, entry_at
from rmqstore.spark import files
from rmqstore.spark.pipelines.calls import Keys

__all__ = ["IndexFile", "check_index", "entry_finding", "file_of", "headers"]

_ENTRIES_READ = 1 << 16
_SECONDS_MAX = 0x7FFFFFFF
_LISTED_MAX = 20


@dataclass(frozen=True, slots=True)
class IndexFile:
    """An index file by its header."""

    path: str
    slot_count: int
    begin_ms: int
    begin: int
    end: int
    """Physical offsets of its first and last record."""

    used_slots: int
    next_entry: int


def headers(folder: str, *, slot_count: int, entry_count: int) -> list[IndexFile | Finding]:
    """Return the index files of *folder* that hold entries, by place, and those that cannot be.

    The folder is a local one. The last file may be empty: it was made ahead.
    """
    size = entry_at(entry_count, slot_count=slot_count)
    found: list[IndexFile | Finding] = []
    with os.scandir(folder) as listed:
        names = {each.name: each.stat().st_size for each in listed if each.name.isdecimal()}

    for name, actual in sorted(names.items()):
        path = f"{folder}/{name}"
        if actual != size:
            if actual or name != max(names):
                text = f"has {actual} bytes instead of {size}"
                found.append(_finding(path, "file", text))
            continue

        with files.open_file(path) as data:
            begin_ms, end_ms, begin, end, used, entry = INDEX_HEADER.unpack(
                data.read(0, INDEX_HEADER.size)
            )

        is_sane = (
            0 <= begin_ms <= end_ms
            and 0 <= begin <= end
            and 0 < used < entry <= entry_count
            and used <= slot_count
        )

        if is_sane:
            found.append(IndexFile(path, slot_count, begin_ms, begin, end, used, entry))
        elif entry > 1 or name != max(names):
            found.append(_finding(path, "file", "its header contradicts itself"))

    return found


def file_of(index: Sequence[IndexFile], physical_offset: int) -> Iterator[int]:
    """Yield the numbers of the files that should hold the keys of the record at an offset.

    Those of a record between two files, or after the last, are in none.
    """
    begins = [each.begin for each in index]
    number = bisect_right(begins, physical_offset) - 1
    while number >= 0 and physical_offset <= index[number].end:
        yield number
        number -= 1


def check_index(
    file: IndexFile, records: Iterable[Keys], *, log_start: int, log_end: int
) -> Iterator[Finding | int]:
    """Yield what is wrong with *file*, and last how many of its entries fit.

    *records* are those with keys between its first and its last, ascending by place.
    """
    waiting = iter(records)
    record = next(waiting, None)
    matched = 0
    listed = _Limited(file.path)
    chains = _Chains(file)

    for place, group in groupby(chains.follow(_entries(file)), key=lambda entry: entry[2]):
        entries = list(group)
        if not file.begin <= place <= file.end:
            text = "its entries are outside of what the file's header says"
            yield from listed.report(place, "stray", text)
            continue

        while record is not None and record.physical_offset < place:
            yield from listed.missing(record)
            record = next(waiting, None)

        if record is None or record.physical_offset != place:
            if log_start <= place < log_end:
                text = "its entries lead to no record with keys"
                yield from listed.report(place, "stray", text)
            elif place >= log_end:
                text = f"its entries lead after the end of the log at {log_end}"
                yield from listed.report(place, "stray", text)
            continue

        trouble = _trouble(file, record, entries)
        if trouble:
            yield from listed.report(place, "wrong", trouble)
        else:
            matched += len(entries)
        record = next(waiting, None)

    while record is not None:
        yield from listed.missing(record)
        record = next(waiting, None)

    for text in chains.troubles():
        yield _finding(file.path, "chain", text)

    yield from listed.rest()
    yield matched


_Numbered = tuple[int, int, int, int, int]
"""Number, hash, physical offset, seconds and previous entry."""


def _trouble(file: IndexFile, record: Keys, entries: list[_Numbered]) -> str:
    is_first, is_last = entries[0][0] == 1, entries[-1][0] == file.next_entry - 1
    hashes = [entry[1] for entry in entries]
    if not record.fits(hashes, may_begin_late=is_first, may_end_early=is_last):
        return f"its entries are those of other keys: {len(entries)} entries"
    seconds = (record.store_timestamp - file.begin_ms) // 1000 if file.begin_ms > 0 else 0
    seconds = min(max(seconds, 0), _SECONDS_MAX)
    for number, _, _, stored, _ in entries:
        # The first entry of a file tells its time since the file before.
        if stored != seconds and number != 1:
            return f"entry {number} tells {stored} seconds instead of {seconds}"
    return ""


def _entries(file: IndexFile) -> Iterator[_Numbered]:
    start = entry_at(0, slot_count=file.slot_count)
    with files.open_file(file.path) as data:
        for first in range(1, file.next_entry, _ENTRIES_READ):
            count = min(_ENTRIES_READ, file.next_entry - first)
            read = data.read(start + first * INDEX_ENTRY.size, count * INDEX_ENTRY.size)
            for index, fields in enumerate(INDEX_ENTRY.iter_unpack(read)):
                yield first + index, *fields


class _Chains:
    """The slots of a file as its entries call for them."""

    def __init__(self, file: IndexFile) -> None:
        self._file = file
        self._newest = array("i", bytes(INDEX_SLOT.size * file.slot_count))
        self._broken = 0
        self._first_broken = 0

    def follow(self, entries: Iterable[_Numbered]) -> Iterator[_Numbered]:
        """Yield *entries* on, and note those that do not lead to the one before in their slot."""
        for entry in entries:
            number, hashed, _, _, previous = entry
            if hashed < 0:
                self._note(number)
            else:
                slot = hashed % self._file.slot_count
                if previous != self._newest[slot]:
                    self._note(number)
                self._newest[slot] = number
            yield entry

    def _note(self, number: int) -> None:
        self._broken += 1
        self._first_broken = self._first_broken or number

    def troubles(self) -> Iterator[str]:
        """Yield what is wrong with chains and slots, when all entries went by."""
        if self._broken:
            yield (
                f"{self._broken} entries do not lead to the one before in their slot, the first is "
                f"entry {self._first_broken}"
            )
        with files.open_file(self._file.path) as data:
            stored = array(
                "i", data.read(INDEX_HEADER.size, INDEX_SLOT.size * self._file.slot_count)
            )
        stored.byteswap()
        if stored != self._newest:
            wrong = sum(a != b for a, b in zip(stored, self._newest, strict=True))
            yield f"{wrong} slots do not name their newest entry"
        used = self._file.slot_count - self._newest.count(0)
        if used != self._file.used_slots:
            yield f"its header counts {self._file.used_slots} slots in use instead of {used}"


class _Limited:
    """Tells the first problems of a kind, and how many more there are."""

    def __init__(self, path: str) -> None:
        self._path = path
        self._counts: dict[str, int] = {}

    def missing(self, record: Keys) -> Iterator[Finding]:
        # Tags alone are entered by some releases only.
        if record.hashes:
            text = "its keys are not entered"
            yield from self.report(record.physical_offset, "missing", text)

    def report(self, place: int, kind: str, text: str) -> Iterator[Finding]:
        self._counts[kind] = self._counts.get(kind, 0) + 1
        if self._counts[kind] <= _LISTED_MAX:
            yield entry_finding(self._path, place, kind, text)

    def rest(self) -> Iterator[Finding]:
        for kind, count in self._counts.items():
            if count > _LISTED_MAX:
                text = f"{count - _LISTED_MAX} more of this kind"
                yield _finding(self._path, kind, text)


def _finding(path: str, fault: str, text: str) -> Finding:
    return Finding(Kind.INDEX, path, text, fault=fault)


def entry_finding(
    path: str, physical_offset: int, fault: str, text: str, level: Level = Level.DAMAGE
) -> Finding:
    """Return a finding about the entries of one record in an index file."""
    text = f"record at {physical_offset}: {fault}: {text}"
    return Finding(Kind.INDEX, path, text, level=level, offset=physical_offset, fault=fault)
