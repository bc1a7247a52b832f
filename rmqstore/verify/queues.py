"""Queues compared with the log: each record with its units, each unit with its record.

The units are read from their files directly, so that a damaged queue is seen as it is.
"""

from __future__ import annotations

import mmap
import os
import struct
from collections import Counter, OrderedDict
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path

from rmqstore._native.core import Record
from rmqstore.errors import StoreError
from rmqstore.message import SysFlag, TransactionType, decode_properties, tags_code
from rmqstore.regular_file import open_regular
from rmqstore.store import Store
from rmqstore.verify.findings import Finding, Kind, Level, QueueName
from rmqstore.verify.log import LogFile, file_size_of

__all__ = ["QueueCheck"]

_UNIT = struct.Struct(">qiq")
_BATCH_UNIT = struct.Struct(">qiqqqhii")
_EXTENSION_UNIT = struct.Struct(">hqqh")
_EXTENSION_END_SIZE = 4
_FILL_SIZE = 0x7FFFFFFF
_ADDRESS_MAX = -(2**31) - 1
_TOPIC_NAME_MAX = 255
_OPEN_FILES_MAX = 4096
_SCHEDULE = "SCHEDULE_TOPIC_XXXX"
_NO_LIGHT_QUEUES = ("%RETRY%", _SCHEDULE, "rmq_sys_")
_TRANSACTION = int(SysFlag.TRANSACTION_MASK)
_REBUILT = "repair rebuilds the queue from the log"
_QUEUES, _BATCH_QUEUES, _EXTENSIONS = "consumequeue", "batchconsumequeue", "consumequeue_ext"
_FOLDERS = ((_QUEUES, False), (_BATCH_QUEUES, True), (_EXTENSIONS, False))


@dataclass(frozen=True, slots=True)
class _Entry:
    """A unit that a record calls for."""

    queue: QueueName
    offset: int
    count: int
    physical_offset: int
    size: int
    tags_code: int
    is_light: bool = False


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
        self.unit = _BATCH_UNIT if is_batch else _UNIT
        self.is_batch = is_batch
        self._maps = maps
        self.files, self.foreign = _files_of(folder)
        self.extension, foreign = _files_of(extension)
        self.foreign += foreign
        self.extension_size: int | None = None
        sizes = [(file.start, file.size) for file in self.files]
        self.file_size = file_size_of(sizes) or self.unit.size
        self.units = {file.start: file for file in self.files if file.size >= self.unit.size}
        self.matched = 0
        self.lagging: tuple[int, int] | None = None
        """The units behind the last one that have a record, and where that of the first one is:
        `lagging_at`."""
        self.lagging_at = -1
        self.troubles = _Troubles()
        self._end: int | None = None
        self._batches: dict[int, tuple[int, ...]] | None = None

    def wrong_files(self) -> Iterator[Finding]:
        """Yield what opening the queue for writing refuses of its files."""
        for path in self.foreign:
            yield self._finding(path, "is no file of a queue", "repair moves it to cut/")
        for files, size in ((self.files, self.file_size), (self.extension, self.extension_size)):
            previous_end: int | None = None
            for file in _without_empty_end(files):
                if file.size != size:
                    text = f"has {file.size} bytes instead of {size}"
                    yield self._finding(file.path, text, _REBUILT)
                elif file.start % size:
                    text = f"has a name that is no multiple of the file size {size}"
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
        """Number behind the last unit that is not all zero."""
        if self._end is None:
            self._end = 0
            for file in reversed(self.files):
                data = self._data(file)
                used = _used_size(data)
                if used:
                    self._end = (file.start + used + self.unit.size - 1) // self.unit.size
                    break
        return self._end

    def _data(self, file: LogFile) -> mmap.mmap | bytes:
        return self._maps.of(file.path) if file.size else b""

    def bytes_of(self, number: int) -> bytes:
        """The unit of a queue offset; b"" where no file holds it."""
        at = number * self.unit.size
        file = self.units.get(at - at % self.file_size)
        if file is None or at - file.start + self.unit.size > file.size:
            return b""
        data: bytes = self._data(file)[at - file.start : at - file.start + self.unit.size]
        return data

    def numbered(self) -> Iterator[tuple[int, tuple[int, ...]]]:
        """Yield number and fields of every unit up to the last that is not zero."""
        for file in self.files:
            if not file.size:
                continue
            first = file.start // self.unit.size
            stop = min(file.size // self.unit.size, self.end - first)
            if stop > 0:
                data = memoryview(self._data(file))[: stop * self.unit.size]
                try:
                    for index, fields in enumerate(self.unit.iter_unpack(data)):
                        yield first + index, fields
                finally:
                    data.release()

    def check(self, entry: _Entry) -> None:
        if self.is_batch:
            self._check_batch(entry)
            return
        data = self.bytes_of(entry.offset)
        if not data.strip(b"\0"):
            is_behind = entry.offset >= self.end
            # The dispatcher of a writer beside this may have come by.
            data = self.bytes_of(entry.offset)
        if not data.strip(b"\0"):
            if is_behind:
                self._lag(entry, entry.offset)
            else:
                self.troubles.add("is missing", entry.offset, entry.offset)
            return
        physical_offset, size, code = _UNIT.unpack(data)
        place = (entry.physical_offset, entry.size, entry.tags_code)
        if (physical_offset, size, self._code_of(code)) == place:
            self.matched += 1
        elif size == _FILL_SIZE and physical_offset == 0:
            self.troubles.add("is missing", entry.offset, entry.offset)
        else:
            self.troubles.add("does not fit its record", entry.offset, entry.offset)

    def _lag(self, entry: _Entry, last: int) -> None:
        if self.lagging is None:
            self.lagging_at = entry.physical_offset
        first = self.lagging[0] if self.lagging else entry.offset
        self.lagging = (min(first, entry.offset), last)

    def _code_of(self, stored: int) -> int | None:
        """The tags code, which may lie in the extension; None where it has no whole unit there."""
        if stored > _ADDRESS_MAX:
            return stored
        place = stored + (1 << 63)
        for file in self.extension:
            at, left = place - file.start, file.start + file.size - place
            if at < 0 or left < _EXTENSION_UNIT.size + _EXTENSION_END_SIZE:
                continue
            size, code, _, map_size = _EXTENSION_UNIT.unpack_from(self._maps.of(file.path), at)
            is_whole = size == _EXTENSION_UNIT.size + map_size and map_size >= 0
            return code if is_whole and size <= left - _EXTENSION_END_SIZE else None
        return None

    def _check_batch(self, entry: _Entry) -> None:
        if self._batches is None:
            self._batches = {fields[0]: fields for _, fields in self.numbered() if fields[1] > 0}
        fields = self._batches.get(entry.physical_offset)
        last = entry.offset + entry.count - 1
        if fields is None:
            past = max((each[0] for each in self._batches.values()), default=-1)
            if entry.physical_offset > past:
                self._lag(entry, last)
            else:
                self.troubles.add("is missing", entry.offset, last)
        elif (fields[1], fields[2], fields[4], fields[5]) == (
            entry.size,
            entry.tags_code,
            entry.offset,
            entry.count,
        ):
            self.matched += 1
        else:
            self.troubles.add("does not fit its record", entry.offset, last)

    def strays(self, log_start: int, log_limit: int, kept_end: int | None) -> list[tuple[int, int]]:
        """Number and physical offset of the units into the log, when more than were matched.

        Units from the queue offset *kept_end* on are those of records that RocketMQ cut.
        """
        real = [
            (number, fields[0])
            for number, fields in self.numbered()
            if not (fields[1] == _FILL_SIZE and fields[0] == 0)
            and (fields[0] >= log_start or fields[0] < 0 or fields[1] <= 0)
            and fields[0] < log_limit
            and (kept_end is None or (fields[4] if self.is_batch else number) < kept_end)
            and any(fields)
        ]
        return real if len(real) > self.matched else []


class QueueCheck:
    """Compares queues with records as these are walked; `findings` tells the outcome."""

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
        self._queues: dict[QueueName, _Queue] = {}
        self._codes: dict[str | None, int] = {}
        self.light_queues = False
        self.bad: set[QueueName] = set()
        self.orphans: set[QueueName] = set()
        for folder, is_batch in _FOLDERS:
            for topic in _folders(root / folder):
                for queue in _folders(topic):
                    name = topic.name, int(queue.name) if queue.name.isdecimal() else -1
                    is_other = folder == _EXTENSIONS and (*name, True) in self._queues
                    if name[1] >= 0 and not is_other:
                        self._queue((*name, is_batch))
        sizes = Counter(
            file.size for queue in self._queues.values() for file in queue.extension if file.size
        )
        if extension_size is None and sizes:
            extension_size = max(sizes, key=lambda size: (sizes[size], size))
        self.extension_size = extension_size
        """The size most files of extensions have, unless it is known; None without any."""
        for each in self._queues.values():
            each.extension_size = extension_size
        # A queue of one file does not tell by itself that it was cut.
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

    def _queue(self, name: QueueName) -> _Queue:
        found = self._queues.get(name)
        if found is None:
            topic, number, is_batch = name
            folder = self._root / (_BATCH_QUEUES if is_batch else _QUEUES) / topic / str(number)
            extension = self._root / _EXTENSIONS / topic / str(number)
            found = _Queue(folder, extension, is_batch=is_batch, maps=self._maps)
            self._queues[name] = found
        return found

    def see(self, record: Record) -> None:
        """Compare the units that *record* calls for."""
        for entry in self._entries(record):
            if entry.is_light and entry.queue not in self._queues:
                continue  # Light queues are built by stores that are set up for them.
            self.light_queues = self.light_queues or entry.is_light
            self._queue(entry.queue).check(entry)

    def _entries(self, record: Record) -> Iterator[_Entry]:
        flags = record.sys_flag
        if flags & _TRANSACTION in (TransactionType.PREPARED, TransactionType.ROLLBACK):
            return
        topic, number = record.topic, record.queue
        if number < 0 or not _is_folder_name(topic):
            return
        text = record.properties_text
        tags = record.tags
        code = self._codes.get(tags)
        if code is None:
            code = self._codes[tags] = tags_code(tags)
            if len(self._codes) > 65_536:
                self._codes.clear()
        offset, count = record.queue_offset, 1
        properties: dict[str, str] = {}
        if "INNER_" in text or topic == _SCHEDULE:
            properties = decode_properties(text)
            code = self._deliver_time(record, properties) if topic == _SCHEDULE else code
            count = _int_of(properties.get("INNER_NUM"), 0)
            base = _int_of(properties.get("INNER_BASE"), -1)
            if 0 < count <= 32767 and base >= 0:
                offset = base
            else:
                count = 1
        is_batch = bool(flags & SysFlag.INNER_BATCH)
        queue = (topic, number, is_batch)
        place = record.physical_offset
        yield _Entry(queue, offset, count, place, record.size, code)
        names = properties.get("INNER_MULTI_DISPATCH")
        if names and not topic.startswith(_NO_LIGHT_QUEUES):
            offsets = properties.get("INNER_MULTI_QUEUE_OFFSET", "").split(",")
            for name, light_offset in zip(names.split(","), offsets, strict=False):
                light = (name, 0 if name.startswith("%LMQ%") else number, False)
                at = _int_of(light_offset, -1)
                if at >= 0 and _is_folder_name(name):
                    yield _Entry(light, at, 1, place, record.size, code, True)

    def _deliver_time(self, record: Record, properties: dict[str, str]) -> int:
        level = _int_of(properties.get("DELAY"), 0)
        if level <= 0:
            return tags_code(properties.get("TAGS"))
        if not self._delays_ms:
            return record.store_timestamp + 1000
        return record.store_timestamp + self._delays_ms[min(level, len(self._delays_ms)) - 1]

    def findings(
        self,
        view: Store,
        *,
        built_to: int,
        log_start: int,
        log_limit: int,
        kept_ends: Mapping[tuple[str, int], int],
    ) -> Iterator[Finding]:
        """Yield what is wrong, after the last record was seen.

        Records below *built_to* should be in their queues. What lies at or behind *log_limit* was
        written meanwhile, or cut. *kept_ends* are the ends of queues in a log that RocketMQ cut.
        """
        for name, queue in sorted(self._queues.items()):
            kept_end = kept_ends.get(name[:2])
            found = list(self._judge(name, queue, view, built_to, (log_start, log_limit, kept_end)))
            if any(finding.level is Level.DAMAGE for finding in found):
                has_records = queue.matched or queue.lagging or queue.troubles.ranges
                is_bad = has_records or self._is_second(name, queue)
                (self.bad if is_bad else self.orphans).add(name)
            yield from found

    def _judge(
        self,
        name: QueueName,
        queue: _Queue,
        view: Store,
        built_to: int,
        log_range: tuple[int, int, int | None],
    ) -> Iterator[Finding]:
        place = f"{name[0]}/{name[1]}"
        yield from queue.wrong_files()
        if self._is_second(name, queue):
            text = "the topic has queues under consumequeue and under batchconsumequeue"
            yield Finding(Kind.QUEUE, str(queue.folder), text, "repair moves it to cut/")
        for text, first, last in queue.troubles.ranges:
            yield Finding(Kind.QUEUE, place, _units_text(first, last, text), _REBUILT, offset=first)
        if queue.lagging:
            first, last = queue.lagging
            if queue.lagging_at < built_to:
                text = _units_text(first, last, "is missing")
                yield Finding(Kind.QUEUE, place, text, _REBUILT, offset=first)
            else:
                text = _units_text(first, last, "is not built yet")
                cure = "an open store builds what is missing, a replica what is confirmed of it"
                yield Finding(Kind.QUEUE, place, text, cure, Level.NOTE, first)
        if queue.troubles.ranges:
            return
        strays = _Troubles()
        for number, physical_offset in queue.strays(*log_range):
            trouble = self._trouble_with(name, number, physical_offset, view)
            if trouble:
                strays.add(trouble, number, number)
        for text, first, last in strays.ranges:
            yield Finding(Kind.QUEUE, place, _units_text(first, last, text), _REBUILT, offset=first)

    def _is_second(self, name: QueueName, queue: _Queue) -> bool:
        """Whether the folder stands beside one of the other kind, which fits more records."""
        other = self._queues.get((name[0], name[1], not name[2]))
        if other is None or not (other.folder.is_dir() and queue.folder.is_dir()):
            return False
        return (queue.matched, not name[2]) < (other.matched, name[2])

    def _trouble_with(
        self, name: QueueName, number: int, physical_offset: int, view: Store
    ) -> str | None:
        """What is wrong with a unit that no record called for; None when one does after all."""
        try:
            record = view.record_at(physical_offset)
        except StoreError:
            return "leads to no whole record: its message is lost"
        for entry in self._entries(record):
            if entry.queue == name and (name[2] or entry.offset == number):
                return None
        return "leads to a message of another place"


def _files_of(folder: Path) -> tuple[list[LogFile], list[Path]]:
    """The files of a folder by their first offsets, and those that are none of a queue."""
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


def _is_folder_name(topic: str) -> bool:
    if not topic or topic in (".", "..") or "/" in topic or "\0" in topic:
        return False
    return len(topic.encode("utf-8", "surrogateescape")) <= _TOPIC_NAME_MAX


def _int_of(text: str | None, default: int) -> int:
    try:
        return int(text) if text else default
    except ValueError:
        return default
