"""Headers of an operator's requests to a broker, and of requests about offsets of groups."""

from __future__ import annotations

from rmqstore.remoting.headers.field import Header, boolean, header, int32, int64, string
from rmqstore.remoting.headers.rpc import RpcRequestHeader, TopicRequestHeader

__all__ = [
    "CloneOffsetsRequestHeader",
    "CommitOffsetRequestHeader",
    "ConfigVersionResponseHeader",
    "ConsumeStatsRequestHeader",
    "ConsumeStatsOfAllRequestHeader",
    "CorrectionRequestHeader",
    "CreateTopicRequestHeader",
    "DeleteGroupRequestHeader",
    "GroupOffsetRequestHeader",
    "GroupRequestHeader",
    "GroupForbiddenRequestHeader",
    "OneTopicRequestHeader",
    "QueueUnitsRequestHeader",
    "ReadAheadRequestHeader",
    "ResetOffsetRequestHeader",
    "TimeSpanRequestHeader",
]


@header
class OneTopicRequestHeader(TopicRequestHeader):
    """A topic: DELETE_TOPIC_IN_BROKER (215), GET_TOPIC_CONFIG (351), GET_TOPIC_STATS_INFO (202),
    QUERY_TOPIC_CONSUME_BY_WHO (300)."""

    topic: str = string("topic")


@header
class CreateTopicRequestHeader(TopicRequestHeader):
    """UPDATE_AND_CREATE_TOPIC (17)."""

    topic: str = string("topic")
    default_topic: str | None = string("defaultTopic", default=None)
    read_queues: int = int32("readQueueNums")
    write_queues: int = int32("writeQueueNums")
    perm: int = int32("perm")
    filter_type: str | None = string("topicFilterType", default=None)
    sys_flag: int | None = int32("topicSysFlag", default=None)
    order: bool = boolean("order", default=False)
    attributes: str | None = string("attributes", default=None)
    """Changes such as +message.type=FIFO,-reserve.time."""
    force: bool | None = boolean("force", default=None)


@header
class GroupRequestHeader(RpcRequestHeader):
    """A group: GET_SUBSCRIPTIONGROUP_CONFIG (352), QUERY_TOPICS_BY_CONSUMER (343)."""

    group: str = string("group")


@header
class DeleteGroupRequestHeader(RpcRequestHeader):
    """DELETE_SUBSCRIPTIONGROUP (207)."""

    group: str = string("groupName")
    with_offsets: bool = boolean("cleanOffset", default=False)


@header
class ConsumeStatsRequestHeader(TopicRequestHeader):
    """GET_CONSUME_STATS (208): of all topics of a group, or of some."""

    group: str = string("consumerGroup")
    topic: str | None = string("topic", default=None)
    topics: str | None = string("topicList", default=None)
    """Separated by `;`."""


@header
class GroupOffsetRequestHeader(TopicRequestHeader):
    """QUERY_CONSUMER_OFFSET (14)."""

    group: str = string("consumerGroup")
    topic: str = string("topic")
    queue_id: int = int32("queueId")
    zero_if_not_found: bool | None = boolean("setZeroIfNotFound", default=None)


@header
class CommitOffsetRequestHeader(TopicRequestHeader):
    """UPDATE_CONSUMER_OFFSET (15)."""

    group: str = string("consumerGroup")
    topic: str = string("topic")
    queue_id: int = int32("queueId")
    offset: int = int64("commitOffset")


@header
class ResetOffsetRequestHeader(TopicRequestHeader):
    """INVOKE_BROKER_TO_RESET_OFFSET (222)."""

    group: str = string("group")
    topic: str = string("topic")
    queue_id: int = int32("queueId", default=-1)
    """-1 for all queues."""
    offset: int | None = int64("offset", default=None)
    """Of the one queue; -1, as None, for the time."""
    timestamp_ms: int = int64("timestamp")
    """-1 for the end."""
    is_forced: bool = boolean("isForce")


@header
class GroupForbiddenRequestHeader(TopicRequestHeader):
    """UPDATE_AND_GET_GROUP_FORBIDDEN (353)."""

    group: str = string("group")
    topic: str = string("topic")
    readable: bool | None = boolean("readable", default=None)
    """None: nothing is changed."""


@header
class ConsumeStatsOfAllRequestHeader(Header):
    """GET_BROKER_CONSUME_STATS (317)."""

    only_ordered: bool = boolean("isOrder")


@header
class TimeSpanRequestHeader(TopicRequestHeader):
    """QUERY_CONSUME_TIME_SPAN (303)."""

    topic: str = string("topic")
    group: str = string("group")


@header
class CorrectionRequestHeader(TopicRequestHeader):
    """QUERY_CORRECTION_OFFSET (308)."""

    topic: str = string("topic")
    compare_group: str = string("compareGroup")
    filter_groups: str | None = string("filterGroups", default=None)
    """Groups to leave out, separated by commas."""


@header
class CloneOffsetsRequestHeader(TopicRequestHeader):
    """CLONE_GROUP_OFFSET (314)."""

    source: str = string("srcGroup")
    group: str = string("destGroup")
    topic: str | None = string("topic", default=None)
    """None: all topics of the source."""
    is_offline: bool = boolean("offline", default=False)
    """Whether topics count that online consumers of the source do not subscribe to."""


@header
class QueueUnitsRequestHeader(TopicRequestHeader):
    """QUERY_CONSUME_QUEUE (321)."""

    topic: str = string("topic")
    queue_id: int = int32("queueId", default=0)
    start: int = int64("index", default=0)
    count: int = int32("count", default=0)
    group: str | None = string("consumerGroup", default=None)


@header
class ReadAheadRequestHeader(Header):
    """SET_COMMITLOG_READ_MODE (2004)."""

    mode: int = int32("READ_AHEAD_MODE")


@header
class ConfigVersionResponseHeader(Header):
    """The answer to GET_BROKER_CONFIG (26)."""

    version: str | None = string("version", default=None)
    """DataVersion as JSON."""
