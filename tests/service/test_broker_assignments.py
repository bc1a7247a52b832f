"""Assignments of queues by a broker, over connections; RocketMQ's QueryAssignmentProcessorTest."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

from rmqstore.broker.node import Broker
from rmqstore.config import ConsumptionMode, NameserverConfig
from rmqstore.nameserver.server import Nameserver
from rmqstore.net.addresses import format_address
from rmqstore.remoting import fastjson
from rmqstore.remoting.client import RemotingClient
from rmqstore.remoting.codes import RequestCode, ResponseCode
from rmqstore.remoting.frames import Frame
from rmqstore.store.metadata import RequestMode, TopicConfig
from tests.service.broker_clients import call, heartbeat
from tests.service.remoting_peers import on_loop
from tests.support.brokers import broker_config


@asynccontextmanager
async def assigning(root: Path, **settings: Any) -> AsyncIterator[tuple[Broker, RemotingClient]]:
    """A broker with the topic T of four queues, and the consumer c1 of the group cg."""
    nameserver = Nameserver(NameserverConfig(bind_address="127.0.0.1", listen_port=0))
    async with nameserver, RemotingClient() as client:
        places = (format_address(nameserver.address),)
        async with Broker(broker_config(root, nameservers=places, **settings)) as broker:
            await broker.metadata.change_topic(TopicConfig("T", 4, 4))
            await broker.registered()
            await call(client, broker, heartbeat("c1", "cg"))
            yield broker, client


async def ask(client: RemotingClient, broker: Broker, **changes: Any) -> Frame:
    values = {
        "clientId": "c1",
        "consumerGroup": "cg",
        "messageModel": "CLUSTERING",
        "strategyName": "AVG",
        "topic": "T",
        **changes,
    }
    body = fastjson.dumps({key: each for key, each in values.items() if each is not None})
    return await call(client, broker, Frame(RequestCode.QUERY_ASSIGNMENT, body=body))


async def assigned(client: RemotingClient, broker: Broker, **changes: Any) -> Any:
    """Return mode and numbers of the assigned queues, None for an answer without assignments."""
    answer = await ask(client, broker, **changes)
    assert answer.code == ResponseCode.SUCCESS, answer.remark
    found = fastjson.loads(answer.body).get("messageQueueAssignments")
    if found is None:
        return None
    assert {each["messageQueue"]["brokerName"] for each in found} <= {"broker-a"}
    return [(each["mode"], each["messageQueue"]["queueId"]) for each in found]


@on_loop
async def test_members_share_the_queues_as_they_come(tmp_path: Path) -> None:
    async with assigning(tmp_path) as (broker, client), RemotingClient() as second:
        every = [("PULL", number) for number in range(4)]
        assert await assigned(client, broker) == every
        answer = await ask(client, broker)
        assert answer.body.startswith(
            b'{"messageQueueAssignments":[{"messageQueue":{"brokerName":"broker-a","queueId":0,'
            b'"topic":"T"},"mode":"PULL"}'
        )
        await call(second, broker, heartbeat("c2", "cg"))
        assert await assigned(client, broker) == every[:2]
        assert await assigned(second, broker, clientId="c2") == every[2:]
        found = await assigned(second, broker, clientId="c2", strategyName="AVG_BY_CIRCLE")
        assert found == [every[1], every[3]]
        assert await assigned(client, broker, clientId="c3") == []


@on_loop
async def test_mode_is_the_one_that_an_operator_has_set(tmp_path: Path) -> None:
    async with assigning(tmp_path) as (broker, client):
        await broker.metadata.set_mode(RequestMode("T", "cg", "POP", 0))
        assert await assigned(client, broker) == [("POP", -1)]
        found = await assigned(client, broker, messageModel="BROADCASTING")
        assert found == [("POP", number) for number in range(4)]
        await broker.metadata.set_mode(RequestMode("T", "cg", "PULL"))
        assert await assigned(client, broker) == [("PULL", number) for number in range(4)]


@on_loop
async def test_mode_of_the_configuration_is_not_for_retries(tmp_path: Path) -> None:
    settings = {"default_request_mode": ConsumptionMode.POP}
    async with assigning(tmp_path, **settings) as (broker, client):
        assert await assigned(client, broker) == [("POP", -1)]
        await broker.registered()
        assert await assigned(client, broker, topic="%RETRY%cg") == [("PULL", 0)]


@on_loop
async def test_every_consumer_has_all_queues_where_none_are_shared(tmp_path: Path) -> None:
    every = [("PULL", number) for number in range(4)]
    async with assigning(tmp_path / "a") as (broker, client):
        found = await assigned(client, broker, messageModel="BroadCasting", clientId="other")
        assert found == every
    async with assigning(tmp_path / "b", balances_load=False) as (broker, client):
        assert await assigned(client, broker, consumerGroup="nobody", strategyName="x") == every


@on_loop
async def test_light_topic_has_one_queue_at_this_broker(tmp_path: Path) -> None:
    async with assigning(tmp_path) as (broker, client):
        assert await assigned(client, broker, topic="%LMQ%T") == [("PULL", 0)]
        assert await assigned(client, broker, topic="%LMQ%T", clientId="c2") == []


@on_loop
@pytest.mark.parametrize(
    ("changes", "reason"),
    [
        ({"topic": "absent"}, "topic absent"),
        ({"consumerGroup": "nobody"}, "group nobody"),
        ({"strategyName": "CONSISTENT_HASH"}, "use one of AVG, AVG_BY_CIRCLE"),
    ],
)
async def test_consumer_keeps_its_queues_where_none_can_be_assigned(
    tmp_path: Path, changes: dict[str, str], reason: str
) -> None:
    async with assigning(tmp_path) as (broker, client):
        answer = await ask(client, broker, **changes)
        assert (answer.code, answer.body) == (ResponseCode.SUCCESS, b"{}")
        assert reason in (answer.remark or "")


@on_loop
@pytest.mark.parametrize(
    ("changes", "reason"),
    [
        ({"topic": None}, "topic or consumerGroup"),
        ({"consumerGroup": ""}, "topic or consumerGroup"),
        ({"topic": 5}, "topic: 5 (int) is not text"),
        ({"messageModel": None}, "messageModel"),
        ({"messageModel": "SHARED"}, "messageModel"),
        ({"clientId": ["c1"]}, "clientId"),
    ],
)
async def test_wrong_question_is_refused(
    tmp_path: Path, changes: dict[str, Any], reason: str
) -> None:
    async with assigning(tmp_path) as (broker, client):
        answer = await ask(client, broker, **changes)
        assert answer.code == ResponseCode.INVALID_PARAMETER
        assert reason in (answer.remark or "")


@on_loop
async def test_names_of_255_bytes_are_served(tmp_path: Path) -> None:
    async with assigning(tmp_path) as (broker, client):
        group, client_id = "g" * 255, "c" * 255
        await call(client, broker, heartbeat(client_id, group))
        found = await assigned(client, broker, consumerGroup=group, clientId=client_id)
        assert found == [("PULL", number) for number in range(4)]
        assert await assigned(client, broker, topic="t" * 255) is None
