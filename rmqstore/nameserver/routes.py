"""The route table: the brokers that have queues of a topic, and their addresses.

The table is pure. Every request that changes it returns effects for the caller to apply:
notifications to send and connections to close. A refused request changes nothing.
(RocketMQ: RouteInfoManager.)
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from typing import Any

from rmqstore.data_version import DataVersion
from rmqstore.nameserver.members import TIMEOUT_MS, Clock, Group, Member, Members
from rmqstore.permissions import PERM_READ_WRITE, PERM_WRITE
from rmqstore.remoting.bodies.cluster import BrokerMemberGroup, ClusterInfo
from rmqstore.remoting.bodies.registration import RegisterBrokerBody
from rmqstore.remoting.bodies.route import (
    MASTER_ID,
    BrokerData,
    QueueData,
    TopicRoute,
)
from rmqstore.remoting.bodies.tables import TopicList
from rmqstore.remoting.bodies.topic_config import (
    TOPIC_UNIT,
    TOPIC_UNIT_SUB,
    TopicConfig,
    TopicTable,
)

__all__ = [
    "SYNC_MEMBER_TOPIC_PREFIX",
    "CloseConnection",
    "Effect",
    "NotifyMinBrokerId",
    "Refused",
    "Registered",
    "Registration",
    "RouteOptions",
    "RouteTable",
]

SYNC_MEMBER_TOPIC_PREFIX = "rmq_sys_SYNC_BROKER_MEMBER_"
"""Brokers read their group from the routes of these topics, which always show the real ids."""

_UNNAMED_MS = 120_000
"""Time after which a topic that no registration names is removed: two of the longest registration
periods. A registration may be one of several batches, and nothing marks it as such."""


@dataclass(frozen=True, slots=True)
class RouteOptions:
    """The settings of a route table."""

    acting_master: bool = False
    """Show the smallest live id as the master while no master is alive (supportActingMaster)."""
    notify_min_broker_id: bool = False
    """Notify brokers of a new smallest id (notifyMinBrokerIdChanged)."""
    delete_topics: bool = False
    """Remove topics that registrations no longer name (deleteTopicWithBrokerRegistration)."""
    scan_interval_ms: int = 5000


@dataclass(frozen=True, slots=True)
class Registration:
    """The header of a REGISTER_BROKER request."""

    cluster: str
    name: str
    broker_id: int
    address: str
    ha_address: str = ""
    zone: str | None = None
    timeout_ms: int | None = None
    """Time without a heartbeat after which the broker expires; None for TIMEOUT_MS."""
    acting_master: bool | None = None
    """None from a broker before 5.0; the topics of such a slave are never taken."""


@dataclass(frozen=True, slots=True)
class NotifyMinBrokerId:
    """Send NOTIFY_MIN_BROKER_ID_CHANGE to *recipients*."""

    recipients: tuple[str, ...]
    min_broker_id: int
    min_address: str
    offline_address: str | None
    """The address of the smallest member that is gone, None when a smaller member joined."""
    ha_address: str | None
    """The address at which the new smallest member serves slaves, None when the smallest is
    gone."""


@dataclass(frozen=True, slots=True)
class CloseConnection:
    """Close a connection whose brokers have all expired."""

    connection: int


Effect = NotifyMinBrokerId | CloseConnection


@dataclass(frozen=True, slots=True)
class Registered:
    """A registration that was accepted, with the live master of a slave."""

    master_address: str | None = None
    ha_address: str | None = None
    effects: tuple[Effect, ...] = ()


@dataclass(frozen=True, slots=True)
class Refused:
    """A registration that was refused; the table is unchanged."""

    reason: str


class RouteTable:
    """Brokers, topics and routes. Every *now_ms* is a reading of one monotonic clock."""

    def __init__(self, options: RouteOptions = RouteOptions()) -> None:
        self.options = options
        self._members = Members()
        self._clock = Clock(options.scan_interval_ms)
        self._topics: dict[str, dict[str, QueueData]] = {}
        self._mappings: dict[str, dict[str, Any]] = {}

    def configure(self, options: RouteOptions) -> None:
        """Replace the options."""
        self.options = options
        self._clock.interval_ms = options.scan_interval_ms

    # -- Brokers.

    def register(
        self,
        registration: Registration,
        body: RegisterBrokerBody,
        *,
        connection: int,
        now_ms: int,
    ) -> Registered | Refused:
        """Add or update a broker."""
        refused = self._refuse(registration, body.table, connection=connection)
        if refused is not None:
            return refused

        known = self._members.groups.get(registration.name)
        smallest_id = min(known.members) if known else MASTER_ID
        held = known.members.get(registration.broker_id) if known else None
        is_same = held is not None and held.address == registration.address
        member = Member(
            registration.name,
            registration.cluster,
            registration.broker_id,
            registration.address,
            registration.ha_address,
            body.table.version,
            registration.zone,
            bool(registration.acting_master),
            _filter_servers(body, held if is_same else None),
            TIMEOUT_MS if registration.timeout_ms is None else registration.timeout_ms,
            self._clock.read(now_ms),
            connection,
            held.taken if held is not None and is_same else None,
        )
        group = self._members.add(member)
        is_since_5 = registration.acting_master is not None
        if member.is_master or (is_since_5 and member is group.smallest):
            self._take(group, member, body.table)

        effects: tuple[Effect, ...] = ()
        if member.broker_id < smallest_id and self.options.notify_min_broker_id:
            effects = (_smaller_came(group),)
        master = group.master
        if master is None or master is member:
            return Registered(effects=effects)
        return Registered(master.address, master.ha_address, effects)

    def unregister(self, name: str, address: str, *, connection: int) -> tuple[Effect, ...]:
        """Remove the broker at *address*, unless it has used a later connection."""
        member = self._members.find(name, address)
        if member is None or connection < member.connection:
            return ()
        return self._remove([member])

    def connection_closed(self, connection: int) -> tuple[Effect, ...]:
        """Remove the brokers whose newest request came over *connection*."""
        return self._remove(self._members.of_connection(connection))

    def expire(self, now_ms: int) -> tuple[Effect, ...]:
        """Remove the brokers that gave no sign of life within their timeout. To be called every
        scan_interval_ms."""
        expired = self._members.expired(self._clock.scan(now_ms))
        effects = self._remove(expired)
        connections = sorted({member.connection for member in expired})
        # One process may register several brokers over one connection; the others stay alive.
        unused = [each for each in connections if not self._members.of_connection(each)]
        return (*effects, *map(CloseConnection, unused))

    def heartbeat(self, name: str, address: str, *, connection: int, now_ms: int) -> bool:
        """Record a sign of life; return whether the broker is known."""
        member = self._members.find(name, address)
        if member is None:
            return False
        self._members.seen(member, connection=connection, time_ms=self._clock.read(now_ms))
        return True

    def version(self, name: str, address: str) -> DataVersion | None:
        """Return the version in a broker's registration, None for an unknown broker."""
        member = self._members.find(name, address)
        return None if member is None else member.version

    def member_group(self, cluster: str, name: str) -> BrokerMemberGroup:
        """Return the live brokers of a name; empty for an unknown name. *cluster* is not
        compared."""
        group = self._members.groups.get(name)
        return BrokerMemberGroup(cluster, name, {} if group is None else group.addresses)

    def cluster_info(self) -> ClusterInfo:
        """Return all live brokers."""
        groups = self._members.groups
        return ClusterInfo(
            {name: group.data() for name, group in groups.items()}, self._members.clusters()
        )

    # -- Topics.

    def register_topic(self, topic: str, queues: Sequence[QueueData]) -> bool:
        """Add queues of a topic. Returns False, and adds nothing, if a broker is unknown."""
        groups = self._members.groups
        if not queues or any(queue.broker_name not in groups for queue in queues):
            return False
        for queue in queues:
            self._change(groups[queue.broker_name], topic, queue)
        return True

    def delete_topic(self, topic: str, *, cluster: str | None = None) -> None:
        """Remove a topic, from the brokers of one cluster only where *cluster* is given."""
        names = list(self._topics.get(topic, ()))
        for name in names:
            group = self._members.groups[name]
            if not cluster or group.smallest.cluster == cluster:
                self._delete(group, topic)
        if topic not in self._topics:
            self._mappings.pop(topic, None)

    def wipe_write_permission(self, name: str) -> int:
        """Clear the write bit of all topics of a broker name; return their number.

        It stays until the broker registers the topic with another version or configuration.
        """
        return self._set_permissions(name, _without_write)

    def add_write_permission(self, name: str) -> int:
        """Set the permission of all topics of a broker name to read and write; return their
        number."""
        return self._set_permissions(name, lambda perm: PERM_READ_WRITE)

    def topics(self) -> TopicList:
        """Return the names of all topics."""
        return TopicList(tuple(self._topics))

    def topics_of_cluster(self, cluster: str) -> TopicList:
        """Return the names of the topics with queues in a cluster."""
        topics: dict[str, None] = {}
        for group in self._members.groups.values():
            if group.smallest.cluster == cluster:
                topics.update(dict.fromkeys(sorted(group.topics)))
        return TopicList(tuple(topics))

    def system_topics(self) -> TopicList:
        """Return the topics that every broker has by default (the names of clusters and brokers),
        and the address of any broker."""
        topics: list[str] = []
        for cluster, names in self._members.clusters().items():
            topics += [cluster, *names]
        first = next(iter(self._members.groups.values()), None)
        return TopicList(tuple(topics), None if first is None else first.smallest.address)

    def unit_topics(self, *, unit: bool | None, unit_sub: bool | None) -> TopicList:
        """Return the topics with these flags of unit mode; None matches either value."""
        flags = [
            (flag, is_set) for flag, is_set in ((TOPIC_UNIT, unit), (TOPIC_UNIT_SUB, unit_sub))
        ]
        topics = [
            topic
            for topic, queues in self._topics.items()
            if all(
                is_set is None or bool(next(iter(queues.values())).sys_flag & flag) == is_set
                for flag, is_set in flags
            )
        ]
        return TopicList(tuple(topics))

    def route(self, topic: str, *, zone: str | None = None) -> TopicRoute | None:
        """Return the route of a topic, None for an unknown one.

        With *zone* the route has the groups of that zone, compared without letter case, and the
        groups without a master.
        """
        queues = self._topics.get(topic)
        if queues is None:
            return None
        is_rewritten = self.options.acting_master and not topic.startswith(SYNC_MEMBER_TOPIC_PREFIX)
        brokers: list[BrokerData] = []
        shown: list[QueueData] = []
        filter_servers: dict[str, Sequence[str]] = {}
        for name, queue in queues.items():
            group = self._members.groups[name]
            data = group.data(
                with_acting_master=is_rewritten
                and group.master is None
                and group.is_acting_master_enabled
                and not queue.perm & PERM_WRITE
            )
            is_elsewhere = zone is not None and (data.zone or "").lower() != zone.lower()
            if is_elsewhere and MASTER_ID in data.addresses:
                continue
            brokers.append(data)
            shown.append(queue)
            for member in group.members.values():
                if member.filter_servers:
                    filter_servers[member.address] = member.filter_servers
        return TopicRoute(brokers, shown, filter_servers, mappings=self._mappings.get(topic))

    # -- Steps of registration and removal.

    def _refuse(
        self, registration: Registration, table: TopicTable, *, connection: int
    ) -> Refused | None:
        name, broker_id = registration.name, registration.broker_id
        group = self._members.groups.get(name)
        held = group.members.get(broker_id) if group else None
        version = table.version
        stranger = (
            group.in_other_cluster(registration.cluster, registration.address) if group else None
        )
        if stranger is not None:
            return Refused(
                f"register broker failed: the name {name} of a broker in cluster "
                f"{registration.cluster} is in use by cluster {stranger.cluster} at "
                f"{stranger.address}; choose another name"
            )
        if held is None:
            # One topic is a change, which must not precede the whole table.
            if len(table.topics) == 1:
                return Refused(
                    f"register broker failed: broker {name}:{broker_id} is not registered and "
                    "sends 1 topic, which is a change of its topics; register all topics first"
                )
        elif held.address != registration.address:
            if held.version.state_version > version.state_version:
                return Refused(
                    f"register broker failed: broker {name}:{broker_id} is alive at {held.address} "
                    f"with state version {held.version.state_version}, above "
                    f"{version.state_version} of {registration.address}; stop one of the two"
                )

        present = group.at(registration.address) if group else None
        if present is not None and connection < present.connection:
            if version.order <= present.version.order:
                return Refused(
                    f"register broker failed: {name} at {present.address} has used a later "
                    "connection, so this registration is outdated; register again"
                )
        return None

    def _take(self, group: Group, member: Member, table: TopicTable) -> None:
        """Takes the topics of a master, or of the slave with the smallest id.

        A registration may be one of several batches with one version. So each topic is compared
        with its own last registration.
        """
        is_read_only = not member.is_master and member.acting_master
        is_changed = member.taken != (table.version, is_read_only)
        if member.taken is None:
            group.registered.clear()
        member.taken = (table.version, is_read_only)
        now_ms = member.seen_ms
        if now_ms - group.taken_ms > _UNNAMED_MS:
            # After a pause the first batch must not remove the topics of the others.
            group.topics = dict.fromkeys(group.topics, now_ms)
        group.taken_ms = now_ms

        for config in table.topics.values():
            perm = _without_write(config.perm) if is_read_only else config.perm
            held = self._registered(group, config.name)
            group.topics[config.name] = now_ms
            is_restored = is_changed and config.name in group.registered
            if held is None or is_restored or not _is_of(held, config, perm):
                self._put(group, config.name, _queue(group.name, config, perm))
        for topic, mapping in table.mappings.items():
            self._mappings.setdefault(topic, {})[str(mapping.get("bname"))] = mapping

        if self.options.delete_topics and not table.mappings:
            topics = group.topics.items()
            for topic in [each for each, ms in topics if now_ms - ms > _UNNAMED_MS]:
                self._delete(group, topic)

    def _remove(self, members: Iterable[Member]) -> tuple[Effect, ...]:
        effects: list[Effect] = []
        for group, smallest in self._members.remove(members).items():
            if not group.members:
                for topic in list(group.topics):
                    self._delete(group, topic)
                continue
            if not group.is_acting_master_enabled:
                continue
            if group.master is None:
                for topic in group.topics:
                    queue = self._topics[topic][group.name]
                    self._put(group, topic, replace(queue, perm=_without_write(queue.perm)))
            if group.smallest is not smallest and self.options.notify_min_broker_id:
                effects.append(_smallest_gone(group, smallest))
        return tuple(effects)

    def _set_permissions(self, name: str, change: Callable[[int], int]) -> int:
        group = self._members.groups.get(name)
        if group is None:
            return 0
        for topic in group.topics:
            queue = self._topics[topic][name]
            perm = change(queue.perm)
            if perm != queue.perm:
                self._change(group, topic, replace(queue, perm=perm))
        return len(group.topics)

    def _registered(self, group: Group, topic: str) -> QueueData | None:
        """Returns the queues of a topic as the group last registered them."""
        return group.registered.get(topic) or self._topics.get(topic, {}).get(group.name)

    def _change(self, group: Group, topic: str, queue: QueueData) -> None:
        """Replaces the queues of a topic until the group registers others."""
        registered = self._registered(group, topic)
        self._put(group, topic, queue)
        if registered is not None:
            group.registered[topic] = registered

    def _put(self, group: Group, topic: str, queue: QueueData) -> None:
        queue = group.queues.setdefault(queue, queue)
        self._topics.setdefault(topic, {})[group.name] = queue
        if topic not in group.topics:
            group.topics[topic] = group.smallest.seen_ms
        group.registered.pop(topic, None)

    def _delete(self, group: Group, topic: str) -> None:
        group.topics.pop(topic, None)
        group.registered.pop(topic, None)
        queues = self._topics[topic]
        del queues[group.name]
        if not queues:
            del self._topics[topic]


def _without_write(perm: int) -> int:
    return perm & ~PERM_WRITE


def _queue(name: str, config: TopicConfig, perm: int) -> QueueData:
    return QueueData(name, config.read_queues, config.write_queues, perm, config.sys_flag)


def _is_of(queue: QueueData, config: TopicConfig, perm: int) -> bool:
    """Whether *queue* is that of *config*; a new value costs more than the comparison."""
    return (queue.read_queues, queue.write_queues, queue.perm, queue.sys_flag) == (
        config.read_queues,
        config.write_queues,
        perm,
        config.sys_flag,
    )


def _filter_servers(body: RegisterBrokerBody, held: Member | None) -> tuple[str, ...]:
    if body.filter_servers is not None:
        return body.filter_servers
    return () if held is None else held.filter_servers


def _smaller_came(group: Group) -> NotifyMinBrokerId:
    """The notification to all other members, or to the new smallest if it is the only member."""
    first = group.smallest
    addresses = tuple(group.addresses.values())
    recipients = addresses[1:] or addresses
    return NotifyMinBrokerId(recipients, first.broker_id, first.address, None, first.ha_address)


def _smallest_gone(group: Group, gone: Member) -> NotifyMinBrokerId:
    first = group.smallest
    recipients = tuple(group.addresses.values())
    return NotifyMinBrokerId(recipients, first.broker_id, first.address, gone.address, None)
