"""Replicas whose changes are cancelled, and replicas that close at any moment."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any

import pytest

from rmqstore import Store
from rmqstore.errors import (
    ArgumentError,
    StoreClosedError,
    StoreTimeout,
)
from rmqstore.net.work_thread import WorkThread
from rmqstore.store.replica_view import ReplicaView
from tests.service.replicas_on_loop import Held, of
from tests.support.waiting import WAIT_S, until

# ---- cancellation


@pytest.mark.parametrize("times", [1, 2])
@pytest.mark.parametrize("way", ["to master", "to slave", "to the next epoch"])
def test_a_change_cancelled_at_any_step_leaves_a_role_or_none_and_can_be_made_again(
    way: str, times: int, stores: Callable[[str], Store], monkeypatch: pytest.MonkeyPatch
) -> None:
    real = WorkThread.run
    at_step: list[Callable[[], None]] = []

    def run_and_tell(worker: WorkThread, function: Callable[[], Any]) -> Any:
        future = real(worker, function)
        for tell in at_step:
            tell()
        return future

    monkeypatch.setattr(WorkThread, "run", run_and_tell)

    async def cancel_at(step: int, change: Awaitable[None]) -> bool:
        """Cancel *change* at its step of that number; return whether it had so many."""
        task = asyncio.ensure_future(change)
        steps = 0

        def tell() -> None:
            nonlocal steps
            steps += 1
            if steps == step:
                for _ in range(times):
                    asyncio.get_running_loop().call_soon(task.cancel)

        at_step.append(tell)
        try:
            await asyncio.wait([task])
        finally:
            at_step.clear()
        return task.cancelled()

    async def run() -> None:
        async with of(stores("a"), 1) as a, of(stores("b"), 2) as b:
            await b.become_master(1)
            b.store.put("orders", b"x")
            epoch, step, was_cancelled = 1, 0, True
            while was_cancelled:
                epoch, step = epoch + 2, step + 1
                assert step < 50
                if way == "to slave":
                    await a.become_master(epoch, others_asked=True)

                    def change(epoch: int = epoch) -> Awaitable[None]:
                        return a.become_slave(b.address or "", epoch + 1)

                else:
                    if way == "to master":
                        await a.become_slave("127.0.0.1:1", epoch)
                    else:
                        await a.become_master(epoch, others_asked=True)

                    def change(epoch: int = epoch) -> Awaitable[None]:
                        return a.become_master(epoch + 1, others_asked=True)

                was_cancelled = await cancel_at(step, change())
                if was_cancelled and times == 1:
                    assert a.role is None or a.status().epoch == epoch + 1
                await change()
                role = "slave" if way == "to slave" else "master"
                assert (a.role, a.status().epoch, a.status().failure) == (role, epoch + 1, None)
                if role == "master":
                    a.store.put("orders", b"x")
            assert step > 3, "it was cancelled at several steps"

    asyncio.run(run())


def test_a_change_cancelled_before_its_turn_changes_nothing(
    stores: Callable[[str], Store], monkeypatch: pytest.MonkeyPatch
) -> None:
    held = Held(monkeypatch, "settle")

    async def run() -> None:
        async with of(stores("a"), 1) as a:
            held.path = a.store.path
            first = asyncio.create_task(a.become_master(1))
            await until(lambda: held.reached, "the step is held")
            second = asyncio.create_task(a.become_master(2))
            third = asyncio.create_task(a.become_slave("127.0.0.1:1", 3))
            await asyncio.sleep(0)
            second.cancel()
            third.cancel()
            held.go_on()
            await first
            for each in (second, third):
                with pytest.raises(asyncio.CancelledError):
                    await each
            assert (a.role, a.epoch) == ("master", 1)

    asyncio.run(run())


def test_opening_that_is_cancelled_leaves_the_store_to_another_replica(
    stores: Callable[[str], Store], monkeypatch: pytest.MonkeyPatch
) -> None:
    held = Held(monkeypatch, "refuse_puts")

    async def run() -> None:
        store = stores("a")
        held.path = store.path
        replica = of(store, 1)

        opening = asyncio.create_task(replica.open())
        await until(lambda: held.reached, "the step is held")
        opening.cancel()
        await asyncio.sleep(0)
        held.go_on()

        with pytest.raises(asyncio.CancelledError):
            await opening

        with pytest.raises(StoreClosedError):
            await replica.become_master(1)
        with pytest.raises(ArgumentError, match="opened before"):
            await replica.open()

        async with of(store, 1) as other:
            await other.become_master(1)

    asyncio.run(run())


def test_a_wait_that_is_cancelled_or_times_out_is_forgotten(
    stores: Callable[[str], Store],
) -> None:
    async def run() -> None:
        async with of(stores("a"), 1) as a:
            with pytest.raises(ArgumentError, match="not a master"):
                await a.wait_in_sync(1)
            await a.become_master(1)
            a.store.put("orders", b"x")
            with pytest.raises(StoreTimeout, match=r"2 copies up to \d+"):
                await a.wait_in_sync(2, timeout=0.01)
            waiting = asyncio.create_task(a.wait_in_sync(2))
            await asyncio.sleep(0)
            waiting.cancel()
            with pytest.raises(asyncio.CancelledError):
                await waiting
            await a.wait_in_sync(1)
            await a.wait_confirmed(timeout=WAIT_S)
            late = asyncio.create_task(a.wait_in_sync(2))
            await asyncio.sleep(0)
        with pytest.raises(StoreClosedError):
            await late

    asyncio.run(run())


# ---- closing


def test_closing_completes_the_change_under_way_and_refuses_the_next(
    stores: Callable[[str], Store], monkeypatch: pytest.MonkeyPatch
) -> None:
    held = Held(monkeypatch, "settle")

    async def run() -> None:
        store = stores("a")
        async with of(store, 1) as a:
            held.path = store.path
            first = asyncio.create_task(a.become_master(1))
            await until(lambda: held.reached, "the step is held")
            second = asyncio.create_task(a.become_master(2))
            closing = [asyncio.create_task(a.close()) for _ in range(2)]
            await asyncio.sleep(0)
            assert not closing[0].done()
            # Closing continues after its caller was cancelled.
            closing[0].cancel()
            held.go_on()
            await asyncio.wait([first, second, *closing])
            assert first.exception() is None or isinstance(first.exception(), StoreClosedError)
            assert isinstance(second.exception(), StoreClosedError)
            assert closing[1].exception() is None
            assert a.role is None
        # A master that closed may continue in its epoch.
        async with of(store, 1) as again:
            await again.become_master(None if first.exception() is None else 1)
            store.put("orders", b"x")

    asyncio.run(run())


def test_closing_does_not_wait_for_the_dispatcher(
    stores: Callable[[str], Store], monkeypatch: pytest.MonkeyPatch
) -> None:
    waits_s: list[float] = []

    def time_out(view: ReplicaView, offset: int, *, timeout: float) -> None:
        waits_s.append(timeout)
        raise StoreTimeout("the dispatcher made no progress")

    monkeypatch.setattr(ReplicaView, "wait_dispatched", time_out)

    async def run() -> None:
        async with of(stores("a"), 1) as a:
            with pytest.raises(StoreTimeout, match="made no progress"):
                await a.become_master(1, timeout=0.01)
            assert a.status().role is None
            change = asyncio.create_task(a.become_master(1, timeout=10 * WAIT_S))
            seen = len(waits_s)
            await until(lambda: len(waits_s) > seen, "it waits for the dispatcher")
            await asyncio.wait_for(a.close(), WAIT_S)
            with pytest.raises(StoreClosedError):
                await change
            # Closing is noticed between two waits, which are short even where the change is not.
            assert max(waits_s) < WAIT_S / 10

    asyncio.run(run())


def test_a_store_that_another_thread_closes_closes_its_replica_first(
    stores: Callable[[str], Store],
) -> None:
    async def run() -> None:
        store = stores("a")
        replica = await of(store, 1).open()
        await replica.become_master(1)
        store.put("orders", b"x")
        await asyncio.to_thread(store.close)
        assert (store.closed, replica.role) == (True, None)
        with pytest.raises(StoreClosedError):
            await replica.become_master(2)
        await replica.close()
        # The end of the role was saved.
        store = stores("a")
        async with of(store, 1) as again:
            await again.become_master()

    asyncio.run(run())


def test_a_store_is_not_closed_on_the_loop_of_its_open_replica(
    stores: Callable[[str], Store],
) -> None:
    async def run() -> None:
        store = stores("a")
        async with of(store, 1) as replica:
            await replica.become_master(1)
            with pytest.raises(ArgumentError, match=r"await the replica's close\(\) first"):
                store.close()
            assert not store.closed
            store.put("orders", b"x")
        store.close()

    asyncio.run(run())


def test_a_store_outlives_the_loop_of_its_replica(
    stores: Callable[[str], Store], caplog: pytest.LogCaptureFixture
) -> None:
    store = stores("a")

    async def run() -> None:
        replica = await of(store, 1, listen=None).open()
        await replica.become_master(1)
        store.put("orders", b"x")

    asyncio.run(run())
    store.close()
    assert "after the event loop of its replica" in caplog.text
