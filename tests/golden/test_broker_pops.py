"""Popped messages of a Java broker, when a broker of this library takes its directory over."""

from __future__ import annotations

from pathlib import Path

import pytest

from rmqstore.broker.node import Broker
from rmqstore.topic_names import REVIVE_GROUP
from tests.golden import RELEASES
from tests.golden.taken_over import ENDINGS, TakenOver
from tests.support.loops import ShiftedRuntime, on_loop
from tests.support.waiting import until

REVIVE = "rmq_sys_REVIVE_LOG_PeerCluster"
GRACE_MS = 5000
"""From the end of an invisible time until the message comes again, at most."""
MINUTE_S, HOUR_S, DAY_S = 60, 3600, 86_400


@pytest.mark.parametrize("release", RELEASES)
@pytest.mark.parametrize("ending", ENDINGS)
@pytest.mark.parametrize("ahead_s", [(0, MINUTE_S, 3 * HOUR_S), (DAY_S,), (8 * DAY_S,)])
@on_loop
async def test_popped_messages_of_a_java_broker_come_again_unless_they_are_acknowledged(
    tmp_path: Path, release: str, ending: str, ahead_s: tuple[int, ...]
) -> None:
    taken = TakenOver(tmp_path, release, f"pop-{ending}")
    # Those of a group that pops in order have no check points.
    messages = [each for each in taken.messages if each["topic"] != "PopOrder"]
    open_keys = {each["key"] for each in messages if each["must"] == "redeliver-when-visible"}
    assert open_keys
    runtime = ShiftedRuntime(taken.ended_ms + ahead_s[0] * 1000)
    # The progress waits for the disk.
    config = taken.config.replace(flush_commit_log_thorough_interval_ms=100)
    async with runtime.client, Broker(config, runtime=runtime) as broker:
        store, offsets = broker.store.store, broker.metadata.offsets

        def came() -> dict[str, list[int]]:
            """Return the numbers of tries of messages in retry topics, by their keys."""
            found: dict[str, list[int]] = {}
            for each in store.scan_log():
                if each.topic.startswith("%RETRY%"):
                    assert each.queue == 0
                    found.setdefault(each.keys[0], []).append(each.reconsume_times)
            return found

        def is_passed() -> bool:
            """Whether nothing is left in the revive queues."""
            ends = [len(store.queue(REVIVE, queue)) for queue in range(4)]
            passed = [offsets.query(REVIVE, REVIVE_GROUP, queue) for queue in range(4)]
            return all(
                end == 0 or known == end - 1 for end, known in zip(ends, passed, strict=True)
            )

        before = came()
        for ahead in ahead_s:
            wall_ms = taken.ended_ms + ahead * 1000
            runtime.set_wall(wall_ms)
            due = {
                each["key"]: list(range(1, each["java"]["now"]["received"][-1]["reconsume"] + 1))
                for each in messages
                if each["key"] in open_keys and each["visible_ms"] + GRACE_MS < wall_ms
            }
            await until(
                lambda due=due: all(came().get(key) == each for key, each in due.items()),
                "what is due comes again",
            )
            await until(is_passed, "the revive queues are read")
            found = came()
            assert {key: found.get(key) for key in due} == due
            visible = {each["key"] for each in messages if each["visible_ms"] < runtime.wall_ms()}
            for each in messages:
                key = each["key"]
                if key not in visible & open_keys:
                    assert found.get(key, []) == before.get(key, []), key
    runtime.close()
