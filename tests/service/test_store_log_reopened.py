"""The log of a store as replication finds it again: its epochs, and what readers may see of it."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import pytest

import rmqstore
from rmqstore import CorruptionError, DiskError, Store, StoreError
from rmqstore.epochs import EpochList, format_epochs
from rmqstore.replication.protocol.events import PromiseConfirm, SaveEpochs, SetConfirm, TruncateTo
from rmqstore.replication.runtime.log import StoreLog
from rmqstore.store.directory import PROMISE_FILE
from rmqstore.store.replica_view import ReplicaView
from tests.scenarios.store_logs import (
    FILE_SIZE,
    confirm_all,
    entries,
    feed,
    next_offsets,
    open_store,
    put_all_kinds,
)
from tests.service.two_logs import check_agreement_of_all_kinds, master, slave
from tests.support.agreement import walk_log

__all__ = ["master", "slave"]


def epoch_file(store: Store, suffix: str = "") -> Path:
    return Path(store.path, f"epochFileCheckpoint{suffix}")


# ---- epochs


def test_epoch_list_is_written_with_its_copy_and_read_back(master: Store) -> None:
    log = StoreLog(ReplicaView(master))
    made = entries((1, 0), (3, 100))
    log.carry_out(SaveEpochs(made))
    assert log.epochs == made
    for suffix in ("", ".bak"):
        assert epoch_file(master, suffix).read_text() == format_epochs(made)
    assert not epoch_file(master, ".tmp").exists()
    log.close()
    assert StoreLog(ReplicaView(master)).epochs == made


def test_epochs_behind_the_end_of_the_log_are_dropped_from_the_files(master: Store) -> None:
    log = StoreLog(ReplicaView(master))
    log.carry_out(SaveEpochs(entries((1, 0), (2, log.end_offset), (3, log.end_offset + 1))))
    log.close()
    again = StoreLog(ReplicaView(master))
    assert again.epochs == entries((1, 0), (2, again.end_offset))
    assert epoch_file(master).read_text() == format_epochs(tuple(again.epochs))


def test_damaged_epoch_file_gives_way_to_its_copy(master: Store) -> None:
    log = StoreLog(ReplicaView(master))
    log.carry_out(SaveEpochs(entries((1, 0))))
    log.close()
    epoch_file(master).write_bytes(b"\xff1\n")
    again = StoreLog(ReplicaView(master))
    assert again.epochs == entries((1, 0))
    again.close()
    epoch_file(master, ".bak").write_text("")
    with (
        ReplicaView(master) as view,
        pytest.raises(CorruptionError, match="epoch file") as refused,
    ):
        StoreLog(view)
    assert refused.value.path == str(epoch_file(master))
    assert str(epoch_file(master)) in str(refused.value)


def test_copy_of_the_epochs_that_a_death_left_behind_is_mended_at_the_next_start(
    master: Store,
) -> None:
    log = StoreLog(ReplicaView(master))
    log.carry_out(SaveEpochs(entries((1, 0))))
    behind = epoch_file(master, ".bak").read_text()
    log.carry_out(SaveEpochs(entries((1, 0), (2, 100))))
    log.close()
    epoch_file(master, ".bak").write_text(behind)
    StoreLog(ReplicaView(master)).close()
    epoch_file(master).write_text("damaged")
    assert StoreLog(ReplicaView(master)).epochs == entries((1, 0), (2, 100))


def test_epochs_of_expired_files_go(master: Store) -> None:
    log = StoreLog(ReplicaView(master))
    made = entries((1, 0), (2, 100), (3, FILE_SIZE), (4, FILE_SIZE + 1))
    log.carry_out(SaveEpochs(made))
    confirm_all(log)
    master.expire_files(1)
    assert log.start_offset == FILE_SIZE
    assert log.epochs == made[1:]
    assert EpochList(made[1:]).entries == log.epochs
    assert epoch_file(master, ".bak").read_text() == format_epochs(made[1:])
    log.close()
    master.expire_files(1)
    assert epoch_file(master).read_text() == format_epochs(made[1:])


def test_epoch_list_that_cannot_be_written_changes_nothing(master: Store) -> None:
    log = StoreLog(ReplicaView(master))
    log.carry_out(SaveEpochs(entries((1, 0))))
    epoch_file(master, ".tmp").mkdir()
    with pytest.raises(DiskError):
        log.carry_out(SaveEpochs(entries((1, 0), (2, 5))))
    assert log.epochs == entries((1, 0))
    assert epoch_file(master).read_text() == format_epochs(log.epochs)
    os.rmdir(epoch_file(master, ".tmp"))
    log.carry_out(SaveEpochs(entries((1, 0), (2, 5))))
    assert log.epochs == entries((1, 0), (2, 5))


def test_epoch_file_in_a_folder_that_cannot_be_read_is_said(master: Store) -> None:
    epoch_file(master).mkdir()
    with pytest.raises(StoreError, match="cannot read"):
        StoreLog(ReplicaView(master))


# ---- opening again


@pytest.mark.parametrize("how", ["closed", "abandoned"])
def test_replica_that_starts_again_shows_nothing_unconfirmed(
    how: str, master: Store, slave: Store, tmp_path: Path
) -> None:
    log = StoreLog(ReplicaView(slave))
    log.carry_out(SaveEpochs(entries((1, 0))))

    records = walk_log(master)
    confirmed = records[20].physical_offset
    feed(log, master)
    log.carry_out(SetConfirm(confirmed))

    slave.wait_dispatched()
    slave.flush()

    if how == "closed":
        slave.close()
    else:
        slave.abandon()

    with open_store(tmp_path / "slave") as again:
        assert again.recovery.was_closed == (how == "closed")
        assert again.end_offset == master.end_offset
        assert again.confirm_offset == again.dispatched_offset == confirmed

        log = StoreLog(ReplicaView(again))
        assert log.confirm_offset == confirmed
        assert log.whole_end == master.end_offset

        log.settle()
        taken = next_offsets(again)
        receipt = again.put("orders", b"own")
        assert receipt.queue_offset == taken["orders", 0]

        confirm_all(log)
        check_agreement_of_all_kinds(again)
        again.flush()
        again.put("orders", b"unconfirmed")

    with open_store(tmp_path / "slave", keep_confirm_offset=False) as plain:
        check_agreement_of_all_kinds(plain)


def test_replica_closed_with_half_a_record_at_its_end_opens_without_it(
    master: Store, slave: Store, tmp_path: Path
) -> None:
    log = StoreLog(ReplicaView(slave))
    log.carry_out(SaveEpochs(entries((1, 0))))
    records = walk_log(master)
    feed(log, master, until=records[30].physical_offset + 70)
    log.carry_out(SetConfirm(records[9].physical_offset))
    slave.close()
    with open_store(tmp_path / "slave") as again:
        assert again.recovery.was_closed
        log = StoreLog(ReplicaView(again))
        assert log.end_offset == log.whole_end == records[30].physical_offset
        feed(log, master)
        confirm_all(log)
        assert check_agreement_of_all_kinds(again) == len(records)


def test_confirm_offset_that_is_no_border_holds_back_the_record_it_is_in(
    master: Store, tmp_path: Path
) -> None:
    third = walk_log(master)[2].physical_offset
    end = master.end_offset
    StoreLog(ReplicaView(master)).carry_out(SaveEpochs(entries((1, 0))))
    master._set_confirm_offset(third + 5)
    master.flush()
    master.abandon()
    with open_store(tmp_path / "master") as again:
        assert again.dispatched_offset == third
        again._set_confirm_offset(end)
        check_agreement_of_all_kinds(again)
        assert again.failure is None


@pytest.mark.parametrize("how", ["put at once", "put after a cut to 0"])
def test_replica_that_dies_before_anything_is_confirmed_shows_nothing_when_it_opens_again(
    how: str, tmp_path: Path
) -> None:
    with open_store(tmp_path / "new") as store:
        log = StoreLog(ReplicaView(store))
        if how != "put at once":
            store.put("orders", b"confirmed")
            confirm_all(log)
            log.carry_out(SetConfirm(0))
            log.carry_out(TruncateTo(0))
        log.carry_out(SaveEpochs(entries((1, 0))))
        store.put("orders", b"unconfirmed")
        store.abandon()
    for _ in range(2):
        with open_store(tmp_path / "new") as again:
            assert again.dispatched_offset == 0 < again.end_offset
            assert again.queue("orders").end == 0
            assert StoreLog(ReplicaView(again)).confirm_offset == 0
            again.abandon()
    with open_store(tmp_path / "new", keep_confirm_offset=False) as shown:
        assert shown.get("orders", offset=0).body == b"unconfirmed"


def test_master_whose_readers_see_everything_shows_it_again_after_it_died(tmp_path: Path) -> None:
    with open_store(tmp_path / "new") as store:
        StoreLog(ReplicaView(store)).close()
        log = StoreLog(ReplicaView(store), is_gated=False)
        log.settle()
        log.carry_out(SaveEpochs(entries((1, 0))))
        store.put("orders", b"seen")
        assert store.get("orders", offset=0).body == b"seen"
        store.abandon()
    with open_store(tmp_path / "new") as again:
        assert again.get("orders", offset=0).body == b"seen"


def test_store_without_epochs_shows_everything_unless_asked(master: Store, tmp_path: Path) -> None:
    third = walk_log(master)[2].physical_offset
    master._set_confirm_offset(third)
    master.close()
    with open_store(tmp_path / "master", keep_confirm_offset=True) as held:
        assert held.confirm_offset == third
    with rmqstore.open(tmp_path / "master", read_only=True) as reader:
        assert reader.confirm_offset == reader.end_offset
    with open_store(tmp_path / "master") as shown:
        assert shown.confirm_offset == shown.end_offset
        check_agreement_of_all_kinds(shown)


# ---- the promise


def reopened(path: Path, **options: Any) -> tuple[bool, int]:
    """Return whether the log at *path* is promised, and how far."""
    keep = options.pop("keep_confirm_offset", True)
    with (
        open_store(path, keep_confirm_offset=keep) as store,
        StoreLog(ReplicaView(store), **options) as log,
    ):
        return log.is_promised, log.promised_offset


@pytest.fixture
def half(tmp_path: Path) -> tuple[Path, int, int]:
    """Return a store with an epoch whose log is promised up to its confirm offset: the path, the
    offset, and the log's end."""
    path = tmp_path / "half"
    with open_store(path) as store:
        store._set_confirm_offset(0)
        log = StoreLog(ReplicaView(store))
        log.carry_out(SaveEpochs(entries((1, 0))))
        put_all_kinds(store, 4)
        confirmed = walk_log(store)[7].physical_offset
        log.carry_out(SetConfirm(confirmed))
        assert (log.is_promised, log.promised_offset) == (False, 0)
        log.carry_out(PromiseConfirm(is_promise=True))
        assert (log.is_promised, log.promised_offset) == (True, confirmed)
        end = store.end_offset
        log.close()
    return path, confirmed, end


def test_promise_is_the_confirm_offset_after_a_restart(half: tuple[Path, int, int]) -> None:
    path, confirmed, _ = half
    assert reopened(path) == (True, confirmed)


def test_promise_outlives_confirm_offsets_that_promise_nothing(
    half: tuple[Path, int, int],
) -> None:
    path, confirmed, end = half
    with open_store(path) as store, StoreLog(ReplicaView(store)) as log:
        log.carry_out(PromiseConfirm(is_promise=False))
        log.carry_out(SetConfirm(end))
        assert (log.confirm_offset, log.promised_offset) == (end, confirmed)
    assert reopened(path) == (False, confirmed)
    assert reopened(path, is_gated=False) == (False, confirmed)


def test_log_that_is_cut_below_its_promise_is_promised_up_to_the_cut(
    half: tuple[Path, int, int],
) -> None:
    path, confirmed, _ = half
    with open_store(path) as store, StoreLog(ReplicaView(store)) as log:
        log.carry_out(PromiseConfirm(is_promise=False))
        lower = walk_log(store)[3].physical_offset
        log.carry_out(SetConfirm(lower))
        log.carry_out(TruncateTo(lower))
        put_all_kinds(store, 4)
        assert log.promised_offset == lower < confirmed < store.end_offset
    assert reopened(path) == (False, lower)


def test_store_that_went_on_alone_is_promised_nothing(half: tuple[Path, int, int]) -> None:
    path, _, _ = half
    assert reopened(path, keep_confirm_offset=False) == (False, 0)
    assert reopened(path) == (False, 0)


def test_promise_that_cannot_be_read_is_taken_for_the_confirm_offset(
    half: tuple[Path, int, int],
) -> None:
    path, confirmed, _ = half
    (path / PROMISE_FILE).write_bytes(b"\xff7\n")
    assert reopened(path) == (True, confirmed)
