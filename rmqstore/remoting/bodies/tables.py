"""Small tables of the nameserver's answers: TopicList and KVTable, in standard JSON."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from rmqstore.remoting import fastjson
from rmqstore.remoting.bodies.values import object_of, text_at, texts_of

__all__ = ["KvTable", "TopicList"]


@dataclass(frozen=True, slots=True)
class TopicList:
    """Names of topics; *broker_address* only with the list of system topics."""

    topics: Sequence[str] = ()
    broker_address: str | None = None

    @classmethod
    def decode(cls, body: bytes) -> TopicList:
        """Return the list of a body. Raises RemotingFrameError for another shape."""
        fields = object_of(fastjson.loads(body), "TopicList")
        topics = texts_of(fields.get("topicList"), "topicList")
        return cls(topics, text_at(fields, "brokerAddr") or None)

    def encode(self) -> bytes:
        """Return the body."""
        broker = {} if self.broker_address is None else {"brokerAddr": self.broker_address}
        return fastjson.dumps({**broker, "topicList": list(self.topics)})


@dataclass(frozen=True, slots=True)
class KvTable:
    """The pairs of one namespace."""

    table: Mapping[str, str] = field(default_factory=dict)

    @classmethod
    def decode(cls, body: bytes) -> KvTable:
        """Return the table of a body. Raises RemotingFrameError for another shape."""
        fields = object_of(fastjson.loads(body), "KVTable")
        table = object_of(fields.get("table"), "table")
        return cls({key: text_at(table, key) for key in table})

    def encode(self) -> bytes:
        """Return the body."""
        return fastjson.dumps({"table": dict(self.table)})
