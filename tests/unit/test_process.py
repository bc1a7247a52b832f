"""The signals that end a service."""

from __future__ import annotations

import signal

import pytest

from rmqstore.net.process import ending_signals


@pytest.mark.parametrize(
    ("handling", "is_ending"),
    [(signal.SIG_DFL, True), (signal.SIG_IGN, False)],
    ids=["from a terminal", "with nohup"],
)
def test_hangup_ends_a_service_unless_the_starter_ignores_it(
    handling: signal.Handlers, is_ending: bool
) -> None:
    former = signal.signal(signal.SIGHUP, handling)
    try:
        assert (signal.SIGHUP in ending_signals()) is is_ending
    finally:
        signal.signal(signal.SIGHUP, former)
