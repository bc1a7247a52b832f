"""The acknowledgement board and the wakeups of a log, call by call."""

from __future__ import annotations

import select
from collections.abc import Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest

from tests.c.store_calls import Calls, Failed
from tests.support.waiting import spin_until

OK, FLUSH_SLAVE_TIMEOUT, SLAVE_NOT_AVAILABLE = 0, 2, 3
SERVICE_NOT_AVAILABLE, OS_PAGE_CACHE_BUSY, IN_SYNC_REPLICAS_NOT_ENOUGH = 4, 8, 10
FOREVER = 2**63 - 1
LIMIT_MS = 60_000


class Board:
    """A board of a store with 500 bytes in its log, and what it is told."""

    def __init__(self, core: Any, root: Path, model: Any = None) -> None:
        self.ffi, self.lib = core
        self.calls = Calls(core, root)
        self.end = self.calls.put(b"m" * 400).end_offset
        log = (
            self.lib.rmq_ack_log_of_store(self.calls.store)
            if model is None
            else self.lib.rmq_ack_log_of_model(model)
        )
        self.board = self.lib.rmq_ack_board_create(log)
        self.waiters: list[Any] = []
        self.has_begun = False

    def close(self) -> None:
        self.lib.rmq_ack_board_detach(self.board)
        self.lib.rmq_ack_board_destroy(self.board)
        self.calls.close()

    def open_slot(self) -> int:
        slot = self.ffi.new("int32_t *")
        self.calls.check(self.lib.rmq_ack_board_open_slot(self.board, slot, self.calls.error))
        return int(slot[0])

    def close_slot(self, slot: int) -> None:
        self.lib.rmq_ack_board_close_slot(self.board, slot)

    def ack(self, slot: int, offset: int, *, epoch: int = 0) -> None:
        self.lib.rmq_ack_board_ack(self.board, slot, epoch, offset)

    @property
    def acks(self) -> dict[int, int]:
        slots, epochs = self.ffi.new("int32_t[1024]"), self.ffi.new("int32_t[1024]")
        offsets = self.ffi.new("int64_t[1024]")
        count = self.lib.rmq_ack_board_acks(self.board, slots, epochs, offsets)
        return {slots[i]: offsets[i] for i in range(count)}

    def thaw(self, counted: list[int], waited: list[int] | None = None, **changes: Any) -> None:
        rule = self.ffi.new("struct rmq_ack_rule *")
        kept = [self.ffi.new("int32_t[]", counted), self.ffi.new("int32_t[]", waited or [])]
        rule.counted, rule.counted_count = kept[0], len(counted)
        rule.waited, rule.waited_count, rule.has_set = (
            kept[1],
            len(waited or ()),
            waited is not None,
        )
        rule.is_gated, rule.confirm_copies, rule.copies = True, 2, 2
        rule.present = rule.available = -1
        rule.lease_end_ms, rule.waiting_max, rule.timeout_ms = FOREVER, 1000, LIMIT_MS
        for name, value in changes.items():
            setattr(rule, name, value)
        self.calls.check(self.lib.rmq_ack_board_thaw(self.board, rule, self.calls.error))

    def freeze(self) -> int:
        return int(self.lib.rmq_ack_board_freeze(self.board))

    @property
    def confirm_offset(self) -> int:
        return int(self.lib.rmq_ack_board_confirm_offset(self.board))

    @property
    def waiting(self) -> int:
        return int(self.lib.rmq_ack_board_waiting(self.board))

    def admit(self, copies: int = 0, *, is_replicated: bool = True) -> tuple[int, Any]:
        need = self.ffi.new("struct rmq_ack_need *")
        return self.lib.rmq_ack_board_admit(self.board, is_replicated, copies, need), need

    def reason(self, status: int, need: Any) -> str:
        text = self.ffi.new("char[240]")
        self.lib.rmq_ack_board_reason(self.board, status, need, text)
        return bytes(self.ffi.string(text)).decode()

    def wait(
        self, end_offset: int, *, need: Any = None, copies: int = 0, timeout_ms: int = -1
    ) -> tuple[int, int]:
        need = self.admit(copies)[1] if need is None else need
        reached = self.ffi.new("int32_t *")
        status = self.lib.rmq_ack_board_wait(self.board, need, end_offset, timeout_ms, reached)
        return status, int(reached[0])

    def begin(self, inbox: Any, end_offset: int, copies: int = 0) -> Any:
        waiter = self.ffi.new("struct rmq_ack_waiter *")
        self.waiters.append(waiter)  # The board has its address.
        waiter.need = self.admit(copies)[1][0]
        waiter.end_offset, waiter.inbox = end_offset, inbox
        self.has_begun = self.lib.rmq_ack_board_begin(self.board, waiter)
        return waiter

    def taken(self, inbox: Any) -> list[tuple[int, int, int]]:
        """Return end offset, status and copies of what is in an inbox."""
        waiter, found = self.lib.rmq_ack_inbox_take(inbox), []
        while waiter != self.ffi.NULL:
            found.append((waiter.end_offset, waiter.status, waiter.copies))
            waiter = waiter.after
        return found


@pytest.fixture
def board(core: Any, tmp_path: Path) -> Iterator[Board]:
    made = Board(core, tmp_path)
    yield made
    made.close()


@pytest.fixture
def inbox(core: Any) -> Iterator[Any]:
    ffi, lib = core
    made = ffi.new("struct rmq_ack_inbox *")
    assert lib.rmq_ack_inbox_open(made, ffi.NULL) == lib.RMQ_OK
    yield made
    lib.rmq_ack_inbox_close(made)


@pytest.fixture
def pool() -> Iterator[ThreadPoolExecutor]:
    with ThreadPoolExecutor(4) as threads:
        yield threads


def waiting(board: Board, pool: ThreadPoolExecutor, **arguments: Any) -> Future[tuple[int, int]]:
    """Return the outcome of a wait for the log's end that has begun."""
    before = board.waiting
    outcome = pool.submit(lambda: board.wait(board.end, **arguments))
    spin_until(lambda: board.waiting == before + 1, "the wait has begun")
    return outcome


def test_number_of_a_closed_slot_never_counts_for_the_next_replica(board: Board) -> None:
    first = board.open_slot()
    board.ack(first, 100)
    board.close_slot(first)
    second = board.open_slot()
    assert second != first
    board.thaw([second])
    board.ack(first, board.end)
    board.close_slot(first)
    board.ack(-1, board.end)
    board.ack(1 << 30, board.end)
    assert board.acks == {second: -1}
    assert board.wait(board.end, timeout_ms=0) == (FLUSH_SLAVE_TIMEOUT, 1)


def test_slots_end_with_a_status_that_names_the_limit(board: Board) -> None:
    slots = [board.open_slot() for _ in range(1024)]
    with pytest.raises(Failed, match="1024 replicas"):
        board.open_slot()
    board.thaw(slots, confirm_copies=1025, copies=1025)
    for slot in reversed(slots):
        assert board.wait(board.end, timeout_ms=0)[0] == FLUSH_SLAVE_TIMEOUT
        board.ack(slot, board.end)
    assert board.wait(board.end) == (OK, 1025)
    assert board.wait(board.end, copies=5000, timeout_ms=0) == (FLUSH_SLAVE_TIMEOUT, 1025)
    board.close_slot(slots[500])
    assert board.wait(board.end, copies=1024) == (OK, 1024)
    board.open_slot()


def test_confirm_offset_is_the_end_of_so_many_copies_and_only_rises(board: Board) -> None:
    slots = [board.open_slot() for _ in range(3)]
    board.freeze()
    start = board.end
    board.end = board.calls.put(b"n" * 300).end_offset
    board.thaw(slots, confirm_copies=3)
    board.ack(slots[0], board.end)
    assert board.confirm_offset == start
    board.ack(slots[2], start + 10)
    assert board.confirm_offset == start + 10
    board.ack(slots[0], 0)
    board.ack(slots[1], board.end)
    assert board.confirm_offset == start + 10
    board.ack(slots[0], start + 20)
    assert board.confirm_offset == start + 20


def test_whoever_is_waited_for_holds_the_confirm_offset(board: Board) -> None:
    held, outside = board.open_slot(), board.open_slot()
    board.freeze()

    start = board.end
    board.end = board.calls.put(b"n" * 300).end_offset
    board.thaw([held], [held])
    board.ack(outside, board.end)
    assert board.confirm_offset == start

    board.ack(held, start + 5)
    assert board.confirm_offset == start + 5

    board.close_slot(held)
    board.ack(outside, start)
    assert board.confirm_offset == start + 5

    board.thaw([], [], is_missing=True)
    assert board.confirm_offset == start + 5

    board.thaw([], [])
    assert board.confirm_offset == board.end


def test_copies_count_once_the_epoch_is_stored_and_reached(board: Board, inbox: Any) -> None:
    slots = [board.open_slot(), board.open_slot()]
    board.freeze()
    start = board.end
    board.end = board.calls.put(b"of an older epoch").end_offset
    board.thaw(slots, epoch=3, epoch_start=board.end)
    board.begin(inbox, board.end, copies=3)
    for slot in slots:
        board.ack(slot, board.end, epoch=1)
        board.ack(slot, start, epoch=3)
    assert (board.confirm_offset, board.taken(inbox)) == (start, [])
    board.ack(slots[0], board.end, epoch=3)
    assert (board.confirm_offset, board.taken(inbox)) == (board.end, [])
    board.ack(slots[1], board.end, epoch=4)
    assert board.taken(inbox) == [(board.end, board.lib.RMQ_PUT_OK, 3)]


def test_frozen_board_only_writes_down(board: Board, inbox: Any) -> None:
    slot = board.open_slot()
    board.thaw([slot])
    board.begin(inbox, board.end)
    confirmed = board.freeze()
    later = board.calls.put(b"n" * 300).end_offset
    board.ack(slot, later)
    board.begin(inbox, later)
    assert (board.taken(inbox), board.confirm_offset, board.acks) == ([], confirmed, {slot: later})
    board.thaw([slot])
    assert board.taken(inbox) == [(board.end, OK, 2), (later, OK, 2)]
    assert board.confirm_offset == later


def test_board_without_a_rule_refuses_and_holds(core: Any, tmp_path: Path) -> None:
    board = Board(core, tmp_path)
    status, need = board.admit()
    assert (status, board.reason(status, need)) == (
        SERVICE_NOT_AVAILABLE,
        "this store is not a master yet",
    )
    assert board.admit(is_replicated=False)[0] == OK
    board.close()


def test_unsatisfiable_waiter_delays_no_other(board: Board, pool: ThreadPoolExecutor) -> None:
    slots = [board.open_slot() for _ in range(2)]
    board.thaw(slots)
    stuck = waiting(board, pool, copies=9)
    three, two = waiting(board, pool, copies=3), waiting(board, pool, copies=2)
    board.ack(slots[1], board.end)
    assert two.result(60) == (OK, 2)
    board.ack(slots[0], board.end)
    assert three.result(60) == (OK, 3)
    board.lib.rmq_ack_board_abandon(board.board)
    assert stuck.result(60) == (FLUSH_SLAVE_TIMEOUT, 3)


def test_one_pass_tells_an_inbox_in_the_order_of_the_log(board: Board, inbox: Any) -> None:
    slot = board.open_slot()
    board.thaw([slot])
    ends = [40, 10, 30, 30, 20, 500]
    waiters = [board.begin(inbox, end) for end in ends]

    assert board.has_begun
    assert board.lib.rmq_ack_board_withdraw(board.board, waiters[2])
    assert (waiters[2].status, waiters[2].copies) == (FLUSH_SLAVE_TIMEOUT, 1)

    board.ack(slot, 40)
    assert board.taken(inbox) == [(end, OK, 2) for end in (10, 20, 30, 40)]
    assert not board.lib.rmq_ack_board_withdraw(board.board, waiters[0])
    assert board.waiting == 1
    assert not select.select([inbox.fd], [], [], 0)[0]

    at_once = board.begin(inbox, 40)
    assert not board.has_begun
    assert select.select([inbox.fd], [], [], 0)[0]
    assert board.taken(inbox) == [(40, OK, 2)]
    assert at_once.is_resolved

    board.lib.rmq_ack_board_abandon(board.board)
    assert board.taken(inbox) == [(500, FLUSH_SLAVE_TIMEOUT, 1)]


def test_put_that_needs_all_waits_for_each_of_the_set(board: Board) -> None:
    slots = [board.open_slot() for _ in range(2)]
    board.thaw(slots, slots, needs_all=True, copies=1)
    board.ack(slots[0], board.end)
    assert board.wait(board.end, timeout_ms=0) == (FLUSH_SLAVE_TIMEOUT, 2)
    need = board.admit()[1]
    board.ack(slots[1], board.end)
    assert board.wait(board.end, need=need) == (OK, 3)
    board.thaw(slots, slots, is_missing=True, needs_all=True, copies=1)
    assert board.wait(board.end, need=need, timeout_ms=0) == (FLUSH_SLAVE_TIMEOUT, 3)


def test_lease_that_is_over_refuses_every_put_and_resolves_none(board: Board) -> None:
    slot = board.open_slot()
    board.thaw([slot])
    need = board.admit()[1]
    board.thaw([slot], lease_end_ms=1)
    board.ack(slot, board.end)
    for is_replicated in (True, False):
        status, refused = board.admit(is_replicated=is_replicated)
        assert status == SERVICE_NOT_AVAILABLE
        assert "lease" in board.reason(status, refused)
    assert board.wait(board.end, need=need, timeout_ms=0) == (FLUSH_SLAVE_TIMEOUT, 2)
    board.thaw([slot])
    assert board.wait(board.end, need=need) == (OK, 2)


def test_put_that_needs_no_copies_is_acknowledged_under_its_lease_and_role_alone(
    board: Board,
) -> None:
    acknowledge = board.lib.rmq_ack_board_acknowledge
    slot = board.open_slot()
    board.thaw([slot])
    alone, one_copy = board.admit(is_replicated=False)[1], board.admit(1)[1]
    assert acknowledge(board.board, alone) == OK
    assert board.wait(board.end, need=one_copy) == (OK, 1)

    board.thaw([slot], lease_end_ms=1)
    assert acknowledge(board.board, alone) == FLUSH_SLAVE_TIMEOUT
    assert board.wait(board.end, need=one_copy, timeout_ms=0) == (FLUSH_SLAVE_TIMEOUT, 1)

    board.thaw([slot])
    assert acknowledge(board.board, alone) == OK
    board.lib.rmq_ack_board_abandon(board.board)
    board.thaw([slot])
    assert acknowledge(board.board, alone) == FLUSH_SLAVE_TIMEOUT


def test_admission_says_why_not(board: Board, inbox: Any) -> None:
    board.thaw([], status=IN_SYNC_REPLICAS_NOT_ENOUGH, reason=board.ffi.new("char[]", b"x" * 999))
    status, need = board.admit()
    assert (status, board.reason(status, need)) == (IN_SYNC_REPLICAS_NOT_ENOUGH, "x" * 239)

    board.thaw([], present=2)
    assert board.admit(2)[0] == OK
    status, need = board.admit(3)
    assert status == IN_SYNC_REPLICAS_NOT_ENOUGH
    assert board.reason(status, need) == "2 of the 3 replicas needed are in sync"

    waiter = board.begin(inbox, board.end)
    board.thaw([], waiting_max=1)
    status, need = board.admit()
    assert status == OS_PAGE_CACHE_BUSY
    assert board.reason(status, need) == "1 puts wait for replicas; slow down"

    board.thaw([], available=1)
    assert board.lib.rmq_ack_board_withdraw(board.board, waiter)
    assert waiter.status == SLAVE_NOT_AVAILABLE


def test_need_of_a_role_that_ended_is_never_told_ok(board: Board) -> None:
    slot = board.open_slot()
    board.thaw([slot])
    need = board.admit()[1]
    board.lib.rmq_ack_board_abandon(board.board)
    board.thaw([slot])
    board.ack(slot, board.end)
    assert board.wait(board.end, need=need) == (FLUSH_SLAVE_TIMEOUT, 2)
    assert board.wait(board.end) == (OK, 2)


def test_detached_board_touches_its_store_no_more(core: Any, tmp_path: Path) -> None:
    board = Board(core, tmp_path)
    slot = board.open_slot()
    board.thaw([slot])
    need = board.admit()[1]
    board.lib.rmq_ack_board_detach(board.board)
    board.calls.close()
    board.ack(slot, board.end)
    assert board.wait(board.end, need=need) == (FLUSH_SLAVE_TIMEOUT, 2)
    assert (board.freeze(), board.confirm_offset) == (-1, -1)
    with pytest.raises(Failed):
        board.thaw([slot])
    board.lib.rmq_ack_board_destroy(board.board)


def test_waiter_that_runs_out_of_time_leaves_the_line(board: Board) -> None:
    slot = board.open_slot()
    board.thaw([slot], timeout_ms=1)
    assert board.wait(board.end) == (FLUSH_SLAVE_TIMEOUT, 1)
    assert board.waiting == 0


def test_board_on_a_model_goes_by_its_offsets_and_its_time(core: Any, tmp_path: Path) -> None:
    ffi, lib = core
    model = ffi.new("struct rmq_ack_model *")
    lib.rmq_ack_model_init(model, 100, 0, 50)
    board = Board(core, tmp_path, model)

    slot = board.open_slot()
    assert board.freeze() == 50
    board.thaw([slot], is_flushed=True, lease_end_ms=10)

    lib.rmq_ack_model_append(model, 200)
    board.ack(slot, 200)
    assert board.confirm_offset == 50
    lib.rmq_ack_model_flush(model, 150)
    assert (board.confirm_offset, board.admit()[0]) == (150, OK)

    model.now_ms = 10
    assert board.admit()[0] == SERVICE_NOT_AVAILABLE

    board.close()
    lib.rmq_ack_model_destroy(model)


def test_nothing_is_confirmed_without_the_lease(core: Any, tmp_path: Path) -> None:
    ffi, lib = core
    model = ffi.new("struct rmq_ack_model *")
    lib.rmq_ack_model_init(model, 100, 0, 50)
    board = Board(core, tmp_path, model)
    slot = board.open_slot()
    board.freeze()
    board.thaw([slot], [slot], lease_end_ms=10)

    model.now_ms = 10
    board.ack(slot, 100)
    assert board.confirm_offset == 50
    board.freeze()
    board.thaw([slot], [slot], lease_end_ms=20)
    assert board.confirm_offset == 100

    board.close()
    lib.rmq_ack_model_destroy(model)


# -- wakeups


class Wakeup:
    def __init__(self, board: Board) -> None:
        self.ffi, self.lib = board.ffi, board.lib
        self.wakeup = self.ffi.new("struct rmq_wakeup *")
        wakeups = self.ffi.addressof(board.calls.store, "wakeups")
        board.calls.check(self.lib.rmq_wakeup_open(self.wakeup, wakeups, board.calls.error))

    def arm(self, seen_end: int) -> bool:
        return bool(self.lib.rmq_wakeup_arm(self.wakeup, seen_end))

    @property
    def is_told(self) -> bool:
        return bool(select.select([self.wakeup.fd], [], [], 0)[0])


def test_armed_wakeup_is_told_once_and_an_idle_one_never(board: Board) -> None:
    armed, idle = Wakeup(board), Wakeup(board)
    assert not armed.arm(board.end)
    board.calls.put(b"x")
    assert (armed.is_told, idle.is_told) == (True, False)
    board.lib.rmq_wakeup_clear(armed.wakeup)
    board.calls.put(b"x")
    assert not armed.is_told
    assert armed.arm(board.end)
    assert not armed.is_told
    board.lib.rmq_wakeup_close(idle.wakeup)
    assert not armed.arm(board.calls.end_offset)
    board.lib.rmq_wakeup_close(armed.wakeup)
    board.calls.put(b"x")


def test_wakeup_outlives_its_store(core: Any, tmp_path: Path) -> None:
    board = Board(core, tmp_path)
    wakeup = Wakeup(board)
    assert not wakeup.arm(board.end)
    board.close()
    board.lib.rmq_wakeup_abandon(wakeup.wakeup)
    assert wakeup.wakeup.fd == -1
