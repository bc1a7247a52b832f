"""A master without a store or connections: a group, and the board of production in virtual time."""

from __future__ import annotations

from collections.abc import Callable, Hashable
from typing import Generic, TypeVar

from rmqstore._native.core import Admission
from rmqstore.replication.group.group import Effect, MasterGroup
from rmqstore.replication.group.node import NodeEffect
from rmqstore.replication.group.quorum import Lease, Mode, Quorum, Rule
from rmqstore.sim.board import Resolution, VirtualBoard

T = TypeVar("T", bound=Hashable)


class Offsets:
    """The log of a master that has no bytes."""

    def __init__(self, *, end_offset: int, confirm_offset: int) -> None:
        self.start_offset = 0
        self.end_offset = end_offset
        self.flushed_offset = 0
        self.confirm_offset = confirm_offset


class GroupAlone:
    """Stands for a MasterNode whose connections are named to the group directly."""

    def __init__(self, group: MasterGroup, log: Offsets, *, is_flushed: bool) -> None:
        self.group = group
        self._log = log
        self._is_flushed = is_flushed

    @property
    def connections(self) -> set[int]:
        return {each.connection for each in self.group.replicas}

    def follow_log(self) -> None:
        if self.group.is_master:
            self.group.log_grew(self._log.end_offset)

    def rule(self) -> Rule:
        return self.group.rule(is_flushed=self._is_flushed)

    def apply(self, effects: list[Effect]) -> list[Effect]:
        return list(effects)


class ModelMaster(Generic[T]):
    """Broker 1, whose group changes by decisions about its board."""

    def __init__(
        self,
        quorum: Quorum,
        mode: Mode,
        *,
        lease: Lease | None = None,
        is_gated: bool = True,
        is_flushed: bool = False,
        confirm_offset: int = 0,
        end_offset: int = 0,
    ) -> None:
        self.group = MasterGroup(1, quorum, mode, lease=lease, is_gated=is_gated)
        self.log = Offsets(end_offset=end_offset, confirm_offset=confirm_offset)
        node = GroupAlone(self.group, self.log, is_flushed=is_flushed)
        self.board: VirtualBoard[T] = VirtualBoard(node, self.log)
        self._deadlines: dict[T, int] = {}

    def __len__(self) -> int:
        return len(self.board)

    @property
    def now_ms(self) -> int:
        return self.board.now_ms

    @now_ms.setter
    def now_ms(self, now_ms: int) -> None:
        self.board.now_ms = now_ms

    @property
    def end_offset(self) -> int:
        return self.log.end_offset

    @property
    def confirm_offset(self) -> int:
        return self.board.confirm_offset

    def grow(self, end_offset: int) -> None:
        self.log.end_offset = max(self.log.end_offset, end_offset)
        self.board.follow_log()

    def flush(self) -> None:
        self.log.flushed_offset = self.log.end_offset
        self.board.follow_log()

    def change(self, change: Callable[[MasterGroup, int], list[Effect] | None]) -> list[NodeEffect]:
        return self.board.decide(lambda now_ms: change(self.group, now_ms) or [])

    def connect(
        self, broker_id: int, *, on: int, is_learner: bool = False, names_epochs: bool = True
    ) -> list[NodeEffect]:
        return self.change(
            lambda group, now_ms: group.connected(
                broker_id,
                connection=on,
                is_learner=is_learner,
                names_epochs=names_epochs,
                now_ms=now_ms,
            )
        )

    def ack(self, offset: int, *, on: int, epoch: int | None = None) -> list[NodeEffect]:
        """Take an acknowledgement of a replica that has stored *epoch*, by default the present."""
        stored = self.group.epoch if epoch is None else epoch
        return self.change(lambda group, now_ms: group.acked(on, offset, now_ms, epoch=stored))

    def put(self, token: T, size: int, copies: int | None = None) -> Admission:
        """Append *size* bytes that wait for copies."""
        admission = self.admit(copies)
        self.grow(self.end_offset + size)
        self.wait(token, admission)
        return admission

    def admit(self, copies: int | None = None, *, is_replicated: bool = True) -> Admission:
        return self.board.admit(copies, is_replicated=is_replicated)

    def wait(self, token: T, admission: Admission) -> None:
        """Let a put that ends where the log does wait for its copies."""
        self.board.wait(token, admission, self.log.end_offset)
        self._deadlines[token] = self.now_ms + self.group.policy.quorum.timeout_ms

    def resolved(self) -> list[Resolution[T]]:
        return self.board.resolved()

    def expired(self) -> list[Resolution[T]]:
        """Return the outcomes of the puts whose time is up, the longest overdue first."""
        due = sorted(
            (due_ms, number, token)
            for number, (token, due_ms) in enumerate(self._deadlines.items())
            if due_ms <= self.now_ms
        )
        for _, _, token in due:
            del self._deadlines[token]
        found = [self.board.expire(token) for _, _, token in due]
        return [each for each in found if each is not None]

    def stop(self) -> None:
        self.board.stop()
