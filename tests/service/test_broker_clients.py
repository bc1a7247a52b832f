"""Clients of a broker: heartbeats, groups and their notices, locks of queues."""

from __future__ import annotations

import asyncio
import json
from pathlib import Path
from typing import Any

import pytest

from rmqstore.broker.membership.roles import Role
from rmqstore.broker.node import Broker
from rmqstore.broker.services import broadcasts
from rmqstore.remoting.bodies.clients import ConsumerData, ConsumerList, SubscriptionData
from rmqstore.remoting.client import RemotingClient
from rmqstore.remoting.codes import RequestCode, ResponseCode
from rmqstore.remoting.connection import RemotingConnection
from rmqstore.remoting.frames import Frame
from rmqstore.store.metadata import GroupConfig, TopicConfig
from tests.service.broker_clients import call, heartbeat, pull_request
from tests.service.remoting_peers import on_loop
from tests.support.brokers import broker_config
from tests.support.waiting import until


class Consumer:
    """A client that counts the notices it gets."""

    def __init__(self) -> None:
        self.notices: list[str] = []
        handlers = {RequestCode.NOTIFY_CONSUMER_IDS_CHANGED: self._notice}
        self.client = RemotingClient(handlers=handlers)

    def _notice(self, connection: RemotingConnection, request: Frame) -> None:
        assert request.is_one_way
        self.notices.append(request.ext_fields["consumerGroup"])

    async def beat(self, broker: Broker, *arguments: str, **changes: Any) -> Frame:
        return await call(self.client, broker, heartbeat(*arguments, **changes))


async def members(client: RemotingClient, broker: Broker, group: str) -> list[str]:
    """Return the client ids of a group, [] for a group that nobody is in."""
    code = RequestCode.GET_CONSUMER_LIST_BY_GROUP
    answer = await call(client, broker, Frame.request(code, {"consumerGroup": group}))
    if answer.code == ResponseCode.SYSTEM_ERROR:
        assert "no consumer for this group" in (answer.remark or "")
        return []
    return list(ConsumerList.decode(answer.body).client_ids)


@on_loop
async def test_members_of_a_group_are_notified_of_who_comes_and_goes(tmp_path: Path) -> None:
    first, second = Consumer(), Consumer()
    async with Broker(broker_config(tmp_path)) as broker, first.client:
        answer = await first.beat(broker, "c1", "cg")
        expected = {"IS_SUPPORT_HEART_BEAT_V2": "true", "IS_SUB_CHANGE": "true"}
        assert (answer.code, answer.ext_fields) == (ResponseCode.SUCCESS, expected)
        assert broker.metadata.topic("%RETRY%cg") is not None
        await until(lambda: first.notices == ["cg"], "the first is notified of itself")

        async with second.client:
            await second.beat(broker, "c2", "cg")
            assert await members(first.client, broker, "cg") == ["c1", "c2"]
            await until(lambda: len(first.notices) == 2 and second.notices, "both are notified")
            await first.beat(broker, "c1", "cg")

            fields = {"clientID": "c2", "consumerGroup": "cg", "producerGroup": "pg"}
            leave = Frame.request(RequestCode.UNREGISTER_CLIENT, fields)
            assert (await call(second.client, broker, leave)).code == ResponseCode.SUCCESS
            assert await members(first.client, broker, "cg") == ["c1"]
            await until(lambda: len(first.notices) == 3, "the first is notified")
            await second.beat(broker, "c2", "cg")
            await until(lambda: len(first.notices) == 4, "the first is notified")
        await until(lambda: len(first.notices) == 5, "the end of a connection is noticed")
        assert await members(first.client, broker, "cg") == ["c1"]


@on_loop
async def test_group_with_different_subscriptions_is_reported_once(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    first, second = Consumer(), Consumer()
    async with Broker(broker_config(tmp_path)) as broker, first.client, second.client:
        for _ in range(2):
            await first.beat(broker, "c1", "cg", tags="a")
            await second.beat(broker, "c2", "cg", tags="b")
        assert broker.status().mixed_groups == ("cg",)
        said = [each.getMessage() for each in caplog.records if "different" in each.getMessage()]
        assert len(said) == 1
        assert said[0].endswith("c1: T a; c2: T b")
        await second.beat(broker, "c2", "cg", tags="a")
        assert broker.status().mixed_groups == ()


@on_loop
async def test_group_whose_notices_are_off_gets_none(tmp_path: Path) -> None:
    consumer = Consumer()
    async with Broker(broker_config(tmp_path)) as broker, consumer.client:
        await broker.metadata.change_group(GroupConfig("quiet", notices_enabled=False))
        await consumer.beat(broker, "c1", "quiet", "loud")
        await until(lambda: consumer.notices == ["loud"], "the other group is notified")
        assert await members(consumer.client, broker, "quiet") == ["c1"]


@on_loop
async def test_fingerprint_says_whether_subscriptions_have_to_be_sent(tmp_path: Path) -> None:
    consumer = Consumer()
    async with Broker(broker_config(tmp_path)) as broker, consumer.client:
        found = []
        for fingerprint, without in ((7, False), (7, True), (8, True)):
            answer = await consumer.beat(
                broker, "c1", "cg", fingerprint=fingerprint, is_without_subscriptions=without
            )
            found.append(answer.ext_fields["IS_SUB_CHANGE"])
        assert found == ["true", "false", "true"]
        group = broker.open.clients.table.consumer_group("cg")
        assert group is not None
        assert list(group.subscriptions) == ["T"]


@on_loop
async def test_connections_of_a_group_are_listed(tmp_path: Path) -> None:
    consumer = Consumer()
    async with Broker(broker_config(tmp_path)) as broker, consumer.client:
        request = Frame.request(RequestCode.GET_CONSUMER_CONNECTION_LIST, {"consumerGroup": "cg"})
        answer = await call(consumer.client, broker, request)
        assert answer.code == ResponseCode.CONSUMER_NOT_ONLINE
        await consumer.beat(broker, "c1", "cg")
        body = json.loads((await call(consumer.client, broker, request)).body)
        [found] = body["connectionSet"]
        assert (found["clientId"], found["language"], found["version"]) == ("c1", "PYTHON", 479)
        assert found["clientAddr"].startswith("127.0.0.1:")
        assert body["subscriptionTable"]["T"]["subString"] == "*"


def lock(code: int, client_id: str, *queues: int, broker: str = "broker-a") -> Frame:
    names = [{"brokerName": broker, "queueId": each, "topic": "T"} for each in queues]
    body = {"clientId": client_id, "consumerGroup": "cg", "mqSet": names}
    return Frame(code, body=json.dumps(body).encode())


@on_loop
async def test_queue_is_locked_for_one_client_at_a_time(tmp_path: Path) -> None:
    async with Broker(broker_config(tmp_path)) as broker, RemotingClient() as client:

        async def locked(client_id: str, *queues: int, broker_name: str = "broker-a") -> list[int]:
            frame = lock(RequestCode.LOCK_BATCH_MQ, client_id, *queues, broker=broker_name)
            answer = await call(client, broker, frame)
            assert answer.code == ResponseCode.SUCCESS
            return [each["queueId"] for each in json.loads(answer.body)["lockOKMQSet"]]

        assert await locked("a", 0, 1) == [0, 1]
        assert await locked("b", 1, 2) == [2]
        assert await locked("b", 1, broker_name="another") == []
        await call(client, broker, lock(RequestCode.UNLOCK_BATCH_MQ, "a", 1))
        assert await locked("b", 1) == [1]


ROLES: list[tuple[Role, dict[str, bool], set[int], bool]] = [
    (Role(name="master", broker_id=0), {}, set(), True),
    (Role(name="slave", broker_id=1), {"acting_master_enable": True}, {1, 2}, True),
    (Role(name="slave", broker_id=1), {"acting_master_enable": True}, {0, 1, 2}, False),
    (Role(name="slave", broker_id=2), {"acting_master_enable": True}, {1, 2}, False),
    (Role(name="slave", broker_id=1), {"acting_master_enable": True}, set(), False),
    (Role(name="slave", broker_id=1), {}, {1, 2}, False),
    (Role(name="slave", broker_id=0, waits_for="its power was lost"), {}, set(), True),
    (Role(), {}, set(), False),
]


@pytest.mark.parametrize(("role", "settings", "members", "is_served"), ROLES)
@on_loop
async def test_broker_that_routes_show_as_the_master_locks_queues_and_answers_pulls(
    tmp_path: Path, role: Role, settings: dict[str, bool], members: set[int], is_served: bool
) -> None:
    """Java's consumers that read in order stop where their locks are refused
    (spec/acting-master.md 13)."""
    async with Broker(broker_config(tmp_path, **settings)) as broker, RemotingClient() as client:
        await broker.metadata.change_topic(TopicConfig("T"))
        await broker.metadata.change_group(GroupConfig("cg"))
        if members:
            broker.open.learn_members(dict.fromkeys(members, ""))
        broker.open.set_role(role)
        answer = await call(client, broker, lock(RequestCode.LOCK_BATCH_MQ, "a", 0))
        assert (answer.code == ResponseCode.SUCCESS) is is_served, answer.remark
        pull = await call(client, broker, pull_request("T", 0))
        assert (pull.code == ResponseCode.PULL_NOT_FOUND) is is_served, pull.remark


@on_loop
async def test_start_names_what_the_acting_master_mode_lacks(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    async with Broker(broker_config(tmp_path, acting_master_enable=True)):
        assert "enableSlaveActingMaster is served in part" in caplog.text


@on_loop
async def test_malformed_bodies_are_refused(tmp_path: Path) -> None:
    async with Broker(broker_config(tmp_path)) as broker, RemotingClient() as client:
        bodies = (b"{", b"[]", b'{"consumerDataSet":7}', b'{"consumerDataSet":[7]}', b"\xff")
        for body in (*bodies, b"{}", b'{"clientID":""}'):
            answer = await call(client, broker, Frame(RequestCode.HEART_BEAT, body=body))
            assert answer.code == ResponseCode.INVALID_PARAMETER, body
        for code in (RequestCode.LOCK_BATCH_MQ, RequestCode.CHECK_CLIENT_CONFIG):
            for body in bodies[:2]:
                answer = await call(client, broker, Frame(code, body=body))
                assert answer.code == ResponseCode.INVALID_PARAMETER, (code, body)
        await asyncio.sleep(0)


@on_loop
async def test_progress_of_consumers_that_broadcast_is_committed_and_goes_with_its_group(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(broadcasts, "_COMMIT_S", 0.01)
    both = Consumer(), Consumer()
    async with (
        Broker(broker_config(tmp_path)) as broker,
        both[0].client,
        both[1].client,
    ):
        await broker.metadata.change_topic(TopicConfig("T"))
        for _ in range(5):
            await broker.store.put("T", b"x")
        broker.store.store.wait_dispatched()
        subscription = SubscriptionData(topic="T", version=5, expression="*")
        data = ConsumerData(
            group="cg",
            consume_type="CONSUME_PASSIVELY",
            message_model="BROADCASTING",
            subscriptions=(subscription,),
        )
        for name, consumer, offset in zip("ab", both, (4, 3), strict=True):
            await consumer.beat(broker, name, consumers=(data,))
            await call(consumer.client, broker, pull_request("T", offset))
        offsets = broker.metadata.offsets
        await until(
            lambda: offsets.query("T", "cg@broadcast", 0) == 3, "the lowest progress is committed"
        )
        assert offsets.groups_of("T") == []

        await broker.metadata.delete_group("cg", with_offsets=True)
        assert offsets.query("T", "cg@broadcast", 0) is None
