"""Statistics of the queues of a topic, and the progress of a consumer group in them.

The keys of both tables are queues, which Java writes as JSON objects:

    {"offsetTable":{{"brokerName":"b","queueId":0,"topic":"T"}:{"maxOffset":5,...}}}
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from rmqstore.remoting import fastjson
from rmqstore.remoting.bodies.queue_name import QueueName, encode_queue_table
from rmqstore.remoting.bodies.values import integer_at, list_of, object_of, text_at, texts_of

__all__ = [
    "ConsumeStats",
    "ConsumeStatsOfAll",
    "GroupList",
    "QueueProgress",
    "QueueStats",
    "ResetOffsets",
    "TimeSpan",
    "TimeSpans",
    "TopicStats",
]


@dataclass(frozen=True, slots=True)
class QueueStats:
    """The bounds of a queue."""

    min_offset: int = 0
    max_offset: int = 0
    updated_ms: int = 0
    """Store time of the last message, 0 without messages."""


@dataclass(frozen=True, slots=True)
class TopicStats:
    """The queues of one topic on one broker."""

    queues: Mapping[QueueName, QueueStats] = field(default_factory=dict)
    put_rate: float = 0.0
    """Messages a second that were stored in the last minute."""

    @classmethod
    def decode(cls, body: bytes) -> TopicStats:
        """Return the answer to GET_TOPIC_STATS_INFO. Raises RemotingFrameError."""
        return cls(
            {
                name: QueueStats(
                    integer_at(each, "minOffset", 0),
                    integer_at(each, "maxOffset", 0),
                    integer_at(each, "lastUpdateTimestamp", 0),
                )
                for name, each in _queues_of(fastjson.loads(body), "TopicStatsTable").items()
            }
        )

    def encode(self) -> bytes:
        """Return the body."""
        table = {
            name: {
                "lastUpdateTimestamp": each.updated_ms,
                "maxOffset": each.max_offset,
                "minOffset": each.min_offset,
            }
            for name, each in self.queues.items()
        }
        rate = fastjson.dumps(self.put_rate)
        return b'{"offsetTable":%b,"topicPutTps":%b}' % (encode_queue_table(table), rate)


@dataclass(frozen=True, slots=True)
class QueueProgress:
    """The progress of a group in one queue."""

    broker_offset: int = 0
    consumer_offset: int = 0
    """0 until the group commits an offset."""
    pull_offset: int = 0
    consumed_ms: int = 0
    """Store time of the last consumed message, 0 without such a message."""

    @property
    def lag(self) -> int:
        """Messages that the group has not consumed."""
        return self.broker_offset - self.consumer_offset

    @property
    def in_flight(self) -> int:
        """Messages that the group has pulled and not committed."""
        return self.pull_offset - self.consumer_offset


@dataclass(frozen=True, slots=True)
class ConsumeStats:
    """The progress of one group in the queues of one broker."""

    queues: Mapping[QueueName, QueueProgress] = field(default_factory=dict)
    get_rate: float = 0.0
    """Messages a second that were sent to the group in the last minute."""

    @classmethod
    def decode(cls, body: bytes) -> ConsumeStats:
        """Return the answer to GET_CONSUME_STATS. Raises RemotingFrameError."""
        return cls.of(fastjson.loads(body))

    @classmethod
    def of(cls, value: object) -> ConsumeStats:
        """Return the progress that parsed JSON holds. Raises RemotingFrameError."""
        return cls(
            {
                name: QueueProgress(
                    integer_at(each, "brokerOffset", 0),
                    integer_at(each, "consumerOffset", 0),
                    integer_at(each, "pullOffset", 0),
                    integer_at(each, "lastTimestamp", 0),
                )
                for name, each in _queues_of(value, "ConsumeStats").items()
            }
        )

    def encode(self) -> bytes:
        """Return the body."""
        table = {
            name: {
                "brokerOffset": each.broker_offset,
                "consumerOffset": each.consumer_offset,
                "lastTimestamp": each.consumed_ms,
                "pullOffset": each.pull_offset,
            }
            for name, each in self.queues.items()
        }
        rate = fastjson.dumps(self.get_rate)
        return b'{"consumeTps":%b,"offsetTable":%b}' % (rate, encode_queue_table(table))


@dataclass(frozen=True, slots=True)
class ConsumeStatsOfAll:
    """The progress of all groups of one broker."""

    address: str
    groups: Mapping[str, Sequence[ConsumeStats]]
    """By group, one for each topic."""

    @classmethod
    def decode(cls, body: bytes) -> ConsumeStatsOfAll:
        """Return the answer to GET_BROKER_CONSUME_STATS. Raises RemotingFrameError."""
        fields = object_of(fastjson.loads(body), "ConsumeStatsList")
        return cls(
            text_at(fields, "brokerAddr"),
            {
                group: [ConsumeStats.of(each) for each in list_of(stats, "consumeStatsList")]
                for of_group in list_of(fields.get("consumeStatsList"), "consumeStatsList")
                for group, stats in object_of(of_group, "consumeStatsList").items()
            },
        )

    def encode(self) -> bytes:
        """Return the body."""
        groups = b",".join(
            b"{%b:[%b]}" % (fastjson.dumps(name), b",".join(each.encode() for each in stats))
            for name, stats in self.groups.items()
        )
        queues = [
            queue
            for stats in self.groups.values()
            for each in stats
            for queue in each.queues.values()
        ]
        return (
            b'{"brokerAddr":%b,"consumeStatsList":[%b],"totalDiff":%d,"totalInflightDiff":%d}'
            % (
                fastjson.dumps(self.address),
                groups,
                sum(each.lag for each in queues),
                sum(each.in_flight for each in queues),
            )
        )


@dataclass(frozen=True, slots=True)
class TimeSpan:
    """When the messages of one queue were stored, and how far back a group is. A time is -1 where
    there is no message."""

    queue: QueueName
    min_ms: int
    max_ms: int
    consumed_ms: int
    delay_ms: int
    """Age of the next message of the group, 0 where it has consumed all."""

    def members(self) -> dict[str, Any]:
        """Return the JSON object."""
        return {
            "consumeTimeStamp": self.consumed_ms,
            "delayTime": self.delay_ms,
            "maxTimeStamp": self.max_ms,
            "messageQueue": self.queue.members(),
            "minTimeStamp": self.min_ms,
        }


@dataclass(frozen=True, slots=True)
class TimeSpans:
    """The answer to QUERY_CONSUME_TIME_SPAN (303)."""

    spans: Sequence[TimeSpan]

    def encode(self) -> bytes:
        """Return the body."""
        return fastjson.dumps({"consumeTimeSpanSet": [each.members() for each in self.spans]})


@dataclass(frozen=True, slots=True)
class ResetOffsets:
    """Next offsets of a group in the queues of one broker."""

    offsets: Mapping[QueueName, int] = field(default_factory=dict)

    @classmethod
    def decode(cls, body: bytes) -> ResetOffsets:
        """Return the answer to INVOKE_BROKER_TO_RESET_OFFSET. Raises RemotingFrameError."""
        fields = object_of(fastjson.loads(body), "ResetOffsetBody")
        table = object_of(fields.get("offsetTable"), "offsetTable")
        return cls({QueueName.of_key(key): integer_at(table, key, 0) for key in table})

    def encode(self) -> bytes:
        """Return the body."""
        return b'{"offsetTable":%b}' % encode_queue_table(self.offsets)

    def encode_list(self) -> bytes:
        """Return the body for clients in C++, which read a list."""
        table = [{**name.members(), "offset": offset} for name, offset in self.offsets.items()]
        return fastjson.dumps({"offsetTable": table})


@dataclass(frozen=True, slots=True)
class GroupList:
    """Names of groups."""

    groups: Sequence[str] = ()

    @classmethod
    def decode(cls, body: bytes) -> GroupList:
        """Return the list of a body. Raises RemotingFrameError."""
        fields = object_of(fastjson.loads(body), "GroupList")
        return cls(texts_of(fields.get("groupList"), "groupList"))

    def encode(self) -> bytes:
        """Return the body."""
        return fastjson.dumps({"groupList": list(self.groups)})


def _queues_of(value: object, what: str) -> dict[QueueName, Mapping[str, Any]]:
    fields = object_of(value, what)
    found = {}
    for key, each in object_of(fields.get("offsetTable"), "offsetTable").items():
        found[QueueName.of_key(key)] = object_of(each, what)
    return found
