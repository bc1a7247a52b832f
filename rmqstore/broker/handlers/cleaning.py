"""Removal of files: TRIGGER_DELETE_FILES (27), CLEAN_EXPIRED_CONSUMEQUEUE (306), CLEAN_UNUSED_TOPIC
(316), DELETE_EXPIRED_COMMITLOG (329)."""

from __future__ import annotations

from typing import Any

from rmqstore.broker.context import Context
from rmqstore.broker.operations.cleaning import CleaningOperations
from rmqstore.remoting.codes import RequestCode, ResponseCode
from rmqstore.remoting.frames import Frame
from rmqstore.remoting.requests import Call, Handler

__all__ = ["CleaningRequests"]

_NAMES = 10
"""Topics that a remark names."""


class CleaningRequests:
    """Answers an operator who wants files to be removed; the remark says what was done."""

    def __init__(self, context: Context) -> None:
        self._context = context
        self._operations = CleaningOperations(context)

    def handlers(self) -> dict[int, Handler]:
        """Return every handler by request code."""
        return {
            RequestCode.TRIGGER_DELETE_FILES: self._expired_files,
            RequestCode.CLEAN_EXPIRED_CONSUMEQUEUE: self._expired_queues,
            RequestCode.CLEAN_UNUSED_TOPIC: self._unused_topics,
            RequestCode.DELETE_EXPIRED_COMMITLOG: self._expired_files,
        }

    async def _expired_files(self, call: Call[Any, bytes]) -> Frame:
        count = await self._operations.remove_expired()
        return call.respond(ResponseCode.SUCCESS, f"{count} log files are removed")

    def _expired_queues(self, call: Call[Any, bytes]) -> Frame:
        # A queue that was removed would begin at 0 again, before the offsets of its groups.
        return call.respond(
            ResponseCode.SUCCESS,
            "the files of queues are removed with the log files that they point into",
        )

    async def _unused_topics(self, call: Call[Any, bytes]) -> Frame:
        if not self._context.role.is_master:
            # mqadmin sends the request to all brokers of a cluster.
            remark = "this broker is a slave, which removes the queues after its master"
            return call.respond(ResponseCode.SUCCESS, remark)
        found = await self._operations.remove_unknown()
        remark = f"the queues of {len(found.removed)} topics are removed"
        if found.kept:
            names = ", ".join(found.kept[:_NAMES])
            remark += (
                f"; {len(found.kept)} unknown topics have messages and stay: {names}; make such a "
                "topic to read them, or delete it"
            )
        return call.respond(ResponseCode.SUCCESS, remark)
