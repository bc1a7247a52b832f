"""Requests for services that this broker does not have: each is refused by name.

Such a message is never stored as an ordinary one. One-way requests are not answered; a note about
each kind is logged once.
"""

from __future__ import annotations

from functools import partial
from typing import Any

from rmqstore.broker.context import Context
from rmqstore.broker.request_table import ROWS
from rmqstore.remoting.codes import ResponseCode
from rmqstore.remoting.frames import Frame, name_of_request
from rmqstore.remoting.requests import Call, Handler

__all__ = ["RefusedRequests"]


class RefusedRequests:
    """The handlers of refused requests."""

    def __init__(self, context: Context) -> None:
        self._context = context
        self._noted: set[int] = set()

    def handlers(self) -> dict[int, Handler]:
        """Return every handler by request code."""
        return {
            code: partial(self._refuse, row.refusal) for code, row in ROWS.items() if row.refusal
        }

    def _refuse(self, service: str, call: Call[Any, bytes]) -> Frame:
        remark = f"{name_of_request(call.request.code)}: this broker does not serve {service}"
        if call.request.code not in self._noted:
            self._noted.add(call.request.code)
            self._context.log.warning("%s refused: %s", call.peer.address, remark)
        return call.respond(ResponseCode.REQUEST_CODE_NOT_SUPPORTED, remark)
