"""Acknowledgements of popped messages, and changes of the time until they come again.

Each is answered once its record is as durable as a message that is acknowledged. RocketMQ answers
an acknowledgement with a success whatever became of its record.
"""

from __future__ import annotations

from collections.abc import Callable, Coroutine, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

from rmqstore._native.core import Receipt
from rmqstore.broker.operations.core import Core, ViewOf, refuse_other_than_master
from rmqstore.broker.operations.pop_orders import OrderlyPops
from rmqstore.broker.operations.pop_puts import PopPuts
from rmqstore.broker.operations.waiting import WaitingPlaces
from rmqstore.broker.pop_records import PopAck, PopCheckPoint
from rmqstore.errors import RequestRefused, StoreError
from rmqstore.remoting.bodies.receipts import ORDERLY_QUEUE, ReceiptHandle
from rmqstore.remoting.codes import ResponseCode
from rmqstore.topic_names import retry_kind

__all__ = ["Acked", "ChangedTime", "PopAckOperation"]

_Found = Receipt | Coroutine[Any, Any, Receipt]


@dataclass(frozen=True, slots=True, kw_only=True)
class Acked:
    """Messages of one queue and one pop."""

    group: str
    topic: str
    """The topic that has them: a retry topic for messages that are popped again."""
    queue: int
    offsets: tuple[int, ...]
    handle: ReceiptHandle
    """Their receipt handle, or that of the whole pop."""


@dataclass(frozen=True, slots=True)
class ChangedTime:
    """What the new receipt handle is made of."""

    pop_time_ms: int
    invisible_ms: int
    revive_queue: int


class PopAckOperation:
    """Stores the acknowledgements of consumers."""

    def __init__(self, core: Core, waiting: WaitingPlaces, orders: OrderlyPops) -> None:
        self._core = core
        self._orders = orders
        self._view = ViewOf(core)
        self._puts = PopPuts(core, waiting)

    def acknowledge(self, acked: Acked) -> Coroutine[Any, Any, None] | None:
        """Store the acknowledgement of one message; return None, or a coroutine that returns once
        it is durable. Call and coroutine raise RequestRefused and PutError."""
        refuse_other_than_master(self._core.role)
        start, end = self._bounds(acked)
        [offset] = acked.offsets
        if not start <= offset <= end:
            raise RequestRefused(
                f"offset is illegal, key:{acked.topic}@{acked.queue}, commit:{offset}, "
                f"store:{start}~{end}",
                code=ResponseCode.NO_MESSAGE,
            )
        self._refuse_handle(acked)
        if acked.handle.is_orderly:
            self._pass(acked)
            return None
        found = self._put(acked)
        return None if isinstance(found, Receipt) else _awaited(found)

    async def acknowledge_all(self, every: Sequence[Acked]) -> None:
        """Return once the acknowledgements are durable. As in RocketMQ, messages of unknown queues
        and with offsets that their queue does not have are passed over. Raises RequestRefused and
        PutError, where any of the rest is not stored."""
        refuse_other_than_master(self._core.role)
        if not every:
            raise RequestRefused("there are no acknowledgements", code=ResponseCode.NO_MESSAGE)
        known = [each for acked in every if (each := self._known(acked)) is not None]
        for each in known:
            self._refuse_handle(each)
        for each in known:
            if each.handle.is_orderly:
                self._pass(each)
        await _stored(
            [
                partial(self._put, each, is_batch=True)
                for each in known
                if not each.handle.is_orderly
            ]
        )

    async def change_time(
        self, acked: Acked, invisible_ms: int, *, is_suspended: bool = False
    ) -> ChangedTime:
        """Have a message come again after another time, counted from now on; return once that is
        durable. Raises RequestRefused and PutError."""
        core = self._core
        refuse_other_than_master(core.role)
        start, end = self._bounds(acked)
        [offset] = acked.offsets
        if not start <= offset < end:
            raise RequestRefused(
                f"offset is illegal, key:{acked.topic}@{acked.queue}, change:{offset}, "
                f"store:{start}~{end}",
                code=ResponseCode.NO_MESSAGE,
            )
        self._refuse_handle(acked)
        longest_ms = core.config.timer_delay_max_s * 1000
        if not 0 <= invisible_ms <= longest_ms:
            raise _invalid(f"invisibleTime is {invisible_ms}; give 0 to {longest_ms} ms")
        if acked.handle.is_orderly:
            place = acked.topic, acked.group, acked.queue, offset
            hidden_ms = self._orders.change_time(*place, acked.handle, ms=invisible_ms)
            return ChangedTime(acked.handle.pop_time_ms, hidden_ms, ORDERLY_QUEUE)

        point = PopCheckPoint(
            topic=acked.topic,
            queue=acked.queue,
            group=acked.group,
            start_offset=offset,
            offsets=(offset,),
            pop_time_ms=core.runtime.wall_ms(),
            invisible_ms=invisible_ms,
            broker_name=core.config.name,
            is_suspended=is_suspended or None,
        )
        queue = acked.handle.revive_queue
        # What comes later in the log is not there without what comes before.
        new = partial(self._puts.put, point, queue, point.due_ms)
        await _stored([new, partial(self._put, acked)])
        return ChangedTime(point.pop_time_ms, invisible_ms, queue)

    # -- Checks.

    def _bounds(self, acked: Acked) -> tuple[int, int]:
        """Returns the first offset of a queue and its end. Raises RequestRefused for one that the
        topic does not have."""
        topic = self._core.metadata.topic(acked.topic)
        if topic is None:
            raise RequestRefused(
                f"topic[{acked.topic}] not exist, apply first please!",
                code=ResponseCode.TOPIC_NOT_EXIST,
            )
        if not 0 <= acked.queue < topic.read_queue_count:
            raise RequestRefused(
                f"queueId[{acked.queue}] is illegal, topic:[{topic.name}] "
                f"topicConfig.readQueueNums:[{topic.read_queue_count}]",
                code=ResponseCode.MESSAGE_ILLEGAL,
            )
        return self._view().bounds(acked.topic, acked.queue) or (0, 0)

    def _known(self, acked: Acked) -> Acked | None:
        """Returns those of the messages whose offsets are in their queue, None without any."""
        bounds = self._view().bounds(acked.topic, acked.queue) if acked.queue >= 0 else None
        start, end = bounds or (0, -1)
        offsets = tuple(each for each in acked.offsets if start <= each <= end)
        if not offsets:
            return None
        return Acked(
            group=acked.group,
            topic=acked.topic,
            queue=acked.queue,
            offsets=offsets,
            handle=acked.handle,
        )

    def _refuse_handle(self, acked: Acked) -> None:
        """Refuses a receipt handle that no message of the queue can have."""
        config, handle = self._core.config, acked.handle
        if handle.broker_name != config.name:
            raise _invalid(
                f"the receipt handle is of broker {handle.broker_name[:80]!r}, this is "
                f"{config.name!r}; acknowledge there"
            )
        is_of_queue = handle.queue == acked.queue and handle.kind is retry_kind(acked.topic)
        if not is_of_queue or handle.offset not in (None, *acked.offsets):
            raise _invalid(
                f"the receipt handle {str(handle)[:200]!r} is not of message {acked.offsets[0]} of "
                f"queue {acked.queue} of topic {acked.topic}"
            )
        if not handle.is_orderly and not 0 <= handle.revive_queue < self._puts.queue_count:
            raise _invalid(
                f"the receipt handle names revive queue {handle.revive_queue}; there are "
                f"{self._puts.queue_count} (reviveQueueNum)"
            )
        latest_ms = self._core.runtime.wall_ms() + config.timer_delay_max_s * 1000
        if handle.revive_ms > latest_ms:
            raise _invalid(
                f"the receipt handle ends at {handle.revive_ms}, later than any message that is "
                f"popped now, which is {latest_ms}"
            )

    def _pass(self, acked: Acked) -> None:
        """Acknowledges messages that were popped in order."""
        for offset in acked.offsets:
            self._orders.acknowledge(acked.topic, acked.group, acked.queue, offset, acked.handle)

    def _put(self, acked: Acked, *, is_batch: bool = False) -> _Found:
        handle = acked.handle
        ack = PopAck(
            topic=acked.topic,
            queue=acked.queue,
            group=acked.group,
            start_offset=handle.start_offset,
            offsets=acked.offsets,
            pop_time_ms=handle.pop_time_ms,
            broker_name=handle.broker_name,
            is_batch=is_batch,
        )
        return self._puts.put(ack, handle.revive_queue, handle.revive_ms)


async def _awaited(put: Coroutine[Any, Any, Receipt]) -> None:
    await put


async def _stored(puts: Sequence[Callable[[], _Found]]) -> None:
    """Appends records, and returns when all are durable. Raises the first failure once all have
    ended; after a record that is not appended, the rest is not either."""
    failure: StoreError | None = None
    works = []
    for put in puts:
        try:
            found = put()
        except StoreError as error:
            failure = error
            break
        if isinstance(found, Coroutine):
            works.append(found)
    for work in works:
        try:
            await work
        except StoreError as error:
            failure = failure or error
    if failure is not None:
        raise failure


def _invalid(remark: str) -> RequestRefused:
    return RequestRefused(remark, code=ResponseCode.INVALID_PARAMETER)
