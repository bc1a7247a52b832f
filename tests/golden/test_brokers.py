"""Directories of real brokers that ended with messages under way, taken over by a broker of ours.

`manifest.json` says of each message what must follow; README.md has its words.
"""

from __future__ import annotations

import time
from pathlib import Path
from typing import Any

import pytest

from rmqstore.broker.node import Broker
from tests.golden import RELEASES
from tests.golden.taken_over import ENDINGS, TakenOver, copies
from tests.support.loops import ShiftedRuntime, on_loop
from tests.support.waiting import until

HOUR_MS = 3_600_000


@pytest.mark.parametrize("release", RELEASES)
@pytest.mark.parametrize("ending", ENDINGS)
@on_loop
async def test_delayed_messages_of_a_java_broker_are_delivered(
    tmp_path: Path, release: str, ending: str
) -> None:
    taken = TakenOver(tmp_path, release, f"delay-{ending}")
    now_ms = time.time_ns() // 1_000_000
    due = [
        each
        for each in taken.messages
        if each["must"].startswith("deliver-once") and each["not_before_ms"] < now_ms
    ]
    assert due
    async with Broker(taken.config) as broker:

        def delivered(message: dict[str, Any]) -> int:
            key = message["uniq_key"], message["topic"], message["queue"]
            return copies(broker)[key] - int(message["copies_before"])

        await until(lambda: all(map(delivered, due)), "all that is due is delivered")
        level = broker.metadata.tables["delay"]
        waiting = [each for each in taken.messages if each.get("due_ms", 0) > now_ms]
        await until(lambda: level.whole().offsets.get(18) == 1, "the last level counts")
        assert [delivered(each) for each in due] == [1] * len(due)
        assert [delivered(each) for each in waiting] == [0] * len(waiting)
        for each in taken.messages:
            if each["must"] == "nothing-more":
                assert delivered(each) <= int(each["may_repeat"]), each["key"]


@pytest.mark.parametrize("release", RELEASES)
@pytest.mark.parametrize("ending", ENDINGS)
@pytest.mark.parametrize("hours", [(0, 3, 192), (24, 192), (192,)])
@on_loop
async def test_timer_messages_of_a_java_broker_are_delivered(
    tmp_path: Path, release: str, ending: str, hours: tuple[int, ...]
) -> None:
    """RocketMQ skips all of them after a standstill of eight days, and the broker of 5.3.3 and of
    5.5.0 delivers recalled messages that it enters after their time."""
    taken = TakenOver(tmp_path, release, f"timer-{ending}")
    runtime = ShiftedRuntime(taken.ended_ms + hours[0] * HOUR_MS)
    async with Broker(taken.config, runtime=runtime) as broker:

        def delivered(message: dict[str, Any]) -> int:
            key = message["uniq_key"], message["topic"], message["queue"]
            return copies(broker)[key] - int(message["copies_before"])

        for ahead in hours:
            runtime.set_wall(taken.ended_ms + ahead * HOUR_MS)
            # A slot is read when it is over.
            over_ms = runtime.wall_ms() - 1000
            due = [
                each
                for each in taken.messages
                if each["must"].startswith("deliver-once") and each["not_before_ms"] < over_ms
            ]
            await until(lambda due=due: all(map(delivered, due)), "all that is due is delivered")

            later_ms = runtime.wall_ms() + 60_000
            for each in taken.messages:
                if each["must"].startswith("deliver-once"):
                    assert delivered(each) <= int(each["not_before_ms"] < later_ms), each["key"]
                else:
                    assert delivered(each) == 0, each["key"]
    runtime.close()
