"""Directories of real brokers with messages that orderly consumers had popped, taken over."""

from __future__ import annotations

from pathlib import Path

import pytest

from rmqstore.broker.node import Broker
from rmqstore.remoting.client import RemotingClient
from tests.golden import RELEASES
from tests.golden.taken_over import ENDINGS, TakenOver
from tests.service.pop_clients import Popper
from tests.support.loops import ShiftedRuntime, on_loop

TOPIC, GROUP = "PopOrder", "go"
INVISIBLE_MS = 60_000


@pytest.mark.parametrize("release", RELEASES)
@pytest.mark.parametrize("ending", ENDINGS)
@on_loop
async def test_messages_of_an_orderly_group_come_in_order_when_they_are_visible(
    tmp_path: Path, release: str, ending: str
) -> None:
    taken = TakenOver(tmp_path, release, f"pop-{ending}")
    runtime = ShiftedRuntime(taken.ended_ms)
    async with Broker(taken.config, runtime=runtime) as broker, RemotingClient() as client:
        popper = Popper(client, broker, group=GROUP, topic=TOPIC)
        known = broker.open.pop_orders.states
        for queue in (0, 1):
            messages = [
                each
                for each in taken.messages
                if (each["topic"], each["queue"]) == (TOPIC, queue)
                and each["must"] != "nothing-more"
            ]
            visible_ms = max(int(each["visible_ms"]) for each in messages)
            ask = {"is_orderly": True, "queue_id": queue}
            # The state of queue 1 was not saved before the broker of 5.3.3 was killed.
            if known.of(TOPIC, GROUP, queue) is not None:
                runtime.set_wall(min(taken.ended_ms, visible_ms - 1000))
                assert await popper.pop(**ask) == []
                assert bool(await popper.pop(**ask, attempt_id=f"attempt-{queue + 1}"))
            # A repeated attempt has the messages for the time of a new pop.
            runtime.set_wall(visible_ms + INVISIBLE_MS + 1000)
            found = await popper.pop(**ask)
            keys = [each.message.unique_key for each in found]
            assert keys == [each["uniq_key"] for each in messages]
            await popper.ack_all(found)
            assert broker.metadata.offsets.query(TOPIC, GROUP, queue) == 4
    runtime.close()
