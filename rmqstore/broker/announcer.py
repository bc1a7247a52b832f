"""What nameservers are to know of a broker, and whether it may act as the master now."""

from __future__ import annotations

from collections.abc import Collection
from typing import Protocol

from rmqstore.broker.membership.membership import Membership
from rmqstore.broker.membership.roles import Role, Standing
from rmqstore.broker.metadata.keeper import Metadata
from rmqstore.broker.registration import (
    Announcement,
    announced_id,
    announced_until_ms,
    bodies_of,
)
from rmqstore.config import BrokerConfig
from rmqstore.net.addresses import Address, format_address
from rmqstore.net.runtime import Runtime
from rmqstore.permissions import PERM_WRITE
from rmqstore.replication.runtime.replica import Replica

__all__ = ["Announcer", "Host"]


class Host(Protocol):
    """The part of a broker that is announced."""

    @property
    def config(self) -> BrokerConfig:
        """The present settings."""

    @property
    def runtime(self) -> Runtime:
        """The world of the broker."""

    @property
    def role(self) -> Role:
        """The present role."""

    @property
    def replica(self) -> Replica | None:
        """The replica of the store; None until the id is known."""

    @property
    def membership(self) -> Membership:
        """How the broker gets its role."""

    @property
    def metadata(self) -> Metadata:
        """Topics, groups and offsets."""

    @property
    def address(self) -> Address:
        """Where clients connect."""

    @property
    def ha_address(self) -> Address | None:
        """Where slaves connect; None without a replica."""

    @property
    def is_hidden(self) -> bool:
        """Whether nameservers must not know this broker: another may be the master, or its services
        have not begun."""


class Announcer:
    """Derives the announcement of *host* from its role, its lease and its topics."""

    def __init__(self, host: Host) -> None:
        self._host = host
        self._bodies: tuple[object, tuple[bytes, bytes]] | None = None
        """What nameservers get of the topics, and the version and permission that it is of."""
        self._members: frozenset[int] = frozenset()
        """Ids of the living replicas by a nameserver, with enableSlaveActingMaster; the last that
        were known."""

    def announcement(self) -> Announcement | None:
        """Return the registration for nameservers; None while the role is not known."""
        host, config = self._host, self._host.config
        ha_address, until_ms = host.ha_address, self.until_ms
        broker_id = announced_id(host.role, lease_end_ms=until_ms, now_ms=host.runtime.now_ms())
        if ha_address is None or broker_id is None or host.is_hidden:
            return None

        topics = host.metadata.tables.topic_table()
        permission = config.permission
        if host.role.waits_for:
            permission &= ~PERM_WRITE
        known = topics.data_version, permission
        if self._bodies is None or self._bodies[0] != known:
            self._bodies = known, bodies_of(topics, permission=permission)
        body, version = self._bodies[1]

        is_acting = config.replica.acting_master_enable
        return Announcement(
            cluster_name=config.cluster_name,
            name=config.name,
            broker_id=broker_id,
            address=format_address(host.address),
            ha_address=format_address(ha_address),
            acting_master=is_acting,
            timeout_ms=config.not_active_timeout_ms if is_acting else None,
            body=body,
            version=version,
        )

    @property
    def until_ms(self) -> int | None:
        """The end of this master's lease unless it is renewed; None without a lease."""
        role, membership = self._host.role, self._host.membership
        lease_end_ms = membership.lease_end_ms
        return announced_until_ms(role, leads=membership.leads, lease_end_ms=lease_end_ms)

    @property
    def is_leading(self) -> bool:
        """Whether this is the master, and no other one can have been elected."""
        if self._host.role.standing is not Standing.LEADING:
            return False
        until_ms = self.until_ms
        return until_ms is None or self._host.runtime.now_ms() < until_ms

    @property
    def is_shown_as_master(self) -> bool:
        """Whether routes name this broker as the master, read-only, although it is a slave."""
        role = self._host.role
        if role.standing is Standing.STANDING_IN:
            return True
        is_slave = self.acts_as_master and role.standing is Standing.FOLLOWING
        return is_slave and min(self._members, default=0) == role.broker_id

    @property
    def acts_as_master(self) -> bool:
        """Whether a slave of this group may stand in for a fixed master."""
        config = self._host.config
        return config.replica.acting_master_enable and not config.is_controlled

    def learn_members(self, ids: Collection[int]) -> None:
        """Take the ids of the living replicas of the group, this one included."""
        self._members = frozenset(ids)
        if self._host.replica is not None:
            self._host.replica.set_alive_replicas(len(ids))
