"""Requests of clients for services that this broker does not have: each is refused by name.

Such a message is never stored as an ordinary one. One-way requests are not answered; a note about
each kind is logged once.
"""

from __future__ import annotations

from functools import partial

from rmqstore.broker.context import Context
from rmqstore.broker.serving import Handler
from rmqstore.remoting.codes import RequestCode, ResponseCode
from rmqstore.remoting.connection import RemotingConnection
from rmqstore.remoting.frames import Frame, name_of_request

__all__ = ["RefusedRequests"]

_REASONS = {
    RequestCode.CONSUMER_SEND_MSG_BACK: "retries by the broker; consume the message again",
    RequestCode.END_TRANSACTION: "transactions",
    RequestCode.SEND_REPLY_MESSAGE: "request and reply",
    RequestCode.SEND_REPLY_MESSAGE_V2: "request and reply",
    RequestCode.RECALL_MESSAGE: "timer messages",
    RequestCode.QUERY_ASSIGNMENT: "assignment of queues by the broker; let clients share them",
    RequestCode.POP_MESSAGE: "POP consumption; pull instead",
    RequestCode.POP_LITE_MESSAGE: "POP consumption; pull instead",
    RequestCode.PEEK_MESSAGE: "POP consumption; pull instead",
    RequestCode.ACK_MESSAGE: "POP consumption",
    RequestCode.BATCH_ACK_MESSAGE: "POP consumption",
    RequestCode.ACK_LITE_MESSAGE: "POP consumption",
    RequestCode.CHANGE_MESSAGE_INVISIBLETIME: "POP consumption",
    RequestCode.NOTIFICATION: "POP consumption",
    RequestCode.POLLING_INFO: "POP consumption",
    RequestCode.POP_ROLLBACK: "POP consumption",
    RequestCode.UPDATE_AND_CREATE_STATIC_TOPIC: "static topics",
}


class RefusedRequests:
    """The handlers of refused requests."""

    def __init__(self, context: Context) -> None:
        self._context = context
        self._noted: set[int] = set()

    def handlers(self) -> dict[int, Handler]:
        """Return every handler by request code."""
        return {code: partial(self._refuse, reason) for code, reason in _REASONS.items()}

    def _refuse(self, service: str, connection: RemotingConnection, request: Frame) -> Frame:
        remark = f"{name_of_request(request.code)}: this broker does not serve {service}"
        if request.code not in self._noted:
            self._noted.add(request.code)
            self._context.log.warning("%s refused: %s", connection.address, remark)
        return request.respond(ResponseCode.REQUEST_CODE_NOT_SUPPORTED, remark)
