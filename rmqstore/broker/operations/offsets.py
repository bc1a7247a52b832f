"""The offsets of groups: queries and commits of consumers, resets of operators."""

from __future__ import annotations

from dataclasses import dataclass

from rmqstore.broker.operations.core import Core, ViewOf, refuse_negative, refuse_slave
from rmqstore.broker.operations.queue_reads import QueueReads
from rmqstore.errors import RequestRefused
from rmqstore.remoting.codes import ResponseCode

__all__ = ["GroupQueue", "OffsetOperations", "Reset"]

_PAST_END_MAX = 1000
"""Reports of offsets past the end of a queue, since the start."""


@dataclass(frozen=True, slots=True, kw_only=True)
class GroupQueue:
    """A queue as a group consumes it."""

    group: str
    topic: str
    queue: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Reset:
    """New offsets for a group on a topic: *offset* of one queue, or those of a time."""

    group: str
    topic: str
    queue: int | None = None
    """None for all queues."""
    offset: int | None = None
    """Of the one queue; None: as the time says."""
    time_ms: int | None = None
    """Store time of the first message to consume; None for the end of each queue."""


class OffsetOperations:
    """Queries, commits and resets the offsets of groups."""

    def __init__(self, core: Core) -> None:
        self._core = core
        self._reads = QueueReads(core)
        self._view = ViewOf(core)
        self._past_end: set[GroupQueue] = set()
        """Queues in which a group is reported as past the end."""

    def query(self, queue: GroupQueue, *, begins_at_zero: bool = True) -> int:
        """Return the next offset of a group in a queue.

        A group without an offset begins at 0 where all messages of the queue are there and recent,
        unless *begins_at_zero* is False. Otherwise raises RequestRefused (QUERY_NOT_FOUND): the
        consumer decides.
        """
        refuse_negative(queue.queue)
        offset = self._core.metadata.offsets.query(queue.topic, queue.group, queue.queue)
        if offset is not None:
            return offset
        if not begins_at_zero:
            raise _not_found("Not found, do not set to zero, maybe this group boot first")
        if not self._reads.is_whole_and_recent(queue.topic, queue.queue):
            raise _not_found("Not found, V3_0_6_SNAPSHOT maybe this group consumer boot first")
        return 0

    def commit(self, queue: GroupQueue, offset: int) -> bool:
        """Set the next offset of a group in a queue; return False, and set nothing, while the
        consumer has not received the offset of a reset. Raises RequestRefused."""
        metadata = self._core.metadata
        if metadata.group(queue.group) is None:
            raise RequestRefused(
                f"Group {queue.group} not exist!", code=ResponseCode.SUBSCRIPTION_GROUP_NOT_EXIST
            )
        topic = metadata.topic(queue.topic)
        if topic is None:
            raise RequestRefused(
                f"Topic {queue.topic} not exist!", code=ResponseCode.TOPIC_NOT_EXIST
            )
        if offset < 0 or not 0 <= queue.queue < topic.read_queue_count:
            raise RequestRefused(
                f"offset {offset} of queue {queue.queue}: topic {queue.topic} has "
                f"{topic.read_queue_count} queues; give one of them, and an offset of 0 or more",
                code=ResponseCode.INVALID_PARAMETER,
            )
        self._report_past_end(queue, offset)
        return metadata.offsets.commit(queue.topic, queue.group, queue.queue, offset)

    def _report_past_end(self, queue: GroupQueue, offset: int) -> None:
        """Report once a group that commits an offset past the end of a queue, which is taken, as by
        RocketMQ: it skips the messages that come next."""
        if queue in self._past_end:
            return
        end = self._view().next_offset(queue.topic, queue.queue)
        if offset > end and len(self._past_end) < _PAST_END_MAX:
            self._past_end.add(queue)
            self._core.log.warning(
                "the group %s commits offset %d of queue %d of topic %s, whose next message has "
                "offset %d: it skips %d messages; reset the group if that is not wanted",
                queue.group,
                offset,
                queue.queue,
                queue.topic,
                end,
                offset - end,
            )

    async def reset(self, reset: Reset) -> dict[int, int]:
        """Set the offsets of a group on a topic; return them by queue. Raises RequestRefused, and
        then sets none."""
        targets = await self._targets(reset)
        for number, offset in targets.items():
            self._core.metadata.offsets.reset(reset.topic, reset.group, number, offset)
        self._core.log.info(
            "the group %s is reset on topic %s: %s", reset.group, reset.topic, targets
        )
        return targets

    async def reset_of_consumers(self, reset: Reset, *, is_forced: bool) -> dict[int, int]:
        """Return the offsets by queue that the consumers of a group have to take; nothing is set.
        Unless *is_forced*, an offset that the group has committed is not raised. Raises
        RequestRefused."""
        targets = await self._targets(reset)
        if is_forced:
            return targets
        offsets = self._core.metadata.offsets
        for number, target in targets.items():
            committed = offsets.query(reset.topic, reset.group, number)
            targets[number] = target if committed is None else min(target, committed)
        return targets

    async def _targets(self, reset: Reset) -> dict[int, int]:
        metadata = self._core.metadata
        refuse_slave(self._core.role, "reset offset")
        topic = metadata.topic(reset.topic)
        if topic is None:
            raise RequestRefused(
                f"Topic {reset.topic} does not exist", code=ResponseCode.TOPIC_NOT_EXIST
            )
        if metadata.group(reset.group) is None:
            raise RequestRefused(
                f"Group {reset.group} does not exist",
                code=ResponseCode.SUBSCRIPTION_GROUP_NOT_EXIST,
            )
        if reset.queue is not None and reset.queue >= topic.read_queue_count:
            raise RequestRefused(
                f"topic {reset.topic} has {topic.read_queue_count} queues, and no queue "
                f"{reset.queue}",
                code=ResponseCode.INVALID_PARAMETER,
            )
        queues = range(topic.read_queue_count) if reset.queue is None else (reset.queue,)
        return {number: await self._target(reset, number) for number in queues}

    async def _target(self, reset: Reset, number: int) -> int:
        """Returns the next offset of a group in a queue: the requested one, or that of a time."""
        queue = self._core.store.store.queue(reset.topic, number)
        start, end = queue.start, queue.end
        if reset.queue is not None and reset.offset is not None:
            if not start <= reset.offset <= end:
                raise RequestRefused(
                    f"Target offset {reset.offset} not in consume queue range [{start}-{end}]",
                    code=ResponseCode.SYSTEM_ERROR,
                )
            return reset.offset
        if reset.time_ms is None or start == end:
            return end
        return await self._core.runtime.in_thread(queue.offset_at, reset.time_ms)


def _not_found(remark: str) -> RequestRefused:
    return RequestRefused(remark, code=ResponseCode.QUERY_NOT_FOUND)
