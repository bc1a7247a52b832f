"""Three controllers and a group of replicas under faults: elections lose no acknowledged put.

A seed draws the copies that puts wait for, the rates of clocks, the messages that are lost, late
or doubled, and the times at which nodes die or are cut off. These rules are checked: a put is
acknowledged only while its epoch is the last one decided; an elected replica holds all acknowledged
puts; once the faults end, the group has a master and a full set.
"""

from __future__ import annotations

from collections.abc import Callable
from random import Random
from typing import Any

from rmqstore.controller.commands import (
    AssignBrokerId,
    ElectMaster,
    Terms,
    decode_command,
    encode_command,
)
from rmqstore.controller.group import Group
from rmqstore.controller.state import ControllerState, Result
from rmqstore.sim.clock import MachineClock, Timeline
from rmqstore.sim.controller_node import Node
from rmqstore.sim.decision_log import DecisionLog
from rmqstore.sim.election_replica import GROUP, Grant, Replica

__all__ = ["ElectionWorld", "run_elections"]

_FAULTS_MS = 12_000
_PEACE_MS = 8_000
_PUTS_END_MS = _FAULTS_MS + 5_000
"""Then the replicas catch up."""
_BEAT_MS = 100
_DRIFT_PPM = 45_000


class ElectionWorld:
    """One seed's world."""

    def __init__(self, seed: int) -> None:
        self.rng = rng = Random(seed)
        self.timeline = Timeline()
        self.log = DecisionLog(self.timeline, rng, self._committed)
        self.truth = ControllerState()
        self.acknowledged: list[int] = []
        self.elections = 0
        self.is_peace = False
        self._values = 0
        self._cut: set[int] = set()
        """Replicas that reach no other node."""
        self._without_controller: set[int] = set()
        """Replicas that reach each other, but no controller."""
        timeout_ms = rng.choice((250, 600))
        self.terms = self._drawn_terms()
        count = rng.choice((2, 3, 3, 4, 5))
        self.nodes = [Node(each, self.log, self._clock(), GROUP) for each in range(3)]
        self.replicas = {
            each: Replica(each, self._clock(), self.terms, timeout_ms)
            for each in range(1, count + 1)
        }
        for each in self.replicas:
            command = AssignBrokerId(GROUP, "c", each, f"h:{each}", str(each))
            self.log.append(encode_command(command))

    def _drawn_terms(self) -> Terms:
        return Terms(self.rng.choice((2, 2, 3)), 1, self.rng.random() < 0.4, 400)

    def _clock(self) -> MachineClock:
        rng = self.rng
        drift = rng.randint(-_DRIFT_PPM, _DRIFT_PPM)
        return MachineClock(self.timeline, begin_ms=rng.randrange(10_000_000), drift_ppm=drift)

    def run(self) -> None:
        """Run the world with its faults, then check that the group recovers."""
        self._lead(0)
        for node in self.nodes:
            self._every(7, self._apply, node)
            self._every(100, self._review, node)
        for replica in self.replicas.values():
            self._every(_BEAT_MS, self._beat, replica)
            self._every(30, self._fetch, replica)
            self._every(15, self._put, replica)
            self._every(50, self._propose, replica)
            self._every(200, self._request_election, replica)
        self._every(250, self._fault)
        self.timeline.run(_FAULTS_MS * 1000)
        self._make_peace()
        self.timeline.run((_FAULTS_MS + _PEACE_MS) * 1000)
        group = self._group
        assert group.master_id is not None, "the group has no master once the faults ended"
        assert group.sync_state_set == frozenset(self.replicas), "the set is not full again"

    @property
    def _group(self) -> Group:
        group = self.truth.group(GROUP)
        assert group is not None
        return group

    def _every(self, period_ms: int, action: Callable[..., None], *values: Any) -> None:
        def again() -> None:
            action(*values)
            self.timeline.after(int(period_ms * 1000 * self.rng.uniform(0.7, 1.3)), again)

        self.timeline.after(self.rng.randrange(period_ms * 1000), again)

    def _send(self, number: int, action: Callable[..., None], *values: Any) -> None:
        """Deliver a message from or to the replica *number*: late, never or twice."""
        rng = self.rng
        for _ in range(1 if self.is_peace or rng.random() < 0.95 else 2):
            if not self.is_peace and (rng.random() < 0.05 or number in self._cut):
                continue
            slow = not self.is_peace and rng.random() < 0.05
            delay_us = rng.randrange(500, 900_000 if slow else 10_000)
            self.timeline.after(delay_us, action, *values)

    # Checks.

    def _committed(self, command: bytes) -> None:
        decoded = decode_command(command)
        result = self.truth.apply(decoded)
        if not isinstance(decoded, ElectMaster) or decoded.master_id is None:
            return
        if not result.is_applied:
            return
        self.elections += 1
        held = {value for _, value in self.replicas[decoded.master_id].log}
        lost = [each for each in self.acknowledged if each not in held]
        assert not lost, f"epoch {decoded.new_epoch}: replica {decoded.master_id} lacks {lost[:5]}"

    def _acknowledge(self, replica: Replica) -> None:
        for value in replica.acknowledge():
            group = self._group
            assert group.master_epoch == replica.role_epoch, (
                f"replica {replica.number} acknowledged a put of epoch {replica.role_epoch} in "
                f"epoch {group.master_epoch}"
            )
            self.acknowledged.append(value)

    # Controllers.

    def _apply(self, node: Node) -> None:
        for _ in range(self.rng.randrange(1, 20)):
            node.apply_next()
        if self.rng.random() < 0.01:
            node.keep_snapshot()

    def _review(self, node: Node) -> None:
        if node.is_alive:
            node.liveness.expire(node.clock.monotonic_ms())
            node.review()

    def _lead(self, number: int) -> None:
        """Have a node lead; it begins to decide once it has applied all entries before its term."""
        former, first = self.log.leader, self.log.elect(number)
        node, term, life = self.nodes[number], self.log.term, self.nodes[number].life

        def begin() -> None:
            if term != self.log.term or life != node.life or not node.is_alive:
                return
            if node.applied < first:
                self.timeline.after(5000, begin)
                return
            node.lead(term)

        self.timeline.after(self.rng.randrange(1000, 300_000), begin)
        if former not in (-1, number):
            late_us = self.rng.randrange(1000, 2_000_000)
            self.timeline.after(late_us, self.nodes[former].resign, self.nodes[former].term)

    # Replicas.

    def _beat(self, replica: Replica) -> None:
        if not replica.is_alive:
            return
        for node in self.nodes:
            beat = replica.beat(node)
            self._send(replica.number, self._receive_beat, node, replica, beat, replica.life)

    def _receive_beat(self, node: Node, replica: Replica, beat: Any, life: int) -> None:
        if not node.is_alive or replica.number in self._without_controller:
            return
        if not node.liveness.record(beat, replica.number, node.clock.monotonic_ms()):
            return
        node.review()
        leader, node_life = node.leader, node.life

        def answer(leads: bool) -> None:
            if not node.is_alive or node.life != node_life:
                return
            now_ms = node.clock.monotonic_ms()
            leads = leads and leader is not None and leader is node.leader
            lease_ms = 0
            if leads and leader is not None:
                lease_ms = leader.lease(GROUP, replica.number, now_ms)
            group = node.state.group(GROUP) if leads else None
            grant = Grant(node.process_id, now_ms, beat.number, lease_ms, group)
            self._send(replica.number, replica.take, grant, life, node.number)

        if leader is None:
            answer(False)
        else:
            self.log.barrier(node.number, node.term, lambda: answer(True))

    def _put(self, replica: Replica) -> None:
        is_over = self.timeline.now_us > _PUTS_END_MS * 1000
        if replica.is_alive and replica.holds_lease and not is_over:
            self._values += 1
            replica.log.append((replica.role_epoch, self._values))
            self._acknowledge(replica)

    def _fetch(self, slave: Replica) -> None:
        master = self.replicas.get(slave.master or 0)
        if slave.is_alive and master is not None:
            request = (slave.known_epoch, slave.life)
            self._send(slave.number, self._serve, master, slave, *request)

    def _serve(self, master: Replica, slave: Replica, epoch: int, life: int) -> None:
        if master.is_alive and master.role_epoch == epoch and master.number not in self._cut:
            self._send(slave.number, self._copy, master, slave, list(master.log), epoch, life)

    def _copy(self, master: Replica, slave: Replica, log: list[Any], epoch: int, life: int) -> None:
        if not slave.is_alive or slave.life != life or slave.known_epoch != epoch:
            return
        if slave.role_epoch >= 0 or (len(log) < len(slave.log) and slave.log[: len(log)] == log):
            return
        end = slave.copy(log, self.rng)
        self._send(slave.number, self._acked, master, slave.number, end, epoch)

    def _acked(self, master: Replica, slave: int, end: int, epoch: int) -> None:
        if not master.is_alive or master.role_epoch != epoch or master.number in self._cut:
            return
        # Copies of earlier entries count once the replica has the first entry of the epoch.
        if end > master.start:
            master.acks[slave] = max(end, master.acks.get(slave, 0))
        master.acked_ms[slave] = master.clock.monotonic_ms()
        self._acknowledge(master)

    def _propose(self, replica: Replica) -> None:
        proposed = replica.proposal() if replica.is_alive else None
        if proposed is None:
            return
        call = (replica, replica.role_epoch, replica.set_epoch, proposed)
        for node in self.nodes:
            self._send(replica.number, self._take_proposal, node, *call)

    def _take_proposal(
        self, node: Node, replica: Replica, epoch: int, set_epoch: int, proposed: frozenset[int]
    ) -> None:
        if not node.is_alive or node.leader is None:
            return
        decided = node.leader.alter_set(
            GROUP,
            master_id=replica.number,
            master_epoch=epoch,
            set_epoch=set_epoch,
            members=proposed,
            now_ms=node.clock.monotonic_ms(),
        )
        if not isinstance(decided, Result):
            node.propose(decided)

    def _request_election(self, replica: Replica) -> None:
        for node in self.nodes:
            group = node.state.group(GROUP)
            if not node.is_alive or node.leader is None or group is None or group.was_elected:
                continue
            now_ms = node.clock.monotonic_ms()
            election = node.leader.elect(GROUP, broker_id=replica.number, now_ms=now_ms)
            node.hold(election)

    # Faults.

    def _fault(self) -> None:
        if self.is_peace:
            return
        rng = self.rng
        kind = rng.randrange(11)
        if kind == 0:
            self._lead(rng.choice([each.number for each in self.nodes if each.is_alive]))
        elif kind == 1:
            self._crash_node(rng.choice(self.nodes))
        elif kind in (2, 3):
            self._crash_replica(rng.choice(list(self.replicas.values())))
        elif kind == 4:
            number = rng.choice(list(self.replicas))
            self._cut.add(number)
            self.timeline.after(rng.randrange(3_000_000), self._cut.discard, number)
        elif kind in (5, 6):
            replica = rng.choice(list(self.replicas.values()))
            replica.is_slow = True
            self.timeline.after(rng.randrange(2_000_000), self._hurry, replica)
        elif kind in (7, 8):
            number = rng.choice([self._group.master_id or 1, *self.replicas])
            self._without_controller.add(number)
            self.timeline.after(rng.randrange(1_500_000), self._without_controller.discard, number)
        elif kind == 9:
            self._part_slaves()
        else:
            self._crash_replica(self.replicas[self._group.master_id or 1])

    def _part_slaves(self) -> None:
        """Let one slave lag and another be cut off, then let the master die."""
        master = self._group.master_id or 1
        slow, *rest = self.rng.sample(
            [n for n in self.replicas if n != master], k=min(2, len(self.replicas) - 1)
        )
        self.replicas[slow].is_slow = True
        self.timeline.after(2_500_000, self._hurry, self.replicas[slow])
        for number in rest:
            self.timeline.after(100_000, self._cut.add, number)
            self.timeline.after(2_500_000, self._cut.discard, number)
        end_us = self.rng.randrange(500_000, 1_500_000)
        self.timeline.after(end_us, self._crash_replica, self.replicas[master])

    @staticmethod
    def _hurry(replica: Replica) -> None:
        replica.is_slow = False

    def _crash_node(self, node: Node) -> None:
        if sum(each.is_alive for each in self.nodes) < 3:
            return
        node.crash()
        if node.number == self.log.leader:
            self._lead(self.rng.choice([each.number for each in self.nodes if each.is_alive]))
        self.timeline.after(self.rng.randrange(3_000_000), node.restart)

    def _crash_replica(self, replica: Replica) -> None:
        if not replica.is_alive:
            return
        replica.crash()
        terms = self.terms if self.rng.random() < 0.8 else self._drawn_terms()
        down_us = self.rng.choice((1000, 300_000, 3_000_000))
        self.timeline.after(self.rng.randrange(down_us), self._restart_replica, replica, terms)

    @staticmethod
    def _restart_replica(replica: Replica, terms: Terms) -> None:
        if not replica.is_alive:
            replica.restart(terms)

    def _make_peace(self) -> None:
        self.is_peace = self.log.is_kind = True
        self._cut.clear()
        self._without_controller.clear()
        for replica in self.replicas.values():
            replica.is_slow = False
            self._restart_replica(replica, self.terms)
        for node in self.nodes:
            node.restart()
        self._lead(self.rng.randrange(3))


def run_elections(seed: int) -> ElectionWorld:
    """Return the world of *seed* after its run. Raises AssertionError with the violated rule."""
    world = ElectionWorld(seed)
    world.run()
    return world
