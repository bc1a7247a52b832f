"""Assignments of queues to consumers: QUERY_ASSIGNMENT (400)."""

from __future__ import annotations

from typing import Any

from rmqstore.broker.operations.assignments import AssignmentOperation
from rmqstore.remoting.bodies.assignments import AssignmentQuery, Assignments
from rmqstore.remoting.codes import RequestCode, ResponseCode
from rmqstore.remoting.frames import Frame
from rmqstore.remoting.requests import Call, Handler

__all__ = ["AssignmentRequests"]


class AssignmentRequests:
    """The handler of questions for assignments, which *operation* answers."""

    def __init__(self, operation: AssignmentOperation) -> None:
        self._operation = operation

    def handlers(self) -> dict[int, Handler]:
        """Return every handler by request code."""
        return {RequestCode.QUERY_ASSIGNMENT: self._query}

    async def _query(self, call: Call[Any, AssignmentQuery]) -> Frame:
        found = await self._operation.assign(call.body)
        # A failure would make Java's clients share the queues themselves, until they restart.
        body = Assignments(found.queues, found.mode).encode()
        return call.respond(ResponseCode.SUCCESS, found.reason or None, body=body)
