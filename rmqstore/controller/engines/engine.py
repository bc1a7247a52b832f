"""The interface of an engine: a log of commands that a group of nodes agrees on.

Rules for every engine:

- `apply` is called once for each command, in the order of their indices, on the event loop that
  called `start`. Commands contain all times and random values that they need.
- A leader accepts proposals once an entry of its own term is applied.
- A proposal whose outcome is not known within its timeout may still be committed later.
- A failure of `apply`, or of the disk after a write, ends the engine. `failure` is the reason; the
  node no longer leads.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from enum import Enum
from typing import Protocol

from rmqstore.errors import StoreError

__all__ = ["Applied", "Apply", "Engine", "Leadership", "Outcome", "Restore", "Snapshot"]

Apply = Callable[[int, int, bytes], bytes]
"""Applies a command (index, term, command); returns the result for its proposer."""
Snapshot = Callable[[], bytes]
"""Returns the whole state."""
Restore = Callable[[bytes], None]
"""Replaces the whole state."""


class Outcome(Enum):
    """The outcome of a proposal."""

    COMMITTED = "committed"
    NOT_LEADER = "not leader"
    """It will not be committed."""
    UNKNOWN = "unknown"
    """It may be committed, now or later."""


@dataclass(frozen=True, slots=True)
class Applied:
    """A command that was applied."""

    index: int
    term: int
    result: bytes


@dataclass(frozen=True, slots=True)
class Leadership:
    """The leader according to this node; another node may know a later one."""

    term: int
    is_leader: bool
    leader_id: str | None


class Engine(Protocol):
    """A node of the group that keeps the log."""

    @property
    def failure(self) -> StoreError | None:
        """The reason why the engine ended; None while it works."""

    async def start(self, apply: Apply, snapshot: Snapshot, restore: Restore) -> None:
        """Apply the log, then take part in the group.

        Raises CorruptionError, DiskError or StoreLockedError.
        """

    async def propose(self, command: bytes, *, timeout: float) -> tuple[Outcome, Applied | None]:
        """Commit *command*; after COMMITTED it is applied here. Raises DiskError if the command
        certainly was not written."""

    async def read_barrier(self, *, timeout: float) -> int | None:
        """Return the last index applied here, once it is certain that this node led after the call
        began; None if it is not certain."""

    def leadership(self) -> Leadership:
        """Return the leader according to this node."""

    def watch(self, on_change: Callable[[Leadership], None]) -> Callable[[], None]:
        """Call *on_change* at each change of leadership; return a function that ends the calls."""

    async def close(self) -> None:
        """Leave the group; proposals without an outcome become UNKNOWN."""
