"""Replicas where threads, descriptors or time are short."""

from __future__ import annotations

import asyncio
import selectors
import threading
import time
from contextlib import ExitStack
from pathlib import Path
from typing import Any, cast

import pytest

import rmqstore
from rmqstore import ArgumentError, Durability, NotWritable, PutError, PutStatus
from rmqstore.replication import (
    HaOptions,
    Lease,
    Master,
    Mode,
    Proposal,
    Quorum,
    ReplicatedStore,
    Slave,
    Status,
)
from rmqstore.replication.protocol.frames import Ack, Frame, Handshake, HandshakeReply, Transfer
from rmqstore.replication.runtime.calls import Calls
from rmqstore.replication.runtime.serving import MasterSide
from rmqstore.store.replica_view import ReplicaView
from tests.service.wire import HOST, Peer, calling
from tests.support.agreement import FILES
from tests.support.effort import rounds
from tests.support.waiting import WAIT_S, spin_until, wait_until

QUICK = HaOptions(heartbeat_ms=200, reconnect_ms=20)
MEMBER, JOINER = 2, 4


def join(stack: ExitStack, master: ReplicatedStore, broker_id: int, end: int) -> Peer:
    """Return the connection of a slave whose log ends at *end* and which is sent what comes."""
    peer = stack.enter_context(calling(master, "autoswitch"))
    peer.say(Handshake(sync_from_last_file=False, is_learner=False, broker_id=broker_id))
    peer.hear(lambda frames: any(isinstance(each, HandshakeReply) for each in frames), "the reply")
    peer.say(Ack(end))
    peer.hear(lambda frames: any(isinstance(each, Transfer) for each in frames), "the log")
    return peer


def ends_at(frames: list[Frame], end: int) -> bool:
    return any(
        isinstance(each, Transfer) and each.offset + len(each.body) == end for each in frames
    )


def test_a_replica_without_what_was_confirmed_while_its_master_was_busy_does_not_join(
    tmp_path: Path,
) -> None:
    """The loop's thread hears at once of what both acknowledged meanwhile, one behind the other."""
    with ExitStack() as stack:
        store = stack.enter_context(rmqstore.open(tmp_path, **FILES))
        first = store.put("orders", bytes(100)).end_offset
        master = stack.enter_context(
            Master(store, listen=(HOST, 0), broker_id=1, members=(1, MEMBER), set_epoch=1)
        )
        joiner, member = (join(stack, master, each, first) for each in (JOINER, MEMBER))
        second = store.put("orders", bytes(100)).end_offset
        third = store.put("orders", bytes(100)).end_offset
        for peer in (joiner, member):
            peer.hear(lambda frames: ends_at(frames, third), "both messages")
        is_busy, may_go = threading.Event(), threading.Event()

        def be_busy() -> None:
            is_busy.set()
            may_go.wait(20)

        busy = threading.Thread(target=lambda: master._call(be_busy))
        busy.start()
        try:
            assert is_busy.wait(20)
            joiner.say(Ack(second))
            member.say(Ack(third))
            # What is confirmed is dispatched; the master's thread has no part in either.
            assert store._wait_progress(third - 1, 20_000)
            assert store.confirm_offset == third
            board = store._board
            assert board is not None
            spin_until(
                lambda: second in {offset for offset, _ in board.acks().values()},
                "the other one's is heard",
            )
        finally:
            may_go.set()
            busy.join()
        assert master.status().proposals == ()
        joiner.say(Ack(third))
        wait_until(master, lambda: len(master.proposals) == 1, "it joins once it has all")
        assert master.proposals[0].joined == {JOINER}


def test_an_acting_master_judges_a_silent_slave_anew_without_a_word_of_it(tmp_path: Path) -> None:
    quorum = Quorum(in_sync=2, gap_bytes_max=10_000)
    with ExitStack() as stack:
        store = stack.enter_context(rmqstore.open(tmp_path, **FILES))
        end = store.put("orders", bytes(100)).end_offset
        master = stack.enter_context(
            Master(store, listen=(HOST, 0), mode=Mode.ACTING_MASTER, quorum=quorum)
        )
        peer = join(stack, master, MEMBER, end)
        peer.say(Ack(end))
        master.wait_in_sync(2, timeout=WAIT_S)

        def outcome() -> PutStatus:
            with pytest.raises(PutError) as caught:
                store.put("orders", b"x", durability=Durability.REPLICATED, timeout=0.001)
            return caught.value.status

        # It lacks nothing, so puts wait for it.
        assert outcome() is PutStatus.FLUSH_SLAVE_TIMEOUT
        for _ in range(11):
            store.put("orders", bytes(1000))
        spin_until(lambda: outcome() is PutStatus.IN_SYNC_REPLICAS_NOT_ENOUGH, "it is too far back")
        assert len(master.replicas) == 1
        peer.hear(lambda frames: ends_at(frames, store.end_offset), "all of it")
        peer.say(Ack(store.end_offset))
        spin_until(lambda: outcome() is PutStatus.FLUSH_SLAVE_TIMEOUT, "it is in sync again")


def test_a_copy_by_which_no_put_is_admitted_yet_ends_no_wait(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The pump notes an acknowledgement between a decision and the next look at the waits."""
    quorum = Quorum(in_sync=2, gap_bytes_max=10_000)
    with ExitStack() as stack:
        store = stack.enter_context(rmqstore.open(tmp_path, **FILES))
        master = stack.enter_context(
            Master(store, listen=(HOST, 0), mode=Mode.ACTING_MASTER, quorum=quorum)
        )
        peer = join(stack, master, MEMBER, store.end_offset)
        for _ in range(11):
            store.put("orders", bytes(1000))
        end = store.end_offset
        peer.hear(lambda frames: ends_at(frames, end), "all of it")
        ends: list[bool] = []
        carry_out = MasterSide._carry_out

        def acknowledged_meanwhile(side: MasterSide, effects: list[Any]) -> None:
            if not ends and side.node.rule().present == 1:
                peer.say(Ack(end))
                spin_until(lambda: side.board.copies_of(end) == 2, "the pump notes it")
                ends.append(side.is_in_sync(2, end))
            carry_out(side, effects)

        monkeypatch.setattr(MasterSide, "_carry_out", acknowledged_meanwhile)
        master.wait_in_sync(2, timeout=WAIT_S)
        assert ends == [False]


def out_of_threads(*_: Any) -> Any:
    raise RuntimeError("can't start new thread")


def out_of_descriptors(*_: Any) -> Any:
    raise OSError(24, "Too many open files")


@pytest.mark.parametrize(
    ("what", "failure"),
    [
        (selectors, ("DefaultSelector", out_of_descriptors)),
        (threading.Thread, ("start", out_of_threads)),
        (ReplicaView, ("refuse_puts", out_of_descriptors)),
    ],
)
def test_a_replica_that_cannot_be_made_leaves_its_store_to_the_next_try(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, what: Any, failure: tuple[str, Any]
) -> None:
    with rmqstore.open(tmp_path, **FILES) as store:
        with monkeypatch.context() as patched:
            patched.setattr(what, *failure)
            with pytest.raises((RuntimeError, OSError)):
                ReplicatedStore(store, listen=(HOST, 0), on_change=print)
        with Master(store, listen=(HOST, 0)):
            store.put("orders", b"x")
    assert store.closed


def test_a_slave_that_cannot_look_up_its_master_tries_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    real, tries = asyncio.BaseEventLoop.getaddrinfo, 0

    async def fail_once(loop: Any, name: str, *arguments: Any, **options: Any) -> Any:
        nonlocal tries
        tries += 1
        assert name == "master.test"
        return await (real if tries > 1 else out_of_threads)(loop, HOST, *arguments, **options)

    monkeypatch.setattr(asyncio.BaseEventLoop, "getaddrinfo", fail_once)
    with (
        rmqstore.open(tmp_path / "a", **FILES) as a,
        Master(a, listen=(HOST, 0), quorum=Quorum(in_sync=2, timeout_ms=20_000)) as master,
        rmqstore.open(tmp_path / "b", **FILES) as b,
    ):
        assert master.address is not None
        with Slave(b, master=("master.test", master.address[1]), options=QUICK):
            master.wait_in_sync(2, timeout=20.0)
            assert a.put("orders", b"x", durability=Durability.REPLICATED).copies == 2
    assert tries > 1


def test_a_callback_that_raises_keeps_nobody_from_hearing_the_rest() -> None:
    answer: list[int] = []
    is_told = threading.Event()

    def on_proposal(proposal: Proposal) -> None:
        answer.append(proposal.number)
        if len(answer) == 1:
            raise ValueError("the application's own")

    calls = Calls(on_proposal, lambda _: is_told.set(), lambda: cast(Status, None))
    try:
        with calls._news:
            for number in (1, 2):
                calls.proposed(
                    Proposal(number, frozenset({1}), 1, joined=frozenset(), left=frozenset())
                )
            calls.changed()
        assert is_told.wait(20)
    finally:
        calls.stop()
    assert answer == [1, 2]


def test_closing_is_told_to_callbacks_without_a_fault(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    with rmqstore.open(tmp_path, **FILES) as store:
        for _ in range(rounds(20, 500)):
            Master(store, listen=(HOST, 0), on_change=lambda status: None).close()
    assert "callback" not in caplog.text


def test_a_renewal_that_is_still_to_come_is_no_renewal(tmp_path: Path) -> None:
    with (
        rmqstore.open(tmp_path, **FILES) as store,
        Master(store, listen=(HOST, 0), lease=Lease(60_000)) as master,
    ):
        with pytest.raises(ArgumentError, match=r"time\.monotonic"):
            master.renew_lease(time.time_ns() // 1_000_000)
        with pytest.raises(NotWritable):
            store.put("orders", b"x")
        master.renew_lease(time.monotonic() * 1000)
        store.put("orders", b"x")
