"""Queues compared with the log: each record with its units, each unit with its record.

The units are read from their files directly, so that a damaged queue is seen as it is.
"""

from __future__ import annotations

import mmap
import os
from collections import Counter, OrderedDict
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path

from rmqstore._native.core import Record
from rmqstore.check.findings import Finding, Kind, Level
from rmqstore.check.log import LogFile, file_size_of
from rmqstore.check.units import StoredQueue, Unit, needs_properties, tags_code_of, units_of
from rmqstore.errors import CorruptionError, StoreError
from rmqstore.message import decode_properties
from rmqstore.queue_units import (
    BATCH_UNIT,
    EXTENSION_ADDRESS_MAX,
    EXTENSION_BASE,
    EXTENSION_END_BYTES,
    EXTENSION_UNIT,
    FILL_SIZE,
    UNIT,
)
from rmqstore.regular_file import open_regular
from rmqstore.store import Store
from rmqstore.store.removed_queues import REMOVED_QUEUES_FILE, read_removed_queues

__all__ = ["QueueCheck"]

_OPEN_FILES_MAX = 4096
_CODES_MAX = 65_536
_LOST = "leads to no whole record: its message is lost"
_ELSEWHERE = "leads to a message of another place"
_FAULTS = {
    "is missing": "missing",
    "does not fit its record": "wrong",
    _LOST: "lost",
    _ELSEWHERE: "stray",
}
_REBUILT = "repair rebuilds the queue from the log"
_QUEUES, _BATCH_QUEUES, _EXTENSIONS = "consumequeue", "batchconsumequeue", "consumequeue_ext"
_FOLDERS = ((_QUEUES, False), (_BATCH_QUEUES, True), (_EXTENSIONS, False))


class _Maps:
    """Maps files while they are needed, not too many at a time."""

    def __init__(self) -> None:
        self._open: OrderedDict[Path, mmap.mmap] = OrderedDict()

    def of(self, path: Path) -> mmap.mmap:
        found = self._open.get(path)
        if found is None:
            with open_regular(path) as file:
                found = mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ)
            self._open[path] = found
            if len(self._open) > _OPEN_FILES_MAX:
                self._open.popitem(last=False)[1].close()
        else:
            self._open.move_to_end(path)
        return found

    def close(self) -> None:
        while self._open:
            self._open.popitem()[1].close()


@dataclass(slots=True)
class _Troubles:
    """Queue offsets with one trouble each, neighbours taken together."""

    ranges: list[tuple[str, int, int]] = field(default_factory=list)

    def add(self, text: str, first: int, last: int) -> None:
        if self.ranges and self.ranges[-1][0] == text and self.ranges[-1][2] + 1 == first:
            first = self.ranges.pop()[1]
        self.ranges.append((text, first, last))


class _Queue:
    """The files of one queue and what the walk through the log made of them."""

    def __init__(self, folder: Path, extension: Path, *, is_batch: bool, maps: _Maps) -> None:
        self.folder = folder
        self.layout = BATCH_UNIT if is_batch else UNIT
        self.is_batch = is_batch
        self._maps = maps

        self.files, self.foreign = _files_of(folder)
        self.extension, foreign = _files_of(extension)
        self.foreign += foreign
        self.extension_size: int | None = None

        sizes = [(file.start, file.size) for file in self.files]
        self.file_size = file_size_of(sizes) or self.layout.size
        self.units = {file.start: file for file in self.files if file.size >= self.layout.size}

        self.matched = 0
        self.lagging: tuple[int, int] | None = None
        """The units after the last one that have a record, and where that of the first one is:
        `lagging_at`."""
        self.lagging_at = -1

        self.troubles = _Troubles()
        self._end: int | None = None
        self._batches: dict[int, tuple[int, ...]] | None = None

    def wrong_files(self) -> Iterator[Finding]:
        """Yield what opening the queue for writing refuses of its files."""
        for path in self.foreign:
            text = "is not a file of a queue"
            cure = "repair moves it to cut/"
            yield Finding(Kind.QUEUE, str(path), text, cure, fault="foreign")
        for files, size in ((self.files, self.file_size), (self.extension, self.extension_size)):
            previous_end: int | None = None
            for file in _without_empty_end(files):
                if file.size != size:
                    text = f"has {file.size} bytes instead of {size}"
                    yield self._finding(file.path, text, _REBUILT)
                elif file.start % size:
                    text = f"has a name that is not a multiple of the file size {size}"
                    yield self._finding(file.path, text, _REBUILT)
                elif previous_end is not None and file.start != previous_end:
                    text = f"does not follow the file before it, which ends at {previous_end}"
                    yield self._finding(file.path, text, _REBUILT)
                previous_end = file.start + (size or 0)
        if self.is_batch:
            yield from self._wrong_batches()

    def _wrong_batches(self) -> Iterator[Finding]:
        """The first and the last unit bound the queue offsets."""
        units = [fields for _, fields in self.numbered()]
        if not units or not any(_is_sane_batch(fields) for fields in units):
            return
        first, last = units[0], next(each for each in reversed(units) if _is_sane_batch(each))
        if not _is_sane_batch(first):
            text = "begins with a unit that holds no messages"
            yield self._finding(self.folder, text, _REBUILT)
        elif first[4] > last[4] + last[5]:
            text = f"runs from queue offset {first[4]} back to {last[4] + last[5]}"
            yield self._finding(self.folder, text, _REBUILT)

    def _finding(self, path: Path, text: str, cure: str) -> Finding:
        return Finding(Kind.QUEUE, str(path), text, cure)

    @property
    def end(self) -> int:
        """Number after the last unit that is not all zero."""
        if self._end is None:
            self._end = 0
            for file in reversed(self.files):
                data = self._data(file)
                used = _used_size(data)
                if used:
                    self._end = (file.start + used + self.layout.size - 1) // self.layout.size
                    break
        return self._end

    def _data(self, file: LogFile) -> mmap.mmap | bytes:
        return self._maps.of(file.path) if file.size else b""

    def bytes_of(self, number: int) -> bytes:
        """The unit of a queue offset; b"" where no file holds it."""
        at = number * self.layout.size
        file = self.units.get(at - at % self.file_size)
        if file is None or at - file.start + self.layout.size > file.size:
            return b""
        data: bytes = self._data(file)[at - file.start : at - file.start + self.layout.size]
        return data

    def numbered(self) -> Iterator[tuple[int, tuple[int, ...]]]:
        """Yield number and fields of every unit up to the last that is not zero."""
        for file in self.files:
            if not file.size:
                continue
            first = file.start // self.layout.size
            stop = min(file.size // self.layout.size, self.end - first)
            if stop > 0:
                data = memoryview(self._data(file))[: stop * self.layout.size]
                try:
                    for index, fields in enumerate(self.layout.iter_unpack(data)):
                        yield first + index, fields
                finally:
                    data.release()

    def check(self, unit: Unit) -> None:
        if self.is_batch:
            self._check_batch(unit)
            return

        data = self.bytes_of(unit.queue_offset)
        if not data.strip(b"\0"):
            is_behind = unit.queue_offset >= self.end
            # The dispatcher of a writer beside this may have come by.
            data = self.bytes_of(unit.queue_offset)

        if not data.strip(b"\0"):
            if is_behind:
                self._lag(unit, unit.queue_offset)
            else:
                self.troubles.add("is missing", unit.queue_offset, unit.queue_offset)
            return

        physical_offset, size, code = UNIT.unpack(data)
        place = (unit.physical_offset, unit.size, unit.tags_code)
        if (physical_offset, size, self._code_of(code)) == place:
            self.matched += 1
        elif size == FILL_SIZE and physical_offset == 0:
            self.troubles.add("is missing", unit.queue_offset, unit.queue_offset)
        else:
            self.troubles.add("does not fit its record", unit.queue_offset, unit.queue_offset)

    def _lag(self, unit: Unit, last: int) -> None:
        if self.lagging is None:
            self.lagging_at = unit.physical_offset
        first = self.lagging[0] if self.lagging else unit.queue_offset
        self.lagging = (min(first, unit.queue_offset), last)

    def _code_of(self, stored: int) -> int | None:
        """The tags code, which may lie in the extension; None where it has no whole unit there."""
        if stored > EXTENSION_ADDRESS_MAX:
            return stored
        place = stored - EXTENSION_BASE
        for file in self.extension:
            at, left = place - file.start, file.start + file.size - place
            if at < 0 or left < EXTENSION_UNIT.size + EXTENSION_END_BYTES:
                continue
            size, code, _, map_size = EXTENSION_UNIT.unpack_from(self._maps.of(file.path), at)
            is_whole = size == EXTENSION_UNIT.size + map_size and map_size >= 0
            return code if is_whole and size <= left - EXTENSION_END_BYTES else None
        return None

    def _check_batch(self, unit: Unit) -> None:
        if self._batches is None:
            self._batches = {fields[0]: fields for _, fields in self.numbered() if fields[1] > 0}

        fields = self._batches.get(unit.physical_offset)
        last = unit.queue_offset + unit.message_count - 1

        if fields is None:
            past = max((each[0] for each in self._batches.values()), default=-1)
            if unit.physical_offset > past:
                self._lag(unit, last)
            else:
                self.troubles.add("is missing", unit.queue_offset, last)
        elif (fields[1], fields[2], fields[4], fields[5]) == (
            unit.size,
            unit.tags_code,
            unit.queue_offset,
            unit.message_count,
        ):
            self.matched += 1
        else:
            self.troubles.add("does not fit its record", unit.queue_offset, last)

    def strays(
        self, log_start: int, log_limit: Callable[[], int], kept_end: int | None
    ) -> list[tuple[int, int]]:
        """Number and physical offset of the units into the log, when more than were matched.

        Units from the queue offset *kept_end* on are those of records that RocketMQ cut.
        """
        found = [
            (number, fields[0])
            for number, fields in self.numbered()
            if not (fields[1] == FILL_SIZE and fields[0] == 0)
            and (fields[0] >= log_start or fields[0] < 0 or fields[1] <= 0)
            and (kept_end is None or (fields[4] if self.is_batch else number) < kept_end)
            and any(fields)
        ]
        if len(found) <= self.matched:
            return []

        # A writer makes a log file before any unit leads there, so the limit is asked for last.
        limit = log_limit()
        real = [unit for unit in found if unit[1] < limit]
        return real if len(real) > self.matched else []


class QueueCheck:
    """Compares queues with records as these are walked; `findings` is the outcome."""

    def __init__(
        self,
        root: Path,
        *,
        delays_ms: tuple[int, ...],
        queue_size: int | None = None,
        batch_size: int | None = None,
        extension_size: int | None = None,
    ) -> None:
        """The sizes of files, where they are known, are those that opening will ask for."""
        self._root = root
        self._delays_ms = delays_ms
        self._maps = _Maps()
        self._queues: dict[StoredQueue, _Queue] = {}
        self._codes: dict[str | None, int] = {}
        self.light_queues = False
        self._removed: Mapping[tuple[str, int], int] = {}
        self._removed_fault = ""
        try:
            self._removed = read_removed_queues(root)
        except CorruptionError as error:
            self._removed_fault = str(error)
        self.bad: set[StoredQueue] = set()
        self.orphans: set[StoredQueue] = set()

        for folder, is_batch in _FOLDERS:
            for topic in _folders(root / folder):
                for queue in _folders(topic):
                    if not queue.name.isdecimal():
                        continue
                    name = StoredQueue(topic.name, int(queue.name), is_batch)
                    # The extension of a batch queue is not a queue of its own.
                    is_known = name._replace(is_batch=True) in self._queues
                    if folder != _EXTENSIONS or not is_known:
                        self._queue(name)

        sizes = Counter(
            file.size for queue in self._queues.values() for file in queue.extension if file.size
        )
        if extension_size is None and sizes:
            extension_size = max(sizes, key=lambda size: (sizes[size], size))
        self.extension_size = extension_size
        """The size most files of extensions have, unless it is known; None without any."""

        for each in self._queues.values():
            each.extension_size = extension_size

        # A queue of one file does not show that it was cut.
        for is_batch in (False, True):
            size = (batch_size if is_batch else queue_size) or self.file_size(is_batch=is_batch)
            for each in self._queues.values():
                if each.is_batch == is_batch and size is not None:
                    each.file_size = size

    def close(self) -> None:
        """Let go of the mapped files."""
        self._maps.close()

    @property
    def count(self) -> int:
        """Queues that have files or ought to."""
        return len(self._queues)

    @property
    def matched(self) -> int:
        """Units that fit their records."""
        return sum(queue.matched for queue in self._queues.values())

    def file_size(self, *, is_batch: bool) -> int | None:
        """The size most files of such queues have, None without any."""
        sizes = Counter(
            file.size
            for queue in self._queues.values()
            for file in queue.files
            if file.size and queue.is_batch == is_batch
        )
        return sizes.most_common(1)[0][0] if sizes else None

    def _queue(self, name: StoredQueue) -> _Queue:
        found = self._queues.get(name)
        if found is None:
            place = Path(name.topic, str(name.queue_id))
            folder = self._root / (_BATCH_QUEUES if name.is_batch else _QUEUES) / place
            extension = self._root / _EXTENSIONS / place
            found = _Queue(folder, extension, is_batch=name.is_batch, maps=self._maps)
            self._queues[name] = found
        return found

    def see(self, record: Record) -> None:
        """Compare the units that *record* calls for."""
        for unit in self._units_of(record):
            if unit.is_light and unit.queue not in self._queues:
                continue  # Light queues are built by stores that are set up for them.
            if unit.physical_offset < self._removed.get(unit[:2], 0):
                continue  # Of a deleted topic.
            self.light_queues = self.light_queues or unit.is_light
            self._queue(unit.queue).check(unit)

    def _units_of(self, record: Record) -> Iterator[Unit]:
        topic, text, tags = record.topic, record.properties_text, record.tags
        properties: dict[str, str] = {}
        code = self._codes.get(tags)
        if needs_properties(topic, text):
            properties = decode_properties(text)
            code = self._tags_code(record, properties)
        elif code is None:
            code = self._codes[tags] = self._tags_code(record, properties)
            if len(self._codes) > _CODES_MAX:
                self._codes.clear()

        return units_of(
            topic,
            record.queue,
            queue_offset=record.queue_offset,
            physical_offset=record.physical_offset,
            size=record.size,
            tags_code=code,
            sys_flag=record.sys_flag,
            properties=properties,
        )

    def _tags_code(self, record: Record, properties: dict[str, str]) -> int:
        return tags_code_of(
            record.topic,
            record.tags,
            properties,
            store_timestamp=record.store_timestamp,
            delays_ms=self._delays_ms,
        )

    def findings(
        self,
        view: Store,
        *,
        built_to: int,
        log_start: int,
        log_limit: Callable[[], int],
        kept_ends: Mapping[tuple[str, int], int],
    ) -> Iterator[Finding]:
        """Yield what is wrong, after the last record was seen.

        Records below *built_to* should be in their queues. Records at or after the offset that
        *log_limit* returns were written during the check, or cut. *kept_ends* are the ends of
        queues in a log that RocketMQ cut.
        """
        if self._removed_fault:
            place = str(self._root / REMOVED_QUEUES_FILE)
            yield Finding(Kind.QUEUE, place, self._removed_fault, fault="foreign")
        for name, queue in sorted(self._queues.items()):
            kept_end = kept_ends.get(name[:2])
            found = list(
                self._check_queue(name, queue, view, built_to, (log_start, log_limit, kept_end))
            )
            if any(finding.level is Level.DAMAGE for finding in found):
                has_records = queue.matched or queue.lagging or queue.troubles.ranges
                is_bad = has_records or self._is_second(name, queue)
                (self.bad if is_bad else self.orphans).add(name)
            yield from found

    def _check_queue(
        self,
        name: StoredQueue,
        queue: _Queue,
        view: Store,
        built_to: int,
        log_range: tuple[int, Callable[[], int], int | None],
    ) -> Iterator[Finding]:
        place = str(name)
        yield from queue.wrong_files()
        if self._is_second(name, queue):
            text = "the topic has queues under consumequeue and under batchconsumequeue"
            yield Finding(Kind.QUEUE, str(queue.folder), text, "repair moves it to cut/")

        for trouble in queue.troubles.ranges:
            yield _of_units(place, *trouble)
        if queue.lagging:
            first, last = queue.lagging
            if queue.lagging_at < built_to:
                yield _of_units(place, "is missing", first, last)
            else:
                text = _units_text(first, last, "is not built yet")
                cure = "an open store builds what is missing, a replica what is confirmed of it"
                yield Finding(Kind.QUEUE, place, text, cure, Level.NOTE, first, last, "lagging")

        if queue.troubles.ranges:
            return

        strays = _Troubles()
        for number, physical_offset in queue.strays(*log_range):
            reason = self._trouble_with(name, number, physical_offset, view)
            if reason:
                strays.add(reason, number, number)

        for stray in strays.ranges:
            yield _of_units(place, *stray)

    def _is_second(self, name: StoredQueue, queue: _Queue) -> bool:
        """Whether the folder is beside one of the other kind, which fits more records."""
        other = self._queues.get(name._replace(is_batch=not name.is_batch))
        if other is None or not (other.folder.is_dir() and queue.folder.is_dir()):
            return False
        return (queue.matched, not name.is_batch) < (other.matched, name.is_batch)

    def _trouble_with(
        self, name: StoredQueue, number: int, physical_offset: int, view: Store
    ) -> str | None:
        """What is wrong with a unit that no record called for; None when one does after all."""
        try:
            record = view.record_at(physical_offset)
        except StoreError:
            return _LOST
        for unit in self._units_of(record):
            if unit.queue == name and (name.is_batch or unit.queue_offset == number):
                return None
        return _ELSEWHERE


def _files_of(folder: Path) -> tuple[list[LogFile], list[Path]]:
    """The files of a folder by their first offsets, and those that do not belong to a queue."""
    found: dict[int, LogFile] = {}
    foreign = []
    for path in sorted(folder.iterdir()) if folder.is_dir() else []:
        if path.name.isdecimal() and path.is_file() and int(path.name) not in found:
            found[int(path.name)] = LogFile(path, int(path.name), path.stat().st_size)
        elif not path.is_dir():
            foreign.append(path)
    return [found[start] for start in sorted(found)], foreign


def _without_empty_end(files: list[LogFile]) -> list[LogFile]:
    """Files at the end that were made and not written are empty."""
    stop = len(files)
    while stop and not files[stop - 1].size:
        stop -= 1
    return files[:stop]


def _is_sane_batch(fields: tuple[int, ...]) -> bool:
    return fields[0] >= 0 and fields[1] > 0 and fields[4] >= 0 and fields[5] > 0


def _used_size(data: mmap.mmap | bytes) -> int:
    """Size without the zeros at the end."""
    end = len(data)
    while end:
        size = min(65_536, end)
        used = len(data[end - size : end].rstrip(b"\0"))
        if used:
            return end - size + used
        end -= size
    return 0


def _of_units(place: str, text: str, first: int, last: int) -> Finding:
    return Finding(
        Kind.QUEUE,
        place,
        _units_text(first, last, text),
        _REBUILT,
        offset=first,
        last_offset=last,
        fault=_FAULTS[text],
    )


def _units_text(first: int, last: int, text: str) -> str:
    if first == last:
        return f"unit {first} {text}"
    plural = {"is": "are", "does": "do", "leads": "lead"}
    verb, _, rest = text.partition(" ")
    rest = rest.replace("its record", "their records").replace("its message is", "messages are")
    return f"units {first} to {last} {plural[verb]} {rest}"


def _folders(folder: Path) -> Iterator[Path]:
    try:
        with os.scandir(folder) as entries:
            names = sorted(entry.name for entry in entries if entry.is_dir())
    except (FileNotFoundError, NotADirectoryError):
        return
    for name in names:
        yield folder / name
