"""Who is connected to a master, and what each has said it holds."""

from __future__ import annotations

import pytest

from rmqstore import ArgumentError
from rmqstore.replication.group.replicas import AckFault, Replica, Replicas


def replicas(*broker_ids: int) -> Replicas:
    """Return those brokers connected, each on the connection of its number."""
    group = Replicas(1)
    for each in broker_ids:
        assert group.connected(each, connection=each, now_ms=0) is None
    return group


def replica() -> Replica:
    return Replica(2, connection=1, is_learner=False, names_epochs=True, connected_ms=0)


@pytest.mark.parametrize(
    ("connection", "offset", "fault"),
    [
        (2, 0, None),
        (2, 100, None),
        (2, 101, AckFault.ABOVE_END),
        (2, -1, AckFault.NEGATIVE),
        (3, 100, AckFault.NO_HANDSHAKE),
    ],
)
def test_ack_counts_behind_a_handshake_and_inside_the_log(
    connection: int, offset: int, fault: AckFault | None
) -> None:
    group = replicas(2)
    assert group.acked(connection, offset, epoch=1, end_offset=100, now_ms=1) is fault
    held = group.get(2)
    assert held is not None
    assert held.ack_offset == (offset if fault is None else -1)


@pytest.mark.parametrize("broker_id", [-1, 1])
def test_impossible_broker_id_is_refused(broker_id: int) -> None:
    with pytest.raises(ArgumentError, match=f"the broker id {broker_id}"):
        replicas().connected(broker_id, connection=5, now_ms=0)


def test_newest_connection_of_a_broker_replaces_the_one_before_and_begins_anew() -> None:
    group = replicas(2)
    group.acked(2, 100, epoch=1, end_offset=100, now_ms=1)
    assert group.connected(2, connection=9, now_ms=2) == 2
    assert [(each.connection, each.ack_offset) for each in group] == [(9, -1)]
    assert group.acked(2, 100, epoch=1, end_offset=100, now_ms=3) is AckFault.NO_HANDSHAKE
    assert group.disconnected(2) is None
    assert len(group) == 1
    gone = group.disconnected(9)
    assert gone is not None
    assert gone.broker_id == 2
    assert len(group) == 0


def test_second_handshake_of_a_connection_may_not_name_another_broker() -> None:
    group = replicas(2)
    assert group.connected(2, connection=2, is_learner=True, now_ms=1) is None
    assert [each.is_learner for each in group] == [True]
    with pytest.raises(ArgumentError, match="belongs to broker 2"):
        group.connected(3, connection=2, now_ms=2)


def test_replica_at_the_end_is_caught_up_at_once() -> None:
    slave = replica()
    slave.acked(99, epoch=1, end_offset=100, now_ms=5)
    assert slave.caught_up_ms is None
    slave.acked(100, epoch=1, end_offset=100, now_ms=6)
    assert slave.caught_up_ms == 6


def test_replica_was_caught_up_when_what_it_reached_was_the_end() -> None:
    slave = replica()
    slave.sent(end_offset=100, now_ms=10)
    slave.acked(100, epoch=1, end_offset=500, now_ms=20)
    assert slave.caught_up_ms == 10


def test_steady_stream_of_batches_does_not_hide_that_a_slave_keeps_up() -> None:
    slave = replica()
    for beat in range(100):
        # Two batches are always under way.
        slave.sent(end_offset=beat * 100, now_ms=beat * 10)
        slave.acked(max(beat - 2, 0) * 100, epoch=1, end_offset=beat * 100 + 50, now_ms=beat * 10)
    assert slave.caught_up_ms is not None
    assert 990 - slave.caught_up_ms <= 60


def test_what_a_replica_lost_no_longer_counts() -> None:
    group = replicas(2)
    group.acked(2, 100, epoch=1, end_offset=100, now_ms=1)
    group.acked(2, 40, epoch=1, end_offset=100, now_ms=2)
    assert [each.ack_offset for each in group] == [40]
