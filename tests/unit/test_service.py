"""Replicated stores over real sockets: roles, quorum, sets, restarts."""

from __future__ import annotations

import contextlib
import queue
import socket
import threading
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest

import rmqstore
from rmqstore import (
    ArgumentError,
    CorruptionError,
    Durability,
    Fenced,
    NotWritable,
    PutError,
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
    Mode,
    Proposal,
    Quorum,
    ReplicatedStore,
    Slave,
    Status,
)
from rmqstore.replication.links import now_ms
from tests.crash.agreement import FILES, check_agreement
from tests.effort import rounds

HERE = "127.0.0.1:0"
QUICK = HaOptions(heartbeat_ms=200, reconnect_ms=20)
TWO = Quorum(in_sync=2, timeout_ms=20_000)


class Group:
    """Stores and their replication, all closed at the end."""

    def __init__(self, root: Path) -> None:
        self._root = root
        self._stack = ExitStack()

    def store(self, name: str) -> rmqstore.Store:
        return self._stack.enter_context(rmqstore.open(self._root / name, **FILES))

    def master(self, name: str = "a", **options: Any) -> Master:
        options = {"listen": HERE, "broker_id": 1, "options": QUICK} | options
        return self._stack.enter_context(Master(self.store(name), **options))

    def slave(self, master: ReplicatedStore | Relay, name: str = "b", **options: Any) -> Slave:
        assert master.address is not None
        options = {"master": master.address, "broker_id": 2, "options": QUICK} | options
        return self._stack.enter_context(Slave(self.store(name), **options))

    def plain(self, name: str, broker_id: int | None, **options: Any) -> ReplicatedStore:
        options = {"listen": HERE, "broker_id": broker_id, "options": QUICK} | options
        return self._stack.enter_context(ReplicatedStore(self.store(name), **options))

    def close(self) -> None:
        self._stack.close()


@pytest.fixture
def group(tmp_path: Path) -> Iterator[Group]:
    made = Group(tmp_path)
    yield made
    made.close()


def put(replica: ReplicatedStore, *bodies: bytes, copies: int | None = None) -> None:
    for body in bodies:
        replica.store.put(rmqstore.Message("orders", body), copies=copies)


def bodies(replica: ReplicatedStore) -> list[bytes]:
    replica.store.wait_dispatched()
    return [each.body for each in replica.store.queue("orders").records()]


def log_bytes(replica: ReplicatedStore) -> bytes:
    store = replica.store
    start = max(store.start_offset, 0)
    return b"".join(
        store.read_raw(at, min(4096, store.end_offset - at))
        for at in range(start, store.end_offset, 4096)
    )


def assert_equal(one: ReplicatedStore, other: ReplicatedStore) -> None:
    assert (one.end_offset, one.epochs) == (other.end_offset, other.epochs)
    assert log_bytes(one) == log_bytes(other)


def follow(slave: ReplicatedStore, master: ReplicatedStore, epoch: int | None = None) -> None:
    assert master.address is not None
    slave.become_slave(master.address, epoch)
    slave.wait_caught_up(master.end_offset, timeout=20)


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
    assert [copies.get(timeout=1) for _ in range(400)] == [2] * 400
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
    master.renew_lease(now_ms())
    put(master, b"x")
    master.renew_lease(now_ms() - 120_000)
    put(master, b"y")


# -- roles


def test_without_a_role_a_store_is_read_and_not_put_to(group: Group) -> None:
    replica = group.plain("a", 1)
    with pytest.raises(NotWritable, match="role"):
        put(replica, b"x")
    replica.become_master()
    put(replica, b"x")
    replica.close()
    replica.close()
    with pytest.raises(NotWritable, match="role"):
        put(replica, b"y")
    assert bodies(replica) == [b"x"]
    with pytest.raises(StoreClosedError):
        replica.become_master()


def test_a_slave_takes_no_puts_and_names_its_master(group: Group) -> None:
    master = group.master()
    slave = group.slave(master)
    with pytest.raises(NotWritable) as caught:
        put(slave, b"x")
    assert master.address is not None
    assert caught.value.master_hint == f"127.0.0.1:{master.address[1]}"


def test_roles_go_back_and_forth(group: Group) -> None:
    replicas = [group.plain("a", 1, quorum=TWO), group.plain("b", 2, quorum=TWO)]
    put_in_all = []
    for epoch in range(1, 7):
        master, slave = replicas if epoch % 2 else replicas[::-1]
        slave.become_slave(master.address or "", epoch)
        master.become_master(epoch)
        for each in range(5):
            body = b"%d of epoch %d" % (each, epoch)
            put(master, body, copies=2)
            put_in_all.append(body)
        assert_equal(master, slave)
    assert [each.epoch for each in replicas[0].epochs] == [1, 2, 3, 4, 5, 6]
    assert bodies(replicas[1]) == put_in_all


def test_what_an_old_master_wrote_alone_is_cut(group: Group) -> None:
    old, new = group.plain("a", 1), group.plain("b", 2)
    old.become_master(1)
    follow(new, old, 1)
    put(old, b"both", copies=2)
    new.become_master(2)
    put(old, b"alone 1", b"alone 2", b"alone 3")
    put(new, b"new")
    follow(old, new, 2)
    assert_equal(old, new)
    assert bodies(new) == [b"both", b"new"]
    put(new, b"next", copies=2)
    assert_equal(old, new)


def test_equal_starts_of_two_epochs_do_not_hide_a_fork(group: Group) -> None:
    old, new = group.plain("a", 1), group.plain("b", 2)
    old.become_master(1)
    follow(new, old)
    put(old, b"both", copies=2)
    old.become_master(2)
    put(old, b"XXXX")
    new.become_master(3)
    put(new, b"YYYY")
    follow(old, new)
    assert_equal(old, new)
    assert bodies(old)[0] == b"both"


def test_a_master_elected_again_keeps_its_connections(group: Group) -> None:
    master = group.master()
    slave = group.slave(master)
    master.wait_in_sync(2, timeout=20)
    put(master, b"1", copies=2)
    (before,) = master.replicas
    master.become_master(5)
    put(master, b"2", copies=2)
    (after,) = master.replicas
    assert after.connected_ms == before.connected_ms
    assert [each.epoch for each in slave.epochs] == [1, 5]
    assert slave.epoch == 5


def test_becoming_what_one_is_changes_nothing(group: Group) -> None:
    master = group.master()
    slave = group.slave(master)
    master.wait_in_sync(2, timeout=20)
    (before,) = master.replicas
    master.become_master(1)
    slave.become_slave(master.address or "")
    put(master, b"x", copies=2)
    assert master.replicas[0].connected_ms == before.connected_ms
    assert master.epoch == 1


def test_an_epoch_that_is_over_is_fenced(group: Group) -> None:
    master = group.master(epoch=4)
    slave = group.slave(master)
    put(master, b"x", copies=2)
    for epoch in (3, 4):
        with pytest.raises(Fenced) as caught:
            slave.become_master(epoch)
        assert caught.value.epoch == 4
    with pytest.raises(Fenced):
        slave.become_slave("127.0.0.1:1", 3)
    put(master, b"y", copies=2)
    assert slave.role == "slave"


def test_a_put_that_waits_when_the_role_ends_is_told(group: Group) -> None:
    master = group.master(quorum=Quorum(in_sync=2, timeout_ms=60_000))
    outcome: queue.SimpleQueue[ReplicaTimeout] = queue.SimpleQueue()

    def work() -> None:
        try:
            master.store.put("orders", b"x", durability=Durability.REPLICATED)
        except ReplicaTimeout as error:
            outcome.put(error)

    thread = threading.Thread(target=work)
    thread.start()
    other = group.plain("b", 2)
    other.become_master(2)
    # The put is in the log before the role ends, or refused.
    while master.end_offset == 0:
        pass
    master.become_slave(other.address or "")
    assert outcome.get(timeout=20).stored
    thread.join(20)


def test_a_failure_while_taking_office_leaves_a_second_try(
    group: Group, monkeypatch: pytest.MonkeyPatch
) -> None:
    replica = group.plain("a", 1)

    def refuse(*_: object, **__: object) -> None:
        raise StoreTimeout("dispatch is behind")

    with monkeypatch.context() as patch:
        patch.setattr(replica.store, "wait_dispatched", refuse)
        with pytest.raises(StoreTimeout):
            replica.become_master(7)
    assert replica.role is None
    with pytest.raises(NotWritable):
        put(replica, b"x")
    replica.become_master(7)
    put(replica, b"x")
    assert [each.epoch for each in replica.epochs] == [7]


def test_nothing_acknowledged_is_lost_while_roles_change_under_load(group: Group) -> None:
    a, b = group.plain("a", 1, quorum=TWO), group.plain("b", 2, quorum=TWO)
    a.become_master(1)
    follow(b, a)
    is_over = threading.Event()
    acknowledged: queue.SimpleQueue[bytes] = queue.SimpleQueue()

    def write(name: int) -> None:
        number = 0
        while not is_over.is_set():
            number += 1
            body = b"%d of %d" % (number, name)
            for replica in (a, b):
                try:
                    put(replica, body, copies=2)
                except PutError:
                    continue
                acknowledged.put(body)
                break

    threads = [threading.Thread(target=write, args=(each,)) for each in range(3)]
    for thread in threads:
        thread.start()
    master, slave = a, b
    for epoch in range(2, rounds(8, 60)):
        before = acknowledged.qsize()
        while acknowledged.qsize() < before + 20:
            master.wait_in_sync(2, timeout=20)
        # The old master still is one, alone, and takes puts that nobody acknowledges.
        slave.become_master(epoch)
        master.become_slave(slave.address or "")
        master, slave = slave, master
    is_over.set()
    for thread in threads:
        thread.join(60)
    slave.wait_caught_up(master.end_offset, timeout=20)
    assert_equal(master, slave)
    stored = set(bodies(master))
    told = {acknowledged.get() for _ in range(acknowledged.qsize())}
    assert len(told) > 100
    assert told <= stored


# -- the sync-state set


def test_a_set_changes_only_when_it_is_confirmed(group: Group) -> None:
    proposals: queue.SimpleQueue[Proposal] = queue.SimpleQueue()
    master = group.master(members=[1], quorum=TWO, on_proposal=proposals.put)
    slave = group.slave(master)
    joining = proposals.get(timeout=20)
    assert joining.members == {1, 2}
    assert master.sync_state_set == {1}
    assert [each.number for each in master.proposals] == [joining.number]
    master.set_sync_state_set(joining.members, 1)
    put(master, b"x", copies=2)
    assert (master.sync_state_set, master.sync_state_set_epoch) == ({1, 2}, 1)
    assert master.proposals == ()
    slave.close()
    leaving = proposals.get(timeout=20)
    assert leaving.left == {2}
    end = master.end_offset
    put(master, b"nobody else has it")
    assert master.confirm_offset == end
    master.set_sync_state_set(leaving.members, 2)
    assert master.confirm_offset == master.end_offset


def test_a_callback_may_answer_at_once(group: Group) -> None:
    known = threading.Event()

    def answer(proposal: Proposal) -> None:
        known.wait(20)
        master.set_sync_state_set(proposal.members, proposal.set_epoch + 1)

    master = group.master(members=[1], quorum=TWO, on_proposal=answer)
    known.set()
    group.slave(master)
    master.wait_in_sync(2, timeout=20)
    put(master, b"x", copies=2)
    assert master.sync_state_set == {1, 2}


def test_a_set_without_this_master_ends_its_role(group: Group) -> None:
    told: queue.SimpleQueue[Status] = queue.SimpleQueue()
    master = group.master(members=[1], set_epoch=3, on_change=told.put)
    master.set_sync_state_set([2], 2)
    put(master, b"x")
    master.set_sync_state_set([2], 4)
    with pytest.raises(NotWritable):
        put(master, b"y")
    assert master.role is None
    assert "lacks this broker" in str(master.status().failure)
    while told.get(timeout=20).role is not None:
        pass


@pytest.mark.parametrize("members", [[2], [-1, 1]])
def test_members_that_cannot_be_are_refused(group: Group, members: list[int]) -> None:
    replica = group.plain("a", 1)
    with pytest.raises(ArgumentError, match="members"):
        replica.become_master(members=members)
    replica.become_master()
    with pytest.raises(ArgumentError, match="no sync-state set"):
        replica.set_sync_state_set([1], 1)


def test_a_refused_proposal_comes_again(group: Group) -> None:
    proposals: queue.SimpleQueue[Proposal] = queue.SimpleQueue()
    master = group.master(mode=Mode.SYNC_STATE_SET, on_proposal=proposals.put)
    group.slave(master)
    first = proposals.get(timeout=20)
    master.refuse_proposal(first.number)
    second = proposals.get(timeout=20)
    master.lose_proposal(second.number)
    third = proposals.get(timeout=20)
    assert first.members == second.members == third.members


# -- connections


class Relay:
    """Stands between a slave and its master, and cuts all connections when it is told to."""

    def __init__(self, to: tuple[str, int]) -> None:
        self._to = to
        self._listener = socket.create_server(("127.0.0.1", 0))
        self._ends: list[socket.socket] = []
        self.address: tuple[str, int] = self._listener.getsockname()
        self._threads = [threading.Thread(target=self._accept, daemon=True)]
        self._threads[0].start()

    def cut(self) -> None:
        for each in self._ends:
            with contextlib.suppress(OSError):
                each.shutdown(socket.SHUT_RDWR)

    def close(self) -> None:
        with contextlib.suppress(OSError):
            self._listener.shutdown(socket.SHUT_RDWR)
        self.cut()
        for each in self._threads:
            each.join(20)
        for end in (self._listener, *self._ends):
            end.close()

    def _accept(self) -> None:
        while True:
            try:
                slave, _ = self._listener.accept()
            except OSError:
                return
            master = socket.create_connection(self._to)
            self._ends += [slave, master]
            for pair in ((slave, master), (master, slave)):
                thread = threading.Thread(target=self._forward, args=pair, daemon=True)
                self._threads.append(thread)
                thread.start()

    def _forward(self, source: socket.socket, target: socket.socket) -> None:
        with contextlib.suppress(OSError):
            while data := source.recv(65536):
                target.sendall(data)
        for each in (source, target):
            with contextlib.suppress(OSError):
                each.shutdown(socket.SHUT_RDWR)


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
            relay.cut()
        put(master, b"last", copies=2)
        assert log_bytes(slave) == log_bytes(master)
        slave.close()


def test_a_connection_that_had_worked_is_made_anew_at_once(group: Group) -> None:
    master = group.master(quorum=TWO)
    assert master.address is not None
    options = HaOptions(reconnect_ms=3_600_000)
    with contextlib.closing(Relay(master.address)) as relay:
        slave = group.slave(relay, options=options)
        put(master, b"1", copies=2)
        relay.cut()
        put(master, b"2", copies=2)
        slave.close()


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
    assert master.epoch == 2
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
        ({"listen": ":10912"}, "no address"),
        ({"listen": "*:10912"}, "no address"),
        ({"listen": "127.0.0.1"}, "no address"),
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
    with pytest.raises(ArgumentError, match="no master"):
        slave.wait_in_sync(2)
    with pytest.raises(ArgumentError, match="no slave"):
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
