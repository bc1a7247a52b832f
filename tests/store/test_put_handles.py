"""Puts that are waited for later: handles that are kept, dropped, cancelled, waited for twice, from
other threads, after the store was closed or cut."""

from __future__ import annotations

import asyncio
import gc
import multiprocessing
import os
import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest

import rmqstore
from rmqstore import (
    ArgumentError,
    ArgumentTypeError,
    Durability,
    FlushTimeout,
    InSyncReplicasNotEnough,
    Message,
    MessageRejected,
    PutError,
    PutHandle,
    PutStatus,
    Receipt,
    StoreClosedError,
    aio,
)
from tests.support.agreement import FILES
from tests.support.loops import on_loop
from tests.support.native_store import held_syncs, waiting_for_sync
from tests.support.waiting import WAIT_S, spin_until, until


@pytest.fixture
def store(tmp_path: Path) -> Iterator[rmqstore.Store]:
    with rmqstore.open(tmp_path / "store", **FILES) as opened:
        yield opened


def on_disk(store: rmqstore.Store, count: int = 1) -> list[PutHandle]:
    return [store.put_async("t", b"%d" % n, durability=Durability.DISK) for n in range(count)]


def test_handle_has_its_offsets_at_once_and_its_durability_after_the_wait(
    store: rmqstore.Store,
) -> None:
    first, second = on_disk(store, 2)
    assert (first.receipt.queue_offset, second.receipt.queue_offset) == (0, 1)
    assert second.receipt.physical_offset == first.receipt.end_offset
    assert first.receipt.durability is Durability.MEMORY
    assert (first.durability, first.status) == (Durability.DISK, None)

    receipts = store.wait([second, first])
    assert [receipt.queue_offset for receipt in receipts] == [1, 0]
    assert {receipt.durability for receipt in receipts} == {Durability.DISK}
    assert store.flushed_offset >= second.receipt.end_offset
    assert (first.done, first.status, first.receipt) == (True, PutStatus.PUT_OK, receipts[1])


def test_message_object_is_put_as_by_put(store: rmqstore.Store) -> None:
    handle = store.put_async(Message("t", b"x", tags="a", keys=["k"]), durability=Durability.DISK)
    assert handle.result().durability is Durability.DISK
    found = store.get("t", offset=handle.receipt.queue_offset)
    assert (found.body, found.tags, found.keys) == (b"x", "a", ["k"])
    lazy = store.put_async(Message("t", b"y", wait_store_ok=False))
    assert lazy.done


def test_put_that_asks_for_memory_is_done_at_once(store: rmqstore.Store) -> None:
    handle = store.put_async("t", b"x")
    assert (handle.done, handle.durability) == (True, Durability.MEMORY)
    assert store.wait([handle]) == [handle.receipt]
    assert store.wait([]) == []


def test_refused_put_raises_at_once_and_stores_nothing(store: rmqstore.Store) -> None:
    end = store.end_offset
    with pytest.raises(MessageRejected):
        store.put_async("t", b"x" * (5 << 20), durability=Durability.DISK)
    with pytest.raises(InSyncReplicasNotEnough):
        store.put_async("t", b"x", copies=2)
    assert store.end_offset == end


def test_one_sync_serves_all_handles(store: rmqstore.Store) -> None:
    with ThreadPoolExecutor(1) as pool:
        with held_syncs(store):
            handles = on_disk(store, 100)
            waiting = pool.submit(store.wait, handles, timeout=WAIT_S)
            spin_until(lambda: waiting_for_sync(store) >= 1, "the wait begins")
            assert not any(handle.done for handle in handles)
        assert [each.queue_offset for each in waiting.result(WAIT_S)] == list(range(100))


def test_wait_whose_time_is_up_leaves_the_handle_pending_and_may_be_repeated(
    store: rmqstore.Store,
) -> None:
    with held_syncs(store):
        handles = on_disk(store, 2)
        with pytest.raises(FlushTimeout) as caught:
            store.wait(handles, timeout=0.01)
        assert caught.value.receipt is handles[0].receipt
        assert caught.value.stored is True
        assert [handle.status for handle in handles] == [None, None]
    assert len(store.wait(handles, timeout=WAIT_S)) == 2


def test_handle_waited_for_twice_and_named_twice_gives_the_same_receipt(
    store: rmqstore.Store,
) -> None:
    (handle,) = on_disk(store)
    first, again = store.wait([handle, handle])
    assert first is again is store.wait([handle])[0] is handle.result()


def test_handles_are_waited_for_from_several_threads_at_once(store: rmqstore.Store) -> None:
    threads = 4
    together = threading.Barrier(threads)

    def wait(handles: list[PutHandle]) -> list[Receipt]:
        together.wait(WAIT_S)
        return store.wait(handles, timeout=WAIT_S)

    handles = on_disk(store, 50)
    with ThreadPoolExecutor(threads) as pool:
        found = list(pool.map(wait, [handles] * threads))
    assert all(each == found[0] for each in found)
    assert {each.durability for each in found[0]} == {Durability.DISK}


def test_dropped_handles_leave_nothing_behind_but_their_messages(store: rmqstore.Store) -> None:
    for _ in range(3):
        on_disk(store, 100)
    gc.collect()
    assert not [each for each in gc.get_objects() if isinstance(each, PutHandle)]
    store.wait_flushed()
    assert store.get("t", offset=299).body == b"99"


def test_handle_that_is_pending_when_the_store_closes_raises_and_a_done_one_does_not(
    tmp_path: Path,
) -> None:
    with rmqstore.open(tmp_path, **FILES) as store:
        done, pending = on_disk(store, 2)
        done.result()
        assert not isinstance(pending, Receipt)
        (late,) = on_disk(store)
    assert store.wait([done]) == [done.receipt]
    with pytest.raises(StoreClosedError):
        late.result()
    with pytest.raises(StoreClosedError):
        store.wait([done, late])
    assert (late.done, late.status) == (False, None)


def test_handle_from_before_a_cut_is_never_acknowledged(store: rmqstore.Store) -> None:
    kept = store.put("t", b"kept")
    (handle,) = on_disk(store)
    store.truncate_to(kept.end_offset)
    for _ in range(3):
        store.put("t", b"another", durability=Durability.DISK)
    assert store.flushed_offset >= handle.receipt.end_offset
    with pytest.raises(PutError, match="cut") as caught:
        store.wait([handle])
    assert caught.value.stored is None
    assert handle.status is PutStatus.FLUSH_DISK_TIMEOUT
    with pytest.raises(PutError, match="cut"):
        handle.result()


@pytest.mark.parametrize("wrong", [None, 1, "handles", [None], [b"x"], {"a": 1}])
def test_wrong_handles_are_refused(store: rmqstore.Store, wrong: Any) -> None:
    with pytest.raises(ArgumentTypeError, match="handles"):
        store.wait(wrong)


@pytest.mark.parametrize("timeout", ["1", -1, float("nan"), object()])
def test_wrong_time_limits_are_refused(store: rmqstore.Store, timeout: Any) -> None:
    (handle,) = on_disk(store)
    with pytest.raises(ArgumentError, match="timeout"):
        store.wait([handle], timeout=timeout)
    with pytest.raises(ArgumentError, match="timeout"):
        handle.result(timeout)


def test_handle_of_another_store_is_refused(store: rmqstore.Store, tmp_path: Path) -> None:
    with rmqstore.open(tmp_path / "other", **FILES) as other:
        (handle,) = on_disk(other)
        with pytest.raises(ArgumentError, match="other"):
            store.wait([handle])
        other.wait([handle])
    with pytest.raises(TypeError, match="put_async"):
        PutHandle()


def test_forked_child_cannot_wait(store: rmqstore.Store) -> None:
    done, pending = on_disk(store, 2)
    store.wait([done])
    with held_syncs(store):
        (pending,) = on_disk(store)
        child = multiprocessing.get_context("fork").Process(target=_wait_in_child, args=(pending,))
        child.start()
        child.join(WAIT_S)
        assert child.exitcode == 0
    assert pending.result().durability is Durability.DISK


def _wait_in_child(pending: PutHandle) -> None:
    for act in (lambda: pending.result(), lambda: pending.done):
        try:
            act()
        except StoreClosedError:
            continue
        os._exit(1)
    os._exit(0)


# -- tasks


@on_loop
async def test_tasks_wait_for_handles(tmp_path: Path) -> None:
    async with aio.open(tmp_path, **FILES) as store:
        handles = [store.put_async("t", b"%d" % n, durability=Durability.DISK) for n in range(100)]
        receipts = await store.wait(handles)
        assert [each.queue_offset for each in receipts] == list(range(100))
        assert {each.durability for each in receipts} == {Durability.DISK}
        assert await store.wait(handles) == receipts
        assert await store.wait([]) == []
        with pytest.raises(ArgumentTypeError):
            await store.wait([None])  # type: ignore[list-item]
        with pytest.raises(ArgumentError, match="timeout"):
            await store.wait(handles, timeout=-1)


@on_loop
async def test_cancelled_wait_leaves_the_handles_pending(tmp_path: Path) -> None:
    async with aio.open(tmp_path, **FILES) as store:
        with held_syncs(store.store):
            handles = [store.put_async("t", b"x", durability=Durability.DISK) for _ in range(2)]
            waiting = asyncio.create_task(store.wait(handles))
            put = asyncio.create_task(store.put("t", b"x", durability=Durability.DISK))
            await until(lambda: waiting_for_sync(store.store) >= 1, "the syncer waits")
            for task in (waiting, put):
                task.cancel()
                with pytest.raises(asyncio.CancelledError):
                    await task
            with pytest.raises(FlushTimeout):
                await store.wait(handles, timeout=0.01)
            with pytest.raises(FlushTimeout):
                await store.wait(handles, timeout=0)
        assert len(await store.wait(handles)) == 2


@on_loop
async def test_each_awaited_put_has_its_own_time_limit(tmp_path: Path) -> None:
    async with aio.open(tmp_path, **FILES) as store:
        with held_syncs(store.store):
            patient = asyncio.create_task(
                store.put("t", b"x", durability=Durability.DISK, timeout=float("inf"))
            )
            await until(lambda: waiting_for_sync(store.store) >= 1, "the syncer waits")
            found = await asyncio.gather(
                *(
                    store.put("t", b"x", durability=Durability.DISK, timeout=limit)
                    for limit in (0.02, 0.01, 0)
                ),
                return_exceptions=True,
            )
            assert {type(each) for each in found} == {FlushTimeout}
            assert not patient.done()
        assert (await patient).durability is Durability.DISK


@on_loop
async def test_store_closed_under_tasks_that_wait_for_the_disk_ends_their_waits(
    tmp_path: Path,
) -> None:
    async with aio.open(tmp_path, **FILES) as store:
        opened = store.store
        with held_syncs(opened):
            put = asyncio.create_task(store.put("t", b"x", durability=Durability.DISK))
            handles = [store.put_async("t", b"x", durability=Durability.DISK)]
            wait = asyncio.create_task(store.wait(handles))
            await until(lambda: waiting_for_sync(opened) >= 1, "the syncer waits")
            closing = asyncio.create_task(store.close())
            found = await asyncio.gather(put, wait, return_exceptions=True)
            assert {type(each) for each in found} == {StoreClosedError}
        await closing


@on_loop
async def test_put_from_before_a_cut_is_not_acknowledged_to_its_task(tmp_path: Path) -> None:
    async with aio.open(tmp_path, **FILES) as store:
        kept = await store.put("t", b"kept")
        with held_syncs(store.store):
            put = asyncio.create_task(store.put("t", b"x", durability=Durability.DISK))
            await until(lambda: waiting_for_sync(store.store) >= 1, "the syncer waits")
            store.store.truncate_to(kept.end_offset)
            store.store.put_many([b"another"] * 3, topic="t")
        with pytest.raises(PutError, match="cut"):
            await put


def test_loop_that_is_gone_keeps_neither_descriptor_nor_store(tmp_path: Path) -> None:
    async def put(store: aio.AsyncStore) -> None:
        await store.put("t", b"x", durability=Durability.DISK)

    def descriptors() -> int:
        gc.collect()
        return len(os.listdir("/proc/self/fd"))

    async def main() -> None:
        async with aio.open(tmp_path, **FILES) as store:
            await asyncio.to_thread(asyncio.run, put(store))
            before = descriptors()
            for _ in range(5):
                await asyncio.to_thread(asyncio.run, put(store))
            assert descriptors() <= before + 1

    asyncio.run(main())
