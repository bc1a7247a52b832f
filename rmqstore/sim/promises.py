"""Puts that were acknowledged with a number of copies, and that not all members of the set hold.

The election rule preserves them (docs/replication.md, "Which replica to promote"): of all members
since the put, all except as many as there are other copies must be compared, and the best is
chosen. A put that waited for all members is on each member, so any member may be chosen.
Controllers always follow the rule, so their master holds all promised puts, except puts of which a
holder lost its copy. If an operator compared fewer replicas, puts that the chosen replica lacks are
abandoned.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass

from rmqstore.sim.disk import ModelLog
from rmqstore.sim.losses import Losses
from rmqstore.sim.replica import Replica

__all__ = ["Promise", "Promises", "standing"]


@dataclass(slots=True)
class Promise:
    """The put *number*, at *start* in the log, and all members of the set since then."""

    number: int
    start: int
    data: bytes
    copies: int
    electorate: set[int]
    is_of_all: bool = False
    """Whether all members have it, independent of its number of copies."""

    @property
    def end(self) -> int:
        """End offset (exclusive)."""
        return self.start + len(self.data)

    def is_in(self, log: ModelLog, losses: Losses) -> bool:
        """Return whether *log* holds it, or retention deleted it there."""
        if log.start_offset > self.start:
            return True
        size = len(self.data)
        return log.whole_end >= self.end and losses.read(log, self.start, size) == self.data

    def binds(self, asked: Collection[int]) -> bool:
        """Return whether the best of *asked* must hold it."""
        enough = 0 if self.is_of_all else len(self.electorate) - self.copies
        return len(self.electorate.intersection(asked)) > enough


class Promises:
    """Promises that are not confirmed yet."""

    def __init__(self, replicas: Mapping[int, Replica], losses: Losses) -> None:
        self._replicas = replicas
        self._losses = losses
        self._open: list[Promise] = []

    def add(self, promise: Promise) -> None:
        """Record a put that was acknowledged."""
        self._open.append(promise)

    def let_in(self, members: Collection[int]) -> None:
        """Record the members of the set."""
        for each in self._open:
            each.electorate.update(members)

    def elected(
        self,
        number: int,
        *,
        asked: Collection[int] = (),
        is_safe: bool = False,
        is_strict: bool = False,
    ) -> Promise | None:
        """Return a promise that the elected replica should hold but does not.

        *asked* are the compared replicas; empty if any member could be chosen. *is_safe*: enough
        replicas were compared. *is_strict*: also of replicas that lost messages enough were.
        """
        chosen = self._replicas[number]
        kept = []
        for each in self._open:
            if each.is_in(chosen.log, self._losses):
                kept.append(each)
            elif is_safe and (is_strict or self._losses.distrusted.isdisjoint(each.electorate)):
                return each
            elif asked:
                if each.binds(set(asked) - self._losses.distrusted):
                    return each
            elif self._is_best(chosen, each):
                return each
        self._open = kept
        return None

    def give_up(self, chosen: Replica) -> None:
        """Drop promises that an elected replica lacks because it had lost something."""
        self._open = [each for each in self._open if each.is_in(chosen.log, self._losses)]

    def confirmed(self, truth: bytes | bytearray) -> Promise | None:
        """Drop promises that *truth* covers; return a promise whose offset has another put."""
        found = None
        for each in self._open:
            if each.end <= len(truth) and truth[each.start : each.end] != each.data:
                found = each
        self._open = [each for each in self._open if each.end > len(truth)]
        return found

    def _is_best(self, chosen: Replica, promise: Promise) -> bool:
        asked = [
            replica
            for each in sorted(promise.electorate - self._losses.distrusted)
            if (replica := self._replicas[each]).is_up
        ]
        if chosen not in asked or not promise.binds([each.number for each in asked]):
            return False
        return promise.is_of_all or standing(chosen) == max(map(standing, asked))


def standing(replica: Replica) -> tuple[int, int]:
    """Return the last epoch and the end of a log: the greater, the better."""
    log = replica.log
    return log.epochs[-1].epoch if log.epochs else -1, log.whole_end
