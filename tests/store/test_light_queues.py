"""Messages that are in several queues: the property INNER_MULTI_DISPATCH names the others."""

from __future__ import annotations

from pathlib import Path

import pytest

import rmqstore
from rmqstore import Message
from rmqstore.check import verify


def light(topic: str, names: str, **changes: int) -> Message:
    return Message(topic, b"m", properties={"INNER_MULTI_DISPATCH": names}, **changes)


@pytest.mark.parametrize("topic", ["%RETRY%g", "SCHEDULE_TOPIC_XXXX", "rmq_sys_wheel_timer"])
def test_message_that_waits_takes_no_number_of_a_light_queue(tmp_path: Path, topic: str) -> None:
    with rmqstore.open(tmp_path, enable_multi_dispatch=True) as store:
        store.put(light(topic, "%LMQ%a"))
        store.put(light("T", "%LMQ%a"))
        store.wait_dispatched()
        first, second = store.scan_log()
        assert "INNER_MULTI_QUEUE_OFFSET" not in first.properties
        assert second.properties["INNER_MULTI_QUEUE_OFFSET"] == "0"
        assert [each.physical_offset for each in store.queue("%LMQ%a").records()] == [
            second.physical_offset
        ]


def test_queue_of_another_name_has_the_number_of_the_message(tmp_path: Path) -> None:
    with rmqstore.open(tmp_path, enable_multi_dispatch=True) as store:
        store.put(Message("other", b"own", queue=0))
        store.put(light("T", "other,%LMQ%a", queue=2))
        store.put(light("T", "other,%LMQ%a", queue=2))
        store.wait_dispatched()
        numbers = [each.properties.get("INNER_MULTI_QUEUE_OFFSET") for each in store.scan_log()]
        assert numbers == [None, "0,0", "1,1"]
        assert [each.body for each in store.queue("other", 2).records()] == [b"m", b"m"]
        assert [each.body for each in store.queue("other", 0).records()] == [b"own"]
    assert verify(tmp_path, full=True).is_sound
