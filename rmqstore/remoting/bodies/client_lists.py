"""Answers of brokers about their clients, and answers of clients about their progress."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from rmqstore.remoting import fastjson
from rmqstore.remoting.bodies.clients import SubscriptionData
from rmqstore.remoting.bodies.queue_name import QueueName, encode_queue_table
from rmqstore.remoting.bodies.values import integer_at, object_of

__all__ = [
    "ClientProgress",
    "ConsumerConnections",
    "GroupProgress",
    "GroupSubscription",
    "ProducerConnections",
    "ProducerTable",
]


@dataclass(frozen=True, slots=True, kw_only=True)
class ConsumerConnections:
    """The answer to GET_CONSUMER_CONNECTION_LIST (203)."""

    connections: Sequence[Mapping[str, Any]] = ()
    """clientAddr, clientId, language, version of each."""
    consume_type: str = "CONSUME_PASSIVELY"
    message_model: str = "CLUSTERING"
    consume_from: str = "CONSUME_FROM_LAST_OFFSET"
    subscriptions: Mapping[str, SubscriptionData] = field(default_factory=dict)

    def encode(self) -> bytes:
        """Return the body."""
        return fastjson.dumps(
            {
                "connectionSet": [dict(each) for each in self.connections],
                "consumeFromWhere": self.consume_from,
                "consumeType": self.consume_type,
                "messageModel": self.message_model,
                "subscriptionTable": {
                    topic: each.members() for topic, each in self.subscriptions.items()
                },
            }
        )


@dataclass(frozen=True, slots=True)
class ProducerConnections:
    """The answer to GET_PRODUCER_CONNECTION_LIST (204)."""

    connections: Sequence[Mapping[str, Any]] = ()
    """As those of `ConsumerConnections`."""

    def encode(self) -> bytes:
        """Return the body."""
        return fastjson.dumps({"connectionSet": [dict(each) for each in self.connections]})


@dataclass(frozen=True, slots=True)
class ProducerTable:
    """The answer to GET_ALL_PRODUCER_INFO (328)."""

    groups: Mapping[str, Sequence[Mapping[str, Any]]]
    """clientId, language, lastUpdateTimestamp, remoteIP and version of each member."""

    def encode(self) -> bytes:
        """Return the body."""
        data = {name: [dict(each) for each in members] for name, members in self.groups.items()}
        return fastjson.dumps({"data": data})


@dataclass(frozen=True, slots=True, kw_only=True)
class GroupSubscription:
    """The answer to QUERY_SUBSCRIPTION_BY_CONSUMER (345)."""

    group: str
    topic: str | None
    subscription: SubscriptionData | None
    """None where no member of the group is online, or none subscribes to the topic."""

    def encode(self) -> bytes:
        """Return the body; as in Java, values that are not there are left out."""
        body: dict[str, Any] = {"group": self.group}
        if self.subscription is not None:
            body["subscriptionData"] = self.subscription.members()
        if self.topic is not None:
            body["topic"] = self.topic
        return fastjson.dumps(body)


@dataclass(frozen=True, slots=True)
class ClientProgress:
    """The answer of a consumer to GET_CONSUMER_STATUS_FROM_CLIENT (221)."""

    offsets: Mapping[QueueName, int] = field(default_factory=dict)
    """The offset that the consumer commits next, in each of its queues."""

    @classmethod
    def decode(cls, body: bytes) -> ClientProgress:
        """Return the progress of a body. Raises RemotingFrameError for another shape."""
        fields = object_of(fastjson.loads(body), "GetConsumerStatusBody")
        table = object_of(fields.get("messageQueueTable"), "messageQueueTable")
        return cls({QueueName.of_key(key): integer_at(table, key, 0) for key in table})


@dataclass(frozen=True, slots=True)
class GroupProgress:
    """The answer to INVOKE_BROKER_TO_GET_CONSUMER_STATUS (223): the progress of each member that
    answered, by the id of its client."""

    members: Mapping[str, ClientProgress] = field(default_factory=dict)

    def encode(self) -> bytes:
        """Return the body, whose inner keys are JSON objects."""
        members = b",".join(
            fastjson.dumps(client_id) + b":" + encode_queue_table(each.offsets)
            for client_id, each in self.members.items()
        )
        return b'{"consumerTable":{%b}}' % members
