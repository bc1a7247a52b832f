"""Hazards of RocketMQ's replication (docs/defects.md, "Replication") that lie in the store itself,
played on real ones."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import rmqstore
from rmqstore import Durability, Message, Store
from rmqstore.epochs import EpochList, epoch_at, parse_epochs
from rmqstore.replication import Master, ReplicatedStore
from rmqstore.replication.group.quorum import Mode, Quorum
from rmqstore.replication.group.roles import RoleMachine, Settle
from rmqstore.replication.protocol.events import (
    Append,
    FlushLog,
    PromiseConfirm,
    SaveEpochs,
    SaveEpochState,
    SetConfirm,
    TruncateTo,
)
from rmqstore.replication.runtime.log import StoreLog
from rmqstore.store.replica_view import ReplicaView
from tests.scenarios.store_logs import (
    BATCHES,
    LIGHT,
    LONG_TOPIC,
    confirm_all,
    entries,
    feed,
    next_offsets,
    open_store,
    put_all_kinds,
)
from tests.support.agreement import check_agreement, walk_log


@pytest.fixture
def opened(tmp_path: Path) -> Any:
    """Opens stores by name and closes what is open in the end."""
    stores: list[Store] = []

    def open_one(name: str, **settings: Any) -> Store:
        stores.append(open_store(tmp_path / name, **settings))
        return stores[-1]

    yield open_one
    for store in stores:
        if not store.closed:
            store.close()


Opened = Callable[..., Store]


def become_master(log: StoreLog, *, epoch: int) -> None:
    """Carry out what the role machine asks of the log."""
    roles: RoleMachine[str] = RoleMachine(log, quorum=Quorum(), mode=Mode.PLAIN, place="here")
    for effect in roles.become_master(epoch, others_asked=True):
        match effect:
            case Settle():
                log.settle()
            case FlushLog() | PromiseConfirm() | SaveEpochs() | SaveEpochState():
                log.carry_out(effect)


def test_h2_epoch_list_ahead_of_the_log_is_cut_to_it_when_a_replica_starts(opened: Opened) -> None:
    """The power went between the list and the bytes that it speaks of."""
    store = opened("slave")
    put_all_kinds(store, 4)

    log = StoreLog(ReplicaView(store))
    log.carry_out(SaveEpochs(entries((1, 0))))
    end = log.end_offset
    log.carry_out(FlushLog())

    # What another replica would have announced: epochs that begin where nothing is held yet.
    store._replace_file("epochFileCheckpoint", b"3\n0\n1-0\n2-%d\n3-%d\n" % (end, end + 240))
    store.abandon()

    store = opened("slave")
    log = StoreLog(ReplicaView(store))
    assert log.end_offset == end
    assert log.epochs == entries((1, 0), (2, end))

    # On the disk as well: the entry would be true again once the log is long enough.
    for name in ("epochFileCheckpoint", "epochFileCheckpoint.bak"):
        assert parse_epochs(Path(store.path, name).read_text()) == log.epochs


def test_h4_epochs_that_were_cut_off_do_not_return_with_a_restart(opened: Opened) -> None:
    store = opened("slave")
    put_all_kinds(store, 2)
    log = StoreLog(ReplicaView(store))
    log.carry_out(SaveEpochs(entries((1, 0), (2, log.end_offset))))
    log.carry_out(TruncateTo(0))
    log.carry_out(SaveEpochs(()))
    assert not list(Path(store.path).glob("epochFileCheckpoint*"))
    store.abandon()
    assert StoreLog(ReplicaView(opened("slave"))).epochs == ()


def test_h5_epoch_that_was_last_before_a_cut_leaves_no_end_behind(opened: Opened) -> None:
    store = opened("slave")
    put_all_kinds(store, 2)
    first_end = store.end_offset
    put_all_kinds(store, 2)
    log = StoreLog(ReplicaView(store))
    log.carry_out(SaveEpochs(entries((1, 0), (2, first_end))))
    log.carry_out(TruncateTo(first_end))
    log.carry_out(SaveEpochs(EpochList(tuple(log.epochs)).truncate_to(first_end).entries))
    log.settle()
    put_all_kinds(store, 1)
    at = first_end + 50
    assert at < log.end_offset
    assert epoch_at(log.epochs, at) == entries((1, 0))[0]


@pytest.mark.parametrize("size", [1, 7, 8, 100, -1])
def test_h8_half_a_record_at_the_tail_and_nothing_confirmed_do_not_keep_a_slave_from_office(
    size: int, opened: Opened
) -> None:
    """RocketMQ waits forever for 40 bytes that will never be dispatched."""
    master, store = opened("master"), opened("slave")
    put_all_kinds(master, 6)

    last = walk_log(master)[-1]
    log = StoreLog(ReplicaView(store))
    log.carry_out(SaveEpochs(entries((1, 0))))

    until = last.physical_offset + (size if size > 0 else last.size + size)
    feed(log, master, until=until)
    assert (log.end_offset, log.confirm_offset) == (until, 0)

    become_master(log, epoch=2)
    assert log.end_offset == last.physical_offset
    assert log.epochs == entries((1, 0), (2, last.physical_offset))

    receipt = store.put("orders", b"of the new master", durability=Durability.MEMORY)
    assert receipt.physical_offset == last.physical_offset
    assert store.dispatched_offset == log.confirm_offset == 0

    confirm_all(log)
    assert store.get("orders", offset=receipt.queue_offset).body == b"of the new master"


def test_h8_record_that_is_whole_and_damaged_goes_before_a_slave_takes_office(
    opened: Opened,
) -> None:
    master, store = opened("master"), opened("slave")
    put_all_kinds(master, 3)
    last = walk_log(master)[-1]
    log = StoreLog(ReplicaView(store))
    data = bytearray(master._log_bytes(0, master.end_offset))
    data[last.physical_offset + 120] ^= 4
    log.carry_out(Append(0, bytes(data)))
    become_master(log, epoch=1)
    assert log.end_offset == last.physical_offset
    store.put("orders", b"next")
    confirm_all(log)
    store.wait_dispatched()
    assert store.failure is None


def test_issue_5209_new_master_keeps_what_lies_above_its_confirm_offset(opened: Opened) -> None:
    master, store = opened("master"), opened("slave")
    put_all_kinds(master, 3)
    log = StoreLog(ReplicaView(store))
    log.carry_out(SaveEpochs(entries((1, 0))))
    feed(log, master)
    log.carry_out(SetConfirm(walk_log(master)[2].physical_offset))
    become_master(log, epoch=2)
    assert log.end_offset == master.end_offset
    assert log.epochs == entries((1, 0), (2, master.end_offset))


@pytest.mark.parametrize(
    "torn", [b"", b"2", b"x\n", b"2\n946436882\n1-100\n2-3", b"\xff\xfe", b"0\n0\n"]
)
def test_h12_torn_epoch_file_of_another_writer_stops_no_start(torn: bytes, opened: Opened) -> None:
    """RocketMQ overwrites it in place, and its own start fails at a torn first line."""
    store = opened("slave")
    put_all_kinds(store, 1)
    log = StoreLog(ReplicaView(store))
    log.carry_out(SaveEpochs(entries((1, 0), (2, 300))))
    store.close()
    Path(store.path, "epochFileCheckpoint").write_bytes(torn)
    again = opened("slave")
    log = StoreLog(ReplicaView(again))
    if torn != b"0\n0\n":
        assert log.epochs == entries((1, 0), (2, 300))
    log.carry_out(SaveEpochs(entries((1, 0), (2, 300), (3, 400))))
    assert Path(again.path, "epochFileCheckpoint").read_bytes().startswith(b"3\n")


def test_h12_list_that_a_death_left_beside_the_old_one_is_not_read(opened: Opened) -> None:
    store = opened("slave")
    put_all_kinds(store, 1)
    StoreLog(ReplicaView(store)).carry_out(SaveEpochs(entries((1, 0))))
    Path(store.path, "epochFileCheckpoint.tmp").write_bytes(b"9\n9\n9-9\n" * 99)
    store.abandon()
    log = StoreLog(ReplicaView(opened("slave")))
    assert log.epochs == entries((1, 0))
    log.carry_out(SaveEpochs(entries((1, 0), (2, 1))))
    assert not Path(store.path, "epochFileCheckpoint.tmp").exists()


@pytest.mark.parametrize("how", ["master", "closed", "abandoned"])
def test_h24_queue_offsets_go_on_behind_records_that_were_never_dispatched(
    how: str, opened: Opened
) -> None:
    """Version 2, inner batches, light queues; nothing of it is in a queue yet."""
    master, store = opened("master"), opened("slave")
    put_all_kinds(master, 9)

    log = StoreLog(ReplicaView(store))
    log.carry_out(SaveEpochs(entries((1, 0))))
    feed(log, master)

    taken = next_offsets(master)
    if how != "master":
        log.carry_out(SetConfirm(walk_log(master)[1].physical_offset))
        store.close() if how == "closed" else store.abandon()
        store = opened("slave")
        log = StoreLog(ReplicaView(store))

    become_master(log, epoch=2)
    assert store.put(LONG_TOPIC, b"n").queue_offset == taken[LONG_TOPIC, 0]
    light = Message("orders", b"n", properties={"INNER_MULTI_DISPATCH": LIGHT})
    assert store.put(light).queue_offset == taken["orders", 0]
    assert store.put("orders", b"n", queue=2).queue_offset == taken["orders", 2]

    batch = store.put_batch([Message(BATCHES, b"n")] * 2)
    assert [each.queue_offset for each in batch] == [taken[BATCHES, 0], taken[BATCHES, 0] + 1]

    confirm_all(log)
    store.wait_dispatched()
    found = {(each.topic, each.number): each.end for each in store.queues() if each.end}
    assert found == next_offsets(store)
    assert found[LIGHT, 0] == taken[LIGHT, 0] + 1


def test_h26_master_that_holds_nothing_back_keeps_its_confirm_offset_fresh(
    opened: Opened, tmp_path: Path
) -> None:
    """RocketMQ's stays at 0, and everything is unconfirmed after the next start."""
    master, store = opened("master"), opened("slave")
    put_all_kinds(master, 3)
    log = StoreLog(ReplicaView(store), is_gated=False)
    feed(log, master)
    become_master(log, epoch=2)
    for number in range(50):
        store.put("plain", b"%d" % number)
    store.wait_dispatched()
    store.flush()
    end = store.end_offset
    assert store._checkpoint()["confirm_offset"] == end
    store.abandon()
    with rmqstore.open(tmp_path / "slave") as again:
        assert again.confirm_offset == again.dispatched_offset == end
        assert again.queue("plain").end == 50


def test_h26_store_that_never_was_a_replica_is_read_as_a_whole(opened: Opened) -> None:
    """A confirm offset of 0 was never set; an epoch list beside it changes nothing about that."""
    store = opened("plain")
    for number in range(30):
        store.put("orders", b"%d" % number)
    store.flush()
    assert store._checkpoint()["confirm_offset"] == 0
    store._replace_file("epochFileCheckpoint", b"1\n0\n1-0\n")
    store.abandon()
    assert len(check_agreement(opened("plain"))) == 30


@pytest.mark.parametrize("tail", ["half a record", "a damaged record"])
@pytest.mark.parametrize("role", ["master", "slave"])
def test_h8_tail_that_is_no_whole_record_goes_with_its_epoch(
    role: str, tail: str, opened: Opened
) -> None:
    """Before a master serves, and where a slave differs from its master."""
    master, store = opened("master"), opened("slave")
    put_all_kinds(master, 3)
    last = walk_log(master)[-1]

    log = StoreLog(ReplicaView(store))
    data = bytearray(master._log_bytes(0, master.end_offset))

    if tail == "half a record":
        del data[last.physical_offset + 60 :]
    else:
        data[last.physical_offset + 120] ^= 4

    log.carry_out(SaveEpochs(entries((1, 0))))
    log.carry_out(Append(0, bytes(data)))
    log.carry_out(SaveEpochs(entries((1, 0), (2, len(data)))))
    log.close()

    with ReplicatedStore(store, broker_id=1, listen="127.0.0.1:0") as replica:
        if role == "master":
            replica.become_master(epoch=3)
            assert replica.epochs == entries((1, 0), (3, last.physical_offset))
            assert replica.end_offset == last.physical_offset
            return

        log = StoreLog(ReplicaView(master))
        log.carry_out(SaveEpochs(entries((1, 0))))
        log.close()
        with Master(master, listen="127.0.0.1:0", broker_id=2, epoch=3) as other:
            assert other.address is not None
            replica.become_slave(other.address)
            replica.wait_caught_up(other.end_offset, timeout=20)
            assert replica.epochs == other.epochs == entries((1, 0), (3, master.end_offset))

        assert store._log_bytes(0, store.end_offset) == master._log_bytes(0, master.end_offset)
