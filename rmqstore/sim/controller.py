"""A little controller: it keeps the sync-state set and elects masters from it, and never lies.

It lives on a machine of its own that never dies. What it decides is decided; its answers, and its
words about who is master, may come late, out of order, or never.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import Protocol

from rmqstore.replication.sync_state_set import Proposal
from rmqstore.sim.clock import Timeline
from rmqstore.sim.network import Network
from rmqstore.sim.shape import Shape

__all__ = ["CONTROLLER", "Controller", "Subject", "View"]

CONTROLLER = 0
_CHECK_MS = 100
_LEASE_MARGIN = 1.1


@dataclass(frozen=True, slots=True)
class View:
    """Who is master, and the sync-state set."""

    epoch: int
    master: int
    members: frozenset[int]
    set_epoch: int
    asked_ms: int = -1
    """Echoes the question that this answers."""
    order: int = 0
    """Greater in each view that names a master, whatever its epoch."""
    asked: frozenset[int] = frozenset()
    """Who was compared before *master* was chosen; empty where a set says who may be."""


class Subject(Protocol):
    """A replica as the controller knows it."""

    number: int
    is_learner: bool

    def on_view(self, life: int, view: View) -> None:
        """Take the controller's word."""

    def on_late_view(self, view: View) -> None:
        """Take a word of the controller that was under way since an earlier life, perhaps."""

    def on_refused_set(self, life: int, epoch: int, number: int) -> None:
        """Learn that a proposal was turned down, for good."""

    def on_asked(self, life: int, ballot: int, *, ends_masters: bool) -> None:
        """Be compared with others: end the role of a slave, and of a master where *ends_masters*,
        and return what the log holds to `Operator.answer`."""


@dataclass(slots=True)
class _Word:
    """The last that a replica said."""

    heard_us: int
    life: int
    end_offset: int


class Controller:
    """Keeps the set; *decided* is told each decision."""

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
        """Until when a replica gets no order."""
        self._next_late_ms = 0
        self._given: list[View] = []
        self._buried: set[int] = set()
        self._lease_until_us = 0
        self._wants_election = False
        voters = frozenset(each.number for each in subjects.values() if not each.is_learner)
        self.view = View(0, 0, voters, 0)
        """Nobody is master yet; all logs are empty, so anybody may become it."""

    def start(self) -> None:
        """Begin to look after the group."""
        self._timeline.after(_CHECK_MS * 1000, self._check)

    def hear(self, number: int, life: int, end_offset: int, epoch: int, asked_ms: int) -> None:
        """Take a replica's heartbeat, and answer it with what is so."""
        if number in self._buried:
            return
        now_us = self._timeline.now_us
        known = self._words.get(number)
        if number == self.view.master and known is not None and known.life != life:
            # It was away: what it held in memory only, its waiters and its role are gone.
            self._wants_election = True
        self._words[number] = _Word(now_us, life, end_offset)
        is_master = number == self.view.master and epoch == self.view.epoch
        if is_master and not self._wants_election:
            lease_us = int(self._shape.lease_ms * 1000 * _LEASE_MARGIN)
            self._lease_until_us = max(self._lease_until_us, now_us + lease_us)
        else:
            asked_ms = -1
        if is_master or number != self.view.master or not self._wants_election:
            # A master that was away never takes office in its former epoch again: it may have lost
            # what others hold of it, and would write something else there.
            self._tell(number, life, asked_ms)

    def propose(self, number: int, life: int, epoch: int, proposal: Proposal) -> None:
        """Take or turn down a set that a master proposes."""
        view = self.view
        if number != view.master or epoch != view.epoch:
            return
        if proposal.set_epoch != view.set_epoch:
            self._tell(number, life, -1)
            return
        if not all(self._is_alive(each) for each in proposal.joined):
            self._network.send(
                CONTROLLER,
                number,
                self._subjects[number].on_refused_set,
                life,
                epoch,
                proposal.number,
            )
            return
        self._decide(replace(view, members=proposal.members, set_epoch=view.set_epoch + 1))
        self._tell(number, life, -1)

    def elect(self) -> None:
        """Elect a master, again or another, as soon as that is safe."""
        self._wants_election = True

    def reappoint(self, life: int) -> None:
        """Let the master, which began a new life, go on in a new epoch without asking anybody."""
        self._restart(life, epoch=self.view.epoch + 1)

    def delay_orders(self, number: int, ms: int) -> None:
        """Give a replica no order for a while, or an earlier one again, whatever life it lives."""
        self._late[number] = self._timeline.now_us + ms * 1000
        if self._given and self._network.rng.random() < 0.5:
            earlier = self._network.rng.choice(self._given[-3:])
            self._timeline.after(
                int(ms * 1000 * self._network.rng.random()),
                self._deliver,
                number,
                earlier,
            )

    def delay_next_order(self, ms: int) -> None:
        """Let the replica elected next learn of that late, unlike the others."""
        self._next_late_ms = ms

    def bury(self, number: int) -> None:
        """Take a replica for dead, whatever is still heard of it, until `unbury`."""
        self._buried.add(number)
        self._words.pop(number, None)

    def expel(self, number: int) -> bool:
        """Take a replica out of the set whose data is lost; False where nobody else has it."""
        view = self.view
        if number in view.members:
            others = view.members - {number}
            if not others or number == view.master:
                return False
            self._decide(replace(view, members=others, set_epoch=view.set_epoch + 1))
        self.bury(number)
        return True

    def unbury(self, number: int) -> None:
        """Listen to a replica again."""
        self._buried.discard(number)

    def _check(self) -> None:
        self._timeline.after(_CHECK_MS * 1000, self._check)
        if self.view.master == 0 or not self._is_alive(self.view.master):
            self._wants_election = True
        if self._wants_election and self._timeline.now_us > self._lease_until_us:
            self._elect()

    def _elect(self) -> None:
        fit = [each for each in sorted(self.view.members) if self._is_alive(each)]
        if not fit:
            return
        self._wants_election = False
        if self._shape.elects_longest:
            chosen = max(fit, key=lambda each: self._words[each].end_offset)
        else:
            chosen = self._network.rng.choice(fit)
        members = self.view.members if self._shape.keeps_members else frozenset((chosen,))
        self._appoint(chosen, members, epoch=self.view.epoch + 1)

    def _restart(self, life: int, *, epoch: int) -> None:
        view = self.view
        if view.master in self._words:
            self._words[view.master].life = life
        self._wants_election = False
        self._appoint(view.master, view.members, epoch=epoch)

    def _appoint(
        self,
        chosen: int,
        members: frozenset[int],
        *,
        epoch: int,
        asked: frozenset[int] = frozenset(),
    ) -> None:
        view = self.view
        order, set_epoch = view.order + 1, view.set_epoch + 1
        if self._next_late_ms:
            self._late[chosen] = self._timeline.now_us + self._next_late_ms * 1000
            self._next_late_ms = 0
        self._decide(View(epoch, chosen, members, set_epoch, order=order, asked=asked))
        self._given.append(self.view)
        for number, word in self._words.items():
            self._tell(number, word.life, -1)

    def _decide(self, view: View) -> None:
        self.view = view
        self._decided(view)

    def _tell(self, number: int, life: int, asked_ms: int) -> None:
        if self._timeline.now_us < self._late.get(number, 0):
            return
        told = replace(self.view, asked_ms=asked_ms)
        self._network.send(CONTROLLER, number, self._subjects[number].on_view, life, told)

    def _deliver(self, number: int, view: View) -> None:
        self._subjects[number].on_late_view(view)

    def _is_alive(self, number: int) -> bool:
        word = self._words.get(number)
        if word is None:
            return False
        return self._timeline.now_us - word.heard_us <= self._shape.patience_ms * 1000
