"""Where the queues of a replica continue whose messages lie before the start of its log.

A replica that begins at the first byte that its master has kept finds no record of a queue whose
messages are all deleted. If it gave such a queue the offset 0 as the next master, consumers that
have read the deleted messages would not read the new ones.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

from rmqstore.broker.metadata.offsets import Offsets
from rmqstore.broker.metadata.takeover import Call
from rmqstore.remoting.bodies.statistics import TopicStats
from rmqstore.remoting.codes import RequestCode, ResponseCode
from rmqstore.remoting.frames import Frame
from rmqstore.remoting.headers.administration import OneTopicRequestHeader

__all__ = ["QueueStart", "consumed_starts", "starts_of_master"]

QueueStart = tuple[str, int, int]
"""Topic, queue, and the offset of its next message."""


async def starts_of_master(call: Call, empty: Mapping[str, Sequence[int]]) -> list[QueueStart]:
    """Return where the *empty* queues of a slave continue, by the first offset that the master
    that *call* reaches has of each. Raises RemotingError."""
    found = []
    for topic, queues in empty.items():
        header = OneTopicRequestHeader(topic=topic)
        answer = await call(Frame.request(RequestCode.GET_TOPIC_STATS_INFO, header.to_fields()))
        if answer.code == ResponseCode.TOPIC_NOT_EXIST:
            continue
        stats = TopicStats.decode(answer.raise_for_code().body)
        first = {name.queue_id: each.min_offset for name, each in stats.queues.items()}
        found += [(topic, queue, first[queue]) for queue in queues if first.get(queue, 0) > 0]
    return found


def consumed_starts(offsets: Offsets, empty: Mapping[str, Iterable[int]]) -> list[QueueStart]:
    """Return where the *empty* queues of a new master continue at the earliest: after the messages
    that a group has consumed. It matters where the former master was not asked in time."""
    found: dict[tuple[str, int], int] = {}
    for topic, committed in offsets.committed():
        for queue in empty.get(topic, ()):
            offset = max(committed.get(queue, 0), found.get((topic, queue), 0))
            if offset > 0:
                found[topic, queue] = offset
    return [(topic, queue, offset) for (topic, queue), offset in found.items()]
