"""Locks of queues, for consumers that read in order."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

from rmqstore.broker.operations.core import Core
from rmqstore.errors import RequestRefused
from rmqstore.remoting.bodies.queue_name import QueueName
from rmqstore.remoting.codes import ResponseCode
from rmqstore.replication.group.queue_lock import Grant, LockTable, QueueId

__all__ = ["LEASE_MS", "LockOperations"]

LEASE_MS = 60_000
"""RocketMQ's: clients renew their locks every 20 s."""
_QUIET_MS = LEASE_MS
"""Locks of the time before the start may count for as long (`LockTable`)."""
_QUEUES_MAX = 10_000
"""Queues in one call."""


class LockOperations:
    """Grants and ends the locks of one broker. Queues of other brokers are left out."""

    def __init__(self, core: Core) -> None:
        self._core = core
        is_strict = core.config.strict_locks
        self._table = LockTable(
            lease_ms=LEASE_MS,
            quiet_until_ms=core.now_ms() + _QUIET_MS if is_strict else None,
            first_number=max(core.runtime.wall_ms(), 0) * 1_000_000 + 1,
        )

    def __len__(self) -> int:
        """Return the number of locks; those whose time has ended count until `expire`."""
        return len(self._table)

    def lock(self, group: str, client_id: str, queues: Iterable[QueueName]) -> list[QueueName]:
        """Lock queues for a client of a group, or renew its locks; return the queues that it holds.
        Raises RequestRefused for too many queues."""
        return [name for name, _ in self.grants(group, client_id, queues)]

    def grants(
        self, group: str, client_id: str, queues: Iterable[QueueName]
    ) -> list[tuple[QueueName, Grant]]:
        """Do as `lock`; return the queues with their grants."""
        wanted = self.own(group, queues)
        granted = self._table.lock(client_id, wanted, now_ms=self._core.now_ms())
        return [(wanted[grant.queue], grant) for grant in granted]

    def unlock(self, group: str, client_id: str, queues: Iterable[QueueName]) -> None:
        """End the locks of a client. Raises RequestRefused for too many queues."""
        self._table.unlock(client_id, self.own(group, queues))

    def release(self, group: str, queues: Sequence[QueueName], numbers: Sequence[int]) -> None:
        """End the grants of *queues* with these *numbers*, unless they were renewed since."""
        for queue, number in zip(queues, numbers, strict=False):
            self._table.release(Grant(_id_of(group, queue), number, is_fresh=True))

    def expire(self) -> None:
        """Drop the locks whose time has ended."""
        self._table.expire(self._core.now_ms())

    def own(self, group: str, queues: Iterable[QueueName]) -> Mapping[QueueId, QueueName]:
        """Return the queues of this broker. Raises RequestRefused for too many."""
        name = self._core.config.name
        own = [each for each in queues if each.broker_name == name]
        if len(own) > _QUEUES_MAX:
            raise RequestRefused(
                f"the request names {len(own)} queues, the limit is {_QUEUES_MAX}",
                code=ResponseCode.INVALID_PARAMETER,
            )
        return {_id_of(group, each): each for each in own}


def _id_of(group: str, queue: QueueName) -> QueueId:
    return QueueId(group, queue.topic, queue.queue_id)
