"""Requests about consumer groups: make, change, delete, show, and their progress."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from rmqstore.broker.context import Context
from rmqstore.broker.metadata import groups as rules
from rmqstore.errors import NotFoundError, OffsetOutOfRange, RequestRefused
from rmqstore.remoting import fastjson
from rmqstore.remoting.bodies.queue_name import QueueName
from rmqstore.remoting.bodies.statistics import ConsumeStats, QueueProgress
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
from rmqstore.topic_names import RETRY_PREFIX

__all__ = ["GroupRequests"]


class GroupRequests:
    """Answers requests about groups; changes as `TopicRequests` does."""

    def __init__(self, context: Context) -> None:
        self._context = context

    def handlers(self) -> dict[int, Handler]:
        """Return every handler by request code."""
        return {
            RequestCode.UPDATE_AND_CREATE_SUBSCRIPTIONGROUP: self._create,
            RequestCode.DELETE_SUBSCRIPTIONGROUP: self._delete,
            RequestCode.GET_SUBSCRIPTIONGROUP_CONFIG: self._config,
            RequestCode.SET_MESSAGE_REQUEST_MODE: self._set_mode,
            RequestCode.GET_CONSUME_STATS: self._stats,
            RequestCode.UPDATE_AND_GET_GROUP_FORBIDDEN: self._forbid,
        }

    async def _create(self, call: Call[Any, GroupConfig]) -> Frame:
        group = call.body
        rules.check_name(group.name)
        self._context.log.info("group %s is made or changed by a request", group.name)
        spread = await self._context.metadata.change_group(group)
        return call.respond(ResponseCode.SUCCESS, spread.remark)

    async def _delete(self, call: Call[DeleteGroupRequestHeader, bytes]) -> Frame:
        header = call.header
        self._context.log.info("group %s is deleted by a request", header.group)
        spread = await self._context.metadata.delete_group(
            header.group, with_offsets=header.with_offsets
        )
        return call.respond(ResponseCode.SUCCESS, spread.remark)

    def _config(self, call: Call[GroupRequestHeader, bytes]) -> Frame:
        name = call.header.group
        group = self._context.metadata.group(name)
        if group is None:
            raise RequestRefused(
                f"No group in this broker. group: {name}",
                code=ResponseCode.SUBSCRIPTION_GROUP_NOT_EXIST,
            )
        return call.respond(ResponseCode.SUCCESS, body=fastjson.dumps(group.members()))

    async def _set_mode(self, call: Call[Any, RequestMode]) -> Frame:
        mode = call.body
        if mode.topic.startswith(RETRY_PREFIX):
            raise RequestRefused(
                "retry topic is not allowed to set mode", code=ResponseCode.NO_PERMISSION
            )
        if mode.mode not in ("PULL", "POP") or not mode.topic or not mode.group:
            raise RequestRefused(
                f"mode {mode.mode!r} of topic {mode.topic!r} and group {mode.group!r}; give a "
                "topic, a group, and PULL or POP",
                code=ResponseCode.INVALID_PARAMETER,
            )
        spread = await self._context.metadata.set_mode(mode)
        return call.respond(ResponseCode.SUCCESS, spread.remark)

    async def _forbid(self, call: Call[GroupForbiddenRequestHeader, bytes]) -> Frame:
        header = call.header
        metadata, remark = self._context.metadata, ""
        if header.readable is not None:
            spread = await metadata.forbid(
                header.group, header.topic, is_forbidden=not header.readable
            )
            remark = spread.remark or ""
        body = fastjson.dumps(
            {
                "group": header.group,
                "readable": not metadata.is_forbidden(header.group, header.topic),
                "topic": header.topic,
            }
        )
        return call.respond(ResponseCode.SUCCESS, remark, body=body)

    def _stats(self, call: Call[ConsumeStatsRequestHeader, bytes]) -> Frame:
        header = call.header
        topics = [each for each in (header.topics or "").split(";") if each]
        if header.topic:
            topics = [header.topic]
        offsets = self._context.metadata.offsets
        queues: dict[QueueName, QueueProgress] = {}
        traffic, now_s, rate = self._context.traffic, self._context.now_ms() / 1000, 0.0
        for topic in topics or offsets.topics_of(header.group):
            queues.update(self._progress(topic, header.group))
            rate += traffic.group_get_rate(topic, header.group, now_s)
        return call.respond(ResponseCode.SUCCESS, body=ConsumeStats(queues, rate).encode())

    def _progress(self, topic: str, group: str) -> Iterator[tuple[QueueName, QueueProgress]]:
        metadata, store = self._context.metadata, self._context.store.store
        config = metadata.topic(topic)
        for number in range(0 if config is None else config.read_queue_count):
            queue = store.queue(topic, number)
            committed = metadata.offsets.query(topic, group, number)
            pulled = metadata.offsets.last_pulled(topic, group, number)
            consumed_ms = 0
            if committed is not None and committed > 0:
                try:
                    consumed_ms = queue.get(committed - 1).store_timestamp
                except (NotFoundError, OffsetOutOfRange):
                    consumed_ms = 0  # The message is deleted, or the offset is past the end.
            yield (
                QueueName(topic, self._context.config.name, number),
                QueueProgress(
                    queue.end,
                    committed or 0,
                    max(pulled or 0, 0),
                    consumed_ms,
                ),
            )
