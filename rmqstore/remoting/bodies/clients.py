"""Heartbeats of clients, and the answers of brokers about clients, in standard JSON."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from rmqstore.remoting import fastjson
from rmqstore.remoting.bodies.queue_name import QueueName
from rmqstore.remoting.bodies.values import (
    boolean_at,
    integer_at,
    integer_of,
    list_of,
    object_of,
    text_at,
    texts_of,
)

__all__ = [
    "CheckClientBody",
    "ConsumerData",
    "ConsumerList",
    "HeartbeatData",
    "LockBatchBody",
    "LockedQueues",
    "SubscriptionData",
]

EVERYTHING = "*"


@dataclass(frozen=True, slots=True, kw_only=True)
class SubscriptionData:
    """The subscription of a consumer to one topic."""

    topic: str
    expression: str = EVERYTHING
    tags: tuple[str, ...] = ()
    """Empty for all messages."""
    codes: tuple[int, ...] = ()
    """The Java hash of each tag."""
    version: int = 0
    """Milliseconds since the epoch; a later version replaces an earlier one."""
    expression_type: str = "TAG"
    is_class_filter: bool = False

    @classmethod
    def of(cls, value: object) -> SubscriptionData:
        """Return the subscription that parsed JSON holds. Raises RemotingFrameError."""
        fields = object_of(value, "subscriptionData")
        # Clients in Go send each code as text.
        codes = (integer_of(code, "codeSet") for code in list_of(fields.get("codeSet"), "codeSet"))
        return cls(
            topic=text_at(fields, "topic"),
            expression=text_at(fields, "subString", EVERYTHING),
            tags=texts_of(fields.get("tagsSet"), "tagsSet"),
            codes=tuple(codes),
            version=integer_at(fields, "subVersion", 0),
            expression_type=text_at(fields, "expressionType", "TAG"),
            is_class_filter=boolean_at(fields, "classFilterMode"),
        )

    def members(self) -> dict[str, Any]:
        """Return the JSON object."""
        return {
            "classFilterMode": self.is_class_filter,
            "codeSet": list(self.codes),
            "expressionType": self.expression_type,
            "subString": self.expression,
            "subVersion": self.version,
            "tagsSet": list(self.tags),
            "topic": self.topic,
        }


@dataclass(frozen=True, slots=True, kw_only=True)
class ConsumerData:
    """One consumer of a client."""

    group: str
    consume_type: str = "CONSUME_PASSIVELY"
    """CONSUME_PASSIVELY for a push consumer, CONSUME_ACTIVELY for a pull consumer."""
    message_model: str = "CLUSTERING"
    consume_from: str = "CONSUME_FROM_LAST_OFFSET"
    subscriptions: tuple[SubscriptionData, ...] = ()
    is_unit: bool = False

    @classmethod
    def of(cls, value: object) -> ConsumerData:
        """Return the consumer that parsed JSON holds. Raises RemotingFrameError."""
        fields = object_of(value, "consumerData")
        subscriptions = list_of(fields.get("subscriptionDataSet"), "subscriptionDataSet")
        return cls(
            group=text_at(fields, "groupName"),
            consume_type=text_at(fields, "consumeType", "CONSUME_PASSIVELY"),
            # Clients in Go send "BroadCasting"; Java reads names of enums in any case.
            message_model=text_at(fields, "messageModel", "CLUSTERING").upper(),
            consume_from=text_at(fields, "consumeFromWhere", "CONSUME_FROM_LAST_OFFSET"),
            subscriptions=tuple(SubscriptionData.of(each) for each in subscriptions),
            is_unit=boolean_at(fields, "unitMode"),
        )

    def members(self) -> dict[str, Any]:
        """Return the JSON object."""
        return {
            "consumeFromWhere": self.consume_from,
            "consumeType": self.consume_type,
            "groupName": self.group,
            "messageModel": self.message_model,
            "subscriptionDataSet": [each.members() for each in self.subscriptions],
            "unitMode": self.is_unit,
        }


@dataclass(frozen=True, slots=True, kw_only=True)
class HeartbeatData:
    """The body of HEART_BEAT (34)."""

    client_id: str
    consumers: tuple[ConsumerData, ...] = ()
    producers: tuple[str, ...] = ()
    """Names of groups."""
    fingerprint: int = 0
    """Fingerprint of the subscriptions; 0 from a client that does not use fingerprints."""
    is_without_subscriptions: bool = False
    """Whether subscriptions are left out because those of an earlier heartbeat are still valid."""

    @classmethod
    def decode(cls, body: bytes) -> HeartbeatData:
        """Return the heartbeat of a body. Raises RemotingFrameError for another shape."""
        fields = object_of(fastjson.loads(body), "HeartbeatData")
        producers = list_of(fields.get("producerDataSet"), "producerDataSet")
        consumers = list_of(fields.get("consumerDataSet"), "consumerDataSet")
        return cls(
            client_id=text_at(fields, "clientID"),
            consumers=tuple(ConsumerData.of(each) for each in consumers),
            producers=tuple(
                text_at(object_of(each, "producerData"), "groupName") for each in producers
            ),
            fingerprint=integer_at(fields, "heartbeatFingerprint", 0),
            is_without_subscriptions=boolean_at(fields, "withoutSub"),
        )

    def encode(self) -> bytes:
        """Return the body."""
        return fastjson.dumps(
            {
                "clientID": self.client_id,
                "consumerDataSet": [each.members() for each in self.consumers],
                "heartbeatFingerprint": self.fingerprint,
                "producerDataSet": [{"groupName": each} for each in self.producers],
                "withoutSub": self.is_without_subscriptions,
            }
        )


@dataclass(frozen=True, slots=True)
class ConsumerList:
    """The client ids of a group: the answer to GET_CONSUMER_LIST_BY_GROUP (38)."""

    client_ids: Sequence[str] = ()

    @classmethod
    def decode(cls, body: bytes) -> ConsumerList:
        """Return the list of a body. Raises RemotingFrameError for another shape."""
        fields = object_of(fastjson.loads(body), "GetConsumerListByGroupResponseBody")
        return cls(texts_of(fields.get("consumerIdList"), "consumerIdList"))

    def encode(self) -> bytes:
        """Return the body."""
        return fastjson.dumps({"consumerIdList": list(self.client_ids)})


@dataclass(frozen=True, slots=True, kw_only=True)
class CheckClientBody:
    """The body of CHECK_CLIENT_CONFIG (46)."""

    client_id: str
    group: str
    subscription: SubscriptionData

    @classmethod
    def decode(cls, body: bytes) -> CheckClientBody:
        """Return the request of a body. Raises RemotingFrameError for another shape."""
        fields = object_of(fastjson.loads(body), "CheckClientRequestBody")
        return cls(
            client_id=text_at(fields, "clientId"),
            group=text_at(fields, "group"),
            subscription=SubscriptionData.of(fields.get("subscriptionData")),
        )


@dataclass(frozen=True, slots=True)
class LockBatchBody:
    """The body of LOCK_BATCH_MQ (41) and UNLOCK_BATCH_MQ (42)."""

    group: str
    client_id: str
    queues: tuple[QueueName, ...] = ()
    only_this_broker: bool = field(default=False, kw_only=True)
    """Whether another broker of the group asks, for the locks of the broker itself."""
    fresh_grants: tuple[int, ...] = field(default=(), kw_only=True)
    """The numbers of the grants of *queues* that are given back: a field of this library, between
    its brokers."""

    @classmethod
    def decode(cls, body: bytes) -> LockBatchBody:
        """Return the request of a body. Raises RemotingFrameError for another shape."""
        fields = object_of(fastjson.loads(body), "LockBatchRequestBody")
        queues = list_of(fields.get("mqSet"), "mqSet")
        return cls(
            group=text_at(fields, "consumerGroup"),
            client_id=text_at(fields, "clientId"),
            queues=tuple(QueueName.of(each) for each in queues),
            only_this_broker=boolean_at(fields, "onlyThisBroker"),
            fresh_grants=_numbers(fields),
        )

    def encode(self) -> bytes:
        """Return the body."""
        return fastjson.dumps(
            {
                "clientId": self.client_id,
                "consumerGroup": self.group,
                **_grants(self.fresh_grants),
                "mqSet": [each.members() for each in self.queues],
                "onlyThisBroker": self.only_this_broker,
            }
        )


@dataclass(frozen=True, slots=True)
class LockedQueues:
    """The answer to LOCK_BATCH_MQ: the queues that the client holds."""

    queues: Sequence[QueueName] = ()
    fresh_grants: tuple[int, ...] = ()
    """For another broker of this library: the number of each grant, 0 for a lock that was
    renewed."""

    @classmethod
    def decode(cls, body: bytes) -> LockedQueues:
        """Return the answer of a body. Raises RemotingFrameError for another shape."""
        fields = object_of(fastjson.loads(body), "LockBatchResponseBody")
        queues = list_of(fields.get("lockOKMQSet"), "lockOKMQSet")
        return cls(tuple(QueueName.of(each) for each in queues), _numbers(fields))

    def encode(self) -> bytes:
        """Return the body."""
        queues = [each.members() for each in self.queues]
        return fastjson.dumps({**_grants(self.fresh_grants), "lockOKMQSet": queues})


def _grants(numbers: Sequence[int]) -> dict[str, Any]:
    return {"freshGrants": list(numbers)} if numbers else {}


def _numbers(fields: Mapping[str, Any]) -> tuple[int, ...]:
    numbers = list_of(fields.get("freshGrants"), "freshGrants")
    return tuple(integer_of(each, "freshGrants") for each in numbers)
