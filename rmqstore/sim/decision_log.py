"""A log on which several controllers agree: linearizable, with the delays and losses of an engine.

One node leads at a time, and only its proposals are committed. A node notices the beginning and the
end of its leadership late, so that two nodes may act as leader at the same time. When a term ends,
each proposal in transit is either committed before the next term begins, or never. Outcomes arrive
late or never. Nodes apply entries late, in order. A read barrier of a node that no longer leads is
never answered. While the disks are full, proposals are refused; while the disks are slow, proposals
are committed or refused seconds later.
"""

from __future__ import annotations

from collections.abc import Callable
from enum import Enum
from random import Random

from rmqstore.sim.clock import Timeline

__all__ = ["DecisionLog", "Refusal"]

_SLOW_US = (500_000, 6_000_000)


class Refusal(Enum):
    """Why an entry is not committed."""

    NOT_LEADER = "not leader"
    DISK = "disk"


Answer = Callable[[int | Refusal], None]
"""Receives the index of a committed entry, or why it never will be one."""


class DecisionLog:
    """The committed entries and the leader. *committed* is called with each entry."""

    def __init__(
        self,
        timeline: Timeline,
        rng: Random,
        committed: Callable[[bytes], None],
        *,
        loss_rate: float = 0.1,
    ) -> None:
        self.entries: list[bytes] = []
        self.leader = -1
        self.term = 0
        self.is_kind = False
        """The faults have ended: no outcome is lost or late."""
        self.is_full = False
        """Whether the disks are full: all proposals are refused."""
        self.is_slow = False
        """Whether the disks are slow: the outcome of a proposal is known seconds later."""
        self._timeline = timeline
        self._rng = rng
        self._committed = committed
        self._loss_rate = loss_rate
        self._on_the_way: list[tuple[bytes, Answer]] = []

    def append(self, command: bytes) -> int:
        """Commit *command*; return its index."""
        self.entries.append(command)
        self._committed(command)
        return len(self.entries) - 1

    def elect(self, node: int) -> int:
        """Make *node* leader of a new term; return how many entries it has to apply first."""
        for command, answer in self._on_the_way:
            if self._rng.random() < 0.5:
                self._answer(answer, self.append(command))
        self._on_the_way = []
        self.leader, self.term = node, self.term + 1
        return len(self.entries)

    def propose(self, node: int, term: int, command: bytes, answer: Answer) -> None:
        """Propose *command* as the leader of *term*; *answer* may never be called."""
        if (node, term) != (self.leader, self.term):
            self._answer(answer, Refusal.NOT_LEADER)
            return
        if self.is_full:
            self._answer(answer, Refusal.DISK)
            return
        proposal = (command, answer)
        self._on_the_way.append(proposal)
        if self.is_slow and not self.is_kind:
            self._timeline.after(self._rng.randrange(*_SLOW_US), self._commit_late, proposal)
        else:
            self._timeline.after(self._delay_us(), self._commit, proposal)

    def _commit(self, proposal: tuple[bytes, Answer]) -> None:
        if proposal in self._on_the_way:
            self._on_the_way.remove(proposal)
            self._answer(proposal[1], self.append(proposal[0]))

    def _commit_late(self, proposal: tuple[bytes, Answer]) -> None:
        if self._rng.random() < 0.7:
            self._commit(proposal)
        elif proposal in self._on_the_way:
            self._on_the_way.remove(proposal)
            self._answer(proposal[1], Refusal.DISK)

    def barrier(self, node: int, term: int, answer: Callable[[], None]) -> None:
        """Call *answer* once it is certain that *node* led *term* after this call."""

        def check() -> None:
            if (node, term) == (self.leader, self.term):
                self._timeline.after(self._delay_us(), answer)

        self._timeline.after(self._delay_us(), check)

    def _answer(self, answer: Answer, place: int | Refusal) -> None:
        if self.is_kind or self._rng.random() >= self._loss_rate:
            self._timeline.after(self._delay_us(), answer, place)

    def _delay_us(self) -> int:
        slow = not self.is_kind and self._rng.random() < 0.05
        return self._rng.randrange(1000, 800_000 if slow else 8000)
