"""Check points and acknowledgements of POP: the messages of the revive topic, as RocketMQ writes
them.

A check point says which messages a consumer popped, and until when they are its own. The message of
an acknowledgement says which of them it has consumed. Both are timer messages; when a check point
is due, the messages without an acknowledgement are delivered again.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

from rmqstore.errors import RemotingFrameError
from rmqstore.remoting import fastjson
from rmqstore.remoting.bodies.values import (
    boolean_at,
    integer_at,
    integer_of,
    list_of,
    object_of,
    text_at,
)

__all__ = ["ACK_TAG", "BATCH_TAG", "CHECK_POINT_TAG", "PopAck", "PopCheckPoint"]

CHECK_POINT_TAG, ACK_TAG, BATCH_TAG = "ck", "ack", "bAck"
"""The tags of the messages."""
_EARLY_MS = 1000
"""A check point comes this long before its acknowledgements."""
_INT8_MAX, _INT32_MAX = 2**7 - 1, 2**31 - 1
_LONG_NAMES = {
    "ao": "ackOffset",
    "aol": "ackOffsetList",
    "bn": "brokerName",
    "c": "consumerGroup",
    "pt": "popTime",
    "q": "queueId",
    "so": "startOffset",
    "t": "topic",
}


@dataclass(frozen=True, slots=True, kw_only=True)
class PopCheckPoint:
    """What a consumer popped from a queue, or what is left of that to be delivered again."""

    topic: str
    """The topic that has the messages: a retry topic for those that are popped again."""
    queue: int
    group: str
    start_offset: int
    """Where the pop began."""
    offsets: tuple[int, ...]
    """Of the messages."""
    pop_time_ms: int
    invisible_ms: int
    broker_name: str | None
    """The broker of the messages; None in check points of early releases."""
    bits: int = 0
    """The acknowledged messages; 0 in the log."""
    revive_offset: int = 0
    """The offset of this message in its revive queue; only readers know it."""
    times: str | None = None
    """How often the check point was put again; None for the first one."""
    is_suspended: bool | None = None
    """Whether the next delivery does not count as a retry; None: not said, as in 5.3."""

    @property
    def revive_ms(self) -> int:
        """When the messages that are not acknowledged are delivered again."""
        return self.pop_time_ms + self.invisible_ms

    @property
    def due_ms(self) -> int:
        """When the message comes into the revive topic."""
        return self.revive_ms - _EARLY_MS

    @property
    def unique_key(self) -> str:
        """The unique key of the message."""
        parts = (self.topic, self.queue, self.start_offset, self.group, self.pop_time_ms)
        return "@".join(map(str, (*parts, self.broker_name, CHECK_POINT_TAG)))

    @property
    def tag(self) -> str:
        """The tag of the message."""
        return CHECK_POINT_TAG

    @classmethod
    def decode(cls, body: bytes) -> PopCheckPoint:
        """Return the check point of a body. Raises RemotingFrameError for another shape."""
        fields = object_of(fastjson.loads(body), "PopCheckPoint")
        start = integer_at(fields, "so", 0)
        count = integer_at(fields, "n", 0, high=_INT8_MAX)
        past = [integer_of(each, "d", high=_INT32_MAX) for each in list_of(fields.get("d"), "d")]
        return cls(
            topic=text_at(fields, "t"),
            queue=integer_at(fields, "q", 0, high=_INT32_MAX),
            group=text_at(fields, "c"),
            start_offset=start,
            # Check points of early releases have no differences: their messages are consecutive.
            offsets=tuple(start + each for each in past or range(count)),
            pop_time_ms=integer_at(fields, "pt", 0),
            invisible_ms=integer_at(fields, "it", 0),
            broker_name=_text_or_none(fields, "bn"),
            bits=integer_at(fields, "bm", 0, high=_INT32_MAX),
            revive_offset=integer_at(fields, "ro", 0),
            times=_text_or_none(fields, "rp"),
            is_suspended=None if fields.get("sp") is None else boolean_at(fields, "sp"),
        )

    def encode(self) -> bytes:
        """Return the body."""
        members = {
            "bm": self.bits,
            "bn": self.broker_name,
            "c": self.group,
            "d": [each - self.start_offset for each in self.offsets],
            "it": self.invisible_ms,
            "n": len(self.offsets),
            "pt": self.pop_time_ms,
            "q": self.queue,
            "reviveTime": self.revive_ms,
            "ro": self.revive_offset,
            "rp": self.times,
            "so": self.start_offset,
            "sp": self.is_suspended,
            "t": self.topic,
        }
        return _encoded(members)

    def at(self, revive_offset: int) -> PopCheckPoint:
        """Return the check point as it is read from an offset of its revive queue."""
        return replace(self, revive_offset=revive_offset)


@dataclass(frozen=True, slots=True, kw_only=True)
class PopAck:
    """Messages of one pop that a consumer has consumed."""

    topic: str
    """The topic that has the messages."""
    queue: int
    group: str
    start_offset: int
    """Where the pop began."""
    offsets: tuple[int, ...]
    """Of the messages."""
    pop_time_ms: int
    broker_name: str | None
    is_batch: bool = False
    """Whether it is of the form for several messages."""

    @property
    def unique_key(self) -> str:
        """The unique key of the message; RocketMQ gives both forms the same."""
        parts = (self.topic, self.queue, self._offset, self.group, self.pop_time_ms)
        return "@".join(map(str, (*parts, self.broker_name, ACK_TAG)))

    @property
    def tag(self) -> str:
        """The tag of the message."""
        return BATCH_TAG if self.is_batch else ACK_TAG

    @property
    def _offset(self) -> int:
        return -1 if self.is_batch else self.offsets[0]

    @classmethod
    def decode(cls, body: bytes) -> PopAck:
        """Return the acknowledgement of a body, of either form. Raises RemotingFrameError for
        another shape."""
        given = object_of(fastjson.loads(body), "AckMsg")
        fields = {name: given.get(name, given.get(long)) for name, long in _LONG_NAMES.items()}
        listed = fields["aol"]
        offsets = tuple(integer_of(each, "aol") for each in list_of(listed, "aol"))
        if listed is None:
            if fields["ao"] is None:
                raise RemotingFrameError("AckMsg: there is no offset in ao or aol")
            offsets = (integer_at(fields, "ao", 0),)
        return cls(
            topic=text_at(fields, "t"),
            queue=integer_at(fields, "q", 0, high=_INT32_MAX),
            group=text_at(fields, "c"),
            start_offset=integer_at(fields, "so", 0),
            offsets=offsets,
            pop_time_ms=integer_at(fields, "pt", 0),
            broker_name=_text_or_none(fields, "bn"),
            is_batch=listed is not None,
        )

    def encode(self) -> bytes:
        """Return the body."""
        members = {
            "ao": self._offset,
            "aol": list(self.offsets) if self.is_batch else None,
            "bn": self.broker_name,
            "c": self.group,
            "pt": self.pop_time_ms,
            "q": self.queue,
            "so": self.start_offset,
            "t": self.topic,
        }
        return _encoded(members)


def _text_or_none(fields: Mapping[str, Any], name: str) -> str | None:
    return None if fields.get(name) is None else text_at(fields, name)


def _encoded(members: Mapping[str, Any]) -> bytes:
    """Returns a body as fastjson writes it: without what is not known."""
    return fastjson.dumps({name: value for name, value in members.items() if value is not None})
