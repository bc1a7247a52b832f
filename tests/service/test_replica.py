"""Replicas on the caller's loop: what they share, steps that never block the loop, misuse."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable
from contextlib import AsyncExitStack, suppress
from typing import Any

import pytest

from rmqstore import Durability, Store
from rmqstore.errors import (
    ArgumentError,
    DiskError,
    Fenced,
    PutError,
    StoreClosedError,
)
from rmqstore.replication import Mode, Quorum, Replica, Status
from rmqstore.store.replica_view import ReplicaView
from tests.service.replicas_on_loop import Held, heartbeat, of
from tests.support.waiting import POLL_S, WAIT_S, until

PAIRS = 10
ROUNDS = 3
TWO = Quorum(in_sync=2, timeout_ms=1000)
SLOW_STEPS = (
    "append_raw",
    "copy_cut",
    "refuse_puts",
    "remove_file",
    "replace_file",
    "restart",
    "settle",
    "truncate_to",
    "wait_dispatched",
    "wait_flushed",
)


# ---- one loop


async def swap(master: Replica, slave: Replica, epoch: int) -> None:
    await slave.wait_caught_up(timeout=WAIT_S)
    await slave.become_master(epoch, others_asked=True)
    await master.become_slave(slave.address or "", epoch)
    await master.wait_caught_up(timeout=WAIT_S)


class Load:
    """A thread that puts to all stores; those that are not writable refuse."""

    def __init__(self, stores: list[Store]) -> None:
        self._stores = stores
        self._is_over = threading.Event()
        self._thread = threading.Thread(target=self._run)
        self.acknowledged: list[tuple[int, bytes]] = []

    def __enter__(self) -> Load:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._is_over.set()
        self._thread.join()

    def _run(self) -> None:
        number = 0
        while not self._is_over.wait(POLL_S):
            for at, store in enumerate(self._stores):
                body = b"%d" % number
                with suppress(PutError):
                    store.put("orders", body, durability=Durability.REPLICATED, timeout=0.2)
                    self.acknowledged.append((at // 2, body))
            number += 1


def test_twenty_replicas_change_roles_under_load_on_one_loop(
    stores: Callable[[str], Store],
) -> None:
    opened = [stores(f"{number}") for number in range(2 * PAIRS)]
    held: list[set[bytes]] = []

    async def run() -> None:
        async with AsyncExitStack() as stack:
            replicas = [
                await stack.enter_async_context(of(store, 1 + at % 2, quorum=TWO))
                for at, store in enumerate(opened)
            ]
            pairs = list(zip(replicas[::2], replicas[1::2], strict=True))
            for a, b in pairs:
                await a.become_master(1)
                # Logs without a common record have no common epoch either.
                a.store.put("orders", b"first")
                await b.become_slave(a.address or "", 1)
                await a.wait_in_sync(2, timeout=WAIT_S)
            async with heartbeat():
                for epoch in range(2, 2 + ROUNDS):
                    await asyncio.gather(*(swap(a, b, epoch) for a, b in pairs))
                    pairs = [(b, a) for a, b in pairs]

                names = [thread.name for thread in threading.enumerate()]
                assert names.count("rmqstore-ha-files") == 2 * PAIRS
                assert "rmqstore-ha" not in names
                assert not [each for each in names if each.startswith("asyncio_")]
                for a, b in pairs:
                    await until(lambda a=a, b=b: a.status().replicas, "the slave is connected")
                    assert (a.role, b.role, a.epochs[-1].epoch) == ("master", "slave", 1 + ROUNDS)
            load.__exit__()
            for a, b in pairs:
                await a.wait_confirmed(timeout=WAIT_S)
                await b.wait_confirmed(a.store.end_offset, timeout=WAIT_S)
                assert a.store.end_offset == b.store.end_offset
        for store in opened:
            held.append({each.body for each in store.queue("orders").records()})

    with Load(opened) as load:
        asyncio.run(run())
    assert load.acknowledged
    missing = [(at, body) for at, body in load.acknowledged if body not in held[2 * at]]
    assert missing == []
    assert held[::2] == held[1::2]


@pytest.mark.parametrize("step", ["replace_file", "refuse_puts", "settle"])
def test_a_disk_that_does_not_answer_one_replica_holds_no_other(
    step: str, stores: Callable[[str], Store], monkeypatch: pytest.MonkeyPatch
) -> None:
    held = Held(monkeypatch, step)

    async def run() -> None:
        async with (
            of(stores("a"), 1) as a,
            of(stores("b"), 1, quorum=TWO) as b,
            of(stores("c"), 2, quorum=TWO) as c,
            heartbeat() as beats,
        ):
            held.path = a.store.path
            if step == "refuse_puts":
                await a.become_master(1)
                change = asyncio.create_task(a.become_slave("127.0.0.1:1", 2))
            else:
                change = asyncio.create_task(a.become_master(1))
            await until(lambda: held.reached, "the step is held")

            await b.become_master(1)
            await c.become_slave(b.address or "", 1)
            for epoch, (master, slave) in enumerate([(b, c), (c, b), (b, c)], 2):
                await swap(master, slave, epoch)
            assert a.status().role is None or step == "refuse_puts"
            at = len(beats)
            await until(lambda: len(beats) > at + 10, "the loop runs")
            assert not change.done()

            held.go_on()
            await change
            assert a.role == ("slave" if step == "refuse_puts" else "master")

    asyncio.run(run())


def test_no_step_of_the_disk_runs_on_the_loop(
    stores: Callable[[str], Store], monkeypatch: pytest.MonkeyPatch
) -> None:
    ran: dict[str, set[str]] = {}

    def recorded(step: str, real: Callable[..., Any]) -> Callable[..., Any]:
        def run(*given: Any, **named: Any) -> Any:
            ran.setdefault(step, set()).add(threading.current_thread().name)
            return real(*given, **named)

        return run

    for step in SLOW_STEPS:
        monkeypatch.setattr(ReplicaView, step, recorded(step, getattr(ReplicaView, step)))

    async def run() -> None:
        async with of(stores("a"), 1) as a, of(stores("b"), 2) as b, of(stores("c"), 3) as c:
            await a.become_master(1)
            for number in range(50):
                a.store.put("orders", b"%d" % number)
            await b.become_slave(a.address or "", 1)
            await c.become_slave(a.address or "", 1)
            await asyncio.gather(b.wait_caught_up(), c.wait_caught_up())
            await b.become_slave("127.0.0.1:1", 1)
            # The message that only a holds is cut.
            a.store.put("orders", b"forked")
            await b.become_master(2, others_asked=True)
            b.store.put("orders", b"first of epoch 2")
            await a.become_slave(b.address or "", 2)
            await a.wait_caught_up(b.store.end_offset)
            assert a.epochs == b.epochs

    asyncio.run(run())
    assert {"replace_file", "truncate_to", "copy_cut", "settle", "wait_flushed"} <= ran.keys()
    assert set().union(*ran.values()) == {"rmqstore-ha-files"}


@pytest.mark.parametrize("protocol", ["autoswitch", "classic"])
def test_no_slave_is_answered_before_it_is_saved_that_the_log_has_replicas(
    protocol: str, stores: Callable[[str], Store], monkeypatch: pytest.MonkeyPatch
) -> None:
    held = Held(monkeypatch, "replace_file")

    async def run() -> None:
        a, b = (of(stores(name), at, protocol=protocol) for at, name in enumerate("ab", 1))
        async with a, b, heartbeat() as beats:
            await a.become_master(1)
            a.store.put("orders", b"x")
            held.path = a.store.path
            await b.become_slave(a.address or "")
            await until(lambda: held.reached, "the step is held")
            at = len(beats)
            await until(lambda: len(beats) > at + 10, "the loop runs")
            assert (held.reached, b.store.end_offset) == (1, 0)
            assert [each.ack_offset for each in a.replicas] in ([-1], [0])
            held.go_on()
            await a.wait_in_sync(2, timeout=WAIT_S)
            assert b.store.end_offset == a.store.end_offset

    asyncio.run(run())


def test_a_slave_connects_again_when_it_cannot_be_saved_that_the_log_has_replicas(
    stores: Callable[[str], Store], monkeypatch: pytest.MonkeyPatch
) -> None:
    real, failures = ReplicaView.replace_file, [DiskError(28, "No space left on device")]

    async def run() -> None:
        async with of(stores("a"), 1) as a, of(stores("b"), 2) as b:
            await a.become_master(1)
            a.store.put("orders", b"x")

            def fail_once(view: ReplicaView, name: str, data: bytes) -> None:
                if view.path == a.store.path and failures:
                    raise failures.pop()
                real(view, name, data)

            monkeypatch.setattr(ReplicaView, "replace_file", fail_once)
            await b.become_slave(a.address or "")
            await a.wait_in_sync(2, timeout=WAIT_S)
            assert (failures, a.role) == ([], "master")

    asyncio.run(run())


# ---- misuse


def test_a_replica_is_used_on_its_loop_and_while_it_is_open(
    stores: Callable[[str], Store],
) -> None:
    store = stores("a")
    replica = of(store, 1)

    def elsewhere() -> None:
        async def call() -> None:
            for verb in (replica.become_master(1), replica.close(), replica.wait_in_sync(1)):
                with pytest.raises(ArgumentError, match="outside of its event loop"):
                    await verb
            with pytest.raises(ArgumentError, match="outside of its event loop"):
                replica.status()

        asyncio.run(call())
        with pytest.raises(ArgumentError, match="outside of its event loop"):
            replica.proposals  # noqa: B018

    async def run() -> None:
        assert (replica.role, replica.epoch, replica.epochs, replica.address) == (
            None,
            -1,
            (),
            None,
        )

        with pytest.raises(ArgumentError, match="not open"):
            await replica.become_master(1)
        with pytest.raises(ArgumentError, match="not open"):
            replica.status()

        async with replica:
            await asyncio.to_thread(elsewhere)
            assert replica.role is None
            with pytest.raises(ArgumentError, match="replicated already"):
                await of(store, 2).open()
            await replica.become_master(1)

        assert replica.status().role is None
        for verb in (
            replica.become_master(2),
            replica.wait_in_sync(1),
            replica.become_slave("h:1"),
        ):
            with pytest.raises(StoreClosedError):
                await verb

        with pytest.raises(ArgumentError, match="opened before"):
            await replica.open()

        unused = of(store, 1)
        await unused.close()
        with pytest.raises(StoreClosedError):
            await unused.become_master(1)

    asyncio.run(run())


def test_two_changes_at_once_are_made_in_the_order_of_the_calls(
    stores: Callable[[str], Store],
) -> None:
    async def run() -> None:
        async with of(stores("a"), 1) as a:
            await asyncio.gather(a.become_master(1), a.become_master(2))
            assert (a.role, a.epoch) == ("master", 2)
            done = await asyncio.gather(
                a.become_slave("127.0.0.1:1", 4), a.become_master(3), return_exceptions=True
            )
            assert done[0] is None
            assert isinstance(done[1], Fenced)
            assert (a.role, a.epoch) == ("slave", 4)

    asyncio.run(run())


def test_callbacks_run_on_the_loop(stores: Callable[[str], Store]) -> None:
    async def run() -> None:
        seen: list[tuple[str | None, threading.Thread]] = []
        proposed: list[frozenset[int]] = []

        def on_change(status: Status) -> None:
            seen.append((status.role, threading.current_thread()))

        async with (
            of(
                stores("a"),
                1,
                mode=Mode.SYNC_STATE_SET,
                on_change=on_change,
                on_proposal=lambda proposal: proposed.append(proposal.members),
            ) as a,
            of(stores("b"), 2) as b,
        ):
            await a.become_master(1, members=(1,), set_epoch=1)
            await b.become_slave(a.address or "", 1)
            await until(lambda: proposed, "the slave is to join the set")
            assert [each.members for each in a.proposals] == proposed == [{1, 2}]
            await a.set_sync_state_set((1, 2), 2)
            assert (a.sync_state_set, a.sync_state_set_epoch, a.proposals) == ({1, 2}, 2, ())
            # Another master was elected.
            await a.set_sync_state_set((2,), 3)
            assert a.role is None
            assert "another master" in (a.status().failure or "")
            await until(lambda: seen[-1][0] is None, "the end of the role is reported")
        assert ("master", threading.current_thread()) in seen

    asyncio.run(run())
