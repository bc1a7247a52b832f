"""Messages that peers cause come at a limited rate."""

from __future__ import annotations

import logging

import pytest

from rmqstore.net.identity_log import IdentityLog
from rmqstore.net.seldom import Seldom


def test_messages_beyond_the_limit_are_counted(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO)
    now = [0.0]
    seldom = Seldom(
        IdentityLog("rmqstore.test"), count_max=2, interval_s=10.0, clock=lambda: now[0]
    )
    for number in range(5):
        seldom.info("message %d", number)
    now[0] = 9.9
    seldom.warning("message 5")
    assert caplog.messages == ["message 0", "message 1"]
    caplog.clear()

    now[0] = 10.0
    seldom.warning("message 6")
    assert caplog.messages == ["4 further messages about connections were left out", "message 6"]
    caplog.clear()

    now[0] = 30.0
    seldom.info("message 7")
    assert caplog.messages == ["message 7"]
