"""Pulls of consumers: PULL_MESSAGE (11) and LITE_PULL_MESSAGE (361), with long polling.

A pull that finds no message waits for its time in `HeldPulls`. When its queue has grown, it is read
again, from the offset where the previous read ended.
"""

from __future__ import annotations

from collections.abc import Coroutine
from dataclasses import dataclass
from typing import Any, Protocol

from rmqstore.broker.broadcast_offsets import Reader
from rmqstore.broker.clients import ClientTable
from rmqstore.broker.context import Context
from rmqstore.broker.holds import Hold, Queue
from rmqstore.broker.operations.filters import TAG
from rmqstore.broker.operations.pull import (
    CheckedPull,
    Outcome,
    Pull,
    PullForbidden,
    PullOperation,
    PullResult,
)
from rmqstore.broker.serving import refuse_light_topic
from rmqstore.errors import RequestRefused, StoreError
from rmqstore.remoting.codes import RequestCode, ResponseCode
from rmqstore.remoting.frames import Frame
from rmqstore.remoting.headers.pull import (
    PullFlag,
    PullMessageRequestHeader,
    PullMessageResponseHeader,
)
from rmqstore.remoting.requests import Call, Handler

__all__ = ["Held", "PullRequests"]

_SUSPEND_MS_MAX = 10 * 60 * 1000
_COMMIT, _SUSPEND = int(PullFlag.COMMIT_OFFSET), int(PullFlag.SUSPEND)
_SUBSCRIPTION = int(PullFlag.SUBSCRIPTION)
_PROXY_FOR_BROADCAST = 1
"""The requestSource of a proxy that pulls for a consumer that broadcasts."""
_CODES = {
    Outcome.FOUND: ResponseCode.SUCCESS,
    Outcome.NONE: ResponseCode.PULL_NOT_FOUND,
    Outcome.RETRY: ResponseCode.PULL_RETRY_IMMEDIATELY,
    Outcome.MOVED: ResponseCode.PULL_OFFSET_MOVED,
    Outcome.RESET: ResponseCode.PULL_OFFSET_MOVED,
}

_Call = Call[PullMessageRequestHeader, bytes]
_Found = Frame | Coroutine[Any, Any, Frame | None] | None


@dataclass(slots=True)
class _Waiting:
    """A held pull, and the request to answer."""

    request: Frame
    checked: CheckedPull


class Held(Protocol):
    """What holds pulls: `HeldPulls` of a broker."""

    def add(self, hold: Hold) -> bool:
        """Hold a pull; return False where too many wait already."""


class PullRequests:
    """The handlers of pulls, which may be held."""

    def __init__(self, context: Context, clients: ClientTable) -> None:
        self._context = context
        self._clients = clients
        self._operation = PullOperation(context, clients)
        self.broadcasts = self._operation.broadcasts
        """The consumers that broadcast."""
        self.held: Held | None = None
        """What holds pulls, by `look`, `give_up` and `end_of`; without it none is held."""

    def handlers(self) -> dict[int, Handler]:
        """Return every handler by request code."""
        return {
            RequestCode.PULL_MESSAGE: self._pull,
            RequestCode.LITE_PULL_MESSAGE: self._pull,
        }

    def _pull(self, call: _Call) -> _Found:
        refuse_light_topic(call.header.lite_topic)
        try:
            checked = self._operation.check(self._pull_of(call))
        except PullForbidden as error:
            return _forbidden(call, error)
        if isinstance(checked, CheckedPull):
            return self._first(call, checked)
        return self._when_checked(call, checked)

    def _pull_of(self, call: _Call) -> Pull:
        header = call.header
        flag = header.sys_flag
        return Pull(
            group=header.consumer_group,
            topic=header.topic,
            queue=header.queue_id,
            offset=header.queue_offset,
            messages_max=header.max_messages,
            bytes_max=header.max_size_bytes,
            commit_offset=header.commit_offset if flag & _COMMIT else None,
            has_subscription=bool(flag & _SUBSCRIPTION),
            expression_type=header.expression_type or TAG,
            expression=header.subscription,
            subscription_version=header.subscription_version,
            reader=self._reader(call),
        )

    def _reader(self, call: _Call) -> Reader | None:
        """Returns who pulls, None for a consumer that does not broadcast."""
        if not self._context.config.stores_broadcast_offsets:
            return None
        header = call.header
        is_proxied = header.request_source == _PROXY_FOR_BROADCAST
        client_id = (
            header.proxy_client_id
            if is_proxied
            else self._clients.broadcaster(header.consumer_group, call.peer)
        )
        if client_id is None:
            return None
        return Reader(header.topic, header.consumer_group, client_id, is_proxied)

    async def _when_checked(
        self, call: _Call, checked: Coroutine[Any, Any, CheckedPull]
    ) -> Frame | None:
        try:
            found = self._first(call, await checked)
        except PullForbidden as error:
            return _forbidden(call, error)
        return await found if isinstance(found, Coroutine) else found

    def _first(self, call: _Call, checked: CheckedPull) -> _Found:
        result = self._operation.first(checked)
        if not isinstance(result, PullResult):
            return self._when_read(call.request, checked, result)
        if result.outcome is Outcome.NONE and call.header.sys_flag & _SUSPEND:
            return self._hold(call, checked, result)
        return self._answer(call.request, checked, result)

    async def _when_read(
        self, request: Frame, checked: CheckedPull, result: Coroutine[Any, Any, PullResult]
    ) -> Frame:
        return self._answer(request, checked, await result)

    # -- Holding.

    def _hold(self, call: _Call, checked: CheckedPull, result: PullResult) -> Frame | None:
        config, header = self._context.config, call.header
        suspend_ms = header.suspend_timeout_ms if config.long_polling else config.short_polling_ms
        if self.held is None or suspend_ms <= 0 or call.request.is_one_way:
            return self._answer(call.request, checked, result)
        hold = Hold(
            (header.topic, header.queue_id),
            result.next_offset,
            self._context.now_ms() + min(suspend_ms, _SUSPEND_MS_MAX),
            call.peer,
            _Waiting(call.request, checked),
        )
        if not self.held.add(hold):
            raise RequestRefused(
                "too many pulls wait for messages at this broker; pull again later",
                code=ResponseCode.SYSTEM_BUSY,
            )
        return None

    def look(self, hold: Hold) -> bool:
        """Look for messages of a hold again; answer it where there are some."""
        waiting: _Waiting = hold.pull
        try:
            self._take_present_filter(hold)
            result = self._operation.read_again(waiting.checked, hold.offset)
            if result.outcome in (Outcome.NONE, Outcome.RETRY):
                hold.offset = max(hold.offset, result.next_offset)
                return False
            answer = self._answer(waiting.request, waiting.checked, result)
        except StoreError as error:
            answer = _refusal(waiting.request, error)
        hold.connection.send(answer)
        return True

    def give_up(self, hold: Hold) -> None:
        """Answer a hold whose time has ended."""
        waiting: _Waiting = hold.pull
        try:
            self._take_present_filter(hold)
            result = self._operation.read(waiting.checked, hold.offset)
            answer = self._answer(waiting.request, waiting.checked, result)
        except StoreError as error:
            answer = _refusal(waiting.request, error)
        hold.connection.send(answer)

    def _take_present_filter(self, hold: Hold) -> None:
        """Read a hold again from its beginning where the expression of its group has changed: the
        former one may have passed messages that the new one selects."""
        waiting: _Waiting = hold.pull
        checked = self._operation.with_present_filter(waiting.checked)
        if checked is not waiting.checked:
            waiting.checked = checked
            hold.offset = checked.pull.offset

    def end_of(self, queue: Queue) -> int:
        """Return the end of a queue, 0 for an unknown one."""
        return self._operation.end_of(*queue)

    # -- Answers.

    def _answer(self, request: Frame, checked: CheckedPull, result: PullResult) -> Frame:
        self._operation.delivered(checked, result)
        is_reset = result.outcome is Outcome.RESET
        fields = PullMessageResponseHeader(
            suggested_broker_id=self._operation.next_broker(checked, result),
            next_offset=result.next_offset,
            min_offset=result.min_offset,
            max_offset=result.max_offset,
            topic_sys_flag=None if is_reset else checked.topic.sys_flag,
            group_sys_flag=None if is_reset else checked.group.sys_flag,
        ).to_fields()
        return request.respond(_CODES[result.outcome], str(result.status), fields, result.records)


def _forbidden(call: _Call, error: PullForbidden) -> Frame:
    """Returns the answer to a pull without a permission, which names what forbids the pull."""
    fields = PullMessageResponseHeader(
        suggested_broker_id=0,
        next_offset=call.header.queue_offset,
        min_offset=0,
        max_offset=0,
        forbidden_type=int(error.by),
    ).to_fields()
    return call.respond(error.code, error.remark, fields)


def _refusal(request: Frame, error: StoreError) -> Frame:
    code = error.code if isinstance(error, RequestRefused) else ResponseCode.SYSTEM_ERROR
    return request.respond(code, str(error)[:500])
