"""A master and a slave without a controller, each Java's or ours; their files set the roles."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path

from rmqstore.admin.broker import BrokerAdmin
from rmqstore.errors import NotFoundError, RemotingError
from tests.support.either_broker import EitherBroker
from tests.support.java_cluster import CLUSTER, LIMIT_S
from tests.support.mixed_cluster import Controllers, MixedCluster
from tests.support.waiting import spin_until

_PAUSE_S = 0.1


class ClassicGroup(MixedCluster):
    """Two Java brokers of *release*; the role of the first is *master_role*."""

    def __init__(self, release: str, root: Path, *, master_role: str) -> None:
        self._master_role = master_role
        self.waits_for_slave = master_role == "SYNC_MASTER"
        """Whether the master acknowledges what the slave has, too."""
        super().__init__(release, root, controllers=Controllers.NONE, programs=(release, release))

    def _settings_of(self, number: int) -> Mapping[str, object]:
        return {
            "enableControllerMode": "false",
            "allAckInSyncStateSet": "false",
            "brokerId": number,
            "brokerRole": "SLAVE" if number else self._master_role,
            "slaveReadEnable": "true",
        }

    @property
    def master(self) -> EitherBroker:
        """The broker with id 0."""
        return self.members[0]

    @property
    def slave(self) -> EitherBroker:
        """The other broker."""
        return self.members[1]

    def wait_known(self) -> None:
        """Return once the nameserver knows the master.

        A Java client that finds the slave alone first never sends to a new topic: it does not ask
        for the route of the default topic again.
        """

        async def masters() -> list[str]:
            async with BrokerAdmin(self.namesrv) as admin:
                return list(await admin.masters(CLUSTER))

        def is_known() -> bool:
            with suppress(RemotingError, NotFoundError):
                return asyncio.run(masters()) == [self.master.address]
            return False

        spin_until(is_known, "the master at the nameserver", timeout=LIMIT_S, pause=_PAUSE_S)

    def wait_caught_up(self) -> None:
        """Return once the nameserver knows the master, which reports a slave that holds its whole
        log; no client sends."""

        async def lags() -> list[object]:
            async with BrokerAdmin(self.namesrv) as admin:
                assert list(await admin.masters(CLUSTER)) == [self.master.address]
                status = await admin.ha_status(self.master.address)
                slaves = status["haConnectionInfo"]
                assert isinstance(slaves, list)
                return [each["diff"] for each in slaves]

        def is_whole() -> bool:
            with suppress(RemotingError, NotFoundError):
                return asyncio.run(lags()) == [0]
            return False

        spin_until(is_whole, "a slave without a lag", timeout=LIMIT_S, pause=_PAUSE_S)
