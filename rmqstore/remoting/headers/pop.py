"""Headers of POP_MESSAGE (200050), ACK_MESSAGE (200051), PEEK_MESSAGE (200052),
CHANGE_MESSAGE_INVISIBLETIME (200053), NOTIFICATION (200054) and POLLING_INFO (200055).

`rmqstore.remoting.bodies.receipts` reads and writes the texts that some fields hold.
"""

from __future__ import annotations

from rmqstore.remoting.headers.field import Header, boolean, header, int32, int64, string
from rmqstore.remoting.headers.rpc import TopicRequestHeader

__all__ = [
    "AckMessageRequestHeader",
    "ChangeInvisibleTimeRequestHeader",
    "ChangeInvisibleTimeResponseHeader",
    "NotificationRequestHeader",
    "NotificationResponseHeader",
    "PeekMessageRequestHeader",
    "PollingInfoRequestHeader",
    "PollingInfoResponseHeader",
    "PopMessageRequestHeader",
    "PopMessageResponseHeader",
]


@header
class PopMessageRequestHeader(TopicRequestHeader):
    """Requests messages of a topic that no other consumer of the group gets for a time."""

    consumer_group: str = string("consumerGroup")
    topic: str = string("topic")
    queue_id: int = int32("queueId")
    """Below 0: any queue."""
    max_messages: int = int32("maxMsgNums")
    invisible_ms: int = int64("invisibleTime")
    """How long the messages are those of this consumer."""
    poll_ms: int = int64("pollTime")
    """How long to wait for messages."""
    born_ms: int = int64("bornTime", default=0)
    """When the consumer asked; 0: when the request came."""
    init_mode: int = int32("initMode")
    """Where a group without an offset begins: 0 at the first message, 1 at the end."""
    expression_type: str | None = string("expType", default=None)
    expression: str | None = string("exp", default=None)
    is_orderly: bool = boolean("order", default=False)
    attempt_id: str | None = string("attemptId", default=None)


@header
class PopMessageResponseHeader(Header):
    """What the receipt handles of the popped messages are made of."""

    pop_time_ms: int = int64("popTime")
    invisible_ms: int = int64("invisibleTime")
    revive_queue: int = int32("reviveQid")
    rest_count: int = int64("restNum")
    """Messages that may be popped at once."""
    starts: str | None = string("startOffsetInfo", default=None)
    """By queue, where the pop began; see `starts_text`."""
    offsets: str | None = string("msgOffsetInfo", default=None)
    """By queue, the messages; see `offsets_text`."""
    order_counts: str | None = string("orderCountInfo", default=None)


@header
class AckMessageRequestHeader(TopicRequestHeader):
    """Acknowledges one popped message."""

    consumer_group: str = string("consumerGroup")
    topic: str = string("topic")
    """The topic that has the message: a retry topic for one that is popped again."""
    queue_id: int = int32("queueId")
    extra_info: str = string("extraInfo")
    """The receipt handle."""
    offset: int = int64("offset")
    lite_topic: str | None = string("liteTopic", default=None)
    """Since release 5.5."""


@header
class ChangeInvisibleTimeRequestHeader(TopicRequestHeader):
    """Changes how long a popped message is that of its consumer."""

    consumer_group: str = string("consumerGroup")
    topic: str = string("topic")
    """The topic that has the message."""
    queue_id: int = int32("queueId")
    extra_info: str = string("extraInfo")
    """The receipt handle."""
    offset: int = int64("offset")
    invisible_ms: int = int64("invisibleTime")
    """From now on."""
    lite_topic: str | None = string("liteTopic", default=None)
    """Since release 5.5."""
    is_suspended: bool = boolean("suspend", default=False)
    """Whether the next delivery does not count as a retry. Since release 5.5."""


@header
class ChangeInvisibleTimeResponseHeader(Header):
    """What the new receipt handle is made of."""

    pop_time_ms: int = int64("popTime")
    invisible_ms: int = int64("invisibleTime")
    revive_queue: int = int32("reviveQid")


@header
class NotificationRequestHeader(TopicRequestHeader):
    """Asks whether there are messages to pop, and waits for them."""

    consumer_group: str = string("consumerGroup")
    topic: str = string("topic")
    queue_id: int = int32("queueId")
    """Below 0: any queue."""
    poll_ms: int = int64("pollTime")
    born_ms: int = int64("bornTime", default=0)
    """When the consumer asked; 0: when the request came."""
    is_orderly: bool = boolean("order", default=False)
    attempt_id: str | None = string("attemptId", default=None)
    expression_type: str | None = string("expType", default=None)
    """Since release 5.5, as the expression."""
    expression: str | None = string("exp", default=None)


@header
class NotificationResponseHeader(Header):
    """Whether there are messages to pop."""

    has_messages: bool = boolean("hasMsg")
    is_full: bool = boolean("pollingFull", default=False)
    """Whether too many requests wait already."""


@header
class PeekMessageRequestHeader(TopicRequestHeader):
    """Requests messages that may be popped, without popping them."""

    consumer_group: str = string("consumerGroup")
    topic: str = string("topic")
    queue_id: int = int32("queueId")
    """Below 0: any queue."""
    max_messages: int = int32("maxMsgNums")


@header
class PollingInfoRequestHeader(TopicRequestHeader):
    """Asks how many pops wait."""

    consumer_group: str = string("consumerGroup")
    topic: str = string("topic")
    queue_id: int = int32("queueId")
    """Below 0: those that wait for any queue."""


@header
class PollingInfoResponseHeader(Header):
    """How many pops wait."""

    waiting_count: int = int32("pollingNum")
