"""A record of the commit log, its end-of-file blank, its two CRCs and its id.

    size  field
    4     total size
    4     magic: 0xDAA320A7 version 1, 0xDAA320AB version 2
    4     body CRC: CRC-32 of the stored body with the top bit cleared
    4     queue id
    4     flag
    8     queue offset
    8     physical offset
    4     system flag
    8     born timestamp
    8     born host: 4 address bytes and a 4-byte port; 16 and 4 with bit 0x10 of the system flag
    8     store timestamp
    8     store host: likewise with bit 0x20
    4     reconsume times
    8     prepared transaction offset
    4+n   body size and body
    1+n   topic size and topic; the size has 2 bytes in version 2
    2+n   property size and property text

Sizes are signed. A body or property size below zero counts as 0, a topic size below zero is an
error. Version 2 is written for topics of more than 127 UTF-16 units. The rest of a file that no
record fits in begins with 8 bytes: bytes left, 0xCBD43194.

The property CRC is the last property of a record: `__CRC32#`, 0x01, ten digits, 0x02. The digits
are the CRC of all bytes before those twenty, in decimal, least significant digit first, filled up
with zeros.

Source: MessageExtEncoder, MessageDecoder and CommitLog of RocketMQ 5.3.3.
"""

import struct
from dataclasses import dataclass, replace
from ipaddress import IPv6Address

import crcmod  # type: ignore[import-untyped]

from tests.reference import java_text, properties

MAGIC_V1 = 0xDAA320A7
MAGIC_V2 = 0xDAA320AB
MAGIC_BLANK = 0xCBD43194
BLANK_SIZE = 8

COMPRESSED = 0x1
TRANSACTION_MASK = 0xC
PREPARED = 0x4
COMMIT = 0x8
ROLLBACK = 0xC
BORN_HOST_V6 = 0x10
STORE_HOST_V6 = 0x20
NEED_UNWRAP = 0x40
INNER_BATCH = 0x80

CRC_PROPERTY_SIZE = 20
TOPIC_LENGTH_MAX_V1 = 127

_crc32 = crcmod.mkCrcFun(0x104C11DB7, initCrc=0, xorOut=0xFFFFFFFF)


def crc(data: bytes) -> int:
    """Return the CRC-32 of *data* as the store keeps it, without its top bit."""
    return int(_crc32(data)) & 0x7FFFFFFF


class BadRecord(ValueError):
    """No record here. *size* is what to skip when only the inner lengths disagree, else None."""

    def __init__(self, reason: str, size: int | None = None) -> None:
        super().__init__(reason)
        self.size = size


@dataclass(frozen=True, slots=True)
class Host:
    address: bytes
    """4 or 16 bytes."""
    port: int

    @property
    def is_v6(self) -> bool:
        return len(self.address) == 16

    def encode(self) -> bytes:
        return self.address + struct.pack(">i", self.port)

    def __str__(self) -> str:
        if self.is_v6:
            groups = struct.unpack(">8H", IPv6Address(self.address).packed)
            return f"[{':'.join(f'{group:x}' for group in groups)}]:{self.port}"
        return f"{'.'.join(str(byte) for byte in self.address)}:{self.port}"


@dataclass(frozen=True, slots=True, kw_only=True)
class Record:
    """The fields of a record as they are on disk; both hosts are as wide as *sys_flag* says."""

    version: int
    body_crc: int
    queue_id: int
    flag: int
    queue_offset: int
    physical_offset: int
    sys_flag: int
    born_timestamp: int
    born_host: Host
    store_timestamp: int
    store_host: Host
    reconsume_times: int
    prepared_transaction_offset: int
    body: bytes
    topic_bytes: bytes
    property_bytes: bytes

    @property
    def topic(self) -> str:
        return java_text.decode(self.topic_bytes)

    @property
    def properties(self) -> dict[str, str]:
        return properties.decode(self.property_bytes)

    @property
    def transaction(self) -> int:
        return self.sys_flag & TRANSACTION_MASK

    @property
    def size(self) -> int:
        hosts = len(self.born_host.encode()) + len(self.store_host.encode())
        texts = len(self.body) + len(self.topic_bytes) + len(self.property_bytes)
        return 74 + self.version + hosts + texts

    @property
    def tags_code(self) -> int:
        return properties.tags_code(
            self.properties, topic=self.topic, store_timestamp=self.store_timestamp
        )

    @property
    def message_id(self) -> str:
        return message_id(self.store_host, self.physical_offset)


def message_id(store_host: Host, physical_offset: int) -> str:
    """Return the offset message id: host and physical offset in upper-case hex."""
    return (store_host.encode() + struct.pack(">q", physical_offset)).hex().upper()


def parse_message_id(text: str) -> tuple[Host, int]:
    """Return store host and physical offset of an offset message id of 32 or 56 digits."""
    data = bytes.fromhex(text)
    if len(data) not in (16, 28):
        raise ValueError(f"a message id has 32 or 56 hex digits: {text!r}")
    port, offset = struct.unpack(">iq", data[-12:])
    return Host(data[:-12], port), offset


def encode(record: Record) -> bytes:
    """Return the bytes of *record*, its CRC fields taken as they are."""
    magic = MAGIC_V1 if record.version == 1 else MAGIC_V2
    return b"".join(
        (
            struct.pack(">iI", record.size, magic),
            struct.pack(">iii", record.body_crc, record.queue_id, record.flag),
            struct.pack(">qq", record.queue_offset, record.physical_offset),
            struct.pack(">iq", record.sys_flag, record.born_timestamp),
            record.born_host.encode(),
            struct.pack(">q", record.store_timestamp),
            record.store_host.encode(),
            struct.pack(">iq", record.reconsume_times, record.prepared_transaction_offset),
            struct.pack(">i", len(record.body)) + record.body,
            struct.pack(">b" if record.version == 1 else ">h", len(record.topic_bytes)),
            record.topic_bytes,
            struct.pack(">h", len(record.property_bytes)) + record.property_bytes,
        )
    )


def decode(buffer: bytes, at: int) -> Record:
    """Return the record at *at*; BadRecord unless there is one, whole."""
    if len(buffer) - at < BLANK_SIZE:
        raise BadRecord("too little left for size and magic")
    total_size, magic = struct.unpack_from(">iI", buffer, at)
    if magic not in (MAGIC_V1, MAGIC_V2):
        raise BadRecord(f"magic {magic:#x}")
    if not BLANK_SIZE <= total_size <= len(buffer) - at:
        raise BadRecord(f"size {total_size} with {len(buffer) - at} bytes left")
    try:
        record = _decode_fields(_Reader(buffer[at : at + total_size], BLANK_SIZE), magic)
    except struct.error as error:
        raise BadRecord(f"the fields do not fit into {total_size} bytes") from error
    if record.size != total_size:
        raise BadRecord(f"lengths sum up to {record.size}, not {total_size}", total_size)
    return record


@dataclass(slots=True)
class _Reader:
    data: bytes
    at: int

    def number(self, code: str) -> int:
        (value,) = struct.unpack_from(">" + code, self.data, self.at)
        self.at += struct.calcsize(">" + code)
        return int(value)

    def bytes(self, size: int) -> bytes:
        if not 0 <= size <= len(self.data) - self.at:
            raise struct.error("a length points outside the record")
        self.at += size
        return self.data[self.at - size : self.at]

    def host(self, *, is_v6: bool) -> Host:
        return Host(self.bytes(16 if is_v6 else 4), self.number("i"))


def _decode_fields(reader: _Reader, magic: int) -> Record:
    version = 1 if magic == MAGIC_V1 else 2
    # Keyword arguments are evaluated in the order they are written, which is the order on disk.
    return Record(
        version=version,
        body_crc=reader.number("i"),
        queue_id=reader.number("i"),
        flag=reader.number("i"),
        queue_offset=reader.number("q"),
        physical_offset=reader.number("q"),
        sys_flag=(sys_flag := reader.number("i")),
        born_timestamp=reader.number("q"),
        born_host=reader.host(is_v6=bool(sys_flag & BORN_HOST_V6)),
        store_timestamp=reader.number("q"),
        store_host=reader.host(is_v6=bool(sys_flag & STORE_HOST_V6)),
        reconsume_times=reader.number("i"),
        prepared_transaction_offset=reader.number("q"),
        body=reader.bytes(max(reader.number("i"), 0)),
        topic_bytes=reader.bytes(reader.number("b" if version == 1 else "h")),
        property_bytes=reader.bytes(max(reader.number("h"), 0)),
    )


def encode_blank(bytes_left: int) -> bytes:
    """Return the 8 bytes that end a file with *bytes_left* bytes behind its last record."""
    return struct.pack(">iI", bytes_left, MAGIC_BLANK)


def is_blank(buffer: bytes, at: int) -> bool:
    """Tell whether the file ends at *at*; the length beside the magic is not trusted."""
    return buffer[at + 4 : at + BLANK_SIZE] == struct.pack(">I", MAGIC_BLANK)


def crc_property(value: int) -> bytes:
    """Return the twenty bytes that keep the CRC *value*."""
    return f"{properties.CRC}\x01{str(value)[::-1]:0<10}\x02".encode()


def property_crc_is_right(encoded: bytes) -> bool | None:
    """Tell whether the CRC property of the record *encoded* agrees; None when it has none."""
    digits = decode(encoded, 0).properties.get(properties.CRC)
    return None if digits is None else int(digits[::-1]) == crc(encoded[:-CRC_PROPERTY_SIZE])


def body_crc_is_right(record: Record) -> bool:
    """Tell whether the body CRC agrees; that of an empty body is not looked at."""
    return not record.body or record.body_crc == crc(record.body)


def derive(record: Record) -> Record:
    """Return *record* with version, host flags and body CRC as a put makes them."""
    flags = record.sys_flag & ~(BORN_HOST_V6 | STORE_HOST_V6)
    flags |= BORN_HOST_V6 if record.born_host.is_v6 else 0
    flags |= STORE_HOST_V6 if record.store_host.is_v6 else 0
    return replace(
        record,
        version=1 if java_text.length(record.topic) <= TOPIC_LENGTH_MAX_V1 else 2,
        sys_flag=flags,
        body_crc=crc(record.body),
    )


def encode_put(record: Record, *, property_crc: bool, in_batch: bool = False) -> bytes:
    """Return the bytes that a put of *record* writes, derived fields and CRCs computed here.

    With *property_crc* a CRC property that came with the message is dropped and the last pair is
    ended with 0x02 where the sender left that out. Neither is done to a member of a plain batch
    (*in_batch*): an unended pair there swallows the CRC property.
    """
    record = derive(record)
    if not property_crc:
        return encode(record)
    text = record.property_bytes
    if not in_batch:
        text = properties.remove(text, properties.CRC)
        if text and not text.endswith(b"\x02"):
            text += b"\x02"
    reserved = replace(record, property_bytes=text + bytes(CRC_PROPERTY_SIZE))
    covered = encode(reserved)[:-CRC_PROPERTY_SIZE]
    return covered + crc_property(crc(covered))
