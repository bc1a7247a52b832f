"""Puts that wait for copies later, many at once: their own outcomes, the end of a role, closing."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

import rmqstore
from rmqstore import Durability, PutStatus, ReplicaTimeout, StoreClosedError, aio
from rmqstore.config import FlushDiskType
from rmqstore.replication import Master, Quorum, Slave
from tests.support.agreement import FILES
from tests.support.boards import LIMIT_S, Follower, board_of
from tests.support.loops import on_loop
from tests.support.waiting import WAIT_S, spin_until, until


@pytest.fixture
def store(tmp_path: Path) -> Iterator[rmqstore.Store]:
    with rmqstore.open(tmp_path / "store", **FILES) as opened:
        yield opened


@pytest.mark.parametrize("flush", FlushDiskType)
def test_handles_get_their_copies(tmp_path: Path, flush: FlushDiskType) -> None:
    with rmqstore.open(tmp_path, flush_disk_type=flush, **FILES) as store:
        board, slots = board_of(store)
        with Follower(store, board, slots[0]):
            handles = [store.put_async("t", b"x", copies=2) for _ in range(100)]
            receipts = store.wait(handles, timeout=LIMIT_S)
        assert {receipt.copies for receipt in receipts} == {2}
        assert {receipt.durability for receipt in receipts} == {Durability.REPLICATED}
        assert {handle.status for handle in handles} == {PutStatus.PUT_OK}
        if flush is FlushDiskType.SYNC_FLUSH:
            assert store.flushed_offset >= receipts[-1].end_offset


def test_each_handle_has_the_outcome_of_its_own_copies(store: rmqstore.Store) -> None:
    board, slots = board_of(store)
    first, second, third = (store.put_async("t", b"x", copies=n) for n in (2, 3, 2))
    board.ack(slots[0], first.receipt.end_offset)
    with pytest.raises(ReplicaTimeout, match="1 of 3 copies") as caught:
        store.wait([first, second, third], timeout=0.01)
    assert caught.value.receipt is second.receipt
    assert [handle.status for handle in (first, second, third)] == [PutStatus.PUT_OK, None, None]
    assert board.waiting == 0
    for slot in slots:
        board.ack(slot, store.end_offset)
    assert [each.copies for each in store.wait([second, third])] == [3, 3]


def test_one_wait_for_copies_serves_all_handles(store: rmqstore.Store) -> None:
    board, slots = board_of(store)
    handles = [store.put_async("t", b"x", copies=2) for _ in range(50)]
    handles.append(store.put_async("t", b"x", durability=Durability.DISK))
    with ThreadPoolExecutor(1) as pool:
        waiting = pool.submit(store.wait, handles, timeout=LIMIT_S)
        spin_until(lambda: board.waiting, "the wait begins")
        assert board.waiting == 1
        assert not handles[0].done
        board.ack(slots[0], store.end_offset)
        receipts = waiting.result(LIMIT_S)
    assert {receipt.copies for receipt in receipts[:-1]} == {2}
    assert receipts[-1].durability is Durability.DISK


def test_handles_of_a_role_that_has_ended_are_not_acknowledged(store: rmqstore.Store) -> None:
    board, slots = board_of(store)
    replicated = store.put_async("t", b"x", copies=2)
    on_disk = store.put_async("t", b"x", durability=Durability.DISK)
    board.ack(slots[0], store.end_offset)
    board.abandon()
    for handle in (replicated, on_disk):
        for _ in range(2):
            with pytest.raises(ReplicaTimeout, match="role or lease") as caught:
                handle.result(timeout=1)
            assert caught.value.stored is True
        assert (handle.done, handle.status) == (False, None)


def test_dropped_handles_wait_on_no_board(store: rmqstore.Store) -> None:
    board, _ = board_of(store, waiting_max=10)
    for _ in range(100):
        store.put_async("t", b"x", copies=2)
    assert board.waiting == 0


def test_handles_waited_for_while_the_store_closes_raise(store: rmqstore.Store) -> None:
    board, _ = board_of(store)
    handle = store.put_async("t", b"x", copies=2)
    with ThreadPoolExecutor(1) as pool:
        waiting = pool.submit(handle.result, LIMIT_S)
        spin_until(lambda: board.waiting, "the wait begins")
        store.close()
        with pytest.raises(ReplicaTimeout):
            waiting.result(LIMIT_S)
    with pytest.raises(StoreClosedError):
        handle.result()


@on_loop
async def test_tasks_wait_for_the_copies_of_handles(tmp_path: Path) -> None:
    async with aio.open(tmp_path, **FILES) as store:
        board, slots = board_of(store.store)
        first, *handles = [store.put_async("t", b"x", copies=2) for _ in range(50)]
        waiting = asyncio.create_task(store.wait([first, *handles], timeout=LIMIT_S))
        await until(lambda: board.waiting, "the wait begins")
        assert board.waiting == 1
        board.ack(slots[0], first.receipt.end_offset)
        assert first.done
        board.ack(slots[0], store.store.end_offset)
        assert {receipt.copies for receipt in await waiting} == {2}

        late = store.put_async("t", b"x", copies=2)
        with pytest.raises(ReplicaTimeout, match="1 of 2 copies"):
            await store.wait([late, first], timeout=0.01)
        cancelled = asyncio.create_task(store.wait([late]))
        await until(lambda: board.waiting, "the wait begins")
        cancelled.cancel()
        with pytest.raises(asyncio.CancelledError):
            await cancelled
        assert (board.waiting, late.done) == (0, False)


@on_loop
async def test_tasks_get_the_copies_that_a_board_saw_before_it_was_frozen(tmp_path: Path) -> None:
    async with aio.open(tmp_path, **FILES) as store:
        board, slots = board_of(store.store)
        handles = [store.put_async("t", b"x", copies=2) for _ in range(3)]
        waiting = asyncio.create_task(store.wait(handles, timeout=LIMIT_S))
        await until(lambda: board.waiting, "the wait begins")
        board.ack(slots[0], store.store.end_offset)
        board.freeze()
        assert [receipt.copies for receipt in await waiting] == [2, 2, 2]


def test_handles_of_a_master_wait_for_its_slave(tmp_path: Path) -> None:
    with (
        rmqstore.open(tmp_path / "master", **FILES) as store,
        Master(store, listen="127.0.0.1:0", quorum=Quorum(in_sync=2)) as master,
        rmqstore.open(tmp_path / "slave", **FILES) as copy,
        Slave(copy, master=master.address, broker_id=2),
    ):
        master.wait_in_sync(2, timeout=WAIT_S)
        handles = [
            store.put_async("t", b"%d" % n, durability=Durability.REPLICATED) for n in range(200)
        ]
        receipts = store.wait(handles, timeout=WAIT_S)
        assert {receipt.copies for receipt in receipts} == {2}
        assert copy.end_offset >= receipts[-1].end_offset
