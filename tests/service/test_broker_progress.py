"""The progress of groups as operators look at it, and copy it (spec/broker.md 26, 34)."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

from rmqstore.broker.membership.roles import Role
from rmqstore.broker.node import Broker
from rmqstore.net.addresses import format_address
from rmqstore.remoting import fastjson
from rmqstore.remoting.bodies.statistics import ConsumeStats, GroupList
from rmqstore.remoting.bodies.tables import TopicList
from rmqstore.remoting.client import RemotingClient
from rmqstore.remoting.codes import RequestCode, ResponseCode
from rmqstore.remoting.frames import Frame
from rmqstore.store.metadata import ConsumerOffsets, GroupConfig, TopicConfig
from tests.service.broker_clients import call, heartbeat
from tests.service.remoting_peers import on_loop
from tests.support.brokers import broker_config

CORRECT = {"topic": "T", "compareGroup": "g"}
CLONE = {"srcGroup": "g", "destGroup": "h"}
UNITS = {"topic": "T", "queueId": "0", "index": "0", "count": "10"}


class Operator:
    """Sends requests to one broker."""

    def __init__(self, broker: Broker, client: RemotingClient) -> None:
        self.broker = broker
        self._client = client

    async def ask(self, code: int, fields: dict[str, str]) -> Frame:
        return await call(self._client, self.broker, Frame.request(code, fields))

    async def json(self, code: int, fields: dict[str, str]) -> Any:
        answer = await self.ask(code, fields)
        assert answer.code == ResponseCode.SUCCESS, answer.remark
        return fastjson.loads(answer.body)

    def offsets(self, topic: str, group: str) -> dict[int, int]:
        return dict(self.broker.metadata.offsets.table.of(topic, group))


@asynccontextmanager
async def operated(root: Path) -> AsyncIterator[Operator]:
    """A broker with three messages in queue 0 of T, of which the groups g and h have consumed 1 and
    2; g has an offset on U too."""
    async with Broker(broker_config(root)) as broker, RemotingClient() as client:
        metadata = broker.metadata
        await metadata.change_topic(TopicConfig("T", 2, 2))
        await metadata.change_topic(TopicConfig("U", 1, 1, order=True))
        for group in ("g", "h"):
            await metadata.change_group(GroupConfig(group))
        for number in range(3):
            await broker.store.put("T", b"%d" % number, tags=f"t{number}")
        broker.store.store.wait_dispatched()
        metadata.offsets.commit("T", "g", 0, 1)
        metadata.offsets.commit("T", "h", 0, 2)
        metadata.offsets.commit("U", "g", 0, 7)
        yield Operator(broker, client)


# -- all groups


@on_loop
async def test_progress_of_all_groups_is_that_on_each_topic(tmp_path: Path) -> None:
    async with operated(tmp_path) as operator:
        operator.broker.metadata.offsets.pulled("T", "g", 0, 3)
        code = RequestCode.GET_BROKER_CONSUME_STATS
        found = await operator.json(code, {"isOrder": "false"})
        assert found["brokerAddr"] == format_address(operator.broker.address)
        groups = {name: stats for each in found["consumeStatsList"] for name, stats in each.items()}
        lags = {
            name: [
                sum(queue["brokerOffset"] - queue["consumerOffset"] for queue in each.values())
                for each in (of_topic["offsetTable"] for of_topic in stats)
            ]
            for name, stats in groups.items()
            if stats
        }
        assert lags == {"g": [2, -7], "h": [1]}
        assert groups["TOOLS_CONSUMER"] == []
        assert (found["totalDiff"], found["totalInflightDiff"]) == (-4, 2)

        ordered = await operator.json(code, {"isOrder": "true"})
        assert [
            len(stats) for each in ordered["consumeStatsList"] for stats in each.values()
        ].count(1) == 1

        consumer = RemotingClient()
        async with consumer:
            await call(consumer, operator.broker, heartbeat("c1", "g", topic="T"))
            found = await operator.json(code, {"isOrder": "false"})
            assert found["totalDiff"] == 3


@on_loop
async def test_group_that_pulled_elsewhere_has_nothing_in_flight(tmp_path: Path) -> None:
    async with operated(tmp_path) as operator:
        fields = {"consumerGroup": "g", "topic": "T"}
        answer = await operator.ask(RequestCode.GET_CONSUME_STATS, fields)
        found = ConsumeStats.decode(answer.body).queues
        assert {each.in_flight for each in found.values()} == {0}


@on_loop
async def test_topics_of_a_group_are_those_it_has_offsets_on(tmp_path: Path) -> None:
    async with operated(tmp_path) as operator:
        answer = await operator.ask(RequestCode.QUERY_TOPICS_BY_CONSUMER, {"group": "g"})
        address = format_address(operator.broker.address)
        assert TopicList.decode(answer.body) == TopicList(("T", "U"), address)


@on_loop
async def test_groups_of_a_topic_are_those_with_offsets_and_those_online(tmp_path: Path) -> None:
    async with operated(tmp_path) as operator, RemotingClient() as consumer:
        await call(consumer, operator.broker, heartbeat("c1", "new", "g", topic="T"))
        await call(consumer, operator.broker, heartbeat("c1", "other", topic="U"))
        answer = await operator.ask(RequestCode.QUERY_TOPIC_CONSUME_BY_WHO, {"topic": "T"})
        assert GroupList.decode(answer.body).groups == ("g", "h", "new")


@on_loop
async def test_time_span_shows_how_far_back_a_group_is(tmp_path: Path) -> None:
    async with operated(tmp_path) as operator:
        queue = operator.broker.store.store.queue("T", 0)
        times = [queue.get(number).store_timestamp for number in range(3)]
        code = RequestCode.QUERY_CONSUME_TIME_SPAN
        spans = (await operator.json(code, {"topic": "T", "group": "h"}))["consumeTimeSpanSet"]
        of_queue, of_empty = sorted(spans, key=lambda each: each["messageQueue"]["queueId"])
        assert of_queue["minTimeStamp"] == times[0]
        assert of_queue["maxTimeStamp"] == times[2]
        assert of_queue["consumeTimeStamp"] == times[1]
        assert 0 <= of_queue["delayTime"] < 600_000
        assert [of_empty[name] for name in ("minTimeStamp", "delayTime")] == [-1, 0]

        never = await operator.json(code, {"topic": "T", "group": "never"})
        assert 0 <= max(each["delayTime"] for each in never["consumeTimeSpanSet"]) < 600_000
        answer = await operator.ask(code, {"topic": "X", "group": "g"})
        assert (answer.code, answer.remark) == (
            ResponseCode.TOPIC_NOT_EXIST,
            "topic[X] not exist",
        )


# -- between groups


@on_loop
async def test_defect_b11_query_of_corrections_changes_no_offset(tmp_path: Path) -> None:
    async with operated(tmp_path) as operator:
        code = RequestCode.QUERY_CORRECTION_OFFSET
        before = operator.broker.metadata.offsets.table.snapshot().offsets
        assert await operator.json(code, CORRECT) == {"correctionOffsets": {"0": 1}}
        fields = CORRECT | {"filterGroups": "g,other"}
        largest = (1 << 63) - 1
        assert await operator.json(code, fields) == {"correctionOffsets": {"0": largest}}
        assert operator.broker.metadata.offsets.table.snapshot().offsets == before


@on_loop
async def test_defect_b12_clone_without_a_topic_clones_each(tmp_path: Path) -> None:
    async with operated(tmp_path) as operator:
        code = RequestCode.CLONE_GROUP_OFFSET
        operator.broker.metadata.offsets.commit("T", "h", 1, 5)
        assert (await operator.ask(code, CLONE)).code == ResponseCode.SUCCESS
        assert operator.offsets("T", "h") == {0: 1}
        assert operator.offsets("U", "h") == {0: 7}
        await operator.broker.close()
        saved = ConsumerOffsets.load(tmp_path).offsets
        assert saved["T@h"] == {0: 1}
        assert saved["U@h"] == {0: 7}


@on_loop
async def test_clone_leaves_out_topics_that_the_consumers_do_not_subscribe_to(
    tmp_path: Path,
) -> None:
    async with operated(tmp_path) as operator, RemotingClient() as consumer:
        code = RequestCode.CLONE_GROUP_OFFSET
        await call(consumer, operator.broker, heartbeat("c1", "g", topic="T"))
        await operator.ask(code, CLONE | {"offline": "false"})
        assert (operator.offsets("T", "h"), operator.offsets("U", "h")) == ({0: 1}, {})
        await operator.ask(code, CLONE | {"offline": "true", "topic": "U"})
        assert operator.offsets("U", "h") == {0: 7}


@pytest.mark.parametrize(
    ("changes", "code", "remark"),
    [
        ({"destGroup": ""}, ResponseCode.INVALID_PARAMETER, "blank"),
        ({"destGroup": "h@i"}, ResponseCode.INVALID_PARAMETER, "illegal characters"),
        ({"destGroup": "g"}, ResponseCode.INVALID_PARAMETER, "source and the target"),
        ({"srcGroup": "never"}, ResponseCode.SUCCESS, "no offsets to clone"),
        ({"topic": "X"}, ResponseCode.SUCCESS, "no offsets to clone"),
    ],
)
@on_loop
async def test_clone_that_cannot_be_changes_nothing(
    tmp_path: Path, changes: dict[str, str], code: int, remark: str
) -> None:
    async with operated(tmp_path) as operator:
        before = operator.broker.metadata.offsets.table.snapshot().offsets
        request = RequestCode.CLONE_GROUP_OFFSET
        answer = await operator.ask(request, CLONE | changes)
        assert answer.code == code
        assert remark in (answer.remark or "")
        operator.broker.open.set_role(Role(name="slave", broker_id=1))
        assert (await operator.ask(request, CLONE)).remark == "Can not clone offset in slave broker"
        assert operator.broker.metadata.offsets.table.snapshot().offsets == before


# -- units of queues


@on_loop
async def test_units_of_a_queue_are_shown_with_the_subscription_of_a_group(tmp_path: Path) -> None:
    async with operated(tmp_path) as operator, RemotingClient() as consumer:
        code = RequestCode.QUERY_CONSUME_QUEUE
        found = await operator.json(code, UNITS | {"index": "1", "count": "1"})
        assert (found["minQueueIndex"], found["maxQueueIndex"]) == (0, 3)
        [unit] = found["queueData"]
        record = operator.broker.store.store.queue("T", 0).get(1)
        assert (unit["physicOffset"], unit["physicSize"]) == (record.physical_offset, record.size)
        assert unit["tagsCode"] == 3645  # The hash of "t1" in Java.

        group = {"consumerGroup": "g"}
        offline = await operator.json(code, UNITS | group)
        assert offline["filterData"] == "g@T is not online!"
        assert len(offline["queueData"]) == 3
        await call(consumer, operator.broker, heartbeat("c1", "g", topic="T"))
        online = await operator.json(code, UNITS | group)
        assert online["filterData"] == "null"
        assert online["subscriptionData"]["subString"] == "*"

        for changes, remark in (
            ({"topic": "X"}, "0@X is not exist!"),
            ({"queueId": "7"}, "7@T is not exist!"),
            ({"queueId": "-1"}, "illegal"),
            ({"index": "3"}, "Index 3 of 0@T is not exist!"),
            ({"index": "-1"}, "Index -1 of 0@T is not exist!"),
        ):
            answer = await operator.ask(code, UNITS | changes)
            assert answer.code != ResponseCode.SUCCESS
            assert remark in (answer.remark or "")
        negative = await operator.json(code, UNITS | {"count": "-5"})
        assert negative["queueData"] == []
        assert json.loads(json.dumps(negative["maxQueueIndex"])) == 3


@on_loop
async def test_units_of_one_answer_are_limited(tmp_path: Path) -> None:
    async with operated(tmp_path) as operator:
        for _ in range(600):
            await operator.broker.store.put("T", b"")
        operator.broker.store.store.wait_dispatched()
        fields = UNITS | {"count": str(0x7FFFFFFF)}
        found = await operator.json(RequestCode.QUERY_CONSUME_QUEUE, fields)
        places = [each["physicOffset"] for each in found["queueData"]]
        assert len(places) == 603
        assert places == sorted(set(places))
