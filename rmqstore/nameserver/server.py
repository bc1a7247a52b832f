"""A nameserver on an event loop: the sockets, timers and files around the pure parts.

    async with Nameserver(NameserverConfig(listen_port=0)) as nameserver:
        print(nameserver.address)

Any number of nameservers may run on one loop. The tables are in memory: after a start, brokers
register again within their period, 30 seconds by default.
"""

from __future__ import annotations

import os
import time
from collections import deque
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

from rmqstore.config import NameserverConfig, with_changes
from rmqstore.errors import RemotingError
from rmqstore.exports import renamed
from rmqstore.nameserver.kv import KvConfig
from rmqstore.nameserver.kv_file import KvFile
from rmqstore.nameserver.metrics import NameserverMetrics
from rmqstore.nameserver.requests import RUNNING_KEYS, Requests
from rmqstore.nameserver.routes import (
    CloseConnection,
    Effect,
    NotifyMinBrokerId,
    RouteOptions,
    RouteTable,
)
from rmqstore.net.addresses import Address, format_address
from rmqstore.net.identity_log import IdentityLog
from rmqstore.net.metrics import Family
from rmqstore.net.metrics_endpoint import MetricsEndpoint
from rmqstore.net.one_run import OneRun
from rmqstore.net.runtime import LoopRuntime, Runtime
from rmqstore.net.tls import TlsClient, TlsServer
from rmqstore.remoting.client import RemotingClient
from rmqstore.remoting.codes import RequestCode
from rmqstore.remoting.connection import ConnectionLimits, RemotingConnection
from rmqstore.remoting.frames import Frame
from rmqstore.remoting.headers.registration import NotifyMinBrokerIdChangeRequestHeader
from rmqstore.remoting.server import RemotingServer
from rmqstore.store.server_files import save_changes, stored_config
from rmqstore.typed_calls import typed

__all__ = ["Nameserver"]

__getattr__ = renamed(__name__, "NameServer", "Nameserver")

_NOTIFY_TIMEOUT_S = 0.3
_NOTIFICATIONS_MAX = 16
"""Notifications that wait for one broker; the oldest is dropped first."""


@typed("__init__", "from_file")
class Nameserver(OneRun):
    """Serves brokers and clients from entering the context to leaving it.

    *config_file* is the file that a configuration changed by UPDATE_NAMESRV_CONFIG is written to
    where configStorePath is empty; without both, changes are lost when the process ends. *tls* sets
    the TLS mode of the server, *client_tls* the TLS of notifications to brokers. A *runtime* that
    is given stays open; *serve* makes the server of its requests.

    Entering raises ArgumentError where the address cannot be used, CorruptionError where
    kvConfig.json is damaged; then nothing stays open.
    """

    def __init__(
        self,
        config: NameserverConfig | None = None,
        *,
        config_file: str | os.PathLike[str] | None = None,
        tls: TlsServer | None = None,
        client_tls: TlsClient | None = None,
        runtime: Runtime | None = None,
        serve: Callable[..., RemotingServer] = RemotingServer,
    ) -> None:
        self._client: RemotingClient | None = None
        self._own_runtime: LoopRuntime | None = None
        if runtime is None:
            log = IdentityLog("rmqstore.nameserver")
            self._client = RemotingClient(tls=client_tls)
            runtime = self._own_runtime = LoopRuntime("nameserver", log=log, client=self._client)
        self.runtime = runtime
        self._prefix = runtime.log.identity
        runtime.log.identity = f"{self._prefix} namesrv not started".strip()
        super().__init__("nameserver", runtime.log)
        self._serve = serve
        self.config = config or NameserverConfig()
        self.kv = KvConfig()
        self._config_file = None if config_file is None else Path(config_file)
        self._tls = tls
        self._table = RouteTable(_options(self.config))
        self._requests = Requests(self._table, self)
        self._server: RemotingServer | None = None
        self._metrics = NameserverMetrics()
        self._endpoint = MetricsEndpoint.from_config(self.config, self._families)
        self._tasks = runtime.tasks("nameserver")
        self._started_ms = 0

        self._connections: dict[int, RemotingConnection] = {}
        """Connections over which brokers sent requests, by number."""
        self._notifications: dict[str, deque[Frame]] = {}
        self._files = runtime.lock()

    @classmethod
    def from_file(cls, path: str | os.PathLike[str], **options: Any) -> Nameserver:
        """Return a nameserver with the settings of RocketMQ's namesrv.conf."""
        return cls(NameserverConfig.from_properties(Path(path)), config_file=path, **options)

    @property
    def address(self) -> Address:
        """Host and port at which the nameserver listens. Raises StoreClosedError before the
        start."""
        if self._server is None:
            raise self._not_started()
        return self._server.address

    @property
    def metrics_address(self) -> Address | None:
        """Host and port that serve metrics, None without metricsExporterType=PROM."""
        return None if self._endpoint is None else self._endpoint.address

    def _families(self) -> Iterator[Family]:
        assert self._server is not None, "the nameserver is started"
        status = self._server.status()
        return self._metrics.families(
            self._table,
            connections=status.connections,
            refused=status.refused_connections,
            task_failures=len(self._tasks.failures) + len(status.task_failures),
        )

    @property
    def table(self) -> RouteTable:
        """The route table, to be read on the loop of the nameserver."""
        return self._table

    async def _start(self) -> None:
        runtime = self.runtime
        self.config = await runtime.on_disk(lambda: stored_config(self.config, RUNNING_KEYS))
        self._table.configure(_options(self.config))
        if self.config.kv_config_path:
            self.kv = await runtime.on_disk(KvFile(self.config.kv_config_path).load)
        self._started_ms = self.now_ms()
        observe = None if self._endpoint is None else self._metrics.observe
        handlers = self._requests.dispatched(observe=observe, clock=time.perf_counter)
        if self._endpoint is not None:
            await self._endpoint.start()
        server = self._serve(
            (self.config.bind_address, self.config.listen_port),
            handlers,
            tls=self._tls,
            limits=ConnectionLimits(idle_timeout_s=self.config.idle_seconds_max),
        )
        server.start()
        self._server = server
        self.log.identity = f"{self._prefix} namesrv {format_address(server.address)}".strip()
        self._tasks.start(self._scan(), name="scan")
        self.log.info("started")
        if self._endpoint is not None:
            self.log.info("metrics are served at %s", format_address(self._endpoint.address))

    async def _close(self) -> None:
        await self._tasks.close()
        if self._server is not None:
            await self._server.close()
        if self._endpoint is not None:
            await self._endpoint.close()
        if self._client is not None:
            await self._client.close()
        if self._own_runtime is not None:
            self._own_runtime.close()
        if self._server is not None:
            self.log.info("closed")

    # -- Used by the handlers.

    @property
    def age_ms(self) -> int:
        """The time since the start."""
        return self.now_ms() - self._started_ms

    def now_ms(self) -> int:
        """Return the time of the monotonic clock."""
        return self.runtime.now_ms()

    def number_of(self, connection: RemotingConnection) -> int:
        """Return the number of a connection, above the numbers of connections accepted earlier."""
        if connection.number not in self._connections:
            self._connections[connection.number] = connection
            connection.on_close(self._connection_closed)
        return connection.number

    def carry_out(self, effects: tuple[Effect, ...]) -> None:
        """Queue notifications and close connections; nothing is awaited."""
        for effect in effects:
            match effect:
                case NotifyMinBrokerId():
                    self._notify(effect)
                case CloseConnection(number):
                    connection = self._connections.get(number)
                    if connection is not None:
                        connection.close("no broker of this connection gave a sign of life")

    async def change_kv(self, change: Callable[[KvConfig], KvConfig]) -> None:
        """Change the key-value configuration, first on the disk."""
        async with self._files:
            changed = change(self.kv)
            if self.config.kv_config_path and changed != self.kv:
                file = KvFile(self.config.kv_config_path)
                await self.runtime.on_disk(lambda: file.save(changed))
            self.kv = changed

    async def configure(self, changes: Mapping[str, str]) -> None:
        """Change settings, first in their file. Raises ConfigError, DiskError; then nothing has
        changed."""
        async with self._files:
            changed = with_changes(self.config, changes)
            await self.runtime.on_disk(lambda: save_changes(changed, self._config_file, changes))
            self.config = changed
            self._table.configure(_options(changed))
        self.log.info("configuration changed: %s", ", ".join(sorted(changes)))

    # -- Connections, time, notifications.

    def _connection_closed(self, connection: RemotingConnection) -> None:
        del self._connections[connection.number]
        if not self._is_closing:
            self.carry_out(self._table.connection_closed(connection.number))

    async def _scan(self) -> None:
        while True:
            await self.runtime.sleep(self.config.scan_interval_ms / 1000)
            effects = self._table.expire(self.now_ms())
            if effects:
                self.log.warning("brokers expired: %s", effects)
            self.carry_out(effects)

    def _notify(self, effect: NotifyMinBrokerId) -> None:
        header = NotifyMinBrokerIdChangeRequestHeader(
            min_broker_id=effect.min_broker_id,
            min_broker_address=effect.min_address,
            offline_broker_address=effect.offline_address,
            ha_broker_address=effect.ha_address,
        )
        self.log.info(
            "broker %d at %s has the smallest id; notifying %s",
            effect.min_broker_id,
            effect.min_address,
            ", ".join(effect.recipients),
        )
        for address in effect.recipients:
            # A new frame for each recipient, because the connection sets its number.
            frame = Frame.request(RequestCode.NOTIFY_MIN_BROKER_ID_CHANGE, header.to_fields())
            waiting = self._notifications.get(address)
            if waiting is None:
                self._notifications[address] = deque([frame], _NOTIFICATIONS_MAX)
                self._tasks.start(self._send_notifications(address), name=f"notify {address}")
            else:
                waiting.append(frame)

    async def _send_notifications(self, address: str) -> None:
        """Send the waiting notifications of one broker, in order. An unreachable broker does not
        delay the others."""
        waiting = self._notifications[address]
        try:
            while waiting:
                try:
                    await self.runtime.client.send_one_way(
                        address, waiting.popleft(), timeout=_NOTIFY_TIMEOUT_S
                    )
                except (RemotingError, ValueError) as error:
                    self.log.warning("broker at %s is not notified: %s", address, error)
        finally:
            del self._notifications[address]


def _options(config: NameserverConfig) -> RouteOptions:
    return RouteOptions(
        acting_master=config.acting_master,
        notify_min_broker_id=config.notify_min_broker_id,
        delete_topics=config.delete_topics,
        scan_interval_ms=config.scan_interval_ms,
    )
