"""What is due of delayed messages, what counts as delivered, and what a slave takes of it."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import pytest

from rmqstore.broker.delays import Deliveries, Level, Origin, Unit, made_since
from rmqstore.broker.metadata.changes import Entry
from rmqstore.broker.metadata.delay_progress import DelayProgress
from rmqstore.broker.operations.message_rules import scheduled
from rmqstore.errors import RequestRefused
from rmqstore.remoting.codes import ResponseCode
from rmqstore.store.metadata import DelayOffsets, TimerProgress

HOUR_MS = 3_600_000


# -- where a delayed message waits


@pytest.mark.parametrize(
    ("level", "queue", "kept"),
    [("1", 0, "1"), ("18", 17, "18"), ("19", 17, "18"), ("+3", 2, "3"), ("999999999", 17, "18")],
)
def test_delayed_message_waits_in_the_queue_of_its_level(level: str, queue: int, kept: str) -> None:
    properties = {"DELAY": level, "KEYS": "k"}
    assert scheduled("T", 3, properties, 18) == ("SCHEDULE_TOPIC_XXXX", queue)
    assert properties == {"DELAY": kept, "KEYS": "k", "REAL_TOPIC": "T", "REAL_QID": "3"}


@pytest.mark.parametrize("level", ["0", "-1", "-999999999"])
def test_message_of_no_level_is_not_delayed(level: str) -> None:
    properties = {"DELAY": level}
    assert scheduled("T", 3, properties, 18) is None
    assert properties == {"DELAY": level}


@pytest.mark.parametrize("level", ["", "x", "1.5", " 3", "9999999999", "٣"])
def test_level_that_is_no_number_is_refused(level: str) -> None:
    with pytest.raises(RequestRefused, match="delay level, 1 to 18") as caught:
        scheduled("T", 0, {"DELAY": level}, 18)
    assert caught.value.code == ResponseCode.MESSAGE_ILLEGAL


# -- what is due


def test_messages_are_due_in_the_order_of_their_queue() -> None:
    level = Level(1, 1000, 5)
    units = [Unit(5, 100), Unit(6, 200), Unit(7, 201), Unit(8, 150)]
    assert level.due(units, 200) == ([5, 6], 1)
    assert level.due(units, 201) == ([5, 6, 7, 8], None)
    assert level.due([], 0) == ([], None)


def test_message_that_would_wait_for_longer_than_its_level_is_due() -> None:
    level = Level(1, 1000, 0)
    assert level.due([Unit(0, 1001)], 0) == ([0], None)
    assert level.due([Unit(0, 1000)], 0) == ([], 1000)


# -- what counts


def test_delivery_counts_once_the_disk_and_every_member_have_it() -> None:
    first, second = Level(1, 1000, 7), Level(2, 5000, 0)
    deliveries = Deliveries([first, second], 50)
    assert deliveries.settle(100, 100) is None
    first.passed(7, 140)
    second.passed(0, 180)
    assert not deliveries.is_settled
    assert deliveries.settle(100, 180) is None, "the end of the log was 100 when it was looked at"
    assert deliveries.settle(179, 180) is None
    assert deliveries.settle(180, 200) == {1: 8, 2: 1}
    assert deliveries.log_offset == 180
    assert deliveries.is_settled


def test_delivery_past_the_safe_end_does_not_count_and_lies_past_the_log_offset() -> None:
    level = Level(1, 1000, 0)
    deliveries = Deliveries([level], 0)
    level.passed(0, 100)
    deliveries.settle(0, 100)
    level.passed(1, 200)
    assert deliveries.settle(150, 200) == {1: 1}
    assert (deliveries.log_offset, level.counted, level.offset) == (100, 1, 2)


def test_log_offset_follows_a_long_log_without_deliveries() -> None:
    deliveries = Deliveries([Level(1, 1000, 0)], 0)
    deliveries.settle(0, 1 << 20)
    assert deliveries.settle(1 << 20, 1 << 30) is None
    assert deliveries.settle(1 << 30, 1 << 30) == {}
    assert deliveries.log_offset == 1 << 30


def test_message_that_cannot_be_read_counts_after_those_before_it() -> None:
    level = Level(1, 1000, 0)
    level.passed(0, 500)
    level.passed(1)
    assert not level.count(499)
    assert level.count(500)
    assert level.counted == 2


# -- what an earlier master delivered


def test_deliveries_of_an_earlier_master_are_passed_though_they_are_not_due_by_this_clock() -> None:
    level = Level(1, 1000, 4)
    level.made = {4, 5, 7}
    level.pass_made(300)
    assert (level.offset, level.made, level.counted) == (6, {7}, 4)
    assert level.count(300)
    assert level.counted == 6


def test_nothing_is_told_while_deliveries_of_an_earlier_master_are_not_passed() -> None:
    """A new master would look for them only past the log offset."""
    first, second = Level(1, 1000, 0), Level(2, 5000, 0)
    second.made = {1}
    deliveries = Deliveries([first, second], 0)
    deliveries.settle(300, 300)
    first.passed(0, 200)
    assert deliveries.settle(300, 300) is None
    second.passed(0, 0)
    second.pass_made(300)
    deliveries.settle(300, 300)
    assert deliveries.settle(300, 300) == {1: 1, 2: 2}


@dataclass
class Logged:
    topic: str
    unique_key: str | None
    properties: dict[str, str] = field(default_factory=dict)

    @property
    def properties_text(self) -> str:
        return "".join(f"{name}\x01{value}\x02" for name, value in self.properties.items())


def test_deliveries_past_the_counted_ones_are_found_by_their_origin() -> None:
    records = [
        Logged("T", "a", {"DELAY_ORIGIN": "1-4"}),
        Logged("T", "b", {"DELAY_ORIGIN": "1-5"}),
        Logged("U", None, {"DELAY_ORIGIN": "3-0"}),
        Logged("T", "c", {}),
        *(
            Logged("T", "d", {"DELAY_ORIGIN": text})
            for text in ("", "1", "1-", "-1", "1--5", "x-5")
        ),
    ]
    found = made_since(records, {1: 5})
    assert found == {Origin(1, 5): ("T", "b"), Origin(3, 0): ("U", None)}
    assert [str(each) for each in found] == ["1-5", "3-0"]


# -- what a slave takes


def progress_at(known: DelayOffsets, flushed_offset: Callable[[], int]) -> DelayProgress:
    progress = DelayProgress(flushed_offset)
    progress.take_whole(known)
    return progress


def steps(log_offset: int | None = None, **offsets: Any) -> list[tuple[Entry, Any]]:
    """The changes of levels (`l1`), of the place in the log, and of the timer."""
    found: dict[str, Any] = {key.removeprefix("l"): each for key, each in offsets.items()}
    if log_offset is not None:
        found["log"] = log_offset
    return [(Entry("delay", key), each) for key, each in found.items()]


def test_slave_takes_progress_once_its_disk_has_the_deliveries() -> None:
    flushed = [0]
    progress = DelayProgress(lambda: flushed[0])
    progress.take(steps(100, l1=5))
    progress.take(steps(200, l2=3))
    assert progress.saved().offsets == {}
    flushed[0] = 150
    assert progress.saved().offsets == {1: 5}
    flushed[0] = 200
    assert progress.saved() == DelayOffsets({1: 5, 2: 3}, log_offset=200)


def test_new_master_forgets_progress_past_its_log() -> None:
    progress = progress_at(DelayOffsets({1: 4}, log_offset=50), lambda: 150)
    progress.take(steps(100, l1=5))
    progress.take(steps(200, l1=6))
    progress.lead()
    assert progress.latest == DelayOffsets({1: 5}, log_offset=100)


def test_progress_of_a_java_master_is_taken_as_it_is() -> None:
    progress = DelayProgress(lambda: 0)
    progress.take_whole(DelayOffsets({1: 9}))
    assert progress.saved() == DelayOffsets({1: 9})


def test_slave_far_behind_keeps_a_bounded_number_of_tables() -> None:
    flushed = [0]
    progress = DelayProgress(lambda: flushed[0])
    for number in range(1, 1000):
        progress.take(steps(number, l1=number))
    assert len(progress._known) <= 64
    flushed[0] = 999
    assert progress.saved().offsets == {1: 999}


def test_removed_level_leaves_the_table() -> None:
    progress = progress_at(DelayOffsets({1: 4, 2: 5}), lambda: 0)
    progress.take(steps(l1=None))
    assert progress.saved() == DelayOffsets({2: 5})


def test_slave_takes_the_progress_of_timers_once_its_disk_has_the_deliveries() -> None:
    flushed = [150]
    progress = progress_at(DelayOffsets({1: 4}, log_offset=50), lambda: flushed[0])
    timer = TimerProgress(1000, 3, 200)
    progress.take(steps(timer=timer))
    assert progress.saved() == DelayOffsets({1: 4}, log_offset=50)
    flushed[0] = 200
    assert progress.saved() == DelayOffsets({1: 4}, log_offset=50, timer=timer)
    progress.take_whole(DelayOffsets({1: 4}, timer=TimerProgress(2000, 4, 300)))
    progress.lead()
    assert progress.latest.timer == timer
