"""The production board in virtual time, over a model of a log.

The board is the C code that a `ReplicatedStore` runs. Only its store is replaced: the offsets of
the log and the clock are those of models, and no thread waits. The caller ends waits whose time
limit has passed.
"""

from __future__ import annotations

from collections.abc import Hashable
from dataclasses import dataclass
from typing import Generic, Protocol, TypeVar

from rmqstore._native.core import AckBoard, AckInbox, AckWait, Admission, VirtualLog
from rmqstore.message import PutStatus
from rmqstore.replication.group.board import MasterBoard, Step
from rmqstore.replication.group.node import MasterNode, NodeEffect

__all__ = ["ModelOffsets", "Resolution", "VirtualBoard"]

T = TypeVar("T", bound=Hashable)


class ModelOffsets(Protocol):
    """The offsets of a log that the board follows."""

    @property
    def start_offset(self) -> int: ...
    @property
    def end_offset(self) -> int: ...
    @property
    def flushed_offset(self) -> int: ...
    @property
    def confirm_offset(self) -> int: ...


@dataclass(frozen=True, slots=True)
class Resolution(Generic[T]):
    """The outcome of a put that waited. *copies* is the number of copies at that time."""

    token: T
    status: PutStatus
    copies: int


class VirtualBoard(Generic[T]):
    """The board of the master *node*, whose log is *log*; tokens identify waiting puts."""

    def __init__(self, node: MasterNode, log: ModelOffsets) -> None:
        self.node = node
        self._log = log
        self._virtual = VirtualLog(
            end_offset=log.end_offset,
            flushed_offset=log.flushed_offset,
            confirm_offset=min(max(log.confirm_offset, log.start_offset), log.end_offset),
        )
        self._board = AckBoard(self._virtual)
        self._inbox = AckInbox(has_descriptor=False)
        self._decisions = MasterBoard(node, self._board)
        self._waits: dict[T, AckWait] = {}
        self._is_over = False

    def __del__(self) -> None:
        # The board and the waiting puts refer to each other.
        self._board.abandon()
        self._inbox.take()

    def __len__(self) -> int:
        return len(self._waits)

    @property
    def confirm_offset(self) -> int:
        """The confirm offset."""
        return self._board.confirm_offset

    @property
    def now_ms(self) -> int:
        """The time against which the master's lease is checked."""
        return self._virtual.now_ms

    @now_ms.setter
    def now_ms(self, now_ms: int) -> None:
        self._virtual.now_ms = now_ms

    def follow_log(self) -> None:
        """Follow the end and the durable end of the log, as a store's board does immediately."""
        if self._is_over:
            return
        self._virtual.end_offset = self._log.end_offset
        if self._log.flushed_offset > self._virtual.flushed_offset:
            self._virtual.flushed_offset = self._log.flushed_offset

    def decide(self, step: Step) -> list[NodeEffect]:
        """Run an event of the node as a decision; return the effects. Raises the error of the step
        after the board has taken its rule."""
        self.follow_log()
        effects, failure = self._decisions.decide(step, self.now_ms)
        if failure is not None:
            raise failure
        return effects

    def admit(self, copies: int | None = None, *, is_replicated: bool = True) -> Admission:
        """Return the permission to append a message; see `AckBoard.admit`."""
        return self._board.admit(copies, is_replicated=is_replicated)

    def wait(self, token: T, admission: Admission, end_offset: int) -> None:
        """Register an appended put that waits for copies; `resolved` returns its outcome."""
        self.follow_log()
        self._waits[token] = self._board.begin(self._inbox, admission, end_offset, token)

    def resolved(self) -> list[Resolution[T]]:
        """Return the outcomes of puts that were resolved since the last call, in that order."""
        return [self._outcome(wait) for wait in self._inbox.take()]

    def expire(self, token: T) -> Resolution[T] | None:
        """End the wait of a put whose time limit has passed; None for a resolved put."""
        wait = self._waits.get(token)
        if wait is None or not self._board.withdraw(wait):
            return None
        return self._outcome(wait)

    def _outcome(self, wait: AckWait) -> Resolution[T]:
        del self._waits[wait.token]
        return Resolution(wait.token, wait.status, wait.copies)

    def stop(self) -> None:
        """End the role: puts that wait fail with FLUSH_SLAVE_TIMEOUT."""
        self._is_over = True
        self.node.group.stop()
        self._board.abandon()
