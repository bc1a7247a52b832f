"""The allowance of bytes a second."""

from __future__ import annotations

from itertools import pairwise

from hypothesis import given
from hypothesis import strategies as st

from rmqstore.replication.protocol.flow import FlowControl


def test_without_a_limit_any_number_of_bytes_may_go_out() -> None:
    flow = FlowControl(bytes_per_second=0)
    flow.spend(10**12)
    assert flow.allowed(0) is None


def test_allowance_of_a_second_is_used_up_and_comes_back_with_the_next() -> None:
    flow = FlowControl(bytes_per_second=100)
    assert flow.allowed(5000) == 100
    flow.spend(60)
    assert flow.allowed(5500) == 40
    flow.spend(52)
    assert flow.allowed(5999) == 0
    assert flow.opens_ms() == 6000
    assert flow.allowed(6000) == 100


@given(st.lists(st.tuples(st.integers(0, 400), st.integers(1, 80)), max_size=60))
def test_no_window_between_two_openings_carries_more_than_the_limit(
    steps: list[tuple[int, int]],
) -> None:
    flow = FlowControl(bytes_per_second=100)
    now_ms, sent = 0, dict[int, int]()
    for pause_ms, wanted in steps:
        now_ms += pause_ms
        size = min(wanted, flow.allowed(now_ms) or 0)
        flow.spend(size)
        opened_ms = flow.opens_ms() - 1000
        sent[opened_ms] = sent.get(opened_ms, 0) + size
    assert all(size <= 100 for size in sent.values())
    openings = sorted(sent)
    assert all(later - earlier >= 1000 for earlier, later in pairwise(openings))
