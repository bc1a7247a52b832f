"""A decision about a group, as the checker sees it and as replicas take it."""

from __future__ import annotations

from dataclasses import dataclass

__all__ = ["View"]


@dataclass(frozen=True, slots=True)
class View:
    """Who is master, and the sync-state set."""

    epoch: int
    master: int
    """0 for none."""
    members: frozenset[int]
    set_epoch: int
    asked_ms: int = -1
    """When the heartbeat was sent that this renews the lease for; -1 for no renewal."""
    order: int = 0
    """Greater in each view that names a master, whatever its epoch."""
    asked: frozenset[int] = frozenset()
    """Who was compared before *master* was chosen."""
    asked_min: int = 0
    """How many of them hold all that was acknowledged."""
    is_risky: bool = False
    """Whether an operator accepted that messages are lost."""
