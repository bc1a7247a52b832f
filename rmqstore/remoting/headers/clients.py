"""Headers of requests about the clients of a broker (34, 35, 38, 40, 203, 204, 345), and of those
that a broker passes on to them (220, 221, 223, 307, 309)."""

from __future__ import annotations

from rmqstore.remoting.headers.field import Header, boolean, header, string
from rmqstore.remoting.headers.rpc import RpcRequestHeader, TopicRequestHeader

__all__ = [
    "ConsumeDirectlyRequestHeader",
    "ConsumerGroupRequestHeader",
    "ConsumerRequestHeader",
    "ConsumerStatusRequestHeader",
    "GroupTopicRequestHeader",
    "HeartbeatResponseHeader",
    "ProducerGroupRequestHeader",
    "UnregisterClientRequestHeader",
]


@header
class HeartbeatResponseHeader(Header):
    """The answer to HEART_BEAT (34)."""

    supports_v2: bool = boolean("IS_SUPPORT_HEART_BEAT_V2")
    """Whether the client may send fingerprints instead of subscriptions."""
    is_changed: bool = boolean("IS_SUB_CHANGE")
    """Whether the client has to send its subscriptions."""


@header
class UnregisterClientRequestHeader(RpcRequestHeader):
    """UNREGISTER_CLIENT (35)."""

    client_id: str = string("clientID")
    producer_group: str | None = string("producerGroup", default=None)
    consumer_group: str | None = string("consumerGroup", default=None)


@header
class ConsumerGroupRequestHeader(RpcRequestHeader):
    """One consumer group: GET_CONSUMER_LIST_BY_GROUP (38), NOTIFY_CONSUMER_IDS_CHANGED (40), and
    GET_CONSUMER_CONNECTION_LIST (203)."""

    consumer_group: str = string("consumerGroup")


@header
class ProducerGroupRequestHeader(RpcRequestHeader):
    """GET_PRODUCER_CONNECTION_LIST (204)."""

    producer_group: str = string("producerGroup")


@header
class GroupTopicRequestHeader(TopicRequestHeader):
    """QUERY_SUBSCRIPTION_BY_CONSUMER (345)."""

    group: str = string("group")
    topic: str | None = string("topic", default=None)


@header
class ConsumerStatusRequestHeader(TopicRequestHeader):
    """INVOKE_BROKER_TO_GET_CONSUMER_STATUS (223), GET_CONSUMER_STATUS_FROM_CLIENT (221)."""

    topic: str = string("topic")
    group: str = string("group")
    client_id: str | None = string("clientAddr", default=None)
    """One member of the group; None for all."""


@header
class ConsumerRequestHeader(RpcRequestHeader):
    """GET_CONSUMER_RUNNING_INFO (307)."""

    consumer_group: str = string("consumerGroup")
    client_id: str = string("clientId")
    with_stacks: bool = boolean("jstackEnable", default=False)


@header
class ConsumeDirectlyRequestHeader(TopicRequestHeader):
    """CONSUME_MESSAGE_DIRECTLY (309)."""

    consumer_group: str = string("consumerGroup")
    client_id: str | None = string("clientId", default=None)
    message_id: str | None = string("msgId", default=None)
    topic: str | None = string("topic", default=None)
