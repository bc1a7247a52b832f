"""The header of PULL_MESSAGE (11) and LITE_PULL_MESSAGE (361)."""

from __future__ import annotations

from rmqstore.remoting.headers.field import header, int32, int64, string
from rmqstore.remoting.headers.rpc import TopicRequestHeader

__all__ = ["PullMessageRequestHeader"]


@header
class PullMessageRequestHeader(TopicRequestHeader):
    """Requests messages of a queue from an offset on."""

    consumer_group: str = string("consumerGroup")
    topic: str = string("topic")
    queue_id: int = int32("queueId")
    queue_offset: int = int64("queueOffset")
    max_messages: int = int32("maxMsgNums")
    sys_flag: int = int32("sysFlag")
    """Bits: 1 commit the offset, 2 wait for messages, 4 subscription, 8 class filter, 16 lite."""
    commit_offset: int = int64("commitOffset")
    suspend_timeout_ms: int = int64("suspendTimeoutMillis")
    subscription: str | None = string("subscription", default=None)
    subscription_version: int = int64("subVersion")
    expression_type: str | None = string("expressionType", default=None)
    max_size_bytes: int | None = int32("maxMsgBytes", default=None)
    request_source: int | None = int32("requestSource", default=None)
    proxy_client_id: str | None = string("proxyFrowardClientId", default=None)
    lite_topic: str | None = string("liteTopic", default=None)
    """Of release 5.5 on."""
