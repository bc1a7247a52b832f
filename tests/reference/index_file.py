"""The hash index from keys to physical offsets, as a model in memory.

    at  size  header
    0   8     store timestamp of the first record
    8   8     store timestamp of the last record
    16  8     physical offset of the first record
    24  8     physical offset of the last record
    32  4     slots in use
    36  4     number of the next entry, from 1; entry 0 is never used

    slot i at 40 + 4 i:
    0   4     newest entry of the slot, 0 for none

    entry k at 40 + 4 slots + 20 k:
    0   4     hash: |Java hash of the key text|, 0 for -2^31
    4   8     physical offset
    12  4     whole seconds from the header's first timestamp to the record's
    16  4     previous entry of the slot, 0 for none

A key text is `topic#key`. A record has its unique key first, then the tokens of KEYS; 5.5 enters
the tag last, as `topic#T#tag`. A file is full when the next entry has the number that *entry_count*
says, so it holds one less. A file is named after the time it was made at.

Source: IndexFile, IndexHeader and IndexService of RocketMQ 5.3.3; tag keys of 5.5.0.
"""

import struct
from collections.abc import Sequence
from dataclasses import dataclass, field

from tests.reference import java_text

HEADER = struct.Struct(">qqqqii")
SLOT = struct.Struct(">i")
ENTRY = struct.Struct(">iqii")
INT32_MAX = 0x7FFFFFFF


def key_hash(text: str) -> int:
    """Return the hash that an entry keeps of a key text."""
    value = abs(java_text.string_hash(text))
    return value if value <= INT32_MAX else 0


@dataclass(frozen=True, slots=True)
class Entry:
    hash: int
    physical_offset: int
    seconds: int
    previous: int


UNUSED = Entry(0, 0, 0, 0)


@dataclass(frozen=True, slots=True, kw_only=True)
class Request:
    """What one record adds: key texts with their topic, in the order they are entered."""

    keys: Sequence[str]
    physical_offset: int
    store_timestamp: int


@dataclass(slots=True, kw_only=True)
class IndexFile:
    slot_count: int
    entry_count: int
    begin_timestamp: int = 0
    end_timestamp: int = 0
    begin_physical_offset: int = 0
    end_physical_offset: int = 0
    used_slots: int = 0
    slots: dict[int, int] = field(default_factory=dict)
    entries: list[Entry] = field(default_factory=lambda: [UNUSED])

    @property
    def next_entry(self) -> int:
        return len(self.entries)

    @property
    def is_full(self) -> bool:
        return self.next_entry >= self.entry_count

    def encode(self) -> bytes:
        header = HEADER.pack(
            self.begin_timestamp,
            self.end_timestamp,
            self.begin_physical_offset,
            self.end_physical_offset,
            self.used_slots,
            self.next_entry,
        )
        slots = b"".join(SLOT.pack(self.slots.get(slot, 0)) for slot in range(self.slot_count))
        entries = b"".join(
            ENTRY.pack(entry.hash, entry.physical_offset, entry.seconds, entry.previous)
            for entry in self.entries
        )
        return header + slots + entries.ljust(ENTRY.size * self.entry_count, b"\0")

    def put_key(self, text: str, request: Request) -> bool:
        """Enter one key text; False when the file is full."""
        if self.is_full:
            return False

        number = self.next_entry
        hashed = key_hash(text)
        slot = hashed % self.slot_count
        previous = self._entry_in(slot)

        seconds = (request.store_timestamp - self.begin_timestamp) // 1000
        if self.begin_timestamp <= 0:
            seconds = 0
        seconds = min(max(seconds, 0), INT32_MAX)

        self.entries.append(Entry(hashed, request.physical_offset, seconds, previous))
        self.slots[slot] = number

        if number == 1:
            self.begin_timestamp = request.store_timestamp
            self.begin_physical_offset = request.physical_offset
        if previous == 0:
            self.used_slots += 1

        self.end_timestamp = request.store_timestamp
        self.end_physical_offset = request.physical_offset
        return True

    def _entry_in(self, slot: int) -> int:
        number = self.slots.get(slot, 0)
        return number if 0 < number <= self.next_entry else 0

    def overlaps(self, *, begin_ms: int, end_ms: int) -> bool:
        first, last = self.begin_timestamp, self.end_timestamp
        return (
            (begin_ms < first and end_ms > last)
            or first <= begin_ms <= last
            or first <= end_ms <= last
        )

    def select(self, text: str, *, begin_ms: int, end_ms: int, limit: int) -> list[int]:
        """Return at most *limit* offsets under the hash of *text*, newest first."""
        hashed = key_hash(text)
        found: list[int] = []
        number = self._entry_in(hashed % self.slot_count) if self.next_entry > 1 else 0
        while number != 0 and len(found) < limit:
            entry = self.entries[number]
            if entry.seconds < 0:
                break
            time = self.begin_timestamp + 1000 * entry.seconds
            if entry.hash == hashed and begin_ms <= time <= end_ms:
                found.append(entry.physical_offset)
            chain_ends = not 0 < entry.previous <= self.next_entry or entry.previous == number
            if chain_ends or time < begin_ms:
                break
            number = entry.previous
        return found


def decode(data: bytes, *, slot_count: int, entry_count: int) -> IndexFile:
    """Return the file with the bytes *data*."""
    size = HEADER.size + SLOT.size * slot_count + ENTRY.size * entry_count

    if len(data) != size:
        raise ValueError(f"an index file of {len(data)} bytes, not {size}")

    *times_and_offsets, used_slots, next_entry = HEADER.unpack_from(data)
    # A file without entries may say 0: the header is written with the first entry.
    next_entry = max(next_entry, 1)

    slots = struct.unpack_from(f">{slot_count}i", data, HEADER.size)
    entries_at = HEADER.size + SLOT.size * slot_count
    entry_bytes = data[entries_at : entries_at + ENTRY.size * next_entry]

    return IndexFile(
        slot_count=slot_count,
        entry_count=entry_count,
        begin_timestamp=times_and_offsets[0],
        end_timestamp=times_and_offsets[1],
        begin_physical_offset=times_and_offsets[2],
        end_physical_offset=times_and_offsets[3],
        used_slots=used_slots,
        slots={slot: number for slot, number in enumerate(slots) if number},
        entries=[Entry(*fields) for fields in ENTRY.iter_unpack(entry_bytes)],
    )


@dataclass(slots=True, kw_only=True)
class Index:
    """The run of index files, oldest first."""

    slot_count: int
    entry_count: int
    files: list[IndexFile] = field(default_factory=list)

    def put(self, request: Request) -> None:
        """Enter the keys of one record.

        A full file is replaced before the first key, even for a record without keys. A record
        before the newest file's last one is there already; that last one would be entered again.
        """
        if request.physical_offset < self._writable().end_physical_offset:
            return
        for key in request.keys:
            entered = self._writable().put_key(key, request)
            assert entered

    def _writable(self) -> IndexFile:
        if self.files and not self.files[-1].is_full:
            return self.files[-1]
        made = IndexFile(slot_count=self.slot_count, entry_count=self.entry_count)
        if self.files:
            last = self.files[-1]
            made.begin_timestamp = made.end_timestamp = last.end_timestamp
            made.begin_physical_offset = made.end_physical_offset = last.end_physical_offset
        self.files.append(made)
        return made

    def query(self, topic: str, key: str, *, begin_ms: int, end_ms: int, limit: int) -> list[int]:
        """Return at most *limit* offsets, newest first; other keys of equal hash are among them."""
        found: list[int] = []
        for file in reversed(self.files):
            if file.overlaps(begin_ms=begin_ms, end_ms=end_ms):
                found += file.select(
                    f"{topic}#{key}", begin_ms=begin_ms, end_ms=end_ms, limit=limit - len(found)
                )
            if file.begin_timestamp < begin_ms or len(found) >= limit:
                break
        return found
