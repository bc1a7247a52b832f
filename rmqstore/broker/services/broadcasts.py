"""The service that commits the progress of groups whose consumers broadcast."""

from __future__ import annotations

from rmqstore.broker.membership.roles import Role, Standing
from rmqstore.broker.operations.broadcasts import Broadcasts
from rmqstore.broker.services.service import Service
from rmqstore.net.runtime import Runtime

__all__ = ["BroadcastProgress"]

_COMMIT_S = 5.0
"""RocketMQ's period."""


class BroadcastProgress(Service):
    """Commits the lowest progress of *broadcasts* at regular times: clients that come later begin
    there."""

    name = "broadcast offsets"
    standings = frozenset({Standing.LEADING})

    def __init__(self, runtime: Runtime, broadcasts: Broadcasts) -> None:
        self._runtime = runtime
        self._broadcasts = broadcasts
        self._tasks = runtime.tasks(self.name)

    async def start(self, role: Role) -> None:
        self._tasks.start(self._commit(), name=self.name)

    async def stop(self) -> None:
        await self._tasks.close()

    async def _commit(self) -> None:
        while True:
            await self._runtime.sleep(_COMMIT_S)
            self._broadcasts.commit()
