"""Locks of queues at a majority of a group of brokers (lockInStrictMode)."""

from __future__ import annotations

from collections.abc import Callable, Coroutine, Iterable, Mapping, Sequence
from typing import Any, Protocol

from rmqstore.broker.operations.core import Core
from rmqstore.broker.operations.locks import LEASE_MS, LockOperations
from rmqstore.errors import RemotingError
from rmqstore.net.runtime import Event
from rmqstore.remoting.bodies.queue_name import QueueName
from rmqstore.replication.group.queue_lock import Grant, LockRequest, QueueId, Release

__all__ = ["GroupLocks", "Members"]

_COLLECT_MS = 700
"""Longest wait for the answers of the group: Java's clients wait for 1 s."""
_THIS_BROKER = -1
"""In place of an id in a `LockRequest`."""

Queues = Mapping[QueueId, QueueName]


class Members(Protocol):
    """The other members of the group, by their ids."""

    def others(self) -> Mapping[int, str]:
        """Return the addresses of those that live."""

    @property
    def known(self) -> int:
        """The number of members, this one included, that may be elected or live."""

    async def lock(
        self, address: str, group: str, client_id: str, queues: Sequence[QueueName]
    ) -> list[tuple[QueueName, Grant]]:
        """Return what a member grants a client, itself alone. Raises RemotingError."""

    async def unlock(
        self, address: str, group: str, client_id: str, queues: Sequence[QueueName]
    ) -> None:
        """End the locks of a client at a member. Raises RemotingError."""

    async def release(
        self, address: str, group: str, grants: Sequence[tuple[QueueName, int]]
    ) -> None:
        """Give grants back to a member, by their numbers. Raises RemotingError."""


class GroupLocks:
    """Locks queues for consumers at this broker and at *members*.

    A queue is locked where a majority of the whole group granted it, so no two clients hold one
    queue, whichever broker they ask.
    """

    def __init__(self, core: Core, own: LockOperations, members: Members) -> None:
        self._core = core
        self._own = own
        self._members = members
        self._tasks = core.runtime.tasks("locks of a group")

    async def close(self) -> None:
        """End the requests to other members that are in progress."""
        await self._tasks.close()

    async def lock(
        self, group: str, client_id: str, queues: Iterable[QueueName]
    ) -> list[QueueName]:
        """Lock queues for a client of a group, or renew its locks; return the queues that it holds.
        Raises RequestRefused for too many queues."""
        granted = self._own.grants(group, client_id, queues)
        names = {grant.queue: name for name, grant in granted}
        request = LockRequest(
            names,
            total=max(self._core.config.replica.total_replicas, self._members.known),
            is_strict=True,
            asked_ms=self._core.now_ms(),
            timeout_ms=_COLLECT_MS,
            lease_ms=LEASE_MS,
        )
        grants = [grant for _, grant in granted]
        request.granted(_THIS_BROKER, grants, now_ms=self._core.now_ms())
        # Queues that another client has here are asked for nowhere.
        others = self._members.others() if names else {}
        await self._collect(request, group, client_id, names, others)
        self._give_back(request.close(), group, names, others)
        return [names[queue] for queue in names if queue in request.locked]

    async def unlock(self, group: str, client_id: str, queues: Iterable[QueueName]) -> None:
        """End the locks of a client in the whole group. Raises RequestRefused for too many
        queues."""
        own = tuple(self._own.own(group, queues).values())
        self._own.unlock(group, client_id, own)
        # Awaited: a lock that the client requests next must not come to a member before this.
        await self._core.runtime.gather(
            *(
                self._quietly(self._members.unlock(address, group, client_id, own))
                for address in self._members.others().values()
            )
        )

    async def _collect(
        self,
        request: LockRequest,
        group: str,
        client_id: str,
        names: Queues,
        others: Mapping[int, str],
    ) -> None:
        """Returns once the answers of *others* decide the request, or when its time is over."""
        core, news = self._core, self._core.runtime.event()
        waiting = set(others)

        async def ask(broker_id: int, address: str) -> None:
            wanted = tuple(names.values())
            grants: Sequence[tuple[QueueName, Grant]] = ()
            try:
                grants = await self._members.lock(address, group, client_id, wanted)
            except (RemotingError, ValueError) as error:
                core.log.debug("locks at %s: %s", address, error)
                request.failed(broker_id)
            given = [grant for _, grant in grants]
            late = request.granted(broker_id, given, now_ms=core.now_ms())
            self._give_back(late, group, names, others)
            waiting.discard(broker_id)
            news.set()

        for broker_id, address in others.items():
            self._tasks.start(ask(broker_id, address), name=f"locks at {address}")
        await self._decided(request, news, lambda: not waiting)

    async def _decided(
        self, request: LockRequest, news: Event, is_over: Callable[[], bool]
    ) -> None:
        while not is_over():
            now_ms = self._core.now_ms()
            if request.is_decided(now_ms=now_ms):
                return
            news.clear()
            await news.wait((request.deadline_ms - now_ms) / 1000)

    def _give_back(
        self,
        releases: Iterable[Release],
        group: str,
        names: Queues,
        others: Mapping[int, str],
    ) -> None:
        """Ends grants that are of no use to a client, so that another one gets the queues soon."""
        by_member: dict[int, list[tuple[QueueName, int]]] = {}
        for each in releases:
            grant = names[each.grant.queue], each.grant.number
            by_member.setdefault(each.broker_id, []).append(grant)
        for broker_id, grants in by_member.items():
            if broker_id == _THIS_BROKER:
                self._own.release(group, *zip(*grants, strict=True))
                continue
            address = others[broker_id]
            release = self._quietly(self._members.release(address, group, grants))
            self._tasks.start(release, name=f"locks given back at {address}")

    async def _quietly(self, call: Coroutine[Any, Any, None]) -> None:
        """Awaits a call; a member that does not answer lets its locks expire."""
        try:
            await call
        except (RemotingError, ValueError) as error:
            self._core.log.debug("locks of the group: %s", error)
