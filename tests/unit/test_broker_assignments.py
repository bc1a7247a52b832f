"""The shares of consumers by each strategy. RocketMQ's cases are in `QueryAssignmentProcessorTest`,
`AllocateMessageQueueAveragelyTest` and `AllocateMessageQueueAveragelyByCircleTest`."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import product

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rmqstore.broker.assignments import STRATEGIES, Strategy, averagely, popped_share, share
from rmqstore.remoting.bodies.queue_name import QueueName

BOTH = pytest.mark.parametrize("strategy", STRATEGIES.values(), ids=STRATEGIES)


def queues(count: int, *brokers: str) -> list[QueueName]:
    names = brokers or ("broker-a",)
    return [QueueName("T", broker, number) for broker in names for number in range(count)]


def members(count: int) -> list[str]:
    return [f"c{number:02}" for number in range(count)]


def numbers(found: Sequence[QueueName]) -> list[int]:
    return [each.queue_id for each in found]


@pytest.mark.parametrize(
    ("name", "count", "expected"),
    [
        ("AVG", 4, [[0, 1], [2], [3]]),
        ("AVG", 5, [[0, 1], [2, 3], [4]]),
        ("AVG", 6, [[0, 1], [2, 3], [4, 5]]),
        ("AVG", 2, [[0], [1], []]),
        ("AVG_BY_CIRCLE", 4, [[0, 3], [1], [2]]),
        ("AVG_BY_CIRCLE", 5, [[0, 3], [1, 4], [2]]),
        ("AVG_BY_CIRCLE", 6, [[0, 3], [1, 4], [2, 5]]),
        ("AVG_BY_CIRCLE", 2, [[0], [1], []]),
    ],
)
def test_three_members_share_as_in_rocketmq(
    name: str, count: int, expected: list[list[int]]
) -> None:
    strategy, names = STRATEGIES[name], members(3)
    assert [numbers(share(strategy, each, names, queues(count))) for each in names] == expected


@BOTH
@given(count=st.integers(0, 40), size=st.integers(1, 20))
def test_each_queue_has_one_member_and_shares_differ_by_one_at_most(
    strategy: Strategy, count: int, size: int
) -> None:
    wanted, names = queues(count, "a", "b"), members(size)
    shares = [share(strategy, each, names, wanted) for each in names]
    assert sorted(each for part in shares for each in part) == wanted
    sizes = [len(part) for part in shares]
    assert max(sizes) - min(sizes) <= 1


@BOTH
def test_client_that_is_no_member_has_no_queue(strategy: Strategy) -> None:
    assert share(strategy, "other", members(2), queues(4)) == []
    found = popped_share(strategy, "other", members(4), queues(4), shared_with=1)
    assert found == []


def test_members_and_brokers_are_in_the_order_of_java() -> None:
    # U+FFFD is one code unit, U+1F600 two smaller ones: Java sorts the latter first.
    late, early = "\ufffd", "\U0001f600"
    wanted = queues(1, late, early)
    assert share(averagely, early, [late, early], wanted) == [QueueName("T", early, 0)]
    assert share(averagely, late, [late, early], wanted) == [QueueName("T", late, 0)]


def test_client_with_two_connections_is_one_member() -> None:
    names = ["c0", "c0", "c1"]
    assert [numbers(share(averagely, each, names, queues(4))) for each in ("c0", "c1")] == [
        [0, 1],
        [2, 3],
    ]


@BOTH
@pytest.mark.parametrize("shared_with", [-1, 0, 3, 9])
def test_member_that_shares_with_all_pops_every_broker(
    strategy: Strategy, shared_with: int
) -> None:
    wanted = queues(4, "a", "b")
    found = popped_share(strategy, "c01", members(4), wanted, shared_with=shared_with)
    assert found == [QueueName("T", "a", -1), QueueName("T", "b", -1)]


def test_member_pops_its_share_and_those_of_the_members_after_it() -> None:
    found = popped_share(averagely, "c03", members(4), queues(8), shared_with=2)
    assert sorted(numbers(found)) == [0, 1, 2, 3, 6, 7]


def test_each_of_more_members_than_queues_pops_one() -> None:
    names = members(5)
    found = [popped_share(averagely, each, names, queues(2), shared_with=1) for each in names]
    assert list(map(numbers, found)) == [[0], [1], [0], [1], [0]]


@BOTH
def test_shares_of_members_that_pop_have_the_sizes_of_rocketmq(strategy: Strategy) -> None:
    for queue_count, count, shared_with in product(range(1, 16), range(1, 16), range(16)):
        names = members(count)
        found = popped_share(
            strategy, names[-1], names, queues(queue_count), shared_with=shared_with
        )
        assert len(set(found)) == len(found)
        if shared_with <= 0 or shared_with >= count - 1:
            assert numbers(found) == [-1]
        elif queue_count < count:
            assert len(found) == 1
        else:
            least = queue_count // count * (shared_with + 1)
            most = least if queue_count % count == 0 else least + shared_with + 1
            assert least <= len(found) <= most
