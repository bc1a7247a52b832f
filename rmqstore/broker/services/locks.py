"""The service that locks queues for consumers that read in order."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Protocol

from rmqstore.broker.context import Context
from rmqstore.broker.handlers.locks import LockRequests
from rmqstore.broker.lock_calls import Host as HostOfCalls
from rmqstore.broker.lock_calls import LockCalls
from rmqstore.broker.membership.roles import Role
from rmqstore.broker.operations.group_locks import GroupLocks
from rmqstore.broker.operations.locks import LockOperations
from rmqstore.broker.services.service import Service
from rmqstore.remoting.requests import Handler

__all__ = ["Host", "QueueLocks"]

_EXPIRE_S = 10.0


class Host(Context, HostOfCalls, Protocol):
    """What the service needs of its broker."""


class QueueLocks(Service):
    """Keeps the locks of queues, and drops those whose time has ended.

    It runs in every standing: a broker that is the master again after a short time as a slave still
    knows the locks that it gave, and gives none of them to another client.
    """

    name = "queue locks"

    def __init__(self, host: Host) -> None:
        self._runtime = host.runtime
        self._own = LockOperations(host)
        self._of_group = GroupLocks(host, self._own, LockCalls(host))
        self._requests = LockRequests(host, self._own, self._of_group)
        self._tasks = host.runtime.tasks(self.name)

    async def start(self, role: Role) -> None:
        self._tasks.start(self._expire(), name="expiry of locks")

    async def stop(self) -> None:
        await self._tasks.close()
        await self._of_group.close()

    def handlers(self) -> Mapping[int, Handler]:
        return self._requests.handlers()

    async def _expire(self) -> None:
        while True:
            await self._runtime.sleep(_EXPIRE_S)
            self._own.expire()
