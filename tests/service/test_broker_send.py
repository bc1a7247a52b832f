"""Sends to a broker: what is stored, and how each send is answered."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

from rmqstore.broker.node import Broker
from rmqstore.config import FlushDiskType
from rmqstore.message import parse_message_id
from rmqstore.remoting.client import RemotingClient
from rmqstore.remoting.codes import RequestCode, ResponseCode
from rmqstore.remoting.frames import Frame
from rmqstore.store.metadata import TopicConfig
from tests.service.broker_clients import (
    batch_body,
    call,
    pull_request,
    records_of,
)
from tests.service.remoting_peers import on_loop
from tests.support.brokers import broker_config
from tests.support.sends import send_request
from tests.support.waiting import until

CODES = (RequestCode.SEND_MESSAGE, RequestCode.SEND_MESSAGE_V2)


async def stored(client: RemotingClient, broker: Broker, topic: str) -> Frame:
    """Return a pull of what a topic has, once it has something."""
    queue = broker.store.store.queue(topic, 0)
    await until(lambda: len(queue), "the message is dispatched")
    return await call(client, broker, pull_request(topic, 0))


@pytest.mark.parametrize("code", CODES)
@on_loop
async def test_message_is_stored_with_its_hosts_and_the_broker_s_properties(
    tmp_path: Path, code: int
) -> None:
    async with Broker(broker_config(tmp_path)) as broker, RemotingClient() as client:
        properties = {"UNIQ_KEY": "K1", "TAGS": "eu", "KEYS": "a b", "n": "1"}
        request = send_request("T", b"paid", properties, code=code, flag=9, reconsume_times=2)
        answer = await call(client, broker, request)

        assert answer.code == ResponseCode.SUCCESS
        fields = answer.ext_fields
        assert (fields["queueId"], fields["queueOffset"]) == ("0", "0")
        assert (fields["transactionId"], fields["MSG_REGION"]) == ("K1", "DefaultRegion")
        assert parse_message_id(fields["msgId"]) == (*broker.address, 0)

        [record] = records_of((await stored(client, broker, "T")).body)
        assert (record.topic, record.body, record.flag) == ("T", b"paid", 9)
        assert (record.born_timestamp, record.reconsume_times) == (1_700_000_000_000, 2)
        kept = record.properties
        made = {"MSG_REGION": "DefaultRegion", "TRACE_ON": "true", "CLUSTER": "DefaultCluster"}
        assert kept == properties | made
        found = broker.store.store.record_at(0)
        assert found.born_host[0] == "127.0.0.1"
        assert found.born_host[1] not in (0, broker.address[1])
        assert found.store_host == broker.address


@on_loop
async def test_message_without_a_unique_key_gets_one_and_a_queue_when_it_names_none(
    tmp_path: Path,
) -> None:
    async with Broker(broker_config(tmp_path)) as broker, RemotingClient() as client:
        queues = set()
        for _ in range(40):
            answer = await call(client, broker, send_request("T", b"x", queue_id=-1))
            assert answer.code == ResponseCode.SUCCESS
            assert len(answer.ext_fields["transactionId"]) == 32
            queues.add(answer.ext_fields["queueId"])
        assert queues == {"0", "1", "2", "3"}


REFUSED = [
    ({"DELAY": "x"}, {}, ResponseCode.MESSAGE_ILLEGAL, "delay level"),
    ({"TRAN_MSG": "true", "TIMER_DELAY_MS": "x"}, {}, ResponseCode.MESSAGE_ILLEGAL, "timer"),
    ({"__LITE_TOPIC": "chat-1"}, {}, ResponseCode.MESSAGE_ILLEGAL, "light messages"),
    ({"KEYS": "k"}, {"topic": "compacted"}, ResponseCode.MESSAGE_ILLEGAL, "compacted messages"),
    ({}, {"sys_flag": 8}, ResponseCode.MESSAGE_ILLEGAL, "ends a transaction"),
    ({"DELAY": "1"}, {"sys_flag": 12}, ResponseCode.MESSAGE_ILLEGAL, "ends a transaction"),
    ({}, {"sys_flag": 0x80}, ResponseCode.MESSAGE_ILLEGAL, "inner batch"),
    ({"INNER_NUM": "2"}, {}, ResponseCode.MESSAGE_ILLEGAL, "inner batch"),
    ({"a": "\0"}, {}, ResponseCode.MESSAGE_ILLEGAL, "0 byte"),
    ({"a": "x" * 40_000}, {}, ResponseCode.MESSAGE_ILLEGAL, "properties"),
    ({}, {"queue_id": 4}, ResponseCode.INVALID_PARAMETER, "queueId"),
    ({}, {"topic": "T/x"}, ResponseCode.INVALID_PARAMETER, "illegal characters"),
    ({}, {"topic": "t" * 128}, ResponseCode.INVALID_PARAMETER, "longer"),
    ({}, {"topic": "SELF_TEST_TOPIC"}, ResponseCode.NO_PERMISSION, "forbidden"),
    ({}, {"topic": "rmq_sys_wheel_timer"}, ResponseCode.NO_PERMISSION, "forbidden"),
    ({}, {"topic": "readable"}, ResponseCode.NO_PERMISSION, "permission"),
    ({}, {"topic": "U", "default_topic": "none"}, ResponseCode.TOPIC_NOT_EXIST, "not exist"),
]


@pytest.mark.parametrize(("properties", "changes", "code", "remark"), REFUSED)
@on_loop
async def test_refused_message_is_answered_by_its_reason_and_not_stored(
    tmp_path: Path,
    properties: dict[str, str],
    changes: dict[str, str],
    code: int,
    remark: str,
) -> None:
    async with Broker(broker_config(tmp_path)) as broker, RemotingClient() as client:
        await broker.metadata.change_topic(TopicConfig("T", 4, 4))
        await broker.metadata.change_topic(TopicConfig("readable", 4, 4, perm=4))
        compacted = {"cleanup.policy": "COMPACTION"}
        await broker.metadata.change_topic(TopicConfig("compacted", attributes=compacted))
        request = send_request(str(changes.pop("topic", "T")), b"x", properties, **changes)
        answer = await call(client, broker, request)
        assert answer.code == code, answer.remark
        assert remark in (answer.remark or "")
        assert broker.store.store.end_offset == 0


PRIORITIES: list[tuple[dict[str, str], int]] = [
    ({"_SYS_MSG_PRIORITY_": "2"}, 2),
    ({"_SYS_MSG_PRIORITY_": "9"}, 3),
    ({"_SYS_MSG_PRIORITY_": "-1"}, 1),
    ({"_SYS_MSG_PRIORITY_": "high"}, 1),
    ({"_SYS_MSG_PRIORITY_": str(2**31)}, 1),
    ({"_SYS_MSG_PRIORITY_": "2", "__SHARDINGKEY": "order 7"}, 1),
]


@pytest.mark.parametrize(("properties", "queue"), PRIORITIES)
@on_loop
async def test_message_with_a_priority_is_stored_in_the_queue_of_the_priority(
    tmp_path: Path, properties: dict[str, str], queue: int
) -> None:
    """The rule of RocketMQ 5.5.0 (spec/changes-5.5.md 3). The sends name queue 1."""
    async with Broker(broker_config(tmp_path)) as broker, RemotingClient() as client:
        await broker.metadata.change_topic(TopicConfig("T", 4, 4))
        answer = await call(client, broker, send_request("T", b"x", properties, queue_id=1))
        assert answer.code == ResponseCode.SUCCESS
        assert answer.ext_fields["queueId"] == str(queue)
        record = broker.store.store.get("T", queue=queue, offset=0)
        is_ordered = "__SHARDINGKEY" in properties
        assert ("_SYS_MSG_PRIORITY_" in record.properties) is not is_ordered


@on_loop
async def test_batch_is_stored_message_by_message_with_an_id_for_each(tmp_path: Path) -> None:
    async with Broker(broker_config(tmp_path)) as broker, RemotingClient() as client:
        body = batch_body((b"one", {"UNIQ_KEY": "A"}), (b"two", {"UNIQ_KEY": "B", "TAGS": "x"}))
        request = send_request(
            "T", body, {"UNIQ_KEY": "C"}, code=RequestCode.SEND_BATCH_MESSAGE, is_batch=True
        )
        answer = await call(client, broker, request)
        assert answer.code == ResponseCode.SUCCESS, answer.remark
        ids = answer.ext_fields["msgId"].split(",")
        assert len(ids) == 2

        await until(lambda: len(broker.store.store.queue("T", 0)) == 2, "both are dispatched")
        records = records_of((await call(client, broker, pull_request("T", 0))).body)
        assert [each.body for each in records] == [b"one", b"two"]
        assert [each.flag for each in records] == [7, 7]
        made = {"MSG_REGION": "DefaultRegion", "TRACE_ON": "true", "CLUSTER": "DefaultCluster"}
        kept = [dict(each.properties) for each in records]
        assert kept == [{"UNIQ_KEY": "A"} | made, {"UNIQ_KEY": "B", "TAGS": "x"} | made]
        places = [parse_message_id(each).physical_offset for each in ids]
        assert places == [each.physical_offset for each in records]


@on_loop
async def test_batch_to_batch_queues_is_one_record(tmp_path: Path) -> None:
    async with Broker(broker_config(tmp_path)) as broker, RemotingClient() as client:
        topic = TopicConfig("B", 1, 1, attributes={"queue.type": "BatchCQ"})
        await broker.metadata.change_topic(topic)
        body = batch_body((b"one", {"UNIQ_KEY": "A"}), (b"two", {"UNIQ_KEY": "B"}))
        request = send_request(
            "B", body, {"UNIQ_KEY": "C"}, code=RequestCode.SEND_BATCH_MESSAGE, is_batch=True
        )
        answer = await call(client, broker, request)
        assert (answer.code, answer.ext_fields["batchUniqId"]) == (ResponseCode.SUCCESS, "C")
        [record] = records_of((await stored(client, broker, "B")).body)
        assert record.properties["INNER_NUM"] == "2"
        assert record.sys_flag & 0xC0 == 0xC0
        assert broker.store.store.queue("B", 0).end == 2


BATCHES = [
    (b"", "empty"),
    (b"\0\0\0\x05", "malformed"),
    (batch_body((b"x", {}))[:-1], "malformed"),
    (batch_body((b"x", {"DELAY": "1"})), "delayed"),
    (batch_body((b"x", {}), (b"y", {"TRAN_MSG": "true"})), "transactional"),
    (batch_body((b"x", {"__LITE_TOPIC": "chat-1"})), "light"),
    (batch_body((b"x", {"INNER_NUM": "2"})), "INNER_NUM"),
    (batch_body((b"x", {"a": "x" * 32_750})), "properties"),
    (batch_body((b"x", {"a": "\0"})), "0 byte"),
    (batch_body((b"", {})) * 16_385, "more than"),
]


@pytest.mark.parametrize(("body", "remark"), BATCHES)
@on_loop
async def test_bad_batch_is_refused_whole(tmp_path: Path, body: bytes, remark: str) -> None:
    async with Broker(broker_config(tmp_path)) as broker, RemotingClient() as client:
        request = send_request("T", body, code=RequestCode.SEND_BATCH_MESSAGE, is_batch=True)
        answer = await call(client, broker, request)
        assert answer.code == ResponseCode.MESSAGE_ILLEGAL
        assert remark in (answer.remark or "")
        assert broker.store.store.end_offset == 0


@pytest.mark.parametrize("kind", ["STANDARD", "BatchCQ"])
@pytest.mark.parametrize(
    ("properties", "remark"),
    [
        ({"TRAN_MSG": "true"}, "transactional messages"),
        ({"TIMER_DELAY_SEC": "5"}, "delayed messages"),
        ({"DELAY": "3"}, "delayed messages"),
        ({"INNER_MULTI_DISPATCH": "%LMQ%a"}, "light queues"),
        ({"__LITE_TOPIC": "chat-1"}, "light messages"),
    ],
)
@on_loop
async def test_batch_that_is_more_than_ordinary_itself_is_refused(
    tmp_path: Path, kind: str, properties: dict[str, str], remark: str
) -> None:
    async with Broker(broker_config(tmp_path)) as broker, RemotingClient() as client:
        attributes = {} if kind == "STANDARD" else {"queue.type": kind}
        await broker.metadata.change_topic(TopicConfig("T", attributes=attributes))
        own = {"UNIQ_KEY": "K", **properties}
        body, code = batch_body((b"a", {})), RequestCode.SEND_BATCH_MESSAGE
        request = send_request("T", body, own, code=code, is_batch=True)
        answer = await call(client, broker, request)
        assert answer.code == ResponseCode.MESSAGE_ILLEGAL
        assert remark in (answer.remark or "")
        assert broker.store.store.end_offset == 0


@on_loop
async def test_pipelined_sends_wait_for_the_disk_together(tmp_path: Path) -> None:
    config = broker_config(tmp_path, flush_disk_type=FlushDiskType.SYNC_FLUSH)
    async with Broker(config) as broker, RemotingClient() as client:
        await broker.metadata.change_topic(TopicConfig("T", 4, 4))
        sends = [call(client, broker, send_request("T", b"x")) for _ in range(50)]
        answers = await asyncio.gather(*sends)
        assert {each.code for each in answers} == {ResponseCode.SUCCESS}
        assert {int(each.ext_fields["queueOffset"]) for each in answers} == set(range(50))
        assert broker.store.store.flushed_offset == broker.store.store.end_offset


@on_loop
async def test_one_way_send_is_stored_and_not_answered(tmp_path: Path) -> None:
    async with Broker(broker_config(tmp_path)) as broker, RemotingClient() as client:
        await client.send_one_way(broker.address, send_request("T", b"one way"))
        await until(lambda: broker.store.store.end_offset > 0, "the message is stored")
        [record] = records_of((await stored(client, broker, "T")).body)
        assert record.body == b"one way"


SERVICES = [
    RequestCode.POP_ROLLBACK,
    RequestCode.POP_LITE_MESSAGE,
]


@pytest.mark.parametrize("code", SERVICES)
@on_loop
async def test_request_for_a_missing_service_is_refused_by_name(tmp_path: Path, code: int) -> None:
    async with Broker(broker_config(tmp_path)) as broker, RemotingClient() as client:
        answer = await call(client, broker, Frame.request(code, {"topic": "T"}, b"x"))
        assert answer.code == ResponseCode.REQUEST_CODE_NOT_SUPPORTED
        assert RequestCode(code).name in (answer.remark or "")
        assert 'docs/broker.md, "What is refused"' in (answer.remark or "")


@on_loop
async def test_sends_before_the_time_of_the_file_are_refused(tmp_path: Path) -> None:
    config = broker_config(tmp_path, accepts_sends_from_ms=4_000_000_000_000)
    async with Broker(config) as broker, RemotingClient() as client:
        answer = await call(client, broker, send_request("T", b"early"))
        assert answer.code == ResponseCode.SYSTEM_ERROR
        assert (answer.remark or "").startswith("broker unable to service, until 2096-")
        await broker.configure({"startAcceptSendRequestTimeStamp": "1000"})
        answer = await call(client, broker, send_request("T", b"late"))
        assert answer.code == ResponseCode.SUCCESS
