"""Lookups: QUERY_MESSAGE (12), VIEW_MESSAGE_BY_ID (33), offsets and times of queues (29 to 32)."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from rmqstore._native.core import Record
from rmqstore.broker.context import Context
from rmqstore.broker.operations.lookups import KeyQuery, LookupOperations
from rmqstore.broker.serving import refuse_light_topic
from rmqstore.remoting.codes import RequestCode, ResponseCode
from rmqstore.remoting.frames import Frame
from rmqstore.remoting.headers.queries import (
    GetMaxOffsetRequestHeader,
    OffsetResponseHeader,
    QueryMessageRequestHeader,
    QueryMessageResponseHeader,
    QueueRequestHeader,
    SearchOffsetRequestHeader,
    TimestampResponseHeader,
    ViewMessageRequestHeader,
)
from rmqstore.remoting.requests import Call, Handler

__all__ = ["QueryRequests"]

_ANSWER_BYTES_MAX = 12 * 1024 * 1024
"""Bytes of the records in one answer; the frame has at most 16 MiB."""


class QueryRequests:
    """The handlers of lookups."""

    def __init__(self, context: Context) -> None:
        self._operations = LookupOperations(context)

    def handlers(self) -> dict[int, Handler]:
        """Return every handler by request code."""
        return {
            RequestCode.QUERY_MESSAGE: self._query,
            RequestCode.VIEW_MESSAGE_BY_ID: self._view_message,
            RequestCode.SEARCH_OFFSET_BY_TIMESTAMP: self._search_offset,
            RequestCode.GET_MAX_OFFSET: self._max_offset,
            RequestCode.GET_MIN_OFFSET: self._min_offset,
            RequestCode.GET_EARLIEST_MSG_STORETIME: self._earliest_time,
        }

    async def _query(self, call: Call[QueryMessageRequestHeader, bytes]) -> Frame:
        header = call.header
        query = KeyQuery(
            topic=header.topic,
            word=header.key,
            messages_max=header.messages_max,
            begin_ms=header.begin_ms,
            end_ms=header.end_ms,
            is_tag=header.index_type == "T",
            is_unique_key=header.is_unique_key,
        )
        found = await self._operations.query(query)
        fields = QueryMessageResponseHeader(
            updated_ms=found.records[-1].store_timestamp if found.records else 0,
            updated_offset=found.indexed_offset,
        ).to_fields()
        if not found.records:
            remark = "can not find message, maybe time range not correct"
            return call.respond(ResponseCode.QUERY_NOT_FOUND, remark, fields)
        return call.respond(ResponseCode.SUCCESS, None, fields, _body_of(found.records))

    def _view_message(self, call: Call[ViewMessageRequestHeader, bytes]) -> Frame:
        record = self._operations.message_at(call.header.physical_offset)
        return call.respond(ResponseCode.SUCCESS, body=record.raw)

    async def _search_offset(self, call: Call[SearchOffsetRequestHeader, bytes]) -> Frame:
        header = call.header
        refuse_light_topic(header.lite_topic)
        is_upper = (header.boundary or "").lower() == "upper"
        offset = await self._operations.offset_at(
            header.topic, header.queue_id, header.timestamp_ms, is_upper=is_upper
        )
        return _offset(call, offset)

    def _max_offset(self, call: Call[GetMaxOffsetRequestHeader, bytes]) -> Frame:
        header, operations = call.header, self._operations
        find = operations.end_of if header.is_committed else operations.next_offset_of
        return _offset(call, find(header.topic, header.queue_id))

    def _min_offset(self, call: Call[QueueRequestHeader, bytes]) -> Frame:
        header = call.header
        return _offset(call, self._operations.start_of(header.topic, header.queue_id))

    def _earliest_time(self, call: Call[QueueRequestHeader, bytes]) -> Frame:
        header = call.header
        found_ms = self._operations.earliest_ms_of(header.topic, header.queue_id)
        timestamp_ms = -1 if found_ms is None else found_ms
        fields = TimestampResponseHeader(timestamp_ms=timestamp_ms).to_fields()
        return call.respond(ResponseCode.SUCCESS, fields=fields)


def _body_of(records: Sequence[Record]) -> bytes:
    """Returns the newest records that fit into an answer, oldest first."""
    pieces: list[bytes] = []
    size = 0
    for record in reversed(records):
        size += record.size
        if size > _ANSWER_BYTES_MAX and pieces:
            break
        pieces.append(record.raw)
    return b"".join(reversed(pieces))


def _offset(call: Call[Any, bytes], offset: int) -> Frame:
    fields = OffsetResponseHeader(offset=offset).to_fields()
    return call.respond(ResponseCode.SUCCESS, fields=fields)
