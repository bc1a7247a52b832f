"""The service that samples the counts of stored and sent messages."""

from __future__ import annotations

from datetime import datetime
from typing import Protocol

from rmqstore.broker.ha_status import log_positions
from rmqstore.broker.membership.roles import Role
from rmqstore.broker.services.service import Service
from rmqstore.broker.traffic import SAMPLE_S, Traffic
from rmqstore.net.runtime import Runtime
from rmqstore.replication.runtime.replica import Replica

__all__ = ["Host", "TrafficSamples"]


class Host(Protocol):
    """The broker, as its samples need it."""

    @property
    def runtime(self) -> Runtime:
        """The world of the broker."""

    @property
    def traffic(self) -> Traffic:
        """The counts of messages stored and sent."""

    @property
    def replica(self) -> Replica | None:
        """The replica of the store; None until the id is known."""


class TrafficSamples(Service):
    """Samples the counts of *host*, from which rates are computed."""

    name = "traffic"

    def __init__(self, host: Host) -> None:
        self._host = host
        self._tasks = host.runtime.tasks("samples of traffic")

    async def start(self, role: Role) -> None:
        self._tasks.start(self._sample(), name="samples of traffic")

    async def stop(self) -> None:
        await self._tasks.close()

    async def _sample(self) -> None:
        runtime, traffic = self._host.runtime, self._host.traffic
        while True:
            replica = self._host.replica
            positions = {} if replica is None else log_positions(replica.status())
            day = datetime.fromtimestamp(runtime.wall_ms() / 1000).toordinal()
            traffic.sample(runtime.now_ms() / 1000, day=day, positions=positions)
            await runtime.sleep(SAMPLE_S)
