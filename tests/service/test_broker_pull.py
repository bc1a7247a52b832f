"""Pulls from a broker: what they find, what refuses them, and how they wait."""

from __future__ import annotations

import asyncio
import struct
from pathlib import Path
from typing import Any

import pytest

from rmqstore.broker.membership.roles import Role
from rmqstore.broker.metadata import shared
from rmqstore.broker.node import Broker
from rmqstore.remoting.client import RemotingClient
from rmqstore.remoting.codes import RequestCode, ResponseCode
from rmqstore.remoting.frames import Frame, encode
from rmqstore.remoting.headers.pull import PullFlag
from rmqstore.store.metadata import GroupConfig, TopicConfig
from tests.service.broker_clients import (
    call,
    heartbeat,
    pull_request,
    records_of,
    waiting_pull,
)
from tests.service.remoting_peers import on_loop
from tests.support.brokers import broker_config
from tests.support.sends import send_request
from tests.support.waiting import until


async def filled(broker: Broker, client: RemotingClient, *tags: str) -> None:
    """Make topic T, with a message for each tag in queue 0."""
    await broker.metadata.change_topic(TopicConfig("T", 2, 2))
    for number, tag in enumerate(tags):
        answer = await call(client, broker, send_request("T", b"%d" % number, {"TAGS": tag}))
        assert answer.code == ResponseCode.SUCCESS
    await until(
        lambda: not tags or len(broker.store.store.queue("T", 0)) == len(tags), "all dispatched"
    )


def held(broker: Broker) -> int:
    return len(broker.open.pulls.held)


@on_loop
async def test_pull_returns_the_bytes_of_the_log_and_where_to_go_on(tmp_path: Path) -> None:
    async with Broker(broker_config(tmp_path)) as broker, RemotingClient() as client:
        await filled(broker, client, "a", "b", "a")
        answer = await call(client, broker, pull_request("T", 1))
        assert (answer.code, answer.remark) == (ResponseCode.SUCCESS, "FOUND")
        assert [each.body for each in records_of(answer.body)] == [b"1", b"2"]
        assert answer.body == b"".join(
            broker.store.store.get("T", offset=offset).raw for offset in (1, 2)
        )
        named = {name: answer.ext_fields[name] for name in ("nextBeginOffset", "minOffset")}
        assert named == {"nextBeginOffset": "3", "minOffset": "0"}
        assert answer.ext_fields["maxOffset"] == "3"
        assert answer.ext_fields["suggestWhichBrokerId"] == "0"

        answer = await call(client, broker, pull_request("T", 0, max_messages=2))
        assert len(records_of(answer.body)) == 2
        answer = await call(client, broker, pull_request("T", 0, max_size_bytes=1))
        assert len(records_of(answer.body)) == 1
        answer = await call(client, broker, pull_request("T", 0, subscription="b || c"))
        assert [each.body for each in records_of(answer.body)] == [b"1"]


OFFSETS: list[tuple[dict[str, Any], int, str, str]] = [
    ({"queue_offset": 3}, ResponseCode.PULL_NOT_FOUND, "OFFSET_OVERFLOW_ONE", "3"),
    ({"queue_offset": 9}, ResponseCode.PULL_OFFSET_MOVED, "OFFSET_OVERFLOW_BADLY", "3"),
    ({"queue_offset": -1}, ResponseCode.PULL_OFFSET_MOVED, "OFFSET_TOO_SMALL", "0"),
    (
        {"queue_offset": 0, "subscription": "z"},
        ResponseCode.PULL_RETRY_IMMEDIATELY,
        "NO_MATCHED_MESSAGE",
        "3",
    ),
    (
        {"queue_offset": 0, "queue_id": 1},
        ResponseCode.PULL_NOT_FOUND,
        "NO_MATCHED_LOGIC_QUEUE",
        "0",
    ),
    (
        {"queue_offset": 5, "queue_id": 1},
        ResponseCode.PULL_OFFSET_MOVED,
        "NO_MATCHED_LOGIC_QUEUE",
        "0",
    ),
]


@pytest.mark.parametrize(("changes", "code", "status", "next_offset"), OFFSETS)
@on_loop
async def test_offsets_outside_of_a_queue_are_answered_as_rocketmq_does(
    tmp_path: Path, changes: dict[str, Any], code: int, status: str, next_offset: str
) -> None:
    async with Broker(broker_config(tmp_path)) as broker, RemotingClient() as client:
        await filled(broker, client, "a", "a", "a")
        offset = changes.pop("queue_offset")
        answer = await call(client, broker, pull_request("T", offset, **changes))
        assert (answer.code, answer.remark) == (code, status)
        assert answer.ext_fields["nextBeginOffset"] == next_offset


REFUSED: list[tuple[dict[str, Any], int, str]] = [
    ({"topic": "U"}, ResponseCode.TOPIC_NOT_EXIST, "not exist"),
    ({"topic": "write-only"}, ResponseCode.NO_PERMISSION, "topic"),
    ({"queue_id": 2}, ResponseCode.INVALID_PARAMETER, "queueId"),
    ({"queue_id": -1}, ResponseCode.INVALID_PARAMETER, "queueId"),
    ({"consumer_group": "off"}, ResponseCode.NO_PERMISSION, "group"),
    ({"consumer_group": "a b"}, ResponseCode.SUBSCRIPTION_GROUP_NOT_EXIST, "a b"),
    ({"expression_type": "SQL92"}, ResponseCode.SYSTEM_ERROR, "SQL92"),
    (
        {"subscription": "||".join(map(str, range(65)))},
        ResponseCode.SUBSCRIPTION_PARSE_FAILED,
        "65 tags",
    ),
    ({"sys_flag": 0}, ResponseCode.SUBSCRIPTION_NOT_EXIST, "heartbeat"),
    ({"lite_topic": "chat-1"}, ResponseCode.REQUEST_CODE_NOT_SUPPORTED, "light topics"),
]


@pytest.mark.parametrize(("changes", "code", "remark"), REFUSED)
@on_loop
async def test_refused_pull_is_answered_by_its_reason(
    tmp_path: Path, changes: dict[str, Any], code: int, remark: str
) -> None:
    async with Broker(broker_config(tmp_path)) as broker, RemotingClient() as client:
        await filled(broker, client, "a")
        await broker.metadata.change_topic(TopicConfig("write-only", 1, 1, perm=2))
        await broker.metadata.change_group(GroupConfig("off", consume_enabled=False))
        topic = changes.pop("topic", "T")
        answer = await call(client, broker, pull_request(topic, 0, **changes))
        assert (answer.code, answer.body) == (code, b""), answer.remark
        assert remark in (answer.remark or "")


@on_loop
async def test_every_message_is_sent_until_a_heartbeat_brings_the_subscription_of_a_pull(
    tmp_path: Path,
) -> None:
    async with Broker(broker_config(tmp_path)) as broker, RemotingClient() as client:
        await filled(broker, client, "a", "b")
        beat = heartbeat("c1", "cg", tags="b")
        assert (await call(client, broker, beat)).code == ResponseCode.SUCCESS

        pull = pull_request("T", 0, sys_flag=0, subscription_version=5)
        answer = await call(client, broker, pull)
        assert [each.body for each in records_of(answer.body)] == [b"1"]
        pull = pull_request("T", 0, sys_flag=0, subscription_version=6, expression_type="TAG")
        answer = await call(client, broker, pull)
        assert [each.body for each in records_of(answer.body)] == [b"0", b"1"]

        pull = pull_request("T", 0, sys_flag=0, subscription_version=6, expression_type="SQL92")
        assert (await call(client, broker, pull)).code == ResponseCode.SYSTEM_ERROR


@pytest.mark.parametrize("creates", [True, False])
@on_loop
async def test_slave_serves_a_group_that_its_master_does_not_know_from_its_memory(
    tmp_path: Path, creates: bool
) -> None:
    config = broker_config(tmp_path, slave_reads=True, create_groups=creates)
    async with Broker(config) as broker, RemotingClient() as client:
        await filled(broker, client, "a")
        broker.open.set_role(Role(name="slave", broker_id=1))
        groups = broker.metadata.tables.group_table()
        beat = await call(client, broker, heartbeat("c1", "cg"))
        assert beat.code == ResponseCode.SUCCESS
        answer = await call(client, broker, pull_request("T", 0, sys_flag=0))
        fields = {"consumerGroup": "cg", "commitOffset": "1"}
        commit = await fields_of(client, broker, RequestCode.UPDATE_CONSUMER_OFFSET, **fields)
        assert broker.metadata.tables.group_table() == groups, "the tables are the master's"
        if creates:
            assert [each.body for each in records_of(answer.body)] == [b"0"]
            assert commit.code == ResponseCode.SUCCESS
        else:
            missing = ResponseCode.SUBSCRIPTION_GROUP_NOT_EXIST
            assert (answer.code, commit.code) == (missing, missing)

        broker.open.set_role(Role(name="master", broker_id=1))
        assert broker.metadata.group("cg") is None
        await call(client, broker, heartbeat("c1", "cg"))
        assert ("cg" in broker.metadata.tables.groups) is creates


@on_loop
async def test_consumers_make_a_bounded_number_of_groups_at_a_slave(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(shared, "_GUESTS_MAX", 2)
    config = broker_config(tmp_path, slave_reads=True)
    async with Broker(config) as broker, RemotingClient() as client:
        await filled(broker, client, "a")
        broker.open.set_role(Role(name="slave", broker_id=1))
        pulls = [pull_request("T", 0, consumer_group=f"g{number}") for number in (0, 1, 2, 1)]
        codes = [(await call(client, broker, each)).code for each in pulls]
        assert codes == [0, 0, ResponseCode.SUBSCRIPTION_GROUP_NOT_EXIST, 0]


@on_loop
async def test_pull_commits_the_offset_that_it_names(tmp_path: Path) -> None:
    async with Broker(broker_config(tmp_path)) as broker, RemotingClient() as client:
        await filled(broker, client, "a", "a")
        flags = PullFlag.SUBSCRIPTION | PullFlag.COMMIT_OFFSET
        await call(client, broker, pull_request("T", 2, sys_flag=flags, commit_offset=1))
        assert broker.metadata.offsets.query("T", "cg", 0) == 1
        await call(client, broker, pull_request("T", 2, commit_offset=2))
        assert broker.metadata.offsets.query("T", "cg", 0) == 1


@on_loop
async def test_held_pull_is_answered_by_the_next_message_of_its_tags(tmp_path: Path) -> None:
    async with Broker(broker_config(tmp_path)) as broker, RemotingClient() as client:
        await filled(broker, client, "a")
        wanted = waiting_pull("T", 1, 60_000, subscription="b")
        waiting = asyncio.ensure_future(call(client, broker, wanted))
        await until(lambda: held(broker) == 1, "the pull is held")
        await call(client, broker, send_request("T", b"not this", {"TAGS": "a"}))
        await until(lambda: len(broker.store.store.queue("T", 0)) == 2, "dispatched")
        await call(client, broker, send_request("T", b"this", {"TAGS": "b"}))
        answer = await waiting
        assert [each.body for each in records_of(answer.body)] == [b"this"]
        assert answer.ext_fields["nextBeginOffset"] == "3"
        assert held(broker) == 0


@on_loop
async def test_held_pull_is_answered_when_its_time_is_over_and_not_before(tmp_path: Path) -> None:
    async with Broker(broker_config(tmp_path)) as broker, RemotingClient() as client:
        await filled(broker, client, "a")
        loop = asyncio.get_running_loop()
        began = loop.time()
        answer = await call(client, broker, waiting_pull("T", 1, 300))
        assert answer.code == ResponseCode.PULL_NOT_FOUND
        assert answer.ext_fields["nextBeginOffset"] == "1"
        assert 0.29 < loop.time() - began < 30
        assert held(broker) == 0


@on_loop
async def test_every_consumer_of_a_queue_is_woken(tmp_path: Path) -> None:
    async with Broker(broker_config(tmp_path)) as broker, RemotingClient() as client:
        await filled(broker, client)
        waits = [
            asyncio.ensure_future(call(client, broker, waiting_pull("T", 0, 60_000)))
            for _ in range(20)
        ]
        await until(lambda: held(broker) == 20, "all are held")
        broker.store.store.put("T", b"stored without a request")
        answers = await asyncio.gather(*waits)
        assert {len(records_of(each.body)) for each in answers} == {1}


@on_loop
async def test_connection_that_ends_frees_its_holds(tmp_path: Path) -> None:
    async with Broker(broker_config(tmp_path)) as broker:
        async with RemotingClient() as client:
            await filled(broker, client)
            waits = [
                asyncio.ensure_future(call(client, broker, waiting_pull("T", 0, 60_000)))
                for _ in range(5)
            ]
            await until(lambda: held(broker) == 5, "all are held")
        await until(lambda: held(broker) == 0, "none is held")
        found = await asyncio.gather(*waits, return_exceptions=True)
        assert all(isinstance(each, Exception) for each in found)


@on_loop
async def test_client_that_does_not_read_keeps_nobody_else_waiting(tmp_path: Path) -> None:
    async with Broker(broker_config(tmp_path)) as broker, RemotingClient() as client:
        await filled(broker, client)
        reader, writer = await asyncio.open_connection(*broker.address)
        request = waiting_pull("T", 0, 60_000)
        writer.write(b"".join(encode(request.with_opaque(n)) for n in range(500)))
        await until(lambda: held(broker) == 500, "all are held")

        body = bytes(200_000)
        await call(client, broker, send_request("T", body))
        answer = await call(client, broker, waiting_pull("T", 0, 60_000))
        assert [each.body for each in records_of(answer.body)] == [body]
        connections = broker.status().connections
        assert connections == 2
        # Answers of some 100 MB were due; the connection holds its limit at most.
        assert broker.open.held_bytes < 64 << 20
        writer.close()
        await until(lambda: held(broker) == 0, "the holds end with the connection")
        del reader


@on_loop
async def test_closing_broker_lets_held_pulls_go(tmp_path: Path) -> None:
    async with RemotingClient() as client:
        async with Broker(broker_config(tmp_path)) as broker:
            await filled(broker, client)
            waiting = asyncio.ensure_future(call(client, broker, waiting_pull("T", 0, 60_000)))
            await until(lambda: held(broker) == 1, "it is held")
        with pytest.raises(Exception, match="ended before the answer"):
            await waiting


@on_loop
async def test_fast_port_serves_no_pulls(tmp_path: Path) -> None:
    async with Broker(broker_config(tmp_path)) as broker, RemotingClient() as client:
        await filled(broker, client, "a")
        host, port = broker.address
        answer = await client.call((host, port - 2), pull_request("T", 0), timeout=60)
        assert answer.code == ResponseCode.REQUEST_CODE_NOT_SUPPORTED
        sent = await client.call((host, port - 2), send_request("T", b"x"), timeout=60)
        assert sent.code == ResponseCode.SUCCESS


# -- lookups


async def fields_of(client: RemotingClient, broker: Broker, code: int, **fields: str) -> Frame:
    return await call(client, broker, Frame.request(code, {"topic": "T", "queueId": "0", **fields}))


@on_loop
async def test_offsets_and_times_of_a_queue(tmp_path: Path) -> None:
    async with Broker(broker_config(tmp_path)) as broker, RemotingClient() as client:
        await filled(broker, client, "a", "b")
        found = [broker.store.store.get("T", offset=offset) for offset in (0, 1)]
        for code, fields, expected in (
            (RequestCode.GET_MAX_OFFSET, {}, {"offset": "2"}),
            (RequestCode.GET_MAX_OFFSET, {"committed": "false"}, {"offset": "2"}),
            (RequestCode.GET_MAX_OFFSET, {"queueId": "1"}, {"offset": "0"}),
            (RequestCode.GET_MIN_OFFSET, {}, {"offset": "0"}),
            (
                RequestCode.GET_EARLIEST_MSG_STORETIME,
                {},
                {"timestamp": str(found[0].store_timestamp)},
            ),
            (RequestCode.GET_EARLIEST_MSG_STORETIME, {"queueId": "1"}, {"timestamp": "-1"}),
            (RequestCode.SEARCH_OFFSET_BY_TIMESTAMP, {"timestamp": "0"}, {"offset": "0"}),
            (
                RequestCode.SEARCH_OFFSET_BY_TIMESTAMP,
                {"timestamp": str(found[1].store_timestamp), "boundaryType": "upper"},
                {"offset": "1"},
            ),
            (
                RequestCode.SEARCH_OFFSET_BY_TIMESTAMP,
                {"timestamp": "0", "queueId": "1"},
                {"offset": "0"},
            ),
        ):
            answer = await fields_of(client, broker, code, **fields)
            assert (answer.code, answer.ext_fields) == (ResponseCode.SUCCESS, expected), code
        answer = await fields_of(client, broker, RequestCode.GET_MAX_OFFSET, queueId="-1")
        assert answer.code == ResponseCode.INVALID_PARAMETER
        light = {"timestamp": "0", "liteTopic": "chat-1"}
        answer = await fields_of(client, broker, RequestCode.SEARCH_OFFSET_BY_TIMESTAMP, **light)
        assert answer.code == ResponseCode.REQUEST_CODE_NOT_SUPPORTED


@on_loop
async def test_messages_are_found_by_key_and_by_id(tmp_path: Path) -> None:
    async with Broker(broker_config(tmp_path)) as broker, RemotingClient() as client:
        await filled(broker, client)
        for number in range(3):
            await call(client, broker, send_request("T", b"%d" % number, {"KEYS": "k"}))
        await until(lambda: len(broker.store.store.queue("T", 0)) == 3, "dispatched")
        query = {"key": "k", "maxNum": "2", "beginTimestamp": "0", "endTimestamp": str(2**62)}
        answer = await fields_of(client, broker, RequestCode.QUERY_MESSAGE, **query)
        assert answer.code == ResponseCode.SUCCESS
        assert [each.body for each in records_of(answer.body)] == [b"1", b"2"]
        query["key"] = "none"
        answer = await fields_of(client, broker, RequestCode.QUERY_MESSAGE, **query)
        assert answer.code == ResponseCode.QUERY_NOT_FOUND

        places = struct.unpack(">q", broker.store.store.get("T", offset=1).raw[28:36])
        code = RequestCode.VIEW_MESSAGE_BY_ID
        answer = await fields_of(client, broker, code, offset=str(places[0]))
        assert [each.body for each in records_of(answer.body)] == [b"1"]
        for offset in ("-1", "1", str(1 << 40)):
            answer = await fields_of(client, broker, code, offset=offset)
            assert answer.code == ResponseCode.SYSTEM_ERROR
            assert f"by the offset, {offset}" in (answer.remark or "")
