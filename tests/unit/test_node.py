"""Connections, machines and group as one node."""

from __future__ import annotations

import pytest

from rmqstore.message import PutStatus
from rmqstore.replication.group.group import MasterGroup, Propose
from rmqstore.replication.group.node import HaProtocol, MasterNode, NodeEffect, SlaveNode, To
from rmqstore.replication.group.quorum import Mode, Quorum
from rmqstore.replication.protocol.events import (
    Close,
    Closed,
    FrameReceived,
    Halt,
    HaOptions,
    HaState,
    LogGrew,
    Opened,
    Send,
    SendLog,
    Tick,
)
from rmqstore.replication.protocol.frames import Ack, ClassicData, Handshake, HandshakeReply, Report
from rmqstore.sim.board import Resolution, VirtualBoard
from tests.reference.ack_board import ReferenceBoard
from tests.scenarios.ha_model import ModelLog, entries

OPTIONS = HaOptions()


def master_of(
    log: ModelLog, *, protocol: HaProtocol = "autoswitch", mode: Mode = Mode.PLAIN
) -> MasterNode:
    group = MasterGroup(1, Quorum(in_sync=2), mode)
    group.become_master(1, end_offset=log.end_offset, now_ms=0, members=(1,))
    return MasterNode(log, group, protocol=protocol, broker_id=1, options=OPTIONS)


@pytest.mark.parametrize(("check_ms", "expected_ms"), [(40, 40), (5000, 500)])
def test_a_set_is_checked_as_often_as_the_quorum_says_and_twice_a_second_at_least(
    check_ms: int, expected_ms: int
) -> None:
    log = ModelLog().begin(1).put("a")
    group = MasterGroup(1, Quorum(check_ms=check_ms), Mode.SYNC_STATE_SET)
    group.become_master(1, end_offset=log.end_offset, now_ms=0, members=(1,))
    node = MasterNode(log, group, protocol="autoswitch", broker_id=1, options=OPTIONS)
    node.tick(1000)
    assert node.next_tick_ms() == 1000 + expected_ms


def join(node: MasterNode, connection: int, broker_id: int, *, ack: int) -> list[NodeEffect]:
    node.accepted(connection, 0)
    hello = Handshake(sync_from_last_file=False, is_learner=False, broker_id=broker_id)
    node.received(connection, hello, 0)
    # The first one only says where to begin.
    node.received(connection, Ack(ack), 0)
    return node.received(connection, Ack(ack), 0)


def sent_to(effects: list[object], connection: int) -> list[object]:
    return [
        each.effect for each in effects if isinstance(each, To) and each.connection == connection
    ]


def copies_of(node: MasterNode, end_offset: int) -> int:
    """Return how many copies a board counts by the rule of the node."""
    board, rule = ReferenceBoard(node._log, 0), node.rule()
    for replica in node.group.replicas:
        board.acks[replica.broker_id] = replica.ack_offset, replica.epoch
    board.thaw(counted=rule.counted, epoch=rule.epoch, epoch_start=rule.epoch_start)
    return board.copies_of(end_offset)


def test_put_is_resolved_by_the_acknowledgement_of_a_slave():
    log = ModelLog().begin(1).put("a")
    node = master_of(log)
    board: VirtualBoard[str] = VirtualBoard(node, log)
    board.decide(lambda now_ms: join(node, 7, 2, ack=100))
    log.put("b")
    board.wait("put", board.admit(), 200)
    effects = board.decide(node.log_grew)
    assert [type(each) for each in sent_to(effects, 7)] == [SendLog]
    assert (board.resolved(), board.confirm_offset) == ([], 100)
    board.decide(lambda now_ms: node.received(7, Ack(200), now_ms))
    assert board.resolved() == [Resolution("put", PutStatus.PUT_OK, 2)]
    assert board.confirm_offset == 200


def test_reply_to_a_handshake_goes_to_the_connection_that_asked():
    node = master_of(ModelLog().begin(1).put("a"))
    node.accepted(7, 0)
    node.accepted(8, 0)
    hello = Handshake(sync_from_last_file=False, is_learner=False, broker_id=2)
    effects = node.received(8, hello, 0)
    assert sent_to(effects, 7) == []
    assert [type(each.frame) for each in sent_to(effects, 8) if isinstance(each, Send)] == [
        HandshakeReply
    ]


def test_broker_that_comes_again_closes_its_older_connection():
    node = master_of(ModelLog().begin(1).put("a"))
    join(node, 7, 2, ack=100)
    node.accepted(8, 5)
    hello = Handshake(sync_from_last_file=False, is_learner=False, broker_id=2)
    effects = node.received(8, hello, 5)
    assert [type(each) for each in sent_to(effects, 7)] == [Close]
    assert list(node.connections) == [8]
    assert node.received(7, Ack(100), 6) == []


def test_connection_that_ends_takes_its_copy_along():
    log = ModelLog().begin(1).put("a")
    node = master_of(log)
    join(node, 7, 2, ack=100)
    assert copies_of(node, 100) == 2
    assert node.closed(7, 5) == []
    assert copies_of(node, 100) == 1


def test_acknowledgement_above_the_log_closes_the_connection_and_counts_for_nothing():
    log = ModelLog().begin(1).put("a")
    node = master_of(log)
    join(node, 7, 2, ack=100)
    effects = node.received(7, Ack(900), 5)
    assert [type(each) for each in sent_to(effects, 7)] == [Close]
    assert node.group.standing.acks == {}


def classic_master(*addresses: str, log: ModelLog | None = None) -> MasterNode:
    """Return a master with a connection 7, 8, ... from each of *addresses*, none acknowledged."""
    node = master_of(ModelLog().put("a") if log is None else log, protocol="classic")
    for connection, address in enumerate(addresses, 7):
        node.accepted(connection, 0, address=address)
    return node


def test_classic_connections_from_one_address_are_one_copy():
    node = classic_master("10.0.0.1", "10.0.0.1", "10.0.0.2")
    copies = []
    for connection in (7, 8, 9):
        node.received(connection, Report(1), 0)
        node.received(connection, Report(100), 0)
        copies.append(copies_of(node, 100))
    assert copies == [2, 2, 3]
    assert list(node.connections) == [7, 8, 9]


def test_the_first_report_of_a_classic_slave_counts_for_nothing():
    log = ModelLog()
    node = classic_master("10.0.0.1", log=log)
    log.put("a")
    for _ in range(2):
        node.received(7, Report(60), 0)
        assert copies_of(node, 60) == 1, "not compared with this log"
    node.received(7, Report(100), 0)
    assert copies_of(node, 100) == 2


def test_of_classic_connections_from_one_address_the_newest_that_has_reported_counts():
    node = classic_master("127.0.0.1", "127.0.0.1")
    node.received(7, Report(1), 0)
    node.received(7, Report(100), 0)
    assert copies_of(node, 100) == 2
    node.received(8, Report(50), 0)
    assert copies_of(node, 100) == 1
    node.closed(8, 1)
    assert copies_of(node, 100) == 2


def test_member_without_anything_to_acknowledge_keeps_up():
    log = ModelLog().begin(1).put("a")
    node = master_of(log, mode=Mode.SYNC_STATE_SET)
    join(node, 7, 2, ack=100)
    node.apply(node.group.confirm_set((1, 2), set_epoch=1, now_ms=1))
    for now_ms in range(1000, 15_000, 1000):
        assert not any(isinstance(each, Propose) for each in node.tick(now_ms))
    node.received(7, Ack(100), 15_000)
    assert not any(isinstance(each, Propose) for each in node.tick(15_500))


def test_member_that_falls_behind_is_proposed_out_though_it_is_connected():
    log = ModelLog().begin(1).put("a")
    node = master_of(log, mode=Mode.SYNC_STATE_SET)
    join(node, 7, 2, ack=100)
    node.apply(node.group.confirm_set((1, 2), set_epoch=1, now_ms=1))
    log.put("b")
    node.log_grew(1000)
    proposed = []
    for now_ms in range(1000, 18_000, 1000):
        node.received(7, Ack(100), now_ms)
        proposed += [each for each in node.tick(now_ms) if isinstance(each, Propose)]
    assert [each.proposal.members for each in proposed][:1] == [frozenset({1})]


def test_times_are_asked_for_while_something_waits():
    node = master_of(ModelLog().begin(1).put("a"))
    assert node.next_tick_ms() is None
    node.accepted(7, 100)
    assert node.next_tick_ms() == 100 + OPTIONS.housekeeping_ms + 1


def slave_of(log: ModelLog) -> SlaveNode:
    return SlaveNode(log, protocol="classic", broker_id=2, options=HaOptions(overlap_bytes=0))


def test_slave_whose_connection_had_worked_connects_again_at_once():
    node = slave_of(ModelLog().put("a"))
    assert node.next_tick_ms() == 0
    node.handle(Opened(), 0)
    assert node.connect_at_ms is None
    node.handle(FrameReceived(ClassicData(100, b"b" * 100)), 10)
    node.handle(LogGrew(), 10)
    node.handle(Closed(), 5000)
    assert node.connect_at_ms == 5000


def test_slave_whose_connection_breaks_early_again_waits():
    node = slave_of(ModelLog().put("a"))
    for opened_ms, due_ms in ((0, 20), (20, 40 + OPTIONS.reconnect_ms)):
        node.handle(Opened(), opened_ms)
        node.handle(FrameReceived(ClassicData(-1)), opened_ms + 10)
        node.handle(Closed(), opened_ms + 20)
        assert node.connect_at_ms == due_ms


def test_slave_that_nobody_answers_waits_longer_each_time():
    node = slave_of(ModelLog().put("a"))
    delays = []
    for _ in range(30):
        node.refused("nobody there", retry_after_ms=5000, now_ms=0)
        delays.append(node.connect_at_ms)
    assert delays[:4] == [20, 40, 80, 160]
    assert delays[-1] == 5000
    node.handle(Opened(), 0)
    node.handle(FrameReceived(ClassicData(-1)), 10)
    node.handle(Tick(), 20)
    node.refused("nobody there", retry_after_ms=5000, now_ms=0)
    assert node.connect_at_ms == 20


def test_slave_whose_connection_broke_early_waits():
    node = slave_of(ModelLog().put("a"))
    node.handle(Opened(), 0)
    node.handle(Closed(), 10)
    assert node.connect_at_ms == 10 + OPTIONS.reconnect_ms
    assert node.machine.state is HaState.READY


def test_slave_whose_log_lies_behind_its_master_halts_for_an_operator():
    log = ModelLog(start=1000).begin(1).put("a")
    node = SlaveNode(log, protocol="autoswitch", broker_id=2, options=OPTIONS)
    node.handle(Opened(), 0)
    reply = HandshakeReply(end_offset=500, epoch=1, entries=entries((1, 0)))
    effects = node.handle(FrameReceived(reply), 1)
    assert [type(each) for each in effects] == [Halt]
    assert node.halt_reason is not None
    assert node.next_tick_ms() is None
