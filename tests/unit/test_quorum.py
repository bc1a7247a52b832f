"""How many copies a put needs, and the puts that wait for them."""

from __future__ import annotations

from dataclasses import dataclass

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule

from rmqstore import ArgumentError, ConfigError, PutStatus
from rmqstore.replication.quorum import (
    Lease,
    Mode,
    Quorum,
    QuorumWriter,
    Resolution,
    Standing,
    Waiters,
)
from tests.effort import rounds

TIMEOUT = PutStatus.FLUSH_SLAVE_TIMEOUT


def standing(end: int, *acks: int, waited: tuple[int, ...] | None = None) -> Standing:
    """Return a log that ends at *end* and brokers 2, 3... that acknowledged *acks*."""
    held = dict(enumerate(acks, 2))
    return Standing(end, held, frozenset(held), waited, heard=held)


def writer(mode: Mode, **settings: int | bool) -> QuorumWriter[str]:
    return QuorumWriter(Quorum(**settings), mode)  # type: ignore[arg-type]


def test_configuration_lists_every_mistake_by_its_key() -> None:
    with pytest.raises(ConfigError) as caught:
        Quorum(in_sync=0, all_ack=1, timeout_ms=0)  # type: ignore[arg-type]
    assert [each.split()[0] for each in caught.value.violations] == [
        "inSyncReplicas",
        "allAckInSyncStateSet",
        "slaveTimeout",
    ]


def test_configuration_is_checked_as_a_whole() -> None:
    with pytest.raises(ConfigError, match=r"minInSyncReplicas .* 3 is above inSyncReplicas"):
        Quorum(auto_in_sync=True, in_sync=2, min_in_sync=3)
    with pytest.raises(ConfigError, match="2 replicas cannot make 3 copies"):
        Quorum(total=2, in_sync=3)
    assert Quorum(in_sync=3).total == 1


@pytest.mark.parametrize(("gap", "in_sync"), [(1, 1), (124, 1), (125, 2), (126, 2)])
def test_gap_is_compared_strictly(gap: int, in_sync: int) -> None:
    """As RocketMQ's HAServerTest.inSyncReplicasNums."""
    assert standing(1000, 876).available(gap) == in_sync


def test_replica_that_said_nothing_yet_is_not_in_sync() -> None:
    assert standing(10, -1).available(1000) == 1


@given(st.integers(0, 50), st.lists(st.integers(-1, 50), max_size=5))
def test_end_of_copies_is_the_last_offset_with_so_many_copies(end: int, acks: list[int]) -> None:
    held = standing(end, *(min(each, end) for each in acks))
    for copies in range(1, 8):
        offset = held.end_of_copies(copies)
        assert offset == max(
            (each for each in range(end + 1) if held.copies_of(each) >= copies), default=-1
        )


@pytest.mark.parametrize(
    ("acks", "alive", "auto", "status", "copies"),
    [
        ((100, 100), None, False, PutStatus.PUT_OK, 3),
        ((100, 0), None, False, PutStatus.IN_SYNC_REPLICAS_NOT_ENOUGH, 1),
        ((100, 0), None, True, PutStatus.PUT_OK, 2),
        ((100, 100), 2, True, PutStatus.PUT_OK, 2),
        ((0, 0), None, True, PutStatus.IN_SYNC_REPLICAS_NOT_ENOUGH, 1),
    ],
)
def test_acting_master_mode_counts_replicas_within_the_gap(
    acks: tuple[int, int], alive: int | None, auto: bool, status: PutStatus, copies: int
) -> None:
    """As RocketMQ's CommitLog.calcNeedAckNums."""
    puts = writer(Mode.ACTING_MASTER, in_sync=3, min_in_sync=2, auto_in_sync=auto, gap_bytes_max=50)
    puts.alive_replicas = alive
    admission = puts.admit(standing(100, *acks), now_ms=0)
    assert (admission.status, admission.copies) == (status, copies)


def test_downgrade_ends_when_the_replica_is_back() -> None:
    puts = writer(Mode.ACTING_MASTER, in_sync=2, auto_in_sync=True, gap_bytes_max=50)
    needed = [puts.needed(standing(100, *acks)) for acks in ((100,), (), (-1,), (90,))]
    assert needed == [2, 1, 1, 2]


def test_plain_mode_asks_nobody_before_it_writes() -> None:
    admission = writer(Mode.PLAIN, in_sync=2).admit(standing(100), now_ms=0)
    assert (admission.status, admission.copies) == (PutStatus.PUT_OK, 2)


def test_set_mode_refuses_below_the_minimum_and_waits_for_all_where_asked() -> None:
    puts = writer(Mode.SYNC_STATE_SET, in_sync=1, min_in_sync=2, all_ack=True)
    refused = puts.admit(standing(0, waited=(2,)), now_ms=0)
    assert refused.status is PutStatus.IN_SYNC_REPLICAS_NOT_ENOUGH
    assert "1 of the 2" in refused.reason
    taken = puts.admit(standing(0, 0, waited=(2,)), now_ms=0)
    assert (taken.copies, taken.needs_all) == (2, True)


def test_put_that_waits_for_no_replica_is_done_at_once() -> None:
    puts = writer(Mode.PLAIN, in_sync=3)
    held = standing(100)
    admission = puts.admit(held, now_ms=0, is_replicated=False)
    assert puts.wait("a", admission, held, end_offset=100, now_ms=0) == [
        Resolution("a", PutStatus.PUT_OK, 1)
    ]


def test_copies_below_one_are_refused() -> None:
    with pytest.raises(ArgumentError, match="copies 0"):
        writer(Mode.PLAIN).admit(standing(0), now_ms=0, copies=0)


def test_too_many_waiting_puts_push_back() -> None:
    puts: QuorumWriter[int] = QuorumWriter(Quorum(in_sync=2), Mode.PLAIN, waiting_max=2)
    held = standing(100)
    for token in range(2):
        puts.wait(token, puts.admit(held, now_ms=0), held, end_offset=100, now_ms=0)
    assert puts.admit(held, now_ms=0).status is PutStatus.OS_PAGE_CACHE_BUSY
    assert puts.admit(held, now_ms=0, is_replicated=False).status is PutStatus.PUT_OK


def test_own_timeout_of_a_put_counts() -> None:
    puts = writer(Mode.ACTING_MASTER, in_sync=2)
    held = standing(100, 50)
    admission = puts.admit(held, now_ms=0)
    puts.wait("a", admission, held, end_offset=100, now_ms=0, timeout_ms=10)
    assert puts.next_deadline_ms == 10
    assert puts.tick(held, 9) == []
    assert puts.tick(held, 10) == [Resolution("a", TIMEOUT, 1)]
    assert puts.next_deadline_ms is None


def test_end_of_the_role_answers_every_put_in_its_order() -> None:
    puts = writer(Mode.PLAIN, in_sync=2)
    held = standing(300)
    for number, token in enumerate("abc", 1):
        admission = puts.admit(held, now_ms=0)
        puts.wait(token, admission, held, end_offset=number * 100, now_ms=0)
    assert puts.stop(held) == [Resolution(each, TIMEOUT, 1) for each in "abc"]
    assert len(puts) == 0


def test_set_that_shrank_below_the_minimum_acknowledges_nothing() -> None:
    waiting: Waiters[str] = Waiters()
    waiting.add("a", end_offset=100, copies=2, needs_all=True, deadline_ms=50)
    assert waiting.satisfied(standing(100, waited=())) == []
    assert waiting.satisfied(standing(100, 100, waited=(2, 3))) == []
    assert waiting.satisfied(standing(100, 100, waited=(2,))) == [
        Resolution("a", PutStatus.PUT_OK, 2)
    ]


@pytest.mark.parametrize(
    ("now_ms", "is_held"), [(99, False), (100, True), (149, True), (150, False)]
)
def test_lease_counts_from_when_it_was_asked_for(now_ms: int, is_held: bool) -> None:
    lease = Lease(50)
    assert not lease.is_held(now_ms)
    lease.renewed(asked_ms=100)
    lease.renewed(asked_ms=90)
    assert lease.is_held(now_ms) is is_held
    lease.end()
    assert not lease.is_held(now_ms)


@pytest.mark.parametrize(("master_rate", "granter_rate"), [(1, 1), (10, 11), (11, 10)])
def test_lease_is_over_before_a_granter_whose_clock_runs_apart_elects(
    master_rate: int, granter_rate: int
) -> None:
    # Rates are tenths of a millisecond of each clock in one of the world's.
    duration_ms = 5000
    elected_at = duration_ms * 11 // granter_rate + 1
    lease = Lease(duration_ms)
    lease.renewed(asked_ms=0)
    assert not lease.is_held(elected_at * master_rate // 10)


def test_put_that_needs_no_copies_waits_for_a_lease_that_ran_out_after_its_append() -> None:
    lease = Lease(50)
    writer: QuorumWriter[str] = QuorumWriter(Quorum(), Mode.PLAIN, lease=lease)
    standing = Standing(100, {}, ())
    lease.renewed(asked_ms=0)
    admission = writer.admit(standing, now_ms=49)
    assert writer.wait("a", admission, standing, end_offset=100, now_ms=50) == []
    assert writer.acknowledge(50) is PutStatus.FLUSH_SLAVE_TIMEOUT
    lease.renewed(asked_ms=40)
    assert writer.progress(standing, 60) == [Resolution("a", PutStatus.PUT_OK, 1)]
    assert writer.acknowledge(60) is PutStatus.PUT_OK


def test_no_lease_is_always_held() -> None:
    assert Lease().is_held(0)
    with pytest.raises(ArgumentError, match="duration_ms is -1"):
        Lease(-1)


def test_many_resolved_puts_leave_no_deadlines_behind() -> None:
    waiting: Waiters[int] = Waiters()
    for token in range(1000):
        waiting.add(token, end_offset=token, copies=2, deadline_ms=3000)
        assert [each.token for each in waiting.satisfied(standing(token, token))] == [token]
    assert waiting.next_deadline_ms is None
    assert len(waiting._deadlines) <= 64


@dataclass
class Put:
    token: int
    end: int
    copies: int
    needs_all: bool
    deadline_ms: int


class Line(RuleBasedStateMachine):
    """Waiters against a list that asks every put every time."""

    @initialize()
    def start(self) -> None:
        self.waiting: Waiters[int] = Waiters()
        self.puts: list[Put] = []
        self.end = 0
        self.acks = {2: -1, 3: -1, 4: -1}
        self.counted = frozenset((2, 3, 4))
        self.waited = frozenset((2, 3))
        self.now_ms = 0
        self.tokens = 0

    @property
    def held(self) -> Standing:
        return Standing(self.end, dict(self.acks), self.counted, self.waited)

    def has_copies(self, put: Put) -> bool:
        holders = [each for each in self.counted if self.acks.get(each, -1) >= put.end]
        everybody = all(self.acks.get(each, -1) >= put.end for each in self.waited)
        return len(holders) + 1 >= put.copies and (everybody or not put.needs_all)

    def check(self, found: list[Resolution[int]], expected: list[tuple[int, PutStatus]]) -> None:
        assert sorted((each.token, each.status) for each in found) == sorted(expected)
        done = {each.token for each in found}
        self.puts = [each for each in self.puts if each.token not in done]

    @rule(
        size=st.integers(1, 9),
        copies=st.integers(1, 4),
        needs_all=st.booleans(),
        wait_ms=st.integers(0, 30),
    )
    def put(self, size: int, copies: int, needs_all: bool, wait_ms: int) -> None:
        self.end += size
        self.tokens += 1
        put = Put(self.tokens, self.end, copies, needs_all, self.now_ms + wait_ms)
        self.puts.append(put)
        self.waiting.add(
            put.token,
            end_offset=put.end,
            copies=copies,
            needs_all=needs_all,
            deadline_ms=put.deadline_ms,
        )

    @rule(broker=st.sampled_from([2, 3, 4]), behind=st.integers(0, 12))
    def ack(self, broker: int, behind: int) -> None:
        self.acks[broker] = max(self.end - behind, 0)
        self.satisfy()

    @rule(
        counted=st.frozensets(st.sampled_from([2, 3, 4])),
        waited=st.frozensets(st.sampled_from([2, 3, 4])),
    )
    def change(self, counted: frozenset[int], waited: frozenset[int]) -> None:
        self.counted, self.waited = counted, waited
        self.satisfy()

    @rule(broker=st.sampled_from([2, 3, 4]))
    def leave(self, broker: int) -> None:
        self.acks.pop(broker, None)

    def satisfy(self) -> None:
        expected = [(each.token, PutStatus.PUT_OK) for each in self.puts if self.has_copies(each)]
        self.check(self.waiting.satisfied(self.held), expected)

    @rule(ms=st.integers(1, 20), available=st.one_of(st.none(), st.integers(1, 4)))
    def time(self, ms: int, available: int | None) -> None:
        self.now_ms += ms
        expected = []
        for each in self.puts:
            if each.deadline_ms <= self.now_ms:
                few = available is not None and available < each.copies
                expected.append((each.token, PutStatus.SLAVE_NOT_AVAILABLE if few else TIMEOUT))
        found = self.waiting.expired(self.held, self.now_ms, replicas_available=available)
        self.check(found, expected)

    @invariant()
    def same_line(self) -> None:
        assert len(self.waiting) == len(self.puts)
        deadline_ms = min((each.deadline_ms for each in self.puts), default=None)
        assert self.waiting.next_deadline_ms == deadline_ms


TestLine = Line.TestCase
TestLine.settings = settings(max_examples=rounds(60, 3000), deadline=None)
