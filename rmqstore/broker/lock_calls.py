"""The calls between brokers of a group for locks of queues: LOCK_BATCH_MQ, UNLOCK_BATCH_MQ.

Members of RocketMQ take and answer the same requests. They do not number their grants, so nothing
is given back to them: such a grant ends with its lease.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Protocol

from rmqstore.broker.membership.membership import Membership
from rmqstore.net.addresses import Address, format_address
from rmqstore.remoting.bodies.clients import LockBatchBody, LockedQueues
from rmqstore.remoting.bodies.queue_name import QueueName
from rmqstore.remoting.codes import RequestCode
from rmqstore.remoting.frames import Frame
from rmqstore.replication.group.queue_lock import Grant, QueueId

__all__ = ["Host", "LockCalls"]

_CALL_S = 1.0
"""As RocketMQ's."""


class Host(Protocol):
    """The part of a broker that the calls need."""

    @property
    def address(self) -> Address:
        """Where clients connect."""

    @property
    def membership(self) -> Membership:
        """How the broker gets its role, and who its members are."""

    @property
    def members(self) -> Mapping[int, str]:
        """The addresses of the living members of the group by id, this one included."""

    async def call(self, address: str | Address, frame: Frame, timeout: float) -> Frame:
        """Return the answer to a request; raises as `RemotingClient.call`."""


class LockCalls:
    """Requests locks of the members of the group of *host*."""

    def __init__(self, host: Host) -> None:
        self._host = host

    def others(self) -> Mapping[int, str]:
        """Return the addresses of those that live, by id."""
        own, members = format_address(self._host.address), self._host.members
        by_address = {address: broker_id for broker_id, address in members.items()}
        return {each: address for address, each in by_address.items() if address != own}

    @property
    def known(self) -> int:
        """The number of members, this one included, that may be elected or live."""
        return max(len(self._host.membership.possible_members), len(self.others()) + 1)

    async def lock(
        self, address: str, group: str, client_id: str, queues: Sequence[QueueName]
    ) -> list[tuple[QueueName, Grant]]:
        """Return what a member grants a client, itself alone. Raises RemotingError."""
        body = LockBatchBody(group, client_id, tuple(queues), only_this_broker=True)
        answer = await self._call(address, RequestCode.LOCK_BATCH_MQ, body)
        locked = LockedQueues.decode(answer.body)
        # A renewal has no number to give it back by.
        numbers = locked.fresh_grants or (0,) * len(locked.queues)
        return [
            (name, Grant(QueueId(group, name.topic, name.queue_id), number, number > 0))
            for name, number in zip(locked.queues, numbers, strict=False)
        ]

    async def unlock(
        self, address: str, group: str, client_id: str, queues: Sequence[QueueName]
    ) -> None:
        """End the locks of a client at a member. Raises RemotingError."""
        body = LockBatchBody(group, client_id, tuple(queues), only_this_broker=True)
        await self._call(address, RequestCode.UNLOCK_BATCH_MQ, body)

    async def release(
        self, address: str, group: str, grants: Sequence[tuple[QueueName, int]]
    ) -> None:
        """Give grants back to a member, by their numbers. Raises RemotingError."""
        queues, numbers = zip(*grants, strict=True)
        body = LockBatchBody(group, "", queues, only_this_broker=True, fresh_grants=numbers)
        await self._call(address, RequestCode.UNLOCK_BATCH_MQ, body)

    async def _call(self, address: str, code: RequestCode, body: LockBatchBody) -> Frame:
        answer = await self._host.call(address, Frame(code, body=body.encode()), _CALL_S)
        return answer.raise_for_code()
