"""A broker whose store is open: what its handlers, services and links use of each other."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from rmqstore.aio import AsyncStore
from rmqstore.broker.announcer import Announcer
from rmqstore.broker.handlers.admin import AdminRequests
from rmqstore.broker.handlers.cleaning import CleaningRequests
from rmqstore.broker.handlers.client_lists import ClientListRequests
from rmqstore.broker.handlers.cold_data import ColdDataRequests
from rmqstore.broker.handlers.groups import GroupRequests
from rmqstore.broker.handlers.metadata_answers import MetadataRequests
from rmqstore.broker.handlers.offsets import OffsetRequests
from rmqstore.broker.handlers.progress import ProgressRequests
from rmqstore.broker.handlers.queries import QueryRequests
from rmqstore.broker.handlers.questions import QuestionRequests
from rmqstore.broker.handlers.queue_units import QueueUnitRequests
from rmqstore.broker.handlers.recall import RecallRequests
from rmqstore.broker.handlers.refused import RefusedRequests
from rmqstore.broker.handlers.replication import ReplicationRequests
from rmqstore.broker.handlers.replies import ReplyRequests
from rmqstore.broker.handlers.runtime_info import RuntimeInfoRequests
from rmqstore.broker.handlers.send import SendRequests
from rmqstore.broker.handlers.send_back import SendBackRequests
from rmqstore.broker.handlers.statistics import StatisticsRequests
from rmqstore.broker.handlers.topics import TopicRequests
from rmqstore.broker.membership.controlled import ControlledMembership
from rmqstore.broker.membership.fixed import FixedMembership
from rmqstore.broker.membership.membership import Membership
from rmqstore.broker.membership.roles import Role, Standing
from rmqstore.broker.metadata.keeper import Metadata
from rmqstore.broker.metadata.shared_table import SharedTable
from rmqstore.broker.metrics import BrokerMetrics, Counts, node_labels
from rmqstore.broker.nameserver_link import NameserverLink
from rmqstore.broker.operations.send import SendOperation
from rmqstore.broker.operations.waiting import WaitingPlaces
from rmqstore.broker.parts import Parts
from rmqstore.broker.present_role import PresentRole
from rmqstore.broker.registration import Announcement
from rmqstore.broker.server_addresses import ServerAddresses
from rmqstore.broker.services.assignments import Assignments
from rmqstore.broker.services.broadcasts import BroadcastProgress
from rmqstore.broker.services.clients import Clients
from rmqstore.broker.services.delays import DelayedMessages
from rmqstore.broker.services.lags import GroupLags
from rmqstore.broker.services.locks import QueueLocks
from rmqstore.broker.services.metadata import MetadataCopies
from rmqstore.broker.services.pop_orders import PopOrders
from rmqstore.broker.services.pop_revive import PoppedMessages
from rmqstore.broker.services.pops import Pops
from rmqstore.broker.services.pulls import Pulls
from rmqstore.broker.services.services import Services
from rmqstore.broker.services.timers import TimerMessages
from rmqstore.broker.services.traffic import TrafficSamples
from rmqstore.broker.services.transactions import TransactionEnds
from rmqstore.broker.serving import Family as Requests
from rmqstore.broker.serving import merged
from rmqstore.broker.settings import Settings
from rmqstore.broker.traffic import Traffic
from rmqstore.broker.traffic_metrics import traffic_families
from rmqstore.config import BrokerConfig
from rmqstore.errors import RequestRefused
from rmqstore.net.addresses import Address
from rmqstore.net.metrics import Family
from rmqstore.net.runtime import Runtime
from rmqstore.net.supervisor import TaskFailure
from rmqstore.remoting.frames import Frame
from rmqstore.remoting.headers.registration import RegisterBrokerResponseHeader
from rmqstore.remoting.requests import Handler
from rmqstore.remoting.server import RemotingServer
from rmqstore.replication.group.status import Status
from rmqstore.replication.runtime.replica import Replica

__all__ = ["BrokerStatus", "OpenBroker"]


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
    troubles: Mapping[str, str]
    """By the name of a service, why it failed to start or to stop; such a call is repeated."""
    mixed_groups: tuple[str, ...]
    """The consumer groups whose members subscribe to different messages, and miss some of them."""


class OpenBroker:
    """The parts of one broker, from the opening of *store* to its close. `Broker` opens and closes
    them in their order."""

    def __init__(
        self,
        settings: Settings,
        parts: Parts,
        *,
        runtime: Runtime,
        store: AsyncStore,
        server: RemotingServer,
    ) -> None:
        self.runtime = runtime
        self.log = runtime.log
        self.store = store
        self._settings = settings
        self.parts = parts
        self.server = server
        self._tasks = runtime.tasks("broker")
        self.metrics = BrokerMetrics()
        self.in_progress: dict[str, int] = {}
        """Requests that wait for their results, by each family with a limit."""
        self.traffic = Traffic(runtime.now_ms() / 1000)
        """The counts of messages stored and sent."""
        self.replica: Replica | None = None
        """The replica of the store; None in controller mode until the id is known."""

        self.present_role = PresentRole(self._role_changed)
        self.metadata = Metadata(self)
        """Topics, groups and offsets."""
        self.announcer = Announcer(self)
        self.members: Mapping[int, str] = {}
        """The addresses of the living members of the group by id, as a nameserver knows them; only
        with enableSlaveActingMaster or lockInStrictMode."""
        self.addresses = ServerAddresses(self, lambda: self.nameservers.update())
        self.nameservers = NameserverLink(self)
        is_controlled = settings.config.is_controlled
        self.membership: Membership = (
            ControlledMembership(self) if is_controlled else FixedMembership(self)
        )
        """How the broker gets its role."""
        self.clients = Clients(self)
        """The clients that are online."""
        self.pulls = Pulls(self, self.clients.table)
        """Pulls, and those that wait for messages."""
        self._copies = MetadataCopies(self)
        delays = DelayedMessages(self)
        self._timers = TimerMessages(self, parts.timer_index, delays.progress)
        self.pop_orders = PopOrders(self)
        """What orderly consumers have popped."""
        waiting = WaitingPlaces(self, self._timers)
        self.services = Services(
            self,
            [
                self.clients,
                Assignments(self, self.clients.table),
                QueueLocks(self),
                self.pulls,
                self._copies,
                BroadcastProgress(runtime, self.pulls.broadcasts),
                delays,
                self._timers,
                TransactionEnds(self, self.clients.table, waiting),
                Pops(self, waiting, self.pop_orders.states),
                self.pop_orders,
                PoppedMessages(self, self._timers, waiting),
                TrafficSamples(self),
                GroupLags(self),
            ],
            on_begun=self.registration_due,
        )

    def handlers(self) -> Mapping[int, Handler]:
        """Return the handler of each request code."""
        send = SendOperation(self, self._timers)
        families: list[Requests] = [
            MetadataRequests(self),
            TopicRequests(self, self.clients.table),
            GroupRequests(self),
            OffsetRequests(self, self.clients.table),
            AdminRequests(self),
            ClientListRequests(self, self.clients.table),
            QuestionRequests(self, self.clients.table),
            ProgressRequests(self, self.clients.table),
            CleaningRequests(self),
            QueueUnitRequests(self, self.clients.table),
            ColdDataRequests(),
            RuntimeInfoRequests(self, self._timers),
            StatisticsRequests(self),
            ReplicationRequests(self),
            SendRequests(send),
            RecallRequests(self, send),
            SendBackRequests(self),
            ReplyRequests(self, self.clients.table),
            QueryRequests(self),
            RefusedRequests(self),
        ]
        return merged([*families, *self.services.all])

    @property
    def service_tables(self) -> Sequence[SharedTable]:
        """The tables of the services, which slaves copy."""
        return [table for service in self.services.all for table in service.tables()]

    # ---- the replica and the role

    async def open_replica(self, broker_id: int, **options: Any) -> Replica:
        """Open the replica of the store under its id, with further *options* of `Replica`."""
        assert self.replica is None, "a broker has one replica"
        config = self.config
        self.replica = await self.parts.replica(
            self.store.store,
            broker_id=broker_id,
            listen=(config.bind_address, config.replica.ha_listen_port),
            protocol="autoswitch" if config.is_controlled else "classic",
            # A member may be elected, and consumers would then miss what it lacks.
            learns_while_partial=config.is_controlled,
            **options,
        ).open()
        return self.replica

    async def close_replica(self) -> None:
        """Close the replica, if it is open."""
        if self.replica is not None:
            await self.replica.close()

    @property
    def role(self) -> Role:
        """The present role."""
        return self.present_role.role

    def set_role(self, role: Role) -> None:
        """Make *role* the present role: clients are served in it from now on."""
        self.present_role.take(role)

    async def former_services_stopped(self) -> None:
        """Return when no service of a former role acts any more, at the latest after 3 s."""
        await self.services.stopped()

    def _role_changed(self, role: Role) -> None:
        self.metadata.take_role(role)
        self.services.take(role)
        self.log.info("role: %s", role)
        self.registration_due()

    # ---- what handlers and links use

    @property
    def config(self) -> BrokerConfig:
        """The present settings."""
        return self._settings.config

    @property
    def address(self) -> Address:
        """Host and port that clients connect to."""
        return self._settings.address

    @property
    def ha_address(self) -> Address | None:
        """Host and port that slaves connect to; None without a replica."""
        if self.replica is None or self.replica.address is None:
            return None
        host = self.config.replica.ha_host_address or self.config.host
        return host, self.replica.address[1]

    @property
    def nameserver_addresses(self) -> tuple[str, ...]:
        """The nameservers, as "host:port"; looked up with fetchNameSrvAddrByDnsLookup."""
        return self.addresses.nameservers

    @property
    def controller_addresses(self) -> tuple[str, ...]:
        """The controllers, as "host:port"; looked up with fetchControllerAddrByDnsLookup."""
        return self.addresses.controllers

    @property
    def held_bytes(self) -> int:
        """Bytes that the connections of clients hold: frames that are incomplete, not answered, or
        not read."""
        return self.server.status().held_bytes

    def wall_ms(self) -> int:
        """Return the time of the wall clock."""
        return self.runtime.wall_ms()

    def now_ms(self) -> int:
        """Return the time of the monotonic clock."""
        return self.runtime.now_ms()

    async def call(self, address: str | Address, frame: Frame, timeout: float) -> Frame:
        """Return the answer to a request of this broker; raises as `RemotingClient.call`."""
        return await self.runtime.client.call(address, frame, timeout)

    @property
    def metadata_trouble(self) -> str:
        """Why the master of this slave gives no metadata; empty where it does."""
        return self._copies.trouble

    async def configure(self, changes: Mapping[str, str]) -> None:
        """Change settings by RocketMQ key, first in the file. Raises as `Settings.change`."""
        await self._settings.change(changes)
        self.log.info("configuration changed: %s", ", ".join(sorted(changes)))
        self.addresses.update()
        self.nameservers.update()
        self.registration_due()
        self.membership.configured()

    # ---- nameservers

    def registration_due(self) -> None:
        """Register at the nameservers soon: the topics, or the role, have changed."""
        self.nameservers.due()

    async def registered(self) -> None:
        """Return when every nameserver that answers has the present state of this broker."""
        await self.services.begun()
        await self.nameservers.registered()

    def announcement(self) -> Announcement | None:
        """Return the registration for nameservers; None while the role is not known."""
        return self.announcer.announcement()

    @property
    def announced_until_ms(self) -> int | None:
        """The end of this master's lease unless it is renewed; None without a lease."""
        return self.announcer.until_ms

    @property
    def is_leading(self) -> bool:
        """Whether this is the master, and no other one can have been elected."""
        return self.announcer.is_leading

    @property
    def is_shown_as_master(self) -> bool:
        """Whether routes name this broker as the master, read-only, although it is a slave."""
        return self.announcer.is_shown_as_master

    @property
    def is_hidden(self) -> bool:
        """Whether nameservers must not know this broker: another may be the master, or the services
        of its role have not begun."""
        return self.membership.is_hidden or not self.services.has_begun

    @property
    def awaits_master(self) -> bool:
        """Whether this is a slave that no nameserver has named its master to."""
        role = self.role
        return role.standing is Standing.FOLLOWING and role.master_address is None

    def learn_master(self, answer: RegisterBrokerResponseHeader) -> None:
        """Take the master that a nameserver names."""
        self.membership.learn_master(answer)

    def learn_order_topics(self, topics: Collection[str]) -> None:
        """Have topics as ordered ones that nameservers have an order configuration of. Slaves take
        them from their master."""
        known = (self.metadata.topic(name) for name in topics)
        if self.is_leading and any(each is not None and not each.order for each in known):
            self._tasks.start(self._order(tuple(topics)), name="ordered topics")

    async def _order(self, topics: tuple[str, ...]) -> None:
        try:
            await self.metadata.order_topics(topics)
        except RequestRefused as error:
            self.log.warning("ordered topics: %s", error)

    def learn_members(self, members: Mapping[int, str]) -> None:
        """Take the addresses of the living replicas of the group by id, this one included."""
        self.members = members
        if self.config.replica.acting_master_enable:
            self.announcer.learn_members(members.keys())

    # ---- state

    async def close_tasks(self) -> None:
        """End the work that requests began."""
        await self._tasks.close()

    def status(self) -> BrokerStatus:
        """Return the present state of the broker."""
        server = self.server.status()
        return BrokerStatus(
            cluster_name=self.config.cluster_name,
            name=self.config.name,
            address=self.address,
            role=self.role,
            replica=None if self.replica is None else self.replica.status(),
            nameservers=self.nameservers.states,
            connections=server.connections,
            task_failures=(*self._tasks.failures, *server.task_failures),
            troubles=self.services.troubles,
            mixed_groups=self.clients.table.mixed_groups,
        )

    def families(self) -> Iterator[Family]:
        """Yield the present metrics."""
        status, server = self.status(), self.server.status()
        node = node_labels(self.config)
        counts = Counts(
            permission=self.config.permission,
            topics=len(self.metadata.tables.topics),
            groups=len(self.metadata.tables.groups),
            dispatched_offset=self.store.store.dispatched_offset,
            connections=status.connections,
            in_progress=self.in_progress,
            refused_connections=server.refused_connections,
            absent_nameservers=sum(map(bool, status.nameservers.values())),
            task_failures=len(status.task_failures),
            failing_services=len(status.troubles),
        )
        yield from self.metrics.families(node, counts, status.role, status.replica)
        yield from traffic_families(self.traffic.statistics, node)
        yield from self.services.metrics()
