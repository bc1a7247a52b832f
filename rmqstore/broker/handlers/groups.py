"""Requests about consumer groups: make, change, delete, show, and their progress."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from rmqstore.broker.context import Context
from rmqstore.broker.operations.groups import GroupOperations
from rmqstore.remoting import fastjson
from rmqstore.remoting.codes import RequestCode, ResponseCode
from rmqstore.remoting.frames import Frame
from rmqstore.remoting.headers.administration import (
    ConsumeStatsRequestHeader,
    DeleteGroupRequestHeader,
    GroupForbiddenRequestHeader,
    GroupRequestHeader,
)
from rmqstore.remoting.requests import Call, Handler
from rmqstore.store.metadata import GroupConfig, RequestMode

__all__ = ["GroupRequests"]


class GroupRequests:
    """Answers requests about groups; changes as `TopicRequests` does."""

    def __init__(self, context: Context) -> None:
        self._operations = GroupOperations(context)

    def handlers(self) -> dict[int, Handler]:
        """Return every handler by request code."""
        return {
            RequestCode.UPDATE_AND_CREATE_SUBSCRIPTIONGROUP: self._create,
            RequestCode.UPDATE_AND_CREATE_SUBSCRIPTIONGROUP_LIST: self._create_list,
            RequestCode.DELETE_SUBSCRIPTIONGROUP: self._delete,
            RequestCode.GET_SUBSCRIPTIONGROUP_CONFIG: self._config,
            RequestCode.SET_MESSAGE_REQUEST_MODE: self._set_mode,
            RequestCode.GET_CONSUME_STATS: self._stats,
            RequestCode.UPDATE_AND_GET_GROUP_FORBIDDEN: self._forbid,
        }

    async def _create(self, call: Call[Any, GroupConfig]) -> Frame:
        spread = await self._operations.change(call.body)
        return call.respond(ResponseCode.SUCCESS, spread.remark)

    async def _create_list(self, call: Call[Any, Sequence[GroupConfig]]) -> Frame:
        spread = await self._operations.change_all(call.body)
        return call.respond(ResponseCode.SUCCESS, spread.remark)

    async def _delete(self, call: Call[DeleteGroupRequestHeader, bytes]) -> Frame:
        header = call.header
        spread = await self._operations.delete(header.group, with_offsets=header.with_offsets)
        return call.respond(ResponseCode.SUCCESS, spread.remark)

    def _config(self, call: Call[GroupRequestHeader, bytes]) -> Frame:
        group = self._operations.config(call.header.group)
        return call.respond(ResponseCode.SUCCESS, body=fastjson.dumps(group.members()))

    async def _set_mode(self, call: Call[Any, RequestMode]) -> Frame:
        spread = await self._operations.set_mode(call.body)
        return call.respond(ResponseCode.SUCCESS, spread.remark)

    async def _forbid(self, call: Call[GroupForbiddenRequestHeader, bytes]) -> Frame:
        header, operations, remark = call.header, self._operations, ""
        if header.readable is not None:
            spread = await operations.allow(header.group, header.topic, is_readable=header.readable)
            remark = spread.remark or ""
        body = fastjson.dumps(
            {
                "group": header.group,
                "readable": operations.may_read(header.group, header.topic),
                "topic": header.topic,
            }
        )
        return call.respond(ResponseCode.SUCCESS, remark, body=body)

    async def _stats(self, call: Call[ConsumeStatsRequestHeader, bytes]) -> Frame:
        header = call.header
        topics = [each for each in (header.topics or "").split(";") if each]
        if header.topic:
            topics = [header.topic]
        stats = await self._operations.stats(header.group, topics)
        return call.respond(ResponseCode.SUCCESS, body=stats.encode())
