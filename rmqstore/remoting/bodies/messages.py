"""Messages in the answers of brokers: consecutive records of the commit log.

The form of a record is that of csrc/format/record.h. Answers to PULL_MESSAGE, QUERY_MESSAGE and
VIEW_MESSAGE_BY_ID hold whole records.
"""

from __future__ import annotations

import ipaddress
import struct
import zlib
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from types import MappingProxyType
from typing import Protocol

from rmqstore.compression import decompress
from rmqstore.errors import RemotingFrameError, StoreError
from rmqstore.message import SysFlag, decode_properties, message_id, split_keys

__all__ = ["EncodableMessage", "StoredMessage", "decode_messages", "encode_message"]

_MAGIC_V1, _MAGIC_V2 = 0xDAA320A7, 0xDAA320AB
_HEAD = struct.Struct(">iIiiiqqiq")
"""Size, magic, body CRC, queue id, flag, queue offset, physical offset, system flag, born time."""
_MIDDLE = struct.Struct(">iq")
"""Reconsume times, prepared transaction offset."""
_CRC_MASK = 0x7FFFFFFF
_IPV4_SIZE = 8
"""Bytes of an IPv4 address with its port."""


class EncodableMessage(Protocol):
    """The part of a `Record` that its bytes hold."""

    @property
    def queue_offset(self) -> int:
        """Its place in its queue."""

    @property
    def physical_offset(self) -> int:
        """Its place in the log."""

    @property
    def flag(self) -> int:
        """The application's own bits."""

    @property
    def sys_flag(self) -> int:
        """`SysFlag` bits."""

    @property
    def born_timestamp(self) -> int:
        """When the producer made it."""

    @property
    def born_host(self) -> tuple[str, int]:
        """The producer."""

    @property
    def store_timestamp(self) -> int:
        """When it was stored."""

    @property
    def store_host(self) -> tuple[str, int]:
        """The broker."""

    @property
    def reconsume_times(self) -> int:
        """How often consuming it failed."""

    @property
    def prepared_transaction_offset(self) -> int:
        """The half message of a committed one."""

    @property
    def body(self) -> bytes:
        """The body as stored."""

    @property
    def properties_text(self) -> str:
        """All properties as stored."""


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


def encode_message(
    message: EncodableMessage,
    topic: str,
    queue_id: int,
    added: Mapping[str, str] = MappingProxyType({}),
) -> bytes:
    """Return the bytes of a record with another topic, of 127 bytes at most, another queue, and
    *added* properties after its own."""
    own = message.properties_text
    if added and own and not own.endswith("\x02"):
        own += "\x02"
    own += "".join(f"{key}\x01{value}\x02" for key, value in added.items())
    name, text = topic.encode(), own.encode("utf-8", "surrogateescape")
    flags = SysFlag.BORN_HOST_V6 | SysFlag.STORE_HOST_V6
    hosts = (_packed(message.born_host), _packed(message.store_host))
    sizes = [len(each) > _IPV4_SIZE for each in hosts]
    sys_flag = message.sys_flag & ~flags
    sys_flag |= SysFlag.BORN_HOST_V6 * sizes[0] | SysFlag.STORE_HOST_V6 * sizes[1]
    tail = b"".join(
        (
            hosts[0],
            struct.pack(">q", message.store_timestamp),
            hosts[1],
            _MIDDLE.pack(message.reconsume_times, message.prepared_transaction_offset),
            struct.pack(">i", len(message.body)) + message.body,
            struct.pack(">B", len(name)) + name,
            struct.pack(">H", len(text)) + text,
        )
    )
    head = _HEAD.pack(
        _HEAD.size + len(tail),
        _MAGIC_V1,
        zlib.crc32(message.body) & _CRC_MASK,
        queue_id,
        message.flag,
        message.queue_offset,
        message.physical_offset,
        sys_flag,
        message.born_timestamp,
    )
    return head + tail


def _packed(host: tuple[str, int]) -> bytes:
    return ipaddress.ip_address(host[0]).packed + struct.pack(">i", host[1])


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
