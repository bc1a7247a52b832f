"""The progress of groups for operators: QUERY_CONSUME_TIME_SPAN (303), QUERY_CORRECTION_OFFSET
(308), CLONE_GROUP_OFFSET (314), GET_BROKER_CONSUME_STATS (317), QUERY_TOPICS_BY_CONSUMER (343)."""

from __future__ import annotations

from collections.abc import Collection

from rmqstore.broker.clients import ClientTable
from rmqstore.broker.context import Context
from rmqstore.broker.operations.progress import ProgressOperations
from rmqstore.errors import RequestRefused
from rmqstore.net.addresses import format_address
from rmqstore.remoting import fastjson
from rmqstore.remoting.bodies.statistics import ConsumeStatsOfAll, TimeSpans
from rmqstore.remoting.bodies.tables import TopicList
from rmqstore.remoting.codes import RequestCode, ResponseCode
from rmqstore.remoting.frames import Frame
from rmqstore.remoting.headers.administration import (
    CloneOffsetsRequestHeader,
    ConsumeStatsOfAllRequestHeader,
    CorrectionRequestHeader,
    GroupRequestHeader,
    TimeSpanRequestHeader,
)
from rmqstore.remoting.requests import Call, Handler

__all__ = ["ProgressRequests"]

_ANSWER_BYTES_MAX = 12 * 1024 * 1024
"""Bytes of the progress of all groups; the frame has at most 16 MiB."""


class ProgressRequests:
    """Answers an operator who looks at groups and their offsets, or copies them."""

    def __init__(self, context: Context, clients: ClientTable) -> None:
        self._context = context
        self._clients = clients
        self._operations = ProgressOperations(context, self._subscribed)

    def handlers(self) -> dict[int, Handler]:
        """Return every handler by request code."""
        return {
            RequestCode.QUERY_CONSUME_TIME_SPAN: self._time_spans,
            RequestCode.QUERY_CORRECTION_OFFSET: self._corrections,
            RequestCode.CLONE_GROUP_OFFSET: self._clone,
            RequestCode.GET_BROKER_CONSUME_STATS: self._of_all,
            RequestCode.QUERY_TOPICS_BY_CONSUMER: self._topics,
        }

    def _subscribed(self, group: str) -> Collection[str] | None:
        found = self._clients.consumer_group(group)
        return None if found is None else found.subscriptions

    async def _of_all(self, call: Call[ConsumeStatsOfAllRequestHeader, bytes]) -> Frame:
        groups = await self._operations.of_all(only_ordered=call.header.only_ordered)
        found = ConsumeStatsOfAll(format_address(self._context.address), groups)
        body = await self._context.runtime.in_thread(found.encode)
        if len(body) > _ANSWER_BYTES_MAX:
            raise RequestRefused(
                f"the progress of {len(groups)} groups has {len(body)} bytes, the limit is "
                f"{_ANSWER_BYTES_MAX}; query one group at a time",
                code=ResponseCode.SYSTEM_ERROR,
            )
        return call.respond(ResponseCode.SUCCESS, body=body)

    def _topics(self, call: Call[GroupRequestHeader, bytes]) -> Frame:
        topics = self._operations.topics_of(call.header.group)
        body = TopicList(topics, format_address(self._context.address))
        return call.respond(ResponseCode.SUCCESS, body=body.encode())

    async def _time_spans(self, call: Call[TimeSpanRequestHeader, bytes]) -> Frame:
        spans = await self._operations.time_spans(call.header.topic, call.header.group)
        return call.respond(ResponseCode.SUCCESS, body=TimeSpans(spans).encode())

    def _corrections(self, call: Call[CorrectionRequestHeader, bytes]) -> Frame:
        header = call.header
        left_out = frozenset((header.filter_groups or "").split(","))
        found = self._operations.corrections(header.topic, header.compare_group, left_out)
        body = {"correctionOffsets": {str(queue): offset for queue, offset in found.items()}}
        return call.respond(ResponseCode.SUCCESS, body=fastjson.dumps(body))

    def _clone(self, call: Call[CloneOffsetsRequestHeader, bytes]) -> Frame:
        header = call.header
        cloned = self._operations.clone(
            header.source, header.group, header.topic, is_offline=header.is_offline
        )
        remark = None if cloned else f"the group {header.source} has no offsets to clone"
        return call.respond(ResponseCode.SUCCESS, remark)
