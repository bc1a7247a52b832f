"""Sums and rates of the last minute, hour and day, by key."""

from __future__ import annotations

import gc
import tracemalloc

import pytest

from rmqstore.broker.counters import SAMPLE_S, Counters, Sum


def _run(counters: Counters[str], start_s: float, seconds: int, *, messages: int) -> float:
    """Count some messages of 100 bytes in each second; return when that ends."""
    for second in range(1, seconds + 1):
        counters.add("orders", messages, 100 * messages)
        if second % SAMPLE_S == 0:
            counters.sample(start_s + second)
    return start_s + seconds


def _minute(counters: Counters[str], key: str, now_s: float) -> Sum:
    sums = counters.messages(key, now_s)
    assert sums is not None
    return sums.minute


def test_a_key_that_was_never_counted_has_no_sums() -> None:
    counters = Counters[str](0.0)
    assert counters.messages("orders", 1.0) is None
    assert counters.rate("orders", 1.0) == 0.0
    assert counters.total("orders") == (0, 0)


def test_a_count_shows_before_the_first_sample() -> None:
    counters = Counters[str](0.0)
    counters.add("orders", 5, 500)
    assert _minute(counters, "orders", 2.0) == Sum(5, 0.5, 5.0)
    sizes = counters.sizes("orders", 2.0)
    assert sizes is not None
    assert sizes.day.total == 500
    assert list(counters) == ["orders"]


def test_the_minute_forgets_what_is_older_and_the_hour_does_not() -> None:
    counters = Counters[str](0.0)
    now_s = _run(counters, 0.0, 120, messages=7)
    now_s = _run(counters, now_s, 60, messages=1)
    sums = counters.messages("orders", now_s)
    assert sums is not None
    assert sums.minute == Sum(60, pytest.approx(1.0), pytest.approx(1.0))
    assert sums.hour.total == sums.day.total == 120 * 7 + 60
    assert counters.total("orders") == (900, 90_000)


def test_the_hour_and_the_day_forget_what_is_older() -> None:
    counters = Counters[str](0.0)
    now_s = _run(counters, 0.0, 3600, messages=3)
    now_s = _run(counters, now_s, 3600, messages=1)
    sums = counters.messages("orders", now_s)
    assert sums is not None
    assert (sums.hour.total, sums.day.total) == (3600, 4 * 3600)
    assert sums.hour.rate == pytest.approx(1.0)
    for _ in range(24):
        now_s = _run(counters, now_s + 3590, 10, messages=0)
    sums = counters.messages("orders", now_s)
    assert sums is not None
    assert sums.day.total == 0
    assert counters.total("orders") == (4 * 3600, 400 * 3600)


def test_each_size_of_numbers_is_kept() -> None:
    counters = Counters[str](0.0)
    numbers = [200, 255, 256, 65_535, 65_536, 2**32 - 1, 2**32, 2**40]
    for number in numbers:
        counters.add(str(number), 1, number)
    for now_s in (10.0, 600.0, 3600.0):
        counters.sample(now_s)
    for number in numbers:
        sums = counters.sizes(str(number), 3600.0)
        assert sums is not None
        assert sums.minute.total == sums.hour.total == sums.day.total == number


def test_a_late_key_has_the_rate_of_its_own_time() -> None:
    counters = Counters[str](0.0)
    for now_s in range(10, 100, 10):
        counters.sample(float(now_s))
    counters.add("late", 40)
    counters.sample(100.0)
    assert _minute(counters, "late", 100.0).rate == pytest.approx(4.0)
    assert _minute(counters, "late", 110.0).rate == pytest.approx(2.0)


def test_a_forgotten_key_leaves_nothing_to_the_next_one() -> None:
    counters = Counters[str](0.0)
    _run(counters, 0.0, 3600, messages=3)
    counters.add("orders", 1)
    counters.forget(lambda key: key == "orders")
    assert counters.messages("orders", 3600.0) is None
    counters.add("bills", 1, 10)
    counters.sample(3610.0)
    sums = counters.messages("bills", 3610.0)
    assert sums is not None
    assert (sums.minute.total, sums.hour.total, sums.day.total) == (1, 1, 1)
    assert counters.total("bills") == (1, 10)


def test_a_counter_takes_less_than_200_bytes() -> None:
    """After a day in which 1,000 topics, with 2,000 counters, got messages at any time."""
    topics = [f"topic-{number}" for number in range(1000)]
    counters, now_s = Counters[str](0.0), 0.0
    gc.collect()
    tracemalloc.start()
    try:
        for _ in range(6 * 24):
            for passed_s, messages in ((550, 1700), (10, 30), (10, 30), (10, 30), (20, 60)):
                for topic in topics:
                    counters.add(topic, messages, 1200 * messages)
                now_s += passed_s
                counters.sample(now_s)
        gc.collect()
        held_bytes, _ = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert counters.rate("topic-7", now_s) > 0
    assert held_bytes / (2 * len(topics)) < 200
