"""The role of a broker in its group."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from rmqstore.net.addresses import Address

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
