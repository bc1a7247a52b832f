"""Operators, who elect masters as the documentation says.

docs/replication.md, "Which replica to promote": enough replicas are asked, the replication of those
that are slaves ends before they are compared, the best of them is promoted in a new epoch. A master
among them goes on where it is the best; otherwise its role ends, and all are asked again. With a
set at least one of its members is asked, and the set stands still meanwhile.

`Keeper` looks after a group in which one replica is the master for good.

The operator makes mistakes where the faults say so: `err` promotes a second replica under the epoch
of the first, without asking anybody.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace

from rmqstore.replication.group.log_rank import LogRank
from rmqstore.sim.clock import Timeline
from rmqstore.sim.controller import Controller, Subject
from rmqstore.sim.messages import Answer, Ask, Message, Order, Propose, View
from rmqstore.sim.network import Network
from rmqstore.sim.shape import Shape

__all__ = ["Keeper", "Operator"]

_BALLOT_MS = 400


@dataclass(slots=True)
class _Ballot:
    """Replicas that are being asked."""

    epoch: int
    asked: frozenset[int]
    until_us: int
    answers: dict[int, Answer] = field(default_factory=dict)


class Operator(Controller):
    """Elects by comparing logs. Without a set that of its views is empty."""

    def __init__(
        self,
        timeline: Timeline,
        network: Network,
        shape: Shape,
        subjects: Mapping[int, Subject],
        decided: Callable[[View], None],
    ) -> None:
        super().__init__(timeline, network, shape, subjects, decided)
        if not shape.has_set:
            self.view = View(0, 0, frozenset(), 0)
        self._voters = [each.number for each in subjects.values() if not each.is_learner]
        self._ballot: _Ballot | None = None
        self._last_ballot = 0
        """The highest epoch that anybody was asked for; no two are asked for one."""
        self._twin: View | None = None
        self._misled: frozenset[int] = frozenset()

    def err(self) -> int | None:
        """Promote a second master under the epoch of the first; return which."""
        view, rng = self.view, self._network.rng
        others = [each for each in self._voters if each != view.master and self._is_alive(each)]
        if view.master == 0 or self._ballot is not None or not others:
            return None
        chosen = rng.choice(others)
        self._twin = replace(view, master=chosen, order=view.order + 1, asked=frozenset())
        self._misled = frozenset(
            each for each in self._subjects if each == chosen or rng.random() < 0.6
        ) - {view.master}
        self.view = replace(view, order=view.order + 2)
        for number in self._misled:
            self._reply(number, self._words[number].life if number in self._words else 0, -1)
        return chosen

    def reappoint(self, life: int) -> None:
        """Let the master, which began a new life, go on without asking anybody, if nobody is being
        asked."""
        if self._ballot is None:
            self._last_ballot += 1
            self._restart(life, epoch=self._last_ballot)

    def _receive(self, message: Message) -> None:
        if isinstance(message, Answer):
            self._take(message)
        elif self._ballot is None or not isinstance(message, Propose):
            super()._receive(message)

    def _take(self, answer: Answer) -> None:
        """Take the answer of a replica that was asked."""
        number, open_ballot, word = answer.number, self._ballot, self._words.get(answer.number)
        if open_ballot is None or open_ballot.epoch != answer.ballot:
            return
        if word is None or word.life != answer.life:
            return
        open_ballot.answers[number] = answer
        if open_ballot.answers.keys() == open_ballot.asked:
            self._count(open_ballot)

    def expel(self, number: int) -> bool:
        """Take a replica for lost; False for the master."""
        if self._shape.has_set:
            return self._ballot is None and super().expel(number)
        if number == self.view.master:
            return False
        self.bury(number)
        return True

    def _elect(self) -> None:
        ballot, now_us = self._ballot, self._timeline.now_us
        if ballot is not None and now_us < ballot.until_us:
            return
        self._ballot = None
        self._ask(ends_masters=self._network.rng.random() < 0.5)

    def _ask(self, *, ends_masters: bool) -> None:
        rng = self._network.rng
        living = [each for each in self._voters if self._is_alive(each)]
        fit = [each for each in living if each not in self.distrusted]
        needed = self._shape.asked_min

        if len(fit) < needed:
            # Where too many have lost something, the best of all is what is left.
            trusted = [each for each in self._voters if each not in self.distrusted]
            if len(living) < len(self._voters) or len(trusted) >= needed:
                return
            fit = living
        elif rng.random() < 0.5:
            fit = rng.sample(fit, needed)

        if self._shape.has_set and not self.view.members.intersection(fit):
            # So it is where all members have lost something.
            if len(living) < len(self._voters) or not self.view.members <= set(self.distrusted):
                return
            fit = living

        self._last_ballot += 1
        until_us = self._timeline.now_us + _BALLOT_MS * 1000
        self._ballot = _Ballot(self._last_ballot, frozenset(fit), until_us)
        for number in fit:
            self._send(number, Ask(self._words[number].life, self._last_ballot, ends_masters))

    def _count(self, ballot: _Ballot) -> None:
        answers = ballot.answers

        def rank(number: int) -> LogRank:
            return LogRank(answers[number].last_epoch, answers[number].end_offset)

        best = max(map(rank, answers))
        masters = [each for each in answers if answers[each].is_master]
        chosen = self._network.rng.choice([each for each in answers if rank(each) == best])
        self._ballot = None
        if masters and masters != [chosen]:
            # A master that is not elected must not take puts after it was compared.
            self._ask(ends_masters=True)
            return
        self._wants_election = False
        self._twin, self._misled = None, frozenset()
        members = self.view.members if self._shape.keeps_members else frozenset[int]()
        if self._shape.has_set:
            members |= {chosen}
        self._appoint(chosen, members, epoch=ballot.epoch, asked=ballot.asked)

    def _reply(self, number: int, life: int, asked_ms: int) -> None:
        if self._ballot is not None:
            # A replica that takes part in the ballot must not follow its former master again.
            return
        if self._twin is not None and number in self._misled:
            self._send(number, Order(life, replace(self._twin, asked_ms=-1)))
            return
        super()._reply(number, life, asked_ms)


class Keeper(Controller):
    """Has the first replica be master, again whenever it starts."""

    def __init__(
        self,
        timeline: Timeline,
        network: Network,
        shape: Shape,
        subjects: Mapping[int, Subject],
        decided: Callable[[View], None],
    ) -> None:
        super().__init__(timeline, network, shape, subjects, decided)
        self.view = View(0, 0, frozenset(), 0)
        self._master = min(subjects)

    def expel(self, number: int) -> bool:
        """Take a replica for lost; False for the master."""
        if number == self._master:
            return False
        self.bury(number)
        return True

    def _elect(self) -> None:
        if self._is_alive(self._master):
            self._wants_election = False
            self._appoint(self._master, frozenset(), epoch=self.view.epoch + 1)
