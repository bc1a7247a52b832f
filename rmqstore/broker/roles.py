"""The role of a broker in its group."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from rmqstore.net.addresses import Address, format_address

__all__ = ["Role"]


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

    @property
    def registered_id(self) -> int:
        """The id that clients and nameservers see: 0 for a master."""
        return 0 if self.name == "master" else self.broker_id

    def __str__(self) -> str:
        if self.name is None:
            return "none"
        parts = [f"{self.name} with id {self.broker_id}"]
        if self.epoch >= 0:
            parts.append(f"epoch {self.epoch}")
        if self.name == "slave" and self.master_address is not None:
            parts.append(f"master {format_address(self.master_address)}")
        if self.members:
            parts.append(f"set {sorted(self.members)} of version {self.set_epoch}")
        return ", ".join(parts)
