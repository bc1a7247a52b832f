"""A broker on an event loop: its store, its replica and the sockets for clients.

    async with Broker.from_file("broker.conf") as broker:
        print(broker.address, broker.role)

Any number of brokers may run on one loop, each with its own directory.
"""

from __future__ import annotations

import os
import time
from collections.abc import AsyncIterator, Iterator, Mapping
from contextlib import AsyncExitStack
from pathlib import Path
from typing import Any

from rmqstore.aio import AsyncStore
from rmqstore.broker.membership.roles import Role
from rmqstore.broker.metadata.keeper import Metadata
from rmqstore.broker.open_broker import BrokerStatus, OpenBroker
from rmqstore.broker.parts import Parts
from rmqstore.broker.request_table import ROWS
from rmqstore.broker.serving import RoleGate
from rmqstore.broker.settings import Settings
from rmqstore.config import BrokerConfig
from rmqstore.net.addresses import Address, format_address
from rmqstore.net.identity_log import IdentityLog
from rmqstore.net.metrics import Family
from rmqstore.net.metrics_endpoint import MetricsEndpoint
from rmqstore.net.one_run import OneRun
from rmqstore.net.runtime import LoopRuntime, Runtime
from rmqstore.net.tls import TlsClient, TlsServer
from rmqstore.remoting.client import RemotingClient
from rmqstore.remoting.dispatch import FrameHandler, dispatched
from rmqstore.remoting.server import RemotingServer
from rmqstore.replication.runtime.replica import Replica
from rmqstore.typed_calls import typed

__all__ = ["Broker", "BrokerStatus"]


@typed("__init__", "from_file", "configure")
class Broker(OneRun):
    """Serves clients, and slaves, from entering the context to leaving it.

    *config_file* is the file that a configuration changed by UPDATE_BROKER_CONFIG is written to
    where configStorePath is empty; without both, changes are lost when the process ends. *tls* sets
    the TLS mode of the server, *client_tls* the TLS of requests to nameservers, controllers and
    other brokers.

    Brokers of one loop may share connections and a prefix of their log: each gets a *runtime*,
    whose client they share and which stays open. *parts* makes what reaches the world.

    Without a controller the role is that of brokerRole, and entering returns once the role has
    begun. Entering raises ArgumentError where an address cannot be used, ConfigError, and the
    errors of `rmqstore.open`; then nothing stays open.
    """

    def __init__(
        self,
        config: BrokerConfig,
        *,
        config_file: str | os.PathLike[str] | None = None,
        tls: TlsServer | None = None,
        client_tls: TlsClient | None = None,
        runtime: Runtime | None = None,
        parts: Parts | None = None,
    ) -> None:
        self._settings = Settings(config, config_file)
        self._tls = tls
        self._parts = parts or Parts()
        self._client: RemotingClient | None = None
        self._stack = AsyncExitStack()
        if runtime is None:
            log = IdentityLog("rmqstore.broker")
            self._client = RemotingClient(tls=client_tls)
            runtime = own = LoopRuntime("broker", log=log, client=self._client)
            self._stack.callback(own.close)
        self.runtime = runtime
        prefix = runtime.log.identity
        runtime.log.identity = f"{prefix} broker {self.config.name}".strip()
        super().__init__("broker", runtime.log)
        self._endpoint = MetricsEndpoint.from_config(self.config, self._families)
        self._open: OpenBroker | None = None

    @classmethod
    def from_file(cls, path: str | os.PathLike[str], **options: Any) -> Broker:
        """Return a broker with the settings of RocketMQ's broker.conf."""
        return cls(BrokerConfig.from_properties(Path(path)), config_file=path, **options)

    # ---- life

    async def _start(self) -> None:
        stack, settings = self._stack, self._settings
        await settings.load(self.runtime)

        # Each record has the address of the server, so it is bound before the store opens. Clients
        # that connect meanwhile wait.
        handlers: dict[int, FrameHandler] = {}
        server, fast = self._bind(handlers)
        settings.listens_at(server.address[1])
        self.log.identity += f" {format_address(self.address)}"
        settings.log_address(self.log)

        store = await stack.enter_async_context(self._parts.store(settings.of_store))
        broker = OpenBroker(settings, self._parts, runtime=self.runtime, store=store, server=server)
        self._open = broker
        await stack.enter_async_context(broker.metadata)
        stack.push_async_callback(broker.close_replica)
        if self._client is not None:
            await stack.enter_async_context(self._client)
        stack.push_async_callback(broker.close_tasks)
        stack.push_async_callback(broker.services.close)
        broker.services.start(broker.role)
        stack.push_async_callback(broker.addresses.close)
        await broker.addresses.start()
        stack.push_async_callback(broker.membership.close)
        await broker.membership.start()

        if self._endpoint is not None:
            stack.push_async_callback(self._endpoint.close)
            await self._endpoint.start()
            self.log.info("metrics are served at %s", format_address(self._endpoint.address))
        observe = None if self._endpoint is None else broker.metrics.observe
        handlers |= dispatched(
            ROWS,
            broker.handlers(),
            gate=RoleGate(broker),
            limits=_limits(self.config),
            in_progress=broker.in_progress,
            observe=observe,
            clock=time.perf_counter,
        )
        fast |= {code: each for code, each in handlers.items() if ROWS[code].is_on_fast_port}
        stack.push_async_callback(server.close)
        server.start()

        stack.push_async_callback(broker.nameservers.close)
        broker.nameservers.start()
        self._log_start(broker)

    def _bind(
        self, handlers: dict[int, FrameHandler]
    ) -> tuple[RemotingServer, dict[int, FrameHandler]]:
        """Returns the server, bound, and the handlers of its fast port; it answers by the handlers
        that are entered until it starts."""
        config, fast = self.config, dict[int, FrameHandler]()
        place = (config.bind_address, config.listen_port)
        server = self._parts.server(place, handlers, fast_handlers=fast, tls=self._tls)
        server.bind()
        self._stack.push_async_callback(server.close)
        return server, fast

    def _log_start(self, broker: OpenBroker) -> None:
        role = broker.role
        self.log.info(
            "started as %s", role if role.is_known else "member of a group with a controller"
        )
        if broker.announcer.acts_as_master:
            self.log.warning(
                "enableSlaveActingMaster is served in part: without a master the slave with the "
                "smallest id answers reads, commits of offsets and locks of queues, but delivers "
                "no delayed, timer, transactional or popped messages, and sends none to other "
                "groups (enableRemoteEscape); "
                'docs/operations.md, "Acting master"'
            )

    async def _close(self) -> None:
        if self._open is not None:
            self._open.present_role.close()
        await self._stack.aclose()
        if self._open is not None:
            self.log.info("closed")

    # ---- the open broker, for its owner

    @property
    def open(self) -> OpenBroker:
        """The parts of the broker. Raises StoreClosedError before the start."""
        if self._open is None:
            raise self._not_started()
        return self._open

    @property
    def config(self) -> BrokerConfig:
        """The present settings, with the detected host and name if the file names none."""
        return self._settings.config

    @property
    def address(self) -> Address:
        """Host and port that clients connect to."""
        return self._settings.address

    @property
    def store(self) -> AsyncStore:
        """The store. Raises StoreClosedError before the start."""
        return self.open.store

    @property
    def metadata(self) -> Metadata:
        """Topics, groups and offsets. Raises StoreClosedError before the start."""
        return self.open.metadata

    @property
    def replica(self) -> Replica | None:
        """The replica of the store; None in controller mode until the id is known."""
        return self.open.replica

    @property
    def role(self) -> Role:
        """The present role."""
        return Role() if self._open is None else self._open.role

    async def role_changes(self) -> AsyncIterator[Role]:
        """Iterate over the roles from the present one on, until the broker closes. Of several
        changes in succession, only the last may be returned."""
        async for role in self.open.present_role.changes():
            yield role

    async def registered(self) -> None:
        """Return when every nameserver that answers has the present state of this broker."""
        await self.open.registered()

    async def configure(self, changes: Mapping[str, str]) -> None:
        """Change settings by RocketMQ key, first in the file.

        Raises ConfigError for unknown keys, bad values, and keys that take effect only at a start,
        and DiskError; then nothing has changed.
        """
        await self.open.configure(changes)

    @property
    def metrics_address(self) -> Address | None:
        """Host and port that serve metrics, None without metricsExporterType=PROM."""
        return None if self._endpoint is None else self._endpoint.address

    def _families(self) -> Iterator[Family]:
        return self.open.families()

    def status(self) -> BrokerStatus:
        """Return the present state of the broker. Raises StoreClosedError before the start."""
        return self.open.status()


def _limits(config: BrokerConfig) -> Mapping[str, int]:
    """Returns the most requests in progress at once by the names of families."""
    return {
        "send": config.sends_max,
        "pull": config.pulls_max,
        "lite pull": config.lite_pulls_max,
        "lookup": config.lookups_max,
        "transaction": config.transaction_ends_max,
    }
