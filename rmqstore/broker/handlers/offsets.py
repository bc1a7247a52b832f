"""Requests about the offsets of groups: QUERY_CONSUMER_OFFSET and UPDATE_CONSUMER_OFFSET of
consumers, INVOKE_BROKER_TO_RESET_OFFSET of operators."""

from __future__ import annotations

from rmqstore.broker.context import Context
from rmqstore.broker.operations.offsets import GroupQueue, OffsetOperations, Reset
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


class OffsetRequests:
    """Answers who queries an offset, commits one, or resets those of a group."""

    def __init__(self, context: Context) -> None:
        self._context = context
        self._operations = OffsetOperations(context)

    def handlers(self) -> dict[int, Handler]:
        """Return every handler by request code."""
        return {
            RequestCode.QUERY_CONSUMER_OFFSET: self._query,
            RequestCode.UPDATE_CONSUMER_OFFSET: self._commit,
            RequestCode.INVOKE_BROKER_TO_RESET_OFFSET: self._reset,
        }

    def _query(self, call: Call[GroupOffsetRequestHeader, bytes]) -> Frame:
        header = call.header
        offset = self._operations.query(
            _queue_of(header), begins_at_zero=header.zero_if_not_found is not False
        )
        return call.respond(ResponseCode.SUCCESS, fields={"offset": str(offset)})

    def _commit(self, call: Call[CommitOffsetRequestHeader, bytes]) -> Frame:
        header = call.header
        is_taken = self._operations.commit(_queue_of(header), header.offset)
        remark = None if is_taken else "Offset has been previously reset"
        return call.respond(ResponseCode.SUCCESS, remark)

    async def _reset(self, call: Call[ResetOffsetRequestHeader, bytes]) -> Frame:
        header = call.header
        reset = Reset(
            group=header.group,
            topic=header.topic,
            queue=None if header.queue_id < 0 else header.queue_id,
            offset=None if header.offset == -1 else header.offset,
            time_ms=None if header.timestamp_ms < 0 else header.timestamp_ms,
        )
        offsets = await self._operations.reset(reset)
        name = self._context.config.name
        body = ResetOffsets(
            {QueueName(header.topic, name, each): offset for each, offset in offsets.items()}
        )
        return call.respond(ResponseCode.SUCCESS, body=body.encode())


def _queue_of(header: GroupOffsetRequestHeader | CommitOffsetRequestHeader) -> GroupQueue:
    return GroupQueue(group=header.group, topic=header.topic, queue=header.queue_id)
