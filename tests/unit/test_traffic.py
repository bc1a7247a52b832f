"""Totals and rates of what a broker stores and sends."""

from __future__ import annotations

import pytest

from rmqstore.broker.traffic import Traffic


def _run(traffic: Traffic, seconds: range, *, puts: int, day: int = 1) -> None:
    """Store *puts* messages in each second, and sample at its end."""
    for second in seconds:
        traffic.stored("orders", puts, 100 * puts)
        traffic.sample(second, day=day, positions={"slave": 50 * second})


def test_rates_are_those_of_the_last_10_60_and_600_seconds() -> None:
    traffic = Traffic(0.0)
    _run(traffic, range(601), puts=1)
    _run(traffic, range(601, 701), puts=4)
    _run(traffic, range(701, 711), puts=10)
    rates = [float(each) for each in str(traffic.report(710.0)["putTps"]).split()]
    assert rates == pytest.approx([10.0, (10 * 10 + 50 * 4) / 60, (100 + 400 + 490) / 600])


def test_a_broker_that_started_just_now_has_the_rate_of_its_life() -> None:
    traffic = Traffic(0.0)
    assert traffic.report(0.0)["putTps"] == "0.0000 0.0000 0.0000"
    traffic.sample(0.0, day=1, positions={})
    traffic.stored("orders", 30, 3000)
    assert traffic.report(3.0)["putTps"] == "10.0000 10.0000 10.0000"
    traffic.sample(3.0, day=1, positions={})
    assert str(traffic.report(20.0)["putTps"]).split()[0] == "0.0000"


def test_found_and_missed_pulls_count_once_and_messages_each() -> None:
    traffic = Traffic(0.0)
    traffic.sample(0.0, day=1, positions={})
    traffic.pulled("orders", "g", 32, 3200)
    traffic.pulled("orders", "g", 0, 0)
    report = traffic.report(1.0)
    names = ("getFoundTps", "getMissTps", "getTotalTps", "getTransferredTps", "getTransferedTps")
    assert [float(str(report[name]).split()[0]) for name in names] == [1, 1, 2, 32, 32]
    assert report["msgGetTotalTodayNow"] == 32


def test_totals_of_days_move_at_midnight() -> None:
    traffic = Traffic(0.0)
    times = ("YesterdayMorning", "TodayMorning", "TodayNow")

    def totals() -> list[object]:
        report = traffic.report(0.0)
        return [report[f"msgPutTotal{time}"] for time in times]

    _run(traffic, range(3), puts=1, day=10)
    assert totals() == [1, 1, 3]
    _run(traffic, range(3, 5), puts=1, day=11)
    assert totals() == [1, 4, 5]
    _run(traffic, range(5, 7), puts=1, day=12)
    assert totals() == [4, 6, 7]


def test_times_of_puts_are_distributed_under_rocketmqs_names() -> None:
    traffic = Traffic(0.0)
    for seconds in (0.0001, 0.0002, 0.005, 0.3, 20.0):
        traffic.put_took(seconds)
    traffic.refused()
    report = traffic.report(0.0)
    parts = dict(part.split(":") for part in str(report["putMessageDistributeTime"]).split())
    assert len(parts) == 13
    assert {name: count for name, count in parts.items() if count != "0"} == {
        "[<=0ms]": "2",
        "[0~10ms]": "1",
        "[200~500ms]": "1",
        "[10s~]": "1",
    }
    assert report["putMessageEntireTimeMax"] == 20_000
    assert (report["putLatency99"], report["putMessageFailedTimes"]) == (20_000.0, 1)


def test_topics_and_groups_have_rates_of_the_last_minute() -> None:
    traffic = Traffic(0.0)
    for second in range(100):
        traffic.stored("orders", 2, 100)
        traffic.pulled("orders", "g", 3, 300)
        traffic.sample(second, day=1, positions={})
    assert traffic.statistics.topic_put_rate("orders", 99.0) == pytest.approx(2.0)
    assert traffic.statistics.group_get_rate("orders", "g", 99.0) == pytest.approx(3.0)
    assert traffic.statistics.topic_put_rate("other", 99.0) == 0.0
    assert traffic.statistics.group_get_rate("orders", "other", 99.0) == 0.0


def test_rate_of_a_replica_is_that_of_its_log() -> None:
    traffic = Traffic(0.0)
    assert traffic.replica_rate("slave", 10, 0.0) == 0
    _run(traffic, range(100), puts=0)
    assert traffic.replica_rate("slave", 50 * 99, 99.0) == 50
    assert traffic.replica_rate("other", 50 * 99, 99.0) == 0
