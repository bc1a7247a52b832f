"""Sends of clients: SEND_MESSAGE (10), SEND_MESSAGE_V2 (310), SEND_BATCH_MESSAGE (320).

The answer's code is that of the put's status.
"""

from __future__ import annotations

from collections.abc import Coroutine, Mapping
from typing import Any

from rmqstore.broker.operations.send import REGION, ClientMessage, SendOperation, Sent
from rmqstore.errors import PutError
from rmqstore.message import PutStatus, decode_properties
from rmqstore.remoting.codes import RequestCode, ResponseCode
from rmqstore.remoting.frames import Frame
from rmqstore.remoting.headers.send import (
    SendMessageRequestHeader,
    SendMessageRequestHeaderV2,
    SendMessageResponseHeader,
)
from rmqstore.remoting.requests import Call, Handler

__all__ = ["SendCall", "SendRequests", "message_of", "place_fields", "put_failure"]

_CODES: Mapping[str, ResponseCode] = {
    PutStatus.FLUSH_DISK_TIMEOUT: ResponseCode.FLUSH_DISK_TIMEOUT,
    PutStatus.FLUSH_SLAVE_TIMEOUT: ResponseCode.FLUSH_SLAVE_TIMEOUT,
    PutStatus.SLAVE_NOT_AVAILABLE: ResponseCode.SLAVE_NOT_AVAILABLE,
    PutStatus.SERVICE_NOT_AVAILABLE: ResponseCode.SERVICE_NOT_AVAILABLE,
    PutStatus.MESSAGE_ILLEGAL: ResponseCode.MESSAGE_ILLEGAL,
    PutStatus.PROPERTIES_SIZE_EXCEEDED: ResponseCode.MESSAGE_ILLEGAL,
    PutStatus.OS_PAGE_CACHE_BUSY: ResponseCode.SYSTEM_BUSY,
}
_NOT_ENOUGH = "in-sync replicas not enough"
_BUSY = "[PC_SYNCHRONIZED]broker busy, start flow control for a while"
_REMARK_SIZE_MAX = 500

SendCall = Call[SendMessageRequestHeader | SendMessageRequestHeaderV2, bytes]
"""A send of either form."""
_Found = Frame | Coroutine[Any, Any, Frame]


class SendRequests:
    """The handlers of sends."""

    def __init__(self, operation: SendOperation) -> None:
        self._operation = operation

    def handlers(self) -> dict[int, Handler]:
        """Return every handler by request code."""
        return {
            RequestCode.SEND_MESSAGE: self._send,
            RequestCode.SEND_MESSAGE_V2: self._send,
            RequestCode.SEND_BATCH_MESSAGE: self._send_batch,
        }

    def _send(self, call: SendCall) -> _Found:
        return self._sent(call.request, message_of(call, is_batch=bool(call.header.is_batch)))

    def _send_batch(self, call: SendCall) -> _Found:
        return self._sent(call.request, message_of(call, is_batch=True))

    def _sent(self, request: Frame, message: ClientMessage) -> _Found:
        try:
            found = self._operation.send(message)
        except PutError as error:
            return put_failure(request, error)
        return _answer(request, found) if isinstance(found, Sent) else _finished(request, found)


def message_of(call: SendCall, *, is_batch: bool) -> ClientMessage:
    """Return the message of a send."""
    header, peer = call.header, call.peer
    return ClientMessage(
        group=header.producer_group,
        topic=header.topic,
        body=call.body,
        properties=decode_properties(header.properties or ""),
        queue=header.queue_id,
        flag=header.flag,
        sys_flag=header.sys_flag,
        born_timestamp_ms=header.born_timestamp_ms,
        born_host=peer.proxied_peer or peer.peer,
        reconsume_times=header.reconsume_times or 0,
        retries_max=header.max_reconsume_times,
        is_batch=is_batch,
        default_topic=header.default_topic,
        default_topic_queues=header.default_topic_queues,
        is_unit=bool(header.unit_mode),
    )


async def _finished(request: Frame, found: Coroutine[Any, Any, Sent]) -> Frame:
    try:
        return _answer(request, await found)
    except PutError as error:
        return put_failure(request, error)


def put_failure(request: Frame, error: PutError) -> Frame:
    """Return the answer to a put that stored nothing, as far as is known."""
    remark = str(error)
    if error.status == PutStatus.IN_SYNC_REPLICAS_NOT_ENOUGH:
        remark = f"{_NOT_ENOUGH}: {remark}"
    if error.status == PutStatus.OS_PAGE_CACHE_BUSY:
        remark = f"{_BUSY}: {remark}"
    code = _CODES.get(error.status, ResponseCode.SYSTEM_ERROR)
    return request.respond(code, remark[:_REMARK_SIZE_MAX])


def _answer(request: Frame, sent: Sent) -> Frame:
    """Returns the answer to a put whose message is stored, which the answer names."""
    if sent.status is PutStatus.PUT_OK:
        return request.respond(ResponseCode.SUCCESS, fields=place_fields(sent))
    return request.respond(_CODES[sent.status], sent.reason[:_REMARK_SIZE_MAX], place_fields(sent))


def place_fields(sent: Sent) -> dict[str, str]:
    """Return the fields of an answer that name where a message is stored."""
    receipts = sent.receipts
    if receipts is None:
        return {"MSG_REGION": REGION, "TRACE_ON": "true"}
    first = receipts[0] if isinstance(receipts, list) else receipts
    ids = [each.message_id for each in receipts] if isinstance(receipts, list) else None
    return SendMessageResponseHeader(
        message_id=first.message_id if ids is None else ",".join(ids),
        queue_id=first.queue if sent.queue is None else sent.queue,
        queue_offset=first.queue_offset,
        transaction_id=sent.key,
        batch_unique_id=sent.key if sent.is_inner else None,
        region=REGION,
        is_traced=True,
        recall_handle=sent.handle,
    ).to_fields()
