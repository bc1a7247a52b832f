"""Replicas for `elections`, and the answers that they receive.

A replica is a model: a list of entries instead of a commit log, and the rules of
docs/replication.md for copies, sets and leases.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from random import Random

from rmqstore.controller.commands import Terms
from rmqstore.controller.group import Group
from rmqstore.controller.liveness import Heartbeat
from rmqstore.replication.group.log_rank import LogRank
from rmqstore.sim.clock import MachineClock
from rmqstore.sim.controller_node import Node

__all__ = ["GROUP", "Grant", "Replica"]

GROUP = "g"
_LAG_MS = 400
_PROPOSE_AGAIN_MS = 300


@dataclass(frozen=True, slots=True)
class Grant:
    """The answer to a heartbeat."""

    node: str
    seen_ms: int
    number: int
    lease_ms: int
    group: Group | None
    """None from a node that does not lead."""


@dataclass(slots=True)
class Replica:
    """One broker. *log* and the two epochs survive its crashes."""

    number: int
    clock: MachineClock
    terms: Terms
    timeout_ms: int
    log: list[tuple[int, int]] = field(default_factory=list)
    known_epoch: int = 0
    taken_epoch: int = -1
    """The last epoch in which it was master."""

    is_alive: bool = True
    life: int = 1
    beats: int = 0
    seen: dict[int, tuple[str, int]] = field(default_factory=dict)
    sent_ms: dict[int, int] = field(default_factory=dict)
    """When each heartbeat was sent."""
    master: int | None = None
    role_epoch: int = -1
    refused_epoch: int = -1
    start: int = 0
    members: frozenset[int] = frozenset()
    set_epoch: int = 0
    joining: dict[int, int] = field(default_factory=dict)
    """Replicas that were proposed, and for which version of the set."""
    leaving: frozenset[int] = frozenset()
    proposed_ms: int = -1
    acks: dict[int, int] = field(default_factory=dict)
    acked_ms: dict[int, int] = field(default_factory=dict)
    lease_end_ms: int = 0
    is_slow: bool = False
    """It copies no new entries, but stays in the set because the master receives its fetches."""
    acked: int = 0
    """End of the entries of this role that were acknowledged or abandoned."""

    def crash(self) -> None:
        """End this life, and its role."""
        self.is_alive = False
        self._end_role()

    def restart(self, terms: Terms) -> None:
        """Begin another life, perhaps with other settings."""
        self.is_alive, self.life, self.beats = True, self.life + 1, 0
        self.seen, self.sent_ms, self.terms = {}, {}, terms
        self.master, self.refused_epoch = None, -1

    def _end_role(self) -> None:
        self.role_epoch, self.lease_end_ms = -1, 0
        self.members, self.set_epoch = frozenset(), 0

    @property
    def holds_lease(self) -> bool:
        """Whether puts may be acknowledged."""
        return self.role_epoch >= 0 and self.clock.monotonic_ms() < self.lease_end_ms

    @property
    def confirm(self) -> int:
        """End of the entries that all counted replicas hold."""
        waited = (self.members | self.joining.keys()) - {self.number}
        return min([len(self.log), *(self.acks.get(each, 0) for each in waited)])

    def beat(self, node: Node) -> Heartbeat:
        """Return the next heartbeat to *node*."""
        self.beats += 1
        self.sent_ms[self.beats] = self.clock.monotonic_ms()
        process, seen_ms = self.seen.get(node.number, ("", -1))
        return Heartbeat(
            group=GROUP,
            broker_id=self.number,
            address=f"h:{self.number}",
            rank=LogRank(self.log[-1][0] if self.log else -1, len(self.log)),
            confirm_offset=self.confirm if self.role_epoch >= 0 else 0,
            timeout_ms=self.timeout_ms,
            life=self.life,
            number=self.beats,
            seen_ms=seen_ms if process == node.process_id else -1,
            role_epoch=self.role_epoch,
            refused_epoch=self.refused_epoch,
            set_epoch=self.set_epoch if self.role_epoch >= 0 else -1,
            terms=self.terms,
        )

    def take(self, grant: Grant, life: int, node: int) -> None:
        """Take the answer to a heartbeat of this life."""
        if life != self.life or not self.is_alive:
            return
        former = self.seen.get(node)
        if former is None or former[0] != grant.node or former[1] < grant.seen_ms:
            self.seen[node] = (grant.node, grant.seen_ms)
        group = grant.group
        if group is None:
            return
        if grant.lease_ms and self.role_epoch == group.master_epoch:
            end_ms = self.sent_ms[grant.number] + grant.lease_ms
            self.lease_end_ms = max(self.lease_end_ms, end_ms)
        self.adopt(group)

    def adopt(self, group: Group) -> None:
        """Take the role and the set that a controller names."""
        epoch = group.master_epoch
        if epoch < self.known_epoch or group.master_id is None:
            return
        if group.master_id != self.number:
            if epoch > self.known_epoch or self.role_epoch < 0:
                self._end_role()
                self.master, self.known_epoch = group.master_id, epoch
            return
        if epoch > self.known_epoch or (epoch == self.known_epoch and self.taken_epoch < epoch):
            self.known_epoch = self.taken_epoch = self.role_epoch = epoch
            self.master, self.start, self.acked = None, len(self.log), len(self.log)
            self.acks, self.acked_ms, self.joining = {}, {}, {}
            self.leaving, self.lease_end_ms, self.set_epoch = frozenset(), 0, 0
            # The entry that begins the epoch ranks the log above those of earlier ones.
            self.log.append((epoch, -epoch))
        elif self.role_epoch != epoch:
            self.refused_epoch = epoch
            return
        if group.set_epoch > self.set_epoch:
            self.members, self.set_epoch = group.sync_state_set, group.set_epoch
            self.leaving = frozenset()
            self.joining = {n: at for n, at in self.joining.items() if at >= self.set_epoch}

    def proposal(self) -> frozenset[int] | None:
        """Return the set to be proposed now, None for none."""
        now_ms = self.clock.monotonic_ms()
        if self.role_epoch < 0 or now_ms - self.proposed_ms < _PROPOSE_AGAIN_MS:
            return None
        slow = frozenset(
            each
            for each in self.members - {self.number}
            if now_ms - self.acked_ms.get(each, self.acked_ms.setdefault(each, now_ms)) > _LAG_MS
        )
        ready = [
            each
            for each, held in self.acks.items()
            if each not in self.members and held >= max(self.confirm, self.start + 1)
            if now_ms - self.acked_ms[each] < _LAG_MS
        ]
        proposed = (self.members - slow) | frozenset(ready)
        if proposed == self.members and not self.joining:
            return None
        self.proposed_ms = now_ms
        self.leaving |= slow
        for each in ready:
            self.joining[each] = self.set_epoch
        return proposed

    def acknowledge(self) -> list[int]:
        """Return the values whose puts are acknowledged now."""
        done = []
        while self.acked < len(self.log) and self.holds_lease:
            at = self.acked
            if self.terms.all_ack:
                is_held = self.confirm > at and len(self.members) >= self.terms.min_in_sync
            else:
                counted = self.members - self.leaving - {self.number}
                copies = 1 + sum(self.acks.get(each, 0) > at for each in counted)
                is_held = copies >= self.terms.in_sync
            if not is_held:
                break
            self.acked += 1
            done.append(self.log[at][1])
        return done

    def copy(self, log: list[tuple[int, int]], rng: Random) -> int:
        """Copy the log of the master, or its first part; return the length."""
        common = 0
        for ours, theirs in zip(self.log, log, strict=False):
            if ours != theirs:
                break
            common += 1
        end = rng.choice((len(log), rng.randint(common, len(log))))
        if self.is_slow:
            end = common
        self.log = log[:end]
        return end
