"""Recalls of timer messages: RECALL_MESSAGE (370)."""

from __future__ import annotations

from rmqstore.broker.context import Context
from rmqstore.broker.operations.recall import Recall, RecallOperation
from rmqstore.broker.operations.send import REGION, SendOperation
from rmqstore.errors import PutError
from rmqstore.remoting.codes import RequestCode, ResponseCode
from rmqstore.remoting.frames import Frame
from rmqstore.remoting.headers.send import RecallMessageRequestHeader, RecallMessageResponseHeader
from rmqstore.remoting.requests import Call, Handler

__all__ = ["RecallRequests"]

_REMARK_SIZE_MAX = 500


class RecallRequests:
    """The handler of recalls."""

    def __init__(self, context: Context, send: SendOperation) -> None:
        self._operation = RecallOperation(context, send)

    def handlers(self) -> dict[int, Handler]:
        """Return every handler by request code."""
        return {RequestCode.RECALL_MESSAGE: self._recall}

    async def _recall(self, call: Call[RecallMessageRequestHeader, bytes]) -> Frame:
        header, peer = call.header, call.peer
        recall = Recall(
            topic=header.topic,
            handle=header.handle,
            group=header.group,
            peer=peer.proxied_peer or peer.peer,
        )
        try:
            key = await self._operation.recall(recall)
        except PutError as error:
            return call.respond(ResponseCode.SYSTEM_ERROR, str(error)[:_REMARK_SIZE_MAX])
        fields = RecallMessageResponseHeader(message_id=key).to_fields()
        # Without the region a producer of Java writes no trace of the recall.
        return call.respond(ResponseCode.SUCCESS, fields={**fields, "MSG_REGION": REGION})
