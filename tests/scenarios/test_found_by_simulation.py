"""Defects that whole groups in virtual time (`rmqstore.sim`) have found, each in a few steps."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import pytest

from rmqstore.message import PutStatus
from rmqstore.replication.events import HaOptions
from rmqstore.replication.group import ConfirmMoved, MasterGroup, Resolved
from rmqstore.replication.quorum import Mode, Quorum
from rmqstore.replication.watermark import Watermark
from tests.scenarios.ha_model import ModelLog, Play
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
    that lies below the end of its log: no epoch was in common, for ever."""
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


def master_of_a_set(*, is_durable: bool = False) -> MasterGroup[str]:
    watermark = Watermark(confirm_offset=0, start_offset=0, end_offset=0)
    group: MasterGroup[str] = MasterGroup(1, watermark, Quorum(all_ack=True), Mode.SYNC_STATE_SET)
    group.become_master(1, end_offset=0, now_ms=0, members=[1], set_epoch=1)
    if is_durable:
        group.flushed(0, 0)
    return group


def test_put_is_readable_when_it_is_resolved_because_a_joiner_gave_up() -> None:
    """Confirming waits for a replica that is about to join; so did the put, but when the replica
    fell back the put was resolved at once and the confirm offset moved at the next event."""
    group = master_of_a_set()
    group.log_grew(100)
    group.connected(2, connection=7, now_ms=0)
    group.caught_up(7, 0)
    group.acked(7, 50, 0, epoch=group.epoch)
    group.wait("put", group.admit(now_ms=0), end_offset=200, now_ms=0)
    assert group.watermark.confirm_offset == 100
    effects = group.tick(2000)
    resolved = [each for each in effects if isinstance(each, Resolved)]
    assert [each.resolution.status for each in resolved] == [PutStatus.PUT_OK]
    assert effects.index(ConfirmMoved(200)) < effects.index(resolved[0])


def test_nothing_is_confirmed_or_resolved_that_the_master_itself_has_in_memory_only() -> None:
    """Acknowledged from the disks of all slaves and seen by their readers, it was cut when the
    master lost its power and, still a member of the set, was elected again."""
    group = master_of_a_set(is_durable=True)
    group.connected(2, connection=7, now_ms=0)
    group.confirm_set([1, 2], set_epoch=2, now_ms=0)
    assert group.wait("put", group.admit(now_ms=0), end_offset=100, now_ms=0) == []
    assert group.acked(7, 100, 1, epoch=group.epoch) == []
    assert group.watermark.confirm_offset == 0
    moved, resolved = group.flushed(100, 2)
    assert moved == ConfirmMoved(100)
    assert isinstance(resolved, Resolved)
    assert resolved.resolution.status is PutStatus.PUT_OK


def test_replica_that_joins_before_the_masters_flush_is_waited_for_by_puts_not_yet_flushed() -> (
    None
):
    """A put that had its copies and waited for the disk alone was acknowledged though a member that
    joined meanwhile, and could be elected, lacked it."""
    group = master_of_a_set(is_durable=True)
    group.wait("put", group.admit(now_ms=0), end_offset=100, now_ms=0)
    group.connected(2, connection=7, now_ms=0)
    group.acked(7, 0, 1, epoch=group.epoch)
    group.confirm_set([1, 2], set_epoch=2, now_ms=1)
    assert group.flushed(100, 2) == []
    assert [type(each) for each in group.acked(7, 100, 3, epoch=group.epoch)] == [
        ConfirmMoved,
        Resolved,
    ]
