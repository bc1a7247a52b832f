"""Requests of slaves for the metadata of their master."""

from __future__ import annotations

from typing import Any

from rmqstore.broker.context import Context
from rmqstore.errors import RequestRefused
from rmqstore.remoting.codes import RequestCode, ResponseCode
from rmqstore.remoting.frames import Frame
from rmqstore.remoting.headers.metadata import ChangesRequestHeader
from rmqstore.remoting.requests import Call, Handler

__all__ = ["MetadataRequests"]

_CHANGES = "changesSince"


class MetadataRequests:
    """Answers slaves of RocketMQ with whole tables, and slaves of this library with changes.

    A table is one answer without a total, however many entries it has: 5.3.3 and 5.5.0 both take
    it as complete.
    """

    def __init__(self, context: Context) -> None:
        self._context = context

    def handlers(self) -> dict[int, Handler]:
        """Return every handler by request code."""
        return {
            RequestCode.GET_ALL_TOPIC_CONFIG: self._topics,
            RequestCode.GET_ALL_SUBSCRIPTIONGROUP_CONFIG: self._groups,
            RequestCode.GET_ALL_CONSUMER_OFFSET: self._offsets,
            RequestCode.GET_ALL_DELAY_OFFSET: self._delays,
            RequestCode.GET_ALL_MESSAGE_REQUEST_MODE: self._modes,
            RequestCode.GET_TIMER_CHECK_POINT: self._timer_checkpoint,
            RequestCode.GET_TIMER_METRICS: self._timer_metrics,
        }

    async def _topics(self, call: Call[Any, bytes]) -> Frame:
        metadata = self._context.metadata
        if _CHANGES not in call.request.ext_fields:
            return call.respond(ResponseCode.SUCCESS, body=metadata.tables.topic_table().to_body())
        poll = ChangesRequestHeader.from_fields(call.request.ext_fields)
        header, body = await metadata.changes_for(poll)
        return call.respond(ResponseCode.SUCCESS, fields=header.to_fields(), body=body)

    def _groups(self, call: Call[Any, bytes]) -> Frame:
        body = self._context.metadata.tables.group_table().to_body()
        return call.respond(ResponseCode.SUCCESS, body=body)

    def _offsets(self, call: Call[Any, bytes]) -> Frame:
        body = self._context.metadata.offsets.table.snapshot().to_body()
        return call.respond(ResponseCode.SUCCESS, body=body)

    def _delays(self, call: Call[Any, bytes]) -> Frame:
        body = self._context.metadata.tables["delay"].whole().to_body()
        return call.respond(ResponseCode.SUCCESS, body=body)

    def _modes(self, call: Call[Any, bytes]) -> Frame:
        body = self._context.metadata.tables.mode_table().to_body()
        return call.respond(ResponseCode.SUCCESS, body=body)

    def _timer_checkpoint(self, call: Call[Any, bytes]) -> Frame:
        body = self._context.metadata.timer_files.checkpoint()
        if not body:
            raise RequestRefused("The checkpoint is null", code=ResponseCode.SYSTEM_ERROR)
        return call.respond(ResponseCode.SUCCESS, body=body)

    def _timer_metrics(self, call: Call[Any, bytes]) -> Frame:
        body = self._context.metadata.timer_files.metrics() or _NO_METRICS
        return call.respond(ResponseCode.SUCCESS, body=body)


_NO_METRICS = b'{"dataVersion":{"counter":0,"stateVersion":0,"timestamp":0},"timingCount":{}}'
