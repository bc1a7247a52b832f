"""Known defects and hazards of RocketMQ's controller, each replayed against our controller.

Numbers are those of the list "Open at 5.3.3" in the description of RocketMQ's controller; other
tests name the thread of its tracker.
"""

from __future__ import annotations

from dataclasses import replace

from rmqstore.controller.commands import RemoveBrokers, SetAddress
from rmqstore.controller.leader import Election
from rmqstore.controller.liveness import Liveness
from rmqstore.controller.state import Result, Verdict
from rmqstore.replication.group.log_rank import LogRank
from tests.scenarios.controller_cluster import ALL_ACK, Cluster

# Defects from the list of open ones.


def test_defect_1_offsets_are_compared_with_all_their_bits(cluster: Cluster) -> None:
    cluster.java_group(1, 2, 3, members=(1, 2, 3))
    cluster.close(1)
    cluster.now_ms += 1
    cluster.java(2, 0, epoch=1)
    cluster.java(3, 3_000_000_000, epoch=1)
    cluster.review()
    assert cluster.group.master_id == 3


def test_defect_2_member_that_was_never_heard_is_no_candidate(cluster: Cluster) -> None:
    cluster.java_group(1, 2, 3, members=(1, 2, 3))
    cluster.liveness.forget("g", kept=(1,))
    cluster.close(1)
    cluster.now_ms += 1
    cluster.review()
    assert cluster.group.master_id is None
    cluster.java(2, 5, epoch=1)
    cluster.review()
    assert cluster.group.master_id == 2


def test_defect_3_first_election_refuses_an_unknown_id(cluster: Cluster) -> None:
    cluster.register(1)
    election = cluster.elect(99)
    assert (election.command, election.verdict) == (None, Verdict.UNKNOWN_BROKER)
    assert not cluster.group.was_elected


def test_defect_4_cleaning_never_leaves_half_a_group(cluster: Cluster) -> None:
    cluster.java_group(1, 2)
    cluster.close(1)

    cleaned = cluster.leader.clean(
        "g", cluster="c", broker_ids=frozenset((1,)), cleans_living=False, now_ms=cluster.now_ms
    )
    assert isinstance(cleaned, RemoveBrokers)
    cluster.state.apply(cleaned)
    assert (cluster.group.master_id, set(cluster.group.brokers)) == (None, {2})

    moved = cluster.leader.register_broker("c", "g", 2, "host9:1")
    assert isinstance(moved, SetAddress)

    # No broker is known to hold the messages: an operator decides, and the answer names the risk.
    cluster.java(2)
    assert cluster.elect(2).command is None
    election = cluster.elect(2, designated=True)
    assert cluster.group.master_id == 2
    assert "may be lost" in election.risk


def test_defect_5_cleaning_the_living_removes_the_listed_ids_only(cluster: Cluster) -> None:
    cluster.java_group(1, 2, 3, members=(1, 2))
    cleaned = cluster.leader.clean(
        "g", cluster="c", broker_ids=frozenset((2,)), cleans_living=True, now_ms=cluster.now_ms
    )
    assert isinstance(cleaned, RemoveBrokers)
    cluster.state.apply(cleaned)
    assert set(cluster.group.brokers) == {1, 3}
    assert cluster.group.sync_state_set == {1}


def test_defect_6_election_without_a_candidate_raises_the_epoch_once(cluster: Cluster) -> None:
    cluster.java_group(1)
    cluster.close(1)
    cluster.now_ms += 1
    for _ in range(5):
        cluster.review()
        cluster.elect()
        cluster.now_ms += 1000
    assert (cluster.group.master_id, cluster.group.master_epoch) == (None, 2)
    cluster.java(1)
    cluster.review()
    assert (cluster.group.master_id, cluster.group.master_epoch) == (1, 3)


def test_defect_7_new_epoch_is_above_those_of_the_logs(cluster: Cluster) -> None:
    # The controller lost its state, the brokers did not; brokers refuse a lower epoch.
    cluster.register(1, 2)
    cluster.java(1, 500, epoch=7)
    cluster.java(2, 900, epoch=8)
    assert cluster.elect(1).command is None, "the other holds more"
    cluster.elect(2)
    assert (cluster.group.master_id, cluster.group.master_epoch) == (2, 9)


def test_defect_7_absurd_epoch_of_a_broker_uses_up_no_numbers(cluster: Cluster) -> None:
    cluster.register(1, 2)
    cluster.java(1)
    cluster.java(2, 0, epoch=2_147_483_646)
    cluster.elect(1)
    assert cluster.group.master_epoch == 1


def test_defect_8_living_master_with_a_dead_slave_is_not_replaced(cluster: Cluster) -> None:
    cluster.java_group(1, 2, members=(1, 2))
    cluster.close(2)
    cluster.now_ms += 1000
    assert cluster.review() is None
    assert cluster.elect().verdict is Verdict.UNCHANGED
    assert cluster.group.master_id == 1


def test_defect_8_dead_master_with_a_living_slave_is_replaced(cluster: Cluster) -> None:
    cluster.java_group(1, 2, members=(1, 2))
    cluster.now_ms += 3000
    cluster.java(2)
    cluster.now_ms += 2
    cluster.java(2)
    cluster.review()
    assert cluster.group.master_id == 2


def test_defect_9_shorter_log_after_a_truncation_is_what_counts(cluster: Cluster) -> None:
    cluster.java_group(1, 2, 3, members=(1, 2, 3))
    cluster.java(2, 900, epoch=1)
    cluster.close(1)
    cluster.now_ms += 1
    cluster.java(2, 100, epoch=1)
    cluster.java(3, 500, epoch=1)
    cluster.review()
    assert cluster.group.master_id == 3


def test_defect_11_address_for_a_group_that_was_cleaned_meanwhile_changes_nothing(
    cluster: Cluster,
) -> None:
    cluster.register(1)
    late = cluster.leader.register_broker("c", "g", 1, "other:1")
    assert isinstance(late, SetAddress)
    cluster.state.apply(RemoveBrokers("g", None))
    assert cluster.state.apply(late).verdict is Verdict.UNKNOWN_GROUP


def test_defect_12_no_master_is_elected_before_the_lease_is_over_by_slow_clocks(
    cluster: Cluster,
) -> None:
    cluster.our_group(1, 2, terms=ALL_ACK)
    cluster.now_ms += 2000
    assert cluster.ours(1, 100, epoch=1, terms=ALL_ACK) == 1000
    granted_ms = cluster.now_ms
    cluster.close(1)
    cluster.now_ms = granted_ms + 1099
    cluster.ours(2, 100, epoch=1, terms=ALL_ACK)
    assert cluster.group.master_id == 1
    cluster.now_ms = granted_ms + 1100
    cluster.ours(2, 100, epoch=1, terms=ALL_ACK)
    assert cluster.group.master_id == 2


def test_defect_12_new_leader_waits_for_the_leases_of_the_former_one(cluster: Cluster) -> None:
    cluster.our_group(1, 2, terms=ALL_ACK)
    cluster.close(1)
    cluster.now_ms += 500
    cluster.lead()
    began_ms = cluster.now_ms
    cluster.now_ms = began_ms + 1099
    cluster.ours(2, 100, epoch=1, terms=ALL_ACK)
    assert cluster.group.master_id == 1
    cluster.now_ms = began_ms + 1100
    cluster.ours(2, 100, epoch=1, terms=ALL_ACK)
    assert cluster.group.master_id == 2


def test_defect_12_no_lease_is_granted_while_an_election_is_being_written(
    cluster: Cluster,
) -> None:
    cluster.our_group(1, 2, terms=ALL_ACK)

    cluster.now_ms += 1200
    cluster.close(1)
    cluster.heartbeat(2, life=1, number=99, seen_ms=cluster.now_ms, rank=LogRank(1, 100))

    due = cluster.leader.review("g", cluster.now_ms)
    assert isinstance(due, Election)
    assert due.command is not None
    cluster.leader.begin(due)
    assert cluster.ours(1, 100, epoch=1, terms=ALL_ACK) == 0

    # There is no lease after the attempt either while its outcome is unknown.
    cluster.fail(due, "no answer of the disk", is_unknown=True)
    assert cluster.leader.lease("g", 1, cluster.now_ms) == 0


def begun_election(cluster: Cluster) -> Election:
    """Return an election that is being written: broker 2 in place of the silent master 1."""
    cluster.our_group(1, 2, terms=ALL_ACK)
    cluster.now_ms += 1200
    cluster.close(1)
    cluster.heartbeat(2, life=1, number=99, seen_ms=cluster.now_ms, rank=LogRank(1, 100))
    due = cluster.leader.review("g", cluster.now_ms)
    assert isinstance(due, Election)
    cluster.leader.begin(due)
    return due


def test_election_with_an_unknown_outcome_is_written_again(cluster: Cluster) -> None:
    due = begun_election(cluster)
    assert cluster.leader.review("g", cluster.now_ms) is None, "it is being written"
    cluster.fail(due, "no answer of the disk", is_unknown=True)
    assert "no answer of the disk" in cluster.leader.waiting["g"].reason
    asked = cluster.leader.elect("g", broker_id=2, is_designated=True, now_ms=cluster.now_ms)
    assert asked.command is None, "no other election before the outcome is known"

    assert cluster.leader.review("g", cluster.now_ms) is None, "not without a pause"
    cluster.now_ms += 500
    again = cluster.leader.review("g", cluster.now_ms)
    assert again == due
    assert cluster.settle(again).master_id == 2
    assert cluster.leader.review("g", cluster.now_ms) is None


def test_election_that_took_effect_late_is_not_written_again(cluster: Cluster) -> None:
    due = begun_election(cluster)
    cluster.fail(due, "no answer of the disk", is_unknown=True)

    assert due.command is not None
    assert cluster.state.apply(due.command).is_applied
    cluster.now_ms += 500
    cluster.review()
    cluster.numbers = 100
    assert cluster.ours(2, 100, epoch=2, terms=ALL_ACK) == ALL_ACK.lease_ms


def test_election_that_was_refused_is_tried_again(cluster: Cluster) -> None:
    due = begun_election(cluster)
    cluster.fail(due, "No space left on device", is_unknown=False)
    assert "No space left" in cluster.leader.waiting["g"].reason
    cluster.now_ms += 500
    cluster.review()
    assert cluster.group.master_id == 2


def test_defect_13_other_cluster_with_the_same_broker_name_is_refused(cluster: Cluster) -> None:
    cluster.register(1)
    applied = cluster.leader.assign_broker_id("other", "g", 2, "h:1;5")
    registered = cluster.leader.register_broker("other", "g", 1, "h:1")
    elected = cluster.leader.elect("g", cluster="other", broker_id=1, now_ms=cluster.now_ms)
    for each in (applied, registered, elected):
        assert getattr(each, "verdict", None) is Verdict.OTHER_CLUSTER


# Defects from the history of the tracker.


def test_issue_5712_new_leader_notices_a_dead_master_that_it_never_heard(cluster: Cluster) -> None:
    cluster.java_group(1, 2, members=(1, 2))
    cluster.liveness = Liveness()
    cluster.lead()
    cluster.java(2)
    cluster.review()
    # A Java broker finds a controller that was started again after up to 3 s, and may have
    # announced a shorter timeout.
    for _ in range(5):
        assert cluster.group.master_id == 1, "its heartbeat may be on the way"
        cluster.now_ms += 1000
        cluster.java(2)
        cluster.review()
    cluster.now_ms += 1
    cluster.java(2)
    cluster.review()
    assert cluster.group.master_id == 2


def test_living_java_master_that_closed_its_connection_is_not_replaced(cluster: Cluster) -> None:
    cluster.java_group(1, 2, members=(1, 2))
    cluster.serves = True
    cluster.close(1)
    for _ in range(5):
        cluster.now_ms += 600
        cluster.java(2, 100, epoch=1)
        due = cluster.review()
        assert isinstance(due, Election)
        assert due.verdict is Verdict.UNCHANGED
        assert due.retry_at_ms is not None, "it is queried again"
        assert cluster.now_ms < due.retry_at_ms <= cluster.now_ms + 1000
        cluster.now_ms += 600
        assert cluster.elect(2).verdict is Verdict.UNCHANGED
    cluster.now_ms += 1
    cluster.java(1, 100, epoch=1)
    assert cluster.review() is None

    cluster.serves = False
    cluster.close(1)
    cluster.java(2, 100, epoch=1)
    cluster.review()
    assert cluster.group.master_id == 2


def test_living_java_master_that_was_never_heard_is_not_replaced(cluster: Cluster) -> None:
    cluster.java_group(1, 2, members=(1, 2))
    cluster.liveness = Liveness()
    cluster.lead()
    cluster.serves = True
    for _ in range(20):
        cluster.now_ms += 1000
        cluster.java(2)
        cluster.review()
    assert cluster.group.master_id == 1
    cluster.serves = False
    cluster.now_ms += 1000
    cluster.java(2)
    cluster.review()
    assert cluster.group.master_id == 2


def test_master_of_this_library_is_replaced_without_a_query(cluster: Cluster) -> None:
    # It waits for a slave that it lost until the controller agrees, so it acknowledges nothing.
    terms = replace(ALL_ACK, lease_ms=0)
    cluster.our_group(1, 2, terms=terms)
    cluster.serves = True
    cluster.close(1)
    cluster.now_ms += 1
    cluster.ours(2, 100, epoch=1, terms=terms)
    assert cluster.group.master_id == 2


def test_reports_count_from_the_silence_of_a_java_master_on(cluster: Cluster) -> None:
    cluster.java_group(1, 2, members=(1, 2))
    cluster.close(1)
    cluster.now_ms += 100
    cluster.java(2, 100, epoch=1)
    due = cluster.leader.review("g", cluster.now_ms)
    assert isinstance(due, Election)
    assert (due.command, due.doubted) == (None, 1)
    cluster.now_ms += 100
    cluster.answer(1)

    # It may have acknowledged messages while it was queried.
    cluster.review()
    assert cluster.group.master_id == 1
    assert cluster.leader.wants_report("g", 2)
    cluster.java(2, 200, epoch=1)
    cluster.review()
    assert cluster.group.master_id == 2


def test_java_master_that_returned_is_queried_again(cluster: Cluster) -> None:
    cluster.java_group(1, 2, members=(1, 2))
    cluster.close(1)
    cluster.now_ms += 1
    assert cluster.elect(2).verdict is Verdict.STALE, "it has not reported since"
    assert cluster.leader.elect("g", broker_id=2, now_ms=cluster.now_ms).doubted is None
    cluster.now_ms += 1
    cluster.java(1)
    cluster.close(1)
    assert cluster.leader.elect("g", broker_id=2, now_ms=cluster.now_ms).doubted == 1


def test_issue_6382_failed_election_is_made_up_for_by_the_next_heartbeat(cluster: Cluster) -> None:
    cluster.group_without_master()
    cluster.java(2)
    cluster.review()
    assert cluster.group.master_id == 2


def test_issue_7293_set_of_a_group_without_a_master_is_refused(cluster: Cluster) -> None:
    cluster.group_without_master()
    refused = cluster.leader.alter_set(
        "g",
        master_id=1,
        master_epoch=cluster.group.master_epoch,
        set_epoch=cluster.group.set_epoch,
        members=frozenset((1,)),
        now_ms=cluster.now_ms,
    )
    assert isinstance(refused, Result)
    assert refused.verdict is Verdict.NOT_MASTER


def test_set_that_was_proposed_for_an_earlier_version_is_refused(cluster: Cluster) -> None:
    cluster.java_group(1, 2, members=(1, 2))
    group = cluster.group
    refused = cluster.leader.alter_set(
        "g",
        master_id=1,
        master_epoch=group.master_epoch,
        set_epoch=group.set_epoch - 1,
        members=frozenset((1,)),
        now_ms=cluster.now_ms,
    )
    assert isinstance(refused, Result)
    assert refused.verdict is Verdict.FENCED_SET_EPOCH
    assert refused.group == group


def test_issue_10013_learner_is_elected_neither_first_nor_later(cluster: Cluster) -> None:
    cluster.register(1, 2)
    cluster.heartbeat(1, life=1, number=1, is_learner=True)
    assert cluster.elect(1).command is None
    assert cluster.elect(1, designated=True).command is None

    # The same broker is elected once it is not a learner.
    cluster.heartbeat(1, life=1, number=2)
    assert cluster.elect(1).command is not None


def test_reconnected_broker_lives_on_when_its_former_connection_closes(cluster: Cluster) -> None:
    cluster.java_group(1, 2, members=(1, 2))
    cluster.heartbeat(1, connection="another connection")
    cluster.close(1)
    assert cluster.liveness.is_alive("g", 1, cluster.now_ms)
