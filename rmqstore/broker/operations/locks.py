"""Locks of queues, for consumers that read in order."""

from __future__ import annotations

from collections.abc import Iterable

from rmqstore.broker.operations.core import Core
from rmqstore.errors import RequestRefused
from rmqstore.remoting.bodies.queue_name import QueueName
from rmqstore.remoting.codes import ResponseCode
from rmqstore.replication.group.queue_lock import LockTable, QueueId

__all__ = ["LockOperations"]

_QUEUES_MAX = 10_000
"""Queues in one call."""


class LockOperations:
    """Grants and ends the locks of one broker. Queues of other brokers are left out."""

    def __init__(self, core: Core) -> None:
        self._core = core
        self._table = LockTable()

    def __len__(self) -> int:
        """Return the number of locks; those whose time has ended count until `expire`."""
        return len(self._table)

    def lock(self, group: str, client_id: str, queues: Iterable[QueueName]) -> list[QueueName]:
        """Lock queues for a client of a group, or renew its locks; return the queues that it holds.
        Raises RequestRefused for too many queues."""
        wanted = {_id_of(group, each): each for each in self._own(queues)}
        grants = self._table.lock(client_id, wanted, now_ms=self._core.now_ms())
        return [wanted[grant.queue] for grant in grants]

    def unlock(self, group: str, client_id: str, queues: Iterable[QueueName]) -> None:
        """End the locks of a client. Raises RequestRefused for too many queues."""
        self._table.unlock(client_id, [_id_of(group, each) for each in self._own(queues)])

    def expire(self) -> None:
        """Drop the locks whose time has ended."""
        self._table.expire(self._core.now_ms())

    def _own(self, queues: Iterable[QueueName]) -> list[QueueName]:
        name = self._core.config.name
        own = [each for each in queues if each.broker_name == name]
        if len(own) > _QUEUES_MAX:
            raise RequestRefused(
                f"the request names {len(own)} queues, the limit is {_QUEUES_MAX}",
                code=ResponseCode.INVALID_PARAMETER,
            )
        return own


def _id_of(group: str, queue: QueueName) -> QueueId:
    return QueueId(group, queue.topic, queue.queue_id)
