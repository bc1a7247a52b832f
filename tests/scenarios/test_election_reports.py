"""What the report of a replica is worth: power loss, copied directories, masters that never begin.

The rule is that of docs/replication.md, "What a report is worth".
"""

from __future__ import annotations

from typing import Any

import pytest

from rmqstore.controller.commands import AlterSet, ElectMaster, RecordIncarnation, Terms
from rmqstore.controller.doubt import incarnation_of
from rmqstore.controller.state import Verdict
from tests.scenarios.controller_cluster import ALL_ACK, QUORUM, Cluster


@pytest.fixture
def cluster() -> Cluster:
    return Cluster()


def back(cluster: Cluster, broker_id: int, end: int, **fields: Any) -> None:
    """Deliver the first heartbeat of another process of a broker."""
    cluster.booted(broker_id, end, life=2, former_lives=(1,), synced_epoch=-1, **fields)


# Machines that lose power.


def test_member_whose_machine_lost_power_is_no_report_that_an_election_needs(
    cluster: Cluster,
) -> None:
    cluster.booted_group(1, 2, 3)
    cluster.lose(1, 2)
    back(cluster, 2, 60, boot=2)
    cluster.booted(3, 60)
    assert cluster.group.master_id is None, "the process of broker 1 has the messages up to 100"
    reason = cluster.leader.waiting["g"].reason
    assert "broker 2: its machine was started again" in reason
    assert cluster.leader.waiting["g"].waits_for == {1}

    back(cluster, 1, 100, refused=1)
    assert (cluster.group.master_id, cluster.group.master_epoch) == (1, 3)


def test_member_whose_process_died_counts(cluster: Cluster) -> None:
    cluster.booted_group(1, 2, 3)
    cluster.lose(1, 2)
    back(cluster, 2, 100)
    cluster.booted(3, 60)
    assert cluster.group.master_id == 2


def test_member_that_acknowledged_from_its_disk_counts_after_a_boot(cluster: Cluster) -> None:
    cluster.booted_group(1, 2, 3, acks_flushed=True)
    cluster.lose(1, 2)
    back(cluster, 2, 100, boot=2, acks_flushed=True)
    cluster.booted(3, 60, acks_flushed=True)
    assert cluster.group.master_id == 2


def test_setting_of_the_process_that_acknowledged_is_what_counts(cluster: Cluster) -> None:
    cluster.booted_group(1, 2, 3)
    cluster.lose(1, 2)
    back(cluster, 2, 100, boot=2, acks_flushed=True)
    cluster.booted(3, 60)
    assert "broker 2" in cluster.leader.waiting["g"].reason


def test_setting_of_a_process_in_between_is_not_known(cluster: Cluster) -> None:
    cluster.booted_group(1, 2, 3, acks_flushed=True)
    cluster.lose(1, 2)
    later = {"life": 3, "former_lives": (1, 2), "synced_epoch": -1}
    cluster.booted(2, 100, boot=2, acks_flushed=True, **later)
    cluster.booted(3, 60, acks_flushed=True)
    assert "broker 2" in cluster.leader.waiting["g"].reason


def test_unflushed_end_of_a_log_is_not_missed(cluster: Cluster) -> None:
    cluster.booted_group(1, 2, 3, acks_flushed=True, vouched_offset=50)
    cluster.lose(1, 2)
    back(cluster, 2, 70, boot=2, acks_flushed=True, vouched_offset=70)
    cluster.booted(3, 60, acks_flushed=True, vouched_offset=60)
    assert cluster.group.master_id == 2


def test_member_that_was_closed_before_its_machine_was_started_again_counts(
    cluster: Cluster,
) -> None:
    cluster.booted_group(1, 2, 3)
    cluster.lose(1, 2)
    back(cluster, 2, 100, boot=2, was_closed=True)
    cluster.booted(3, 60)
    assert cluster.group.master_id == 2


def test_clean_end_of_a_later_process_does_not_vouch_for_an_earlier_one(cluster: Cluster) -> None:
    cluster.booted_group(1, 2, 3)
    cluster.lose(1, 2)
    cluster.booted(2, 100, boot=2, life=3, former_lives=(1, 2), synced_epoch=-1, was_closed=True)
    cluster.booted(3, 60)
    assert cluster.group.master_id is None


def test_replica_that_caught_up_again_counts(cluster: Cluster) -> None:
    cluster.booted_group(1, 2, 3)
    back(cluster, 2, 60, boot=2)
    assert "broker 2" not in str(cluster.leader.waiting)
    cluster.booted(2, 100, boot=2, life=2, former_lives=(1,))
    cluster.booted(1, 100)
    cluster.review()
    cluster.lose(1)
    cluster.booted(2, 100, boot=2, life=2, former_lives=(1,), synced_epoch=-1)
    cluster.booted(3, 60)
    assert cluster.group.master_id == 2


def test_member_that_reports_less_than_it_reported_does_not_count(cluster: Cluster) -> None:
    cluster.booted_group(1, 2, 3)
    cluster.lose(1, 2)
    back(cluster, 2, 99)
    cluster.booted(3, 60, synced_epoch=-1)
    reason = cluster.leader.waiting["g"].reason
    assert "broker 2: its log ends at 99 of epoch 1, and it held 100 of epoch 1" in reason


def test_member_that_has_less_than_the_master_confirmed_does_not_count(cluster: Cluster) -> None:
    cluster.booted_group(1, 2, 3)
    cluster.booted(1, 200, confirm=150)
    cluster.lose(1, 2)
    back(cluster, 2, 120)
    cluster.booted(3, 200)
    assert "broker 2: its log ends at 120" in cluster.leader.waiting["g"].reason


def test_log_that_a_later_master_cut_is_whole(cluster: Cluster) -> None:
    cluster.booted_group(1, 2, 3)
    cluster.booted(2, 130)
    cluster.booted(2, 110)
    cluster.lose(1)
    cluster.booted(2, 110)
    cluster.booted(3, 100)
    assert cluster.group.master_id == 2


def test_best_log_is_elected_with_a_risk_once_all_voters_have_reported(cluster: Cluster) -> None:
    cluster.booted_group(1, 2, 3)
    cluster.lose(1, 2, 3)
    back(cluster, 1, 40, boot=2, refused=1)
    back(cluster, 2, 60, boot=2)
    assert cluster.group.master_epoch == 2
    assert cluster.group.master_id is None, "broker 3 may have more"
    back(cluster, 3, 50, boot=2)
    assert cluster.group.master_id == 2
    risk = cluster.leader.risk("g")
    assert "acknowledged messages may be lost" in risk
    assert "broker 3: its machine was started again" in risk


def test_with_all_ack_one_member_with_a_whole_log_is_enough(cluster: Cluster) -> None:
    cluster.booted_group(1, 2, 3, terms=ALL_ACK)
    cluster.lose(1, 2)
    back(cluster, 2, 60, boot=2, terms=ALL_ACK)
    assert cluster.group.master_id == 1
    cluster.booted(3, 100, terms=ALL_ACK)
    assert cluster.group.master_id == 3
    assert cluster.leader.risk("g") == ""


def test_operator_is_told_that_a_member_may_have_lost_messages(cluster: Cluster) -> None:
    cluster.booted_group(1, 2, terms=ALL_ACK)
    cluster.lose(1, 2)
    back(cluster, 2, 60, boot=2, terms=ALL_ACK)
    election = cluster.elect(2, designated=True)
    assert cluster.group.master_id == 2
    assert "its machine was started again" in election.risk


def test_java_replicas_are_elected_as_by_rocketmq(cluster: Cluster) -> None:
    cluster.java_group(1, 2, members=(1, 2))
    cluster.java(2, 200, epoch=1)
    cluster.close(1, 2)
    cluster.now_ms += 1
    cluster.review()
    cluster.java(2, 100, epoch=1)
    cluster.review()
    assert cluster.group.master_id == 2


# Copied and restored directories.


def test_copy_of_a_directory_does_not_count(cluster: Cluster) -> None:
    cluster.booted_group(1, 2, 3)
    cluster.booted(2, 100, life=5, former_lives=(1,))
    cluster.booted(1, 100)
    cluster.review()
    cluster.lose(1, 2)
    cluster.booted(2, 100, life=6, former_lives=(1,), synced_epoch=-1)
    cluster.booted(3, 60)
    assert "broker 2: its directory is a copy" in cluster.leader.waiting["g"].reason


def test_master_continues_in_its_epoch_as_the_process_that_follows(cluster: Cluster) -> None:
    cluster.booted_group(1, 2, 3)
    set_epoch = cluster.group.set_epoch
    cluster.booted(1, 100, life=2, former_lives=(1,), synced_epoch=-1, role_epoch=-1)
    assert (cluster.group.master_epoch, cluster.group.master_life) == (1, 2)
    assert cluster.group.set_epoch == set_epoch + 1, "proposals of the former process are void"
    assert cluster.booted(1, 100, life=2, former_lives=(1,)) == QUORUM.lease_ms


def test_copied_master_gets_no_lease(cluster: Cluster) -> None:
    cluster.booted_group(1, 2, 3)
    cluster.booted(1, 100, life=2, former_lives=(1,), synced_epoch=-1, role_epoch=-1)
    cluster.booted(1, 200, life=2, former_lives=(1,))
    assert cluster.booted(1, 200, life=3, former_lives=(1,), synced_epoch=-1) == 0
    cluster.now_ms += 1200
    cluster.booted(1, 200, life=3, former_lives=(1,), synced_epoch=-1)
    cluster.booted(2, 200)
    cluster.booted(3, 200)
    assert cluster.group.master_id == 2, "the copy lacks what the original process had"


def test_master_that_reports_less_than_before_gets_no_lease(cluster: Cluster) -> None:
    cluster.booted_group(1, 2, 3)
    cluster.booted(1, 200)
    assert cluster.booted(1, 150, life=2, former_lives=(1,), synced_epoch=-1) == 0
    assert cluster.group.master_life == 1


# Replicas that left a set that is smaller than the number of copies.


def alone(cluster: Cluster, terms: Terms = QUORUM) -> None:
    """Let the master confirm its log alone, after the others have left the set."""
    cluster.booted_group(1, 2, 3, terms=terms)
    assert cluster.propose(1).is_applied
    for _ in range(3):
        cluster.booted(1, 100, confirm=100, terms=terms)
        cluster.review()


def test_departed_replicas_are_asked_where_the_only_member_lost_messages(
    cluster: Cluster,
) -> None:
    alone(cluster)
    assert cluster.group.departed == {2, 3}
    assert cluster.group.is_settled
    cluster.lose(1)
    back(cluster, 1, 20, boot=2, refused=1)
    cluster.booted(2, 100)
    cluster.booted(3, 90)
    assert cluster.group.master_id == 2
    assert cluster.leader.risk("g") == ""


def test_only_member_with_a_whole_log_is_elected_alone(cluster: Cluster) -> None:
    alone(cluster)
    cluster.close(2, 3)
    cluster.lose(1)
    back(cluster, 1, 100, refused=1)
    assert (cluster.group.master_id, cluster.group.master_epoch) == (1, 2)


def test_departed_replicas_do_not_replace_a_member_that_is_silent(cluster: Cluster) -> None:
    alone(cluster)
    cluster.lose(1)
    cluster.booted(2, 100)
    cluster.booted(3, 100)
    assert cluster.group.master_id is None, "readers may have seen more on broker 1"


def test_with_all_ack_puts_of_the_only_member_are_named_as_lost(cluster: Cluster) -> None:
    alone(cluster, ALL_ACK_TWO)
    cluster.lose(1)
    cluster.booted(2, 100, terms=ALL_ACK_TWO)
    cluster.booted(3, 100, terms=ALL_ACK_TWO)
    back(cluster, 1, 20, boot=2, refused=1, terms=ALL_ACK_TWO)
    assert cluster.group.master_id == 2
    assert "broker 1: its machine was started again" in cluster.leader.risk("g")


ALL_ACK_TWO = Terms(in_sync=2, min_in_sync=1, all_ack=True, lease_ms=1000)


# Masters that never begin.


def elected_second(cluster: Cluster, **fields: Any) -> None:
    """Let broker 2 be elected in place of broker 1; broker 3 has the same log."""
    cluster.booted_group(1, 2, 3)
    cluster.lose(1)
    cluster.booted(2, 100, **fields)
    cluster.booted(3, 100)
    assert (cluster.group.master_id, cluster.group.master_epoch) == (2, 2)
    assert cluster.group.former is not None


def test_elected_broker_that_cannot_lead_is_replaced(cluster: Cluster) -> None:
    elected_second(cluster)
    refusal = {"refused": 2, "life": 1, "cannot_lead": True, "trouble": "the disk is full"}
    cluster.booted(2, 100, synced_epoch=1, **refusal)
    assert (cluster.group.master_id, cluster.group.master_epoch) == (3, 3)


def test_only_broker_with_the_messages_is_waited_for_though_it_cannot_lead(
    cluster: Cluster,
) -> None:
    cluster.booted_group(1, 2, 3)
    cluster.lose(1)
    cluster.booted(2, 100)
    cluster.booted(3, 90)
    assert cluster.group.master_id == 2
    refusal = {"refused": 2, "life": 1, "trouble": "the disk is full"}
    cluster.booted(2, 100, synced_epoch=1, cannot_lead=True, **refusal)
    cluster.booted(3, 90, synced_epoch=1)
    assert cluster.group.master_id is None
    assert "cannot lead: broker 2: the disk is full" in cluster.leader.waiting["g"].reason
    cluster.booted(2, 100, synced_epoch=1, **refusal)
    assert cluster.group.master_id == 2, "the disk may have room again"


def test_elected_broker_that_dies_before_its_first_lease_is_replaced(cluster: Cluster) -> None:
    elected_second(cluster)
    cluster.close(2)
    cluster.now_ms += 1
    back(cluster, 1, 100, refused=1)
    cluster.booted(3, 100, synced_epoch=1)
    assert cluster.group.master_epoch == 3
    assert cluster.group.master_id == 1


def test_elected_broker_that_has_begun_is_waited_for(cluster: Cluster) -> None:
    elected_second(cluster)
    assert cluster.booted(2, 100, epoch=2) == QUORUM.lease_ms
    assert cluster.group.former is None
    cluster.lose(2)
    cluster.booted(3, 100, synced_epoch=1)
    back(cluster, 1, 100, refused=1)
    assert cluster.group.master_id is None


def test_without_a_lease_only_a_refusal_shows_that_a_master_never_begins(
    cluster: Cluster,
) -> None:
    terms = Terms(in_sync=1, min_in_sync=1, all_ack=True, lease_ms=0)
    cluster.booted_group(1, 2, 3, terms=terms)
    cluster.close(1)
    cluster.now_ms += 1
    cluster.booted(2, 100, terms=terms)
    cluster.booted(3, 100, terms=terms)
    assert cluster.group.master_id == 2
    cluster.close(2)
    cluster.now_ms += 1
    cluster.booted(3, 100, terms=terms, synced_epoch=1)
    assert cluster.group.master_id is None, "broker 2 may have acknowledged puts alone"


def test_void_epoch_gives_the_group_its_electorate_back(cluster: Cluster) -> None:
    elected_second(cluster)
    cluster.close(2, 3)
    cluster.now_ms += 1
    cluster.review()
    group = cluster.group
    assert (group.master_id, group.master_epoch) == (None, 3)
    assert group.sync_state_set == {1, 2, 3}
    assert group.terms == QUORUM


# The sync-state set.


def test_only_joining_replicas_must_be_alive(cluster: Cluster) -> None:
    cluster.booted_group(1, 2, 3)
    cluster.close(2, 3)
    assert cluster.propose(1, 3).is_applied, "the master knows that broker 3 follows"
    assert cluster.propose(1, 2, 3).verdict is Verdict.NOT_ALIVE


def test_replica_joins_only_once_it_has_caught_up_after_a_boot(cluster: Cluster) -> None:
    cluster.booted_group(1, 2, 3)
    assert cluster.propose(1, 2).is_applied
    back(cluster, 3, 100, boot=2)
    refused = cluster.propose(1, 2, 3)
    assert refused.verdict is Verdict.NOT_ALIVE
    assert "has not caught up with the master yet" in refused.remark
    cluster.booted(3, 100, boot=2, life=2, former_lives=(1,))
    assert cluster.propose(1, 2, 3).is_applied


def test_new_replica_joins_once_it_reports_that_it_has_caught_up(cluster: Cluster) -> None:
    cluster.booted_group(1, 2)
    cluster.register(3)
    cluster.booted(3, 0, epoch=-1, synced_epoch=-1)
    assert cluster.propose(1, 2, 3).verdict is Verdict.NOT_ALIVE
    cluster.booted(3, 100)
    assert cluster.propose(1, 2, 3).is_applied


def test_replica_without_the_first_messages_is_no_member_and_the_last_choice(
    cluster: Cluster,
) -> None:
    cluster.booted_group(1, 2, 3, start_offset=0)
    assert cluster.propose(1, 2).is_applied
    partial = {"start_offset": 64, "is_partial": True}
    cluster.booted(3, 100, **partial)
    refused = cluster.propose(1, 2, 3)
    assert refused.verdict is Verdict.NOT_ALIVE
    assert "has no messages before 64; the master has them from 0 on" in refused.remark
    assert cluster.leader.troubles("g", cluster.now_ms).startswith("broker 3 has no messages")
    cluster.elect(3, designated=True)
    cluster.now_ms += 1200
    for each in (1, 2):
        cluster.booted(each, 100, start_offset=0)
    cluster.booted(3, 100, **partial)
    election = cluster.elect(3, designated=True)
    assert "begins at 64: consumers do not get earlier messages" in election.risk


def test_replica_joins_once_the_master_has_deleted_the_first_messages(cluster: Cluster) -> None:
    cluster.booted_group(1, 2, start_offset=0)
    cluster.register(3)
    cluster.booted(1, 100, start_offset=64)
    cluster.booted(3, 100, start_offset=64, is_partial=True)
    assert cluster.propose(1, 2, 3).is_applied


# Leases.


def test_elector_waits_for_the_longest_lease_of_the_epoch(cluster: Cluster) -> None:
    cluster.booted_group(1, 2, 3)
    cluster.now_ms += 60_000
    shorter = Terms(QUORUM.in_sync, QUORUM.min_in_sync, QUORUM.all_ack, 100)
    cluster.booted(1, 100, terms=shorter)
    cluster.close(1)
    for wait_ms, master in ((500, 1), (700, 2)):
        cluster.now_ms += wait_ms
        for each in (2, 3):
            cluster.booted(each, 100, terms=shorter)
        assert cluster.group.master_id == master, "the master holds a lease of the first duration"


# Doubts that must last.


def test_master_that_may_not_continue_keeps_its_doubt(cluster: Cluster) -> None:
    cluster.booted_group(1, 2, 3)
    refusal = {"boot": 2, "life": 2, "former_lives": (1,), "synced_epoch": -1}
    cluster.booted(1, 100, role_epoch=-1, **refusal)
    assert cluster.group.master_life == 2, "its files show that its role had not ended cleanly"
    cluster.booted(1, 100, refused=1, **refusal)
    cluster.close(3)
    cluster.now_ms += 1200
    cluster.booted(1, 100, refused=1, **refusal)
    cluster.booted(2, 90)
    assert cluster.group.master_id is None
    assert "broker 1: its machine was started again" in cluster.leader.waiting["g"].reason


def test_doubt_about_a_master_without_terms_counts(cluster: Cluster) -> None:
    terms = Terms(in_sync=1, min_in_sync=1, all_ack=True, lease_ms=0)
    cluster.booted_group(1, 2, terms=terms)
    cluster.close(1)
    cluster.now_ms += 1
    cluster.booted(2, 100, terms=terms)
    assert (cluster.group.master_id, cluster.group.terms) == (2, None)
    cluster.close(2)
    cluster.now_ms += 1
    back(cluster, 2, 60, boot=2, terms=terms)
    assert cluster.group.master_id == 2
    assert "its machine was started again" in cluster.leader.risk("g")


def test_doubt_outlives_an_epoch_that_never_began(cluster: Cluster) -> None:
    cluster.booted_group(1, 2, 3)
    cluster.lose(1, 2, 3)
    for each, end in ((1, 40), (2, 60), (3, 50)):
        refused = {"refused": 1} if each == 1 else {}
        back(cluster, each, end, boot=2, **refused)
    assert (cluster.group.master_id, cluster.group.former is None) == (2, False)
    cluster.booted(2, 60, boot=2, life=2, former_lives=(1,), role_epoch=-1)
    assert cluster.group.brokers[2].incarnation != incarnation_of(cluster.beat(2))

    cluster.close(2)
    cluster.now_ms += 1
    again = {"boot": 2, "life": 3, "former_lives": (1, 2), "synced_epoch": -1}
    for each, end in ((1, 40), (3, 50), (2, 60)):
        refused = {"refused": 1} if each == 1 else {}
        cluster.booted(each, end, **again, **refused)
    assert cluster.group.master_id == 2
    assert "broker 2: its machine was started again" in cluster.leader.risk("g")


def test_elected_process_is_known_before_its_first_report(cluster: Cluster) -> None:
    """It acknowledges messages at once where its epoch has no lease."""
    terms = Terms(in_sync=2, min_in_sync=1, all_ack=True, lease_ms=0)
    cluster.register(1, 2)
    for each in (1, 2):
        cluster.booted(each, epoch=-1, synced_epoch=-1, terms=terms)
    cluster.elect(1)

    cluster.lose(1)
    fields = {"life": 2, "former_lives": (1,), "synced_epoch": -1, "role_epoch": -1}
    cluster.booted(1, 60, boot=2, terms=terms, **fields)
    report = cluster.liveness.report("g", 1)
    assert report is not None
    assert "its machine was started again" in cluster.leader.reports.doubt(cluster.group, report)


# The state.


def test_incarnation_of_an_earlier_epoch_is_not_recorded(cluster: Cluster) -> None:
    cluster.booted_group(1, 2)
    known = cluster.group.brokers[2].incarnation
    assert known is not None
    late = RecordIncarnation("g", 0, 2, known)
    assert cluster.state.apply(late).verdict is Verdict.FENCED_MASTER_EPOCH
    assert cluster.state.apply(RecordIncarnation("g", 1, 9, known)).verdict is (
        Verdict.UNKNOWN_BROKER
    )


def test_proposal_of_the_former_process_of_a_master_is_refused(cluster: Cluster) -> None:
    cluster.booted_group(1, 2, 3)
    group = cluster.group
    late = AlterSet("g", 1, 1, group.set_epoch, frozenset((1, 3)), True, QUORUM)
    cluster.booted(1, 100, life=2, former_lives=(1,), synced_epoch=-1, role_epoch=-1)
    assert cluster.state.apply(late).verdict is Verdict.FENCED_SET_EPOCH


def test_election_that_voids_an_epoch_which_has_begun_is_one_of_that_epoch(
    cluster: Cluster,
) -> None:
    elected_second(cluster)
    late = ElectMaster("g", 2, cluster.group.set_epoch, 3, 3, False, voids_last=True)
    cluster.booted(2, 100, epoch=2)
    refused = cluster.state.apply(late)
    assert refused.verdict is Verdict.ID_INVALID
    assert cluster.group.master_id == 2


def test_snapshot_keeps_what_is_known_of_replicas(cluster: Cluster) -> None:
    elected_second(cluster)
    data = cluster.state.snapshot()
    restored = Cluster()
    restored.state.restore(data)
    assert restored.group == cluster.group
    assert restored.state.snapshot() == data
