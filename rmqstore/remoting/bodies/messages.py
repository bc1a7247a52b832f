"""Messages in the answers of brokers: consecutive records of the commit log.

The form of a record is that of csrc/format/record.h. Answers to PULL_MESSAGE, QUERY_MESSAGE and
VIEW_MESSAGE_BY_ID hold whole records.
"""

from __future__ import annotations

import ipaddress
import struct
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property

from rmqstore.compression import decompress
from rmqstore.errors import RemotingFrameError, StoreError
from rmqstore.message import SysFlag, decode_properties, message_id, split_keys

__all__ = ["StoredMessage", "decode_messages", "moved"]

_MAGIC_V1, _MAGIC_V2 = 0xDAA320A7, 0xDAA320AB
_HEAD = struct.Struct(">iIiiiqqiq")
"""Size, magic, body CRC, queue id, flag, queue offset, physical offset, system flag, born time."""
_MIDDLE = struct.Struct(">iq")
"""Reconsume times, prepared transaction offset."""


@dataclass(frozen=True)
class StoredMessage:
    """A message with its envelope."""

    topic: str
    queue_id: int
    queue_offset: int
    physical_offset: int
    flag: int
    sys_flag: int
    born_timestamp_ms: int
    born_host: tuple[str, int]
    store_timestamp_ms: int
    store_host: tuple[str, int]
    reconsume_times: int
    stored_body: bytes
    """The body as stored, possibly compressed."""
    properties: Mapping[str, str]

    @property
    def offset_id(self) -> str:
        """The id that names the broker and the offset in its log."""
        return message_id(*self.store_host, self.physical_offset)

    @property
    def unique_key(self) -> str | None:
        """The id that the producer assigned, None without such an id."""
        return self.properties.get("UNIQ_KEY")

    @property
    def keys(self) -> tuple[str, ...]:
        """The keys that the message can be found by."""
        return split_keys(self.properties.get("KEYS", ""))

    @cached_property
    def body(self) -> bytes:
        """The decompressed body; the stored bytes where they cannot be decompressed."""
        try:
            return decompress(self.stored_body, self.sys_flag)
        except StoreError:
            return self.stored_body


def decode_messages(data: bytes) -> list[StoredMessage]:
    """Return the messages of an answer. Raises RemotingFrameError for bytes that are not
    messages."""
    found = []
    at = 0
    while at < len(data):
        try:
            message, size = _decode(memoryview(data)[at:])
        except (struct.error, IndexError, ValueError) as error:
            raise RemotingFrameError(f"no message at byte {at} of {len(data)}: {error}") from error
        found.append(message)
        at += size
    return found


def _decode(data: memoryview) -> tuple[StoredMessage, int]:
    """Returns the first record of *data* and its size."""
    size, magic, _, queue_id, flag, queue_offset, physical_offset, sys_flag, born_ms = (
        _HEAD.unpack_from(data)
    )
    if magic not in (_MAGIC_V1, _MAGIC_V2):
        raise ValueError(f"its magic is {magic:#x}")
    if not _HEAD.size <= size <= len(data):
        raise ValueError(f"its size is {size}, and {len(data)} bytes are left")
    data = data[:size]

    at = _HEAD.size
    born_host, at = _host(data, at, is_v6=bool(sys_flag & SysFlag.BORN_HOST_V6))
    (stored_ms,) = struct.unpack_from(">q", data, at)
    store_host, at = _host(data, at + 8, is_v6=bool(sys_flag & SysFlag.STORE_HOST_V6))
    reconsume_times, _ = _MIDDLE.unpack_from(data, at)
    body, at = _sized(data, at + _MIDDLE.size, ">i")
    topic, at = _sized(data, at, ">H" if magic == _MAGIC_V2 else ">B")
    properties, at = _sized(data, at, ">H")
    message = StoredMessage(
        topic=topic.decode("utf-8", "replace"),
        queue_id=queue_id,
        queue_offset=queue_offset,
        physical_offset=physical_offset,
        flag=flag,
        sys_flag=sys_flag,
        born_timestamp_ms=born_ms,
        born_host=born_host,
        store_timestamp_ms=stored_ms,
        store_host=store_host,
        reconsume_times=reconsume_times,
        stored_body=body,
        properties=decode_properties(properties.decode("utf-8", "replace")),
    )
    return message, size


def moved(record: bytes, topic: str, queue_id: int) -> bytes:
    """Return the bytes of a *record* with another topic, of 127 bytes at most, and queue."""
    _, magic, crc, _, *rest = _HEAD.unpack_from(record)
    sys_flag = rest[3]
    flags = (SysFlag.BORN_HOST_V6, SysFlag.STORE_HOST_V6)
    hosts_size = sum(20 if sys_flag & flag else 8 for flag in flags)
    _, at = _sized(memoryview(record), _HEAD.size + hosts_size + 8 + _MIDDLE.size, ">i")
    length = ">H" if magic == _MAGIC_V2 else ">B"
    _, end = _sized(memoryview(record), at, length)

    name = topic.encode()
    tail = record[_HEAD.size : at] + struct.pack(length, len(name)) + name + record[end:]
    return _HEAD.pack(_HEAD.size + len(tail), magic, crc, queue_id, *rest) + tail


def _host(data: memoryview, at: int, *, is_v6: bool) -> tuple[tuple[str, int], int]:
    end = at + (16 if is_v6 else 4)
    address = ipaddress.ip_address(bytes(data[at:end]))
    (port,) = struct.unpack_from(">i", data, end)
    return (str(address), port), end + 4


def _sized(data: memoryview, at: int, length: str) -> tuple[bytes, int]:
    """Returns the bytes after their length, and their end offset."""
    (size,) = struct.unpack_from(length, data, at)
    begin = at + struct.calcsize(length)
    size = max(size, 0)
    if size > len(data) - begin:
        raise ValueError(f"a field of {size} bytes begins at byte {begin} of {len(data)}")
    return bytes(data[begin : begin + size]), begin + size
