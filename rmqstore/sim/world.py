"""A replica group with its network, disks, clocks, electors and users, in virtual time.

The nodes and machines of `rmqstore.replication` run in it unchanged. Everything else is drawn from
one seed, so its integer repeats a run event by event.
"""

from __future__ import annotations

import traceback
from dataclasses import dataclass
from random import Random
from typing import Any

from rmqstore.message import PutStatus
from rmqstore.replication.protocol.events import Append, Effect
from rmqstore.replication.protocol.frames import Ack, Frame
from rmqstore.sim.bare_controllers import BareControllers
from rmqstore.sim.bare_replica import BareReplica
from rmqstore.sim.calm import Calm
from rmqstore.sim.checker import Checker, Violation
from rmqstore.sim.clock import MachineClock, Timeline
from rmqstore.sim.controllers import Controllers
from rmqstore.sim.faults import Fate, Faults
from rmqstore.sim.hazards import Hazards, Mishaps
from rmqstore.sim.host import Directory
from rmqstore.sim.nameservers import Nameservers
from rmqstore.sim.network import End, Network
from rmqstore.sim.operator import Attendant, Keeper, Operator
from rmqstore.sim.replica import Replica
from rmqstore.sim.shape import Shape
from rmqstore.sim.view import View
from rmqstore.sim.witness import Put
from rmqstore.sim.workload import Workload

__all__ = ["Outcome", "World"]

_LOOK_MS = 100
_RETRY_MS = 200
_UNRELATED = ("no epoch in common", "no common point is a record's beginning")
"""Reasons of a slave whose log has nothing in common with its master's."""
_NO_SUCH_BYTE = "its log ends before byte"
"""The reason of a slave of the classic protocol that its master serves nothing."""
_TOO_FAR_BEHIND = "the master has deleted what comes next"
"""The reason of a slave whose master no longer has the bytes after the slave's last one."""
_OPERATE_MS = 3000


@dataclass(frozen=True, slots=True, kw_only=True)
class Outcome:
    """The outcome of a run."""

    seed: int
    violation: str | None
    """The violated invariant; None without a violation."""
    trace: tuple[str, ...]
    """The events, one line each; empty unless requested."""
    virtual_ms: int
    events: int
    puts: int
    acknowledged: int
    confirmed: int
    """Messages that readers saw."""
    epochs: int
    is_void: bool
    """Whether a loss occurred that the settings of this group do not survive; then only the
    convergence of the group was checked."""
    digest: int
    """A checksum of the run; equal runs have equal checksums."""

    @property
    def is_sound(self) -> bool:
        """Whether there was no violation."""
        return self.violation is None


class World:
    """One run: create it, then call `run`. Its parts may be inspected during and after the run."""

    settles_ms = 20_000
    """Time for the group to converge once faults have healed."""

    def __init__(
        self,
        seed: int,
        *,
        replicas: int = 3,
        steps: int = 100,
        faults: Faults | None = None,
        shape: Shape | None = None,
        hazards: Hazards | None = None,
        is_traced: bool = False,
    ) -> None:
        rng = Random(seed)
        self.seed = seed
        self.shape = shape or self._drawn_shape(rng, replicas)
        drawn = self._drawn_faults(rng)
        self.faults = drawn if faults is None else faults
        rare = Random(f"hazards {seed}")
        """The random numbers of all that the hazards do."""
        if hazards is None and faults is None:
            hazards = Hazards.drawn(rare, self.shape)
        self.hazards = (hazards or Hazards.none()).of(self.shape)
        if self.hazards.loses_power and faults is None:
            self.faults = self.faults.with_power_losses(rare)

        self.timeline = Timeline()
        self.network = Network(self.timeline, Random(rng.random()))
        self.replicas: dict[int, Replica] = {}

        for number in range(1, self.shape.replicas + 1):
            clock = MachineClock(
                self.timeline,
                begin_ms=rng.randrange(1_000_000),
                drift_ppm=rng.randint(-self.shape.drift_ppm, self.shape.drift_ppm),
            )
            replica = self._new_replica(
                number,
                is_learner=number > self.shape.replicas - self.shape.learners,
                shape=self.shape,
                timeline=self.timeline,
                network=self.network,
                clock=clock,
                witness=self,
            )
            self.replicas[number] = replica
            self.network.add(replica)

        self.controller = self._new_elector()

        self.checker = Checker(self.replicas, self.shape, lambda: self.controller.view)
        self.workload = self._new_workload(Random(rng.random()), steps)
        self.fate = Fate(self, Random(rng.random()), self.faults)
        self.mishaps = Mishaps(self, Random(rare.random()), self.hazards)
        self.nameservers = self._new_nameservers(Random(f"nameservers {seed}"))
        self.bystanders: tuple[int, ...] = ()
        """Other machines that may be cut off from replicas."""

        self._rare = rare
        self._calm: Calm | None = None

        self._unattended: set[int] = set()
        """Replicas whose program becomes master again at its start."""

        self._rng = Random(rng.random())
        self._lines: list[str] | None = [] if is_traced else None
        self._digest = 0
        self._epoch = 0

    def _drawn_shape(self, rng: Random, replicas: int) -> Shape:
        return Shape.drawn(rng, replicas=replicas)

    def _drawn_faults(self, rng: Random) -> Faults:
        return Faults.drawn(rng, self.shape)

    def _new_replica(self, number: int, **options: Any) -> Replica:
        return BareReplica(number, **options)

    def _new_elector(self) -> Attendant | Controllers:
        elector: type[Attendant | Controllers] = Operator
        if self.shape.has_set:
            elector = BareControllers
        if self.shape.protocol == "classic":
            elector = Keeper
        return elector(self.timeline, self.network, self.shape, self.replicas, self.on_decision)

    def _new_workload(self, rng: Random, steps: int) -> Workload:
        return Workload(self, self.timeline, rng, self.shape, steps=steps)

    def _new_nameservers(self, rng: Random) -> Nameservers:
        return Nameservers(self.timeline, rng, self.shape, self.replicas, self.say)

    def run(self, *, stays_open: bool = False) -> Outcome:
        """Run all events, let the group converge, and return the outcome. The processes end then,
        unless the world *stays_open* until `close`."""
        violation = None
        try:
            self.say(f"seed {self.seed}: {self.shape}")
            self.say(str(self.faults))
            self.say(str(self.hazards))
            self._start()
            while self.workload.steps_left > 0:
                self._run_ms(500)
            self._settle()
        except AssertionError as error:
            violation = str(error)

        if violation is not None:
            for replica in self.replicas.values():
                self.say(replica.answer())
            self.say(f"VIOLATION: {violation}")

        outcome = Outcome(
            seed=self.seed,
            violation=violation,
            trace=tuple(self._lines or ()),
            virtual_ms=self.timeline.now_us // 1000,
            events=self.timeline.events,
            puts=len(self.workload.puts),
            acknowledged=self.checker.acknowledged,
            confirmed=self.checker.confirmed,
            epochs=self.controller.view.epoch,
            is_void=self.checker.is_void,
            digest=hash((self.timeline.now_us, self.timeline.events, self._digest)),
        )
        if not stays_open:
            self.close()
        return outcome

    def close(self) -> None:
        """End the processes, so that nothing of them is left to the garbage collector."""
        self.nameservers.close()

    def say(self, text: str) -> None:
        """Write a line of the trace."""
        if self._lines is not None:
            self._lines.append(f"{self.timeline.now_us / 1000:12.3f}  {text}")

    # ---- faults

    def kill(self, replica: Replica, *, loses_power: bool, away_ms: int | None = None) -> None:
        """End a replica; it restarts after some time."""
        how = "loses power" if loses_power else "dies"
        self.say(f"replica {replica.number} {how}")
        log = replica.log
        tail_start = min(log.flushed_offset, log.whole_end)
        tail = log.read(tail_start, log.whole_end - tail_start)
        replica.kill(loses_power=loses_power)
        self._died(replica, loses_power=loses_power)
        if loses_power:
            self.checker.lost_power(replica, tail_start=tail_start, tail=tail)
            self.controller.distrusted = self.checker.distrusted
        else:
            self.checker.died(replica)
        ms = self._rng.choice((10, 300, 2500)) if away_ms is None else away_ms
        self.timeline.after(ms * 1000, self._restart, replica)

    def copy_directory(self, replica: Replica) -> Directory:
        """Return a copy of a replica's directory."""
        return replica.copy_directory()

    def put_back(self, replica: Replica, directory: Directory) -> None:
        """Kill a replica, and replace its directory by an earlier copy; it restarts later."""
        self.kill(replica, loses_power=False)
        self.say(f"replica {replica.number}: the copy of its directory is started")
        former = replica.log
        replica.put_back(directory)
        self.checker.put_back(replica, former)
        self.controller.distrusted = self.checker.distrusted

    def empty(self, replica: Replica) -> None:
        """Kill a replica, and give it an empty disk once no election depends on it."""
        replica.kill(loses_power=False)
        self._died(replica, loses_power=False)
        self.checker.died(replica)
        self._replace_disk(replica)

    def calm_down(self, kind: str) -> None:
        """End all faults for some time, in which the hazard *kind* occurs."""
        if self._calm is None or self._calm.is_over:
            self._calm = Calm(self, self._rare, kind)
            self._calm.start()

    def _died(self, replica: Replica, *, loses_power: bool) -> None:
        self.nameservers.died(replica, loses_power=loses_power)

    def _born(self, replica: Replica) -> None:
        self.controller.unbury(replica.number)
        self.checker.started(replica)
        self.checker.born(replica)

    def restart_master(self) -> None:
        """Cut the power of the master's machine, then restart its program. Without controllers the
        program becomes master without a comparison."""
        replica = self.replicas.get(self.controller.view.master)
        if replica is None or replica.master_node is None:
            return
        self.kill(replica, loses_power=True)
        if not self.shape.has_set:
            self._unattended.add(replica.number)

    def err(self) -> None:
        """Let an operator promote a second replica under the present epoch."""
        assert isinstance(self.controller, Operator), "controllers count their epochs"
        chosen = self.controller.err()
        if chosen is not None:
            self.say(f"   replica {chosen} in epoch {self.controller.view.epoch} as well")
            self.checker.erred()

    def rot(self, replica: Replica) -> None:
        """Restart a replica's machine with a flipped bit on its disk, if other members of the set
        hold the same records."""
        others = [each for each in self.replicas.values() if each is not replica]
        has_copy = any(each.is_up and not each.is_learner for each in others)
        if replica.number == self.controller.view.master or not replica.is_up or not has_copy:
            return
        self.kill(replica, loses_power=False)
        rot = replica.log.rot(self._rng)
        if rot is not None:
            self.say(f"replica {replica.number}: a bit of the record at {rot.start} turned")
            self.controller.bury(replica.number)
            self.checker.rotted(replica, rot)

    # ---- events of replicas

    def on_moment(self, replica: Replica, what: str) -> None:
        self.fate.moment(replica, what)

    def on_frame(self, replica: Replica, frame: Frame, end: End) -> None:
        self.fate.frame(replica, frame, end)
        if isinstance(frame, Ack):
            self.checker.says(replica, frame)

    def on_change(self, replica: Replica, effect: Effect) -> None:
        self.fate.moment(replica, type(effect).__name__)
        if self._lines is not None and not isinstance(effect, Append):
            self.say(f"replica {replica.number}: {effect}")

    def on_confirmed(self, replica: Replica) -> None:
        self.checker.confirmed_at(replica)

    def on_cut(self, replica: Replica, offset: int) -> None:
        self.checker.cut(replica, offset)

    def on_master(self, replica: Replica) -> None:
        self.say(f"replica {replica.number} is master: {replica.answer()}")
        self.checker.reigns(replica)
        self.nameservers.changed(replica)

    def on_obeyed(self, replica: Replica, epoch: int) -> None:
        self.checker.obeyed(replica, epoch)
        self.nameservers.changed(replica)

    def on_lease(self, replica: Replica) -> None:
        self.nameservers.changed(replica)

    def on_answer(self, replica: Replica, put: Put, copies: int) -> None:
        if self._lines is not None:
            where = f" at {put.record.physical_offset}" if put.record else ""
            self.say(
                f"put {put.number}{where}, {put.durability.value}: {put.status} of "
                f"{replica.number}, copies {copies}"
            )
        self._digest = hash((self._digest, put.number, put.status is PutStatus.PUT_OK))
        self.checker.answered(replica, put, copies)

    def on_death(self, replica: Replica) -> None:
        loses_power = bool(self.faults.power_loss) and self._rng.random() < 0.5
        self.kill(replica, loses_power=loses_power)

    def on_error(self, replica: Replica, error: Exception) -> None:
        if isinstance(error, Violation):
            raise error
        self.say("".join(traceback.format_exception(error)))
        where = traceback.extract_tb(error.__traceback__)[-1]
        raise Violation(
            f"replica {replica.number} raised {type(error).__name__}: {error} in {where.name}, "
            f"{where.filename}:{where.lineno}"
        ) from error

    def on_decision(self, view: View) -> None:
        is_election, self._epoch = view.epoch != self._epoch and view.master != 0, view.epoch
        members = ", ".join(map(str, sorted(view.members)))
        self.say(
            f"decided: epoch {view.epoch}, master {view.master}, set {view.set_epoch} {{{members}}}"
        )
        self.checker.decided(view)
        if is_election:
            self.mishaps.decided(view.master)
            if self._calm is not None:
                self._calm.decided(view.master)

    # ---- start and end

    def _start(self) -> None:
        for replica in self.replicas.values():
            self._restart(replica)
        self.controller.start()
        self.workload.start()
        self.fate.start()
        self.mishaps.start()
        self.nameservers.start(is_quiet=self.faults == Faults.none())
        self._look_again()
        if self.shape.protocol == "classic":
            self._operate_again()

    def _look_again(self) -> None:
        """Trust replicas again that have caught up, as an operator does."""
        self.timeline.after(_LOOK_MS * 1000, self._look_again)
        if self.checker.distrusted:
            self.checker.look_again()
            self.controller.distrusted = self.checker.distrusted

    def _operate_again(self) -> None:
        """Empty halted replicas: this protocol does not cut forked logs."""
        self.timeline.after(_OPERATE_MS * 1000, self._operate_again)
        if self.controller.view.master:
            self._operate()

    def _restart(self, replica: Replica) -> None:
        if replica.is_up:
            return
        replica.start()
        if replica.is_up:
            self._born(replica)
            if replica.number in self._unattended:
                self._unattended.discard(replica.number)
                is_master = replica.number == self.controller.view.master
                operator = self.controller
                assert isinstance(operator, Attendant), "controllers ask replicas"
                if is_master and replica.may_lead_again():
                    operator.reappoint(replica.life)
        elif replica.has_rotten:
            self._replace_disk(replica)
        else:
            self.timeline.after(_RETRY_MS * 1000, self._restart, replica)

    def _replace_disk(self, replica: Replica) -> None:
        """Replace a useless log as an operator does: remove the replica from the set, then let it
        start with an empty log."""
        if not self.controller.expel(replica.number):
            self.timeline.after(_RETRY_MS * 1000, self._replace_disk, replica)
            return
        self.say(f"operator: replica {replica.number} gets an empty disk")
        replica.kill(loses_power=False)
        self._died(replica, loses_power=False)
        self.checker.emptied(replica)
        self.controller.distrusted = self.checker.distrusted
        replica.replace_disk()
        self._return_later(replica)

    def _return_later(self, replica: Replica) -> None:
        away_ms = 2 * self.shape.options.housekeeping_ms
        self.timeline.after(away_ms * 1000, self._return, replica)

    def _return(self, replica: Replica) -> None:
        # It keeps its number, so it stays down until no master counts its earlier acknowledgements.
        if any(each.has_link_to(replica.number) for each in self.replicas.values()):
            self._return_later(replica)
            return
        self.controller.unbury(replica.number)
        self._restart(replica)

    def _run_ms(self, ms: int) -> None:
        self.timeline.run(self.timeline.now_us + ms * 1000)

    def _settle(self) -> None:
        """End all faults. The group must converge and store a put on all replicas."""
        self.say("-- everything heals")
        self.fate.end()
        self.mishaps.end()
        if self._calm is not None:
            self._calm.end()
        self.network.heal()
        self.nameservers.heal()
        if isinstance(self.controller, Controllers):
            self.controller.heal()

        for replica in self.replicas.values():
            replica.log.is_full = False
            replica.log.dies_in = -1
            if replica.is_up and replica.shape.lease_ms != self.shape.lease_ms:
                # With a lease shorter than a heartbeat or the disk a master serves at some moments.
                self.kill(replica, loses_power=False)
            replica.configure(self.shape)
            self._restart(replica)

        asked = list(self.workload.puts)
        missing = "nothing was looked at"
        last: list[Put] = []

        for _ in range(self.settles_ms // _LOOK_MS):
            self._run_ms(_LOOK_MS)
            if not any(each.status is PutStatus.PUT_OK for each in last):
                missing = "no put is acknowledged"
                last = last[-20:] + self.workload.put(1)
                continue

            self._operate()
            missing = self._apart() or self.checker.unanswered(asked)
            missing = missing or self.nameservers.apart(self.controller.view)
            if not missing:
                for replica in self.replicas.values():
                    self.checker.labels(replica)
                return

        raise Violation(f"the group does not come together again: {missing}")

    def _operate(self) -> None:
        """Empty a replica that correctly reports that it cannot recover: its log has forked from
        the group's, and no common epoch names the fork."""
        master = self.replicas.get(self.controller.view.master)
        for replica in self.replicas.values():
            node = replica.slave_node
            if node is None or master is None:
                continue
            has_halted = node.halt_reason is not None
            # A broker does not drop its log without an operator.
            is_short = _TOO_FAR_BEHIND in (node.halt_reason or "")
            if self.checker.has_parted(replica, master):
                has_halted |= any(each in node.reason for each in _UNRELATED)
                # No byte is there to compare, so the slave asks for as long as the master is short.
                is_behind = replica.log.start_offset > master.log.end_offset
                has_halted |= is_behind and _NO_SUCH_BYTE in node.reason
            elif not (is_short or self.checker.has_excuse):
                continue
            if has_halted:
                self._replace_disk(replica)

    def _apart(self) -> str:
        view = self.controller.view
        master = self.replicas.get(view.master)
        if master is None or not master.is_up or master.master_node is None:
            return f"the master {view.master} does not reign"
        voters = {number for number, each in self.replicas.items() if not each.is_learner}
        # Its slave is a learner as long as a log lacks what its master's began with.
        voters -= {each for each in voters - {view.master} if self.replicas[each].log.is_partial}
        if self.shape.has_set and view.members != voters:
            return f"only {sorted(view.members)} are members of the set"
        return self.checker.settled(master, self.replicas.values())
