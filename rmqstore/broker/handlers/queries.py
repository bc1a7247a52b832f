"""Lookups: QUERY_MESSAGE (12), VIEW_MESSAGE_BY_ID (33), offsets and times of queues (29 to 32)."""

from __future__ import annotations

import asyncio
from typing import Any

from rmqstore.broker.context import Context
from rmqstore.broker.operations.core import ViewOf
from rmqstore.broker.serving import refuse_light_topic
from rmqstore.errors import (
    CorruptionError,
    NotFoundError,
    OffsetOutOfRange,
    RequestRefused,
    UnsupportedStoreError,
)
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

_UNIQUE_KEY_MESSAGES = 32
_ANSWER_BYTES_MAX = 12 * 1024 * 1024
"""Bytes of the records in one answer; the frame has at most 16 MiB."""


class QueryRequests:
    """The handlers of lookups."""

    def __init__(self, context: Context) -> None:
        self._context = context
        self._view = ViewOf(context)

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
        store = self._context.store.store
        if not store.config.index_file_read_enable:
            raise RequestRefused(
                "keys cannot be looked up: indexFileReadEnable is false on this broker",
                code=ResponseCode.SYSTEM_ERROR,
            )
        limit = max(min(header.messages_max, store.config.index_query_count_max), 1)
        if header.is_unique_key:
            limit = _UNIQUE_KEY_MESSAGES
        is_tag = header.index_type == "T"
        try:
            found = await asyncio.to_thread(
                self._view().query,
                header.topic,
                header.key,
                is_tag,
                header.begin_ms,
                header.end_ms,
                limit,
            )
        except UnsupportedStoreError as error:
            raise RequestRefused(str(error), code=ResponseCode.SYSTEM_ERROR) from None

        # The newest ones that fit, oldest first.
        pieces: list[bytes] = []
        size = 0
        for record in reversed(found):
            size += record.size
            if size > _ANSWER_BYTES_MAX and pieces:
                break
            pieces.append(record.raw)
        fields = QueryMessageResponseHeader(
            updated_ms=found[-1].store_timestamp if found else 0,
            updated_offset=store.dispatched_offset,
        ).to_fields()
        if not found:
            remark = "can not find message, maybe time range not correct"
            return call.respond(ResponseCode.QUERY_NOT_FOUND, remark, fields)
        return call.respond(ResponseCode.SUCCESS, None, fields, b"".join(reversed(pieces)))

    def _view_message(self, call: Call[ViewMessageRequestHeader, bytes]) -> Frame:
        header = call.header
        offset = header.physical_offset
        try:
            # An unconfirmed message may still be cut, so readers do not see it.
            is_visible = 0 <= offset < self._context.store.store.confirm_offset
            record = self._view().record_at(offset, True) if is_visible else None
        except (OffsetOutOfRange, CorruptionError, NotFoundError):
            record = None
        if record is None:
            raise RequestRefused(
                f"can not find message by the offset, {offset}", code=ResponseCode.SYSTEM_ERROR
            )
        return call.respond(ResponseCode.SUCCESS, body=record.raw)

    async def _search_offset(self, call: Call[SearchOffsetRequestHeader, bytes]) -> Frame:
        header = call.header
        self._refuse_unknown(header)
        refuse_light_topic(header.lite_topic)
        is_upper = (header.boundary or "").lower() == "upper"
        try:
            offset = await asyncio.to_thread(
                self._view().offset_by_time,
                header.topic,
                header.queue_id,
                header.timestamp_ms,
                is_upper,
            )
        except NotFoundError:
            offset = 0
        return _offset(call, offset)

    def _max_offset(self, call: Call[GetMaxOffsetRequestHeader, bytes]) -> Frame:
        header = call.header
        self._refuse_unknown(header)
        if not header.is_committed:
            return _offset(call, self._view().next_offset(header.topic, header.queue_id))
        bounds = self._view().bounds(header.topic, header.queue_id)
        return _offset(call, 0 if bounds is None else bounds[1])

    def _min_offset(self, call: Call[QueueRequestHeader, bytes]) -> Frame:
        header = call.header
        self._refuse_unknown(header)
        bounds = self._view().bounds(header.topic, header.queue_id)
        return _offset(call, 0 if bounds is None else bounds[0])

    def _earliest_time(self, call: Call[QueueRequestHeader, bytes]) -> Frame:
        header = call.header
        self._refuse_unknown(header)
        view = self._view()
        bounds = view.bounds(header.topic, header.queue_id)
        record = None
        if bounds is not None and bounds[0] < bounds[1]:
            record = view.record_in(header.topic, header.queue_id, bounds[0])
        timestamp_ms = -1 if record is None else record.store_timestamp
        fields = TimestampResponseHeader(timestamp_ms=timestamp_ms).to_fields()
        return call.respond(ResponseCode.SUCCESS, fields=fields)

    def _refuse_unknown(self, header: QueueRequestHeader) -> None:
        if header.queue_id < 0:
            raise RequestRefused(
                f"queueId[{header.queue_id}] is illegal; queues are numbered from 0",
                code=ResponseCode.INVALID_PARAMETER,
            )


def _offset(call: Call[Any, bytes], offset: int) -> Frame:
    fields = OffsetResponseHeader(offset=offset).to_fields()
    return call.respond(ResponseCode.SUCCESS, fields=fields)
