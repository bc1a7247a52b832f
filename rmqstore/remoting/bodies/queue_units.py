"""Units of queues: the answer to QUERY_CONSUME_QUEUE (321)."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from rmqstore.remoting import fastjson
from rmqstore.remoting.bodies.clients import SubscriptionData

__all__ = ["QueueUnit", "QueueUnitList"]


@dataclass(frozen=True, slots=True, kw_only=True)
class QueueUnit:
    """One unit."""

    physical_offset: int
    size: int
    tags_code: int
    bit_map: bytes = b""
    """Of the extension of the queue; empty without one."""

    def members(self) -> dict[str, Any]:
        """Return the JSON object."""
        extension = {"bitMap": self.bit_map.hex()} if self.bit_map else {}
        return {
            **extension,
            "eval": False,
            "physicOffset": self.physical_offset,
            "physicSize": self.size,
            "tagsCode": self.tags_code,
        }


@dataclass(frozen=True, slots=True, kw_only=True)
class QueueUnitList:
    """A part of a queue."""

    start: int
    """The first offset of the queue."""
    end: int
    """The offset after its last message."""
    units: Sequence[QueueUnit]
    filter_text: str | None = None
    """The expression of the group of the request as JSON, or why it has none."""
    subscription: SubscriptionData | None = None

    def encode(self) -> bytes:
        """Return the body."""
        body: dict[str, Any] = {}
        if self.filter_text is not None:
            body["filterData"] = self.filter_text
        body |= {
            "maxQueueIndex": self.end,
            "minQueueIndex": self.start,
            "queueData": [each.members() for each in self.units],
        }
        if self.subscription is not None:
            body["subscriptionData"] = self.subscription.members()
        return fastjson.dumps(body)
