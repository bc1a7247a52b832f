"""Puts that were acknowledged with a number of copies, and that not all members of the set hold.

Nothing keeps them but whom one promotes (docs/replication.md, "Which replica to promote"): of those
who were members since, all but as many as there are other copies have to be asked, and the best of
them chosen. The controller of a world does not ask so much. Where it chose in that way all the
same, the chosen one holds them; where it did not, those that it lacks are given up.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass

from rmqstore.sim.disk import ModelLog
from rmqstore.sim.replica import Replica

__all__ = ["Promise", "Promises"]


@dataclass(slots=True)
class Promise:
    """The put *number*, at *start* in the log, and all who were members of the set since."""

    number: int
    start: int
    data: bytes
    copies: int
    electorate: set[int]

    @property
    def end(self) -> int:
        """Behind its last byte."""
        return self.start + len(self.data)

    def is_in(self, log: ModelLog) -> bool:
        """Tell whether *log* holds it, or held it and deleted it by its age."""
        if log.start_offset > self.start:
            return True
        return log.whole_end >= self.end and log.read(self.start, len(self.data)) == self.data


class Promises:
    """Those that nobody has confirmed yet."""

    def __init__(self, replicas: Mapping[int, Replica]) -> None:
        self._replicas = replicas
        self._open: list[Promise] = []

    def add(self, promise: Promise) -> None:
        """Take note of a put that was acknowledged."""
        self._open.append(promise)

    def let_in(self, members: Collection[int]) -> None:
        """Take note of who is in the set."""
        for each in self._open:
            each.electorate.update(members)

    def elected(
        self, number: int, *, lost: Collection[int], asked: Collection[int] | None = None
    ) -> Promise | None:
        """Return a promise that the replica elected should hold and does not.

        What those in *lost* once held may be gone from them. *asked* are those of whom it is the
        best; None where any one was chosen.
        """
        chosen = self._replicas[number]
        kept = []
        for each in self._open:
            if each.is_in(chosen.log):
                kept.append(each)
            elif asked is None and self._is_best(chosen, each, lost):
                return each
            elif asked is not None and _are_enough(asked, each, lost):
                return each
        self._open = kept
        return None

    def confirmed(self, truth: bytes | bytearray) -> Promise | None:
        """Let those go that *truth* reaches; return one in whose place there is another."""
        found = None
        for each in self._open:
            if each.end <= len(truth) and truth[each.start : each.end] != each.data:
                found = each
        self._open = [each for each in self._open if each.end > len(truth)]
        return found

    def _is_best(self, chosen: Replica, promise: Promise, lost: Collection[int]) -> bool:
        voters = promise.electorate
        asked = [
            replica
            for each in sorted(voters.difference(lost))
            if (replica := self._replicas[each]).is_up
        ]
        if chosen not in asked or len(asked) <= len(voters) - promise.copies:
            return False
        return _standing(chosen) == max(map(_standing, asked))


def _are_enough(asked: Collection[int], promise: Promise, lost: Collection[int]) -> bool:
    return len(set(asked).difference(lost)) > len(promise.electorate) - promise.copies


def _standing(replica: Replica) -> tuple[int, int]:
    log = replica.log
    return log.epochs[-1].epoch if log.epochs else -1, log.whole_end
