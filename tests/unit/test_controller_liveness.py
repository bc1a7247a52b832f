"""The table of living brokers: two processes of one broker."""

from __future__ import annotations

import pytest

from rmqstore.controller.liveness import Heartbeat, Liveness


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
