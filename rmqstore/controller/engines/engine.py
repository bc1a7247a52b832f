"""The interface of an engine: a log of commands that a group of nodes agrees on.

Rules that every engine keeps:

- `apply` is called once for each command, in the order of their indices, on the event loop that
  called `start`. Commands contain all times and random values that they need.
- A leader accepts proposals once an entry of its own term is applied.
- A proposal whose outcome is not known within its timeout may still be committed later.
- A failure of `apply`, or of the disk after a write, ends the engine. `failure` is the reason, and
  the node no longer leads.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from enum import Enum
from typing import Protocol

from rmqstore.errors import StoreError

__all__ = ["Applied", "Apply", "Engine", "Leadership", "Outcome", "Restore", "Snapshot"]

Apply = Callable[[int, int, bytes], bytes]
"""Carries out a command: index, term, command; returns the result that its proposer gets."""
Snapshot = Callable[[], bytes]
"""Returns the whole state."""
Restore = Callable[[bytes], None]
"""Takes a state in place of the present one."""


class Outcome(Enum):
    """The outcome of a proposal."""

    COMMITTED = "committed"
    NOT_LEADER = "not leader"
    """It will not be committed."""
    UNKNOWN = "unknown"
    """It may be committed, now or later."""


@dataclass(frozen=True, slots=True)
class Applied:
    """A command that was carried out."""

    index: int
    term: int
    result: bytes


@dataclass(frozen=True, slots=True)
class Leadership:
    """The leader as this node knows it; another node may have newer knowledge."""

    term: int
    is_leader: bool
    leader_id: str | None


class Engine(Protocol):
    """A node's part in the log."""

    @property
    def failure(self) -> StoreError | None:
        """Why the engine ended; None while it works."""

    async def start(self, apply: Apply, snapshot: Snapshot, restore: Restore) -> None:
        """Bring the state up to the log, and take part in the group.

        Raises CorruptionError, DiskError or StoreLockedError.
        """

    async def propose(self, command: bytes, *, timeout: float) -> tuple[Outcome, Applied | None]:
        """Have *command* committed; with COMMITTED it was applied here. Raises DiskError where the
        command could not be written, and certainly was not."""

    async def read_barrier(self, *, timeout: float) -> int | None:
        """Return the index up to which everything is applied here, once it is certain that this
        node led after the call began; None where it is not certain."""

    def leadership(self) -> Leadership:
        """Return the leader as this node knows it."""

    def watch(self, on_change: Callable[[Leadership], None]) -> Callable[[], None]:
        """Call *on_change* with each change of leadership; return a function that ends that."""

    async def close(self) -> None:
        """End this node's part; proposals without an outcome are UNKNOWN."""
