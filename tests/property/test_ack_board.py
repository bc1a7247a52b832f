"""The native acknowledgement board does what the pure quorum machines say, step by step.

Both sides get the same steps: replicas come, acknowledge and go, puts are admitted, wait, are
resolved or run out of time, the rule changes, the role ends. They must agree on every admission,
on the outcome of every put and on the confirm offset after every step.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

import rmqstore
from rmqstore._native.core import AckBoard, AckInbox, AckWait
from rmqstore.errors import NotWritable, PutError
from rmqstore.message import PutStatus
from rmqstore.replication.quorum import Lease, Mode, Quorum, QuorumWriter, Resolution, Standing
from rmqstore.replication.replicas import Replica
from rmqstore.replication.watermark import Watermark
from tests.crash.agreement import FILES
from tests.effort import rounds

IDS = range(5)
EPOCHS = st.sampled_from((-1, 3, 3, 4))
WAITING_MAX = 6
LIMIT_MS = 60_000
OVER = 0
"""A lease end that is long past."""


class HeldLease(Lease):
    """A lease without a clock: held or not, as it is told."""

    def __init__(self) -> None:
        super().__init__(1)
        self.held = True

    def is_held(self, now_ms: int) -> bool:
        return self.held


@dataclass(frozen=True, slots=True)
class Setting:
    """What a rule is made of, besides what replicas said."""

    mode: Mode
    quorum: Quorum
    learners: frozenset[int]
    members: frozenset[int]
    is_gated: bool
    is_flushed: bool
    epoch: int
    epoch_start_offset: int


class Pair:
    """A board and the pure machines it stands for."""

    def __init__(self, store: rmqstore.Store, setting: Setting) -> None:
        self.store = store
        store._set_confirm_offset(-1)
        self.board = store._board = AckBoard(store)
        self.inbox = AckInbox()
        self.slots: dict[int, int] = {}
        self.waits: dict[int, AckWait] = {}
        self.acks: dict[int, tuple[int, int]] = {}
        """Offset and epoch of each."""
        self.now_ms = 0
        self.is_frozen = False
        self.lease = HeldLease()
        self.outcomes: list[Resolution[int]] = []
        end = store.end_offset
        self.watermark = Watermark(confirm_offset=end, start_offset=0, end_offset=end)
        self.set(setting)

    # -- the rule

    def set(self, setting: Setting) -> None:
        former = getattr(self, "writer", None)
        self.setting = setting
        self.writer: QuorumWriter[int] = QuorumWriter(
            setting.quorum, setting.mode, lease=self.lease, waiting_max=WAITING_MAX
        )
        if former is not None:
            self.writer._waiters = former._waiters
        self.thaw()

    @property
    def standing(self) -> Standing:
        own_end = self.store.flushed_offset if self.setting.is_flushed else self.store.end_offset
        voters = frozenset(self.acks) - self.setting.learners
        heard = {each: offset for each, (offset, _) in self.acks.items()}
        held = {each: self.held(*ack) for each, ack in self.acks.items()}
        if self.setting.mode is not Mode.SYNC_STATE_SET:
            return Standing(own_end, held, voters, heard=heard)
        members = self.setting.members
        return Standing(own_end, held, members & voters, members, heard=heard)

    def held(self, offset: int, epoch: int) -> int:
        replica = Replica(
            0, connection=0, is_learner=False, names_epochs=True, connected_ms=self.now_ms
        )
        replica.acked(offset, epoch=epoch, end_offset=0, now_ms=self.now_ms)
        return replica.held(self.setting.epoch, self.setting.epoch_start_offset)

    def thaw(self) -> None:
        setting, standing, quorum = self.setting, self.standing, self.setting.quorum
        has_set = setting.mode is Mode.SYNC_STATE_SET
        present = 1 + len(standing.counted)
        enough = not has_set or present >= quorum.min_in_sync
        available = standing.available(quorum.gap_bytes_max)
        waited = standing.waited or ()
        self.board.thaw(
            counted=[self.slots[each] for each in standing.counted],
            waited=[self.slots[each] for each in waited if each in self.slots] if has_set else None,
            is_missing=any(each not in self.slots for each in waited),
            is_gated=setting.is_gated,
            confirm_copies=self.writer.needed(standing),
            epoch=setting.epoch,
            epoch_start=setting.epoch_start_offset,
            status=PutStatus.PUT_OK if enough else PutStatus.IN_SYNC_REPLICAS_NOT_ENOUGH,
            reason="too few",
            copies=self.writer.needed(standing),
            needs_all=has_set and quorum.all_ack,
            is_flushed=setting.is_flushed,
            lease_end_ms=None if self.lease.held else OVER,
            waiting_max=WAITING_MAX,
            available=available if setting.mode is Mode.PLAIN else None,
            present=available if setting.mode is Mode.ACTING_MASTER else None,
        )
        self.is_frozen = False
        self.evaluate()

    def evaluate(self) -> None:
        """Lets the pure side do what an evaluation of the board does."""
        if self.is_frozen:
            return
        standing = self.standing
        if not self.setting.is_gated:
            reached: int | None = standing.end_offset
        elif self.setting.mode is Mode.SYNC_STATE_SET:
            reached = standing.end_of_all()
        else:
            reached = standing.end_of_copies(self.writer.needed(standing))
        self.watermark.lead(reached, end_offset=standing.end_offset)
        self.outcomes += self.writer.progress(standing, self.now_ms)

    def freeze(self) -> None:
        assert self.board.freeze() == self.watermark.confirm_offset
        self.is_frozen = True

    # -- steps

    def connect(self, broker_id: int) -> None:
        if broker_id in self.slots:
            return
        self.freeze()
        self.slots[broker_id] = self.board.open_slot()
        self.acks[broker_id] = (-1, -1)
        self.thaw()

    def disconnect(self, broker_id: int) -> None:
        if broker_id not in self.slots:
            return
        self.freeze()
        self.board.close_slot(self.slots.pop(broker_id))
        del self.acks[broker_id]
        self.thaw()

    def ack(self, broker_id: int, behind: int, epoch: int) -> None:
        if broker_id not in self.slots:
            return
        # What a put needs in this mode hangs on what replicas hold: a decision.
        is_decision = self.setting.mode is Mode.ACTING_MASTER
        if is_decision:
            self.freeze()
        offset = max(self.store.end_offset - behind, 0)
        self.acks[broker_id] = (offset, epoch)
        self.board.ack(self.slots[broker_id], offset, epoch=epoch)
        if is_decision:
            self.thaw()
        else:
            self.evaluate()

    def review(self) -> None:
        """In this mode what a put needs hangs on the log's end as well: a decision."""
        if self.setting.mode is Mode.ACTING_MASTER:
            self.thaw()

    def put_at_the_end_of_the_lease(self, copies: int | None) -> None:
        self.put(copies, is_last=True)

    def put(self, copies: int | None, *, is_last: bool = False) -> None:
        number = len(self.outcomes) + len(self.waits)
        self.review()
        admission = self.writer.admit(self.standing, now_ms=self.now_ms, copies=copies)
        if admission.status is not PutStatus.PUT_OK:
            with pytest.raises(PutError) as refused:
                self.store._admit(copies)
            assert (refused.value.status, refused.value.stored) == (admission.status, False)
            return
        admitted = self.store._admit(copies)
        end_offset = self.store.put("t", b"%d" % number).end_offset
        self.review()
        self.evaluate()
        if is_last:
            self.renew(False)
        self.waits[number] = self.board._begin(self.inbox, admitted, end_offset, number)
        if not self.is_frozen or not admission.is_waiting:
            self.outcomes += self.writer.wait(
                number,
                admission,
                self.standing,
                end_offset=end_offset,
                now_ms=self.now_ms,
                timeout_ms=1000 + number,
            )
        else:
            self.writer._waiters.add(
                number,
                end_offset=end_offset,
                copies=admission.copies,
                needs_all=admission.needs_all,
                deadline_ms=self.now_ms + 1000 + number,
            )

    def put_alone(self) -> None:
        admission = self.writer.admit(self.standing, now_ms=self.now_ms, is_replicated=False)
        if admission.status is not PutStatus.PUT_OK:
            with pytest.raises(NotWritable) as refused:
                self.store.put("t", b"alone")
            assert refused.value.status == admission.status
            return
        self.store.put("t", b"alone")
        self.review()
        self.evaluate()

    def flush(self) -> None:
        is_decision = self.setting.mode is Mode.ACTING_MASTER and not self.is_frozen
        if is_decision:
            self.freeze()
        self.store._wait_flushed(self.store.end_offset, LIMIT_MS)
        if is_decision:
            self.thaw()
        else:
            self.evaluate()

    def expire(self) -> None:
        """The put that waits for the longest time runs out of it."""
        deadline = self.writer.next_deadline_ms
        if deadline is None or self.is_frozen:
            return
        self.thaw()
        deadline = self.writer.next_deadline_ms
        if deadline is None:
            return
        found = self.writer.tick(self.standing, deadline)
        assert len(found) == 1
        self.outcomes += found
        wait = self.waits.pop(found[0].token)
        assert self.board._withdraw(wait)
        assert (wait.status, wait.copies) == (found[0].status, found[0].copies)

    def renew(self, held: bool) -> None:
        self.lease.held = held
        self.thaw()

    def end_role(self) -> None:
        self.outcomes += self.writer.stop(self.standing)
        self.is_frozen = True
        self.board.abandon()
        self.compare()
        self.set(self.setting)

    def compare(self) -> None:
        told = {each.token: (each.status, each.copies) for each in self.outcomes}
        for wait in self.inbox.take():
            assert (wait.status, wait.copies) == told[wait.token]
            assert self.waits.pop(wait.token) is wait
        assert not self.waits.keys() & told.keys()
        assert self.board.waiting == len(self.waits) == len(self.writer)
        assert self.board.confirm_offset == self.watermark.confirm_offset
        assert self.board.acks() == {self.slots[each]: ack for each, ack in self.acks.items()}


subsets = st.frozensets(st.sampled_from(IDS))


@st.composite
def quorums(draw: st.DrawFn) -> Quorum:
    in_sync = draw(st.integers(1, 4))
    return Quorum(
        in_sync=in_sync,
        min_in_sync=draw(st.integers(1, in_sync)),
        auto_in_sync=draw(st.booleans()),
        all_ack=draw(st.booleans()),
        gap_bytes_max=draw(st.sampled_from((1, 150, 1 << 20))),
    )


all_settings = st.builds(
    Setting,
    mode=st.sampled_from(Mode),
    quorum=quorums(),
    learners=subsets,
    members=subsets,
    is_gated=st.sampled_from((True, True, True, False)),
    is_flushed=st.sampled_from((False, False, True)),
    epoch=st.sampled_from((-1, 3, 3, 4)),
    epoch_start_offset=st.sampled_from((0, 0, 500, 5000)),
)


@dataclass(frozen=True, slots=True)
class Step:
    """A method of Pair, and what it is given."""

    name: str
    arguments: tuple[object, ...]

    def __call__(self, pair: Pair) -> None:
        getattr(pair, self.name)(*self.arguments)


def _step(name: str, *arguments: st.SearchStrategy[object]) -> st.SearchStrategy[Step]:
    return st.builds(Step, st.just(name), st.tuples(*arguments))


steps = st.one_of(
    _step("connect", st.sampled_from(IDS)),
    _step("ack", st.sampled_from(IDS), st.sampled_from((0, 0, 0, 93, 150, 400)), EPOCHS),
    _step("ack", st.sampled_from(IDS), st.just(0), EPOCHS),
    _step("put", st.sampled_from((None, None, 1, 2, 3, 6, 5000))),
    _step("put", st.just(None)),
    _step("put_at_the_end_of_the_lease", st.sampled_from((None, 1))),
    _step("put_alone"),
    _step("flush"),
    _step("flush"),
    _step("disconnect", st.sampled_from(IDS)),
    _step("freeze"),
    _step("thaw"),
    _step("expire"),
    _step("renew", st.booleans()),
    _step("renew", st.just(True)),
    _step("set", all_settings),
    _step("end_role"),
)


@pytest.fixture(scope="module")
def store(tmp_path_factory: pytest.TempPathFactory) -> Iterator[rmqstore.Store]:
    path = Path(tmp_path_factory.mktemp("board"))
    # Nothing is flushed but by a step.
    with rmqstore.open(path, **FILES, flush_commit_log_interval_ms=3_600_000) as opened:
        yield opened


@settings(
    max_examples=rounds(80, 5000),
    deadline=None,
    suppress_health_check=[HealthCheck.too_slow],
)
@given(
    setting=all_settings,
    connected=subsets,
    script=st.lists(steps, min_size=20, max_size=60),
)
def test_board_agrees_with_the_quorum_machines(
    store: rmqstore.Store, setting: Setting, connected: frozenset[int], script: list[Step]
) -> None:
    pair = Pair(store, setting)
    for each in connected:
        pair.connect(each)
    for step in script:
        step(pair)
        pair.compare()
    pair.board.abandon()
    store._board = None
    assert {wait.status for wait in pair.inbox.take()} <= {PutStatus.FLUSH_SLAVE_TIMEOUT}
