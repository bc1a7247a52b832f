"""Puts of tasks that wait for copies: each is told on its loop, in time, whatever becomes of
others."""

from __future__ import annotations

import asyncio
import errno
import gc
import math
import socket
import time
import weakref
from collections.abc import Callable
from pathlib import Path
from typing import Any, NoReturn

import pytest

from rmqstore import Durability, FlushTimeout, NotWritable, Receipt, ReplicaTimeout, aio
from rmqstore._native.core import AckBoard
from rmqstore.config import FlushDiskType
from rmqstore.replication.protocol.frames import Ack, MasterFrameParser, Transfer, encode
from tests.service.pumps import EPOCH, Bench, bench
from tests.support.agreement import FILES
from tests.support.boards import LIMIT_S, Follower, board_of
from tests.support.native_store import held_syncs
from tests.support.waiting import until

__all__ = ["bench"]


async def until_awaited(board: AckBoard, puts: int = 1) -> None:
    """Let the other tasks run until so many puts wait."""
    while board.waiting < puts:
        await asyncio.sleep(0)


def run(path: Path, act: Callable[[aio.AsyncStore], Any], **config: Any) -> None:
    async def main() -> None:
        async with asyncio.timeout(LIMIT_S), aio.open(path, **FILES, **config) as store:
            await act(store)

    asyncio.run(main())


@pytest.mark.parametrize("flush", FlushDiskType)
def test_awaited_puts_get_their_copies(tmp_path: Path, flush: FlushDiskType) -> None:
    async def act(store: aio.AsyncStore) -> None:
        board, slots = board_of(store.store)
        with Follower(store.store, board, slots[0]):
            receipts = await asyncio.gather(*(store.put("t", b"x", copies=2) for _ in range(100)))
            many = await store.put_many([b"x"], topic="t", durability=Durability.REPLICATED)
        assert {receipt.copies for receipt in (*receipts, *many)} == {2}
        assert {receipt.durability for receipt in receipts} == {Durability.REPLICATED}
        if flush is FlushDiskType.SYNC_FLUSH:
            assert store.store.flushed_offset >= receipts[-1].end_offset

    run(tmp_path, act, flush_disk_type=flush)


def test_awaited_put_is_told_what_a_waiting_one_is(tmp_path: Path) -> None:
    async def act(store: aio.AsyncStore) -> None:
        board, _ = board_of(store.store)

        with pytest.raises(ReplicaTimeout, match="1 of 2 copies") as caught:
            await store.put("t", b"x", copies=2, timeout=0.001)
        assert isinstance(caught.value.receipt, Receipt)
        assert caught.value.receipt.end_offset == store.store.end_offset

        waiting = asyncio.create_task(store.put("t", b"x", copies=2))
        cancelled = asyncio.create_task(store.put("t", b"x", copies=2))
        await until_awaited(board, 2)
        cancelled.cancel()
        with pytest.raises(asyncio.CancelledError):
            await cancelled
        assert board.waiting == 1

        board.abandon()
        with pytest.raises(ReplicaTimeout):
            await waiting
        with pytest.raises(NotWritable):
            await store.put("t", b"x", copies=2)

    run(tmp_path, act)


def test_each_awaited_put_has_its_own_time_limit(tmp_path: Path) -> None:
    async def act(store: aio.AsyncStore) -> None:
        board, slots = board_of(store.store)
        patient = [
            asyncio.create_task(store.put("t", b"x", copies=2, timeout=limit))
            for limit in (LIMIT_S, math.inf)
        ]
        await until_awaited(board, 2)
        short = asyncio.gather(
            *(store.put("t", b"x", copies=2, timeout=limit) for limit in (0.05, 0.01, 0)),
            return_exceptions=True,
        )
        assert {type(each) for each in await short} == {ReplicaTimeout}
        assert (board.waiting, [task.done() for task in patient]) == (2, [False, False])
        board.ack(slots[0], store.store.end_offset)
        assert [(await task).copies for task in patient] == [2, 2]

    run(tmp_path, act)


def test_put_cancelled_when_it_had_its_copies_already_harms_no_other(tmp_path: Path) -> None:
    async def act(store: aio.AsyncStore) -> None:
        board, slots = board_of(store.store)
        tasks = [asyncio.create_task(store.put("t", b"x", copies=2)) for _ in range(3)]
        await until_awaited(board, 3)
        board.ack(slots[0], store.store.end_offset)
        tasks[1].cancel()
        done = await asyncio.gather(*tasks, return_exceptions=True)
        assert [type(each) for each in done] == [Receipt, asyncio.CancelledError, Receipt]
        assert board.waiting == 0

    run(tmp_path, act)


class Untellable(asyncio.Future[Any]):
    """A future that takes no outcome, as one that an interrupt comes upon."""

    def set_result(self, _: Any) -> NoReturn:
        raise RuntimeError("cannot be told")

    def set_exception(self, _: Any) -> NoReturn:
        raise RuntimeError("cannot be told")


@pytest.mark.parametrize("outcome", [Receipt, ReplicaTimeout])
def test_put_that_cannot_be_told_keeps_no_other_waiting(
    outcome: type, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def act(store: aio.AsyncStore) -> None:
        board, slots = board_of(store.store)

        loop = asyncio.get_running_loop()
        first: list[asyncio.Future[Any]] = [Untellable(loop=loop)]
        make = loop.create_future
        monkeypatch.setattr(loop, "create_future", lambda: first.pop() if first else make())

        failures: list[str] = []
        loop.set_exception_handler(lambda _, answer: failures.append(str(answer.get("exception"))))

        limits = (0, 0.01, 0.02) if outcome is ReplicaTimeout else (LIMIT_S,) * 3
        puts = [asyncio.create_task(store.put("t", b"x", copies=2, timeout=s)) for s in limits]

        if outcome is Receipt:
            await until_awaited(board, 3)
            board.ack(slots[0], store.store.end_offset)

        others = await asyncio.gather(*puts[1:], return_exceptions=True)
        assert [type(each) for each in others] == [outcome] * 2

        puts[0].cancel()
        await asyncio.wait(puts)
        assert failures == ["cannot be told"]

    run(tmp_path, act)


def test_loop_that_cannot_listen_at_first_hears_of_the_next_put(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(*_: object) -> NoReturn:
        raise OSError(errno.ENOSPC, "no watch is left")

    async def act(store: aio.AsyncStore) -> None:
        board, slots = board_of(store.store)
        with monkeypatch.context() as full:
            full.setattr(asyncio.get_running_loop(), "add_reader", refuse)
            with pytest.raises(OSError, match="no watch is left"):
                await store.put("t", b"x", copies=2)
        with Follower(store.store, board, slots[0]):
            assert (await store.put("t", b"x", copies=2)).copies == 2

    run(tmp_path, act)


def test_time_that_the_disk_takes_is_not_taken_from_the_replicas(
    tmp_path: Path,
) -> None:
    async def act(store: aio.AsyncStore) -> None:
        rule_ms = 1500
        board, slots = board_of(store.store, timeout_ms=rule_ms)
        with held_syncs(store.store):
            patient = asyncio.create_task(store.put("t", b"x", copies=2))
            began = time.monotonic()
            with pytest.raises(FlushTimeout):
                await store.put("t", b"x", copies=2, timeout=0.001)
            await until(lambda: time.monotonic() > began + rule_ms / 1000, "the rule's time passes")
            assert not patient.done()
        await until_awaited(board)
        board.ack(slots[0], store.store.end_offset)
        assert (await patient).copies == 2

    run(tmp_path, act, flush_disk_type=FlushDiskType.SYNC_FLUSH)


def test_puts_of_several_loops_are_told_on_their_own(tmp_path: Path) -> None:
    async def act(store: aio.AsyncStore) -> None:
        board, slots = board_of(store.store)

        async def puts() -> set[int]:
            made = [await store.put("t", b"x", copies=2) for _ in range(50)]
            return {receipt.copies for receipt in made}

        with Follower(store.store, board, slots[0]):
            there = [asyncio.to_thread(lambda: asyncio.run(puts())) for _ in range(3)]
            assert await asyncio.gather(puts(), *there) == [{2}] * 4
            assert await puts() == {2}

    run(tmp_path, act)


def test_awaited_puts_are_sent_without_a_put_that_waits_on_a_thread(
    bench: Bench, tmp_path: Path
) -> None:
    async def act(store: aio.AsyncStore) -> None:
        board, slots = board_of(store.store)
        ours, peer = bench.sockets()
        store.store.put("t", b"first")
        pump = bench.pump(store.store, board)
        pump.stream(ours.fileno(), kind="transfer", next_offset=0, slot=slots[0], **EPOCH)
        parser = MasterFrameParser()
        for size in (1, 32):
            puts = [asyncio.create_task(store.put("t", b"x", copies=2)) for _ in range(size)]
            await until_awaited(board, size)
            end = store.store.end_offset
            await asyncio.to_thread(hear_until, parser, peer, end)
            assert board.waiting == size
            peer.sendall(encode(Ack(end)))
            assert {(await put).copies for put in puts} == {2}

    run(tmp_path / "awaited", act)


def hear_until(parser: MasterFrameParser, peer: socket.socket, end: int) -> None:
    """Read frames up to the one whose bytes of the log end there."""
    heard = 0
    while heard < end:
        for frame in parser.feed(peer.recv(1 << 16)):
            assert isinstance(frame, Transfer)
            heard = frame.offset + len(frame.body)


def test_closing_just_after_a_put_began_to_wait_ends_it(tmp_path: Path) -> None:
    async def act(store: aio.AsyncStore) -> None:
        board_of(store.store)
        failures: list[dict[str, Any]] = []
        asyncio.get_running_loop().set_exception_handler(lambda _, answer: failures.append(answer))
        waiting = asyncio.create_task(store.put("t", b"x", copies=2))
        await asyncio.sleep(0)  # its turn; what is to send the log has not had its own
        store.store.close()
        with pytest.raises(ReplicaTimeout):
            await waiting
        assert not failures

    run(tmp_path, act)


def test_loop_closed_while_its_puts_wait_goes_with_the_store(tmp_path: Path) -> None:
    async def act(store: aio.AsyncStore) -> None:
        board, _ = board_of(store.store)

        def put_and_leave() -> weakref.ref[asyncio.AbstractEventLoop]:
            loop = asyncio.new_event_loop()
            put = loop.create_task(store.put("t", b"x", copies=2))
            loop.run_until_complete(until_awaited(board))
            assert not put.done()
            loop.close()
            return weakref.ref(loop)

        left = await asyncio.to_thread(put_and_leave)
        await store.close()
        gc.collect()
        assert left() is None

    run(tmp_path, act)


def test_closing_ends_awaited_puts(tmp_path: Path) -> None:
    async def act(store: aio.AsyncStore) -> None:
        board, _ = board_of(store.store)
        waiting = asyncio.create_task(store.put("t", b"x", copies=2))
        await until_awaited(board)
        await store.close()
        with pytest.raises(ReplicaTimeout):
            await waiting

    run(tmp_path, act)
