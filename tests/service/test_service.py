"""Replicated stores over real sockets: pairs, copies, what is refused and told."""

from __future__ import annotations

import queue
import threading
import time
from pathlib import Path
from typing import Any

import pytest

import rmqstore
from rmqstore import (
    ArgumentError,
    Durability,
    NotWritable,
    PutStatus,
    ReplicaTimeout,
    StoreClosedError,
)
from rmqstore.errors import StoreTimeout
from rmqstore.replication import (
    HaOptions,
    HaState,
    Lease,
    Master,
    Quorum,
    ReplicatedStore,
    Slave,
    Status,
)
from tests.support.agreement import FILES, check_agreement
from tests.support.service_group import (
    HERE,
    QUICK,
    TWO,
    Group,
    assert_equal,
    bodies,
    group,
    log_bytes,
    put,
)

__all__ = ["group"]


# -- a pair


def test_the_first_example_of_replication_runs_as_it_stands(tmp_path: Path) -> None:
    with (
        rmqstore.open(tmp_path / "a", **FILES) as a,
        Master(a, listen="127.0.0.1:0", quorum=Quorum(in_sync=2)) as master,
    ):
        assert master.address is not None
        with rmqstore.open(tmp_path / "b", **FILES) as b, Slave(b, master=master.address):
            master.wait_in_sync(2, timeout=20.0)
            receipt = a.put("orders", b"paid", durability=Durability.REPLICATED)
            assert (receipt.copies, receipt.durability) == (2, Durability.REPLICATED)
            assert master.confirm_offset == receipt.end_offset
            assert [each.lag_bytes for each in master.replicas] == [0]


@pytest.mark.parametrize("protocol", ["autoswitch", "classic"])
def test_a_slave_gets_what_was_there_and_what_comes(group: Group, protocol: str) -> None:
    master = group.master(protocol=protocol)
    put(master, *(b"before %d" % each for each in range(300)))
    slave = group.slave(master, protocol=protocol)
    master.wait_in_sync(2, timeout=20)
    put(master, *(b"then %d" % each for each in range(300)), copies=2)
    assert log_bytes(slave) == log_bytes(master)
    slave.wait_caught_up(timeout=20)
    put(master, b"last", copies=2)
    assert len(log_bytes(slave)) == master.end_offset


def test_readers_of_a_slave_see_what_is_confirmed(group: Group) -> None:
    master = group.master(quorum=TWO)
    slave = group.slave(master)
    put(master, b"1", b"2", copies=2)
    put(master, b"3", copies=2)
    # The confirm offset of the last message comes with the next frame.
    for _ in slave.store.queue("orders").follow("start"):
        break
    assert bodies(slave)[:1] == [b"1"]
    check_agreement(master.store)


def test_log_files_roll_on_both_sides_at_the_same_bytes(group: Group) -> None:
    master = group.master()
    slave = group.slave(master)
    body = b"x" * 1000
    put(master, *([body] * (4 * FILES["commit_log_file_size_bytes"] // len(body))))
    master.wait_in_sync(2, timeout=30)
    assert_equal(master, slave)


@pytest.mark.parametrize("protocol", ["autoswitch", "classic"])
def test_a_master_with_a_limit_of_bytes_sends_by_itself(group: Group, protocol: str) -> None:
    limited = HaOptions(heartbeat_ms=200, bytes_per_second=1 << 30)
    master = group.master(quorum=TWO, protocol=protocol, options=limited)
    slave = group.slave(master, protocol=protocol)
    put(master, *(b"%d" % each * 200 for each in range(300)))
    put(master, b"1", b"2", b"3", copies=2)
    # An empty classic slave begins with its master's last file.
    assert log_bytes(master).endswith(log_bytes(slave))
    assert slave.end_offset == master.end_offset


def test_acknowledgements_of_the_disk_are_those_of_both_disks(group: Group) -> None:
    options = HaOptions(heartbeat_ms=200, ack_flushed=True)
    master = group.master(quorum=TWO, options=options)
    slave = group.slave(master, options=options)
    for body in (b"1", b"2", b"3"):
        receipt = master.store.put(rmqstore.Message("orders", body), copies=2)
        assert master.store.flushed_offset >= receipt.end_offset
        assert slave.store.flushed_offset >= receipt.end_offset
    assert_equal(master, slave)


def test_three_copies_are_made_by_two_slaves(group: Group) -> None:
    master = group.master(quorum=Quorum(in_sync=3, timeout_ms=20_000))
    slaves = [group.slave(master, name, broker_id=number) for name, number in (("b", 2), ("c", 3))]
    master.wait_in_sync(3, timeout=20)
    assert master.store.put("orders", b"x", durability=Durability.REPLICATED).copies == 3
    for slave in slaves:
        assert_equal(master, slave)


def test_many_threads_put_at_once_and_each_gets_its_copies(group: Group) -> None:
    master = group.master(quorum=TWO)
    slave = group.slave(master)
    copies: queue.SimpleQueue[int] = queue.SimpleQueue()

    def work() -> None:
        for _ in range(50):
            copies.put(master.store.put("orders", b"x", durability=Durability.REPLICATED).copies)

    threads = [threading.Thread(target=work) for _ in range(8)]
    for each in threads:
        each.start()
    for each in threads:
        each.join(60)
    assert [copies.get_nowait() for _ in range(400)] == [2] * 400
    assert_equal(master, slave)


def test_a_store_that_was_never_replicated_becomes_master_with_all_it_has(group: Group) -> None:
    store = group.store("a")
    receipt = store.put("orders", b"long ago")
    master = group._stack.enter_context(Master(store, listen=HERE, broker_id=1))
    slave = group.slave(master)
    master.wait_in_sync(2, timeout=20)
    assert_equal(master, slave)
    assert [each.start_offset for each in slave.epochs] == [0]
    assert master.confirm_offset == receipt.end_offset


@pytest.mark.parametrize("protocol", ["autoswitch", "classic"])
def test_an_empty_pair_is_in_sync_and_stays_connected(group: Group, protocol: str) -> None:
    master = group.master(protocol=protocol, quorum=TWO)
    slave = group.slave(master, protocol=protocol)
    master.wait_in_sync(2, timeout=20)
    (before,) = master.replicas
    put(master, b"first", copies=2)
    slave.wait_confirmed(slave.end_offset if protocol == "classic" else 0, timeout=20)
    put(master, b"second", copies=2)
    assert master.replicas[0].connected_ms == before.connected_ms
    assert log_bytes(slave) == log_bytes(master)


# -- who counts


def test_without_a_slave_a_put_is_stored_and_says_that_it_is_alone(group: Group) -> None:
    master = group.master(quorum=Quorum(in_sync=2, timeout_ms=50))
    with pytest.raises(ReplicaTimeout) as caught:
        master.store.put("orders", b"x", durability=Durability.REPLICATED)
    assert caught.value.status == PutStatus.SLAVE_NOT_AVAILABLE
    assert caught.value.stored
    assert master.confirm_offset == 0
    assert bodies(master) == []


def test_a_learner_gets_everything_and_counts_for_nothing(group: Group) -> None:
    master = group.master(quorum=Quorum(in_sync=2, timeout_ms=50))
    learner = group.slave(master, is_learner=True)
    put(master, b"1")
    learner.wait_caught_up(master.end_offset, timeout=20)
    with pytest.raises(ReplicaTimeout):
        put(master, b"2", copies=2)
    (status,) = master.replicas
    assert (status.is_learner, status.is_counted) == (True, False)
    with pytest.raises(StoreTimeout, match="2 copies"):
        master.wait_in_sync(2, timeout=0.05)


def test_two_connections_of_one_id_are_one_copy(group: Group) -> None:
    master = group.master(quorum=Quorum(in_sync=3, timeout_ms=50))
    group.slave(master, "b", broker_id=2)
    master.wait_in_sync(2, timeout=20)
    group.slave(master, "c", broker_id=2)
    with pytest.raises(ReplicaTimeout) as caught:
        master.store.put("orders", b"x", durability=Durability.REPLICATED)
    assert caught.value.status == PutStatus.SLAVE_NOT_AVAILABLE
    assert len([each for each in master.replicas if each.broker_id is not None]) <= 1


def test_a_lease_that_is_not_renewed_refuses_puts(group: Group) -> None:
    lease = Lease(60_000)
    master = group.master(lease=lease)
    with pytest.raises(NotWritable) as caught:
        put(master, b"x")
    assert caught.value.status == PutStatus.SERVICE_NOT_AVAILABLE
    master.renew_lease(time.monotonic() * 1000)
    put(master, b"x")
    master.renew_lease(time.monotonic() * 1000 - 120_000)
    put(master, b"y")


# -- the ends of it


def test_closing_the_store_ends_its_replication(group: Group) -> None:
    master = group.master()
    slave = group.slave(master)
    master.wait_in_sync(2, timeout=20)
    master.store.close()
    slave.store.close()
    with pytest.raises(StoreClosedError):
        master.status()
    assert "closed" in repr(master)


def test_a_store_is_replicated_once_at_a_time(group: Group, tmp_path: Path) -> None:
    master = group.master()
    with pytest.raises(ArgumentError, match="replicated already"):
        ReplicatedStore(master.store)
    put(master, b"x")
    master.close()
    with ReplicatedStore(master.store, broker_id=1) as again:
        assert again.role is None
    with (
        rmqstore.open(tmp_path / "a", read_only=True) as seen,
        pytest.raises(ArgumentError, match="read-only"),
    ):
        ReplicatedStore(seen)


@pytest.mark.parametrize(
    ("options", "what"),
    [
        ({"listen": ":10912"}, "not an address"),
        ({"listen": "*:10912"}, "not an address"),
        ({"listen": "127.0.0.1:port"}, "not an address"),
        ({"listen": "203.0.113.1:10912"}, "cannot listen"),
        ({"allow": ["10.0.0.0/33"]}, "allow"),
        ({"connections_max": 0}, "connections_max"),
        ({"protocol": "modern"}, "protocol"),
        ({"broker_id": -2}, "broker_id"),
    ],
)
def test_what_cannot_be_is_refused_by_name(
    group: Group, options: dict[str, Any], what: str
) -> None:
    store = group.store("a")
    with pytest.raises(ArgumentError, match=what):
        ReplicatedStore(store, **options)
    with ReplicatedStore(store, broker_id=1, listen=HERE) as replica:
        replica.become_master()


def test_a_network_that_is_not_allowed_is_not_served(group: Group) -> None:
    master = group.master(allow=["192.0.2.0/24"])
    slave = group.slave(master)
    with pytest.raises(StoreTimeout, match="catching up"):
        slave.wait_caught_up(timeout=0.2)
    assert master.replicas == ()


def test_waits_belong_to_roles(group: Group) -> None:
    master = group.master()
    slave = group.slave(master)
    with pytest.raises(ArgumentError, match="not a master"):
        slave.wait_in_sync(2)
    with pytest.raises(ArgumentError, match="not a slave"):
        master.wait_caught_up()


def test_status_tells_both_sides(group: Group) -> None:
    master = group.master(quorum=TWO)
    slave = group.slave(master)
    put(master, b"x", copies=2)
    ours, theirs = master.status(), slave.status()
    assert (ours.role, theirs.role) == ("master", "slave")
    assert (ours.epoch, theirs.epoch) == (1, 1)
    assert ours.end_offset == theirs.end_offset == ours.confirm_offset
    (replica,) = ours.replicas
    assert (replica.broker_id, replica.state) == (2, HaState.TRANSFER)
    assert (replica.ack_offset, replica.lag_bytes, replica.is_counted) == (ours.end_offset, 0, True)
    assert theirs.master is not None
    assert (theirs.master.address, theirs.master.halted_reason) == (master.address, None)
    assert theirs.master.acked_offset == ours.end_offset
    assert ours.master is None
    assert theirs.address is None


@pytest.mark.parametrize("size", [16384, 262144], ids=["smaller", "larger"])
def test_slave_with_log_files_of_another_size_says_so_and_acknowledges_none_of_it(
    group: Group, tmp_path: Path, size: int
) -> None:
    master = group.master()
    put(master, *[b"x" * 1000] * 100)
    assert master.address is not None

    said: queue.SimpleQueue[Status] = queue.SimpleQueue()
    wishes: dict[str, Any] = {"broker_id": 2, "options": QUICK, "on_change": said.put}
    settings = FILES | {"commit_log_file_size_bytes": size}

    with (
        rmqstore.open(tmp_path / "other", **settings) as store,
        Slave(store, master=master.address, **wishes) as slave,
    ):
        for _ in range(100):
            status = said.get(timeout=20)
            if status.master is not None and "mappedFileSizeCommitLog" in status.master.last_error:
                break
        else:
            pytest.fail("never said")

        assert slave.confirm_offset < 65536
        assert all(each.ack_offset < 65536 for each in master.replicas)
