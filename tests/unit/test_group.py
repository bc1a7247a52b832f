"""A master among its replicas, with a controller that answers late, wrongly or not at all."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from rmqstore import ArgumentError, Fenced, PutStatus
from rmqstore.errors import InSyncReplicasNotEnough, NotWritable
from rmqstore.replication.group.group import CloseConnection, Effect, MasterGroup, Propose
from rmqstore.replication.group.quorum import Mode, Quorum
from rmqstore.sim.board import Resolution
from tests.scenarios.model_master import ModelMaster
from tests.support.effort import rounds

REPLICAS = (2, 3, 4)
SELDOM = st.sampled_from([False] * 9 + [True])


def group(mode: Mode = Mode.SYNC_STATE_SET) -> MasterGroup:
    return MasterGroup(1, Quorum(in_sync=2), mode)


def master_of_two(*, is_gated: bool = True) -> ModelMaster[str]:
    master: ModelMaster[str] = ModelMaster(
        Quorum(in_sync=2), Mode.SYNC_STATE_SET, is_gated=is_gated
    )
    master.change(
        lambda group, now_ms: group.become_master(
            1, end_offset=0, now_ms=now_ms, members=[1, 2], set_epoch=1
        )
    )
    return master


def test_put_is_confirmed_and_resolved_by_the_acknowledgement_of_a_member() -> None:
    master = master_of_two()
    master.connect(2, on=5)
    master.put("a", 100)
    assert (master.resolved(), master.confirm_offset) == ([], 0)
    master.ack(100, on=5)
    assert master.resolved() == [Resolution("a", PutStatus.PUT_OK, 2)]
    assert master.confirm_offset == 100


def test_acknowledgement_that_is_lower_than_before_takes_the_copy_back() -> None:
    master = master_of_two()
    master.connect(2, on=5)
    master.grow(100)
    master.ack(100, on=5)
    master.ack(40, on=5)
    master.change(lambda group, now_ms: group.tick(now_ms))
    assert master.group.standing.acks == {2: 40}
    master.put("a", 0)
    assert (master.resolved(), master.confirm_offset) == ([], 100)


def test_without_the_gate_the_end_of_the_log_is_confirmed() -> None:
    master = master_of_two(is_gated=False)
    master.grow(100)
    assert master.confirm_offset == 100


def test_old_epoch_is_fenced() -> None:
    master = group()
    master.become_master(5, end_offset=0, now_ms=0)
    with pytest.raises(Fenced, match="epoch 5 is not above 5") as caught:
        master.become_master(5, end_offset=0, now_ms=0)
    assert caught.value.epoch == 5


def test_who_is_no_master_takes_no_replica_and_no_put() -> None:
    master: ModelMaster[str] = ModelMaster(Quorum(), Mode.PLAIN)
    assert master.change(lambda group, now_ms: group.connected(2, connection=5, now_ms=now_ms)) == [
        CloseConnection(5, "this store is not a master")
    ]
    assert master.group.confirm_set([1, 2], set_epoch=9, now_ms=0) == []
    with pytest.raises(NotWritable, match="this store is not a master"):
        master.admit()
    master.grow(100)
    assert master.confirm_offset == 0


def test_log_of_a_master_never_shrinks() -> None:
    master = group()
    master.become_master(1, end_offset=100, now_ms=0)
    with pytest.raises(ArgumentError, match="ended at 100 and cannot end at 99"):
        master.log_grew(99)


def test_word_of_the_stream_that_a_slave_kept_up_counts() -> None:
    master = group()
    master.become_master(1, end_offset=100, now_ms=0, members=[1, 2], set_epoch=1)
    master.connected(2, connection=5, now_ms=0)
    master.acked(5, 50, 0, epoch=master.epoch)
    master.caught_up(5, 10_000)
    assert master.tick(15_001) == []
    assert [type(each) for each in master.tick(25_001)] == [Propose]


def test_connection_of_a_replica_that_the_controller_refuses_each_time_is_closed() -> None:
    master = group()
    master.become_master(1, end_offset=100, now_ms=0, members=[1], set_epoch=1)
    master.connected(2, connection=5, now_ms=0)
    effects = master.acked(5, 100, 0, epoch=master.epoch)
    for number in range(1, 5):
        assert [type(each) for each in effects] == [Propose]
        assert master.refuse_proposal(number, 1000 * number) == []
        effects = master.tick(1000 * number + 1000)
    (close,) = master.refuse_proposal(5, 6000)
    assert isinstance(close, CloseConnection)
    assert close.connection == 5
    assert "refused broker 2" in close.reason
    assert master.tick(8000) == []


@dataclass(frozen=True)
class Request:
    number: int
    members: frozenset[int]
    set_epoch: int


class Reign(RuleBasedStateMachine):
    """A replica that may be elected holds what was confirmed and what was acknowledged."""

    @initialize(
        all_ack=st.booleans(),
        in_sync=st.integers(1, 3),
        min_in_sync=st.integers(1, 3),
        takes_equal=st.booleans(),
    )
    def start(self, all_ack: bool, in_sync: int, min_in_sync: int, takes_equal: bool) -> None:
        # RocketMQ's controller refuses the set that it has already.
        self.takes_equal = takes_equal
        quorum = Quorum(all_ack=all_ack, in_sync=in_sync, min_in_sync=min_in_sync)
        self.master: ModelMaster[int] = ModelMaster(quorum, Mode.SYNC_STATE_SET)
        self.epoch, self.set_epoch = 1, 1
        self.elected = frozenset((1,))
        self.confirmed = self.connections = 0
        self.held = dict.fromkeys(REPLICAS, 0)
        self.links: dict[int, int] = {}
        self.learners: set[int] = set()
        self.requests: list[Request] = []
        self.news: list[tuple[frozenset[int], int]] = []
        self.puts: dict[int, tuple[int, int, bool]] = {}
        self.become_master()

    @property
    def end(self) -> int:
        return self.master.end_offset

    def run(self, change: Callable[[MasterGroup, int], list[Effect]]) -> None:
        """Let the group change as a decision, and the board go by its new rule."""
        effects = self.master.change(change)
        self.board_moved()
        for effect in effects:
            match effect:
                case Propose(proposal):
                    assert 1 in proposal.members
                    assert not proposal.joined & self.learners
                    self.requests.append(
                        Request(proposal.number, proposal.members, proposal.set_epoch)
                    )
                case CloseConnection(connection):
                    assert connection not in self.links.values()

    def board_moved(self) -> None:
        assert self.confirmed <= self.master.confirm_offset <= self.end
        self.confirmed = self.master.confirm_offset
        for each in self.master.resolved():
            self.judge(each)

    def become_master(self) -> None:
        self.run(
            lambda group, now_ms: group.become_master(
                self.epoch, end_offset=self.end, now_ms=now_ms, set_epoch=self.set_epoch
            )
        )

    def judge(self, resolution: Resolution[int]) -> None:
        end, copies, needs_all = self.puts.pop(resolution.token)
        holders = [each for each in self.elected - {1} if self.held[each] >= end]
        assert resolution.copies <= 1 + len(holders)
        if resolution.status is not PutStatus.PUT_OK:
            return
        assert 1 + len(holders) >= copies
        if needs_all:
            assert len(holders) == len(self.elected) - 1
            assert self.confirmed >= end

    @rule(size=st.integers(1, 100), own=st.sampled_from([None, None, 1, 2, 3]))
    def put(self, size: int, own: int | None) -> None:
        try:
            admission = self.master.admit(own)
        except InSyncReplicasNotEnough:
            return
        token = self.end + size
        self.puts[token] = (token, admission.copies, admission.needs_all)
        self.master.grow(token)
        self.master.wait(token, admission)
        self.board_moved()

    @rule(broker=st.sampled_from(REPLICAS), is_learner=st.sampled_from([False, False, True]))
    def connect(self, broker: int, is_learner: bool) -> None:
        self.connections += 1
        self.links[broker] = self.connections
        (self.learners.add if is_learner else self.learners.discard)(broker)
        self.run(
            lambda group, now_ms: group.connected(
                broker, connection=self.connections, is_learner=is_learner, now_ms=now_ms
            )
        )

    @precondition(lambda self: self.links)
    @rule(data=st.data())
    def disconnect(self, data: st.DataObject) -> None:
        broker = data.draw(st.sampled_from(sorted(self.links)), label="broker")
        self.disconnected(broker)

    def disconnected(self, broker: int) -> None:
        link = self.links.pop(broker)
        self.run(lambda group, now_ms: group.disconnected(link, now_ms))

    @precondition(lambda self: self.links)
    @rule(data=st.data(), behind=st.sampled_from([0, 0, 10, 150]))
    def replicate(self, data: st.DataObject, behind: int) -> None:
        broker = data.draw(st.sampled_from(sorted(self.links)), label="broker")
        self.copy(broker, behind)

    def copy(self, broker: int, behind: int) -> None:
        connection = self.links[broker]
        self.master.group.sent(connection, self.master.now_ms)
        self.held[broker] = max(self.held[broker], self.end - behind)
        self.run(
            lambda group, now_ms: group.acked(
                connection, self.held[broker], now_ms, epoch=group.epoch
            )
        )

    @precondition(lambda self: self.requests)
    @rule(data=st.data(), is_told=st.booleans())
    def controller_decides(self, data: st.DataObject, is_told: bool) -> None:
        at = data.draw(st.integers(0, len(self.requests) - 1), label="request")
        self.decide(self.requests.pop(at), is_told=is_told)

    def decide(self, request: Request, *, is_told: bool) -> None:
        fresh = request.set_epoch == self.set_epoch
        if request.members == self.elected:
            fresh &= self.takes_equal
        if fresh:
            self.news.append((self.elected, self.set_epoch))
            self.elected = request.members
            self.set_epoch += 1
        if fresh and is_told:
            self.handle()
        elif is_told:
            self.run(lambda group, now_ms: group.refuse_proposal(request.number, now_ms))
        else:
            self.lose(request)

    def lose(self, request: Request) -> None:
        self.run(lambda group, now_ms: group.lose_proposal(request.number, now_ms))

    @precondition(lambda self: self.requests)
    @rule(data=st.data(), arrives_later=st.booleans())
    def connection_to_the_controller_breaks(self, data: st.DataObject, arrives_later: bool) -> None:
        at = data.draw(st.integers(0, len(self.requests) - 1), label="request")
        request = self.requests[at] if arrives_later else self.requests.pop(at)
        self.lose(request)

    @precondition(lambda self: self.news)
    @rule(data=st.data())
    def old_news_arrives(self, data: st.DataObject) -> None:
        members, set_epoch = data.draw(st.sampled_from(self.news), label="news")
        self.run(
            lambda group, now_ms: group.confirm_set(members, set_epoch=set_epoch, now_ms=now_ms)
        )

    @rule()
    def handle(self) -> None:
        self.run(
            lambda group, now_ms: group.confirm_set(
                self.elected, set_epoch=self.set_epoch, now_ms=now_ms
            )
        )

    @rule(ms=st.sampled_from([1, 500, 1000, 3000, 16_000]))
    def time_passes(self, ms: int) -> None:
        self.master.now_ms += ms
        self.run(lambda group, now_ms: group.tick(now_ms))
        for each in self.master.expired():
            self.judge(each)

    @rule(happens=SELDOM)
    def elected_again(self, happens: bool) -> None:
        if not happens:
            return
        self.epoch += 1
        self.set_epoch += 1
        self.elected = frozenset((1,))
        self.become_master()

    @rule(happens=SELDOM)
    def everything_heals(self, happens: bool) -> None:
        if not happens:
            return
        for broker in REPLICAS:
            self.connect(broker, is_learner=False)
        for _ in range(12):
            for broker in REPLICAS:
                self.copy(broker, 0)
            while self.requests:
                self.decide(self.requests.pop(0), is_told=True)
            self.handle()
            self.time_passes(1000)
        state = self.master.group.sync_state_set
        assert state.members == state.waited == state.counted == self.elected == {1, 2, 3, 4}
        assert self.confirmed == self.end
        assert not self.puts

    @precondition(lambda self: self.takes_equal)
    @rule(happens=SELDOM, keeps_members=st.booleans(), some=st.sets(st.sampled_from(REPLICAS)))
    def answers_to_proposals_are_all_it_takes(
        self, happens: bool, keeps_members: bool, some: set[int]
    ) -> None:
        if not happens:
            return

        for broker in REPLICAS:
            self.connect(broker, is_learner=False)
            self.copy(broker, 0)
        self.time_passes(1000)
        while self.requests:
            self.lose(self.requests.pop())

        present = self.elected - {1} if keeps_members else some
        for broker in set(REPLICAS) - present:
            self.disconnected(broker)

        for _ in range(24):
            for broker in present:
                self.copy(broker, 0)
            while self.requests:
                request = self.requests.pop(0)
                if request.set_epoch == self.set_epoch:
                    self.decide(request, is_told=True)
                else:
                    self.handle()
            self.time_passes(1000)

        state = self.master.group.sync_state_set
        assert state.members == state.waited == state.counted == self.elected == {1, *present}
        assert self.confirmed == self.end
        assert not self.puts

    @invariant()
    def the_master_reckons_with_every_set_there_may_be(self) -> None:
        state = self.master.group.sync_state_set
        assert state.counted <= self.elected <= state.waited

    @invariant()
    def whoever_may_be_elected_holds_what_is_confirmed(self) -> None:
        assert all(self.held[each] >= self.confirmed for each in self.elected - {1})


TestReign = Reign.TestCase
TestReign.settings = settings(
    max_examples=rounds(150, 10_000), stateful_step_count=50, deadline=None
)
