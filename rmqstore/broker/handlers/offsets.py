"""Requests about the offsets of groups: QUERY_CONSUMER_OFFSET and UPDATE_CONSUMER_OFFSET of
consumers, INVOKE_BROKER_TO_RESET_OFFSET of operators."""

from __future__ import annotations

import asyncio
import os

from rmqstore.broker.context import Context
from rmqstore.errors import RequestRefused
from rmqstore.remoting.bodies.queue_name import QueueName
from rmqstore.remoting.bodies.statistics import ResetOffsets
from rmqstore.remoting.codes import RequestCode, ResponseCode
from rmqstore.remoting.frames import Frame
from rmqstore.remoting.headers.administration import (
    CommitOffsetRequestHeader,
    GroupOffsetRequestHeader,
    ResetOffsetRequestHeader,
)
from rmqstore.remoting.requests import Call, Handler

__all__ = ["OffsetRequests"]

_MEMORY_RATIO = 0.4
"""RocketMQ's accessMessageInMemoryMaxRatio: records this near to the end count as in memory."""


class OffsetRequests:
    """Answers who queries an offset, commits one, or resets those of a group."""

    def __init__(self, context: Context) -> None:
        self._context = context
        self._memory_bytes = int(
            os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE") * _MEMORY_RATIO
        )

    def handlers(self) -> dict[int, Handler]:
        """Return every handler by request code."""
        return {
            RequestCode.QUERY_CONSUMER_OFFSET: self._query,
            RequestCode.UPDATE_CONSUMER_OFFSET: self._commit,
            RequestCode.INVOKE_BROKER_TO_RESET_OFFSET: self._reset,
        }

    def _query(self, call: Call[GroupOffsetRequestHeader, bytes]) -> Frame:
        header = call.header
        if header.queue_id < 0:
            raise RequestRefused(
                f"queueId[{header.queue_id}] is illegal; queues are numbered from 0",
                code=ResponseCode.INVALID_PARAMETER,
            )
        offset = self._context.metadata.offsets.query(header.topic, header.group, header.queue_id)
        if offset is None:
            offset = self._first_offset(header)
        return call.respond(ResponseCode.SUCCESS, fields={"offset": str(offset)})

    def _first_offset(self, header: GroupOffsetRequestHeader) -> int:
        """Returns where a group without an offset begins: 0, where all messages of the queue are
        there and recent. Raises RequestRefused: then the consumer decides."""
        if header.zero_if_not_found is False:
            raise _not_found("Not found, do not set to zero, maybe this group boot first")
        store = self._context.store.store
        queue = store.queue(header.topic, header.queue_id)
        if queue.start > 0:
            raise _not_found("Not found, V3_0_6_SNAPSHOT maybe this group consumer boot first")
        if queue.end > 0:
            distance = store.end_offset - queue.get(0).physical_offset
            if distance > self._memory_bytes:
                raise _not_found("Not found, V3_0_6_SNAPSHOT maybe this group consumer boot first")
        return 0

    def _commit(self, call: Call[CommitOffsetRequestHeader, bytes]) -> Frame:
        header = call.header
        metadata = self._context.metadata
        if metadata.group(header.group) is None:
            raise RequestRefused(
                f"Group {header.group} not exist!", code=ResponseCode.SUBSCRIPTION_GROUP_NOT_EXIST
            )
        topic = metadata.topic(header.topic)
        if topic is None:
            raise RequestRefused(
                f"Topic {header.topic} not exist!", code=ResponseCode.TOPIC_NOT_EXIST
            )
        if header.offset < 0 or not 0 <= header.queue_id < topic.read_queue_count:
            raise RequestRefused(
                f"offset {header.offset} of queue {header.queue_id}: topic {header.topic} has "
                f"{topic.read_queue_count} queues; give one of them, and an offset of 0 or more",
                code=ResponseCode.INVALID_PARAMETER,
            )
        is_taken = metadata.offsets.commit(
            header.topic, header.group, header.queue_id, header.offset
        )
        remark = None if is_taken else "Offset has been previously reset"
        return call.respond(ResponseCode.SUCCESS, remark)

    async def _reset(self, call: Call[ResetOffsetRequestHeader, bytes]) -> Frame:
        header = call.header
        metadata = self._context.metadata
        if self._context.role.name != "master":
            raise RequestRefused(
                "Can not reset offset in slave broker", code=ResponseCode.SYSTEM_ERROR
            )
        topic = metadata.topic(header.topic)
        if topic is None:
            raise RequestRefused(
                f"Topic {header.topic} does not exist", code=ResponseCode.TOPIC_NOT_EXIST
            )
        if metadata.group(header.group) is None:
            raise RequestRefused(
                f"Group {header.group} does not exist",
                code=ResponseCode.SUBSCRIPTION_GROUP_NOT_EXIST,
            )
        if header.queue_id >= topic.read_queue_count:
            raise RequestRefused(
                f"topic {header.topic} has {topic.read_queue_count} queues, and no queue "
                f"{header.queue_id}",
                code=ResponseCode.INVALID_PARAMETER,
            )

        queues = (
            range(topic.read_queue_count)
            if header.queue_id < 0
            else range(header.queue_id, header.queue_id + 1)
        )
        targets = {number: await self._target(header, number) for number in queues}
        for number, offset in targets.items():
            metadata.offsets.reset(header.topic, header.group, number, offset)
        self._context.log.info(
            "the group %s is reset on topic %s: %s", header.group, header.topic, targets
        )
        name = self._context.config.name
        body = ResetOffsets(
            {QueueName(header.topic, name, each): offset for each, offset in targets.items()}
        )
        return call.respond(ResponseCode.SUCCESS, body=body.encode())

    async def _target(self, header: ResetOffsetRequestHeader, number: int) -> int:
        """Returns the next offset of a group in a queue: the requested one, or that of a time."""
        queue = self._context.store.store.queue(header.topic, number)
        start, end = queue.start, queue.end
        if header.queue_id >= 0 and header.offset is not None and header.offset != -1:
            if not start <= header.offset <= end:
                raise RequestRefused(
                    f"Target offset {header.offset} not in consume queue range [{start}-{end}]",
                    code=ResponseCode.SYSTEM_ERROR,
                )
            return header.offset
        if header.timestamp_ms < 0 or start == end:
            return end
        return await asyncio.to_thread(queue.offset_at, header.timestamp_ms)


def _not_found(remark: str) -> RequestRefused:
    return RequestRefused(remark, code=ResponseCode.QUERY_NOT_FOUND)
