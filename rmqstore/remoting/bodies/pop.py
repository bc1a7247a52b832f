"""The body of BATCH_ACK_MESSAGE (200151), in standard JSON."""

from __future__ import annotations

import binascii
from base64 import b64decode, b64encode
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

from rmqstore.errors import RemotingFrameError
from rmqstore.remoting import fastjson
from rmqstore.remoting.bodies.values import integer_at, list_of, object_of, text_at
from rmqstore.topic_names import RetryKind

__all__ = ["BatchAckBody", "QueueAcks"]

_INT32_MAX = 2**31 - 1
_BITS_SIZE_MAX = 64 * 1024
_LONG_NAMES = {
    "c": "consumerGroup",
    "t": "topic",
    "r": "retry",
    "so": "startOffset",
    "q": "queueId",
    "rq": "reviveQueueId",
    "pt": "popTime",
    "it": "invisibleTime",
    "b": "bitSet",
}


@dataclass(frozen=True, slots=True, kw_only=True)
class QueueAcks:
    """The acknowledged messages of one queue, from one pop."""

    group: str
    topic: str
    """The topic that was asked for, also of messages that are popped again."""
    kind: RetryKind
    """Which form the name of the topic has that the messages are in."""
    queue: int
    start_offset: int
    """Where the pop began."""
    offsets: tuple[int, ...]
    """Of the messages, ascending."""
    revive_queue: int
    pop_time_ms: int
    invisible_ms: int

    @classmethod
    def of(cls, value: object) -> QueueAcks:
        """Return the acknowledgements that parsed JSON holds. Raises RemotingFrameError."""
        given = object_of(value, "acks")
        fields = {name: given.get(name, given.get(long)) for name, long in _LONG_NAMES.items()}
        start = integer_at(fields, "so", 0)
        kind = integer_at(fields, "r", 0)
        if kind not in tuple(RetryKind):
            raise RemotingFrameError(f"r: {kind} is not the form of a topic; send 0, 1 or 2")
        return cls(
            group=text_at(fields, "c"),
            topic=text_at(fields, "t"),
            kind=RetryKind(kind),
            queue=integer_at(fields, "q", 0, high=_INT32_MAX),
            start_offset=start,
            offsets=tuple(start + each for each in _members(text_at(fields, "b"))),
            revive_queue=integer_at(fields, "rq", 0, high=_INT32_MAX),
            pop_time_ms=integer_at(fields, "pt", 0),
            invisible_ms=integer_at(fields, "it", 0),
        )

    def members(self) -> dict[str, Any]:
        """Return the JSON object."""
        return {
            "b": _text(each - self.start_offset for each in self.offsets),
            "c": self.group,
            "it": self.invisible_ms,
            "pt": self.pop_time_ms,
            "q": self.queue,
            "r": str(int(self.kind)),
            "rq": self.revive_queue,
            "so": self.start_offset,
            "t": self.topic,
        }


@dataclass(frozen=True, slots=True, kw_only=True)
class BatchAckBody:
    """Acknowledgements of several messages."""

    broker_name: str
    acks: tuple[QueueAcks, ...] = ()

    @classmethod
    def decode(cls, body: bytes) -> BatchAckBody:
        """Return the acknowledgements of a body, none of an empty one. Raises RemotingFrameError
        for another shape."""
        fields = object_of(fastjson.loads(body) if body else None, "BatchAckMessageRequestBody")
        acks = list_of(fields.get("acks"), "acks")
        return cls(
            broker_name=text_at(fields, "brokerName"),
            acks=tuple(QueueAcks.of(each) for each in acks),
        )

    def encode(self) -> bytes:
        """Return the body."""
        acks = [each.members() for each in self.acks]
        return fastjson.dumps({"acks": acks, "brokerName": self.broker_name})


def _members(text: str) -> Iterable[int]:
    """Returns the numbers in a set of Java: bits, the lowest first, in base 64."""
    try:
        data = b64decode(text, validate=True)
    except (binascii.Error, ValueError) as error:
        raise RemotingFrameError(f"b: the set of offsets is not in base 64: {error}") from error
    if len(data) > _BITS_SIZE_MAX:
        raise RemotingFrameError(
            f"b: a set of {len(data)} bytes, the limit is {_BITS_SIZE_MAX}; acknowledge the "
            "messages of one pop at a time"
        )
    return (8 * at + bit for at, byte in enumerate(data) for bit in range(8) if byte >> bit & 1)


def _text(members: Iterable[int]) -> str:
    bits = sum(1 << each for each in members)
    return b64encode(bits.to_bytes((bits.bit_length() + 7) // 8, "little")).decode()
