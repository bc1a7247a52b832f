"""The service that keeps what orderly consumers have popped."""

from __future__ import annotations

from collections.abc import Sequence

from rmqstore.broker.membership.roles import Role, Standing
from rmqstore.broker.metadata.shared_orders import SharedOrders
from rmqstore.broker.metadata.shared_table import SharedTable
from rmqstore.broker.operations.core import Core
from rmqstore.broker.services.service import Service

__all__ = ["PopOrders"]

_CLEAN_S = 60.0


class PopOrders(Service):
    """Keeps the states of queues that orderly consumers pop, and forgets those not in use."""

    name = "orders of pops"
    standings = frozenset({Standing.LEADING})

    def __init__(self, core: Core) -> None:
        self._core = core
        self._tasks = core.runtime.tasks(self.name)
        self.states = SharedOrders(self._queue_count)
        """The states."""

    async def start(self, role: Role) -> None:
        self._tasks.start(self._clean(), name=self.name)

    async def stop(self) -> None:
        await self._tasks.close()

    def tables(self) -> Sequence[SharedTable]:
        return (self.states,)

    async def _clean(self) -> None:
        while True:
            await self._core.runtime.sleep(_CLEAN_S)
            self.states.clean()

    def _queue_count(self, topic: str, group: str) -> int:
        known = self._core.metadata.topic(topic)
        if known is None or self._core.metadata.group(group) is None:
            return 0
        return known.read_queue_count
