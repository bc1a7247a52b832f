"""Headers of requests about the clients of a broker (34, 35, 38, 40, 203)."""

from __future__ import annotations

from rmqstore.remoting.headers.field import Header, boolean, header, string
from rmqstore.remoting.headers.rpc import RpcRequestHeader

__all__ = ["ConsumerGroupRequestHeader", "HeartbeatResponseHeader", "UnregisterClientRequestHeader"]


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
