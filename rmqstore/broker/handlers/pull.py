"""Pulls of consumers: PULL_MESSAGE (11) and LITE_PULL_MESSAGE (361), with long polling.

An answer holds records as they are in the log, copied once. A pull that finds none waits for its
time in `HeldPulls`, and looks on from where it looked last when its queue has grown. Messages that
are no longer in memory, by RocketMQ's estimate, are read on a thread.
"""

from __future__ import annotations

import asyncio
import os
import time
from collections.abc import Coroutine
from dataclasses import dataclass
from typing import Any, Protocol

from rmqstore.broker.clients import BROADCASTING, ClientTable
from rmqstore.broker.context import Context
from rmqstore.broker.holds import Hold, Queue
from rmqstore.broker.operations.core import ViewOf
from rmqstore.broker.serving import refuse_light_topic
from rmqstore.errors import RequestRefused, StoreError
from rmqstore.message import GetStatus
from rmqstore.permissions import PERM_READ
from rmqstore.remoting.bodies.clients import EVERYTHING
from rmqstore.remoting.codes import RequestCode, ResponseCode
from rmqstore.remoting.frames import Frame
from rmqstore.remoting.headers.pull import (
    PullFlag,
    PullMessageRequestHeader,
    PullMessageResponseHeader,
)
from rmqstore.remoting.requests import Call, Handler, Peer
from rmqstore.store.metadata import GroupConfig, TopicConfig

__all__ = ["Held", "PullRequests"]

_BYTES_MAX = 256 * 1024
_MESSAGES_MAX = 512
_TAGS_MAX = 64
_IN_MEMORY_RATIO = 0.4
"""Part of the memory of the machine that is taken to hold the end of the log."""
_SUSPEND_MS_MAX = 10 * 60 * 1000
_OFFSET_MAX = 2**63 - 1

_BROKER, _GROUP, _TOPIC, _BROADCAST, _SUBSCRIPTION = 1, 2, 3, 4, 5
"""What refuses a pull, in forbiddenType."""

_CODES = {
    GetStatus.FOUND: ResponseCode.SUCCESS,
    GetStatus.MESSAGE_WAS_REMOVING: ResponseCode.PULL_RETRY_IMMEDIATELY,
    GetStatus.NO_MATCHED_MESSAGE: ResponseCode.PULL_RETRY_IMMEDIATELY,
    GetStatus.OFFSET_FOUND_NULL: ResponseCode.PULL_NOT_FOUND,
    GetStatus.OFFSET_OVERFLOW_ONE: ResponseCode.PULL_NOT_FOUND,
    GetStatus.OFFSET_OVERFLOW_BADLY: ResponseCode.PULL_OFFSET_MOVED,
    GetStatus.OFFSET_TOO_SMALL: ResponseCode.PULL_OFFSET_MOVED,
}
_EMPTY = (GetStatus.NO_MATCHED_LOGIC_QUEUE, GetStatus.NO_MESSAGE_IN_QUEUE)

_Result = tuple[GetStatus, int, int, int, int, bytes]


_Call = Call[PullMessageRequestHeader, bytes]


@dataclass(frozen=True, slots=True)
class _Pull:
    """A pull that was checked."""

    request: Frame
    header: PullMessageRequestHeader
    topic: TopicConfig
    group: GroupConfig
    tags: tuple[str, ...] | None
    messages_max: int
    bytes_max: int


class Held(Protocol):
    """What holds pulls: `HeldPulls` of a broker."""

    def add(self, hold: Hold) -> bool:
        """Hold a pull; return False where too many wait already."""


class PullRequests:
    """The handlers of pulls, which may be held."""

    def __init__(self, context: Context, clients: ClientTable) -> None:
        self._context = context
        self._clients = clients
        self._view = ViewOf(context)
        self._memory_bytes = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
        self.held: Held | None = None
        """What holds pulls, by `look`, `give_up` and `end_of`; without it none is held."""

    def handlers(self) -> dict[int, Handler]:
        """Return every handler by request code."""
        return {
            RequestCode.PULL_MESSAGE: self._pull,
            RequestCode.LITE_PULL_MESSAGE: self._pull,
        }

    def _pull(self, call: _Call) -> Frame | Coroutine[Any, Any, Frame | None] | None:
        header = call.header
        refuse_light_topic(header.lite_topic)
        group = self._context.metadata.group(header.consumer_group)
        if group is None:
            return self._pull_of_new_group(call)
        try:
            pull = self._checked(call, group)
        except _Forbidden as error:
            return error.answer(call)
        return self._first(call.peer, pull)

    async def _pull_of_new_group(self, call: _Call) -> Frame | None:
        header = call.header
        group = await self._context.metadata.group_for(header.consumer_group)
        if group is None:
            raise RequestRefused(
                f"subscription group [{header.consumer_group}] does not exist, and the broker "
                "makes none; make it with updateSubGroup",
                code=ResponseCode.SUBSCRIPTION_GROUP_NOT_EXIST,
            )
        try:
            pull = self._checked(call, group)
        except _Forbidden as error:
            return error.answer(call)
        found = self._first(call.peer, pull)
        return await found if isinstance(found, Coroutine) else found

    # -- Checks.

    def _checked(self, call: _Call, group: GroupConfig) -> _Pull:
        config, header = self._context.config, call.header
        if self._is_silent_slave():
            raise RequestRefused(
                "[REJECTREQUEST]this broker is a slave and slaveReadEnable is false; pull from the "
                "master",
                code=ResponseCode.SYSTEM_BUSY,
            )
        if not config.permission & PERM_READ:
            raise _Forbidden(f"the broker[{config.host}] pulling message is forbidden", _BROKER)
        if not group.consume_enabled:
            raise _Forbidden(f"subscription group no permission, {group.name}", _GROUP)
        topic = self._context.metadata.topic(header.topic)
        if topic is None:
            raise RequestRefused(
                f"topic[{header.topic}] not exist, apply first please!",
                code=ResponseCode.TOPIC_NOT_EXIST,
            )
        if not topic.perm & PERM_READ:
            raise _Forbidden(f"the topic[{topic.name}] pulling message is forbidden", _TOPIC)
        if not 0 <= header.queue_id < topic.read_queue_count:
            raise RequestRefused(
                f"queueId[{header.queue_id}] is illegal, topic[{topic.name}] has "
                f"{topic.read_queue_count} queues to read",
                code=ResponseCode.INVALID_PARAMETER,
            )
        asked_bytes = header.max_size_bytes
        return _Pull(
            call.request,
            header,
            topic,
            group,
            self._tags_of(header, group),
            min(max(header.max_messages, 1), _MESSAGES_MAX),
            _BYTES_MAX if asked_bytes is None else min(max(asked_bytes, 1), _BYTES_MAX),
        )

    def _is_silent_slave(self) -> bool:
        context = self._context
        is_slave = context.role.name == "slave"
        return is_slave and not (context.config.slave_reads or context.is_shown_as_master)

    def _tags_of(
        self, header: PullMessageRequestHeader, group: GroupConfig
    ) -> tuple[str, ...] | None:
        """Returns the tags of the subscription, None for all messages."""
        if header.sys_flag & PullFlag.SUBSCRIPTION:
            if (header.expression_type or "TAG") != "TAG":
                raise _no_filter(header.expression_type)
            return _parsed(header.subscription)

        known = self._clients.consumer_group(header.consumer_group)
        subscription = None if known is None else known.subscriptions.get(header.topic)
        if known is None or subscription is None:
            raise RequestRefused(
                f"the consumer's subscription not exist: group {header.consumer_group}, topic "
                f"{header.topic}; send a heartbeat",
                code=ResponseCode.SUBSCRIPTION_NOT_EXIST,
            )
        if not group.broadcast_enabled and known.message_model == BROADCASTING:
            raise _Forbidden(
                f"the consumer group[{header.consumer_group}] can not consume by broadcast way",
                _BROADCAST,
            )
        if self._context.metadata.is_forbidden(header.consumer_group, header.topic):
            raise _Forbidden(
                f"the consumer group[{header.consumer_group}] is forbidden for "
                f"topic[{header.topic}]",
                _SUBSCRIPTION,
            )
        if subscription.expression_type != "TAG":
            raise _no_filter(subscription.expression_type)
        if subscription.version < header.subscription_version:
            # The heartbeat with this version may come 30 s later: a Java client skips one while it
            # sends another. Clients compare tags themselves, because brokers compare hashes.
            if (header.expression_type or "TAG") != "TAG":
                raise _no_filter(header.expression_type)
            return None
        return _parsed(subscription.expression)

    # -- The first look.

    def _first(self, peer: Peer, pull: _Pull) -> Frame | Coroutine[Any, Any, Frame | None] | None:
        header = pull.header
        if header.sys_flag & PullFlag.COMMIT_OFFSET and self._context.role.name == "master":
            self._context.metadata.offsets.commit(
                header.topic, header.consumer_group, header.queue_id, header.commit_offset
            )
        reset = self._reset_answer(pull)
        if reset is not None:
            return reset
        if self._is_far_behind(header):
            return self._read_on_thread(pull)
        result = self._read(pull, header.queue_offset)
        if self._code_of(pull, result) == ResponseCode.PULL_NOT_FOUND and (
            header.sys_flag & PullFlag.SUSPEND
        ):
            return self._hold(peer, pull, result)
        return self._answer(pull, result)

    def _reset_answer(self, pull: _Pull) -> Frame | None:
        """Returns the answer that moves a consumer to the offset of a reset, once; None without a
        reset."""
        header = pull.header
        offset = self._context.metadata.offsets.take_reset(
            header.topic, header.consumer_group, header.queue_id
        )
        if offset is None:
            return None
        bounds = self._view().bounds(header.topic, header.queue_id) or (0, 0)
        fields = PullMessageResponseHeader(
            suggested_broker_id=0, next_offset=offset, min_offset=bounds[0], max_offset=bounds[1]
        ).to_fields()
        return pull.request.respond(ResponseCode.PULL_OFFSET_MOVED, "OFFSET_RESET", fields)

    def _read(self, pull: _Pull, offset: int) -> _Result:
        header = pull.header
        began = time.perf_counter()
        result: _Result = self._view().get(
            header.topic,
            header.queue_id,
            offset,
            pull.messages_max,
            pull.bytes_max,
            pull.tags,
            True,
        )
        self._context.traffic.read_took(time.perf_counter() - began)
        return result

    def _is_far_behind(self, header: PullMessageRequestHeader) -> bool:
        """Whether the message at the offset is taken to be on the disk alone."""
        limit = int(self._memory_bytes * _IN_MEMORY_RATIO)
        store = self._context.store.store
        if store.end_offset - max(store.start_offset, 0) <= limit or header.queue_offset < 0:
            return False
        units = self._view().units(header.topic, header.queue_id, header.queue_offset, 1)
        return bool(units) and 0 <= units[0][1] < store.end_offset - limit

    async def _read_on_thread(self, pull: _Pull) -> Frame:
        result = await asyncio.to_thread(self._read, pull, pull.header.queue_offset)
        return self._answer(pull, result, is_slow=True)

    # -- Holding.

    def _hold(self, peer: Peer, pull: _Pull, result: _Result) -> Frame | None:
        config = self._context.config
        suspend_ms = (
            pull.header.suspend_timeout_ms if config.long_polling else (config.short_polling_ms)
        )
        hold = Hold(
            (pull.header.topic, pull.header.queue_id),
            result[1],
            self._context.now_ms() + min(max(suspend_ms, 0), _SUSPEND_MS_MAX),
            peer,
            pull,
        )
        if self.held is None or suspend_ms <= 0 or pull.request.is_one_way:
            return self._answer(pull, result)
        if not self.held.add(hold):
            raise RequestRefused(
                "too many pulls wait for messages at this broker; pull again later",
                code=ResponseCode.SYSTEM_BUSY,
            )
        return None

    def look(self, hold: Hold) -> bool:
        """Look for messages of a hold again; answer it where there are some."""
        pull: _Pull = hold.pull
        try:
            if self._context.role.name is None or self._is_silent_slave():
                raise RequestRefused(
                    "[REJECTREQUEST]the role of this broker has changed; get the route again",
                    code=ResponseCode.SYSTEM_BUSY,
                )
            result = self._read(pull, hold.offset)
            code = self._code_of(pull, result)
            if code in (ResponseCode.PULL_NOT_FOUND, ResponseCode.PULL_RETRY_IMMEDIATELY):
                hold.offset = max(hold.offset, result[1])
                return False
            answer = self._answer(pull, result)
        except StoreError as error:
            answer = self._refusal(pull, error)
        self._send(hold, answer)
        return True

    def give_up(self, hold: Hold) -> None:
        """Answer a hold whose time has ended."""
        pull: _Pull = hold.pull
        try:
            answer = self._answer(pull, self._read(pull, hold.offset))
        except StoreError as error:
            answer = self._refusal(pull, error)
        self._send(hold, answer)

    def _refusal(self, pull: _Pull, error: StoreError) -> Frame:
        code = error.code if isinstance(error, RequestRefused) else ResponseCode.SYSTEM_ERROR
        return pull.request.respond(code, str(error)[:500])

    def _send(self, hold: Hold, answer: Frame) -> None:
        hold.connection.send(answer)

    def end_of(self, queue: Queue) -> int:
        """Return the end of a queue, 0 for an unknown one."""
        bounds = self._view().bounds(*queue)
        return 0 if bounds is None else bounds[1]

    # -- Answers.

    def _code_of(self, pull: _Pull, result: _Result) -> ResponseCode:
        status = result[0]
        if status in _EMPTY:
            is_moved = pull.header.queue_offset != 0
            return ResponseCode.PULL_OFFSET_MOVED if is_moved else ResponseCode.PULL_NOT_FOUND
        code = _CODES[status]
        if code == ResponseCode.PULL_OFFSET_MOVED and not self._context.is_leading:
            # The master may have more, and the consumer must not lose its place.
            return ResponseCode.PULL_RETRY_IMMEDIATELY
        return code

    def _answer(self, pull: _Pull, result: _Result, *, is_slow: bool = False) -> Frame:
        status, next_offset, min_offset, max_offset, count, records = result
        self._context.traffic.pulled(pull.topic.name, pull.header.consumer_group, count)
        header, code = pull.header, self._code_of(pull, result)
        self._context.metadata.offsets.pulled(
            header.topic, header.consumer_group, header.queue_id, next_offset
        )
        suggested = 0
        if self._context.config.slave_reads:
            suggested = pull.group.slow_consumer_broker_id if is_slow else pull.group.broker_id
        fields = PullMessageResponseHeader(
            suggested_broker_id=suggested,
            next_offset=next_offset,
            min_offset=min_offset,
            max_offset=max_offset,
            topic_sys_flag=pull.topic.sys_flag,
            group_sys_flag=pull.group.sys_flag,
        ).to_fields()
        return pull.request.respond(code, str(status), fields, records)


class _Forbidden(RequestRefused):
    """A pull without a permission."""

    def __init__(self, remark: str, kind: int) -> None:
        super().__init__(remark, code=ResponseCode.NO_PERMISSION)
        self._kind = kind

    def answer(self, call: _Call) -> Frame:
        """Return the answer, which names what refuses the pull."""
        fields = PullMessageResponseHeader(
            suggested_broker_id=0,
            next_offset=call.header.queue_offset,
            min_offset=0,
            max_offset=0,
            forbidden_type=self._kind,
        ).to_fields()
        return call.respond(self.code, self.remark, fields)


def _parsed(expression: str | None) -> tuple[str, ...] | None:
    """Returns the tags of an expression, None for all messages."""
    if expression is None or expression in ("", EVERYTHING):
        return None
    tags = tuple(dict.fromkeys(tag.strip() for tag in expression.split("||") if tag.strip()))
    if not tags or len(tags) > _TAGS_MAX:
        raise RequestRefused(
            f"parse the consumer's subscription failed: it names {len(tags)} tags; give 1 to "
            f"{_TAGS_MAX} with || between them, or {EVERYTHING}",
            code=ResponseCode.SUBSCRIPTION_PARSE_FAILED,
        )
    return tags


def _no_filter(expression_type: str | None) -> RequestRefused:
    return RequestRefused(
        f"The broker does not support consumer to filter message by {expression_type}; use tags",
        code=ResponseCode.SYSTEM_ERROR,
    )
