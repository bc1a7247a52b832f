"""Requests of consumers about their offsets: QUERY_CONSUMER_OFFSET, UPDATE_CONSUMER_OFFSET."""

from __future__ import annotations

import os
from typing import Any

from rmqstore.broker.context import Context
from rmqstore.errors import RequestRefused
from rmqstore.remoting.codes import RequestCode, ResponseCode
from rmqstore.remoting.connection import Handler
from rmqstore.remoting.frames import Frame
from rmqstore.remoting.headers.administration import (
    CommitOffsetRequestHeader,
    GroupOffsetRequestHeader,
)

__all__ = ["OffsetRequests"]

_MEMORY_RATIO = 0.4
"""RocketMQ's accessMessageInMemoryMaxRatio: records this near to the end count as in memory."""


class OffsetRequests:
    """Answers consumers that query an offset or commit one."""

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
        }

    def _query(self, connection: Any, request: Frame) -> Frame:
        header = GroupOffsetRequestHeader.from_fields(request.ext_fields)
        offset = self._context.metadata.offsets.query(header.topic, header.group, header.queue_id)
        if offset is None:
            offset = self._first_offset(header)
        return request.respond(ResponseCode.SUCCESS, fields={"offset": str(offset)})

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

    def _commit(self, connection: Any, request: Frame) -> Frame:
        header = CommitOffsetRequestHeader.from_fields(request.ext_fields)
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
        metadata.offsets.commit(header.topic, header.group, header.queue_id, header.offset)
        return request.respond(ResponseCode.SUCCESS)


def _not_found(remark: str) -> RequestRefused:
    return RequestRefused(remark, code=ResponseCode.QUERY_NOT_FOUND)
