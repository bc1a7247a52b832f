"""Pops of consumers: POP_MESSAGE (200050), with long polling.

A pop that finds no message waits for its time in `HeldPops`, and is made again when a queue of it
has grown.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol

from rmqstore.broker.context import Context
from rmqstore.broker.handlers.send import put_failure
from rmqstore.broker.holds import Hold, Queue
from rmqstore.broker.operations.filters import TAG
from rmqstore.broker.operations.pop import CheckedPop, Pop, PopOperation, PopResult
from rmqstore.broker.operations.pop_orders import OrderlyPops
from rmqstore.broker.operations.waiting import WaitingPlaces
from rmqstore.errors import PutError, RequestRefused, StoreError
from rmqstore.message import GetStatus
from rmqstore.remoting.bodies.receipts import ORDERLY_QUEUE, offsets_text, starts_text
from rmqstore.remoting.codes import RequestCode, ResponseCode
from rmqstore.remoting.frames import Frame
from rmqstore.remoting.headers.pop import PopMessageRequestHeader, PopMessageResponseHeader
from rmqstore.remoting.requests import Call, Handler
from rmqstore.topic_names import popped_from

__all__ = ["Held", "PopRequests", "key_of", "wait_ms"]

_POLL_MS_MAX = 10 * 60 * 1000
_LATE_MS = 500
"""Time after the end of a pop for which it may still get messages."""
_EARLY_MS = 50
"""Time before the end of a pop at which it is answered, so that the answer is in time."""
_END_OF_TOPIC = 1
"""The initMode of a group that begins at the end."""

_Call = Call[PopMessageRequestHeader, bytes]


@dataclass(frozen=True, slots=True)
class _Waiting:
    """A held pop, and the request to answer."""

    request: Frame
    checked: CheckedPop


class Held(Protocol):
    """What holds pops: `HeldPops` of a broker."""

    def hold(self, hold: Hold, *, is_late: bool) -> bool:
        """Hold a pop; return False where too many wait already."""

    def count(self, key: Queue) -> int:
        """Return the number of pops of a key."""

    def wake(self, key: Queue) -> None:
        """Make a pop of a key again."""

    def wake_all(self, name: str, queue_count: int) -> None:
        """Make pops of "TOPIC@GROUP" again."""


class PopRequests:
    """The handler of pops, which may be held."""

    def __init__(self, context: Context, waiting: WaitingPlaces, orders: OrderlyPops) -> None:
        self._context = context
        self.operation = PopOperation(context, waiting, orders, on_released=self._released)
        """What hands out messages."""
        self.held: Held | None = None
        """What holds pops, by `attempt`, `give_up` and `stored`; without it none is held."""

    def handlers(self) -> dict[int, Handler]:
        """Return every handler by request code."""
        return {RequestCode.POP_MESSAGE: self._pop}

    async def _pop(self, call: _Call) -> Frame | None:
        self._refuse_late(call.header)
        checked = await self.operation.check(_pop_of(call.header))
        mark = self.operation.mark(checked)
        try:
            result = await self.operation.pop(checked)
        except PutError as error:
            return put_failure(call.request, error)
        if result.queues:
            if result.rest_count and self.held is not None:
                self.held.wake(key_of(checked))
            return _found(call.request, checked, result)

        header, wall_ms = call.header, self._context.wall_ms()
        left_ms = wait_ms(header.born_ms, header.poll_ms, wall_ms)
        hold = Hold(
            key_of(checked),
            mark.stored,
            self._context.now_ms() + left_ms,
            call.peer,
            _Waiting(call.request, checked),
        )
        if self.held is None or left_ms <= 0:
            return _empty(call.request, checked, result, ResponseCode.POLLING_TIMEOUT)
        if call.request.is_one_way:
            return None
        is_late = self.operation.mark(checked) != mark
        if not self.held.hold(hold, is_late=is_late):
            return _empty(call.request, checked, result, ResponseCode.POLLING_FULL)
        return None

    def _refuse_late(self, header: PopMessageRequestHeader) -> None:
        """Refuses a pop whose consumer does not wait for the answer any more."""
        past_ms = self._context.wall_ms() - header.born_ms - header.poll_ms
        if header.born_ms and past_ms > _LATE_MS:
            raise RequestRefused(
                f"the broker[{self._context.config.host}] pop message is timeout too much",
                code=ResponseCode.POLLING_TIMEOUT,
            )

    # -- Holding.

    def stored(self, hold: Hold) -> int:
        """Return how many messages the queues of a hold ever had."""
        waiting: _Waiting = hold.pull
        return self.operation.mark(waiting.checked).stored

    def pairs_of(self, topic: str) -> list[str]:
        """Return the pairs "TOPIC@GROUP" that a retry topic may be of, none for another topic."""
        tables = self._context.metadata
        pairs = popped_from(topic, lambda group: tables.group(group) is not None)
        return [f"{origin}@{group}" for group, origin in pairs]

    async def attempt(self, hold: Hold) -> bool | None:
        """Make the pop of a hold again and answer it; return whether there are more messages, None
        where there is none, and no answer."""
        waiting: _Waiting = hold.pull
        try:
            checked = await self.operation.check(waiting.checked.pop)
            result = await self.operation.pop(checked)
        except StoreError as error:
            hold.connection.send(_refusal(waiting.request, error))
            return False
        if not result.queues:
            return None
        hold.connection.send(_found(waiting.request, checked, result))
        return result.rest_count > 0

    def give_up(self, hold: Hold) -> None:
        """Answer a hold whose time has ended."""
        waiting: _Waiting = hold.pull
        revive_queue = ORDERLY_QUEUE if waiting.checked.pop.is_orderly else 0
        result = PopResult(self._context.wall_ms(), revive_queue)
        code = ResponseCode.POLLING_TIMEOUT
        hold.connection.send(_empty(waiting.request, waiting.checked, result, code))

    def waiting_count(self, checked: CheckedPop) -> int:
        """Return how many pops wait for the same as this one."""
        return 0 if self.held is None else self.held.count(key_of(checked))

    def _released(self, topic: str, group: str) -> None:
        config = self._context.metadata.topic(topic)
        if self.held is not None and config is not None:
            self.held.wake_all(f"{topic}@{group}", config.read_queue_count)


def wait_ms(born_ms: int, poll_ms: int, wall_ms: int) -> int:
    """Return how long a request waits from now on: its consumer counts from its birth."""
    if born_ms:
        poll_ms = min(born_ms + poll_ms - wall_ms, poll_ms)
    return min(poll_ms, _POLL_MS_MAX) - _EARLY_MS


def _pop_of(header: PopMessageRequestHeader) -> Pop:
    return Pop(
        group=header.consumer_group,
        topic=header.topic,
        queue=header.queue_id,
        messages_max=header.max_messages,
        invisible_ms=header.invisible_ms,
        begins_at_end=header.init_mode == _END_OF_TOPIC,
        expression_type=header.expression_type or TAG,
        expression=header.expression,
        is_orderly=header.is_orderly,
        attempt_id=header.attempt_id,
    )


def key_of(checked: CheckedPop) -> Queue:
    """Return what a pop is held by."""
    pop = checked.pop
    return f"{pop.topic}@{pop.group}", max(pop.queue, -1)


def _found(request: Frame, checked: CheckedPop, result: PopResult) -> Frame:
    status, fields = GetStatus.FOUND, _fields(checked, result)
    return request.respond(ResponseCode.SUCCESS, status, fields, b"".join(result.records))


def _empty(request: Frame, checked: CheckedPop, result: PopResult, code: ResponseCode) -> Frame:
    return request.respond(code, GetStatus.NO_MESSAGE_IN_QUEUE, _fields(checked, result))


def _fields(checked: CheckedPop, result: PopResult) -> dict[str, str]:
    return PopMessageResponseHeader(
        pop_time_ms=result.pop_time_ms,
        invisible_ms=checked.pop.invisible_ms,
        revive_queue=result.revive_queue,
        rest_count=result.rest_count,
        starts=starts_text(result.queues),
        offsets=offsets_text(result.queues),
        order_counts=";".join(result.order_counts) if checked.pop.is_orderly else None,
    ).to_fields()


def _refusal(request: Frame, error: StoreError) -> Frame:
    if isinstance(error, PutError):
        return put_failure(request, error)
    code = error.code if isinstance(error, RequestRefused) else ResponseCode.SYSTEM_ERROR
    return request.respond(code, str(error)[:500])
