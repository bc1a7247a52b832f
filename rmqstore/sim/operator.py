"""Operators of groups without a sync-state set, who elect masters by the documented rule.

docs/replication.md, "Which replica to promote": enough replicas are compared, the replication of
slaves ends before the comparison, and the best replica is promoted in a new epoch. If a master is
the best, it continues; otherwise its role ends, and all are compared again.

`Keeper` is the operator of a group in which one replica is always the master.

An operator works on a machine that never dies. Answers and orders may arrive late, out of order,
twice, or never. The faults include mistakes of the operator: `err` promotes a second replica under
the epoch of the first, without a comparison.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass, field, replace
from random import Random
from typing import Protocol

from rmqstore.replication.group.log_rank import LogRank
from rmqstore.replication.group.quorum import elector_wait_ms
from rmqstore.sim.clock import Timeline
from rmqstore.sim.messages import Answer, Ask, Heartbeat, Message, Order, decode, encode
from rmqstore.sim.network import Network
from rmqstore.sim.shape import Shape
from rmqstore.sim.view import View

__all__ = ["OPERATOR", "Attendant", "Keeper", "Operator", "Subject"]

OPERATOR = 0
"""Where replicas reach the operator."""
_CHECK_MS = 100
_BALLOT_MS = 400


class Subject(Protocol):
    """A replica in the view of an elector."""

    number: int
    is_learner: bool


@dataclass(slots=True)
class _Word:
    """The last message of a replica."""

    heard_us: int
    life: int


class Attendant(ABC):
    """Observes which replicas are alive, and gives orders; *decided* is called with each
    decision."""

    addresses = (OPERATOR,)
    """Where replicas reach it."""

    def __init__(
        self,
        timeline: Timeline,
        network: Network,
        shape: Shape,
        subjects: Mapping[int, Subject],
        decided: Callable[[View], None],
    ) -> None:
        self._timeline = timeline
        self._network = network
        self._shape = shape
        self._subjects = subjects
        self._decided = decided

        self._words: dict[int, _Word] = {}
        self._late: dict[int, int] = {}
        """End of the time in which a replica gets no order."""
        self._next_late_ms = 0
        self._given: list[View] = []
        self._buried: set[int] = set()

        self._lease_until_us = 0
        self._wants_election = False

        self.distrusted: Collection[int] = frozenset()
        """Replicas that lost messages that they may have acknowledged, as the operator noticed.
        They are elected only if too few others remain."""
        self.view = View(0, 0, frozenset(), 0)

    def start(self) -> None:
        """Begin to manage the group."""
        self._network.receive(OPERATOR, lambda source, data: self._receive(decode(data)))
        self._timeline.after(_CHECK_MS * 1000, self._check)

    def _receive(self, message: Message) -> None:
        assert isinstance(message, Heartbeat), f"an operator cannot take {message}"
        self._hear(message)

    def _hear(self, beat: Heartbeat) -> None:
        """Receive a replica's heartbeat, and answer it with the present decision."""
        number, life, asked_ms = beat.number, beat.life, beat.asked_ms
        now_us = self._timeline.now_us
        known = self._words.get(number)
        if number in self._buried or (known is not None and life < known.life):
            return

        if number == self.view.master and known is not None and known.life != life:
            # It was restarted: its memory, its waiting puts and its role are lost.
            self._wants_election = True
        self._words[number] = _Word(now_us, life)

        is_master = number == self.view.master and beat.epoch == self.view.epoch
        if is_master and not self._wants_election:
            wait_us = elector_wait_ms(self._shape.lease_ms) * 1000
            self._lease_until_us = max(self._lease_until_us, now_us + wait_us)
        else:
            asked_ms = -1

        if is_master or number != self.view.master or not self._wants_election:
            # A restarted master never becomes master of its former epoch again: it may have lost
            # records that others hold, and would write different records there.
            self._reply(number, life, asked_ms)

    def elect(self) -> None:
        """Elect a master, the same or another, as soon as that is safe."""
        self._wants_election = True

    def reappoint(self, life: int) -> None:
        """Let the restarted master continue in a new epoch without a comparison."""
        self._restart(life, epoch=self.view.epoch + 1)

    def delay_orders(self, number: int, ms: int) -> None:
        """Give a replica no order for some time, or an earlier order again, in any life."""
        self._late[number] = self._timeline.now_us + ms * 1000
        if self._given and self._rng.random() < 0.5:
            earlier = self._rng.choice(self._given[-3:])
            late_us = int(ms * 1000 * self._rng.random())
            self._timeline.after(late_us, self._order, number, -1, earlier, -1)

    def delay_next_order(self, ms: int) -> None:
        """Delay only the order to the replica that is elected next."""
        self._next_late_ms = ms

    def bury(self, number: int) -> None:
        """Consider a replica dead, in spite of its messages, until `unbury`."""
        self._buried.add(number)
        self._words.pop(number, None)

    def unbury(self, number: int) -> None:
        """Accept messages of a replica again."""
        self._buried.discard(number)

    def expel(self, number: int) -> bool:
        """Consider a replica lost; False for the master."""
        if number == self.view.master:
            return False
        self.bury(number)
        return True

    @property
    def _rng(self) -> Random:
        return self._network.rng

    def _check(self) -> None:
        self._timeline.after(_CHECK_MS * 1000, self._check)
        if self.view.master == 0 or not self._is_alive(self.view.master):
            self._wants_election = True
        if self._wants_election and self._timeline.now_us > self._lease_until_us:
            self._elect()

    @abstractmethod
    def _elect(self) -> None:
        """Elect a master, or begin an election."""

    def _restart(self, life: int, *, epoch: int) -> None:
        if self.view.master in self._words:
            self._words[self.view.master].life = life
        self._wants_election = False
        self._appoint(self.view.master, epoch=epoch)

    def _appoint(self, chosen: int, *, epoch: int, asked: frozenset[int] = frozenset()) -> None:
        if self._next_late_ms:
            self._late[chosen] = self._timeline.now_us + self._next_late_ms * 1000
            self._next_late_ms = 0
        self.view = View(
            epoch,
            chosen,
            frozenset(),
            0,
            order=self.view.order + 1,
            asked=asked,
            asked_min=self._shape.asked_min,
        )
        self._decided(self.view)
        self._given.append(self.view)
        for number, word in self._words.items():
            self._reply(number, word.life, -1)

    def _reply(self, number: int, life: int, asked_ms: int) -> None:
        if self._timeline.now_us >= self._late.get(number, 0):
            self._order(number, life, self.view, asked_ms)

    def _order(self, number: int, life: int, view: View, asked_ms: int) -> None:
        self._send(number, Order(life, view.epoch, view.master, asked_ms, view.order))

    def _send(self, number: int, message: Message) -> None:
        self._network.send(OPERATOR, number, encode(message))

    def _is_alive(self, number: int) -> bool:
        word = self._words.get(number)
        if word is None:
            return False
        return self._timeline.now_us - word.heard_us <= self._shape.patience_ms * 1000


@dataclass(slots=True)
class _Ballot:
    """A comparison of replicas in progress."""

    epoch: int
    asked: frozenset[int]
    until_us: int
    answers: dict[int, Answer] = field(default_factory=dict)


class Operator(Attendant):
    """Elects by comparing logs."""

    def __init__(
        self,
        timeline: Timeline,
        network: Network,
        shape: Shape,
        subjects: Mapping[int, Subject],
        decided: Callable[[View], None],
    ) -> None:
        super().__init__(timeline, network, shape, subjects, decided)
        self._voters = [each.number for each in subjects.values() if not each.is_learner]
        self._ballot: _Ballot | None = None
        self._last_ballot = 0
        """The highest epoch of a ballot; each ballot has its own epoch."""
        self._twin: View | None = None
        self._misled: frozenset[int] = frozenset()

    def err(self) -> int | None:
        """Promote a second master under the epoch of the first; return its number."""
        view, rng = self.view, self._rng
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
        """Let the restarted master continue without a comparison, unless a ballot is in
        progress."""
        if self._ballot is None:
            self._last_ballot += 1
            self._restart(life, epoch=self._last_ballot)

    def _receive(self, message: Message) -> None:
        if isinstance(message, Answer):
            self._take(message)
        else:
            super()._receive(message)

    def _take(self, answer: Answer) -> None:
        """Receive the answer of a replica to a ballot."""
        number, open_ballot, word = answer.number, self._ballot, self._words.get(answer.number)
        if open_ballot is None or open_ballot.epoch != answer.ballot:
            return
        if word is None or word.life != answer.life:
            return
        open_ballot.answers[number] = answer
        if open_ballot.answers.keys() == open_ballot.asked:
            self._count(open_ballot)

    def _elect(self) -> None:
        ballot, now_us = self._ballot, self._timeline.now_us
        if ballot is not None and now_us < ballot.until_us:
            return
        self._ballot = None
        self._ask(ends_masters=self._rng.random() < 0.5)

    def _ask(self, *, ends_masters: bool) -> None:
        rng = self._rng
        living = [each for each in self._voters if self._is_alive(each)]
        fit = [each for each in living if each not in self.distrusted]
        needed = self._shape.asked_min

        if len(fit) < needed:
            # If too many have lost something, the best of all replicas remains.
            trusted = [each for each in self._voters if each not in self.distrusted]
            if len(living) < len(self._voters) or len(trusted) >= needed:
                return
            fit = living
        elif rng.random() < 0.5:
            fit = rng.sample(fit, needed)

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
        chosen = self._rng.choice([each for each in answers if rank(each) == best])
        self._ballot = None
        if masters and masters != [chosen]:
            # A master that is not elected must not take puts after it was compared.
            self._ask(ends_masters=True)
            return
        self._wants_election = False
        self._twin, self._misled = None, frozenset()
        self._appoint(chosen, epoch=ballot.epoch, asked=ballot.asked)

    def _reply(self, number: int, life: int, asked_ms: int) -> None:
        if self._ballot is not None:
            # A replica that takes part in the ballot must not follow its former master again.
            return
        if self._twin is not None and number in self._misled:
            self._order(number, life, self._twin, -1)
            return
        super()._reply(number, life, asked_ms)


class Keeper(Attendant):
    """Makes the first replica master, again after each start."""

    def expel(self, number: int) -> bool:
        """Consider a replica lost; False for the master."""
        return number != min(self._subjects) and super().expel(number)

    def _elect(self) -> None:
        master = min(self._subjects)
        if self._is_alive(master):
            self._wants_election = False
            self._appoint(master, epoch=self.view.epoch + 1)
