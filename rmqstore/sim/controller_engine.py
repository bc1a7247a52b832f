"""The engine of a simulated controller: production's interface over the log of the world."""

from __future__ import annotations

import asyncio
import errno
from collections.abc import Callable
from dataclasses import dataclass, field

from rmqstore.controller.engines.engine import (
    Applied,
    Apply,
    Leadership,
    Outcome,
    Restore,
    Snapshot,
)
from rmqstore.errors import DiskError, StoreError
from rmqstore.sim.decision_log import DecisionLog, Refusal
from rmqstore.sim.process import Process

__all__ = ["Kept", "SimEngine", "node_id"]

_PATIENCE_S = 1.5
"""How long an engine waits for the others, if its caller waits longer."""


def node_id(number: int) -> str:
    """Return the name of a node among its peers."""
    return f"n{number}"


@dataclass(frozen=True, slots=True)
class Kept:
    """The snapshot on the disk of a node, and the number of entries in it."""

    entries: int = 0
    state: bytes | None = None


@dataclass(slots=True, kw_only=True)
class SimEngine:
    """The engine of the node *number* in one life of its process.

    *started* is called when it begins to apply entries, *stuck* when the outcome of a proposal
    stays unknown.
    """

    number: int
    log: DecisionLog
    process: Process
    kept: Kept
    started: Callable[[], None]
    stuck: Callable[[], None]
    applied: int = 0
    """The number of entries that were applied."""
    term: int = 0
    """The last term in which this node led."""
    failure: StoreError | None = None
    _leads: bool = False
    _known_leader: int = -1
    _apply: Apply | None = None
    _snapshot: Snapshot | None = None
    _results: dict[int, bytes] = field(default_factory=dict)
    _waiting: dict[int, asyncio.Future[bytes]] = field(default_factory=dict)
    _watchers: dict[Callable[[Leadership], None], None] = field(default_factory=dict)

    # ---- what the world does

    def apply_next(self) -> None:
        """Apply the next entry, if there is one."""
        if self._apply is None or self.applied >= len(self.log.entries):
            return
        index, self.applied = self.applied, self.applied + 1
        result = self._apply(index, self.log.term, self.log.entries[index])
        self._results[index] = result
        self._known_leader = self.log.leader
        waiting = self._waiting.pop(index, None)
        if waiting is not None and not waiting.done():
            waiting.set_result(result)

    def keep_snapshot(self) -> None:
        """Store a snapshot for the start of the next life."""
        if self._snapshot is not None:
            self.kept = Kept(self.applied, self._snapshot())

    def lead(self, term: int) -> None:
        """Begin to lead; everything up to the beginning of the term is applied."""
        self.term, self._leads = term, True
        self._report()

    def resign(self, term: int) -> None:
        """Stop leading, because *term* has ended."""
        if self.term == term and self._leads:
            self._leads = False
            self._report()

    def _report(self) -> None:
        for watcher in list(self._watchers):
            watcher(self.leadership())

    # ---- what the controller calls

    async def start(self, apply: Apply, snapshot: Snapshot, restore: Restore) -> None:
        if self.kept.state is not None:
            restore(self.kept.state)
        self.applied = self.kept.entries
        self._apply, self._snapshot = apply, snapshot
        self.started()

    async def propose(self, command: bytes, *, timeout: float) -> tuple[Outcome, Applied | None]:
        if not self._leads:
            return Outcome.NOT_LEADER, None
        place: asyncio.Future[int | Refusal] = self.process.loop.create_future()

        def answered(found: int | Refusal) -> None:
            self.process.run(lambda: None if place.done() else place.set_result(found))

        self.log.propose(self.number, self.term, command, answered)
        try:
            async with asyncio.timeout(min(timeout, _PATIENCE_S)):
                found = await place
                if found is Refusal.DISK:
                    raise DiskError(errno.ENOSPC, "the disk is full")
                if isinstance(found, Refusal):
                    return Outcome.NOT_LEADER, None
                return Outcome.COMMITTED, Applied(found, self.term, await self._result(found))
        except TimeoutError:
            self.stuck()
            return Outcome.UNKNOWN, None

    async def _result(self, index: int) -> bytes:
        """Returns the result of an entry once it is applied."""
        if index < self.applied:
            return self._results.get(index, b"")
        waiting = self._waiting.setdefault(index, self.process.loop.create_future())
        return await asyncio.shield(waiting)

    async def read_barrier(self, *, timeout: float) -> int | None:
        if not self._leads:
            return None
        shown = self.process.loop.create_future()
        known = len(self.log.entries)

        def answer() -> None:
            self.process.run(lambda: None if shown.done() else shown.set_result(None))

        self.log.barrier(self.number, self.term, answer)
        try:
            async with asyncio.timeout(min(timeout, _PATIENCE_S)):
                await shown
                await self._result(known - 1)
        except TimeoutError:
            return None
        return self.applied

    def leadership(self) -> Leadership:
        leader = self.number if self._leads else self._known_leader
        return Leadership(self.term, self._leads, None if leader < 0 else node_id(leader))

    def watch(self, on_change: Callable[[Leadership], None]) -> Callable[[], None]:
        self._watchers[on_change] = None
        return lambda: self._watchers.pop(on_change, None)  # type: ignore[return-value,unused-ignore]

    async def close(self) -> None:
        """Do nothing: the process ends with the world, or dies."""
