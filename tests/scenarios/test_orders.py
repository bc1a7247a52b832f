"""Epochs that are ordered: late, twice, by mistake, to a replica that was away or that died.

First the slave's machine over model logs, then replicated stores over sockets.
"""

from __future__ import annotations

import shutil
from collections.abc import Callable
from pathlib import Path

import pytest

from rmqstore.epochs import format_epochs
from rmqstore.errors import ArgumentError, CorruptionError, DiskError, Fenced, ReplicaTimeout
from rmqstore.replication import Master, ReplicatedStore
from rmqstore.replication.group.epoch_state import (
    EPOCH_JUMP_MAX,
    EpochState,
    format_epoch_state,
    known_epoch,
)
from rmqstore.replication.protocol.events import Append, Ordered, SaveEpochState
from rmqstore.replication.protocol.frames import HandshakeReply, Transfer
from tests.scenarios.ha_model import ModelLog, entries
from tests.scenarios.pairs import LIKE_JAVA, log, switch_pair, switch_slave
from tests.support.service_group import HERE, TWO, Group, assert_equal, bodies, follow, group, put
from tests.support.waiting import wait_until

__all__ = ["group"]


def held(replica: ReplicatedStore) -> list[bytes]:
    """Return the bodies in the log, confirmed or not."""
    return [each.body for each in replica.store.scan_log()]


# -- a master of an older epoch


def test_slave_that_knows_a_later_epoch_sends_nothing_to_an_older_master() -> None:
    slave = log("abc")
    slave.epoch_state = EpochState().learn(3)
    switch_slave(slave).hears("slave", HandshakeReply(900, 2, entries((1, 0), (2, 300)))).expect(
        """
        slave > handshake of 2
        master > reply: end 900, 1@0 2@300
        slave: close (the master is of epoch 2, and this replica knows epoch 3: that master was
            replaced, or has not begun its epoch yet; nothing is acknowledged to it), again
            after 5000
        """
    )


def test_order_closes_the_connection_with_an_older_master_and_keeps_a_newer_one() -> None:
    master, slave = log("abc"), ModelLog()
    play = switch_pair(master, slave).connect()
    play.lines.clear()

    slave.epoch_state = slave.epoch_state.learn(3)
    play.handle("slave", Ordered(3)).expect(
        """
        slave: close (ordered to epoch 3; the master is of epoch 1, and this replica knows epoch
            3: that master was replaced, or has not begun its epoch yet; nothing is acknowledged
            to it), again after 0
        """
    )

    master.begin(3)
    play.connect()
    play.lines.clear()

    play.handle("slave", Ordered(3)).expect("")
    assert slave.epochs == entries((1, 0), (3, 300))


def test_order_that_comes_after_the_epoch_reached_the_slave_keeps_the_connection() -> None:
    master, slave = log("abc"), ModelLog()
    play = switch_pair(master, slave).connect()
    master.begin(3)
    play.grew().lines.clear()
    play.handle("slave", Ordered(3)).expect("")
    assert known_epoch(slave) == 3


def test_epoch_of_a_master_is_saved_before_anything_is_cut_for_it() -> None:
    slave = log("abc").begin(2).put("X")
    reply = HandshakeReply(300, 4, entries((1, 0), (4, 300)))
    machine = switch_slave(slave, LIKE_JAVA)
    machine.hears("slave", reply)
    assert slave.answer() == "0-300 abc 1@0 4@300"
    # The next cut takes epoch 4 from the list; what is known stays.
    slave.cut(200)
    slave.epochs = entries((1, 0))
    assert known_epoch(slave) == 4


def test_disk_that_refuses_the_epoch_of_a_master_keeps_the_slave_from_it() -> None:
    slave = log("abc")
    slave.fails = {SaveEpochState}
    play = switch_slave(slave).hears("slave", HandshakeReply(600, 2, entries((1, 0), (2, 300))))
    assert not any("ack" in line for line in play.lines)
    assert slave.answer() == "0-300 abc 1@0"


def test_epoch_that_begins_while_connected_is_saved_before_its_bytes_are_acknowledged() -> None:
    slave = log("abc")
    play = switch_slave(slave, LIKE_JAVA).hears("slave", HandshakeReply(300, 1, entries((1, 0))))
    slave.fails = {Append}
    play.hears("slave", Transfer(300, 2, 300, 300, b"d" * 100))
    assert known_epoch(slave) == 2


def test_slave_that_was_ordered_to_a_later_epoch_is_no_copy_of_the_older_masters_puts(
    group: Group,
) -> None:
    old = group.plain("a", 1, quorum=TWO)
    dead, slave = group.plain("b", 2), group.plain("c", 3)

    old.become_master(1)
    for each in (dead, slave):
        follow(each, old, 1)

    put(old, b"first", copies=3)
    dead.become_slave("127.0.0.1:1", 2)

    # The slave hears of epoch 3 first; the order to the master is late.
    assert old.address is not None
    slave.become_slave(old.address, 3)

    with pytest.raises(ReplicaTimeout):
        old.store.put("orders", b"X", copies=2, timeout=1.0)
    assert "epoch 3" in slave.status().master.last_error  # type: ignore[union-attr]
    assert held(slave) == [b"first"]

    old.become_master(3)
    put(old, b"Y", copies=2)
    assert_equal(old, slave)


def test_order_outlives_the_process_that_took_it(group: Group) -> None:
    old, slave = group.plain("a", 1, quorum=TWO), group.plain("b", 2)
    old.become_master(1)

    follow(slave, old, 1)
    slave.become_slave("127.0.0.1:1", 3)

    slave.store.abandon()
    slave = group.plain("b", 2)
    assert slave.epoch == 3

    assert old.address is not None
    slave.become_slave(old.address)

    with pytest.raises(ReplicaTimeout):
        old.store.put("orders", b"X", copies=2, timeout=1.0)

    with pytest.raises(Fenced) as caught:
        slave.become_slave(old.address, 2)
    assert caught.value.epoch == 3

    for epoch in (2, 3):
        with pytest.raises(Fenced):
            slave.become_master(epoch)


def test_late_and_repeated_orders_change_nothing(group: Group) -> None:
    master, slave = group.plain("a", 1, quorum=TWO), group.plain("b", 2)
    master.become_master(4)
    follow(slave, master, 4)

    put(master, b"x", copies=2)
    (before,) = master.replicas
    assert master.address is not None

    for _ in range(3):
        slave.become_slave(master.address, 4)
        master.become_master(4)
        with pytest.raises(Fenced):
            slave.become_slave("127.0.0.1:1", 3)
        with pytest.raises(Fenced):
            master.become_slave("127.0.0.1:1", 3)
        with pytest.raises(Fenced):
            master.become_master(3)

    put(master, b"y", copies=2)
    (after,) = master.replicas
    assert after.connected_ms == before.connected_ms
    assert (master.role, slave.role) == ("master", "slave")


def test_master_is_not_ordered_to_follow_another_one_in_its_own_epoch(group: Group) -> None:
    master = group.master(epoch=2)
    with pytest.raises(Fenced, match="itself master of epoch 2"):
        master.become_slave("127.0.0.1:1", 2)
    put(master, b"x")


def test_classic_slave_checks_orders_alone_because_no_frame_carries_an_epoch(group: Group) -> None:
    master = group.plain("a", 1, protocol="classic", quorum=TWO)
    slave = group.plain("b", 2, protocol="classic")
    master.become_master(1)
    follow(slave, master, 3)
    put(master, b"x", copies=2)
    assert master.address is not None
    with pytest.raises(Fenced):
        slave.become_slave(master.address, 2)


# -- one number for two masters


def test_equal_epochs_with_unequal_starts_halt_a_longer_slave_and_name_both() -> None:
    slave = log("abc").begin(2).put("XYZ")
    slave.confirm_offset = 0
    reply = HandshakeReply(500, 2, entries((1, 0), (2, 400)))
    switch_slave(slave).hears("slave", reply).expect(
        """
        slave > handshake of 2
        master > reply: end 500, 1@0 2@400
        slave: halt (epoch 2 begins at 300 in this log and at 400 in its master's: two masters
            were given one number. Nothing was touched; find the right log with rmqstore diff,
            make its replica master in a later epoch, and empty the other one)
        """
    )
    assert slave.answer() == "0-600 abcXYZ 1@0 2@300"
    assert slave.epoch_state == EpochState()


def test_equal_epochs_with_unequal_starts_halt_a_slave_that_wrote_nothing_in_them() -> None:
    slave = log("abc").begin(2)
    play = switch_slave(slave).hears("slave", HandshakeReply(600, 2, entries((1, 0), (2, 400))))
    assert "halt (epoch 2 begins at 300 in this log" in play.lines[-1]
    assert slave.answer() == "0-300 abc 1@0 2@300"


def test_equal_epochs_with_unequal_starts_halt_a_slave_whose_bytes_differ() -> None:
    master, slave = log("abcdef").begin(2).put("g"), log("abc").begin(2).put("X")
    slave.confirm_offset = 0
    play = switch_pair(master, slave).connect().connect()
    assert "halt (epoch 2 begins at 300 in this log and at 600 in its master's" in play.lines[-1]
    assert slave.answer() == "0-400 abcX 1@0 2@300"


def test_start_that_a_java_master_moved_by_its_restart_is_no_fork() -> None:
    # It was master of epoch 2 from 300 on, and again, without an election, from 500 on.
    master, slave = log("abcde").begin(2).put("f"), log("abc").begin(2).put("de")
    switch_pair(master, slave).connect()
    assert slave.answer() == "0-600 abcdef 1@0 2@500"


def test_older_clash_does_not_matter_behind_an_epoch_that_both_share() -> None:
    master, slave = log("abcde"), log("abcde")
    master.epochs, slave.epochs = entries((1, 0), (2, 400), (3, 500)), entries((2, 300), (3, 500))
    master.put("f")
    switch_pair(master, slave).connect()
    assert slave.data == master.data


def test_number_that_two_masters_were_given_halts_the_slave_of_one_at_the_other(
    group: Group,
) -> None:
    a, b, c = (group.plain(name, number) for number, name in enumerate("abc", 1))

    a.become_master(1)
    for each in (b, c):
        follow(each, a, 1)
    put(a, b"first", copies=3)

    b.become_slave("127.0.0.1:1")
    c.become_slave("127.0.0.1:1")
    put(a, b"alone 1", b"alone 2", b"alone 3")

    with pytest.raises(ArgumentError, match="shares its log with other replicas"):
        b.become_master()

    b.become_master(2)
    follow(c, b, 2)
    put(b, b"acknowledged", copies=2)

    a.become_master(2)
    assert a.address is not None
    c.become_slave(a.address, 2)

    wait_until(c, lambda: c.status().master.halted_reason, "a halt")  # type: ignore[union-attr]
    reason = str(c.status().master.halted_reason)  # type: ignore[union-attr]

    for each in (a, b):
        assert f"at {each.epochs[-1].start_offset}" in reason
    assert held(c) == [b"first", b"acknowledged"]


# -- the master that starts again


def test_store_without_other_replicas_needs_no_epoch_however_it_ended(group: Group) -> None:
    for epoch in (1, 1, 1):
        master = group.master()
        assert master.epoch == epoch
        put(master, b"x")
        master.store.close()
    master = group.master()
    master.store.abandon()
    assert group.master().epoch == 2


def test_master_that_ended_cleanly_goes_on_in_its_epoch(group: Group) -> None:
    master = group.master(quorum=TWO)
    slave = group.slave(master)
    put(master, b"1", copies=2)
    address = master.address
    for _ in range(2):
        master.store.close()
        master = group.master(listen=address, quorum=TWO)
        put(master, b"2", copies=2)
    assert [(each.epoch, each.start_offset) for each in slave.epochs] == [(1, 0)]
    assert_equal(master, slave)


@pytest.mark.parametrize("ends", ["close", "become_slave"])
def test_clean_end_counts_however_the_role_ended(ends: str, group: Group) -> None:
    master = group.master(quorum=TWO)
    group.slave(master)
    put(master, b"1", copies=2)
    if ends == "close":
        master.close()
        master.store.abandon()
    else:
        master.become_slave("127.0.0.1:1")
        master.store.abandon()
    assert group.master().epoch == 1


def test_master_that_did_not_end_cleanly_is_refused_with_the_cure(group: Group) -> None:
    master = group.master(quorum=TWO)
    group.slave(master)
    put(master, b"1", copies=2)
    master.store.abandon()
    again = group.plain("a", 1)
    for epoch in (None, 2):
        with pytest.raises(ArgumentError, match=r"not closed cleanly.* others_asked=True"):
            again.become_master(epoch)
    with pytest.raises(ArgumentError, match="--epoch 2 --others-asked"):
        again.become_master(others_asked=True)
    with pytest.raises(Fenced):
        again.become_master(1, others_asked=True)
    again.become_master(2, others_asked=True)
    assert again.epoch == 2
    assert bodies(again) == [b"1"]


def test_set_that_comes_with_the_election_stands_for_having_asked(group: Group) -> None:
    master = group.master(quorum=TWO)
    group.slave(master)
    put(master, b"1", copies=2)
    master.store.abandon()
    assert group.master(epoch=2, members=(1, 2), set_epoch=1).epoch == 2


def test_former_master_whose_log_a_later_one_took_over_is_a_replica_like_others(
    group: Group,
) -> None:
    old, new = group.plain("a", 1, quorum=TWO), group.plain("b", 2, quorum=TWO)
    old.become_master(1)
    follow(new, old, 1)

    put(old, b"1", copies=2)
    address = new.address
    old.store.abandon()

    new.become_master(2)
    old = group.plain("a", 1, quorum=TWO)
    assert address is not None
    old.become_slave(address, 2)

    put(new, b"2", copies=2)
    old.store.abandon()
    new.close()

    old = group.plain("a", 1, quorum=TWO)
    with pytest.raises(ArgumentError, match="shares its log"):
        old.become_master()

    old.become_master(3)
    assert held(old) == [b"1", b"2"]


def test_master_whose_machine_lost_power_does_not_start_again_and_its_slaves_lose_nothing(
    group: Group, tmp_path: Path
) -> None:
    master = group.master(quorum=TWO)
    slaves = [group.slave(master, name, broker_id=number) for number, name in ((2, "b"), (3, "c"))]

    put(master, b"0", copies=3)
    master.store.flush()

    # What is on the disk at this moment is what the power loss leaves.
    durable = shutil.copytree(tmp_path / "a", tmp_path / "durable")

    written = [b"%d" % number for number in range(1, 30)]
    put(master, *written, copies=3)
    address = master.address

    master.store.abandon()
    shutil.rmtree(tmp_path / "a")
    durable.rename(tmp_path / "a")

    store = group.store("a")
    with pytest.raises(ArgumentError, match="not closed cleanly"):
        Master(store, listen=address or HERE, quorum=TWO)

    slaves[0].close()
    slaves[1].close()
    assert [held(each) for each in slaves] == [[b"0", *written]] * 2


def test_directory_of_a_java_broker_needs_an_epoch_and_after_a_crash_the_word_of_the_caller(
    group: Group, tmp_path: Path
) -> None:
    store = group.store("a")
    store.put("orders", b"x")
    store.close()

    (tmp_path / "a" / "epochFileCheckpoint").write_text(format_epochs(entries((3, 0))))
    shutil.copytree(tmp_path / "a", tmp_path / "b")

    closed = group.plain("a", 1)
    with pytest.raises(ArgumentError, match="--epoch 4"):
        closed.become_master()
    closed.become_master(4)
    assert [each.epoch for each in closed.epochs] == [3, 4]

    # What a broker leaves that did not stop.
    (tmp_path / "b" / "abort").write_text("1")

    killed = group.plain("b", 1)
    with pytest.raises(ArgumentError, match="others_asked"):
        killed.become_master(4)
    killed.become_master(4, others_asked=True)


@pytest.mark.parametrize("number", range(4))
def test_role_whose_epoch_could_not_be_saved_can_be_taken_by_the_same_call(
    number: int, group: Group, monkeypatch: pytest.MonkeyPatch
) -> None:
    replica = group.plain("a", 1)
    calls: list[str] = []
    replace: Callable[[str, bytes], None] = replica.store._replace_file

    def failing(name: str, data: bytes) -> None:
        calls.append(name)
        if len(calls) == number + 1:
            raise DiskError(28, "No space left on device")
        replace(name, data)

    monkeypatch.setattr(replica.store, "_replace_file", failing)
    try:
        replica.become_master(7)
    except DiskError:
        assert replica.role is None
        replica.become_master(7)
    put(replica, b"x")
    replica.store.abandon()
    assert group.master().epoch == 8


def test_order_that_could_not_be_saved_ends_the_role(
    group: Group, monkeypatch: pytest.MonkeyPatch
) -> None:
    master, slave = group.plain("a", 1, quorum=TWO), group.plain("b", 2)
    master.become_master(1)
    follow(slave, master, 1)

    def failing(name: str, data: bytes) -> None:
        raise DiskError(28, "No space left on device")

    assert master.address is not None
    with monkeypatch.context() as patch:
        patch.setattr(slave.store, "_replace_file", failing)
        with pytest.raises(DiskError):
            slave.become_slave(master.address, 3)
    assert slave.role is None
    with pytest.raises(ReplicaTimeout):
        master.store.put("orders", b"X", copies=2, timeout=0.5)
    slave.become_slave(master.address, 3)
    master.become_master(3)
    put(master, b"Y", copies=2)


def test_first_replica_that_cannot_be_noted_is_no_copy(
    group: Group, monkeypatch: pytest.MonkeyPatch
) -> None:
    master = group.master(quorum=TWO)

    def failing(name: str, data: bytes) -> None:
        raise DiskError(28, "No space left on device")

    with monkeypatch.context() as patch:
        patch.setattr(master.store, "_replace_file", failing)
        slave = group.slave(master)
        with pytest.raises(ReplicaTimeout):
            master.store.put("orders", b"x", copies=2, timeout=0.5)
    put(master, b"y", copies=2)
    assert_equal(master, slave)


def test_epoch_state_that_is_damaged_is_named_and_left_as_it_is(
    group: Group, tmp_path: Path
) -> None:
    store = group.store("a")
    path = tmp_path / "a" / "epochState"
    text = format_epoch_state(EpochState(1, 1, 0))
    damaged = (text.replace("=1", "=2", 1), text[:-4], "", text.replace("false", "maybe"))
    for each in damaged:
        path.write_text(each)
        with pytest.raises(CorruptionError, match="epochState"):
            ReplicatedStore(store)
        assert path.read_text() == each


def test_part_of_a_record_makes_no_replica_the_better_one(group: Group) -> None:
    master = group.master()
    put(master, b"whole")
    whole_end = master.end_offset
    put(master, b"x" * 2000)
    log = master.store.read_raw(0, master.end_offset)
    slave = group.plain("b", 2)
    # A damaged size makes a part of what may be any number of records.
    slave.store.append_raw(0, log[:-100])
    status = slave.status()
    assert (status.whole_end, status.end_offset) == (whole_end, len(log) - 100)


# -- epochs by mistake


def test_jump_to_a_far_epoch_needs_a_flag(group: Group) -> None:
    replica = group.plain("a", 1)
    first, last = EPOCH_JUMP_MAX, 2**31 - 1

    for epoch in (first + 1, last):
        with pytest.raises(ArgumentError, match="allow_epoch_jump"):
            replica.become_master(epoch)
        with pytest.raises(ArgumentError, match="allow_epoch_jump"):
            replica.become_slave("127.0.0.1:1", epoch)

    replica.become_master(first)
    with pytest.raises(ArgumentError, match="allow_epoch_jump"):
        replica.become_master(last)
    assert replica.role == "master"

    replica.become_master(2 * first)
    replica.become_master(last, allow_epoch_jump=True)

    replica.store.close()
    # There is no later one, but the master may go on in it.
    assert group.master().epoch == last


@pytest.mark.parametrize("epoch", [-1, 2**31, 1.5, "2", True])
def test_epoch_that_cannot_be_is_refused(epoch: int, group: Group) -> None:
    replica = group.plain("a", 1)
    with pytest.raises(ArgumentError, match="epoch"):
        replica.become_master(epoch, allow_epoch_jump=True)
    with pytest.raises(ArgumentError, match="epoch"):
        replica.become_slave("127.0.0.1:1", epoch, allow_epoch_jump=True)


def test_master_of_a_far_epoch_is_followed_by_order_only() -> None:
    far = 2 * EPOCH_JUMP_MAX
    slave = log("abc")
    reply = HandshakeReply(400, far, entries((1, 0), (far, 300)))

    play = switch_slave(slave).hears("slave", reply)
    assert "unless a bit turned on the way" in play.lines[-1]
    play.connect().hears("slave", reply)
    assert "allow_epoch_jump=True" in play.lines[-1]
    assert known_epoch(slave) == 1

    slave.epoch_state = EpochState().learn(far)
    switch_slave(slave, LIKE_JAVA).hears("slave", reply).expect(
        f"""
        slave > handshake of 2
        master > reply: end 400, 1@0 {far}@300
        slave: save 1@0 {far}@300
        slave > ack 300
        """
    )

    empty = ModelLog()
    switch_slave(empty).hears("slave", reply)
    assert known_epoch(empty) == far


def test_label_of_a_far_epoch_halts_the_slave_when_it_comes_again() -> None:
    slave = log("abc")
    reply = HandshakeReply(300, 1, entries((1, 0)))
    label = Transfer(300, 2**31 - 1, 300, 300, b"d" * 100)
    play = switch_slave(slave, LIKE_JAVA).hears("slave", reply, label)
    assert "unless a bit turned on the way" in play.lines[-1]
    play.connect().hears("slave", reply, label)
    assert "allow_epoch_jump=True" in play.lines[-1]
    assert slave.answer() == "0-300 abc 1@0"


def test_far_epoch_that_was_a_turned_bit_delays_a_slave_by_one_connection() -> None:
    slave = log("abc")
    reply = HandshakeReply(300, 1, entries((1, 0)))
    play = switch_slave(slave, LIKE_JAVA)
    play.hears("slave", reply, Transfer(300, 1 + 2**27, 0, 300, b"d" * 100))
    play.connect().hears("slave", reply, Transfer(300, 1, 0, 300, b"d" * 100))
    assert slave.answer() == "0-400 abcd 1@0"
