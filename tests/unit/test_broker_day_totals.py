"""Totals of messages, of today and yesterday, through restarts."""

from __future__ import annotations

import pytest

from rmqstore.broker.day_totals import DayTotals, Totals


def _restarted(days: DayTotals, run: Totals) -> DayTotals:
    found = DayTotals()
    found.restore(days.encode(run))
    return found


def test_totals_go_on_after_a_restart() -> None:
    days = DayTotals()
    days.take_day(10, Totals())
    days.take_day(11, Totals(5, 3))
    days = _restarted(days, Totals(9, 4))
    days.take_day(11, Totals())
    assert (days.yesterday, days.today) == (Totals(), Totals(5, 3))
    assert days.now(Totals(1, 1)) == Totals(10, 5)
    days.take_day(12, Totals(2, 2))
    assert (days.yesterday, days.today) == (Totals(5, 3), Totals(11, 6))


def test_yesterday_has_no_messages_after_days_without_the_broker() -> None:
    days = DayTotals()
    days.take_day(10, Totals())
    days = _restarted(days, Totals(7, 7))
    days.take_day(14, Totals())
    assert days.yesterday == days.today == days.now(Totals()) == Totals(7, 7)


@pytest.mark.parametrize(
    "content",
    [
        b"",
        b"[]",
        b"{}",
        b'{"day": 1, "yesterday": {}, "today": {}, "now": {}}',
        b'{"day": true, "yesterday": 0, "today": 0, "now": 0}',
        DayTotals().encode(Totals(1, 1))[:-1],
        DayTotals().encode(Totals(1, 1)).replace(b"1", b"-1"),
        DayTotals().encode(Totals(1, 1)).replace(b"1", b"1e3"),
    ],
)
def test_a_damaged_content_changes_nothing(content: bytes) -> None:
    days = DayTotals()
    with pytest.raises(ValueError, match=r"Expecting|is not|not a JSON"):
        days.restore(content)
    assert days.now(Totals()) == Totals()
