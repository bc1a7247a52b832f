"""Puts that wait for copies: every verb, every outcome, with a board driven by hand."""

from __future__ import annotations

import gc
import select
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest

import rmqstore
from rmqstore import (
    ArgumentError,
    Durability,
    InSyncReplicasNotEnough,
    Message,
    NotWritable,
    PageCacheBusy,
    Receipt,
    ReplicaTimeout,
    StoreClosedError,
)
from rmqstore._native.core import AckBoard, AckInbox, place_records
from rmqstore.config import FlushDiskType
from rmqstore.message import PutStatus
from rmqstore.replication.protocol.frames import Ack, Transfer, encode
from tests.service.pumps import EPOCH, Bench, bench, frames_of, receive, until
from tests.support.agreement import FILES
from tests.support.boards import LIMIT_S, Follower, board_of
from tests.support.waiting import spin_until

__all__ = ["bench"]


def until_waiting(board: AckBoard, puts: int = 1) -> None:
    spin_until(lambda: board.waiting == puts, f"{puts} puts that wait", timeout=LIMIT_S)


Put = Callable[[rmqstore.Store], Any]
PUTS: dict[str, Put] = {
    "one": lambda store: [store.put("t", b"x", durability=Durability.REPLICATED)],
    "large": lambda store: [store.put("t", bytes(70_000), durability=Durability.REPLICATED)],
    "message": lambda store: [store.put(Message("t", b"x"), durability=Durability.REPLICATED)],
    "many": lambda store: store.put_many([b"x", b"y"], topic="t", durability=Durability.REPLICATED),
    "batch": lambda store: store.put_batch(
        [Message("t", b"x"), Message("t", b"y")], durability=Durability.REPLICATED
    ),
}


@pytest.mark.parametrize("verb", PUTS)
def test_put_of_each_kind_returns_when_its_copies_are_there_and_can_be_read(
    tmp_path: Path, verb: str
) -> None:
    with rmqstore.open(tmp_path, **{**FILES, "commit_log_file_size_bytes": 1 << 20}) as store:
        board, slots = board_of(store)
        with Follower(store, board, slots[0]):
            receipts = PUTS[verb](store)
        for receipt in receipts:
            assert (receipt.durability, receipt.copies) == (Durability.REPLICATED, 2)
            assert store.get("t", offset=receipt.queue_offset).body
        assert board.confirm_offset == receipts[-1].end_offset
        assert "copies=2" in repr(receipts[0])


def test_inner_batch_waits_for_its_copies(store: rmqstore.Store) -> None:
    store.create_topic("b", attributes={"queue.type": "BatchCQ"})
    board, slots = board_of(store)
    with Follower(store, board, slots[0]):
        receipts = store.put_batch([Message("b", b"x"), Message("b", b"y")], copies=2)
    assert [receipt.copies for receipt in receipts] == [2, 2]


@pytest.mark.parametrize("verb", PUTS)
def test_put_without_enough_replicas_is_refused_and_stores_nothing(
    store: rmqstore.Store, verb: str
) -> None:
    board_of(store, status=PutStatus.IN_SYNC_REPLICAS_NOT_ENOUGH, reason="1 of the 2 are in sync")
    with pytest.raises(InSyncReplicasNotEnough, match="1 of the 2 are in sync") as caught:
        PUTS[verb](store)
    assert (caught.value.stored, caught.value.receipt, store.end_offset) == (False, None, 0)


@pytest.mark.parametrize("verb", PUTS)
def test_put_whose_copies_do_not_come_is_stored_and_says_so(tmp_path: Path, verb: str) -> None:
    with rmqstore.open(tmp_path, **{**FILES, "commit_log_file_size_bytes": 1 << 20}) as store:
        board, _ = board_of(store, timeout_ms=1)
        with pytest.raises(ReplicaTimeout, match="1 of 2 copies") as caught:
            PUTS[verb](store)
        assert caught.value.status == PutStatus.FLUSH_SLAVE_TIMEOUT
        found = caught.value.receipt
        receipt: Any = found[-1] if isinstance(found, list) else found
        assert (receipt.durability, receipt.copies) == (Durability.MEMORY, 1)
        assert receipt.end_offset == store.end_offset
        assert (board.waiting, board.confirm_offset) == (0, 0)


def test_put_in_vain_for_replicas_that_are_not_there_is_told_so(store: rmqstore.Store) -> None:
    board_of(store, available=1)
    with pytest.raises(ReplicaTimeout) as caught:
        store.put("t", b"x", copies=2, timeout=0)
    assert caught.value.status == PutStatus.SLAVE_NOT_AVAILABLE


def test_number_of_copies_asked_for_takes_the_place_of_the_rule(store: rmqstore.Store) -> None:
    board, slots = board_of(store, confirm_copies=1)
    assert store.put("t", b"x", copies=1).durability is Durability.REPLICATED
    with ThreadPoolExecutor(1) as pool, Follower(store, board, slots[0]):
        put = pool.submit(store.put, "t", b"x", copies=3)
        until_waiting(board)
        spin_until(lambda: board.acks()[slots[0]][0] == store.end_offset, "its second copy")
        board.abandon()
        with pytest.raises(ReplicaTimeout, match="2 of 3 copies"):
            put.result(LIMIT_S)
        board.thaw(counted=slots, copies=2)
    with Follower(store, board, slots[0]), Follower(store, board, slots[1]):
        assert store.put("t", b"x", copies=3).copies == 3


@pytest.mark.parametrize("copies", [0, -1, 1 << 31])
def test_impossible_number_of_copies_is_no_argument(store: rmqstore.Store, copies: int) -> None:
    board_of(store)
    with pytest.raises(ArgumentError, match="copies"):
        store.put("t", b"x", copies=copies)
    assert store.end_offset == 0


def test_copies_with_another_durability_contradict_each_other(store: rmqstore.Store) -> None:
    board_of(store)
    for put in (store.put, lambda *args, **more: store.put_many(args[1:], topic="t", **more)):
        with pytest.raises(ArgumentError, match="copies=2"):
            put("t", b"x", copies=2, durability=Durability.DISK)
    assert store.end_offset == 0


def test_without_a_board_replication_is_refused(store: rmqstore.Store) -> None:
    for put in PUTS.values():
        with pytest.raises(InSyncReplicasNotEnough, match="no replicas"):
            put(store)
    with pytest.raises(InSyncReplicasNotEnough):
        store.put("t", b"x", copies=1)
    assert store.end_offset == 0


def test_nothing_is_put_once_the_lease_is_over(store: rmqstore.Store) -> None:
    record = store.record_at(store.put("t", b"x").physical_offset).raw
    end = store.end_offset
    board_of(store, lease_end_ms=time.monotonic_ns() // 10**6)
    acts: list[Put] = [
        *PUTS.values(),
        lambda store: store.put("t", b"x"),
        lambda store: store.put("t", b"x", durability=Durability.DISK),
        lambda store: store.put_many([b"x"], topic="t"),
        lambda store: place_records(store, record),
    ]
    for act in acts:
        with pytest.raises(NotWritable, match="lease") as caught:
            act(store)
        assert caught.value.status == PutStatus.SERVICE_NOT_AVAILABLE
    assert store.end_offset == end


def test_put_that_waits_is_not_told_ok_after_the_lease(store: rmqstore.Store) -> None:
    board, slots = board_of(store)
    rule: dict[str, Any] = {"counted": slots, "copies": 2, "confirm_copies": 2}
    with ThreadPoolExecutor(1) as pool:
        put = pool.submit(store.put, "t", b"x", copies=2)
        until_waiting(board)
        board.freeze()
        board.thaw(**rule, lease_end_ms=0)
        board.ack(slots[0], store.end_offset)
        assert board.waiting == 1
        board.freeze()
        board.thaw(**rule)
        assert put.result(LIMIT_S).copies == 2


def test_too_many_puts_that_wait_hold_back_the_next(store: rmqstore.Store) -> None:
    board, slots = board_of(store, waiting_max=1)
    with ThreadPoolExecutor(1) as pool:
        put = pool.submit(store.put, "t", b"x", copies=2)
        until_waiting(board)
        with pytest.raises(PageCacheBusy, match="1 puts wait"):
            store.put("t", b"x", copies=2)
        board.ack(slots[0], store.end_offset)
        put.result(LIMIT_S)


def test_one_acknowledgement_wakes_all_it_completes_and_nobody_is_delayed(
    store: rmqstore.Store,
) -> None:
    board, slots = board_of(store)
    with ThreadPoolExecutor(33) as pool:
        stuck = pool.submit(store.put, "t", b"x", copies=3)
        until_waiting(board)
        puts = [pool.submit(store.put, "t", b"x", copies=2) for _ in range(32)]
        until_waiting(board, 33)
        board.ack(slots[0], store.end_offset)
        assert {put.result(LIMIT_S).copies for put in puts} == {2}
        assert not stuck.done()
        board.ack(slots[1], store.end_offset)
        assert stuck.result(LIMIT_S).copies == 3


def test_end_of_the_role_tells_who_waits_and_no_old_admission_is_worth_anything(
    store: rmqstore.Store,
) -> None:
    board, slots = board_of(store)
    admission = store._admit()

    with ThreadPoolExecutor(1) as pool:
        put = pool.submit(store.put, "t", b"x", copies=2)
        until_waiting(board)
        board.abandon()
        with pytest.raises(ReplicaTimeout) as caught:
            put.result(LIMIT_S)

    assert caught.value.status == PutStatus.FLUSH_SLAVE_TIMEOUT
    with pytest.raises(NotWritable, match="no longer master"):
        store.put("t", b"x", copies=2)

    board.thaw(counted=slots, copies=2)
    board.ack(slots[0], store.end_offset)

    inbox = AckInbox()
    wait = board.begin(inbox, admission, store.end_offset, None)
    assert inbox.take() == [wait]
    assert (wait.status, wait.copies) == (PutStatus.FLUSH_SLAVE_TIMEOUT, 2)
    assert board.wait(store.end_offset) == (PutStatus.PUT_OK, 2)


def test_closing_the_store_lets_nobody_wait_on(tmp_path: Path) -> None:
    store = rmqstore.open(tmp_path, **FILES)
    board, slots = board_of(store, timeout_ms=LIMIT_S * 1000)
    with ThreadPoolExecutor(1) as pool:
        put = pool.submit(store.put, "t", b"x", copies=2)
        until_waiting(board)
        store.close()
        with pytest.raises(ReplicaTimeout):
            put.result(LIMIT_S)
    assert store._board is None
    for act in (board.open_slot, board.acks, board.freeze, board.abandon, board.thaw):
        with pytest.raises(StoreClosedError):
            act()
    with pytest.raises(StoreClosedError):
        board.ack(slots[0], 0)


def test_store_that_flushes_every_message_has_it_on_the_disk_as_well(tmp_path: Path) -> None:
    with rmqstore.open(tmp_path, **FILES, flush_disk_type=FlushDiskType.SYNC_FLUSH) as store:
        board, slots = board_of(store)
        with Follower(store, board, slots[0]):
            receipt = store.put("t", b"x", copies=2)
        assert receipt.durability is Durability.REPLICATED
        assert store.flushed_offset >= receipt.end_offset
        with pytest.raises(ReplicaTimeout) as caught:
            store.put("t", b"x", copies=3, timeout=0.2)
        assert isinstance(caught.value.receipt, Receipt)
        assert caught.value.receipt.durability is Durability.DISK


def test_unreplicated_puts_are_confirmed_by_copies_alone(store: rmqstore.Store) -> None:
    board, slots = board_of(store)
    receipt = store.put("t", b"x")
    assert (board.confirm_offset, receipt.copies) == (0, 1)
    board.ack(slots[1], receipt.end_offset)
    assert board.confirm_offset == receipt.end_offset
    assert store.get("t", offset=0).body == b"x"


def test_master_alone_confirms_what_it_has_without_being_told(store: rmqstore.Store) -> None:
    board, slots = board_of(store, confirm_copies=1)
    receipt = store.put("t", b"x")
    assert board.confirm_offset == store.confirm_offset == receipt.end_offset
    assert board.freeze() == receipt.end_offset
    later = store.put("t", b"y")
    assert board.confirm_offset == receipt.end_offset
    board.thaw(counted=slots, confirm_copies=2)
    assert board.confirm_offset == receipt.end_offset
    board.ack(slots[0], later.end_offset)
    assert board.confirm_offset == later.end_offset


def test_board_of_a_former_role_that_goes_late_holds_nothing_back(store: rmqstore.Store) -> None:
    former, _ = board_of(store)
    former.abandon()
    board, _ = board_of(store, confirm_copies=1)
    store.put("t", b"x")
    del former
    gc.collect()
    receipt = store.put("t", b"y")
    assert board.confirm_offset == store.confirm_offset == receipt.end_offset


def test_confirm_offset_of_a_master_is_in_its_checkpoint(store: rmqstore.Store) -> None:
    board, slots = board_of(store)
    first = store.put("t", b"x")
    store.put("t", b"y")
    board.ack(slots[0], first.end_offset)
    store.flush()
    assert store._checkpoint()["confirm_offset"] == first.end_offset


def test_rule_with_a_slot_that_is_not_open_changes_nothing(store: rmqstore.Store) -> None:
    board, slots = board_of(store)
    board.close_slot(slots[0])
    with pytest.raises(ArgumentError, match="not open"):
        board.thaw(counted=slots)
    with pytest.raises(ArgumentError):
        board.thaw(counted=range(1025))
    assert board.acks() == {slots[1]: (-1, -1)}


# -- with a pump


@pytest.mark.parametrize("by", ["flush", "rule"])
def test_slave_is_told_at_once_of_what_is_confirmed_by_no_acknowledgement(
    bench: Bench, by: str
) -> None:
    store = bench.store(10, 700, flush_commit_log_interval_ms=60_000)
    end = store.end_offset
    store._set_confirm_offset(100)

    board = AckBoard(store)
    slot = board.open_slot()
    rule: dict[str, Any] = {"counted": [slot], "is_flushed": by == "flush"}
    board.thaw(**rule, confirm_copies=2 if by == "flush" else 3)

    ours, peer = bench.sockets()
    pump = bench.pump(store, board)
    link = pump.stream(ours.fileno(), kind="transfer", next_offset=0, slot=slot, **EPOCH)
    receive(peer, len(frames_of(store)))

    peer.sendall(encode(Ack(end)))
    until(pump, link, lambda now: now.acked_offset == end)

    poller = select.poll()
    poller.register(peer, select.POLLIN)
    assert not poller.poll(100), "told of what is not confirmed"

    if by == "flush":
        store.flush()
    else:
        board.freeze()
        board.thaw(**rule, confirm_copies=2)

    assert receive(peer, 36) == encode(Transfer(end, 3, 0, end))
