"""The name of a queue in the bodies of requests and answers."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, NamedTuple

from rmqstore.remoting import fastjson
from rmqstore.remoting.bodies.values import integer_at, object_of, text_at

__all__ = ["QueueName", "encode_queue_table"]


class QueueName(NamedTuple):
    """One queue of a topic on one broker, as clients name it (MessageQueue)."""

    topic: str
    broker_name: str
    queue_id: int

    @classmethod
    def of(cls, value: object) -> QueueName:
        """Return the queue that parsed JSON holds. Raises RemotingFrameError."""
        fields = object_of(value, "messageQueue")
        return cls(
            text_at(fields, "topic"),
            text_at(fields, "brokerName"),
            integer_at(fields, "queueId", 0),
        )

    def members(self) -> dict[str, Any]:
        """Return the JSON object."""
        return {"brokerName": self.broker_name, "queueId": self.queue_id, "topic": self.topic}

    @classmethod
    def of_key(cls, key: str) -> QueueName:
        """Return the queue of a key. An object in the place of a key is read as its own JSON
        text."""
        return cls.of(fastjson.loads(key))


def encode_queue_table(table: Mapping[QueueName, Mapping[str, int] | int]) -> bytes:
    """Return a JSON object with queues as keys, which Java writes as JSON objects."""
    pairs = (
        fastjson.dumps(name.members()) + b":" + fastjson.dumps(each) for name, each in table.items()
    )
    return b"{%b}" % b",".join(pairs)
