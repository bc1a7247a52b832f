"""Whom the sides of a replica report to."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Protocol

from rmqstore.errors import StoreError
from rmqstore.replication.group.sync_state_set import Proposal

__all__ = ["Owner"]


class Owner(Protocol):
    """The receiver of the events of a side."""

    def moved(self) -> None:
        """Offsets may have moved."""

    def changed(self) -> None:
        """A connection, its state or the set changed."""

    def synced(self, epoch: int) -> None:
        """A slave has caught up with its master of *epoch*."""

    def proposed(self, proposal: Proposal) -> None:
        """The set is to be changed."""

    def failed(self, side: Any, error: Exception) -> None:
        """*side*, which no longer handles events, cannot go on."""

    def share(self, done: Callable[[StoreError | None], None]) -> None:
        """Save that another replica holds this log; call *done* then, with the error if it
        failed."""
