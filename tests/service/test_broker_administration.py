"""Requests of operators and consumers about topics, groups, offsets and configuration
(spec/broker.md 5, 26, 34)."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from pathlib import Path

import pytest

from rmqstore.broker.membership.roles import Role
from rmqstore.broker.node import Broker
from rmqstore.broker.refusals import COMMANDS
from rmqstore.config import parse_properties
from rmqstore.remoting import fastjson
from rmqstore.remoting.bodies.queue_name import QueueName
from rmqstore.remoting.bodies.statistics import (
    ConsumeStats,
    GroupList,
    QueueProgress,
    QueueStats,
    ResetOffsets,
    TopicStats,
)
from rmqstore.remoting.bodies.tables import KvTable, TopicList
from rmqstore.remoting.client import RemotingClient
from rmqstore.remoting.codes import RequestCode, ResponseCode
from rmqstore.remoting.frames import Frame
from rmqstore.store.metadata import ConsumerOffsets, GroupConfig, RequestMode, TopicConfig
from tests.service.broker_clients import pull_request
from tests.service.remoting_peers import on_loop
from tests.support.brokers import broker_config
from tests.support.sends import send_request

TOPIC = {
    "topic": "T",
    "defaultTopic": "TBW102",
    "readQueueNums": "2",
    "writeQueueNums": "2",
    "perm": "6",
    "topicFilterType": "SINGLE_TAG",
    "order": "false",
}


class Operator:
    """Sends requests to one broker."""

    def __init__(self, broker: Broker, client: RemotingClient) -> None:
        self.broker = broker
        self._client = client

    async def ask(
        self, code: int, fields: Mapping[str, str] | None = None, body: bytes = b""
    ) -> Frame:
        request = Frame.request(code, fields, body)
        return await self._client.call(self.broker.address, request, 60.0)


@asynccontextmanager
async def operated(root: Path) -> AsyncIterator[Operator]:
    async with Broker(broker_config(root)) as broker, RemotingClient() as client:
        yield Operator(broker, client)


def refused(answer: Frame, code: int, remark: str) -> None:
    assert answer.code == code
    assert remark in (answer.remark or "")


# -- topics


@on_loop
async def test_topic_is_made_changed_shown_and_deleted(tmp_path: Path) -> None:
    async with operated(tmp_path) as operator:
        tables = operator.broker.metadata.tables
        attributes = {"attributes": "+message.type=FIFO"}
        made = await operator.ask(RequestCode.UPDATE_AND_CREATE_TOPIC, TOPIC | attributes)
        assert (made.code, made.remark) == (ResponseCode.SUCCESS, None)
        assert tables.topics["T"] == TopicConfig("T", 2, 2, attributes={"message.type": "FIFO"})

        version = tables.topics_version
        await operator.ask(RequestCode.UPDATE_AND_CREATE_TOPIC, TOPIC)
        assert tables.topics_version == version
        await operator.ask(RequestCode.UPDATE_AND_CREATE_TOPIC, TOPIC | {"writeQueueNums": "5"})
        assert tables.topics["T"].attributes == {"message.type": "FIFO"}

        shown = await operator.ask(RequestCode.GET_TOPIC_CONFIG, {"topic": "T"})
        assert json.loads(shown.body) == tables.topics["T"].members()
        deleted = await operator.ask(RequestCode.DELETE_TOPIC_IN_BROKER, {"topic": "T"})
        assert deleted.code == ResponseCode.SUCCESS
        gone = await operator.ask(RequestCode.GET_TOPIC_CONFIG, {"topic": "T"})
        refused(gone, ResponseCode.TOPIC_NOT_EXIST, "No topic in this broker. topic: T")


@on_loop
async def test_unchanged_topic_is_answered_with_the_members_that_lack_it(tmp_path: Path) -> None:
    async with operated(tmp_path) as operator:
        role = Role(name="master", broker_id=0, members=frozenset({0, 2, 5}))
        operator.broker.open.set_role(role)
        for _ in range(2):
            answer = await operator.ask(RequestCode.UPDATE_AND_CREATE_TOPIC, TOPIC)
            assert answer.code == ResponseCode.SUCCESS
            assert (answer.remark or "").startswith("stored on 1 of 3 members")


@pytest.mark.parametrize(
    ("changes", "code", "remark"),
    [
        ({"topic": "a b"}, ResponseCode.INVALID_PARAMETER, "illegal characters"),
        ({"topic": "TBW102"}, ResponseCode.INVALID_PARAMETER, "conflict with system topic"),
        ({"readQueueNums": "-1"}, ResponseCode.INVALID_PARAMETER, "read_queue_count -1"),
        ({"writeQueueNums": "65537"}, ResponseCode.INVALID_PARAMETER, "write_queue_count 65537"),
        ({"perm": "8"}, ResponseCode.INVALID_PARAMETER, "perm 8"),
        ({"perm": "x"}, ResponseCode.INVALID_PARAMETER, "perm"),
        ({"attributes": "-message.type"}, ResponseCode.SYSTEM_ERROR, "only add attribute"),
        ({"attributes": "+message.type=LITE"}, ResponseCode.SYSTEM_ERROR, "LITE"),
        ({"attributes": "+cleanup.policy=COMPACTION"}, ResponseCode.SYSTEM_ERROR, "COMPACTION"),
    ],
)
@on_loop
async def test_topic_that_cannot_be_is_refused(
    tmp_path: Path, changes: dict[str, str], code: int, remark: str
) -> None:
    async with operated(tmp_path) as operator:
        answer = await operator.ask(RequestCode.UPDATE_AND_CREATE_TOPIC, TOPIC | changes)
        refused(answer, code, remark)
        assert operator.broker.metadata.topic("T") is None


@on_loop
async def test_list_of_topics_is_made_whole_past_unchanged_ones(tmp_path: Path) -> None:
    async with operated(tmp_path) as operator:
        await operator.ask(RequestCode.UPDATE_AND_CREATE_TOPIC, TOPIC)
        known = {"topicName": "T", "readQueueNums": 2, "writeQueueNums": 2}
        second = {"topicName": "U", "attributes": {"+message.type": "DELAY"}}
        body = fastjson.dumps({"topicConfigList": [known, second]})
        made = await operator.ask(RequestCode.UPDATE_AND_CREATE_TOPIC_LIST, body=body)
        assert made.code == ResponseCode.SUCCESS
        assert operator.broker.metadata.topic("U") == TopicConfig(
            "U", attributes={"message.type": "DELAY"}
        )
        body = fastjson.dumps({"topicConfigList": [{"topicName": "V"}, {"topicName": "a b"}]})
        answer = await operator.ask(RequestCode.UPDATE_AND_CREATE_TOPIC_LIST, body=body)
        refused(answer, ResponseCode.INVALID_PARAMETER, "illegal characters")
        assert operator.broker.metadata.topic("V") is None


@on_loop
async def test_system_topics_are_listed_and_never_deleted(tmp_path: Path) -> None:
    async with operated(tmp_path) as operator:
        answer = await operator.ask(RequestCode.GET_SYSTEM_TOPIC_LIST_FROM_BROKER)
        topics = TopicList.decode(answer.body).topics
        assert {"TBW102", "DefaultCluster", "broker-a", "SCHEDULE_TOPIC_XXXX"} <= set(topics)
        answer = await operator.ask(RequestCode.DELETE_TOPIC_IN_BROKER, {"topic": "TBW102"})
        refused(answer, ResponseCode.INVALID_PARAMETER, "conflict with system topic")
        answer = await operator.ask(RequestCode.DELETE_TOPIC_IN_BROKER, {"topic": " "})
        refused(answer, ResponseCode.INVALID_PARAMETER, "blank")


@on_loop
async def test_slave_refuses_changes(tmp_path: Path) -> None:
    async with operated(tmp_path) as operator:
        operator.broker.open.set_role(Role(name="slave", broker_id=1))
        answer = await operator.ask(RequestCode.UPDATE_AND_CREATE_TOPIC, TOPIC)
        refused(answer, ResponseCode.SYSTEM_ERROR, "from slave broker")
        answer = await operator.ask(RequestCode.DELETE_SUBSCRIPTIONGROUP, {"groupName": "g"})
        refused(answer, ResponseCode.SYSTEM_ERROR, "from slave broker")


@on_loop
async def test_slave_answers_a_deletion_and_leaves_it_to_its_master(tmp_path: Path) -> None:
    """mqadmin sends it to masters and slaves, and ends at the first refusal."""
    async with operated(tmp_path) as operator:
        await operator.ask(RequestCode.UPDATE_AND_CREATE_TOPIC, TOPIC)
        code, metadata = RequestCode.DELETE_TOPIC_IN_BROKER, operator.broker.metadata
        operator.broker.open.set_role(Role(name="slave", broker_id=1))
        for topic in ("T", "%RETRY%g"):
            answer = await operator.ask(code, {"topic": topic})
            assert answer.code == ResponseCode.SUCCESS
            assert "after its master" in (answer.remark or "")
        assert metadata.topic("T") is not None
        for role in (Role(name="slave", broker_id=0, waits_for="power was lost"), Role()):
            operator.broker.open.set_role(role)
            answer = await operator.ask(code, {"topic": "T"})
            refused(answer, ResponseCode.SYSTEM_ERROR, "from slave broker")


@pytest.mark.parametrize("code", sorted(COMMANDS))
@on_loop
async def test_command_that_is_not_served_is_refused_by_name(tmp_path: Path, code: int) -> None:
    async with operated(tmp_path) as operator:
        answer = await operator.ask(code, {"topic": "T"}, b"{}")
        refused(answer, ResponseCode.REQUEST_CODE_NOT_SUPPORTED, RequestCode(code).name)
        assert 'docs/operations.md, "Commands that are not served"' in (answer.remark or "")


# -- groups and offsets


@on_loop
async def test_group_is_made_shown_and_deleted_with_its_offsets(tmp_path: Path) -> None:
    async with operated(tmp_path) as operator:
        metadata = operator.broker.metadata
        body = fastjson.dumps({"groupName": "g", "retryMaxTimes": 3, "brokerId": 0})
        made = await operator.ask(RequestCode.UPDATE_AND_CREATE_SUBSCRIPTIONGROUP, body=body)
        assert made.code == ResponseCode.SUCCESS
        assert metadata.group("g") == GroupConfig("g", retries_max=3)
        shown = await operator.ask(RequestCode.GET_SUBSCRIPTIONGROUP_CONFIG, {"group": "g"})
        assert json.loads(shown.body)["retryMaxTimes"] == 3

        metadata.offsets.commit("T", "g", 0, 1)
        fields = {"groupName": "g", "cleanOffset": "true"}
        await operator.ask(RequestCode.DELETE_SUBSCRIPTIONGROUP, fields)
        assert metadata.group("g") is None
        assert metadata.offsets.query("T", "g", 0) is None
        gone = await operator.ask(RequestCode.GET_SUBSCRIPTIONGROUP_CONFIG, {"group": "g"})
        refused(gone, ResponseCode.SUBSCRIPTION_GROUP_NOT_EXIST, "No group in this broker")


@pytest.mark.parametrize("body", [b"", b"[]", b'{"groupName":"a b"}', b'{"groupName":3}', b"{"])
@on_loop
async def test_group_that_cannot_be_is_refused(tmp_path: Path, body: bytes) -> None:
    async with operated(tmp_path) as operator:
        answer = await operator.ask(RequestCode.UPDATE_AND_CREATE_SUBSCRIPTIONGROUP, body=body)
        assert answer.code == ResponseCode.INVALID_PARAMETER


@on_loop
async def test_request_mode_is_set(tmp_path: Path) -> None:
    async with operated(tmp_path) as operator:
        body = fastjson.dumps(
            {"topic": "T", "consumerGroup": "g", "mode": "POP", "popShareQueueNum": 2}
        )
        metadata = operator.broker.metadata
        await metadata.change_topic(TopicConfig("T"))
        await metadata.change_group(GroupConfig("g"))
        await operator.ask(RequestCode.SET_MESSAGE_REQUEST_MODE, body=body)
        modes = operator.broker.metadata.tables.modes
        assert modes == {"T": {"g": RequestMode("T", "g", "POP", 2)}}
        answer = await operator.ask(
            RequestCode.SET_MESSAGE_REQUEST_MODE, body=body.replace(b"POP", b"PUSH")
        )
        refused(answer, ResponseCode.INVALID_PARAMETER, "PULL or POP")


def offset_fields(offset: int | None = None, **changes: str) -> dict[str, str]:
    fields = {"topic": "T", "consumerGroup": "g", "queueId": "0"} | changes
    return fields if offset is None else {**fields, "commitOffset": str(offset)}


@on_loop
async def test_committed_offset_is_answered_and_survives_the_broker(tmp_path: Path) -> None:
    async with operated(tmp_path) as operator:
        await operator.broker.metadata.change_topic(TopicConfig("T", 1, 1))
        await operator.broker.metadata.change_group(GroupConfig("g"))
        await operator.ask(RequestCode.UPDATE_CONSUMER_OFFSET, offset_fields(7))
        answer = await operator.ask(RequestCode.QUERY_CONSUMER_OFFSET, offset_fields())
        assert answer.ext_fields == {"offset": "7"}
    assert ConsumerOffsets.load(tmp_path).of("T", "g") == {0: 7}


@on_loop
async def test_offset_of_a_new_group_is_0_where_nothing_is_deleted(tmp_path: Path) -> None:
    async with operated(tmp_path) as operator:
        await operator.broker.store.put("T", b"one")
        answer = await operator.ask(RequestCode.QUERY_CONSUMER_OFFSET, offset_fields())
        assert answer.ext_fields == {"offset": "0"}
        fields = offset_fields(setZeroIfNotFound="false")
        answer = await operator.ask(RequestCode.QUERY_CONSUMER_OFFSET, fields)
        refused(answer, ResponseCode.QUERY_NOT_FOUND, "do not set to zero")


@pytest.mark.parametrize(
    ("fields", "code"),
    [
        (offset_fields(1, consumerGroup="none"), ResponseCode.SUBSCRIPTION_GROUP_NOT_EXIST),
        (offset_fields(1, topic="none"), ResponseCode.TOPIC_NOT_EXIST),
        (offset_fields(1, queueId="1"), ResponseCode.INVALID_PARAMETER),
        (offset_fields(1, queueId="-1"), ResponseCode.INVALID_PARAMETER),
        (offset_fields(-1), ResponseCode.INVALID_PARAMETER),
        (offset_fields(), ResponseCode.INVALID_PARAMETER),
    ],
)
@on_loop
async def test_offset_that_cannot_be_is_not_committed(
    tmp_path: Path, fields: dict[str, str], code: int
) -> None:
    async with operated(tmp_path) as operator:
        await operator.broker.metadata.change_topic(TopicConfig("T", 1, 1))
        await operator.broker.metadata.change_group(GroupConfig("g"))
        answer = await operator.ask(RequestCode.UPDATE_CONSUMER_OFFSET, fields)
        assert answer.code == code
        assert operator.broker.metadata.offsets.table.keys() == ()


@on_loop
async def test_statistics_show_queues_and_progress(tmp_path: Path) -> None:
    async with operated(tmp_path) as operator:
        metadata = operator.broker.metadata
        await metadata.change_topic(TopicConfig("T", 2, 2))
        times = [
            (await operator.broker.store.put("T", b"m", queue=1)).store_timestamp for _ in range(3)
        ]
        metadata.offsets.commit("T", "g", 1, 2)
        metadata.offsets.pulled("T", "g", 1, 3)

        answer = await operator.ask(RequestCode.GET_TOPIC_STATS_INFO, {"topic": "T"})
        first, second = (QueueName("T", "broker-a", number) for number in range(2))
        assert TopicStats.decode(answer.body).queues == {
            first: QueueStats(),
            second: QueueStats(0, 3, times[2]),
        }
        answer = await operator.ask(RequestCode.GET_CONSUME_STATS, {"consumerGroup": "g"})
        progress = ConsumeStats.decode(answer.body).queues
        assert progress == {
            first: QueueProgress(0, 0, 0, 0),
            second: QueueProgress(3, 2, 3, times[1]),
        }
        assert (progress[first].lag, progress[second].lag) == (0, 1)
        answer = await operator.ask(RequestCode.QUERY_TOPIC_CONSUME_BY_WHO, {"topic": "T"})
        assert GroupList.decode(answer.body).groups == ("g",)


# -- the broker


@on_loop
async def test_configuration_is_shown_and_changed(tmp_path: Path) -> None:
    async with operated(tmp_path) as operator:
        answer = await operator.ask(RequestCode.GET_BROKER_CONFIG)
        assert parse_properties(answer.body.decode())["brokerName"] == "broker-a"
        assert "counter" in json.loads(answer.ext_fields["version"])
        await operator.ask(RequestCode.UPDATE_BROKER_CONFIG, body=b"brokerPermission=4")
        assert operator.broker.config.permission == 4
        answer = await operator.ask(RequestCode.UPDATE_BROKER_CONFIG, body=b"brokerConfigPath=x")
        refused(answer, ResponseCode.NO_PERMISSION, "black list")
        answer = await operator.ask(RequestCode.UPDATE_BROKER_CONFIG, body=b"listenPort=1")
        refused(answer, ResponseCode.SYSTEM_ERROR, "only at a start")


@on_loop
async def test_runtime_information_has_what_mqadmin_reads(tmp_path: Path) -> None:
    async with operated(tmp_path) as operator:
        receipt = await operator.broker.store.put("T", b"one")
        answer = await operator.ask(RequestCode.GET_BROKER_RUNTIME_INFO)
        info = KvTable.decode(answer.body).table
        assert info["brokerActive"] == "true"
        assert info["brokerVersionDesc"] == "V5_3_3"
        assert info["earliestMessageTimeStamp"] == str(receipt.store_timestamp)
        assert int(info["commitLogMaxOffset"]) > 0
        assert {"putTps", "sendThreadPoolQueueSize", "pullThreadPoolQueueSize"} <= info.keys()


@on_loop
async def test_what_clients_send_and_pull_is_counted(tmp_path: Path) -> None:
    async with operated(tmp_path) as operator:
        for number in range(30):
            sent = send_request("T", b"%d" % number)
            answer = await operator.ask(sent.code, sent.ext_fields, sent.body)
            assert answer.code == ResponseCode.SUCCESS
        await operator.broker.store.wait_dispatched()
        pull = pull_request("T", 0)
        answer = await operator.ask(pull.code, pull.ext_fields, pull.body)
        assert answer.code == ResponseCode.SUCCESS
        info = KvTable.decode((await operator.ask(RequestCode.GET_BROKER_RUNTIME_INFO)).body).table
        assert info["msgPutTotalTodayNow"] == info["putMessageTimesTotal"] == "30"
        assert info["msgGetTotalTodayNow"] == "30"
        assert float(info["putTps"].split()[0]) > 0
        assert int(info["putMessageSizeTotal"]) > 30 * 50
        assert _EXPORTER_KEYS <= info.keys()
        stats = (await operator.ask(RequestCode.GET_TOPIC_STATS_INFO, {"topic": "T"})).body
        assert float(stats.rpartition(b":")[2].rstrip(b"}")) > 0


_EXPORTER_KEYS = set(
    "msgPutTotalTodayNow msgGetTotalTodayNow msgPutTotalYesterdayMorning bootTimestamp "
    "putMessageDistributeTime putMessageEntireTimeMax putMessageAverageSize putMessageFailedTimes "
    "getMessageEntireTimeMax dispatchMaxBuffer dispatchBehindBytes getTransferedTps getFoundTps "
    "getMissTps getTotalTps putLatency99 putLatency999 remainTransientStoreBufferNumbs "
    "sendThreadPoolQueueCapacity litePullThreadPoolQueueSize EndTransactionQueueSize "
    "EndTransactionThreadPoolQueueCapacity pageCacheLockTimeMills".split()
)


@on_loop
async def test_topic_with_a_queue_mapping_is_an_ordinary_one(tmp_path: Path) -> None:
    item = {"bname": "broker-a", "logicOffset": 100, "queueId": 0, "startOffset": 0}
    mapping = {"T": {"bname": "broker-a", "hostedQueues": {"5": [item]}, "totalQueues": 8}}
    text = json.dumps({"dataVersion": {}, "topicQueueMappingInfoMap": mapping})
    file = tmp_path / "config" / "topicQueueMapping.json"
    file.parent.mkdir()
    file.write_text(text)
    async with operated(tmp_path) as operator:
        await operator.broker.metadata.change_topic(TopicConfig("T", 1, 1))
        sent = send_request("T", b"m", queue_id=0)
        answer = await operator.ask(sent.code, sent.ext_fields, sent.body)
        assert answer.ext_fields["queueOffset"] == "0"
        pull = pull_request("T", 0)
        assert (await operator.ask(pull.code, pull.ext_fields)).code == ResponseCode.SUCCESS
        answer = await operator.ask(RequestCode.UPDATE_AND_CREATE_STATIC_TOPIC)
        refused(answer, ResponseCode.REQUEST_CODE_NOT_SUPPORTED, "static topics")
    assert file.read_text() == text


@on_loop
async def test_list_of_groups_is_made_whole_or_not_at_all(tmp_path: Path) -> None:
    async with operated(tmp_path) as operator:
        code = RequestCode.UPDATE_AND_CREATE_SUBSCRIPTIONGROUP_LIST
        groups = operator.broker.metadata.tables.groups
        for names, is_made in ((("g", "", "h"), False), (("g", "h"), True)):
            body = {"groupConfigList": [{"groupName": each, "retryMaxTimes": 3} for each in names]}
            answer = await operator.ask(code, body=fastjson.dumps(body))
            assert (answer.code == ResponseCode.SUCCESS) is is_made, answer.remark
            assert ("g" in groups) is is_made
        assert groups["h"].retries_max == 3
        assert (await operator.ask(code, body=b"{}")).code == ResponseCode.SUCCESS
        refused(await operator.ask(code, body=b"7"), ResponseCode.INVALID_PARAMETER, "groupConfig")


@on_loop
async def test_flow_control_of_cold_data_has_empty_tables(tmp_path: Path) -> None:
    async with operated(tmp_path) as operator:
        for code, body in (
            (RequestCode.UPDATE_COLD_DATA_FLOW_CTR_CONFIG, b"g=100"),
            (RequestCode.REMOVE_COLD_DATA_FLOW_CTR_CONFIG, b"g"),
        ):
            answer = await operator.ask(code, body=body)
            assert answer.code == ResponseCode.SUCCESS
            assert "has no effect" in (answer.remark or "")
        answer = await operator.ask(RequestCode.GET_COLD_DATA_FLOW_CTR_INFO)
        found = json.loads(answer.body)
        assert (found["configTable"], found["runtimeTable"]) == ({}, {})

        code = RequestCode.SET_COMMITLOG_READ_MODE
        answer = await operator.ask(code, {"READ_AHEAD_MODE": "1"})
        assert answer.code == ResponseCode.SUCCESS
        assert "has no effect" in (answer.remark or "")
        answer = await operator.ask(code, {"READ_AHEAD_MODE": "7"})
        refused(answer, ResponseCode.INVALID_PARAMETER, "READ_AHEAD_MODE is 7")


# -- resetting and forbidding groups


async def put_three(operator: Operator) -> int:
    """Put messages into queue 1 of T; return the store time of the last one."""
    broker = operator.broker
    await broker.metadata.change_topic(TopicConfig("T", 2, 2))
    await broker.metadata.change_group(GroupConfig("g"))
    for number in range(3):
        await broker.store.put("T", b"%d" % number, queue=1)
    broker.store.store.wait_dispatched()
    return broker.store.store.queue("T", 1).get(2).store_timestamp


RESET = {"topic": "T", "group": "g", "isForce": "true", "timestamp": "-1"}


@on_loop
async def test_group_is_reset_and_its_consumer_is_told_before_it_commits(tmp_path: Path) -> None:
    async with operated(tmp_path) as operator:
        last_ms = await put_three(operator)
        offsets = operator.broker.metadata.offsets
        code = RequestCode.INVOKE_BROKER_TO_RESET_OFFSET
        answer = await operator.ask(code, {**RESET, "timestamp": "0"})
        assert answer.code == ResponseCode.SUCCESS
        names = [QueueName("T", "broker-a", number) for number in range(2)]
        assert ResetOffsets.decode(answer.body).offsets == dict.fromkeys(names, 0)
        assert offsets.query("T", "g", 1) == 0

        commit = {"consumerGroup": "g", "topic": "T", "queueId": "1", "commitOffset": "3"}
        answer = await operator.ask(RequestCode.UPDATE_CONSUMER_OFFSET, commit)
        assert (answer.code, answer.remark) == (0, "Offset has been previously reset")
        assert offsets.query("T", "g", 1) == 0
        pull = pull_request("T", 3, queue_id=1, consumer_group="g")
        answer = await operator.ask(pull.code, pull.ext_fields)
        assert (answer.code, answer.remark) == (ResponseCode.PULL_OFFSET_MOVED, "OFFSET_RESET")
        assert answer.ext_fields["nextBeginOffset"] == "0"
        pull = pull_request("T", 0, queue_id=1, consumer_group="g")
        assert (await operator.ask(pull.code, pull.ext_fields)).code == ResponseCode.SUCCESS
        await operator.ask(RequestCode.UPDATE_CONSUMER_OFFSET, commit)
        assert offsets.query("T", "g", 1) == 3

        one = {**RESET, "queueId": "1"}
        for fields, target in (
            (one, 3),
            ({**one, "offset": "2"}, 2),
            ({**one, "timestamp": str(last_ms + 1)}, 3),
        ):
            answer = await operator.ask(code, fields)
            assert ResetOffsets.decode(answer.body).offsets == {names[1]: target}, fields


@pytest.mark.parametrize(
    ("fields", "code", "remark"),
    [
        ({"topic": "U"}, ResponseCode.TOPIC_NOT_EXIST, "Topic U does not exist"),
        ({"group": "h"}, ResponseCode.SUBSCRIPTION_GROUP_NOT_EXIST, "Group h does not exist"),
        ({"queueId": "2"}, ResponseCode.INVALID_PARAMETER, "no queue 2"),
        ({"queueId": "1", "offset": "4"}, ResponseCode.SYSTEM_ERROR, "consume queue range [0-3]"),
    ],
)
@on_loop
async def test_reset_that_cannot_be_changes_nothing(
    tmp_path: Path, fields: Mapping[str, str], code: int, remark: str
) -> None:
    async with operated(tmp_path) as operator:
        await put_three(operator)
        request = RequestCode.INVOKE_BROKER_TO_RESET_OFFSET
        refused(await operator.ask(request, {**RESET, **fields}), code, remark)
        assert operator.broker.metadata.offsets.query("T", "g", 1) is None
        operator.broker.open.set_role(Role(name="slave", broker_id=1))
        refused(await operator.ask(request, RESET), ResponseCode.SYSTEM_ERROR, "slave broker")


@on_loop
async def test_group_is_forbidden_a_topic_and_allowed_again(tmp_path: Path) -> None:
    async with operated(tmp_path) as operator:
        code, metadata = RequestCode.UPDATE_AND_GET_GROUP_FORBIDDEN, operator.broker.metadata
        fields = {"group": "g", "topic": "T"}
        for change, readable in (({"readable": "false"}, False), ({}, False)):
            answer = await operator.ask(code, {**fields, **change})
            assert json.loads(answer.body) == {"group": "g", "readable": readable, "topic": "T"}
            assert metadata.is_forbidden("g", "T")
        answer = await operator.ask(code, {**fields, "readable": "true"})
        assert json.loads(answer.body)["readable"] is True
        assert not metadata.is_forbidden("g", "T")
