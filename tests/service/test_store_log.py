"""The log of a store as replication sees and changes it."""

from __future__ import annotations

import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import rmqstore
from rmqstore import ArgumentError, CorruptionError, DiskError, OffsetOutOfRange, Store
from rmqstore.replication.protocol.events import (
    Append,
    FlushLog,
    LogView,
    Restart,
    Send,
    SetConfirm,
    TruncateTo,
)
from rmqstore.replication.protocol.frames import Ack
from rmqstore.replication.runtime.log import StoreLog
from rmqstore.store.replica_view import ReplicaView
from tests.scenarios.store_logs import (
    FILE_SIZE,
    LIGHT,
    confirm_all,
    feed,
    next_offsets,
    open_store,
    put_all_kinds,
)
from tests.service.two_logs import check_agreement_of_all_kinds, master, slave
from tests.support.agreement import walk_log
from tests.support.boards import board_of

__all__ = ["master", "slave"]


# ---- the view


def test_empty_log_begins_and_ends_at_0(slave: Store) -> None:
    log: LogView = StoreLog(ReplicaView(slave))
    assert (log.start_offset, log.end_offset, log.flushed_offset, log.confirm_offset) == (0,) * 4
    assert (log.last_file_start, log.last_record_start) == (0, 0)
    assert log.epochs == ()
    assert log.is_border(0)
    assert not log.is_border(1)


def test_view_of_a_log_with_records_is_that_of_its_store(master: Store) -> None:
    log = StoreLog(ReplicaView(master))
    records = walk_log(master)
    last = records[-1]
    assert (log.start_offset, log.end_offset) == (0, master.end_offset)
    assert log.whole_end == master.end_offset
    assert log.last_record_start == last.physical_offset
    assert log.last_file_start == last.physical_offset // FILE_SIZE * FILE_SIZE >= FILE_SIZE
    assert log.file_end(0) == log.file_end(FILE_SIZE - 1) == FILE_SIZE
    assert log.file_end(FILE_SIZE) == 2 * FILE_SIZE
    log.carry_out(FlushLog())
    assert log.flushed_offset == log.end_offset


def test_borders_are_where_records_and_blanks_begin_and_the_end(master: Store) -> None:
    log = StoreLog(ReplicaView(master))
    records = walk_log(master)
    ends = {each.physical_offset + each.size for each in records}
    borders = {each.physical_offset for each in records} | ends | {log.end_offset}
    for border in borders:
        assert log.is_border(border)
        for beside in (border - 1, border + 1, border + 9):
            assert log.is_border(beside) == (beside in borders), beside
    assert not log.is_border(log.end_offset + 1)


def test_read_gives_immutable_bytes_over_file_borders(master: Store) -> None:
    log = StoreLog(ReplicaView(master))
    found = log.read(FILE_SIZE - 100, 300)
    assert type(found) is bytes
    files = b"".join(Path(path).read_bytes() for path, _, _ in master._files())
    assert found == files[FILE_SIZE - 100 : FILE_SIZE + 200]
    assert log.read(log.end_offset, 0) == b""
    for offset, size in ((log.end_offset, 1), (-1, 1), (0, log.end_offset + 1)):
        with pytest.raises(OffsetOutOfRange):
            log.read(offset, size)


# ---- what is taken off


def test_messages_are_copied_with_a_warning_before_they_are_cut(
    master: Store, caplog: pytest.LogCaptureFixture
) -> None:
    log = StoreLog(ReplicaView(master))
    records = walk_log(master)
    start, stop = records[-5].physical_offset, master.end_offset
    kept = log.read(start, stop - start)
    log.carry_out(SetConfirm(start))
    log.carry_out(TruncateTo(start))
    path = Path(master.path, "cut", f"{start:020}")
    assert path.read_bytes() == kept
    assert f"{stop - start} bytes of messages from {start} to {stop}" in caplog.text
    assert str(path) in caplog.text


def test_cut_of_a_part_of_a_record_keeps_and_says_nothing(
    master: Store, slave: Store, caplog: pytest.LogCaptureFixture
) -> None:
    log = StoreLog(ReplicaView(slave))
    border = walk_log(master)[5].physical_offset
    feed(log, master, until=border)
    log.carry_out(Append(border, master._log_bytes(border, 60)))
    assert log.check() is None
    log.carry_out(TruncateTo(border))
    assert slave.end_offset == border
    assert not Path(slave.path, "cut").exists()
    assert caplog.text == ""


def test_cut_that_cannot_be_copied_is_not_made(master: Store) -> None:
    log = StoreLog(ReplicaView(master))
    start, end = walk_log(master)[-5].physical_offset, master.end_offset
    Path(master.path, "cut").write_bytes(b"")
    with pytest.raises(DiskError):
        log.carry_out(TruncateTo(start))
    assert master.end_offset == end
    Path(master.path, "cut").unlink()
    log.carry_out(TruncateTo(start))
    assert master.end_offset == start


@pytest.mark.parametrize("files", [0, 1, 2, 100])
def test_log_that_is_given_up_leaves_its_last_files_in_a_copy(
    files: int, master: Store, caplog: pytest.LogCaptureFixture
) -> None:
    log = StoreLog(ReplicaView(master), cut_bytes_max=files * FILE_SIZE)
    end = log.end_offset
    assert end > 2 * FILE_SIZE
    first = max((end - files * FILE_SIZE - 1) // FILE_SIZE * FILE_SIZE + FILE_SIZE, 0)
    first = min(first, log.last_file_start)
    kept = log.read(first, end - first)
    log.carry_out(Restart(log.file_end(end)))
    assert Path(master.path, "cut", f"{first:020}").read_bytes() == kept
    assert f"messages from 0 to {end}" in caplog.text


# ---- bytes that come in pieces


@pytest.mark.parametrize("piece", [1009, 4096, 1 << 20])
def test_records_become_whole_over_pieces_of_any_size(
    piece: int, master: Store, slave: Store
) -> None:
    log = StoreLog(ReplicaView(slave))
    ends = [each.physical_offset + each.size for each in walk_log(master)]
    while (at := log.end_offset) < master.end_offset:
        size = min(piece, master.end_offset - at)
        log.carry_out(Append(at, memoryview(master._log_bytes(at, size))))
        assert log.check() is None
        whole = max((each for each in ends if each <= log.end_offset), default=0)
        # A blank counts once its file is whole.
        border = log.end_offset // FILE_SIZE * FILE_SIZE
        assert log.whole_end == max(whole, border)
        assert slave.dispatched_offset == 0
    confirm_all(log)
    assert check_agreement_of_all_kinds(slave) == len(ends)


def test_what_was_put_before_the_gate_is_readable_although_not_dispatched_yet(
    tmp_path: Path,
) -> None:
    with open_store(tmp_path / "store") as store:
        store.put_many([rmqstore.Message("orders", b"%d" % each) for each in range(5000)])
        end = store.end_offset
        log = StoreLog(ReplicaView(store))
        assert log.confirm_offset == end
        assert store.get("orders", offset=4999).body == b"4999"


def test_readers_of_a_gated_slave_see_what_is_confirmed_and_no_more(
    master: Store, slave: Store
) -> None:
    log = StoreLog(ReplicaView(slave))
    feed(log, master)
    assert not any(each.end for each in slave.queues())
    records = walk_log(master)
    for record in records[::11]:
        log.carry_out(SetConfirm(record.physical_offset))
        assert log.confirm_offset == record.physical_offset
        slave.wait_dispatched()
        assert slave.dispatched_offset == record.physical_offset


def test_confirm_offset_inside_of_a_record_counts_up_to_its_beginning(
    master: Store, slave: Store
) -> None:
    log = StoreLog(ReplicaView(slave))
    third = walk_log(master)[2].physical_offset
    feed(log, master, until=third + 50)
    log.carry_out(SetConfirm(third + 50))
    assert log.confirm_offset == third
    slave.wait_dispatched(timeout=60.0)
    assert slave.dispatched_offset == third


def test_readers_of_an_ungated_slave_see_whole_records_at_once(master: Store, slave: Store) -> None:
    log = StoreLog(ReplicaView(slave), is_gated=False)
    feed(log, master, until=master.end_offset - 1)
    assert log.confirm_offset == log.whole_end == walk_log(master)[-1].physical_offset
    slave.wait_dispatched(timeout=60.0)
    assert slave.dispatched_offset == log.whole_end


def test_puts_before_the_bytes_of_a_master_are_not_walked_again(
    master: Store, slave: Store
) -> None:
    copied = StoreLog(ReplicaView(slave))
    feed(copied, master)
    copied.settle()
    slave.put("orders", b"own")
    own_end = slave.end_offset
    # A turned bit that no walk from own_end on can meet.
    flip(slave, 200)
    master.truncate_to(0)
    put_all_kinds(master, 3)
    copied.carry_out(Append(own_end, b"x" * 4))
    assert copied.check() is None
    assert copied.whole_end == own_end


def flip(store: Store, offset: int) -> None:
    path, start, _ = next(each for each in store._files() if each[1] <= offset < each[1] + each[2])
    with open(path, "r+b") as file:
        file.seek(offset - start)
        byte = file.read(1)[0]
        file.seek(offset - start)
        file.write(bytes((byte ^ 1,)))


def test_damage_is_named_with_its_place_and_never_dispatched(master: Store, slave: Store) -> None:
    log = StoreLog(ReplicaView(slave), is_gated=False)

    records = walk_log(master)
    data = bytearray(master._log_bytes(0, 40_000))
    bad = records[7]
    data[bad.physical_offset + 100] ^= 1

    log.carry_out(Append(0, bytes(data)))
    assert log.check() == bad.physical_offset
    assert isinstance(log.damage, CorruptionError)
    assert str(bad.physical_offset) in str(log.damage)
    assert log.check() == bad.physical_offset

    slave.wait_dispatched(timeout=60.0)
    assert slave.dispatched_offset == bad.physical_offset
    assert slave.failure is None

    log.carry_out(TruncateTo(bad.physical_offset))
    assert log.damage is None
    feed(log, master)
    assert check_agreement_of_all_kinds(slave) == len(records)


def test_word_of_somebody_who_checked_is_taken(master: Store, slave: Store) -> None:
    log = StoreLog(ReplicaView(slave), is_gated=False)
    log.carry_out(Append(0, master._log_bytes(0, 40_000)))
    border = walk_log(master)[5].physical_offset
    log.checked(border)
    assert log.whole_end == log.confirm_offset == border
    log.checked(0)
    assert log.whole_end == border


# ---- cuts


def test_cut_takes_half_a_record_at_the_tail_along(master: Store, slave: Store) -> None:
    log = StoreLog(ReplicaView(slave))
    fourth = walk_log(master)[3]
    for size in (1, 7, 50, fourth.size - 1):
        feed(log, master, until=fourth.physical_offset + size)
        assert log.is_border(fourth.physical_offset)
        assert not log.is_border(fourth.physical_offset + size - 1) or size == 1
        log.carry_out(TruncateTo(fourth.physical_offset))
        assert log.end_offset == log.whole_end == fourth.physical_offset
    feed(log, master)
    confirm_all(log)
    assert check_agreement_of_all_kinds(slave) == len(walk_log(master))


def test_confirm_offset_goes_back_only_with_a_cut(master: Store, slave: Store) -> None:
    log = StoreLog(ReplicaView(slave))
    feed(log, master)
    confirm_all(log)
    third = walk_log(master)[2].physical_offset
    log.carry_out(SetConfirm(third))
    assert log.confirm_offset == log.end_offset
    with pytest.raises(ArgumentError, match="only with a cut"):
        log.carry_out(FlushLog())
    log.carry_out(SetConfirm(third))
    log.carry_out(TruncateTo(third))
    assert log.confirm_offset == log.end_offset == third
    feed(log, master)
    slave.wait_dispatched()
    assert log.confirm_offset == slave.dispatched_offset == third


def test_issue_6703_confirm_offset_stays_inside_the_log(master: Store, slave: Store) -> None:
    """The log lost unflushed bytes; the stored confirm offset points past its end."""
    log = StoreLog(ReplicaView(slave))
    second, third = (each.physical_offset for each in walk_log(master)[1:3])
    feed(log, master, until=third)
    for confirmed, shown in ((second, second), (third + 500, third)):
        log.carry_out(SetConfirm(confirmed))
        assert log.confirm_offset == shown
    slave._set_confirm_offset(master.end_offset)
    assert log.confirm_offset == third


class Interrupted:
    """A view of a store to which something happens after the first look at it."""

    def __init__(self, store: ReplicaView, happening: Callable[[], None]) -> None:
        self._store = store
        self._happenings = [happening]

    def __getattr__(self, name: str) -> Any:
        found = getattr(self._store, name)
        if self._happenings:
            self._happenings.pop()()
        return found


def test_confirm_offset_read_while_a_first_replica_joins_is_one_that_was_confirmed(
    master: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    view = ReplicaView(master)
    log = StoreLog(view)
    board, _ = board_of(master, replicas=0, waited=())
    assert log.confirm_offset == master.end_offset
    held: list[int] = []

    def join() -> None:
        held.append(board.freeze())
        master.put("orders", b"not confirmed")

    monkeypatch.setattr(log, "_store", Interrupted(view, join))
    assert [log.confirm_offset] == held
    assert held[0] < master.end_offset


def test_cut_inside_of_a_record_is_refused(master: Store) -> None:
    log = StoreLog(ReplicaView(master))
    end = log.end_offset
    with pytest.raises(OffsetOutOfRange, match="no record begins there"):
        log.carry_out(TruncateTo(walk_log(master)[3].physical_offset + 1))
    assert log.end_offset == end


def test_reader_that_waits_for_what_is_cut_off_waits_no_longer(master: Store) -> None:
    log = StoreLog(ReplicaView(master))
    records = walk_log(master)
    point = records[5].physical_offset
    end = log.end_offset
    master.wait_dispatched()
    log.carry_out(TruncateTo(point))
    # Half a record: nothing behind it can be dispatched.
    log.carry_out(Append(point, b"\0\0\1"))
    master._set_confirm_offset(end)
    waiter = threading.Thread(target=master.wait_dispatched, kwargs={"timeout": 25.0})
    waiter.start()
    log.carry_out(TruncateTo(point))
    waiter.join(60.0)
    assert not waiter.is_alive()


def test_effects_that_are_not_the_logs_are_refused(slave: Store) -> None:
    with pytest.raises(ArgumentError, match="Ack"):
        StoreLog(ReplicaView(slave)).carry_out(Send(Ack(0)))


# ---- beginning again


@pytest.mark.parametrize("has_bytes", [True, False])
@pytest.mark.parametrize("at", [0, 2, 7])
def test_log_that_restarts_is_empty_and_begins_there(
    at: int, has_bytes: bool, master: Store, slave: Store
) -> None:
    log = StoreLog(ReplicaView(slave))
    if has_bytes:
        feed(log, master, until=FILE_SIZE + 5000)
        confirm_all(log)
        slave.wait_dispatched()
    offset = at * FILE_SIZE
    log.carry_out(Restart(offset))
    assert (log.start_offset, log.end_offset, log.whole_end) == (offset,) * 3
    assert (log.confirm_offset, log.flushed_offset) == (offset, offset)
    assert log.last_record_start == offset
    assert [start for _, start, _ in slave._files()] == [offset]
    assert all(queue.start == queue.end for queue in slave.queues())
    assert slave.find("orders", "k0") == []


def test_log_that_restarted_goes_on_with_the_masters_later_files(
    master: Store, slave: Store, tmp_path: Path
) -> None:
    log = StoreLog(ReplicaView(slave))
    feed(log, master, until=5000)
    confirm_all(log)
    log.carry_out(Restart(FILE_SIZE))
    feed(log, master)
    confirm_all(log)
    count = sum(each.physical_offset >= FILE_SIZE for each in walk_log(master))
    assert check_agreement_of_all_kinds(slave) == count
    slave.close()
    with open_store(tmp_path / "slave") as again:
        assert again.start_offset == FILE_SIZE
        assert check_agreement_of_all_kinds(again) == count


def test_log_that_restarts_at_0_counts_its_queues_from_0(
    master: Store, slave: Store, tmp_path: Path
) -> None:
    log = StoreLog(ReplicaView(slave))
    feed(log, master)
    confirm_all(log)
    slave.wait_dispatched()
    log.carry_out(Restart(0))
    log.settle()
    offsets = [slave.put("orders", b"after").queue_offset for _ in range(2)]
    assert offsets == [0, 1]
    slave.close()
    with open_store(tmp_path / "slave") as again:
        bodies = [again.get("orders", offset=each).body for each in offsets]
        assert bodies == [b"after"] * 2


@pytest.mark.parametrize("begins_at", [0, 3])
def test_restart_below_the_end_of_a_log_is_refused_and_touches_nothing(
    begins_at: int, master: Store, slave: Store
) -> None:
    log = StoreLog(ReplicaView(slave))
    log.carry_out(Restart(begins_at * FILE_SIZE))
    if begins_at == 0:
        feed(log, master)
    else:
        log.settle()
        put_all_kinds(slave)
    start, end = log.start_offset, log.end_offset
    assert end > start + FILE_SIZE
    for offset in {FILE_SIZE, start + FILE_SIZE}:
        with pytest.raises(OffsetOutOfRange, match="nothing was given up"):
            log.carry_out(Restart(offset))
    assert (log.start_offset, log.end_offset, log.whole_end) == (start, end, end)


def test_restart_inside_of_a_file_is_refused_and_touches_nothing(
    master: Store, slave: Store
) -> None:
    log = StoreLog(ReplicaView(slave))
    feed(log, master)
    with pytest.raises(OffsetOutOfRange, match="mappedFileSizeCommitLog"):
        log.carry_out(Restart(FILE_SIZE * 9 + 1))
    assert log.end_offset == log.whole_end == master.end_offset


# ---- from slave to master


def test_puts_go_on_behind_what_is_not_confirmed_and_give_no_offset_twice(
    master: Store, slave: Store
) -> None:
    log = StoreLog(ReplicaView(slave))
    last = walk_log(master)[-1]

    feed(log, master, until=last.physical_offset + 30)
    log.settle()
    assert log.end_offset == log.whole_end == last.physical_offset

    taken = next_offsets(slave)
    before = slave.dispatched_offset
    put_all_kinds(slave, 1)
    assert slave.dispatched_offset == before == 0

    first = [each for each in walk_log(slave) if each.physical_offset >= last.physical_offset]
    assert {taken.get((each.topic, each.queue)) for each in first[:3]} == {
        each.queue_offset for each in first[:3]
    }
    assert int(first[3].properties["INNER_MULTI_QUEUE_OFFSET"]) == taken[LIGHT, 0]

    assert log.whole_end == slave.end_offset
    confirm_all(log)
    check_agreement_of_all_kinds(slave)


def test_settled_log_without_a_gate_shows_everything(master: Store, slave: Store) -> None:
    log = StoreLog(ReplicaView(slave), is_gated=False)
    feed(log, master, until=master.end_offset - 5)
    log.settle()
    slave.put("orders", b"own")
    assert log.confirm_offset == log.end_offset == slave.end_offset
    check_agreement_of_all_kinds(slave)
    log.gate()
    assert log.confirm_offset == slave.end_offset


def test_record_that_comes_in_pieces_is_read_by_a_walk_when_it_is_whole(
    master: Store, slave: Store
) -> None:
    first, last = walk_log(master)[0], walk_log(master)[1]
    data = master._log_bytes(0, last.physical_offset + last.size)
    slave.append_raw(0, data[: first.size])
    for at in range(first.size, len(data)):
        slave.append_raw(at, data[at : at + 1])
        found = [each.physical_offset for each in slave.scan_log()]
        assert found == ([0, last.physical_offset] if at == len(data) - 1 else [0])


def test_record_with_a_queue_offset_that_cannot_be_is_damage(master: Store, slave: Store) -> None:
    """No CRC covers it, and the dispatcher would stop there."""
    data = bytearray(master._log_bytes(0, walk_log(master)[0].size))
    data[20:28] = (1 << 40).to_bytes(8)
    log = StoreLog(ReplicaView(slave))
    log.carry_out(Append(0, bytes(data)))
    assert log.check() == 0
    assert "queue offset" in str(log.damage)
