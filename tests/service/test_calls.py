"""The thread that calls an application's functions."""

from __future__ import annotations

import queue
from typing import Any

import pytest

from rmqstore.replication.runtime.calls import Calls

LIMIT_S = 40


@pytest.mark.parametrize("error", [RuntimeError, SystemExit, KeyboardInterrupt, GeneratorExit])
def test_callback_that_raises_ends_no_other_call(
    error: type[BaseException], caplog: pytest.LogCaptureFixture
) -> None:
    changes: queue.Queue[str] = queue.Queue()
    proposals: queue.Queue[Any] = queue.Queue()

    def on_change(status: Any) -> None:
        changes.put(status)
        raise error("stop")

    def on_proposal(proposal: Any) -> None:
        proposals.put(proposal)
        raise error("stop")

    calls = Calls(on_proposal, on_change, lambda: "status")  # type: ignore[arg-type, return-value]
    try:
        for number in range(3):
            calls.changed()
            assert changes.get(timeout=LIMIT_S) == "status"
            calls.proposed(number)  # type: ignore[arg-type]
            assert proposals.get(timeout=LIMIT_S) == number
    finally:
        calls.stop()
    assert [each.exc_info[0] for each in caplog.records if each.exc_info] == [error] * 6
