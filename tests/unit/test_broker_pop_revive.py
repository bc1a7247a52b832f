"""Which popped messages come again, and how far the progress of a revive queue goes."""

from __future__ import annotations

from typing import Any

import pytest

from rmqstore.broker.pop_records import PopAck, PopCheckPoint
from rmqstore.broker.pop_revive import ReviveQueue, put_again

POP_MS = 1_700_000_000_000
INVISIBLE_MS = 60_000
REVIVE_MS = POP_MS + INVISIBLE_MS
DUE_MS = REVIVE_MS + 2001
"""The first time at which a check point is handled."""
FAR_MS = REVIVE_MS + 86_400_000


def point(*offsets: int, **changes: Any) -> PopCheckPoint:
    """Return the check point of these messages."""
    values: dict[str, Any] = {
        "topic": "T",
        "queue": 0,
        "group": "g",
        "start_offset": offsets[0],
        "offsets": offsets,
        "pop_time_ms": POP_MS,
        "invisible_ms": INVISIBLE_MS,
        "broker_name": "b",
        **changes,
    }
    return PopCheckPoint(**values)


def ack(start: int, *offsets: int, **changes: Any) -> PopAck:
    """Return the acknowledgement of messages of a pop that began at *start*."""
    values: dict[str, Any] = {
        "topic": "T",
        "queue": 0,
        "group": "g",
        "start_offset": start,
        "offsets": offsets,
        "pop_time_ms": POP_MS,
        "broker_name": "b",
        "is_batch": len(offsets) > 1,
        **changes,
    }
    return PopAck(**values)


class Queue(ReviveQueue):
    """A revive queue that is read from offset 0 on."""

    def __init__(self, *records: PopCheckPoint | PopAck) -> None:
        super().__init__(0, broker_name="b")
        for each in records:
            due_ms = each.due_ms if isinstance(each, PopCheckPoint) else REVIVE_MS
            self.take(each, due_ms, limit_ms=FAR_MS)

    def left(self, time_ms: int = DUE_MS) -> list[tuple[int, ...]]:
        """Return the messages that come again when the queue is read to its end at a time."""
        self.read_to_end(time_ms)
        return [each.offsets for each in self.due(100)]


@pytest.mark.parametrize(
    "acks",
    [(ack(5, 5), ack(5, 9)), (ack(5, 5, 9),), (ack(5, 5), ack(5, 5, 9), ack(5, 9))],
    ids=["single", "batch", "twice"],
)
def test_messages_without_an_acknowledgement_come_again(acks: tuple[PopAck, ...]) -> None:
    assert Queue(point(5, 7, 9), *acks).left() == [(7,)]


def test_acknowledgement_before_its_check_point_counts() -> None:
    assert Queue(ack(5, 7), point(5, 7, 9)).left() == [(5, 9)]


@pytest.mark.parametrize(
    "changes",
    [
        {"topic": "U"},
        {"group": "h"},
        {"queue": 1},
        {"pop_time_ms": POP_MS + 1},
        {"broker_name": "c"},
        {"start_offset": 6},
    ],
    ids=lambda changes: next(iter(changes)),
)
def test_acknowledgement_of_another_pop_counts_for_nothing(changes: dict[str, Any]) -> None:
    assert Queue(point(5, 7), ack(5, 5, **changes)).left() == [(5, 7)]


def test_record_without_a_broker_is_of_this_one() -> None:
    """Early releases named none."""
    assert Queue(point(5, 7, broker_name=None), ack(5, 5)).left() == [(7,)]
    assert Queue(point(5, 7), ack(5, 5, broker_name=None)).left() == [(7,)]


def test_acknowledged_bits_of_a_check_point_count() -> None:
    assert Queue(point(5, 6, 7, bits=0b101)).left() == [(6,)]


def test_check_point_is_due_two_seconds_after_its_messages_are_visible() -> None:
    queue = Queue(point(5))
    assert queue.left(DUE_MS - 1) == []
    assert queue.left(DUE_MS) == [(5,)]


def test_check_point_waits_until_later_records_show_that_its_acknowledgements_are_read() -> None:
    """A long queue is not read to its end before the first messages come again."""
    queue = Queue(point(5))
    queue.take(point(8), DUE_MS + 999, limit_ms=FAR_MS)
    assert queue.due(100) == []
    queue.take(point(9), DUE_MS + 1000, limit_ms=FAR_MS)
    assert [each.offsets for each in queue.due(100)] == [(5,), (8,), (9,)]


def test_record_that_claims_a_time_to_come_shows_nothing() -> None:
    queue = Queue(point(5))
    queue.take(point(8), FAR_MS, limit_ms=REVIVE_MS)
    assert queue.due(100) == []


def test_check_points_wait_again_when_the_clock_is_set_back() -> None:
    queue = Queue(point(5))
    assert queue.left(DUE_MS) == [(5,)]
    assert queue.left(DUE_MS - 1) == []


def test_progress_passes_a_check_point_when_its_messages_are_safe() -> None:
    queue = Queue(point(5), point(6))
    assert queue.left() == [(5,), (6,)]
    queue.done(100)
    queue.done(200)
    assert not queue.settle(99)
    assert queue.passed == -1
    assert queue.settle(100)
    assert queue.passed == 0
    assert queue.settle(200)
    assert (queue.passed, len(queue)) == (1, 0)


def test_progress_does_not_pass_an_open_check_point() -> None:
    queue = Queue(point(5), point(6, invisible_ms=10 * INVISIBLE_MS), point(7))
    assert queue.left() == [(5,)]
    queue.done(0)
    assert queue.settle(1000)
    assert queue.passed == 0


def test_progress_passes_no_acknowledgement_whose_check_point_is_open() -> None:
    """After a crash both are read again."""
    queue = Queue(ack(5, 5), point(5, 6))
    queue.read_to_end(FAR_MS)
    assert not queue.settle(1000)
    assert [each.offsets for each in queue.due(100)] == [(6,)]
    queue.done(2000)
    assert not queue.settle(1999)
    assert queue.settle(2000)
    assert queue.passed == 1


def test_progress_passes_an_acknowledgement_once_no_check_point_comes_for_it() -> None:
    queue = Queue(ack(5, 5))
    queue.read_to_end(DUE_MS - 1)
    assert not queue.settle(0)
    queue.read_to_end(DUE_MS)
    assert queue.settle(0)
    assert queue.passed == 0
    # It is forgotten with that.
    queue.take(point(5), REVIVE_MS, limit_ms=FAR_MS)
    assert queue.left() == [(5,)]


def test_check_point_that_came_twice_keeps_its_acknowledgements() -> None:
    """A new master may deliver timer messages again; the copies have other offsets."""
    queue = Queue(point(5, 6), ack(5, 5), point(5, 6), ack(5, 5))
    assert queue.left() == [(6,), (6,)]
    queue.done(10)
    assert queue.settle(10)
    assert queue.passed == 0
    assert queue.left() == [(6,)]
    queue.done(20)
    assert queue.settle(20)
    assert queue.passed == 3


def test_records_of_no_use_are_passed() -> None:
    queue = Queue()
    queue.skip()
    assert queue.settle(0)
    assert queue.passed == 0
    queue.skip_to(5)
    assert queue.settle(0)
    assert (queue.passed, queue.offset) == (4, 5)


@pytest.mark.parametrize("text", [None, "", "x", "²", "9" * 40])
def test_first_time_that_a_check_point_is_put_again(text: str | None) -> None:
    again = put_again(point(5, 7, 9, times=text), 7, now_ms=REVIVE_MS)
    assert again == point(7, invisible_ms=INVISIBLE_MS + 10_000, times="1")


@pytest.mark.parametrize(("times", "pause_s"), [("1", 20), ("16", 7200), ("1000", 7200)])
def test_pause_grows_with_the_times_that_a_check_point_was_put_again(
    times: str, pause_s: int
) -> None:
    again = put_again(point(5, times=times), 5, now_ms=REVIVE_MS)
    assert again.invisible_ms == INVISIBLE_MS + pause_s * 1000
    assert again.times == str(int(times) + 1)


def test_check_point_that_is_not_due_keeps_its_time_when_it_is_put_again() -> None:
    assert put_again(point(5), 5, now_ms=REVIVE_MS - 1) == point(5, times="1")
