"""The live brokers: groups of brokers with one name, and the end of their membership.

A member is a broker at an address under an id. It is alive while heartbeats or registrations
arrive within its timeout and the connection that carried the newest of them is open. Connections
have numbers in the order of acceptance, so a late request over an earlier connection than the
present one is recognised.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field

from rmqstore.data_version import DataVersion
from rmqstore.remoting.bodies.route import MASTER_ID, BrokerData, QueueData

__all__ = ["TIMEOUT_MS", "Clock", "Group", "Member", "Members"]

TIMEOUT_MS = 120_000
"""Timeout of a broker that announces no timeout: the time without a heartbeat or registration."""


@dataclass(slots=True, eq=False)
class Member:
    """A live broker."""

    group: str
    cluster: str
    broker_id: int
    address: str
    ha_address: str
    version: DataVersion
    """The version of its topics in its last registration."""
    zone: str | None
    acting_master: bool
    """Whether the broker may act for its master, or a slave for it."""
    filter_servers: tuple[str, ...]
    timeout_ms: int
    seen_ms: int
    connection: int
    """The newest connection that carried a request of this broker."""
    taken: tuple[DataVersion, bool] | None = None
    """The version of the topics that were taken from the broker in its present role, and whether
    they lost the write permission. None: no topics were taken."""

    @property
    def is_master(self) -> bool:
        return self.broker_id == MASTER_ID


@dataclass(slots=True, eq=False)
class Group:
    """The members of one broker name.

    Cluster, zone and acting-master flag of the group are those of the member with the smallest id:
    that member is the master, or would act for it.
    """

    name: str
    members: dict[int, Member] = field(default_factory=dict)
    topics: dict[str, int] = field(default_factory=dict)
    """The topics that have queues on this group, and the time when a registration last named
    each."""
    taken_ms: int = 0
    """The time of the newest registration whose topics were taken."""
    registered: dict[str, QueueData] = field(default_factory=dict)
    """The queues as registered, of topics whose queues an operator changed afterwards."""
    queues: dict[QueueData, QueueData] = field(default_factory=dict)
    """Each value of the group's queues once: most topics share equal values."""
    _data: dict[bool, BrokerData] = field(default_factory=dict)

    @property
    def smallest(self) -> Member:
        """The member with the smallest id."""
        return self.members[min(self.members)]

    @property
    def master(self) -> Member | None:
        return self.members.get(MASTER_ID)

    @property
    def is_acting_master_enabled(self) -> bool:
        return self.smallest.acting_master

    @property
    def addresses(self) -> dict[int, str]:
        """Addresses by broker id, ascending."""
        return {each: self.members[each].address for each in sorted(self.members)}

    def at(self, address: str) -> Member | None:
        """Return the member at *address*."""
        return next((each for each in self.members.values() if each.address == address), None)

    def in_other_cluster(self, cluster: str, address: str) -> Member | None:
        """Return a member that is neither in *cluster* nor at *address*."""
        others = (each for each in self.members.values() if each.address != address)
        return next((each for each in others if each.cluster != cluster), None)

    def data(self, *, with_acting_master: bool = False) -> BrokerData:
        """Return the group as routes show it.

        *with_acting_master* shows the smallest id as the master's id. The value is kept until
        `changed` is called.
        """
        if with_acting_master not in self._data:
            first = self.smallest
            addresses = self.addresses
            if with_acting_master:
                addresses = {MASTER_ID: addresses.pop(first.broker_id), **addresses}
            self._data[with_acting_master] = BrokerData(
                self.name, first.cluster, addresses, first.acting_master, first.zone
            )
        return self._data[with_acting_master]

    def changed(self) -> None:
        """Drop the values that `data` keeps: members were added, removed or replaced."""
        self._data.clear()


class Clock:
    """The time that counts for the expiry of members, from a monotonic clock.

    While the process is stopped, or its machine is suspended, heartbeats wait in its sockets and
    the clock goes on. Therefore at most twice the scan interval counts between two scans.
    """

    def __init__(self, interval_ms: int) -> None:
        self.interval_ms = interval_ms
        self._scanned_ms: int | None = None
        self._not_counted_ms = 0

    def read(self, now_ms: int) -> int:
        """Return the counted time at *now_ms*, which is never above that of the next scan."""
        if self._scanned_ms is not None:
            now_ms = min(now_ms, self._scanned_ms + 2 * self.interval_ms)
        return now_ms - self._not_counted_ms

    def scan(self, now_ms: int) -> int:
        """Return the counted time of a scan at *now_ms*."""
        if self._scanned_ms is not None:
            late_ms = now_ms - self._scanned_ms - 2 * self.interval_ms
            self._not_counted_ms += max(0, late_ms)
        self._scanned_ms = now_ms
        return self.read(now_ms)


class Members:
    """All groups by name, and the members of each connection."""

    def __init__(self) -> None:
        self.groups: dict[str, Group] = {}
        self._by_connection: dict[int, set[Member]] = {}

    def __iter__(self) -> Iterator[Member]:
        return (member for group in self.groups.values() for member in group.members.values())

    def find(self, name: str, address: str) -> Member | None:
        """Return the member of group *name* at *address*."""
        group = self.groups.get(name)
        return None if group is None else group.at(address)

    def of_connection(self, connection: int) -> frozenset[Member]:
        """Return the members whose newest request came over *connection*."""
        return frozenset(self._by_connection.get(connection, ()))

    def add(self, member: Member) -> Group:
        """Add a member; it replaces the member with its id and the member at its address."""
        group = self.groups.setdefault(member.group, Group(member.group))
        held = group.members.get(member.broker_id)
        moved = group.at(member.address)
        for replaced in {held, moved} - {None}:
            assert replaced is not None
            self._drop(group, replaced)

        group.members[member.broker_id] = member
        self._by_connection.setdefault(member.connection, set()).add(member)
        group.changed()
        return group

    def remove(self, members: Iterable[Member]) -> dict[Group, Member]:
        """Remove members; return every group that lost members, with its previous smallest member.

        A group without members is no longer in `groups`.
        """
        reduced: dict[Group, Member] = {}
        for member in members:
            group = self.groups[member.group]
            reduced.setdefault(group, group.smallest)
            self._drop(group, member)
        for group in reduced:
            group.changed()
            if not group.members:
                del self.groups[group.name]
        return reduced

    def seen(self, member: Member, *, connection: int, time_ms: int) -> None:
        """Record a sign of life that arrived over *connection*."""
        member.seen_ms = max(member.seen_ms, time_ms)
        if connection > member.connection:
            self._remove_connection(member)
            member.connection = connection
            self._by_connection.setdefault(connection, set()).add(member)

    def expired(self, time_ms: int) -> list[Member]:
        """Return the members that gave no sign of life within their timeout."""
        return [member for member in self if member.seen_ms + member.timeout_ms < time_ms]

    def clusters(self) -> Mapping[str, list[str]]:
        """Return the names of each cluster's groups."""
        clusters: dict[str, list[str]] = {}
        for group in self.groups.values():
            clusters.setdefault(group.smallest.cluster, []).append(group.name)
        return clusters

    def _drop(self, group: Group, member: Member) -> None:
        del group.members[member.broker_id]
        self._remove_connection(member)

    def _remove_connection(self, member: Member) -> None:
        members = self._by_connection[member.connection]
        members.discard(member)
        if not members:
            del self._by_connection[member.connection]
