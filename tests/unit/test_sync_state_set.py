"""The views a master has of its sync-state set while the controller decides."""

from __future__ import annotations

import pytest

from rmqstore import ArgumentError
from rmqstore.replication.group.replicas import Replicas
from rmqstore.replication.group.sync_state_set import Proposal, SyncStateSet


class Master:
    """Broker 1 with a log of 100 bytes, all confirmed, and replicas that acknowledge."""

    def __init__(self, *members: int, waits_for_admission: bool = False) -> None:
        self.replicas = Replicas(1)
        self.held = SyncStateSet(
            self.replicas,
            lag_ms_max=100,
            answer_ms_max=50,
            waits_for_admission=waits_for_admission,
        )
        self.held.begin(members, set_epoch=1, epoch=1, epoch_start_offset=60, now_ms=0)

    def connect(
        self,
        broker_id: int,
        ack: int,
        *,
        now_ms: int = 0,
        learner: bool = False,
        names_epochs: bool = False,
    ) -> None:
        self.replicas.connected(
            broker_id,
            connection=broker_id,
            is_learner=learner,
            names_epochs=names_epochs,
            now_ms=now_ms,
        )
        self.held.connected(broker_id)
        self.ack(broker_id, ack, now_ms=now_ms)

    def ack(self, broker_id: int, ack: int, *, now_ms: int) -> bool:
        self.replicas.acked(broker_id, ack, epoch=1, end_offset=100, now_ms=now_ms)
        replica = self.replicas.get(broker_id)
        assert replica is not None
        return self.held.acked(replica)

    def leave(self, broker_id: int) -> None:
        self.replicas.disconnected(broker_id)
        self.held.disconnected(broker_id)

    def review(self, now_ms: int, *, confirm_offset: int = 100) -> Proposal | None:
        return self.held.review(confirm_offset=confirm_offset, now_ms=now_ms)

    def proposed(self, now_ms: int, *, confirm_offset: int = 100) -> set[int]:
        """Return the members of the proposal made; the test knows there is one."""
        proposal = self.review(now_ms, confirm_offset=confirm_offset)
        assert proposal is not None
        return set(proposal.members)


@pytest.mark.parametrize(("ack", "joins"), [(100, True), (99, False)])
def test_replica_joins_when_it_holds_what_is_confirmed(ack: int, joins: bool) -> None:
    master = Master(1)
    master.connect(2, ack)
    assert (master.review(0) is not None) is joins


@pytest.mark.parametrize(("ack", "joins"), [(60, True), (59, False)])
def test_replica_joins_when_it_reached_the_masters_epoch(ack: int, joins: bool) -> None:
    master = Master(1)
    master.connect(2, ack)
    assert (master.review(0, confirm_offset=10) is not None) is joins


def test_learner_never_joins() -> None:
    master = Master(1)
    master.connect(2, 100, learner=True)
    assert master.review(0) is None


def test_replica_that_waits_for_admission_joins_once_it_is_admitted() -> None:
    master = Master(1, waits_for_admission=True)
    master.connect(2, 100, names_epochs=True)
    master.connect(3, 100, names_epochs=True)
    assert master.review(0) is None
    master.held.admit({3})
    assert master.proposed(0) == {1, 3}


def test_admission_ends_with_the_next_one_and_with_the_epoch_but_members_stay() -> None:
    master = Master(1, 3, waits_for_admission=True)
    master.connect(2, 100, names_epochs=True)
    master.connect(3, 100, names_epochs=True)
    master.held.admit({2})
    master.held.admit({})
    assert master.review(0) is None
    master.held.admit({2})
    master.held.begin({1}, set_epoch=2, epoch=2, epoch_start_offset=60, now_ms=0)
    master.replicas.acked(2, 100, epoch=2, end_offset=100, now_ms=0)
    assert master.review(0) is None
    master.held.admit({2})
    assert master.proposed(0) == {1, 2}


def test_replica_of_rocketmq_needs_no_admission() -> None:
    master = Master(1, waits_for_admission=True)
    master.connect(2, 100)
    assert master.proposed(0) == {1, 2}


def test_possible_members_are_those_of_all_proposals_without_an_answer() -> None:
    master = Master(1, 2)
    master.connect(2, 100)
    master.connect(3, 100)
    proposal = master.review(0)
    assert proposal is not None
    assert master.held.possible == {1, 2, 3}
    master.held.lost(proposal.number, now_ms=0)
    assert master.held.possible == {1, 2, 3}
    master.held.refuse(proposal.number, now_ms=0)
    assert master.held.possible == {1, 2}


def test_member_that_lags_leaves_after_its_time() -> None:
    master = Master(1, 2)
    master.connect(2, 50)
    assert master.review(100) is None
    assert master.proposed(101) == {1}


def test_member_that_keeps_up_stays() -> None:
    master = Master(1, 2)
    master.connect(2, 100, now_ms=0)
    master.ack(2, 100, now_ms=90)
    assert master.review(190) is None
    assert master.proposed(191) == {1}


def test_member_without_a_connection_leaves_at_once_when_it_had_one() -> None:
    master = Master(1, 2)
    master.connect(2, 100)
    master.leave(2)
    assert master.proposed(0) == {1}


def test_member_that_never_came_is_given_its_time() -> None:
    master = Master(1, 2)
    assert master.review(100) is None
    assert master.proposed(101) == {1}


def test_member_that_is_back_has_its_time_again() -> None:
    master = Master(1, 2)
    master.connect(2, 50, now_ms=0)
    master.leave(2)
    master.connect(2, 50, now_ms=500)
    assert master.review(600) is None
    assert master.proposed(601) == {1}


def test_member_that_is_back_with_less_than_it_vouched_for_leaves_until_it_has_it() -> None:
    master = Master(1, 2)
    master.connect(2, 100)
    master.leave(2)
    master.connect(2, 50)
    assert master.proposed(0) == {1}
    master.held.confirm([1], set_epoch=2, now_ms=0)
    master.ack(2, 99, now_ms=1)
    assert master.review(1, confirm_offset=60) is None
    master.ack(2, 100, now_ms=2)
    assert master.proposed(2, confirm_offset=60) == {1, 2}


def test_proposal_is_in_doubt_until_it_is_answered() -> None:
    master = Master(1, 2)
    master.connect(2, 100)
    master.connect(3, 100)
    assert master.proposed(0) == {1, 2, 3}
    assert (master.held.waited, master.held.counted) == ({1, 2, 3}, {1, 2})
    master.leave(2)
    assert master.review(49) is None
    # Without an answer in time another one is made, and both are in doubt.
    assert master.proposed(50) == {1, 3}
    assert (master.held.waited, master.held.counted) == ({1, 2, 3}, {1})
    assert master.held.confirm([1, 2, 3], set_epoch=2, now_ms=51)
    assert (master.held.waited, master.held.counted) == ({1, 2, 3}, {1, 2, 3})
    assert master.held.proposals == ()
    assert master.proposed(51) == {1, 3}


def test_refused_proposal_leaves_no_trace() -> None:
    master = Master(1)
    master.connect(2, 100)
    master.proposed(0)
    master.held.refuse(1, now_ms=0)
    assert master.held.waited == {1}
    assert master.held.is_settled
    # What was refused is not asked again at once.
    assert master.review(999) is None
    assert master.proposed(1000) == {1, 2}


def test_replica_that_is_refused_keeps_no_other_one_out_of_the_set() -> None:
    master = Master(1)
    master.connect(2, 100)
    master.connect(3, 100)
    proposal = master.review(0)
    assert proposal is not None
    assert proposal.joined == {2, 3}
    master.held.refuse(proposal.number, now_ms=0)

    # The controller does not know broker 2, and takes broker 3.
    joined = []
    for now_ms in range(1000, 5000, 1000):
        master.ack(2, 100, now_ms=now_ms)
        master.ack(3, 100, now_ms=now_ms)
        proposal = master.review(now_ms)
        assert proposal is not None
        joined.append(set(proposal.joined))
        if 2 in proposal.members:
            master.held.refuse(proposal.number, now_ms=now_ms)
        else:
            master.held.confirm(proposal.members, set_epoch=2, now_ms=now_ms)
    assert joined == [{2}, {3}, {2}, {2}]


def test_replica_that_is_refused_keeps_no_other_one_in_the_set() -> None:
    master = Master(1, 2)
    master.connect(2, 100)
    master.connect(3, 100)
    proposal = master.review(0)
    assert proposal is not None
    assert proposal.joined == {3}
    master.held.refuse(proposal.number, now_ms=0)
    master.ack(3, 100, now_ms=1000)
    proposal = master.review(1000)
    assert proposal is not None
    assert (proposal.left, proposal.joined) == ({2}, frozenset())


def test_connection_of_a_replica_that_is_refused_each_time_is_in_doubt() -> None:
    master = Master(1)
    for times in (1, 2):
        master.connect(2, 100)
        for number in range(5):
            now_ms = 1000 * number + 10_000 * times
            master.ack(2, 100, now_ms=now_ms)
            proposal = master.review(now_ms)
            assert proposal is not None
            refused = master.held.refuse(proposal.number, now_ms=now_ms)
            assert refused == (2 if number == 4 else None)
        master.leave(2)


def test_every_attempt_has_to_be_refused() -> None:
    master = Master(1)
    master.connect(2, 100)
    master.proposed(0)
    master.held.lost(1, now_ms=0)
    master.ack(2, 100, now_ms=1000)
    again = master.review(1000)
    assert again is not None
    assert again.number == 1
    master.held.refuse(1, now_ms=1000)
    assert master.held.waited == {1, 2}
    master.held.refuse(1, now_ms=1001)
    assert master.held.waited == {1}
    master.held.refuse(1, now_ms=1002)


@pytest.mark.parametrize("returns_as", ["nobody", "learner", "emptied"])
def test_lost_joiner_that_is_fit_no_more_is_settled_by_the_members_as_they_are(
    returns_as: str,
) -> None:
    master = Master(1, 2)
    master.connect(2, 100)
    master.connect(3, 100)
    master.proposed(0)

    master.held.lost(1, now_ms=0)
    master.leave(3)
    if returns_as != "nobody":
        master.connect(3, 0, now_ms=900, learner=returns_as == "learner")

    assert master.review(99) is None
    master.ack(2, 100, now_ms=999)
    assert master.review(999) is None

    settling = master.review(1000)
    assert settling is not None
    assert (settling.members, settling.set_epoch) == ({1, 2}, 1)
    assert settling.joined == settling.left == frozenset()

    # It takes nobody's place while it is open, and nobody is waited for any less.
    assert (master.held.waited, master.held.counted) == ({1, 2, 3}, {1, 2})

    assert master.held.confirm([1, 2], set_epoch=2, now_ms=1001)
    assert (master.held.waited, master.held.counted) == ({1, 2}, {1, 2})
    assert master.held.is_settled


def test_lost_joiner_that_is_fit_is_proposed_again() -> None:
    master = Master(1)
    master.connect(2, 100)
    master.proposed(0)
    master.held.lost(1, now_ms=0)
    master.leave(2)
    master.connect(2, 100, now_ms=1)
    assert master.proposed(1000) == {1, 2}


def test_lost_change_that_lets_nobody_in_is_asked_for_before_the_members_as_they_are() -> None:
    master = Master(1, 2)
    master.connect(2, 100)
    master.connect(3, 100)
    assert master.proposed(0) == {1, 2, 3}
    master.held.lost(1, now_ms=0)
    master.leave(2)
    master.leave(3)
    assert master.proposed(1000) == {1}
    master.held.lost(2, now_ms=1000)
    master.connect(2, 100, now_ms=2000)
    assert master.proposed(2000) == {1}


def test_where_too_many_sets_have_no_answer_one_is_asked_for_that_voids_them() -> None:
    master = Master(1)
    for number in range(64):
        master.connect(2 + number, 100, now_ms=50 * number)
        assert master.proposed(50 * number) == {1, *range(2, 3 + number)}
    master.connect(66, 100, now_ms=3200)
    assert master.proposed(3200) == {1}
    master.held.confirm([1], set_epoch=2, now_ms=3201)
    assert master.proposed(3201) == set(range(1, 67))


def test_joiner_that_left_in_doubt_and_turns_out_a_member_leaves_at_once() -> None:
    master = Master(1)
    master.connect(2, 100)
    master.proposed(0)
    master.leave(2)
    master.held.confirm([1, 2], set_epoch=2, now_ms=1)
    assert master.proposed(1) == {1}


def test_joiner_that_left_before_it_was_refused_has_its_time_when_it_is_made_a_member() -> None:
    master = Master(1)
    master.connect(2, 100)
    master.proposed(0)
    master.leave(2)
    master.held.refuse(1, now_ms=0)
    master.held.confirm([1, 2], set_epoch=2, now_ms=1)
    assert master.review(101) is None
    assert master.proposed(102) == {1}


def test_late_answers_of_former_sets_change_nothing() -> None:
    master = Master(1)
    assert master.held.confirm([1, 2], set_epoch=3, now_ms=0)
    assert not master.held.confirm([1], set_epoch=2, now_ms=0)
    assert not master.held.confirm([2, 1], set_epoch=3, now_ms=0)
    assert master.held.members == {1, 2}


def test_impossible_sets_are_refused() -> None:
    master = Master(1)
    with pytest.raises(ArgumentError, match="lacks its master 1"):
        master.held.confirm([2], set_epoch=2, now_ms=0)
    with pytest.raises(ArgumentError, match="below 0"):
        master.held.confirm([-1, 1], set_epoch=2, now_ms=0)
    with pytest.raises(ArgumentError, match="two sets cannot share an epoch"):
        master.held.confirm([1, 2], set_epoch=1, now_ms=0)
    with pytest.raises(ArgumentError, match="lag_ms_max 0"):
        SyncStateSet(Replicas(1), lag_ms_max=0)


def test_new_epoch_voids_what_was_proposed() -> None:
    master = Master(1, 2)
    master.connect(2, 100)
    master.connect(3, 100)
    master.proposed(0)
    master.held.begin([1], set_epoch=2, epoch=2, epoch_start_offset=100, now_ms=1)
    assert (master.held.waited, master.held.counted) == ({1}, {1})
    assert master.proposed(1) == {1, 2, 3}


def test_ack_of_a_member_that_keeps_up_asks_for_no_review() -> None:
    master = Master(1, 2)
    master.connect(2, 100)
    assert not master.ack(2, 100, now_ms=1)
    assert master.ack(2, 90, now_ms=2)


def test_possible_members_of_rocketmq_report_no_changes_while_they_are_connected() -> None:
    master = Master(1, 2, 3, 4)
    master.connect(2, 100, names_epochs=True)
    master.connect(3, 100)
    master.connect(5, 100)
    assert master.held.without_reports == {3}
    master.leave(3)
    assert master.held.without_reports == frozenset()
