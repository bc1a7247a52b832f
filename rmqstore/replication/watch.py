"""Watching a replica: its status at intervals until a goal is reached, or its role has ended."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import TYPE_CHECKING

from rmqstore.errors import StoreTimeout
from rmqstore.replication.group.status import Status
from rmqstore.replication.protocol.events import HaState

if TYPE_CHECKING:
    from rmqstore.replication.facade import ReplicatedStore

__all__ = ["accept_last_proposal", "has_caught_up", "in_sync_count", "is_copied", "watch"]

_LOOK_SECONDS = 0.1


def watch(
    replica: ReplicatedStore,
    *,
    show: Callable[[Status], object],
    interval: float,
    is_over: Callable[[], bool],
    is_stopped: Callable[[float], bool],
) -> str | None:
    """Call *show* with the status of *replica* every *interval* seconds, and once at the end.

    Ends when the role ends without a request or the slave halts, and returns the reason. Ends with
    None when *is_over* returns True, which is called several times a second, or when *is_stopped*
    does, which waits up to a number of seconds for a request to stop. Raises the errors of these
    functions.
    """
    show_at = time.monotonic()
    is_last = False
    while True:
        status = replica.status()
        reason = status.failure or (status.master.halted_reason if status.master else None)
        is_last = is_last or reason is not None or is_over()
        if is_last or time.monotonic() >= show_at:
            show(replica.status())
            show_at = max(show_at + interval, time.monotonic())
        if is_last:
            return reason

        wait = min(max(show_at - time.monotonic(), 0.0), _LOOK_SECONDS)
        is_last = is_stopped(wait)


def in_sync_count(status: Status) -> int:
    """Return how many replicas count for puts, this one included."""
    return 1 + sum(each.is_counted for each in status.replicas)


def has_caught_up(status: Status) -> bool:
    """Return whether a slave is known to hold all that its master has."""
    master = status.master
    return (
        master is not None
        and master.state is HaState.TRANSFER
        and master.master_end >= 0
        and master.lag_bytes == 0
    )


def is_copied(replica: ReplicatedStore, copies: int) -> bool:
    """Return whether *copies* replicas, this master included, hold everything put so far."""
    try:
        replica.wait_in_sync(copies, timeout=0)
    except StoreTimeout:
        return False
    return True


def accept_last_proposal(replica: ReplicatedStore) -> None:
    """Make the last change proposed for the sync-state set, if there is one, the set.

    Each proposal replaces the earlier ones of its set epoch. Only for a group whose set no
    controller keeps.
    """
    for each in replica.proposals[-1:]:
        replica.set_sync_state_set(each.members, each.set_epoch + 1)
