"""Headers of requests about one queue (29 to 32), and of lookups of messages (12, 33)."""

from __future__ import annotations

from rmqstore.remoting.headers.field import Header, boolean, header, int32, int64, string
from rmqstore.remoting.headers.rpc import TopicRequestHeader

__all__ = [
    "GetMaxOffsetRequestHeader",
    "OffsetResponseHeader",
    "QueryMessageRequestHeader",
    "QueryMessageResponseHeader",
    "QueueRequestHeader",
    "SearchOffsetRequestHeader",
    "TimestampResponseHeader",
    "ViewMessageRequestHeader",
]


@header
class QueueRequestHeader(TopicRequestHeader):
    """One queue: GET_MIN_OFFSET (31), GET_EARLIEST_MSG_STORETIME (32)."""

    topic: str = string("topic")
    queue_id: int = int32("queueId")


@header
class GetMaxOffsetRequestHeader(QueueRequestHeader):
    """GET_MAX_OFFSET (30)."""

    is_committed: bool = boolean("committed", default=True)
    """Whether only messages that consumers may see count."""


@header
class SearchOffsetRequestHeader(QueueRequestHeader):
    """SEARCH_OFFSET_BY_TIMESTAMP (29)."""

    timestamp_ms: int = int64("timestamp")
    boundary: str | None = string("boundaryType", default=None)
    """UPPER, in any letter case: the last message of that time. Otherwise the first message."""
    lite_topic: str | None = string("liteTopic", default=None)
    """Since release 5.5."""


@header
class OffsetResponseHeader(Header):
    """An offset of a queue."""

    offset: int = int64("offset")


@header
class TimestampResponseHeader(Header):
    """The time at which a message was stored."""

    timestamp_ms: int = int64("timestamp")


@header
class QueryMessageRequestHeader(TopicRequestHeader):
    """QUERY_MESSAGE (12)."""

    topic: str = string("topic")
    key: str = string("key")
    messages_max: int = int32("maxNum")
    begin_ms: int = int64("beginTimestamp")
    end_ms: int = int64("endTimestamp")
    is_unique_key: bool = boolean("_UNIQUE_KEY_QUERY", default=False)
    index_type: str | None = string("indexType", default=None)
    """K a key, U a unique key, T a tag; since release 5.5."""
    last_key: str | None = string("lastKey", default=None)
    """Since release 5.5."""


@header
class QueryMessageResponseHeader(Header):
    """The end of the broker's index."""

    updated_ms: int = int64("indexLastUpdateTimestamp")
    updated_offset: int = int64("indexLastUpdatePhyoffset")


@header
class ViewMessageRequestHeader(Header):
    """VIEW_MESSAGE_BY_ID (33)."""

    topic: str | None = string("topic", default=None)
    physical_offset: int = int64("offset")
