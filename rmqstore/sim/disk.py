"""A model of a replica's disk with its commit log, as replication uses a store.

Records contain a CRC and their own offset, as a store's do. Like a store's, the CRC covers only the
body, unless *checks_all* (enabledAppendPropCRC) extends it to all following bytes. A blank fills a
log file that has no room for the next record. Log bytes from `flushed_offset` on are only in the
page cache: `power_loss` removes them by sectors, `crash` keeps them.

    at  size  field            (integers are big-endian)
    0   4     magic
    4   4     record size in bytes, magic included
    8   4     CRC-32 of the body, or of all that follows
    12  8     physical offset of the record
    20  4     epoch of the master that wrote it
    24  4     queue
    28  4     queue offset
    32  4     number of the put
    36  8     time of day in milliseconds
    44        body
"""

from __future__ import annotations

import struct
import zlib
from bisect import bisect_left, bisect_right
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from random import Random

from rmqstore.epochs import EpochEntry, EpochList
from rmqstore.replication.group.epoch_state import EpochState
from rmqstore.replication.protocol.events import (
    Append,
    Effect,
    FlushLog,
    PromiseConfirm,
    Restart,
    SaveEpochs,
    SaveEpochState,
    SetConfirm,
    TruncateTo,
)

__all__ = ["Died", "DiskError", "ModelLog", "ModelRecord", "Rot", "RotError", "records_of"]

_MAGIC, _BLANK_MAGIC = 0x52454344, 0x424C4E4B
_HEAD = struct.Struct(">IIIQIIIIQ")
_BLANK = struct.Struct(">II")
_CRC_AND_OFFSET = struct.Struct(">IQ")
_SECTOR = 512


class DiskError(Exception):
    """The disk refused an operation, which had no effect."""


class RotError(Exception):
    """Durable bytes on the disk are missing or changed."""


class Died(Exception):
    """The process of the machine, or its power, ends at this point."""


@dataclass(frozen=True, slots=True)
class Rot:
    """The record at *start*, in which one bit flipped on the disk."""

    start: int
    before: bytes
    after: bytes


@dataclass(frozen=True, slots=True)
class ModelRecord:
    """A message in the log."""

    physical_offset: int
    size: int
    epoch: int
    queue: int
    queue_offset: int
    number: int
    stored_ms: int
    """The time of day at which the master stored it."""


def records_of(data: bytes | bytearray, borders: Iterable[int]) -> Iterator[ModelRecord]:
    """Yield the messages of *data* that begin at *borders*."""
    for border in borders:
        if int.from_bytes(data[border : border + 4]) == _MAGIC:
            head = _HEAD.unpack_from(data, border)
            _, size, _, offset, epoch, queue, queue_offset, number, stored_ms = head
            yield ModelRecord(offset, size, epoch, queue, queue_offset, number, stored_ms)


class _EpochFiles:
    """The two files of the epoch list."""

    def __init__(self, log: ModelLog) -> None:
        self._log = log
        self._texts: dict[str, str] = {}

    def read(self, name: str) -> str | None:
        return self._texts.get(name)

    def replace(self, name: str, text: str) -> None:
        self._log.change(needs_room=True)
        self._texts[name] = text

    def remove(self, name: str) -> None:
        self._log.change()
        self._texts.pop(name, None)


class ModelLog:
    """The log of one replica through all its lives; implements LogView."""

    def __init__(self, *, file_size: int, checks_all: bool = True, is_gated: bool = True) -> None:
        self.file_size = file_size
        self.is_gated = is_gated
        self._checked_from = 12 if checks_all else _HEAD.size

        self.start_offset = 0
        self.flushed_offset = 0
        self.confirm_offset = 0
        self.epochs: tuple[EpochEntry, ...] = ()
        self.epoch_state = EpochState()
        """On the disk with each change; no crash reverts it."""
        self.whole_end = 0
        """End of the last complete record; a partial record may follow."""

        self.was_closed = False
        """Whether the process before the present one closed the log."""
        self.is_full = False
        """Whether the disk is full."""
        self.dies_in = -1
        """Number of changes before the process dies; negative: it does not die."""

        self.cuts = 0
        """How often records were removed, or read from the disk again."""

        self._is_closed = False
        self._data = bytearray()
        self._borders: list[int] = []
        self._files = _EpochFiles(self)
        self._flushed_whole = 0
        self._saved_confirm = 0
        self._promised: int | None = 0

        self._next_queue_offsets: dict[int, int] = {}
        self._first_queue_offsets: dict[int, int] = {}

    # ---- the view of a machine

    @property
    def is_partial(self) -> bool:
        return self.epoch_state.is_partial(self.start_offset)

    @property
    def is_promised(self) -> bool:
        return self._promised is None

    @property
    def promised_offset(self) -> int:
        return self.confirm_offset if self._promised is None else self._promised

    @property
    def end_offset(self) -> int:
        return self.start_offset + len(self._data)

    @property
    def last_file_start(self) -> int:
        end = self.end_offset
        if end == self.start_offset:
            return end
        last = end - 1
        return max(last - last % self.file_size, self.start_offset)

    @property
    def last_record_start(self) -> int:
        for border in reversed(self._borders):
            if self._magic_at(border) == _MAGIC:
                return border
        return self.start_offset

    def file_end(self, offset: int) -> int:
        return offset - offset % self.file_size + self.file_size

    def is_border(self, offset: int) -> bool:
        if offset in (self.end_offset, self.whole_end):
            return True
        at = bisect_left(self._borders, offset)
        return at < len(self._borders) and self._borders[at] == offset

    def read(self, offset: int, size: int) -> bytes:
        begin = offset - self.start_offset
        assert 0 <= begin <= begin + size <= len(self._data), "bytes that are not held"
        return bytes(self._data[begin : begin + size])

    # ---- operations of the runtime

    def carry_out(self, effect: Effect) -> None:
        """Apply *effect* to the log. Raises DiskError if that is impossible."""
        match effect:
            case Append(offset, data):
                assert offset == self.end_offset, "an append that is not at the log's end"
                self.change(needs_room=True)
                self._data += data
            case TruncateTo(offset):
                self.change()
                self.cut(offset)
            case Restart(offset):
                assert offset >= self.end_offset, "a log that begins again below its end"
                self.change()
                self._data.clear()
                self._begin_at(offset)
                self.confirm_offset = self._saved_confirm = offset
            case SaveEpochs(entries):
                EpochList(entries).save(self._files)
                self.epochs = entries
            case SaveEpochState(state):
                self.change(needs_room=True)
                self.epoch_state = state
            case SetConfirm(offset):
                self.confirm_offset = min(offset, self.whole_end)
            case PromiseConfirm(is_promise):
                if is_promise != self.is_promised:
                    self.change(needs_room=True)
                    self._promised = None if is_promise else self.confirm_offset
            case FlushLog():
                self.flush()

    def check(self) -> int | None:
        """Check the records that became complete; return the offset of damage, or None."""
        damaged_at = self._check()
        if not self.is_gated:
            # Readers see every complete record.
            self.confirm_offset = max(self.confirm_offset, self.whole_end)
        return damaged_at

    def _check(self) -> int | None:
        end = self.end_offset
        while (border := self.whole_end) < end:
            size = self._size_at(border)
            if size is None:
                return None
            if size == 0:
                return border
            self._borders.append(border)
            self.whole_end = border + size
        return None

    def put(self, *, number: int, epoch: int, queue: int, size: int, wall_ms: int) -> ModelRecord:
        """Append a message with a body of *size* bytes. Raises DiskError on a full disk."""
        assert self.whole_end == self.end_offset, "a put behind half a record"
        self.change(needs_room=True)

        size += _HEAD.size
        rest = self.file_end(self.end_offset) - self.end_offset
        if size + _BLANK.size > rest:
            self._data += _BLANK.pack(_BLANK_MAGIC, rest).ljust(rest, b"\0")

        offset = self.end_offset
        queue_offset = self._next_queue_offsets.get(queue, 0)
        self._next_queue_offsets[queue] = queue_offset + 1

        tail = _HEAD.pack(
            _MAGIC, size, 0, offset, epoch, queue, queue_offset, number, wall_ms
        ).ljust(size, bytes((97 + number % 26,)))
        crc = zlib.crc32(tail[self._checked_from :])
        self._data += tail[:8] + struct.pack(">I", crc) + tail[12:]
        assert self.check() is None
        return ModelRecord(offset, size, epoch, queue, queue_offset, number, wall_ms)

    def flush(self) -> None:
        """Flush the log and the present confirm offset to the disk."""
        self.change()
        self.flushed_offset = self.end_offset
        self._flushed_whole = self.whole_end
        self._saved_confirm = self.confirm_offset

    def cut(self, offset: int) -> None:
        """Cut the log, durably."""
        assert self.start_offset <= offset <= self.end_offset, "a cut outside the log"
        self.cuts += 1
        del self._data[offset - self.start_offset :]
        del self._borders[bisect_left(self._borders, offset) :]
        self.whole_end = min(self.whole_end, offset)
        self.flushed_offset = min(self.flushed_offset, offset)
        self._flushed_whole = min(self._flushed_whole, offset)
        self._saved_confirm = min(self._saved_confirm, offset)

    def settle(self) -> None:
        """Cut a partial record, and find the next queue offsets."""
        self.check()
        self.cut(self.whole_end)
        self._count_queues()

    def expire(self, offset: int) -> None:
        """Delete the files before *offset*, the start of a file."""
        assert self.start_offset < offset <= self.whole_end, "files that cannot expire"
        self._first_queue_offsets = self.queue_offsets_at(offset)
        self.change()
        del self._data[: offset - self.start_offset]
        del self._borders[: bisect_left(self._borders, offset)]
        self.start_offset = offset
        # After the deletion of the files, because the remaining bytes must have an epoch.
        self.carry_out(SaveEpochs(EpochList(self.epochs).trim_before(offset).entries))

    # ---- stop and start

    def crash(self) -> None:
        """End the process; the page cache stays."""
        self.dies_in = -1
        self.is_full = False

    def power_loss(self, rng: Random) -> None:
        """End the machine: each unflushed sector stays, is lost, or stays in part."""
        self.crash()
        kept_share = rng.choice((0.0, 0.5, 1.0))
        begin = self.flushed_offset - self.start_offset
        while begin < len(self._data):
            end = min(begin - begin % _SECTOR + _SECTOR, len(self._data))
            if rng.random() >= kept_share:
                self._data[begin:end] = bytes(end - begin)
            begin = end
        self._scan()

    def close(self) -> None:
        """End the process after all of the log is on the disk. Raises DiskError."""
        self.flush()
        self._is_closed = True

    def recover(self) -> None:
        """Read the disk as a store does when it opens. Raises RotError for damage to durable
        bytes."""
        self.was_closed, self._is_closed = self._is_closed, False
        self._scan()
        if self.whole_end < self._flushed_whole:
            raise RotError(f"the record at {self.whole_end} is damaged")
        self.cut(self.whole_end)
        self._count_queues()
        self.flushed_offset = self._flushed_whole = self.end_offset
        self.epochs = EpochList.recover(
            self._files, log_start=self.start_offset, log_end=self.end_offset
        ).entries
        self.confirm_offset = min(max(self._saved_confirm, self.start_offset), self.end_offset)

    def rot(self, rng: Random) -> Rot | None:
        """Flip a bit on the disk, in the head of a record as often as in its body; None if the disk
        is empty."""
        if self._flushed_whole <= self.start_offset:
            return None
        at = rng.randrange(bisect_left(self._borders, self._flushed_whole))
        start = self._borders[at]
        end = self._borders[at + 1] if at + 1 < len(self._borders) else self.whole_end
        before = self.read(start, end - start)
        size = len(before) if rng.random() < 0.5 else min(_HEAD.size, len(before))
        self._data[start - self.start_offset + rng.randrange(size)] ^= 1 << rng.randrange(8)
        return Rot(start, before, self.read(start, end - start))

    # ---- the view of the checker

    def whole_below(self, offset: int) -> int:
        """Return the end of the last whole record that ends at or before *offset*."""
        if offset >= self.whole_end:
            return self.whole_end
        at = bisect_right(self._borders, offset) - 1
        return self._borders[at] if at >= 0 else self.start_offset

    def borders(self, start: int, stop: int) -> list[int]:
        """Return the start offsets of records between *start* and *stop* (exclusive)."""
        return self._borders[bisect_left(self._borders, start) : bisect_left(self._borders, stop)]

    def records(self, start: int, stop: int) -> Iterator[ModelRecord]:
        """Yield the messages between two borders."""
        base = self.start_offset
        yield from records_of(self._data, [each - base for each in self.borders(start, stop)])

    def change(self, *, needs_room: bool = False) -> None:
        """Called before each change of the disk: the process may die here, or the disk may be
        full."""
        if self.dies_in == 0:
            raise Died
        self.dies_in -= 1
        if needs_room and self.is_full:
            raise DiskError("No space left on device")

    def _heads(self, start: int, stop: int) -> Iterator[tuple[int, ...]]:
        """Yield the fields of the messages between two borders."""
        for border in self.borders(start, stop):
            if self._magic_at(border) == _MAGIC:
                yield _HEAD.unpack_from(self._data, border - self.start_offset)

    def _count_queues(self) -> None:
        """Find the next queue offsets."""
        self._next_queue_offsets = self.queue_offsets_at(self.whole_end)

    def begin_queues(self, offsets: Mapping[int, int]) -> None:
        """Let queues without records continue at *offsets* at the earliest."""
        for queue, offset in offsets.items():
            for counted in (self._first_queue_offsets, self._next_queue_offsets):
                counted[queue] = max(offset, counted.get(queue, 0))

    def queue_offsets_at(self, offset: int) -> dict[int, int]:
        """Return the next queue offsets after the records before *offset*."""
        found = dict(self._first_queue_offsets)
        for _, _, _, _, _, queue, queue_offset, _, _ in self._heads(self.start_offset, offset):
            found[queue] = queue_offset + 1
        return found

    def _scan(self) -> None:
        self.cuts += 1
        self._borders.clear()
        self.whole_end = self.start_offset
        self.check()

    def _begin_at(self, offset: int) -> None:
        self.cuts += 1
        self.start_offset = self.whole_end = offset
        self.flushed_offset = self._flushed_whole = offset
        self._borders.clear()
        self._first_queue_offsets.clear()

    def _magic_at(self, border: int) -> int:
        begin = border - self.start_offset
        return int.from_bytes(self._data[begin : begin + 4])

    def _size_at(self, border: int) -> int | None:
        """Return the size of the record at *border*: None for a partial record, 0 for a damaged
        record."""
        data, begin = self._data, border - self.start_offset
        held = len(data) - begin

        if held < _BLANK.size:
            return None
        magic, size = _BLANK.unpack_from(data, begin)
        room = self.file_end(border) - border

        if magic == _BLANK_MAGIC:
            filler = data[begin + _BLANK.size : begin + size]
            if size != room or any(filler):
                return 0
            return size if size <= held else None

        if magic != _MAGIC or not _HEAD.size <= size <= room - _BLANK.size:
            return 0
        if size > held:
            return None

        crc, offset = _CRC_AND_OFFSET.unpack_from(data, begin + _BLANK.size)
        found = zlib.crc32(data[begin + self._checked_from : begin + size])
        return size if found == crc and offset == border else 0
