"""The simulator: equal seeds make equal runs, and what the product must not do is found."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from random import Random
from typing import Any

import pytest

from rmqstore import sim
from rmqstore.controller import liveness
from rmqstore.epochs import EpochEntry, EpochList
from rmqstore.message import Durability, PutStatus
from rmqstore.replication.group.group import MasterGroup
from rmqstore.replication.group.node import MasterNode
from rmqstore.replication.group.quorum import Lease, Mode, Quorum, Rule, Standing
from rmqstore.replication.group.sync_state_set import SyncStateSet
from rmqstore.replication.protocol.autoswitch_slave import AutoSwitchSlave
from rmqstore.replication.protocol.events import (
    Append,
    Effect,
    HaState,
    Restart,
    SaveEpochs,
    Send,
    SetConfirm,
    TruncateTo,
)
from rmqstore.replication.protocol.slave import SlaveMachine
from rmqstore.sim.board import VirtualBoard
from rmqstore.sim.clock import MachineClock, Timeline
from rmqstore.sim.disk import Died, DiskError, ModelLog, RotError
from rmqstore.sim.replica import Replica
from rmqstore.sim.witness import Put
from tests.house import tree

TWICE = """
from rmqstore import sim
from rmqstore.controller import liveness
for seed in (3, 4):
    outcome = sim.run(seed, is_traced=True)
    print(outcome.digest, outcome.events, outcome.violation, len(outcome.trace))
    print("\\n".join(outcome.trace))
"""


def test_equal_seeds_make_equal_runs_in_any_process() -> None:
    reply = [
        subprocess.run(
            [sys.executable, "-c", TWICE],
            cwd=tree.ROOT,
            env={"PYTHONPATH": str(tree.ROOT), "PYTHONHASHSEED": hash_seed},
            capture_output=True,
            text=True,
            timeout=120,
            check=True,
        ).stdout
        for hash_seed in ("1", "2")
    ]
    assert reply[0] == reply[1]
    assert len(reply[0].splitlines()) > 200


def test_a_trace_changes_nothing() -> None:
    assert sim.run(5).digest == sim.run(5, is_traced=True).digest


def test_seeds_differ() -> None:
    assert len({sim.run(seed, steps=5).digest for seed in range(20)}) == 20


def test_a_quiet_world_acknowledges_everything_under_one_master() -> None:
    shape = sim.Shape.drawn(Random(1), replicas=3)
    shape = replace(shape, quorum=replace(shape.quorum, timeout_ms=1000), learners=0)
    shape = replace(shape, sync_ms=5, options=replace(shape.options, bytes_per_second=0))
    outcome = sim.run(1, faults=sim.Faults.none(), shape=shape)
    assert outcome.violation is None
    assert (outcome.acknowledged, outcome.epochs) == (outcome.puts, 1)
    assert outcome.puts > 100


def test_a_quiet_group_without_a_set_elects_by_comparing() -> None:
    shape = sim.Shape.drawn(Random(1), replicas=3).without_set(Random(1))
    shape = replace(shape, quorum=replace(shape.quorum, timeout_ms=1000))
    shape = replace(shape, sync_ms=5, options=replace(shape.options, bytes_per_second=0))
    outcome = sim.run(1, faults=sim.Faults.none(), shape=shape)
    assert outcome.violation is None
    assert (outcome.acknowledged, outcome.epochs) == (outcome.puts, 1)
    elected = sim.run(1, faults=replace(sim.Faults.none(), election=1), shape=shape)
    assert elected.violation is None
    assert elected.epochs > 3


def test_the_command_line_tells_the_story_of_a_seed_and_sweeps() -> None:
    for arguments, expected in (
        (["7", "--steps", "20"], "seed 7: "),
        (["--first", "40", "--count", "3", "--steps", "20"], "3 seeds from 40 on"),
        (["--first", "40", "--count", "11", "--steps", "5", "--jobs", "2"], "11 seeds from 40 on"),
        (["--seconds", "0.01", "--replicas", "2"], "seeds from"),
    ):
        reply = subprocess.run(
            [sys.executable, "-m", "rmqstore.sim", *arguments],
            cwd=tree.ROOT,
            capture_output=True,
            text=True,
            timeout=120,
            check=True,
        ).stdout
        assert expected in reply.splitlines()[-1]


# ---- sabotage: each of these must be caught

receive = SlaveMachine._receive
look = MasterGroup._look
rule = MasterGroup.rule
begin = EpochList.begin
settle = SyncStateSet._settle
check = ModelLog.check
answer = Replica._answer


def acks_before_appending(self: SlaveMachine, offset: int, body: bytes, now_ms: int) -> Any:
    effects: list[Effect] = []
    for each in receive(self, offset, body, now_ms):
        if isinstance(each, Append):
            end = each.offset + len(each.data)
            effects.append(Send(self._report_frame(end, first=False)))
        effects.append(each)
    return effects


def ignores_epochs(self: AutoSwitchSlave, ours: EpochList, now_ms: int) -> list[Effect]:
    self._epochs = ours
    return self._resume(now_ms)


def counts_learners(self: MasterGroup) -> Standing:
    standing = look(self)
    return replace(standing, counted=frozenset(standing.acks))


def lets_anybody_join(self: SyncStateSet, replica: Any) -> bool:
    return bool(replica.ack_offset >= 0)


def waits_for_no_proposal(self: SyncStateSet) -> None:
    self.waited = self.counted = self.members


def counts_everybody(self: MasterGroup) -> Standing:
    standing = look(self)
    return replace(standing, counted=frozenset(each.broker_id for each in self.replicas))


def counts_who_may_have_left(self: SyncStateSet) -> None:
    settle(self)
    self.counted = self.members


def answers_without_a_lease(durability: Durability) -> Callable[..., None]:
    """Acknowledge every put of this durability that has its copies."""

    def answer_all(self: Replica, put: Put, status: PutStatus, copies: int) -> None:
        has_copies = copies >= (put.copies or self._shape.quorum.in_sync)
        if durability is Durability.REPLICATED and not has_copies:
            return answer(self, put, status, copies)
        if put.durability is durability and status is PutStatus.FLUSH_SLAVE_TIMEOUT:
            status = PutStatus.PUT_OK
        return answer(self, put, status, copies)

    return answer_all


def keeps_what_is_confirmed(self: ModelLog) -> None:
    self.cut(self.whole_below(self.confirm_offset))
    self._count_queues()


def keeps_half_a_record(self: ModelLog) -> None:
    self._count_queues()


def refuses_an_equal_start(self: EpochList, epoch: int, *, log_end: int) -> EpochList:
    if self.last is not None and self.last.start_offset == log_end:
        return self
    return begin(self, epoch, log_end=log_end)


def confirms_all_it_has(self: AutoSwitchSlave) -> list[Effect]:
    end = self._log.end_offset
    return [SetConfirm(end)] if end > self._log.confirm_offset else []


def takes_any_record(self: ModelLog) -> int | None:
    if check(self) is not None:
        self._borders.append(self.whole_end)
        self.whole_end = self.end_offset
    return None


def forgets_who_is_away(self: MasterGroup, *, is_flushed: bool) -> Rule:
    found = rule(self, is_flushed=is_flushed)
    acks = self.standing.acks
    there = [each for each in found.waited or () if acks.get(each, -1) >= 0]
    return found if found.waited is None else replace(found, waited=there)


def reports_what_is_in_memory(
    self: SlaveMachine, now_ms: int, *, first: bool = False
) -> list[Effect]:
    if self.state is not HaState.TRANSFER:
        return []
    return [self._send_report(min(self._log.whole_end, self._same_until), now_ms)]


def leaves_puts_waiting(self: VirtualBoard[int]) -> None:
    self.node.group.stop()


@dataclass(frozen=True, kw_only=True)
class Sabotage:
    """Something made wrong, and the kind of world that is to notice it soon."""

    place: Any
    name: str
    deed: Any
    first: int = 1
    """The first seed that is run."""
    faults: sim.Faults | None = None
    options: Mapping[str, Any] = field(default_factory=dict)
    settings: Mapping[str, Any] = field(default_factory=dict)

    def shape(self, seed: int) -> sim.Shape:
        drawn = sim.Shape.drawn(Random(seed), replicas=3)
        settings = {"options": replace(drawn.options, **self.options), **self.settings}
        return replace(drawn, **settings)


QUIET = sim.Faults.none()
TWO_COPIES = {"quorum": Quorum(total=3, in_sync=2, timeout_ms=1000, lag_ms_max=400)}
SABOTAGE = {
    "a slave acknowledges before it appends": Sabotage(
        place=SlaveMachine,
        name="_receive",
        deed=acks_before_appending,
        first=6,
        faults=replace(QUIET, crash=3, full_disk=3, worst_moments=0.05, mean_gap_ms=300),
        settings=TWO_COPIES,
    ),
    "a slave cuts nothing": Sabotage(place=AutoSwitchSlave, name="_meet", deed=ignores_epochs),
    "a learner counts": Sabotage(
        place=MasterGroup, name="_look", deed=counts_learners, settings={"learners": 1}
    ),
    "a replica joins with anything": Sabotage(
        place=SyncStateSet, name="_is_eligible", deed=lets_anybody_join
    ),
    "a replica outside the set counts": Sabotage(
        place=MasterGroup, name="_look", deed=counts_everybody, settings=TWO_COPIES
    ),
    "a member that may have left counts": Sabotage(
        place=SyncStateSet,
        name="_settle",
        deed=counts_who_may_have_left,
        faults=replace(QUIET, cut=4, loss=3, one_way=1, mean_gap_ms=100),
        settings=TWO_COPIES,
    ),
    "a new master cuts what is not confirmed": Sabotage(
        place=ModelLog, name="settle", deed=keeps_what_is_confirmed, settings=TWO_COPIES, first=3
    ),
    "a new master keeps half a record": Sabotage(
        place=ModelLog,
        name="settle",
        deed=keeps_half_a_record,
        first=5,
        faults=replace(QUIET, election=2, slow_reader=3, mean_gap_ms=100),
        options={"batch_bytes": 50, "window_bytes": 200, "bytes_per_second": 0},
    ),
    "a proposal is not waited for": Sabotage(
        place=SyncStateSet, name="_settle", deed=waits_for_no_proposal, first=6
    ),
    "an epoch that begins where the last did is refused": Sabotage(
        place=EpochList, name="begin", deed=refuses_an_equal_start
    ),
    "a slave confirms all that it holds": Sabotage(
        place=AutoSwitchSlave, name="_confirmed", deed=confirms_all_it_has
    ),
    "a slave checks no record": Sabotage(
        place=ModelLog,
        name="check",
        deed=takes_any_record,
        first=3,
        faults=replace(QUIET, flip=1, mean_gap_ms=300),
    ),
    "a member that is away holds nothing up": Sabotage(
        place=MasterGroup, name="rule", deed=forgets_who_is_away, first=5
    ),
    "a lease never runs out": Sabotage(
        place=Lease,
        name="end_ms",
        deed=property(lambda self: None),
        faults=replace(QUIET, pause=1, partition=2),
        settings={"lease_ms": 600, "quorum": Quorum(total=3, timeout_ms=1000)},
    ),
    "a put that has its copies is answered without a lease": Sabotage(
        place=Replica,
        name="_answer",
        deed=answers_without_a_lease(Durability.REPLICATED),
        first=6,
        faults=replace(QUIET, one_way=2, partition=2, delay=3, mean_gap_ms=300),
        settings={"lease_ms": 600, "quorum": Quorum(total=3, in_sync=2, timeout_ms=3000)},
    ),
    "a flushed put is acknowledged without a lease": Sabotage(
        place=Replica,
        name="_answer",
        deed=answers_without_a_lease(Durability.DISK),
        first=3,
        faults=replace(QUIET, pause=2, partition=2, mean_gap_ms=300),
        settings={"lease_ms": 600, "sync_ms": 100, "flush_ms": 1000},
    ),
    "a put that needs no copy is acknowledged without a lease": Sabotage(
        place=Replica,
        name="_answer",
        deed=answers_without_a_lease(Durability.MEMORY),
        faults=replace(QUIET, stop=2, partition=2, mean_gap_ms=300),
        settings={"lease_ms": 600, "is_durable": False, "quorum": Quorum(total=3)},
    ),
    "controllers wait for a lease by their own clock alone": Sabotage(
        place=liveness,
        name="elector_wait_ms",
        deed=lambda lease_ms: lease_ms,
        first=5,
        faults=replace(QUIET, isolation=2, election=2, mean_gap_ms=400),
        settings={
            "mode": Mode.SYNC_STATE_SET,
            "protocol": "autoswitch",
            "lease_ms": 3000,
            "drift_ppm_max": 90_000,
        },
    ),
    "a slave acknowledges before its disk does": Sabotage(
        place=SlaveMachine,
        name="_report",
        deed=reports_what_is_in_memory,
        options={"ack_flushed": True},
        settings={"is_durable": True, "sync_ms": 100, "flush_ms": 1000},
    ),
    "a master counts its own copy in memory": Sabotage(
        place=MasterNode,
        name="rule",
        deed=lambda self: self.group.rule(is_flushed=False),
        faults=replace(QUIET, power_loss=1, mean_gap_ms=200),
        options={"ack_flushed": True},
        settings={"is_durable": True, "sync_ms": 100, "flush_ms": 1000},
    ),
    "a slave never begins at its master's first byte": Sabotage(
        place=SlaveMachine,
        name="_compare_from",
        deed=lambda self, offset, now_ms: self._gap(offset),
        faults=replace(QUIET, expire=6, crash=2, mean_gap_ms=200),
        options={"overlap_bytes": 4096},
        settings={"file_size": 1024},
    ),
    "puts wait when the role is over": Sabotage(
        place=VirtualBoard,
        name="stop",
        deed=leaves_puts_waiting,
        first=9,
        faults=replace(QUIET, election=2, delay=1),
    ),
}


@pytest.mark.parametrize("what", SABOTAGE)
def test_sabotage_is_found(what: str, monkeypatch: pytest.MonkeyPatch) -> None:
    sabotage = SABOTAGE[what]
    monkeypatch.setattr(sabotage.place, sabotage.name, sabotage.deed)
    found = (
        not sim.run(seed, faults=sabotage.faults, shape=sabotage.shape(seed)).is_sound
        for seed in range(sabotage.first, sabotage.first + 100)
    )
    assert any(found), what


# ---- the models


def test_time_of_day_jumps_and_the_machines_clock_does_not() -> None:
    timeline = Timeline()
    clock = MachineClock(timeline, begin_ms=5000, drift_ppm=-2000)
    seen = []
    for jump_ms in (0, 3_600_000, -7_200_000, 0):
        clock.jump(jump_ms)
        timeline.run(timeline.now_us + 1_000_000)
        seen.append((clock.monotonic_ms(), clock.wall_ms()))
    monotonic = [each[0] for each in seen]
    assert monotonic == sorted(monotonic) == [5998, 6996, 7994, 8992]
    assert seen[1][1] > seen[2][1]
    timeline.run(clock.world_us(10_000))
    assert clock.monotonic_ms() == 10_000


def filled(puts: int, *, file_size: int = 1024) -> ModelLog:
    log = ModelLog(file_size=file_size)
    for number in range(1, puts + 1):
        log.put(number=number, epoch=1, queue=number % 2, size=100, wall_ms=0)
    return log


def test_power_loss_takes_sectors_that_were_not_flushed_and_nothing_else() -> None:
    ends = set()
    for seed in range(30):
        log = filled(10)
        log.flush()
        flushed = log.end_offset
        for number in range(11, 31):
            log.put(number=number, epoch=1, queue=0, size=100, wall_ms=0)
        end = log.end_offset
        log.power_loss(Random(seed))
        log.recover()
        assert flushed <= log.end_offset <= end
        assert [each.number for each in log.records(0, flushed)] == list(range(1, 11))
        ends.add(log.end_offset)
    assert len(ends) > 2


def test_a_crash_takes_half_a_record_and_no_whole_one() -> None:
    source, log = filled(9), ModelLog(file_size=1024)
    for offset in range(0, 500, 100):
        log.carry_out(Append(offset, source.read(offset, 100)))
    assert log.check() is None
    whole = log.whole_end
    log.crash()
    log.recover()
    assert (log.end_offset, whole) == (whole, 432)


@pytest.mark.parametrize("dies_in", range(8))
def test_epoch_list_is_that_of_before_or_behind_a_death(dies_in: int) -> None:
    log = filled(5)
    log.carry_out(SaveEpochs((EpochEntry(1, 0),)))
    log.flush()
    log.dies_in = dies_in
    try:
        log.carry_out(SaveEpochs((EpochEntry(1, 0), EpochEntry(2, 288))))
        log.carry_out(TruncateTo(288))
        log.carry_out(SaveEpochs((EpochEntry(1, 0),)))
        log.carry_out(Restart(4096))
    except Died:
        log.crash()
    log.recover()
    assert log.epochs[:1] == (EpochEntry(1, 0),) or log.start_offset == 4096
    assert all(each.start_offset <= log.end_offset for each in log.epochs)


def test_a_full_disk_refuses_and_changes_nothing() -> None:
    log = filled(3)
    log.is_full = True
    before = (log.end_offset, log.epochs)
    for effect in (Append(log.end_offset, b"x"), SaveEpochs((EpochEntry(1, 0),))):
        with pytest.raises(DiskError):
            log.carry_out(effect)
    assert (log.end_offset, log.epochs) == before


def test_a_bit_that_turned_on_the_disk_is_found_when_the_log_is_opened() -> None:
    for seed in range(20):
        log = filled(20)
        log.flush()
        assert log.rot(Random(seed)) is not None
        log.crash()
        with pytest.raises(RotError):
            log.recover()
