"""The store for asyncio: awaited acknowledgements, followed queues, closing under tasks."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import TypeVar

import pytest

from rmqstore import (
    Durability,
    FlushTimeout,
    InSyncReplicasNotEnough,
    Message,
    StoreClosedError,
    ViewsOpenError,
    aio,
)
from tests.support.agreement import FILES

T = TypeVar("T")
LIMIT_S = 30


def run(path: Path, act: Callable[[aio.AsyncStore], Awaitable[T]]) -> T:
    async def main() -> T:
        async with asyncio.timeout(LIMIT_S):
            async with aio.open(path, **FILES) as store:
                return await act(store)

    return asyncio.run(main())


def test_awaited_put_is_on_the_disk_and_read_back(tmp_path: Path) -> None:
    async def act(store: aio.AsyncStore) -> None:
        receipt = await store.put("orders", b"paid", keys=["o-1"], durability=Durability.DISK)
        assert receipt.durability is Durability.DISK
        assert store.store.flushed_offset >= receipt.end_offset
        assert (await store.get("orders", offset=0)).body == b"paid"
        assert [record.body for record in await store.find("orders", "o-1")] == [b"paid"]

    run(tmp_path, act)


def test_puts_that_wait_together_are_all_acknowledged_in_order(tmp_path: Path) -> None:
    async def act(store: aio.AsyncStore) -> None:
        receipts = await asyncio.gather(
            *(store.put("t", b"%d" % n, durability=Durability.DISK) for n in range(200))
        )
        assert [receipt.queue_offset for receipt in receipts] == list(range(200))
        assert store.store.flushed_offset >= receipts[-1].end_offset

    run(tmp_path, act)


def test_put_many_waits_once_for_all(tmp_path: Path) -> None:
    async def act(store: aio.AsyncStore) -> None:
        messages = [Message("t", b"a"), Message("t", b"b", queue=1)]
        receipts = await store.put_many(messages, durability=Durability.DISK)
        assert {receipt.durability for receipt in receipts} == {Durability.DISK}
        assert store.store.flushed_offset >= receipts[-1].end_offset
        assert await store.put_many([]) == []

    run(tmp_path, act)


def test_put_without_a_wish_takes_the_durability_of_the_store(tmp_path: Path) -> None:
    async def act(store: aio.AsyncStore) -> None:
        assert (await store.put("t", b"x")).durability is Durability.MEMORY
        with pytest.raises(InSyncReplicasNotEnough):
            await store.put("t", b"y", durability=Durability.REPLICATED)
        assert await store.queue("t").bounds() == (0, 1)

    run(tmp_path, act)


def test_put_that_cannot_wait_raises_and_tells_where_the_message_lies(tmp_path: Path) -> None:
    async def act(store: aio.AsyncStore) -> None:
        with pytest.raises(FlushTimeout) as caught:
            await store.put("t", b"x", durability=Durability.DISK, timeout=0)
        assert caught.value.stored is True
        assert getattr(caught.value.receipt, "queue_offset") == 0  # noqa: B009
        assert (await store.get("t", offset=0)).body == b"x"

    run(tmp_path, act)


def test_no_thread_that_waits_for_tasks_outlives_its_store(tmp_path: Path) -> None:
    async def act(store: aio.AsyncStore) -> None:
        together = threading.Barrier(4)

        async def put() -> None:
            together.wait(LIMIT_S)
            await store.put("t", b"x", durability=Durability.DISK)
            await store.wait_dispatched()

        await asyncio.gather(*(asyncio.to_thread(lambda: asyncio.run(put())) for _ in range(4)))

    for number in range(5):
        run(tmp_path / str(number), act)
    assert "rmqstore-dispatched" not in {each.name for each in threading.enumerate()}


def test_follower_sees_what_was_there_and_what_comes(tmp_path: Path) -> None:
    async def act(store: aio.AsyncStore) -> None:
        await store.put_many([b"%d" % n for n in range(3)], topic="t")
        seen: list[bytes] = []
        is_waiting = asyncio.Event()

        async def follow() -> None:
            async for record in store.queue("t").follow("start"):
                seen.append(record.body)
                if len(seen) == 3:
                    is_waiting.set()
                if len(seen) == 300:
                    return

        task = asyncio.create_task(follow())
        await is_waiting.wait()
        for n in range(3, 300):
            await store.put("t", b"%d" % n)
        await task
        assert seen == [b"%d" % n for n in range(300)]

    run(tmp_path, act)


def test_follower_from_the_end_sees_only_what_comes(tmp_path: Path) -> None:
    async def act(store: aio.AsyncStore) -> None:
        await store.put("t", b"old")
        followed = store.queue("t").follow()
        first = asyncio.ensure_future(anext(followed))
        while not first.done():
            await store.put("t", b"new")
            await asyncio.sleep(0)  # the follower's turn
        assert (await first).body == b"new"

    run(tmp_path, act)


def test_records_between_two_offsets(tmp_path: Path) -> None:
    async def act(store: aio.AsyncStore) -> list[bytes]:
        await store.put_many([b"%d" % n for n in range(700)], topic="t")
        return [record.body async for record in store.queue("t").records(5, 600)]

    assert run(tmp_path, act) == [b"%d" % n for n in range(5, 600)]


def test_closing_ends_a_follower_and_fails_a_waiting_task(tmp_path: Path) -> None:
    async def main() -> None:
        async with asyncio.timeout(LIMIT_S):
            store = aio.open(tmp_path, **FILES)
            async with store:
                await store.put("t", b"x")
                followed = [record async for record in first_then_close(store)]
            await asyncio.gather(*closings)
            assert followed == [b"x"]
            with pytest.raises(StoreClosedError):
                await store.put("t", b"y")

    async def first_then_close(store: aio.AsyncStore):  # type: ignore[no-untyped-def]
        async for record in store.queue("t").follow("start"):
            yield record.body
            closing = asyncio.create_task(store.close())
            await asyncio.sleep(0)  # its turn: closing has begun when the follower goes on
            closings.append(closing)

    closings: list[asyncio.Task[None]] = []
    asyncio.run(main())


def test_store_that_views_keep_open_takes_puts_as_before(tmp_path: Path) -> None:
    async def act(store: aio.AsyncStore) -> None:
        receipt = await store.put("t", b"x", durability=Durability.DISK)
        await store.wait_dispatched()
        with store.store.queue("t").scan() as scan:
            view = next(scan).body_view
        with pytest.raises(ViewsOpenError):
            await store.close()
        view.release()
        again = await store.put("t", b"y", durability=Durability.DISK)
        assert again.physical_offset == receipt.end_offset

    run(tmp_path, act)


def test_store_is_not_open_outside_of_its_block(tmp_path: Path) -> None:
    with pytest.raises(StoreClosedError, match="async with"):
        _ = aio.open(tmp_path).store
