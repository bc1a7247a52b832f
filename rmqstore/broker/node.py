"""A broker on an event loop: its store, its replica and the sockets for clients.

    async with Broker.from_file("broker.conf") as broker:
        print(broker.address, broker.role)

Any number of brokers may run on one loop, each with its own directory.
"""

from __future__ import annotations

import asyncio
import logging
import os
import socket
import time
from collections.abc import AsyncIterator, Callable, Collection, Iterator, Mapping, Sequence
from contextlib import AsyncExitStack
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from typing import Any

from rmqstore.aio import AsyncStore
from rmqstore.broker.client_service import ClientService
from rmqstore.broker.controller_link import ControllerLink
from rmqstore.broker.fixed_role import FixedRole
from rmqstore.broker.ha_status import log_positions
from rmqstore.broker.handlers.admin import AdminRequests
from rmqstore.broker.handlers.groups import GroupRequests
from rmqstore.broker.handlers.metadata_answers import MetadataRequests
from rmqstore.broker.handlers.offsets import OffsetRequests
from rmqstore.broker.handlers.replication import ReplicationRequests
from rmqstore.broker.handlers.topics import TopicRequests
from rmqstore.broker.metadata.keeper import Metadata
from rmqstore.broker.metadata.link import MetadataLink
from rmqstore.broker.metrics import BrokerMetrics, Counts
from rmqstore.broker.nameserver_link import NameserverLink
from rmqstore.broker.registration import (
    Announcement,
    announced_id,
    announced_until_ms,
    bodies_of,
)
from rmqstore.broker.request_table import ROWS
from rmqstore.broker.roles import Role
from rmqstore.broker.server_addresses import ServerAddresses
from rmqstore.broker.serving import RoleGate, merged
from rmqstore.broker.traffic import SAMPLE_S, Traffic
from rmqstore.config import (
    BrokerConfig,
    BrokerRole,
    Configuration,
    with_changes,
)
from rmqstore.errors import ConfigError, RequestRefused
from rmqstore.net.addresses import Address, format_address
from rmqstore.net.identity_log import IdentityLog
from rmqstore.net.metrics import Family
from rmqstore.net.metrics_endpoint import MetricsEndpoint
from rmqstore.net.one_run import OneRun
from rmqstore.net.own_address import OwnAddress, own_address
from rmqstore.net.runtime import LoopRuntime
from rmqstore.net.supervisor import Supervisor, TaskFailure
from rmqstore.net.tls import TlsClient, TlsServer
from rmqstore.permissions import PERM_WRITE
from rmqstore.remoting.client import RemotingClient
from rmqstore.remoting.dispatch import dispatched
from rmqstore.remoting.frames import Frame
from rmqstore.remoting.headers.registration import RegisterBrokerResponseHeader
from rmqstore.remoting.requests import Handler
from rmqstore.remoting.server import RemotingServer
from rmqstore.replication.group.status import Status
from rmqstore.replication.runtime.replica import Replica
from rmqstore.store.server_files import save_changes, stored_config
from rmqstore.typed_calls import typed

__all__ = ["Broker", "BrokerStatus"]

"""The permission to write."""
_RUNNING_KEYS = frozenset(
    about.key for about in BrokerConfig.options().values() if not about.effect.startswith("start")
)
"""Keys that may change while a broker runs; keys of its store and replica need a restart."""


@dataclass(frozen=True, slots=True, kw_only=True)
class BrokerStatus:
    """The present state of a broker."""

    cluster_name: str
    name: str
    address: Address
    role: Role
    replica: Status | None
    """None in controller mode until the id is known."""
    nameservers: Mapping[str, str]
    """By address of a nameserver, the reason why it does not know this broker; "" if it does."""
    connections: int
    task_failures: tuple[TaskFailure, ...]


@typed("__init__", "from_file", "configure")
class Broker(OneRun):
    """Serves clients, and slaves, from entering the context to leaving it.

    *config_file* is the file that a configuration changed by UPDATE_BROKER_CONFIG is written to
    where configStorePath is empty; without both, changes are lost when the process ends. *tls* sets
    the TLS mode of the server, *client_tls* the TLS of requests to nameservers, controllers and
    other brokers; *client* makes these requests instead of a client of this broker's own, and stays
    open: brokers of one loop may share it.

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
        client: RemotingClient | None = None,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._found = _found_address(config)
        host = config.host or (self._found.address if self._found else config.bind_address)
        self.config = config.replace(
            host=host,
            bind_address=_bind_address(config.bind_address, host),
            name=config.name or socket.gethostname(),
        )
        super().__init__("broker", IdentityLog("rmqstore.broker", f"broker {self.config.name}"))
        self._config_file = None if config_file is None else Path(config_file)
        self._tls = tls
        self._client = RemotingClient(tls=client_tls) if client is None else client
        self._owns_client = client is None
        self.runtime = LoopRuntime("broker", log=self.log, client=self._client, clock=clock)
        self._clock = clock
        self._metrics = BrokerMetrics()
        self._endpoint = MetricsEndpoint.from_config(self.config, self._families)
        self._stack = AsyncExitStack()
        self._tasks = Supervisor("broker", log=self.log)
        self._server: RemotingServer | None = None
        self._in_progress: dict[str, int] = {}
        """Requests in progress, by each family with a limit."""
        self._store: AsyncStore | None = None
        self._replica: Replica | None = None
        self.metadata = Metadata(self)
        """Topics, groups and offsets."""
        self._metadata_link = MetadataLink(self)
        self.controllers: ControllerLink | None = None
        """The link to the controllers; None without enableControllerMode."""
        self.fixed_role: FixedRole | None = None
        """With enableControllerMode None."""
        self.traffic = Traffic()
        """The counts of messages stored and sent."""
        self.client_service = ClientService(self)
        """The service for producers and consumers."""
        self._role = Role()
        self._nameservers: NameserverLink | None = None
        self._addresses = ServerAddresses(self, self._take_nameservers)
        self._bodies: tuple[object, tuple[bytes, bytes]] | None = None
        """What nameservers get of the topics, and the version and permission that it is of."""
        self._members: frozenset[int] = frozenset()
        """Ids of the living replicas by a nameserver, with enableSlaveActingMaster; the last that
        were known."""
        self._role_waiters: set[asyncio.Future[None]] = set()
        self._files = asyncio.Lock()

    @classmethod
    def from_file(cls, path: str | os.PathLike[str], **options: Any) -> Broker:
        """Return a broker with the settings of RocketMQ's broker.conf."""
        return cls(BrokerConfig.from_properties(Path(path)), config_file=path, **options)

    # ---- life

    async def _start(self) -> None:
        self.config = await asyncio.to_thread(stored_config, self.config, _RUNNING_KEYS)
        # The address is part of each record, so it must be known before the store opens.
        server = self._bind()
        self.config = self.config.replace(listen_port=server.address[1])
        self.log.identity = f"broker {self.config.name} {format_address(self.address)}"
        self._log_found_address()

        store = self._store_of(self.config)
        self._stack.callback(self.runtime.close)
        await self._stack.enter_async_context(store)
        self._store = store
        await self._stack.enter_async_context(self.metadata)
        self._stack.push_async_callback(self._close_replica)
        if self._owns_client:
            await self._stack.enter_async_context(self._client)
        self._stack.push_async_callback(self._tasks.close)
        self.client_service.start()
        self._stack.callback(self.client_service.close)
        self._stack.push_async_callback(self._metadata_link.close)
        if not self.config.is_controlled:
            self.fixed_role = FixedRole(self)
            self._stack.push_async_callback(self.fixed_role.close)
            await self.fixed_role.take()

        if self._endpoint is not None:
            self._stack.push_async_callback(self._endpoint.close)
            await self._endpoint.start()
            self.log.info("metrics are served at %s", format_address(self._endpoint.address))
        self._stack.push_async_callback(server.close)
        server.start()
        self._stack.push_async_callback(self._addresses.close)
        await self._addresses.start()
        self._nameservers = NameserverLink(self, self._client, log=self.log)
        self._stack.push_async_callback(self._nameservers.close)
        self._nameservers.start()
        if self.config.is_controlled:
            self.controllers = ControllerLink(self)
            self._stack.push_async_callback(self.controllers.close)
            await self.controllers.start()
        self._tasks.start(self._sample_traffic(), name="samples of traffic")
        role = self._role
        self.log.info("started as %s", role if role.name else "member of a group with a controller")
        if self._acts_as_master:
            self.log.warning(
                "enableSlaveActingMaster is served in part: without a master the slave with the "
                "smallest id answers reads, commits of offsets and locks of queues, but delivers "
                "no delayed, timer, transactional or popped messages, sends none to other groups "
                "(enableRemoteEscape) and asks no majority for locks (lockInStrictMode); "
                'docs/operations.md, "Acting master"'
            )

    async def _close(self) -> None:
        self._wake_role_waiters()
        await self._stack.aclose()
        if self._store is not None:
            self.log.info("closed")

    async def _sample_traffic(self) -> None:
        while True:
            status = None if self._replica is None else self._replica.status()
            positions = {} if status is None else log_positions(status)
            day = datetime.now().toordinal()
            self.traffic.sample(self._clock(), day=day, positions=positions)
            await asyncio.sleep(SAMPLE_S)

    def _bind(self) -> RemotingServer:
        handlers = dispatched(
            ROWS,
            self._handlers(),
            gate=RoleGate(self),
            in_progress=self._in_progress,
            observe=None if self._endpoint is None else self._metrics.observe,
            clock=time.perf_counter,
        )
        fast = {code: each for code, each in handlers.items() if ROWS[code].is_on_fast_port}
        place = (self.config.bind_address, self.config.listen_port)
        server = RemotingServer(place, handlers, fast_handlers=fast, tls=self._tls)
        server.bind()
        self._stack.push_async_callback(server.close)
        self._server = server
        return server

    def _log_found_address(self) -> None:
        found = self._found
        if found is None:
            return
        is_certain = found.is_reachable
        self.log.log(
            logging.INFO if is_certain else logging.WARNING,
            "brokerIP1 is empty: clients and slaves get %s of interface %s%s",
            found.address,
            found.interface,
            "" if is_certain else ", which other machines usually cannot reach; set brokerIP1",
        )

    def _handlers(self) -> Mapping[int, Handler]:
        """Returns the handler of each request code."""
        return merged(
            [
                MetadataRequests(self),
                TopicRequests(self),
                GroupRequests(self),
                OffsetRequests(self),
                AdminRequests(self),
                ReplicationRequests(self),
                self.client_service,
            ]
        )

    def _store_of(self, config: BrokerConfig) -> AsyncStore:
        host, port = self.address
        settings = config.store.replace(store_host_address=host, store_host_port=port)
        if config.is_controlled:
            # brokerRole has no effect with a controller: here every master waits for its replicas.
            settings = settings.replace(broker_role=BrokerRole.SYNC_MASTER)
        both = Configuration(store=settings, replica=config.replica)
        return AsyncStore(config=both, retention=True)

    # ---- the replica and the role

    async def open_replica(self, broker_id: int, **options: Any) -> Replica:
        """Open the replica of the store under its id, with further *options* of `Replica`."""
        assert self._replica is None, "a broker has one replica"
        self._replica = await Replica(
            self.store.store,
            broker_id=broker_id,
            listen=(self.config.bind_address, self.config.replica.ha_listen_port),
            protocol="autoswitch" if self.config.is_controlled else "classic",
            # A member may be elected, and consumers would then miss what it lacks.
            learns_while_partial=self.config.is_controlled,
            **options,
        ).open()
        return self._replica

    async def _close_replica(self) -> None:
        if self._replica is not None:
            await self._replica.close()

    def set_role(self, role: Role) -> None:
        """Make *role* the present role: clients are served in it from now on."""
        if role == self._role:
            return
        self._role = role
        self.metadata.take_role(role)
        self._metadata_link.take_role(role)
        self.client_service.role_changed()
        self.log.info("role: %s", role)
        self._wake_role_waiters()
        self.registration_due()

    async def role_changes(self) -> AsyncIterator[Role]:
        """Iterate over the roles from the present one on, until the broker closes. Of several
        changes in succession, only the last may be returned."""
        seen: Role | None = None
        while not self._is_closing:
            if self._role != seen:
                seen = self._role
                yield seen
                continue
            changed = asyncio.get_running_loop().create_future()
            self._role_waiters.add(changed)
            try:
                await changed
            finally:
                self._role_waiters.discard(changed)

    def _wake_role_waiters(self) -> None:
        for waiter in self._role_waiters:
            if not waiter.done():
                waiter.set_result(None)

    # ---- used by the handlers

    @property
    def store(self) -> AsyncStore:
        """The store. Raises StoreClosedError before the start."""
        if self._store is None:
            raise self._not_started()
        return self._store

    @property
    def role(self) -> Role:
        """The present role."""
        return self._role

    @property
    def replica(self) -> Replica | None:
        """The replica of the store; None in controller mode until the id is known."""
        return self._replica

    @property
    def address(self) -> Address:
        """Host and port that clients connect to."""
        return self.config.host, self.config.listen_port

    @property
    def ha_address(self) -> Address | None:
        """Host and port that slaves connect to; None without a replica."""
        if self._replica is None or self._replica.address is None:
            return None
        return self.config.replica.ha_host_address or self.config.host, self._replica.address[1]

    @property
    def nameserver_addresses(self) -> tuple[str, ...]:
        """The nameservers, as "host:port"; looked up with fetchNameSrvAddrByDnsLookup."""
        return self._addresses.nameservers

    @property
    def controller_addresses(self) -> tuple[str, ...]:
        """The controllers, as "host:port"; looked up with fetchControllerAddrByDnsLookup."""
        return self._addresses.controllers

    @property
    def held_bytes(self) -> int:
        """Bytes that the connections of clients hold: frames that are incomplete, not answered, or
        not read."""
        return 0 if self._server is None else self._server.status().held_bytes

    def wall_ms(self) -> int:
        """Return the time of the wall clock."""
        return time.time_ns() // 1_000_000

    def now_ms(self) -> int:
        """Return the time of the monotonic clock."""
        return int(self._clock() * 1000)

    async def call(self, address: str | Address, frame: Frame, timeout: float) -> Frame:
        """Return the answer to a request of this broker; raises as `RemotingClient.call`."""
        return await self._client.call(address, frame, timeout)

    @property
    def possible_members(self) -> frozenset[int]:
        """Brokers that may be elected instead of this master, under a controller."""
        if self._replica is None or not self.config.is_controlled:
            return self._role.members
        return self._replica.possible_members

    @property
    def members_without_reports(self) -> frozenset[int]:
        """Possible members that are Java brokers, which report no changes of topics."""
        if self._replica is None or not self.config.is_controlled:
            return frozenset()
        return self._replica.members_without_reports

    @property
    def puts_need_members(self) -> bool:
        """Whether puts wait for other members of a sync-state set."""
        replica = self.config.replica
        needs = replica.in_sync_replicas > 1 or replica.all_ack_in_sync_state_set
        return self.config.is_controlled and needs

    @property
    def metadata_trouble(self) -> str:
        """Why the master of this slave gives no metadata; empty where it does."""
        return self._metadata_link.trouble

    def admit(self, broker_ids: Collection[int]) -> None:
        """Allow only these brokers to join the sync-state set of this master."""
        is_master = self._replica is not None and self._replica.role == "master"
        if is_master and self._replica is not None and self.config.is_controlled:
            self._replica.admit(broker_ids)

    def registration_due(self) -> None:
        """Register at the nameservers soon: the topics have changed."""
        if self._nameservers is not None:
            self._nameservers.due()

    async def registered(self) -> None:
        """Return when every nameserver that answers has the present state of this broker."""
        if self._nameservers is not None:
            await self._nameservers.registered()

    async def configure(self, changes: Mapping[str, str]) -> None:
        """Change settings by RocketMQ key, first in the file.

        Raises ConfigError for unknown keys, bad values, and keys that take effect only at a start,
        and DiskError; then nothing has changed.
        """
        changed = with_changes(self.config, changes)
        at_start = [key for key in sorted(changes) if key not in _RUNNING_KEYS]
        if at_start:
            raise ConfigError(
                [
                    f"{', '.join(at_start)}: a new value takes effect only at a start; change it "
                    "in the broker's file and start the broker again"
                ]
            )
        async with self._files:
            await asyncio.to_thread(save_changes, self.config, self._config_file, changes)
            self.config = changed
        self.log.info("configuration changed: %s", ", ".join(sorted(changes)))
        self._addresses.update()
        self._take_nameservers()
        self.registration_due()
        if self.fixed_role is not None:
            self.fixed_role.configured()

    def _take_nameservers(self) -> None:
        if self._nameservers is not None:
            self._nameservers.update()

    # ---- used by the link to the nameservers

    def announcement(self) -> Announcement | None:
        """Return the registration for nameservers; None while the role is not known."""
        config, ha_address, until_ms = self.config, self.ha_address, self.announced_until_ms
        broker_id = announced_id(self._role, lease_end_ms=until_ms, now_ms=self.now_ms())
        is_hidden = self.fixed_role is not None and self.fixed_role.is_hidden
        if ha_address is None or broker_id is None or is_hidden:
            return None
        topics = self.metadata.tables.topic_table()
        permission = config.permission & ~PERM_WRITE if self._role.waits_for else config.permission
        known = topics.data_version, permission
        if self._bodies is None or self._bodies[0] != known:
            self._bodies = known, bodies_of(topics, permission=permission)
        body, version = self._bodies[1]
        is_acting = config.replica.acting_master_enable
        return Announcement(
            cluster_name=config.cluster_name,
            name=config.name,
            broker_id=broker_id,
            address=format_address(self.address),
            ha_address=format_address(ha_address),
            acting_master=is_acting,
            timeout_ms=config.not_active_timeout_ms if is_acting else None,
            body=body,
            version=version,
        )

    @property
    def is_leading(self) -> bool:
        """Whether this is the master, and no other one can have been elected."""
        until_ms = self.announced_until_ms
        return self._role.name == "master" and (until_ms is None or self.now_ms() < until_ms)

    @property
    def is_shown_as_master(self) -> bool:
        """Whether routes name this broker as the master, read-only, although it is a slave."""
        if self._role.waits_for:
            return True
        is_slave = self._acts_as_master and self._role.name == "slave"
        return is_slave and min(self._members, default=0) == self._role.broker_id

    @property
    def _acts_as_master(self) -> bool:
        """Whether a slave of this group may stand in for a fixed master."""
        return self.config.replica.acting_master_enable and not self.config.is_controlled

    @property
    def announced_until_ms(self) -> int | None:
        """The end of this master's lease unless it is renewed; None without a lease."""
        replica = self._replica
        if replica is None:
            return None
        # A master is a possible member of its own set.
        leads = not self.config.is_controlled or bool(replica.possible_members)
        return announced_until_ms(self._role, leads=leads, lease_end_ms=replica.lease_end_ms)

    def learn_master(self, answer: RegisterBrokerResponseHeader) -> None:
        """Follow the master that a nameserver names, where the file names none and no controller
        gives orders; with a controller, only take its HA address."""
        if self.controllers is not None and answer.master_address and answer.ha_address:
            self.controllers.learn_master(answer.master_address, answer.ha_address)
        if self.fixed_role is not None:
            self.fixed_role.learn_master(answer)

    def learn_order_topics(self, topics: Collection[str]) -> None:
        """Have topics as ordered ones that nameservers have an order configuration of. Slaves take
        them from their master."""
        known = (self.metadata.topic(name) for name in topics)
        if self.is_leading and any(each is not None and not each.order for each in known):
            self._tasks.start(self._order(tuple(topics)), name="ordered topics")

    async def _order(self, topics: Sequence[str]) -> None:
        try:
            await self.metadata.order_topics(topics)
        except RequestRefused as error:
            self.log.warning("ordered topics: %s", error)

    def learn_members(self, ids: Collection[int]) -> None:
        """Take the ids of the living replicas of the group, this one included."""
        self._members = frozenset(ids)
        if self._replica is not None:
            self._replica.set_alive_replicas(len(ids))

    @property
    def metrics_address(self) -> Address | None:
        """Host and port that serve metrics, None without metricsExporterType=PROM."""
        return None if self._endpoint is None else self._endpoint.address

    def _families(self) -> Iterator[Family]:
        assert self._server is not None, "the broker is started"
        status, server = self.status(), self._server.status()
        node = {"cluster": status.cluster_name, "node_type": "broker", "node_id": status.name}
        counts = Counts(
            permission=self.config.permission,
            topics=len(self.metadata.tables.topics),
            groups=len(self.metadata.tables.groups),
            dispatched_offset=self.store.store.dispatched_offset,
            connections=status.connections,
            in_progress=self._in_progress,
            refused_connections=server.refused_connections,
            absent_nameservers=sum(map(bool, status.nameservers.values())),
            task_failures=len(status.task_failures),
        )
        return self._metrics.families(node, counts, status.role, status.replica)

    def status(self) -> BrokerStatus:
        """Return the present state of the broker. Raises StoreClosedError before the start."""
        if self._server is None:
            raise self._not_started()
        server = self._server.status()
        return BrokerStatus(
            cluster_name=self.config.cluster_name,
            name=self.config.name,
            address=self.address,
            role=self._role,
            replica=None if self._replica is None else self._replica.status(),
            nameservers={} if self._nameservers is None else self._nameservers.states,
            connections=server.connections,
            task_failures=(*self._tasks.failures, *server.task_failures),
        )


def _found_address(config: BrokerConfig) -> OwnAddress | None:
    """Returns the address of this machine for clients, None where the configuration names one."""
    is_any = config.bind_address in ("0.0.0.0", "::")
    return own_address() if is_any and not config.host else None


def _bind_address(bind_address: str, host: str) -> str:
    """Returns the address to listen at so that *host* is served: as in Java 0.0.0.0 has to include
    IPv6."""
    return "::" if bind_address == "0.0.0.0" and ":" in host else bind_address
