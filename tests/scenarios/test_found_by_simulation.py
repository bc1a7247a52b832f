"""Defects that whole groups in virtual time (`rmqstore.sim`) have found, each in a few steps."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import pytest

from rmqstore.message import PutStatus
from rmqstore.replication.group.quorum import Mode, Quorum
from rmqstore.replication.protocol.events import HaOptions
from rmqstore.sim.board import Resolution
from tests.scenarios.ha_model import ModelLog, Play
from tests.scenarios.model_master import ModelMaster
from tests.scenarios.pairs import OPTIONS, classic_pair, switch_pair


@pytest.mark.parametrize("pair", [switch_pair, classic_pair])
def test_slave_that_would_compare_from_before_its_masters_first_byte_begins_there(
    pair: Callable[[ModelLog, ModelLog, HaOptions], Play],
) -> None:
    """The overlap began at 200, the master's log at 300: each connection ended with a gap."""
    master = ModelLog().begin(1).put("abcdefgh").trim(300)
    slave = ModelLog().begin(1).put("abcdef")
    pair(master, slave, replace(OPTIONS, overlap_bytes=400)).connect()
    assert (slave.start_offset, slave.letters()) == (0, "abcdefgh")


def test_slave_that_begins_at_its_masters_first_byte_still_finds_a_fork() -> None:
    master = ModelLog().begin(1).put("abcde").begin(2).put("fgh").trim(300)
    slave = ModelLog().begin(1).put("abcde").begin(2).put("xy")
    play = switch_pair(master, slave, replace(OPTIONS, overlap_bytes=500))
    for _ in range(4):
        play.connect()
    assert slave.letters() == "abcdefgh"


def test_deposed_master_whose_whole_log_its_master_has_deleted_begins_anew() -> None:
    """Its last epoch had ended, elsewhere, inside what it holds, and was deleted there with all
    that lies below the end of its log: no epoch was in common, forever."""
    master = ModelLog().begin(1).put("ab").begin(2).put("cdefgh").trim(500)
    master.epochs = master.epochs[1:]
    slave = ModelLog().begin(1).put("abxy")
    for _ in range(3):
        switch_pair(master, slave, begin_anew=True).connect()
    assert (slave.start_offset, slave.letters(), slave.epochs) == (500, "fgh", master.epochs)


def test_replica_without_a_common_epoch_is_not_touched_where_its_master_holds_such_bytes() -> None:
    master = ModelLog().begin(1).put("ab").begin(2).put("cdefgh").trim(200)
    master.epochs = master.epochs[1:]
    slave = ModelLog().begin(1).put("abxy")
    play = switch_pair(master, slave)
    for _ in range(3):
        play.connect()
    assert slave.letters() == "abxy"
    assert any("halt" in line for line in play.lines)


class HalfLog(ModelLog):
    """A log in which what follows two messages looks like a part of one."""

    @property
    def whole_end(self) -> int:
        return min(200, self.end_offset)


def test_bytes_behind_a_damaged_size_are_no_fork() -> None:
    """A record whose size was damaged on the wire looked like a part of a longer one; after the
    connection broke the tail differed, and the slave halted."""
    master = ModelLog().begin(1).put("abcdef")
    slave = HalfLog().begin(1).put("ab")
    slave.data += b"c" * 50 + b"?" * 100
    play = switch_pair(master, slave)
    for _ in range(4):
        play.connect()
    assert slave.letters() == "abcdef"


def test_beginning_of_a_record_is_not_acknowledged_since_its_size_may_be_damaged() -> None:
    play = switch_pair(ModelLog().begin(1).put("abcdef"), HalfLog()).connect()
    acks = [line for line in play.lines if line.startswith("slave > ack")]
    assert acks == ["slave > ack 0", "slave > ack 200"]


def test_comparisons_that_the_wire_damages_one_after_another_are_no_fork() -> None:
    """The same byte came damaged twice, each time to another one, and the slave halted."""
    master, slave = ModelLog().begin(1).put("abcdef"), ModelLog().begin(1).put("abc")
    play = switch_pair(master, slave)
    for letter in (b"x", b"y", b"c"):
        master.data = master.data[:250] + letter + master.data[251:]
        play.connect()
    assert slave.letters() == "abcdef"


def master_of_a_set(*, is_flushed: bool = False) -> ModelMaster[str]:
    master: ModelMaster[str] = ModelMaster(
        Quorum(all_ack=True), Mode.SYNC_STATE_SET, is_flushed=is_flushed
    )
    master.change(
        lambda group, now_ms: group.become_master(
            1, end_offset=0, now_ms=now_ms, members=[1], set_epoch=1
        )
    )
    return master


def test_slave_that_drops_an_epoch_of_its_own_no_longer_names_it() -> None:
    """It was master of epoch 3, and wrote nothing. The list without that epoch is saved before the
    acknowledgement goes out; a master closes on one that then names an earlier epoch."""
    master = ModelLog().begin(1).put("ab").begin(2).put("c").begin(4).put("d")
    slave = ModelLog().begin(1).put("ab").begin(3)
    play = switch_pair(master, slave, replace(OPTIONS, checks=True)).connect()
    assert not [line for line in play.lines if "close" in line]
    assert (slave.data, slave.epochs) == (master.data, master.epochs)


def test_put_is_readable_when_it_is_resolved_because_a_joiner_gave_up() -> None:
    """Confirming waits for a replica that is about to join; so did the put, but when the replica
    fell back the put was resolved at once and the confirm offset moved at the next event."""
    master = master_of_a_set()
    master.grow(100)
    master.connect(2, on=7)
    master.group.caught_up(7, 0)
    master.ack(50, on=7)
    master.put("put", 100)
    assert (master.resolved(), master.confirm_offset) == ([], 100)
    master.now_ms = 2000
    master.change(lambda group, now_ms: group.tick(now_ms))
    assert master.resolved() == [Resolution("put", PutStatus.PUT_OK, 1)]
    assert master.confirm_offset == 200


def test_nothing_is_confirmed_or_resolved_that_the_master_itself_has_in_memory_only() -> None:
    """Acknowledged from the disks of all slaves and seen by their readers, it was cut when the
    master lost its power and, still a member of the set, was elected again."""
    master = master_of_a_set(is_flushed=True)
    master.connect(2, on=7)
    master.change(lambda group, now_ms: group.confirm_set([1, 2], set_epoch=2, now_ms=now_ms))
    master.put("put", 100)
    master.ack(100, on=7)
    assert (master.resolved(), master.confirm_offset) == ([], 0)
    master.flush()
    assert master.resolved() == [Resolution("put", PutStatus.PUT_OK, 2)]
    assert master.confirm_offset == 100


def test_replica_that_joins_before_the_masters_flush_is_waited_for_by_puts_not_yet_flushed() -> (
    None
):
    """A put that had its copies and waited for the disk alone was acknowledged though a member that
    joined meanwhile, and could be elected, lacked it."""
    master = master_of_a_set(is_flushed=True)
    master.put("put", 100)
    master.connect(2, on=7)
    master.ack(0, on=7)
    master.change(lambda group, now_ms: group.confirm_set([1, 2], set_epoch=2, now_ms=now_ms))
    master.flush()
    assert (master.resolved(), master.confirm_offset) == ([], 0)
    master.ack(100, on=7)
    assert master.resolved() == [Resolution("put", PutStatus.PUT_OK, 2)]
    assert master.confirm_offset == 100
