"""Transactions: END_TRANSACTION (37), RESUME_CHECK_HALF_MESSAGE (323), and the question to a
producer, CHECK_TRANSACTION_STATE (39)."""

from __future__ import annotations

from rmqstore._native.core import Record
from rmqstore.broker.context import Context
from rmqstore.broker.half_messages import Half
from rmqstore.broker.handlers.send import put_failure
from rmqstore.broker.operations.transactions import (
    Decision,
    End,
    TransactionBook,
    TransactionOperations,
)
from rmqstore.broker.operations.waiting import WaitingPlaces
from rmqstore.errors import PutError
from rmqstore.remoting.bodies.messages import encode_message
from rmqstore.remoting.codes import RequestCode, ResponseCode
from rmqstore.remoting.frames import Frame
from rmqstore.remoting.headers.transactions import (
    CheckTransactionStateRequestHeader,
    EndTransactionRequestHeader,
    ResumeCheckHalfMessageRequestHeader,
)
from rmqstore.remoting.requests import Call, Handler

__all__ = ["TransactionRequests", "question"]

_UNKNOWN = 0
_DECISIONS = {each.value: each for each in Decision}


class TransactionRequests:
    """The handlers of transactions."""

    def __init__(self, context: Context, book: TransactionBook, waiting: WaitingPlaces) -> None:
        self._operations = TransactionOperations(context, book, waiting)

    def handlers(self) -> dict[int, Handler]:
        """Return every handler by request code."""
        return {
            RequestCode.END_TRANSACTION: self._end,
            RequestCode.RESUME_CHECK_HALF_MESSAGE: self._resume,
        }

    async def _end(self, call: Call[EndTransactionRequestHeader, bytes]) -> Frame:
        header = call.header
        decision = _DECISIONS.get(header.decision)
        if decision is None:
            if header.decision == _UNKNOWN:
                # The broker asks again.
                return call.respond(ResponseCode.SUCCESS)
            return call.respond(
                ResponseCode.INVALID_PARAMETER,
                f"commitOrRollback is {header.decision}; send 8 to commit, 12 to roll back, 0 for "
                "not known",
            )
        end = End(
            group=header.producer_group,
            queue_offset=header.queue_offset,
            physical_offset=header.physical_offset,
            decision=decision,
        )
        try:
            await self._operations.end(end)
        except PutError as error:
            return put_failure(call.request, error)
        return call.respond(ResponseCode.SUCCESS)

    async def _resume(self, call: Call[ResumeCheckHalfMessageRequestHeader, bytes]) -> Frame:
        try:
            await self._operations.resume(call.header.message_id or "")
        except PutError as error:
            return put_failure(call.request, error)
        return call.respond(ResponseCode.SUCCESS)


def question(half: Half, record: Record, place: tuple[str, int], broker_name: str) -> Frame:
    """Return the question how the transaction of a half message ended, which *record* is and which
    belongs to the topic and the queue of *place*."""
    key = half.key.unique_key
    header = CheckTransactionStateRequestHeader(
        topic=place[0],
        queue_offset=half.offset,
        physical_offset=half.physical_offset,
        message_id=key,
        transaction_id=key,
        offset_id=record.message_id,
        broker_name=broker_name,
    )
    body = encode_message(record, *place)
    request = Frame.request(RequestCode.CHECK_TRANSACTION_STATE, header.to_fields(), body)
    return request.with_opaque(0, is_one_way=True)
