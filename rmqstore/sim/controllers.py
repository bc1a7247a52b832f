"""Three controllers that keep the set of a group and elect its masters, with production's code.

The nodes share a log (`decision_log`). They die, lose power, restart with an old snapshot, and act
as leader for some time after another was elected. `Controllers` observes the committed commands,
and checks each election by the rule of docs/replication.md. How replicas reach the nodes differs:
`bare_controllers` and `cluster_controllers`.

No operator excludes a replica that lost messages: elections find out which logs may have lost their
end.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import replace
from random import Random
from typing import Protocol

from rmqstore.controller.commands import (
    AssignBrokerId,
    ElectMaster,
    decode_command,
    encode_command,
)
from rmqstore.controller.group import Group
from rmqstore.controller.leader import Election, Leader
from rmqstore.controller.state import ControllerState, Verdict
from rmqstore.remoting.codes import RequestCode
from rmqstore.remoting.frames import Frame
from rmqstore.remoting.headers.controller import ElectMasterRequestHeader
from rmqstore.replication.group.log_rank import reports_needed
from rmqstore.sim.clock import MachineClock, Timeline
from rmqstore.sim.controller_client import CLUSTER, CONTROLLERS, GROUP
from rmqstore.sim.decision_log import DecisionLog
from rmqstore.sim.network import Network
from rmqstore.sim.operator import Subject
from rmqstore.sim.shape import Shape
from rmqstore.sim.view import View

__all__ = ["Controllers", "Node"]

_EXPEL_TRIES = 25
"""Number of checks whether a replica has left the set before an operator elects a master."""
_LOSS_RATE = 0.03


class Node(Protocol):
    """One of the controllers."""

    number: int
    life: int
    is_alive: bool

    @property
    def leader(self) -> Leader | None:
        """The decisions of this node; None while it does not lead."""

    @property
    def term(self) -> int:
        """The last term in which this node led."""

    @property
    def applied(self) -> int:
        """The number of entries that were applied."""

    def apply_next(self) -> None:
        """Apply the next entry, if there is one."""

    def keep_snapshot(self) -> None:
        """Store a snapshot for the start of the next life."""

    def lead(self, term: int) -> None:
        """Begin to decide; everything up to the beginning of the term is applied."""

    def resign(self, term: int) -> None:
        """Stop deciding, because *term* has ended."""

    def crash(self) -> None:
        """End this life."""

    def restart(self) -> None:
        """Start another life with the last snapshot, unless the node runs."""


class Controllers(ABC):
    """The nodes; *decided* is called with each decision about the master or the set."""

    addresses = CONTROLLERS

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
        self._rng: Random = network.rng
        self._shape = shape
        self._subjects = subjects
        self._decided = decided
        self.log = DecisionLog(timeline, self._rng, self._committed, loss_rate=_LOSS_RATE)
        self.nodes: Sequence[Node] = [
            self._new_node(number, self._clock()) for number in range(len(CONTROLLERS))
        ]
        self._truth = ControllerState()
        self._held: dict[bytes, tuple[Node, Election]] = {}
        """Elections that were proposed."""
        self._ids: set[int] = set()
        self._next_late_ms = 0
        self._tries: dict[int, int] = {}
        """Attempts to remove from the set replicas that lost their log."""
        self.distrusted: Collection[int] = frozenset()
        """Replicas that lost messages. The elections find this out by themselves."""
        self._is_healed = False
        self.is_careful = False
        """Whether operators never elect a replica that may lack messages."""
        self.view = View(0, 0, frozenset(), 0)

    def _clock(self) -> MachineClock:
        drift_ppm = self._shape.drift_ppm
        return MachineClock(
            self._timeline,
            begin_ms=self._rng.randrange(1_000_000),
            drift_ppm=self._rng.randint(-drift_ppm, drift_ppm),
        )

    @property
    def group(self) -> Group:
        """The committed state."""
        found = self._truth.group(GROUP)
        assert found is not None, "the replicas are registered"
        return found

    # ---- beginning and end

    def start(self) -> None:
        """Register the replicas, and start to review the group."""
        for number in sorted(self._subjects):
            place = self._place_of_broker(number)
            command = AssignBrokerId(GROUP, CLUSTER, number, place, f"{place};{number}")
            self.log.append(encode_command(command))
        self._begin()
        self._lead(self._rng.randrange(len(self.nodes)))

    def heal(self) -> None:
        """End all faults of the nodes."""
        self._is_healed = self.log.is_kind = True
        self.log.is_full = self.log.is_slow = False
        for node in self.nodes:
            self._restart(node)
        self._lead(self._rng.randrange(len(self.nodes)))

    @property
    def is_well(self) -> bool:
        """Whether all nodes run, the one that was elected leads, and nothing is delayed."""
        log = self.log
        leads = [each for each in self.nodes if each.leader is not None]
        return (
            all(each.is_alive for each in self.nodes)
            and leads == [self.nodes[log.leader]]
            and leads[0].term == log.term
            and not (log.is_full or log.is_slow)
        )

    # ---- leadership, and the lives of nodes

    def _lead(self, number: int) -> None:
        """Make a node leader; it starts to decide once it has applied all entries before its
        term."""
        former, first = self.log.leader, self.log.elect(number)
        node, term, life = self.nodes[number], self.log.term, self.nodes[number].life

        def begin() -> None:
            if term != self.log.term or life != node.life or not node.is_alive:
                return
            if node.applied < first:
                self._timeline.after(5000, begin)
                return
            node.lead(term)

        slow = 10 if self._is_healed else 300
        self._timeline.after(self._rng.randrange(1000, slow * 1000), begin)
        if former not in (-1, number):
            late_us = self._rng.randrange(1000, 2_000_000)
            self._timeline.after(late_us, self.nodes[former].resign, self.nodes[former].term)

    def depose(self) -> None:
        """Make any node the leader from now on."""
        living = [each.number for each in self.nodes if each.is_alive]
        if living:
            self._lead(self._rng.choice(living))

    def crash(self) -> None:
        """End a node; it restarts with its last snapshot. A majority keeps running."""
        if not all(each.is_alive for each in self.nodes):
            return
        node = self._rng.choice(self.nodes)
        node.crash()
        if node.number == self.log.leader:
            self.depose()
        self._timeline.after(self._rng.randrange(3_000_000), self._restart, node)

    def _restart(self, node: Node) -> None:
        node.restart()
        self._catch_up(node)

    def _catch_up(self, node: Node) -> None:
        for _ in range(node.applied, len(self.log.entries)):
            self._apply_soon(node)

    def _stuck(self, node: Node) -> None:
        # An engine whose leader gets no answers elects another leader, unless all disks are slow.
        if node.number == self.log.leader and not self.log.is_slow:
            self.depose()

    def _apply_soon(self, node: Node) -> None:
        slow = not self._is_healed and self._rng.random() < 0.1
        delay_us = self._rng.randrange(500, 300_000 if slow else 10_000)
        self._timeline.after(delay_us, self._apply, node)

    def _apply(self, node: Node) -> None:
        node.apply_next()
        if node.is_alive and self._rng.random() < 0.05:
            node.keep_snapshot()

    # ---- decisions

    def _elected(self, node: Node, election: Election) -> None:
        assert election.command is not None, "an election that is held"
        self._held[encode_command(election.command)] = node, election

    def _committed(self, data: bytes) -> None:
        for node in self.nodes:
            self._apply_soon(node)
        command = decode_command(data)
        before = self._truth.group(GROUP)
        result = self._truth.apply(command)
        if result.verdict is not Verdict.APPLIED:
            return
        if isinstance(command, AssignBrokerId):
            assert command.broker_id not in self._ids, f"id {command.broker_id} is given twice"
            self._ids.add(command.broker_id)
        asked, asked_min = self.view.asked, self.view.asked_min
        is_risky = voids_last = False
        if isinstance(command, ElectMaster):
            assert before is not None, "an election of a known group"
            node, election = self._held[data]
            assert self.group.master_epoch > before.master_epoch, "an epoch is used again"
            asked, is_risky = election.asked, bool(election.risk)
            voids_last = command.voids_last
            asked_min = 0
            if command.master_id is not None:
                asked_min = self._checked(before, command, election)
                self._announce(node, self.group)
        self._decide(asked, asked_min, is_risky=is_risky, voids_last=voids_last)

    def _decide(
        self, asked: frozenset[int], asked_min: int, *, is_risky: bool, voids_last: bool
    ) -> None:
        group, known = self.group, self.view
        view = View(
            group.master_epoch,
            group.master_id or 0,
            group.sync_state_set,
            group.set_epoch,
            order=group.master_epoch,
            asked=asked,
            asked_min=asked_min,
            is_risky=is_risky,
            voids_last=voids_last,
            master_life=group.master_life,
        )
        if view.epoch == known.epoch:
            view = replace(view, asked=known.asked, is_risky=known.is_risky)
        if (view.epoch, view.set_epoch) != (known.epoch, known.set_epoch):
            self.view = view
            self._decided(view)

    def _checked(self, before: Group, command: ElectMaster, election: Election) -> int:
        """Return how many replicas had to be compared, 0 if any member may be elected. Raises if
        the election rule is violated."""
        if not before.was_elected or election.risk:
            return 0
        former = before.former if command.voids_last else None
        electorate = former or before.electorate
        chosen, terms, members = command.master_id, electorate.terms, electorate.members
        if terms is None or terms.all_ack:
            assert chosen in members, f"{chosen} was elected and is not a member"
            return 0
        needed = reports_needed(len(electorate.voters), copies=terms.in_sync)
        if electorate.is_settled:
            needed = min(needed, reports_needed(len(members), copies=terms.in_sync))
        is_enough = len(election.asked) >= needed and election.asked <= electorate.voters
        is_enough &= chosen in election.asked
        assert is_enough, (
            f"{chosen} is elected after the reports of {sorted(election.asked)}: {needed} of "
            f"{sorted(electorate.voters)} are needed"
        )
        assert election.asked & members, f"{chosen} is elected without a member"
        return needed

    def _announce(self, node: Node, group: Group) -> None:
        """Take that *node* elected the master of *group*, which the brokers are notified of."""
        if self._next_late_ms:
            assert group.master_id is not None, "a master was elected"
            self._delay(group.master_id, self._next_late_ms)
            self._next_late_ms = 0

    # ---- operators

    def elect(self) -> None:
        """Request the election of another replica, rarely of a replica that may lack messages."""
        group = self.group
        if self.is_careful:
            is_safe = group.terms is not None and group.terms.all_ack
            wanted: Collection[int] = group.sync_state_set if is_safe else ()
        else:
            wanted = self._subjects if self._rng.random() < 0.1 else group.voters
        others = [
            each
            for each in sorted(wanted)
            if each != group.master_id and not self._subjects[each].is_learner
        ]
        if others and group.master_id is not None:
            self._designate(self._rng.choice(others))

    def _designate(self, number: int) -> None:
        header = ElectMasterRequestHeader(
            cluster_name=CLUSTER, broker_name=GROUP, broker_id=number, is_designated=True
        )
        self._send_designation(
            Frame.request(RequestCode.CONTROLLER_ELECT_MASTER, header.to_fields())
        )

    def delay_next_order(self, ms: int) -> None:
        """Delay only the notice to the replica that is elected next."""
        self._next_late_ms = ms

    def bury(self, number: int) -> None:  # noqa: B027
        """Do nothing: a replica without heartbeats is soon considered dead."""

    def unbury(self, number: int) -> None:
        """Do nothing: a replica that sends heartbeats is alive."""
        self._tries.pop(number, None)

    def expel(self, number: int) -> bool:
        """Return whether no election depends on the log of a replica, which is lost.

        Its master removes it from the set after some time. Without a master, and if no master can
        be elected without this replica, an operator elects another replica.
        """
        group = self.group
        if number not in group.sync_state_set and number != group.master_id:
            return True
        tries = self._tries[number] = self._tries.get(number, 0) + 1
        others = [n for n, each in self._subjects.items() if n != number and not each.is_learner]
        if tries % _EXPEL_TRIES == 0 and others:
            for node in self.nodes:
                if node.leader is not None:
                    node.leader.allows_unclean = True
            self._designate(self._rng.choice(others))
        return False

    # ---- how replicas and operators reach the nodes

    @abstractmethod
    def _new_node(self, number: int, clock: MachineClock) -> Node:
        """Returns a node, which does not run yet if it is a process."""

    @abstractmethod
    def _begin(self) -> None:
        """Starts the nodes."""

    @abstractmethod
    def _place_of_broker(self, number: int) -> str:
        """Returns the address by which a replica registers."""

    @abstractmethod
    def _send_designation(self, request: Frame) -> None:
        """Sends the request of an operator to all nodes."""

    @abstractmethod
    def _delay(self, number: int, ms: int) -> None:
        """Lets a replica receive nothing of the nodes for some time."""

    @abstractmethod
    def delay_orders(self, number: int, ms: int) -> None:
        """Let a replica receive nothing for some time, or an earlier notice again."""

    @abstractmethod
    def close(self) -> None:
        """End the processes of the nodes together with the world."""
