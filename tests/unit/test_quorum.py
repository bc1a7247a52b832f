"""How many copies a put needs, and the puts that wait for them."""

from __future__ import annotations

import pytest

from rmqstore import ArgumentError, ConfigError, PutStatus
from rmqstore.replication.group.quorum import Lease, Mode, Quorum, QuorumPolicy, Rule, Standing


def standing(end: int, *acks: int, waited: tuple[int, ...] | None = None) -> Standing:
    """Return a log that ends at *end* and brokers 2, 3... that acknowledged *acks*."""
    held = dict(enumerate(acks, 2))
    return Standing(end, held, frozenset(held), waited)


def policy(mode: Mode, **settings: int | bool) -> QuorumPolicy:
    return QuorumPolicy(Quorum(**settings), mode)  # type: ignore[arg-type]


def rule_of(policy: QuorumPolicy, standing: Standing) -> Rule:
    return policy.rule(standing, epoch=1, epoch_start=0, is_gated=True, is_flushed=False)


def test_configuration_lists_every_mistake_by_its_key() -> None:
    with pytest.raises(ConfigError) as caught:
        Quorum(in_sync=0, all_ack=1, timeout_ms=0)  # type: ignore[arg-type]
    assert [each.split()[0] for each in caught.value.violations] == [
        "inSyncReplicas",
        "allAckInSyncStateSet",
        "slaveTimeout",
    ]


def test_configuration_is_checked_as_a_whole() -> None:
    with pytest.raises(ConfigError, match="minInSyncReplicas: 3 is above inSyncReplicas 2"):
        Quorum(auto_in_sync=True, in_sync=2, min_in_sync=3)
    with pytest.raises(ConfigError, match="2 replicas cannot make 3 copies"):
        Quorum(total=2, in_sync=3)
    assert Quorum(in_sync=3).total == 1


@pytest.mark.parametrize(("gap", "in_sync"), [(1, 1), (124, 1), (125, 2), (126, 2)])
def test_gap_is_compared_strictly(gap: int, in_sync: int) -> None:
    """As RocketMQ's HAServerTest.inSyncReplicasNums."""
    assert standing(1000, 876).available(gap) == in_sync


def test_replica_that_said_nothing_yet_is_not_in_sync() -> None:
    assert standing(10, -1).available(1000) == 1


@pytest.mark.parametrize(
    ("acks", "alive", "auto", "present", "copies"),
    [
        ((100, 100), None, False, 3, 3),
        ((100, 0), None, False, 2, 3),
        ((100, 0), None, True, 2, 2),
        ((100, 100), 2, True, 2, 2),
        ((0, 0), None, True, 1, 2),
    ],
)
def test_acting_master_mode_counts_replicas_within_the_gap(
    acks: tuple[int, int], alive: int | None, auto: bool, present: int, copies: int
) -> None:
    """As RocketMQ's CommitLog.calcNeedAckNums."""
    puts = policy(Mode.ACTING_MASTER, in_sync=3, min_in_sync=2, auto_in_sync=auto, gap_bytes_max=50)
    puts.alive_replicas = alive
    rule = rule_of(puts, standing(100, *acks))
    assert (rule.status, rule.present, rule.copies) == (PutStatus.PUT_OK, present, copies)
    assert rule.confirm_copies == copies


def test_downgrade_ends_when_the_replica_is_back() -> None:
    puts = policy(Mode.ACTING_MASTER, in_sync=2, auto_in_sync=True, gap_bytes_max=50)
    needed = [puts.needed(standing(100, *acks)) for acks in ((100,), (), (-1,), (90,))]
    assert needed == [2, 1, 1, 2]


def test_plain_mode_asks_nobody_before_it_writes() -> None:
    rule = rule_of(policy(Mode.PLAIN, in_sync=2), standing(100))
    assert (rule.status, rule.copies, rule.present) == (PutStatus.PUT_OK, 2, None)
    assert rule.available == 1


def test_set_mode_refuses_below_the_minimum_and_waits_for_all_where_asked() -> None:
    puts = policy(Mode.SYNC_STATE_SET, in_sync=1, min_in_sync=2, all_ack=True)
    refused = rule_of(puts, standing(0, waited=(2,)))
    assert refused.status is PutStatus.IN_SYNC_REPLICAS_NOT_ENOUGH
    assert "1 of the 2" in refused.reason
    taken = rule_of(puts, standing(0, 0, waited=(2,)))
    assert (taken.status, taken.copies, taken.needs_all) == (PutStatus.PUT_OK, 2, True)


def test_rule_has_the_end_of_the_lease() -> None:
    lease = Lease(50)
    puts = QuorumPolicy(Quorum(timeout_ms=700), Mode.PLAIN, lease=lease)
    assert rule_of(puts, standing(0)).lease_end_ms == 0
    lease.renewed(asked_ms=100)
    assert rule_of(puts, standing(0)).lease_end_ms == 150
    assert rule_of(policy(Mode.PLAIN), standing(0)).lease_end_ms is None
    assert rule_of(puts, standing(0)).timeout_ms == 700


@pytest.mark.parametrize(
    ("mode", "settings", "is_promise"),
    [
        (Mode.PLAIN, {"in_sync": 1}, False),
        (Mode.PLAIN, {"in_sync": 2}, True),
        (Mode.ACTING_MASTER, {"in_sync": 2, "min_in_sync": 1, "auto_in_sync": False}, True),
        (Mode.ACTING_MASTER, {"in_sync": 2, "min_in_sync": 1, "auto_in_sync": True}, False),
        (Mode.SYNC_STATE_SET, {"in_sync": 1}, True),
    ],
)
def test_what_the_master_alone_may_hold_is_no_promise(
    mode: Mode, settings: dict[str, int | bool], is_promise: bool
) -> None:
    quorum = policy(mode, total=3, **settings).quorum
    assert quorum.is_promise(mode) is is_promise


@pytest.mark.parametrize(
    ("now_ms", "is_held"), [(99, False), (100, True), (149, True), (150, False)]
)
def test_lease_counts_from_when_it_was_asked_for(now_ms: int, is_held: bool) -> None:
    lease = Lease(50)
    assert not lease.is_held(now_ms)
    lease.renewed(asked_ms=100)
    lease.renewed(asked_ms=90)
    assert lease.is_held(now_ms) is is_held
    lease.end()
    assert not lease.is_held(now_ms)


@pytest.mark.parametrize(("master_rate", "granter_rate"), [(1, 1), (10, 11), (11, 10)])
def test_lease_is_over_before_a_granter_whose_clock_runs_apart_elects(
    master_rate: int, granter_rate: int
) -> None:
    # Rates are tenths of a millisecond of each clock in one of the world's.
    duration_ms = 5000
    elected_at = duration_ms * 11 // granter_rate + 1
    lease = Lease(duration_ms)
    lease.renewed(asked_ms=0)
    assert not lease.is_held(elected_at * master_rate // 10)


def test_no_lease_is_always_held() -> None:
    assert Lease().is_held(0)
    with pytest.raises(ArgumentError, match="duration_ms is -1"):
        Lease(-1)
