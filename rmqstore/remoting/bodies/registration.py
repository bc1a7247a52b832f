"""The body of REGISTER_BROKER (RegisterBrokerBody): JSON, or one zlib stream of

    int32 n, n bytes                DataVersion, JSON
    int32 count, per topic          int32 n, n bytes: the text form of TopicConfig
    int32 n, n bytes                filter servers, a JSON array
    int32 count, per mapping        int32 n, n bytes: TopicQueueMappingInfo, JSON; senders from
                                    version 413 (5.0.0) on

The Java broker of 5.3.3 and 5.5.0 compresses the body with compressedRegister=true but declares
compressed=false. Therefore the first byte of a body decides: a zlib stream of Java begins with
0x78, JSON never does.
"""

from __future__ import annotations

import struct
import zlib
from collections.abc import Iterator
from dataclasses import dataclass, field

from rmqstore.errors import RemotingFrameError
from rmqstore.remoting import fastjson
from rmqstore.remoting.bodies.data_version import data_version_of
from rmqstore.remoting.bodies.topic_config import TopicConfig, TopicTable
from rmqstore.remoting.bodies.values import object_of, texts_of

__all__ = ["INFLATED_BYTES_MAX", "RegisterBrokerBody", "body_crc32"]

INFLATED_BYTES_MAX = 256 * 1024 * 1024
"""Largest content of a compressed body: 16 times the largest frame."""

_ZLIB_FIRST_BYTE = 0x78
_WITH_FILTER_SERVERS = 37
_WITH_MAPPINGS = 413
_LENGTH = struct.Struct(">i")


def body_crc32(body: bytes) -> int:
    """Return the CRC-32 of a body as Java compares it, without the sign bit."""
    return zlib.crc32(body) & 0x7FFFFFFF


@dataclass(frozen=True, slots=True)
class RegisterBrokerBody:
    """The body of a broker's registration."""

    table: TopicTable = field(default_factory=TopicTable)
    filter_servers: tuple[str, ...] | None = None
    """None from a sender without support for filter servers."""

    @classmethod
    def decode(cls, body: bytes, *, compressed: bool, version: int) -> RegisterBrokerBody:
        """Return the registration of a request with header field *compressed* from a sender of
        protocol *version*.

        An empty body is a registration without topics. Raises RemotingFrameError for a body that is
        malformed, or larger than INFLATED_BYTES_MAX.
        """
        if not body:
            return cls()
        if compressed or body[0] == _ZLIB_FIRST_BYTE:
            return cls._inflated(body, version=version)

        fields = object_of(fastjson.loads(body), "RegisterBrokerBody")
        if version < _WITH_FILTER_SERVERS:
            return cls(TopicTable.of(fields))
        return cls(
            TopicTable.of(fields.get("topicConfigSerializeWrapper")),
            texts_of(fields.get("filterServerList"), "filterServerList"),
        )

    def encode(self, *, compressed: bool = False) -> bytes:
        """Return the body as a 5.x broker sends it."""
        filter_servers = list(self.filter_servers or ())
        if not compressed:
            return fastjson.dumps(
                {
                    "filterServerList": filter_servers,
                    "topicConfigSerializeWrapper": self.table.to_json(),
                }
            )

        parts = [_sized(fastjson.dumps(self.table.version.to_json()))]
        parts.append(_LENGTH.pack(len(self.table.topics)))
        parts += [_sized(topic.to_text().encode()) for topic in self.table.topics.values()]
        parts.append(_sized(fastjson.dumps(filter_servers)))
        parts.append(_LENGTH.pack(len(self.table.mappings)))
        parts += [_sized(fastjson.dumps(dict(each))) for each in self.table.mappings.values()]
        return zlib.compress(b"".join(parts), 9)

    @classmethod
    def _inflated(cls, body: bytes, *, version: int) -> RegisterBrokerBody:
        content = _inflate(body)
        parts = _Parts(content)
        data_version = data_version_of(fastjson.loads(parts.next("DataVersion")))
        topics: dict[str, TopicConfig] = {}
        for part in parts.list("topics"):
            topic = TopicConfig.from_text(_text(part))
            topics[topic.name] = topic

        servers = fastjson.loads(parts.next("filterServerList"))
        mappings = {}
        if version >= _WITH_MAPPINGS:
            for part in parts.list("mappings"):
                mapping = object_of(fastjson.loads(part), "TopicQueueMappingInfo")
                mappings[str(mapping.get("topic"))] = mapping
        return cls(
            TopicTable(data_version, topics, mappings=mappings),
            texts_of(servers, "filterServerList"),
        )


def _inflate(body: bytes) -> bytes:
    inflater = zlib.decompressobj()
    try:
        content = inflater.decompress(body, INFLATED_BYTES_MAX)
    except zlib.error as error:
        raise RemotingFrameError(
            f"the compressed body is not a zlib stream: {error}; send RFC 1950"
        ) from error
    if inflater.unconsumed_tail:
        raise RemotingFrameError(
            f"the body inflates to more than the limit of {INFLATED_BYTES_MAX} bytes; register "
            "fewer topics at once"
        )
    if not inflater.eof:
        raise RemotingFrameError("the compressed body ends inside its zlib stream; send all of it")
    return content


def _text(part: bytes) -> str:
    try:
        return part.decode()
    except UnicodeDecodeError as error:
        raise RemotingFrameError(f"a topic is not UTF-8: {error}; send UTF-8") from error


def _sized(part: bytes) -> bytes:
    return _LENGTH.pack(len(part)) + part


class _Parts:
    """Reads parts of bytes, each after its length."""

    def __init__(self, content: bytes) -> None:
        self._content = content
        self._at = 0

    def next(self, name: str) -> bytes:
        """Return the next part."""
        size = self._number(name)
        if size > len(self._content) - self._at:
            raise self._wrong(name, size)
        self._at += size
        return self._content[self._at - size : self._at]

    def list(self, name: str) -> Iterator[bytes]:
        """Yield the parts of a list after its count."""
        count = self._number(name)
        # Each part has a length of its own, so more parts than a quarter of the rest are wrong.
        if count > (len(self._content) - self._at) // _LENGTH.size:
            raise self._wrong(name, count)
        for _ in range(count):
            yield self.next(name)

    def _number(self, name: str) -> int:
        if len(self._content) - self._at < _LENGTH.size:
            raise self._wrong(name, None)
        (number,) = _LENGTH.unpack_from(self._content, self._at)
        if number < 0:
            raise self._wrong(name, number)
        self._at += _LENGTH.size
        return int(number)

    def _wrong(self, name: str, number: int | None) -> RemotingFrameError:
        found = "no length" if number is None else f"the length {number}"
        return RemotingFrameError(
            f"compressed body: {name} at byte {self._at} of {len(self._content)} has {found}; send "
            "a length that the content holds"
        )
