"""Directories of real brokers that ended with messages under way, taken over by a broker of ours.

`manifest.json` says of each message what must follow; README.md has its words.
"""

from __future__ import annotations

import time
from collections import Counter
from pathlib import Path
from typing import Any

import pytest

from rmqstore.broker.node import Broker
from tests.golden import RELEASES
from tests.golden.taken_over import ENDINGS, TakenOver
from tests.support.loops import on_loop
from tests.support.waiting import until

SCHEDULE = "SCHEDULE_TOPIC_XXXX"


def copies(broker: Broker) -> Counter[tuple[str, str, int]]:
    """Return how many messages topics have, by unique key, topic and queue."""
    records = broker.store.store.scan_log()
    return Counter(
        (each.unique_key or "", each.topic, each.queue)
        for each in records
        if each.topic != SCHEDULE
    )


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
        level = broker.metadata.tables.delays
        waiting = [each for each in taken.messages if each.get("due_ms", 0) > now_ms]
        await until(lambda: level.latest.offsets.get(18) == 1, "the last level counts")
        assert [delivered(each) for each in due] == [1] * len(due)
        assert [delivered(each) for each in waiting] == [0] * len(waiting)
        for each in taken.messages:
            if each["must"] == "nothing-more":
                assert delivered(each) <= int(each["may_repeat"]), each["key"]
