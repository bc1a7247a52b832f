"""A little controller: it keeps the sync-state set and elects masters from it, and never lies.

It lives on a machine of its own that never dies. What it decides is decided; its answers, and its
words about who is master, may come late, out of order, twice, or never. A proposal is a call, so
what it refused stays refused, whatever copies of the call come later.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass, replace
from typing import Protocol

from rmqstore.replication.group.quorum import elector_wait_ms
from rmqstore.sim.clock import Timeline
from rmqstore.sim.messages import (
    Heartbeat,
    Message,
    Order,
    Propose,
    Refuse,
    View,
    decode,
    encode,
)
from rmqstore.sim.network import Network
from rmqstore.sim.shape import Shape

__all__ = ["CONTROLLER", "Controller", "Subject"]

CONTROLLER = 0
_CHECK_MS = 100


class Subject(Protocol):
    """A replica as the controller knows it."""

    number: int
    is_learner: bool


@dataclass(slots=True)
class _Word:
    """The last that a replica said."""

    heard_us: int
    life: int
    end_offset: int


class Controller:
    """Keeps the set; *decided* is called with each decision."""

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
        self._refused: set[tuple[int, int, int]] = set()
        """Calls that were refused, by replica and life."""

        self._lease_until_us = 0
        self._wants_election = False

        self.distrusted: Collection[int] = frozenset()
        """Replicas that lost something they may have acknowledged, as somebody saw who looks after
        the machines; they are elected only where all members are among them."""

        voters = frozenset(each.number for each in subjects.values() if not each.is_learner)
        self.view = View(0, 0, voters, 0)
        """Nobody is master yet; all logs are empty, so anybody may become it."""

    def start(self) -> None:
        """Begin to look after the group."""
        self._network.receive(CONTROLLER, lambda data: self._receive(decode(data)))
        self._timeline.after(_CHECK_MS * 1000, self._check)

    def _receive(self, message: Message) -> None:
        match message:
            case Heartbeat():
                self._hear(message)
            case Propose():
                self._handle_proposal(message)
            case _:
                raise AssertionError(f"a controller cannot take {message}")

    def _hear(self, beat: Heartbeat) -> None:
        """Take a replica's heartbeat, and answer it with what is so."""
        number, life, asked_ms = beat.number, beat.life, beat.asked_ms
        now_us = self._timeline.now_us
        known = self._words.get(number)
        if number in self._buried or (known is not None and life < known.life):
            return

        if number == self.view.master and known is not None and known.life != life:
            # It was away: what it held in memory only, its waiters and its role are gone.
            self._wants_election = True
        self._words[number] = _Word(now_us, life, beat.end_offset)

        is_master = number == self.view.master and beat.epoch == self.view.epoch
        if is_master and not self._wants_election:
            wait_us = elector_wait_ms(self._shape.lease_ms) * 1000
            self._lease_until_us = max(self._lease_until_us, now_us + wait_us)
        else:
            asked_ms = -1

        if is_master or number != self.view.master or not self._wants_election:
            # A master that was away never takes office in its former epoch again: it may have lost
            # what others hold of it, and would write something else there.
            self._reply(number, life, asked_ms)

    def _handle_proposal(self, asked: Propose) -> None:
        """Take or refuse a set that a master proposes."""
        view, number, life = self.view, asked.number, asked.life
        if number != view.master or asked.epoch != view.epoch:
            return
        if asked.set_epoch != view.set_epoch:
            self._reply(number, life, -1)
            return
        call = (number, life, asked.call)
        if call in self._refused or not all(self._is_alive(each) for each in asked.joined):
            self._refused.add(call)
            self._send(number, Refuse(life, asked.epoch, asked.call, asked.proposal))
            return
        self._decide(replace(view, members=asked.members, set_epoch=view.set_epoch + 1))
        self._reply(number, life, -1)

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
            late_us = int(ms * 1000 * self._network.rng.random())
            self._timeline.after(late_us, self._send, number, Order(-1, earlier))

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
        members, lost = self.view.members, self.distrusted
        fit = [each for each in sorted(members) if self._is_alive(each) and each not in lost]
        if not fit and all(each in lost and self._is_alive(each) for each in members):
            fit = sorted(members)
        if not fit:
            return
        self._wants_election = False
        if self._shape.elects_longest or fit[0] in lost:
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
            self._reply(number, word.life, -1)

    def _decide(self, view: View) -> None:
        self.view = view
        self._decided(view)

    def _reply(self, number: int, life: int, asked_ms: int) -> None:
        if self._timeline.now_us < self._late.get(number, 0):
            return
        self._send(number, Order(life, replace(self.view, asked_ms=asked_ms)))

    def _send(self, number: int, message: Message) -> None:
        self._network.send(CONTROLLER, number, encode(message))

    def _is_alive(self, number: int) -> bool:
        word = self._words.get(number)
        if word is None:
            return False
        return self._timeline.now_us - word.heard_us <= self._shape.patience_ms * 1000
