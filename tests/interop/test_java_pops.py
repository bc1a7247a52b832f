"""Push consumers of RocketMQ that let a broker of ours share, and pop from it."""

from __future__ import annotations

from pathlib import Path

import pytest

import rmqstore
from rmqstore.broker.pop_records import CHECK_POINT_TAG, PopAck, PopCheckPoint
from rmqstore.topic_names import TIMER_TOPIC
from tests.interop.clients import java_program, play
from tests.support.brokers import SMALL_FILES
from tests.support.releases import NEW, OLD

PROGRAM = "peer.pops.Main"
MESSAGES = 100

pytestmark = pytest.mark.java


@pytest.mark.parametrize("release", [NEW, OLD])
def test_java_push_consumers_pop_and_acknowledge_each_message_once(
    tmp_path: Path, release: str
) -> None:
    seen = play(java_program(release, name=PROGRAM), tmp_path)
    assert (seen["consumed"], seen["twice"]) == (MESSAGES, 0)
    assert sum(seen["by each"]) == MESSAGES

    popped: list[tuple[int, int]] = []
    acknowledged: set[tuple[int, int]] = set()
    with rmqstore.open(tmp_path, read_only=True, **SMALL_FILES) as store:
        for record in store.queue(TIMER_TOPIC, 0).records():
            if record.tags == CHECK_POINT_TAG:
                point = PopCheckPoint.decode(record.body)
                popped += [(point.queue, each) for each in point.offsets]
            else:
                ack = PopAck.decode(record.body)
                acknowledged |= {(ack.queue, each) for each in ack.offsets}
    assert len(popped) == MESSAGES
    assert acknowledged == set(popped)


@pytest.mark.parametrize("release", [NEW, OLD])
def test_orderly_push_consumers_share_the_queues_that_the_broker_assigns(
    tmp_path: Path, release: str
) -> None:
    seen = play(java_program(release, name="peer.pops.Assigned"), tmp_path)
    assert seen == {"lost": 0, "in order": True, "queues": [2, 2]}
