"""The two files of the engine for one node: `log` and `snapshot`.

Integers are big-endian. The log begins with a header, records follow without gaps:

    at  size  header
    0   8     "rmqctlog"
    8   4     1
    12  8     index before the first record
    20  8     term before the first record
    28  4     CRC-32 of the preceding bytes

    at  size  record
    0   4     size of the bytes after the CRC
    4   4     CRC-32 of the record's position in the file (8 bytes) and of the bytes after the CRC
    8   1     1: a term begins; 2: commands
    9   8     index of its first command, or of the beginning of the term
    17  8     term
    25  4     number of commands
    29        commands, each its size (4) and its bytes

A record is one write and one sync, so only the last record of the file can be torn. The CRC covers
the position, so bytes inside a command are never mistaken for a record.

    at  size  snapshot
    0   8     "rmqctsnp"
    8   4     1
    12  8     index of the last applied entry
    20  8     term of that entry
    28  4     size of the state
    32  4     CRC-32 of the preceding bytes and of the state
    36        state
"""

from __future__ import annotations

import struct
import zlib
from collections.abc import Sequence
from dataclasses import dataclass

from rmqstore.errors import CorruptionError

__all__ = [
    "COMMANDS",
    "RECORD_SIZE_MAX",
    "TERM",
    "LogContent",
    "Record",
    "SnapshotContent",
    "encode_header",
    "encode_record",
    "encode_snapshot",
    "parse_log",
    "parse_snapshot",
    "record_size",
]

TERM, COMMANDS = 1, 2
RECORD_SIZE_MAX = 16 * 1024 * 1024
"""Bytes of the largest record, without its size and CRC fields."""

_LOG_MAGIC, _SNAPSHOT_MAGIC, _VERSION = b"rmqctlog", b"rmqctsnp", 1
_HEADER = struct.Struct(">8sIQQ")
_FRAME = struct.Struct(">II")
_HEAD = struct.Struct(">BQQI")
_SIZE = struct.Struct(">I")
_POSITION = struct.Struct(">Q")
_SNAPSHOT = struct.Struct(">8sIQQI")
_CURE = "restore the directory from a copy"


@dataclass(frozen=True, slots=True)
class Record:
    """One write: the beginning of a term, or commands."""

    kind: int
    index: int
    term: int
    commands: tuple[bytes, ...] = ()

    @property
    def last_index(self) -> int:
        """The index of its last entry."""
        return self.index + max(len(self.commands), 1) - 1


@dataclass(frozen=True, slots=True)
class LogContent:
    """The content of a log up to *end*; the bytes from *end* on are a torn record."""

    base_index: int
    base_term: int
    records: tuple[Record, ...]
    end: int


@dataclass(frozen=True, slots=True)
class SnapshotContent:
    """A state and the last entry applied to it."""

    index: int
    term: int
    state: bytes


def encode_header(base_index: int, base_term: int) -> bytes:
    """Return the first bytes of a log whose first record comes after *base_index*."""
    head = _HEADER.pack(_LOG_MAGIC, _VERSION, base_index, base_term)
    return head + _SIZE.pack(zlib.crc32(head))


def encode_record(record: Record, position: int) -> bytes:
    """Return the bytes of *record* at *position* in the file."""
    parts = [_HEAD.pack(record.kind, record.index, record.term, len(record.commands))]
    for command in record.commands:
        parts += (_SIZE.pack(len(command)), command)
    payload = b"".join(parts)
    assert len(payload) <= RECORD_SIZE_MAX, "the caller bounds a record"
    return _FRAME.pack(len(payload), _crc(payload, position)) + payload


def encode_snapshot(content: SnapshotContent) -> bytes:
    """Return the bytes of a snapshot."""
    size = len(content.state)
    head = _SNAPSHOT.pack(_SNAPSHOT_MAGIC, _VERSION, content.index, content.term, size)
    return head + _SIZE.pack(zlib.crc32(content.state, zlib.crc32(head))) + content.state


def parse_log(data: bytes, path: str) -> LogContent:
    """Return the content of a log.

    The content ends at a torn last record. Raises CorruptionError for any other damage, which a
    crash cannot explain. No record is skipped.
    """
    size = _HEADER.size + _SIZE.size
    head = data[: _HEADER.size]
    if len(data) < size or _SIZE.unpack_from(data, _HEADER.size)[0] != zlib.crc32(head):
        raise _corrupt(path, "its header is damaged", 0)
    magic, version, base_index, base_term = _HEADER.unpack(head)
    if magic != _LOG_MAGIC or version != _VERSION:
        raise _corrupt(path, f"it is {magic!r}, version {version}", 0)

    records: list[Record] = []
    index, term, at = base_index + 1, base_term, size
    while at < len(data):
        found = _record_at(data, at, index)
        if found is None:
            later = _later_record(data, at, index)
            if later >= 0:
                raise _corrupt(path, f"the record is damaged, and one follows at {later}", at)
            break
        record, after = found
        if record.index != index or record.term < term:
            raise _corrupt(
                path,
                f"the record has index {record.index} of term {record.term} after index "
                f"{index - 1} of term {term}",
                at,
            )
        records.append(record)
        index, term, at = record.last_index + 1, record.term, after
    return LogContent(base_index, base_term, tuple(records), at)


def parse_snapshot(data: bytes, path: str) -> SnapshotContent:
    """Return the content of a snapshot. Raises CorruptionError."""
    head = data[: _SNAPSHOT.size]
    if len(data) < _SNAPSHOT.size + _SIZE.size:
        raise _corrupt(path, f"it has {len(data)} bytes", 0)
    magic, version, index, term, size = _SNAPSHOT.unpack(head)
    if magic != _SNAPSHOT_MAGIC or version != _VERSION:
        raise _corrupt(path, f"it is {magic!r}, version {version}", 0)
    state = data[_SNAPSHOT.size + _SIZE.size :]
    crc = _SIZE.unpack_from(data, _SNAPSHOT.size)[0]
    if len(state) != size or crc != zlib.crc32(state, zlib.crc32(head)):
        raise _corrupt(path, "the CRC does not match", 0)
    return SnapshotContent(index, term, state)


def _crc(payload: bytes | memoryview, position: int) -> int:
    return zlib.crc32(payload, zlib.crc32(_POSITION.pack(position)))


def _record_at(data: bytes, at: int, index_min: int) -> tuple[Record, int] | None:
    """Returns the record at *at* and its end; None without a complete record there."""
    if len(data) - at < _FRAME.size + _HEAD.size:
        return None
    size, crc = _FRAME.unpack_from(data, at)
    start = at + _FRAME.size
    if not _HEAD.size <= size <= min(RECORD_SIZE_MAX, len(data) - start):
        return None
    kind, index, term, count = _HEAD.unpack_from(data, start)
    # Cheap tests first: the search for a later record calls this at every byte.
    if kind not in (TERM, COMMANDS) or index < index_min:
        return None
    payload = memoryview(data)[start : start + size]
    if crc != _crc(payload, at):
        return None
    commands = _commands_in(payload[_HEAD.size :], count)
    if commands is None or (kind == COMMANDS) != bool(commands):
        return None
    return Record(kind, index, term, commands), start + size


def _commands_in(data: memoryview, count: int) -> tuple[bytes, ...] | None:
    commands: list[bytes] = []
    at = 0
    for _ in range(count):
        if len(data) - at < _SIZE.size:
            return None
        (size,) = _SIZE.unpack_from(data, at)
        at += _SIZE.size
        if size > len(data) - at:
            return None
        commands.append(bytes(data[at : at + size]))
        at += size
    return tuple(commands) if at == len(data) else None


def _later_record(data: bytes, after: int, index_min: int) -> int:
    """Returns the start of the first complete record after *after*; -1 if there is none."""
    for at in range(after + 1, len(data) - _FRAME.size - _HEAD.size + 1):
        if _record_at(data, at, index_min) is not None:
            return at
    return -1


def _corrupt(path: str, what: str, at: int) -> CorruptionError:
    return CorruptionError(
        f"{path}: damaged at byte {at}: {what}; {_CURE}",
        path=path,
        physical_offset=at,
        kind="controller log",
    )


def record_size(commands: Sequence[bytes]) -> int:
    """Return the bytes of a record of *commands*, without its size and CRC fields."""
    return _HEAD.size + sum(_SIZE.size + len(each) for each in commands)
