"""Locks of queues, for consumers that read in order: LOCK_BATCH_MQ (41), UNLOCK_BATCH_MQ (42)."""

from __future__ import annotations

from typing import Any

from rmqstore.broker.operations.locks import LockOperations
from rmqstore.remoting.bodies.clients import LockBatchBody, LockedQueues
from rmqstore.remoting.codes import RequestCode, ResponseCode
from rmqstore.remoting.frames import Frame
from rmqstore.remoting.requests import Call, Handler

__all__ = ["LockRequests"]


class LockRequests:
    """The handlers of requests for locks, which *locks* carries out."""

    def __init__(self, locks: LockOperations) -> None:
        self._locks = locks

    def handlers(self) -> dict[int, Handler]:
        """Return every handler by request code."""
        return {
            RequestCode.LOCK_BATCH_MQ: self._lock,
            RequestCode.UNLOCK_BATCH_MQ: self._unlock,
        }

    def _lock(self, call: Call[Any, LockBatchBody]) -> Frame:
        body = call.body
        locked = self._locks.lock(body.group, body.client_id, body.queues)
        return call.respond(ResponseCode.SUCCESS, body=LockedQueues(locked).encode())

    def _unlock(self, call: Call[Any, LockBatchBody]) -> Frame:
        body = call.body
        self._locks.unlock(body.group, body.client_id, body.queues)
        return call.respond(ResponseCode.SUCCESS)
