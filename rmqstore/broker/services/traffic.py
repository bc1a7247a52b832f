"""The service that samples the counts of stored and sent messages, and keeps their totals."""

from __future__ import annotations

from datetime import datetime
from functools import partial
from typing import Protocol

from rmqstore.aio import AsyncStore
from rmqstore.broker.ha_status import log_positions
from rmqstore.broker.membership.roles import Role
from rmqstore.broker.parts import Parts
from rmqstore.broker.services.service import Service
from rmqstore.broker.traffic import SAMPLE_S, Traffic
from rmqstore.net.identity_log import IdentityLog
from rmqstore.net.runtime import Runtime
from rmqstore.replication.runtime.replica import Replica

__all__ = ["Host", "TrafficSamples"]

_FILE = "config/rmqstoreTotals.json"
_SAVE_S = 60.0
"""A crash loses the messages of that time from the totals."""


class Host(Protocol):
    """The broker, as its samples need it."""

    @property
    def runtime(self) -> Runtime:
        """The world of the broker."""

    @property
    def log(self) -> IdentityLog:
        """The log of the broker."""

    @property
    def parts(self) -> Parts:
        """What the broker is made of."""

    @property
    def store(self) -> AsyncStore:
        """The store, open."""

    @property
    def traffic(self) -> Traffic:
        """The counts of messages stored and sent."""

    @property
    def replica(self) -> Replica | None:
        """The replica of the store; None until the id is known."""


class TrafficSamples(Service):
    """Samples the counts of *host*, from which rates are computed, and saves totals."""

    name = "traffic"

    def __init__(self, host: Host) -> None:
        self._host = host
        self._tasks = host.runtime.tasks("samples of traffic")
        self._saved = b""

    async def start(self, role: Role) -> None:
        await self._load()
        self._tasks.start(self._sample(), name="samples of traffic")
        self._tasks.start(self._save_regularly(), name="saving of totals")

    async def stop(self) -> None:
        await self._tasks.close()
        await self._save()

    async def _sample(self) -> None:
        runtime, traffic = self._host.runtime, self._host.traffic
        while True:
            replica = self._host.replica
            positions = {} if replica is None else log_positions(replica.status())
            day = datetime.fromtimestamp(runtime.wall_ms() / 1000).toordinal()
            traffic.sample(runtime.now_ms() / 1000, day=day, positions=positions)
            await runtime.sleep(SAMPLE_S)

    # ---- totals

    async def _load(self) -> None:
        host = self._host
        folder = host.parts.folder(host.store.store.path)
        try:
            self._saved = await host.runtime.on_disk(partial(folder.read, _FILE))
            host.traffic.restore(self._saved)
        except FileNotFoundError:
            return
        except (OSError, ValueError) as error:
            host.log.warning("totals of messages begin at 0: %s: %s", folder.place(_FILE), error)

    async def _save_regularly(self) -> None:
        while True:
            await self._host.runtime.sleep(_SAVE_S)
            await self._save()

    async def _save(self) -> None:
        host, content = self._host, self._host.traffic.totals()
        if content == self._saved:
            return
        folder = host.parts.folder(host.store.store.path)
        try:
            await host.runtime.on_disk(partial(folder.replace, _FILE, content))
        except OSError as error:
            host.log.warning("totals of messages are not saved: %s", error)
        self._saved = content
