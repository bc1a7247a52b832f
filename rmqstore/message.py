"""What a message is: the value to put, the flags and statuses around it, and its identifiers.

Nothing here touches a store. The formats (property text, message ids, unique keys, tags codes) are
those of RocketMQ's MessageDecoder, MessageExtBrokerInner and MessageClientIDSetter.
"""

from __future__ import annotations

import itertools
import os
import struct
import time
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import KW_ONLY, dataclass, field
from enum import Enum, IntEnum, IntFlag, StrEnum
from typing import NamedTuple

from rmqstore import arguments
from rmqstore.errors import ArgumentError, ArgumentTypeError, MessageRejected

__all__ = [
    "AppendStatus",
    "Boundary",
    "CompressionType",
    "Durability",
    "GetStatus",
    "Message",
    "MessageId",
    "PutStatus",
    "SysFlag",
    "TransactionType",
    "UniqueKeys",
    "asked_durability",
    "checked_batch",
    "compression_type",
    "decode_properties",
    "encode_properties",
    "java_string_hash",
    "message_id",
    "not_a_message",
    "parse_message_id",
    "properties_too_large",
    "property_rejected",
    "sole_message",
    "split_keys",
    "tags_code",
    "unique_key",
]

_NAME_VALUE_SEPARATOR = "\x01"
_PROPERTY_SEPARATOR = "\x02"
_KEY_SEPARATOR = " "
_TRANSACTION_BITS = 0xC
_KEY_TIME_MS_MAX = 253_370_764_800_000
"""The year 9999, the last one of which every C library knows the months."""


class PutStatus(StrEnum):
    """RocketMQ's PutMessageStatus, in its order. A member equals its name as text."""

    PUT_OK = "PUT_OK"
    FLUSH_DISK_TIMEOUT = "FLUSH_DISK_TIMEOUT"
    FLUSH_SLAVE_TIMEOUT = "FLUSH_SLAVE_TIMEOUT"
    SLAVE_NOT_AVAILABLE = "SLAVE_NOT_AVAILABLE"
    SERVICE_NOT_AVAILABLE = "SERVICE_NOT_AVAILABLE"
    CREATE_MAPPED_FILE_FAILED = "CREATE_MAPPED_FILE_FAILED"
    MESSAGE_ILLEGAL = "MESSAGE_ILLEGAL"
    PROPERTIES_SIZE_EXCEEDED = "PROPERTIES_SIZE_EXCEEDED"
    OS_PAGE_CACHE_BUSY = "OS_PAGE_CACHE_BUSY"
    UNKNOWN_ERROR = "UNKNOWN_ERROR"
    IN_SYNC_REPLICAS_NOT_ENOUGH = "IN_SYNC_REPLICAS_NOT_ENOUGH"
    PUT_TO_REMOTE_BROKER_FAIL = "PUT_TO_REMOTE_BROKER_FAIL"
    LMQ_CONSUME_QUEUE_NUM_EXCEEDED = "LMQ_CONSUME_QUEUE_NUM_EXCEEDED"
    WHEEL_TIMER_FLOW_CONTROL = "WHEEL_TIMER_FLOW_CONTROL"
    WHEEL_TIMER_MSG_ILLEGAL = "WHEEL_TIMER_MSG_ILLEGAL"
    WHEEL_TIMER_NOT_ENABLE = "WHEEL_TIMER_NOT_ENABLE"


class AppendStatus(StrEnum):
    """RocketMQ's AppendMessageStatus, in its order. A member equals its name as text."""

    PUT_OK = "PUT_OK"
    END_OF_FILE = "END_OF_FILE"
    MESSAGE_SIZE_EXCEEDED = "MESSAGE_SIZE_EXCEEDED"
    PROPERTIES_SIZE_EXCEEDED = "PROPERTIES_SIZE_EXCEEDED"
    UNKNOWN_ERROR = "UNKNOWN_ERROR"
    ROCKSDB_ERROR = "ROCKSDB_ERROR"


class GetStatus(StrEnum):
    """RocketMQ's GetMessageStatus, in its order. A member equals its name as text."""

    FOUND = "FOUND"
    NO_MATCHED_MESSAGE = "NO_MATCHED_MESSAGE"
    MESSAGE_WAS_REMOVING = "MESSAGE_WAS_REMOVING"
    OFFSET_FOUND_NULL = "OFFSET_FOUND_NULL"
    OFFSET_OVERFLOW_BADLY = "OFFSET_OVERFLOW_BADLY"
    OFFSET_OVERFLOW_ONE = "OFFSET_OVERFLOW_ONE"
    OFFSET_TOO_SMALL = "OFFSET_TOO_SMALL"
    NO_MATCHED_LOGIC_QUEUE = "NO_MATCHED_LOGIC_QUEUE"
    NO_MESSAGE_IN_QUEUE = "NO_MESSAGE_IN_QUEUE"
    OFFSET_RESET = "OFFSET_RESET"


class SysFlag(IntFlag):
    """The bits of a record's sysFlag. The transaction and compression fields hold values, not
    single bits."""

    COMPRESSED = 0x1
    MULTI_TAGS = 0x2
    TRANSACTION_PREPARED = 0x4
    TRANSACTION_COMMIT = 0x8
    TRANSACTION_MASK = 0xC
    BORN_HOST_V6 = 0x10
    STORE_HOST_V6 = 0x20
    NEED_UNWRAP = 0x40
    INNER_BATCH = 0x80
    COMPRESSION_LZ4 = 0x100
    COMPRESSION_ZSTD = 0x200
    COMPRESSION_ZLIB = 0x300
    COMPRESSION_MASK = 0x700


class TransactionType(IntEnum):
    """The transaction field of sysFlag, as the bits stored."""

    NONE = 0x0
    PREPARED = 0x4
    COMMIT = 0x8
    ROLLBACK = 0xC


class CompressionType(IntEnum):
    """How a body is compressed: the value of the three-bit field of sysFlag."""

    LZ4 = 1
    ZSTD = 2
    ZLIB = 3

    @property
    def sys_flag(self) -> SysFlag:
        """The sysFlag bits of a body compressed this way."""
        return SysFlag(self.value << 8 | SysFlag.COMPRESSED)


class Durability(Enum):
    """What has happened to a message before its put returns."""

    MEMORY = "memory"
    """Appended to the mapped log: survives the process, not a power loss."""
    DISK = "disk"
    """Flushed to the disk of this machine."""
    REPLICATED = "replicated"
    """Acknowledged by as many replicas as the quorum asks."""


class Boundary(StrEnum):
    """Which of several messages of one store time a search by time answers."""

    LOWER = "lower"
    UPPER = "upper"


def compression_type(sys_flag: int) -> CompressionType | None:
    """Return how the body of a record with *sys_flag* is compressed, None when it is not.

    A compressed body without a type is zlib, as brokers before the type field wrote it.
    Raises ArgumentError for an undefined type.
    """
    sys_flag = arguments.integer("sys_flag", sys_flag)
    if not sys_flag & SysFlag.COMPRESSED:
        return None
    value = (sys_flag & SysFlag.COMPRESSION_MASK) >> 8
    if value == 0:
        return CompressionType.ZLIB
    try:
        return CompressionType(value)
    except ValueError:
        raise ArgumentError(
            f"sysFlag 0x{sys_flag:x} names compression type {value}; types 1 to 3 are defined"
        ) from None


def encode_properties(properties: Mapping[str, str | None]) -> str:
    """Return the property text of a record: name 0x01 value 0x02 for each pair, in the mapping's
    order.

    A value of None leaves its pair out. Raises MessageRejected when a name holds 0x01, or any text
    holds 0x02, or a text is empty: the pair would be read back as something else, or not at all.
    """
    wanted = "a mapping of str to str"
    pairs = [
        (arguments.text("a name in properties", name), arguments.text(f"property {name}", value))
        for name, value in arguments.mapping("properties", properties, wanted).items()
        if value is not None
    ]

    for name, value in pairs:
        if not name or not value:
            raise MessageRejected(
                f"property {name!r} has an empty {'value' if name else 'name'}, which no reader of "
                "RocketMQ's format returns; give a text, or leave the property out"
            )
        if (
            _NAME_VALUE_SEPARATOR in name
            or _PROPERTY_SEPARATOR in name
            or _PROPERTY_SEPARATOR in value
        ):
            raise MessageRejected(
                f"property {name!r} holds a reserved character (0x01 or 0x02 in the name, 0x02 in "
                "the value); leave these characters out"
            )

    return "".join(f"{name}\x01{value}\x02" for name, value in pairs)


def decode_properties(text: str) -> dict[str, str]:
    """Return the pairs of a property text.

    The last pair needs no terminator, a pair with an empty name or value is dropped, the first 0x01
    of a pair splits it, and of two pairs with one name the later wins.
    """
    properties: dict[str, str] = {}
    for piece in text.split(_PROPERTY_SEPARATOR):
        name, _, value = piece.partition(_NAME_VALUE_SEPARATOR)
        if name and value:
            properties[name] = value
    return properties


def split_keys(keys: str | Iterable[str]) -> tuple[str, ...]:
    """Return index keys one by one: of a text with spaces between them, or of an iterable.

    Empty keys are left out. Raises ArgumentError for a key of an iterable that holds a space.
    """
    if isinstance(keys, str):
        return tuple(key for key in keys.split(_KEY_SEPARATOR) if key)
    found = arguments.texts("keys", keys)
    for key in found:
        if _KEY_SEPARATOR in key:
            raise ArgumentError(
                f"key {key!r} holds a space, which separates keys; give several keys without spaces"
            )
    return tuple(key for key in found if key)


def properties_too_large(limit: int) -> MessageRejected:
    """Return the error of a message whose property text is over the *limit* of the format."""
    return MessageRejected(
        f"properties take more than {limit} bytes; shorten them",
        status=PutStatus.PROPERTIES_SIZE_EXCEEDED,
    )


def property_rejected(name: str, value: str) -> MessageRejected:
    """Return the error of a property that no reader of RocketMQ's format would return."""
    if not value:
        return MessageRejected(
            f"property {arguments.shown(name)} has an empty value, which no reader of RocketMQ's "
            "format returns; give a text, or leave the property out"
        )
    return MessageRejected(
        f"property {arguments.shown(name)}: a name may not be empty nor hold the bytes 0, 1 and 2, "
        "a value not 0 and 2, which separate properties; leave them out"
    )


def asked_durability(
    default: Durability, durability: Durability | None, copies: int | None
) -> Durability:
    """Return the durability that a put asks for; None stands for the default of either argument.

    Raises ArgumentError for *copies* with another durability than REPLICATED.
    """
    if durability is not None:
        arguments.member("durability", durability, Durability)
    if copies is None:
        return default if durability is None else durability
    if durability is not None and durability is not Durability.REPLICATED:
        raise ArgumentError(
            f"copies={arguments.shown(copies)} asks for Durability.REPLICATED, not "
            f"Durability.{durability.name}; give one of them"
        )
    return Durability.REPLICATED


def java_string_hash(text: str) -> int:
    """Return java.lang.String.hashCode of *text*: h = 31 h + unit over its UTF-16 units, as
    int32."""
    result = 0
    units = text.encode("utf-16-be", "surrogatepass")
    for (unit,) in struct.iter_unpack(">H", units):
        result = (31 * result + unit) & 0xFFFFFFFF
    return result - 0x1_0000_0000 if result & 0x8000_0000 else result


def tags_code(tags: str | None) -> int:
    """Return the tags code a consume queue unit holds for *tags*; 0 without tags."""
    return java_string_hash(tags) if tags else 0


class MessageId(NamedTuple):
    """The parts of an offset message id: where the record was stored."""

    host: str
    port: int
    physical_offset: int


def message_id(host: str, port: int, physical_offset: int) -> str:
    """Return the offset message id: address (4 or 16 bytes), port (4) and offset (8) in upper-case
    hex."""
    import ipaddress

    address = ipaddress.ip_address(host).packed
    return (address + struct.pack(">iq", port, physical_offset)).hex().upper()


def parse_message_id(text: str) -> MessageId:
    """Return the parts of an offset message id of 32 (IPv4) or 56 (IPv6) hex digits.

    Raises ArgumentError for anything else.
    """
    import ipaddress

    text = arguments.text("message_id", text)
    try:
        raw = bytes.fromhex(text) if len(text) in (32, 56) else b""
    except ValueError:
        raw = b""
    if len(raw) not in (16, 28):
        raise ArgumentError(
            f"message_id is {arguments.shown(text)}; give 32 hex digits (IPv4 store host) or 56 "
            "(IPv6)"
        )
    port, physical_offset = struct.unpack(">iq", raw[-12:])
    return MessageId(str(ipaddress.ip_address(raw[:-12])), port, physical_offset)


class UniqueKeys:
    """Makes unique keys (UNIQ_KEY) for one process; safe to share between threads.

    address (4 or 16 bytes), process id (2), salt (4), milliseconds since the local month began (4),
    counter (2); upper-case hex. The salt stands where Java has its class loader's hash, and keeps
    processes apart whose address and process id are equal.
    """

    def __init__(self, *, address: bytes, process_id: int, salt: bytes) -> None:
        if len(address) not in (4, 16) or len(salt) != 4:
            raise ArgumentError(
                f"the address has {len(address)} bytes and the salt {len(salt)}; give an address "
                "of 4 or 16 bytes and a salt of 4"
            )
        self._prefix = (address + struct.pack(">H", process_id & 0xFFFF) + salt).hex().upper()
        self._counter = itertools.count()
        self._month = (0, 0)

    def next(self, now_ms: int) -> str:
        """Return the next key at *now_ms*; 65,536 keys of one millisecond differ."""
        start_ms, end_ms = self._month
        if not start_ms <= now_ms < end_ms:
            start_ms, end_ms = self._month = _local_month_ms(now_ms)
        elapsed_ms = (now_ms - start_ms) & 0xFFFFFFFF
        return f"{self._prefix}{elapsed_ms:08X}{next(self._counter) & 0xFFFF:04X}"


def _local_month_ms(now_ms: int) -> tuple[int, int]:
    local = time.localtime(now_ms / 1000)
    start = time.mktime((local.tm_year, local.tm_mon, 1, 0, 0, 0, 0, 0, -1))
    end = time.mktime((local.tm_year, local.tm_mon + 1, 1, 0, 0, 0, 0, 0, -1))
    return int(start) * 1000, int(end) * 1000


def _own_address() -> bytes:
    """Returns the address this machine sends from, random bytes when it has none."""
    import socket

    try:
        with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as probe:
            # Connecting a datagram socket picks a route and sends nothing; the address is a
            # reserved one.
            probe.connect(("192.0.2.1", 9))
            return socket.inet_aton(probe.getsockname()[0])
    except OSError:
        return os.urandom(4)


_keys_of_process: tuple[int, UniqueKeys] | None = None


def unique_key(now_ms: int | None = None) -> str:
    """Return a fresh unique key of this process, at *now_ms* (None: now). Safe in a forked
    child."""
    global _keys_of_process
    if now_ms is not None:
        now_ms = arguments.integer("now_ms", now_ms, low=0, high=_KEY_TIME_MS_MAX)
    process_id = os.getpid()
    if _keys_of_process is None or _keys_of_process[0] != process_id:
        keys = UniqueKeys(address=_own_address(), process_id=process_id, salt=os.urandom(4))
        _keys_of_process = (process_id, keys)
    return _keys_of_process[1].next(time.time_ns() // 1_000_000 if now_ms is None else now_ms)


@dataclass(frozen=True, slots=True)
class Message:
    """A message to put.

    The store validates sizes, ranges and the topic's form at put. The constructor validates types,
    and what no store could write. *tags*, *keys*, *unique_key*, *delay_level* and *wait_store_ok*
    travel as the properties TAGS, KEYS, UNIQ_KEY, DELAY and WAIT; giving one both ways with two
    values is an ArgumentError.
    """

    topic: str
    body: bytes | bytearray | memoryview
    _: KW_ONLY
    queue: int = 0
    tags: str | None = None
    keys: Sequence[str] = ()
    """Index keys. A str is read as RocketMQ reads it: keys separated by spaces."""
    properties: Mapping[str, str] = field(default_factory=dict)
    flag: int = 0
    """The application's own 32 bits."""
    sys_flag: int = 0
    """`SysFlag` bits; the store adds those of the addresses."""
    born_timestamp: int | None = None
    """Milliseconds since the epoch; None: when it is put."""
    born_host: tuple[str, int] | None = None
    """Address and port of the producer; None: the store host."""
    store_host: tuple[str, int] | None = None
    """Address and port of the broker; None: the store's configuration."""
    delay_level: int = 0
    transaction: TransactionType = TransactionType.NONE
    reconsume_times: int = 0
    prepared_transaction_offset: int = 0
    unique_key: str | None = None
    wait_store_ok: bool = True
    """False acknowledges without waiting for the flush or for replicas."""

    def __post_init__(self) -> None:
        if not self._is_plain():
            self._normalize()
        flags = self.sys_flag & _TRANSACTION_BITS
        if flags and self.transaction and flags != int(self.transaction):
            raise ArgumentError(
                f"sys_flag 0x{self.sys_flag:x} and transaction {self.transaction.name} disagree; "
                "give one of them"
            )
        if self.properties:
            for name, value in self._named_properties().items():
                if self.properties.get(name, value) != value:
                    raise ArgumentError(
                        f"property {name} is given twice, as {self.properties[name]!r} and as "
                        f"{value!r}; give it once"
                    )

    def _is_plain(self) -> bool:
        """Whether all fields have exactly the types that most messages have."""
        if type(self.keys) is not tuple:
            return False
        for key in self.keys:
            if type(key) is not str or not key or _KEY_SEPARATOR in key:
                return False
        return (
            type(self.topic) is str
            and type(self.body) is bytes
            and type(self.queue) is int
            and (self.tags is None or type(self.tags) is str)
            and type(self.properties) is dict
            and type(self.flag) is int
            and type(self.sys_flag) is int
            and (self.born_timestamp is None or type(self.born_timestamp) is int)
            and self.born_host is None
            and self.store_host is None
            and type(self.delay_level) is int
            and self.delay_level >= 0
            and type(self.transaction) is TransactionType
            and type(self.reconsume_times) is int
            and type(self.prepared_transaction_offset) is int
            and (self.unique_key is None or type(self.unique_key) is str)
            and type(self.wait_store_ok) is bool
        )

    def _normalize(self) -> None:
        """Gives every field its plain type; refuses what no store could write."""
        plain: dict[str, object] = {
            "topic": arguments.text("topic", self.topic),
            "keys": split_keys(self.keys),
            "delay_level": arguments.integer("delay_level", self.delay_level, low=0),
        }

        arguments.buffer("body", self.body)
        for name in ("queue", "flag", "sys_flag", "reconsume_times", "prepared_transaction_offset"):
            plain[name] = arguments.integer(name, getattr(self, name))

        if self.born_timestamp is not None:
            plain["born_timestamp"] = arguments.integer("born_timestamp", self.born_timestamp)
        for name in ("tags", "unique_key"):
            if getattr(self, name) is not None:
                plain[name] = arguments.text(name, getattr(self, name))
        for name in ("born_host", "store_host"):
            if getattr(self, name) is not None:
                plain[name] = arguments.host(name, getattr(self, name))

        arguments.mapping("properties", self.properties, "a mapping of str to str")
        arguments.member("transaction", self.transaction, TransactionType)
        arguments.boolean("wait_store_ok", self.wait_store_ok)

        for name, value in plain.items():
            object.__setattr__(self, name, value)

    def _named_properties(self) -> dict[str, str]:
        named: dict[str, str] = {}
        if self.keys:
            named["KEYS"] = _KEY_SEPARATOR.join(self.keys)
        if self.unique_key:
            named["UNIQ_KEY"] = self.unique_key
        if not self.wait_store_ok:
            named["WAIT"] = "false"
        if self.delay_level:
            named["DELAY"] = str(self.delay_level)
        if self.tags:
            named["TAGS"] = self.tags
        return named

    @property
    def stored_sys_flag(self) -> int:
        """The sysFlag to store, before the store adds the bits of the addresses."""
        return self.sys_flag | self.transaction

    def all_properties(self) -> dict[str, str]:
        """Return every property to store: *properties* in their order, then those that fields stand
        for."""
        return {**self.properties, **self._named_properties()}

    def encoded_properties(self) -> str:
        """Return the property text to store. Raises MessageRejected for reserved characters."""
        return encode_properties(self.all_properties())


def sole_message(message: object, others: Mapping[str, object]) -> Message:
    """Return *message*, put without a topic. Raises ArgumentError unless it is a Message, and all
    *others*, the arguments beside it, are None."""
    if isinstance(message, str):
        raise ArgumentTypeError("body is None; give bytes, or a Message in place of topic and body")
    wanted = "the name of a topic and a body, or a Message"
    found = arguments.instance("topic", message, Message, wanted=wanted)
    for name, value in others.items():
        if value is not None:
            raise ArgumentError(
                f"{name} is {arguments.shown(value)} beside a Message; the Message has its own"
            )
    return found


def not_a_message(number: int, item: object) -> ArgumentTypeError:
    """Return the error of an item of `put_many` without a topic."""
    return ArgumentTypeError(
        f"messages[{number}] is {arguments.shown(item)}; give Message objects, or bodies with "
        "topic="
    )


def checked_batch(messages: object, *, body_size_max: int) -> list[Message]:
    """Return the messages of a batch as a list.

    Raises MessageRejected for an empty batch, for several queues, for a transaction or a delay
    level, and for bodies of more than *body_size_max* bytes together.
    """
    batch: list[Message] = list(arguments.items("messages", messages, "a list of Message"))
    if not batch:
        raise MessageRejected("messages is empty; a batch holds at least one message")

    total = 0
    topic = queue = None

    for number, message in enumerate(batch):
        if type(message) is not Message:
            arguments.instance(f"messages[{number}]", message, Message)
        body = message.body
        is_bytes = type(body) is bytes
        total += len(body) if is_bytes else _size_of(f"the body of messages[{number}]", body)
        if number == 0:
            topic, queue = message.topic, message.queue
        if message.topic != topic or message.queue != queue:
            raise MessageRejected(
                "the messages of a batch go to one queue of one topic; use put_many"
            )
        if message.transaction or message.delay_level:
            raise MessageRejected(
                "a batch takes no transaction and no delay level; put such messages by themselves"
            )

    if total > body_size_max:
        raise MessageRejected(
            f"the bodies of the batch are over the limit of {body_size_max} bytes "
            "(maxMessageSize); split it"
        )

    return batch


def _size_of(name: str, body: bytes | bytearray | memoryview) -> int:
    arguments.buffer(name, body)
    with memoryview(body) as view:
        return view.nbytes
