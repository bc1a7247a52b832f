"""The acknowledgement board of production agrees with the reference, call by call.

Random histories of acknowledgements, joins and leaves, rules, role ends, time limits and admissions
of earlier roles go to both; over a store and in virtual time. Then whole groups, with proposals and
elections, and simulated worlds run on compared boards.
"""

from __future__ import annotations

import math
import secrets
from collections.abc import Iterator
from pathlib import Path
from random import Random
from typing import Any

import pytest

import rmqstore
from rmqstore import Durability, sim
from rmqstore.errors import PutError
from rmqstore.message import PutStatus
from rmqstore.replication.group.group import Effect, MasterGroup, Propose
from rmqstore.replication.group.quorum import Lease, Mode, Quorum
from rmqstore.replication.group.sync_state_set import Proposal
from tests.reference.ack_board import ReferenceBoard
from tests.reference.compared_board import (
    ComparedAdmission,
    ComparedBoard,
    ComparedInbox,
    ComparedLog,
    compare_boards,
)
from tests.scenarios.model_master import ModelMaster
from tests.support.agreement import FILES
from tests.support.effort import rounds

SLOTS_MAX = 6
LIMIT_MS = 60_000


class VirtualGround(ComparedLog):
    """A log in virtual time."""

    def append(self, rng: Random) -> None:
        self.end_offset += rng.randrange(1, 200)

    def flush(self, rng: Random) -> None:
        self.flushed_offset = rng.randint(self.flushed_offset, self.end_offset)

    def pass_time(self, rng: Random) -> None:
        self.now_ms += rng.choice((1, 10, 100))


class StoreGround:
    """A store; the only leases are those that are over."""

    def __init__(self, store: rmqstore.Store) -> None:
        self.core = store
        store._set_confirm_offset(-1)
        self.bound = math.inf
        self.boards: list[ReferenceBoard] = []
        self.now_ms = 1

    @property
    def end_offset(self) -> int:
        return self.core.end_offset

    @property
    def flushed_offset(self) -> int:
        return self.core.flushed_offset

    def append(self, rng: Random) -> None:
        self.core.put("t", b"x" * rng.randrange(100), durability=Durability.MEMORY)

    def flush(self, rng: Random) -> None:
        self.core._wait_flushed(self.core.end_offset, LIMIT_MS)
        for each in self.boards:
            each.flushed()

    def pass_time(self, rng: Random) -> None:
        pass


class History:
    """Random calls to a board."""

    def __init__(self, ground: Any, rng: Random) -> None:
        self.ground, self.rng = ground, rng
        self.board = ComparedBoard(ground)
        self.inbox = ComparedInbox(has_descriptor=False)
        self.slots: list[int] = []
        self.admissions: list[ComparedAdmission] = []
        self.waits: list[Any] = []
        self.steps = [
            *[self.ack] * 8,
            *[self.put] * 6,
            *[self.append, self.thaw, self.flush, self.pass_time] * 3,
            *[self.connect, self.disconnect, self.expire, self.begin_late, self.acknowledge] * 2,
            *[self.freeze, self.end_role],
        ]

    def run(self, steps: int) -> None:
        for _ in range(steps):
            self.rng.choice(self.steps)()
            self.board.compare()
            assert self.board.copies_of(self.offset()) >= 1
            for wait in self.inbox.take():
                self.waits.remove(wait)
        self.board.abandon()
        self.inbox.take()

    def offset(self) -> int:
        """Return an offset of the log, its end and recent ones more often."""
        end = self.ground.end_offset
        return max(end - self.rng.choice((0, 0, 0, 1, 100, 400, 5000)), 0)

    # -- steps

    def connect(self) -> None:
        if len(self.slots) < SLOTS_MAX:
            self.slots.append(self.board.open_slot())

    def disconnect(self) -> None:
        if self.slots:
            self.board.close_slot(self.slots.pop(self.rng.randrange(len(self.slots))))

    def ack(self) -> None:
        if self.slots:
            slot = self.rng.choice(self.slots)
            self.board.ack(slot, self.offset(), epoch=self.rng.choice((-1, 3, 3, 3, 4)))

    def append(self) -> None:
        self.ground.append(self.rng)

    def flush(self) -> None:
        self.ground.flush(self.rng)

    def pass_time(self) -> None:
        self.ground.pass_time(self.rng)

    def put(self) -> None:
        admission = self.admit()
        self.append()
        if admission is not None:
            self.begin(admission)

    def admit(self) -> ComparedAdmission | None:
        copies = self.rng.choice((None, None, None, 1, 2, 3, 5, 5000))
        try:
            admission = self.board.admit(copies, is_replicated=self.rng.random() < 0.9)
        except PutError:
            return None
        self.admissions = [*self.admissions[-9:], admission]
        return admission

    def begin(self, admission: ComparedAdmission) -> None:
        token = object()
        self.waits.append(self.board.begin(self.inbox, admission, self.offset(), token))

    def begin_late(self) -> None:
        """A put that was admitted some time ago, perhaps in an earlier role."""
        if self.admissions:
            self.begin(self.rng.choice(self.admissions))

    def acknowledge(self) -> None:
        for admission in self.admissions:
            admission.acknowledge()

    def expire(self) -> None:
        if self.waits:
            wait = self.rng.choice(self.waits)
            if self.board.withdraw(wait):
                self.waits.remove(wait)

    def freeze(self) -> None:
        self.board.freeze()

    def end_role(self) -> None:
        self.board.abandon()

    def thaw(self) -> None:
        rng = self.rng
        counted = [each for each in self.slots if rng.random() < 0.8]
        waited = [each for each in self.slots if rng.random() < 0.5]

        now_ms = self.ground.now_ms
        is_virtual = isinstance(self.ground, VirtualGround)
        leases = (None, None, 0, *((now_ms + 1, now_ms + 100) if is_virtual else ()))
        status = rng.choice([PutStatus.PUT_OK] * 6 + [PutStatus.IN_SYNC_REPLICAS_NOT_ENOUGH])

        self.board.thaw(
            counted=counted + counted[:1],
            waited=waited if rng.random() < 0.5 else None,
            is_missing=rng.random() < 0.1,
            confirm_copies=rng.choice((1, 2, 2, 3)),
            epoch=rng.choice((-1, 3, 3, 4)),
            epoch_start=rng.choice((0, 0, self.offset())),
            is_gated=rng.random() < 0.9,
            status=status,
            reason="too few",
            copies=rng.choice((1, 2, 2, 3)),
            needs_all=rng.random() < 0.3,
            is_flushed=rng.random() < 0.4,
            lease_end_ms=rng.choice(leases),
            waiting_max=rng.choice((3, 1000)),
            available=rng.choice((None, 1, 2, 3)),
            present=rng.choice((None, None, 1, 2, 3)),
        )


SEEDS = [*range(rounds(200, 3000)), secrets.randbelow(2**40)]


def test_board_agrees_with_the_reference_in_virtual_time() -> None:
    for seed in SEEDS:
        try:
            History(VirtualGround(), Random(seed)).run(400)
        except Exception as error:
            error.add_note(f"seed {seed}")
            raise


@pytest.fixture(scope="module")
def store(tmp_path_factory: pytest.TempPathFactory) -> Iterator[rmqstore.Store]:
    path = Path(tmp_path_factory.mktemp("board"))
    # Nothing is flushed but by a step.
    with rmqstore.open(path, **FILES, flush_commit_log_interval_ms=3_600_000) as opened:
        yield opened


def test_board_of_a_store_agrees_with_the_reference(store: rmqstore.Store) -> None:
    for seed in SEEDS[: rounds(40, 500)]:
        try:
            History(StoreGround(store), Random(seed)).run(100)
        except Exception as error:
            error.add_note(f"seed {seed}")
            raise


class GroupHistory:
    """A master, its slaves and its controller: who comes, goes and joins, reign after reign."""

    def __init__(self, rng: Random) -> None:
        self.rng = rng

        has_set = rng.random() < 0.6
        self.master: ModelMaster[int] = ModelMaster(
            Quorum(
                in_sync=rng.randint(1, 3),
                min_in_sync=1,
                auto_in_sync=rng.random() < 0.5,
                all_ack=rng.random() < 0.5,
                gap_bytes_max=rng.choice((50, 1 << 20)),
                timeout_ms=300,
                lag_ms_max=500,
            ),
            Mode.SYNC_STATE_SET if has_set else rng.choice((Mode.PLAIN, Mode.ACTING_MASTER)),
            lease=Lease(rng.choice((0, 400))),
            is_gated=rng.random() < 0.9,
            is_flushed=rng.random() < 0.5,
        )

        self.epoch = self.set_epoch = self.connections = self.tokens = 0
        self.elected = {1}
        self.links: dict[int, int] = {}
        self.proposals: list[Proposal] = []

        self.steps = [
            *[self.ack, self.put] * 6,
            *[self.connect, self.controller_answers, self.time_passes, self.flush] * 2,
            *[self.disconnect, self.elected_again],
        ]

    def run(self, steps: int) -> None:
        self.elected_again()
        for _ in range(steps):
            self.rng.choice(self.steps)()
            self.master.resolved()
        self.master.stop()
        assert len(self.master.resolved()) >= 0
        assert len(self.master) == 0

    def change(self, change: Any) -> None:
        effects: list[Effect] = self.master.change(change)
        self.proposals += [each.proposal for each in effects if isinstance(each, Propose)]

    def elected_again(self) -> None:
        self.epoch += self.rng.randint(1, 3)
        self.set_epoch += 1
        self.elected = {1, *(each for each in self.links if self.rng.random() < 0.5)}
        self.proposals.clear()

        def begin(group: MasterGroup, now_ms: int) -> list[Effect]:
            return group.become_master(
                self.epoch,
                end_offset=self.master.end_offset,
                now_ms=now_ms,
                members=self.elected,
                set_epoch=self.set_epoch,
            )

        self.change(begin)

    def connect(self) -> None:
        self.connections += 1
        broker_id = self.rng.randint(2, 5)
        self.links[broker_id] = self.connections
        self.master.connect(
            broker_id,
            on=self.connections,
            is_learner=self.rng.random() < 0.1,
            names_epochs=self.rng.random() < 0.9,
        )

    def disconnect(self) -> None:
        if self.links:
            link = self.links.pop(self.rng.choice(sorted(self.links)))
            self.change(lambda group, now_ms: group.disconnected(link, now_ms))

    def ack(self) -> None:
        if self.links:
            link = self.rng.choice(list(self.links.values()))
            end = self.master.end_offset
            offset = max(end - self.rng.choice((0, 0, 0, 30, 200)), 0)
            epoch = self.rng.choice((self.epoch, self.epoch, self.epoch - 1))
            self.change(lambda group, now_ms: group.acked(link, offset, now_ms, epoch=epoch))

    def put(self) -> None:
        self.tokens += 1
        try:
            self.master.put(self.tokens, self.rng.randrange(1, 100), self.rng.choice((None, 2)))
        except PutError:
            return

    def flush(self) -> None:
        self.master.flush()

    def time_passes(self) -> None:
        self.master.now_ms += self.rng.choice((1, 100, 600, 3000))
        self.change(lambda group, now_ms: group.tick(now_ms))
        self.master.expired()
        if self.rng.random() < 0.7:
            self.master.group.renew_lease(self.master.now_ms)

    def controller_answers(self) -> None:
        if not self.proposals:
            return

        proposal = self.proposals.pop(self.rng.randrange(len(self.proposals)))
        is_taken = proposal.set_epoch == self.set_epoch

        if is_taken:
            self.elected, self.set_epoch = set(proposal.members), self.set_epoch + 1

        number = proposal.number
        fate = self.rng.random()
        if fate < 0.3:
            self.change(lambda group, now_ms: group.lose_proposal(number, now_ms))
        elif not is_taken:
            self.change(lambda group, now_ms: group.refuse_proposal(number, now_ms))

        if fate >= 0.3:
            self.change(
                lambda group, now_ms: group.confirm_set(
                    self.elected, set_epoch=self.set_epoch, now_ms=now_ms
                )
            )


def test_board_of_a_group_agrees_with_the_reference(monkeypatch: pytest.MonkeyPatch) -> None:
    compare_boards(monkeypatch)
    for seed in SEEDS:
        try:
            GroupHistory(Random(seed)).run(300)
        except Exception as error:
            error.add_note(f"seed {seed}")
            raise


def test_boards_of_simulated_worlds_agree_with_the_reference(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    compare_boards(monkeypatch)
    # The other kept seeds of make test run with the board of C alone, in tests/simulation.
    for seed in range(1, rounds(300, 1000), rounds(20, 1)):
        outcome = sim.run(seed)
        assert outcome.is_sound, f"python -m rmqstore.sim {seed}: {outcome.violation}"
