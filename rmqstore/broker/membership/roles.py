"""The role of a broker in its group."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass, replace
from enum import Enum, auto
from typing import Literal

from rmqstore.broker.membership.orders import RoleOrder
from rmqstore.net.addresses import Address, format_address, parse_address

__all__ = ["Role", "Standing", "role_by", "role_during", "role_with"]


class Standing(Enum):
    """What a broker does in its group."""

    NONE = auto()
    """Its role is not known: it serves no clients."""
    FOLLOWING = auto()
    """It copies the log of the master."""
    STANDING_IN = auto()
    """It serves reads under the id of the master, while no master leads."""
    LEADING = auto()
    """It is the master."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Role:
    """What a broker is in its group, from one change to the next."""

    name: Literal["master", "slave"] | None = None
    """None until the role is known; such a broker serves no clients."""
    broker_id: int = -1
    """The id that the file or the controller assigned, -1 for none; in controller mode a master
    keeps it."""
    epoch: int = -1
    """The epoch of the master in controller mode; -1 where none is known."""
    master_address: Address | None = None
    """Where the broker that is master serves clients, as far as it is known."""
    members: frozenset[int] = frozenset()
    """The sync-state set of the group; empty without a controller."""
    set_epoch: int = 0
    """The version of that set."""
    other_places: tuple[Address, ...] = ()
    """Where to try the master's port for clients if master_address does not answer."""
    is_searching: bool = False
    """Whether a broker without a role registers at nameservers, as a slave: their answer names the
    HA address of its master, whose address for clients does not answer."""
    waits_for: str = ""
    """Why the broker that its file makes the master does not lead: it serves reads, as a slave
    without a master, and nameservers know it by the id of the master. "" in any other state."""

    @property
    def standing(self) -> Standing:
        """What the broker does in its group."""
        if self.is_master:
            return Standing.LEADING
        if self.waits_for:
            return Standing.STANDING_IN
        return Standing.FOLLOWING if self.is_known else Standing.NONE

    @property
    def is_master(self) -> bool:
        """Whether the broker is the master."""
        return self.name == "master"

    @property
    def is_slave(self) -> bool:
        """Whether the broker is a slave, also one that stands in for the master."""
        return self.name == "slave"

    @property
    def is_known(self) -> bool:
        """Whether the broker has a role: without one it serves no clients."""
        return self.name is not None

    @property
    def registered_id(self) -> int:
        """The id that clients and nameservers see: 0 for a master."""
        return 0 if self.is_master else self.broker_id

    @property
    def followed(self) -> tuple[Address, int, int] | None:
        """The master whose metadata this broker takes, its own id, and the epoch; None for a
        master, and where no master is known."""
        if self.name != "slave" or self.master_address is None:
            return None
        return self.master_address, self.broker_id, self.epoch

    def __str__(self) -> str:
        if self.name is None:
            return "none, asks the nameservers for its master" if self.is_searching else "none"
        if self.waits_for:
            return "master that waits"
        parts = [f"{self.name} with id {self.broker_id}"]
        if self.epoch >= 0:
            parts.append(f"epoch {self.epoch}")
        if self.is_slave and self.master_address is not None:
            parts.append(f"master {format_address(self.master_address)}")
        if self.members:
            parts.append(f"set {sorted(self.members)} of version {self.set_epoch}")
        return ", ".join(parts)


def role_during(role: Role, order: RoleOrder) -> Role:
    """Return the role of a broker with *role* while it carries *order* out: none, but for one that
    stays master, or follows the same broker."""
    if order.master_id == role.broker_id:
        is_kept = role.is_master
    else:
        is_kept = role.master_address == parse_address(order.master_address)
    return role if is_kept else Role(broker_id=role.broker_id)


def role_by(order: RoleOrder, broker_id: int) -> Role:
    """Return the role of a broker that has carried *order* out."""
    return Role(
        name="master" if order.master_id == broker_id else "slave",
        broker_id=broker_id,
        epoch=order.epoch,
        master_address=parse_address(order.master_address),
        members=order.members,
        set_epoch=order.set_epoch,
    )


def role_with(role: Role, members: Collection[int], set_epoch: int) -> Role:
    """Return *role* with a set of its epoch, unless it has a later one."""
    if set_epoch <= role.set_epoch:
        return role
    return replace(role, members=frozenset(members), set_epoch=set_epoch)
