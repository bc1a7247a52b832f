"""Replicated stores over real sockets: connections that break, replicas that start again."""

from __future__ import annotations

import contextlib
import queue
import socket
import struct
from pathlib import Path
from typing import Any

import pytest

import rmqstore
from rmqstore import CorruptionError, PutStatus, ReplicaTimeout, StoreTimeout
from rmqstore._native.core import PumpReport
from rmqstore.replication import HaOptions, HaState, Mode, Quorum, Slave, Status
from rmqstore.replication.runtime.serving import MasterSide
from tests.support.agreement import FILES
from tests.support.effort import rounds
from tests.support.relay import Relay
from tests.support.service_group import QUICK, TWO, Group, assert_equal, group, log_bytes, put
from tests.support.waiting import spin_until, wait_until

__all__ = ["group"]

OVERTAKEN = 3


# -- connections


@pytest.mark.parametrize("protocol", ["autoswitch", "classic"])
def test_a_slave_whose_connections_break_under_load_misses_nothing(
    group: Group, protocol: str
) -> None:
    master = group.master(quorum=TWO, protocol=protocol)
    assert master.address is not None
    with contextlib.closing(Relay(master.address)) as relay:
        slave = group.slave(relay, protocol=protocol)
        for number in range(rounds(12, 200)):
            put(master, *(b"%d %d" % (number, each) for each in range(30)))
            put(master, b"seen", copies=2)
            relay.drop()
        put(master, b"last", copies=2)
        assert log_bytes(slave) == log_bytes(master)
        slave.close()


class LatePump:
    """A master's pump that returns a report of an acknowledgement once a newer one has come."""

    def __init__(self, side: MasterSide) -> None:
        self._board = side.board
        self._pump = side._pump
        self.overtaken = 0

    def __getattr__(self, name: str) -> Any:
        return getattr(self._pump, name)

    def poll(self) -> list[PumpReport]:
        reports: list[PumpReport] = self._pump.poll()
        offsets = [each.acked_offset for each in reports if each.reason == "acked"]
        if offsets and self.overtaken < OVERTAKEN:
            newest = max(offsets)
            spin_until(
                lambda: any(each > newest for each, _ in self._board.acks().values()),
                "a newer acknowledgement",
            )
            self.overtaken += 1
        return reports


def test_a_member_whose_report_was_overtaken_by_its_next_acknowledgement_stays(
    group: Group,
) -> None:
    quorum = Quorum(total=2, all_ack=True, timeout_ms=10_000)
    master = group.master(members=(1, 2), mode=Mode.SYNC_STATE_SET, quorum=quorum)
    group.slave(master)
    put(master, b"first", copies=2)

    def slow_down() -> LatePump:
        roles = master._replica._roles
        assert roles is not None
        side = roles.sides.of_master()
        side._pump = late = LatePump(side)
        return late

    # The loop waits in `poll`; puts go on without it.
    late = master._call(slow_down)
    for number in range(100_000):
        put(master, b"%d" % number, copies=2)
        if late.overtaken == OVERTAKEN:
            break
    assert late.overtaken == OVERTAKEN
    put(master, b"last", copies=2)
    assert not master.proposals


def test_a_connection_that_had_worked_is_made_anew_at_once(group: Group) -> None:
    master = group.master(quorum=TWO)
    assert master.address is not None
    options = HaOptions(reconnect_ms=3_600_000)
    with contextlib.closing(Relay(master.address)) as relay:
        slave = group.slave(relay, options=options)
        put(master, b"1", copies=2)
        relay.drop()
        put(master, b"2", copies=2)
        slave.close()


def classic_report(sock: socket.socket, end: int) -> None:
    """Say, as a classic slave, that the log ends at *end*."""
    sock.sendall(struct.pack(">q", end))


def classic_copy(sock: socket.socket, end: int) -> None:
    """Take the log up to *end*, but for its first byte, and acknowledge it as a classic slave."""
    classic_report(sock, 1)
    received = 0
    while received < 12 + end - 1:
        data = sock.recv(4096)
        assert data, "the master closed the connection"
        received += len(data)
    classic_report(sock, end)


def test_a_classic_slave_that_comes_back_while_its_connection_is_half_dead_is_one_copy(
    group: Group,
) -> None:
    master = group.master(protocol="classic", quorum=TWO)
    assert master.address is not None
    put(master, b"1")
    end = master.end_offset

    with contextlib.ExitStack() as stack:
        here, again, other = (
            stack.enter_context(
                socket.create_connection(master.address, timeout=20, source_address=(host, 0))
            )
            for host in ("127.0.0.1", "127.0.0.1", "127.0.0.2")
        )

        classic_copy(here, end)
        master.wait_in_sync(2, timeout=20)
        classic_copy(again, end)

        counted = [False, True, False]
        wait_until(
            master,
            lambda: [each.is_counted for each in master.replicas] == counted,
            "the newer connection counts, the older one does not",
        )

        classic_copy(other, end)
        master.wait_in_sync(3, timeout=20)
        for sock in (here, again):
            classic_report(sock, end)

        with pytest.raises(StoreTimeout):
            master.wait_in_sync(4, timeout=0.3)
        with pytest.raises(ReplicaTimeout) as caught:
            master.store.put(rmqstore.Message("orders", b"2"), copies=4, timeout=0.3)
        assert caught.value.status is PutStatus.SLAVE_NOT_AVAILABLE


# -- restarts


def test_a_slave_that_starts_again_goes_on(group: Group) -> None:
    master = group.master(quorum=TWO)
    slave = group.slave(master)
    put(master, b"1", copies=2)
    slave.store.close()
    put(master, b"2")
    slave = group.slave(master)
    put(master, b"3", copies=2)
    assert_equal(master, slave)


def test_a_slave_finds_its_master_when_that_starts_again(group: Group) -> None:
    master = group.master()
    slave = group.slave(master)
    put(master, b"1", copies=2)
    address = master.address
    master.store.close()
    master = group.master(listen=address)
    assert master.epoch == 1
    put(master, b"2", copies=2)
    slave.wait_caught_up(master.end_offset, timeout=20)
    assert_equal(master, slave)


def test_the_broker_id_is_kept_with_the_store(group: Group, tmp_path: Path) -> None:
    first = group.plain("a", None)
    kept = first.broker_id
    first.store.close()
    second = group.plain("a", None)
    assert second.broker_id == kept
    second.store.close()
    Path(tmp_path, "a", "config", "replica.properties").write_text("brokerId=x\n")
    with pytest.raises(CorruptionError, match="brokerId"):
        group.plain("a", None)


def test_an_empty_slave_begins_where_its_master_does(group: Group) -> None:
    master = group.master()
    body = b"x" * 1000
    put(master, *([body] * (3 * FILES["commit_log_file_size_bytes"] // len(body))))
    master.store.expire_files(2)
    slave = group.slave(master)
    slave.wait_caught_up(master.end_offset, timeout=20)
    assert slave.store.start_offset == master.store.start_offset > 0
    assert_equal(master, slave)


def test_a_slave_ahead_of_its_master_halts_and_touches_nothing(group: Group) -> None:
    ahead = group.master("ahead")
    body = b"x" * 1000
    put(ahead, *([body] * (3 * FILES["commit_log_file_size_bytes"] // len(body))))
    ahead.store.expire_files(2)
    before = log_bytes(ahead)

    halts: queue.SimpleQueue[Status] = queue.SimpleQueue()
    ahead.close()

    empty = group.plain("a", 1)
    empty.become_master(5)
    put(empty, b"x")

    slave = group._stack.enter_context(
        Slave(
            ahead.store,
            master=empty.address or "",
            broker_id=2,
            options=QUICK,
            on_change=halts.put,
        )
    )

    for _ in range(100):
        status = halts.get(timeout=20)
        if status.master is not None and status.master.halted_reason:
            break

    assert status.master is not None
    assert "Nothing was touched" in str(status.master.halted_reason)
    assert status.master.state is HaState.SUSPEND
    assert log_bytes(slave) == before
