"""How far consumer groups are behind."""

from __future__ import annotations

from rmqstore.broker.lags import GroupLag, QueuePlace, added


def _place(committed: int, pulled: int) -> QueuePlace:
    return QueuePlace("orders", "billing", 0, committed, pulled)


def _stored_ms(offset: int) -> int | None:
    return 1000 + offset


def test_messages_are_pulled_or_ready() -> None:
    lag = added(GroupLag(), _place(10, 14), 20, _stored_ms)
    assert (lag.lag, lag.in_flight, lag.ready) == (10, 4, 6)
    assert (lag.oldest_ms, lag.oldest_ready_ms) == (1010, 1014)


def test_queues_add_up_and_the_oldest_message_counts() -> None:
    lag = added(GroupLag(), _place(10, 20), 20, _stored_ms)
    assert lag.oldest_ready_ms is None
    lag = added(lag, _place(4, 4), 6, _stored_ms)
    lag = added(lag, _place(7, 7), 7, _stored_ms)
    assert lag == GroupLag(lag=12, ready=2, oldest_ms=1004, oldest_ready_ms=1004)


def test_a_group_past_the_end_is_not_behind() -> None:
    assert added(GroupLag(), _place(30, 30), 20, _stored_ms) == GroupLag()
    assert added(GroupLag(), _place(10, 30), 20, _stored_ms).ready == 0


def test_a_pull_before_the_committed_offset_counts_as_none() -> None:
    assert added(GroupLag(), _place(10, 3), 20, _stored_ms).in_flight == 0


def test_a_message_that_cannot_be_read_has_no_age() -> None:
    lag = added(GroupLag(), _place(10, 10), 20, lambda _: None)
    assert lag == GroupLag(lag=10, ready=10)
