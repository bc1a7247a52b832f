"""Queue locks: one broker's table, the collecting of grants, and a group with any luck."""

from __future__ import annotations

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from rmqstore import ArgumentError
from rmqstore.replication.group.queue_lock import Grant, LockRequest, LockTable, QueueId, Release
from tests.support.effort import rounds

A, B = QueueId("g", "orders", 0), QueueId("g", "orders", 1)
LEASE_MS = 100


def request(total: int, *, is_strict: bool = True, asked_ms: int = 0) -> LockRequest:
    return LockRequest(
        [A, B], total=total, is_strict=is_strict, asked_ms=asked_ms, timeout_ms=50, lease_ms=100
    )


def test_a_queue_belongs_to_one_client_until_its_lease_is_over() -> None:
    table = LockTable(lease_ms=LEASE_MS)
    assert [each.queue for each in table.lock("x", [A], now_ms=0)] == [A]
    assert [each.queue for each in table.lock("y", [A, B], now_ms=100)] == [B]
    assert table.holder(A, now_ms=100) == "x"
    assert table.holder(A, now_ms=101) is None
    assert [each.queue for each in table.lock("y", [A], now_ms=101)] == [A]


def test_renewal_extends_the_lease_and_is_not_fresh() -> None:
    table = LockTable(lease_ms=LEASE_MS)
    (first,) = table.lock("x", [A], now_ms=0)
    (second,) = table.lock("x", [A, A], now_ms=90)
    assert (first.is_fresh, second.is_fresh) == (True, False)
    assert table.holder(A, now_ms=190) == "x"


def test_lock_taken_again_after_its_lease_is_fresh() -> None:
    table = LockTable(lease_ms=LEASE_MS)
    table.lock("x", [A], now_ms=0)
    (again,) = table.lock("x", [A], now_ms=101)
    assert again.is_fresh


def test_release_that_comes_after_a_renewal_ends_nothing() -> None:
    table = LockTable(lease_ms=LEASE_MS)
    (first,) = table.lock("x", [A], now_ms=0)
    (second,) = table.lock("x", [A], now_ms=1)
    assert not table.release(first)
    assert table.holder(A, now_ms=2) == "x"
    assert table.release(second)
    assert not table.release(second)
    assert len(table) == 0


def test_release_of_a_grant_made_before_a_restart_ends_nothing() -> None:
    (before,) = LockTable(lease_ms=LEASE_MS).lock("x", [A], now_ms=0)
    table = LockTable(lease_ms=LEASE_MS, first_number=before.number + 1)
    table.lock("y", [A], now_ms=200)
    assert not table.release(before)
    assert table.holder(A, now_ms=200) == "y"


def test_unlock_ends_only_the_locks_of_the_client_itself() -> None:
    table = LockTable(lease_ms=LEASE_MS)
    table.lock("x", [A], now_ms=0)
    table.unlock("y", [A, B])
    assert table.holder(A, now_ms=1) == "x"
    table.unlock("x", [A])
    assert table.holder(A, now_ms=1) is None


def test_full_table_makes_room_of_what_is_over_and_refuses_otherwise() -> None:
    table = LockTable(lease_ms=LEASE_MS, locks_max=1)
    table.lock("x", [A], now_ms=0)
    assert table.lock("x", [B], now_ms=100) == ()
    assert len(table.lock("x", [A], now_ms=100)) == 1
    assert [each.queue for each in table.lock("x", [B], now_ms=201)] == [B]
    assert table.expire(301) == 0
    assert table.expire(302) == 1


def test_quiet_table_grants_nothing_before_its_time() -> None:
    table = LockTable(lease_ms=LEASE_MS, quiet_until_ms=100)
    assert table.lock("x", [A], now_ms=99) == ()
    assert len(table.lock("x", [A], now_ms=100)) == 1


@pytest.mark.parametrize(
    ("total", "is_strict", "needed"),
    [(1, True, 1), (2, True, 2), (3, True, 2), (4, True, 3), (5, True, 3), (5, False, 1)],
)
def test_strict_needs_a_majority_of_the_whole_group(
    total: int, is_strict: bool, needed: int
) -> None:
    assert request(total, is_strict=is_strict).needed == needed


def test_each_queue_is_counted_by_itself() -> None:
    asked = request(3)
    asked.granted(1, [Grant(A, 1, True), Grant(B, 2, True)], now_ms=1)
    assert not asked.is_decided(now_ms=1)
    asked.granted(2, [Grant(A, 1, True)], now_ms=2)
    assert asked.locked == {A}
    assert not asked.is_decided(now_ms=2)
    asked.failed(3)
    assert asked.is_decided(now_ms=3)
    assert asked.close() == (Release(1, Grant(B, 2, True)),)
    assert asked.held_until_ms == 100


def test_broker_that_answers_twice_counts_once() -> None:
    asked = request(3)
    asked.granted(1, [Grant(A, 1, True)], now_ms=1)
    assert asked.granted(1, [Grant(A, 2, False)], now_ms=2) == ()
    assert asked.locked == frozenset()


def test_grant_after_the_deadline_goes_back_unless_the_queue_was_locked() -> None:
    asked = request(3)
    asked.granted(1, [Grant(A, 1, True), Grant(B, 2, True)], now_ms=1)
    asked.granted(2, [Grant(A, 1, True)], now_ms=2)
    late = [Grant(A, 7, True), Grant(B, 8, True), Grant(QueueId("g", "x", 0), 9, True)]
    assert asked.granted(3, late, now_ms=50) == (Release(3, Grant(B, 8, True)),)
    assert asked.locked == {A}


def test_impossible_arguments_are_refused() -> None:
    with pytest.raises(ArgumentError, match="lease_ms 0"):
        LockTable(lease_ms=0)
    with pytest.raises(ArgumentError, match="total 0"):
        request(0)


class Group(RuleBasedStateMachine):
    """Three brokers, two clients that ask through any of them, messages late or lost, restarts.

    In strict mode two clients never count on one queue at the same time.
    """

    @initialize()
    def start(self) -> None:
        self.now_ms = 1000
        self.tables = {each: LockTable(lease_ms=LEASE_MS) for each in (1, 2, 3)}
        self.asks: list[tuple[str, LockRequest]] = []
        self.calls: list[tuple[int, str, LockRequest]] = []
        self.answers: list[tuple[int, tuple[Grant, ...], LockRequest]] = []
        self.releases: list[Release] = []
        self.held: dict[str, int] = {}

    @rule(
        client=st.sampled_from("xy"),
        at_once=st.sampled_from(["12", "23", "13", "123", "1", "2", "3", ""]),
        later=st.sampled_from(["", "", "1", "2", "3", "123"]),
        is_told=st.sampled_from([True, True, False]),
    )
    def ask(self, client: str, at_once: str, later: str, is_told: bool) -> None:
        asked = LockRequest(
            [A], total=3, is_strict=True, asked_ms=self.now_ms, timeout_ms=50, lease_ms=LEASE_MS
        )
        for broker in map(int, at_once):
            grants = self.tables[broker].lock(client, [A], now_ms=self.now_ms)
            self.releases += asked.granted(broker, grants, now_ms=self.now_ms)
        self.calls += [(int(each), client, asked) for each in later]
        if is_told:
            self.handle(client, asked)
        else:
            self.asks.append((client, asked))

    def handle(self, client: str, asked: LockRequest) -> None:
        self.releases += asked.close()
        if asked.locked:
            self.held[client] = max(self.held.get(client, 0), asked.held_until_ms)

    @precondition(lambda self: self.calls)
    @rule(data=st.data())
    def call_arrives(self, data: st.DataObject) -> None:
        broker, client, asked = self.calls.pop(
            data.draw(st.integers(0, len(self.calls) - 1), label="call")
        )
        grants = self.tables[broker].lock(client, [A], now_ms=self.now_ms)
        self.answers.append((broker, grants, asked))

    @precondition(lambda self: self.answers)
    @rule(data=st.data(), is_lost=st.booleans())
    def answer_arrives(self, data: st.DataObject, is_lost: bool) -> None:
        broker, grants, asked = self.answers.pop(
            data.draw(st.integers(0, len(self.answers) - 1), label="answer")
        )
        if is_lost:
            asked.failed(broker)
        else:
            self.releases += asked.granted(broker, grants, now_ms=self.now_ms)

    @precondition(lambda self: self.releases)
    @rule(data=st.data())
    def release_arrives(self, data: st.DataObject) -> None:
        each = self.releases.pop(data.draw(st.integers(0, len(self.releases) - 1), label="release"))
        self.tables[each.broker_id].release(each.grant)

    @precondition(lambda self: self.asks)
    @rule(data=st.data())
    def client_is_answered(self, data: st.DataObject) -> None:
        client, asked = self.asks.pop(data.draw(st.integers(0, len(self.asks) - 1), label="ask"))
        self.handle(client, asked)

    @rule(broker=st.sampled_from([1, 2, 3]))
    def restart(self, broker: int) -> None:
        self.tables[broker] = LockTable(
            lease_ms=LEASE_MS,
            quiet_until_ms=self.now_ms + LEASE_MS,
            first_number=self.now_ms * 1_000_000,
        )

    @rule(ms=st.sampled_from([1, 20, 51, 90, 101]))
    def time_passes(self, ms: int) -> None:
        self.now_ms += ms

    @invariant()
    def one_client_counts_on_the_queue(self) -> None:
        holders = [each for each, until in self.held.items() if self.now_ms < until]
        assert len(holders) <= 1


TestGroup = Group.TestCase
TestGroup.settings = settings(
    max_examples=rounds(150, 10_000), stateful_step_count=50, deadline=None
)
