"""Requests about the offsets of groups: QUERY_CONSUMER_OFFSET and UPDATE_CONSUMER_OFFSET of
consumers, INVOKE_BROKER_TO_RESET_OFFSET of operators, and RESET_CONSUMER_CLIENT_OFFSET, which a
broker with useServerSideResetOffset=false sends to consumers."""

from __future__ import annotations

from collections.abc import Mapping

from rmqstore.broker.clients import ClientTable
from rmqstore.broker.context import Context
from rmqstore.broker.operations.offsets import GroupQueue, OffsetOperations, Reset
from rmqstore.errors import RequestRefused
from rmqstore.remoting.bodies.queue_name import QueueName
from rmqstore.remoting.bodies.statistics import ResetOffsets
from rmqstore.remoting.codes import LanguageCode, RequestCode, ResponseCode
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

    def __init__(self, context: Context, clients: ClientTable) -> None:
        self._context = context
        self._clients = clients
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
        if self._context.config.resets_at_broker:
            body = self._body(header, await self._operations.reset(reset))
        else:
            body = await self._reset_consumers(header, reset)
        return call.respond(ResponseCode.SUCCESS, body=body.encode())

    def _body(self, header: ResetOffsetRequestHeader, offsets: Mapping[int, int]) -> ResetOffsets:
        name = self._context.config.name
        return ResetOffsets(
            {QueueName(header.topic, name, each): offset for each, offset in offsets.items()}
        )

    async def _reset_consumers(
        self, header: ResetOffsetRequestHeader, reset: Reset
    ) -> ResetOffsets:
        """Sends its new offsets to every member of a group, which commits them."""
        offsets = await self._operations.reset_of_consumers(reset, is_forced=header.is_forced)
        body = self._body(header, offsets)
        group = self._clients.consumer_group(header.group)
        if group is None:
            raise RequestRefused(
                f"Consumer not online, so can not reset offset, Group: {header.group} Topic: "
                f"{header.topic} Timestamp: {header.timestamp_ms}",
                code=ResponseCode.CONSUMER_NOT_ONLINE,
            )
        fields = ResetOffsetRequestHeader(
            group=header.group,
            topic=header.topic,
            timestamp_ms=header.timestamp_ms,
            is_forced=header.is_forced,
        ).to_fields()
        for member in group.members.values():
            is_cpp = member.language == LanguageCode.CPP.name
            request = Frame.request(
                RequestCode.RESET_CONSUMER_CLIENT_OFFSET,
                fields,
                body.encode_list() if is_cpp else body.encode(),
            )
            member.connection.send(request.with_opaque(0, is_one_way=True))
        self._context.log.info(
            "%d consumers of the group %s are sent offsets on topic %s: %s",
            len(group.members),
            header.group,
            header.topic,
            offsets,
        )
        return body


def _queue_of(header: GroupOffsetRequestHeader | CommitOffsetRequestHeader) -> GroupQueue:
    return GroupQueue(group=header.group, topic=header.topic, queue=header.queue_id)
