"""The table of living brokers: two processes of one broker, and a node that was stopped."""

from __future__ import annotations

import pytest

from rmqstore.controller.liveness import PULSE_MS, Heartbeat, Liveness


def beat(life: int | None, number: int = 1) -> Heartbeat:
    return Heartbeat(
        group="b", broker_id=1, address=f"h:{life}", life=life, number=number, timeout_ms=100
    )


@pytest.mark.parametrize(
    ("life", "now_ms", "is_displaced"),
    [
        (7, 50, True),
        (8, 50, False),
        (9, 50, False),
        (None, 50, False),
        (7, 101, False),
    ],
)
def test_a_process_is_displaced_by_a_later_one_that_is_alive(
    life: int | None, now_ms: int, is_displaced: bool
) -> None:
    liveness = Liveness()
    assert liveness.later_life(beat(7), 0) is None
    liveness.record(beat(8), "connection", 0)
    later = liveness.later_life(beat(life, number=99), now_ms)
    assert (later is not None) is is_displaced


def test_a_later_process_that_closed_its_connection_displaces_nobody() -> None:
    liveness = Liveness()
    liveness.record(beat(8), "connection", 0)
    liveness.closed("connection", 10)
    assert liveness.later_life(beat(7), 20) is None


STOP_MS = 60_000


def ran_until(liveness: Liveness, begin_ms: int, end_ms: int) -> None:
    for now_ms in range(begin_ms, end_ms, PULSE_MS):
        liveness.ran(now_ms)


@pytest.fixture
def stopped() -> Liveness:
    """The table of a node that ran until 1000, stopped 40 ms after a heartbeat, and goes on."""
    liveness = Liveness()
    ran_until(liveness, 0, 1000)
    liveness.ran(1000)
    liveness.record(beat(None), "connection", 960)
    liveness.ran(1000 + STOP_MS)
    return liveness


def test_time_in_which_the_node_was_stopped_counts_against_no_broker(stopped: Liveness) -> None:
    now_ms = 1000 + STOP_MS
    assert stopped.expire(now_ms) == []
    assert stopped.is_alive("b", 1, now_ms + 60)
    assert not stopped.is_alive("b", 1, now_ms + 61)
    assert stopped.expire(now_ms + 61) == [("b", 1)]


def test_broker_that_had_ended_before_the_stop_stays_dead() -> None:
    liveness = Liveness()
    liveness.record(beat(None), "connection", 0)
    liveness.ran(0)
    assert liveness.expire(101) == [("b", 1)]
    liveness.ran(STOP_MS)
    assert not liveness.is_alive("b", 1, STOP_MS)


def test_report_that_waited_may_be_as_old_as_the_stop(stopped: Liveness) -> None:
    def recorded_as_of(now_ms: int) -> int:
        assert stopped.record(beat(None), "connection", now_ms)
        report = stopped.report("b", 1)
        assert report is not None
        return report.as_of_ms

    now_ms = 1000 + STOP_MS
    assert recorded_as_of(now_ms + 10) == 1000
    ran_until(stopped, now_ms + PULSE_MS, now_ms + 5 * PULSE_MS)
    assert recorded_as_of(now_ms + 5 * PULSE_MS) == now_ms + 5 * PULSE_MS


def test_connection_that_ended_during_the_stop_ends_no_broker_at_once(stopped: Liveness) -> None:
    now_ms = 1000 + STOP_MS
    assert stopped.closed("connection", now_ms + 1) == []
    assert stopped.is_alive("b", 1, now_ms + 1)
    assert stopped.expire(now_ms + 61) == [("b", 1)]
