"""Headers of SEND_MESSAGE (10), SEND_MESSAGE_V2 (310), SEND_BATCH_MESSAGE (320) and
CONSUMER_SEND_MSG_BACK (36); and PUSH_REPLY_MESSAGE_TO_CLIENT (326)."""

from __future__ import annotations

from rmqstore.remoting.headers.field import Header, boolean, header, int32, int64, string
from rmqstore.remoting.headers.rpc import TopicRequestHeader

__all__ = [
    "ConsumerSendMsgBackRequestHeader",
    "ReplyMessageRequestHeader",
    "RecallMessageRequestHeader",
    "RecallMessageResponseHeader",
    "SendMessageRequestHeader",
    "SendMessageRequestHeaderV2",
    "SendMessageResponseHeader",
]


@header
class SendMessageRequestHeader(TopicRequestHeader):
    """A message to store, without its body, as SEND_MESSAGE names the fields."""

    producer_group: str = string("producerGroup")
    topic: str = string("topic")
    default_topic: str = string("defaultTopic")
    default_topic_queues: int = int32("defaultTopicQueueNums")
    queue_id: int = int32("queueId")
    """-1: the broker chooses the queue."""
    sys_flag: int = int32("sysFlag")
    born_timestamp_ms: int = int64("bornTimestamp")
    flag: int = int32("flag")
    properties: str | None = string("properties", default=None)
    """Name, U+0001, value, U+0002 for each property."""
    reconsume_times: int | None = int32("reconsumeTimes", default=None)
    unit_mode: bool | None = boolean("unitMode", default=None)
    max_reconsume_times: int | None = int32("maxReconsumeTimes", default=None)
    is_batch: bool | None = boolean("batch", default=None)


@header
class SendMessageRequestHeaderV2(Header):
    """The same fields under the names of SEND_MESSAGE_V2 and SEND_BATCH_MESSAGE, which have one
    letter in Java too."""

    producer_group: str = string("a")
    topic: str = string("b")
    default_topic: str = string("c")
    default_topic_queues: int = int32("d")
    queue_id: int = int32("e")
    """-1: the broker chooses the queue."""
    sys_flag: int = int32("f")
    born_timestamp_ms: int = int64("g")
    flag: int = int32("h")
    properties: str | None = string("i", default=None)
    """Name, U+0001, value, U+0002 for each property."""
    reconsume_times: int | None = int32("j", default=None)
    unit_mode: bool | None = boolean("k", default=None)
    max_reconsume_times: int | None = int32("l", default=None)
    is_batch: bool | None = boolean("m", default=None)
    broker_name: str | None = string("n", default=None)


@header
class SendMessageResponseHeader(Header):
    """Queue and offset at which a message was stored."""

    message_id: str = string("msgId")
    """The offset message id; for a batch the ids of all messages, separated by commas."""
    queue_id: int = int32("queueId")
    queue_offset: int = int64("queueOffset")
    """For a batch, the offset of the first message."""
    transaction_id: str | None = string("transactionId", default=None)
    """The unique key of the message, or of the batch."""
    batch_unique_id: str | None = string("batchUniqId", default=None)
    """The unique key of a batch that is stored as one record."""
    region: str | None = string("MSG_REGION", default=None)
    is_traced: bool | None = boolean("TRACE_ON", default=None)
    recall_handle: str | None = string("recallHandle", default=None)
    """What a producer recalls a timer message with."""


@header
class RecallMessageRequestHeader(TopicRequestHeader):
    """A timer message that is not to be delivered."""

    topic: str = string("topic")
    handle: str = string("recallHandle")
    group: str | None = string("producerGroup", default=None)


@header
class RecallMessageResponseHeader(Header):
    """The message that is not delivered."""

    message_id: str = string("msgId")
    """Its unique key."""


@header
class ConsumerSendMsgBackRequestHeader(Header):
    """A message that a group consumes again later."""

    offset: int = int64("offset")
    """Where the message is in the commit log."""
    group: str = string("group")
    delay_level: int = int32("delayLevel")
    """0: the broker chooses the level; -1: the message becomes a dead letter."""
    origin_message_id: str | None = string("originMsgId", default=None)
    origin_topic: str | None = string("originTopic", default=None)
    unit_mode: bool | None = boolean("unitMode", default=None)
    max_reconsume_times: int | None = int32("maxReconsumeTimes", default=None)


@header
class ReplyMessageRequestHeader(Header):
    """A reply, as the broker passes it on to the client that waits for it."""

    producer_group: str = string("producerGroup")
    topic: str = string("topic")
    default_topic: str = string("defaultTopic")
    default_topic_queues: int = int32("defaultTopicQueueNums")
    queue_id: int = int32("queueId")
    sys_flag: int = int32("sysFlag")
    born_timestamp_ms: int = int64("bornTimestamp")
    flag: int = int32("flag")
    properties: str | None = string("properties", default=None)
    reconsume_times: int | None = int32("reconsumeTimes", default=None)
    unit_mode: bool | None = boolean("unitMode", default=None)
    born_host: str = string("bornHost")
    """Host and port of the client that replies."""
    store_host: str = string("storeHost")
    """Host and port of the broker."""
    store_timestamp_ms: int = int64("storeTimestamp")
