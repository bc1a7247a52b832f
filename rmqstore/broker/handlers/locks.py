"""Locks of queues, for consumers that read in order: LOCK_BATCH_MQ (41), UNLOCK_BATCH_MQ (42)."""

from __future__ import annotations

from typing import Any

from rmqstore.broker.context import Context
from rmqstore.broker.operations.group_locks import GroupLocks
from rmqstore.broker.operations.locks import LockOperations
from rmqstore.broker.serving import refuse_other_than_shown_master
from rmqstore.remoting.bodies.clients import LockBatchBody, LockedQueues
from rmqstore.remoting.codes import RequestCode, ResponseCode
from rmqstore.remoting.frames import Frame
from rmqstore.remoting.requests import Call, Handler

__all__ = ["LockRequests"]


class LockRequests:
    """The handlers of requests for locks: *own* grants those of this broker, in any role, and
    *of_group* those of the group, where a majority has to grant them."""

    def __init__(self, context: Context, own: LockOperations, of_group: GroupLocks) -> None:
        self._context = context
        self._own = own
        self._of_group = of_group

    def handlers(self) -> dict[int, Handler]:
        """Return every handler by request code."""
        return {
            RequestCode.LOCK_BATCH_MQ: self._lock,
            RequestCode.UNLOCK_BATCH_MQ: self._unlock,
        }

    async def _lock(self, call: Call[Any, LockBatchBody]) -> Frame:
        body = call.body
        if body.only_this_broker:
            granted = self._own.grants(body.group, body.client_id, body.queues)
            numbers = tuple(grant.number if grant.is_fresh else 0 for _, grant in granted)
            answer = LockedQueues([name for name, _ in granted], numbers)
            return call.respond(ResponseCode.SUCCESS, body=answer.encode())

        refuse_other_than_shown_master(self._context, call.request.code)
        if self._context.config.strict_locks:
            locked = await self._of_group.lock(body.group, body.client_id, body.queues)
        else:
            locked = self._own.lock(body.group, body.client_id, body.queues)
        return call.respond(ResponseCode.SUCCESS, body=LockedQueues(locked).encode())

    async def _unlock(self, call: Call[Any, LockBatchBody]) -> Frame:
        body = call.body
        if body.fresh_grants:
            self._own.release(body.group, body.queues, body.fresh_grants)
        elif body.only_this_broker:
            self._own.unlock(body.group, body.client_id, body.queues)
        else:
            refuse_other_than_shown_master(self._context, call.request.code)
            if self._context.config.strict_locks:
                await self._of_group.unlock(body.group, body.client_id, body.queues)
            else:
                self._own.unlock(body.group, body.client_id, body.queues)
        return call.respond(ResponseCode.SUCCESS)
