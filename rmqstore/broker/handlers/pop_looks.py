"""Looks at messages to pop: NOTIFICATION (200054), PEEK_MESSAGE (200052), POLLING_INFO (200055).

A notification that finds no message waits for its time in `HeldPops`, as a pop does.
"""

from __future__ import annotations

from dataclasses import dataclass

from rmqstore.broker.context import Context
from rmqstore.broker.handlers.pop import PopRequests, key_of, wait_ms
from rmqstore.broker.held_pops import HeldPops
from rmqstore.broker.holds import Hold
from rmqstore.broker.operations.filters import TAG
from rmqstore.broker.operations.pop import MESSAGES_MAX, CheckedPop, Pop, PopOperation
from rmqstore.broker.operations.pop_looks import PopLooks
from rmqstore.errors import StoreError
from rmqstore.message import GetStatus
from rmqstore.remoting.codes import RequestCode, ResponseCode
from rmqstore.remoting.frames import Frame
from rmqstore.remoting.headers.pop import (
    NotificationRequestHeader,
    NotificationResponseHeader,
    PeekMessageRequestHeader,
    PollingInfoRequestHeader,
    PollingInfoResponseHeader,
    PopMessageResponseHeader,
)
from rmqstore.remoting.requests import Call, Handler

__all__ = ["PopLookRequests"]


@dataclass(frozen=True, slots=True)
class _Waiting:
    """A held notification, and the request to answer."""

    request: Frame
    checked: CheckedPop


class PopLookRequests:
    """The handlers of looks at what *pops* hands out. `held` holds notifications by `attempt`,
    `give_up` and `stored`."""

    held: HeldPops

    def __init__(self, context: Context, pops: PopRequests, operation: PopOperation) -> None:
        self._context = context
        self._pops = pops
        self._operation = operation
        self._looks = PopLooks(context, operation)

    def handlers(self) -> dict[int, Handler]:
        """Return every handler by request code."""
        return {
            RequestCode.NOTIFICATION: self._notify,
            RequestCode.PEEK_MESSAGE: self._peek,
            RequestCode.POLLING_INFO: self._info,
        }

    async def _notify(self, call: Call[NotificationRequestHeader, bytes]) -> Frame | None:
        checked = await self._operation.check(_pop_of(call.header))
        mark = self._operation.mark(checked)
        if await self._looks.has_messages(checked):
            return _notified(call.request, has_messages=True)

        wall_ms, now_ms = self._context.wall_ms(), self._context.now_ms()
        left_ms = wait_ms(call.header.born_ms, call.header.poll_ms, wall_ms)
        if left_ms <= 0:
            return _notified(call.request)
        if call.request.is_one_way:
            return None
        waiting = _Waiting(call.request, checked)
        hold = Hold(key_of(checked), mark.stored, now_ms + left_ms, call.peer, waiting)
        is_late = self._operation.mark(checked) != mark
        if not self.held.hold(hold, is_late=is_late):
            return _notified(call.request, is_full=True)
        return None

    async def _peek(self, call: Call[PeekMessageRequestHeader, bytes]) -> Frame:
        header = call.header
        pop = Pop(
            group=header.consumer_group,
            topic=header.topic,
            queue=header.queue_id,
            messages_max=min(header.max_messages, MESSAGES_MAX),
            invisible_ms=0,
        )
        peeked = await self._looks.peek(await self._operation.check(pop))
        fields = PopMessageResponseHeader(
            pop_time_ms=0, invisible_ms=0, revive_queue=0, rest_count=peeked.rest_count
        ).to_fields()
        if not peeked.count:
            remark = GetStatus.NO_MESSAGE_IN_QUEUE
            return call.respond(ResponseCode.PULL_NOT_FOUND, remark, fields)
        body = b"".join(peeked.records)
        return call.respond(ResponseCode.SUCCESS, GetStatus.FOUND, fields, body)

    async def _info(self, call: Call[PollingInfoRequestHeader, bytes]) -> Frame:
        header = call.header
        pop = Pop(
            group=header.consumer_group,
            topic=header.topic,
            queue=header.queue_id,
            messages_max=1,
            invisible_ms=0,
        )
        count = self._pops.waiting_count(await self._operation.check(pop))
        fields = PollingInfoResponseHeader(waiting_count=count).to_fields()
        return call.respond(ResponseCode.SUCCESS, fields=fields)

    # -- Holding.

    def stored(self, hold: Hold) -> int:
        """Return how many messages the queues of a hold ever had."""
        waiting: _Waiting = hold.pull
        return self._operation.mark(waiting.checked).stored

    async def attempt(self, hold: Hold) -> bool | None:
        """Look again for a hold, and answer it where there is a message; return None where there is
        none. One hold is answered for one message."""
        waiting: _Waiting = hold.pull
        try:
            has_messages = await self._looks.has_messages(waiting.checked)
        except StoreError as error:
            code = ResponseCode.SYSTEM_ERROR
            hold.connection.send(waiting.request.respond(code, str(error)[:500]))
            return False
        if not has_messages:
            return None
        hold.connection.send(_notified(waiting.request, has_messages=True))
        return False

    def give_up(self, hold: Hold) -> None:
        """Answer a hold whose time has ended. A message that another consumer was notified of may
        still be there."""
        waiting: _Waiting = hold.pull
        has_messages = self._looks.has_unfiltered(waiting.checked)
        hold.connection.send(_notified(waiting.request, has_messages=has_messages))


def _pop_of(header: NotificationRequestHeader) -> Pop:
    return Pop(
        group=header.consumer_group,
        topic=header.topic,
        queue=header.queue_id,
        messages_max=1,
        invisible_ms=0,
        expression_type=header.expression_type or TAG,
        expression=header.expression,
        is_orderly=header.is_orderly,
        attempt_id=header.attempt_id,
    )


def _notified(request: Frame, *, has_messages: bool = False, is_full: bool = False) -> Frame:
    header = NotificationResponseHeader(has_messages=has_messages, is_full=is_full)
    return request.respond(ResponseCode.SUCCESS, fields=header.to_fields())
