"""Which broker a controller elects, when it waits, and which heartbeats count."""

from __future__ import annotations

from dataclasses import replace

import pytest

from rmqstore.controller.commands import SettleDeparted, Terms
from rmqstore.controller.liveness import Heartbeat
from rmqstore.replication.group.log_rank import LogRank
from tests.scenarios.controller_cluster import ALL_ACK, QUORUM, Cluster


def test_quorum_election_needs_all_voters_but_the_other_copies(cluster: Cluster) -> None:
    cluster.our_group(1, 2, 3)
    cluster.close(1, 3)
    cluster.now_ms += 2000
    cluster.ours(2, 100, epoch=1)
    assert cluster.group.master_id is None, "the message of 1 and 3 may be on 3 alone"
    waiting = cluster.leader.waiting["g"]
    assert waiting.waits_for == {1, 3}
    assert "2 copies" in waiting.reason
    cluster.ours(3, 200, epoch=1)
    assert cluster.group.master_id == 3
    assert "g" not in cluster.leader.waiting


def test_replica_that_left_the_set_is_asked_until_the_members_hold_what_it_had(
    cluster: Cluster,
) -> None:
    cluster.our_group(1, 2, 3)
    assert cluster.propose(1, 3).is_applied
    assert cluster.group.departed == {2}
    cluster.close(1, 2)
    cluster.now_ms += 2000
    cluster.ours(3, 100, epoch=1)
    assert cluster.group.master_id is None, "the only other copy may be on 2"
    cluster.ours(2, 200, epoch=1)
    assert cluster.group.master_id == 2


def test_replica_that_left_the_set_is_forgotten_once_all_is_confirmed(cluster: Cluster) -> None:
    cluster.our_group(1, 2, 3)
    assert cluster.propose(1, 3).is_applied
    cluster.ours(1, 500, epoch=1, confirm=100)
    cluster.ours(1, 600, epoch=1, confirm=499)
    assert cluster.group.departed == {2}
    cluster.ours(1, 700, epoch=1, confirm=500)
    assert cluster.group.departed == frozenset()
    late = SettleDeparted("g", 1, cluster.group.set_epoch - 1)
    assert not cluster.state.apply(late).is_applied


def test_with_all_ack_any_member_is_elected(cluster: Cluster) -> None:
    cluster.our_group(1, 2, 3, terms=ALL_ACK)
    cluster.close(1, 2)
    cluster.now_ms += 2000
    cluster.ours(3, 100, epoch=1, terms=ALL_ACK)
    assert cluster.group.master_id == 3


def test_living_replica_that_has_yet_to_report_is_waited_for(cluster: Cluster) -> None:
    cluster.our_group(1, 2, 3, terms=ALL_ACK)
    cluster.close(1)
    cluster.now_ms += 1200
    cluster.ours(2, 100, epoch=1, terms=ALL_ACK)
    assert cluster.group.master_id == 1
    assert cluster.leader.waiting["g"].waits_for == {3}
    cluster.now_ms += 1901
    cluster.ours(2, 100, epoch=1, terms=ALL_ACK)
    assert cluster.group.master_id == 2


def test_report_that_was_sent_before_the_fence_does_not_count(cluster: Cluster) -> None:
    cluster.our_group(1, 2, terms=ALL_ACK)
    before_ms = cluster.now_ms
    cluster.close(1)
    cluster.now_ms += 1500
    cluster.ours(2, 100, epoch=1, terms=ALL_ACK, seen_ms=before_ms + 1099)
    assert cluster.group.master_id == 1
    cluster.ours(2, 100, epoch=1, terms=ALL_ACK, seen_ms=before_ms + 1100)
    assert cluster.group.master_id == 2


def test_broker_knows_from_when_on_its_report_counts(cluster: Cluster) -> None:
    cluster.our_group(1, 2, terms=ALL_ACK)
    before_ms = cluster.now_ms
    assert cluster.leader.report_in_ms("g", cluster.now_ms) == -1
    cluster.close(1)
    cluster.now_ms += 300
    cluster.ours(2, 100, epoch=1, terms=ALL_ACK)
    assert cluster.leader.report_in_ms("g", cluster.now_ms) == 800
    assert cluster.leader.report_in_ms("g", before_ms + 1200) == 0

    cluster.now_ms += 800
    cluster.ours(2, 100, epoch=1, terms=ALL_ACK, seen_ms=before_ms)
    assert cluster.leader.wants_report("g", 2)
    assert cluster.leader.report_in_ms("g", cluster.now_ms) == -1
    cluster.ours(2, 100, epoch=1, terms=ALL_ACK)
    assert cluster.group.master_id == 2
    assert cluster.leader.report_in_ms("g", cluster.now_ms) == -1


def test_terms_of_an_epoch_are_the_weakest_that_its_puts_had(cluster: Cluster) -> None:
    cluster.our_group(1, 2, 3, terms=ALL_ACK)
    cluster.ours(1, 100, epoch=1, terms=QUORUM)
    cluster.ours(1, 100, epoch=1, terms=ALL_ACK)
    assert cluster.group.terms == Terms(1, 1, False, 1000)


def test_lease_is_granted_only_once_the_terms_are_stored(cluster: Cluster) -> None:
    cluster.our_group(1, 2, terms=ALL_ACK)
    cluster.heartbeat(1, life=1, number=99, role_epoch=1, terms=QUORUM)
    assert cluster.leader.lease("g", 1, cluster.now_ms) == 0
    cluster.review()
    assert cluster.leader.lease("g", 1, cluster.now_ms) == 1000


def test_operator_overrides_the_quorum_and_is_told_what_may_be_lost(cluster: Cluster) -> None:
    cluster.our_group(1, 2, 3)
    cluster.close(1, 3)
    cluster.now_ms += 2000
    cluster.ours(2, 100, epoch=1)
    election = cluster.elect(2, designated=True)
    assert cluster.group.master_id == 2
    assert "acknowledged messages may be lost" in election.risk
    assert "no report of [1, 3]" in election.risk


def test_operator_is_told_which_replica_holds_more(cluster: Cluster) -> None:
    cluster.our_group(1, 2, 3)
    cluster.close(1)
    cluster.now_ms += 1200

    for each, end in ((2, 100), (3, 300)):
        cluster.heartbeat(each, rank=LogRank(1, end), life=1, number=99, seen_ms=cluster.now_ms)

    election = cluster.elect(2, designated=True)
    assert "longer logs: broker 3 up to 300 of epoch 1" in election.risk


def test_designated_master_takes_over_from_a_living_one_after_its_lease(cluster: Cluster) -> None:
    cluster.our_group(1, 2, terms=ALL_ACK)
    granted_ms = cluster.now_ms
    election = cluster.elect(2, designated=True)
    assert election.retry_at_ms == granted_ms + 1100
    cluster.now_ms += 500
    assert cluster.ours(1, 100, epoch=1, terms=ALL_ACK) == 0, "no lease meanwhile"
    cluster.now_ms = granted_ms + 1100
    cluster.ours(2, 100, epoch=1, terms=ALL_ACK)
    assert cluster.elect(2, designated=True).risk == ""
    assert cluster.group.master_id == 2


def test_master_that_began_a_new_life_is_elected_again_in_a_new_epoch(cluster: Cluster) -> None:
    cluster.our_group(1, 2, terms=ALL_ACK)
    cluster.close(2)
    cluster.now_ms += 2000
    assert cluster.ours(1, 100, epoch=1, terms=ALL_ACK, refused=1) == 0
    assert (cluster.group.master_id, cluster.group.master_epoch) == (1, 2)


def test_election_names_the_process_whose_log_was_compared(cluster: Cluster) -> None:
    cluster.our_group(1, 2, terms=ALL_ACK)
    cluster.close(1)
    cluster.now_ms += 2000
    cluster.ours(2, 100, epoch=1, terms=ALL_ACK)
    assert (cluster.group.master_id, cluster.group.master_life) == (2, 1)

    cluster.close(2)
    cluster.now_ms += 2000
    cluster.elect()
    assert (cluster.group.master_id, cluster.group.master_life) == (None, None)


def test_master_that_refuses_before_it_has_terms_is_elected_again(cluster: Cluster) -> None:
    cluster.register(1, 2)
    cluster.ours(1)
    cluster.elect(1)
    assert cluster.group.terms is None
    first_ms = cluster.now_ms
    cluster.ours(1, refused=1, seen_ms=first_ms - 10)
    assert cluster.group.master_epoch == 1
    cluster.now_ms += 100
    cluster.ours(1, refused=1, seen_ms=first_ms + 10)
    assert (cluster.group.master_id, cluster.group.master_epoch) == (1, 2)


@pytest.mark.parametrize(("epoch", "master"), [(1, 3), (2, None)])
def test_replica_that_was_elected_and_vanished_is_awaited_unless_its_log_lacks_the_epoch(
    cluster: Cluster, epoch: int, master: int | None
) -> None:
    terms = replace(ALL_ACK, lease_ms=0)
    cluster.our_group(1, 2, 3, terms=terms)
    cluster.close(1, 3)
    cluster.now_ms += 20_000
    cluster.booted(2, 100, terms=terms)
    assert (cluster.group.master_id, cluster.group.master_epoch) == (2, 2)
    cluster.close(2)
    cluster.now_ms += 20_000
    cluster.booted(3, 100, terms=terms)
    assert cluster.group.master_id is None, "2 may have acknowledged messages in its epoch"

    cluster.booted(2, 100, epoch=epoch, terms=terms, trouble="its disk is full", cannot_lead=True)
    assert cluster.group.master_id == master


def test_java_member_outside_the_set_is_elected_only_with_the_unclean_switch() -> None:
    for allows_unclean in (False, True):
        cluster = Cluster(allows_unclean=allows_unclean)
        cluster.java_group(1, 2)
        cluster.close(1)
        cluster.now_ms += 1
        cluster.java(2)
        cluster.review()
        assert cluster.group.master_id == (2 if allows_unclean else None)


def test_among_equal_logs_the_lower_priority_number_wins(cluster: Cluster) -> None:
    cluster.java_group(1, 2, 3, members=(1, 2, 3))
    cluster.close(1)
    cluster.now_ms += 1
    for each, priority in ((2, 5), (3, -5)):
        cluster.heartbeat(each, priority=priority)
    cluster.review()
    assert cluster.group.master_id == 3


def test_late_and_doubled_heartbeats_change_nothing(cluster: Cluster) -> None:
    cluster.register(1)
    beats = [
        Heartbeat(group="g", broker_id=1, address="h:1", rank=LogRank(1, end), life=life, number=n)
        for life, n, end in ((1, 1, 10), (1, 2, 30), (2, 1, 20))
    ]
    taken = [
        cluster.liveness.record(beats[each], "connection", cluster.now_ms)
        for each in (0, 1, 1, 0, 2, 1, 2)
    ]
    assert taken == [True, True, False, False, True, False, False]
    report = cluster.liveness.report("g", 1)
    assert report is not None
    assert report.beat.rank == LogRank(1, 20)
