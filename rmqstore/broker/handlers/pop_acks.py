"""Acknowledgements of popped messages: ACK_MESSAGE (200051), BATCH_ACK_MESSAGE (200151) and
CHANGE_MESSAGE_INVISIBLETIME (200053)."""

from __future__ import annotations

from collections.abc import Coroutine
from typing import Any

from rmqstore.broker.context import Context
from rmqstore.broker.handlers.send import put_failure
from rmqstore.broker.operations.pop_acks import Acked, PopAckOperation
from rmqstore.broker.operations.pop_orders import OrderlyPops
from rmqstore.broker.operations.waiting import WaitingPlaces
from rmqstore.broker.serving import refuse_light_topic
from rmqstore.errors import PutError
from rmqstore.remoting.bodies.pop import BatchAckBody, QueueAcks
from rmqstore.remoting.bodies.receipts import ReceiptHandle
from rmqstore.remoting.codes import RequestCode, ResponseCode
from rmqstore.remoting.frames import Frame
from rmqstore.remoting.headers.pop import (
    AckMessageRequestHeader,
    ChangeInvisibleTimeRequestHeader,
    ChangeInvisibleTimeResponseHeader,
)
from rmqstore.remoting.requests import Call, Handler
from rmqstore.topic_names import pop_retry_topic

__all__ = ["PopAckRequests"]


class PopAckRequests:
    """The handlers of acknowledgements."""

    def __init__(self, context: Context, waiting: WaitingPlaces, orders: OrderlyPops) -> None:
        self._context = context
        self._operation = PopAckOperation(context, waiting, orders)

    def handlers(self) -> dict[int, Handler]:
        """Return every handler by request code."""
        return {
            RequestCode.ACK_MESSAGE: self._ack,
            RequestCode.BATCH_ACK_MESSAGE: self._ack_all,
            RequestCode.CHANGE_MESSAGE_INVISIBLETIME: self._change,
        }

    def _ack(
        self, call: Call[AckMessageRequestHeader, bytes]
    ) -> Frame | Coroutine[Any, Any, Frame]:
        refuse_light_topic(call.header.lite_topic)
        try:
            found = self._operation.acknowledge(_acked(call.header))
        except PutError as error:
            return put_failure(call.request, error)
        if found is None:
            return call.respond(ResponseCode.SUCCESS)
        return _when_stored(call.request, found)

    async def _ack_all(self, call: Call[None, BatchAckBody]) -> Frame:
        name = call.body.broker_name or self._context.config.name
        every = [_acked_of(each, name) for each in call.body.acks]
        return await _when_stored(call.request, self._operation.acknowledge_all(every))

    async def _change(self, call: Call[ChangeInvisibleTimeRequestHeader, bytes]) -> Frame:
        header = call.header
        refuse_light_topic(header.lite_topic)
        try:
            changed = await self._operation.change_time(
                _acked(header), header.invisible_ms, is_suspended=header.is_suspended
            )
        except PutError as error:
            return put_failure(call.request, error)
        fields = ChangeInvisibleTimeResponseHeader(
            pop_time_ms=changed.pop_time_ms,
            invisible_ms=changed.invisible_ms,
            revive_queue=changed.revive_queue,
        ).to_fields()
        return call.respond(ResponseCode.SUCCESS, fields=fields)


async def _when_stored(request: Frame, work: Coroutine[Any, Any, None]) -> Frame:
    try:
        await work
    except PutError as error:
        return put_failure(request, error)
    return request.respond(ResponseCode.SUCCESS)


def _acked(header: AckMessageRequestHeader | ChangeInvisibleTimeRequestHeader) -> Acked:
    return Acked(
        group=header.consumer_group,
        topic=header.topic,
        queue=header.queue_id,
        offsets=(header.offset,),
        handle=ReceiptHandle.parse(header.extra_info),
    )


def _acked_of(acks: QueueAcks, broker_name: str) -> Acked:
    handle = ReceiptHandle(
        start_offset=acks.start_offset,
        pop_time_ms=acks.pop_time_ms,
        invisible_ms=acks.invisible_ms,
        revive_queue=acks.revive_queue,
        kind=acks.kind,
        broker_name=broker_name,
        queue=acks.queue,
    )
    return Acked(
        group=acks.group,
        topic=pop_retry_topic(acks.topic, acks.group, acks.kind),
        queue=acks.queue,
        offsets=acks.offsets,
        handle=handle,
    )
