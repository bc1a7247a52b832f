"""Which slot a timer message waits in, what a deletion removes, and which deliveries count."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

import pytest

from rmqstore.broker.operations.timer_rules import TimerRules
from rmqstore.broker.timers import LAP_SLOTS, Deletions, Timers, Unit, due_ms_of, made_since
from rmqstore.errors import RequestRefused
from rmqstore.store.metadata import TimerProgress

DAY_MS = 86_400_000
NOW_MS = 1_700_000_000_000


def timers(**changes: int) -> Timers:
    """Return timers with a window of two days, whose next slot is that of NOW_MS."""
    progress = TimerProgress(changes.get("read_ms", NOW_MS), changes.get("queue_offset", 0), 0)
    return Timers(progress, precision_ms=1000, window_slots=172_800)


def rules(**changes: object) -> TimerRules:
    """Return the default rules, with empty slots."""
    values = {
        "is_enabled": True,
        "precision_ms": 1000,
        "delay_max_s": 259_200,
        "slot_messages_max": 2**31 - 1,
        "count_of": lambda _: 0,
    }
    return TimerRules(**{**values, **changes})  # type: ignore[arg-type]


# -- the time of a message that is sent


@pytest.mark.parametrize(
    ("due_ms", "out_ms"),
    [
        # An exact multiple goes one precision down, anything else to its multiple.
        (NOW_MS + 5000, NOW_MS + 4000),
        (NOW_MS + 5001, NOW_MS + 5000),
        (NOW_MS + 5999, NOW_MS + 5000),
        (NOW_MS + 1, NOW_MS),
    ],
)
def test_slot_of_a_time_is_over_when_the_time_comes(due_ms: int, out_ms: int) -> None:
    properties = {"TIMER_DELIVER_MS": str(due_ms)}
    assert rules().timed("T", 3, properties, NOW_MS) == ("rmq_sys_wheel_timer", 0)
    added = {"TIMER_OUT_MS": str(out_ms), "REAL_TOPIC": "T", "REAL_QID": "3"}
    assert properties == {"TIMER_DELIVER_MS": str(due_ms), **added}
    assert out_ms < due_ms <= out_ms + 1000


def test_first_property_of_its_kind_counts() -> None:
    properties = {"TIMER_DELIVER_MS": "1", "TIMER_DELAY_MS": "x", "TIMER_DELAY_SEC": "7"}
    rules().timed("T", 0, properties, NOW_MS)
    assert properties["TIMER_OUT_MS"] == str(NOW_MS + 6000)


def test_longest_time_is_taken_and_a_millisecond_more_is_not() -> None:
    longest = 259_200_000
    assert rules().timed("T", 0, {"TIMER_DELAY_MS": str(longest)}, NOW_MS) is not None
    with pytest.raises(RequestRefused, match="should not be bigger than the max delay"):
        rules().timed("T", 0, {"TIMER_DELAY_MS": str(longest + 1)}, NOW_MS)


@pytest.mark.parametrize(("count", "refused"), [(10, 0), (11, 1), (15, 40), (20, 100)])
def test_fuller_slots_refuse_more(count: int, refused: int) -> None:
    full = rules(slot_messages_max=10, count_of=lambda _: count)
    refusals = 0
    for _ in range(100):
        try:
            full.timed("T", 0, {"TIMER_DELAY_MS": "60000"}, NOW_MS)
        except RequestRefused:
            refusals += 1
    assert refused // 4 <= refusals <= max(refused * 2, 30 * (count > 10))


def test_delivered_message_that_is_sent_again_does_not_wait() -> None:
    properties = {"TIMER_DELAY_SEC": "7", "TIMER_OUT_MS": "1"}
    assert rules().timed("T", 0, properties, NOW_MS) is None


# -- slots


def test_message_within_the_window_waits_in_the_slot_of_its_time() -> None:
    unit = timers().enter(0, stored_ms=NOW_MS + 999, due_ms=NOW_MS + 60_000)
    assert unit == Unit(NOW_MS + 60_000, NOW_MS, is_rolled=False)


@pytest.mark.parametrize(
    ("days", "ahead_days"),
    # As RocketMQ: half of the window where less than a third of it is left.
    [(2.0, 1), (2.5, 1), (2.7, 2), (3.0, 2), (30.0, 2)],
)
def test_message_beyond_the_window_is_entered_again(days: float, ahead_days: int) -> None:
    due_ms = NOW_MS + int(days * DAY_MS)
    unit = timers().enter(0, stored_ms=NOW_MS, due_ms=due_ms)
    assert unit == Unit(NOW_MS + ahead_days * DAY_MS, NOW_MS, is_rolled=True)


def test_slot_of_a_coarse_wheel_is_no_further_away_than_a_unit_can_say() -> None:
    coarse = Timers(TimerProgress(NOW_MS, 0, 0), precision_ms=60_000, window_slots=604_800)
    unit = coarse.enter(0, stored_ms=NOW_MS, due_ms=NOW_MS + 300 * DAY_MS)
    assert unit is not None
    assert unit.is_rolled
    assert 20 * DAY_MS < unit.slot_ms - unit.write_ms < 2**31


def test_late_message_waits_in_the_next_slot_to_be_read() -> None:
    unit = timers().enter(0, stored_ms=NOW_MS - 9000, due_ms=NOW_MS - 5000)
    assert unit == Unit(NOW_MS, NOW_MS, is_rolled=False)


def test_slots_that_wait_for_two_weeks_are_not_overwritten() -> None:
    """RocketMQ skips messages after a standstill of seven days instead."""
    lap_ms = LAP_SLOTS * 1000
    late = timers(read_ms=NOW_MS - 13 * DAY_MS)
    unit = late.enter(0, stored_ms=NOW_MS, due_ms=NOW_MS + DAY_MS + DAY_MS // 2)
    assert unit is not None
    assert unit.is_rolled
    assert unit.slot_ms < late.read_ms + lap_ms


@pytest.mark.parametrize(("offset", "is_done"), [(4, True), (5, False)])
def test_message_whose_delivery_counts_does_not_enter_the_wheel(
    offset: int, *, is_done: bool
) -> None:
    found = timers(queue_offset=5).enter(offset, stored_ms=NOW_MS - 9000, due_ms=NOW_MS - 1000)
    assert (found is None) == is_done


# -- what counts


def test_delivery_counts_once_it_is_safe() -> None:
    machine = timers()
    machine.enter(0, stored_ms=NOW_MS, due_ms=NOW_MS + 1000)
    machine.read(NOW_MS + 2000, 1)
    assert machine.settle(safe_offset=100, log_end=200) is None
    assert not machine.is_settled
    assert machine.settle(safe_offset=199, log_end=300) is None
    assert machine.settle(safe_offset=200, log_end=300) == TimerProgress(NOW_MS + 2000, 1, 200)
    assert machine.is_settled


def test_late_message_counts_only_after_its_slot() -> None:
    """Its own time is before the slots that are read, so its offset must not count yet."""
    machine = timers()
    machine.enter(0, stored_ms=NOW_MS - 1000, due_ms=NOW_MS - 1000)
    machine.settle(safe_offset=0, log_end=100)
    found = machine.settle(safe_offset=100, log_end=100)
    assert found is not None
    assert found.queue_offset == 0
    machine.read(NOW_MS + 1000)
    machine.settle(safe_offset=100, log_end=150)
    found = machine.settle(safe_offset=150, log_end=150)
    assert found is not None
    assert found.queue_offset == 1


def test_nothing_counts_while_deliveries_of_an_earlier_master_are_not_passed() -> None:
    machine = timers()
    machine.made = {3}
    machine.enter(0, stored_ms=NOW_MS, due_ms=NOW_MS + 1000)
    for _ in range(3):
        assert machine.settle(safe_offset=500, log_end=500) is None
    machine.made.clear()
    machine.settle(safe_offset=500, log_end=500)
    assert machine.settle(safe_offset=500, log_end=500) is not None


def test_progress_follows_a_log_without_timer_messages() -> None:
    machine = timers()
    machine.settle(safe_offset=0, log_end=100)
    assert machine.settle(safe_offset=100, log_end=64 << 20) is None
    found = machine.settle(safe_offset=64 << 20, log_end=65 << 20)
    assert found is not None
    assert found.log_offset == 64 << 20


# -- deletions, and records that are none


def test_deletion_names_a_message_with_or_without_its_topic() -> None:
    deletions = Deletions()
    deletions.add({"TIMER_DEL_UNIQKEY": "T+K"})
    deletions.add({"TIMER_DEL_UNIQKEY": "L"})
    deletions.add({})
    assert deletions.holds({"REAL_TOPIC": "T", "UNIQ_KEY": "K"})
    assert not deletions.holds({"REAL_TOPIC": "U", "UNIQ_KEY": "K"})
    assert deletions.holds({"REAL_TOPIC": "U", "UNIQ_KEY": "L"})
    assert not deletions.holds({"REAL_TOPIC": "T"})


@pytest.mark.parametrize(
    "properties",
    [
        {},
        {"TIMER_OUT_MS": "1"},
        {"TIMER_OUT_MS": "", "REAL_TOPIC": "T"},
        {"TIMER_OUT_MS": "-1", "REAL_TOPIC": "T"},
        {"TIMER_OUT_MS": "²", "REAL_TOPIC": "T"},
        {"TIMER_OUT_MS": "1", "REAL_TOPIC": "rmq_sys_wheel_timer"},
    ],
)
def test_record_without_a_time_is_no_timer_message(properties: dict[str, str]) -> None:
    assert due_ms_of(properties) is None


def test_time_of_many_digits_is_far_away() -> None:
    due_ms = due_ms_of({"TIMER_OUT_MS": "9" * 400, "REAL_TOPIC": "T"})
    assert due_ms is not None
    assert timers().enter(0, stored_ms=NOW_MS, due_ms=due_ms) is not None


@dataclass
class Logged:
    """A record of the log."""

    properties: Mapping[str, str]
    topic: str = "T"
    unique_key: str | None = "K"
    properties_text: str = field(init=False)

    def __post_init__(self) -> None:
        self.properties_text = str(self.properties)


def test_deliveries_in_the_log_name_their_origin() -> None:
    records = [Logged({"TIMER_ORIGIN": text}) for text in ("3", "x", "-1", "", "2")]
    records.append(Logged({"a": "TIMER_ORIGIN"}))
    assert made_since(records) == {3: ("T", "K"), 2: ("T", "K")}


# -- clocks that are set


def test_clock_that_is_set_back_has_slots_read_again_for_new_messages_alone() -> None:
    machine = timers()
    for offset in range(2):
        machine.enter(offset, stored_ms=NOW_MS, due_ms=NOW_MS + 5000)
    machine.read(NOW_MS + DAY_MS, 2)
    machine.follow(NOW_MS + 3000)
    assert machine.read_ms == NOW_MS + 3000
    unit = machine.enter(2, stored_ms=NOW_MS + 3000, due_ms=NOW_MS + 5000)
    assert unit is not None
    assert unit.slot_ms == NOW_MS + 5000
    assert [machine.is_done(offset, unit.slot_ms) for offset in range(3)] == [True, True, False]
    # What was done is in no progress that begins before it.
    machine.settle(safe_offset=900, log_end=900)
    assert machine.settle(safe_offset=900, log_end=900) is None
    assert not machine.is_settled
    machine.read(NOW_MS + DAY_MS, 1)
    assert not machine.is_done(0, NOW_MS + 5000)
    machine.settle(safe_offset=900, log_end=900)
    assert machine.settle(safe_offset=900, log_end=900) is not None


def test_clock_that_is_a_second_behind_reads_no_slot_again() -> None:
    machine = timers(read_ms=NOW_MS + 1000)
    machine.follow(NOW_MS)
    assert machine.read_ms == NOW_MS + 1000
