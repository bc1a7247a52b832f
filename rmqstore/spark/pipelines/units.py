"""Consume queue units compared with the records that call for them, queue by queue.

The records come sorted by queue and queue offset, so that gaps and duplicates show by themselves.
Where offsets follow each other without a break, the units they call for are made as bytes and
compared at once; single units are looked at only where those differ.
"""

from __future__ import annotations

from array import array
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, NamedTuple

from rmqstore._native import core
from rmqstore.check.findings import Finding, Kind, Level
from rmqstore.check.units import StoredQueue, Unit
from rmqstore.errors import NotFoundError
from rmqstore.queue_units import (
    BATCH_UNIT,
    EXTENSION_ADDRESS_MAX,
    EXTENSION_BASE,
    EXTENSION_END_BYTES,
    EXTENSION_UNIT,
    FILL_SIZE,
    UNIT,
)
from rmqstore.spark import files
from rmqstore.spark.read.layout import Layout
from rmqstore.store.removed_queues import REMOVED_QUEUES_FILE, parse_removed_queues

if TYPE_CHECKING:
    import pyarrow as pa

__all__ = ["Queues", "check_queues", "unseen"]

_WINDOW_UNITS = 1 << 15
_COMPARED_AT_ONCE_MIN = 8
_EVERYWHERE = 2**63 - 1
_REMOVED_BYTES_MAX = 1 << 30


@dataclass(frozen=True, slots=True)
class QueueFolder:
    """The files of a queue, as they are."""

    path: str
    file_size: int
    """What most files of such queues have."""

    starts: tuple[int, ...]
    """The names of those that are not empty, ascending."""

    @property
    def first(self) -> int:
        """The number of the first unit that there is room for."""
        return self.starts[0] // UNIT.size

    def file(self, start: int) -> str:
        """Return the path of the file that begins at a byte of the queue."""
        return files.join(self.path, f"{start:020d}")


@dataclass(frozen=True, slots=True)
class Queues:
    """All queues of a store, and the bounds of the log that their units may lead into."""

    root: str
    start: int
    end: int
    was_closed: bool
    folders: Mapping[StoredQueue, QueueFolder]
    findings: tuple[Finding, ...]
    """Files of a wrong size."""

    removed: Mapping[tuple[str, int], int] = field(default_factory=dict)
    """By topic and queue the log offset before which records are in no queue: those of deleted
    topics."""

    @property
    def level_at_end(self) -> Level:
        """How bad it is that the end of a queue is not that of the log."""
        return Level.DAMAGE if self.was_closed else Level.NOTE

    @classmethod
    def of(cls, layout: Layout) -> Queues:
        """Return the queues of a store, whatever state they are in."""
        sizes = {
            StoredQueue(topic, int(queue), bool(is_batch)): (path, files.Folder(path).names())
            for is_batch, name in enumerate(("consumequeue", "batchconsumequeue"))
            for topic in files.Folder(files.join(layout.root, name)).folders()
            for queue in files.Folder(files.join(layout.root, name, topic)).folders()
            if queue.isascii() and queue.isdecimal()
            for path in (files.join(layout.root, name, topic, queue),)
        }

        counts: dict[bool, Counter[int]] = {False: Counter(), True: Counter()}
        for name, (_, found) in sizes.items():
            counts[name.is_batch].update(size for size in found.values() if size)

        folders = {}
        findings: list[Finding] = []
        for name, (path, found) in sizes.items():
            usual = max(counts[name.is_batch].most_common(1), default=(0, 0))[0]
            for file, size in found.items():
                # The last file may have been made and not written.
                if size != usual and not (file == max(found) and not size):
                    text = f"has {size} bytes instead of {usual}"
                    findings.append(Finding(Kind.QUEUE, files.join(path, file), text, fault="file"))

            starts = tuple(int(file) for file, size in found.items() if size)
            if starts:
                folders[name] = QueueFolder(path, usual, starts)

        bounds = (layout.start, layout.end, layout.was_closed)
        removed = files.Folder(layout.root).read(REMOVED_QUEUES_FILE, _REMOVED_BYTES_MAX)
        return cls(
            layout.root,
            *bounds,
            folders,
            tuple(findings),
            {} if removed is None else parse_removed_queues(removed, layout.root),
        )


class _Units:
    """The units of one simple queue by number, read in windows."""

    def __init__(self, folder: QueueFolder | None) -> None:
        self._folder = folder
        self._first = self._stop = 0
        self._window = b""
        self._end: int | None = None

    def bytes_of(self, first: int, count: int) -> bytes:
        """Return the units from *first* on; fewer where the files end."""
        if not self._first <= first < first + count <= self._stop:
            self._first, self._stop = first, first + max(count, _WINDOW_UNITS)
            self._window = self._read(first, self._stop - first)
        at = (first - self._first) * UNIT.size
        return self._window[at : at + count * UNIT.size]

    def _read(self, first: int, count: int) -> bytes:
        if self._folder is None:
            return b""
        at, stop = first * UNIT.size, (first + count) * UNIT.size
        parts = []
        while at < stop:
            start = at - at % self._folder.file_size
            end = min(stop, start + self._folder.file_size)
            data = _read(self._folder.file(start), at - start, end - at)
            parts.append(data)
            if len(data) < end - at:
                break
            at = end
        whole = b"".join(parts)
        return whole[: len(whole) - len(whole) % UNIT.size]

    @property
    def end(self) -> int:
        """The number after the last unit that is not blank."""
        if self._end is None:
            self._end = 0
            for start in reversed(self._folder.starts if self._folder else ()):
                assert self._folder is not None
                path = self._folder.file(start)
                written = _read(path, 0, self._folder.file_size).rstrip(b"\0")
                if written:
                    self._end = -(-(start + len(written)) // UNIT.size)
                    break
        return self._end


def _read(path: str, offset: int, size: int) -> bytes:
    """The bytes of a file; fewer after its end, none where it is missing."""
    try:
        with files.open_file(path) as data:
            return data.read(offset, size) if offset < data.size else b""
    except (NotFoundError, FileNotFoundError):
        return b""


class _Fault(NamedTuple):
    """Queue offsets of one queue with the same fault."""

    first: int
    last: int
    kind: str
    """"gap", "duplicate", "missing", "wrong" or "stray"."""

    text: str
    level: Level = Level.DAMAGE

    def finding(self, name: StoredQueue) -> Finding:
        units = f"unit {self.first}"
        if self.last > self.first:
            units = f"units {self.first} to {self.last}"
        return Finding(
            Kind.QUEUE,
            str(name),
            f"{units}: {self.kind}: {self.text}",
            level=self.level,
            offset=self.first,
            last_offset=self.last,
            fault=self.kind,
        )


class _Check:
    """One queue, as the records that call for its units go by in the order of their offsets."""

    def __init__(self, queues: Queues, name: StoredQueue) -> None:
        self._queues = queues
        self._name = name
        folder = queues.folders.get(name)
        self._first = folder.first if folder and not name.is_batch else None
        self._units = _Units(None if name.is_batch else folder)
        self._batches = _batches(folder) if name.is_batch and folder else {}
        extension = ("consumequeue_ext", name.topic, str(name.queue_id))
        self._extension = files.join(queues.root, *extension)
        self._next: int | None = None
        self._last: _Fault | None = None
        """The last fault, to which the next one may belong."""

        self.matched = 0

    def run(self, units: list[Unit]) -> Iterator[Finding]:
        """Check units of neighbouring offsets, each of one message."""
        expected = _encoded(units)
        stored = self._units.bytes_of(units[0].queue_offset, len(units))
        if len(stored) == len(expected) and core.first_difference(expected, stored) < 0:
            self.matched += len(units)
            yield from self._place(units[0].queue_offset, units[-1].queue_offset + 1)
            return
        for unit in units:
            yield from self.one(unit)

    def one(self, unit: Unit) -> Iterator[Finding]:
        """Check a single unit."""
        yield from self._place(unit.queue_offset, unit.queue_offset + unit.message_count)
        kind, text, level = self._compare_batch(unit) if unit.is_batch else self._compare(unit)
        if kind:
            last = unit.queue_offset + unit.message_count - 1
            yield from self._add(_Fault(unit.queue_offset, last, kind, text, level))
        else:
            self.matched += 1

    def over(self) -> Iterator[Finding]:
        """Check the units that no record called for, after the last record."""
        if self._first is not None:
            first = self._first if self._next is None else self._next
            yield from self._strays(first, self._units.end)
        if self._last is not None:
            yield self._last.finding(self._name)

    def _place(self, first: int, stop: int) -> Iterator[Finding]:
        """Note the queue offsets that were left out or come twice."""
        if self._next is None:
            if self._first is not None:
                yield from self._strays(self._first, first)
        elif first > self._next:
            text = "no record of the log has this queue offset"
            yield from self._add(_Fault(self._next, first - 1, "gap", text))
        elif first < self._next:
            text = "several records of the log have this queue offset"
            yield from self._add(_Fault(first, min(stop, self._next) - 1, "duplicate", text))
        self._next = max(stop, self._next or 0)

    def _compare(self, unit: Unit) -> tuple[str, str, Level]:
        data = self._units.bytes_of(unit.queue_offset, 1)
        if not data.strip(b"\0"):
            is_behind = unit.queue_offset >= self._units.end
            text = f"the record at {unit.physical_offset} has none"
            return "missing", text, self._queues.level_at_end if is_behind else Level.DAMAGE

        place, size, code = UNIT.unpack(data)
        if size == FILL_SIZE and place == 0:
            return "missing", f"the record at {unit.physical_offset} has none", Level.DAMAGE

        wrong = []
        if place != unit.physical_offset:
            wrong.append(f"place {place} instead of {unit.physical_offset}")
        if size != unit.size:
            wrong.append(f"size {size} instead of {unit.size}")
        if code != unit.tags_code and self._extended(code) != unit.tags_code:
            wrong.append(f"tags code {code} instead of {unit.tags_code}")

        return ("wrong" if wrong else "", ", ".join(wrong), Level.DAMAGE)

    def _compare_batch(self, unit: Unit) -> tuple[str, str, Level]:
        found = self._batches.get(unit.physical_offset)
        if found is None:
            is_behind = unit.physical_offset > max(self._batches, default=-1)
            text = f"the record at {unit.physical_offset} has none"
            return "missing", text, self._queues.level_at_end if is_behind else Level.DAMAGE
        wanted = (unit.size, unit.tags_code, unit.queue_offset, unit.message_count)
        if found == wanted:
            return "", "", Level.NOTE
        names = ("size", "tags code", "base offset", "messages")
        wrong = [
            f"{name} {stored} instead of {called}"
            for name, stored, called in zip(names, found, wanted, strict=True)
            if stored != called
        ]
        return "wrong", ", ".join(wrong), Level.DAMAGE

    def _extended(self, address: int) -> int | None:
        """The tags code that is in the extension, None for a value that is not an address."""
        if address > EXTENSION_ADDRESS_MAX:
            return None

        at = address - EXTENSION_BASE
        try:
            sizes = files.Folder(self._extension).names()
        except (NotFoundError, FileNotFoundError):
            return None

        for name, size in sizes.items():
            start = int(name)
            room = start + size - EXTENSION_END_BYTES - at
            if start <= at and room >= EXTENSION_UNIT.size:
                data = _read(files.join(self._extension, name), at - start, EXTENSION_UNIT.size)
                unit_size, code, _, map_size = EXTENSION_UNIT.unpack(data)
                is_whole = unit_size == EXTENSION_UNIT.size + map_size and 0 <= map_size
                return int(code) if is_whole and unit_size <= room else None

        return None

    def _strays(self, first: int, stop: int) -> Iterator[Finding]:
        """Yield findings of units that point into the log or past its end without a record."""
        for start in range(first, stop, _WINDOW_UNITS):
            data = self._units.bytes_of(start, min(_WINDOW_UNITS, stop - start))
            if core.unit_positions(data, self._queues.start, _EVERYWHERE):
                for number, (place, size, _) in enumerate(UNIT.iter_unpack(data), start):
                    if size > 0 and place >= self._queues.start and size != FILL_SIZE:
                        yield from self._stray(number, place)

    def _stray(self, number: int, place: int) -> Iterator[Finding]:
        if place < self._queues.end:
            fault = _Fault(number, number, "stray", "leads to no record of this queue")
        else:
            text = f"leads past the end of the log at {self._queues.end}"
            fault = _Fault(number, number, "stray", text, self._queues.level_at_end)
        yield from self._add(fault)

    def _add(self, fault: _Fault) -> Iterator[Finding]:
        """Take *fault* together with the last one, or yield that one."""
        last = self._last
        if last and (last.kind, last.level, last.last + 1) == (
            fault.kind,
            fault.level,
            fault.first,
        ):
            # The text of the first is used for all of them.
            fault = last._replace(last=fault.last)
        elif last:
            yield last.finding(self._name)
        self._last = fault


def _encoded(units: list[Unit]) -> bytes:
    """The units as a queue stores them: one byte of all of them at a time, which is fast."""
    data = bytearray(len(units) * UNIT.size)
    fields = (("q", "physical_offset", 0), ("i", "size", 8), ("q", "tags_code", 12))
    for code, name, at in fields:
        values = array(code, [getattr(unit, name) for unit in units])
        values.byteswap()
        flat = values.tobytes()
        for index in range(values.itemsize):
            data[at + index :: UNIT.size] = flat[index :: values.itemsize]
    return bytes(data)


def _batches(folder: QueueFolder) -> dict[int, tuple[int, int, int, int]]:
    """Size, tags code, base offset and messages of the units of a batch queue, by their places."""
    found = {}
    for start in folder.starts:
        data = _read(folder.file(start), 0, folder.file_size)
        data = data[: len(data) - len(data) % BATCH_UNIT.size]
        for place, size, code, _, base, count, _, _ in BATCH_UNIT.iter_unpack(data):
            if size > 0:
                found[place] = (size, code, base, count)
    return found


def check_queues(
    queues: Queues, batches: Iterable[pa.RecordBatch]
) -> Iterator[Finding | tuple[StoredQueue, int]]:
    """Yield what is wrong with the queues, and for each its name and how many units fit.

    *batches* have the columns of Unit and come sorted by queue, queue offset and place.
    """
    name: StoredQueue | None = None
    check: _Check | None = None

    for units in _consecutive(batches, queues.removed):
        queue = units[0].queue
        if queue != name:
            if name is not None and check is not None:
                yield from check.over()
                yield name, check.matched
            # Light queues are built by stores that are set up for them.
            is_left_out = units[0].is_light and queue not in queues.folders
            name, check = queue, None if is_left_out else _Check(queues, queue)

        if check is None:
            continue
        if len(units) >= _COMPARED_AT_ONCE_MIN:
            yield from check.run(units)
        else:
            for unit in units:
                yield from check.one(unit)

    if name is not None and check is not None:
        yield from check.over()
        yield name, check.matched


def _consecutive(
    batches: Iterable[pa.RecordBatch], removed: Mapping[tuple[str, int], int]
) -> Iterator[list[Unit]]:
    """Yield lists of units of one queue whose offsets follow each other, without *removed* ones."""
    for batch in batches:
        following: list[Unit] = []
        for fields in zip(*(column.to_pylist() for column in batch.columns), strict=True):
            unit = Unit(*fields)
            if removed and unit.physical_offset < removed.get(unit[:2], 0):
                continue
            last = following[-1] if following else None
            if last and not (
                unit.queue_offset == last.queue_offset + 1
                and unit[:3] == last[:3]
                and not unit.is_batch
            ):
                yield following
                following = []
            following.append(unit)
        if following:
            yield following


def unseen(queues: Queues, seen: Iterable[StoredQueue]) -> Iterator[Finding]:
    """Yield what is wrong with the queues that no record calls for."""
    for name in sorted(queues.folders.keys() - set(seen)):
        yield from _Check(queues, name).over()
