"""The file of the queues whose topics were deleted, read without opening the store.

The C core writes it (`csrc/index/removed_queues.h`): the log still holds the records of a deleted
topic, and no queue does.
"""

from __future__ import annotations

import struct
import zlib
from collections.abc import Mapping
from pathlib import Path

from rmqstore.errors import CorruptionError

__all__ = ["REMOVED_QUEUES_FILE", "parse_removed_queues", "read_removed_queues"]

REMOVED_QUEUES_FILE = "removedQueues"

_MAGIC = 0x524D5251
_HEADER = struct.Struct(">III")
_ENTRY = struct.Struct(">qqiBB")


def read_removed_queues(root: Path) -> Mapping[tuple[str, int], int]:
    """Return by topic and queue the log offset before which no record is in the queue; nothing
    without the file. Raises CorruptionError, OSError."""
    path = root / REMOVED_QUEUES_FILE
    try:
        data = path.read_bytes()
    except FileNotFoundError:
        return {}
    return parse_removed_queues(data, str(path))


def parse_removed_queues(data: bytes, path: str) -> Mapping[tuple[str, int], int]:
    """Return the same from the bytes of the file at *path*. Raises CorruptionError."""
    try:
        magic, count, crc = _HEADER.unpack_from(data)
        if magic != _MAGIC or crc != zlib.crc32(data[_HEADER.size :]):
            raise ValueError("it does not match its CRC")
        found = {}
        at = _HEADER.size
        for _ in range(count):
            _, log_offset, queue, _, size = _ENTRY.unpack_from(data, at)
            at += _ENTRY.size
            topic = data[at : at + size].decode("utf-8", "surrogateescape")
            found[topic, queue] = log_offset
            at += size
    except (ValueError, struct.error) as error:
        raise CorruptionError(
            f"{path} is damaged: {error}; restore it from a copy, or remove it and run rmqstore "
            "repair, which brings back what the log holds of deleted topics",
            path=path,
            kind="removed queues",
        ) from error
    return found
