"""The commit log as a whole: its records in order, and the queues and index that follow from them.

The log is a run of files of one size, each named after its first physical offset in twenty
digits. A record never crosses the end of a file and leaves at least 8 bytes free; where the next
one does not fit, a blank sends the reader to the next file. The log ends before the first bytes
that are no record.

Source: MappedFileQueue, CommitLog, ConsumeQueue, BatchConsumeQueue and IndexService of RocketMQ
5.3.3, IndexService of 5.5.0.
"""

from collections.abc import Callable, Iterable, Iterator
from collections.abc import Set as AbstractSet
from dataclasses import dataclass, replace
from itertools import pairwise
from pathlib import Path

from tests.reference import (
    batch_consume_queue,
    consume_queue,
    consume_queue_ext,
    index_file,
    properties,
    record,
)
from tests.reference.record import BadRecord, Record

LIGHT_PREFIX = "%LMQ%"


def files(directory: Path) -> list[tuple[int, bytes]]:
    """Return start offset and bytes of each file in *directory*, in order."""
    return sorted((int(path.name), path.read_bytes()) for path in directory.iterdir())


def read_run(directory: Path) -> tuple[int, bytes]:
    """Return start offset and joined bytes of a run of files without holes."""
    found = files(directory)
    for (start, data), (following, _) in pairwise(found):
        if start + len(data) != following:
            raise ValueError(f"{directory}: hole between {start + len(data)} and {following}")
    return found[0][0], b"".join(data for _, data in found)


def walk(directory: Path) -> Iterator[tuple[int, Record]]:
    """Yield physical offset and record from the first file on, body CRCs checked."""
    for start, data in files(directory):
        at = 0
        while not record.is_blank(data, at):
            try:
                found = record.decode(data, at)
            except BadRecord:
                return
            if not record.body_crc_is_right(found):
                return
            yield start + at, found
            at += found.size


def end_offset(directory: Path) -> int:
    """Return the offset behind the last record."""
    last = files(directory)[0][0]
    for offset, found in walk(directory):
        last = offset + found.size
    return last


@dataclass(frozen=True, slots=True, kw_only=True)
class Entry:
    """One message, or one inner batch, as its queue sees it."""

    topic: str
    queue_id: int
    queue_offset: int
    physical_offset: int
    size: int
    tags_code: int
    store_timestamp: int
    count: int = 1
    ext_address: int | None = None
    bitmap: bytes = b""

    def unit(self) -> consume_queue.Unit:
        tags_code = self.tags_code if self.ext_address is None else self.ext_address
        return consume_queue.Unit(self.physical_offset, self.size, tags_code)

    def ext_unit(self) -> consume_queue_ext.Unit:
        return consume_queue_ext.Unit(self.tags_code, self.store_timestamp, self.bitmap)

    def batch_unit(self) -> batch_consume_queue.Unit:
        return batch_consume_queue.Unit(
            self.physical_offset,
            self.size,
            self.tags_code,
            self.store_timestamp,
            self.queue_offset,
            self.count,
        )


Queues = dict[tuple[str, int], list[Entry]]


def entries_of(
    found: Record, *, batch_topics: AbstractSet[str] = frozenset(), multi_dispatch: bool = False
) -> list[Entry]:
    """Return the entries of one record: none, its own, or its own and those of its light queues."""
    if found.transaction in (record.PREPARED, record.ROLLBACK):
        return []

    pairs = found.properties
    own = Entry(
        topic=found.topic,
        queue_id=found.queue_id,
        queue_offset=found.queue_offset,
        physical_offset=found.physical_offset,
        size=found.size,
        tags_code=found.tags_code,
        store_timestamp=found.store_timestamp,
    )

    if found.topic in batch_topics:
        if properties.INNER_BASE in pairs and properties.INNER_COUNT in pairs:
            base, count = int(pairs[properties.INNER_BASE]), int(pairs[properties.INNER_COUNT])
            own = replace(own, queue_offset=base, count=count)
        return [own]

    light = _light_entries(own, pairs) if multi_dispatch and _may_multi_dispatch(own.topic) else []
    return [own, *light]


def _may_multi_dispatch(topic: str) -> bool:
    return not topic.startswith(("%RETRY%", "rmq_sys_")) and topic != properties.SCHEDULE_TOPIC


def _light_entries(own: Entry, pairs: dict[str, str]) -> list[Entry]:
    names = pairs.get(properties.LIGHT_QUEUES, "").split(",")
    offsets = pairs.get(properties.LIGHT_QUEUE_OFFSETS, "").split(",")
    if not names[0] or len(names) != len(offsets):
        return []
    return [
        replace(
            own,
            topic=name,
            queue_id=0 if name.startswith(LIGHT_PREFIX) else own.queue_id,
            queue_offset=int(offset),
        )
        for name, offset in zip(names, offsets, strict=True)
        if "/" not in name
    ]


def build_queues(
    records: Iterable[Record],
    *,
    batch_topics: AbstractSet[str] = frozenset(),
    multi_dispatch: bool = False,
) -> Queues:
    """Return the entries of every queue in queue order, the same for both releases."""
    queues: Queues = {}
    for found in records:
        for entry in entries_of(found, batch_topics=batch_topics, multi_dispatch=multi_dispatch):
            queues.setdefault((entry.topic, entry.queue_id), []).append(entry)
    return queues


def extend_queues(
    queues: Queues, *, bitmap_of: Callable[[Entry], bytes], file_size: int
) -> tuple[Queues, dict[tuple[str, int], bytes]]:
    """Return *queues* with extension addresses, and each extension's run of files."""
    extended: Queues = {}
    runs = {}
    for key, entries in queues.items():
        mapped = [replace(entry, bitmap=bitmap_of(entry)) for entry in entries]
        addresses, runs[key] = consume_queue_ext.encode(
            (entry.ext_unit() for entry in mapped), file_size=file_size
        )
        extended[key] = [
            replace(entry, ext_address=address)
            for entry, address in zip(mapped, addresses, strict=True)
        ]
    return extended, runs


def index_request(found: Record, *, tag_keys: bool) -> index_file.Request:
    """Return what *found* adds to the index; *tag_keys* is true for 5.5.

    In this order: the unique key, the tokens of KEYS, the tag. A rollback has no keys.
    """
    pairs = found.properties
    names = []
    if found.transaction != record.ROLLBACK:
        names += [pairs[properties.UNIQUE_KEY]] if properties.UNIQUE_KEY in pairs else []
        names += properties.index_keys(pairs)
        names += [f"T#{pairs[properties.TAGS]}"] if tag_keys and properties.TAGS in pairs else []
    return index_file.Request(
        keys=[f"{found.topic}#{name}" for name in names],
        physical_offset=found.physical_offset,
        store_timestamp=found.store_timestamp,
    )


def build_index(
    records: Iterable[Record], *, slot_count: int, entry_count: int, tag_keys: bool
) -> index_file.Index:
    """Return the index over *records*, from an empty one."""
    index = index_file.Index(slot_count=slot_count, entry_count=entry_count)
    for found in records:
        index.put(index_request(found, tag_keys=tag_keys))
    return index
