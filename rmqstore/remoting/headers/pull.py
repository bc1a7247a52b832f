"""Headers of PULL_MESSAGE (11) and LITE_PULL_MESSAGE (361)."""

from __future__ import annotations

from enum import IntFlag

from rmqstore.remoting.headers.field import Header, header, int32, int64, string
from rmqstore.remoting.headers.rpc import TopicRequestHeader

__all__ = ["PullFlag", "PullMessageRequestHeader", "PullMessageResponseHeader"]


class PullFlag(IntFlag):
    """The bits of a pull's sysFlag."""

    COMMIT_OFFSET = 1
    SUSPEND = 2
    """Wait for messages if there are none."""
    SUBSCRIPTION = 4
    """The request has the subscription; otherwise that of the consumer's heartbeat counts."""
    CLASS_FILTER = 8
    LITE_PULL = 16


@header
class PullMessageRequestHeader(TopicRequestHeader):
    """Requests messages of a queue from an offset on."""

    consumer_group: str = string("consumerGroup")
    topic: str = string("topic")
    queue_id: int = int32("queueId")
    queue_offset: int = int64("queueOffset")
    max_messages: int = int32("maxMsgNums")
    sys_flag: int = int32("sysFlag")
    """Bits of `PullFlag`."""
    commit_offset: int = int64("commitOffset")
    suspend_timeout_ms: int = int64("suspendTimeoutMillis")
    subscription: str | None = string("subscription", default=None)
    subscription_version: int = int64("subVersion")
    expression_type: str | None = string("expressionType", default=None)
    max_size_bytes: int | None = int32("maxMsgBytes", default=None)
    request_source: int | None = int32("requestSource", default=None)
    proxy_client_id: str | None = string("proxyFrowardClientId", default=None)
    lite_topic: str | None = string("liteTopic", default=None)
    """Since release 5.5."""


@header
class PullMessageResponseHeader(Header):
    """The next offset of the consumer, and the bounds of the queue."""

    suggested_broker_id: int = int64("suggestWhichBrokerId")
    """The broker of the group to pull from next."""
    next_offset: int = int64("nextBeginOffset")
    min_offset: int = int64("minOffset")
    max_offset: int = int64("maxOffset")
    offset_delta: int | None = int64("offsetDelta", default=None)
    topic_sys_flag: int | None = int32("topicSysFlag", default=None)
    group_sys_flag: int | None = int32("groupSysFlag", default=None)
    forbidden_type: int | None = int32("forbiddenType", default=None)
    """Cause of a refusal: 1 broker, 2 group, 3 topic, 4 broadcasting, 5 subscription."""
