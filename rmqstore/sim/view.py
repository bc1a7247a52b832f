"""A decision about a group, for the checker and the replicas."""

from __future__ import annotations

from dataclasses import dataclass

__all__ = ["View"]


@dataclass(frozen=True, slots=True)
class View:
    """The master and the sync-state set."""

    epoch: int
    master: int
    """0 for none."""
    members: frozenset[int]
    set_epoch: int
    asked_ms: int = -1
    """Send time of the heartbeat for which this renews the lease; -1 for no renewal."""
    order: int = 0
    """Number of the view among the views that name a master, ascending."""
    asked: frozenset[int] = frozenset()
    """The replicas that were compared before *master* was chosen."""
    asked_min: int = 0
    """Number of compared replicas that is needed to find all acknowledged messages."""
    is_risky: bool = False
    """Whether the election of *master* named messages that may be lost."""
    voids_last: bool = False
    """Whether *master* was elected by the replicas that chose before the last epoch, which never
    began."""
    master_life: int | None = None
    """The process of *master* whose log was compared; None if it is not known."""
