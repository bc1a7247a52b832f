"""Light queues: queues of a broker that hold messages of other topics, and their groups."""

from __future__ import annotations

import asyncio
import json
from pathlib import Path
from typing import Any

import pytest

from rmqstore.broker.membership.roles import Role
from rmqstore.broker.node import Broker
from rmqstore.check import verify
from rmqstore.config import BrokerConfig, BrokerRole
from rmqstore.remoting.client import RemotingClient
from rmqstore.remoting.codes import RequestCode, ResponseCode
from rmqstore.remoting.frames import Frame
from rmqstore.store.metadata import (
    ConsumerOffsets,
    LightConsumerOffsets,
    TopicConfig,
    load_consumer_offsets,
)
from rmqstore.store.queue import Queue
from rmqstore.store.store import Store
from tests.service.broker_clients import (
    batch_body,
    call,
    pull_request,
    records_of,
    waiting_pull,
)
from tests.service.remoting_peers import on_loop
from tests.support.brokers import broker_config
from tests.support.sends import send_request
from tests.support.waiting import until

A, B = "%LMQ%a", "%LMQ%b"
GROUP = "%LMQ%g"


def config(root: Path, **changes: Any) -> BrokerConfig:
    settings = {"light_queues": True, "enable_multi_dispatch": True, **changes}
    return broker_config(root, **settings)


async def put(
    client: RemotingClient, broker: Broker, body: bytes, names: str, **changes: Any
) -> Frame:
    properties = {"INNER_MULTI_DISPATCH": names, **changes.pop("properties", {})}
    return await call(client, broker, send_request("T", body, properties, **changes))


async def dispatched(broker: Broker) -> None:
    store = broker.store.store
    await until(lambda: store.dispatched_offset == store.end_offset, "all is dispatched")


async def pulled(
    client: RemotingClient, broker: Broker, topic: str, offset: int = 0
) -> list[bytes]:
    await dispatched(broker)
    answer = await call(client, broker, pull_request(topic, offset, consumer_group=GROUP))
    return [each.body for each in records_of(answer.body)]


def offset_request(code: int, topic: str = A, queue: int = 0, **fields: str) -> Frame:
    names = {"consumerGroup": GROUP, "topic": topic, "queueId": str(queue)}
    return Frame.request(code, {**names, **fields})


# -- messages


@on_loop
async def test_message_is_in_the_queue_of_its_topic_and_in_light_queues(tmp_path: Path) -> None:
    async with Broker(config(tmp_path)) as broker, RemotingClient() as client:
        for body, names in ((b"0", f"{A},{B}"), (b"1", B), (b"2", f"{B},{A}")):
            answer = await put(client, broker, body, names)
            assert answer.code == ResponseCode.SUCCESS, answer.remark
        assert await pulled(client, broker, "T") == [b"0", b"1", b"2"]
        assert await pulled(client, broker, A) == [b"0", b"2"]
        assert await pulled(client, broker, B, 1) == [b"1", b"2"]
        numbers = [
            each.properties["INNER_MULTI_QUEUE_OFFSET"] for each in broker.store.store.scan_log()
        ]
        assert numbers == ["0,0", "1", "2,1"]
        assert not {A, B, GROUP} & {*broker.metadata.tables.topics, *broker.metadata.tables.groups}


@on_loop
async def test_waiting_pull_of_a_light_queue_is_answered_by_its_message(tmp_path: Path) -> None:
    async with Broker(config(tmp_path)) as broker, RemotingClient() as client:
        wanted = waiting_pull(A, 0, 60_000, consumer_group=GROUP)
        waiting = asyncio.ensure_future(call(client, broker, wanted))
        await until(lambda: len(broker.open.pulls.held) == 1, "the pull is held")
        await put(client, broker, b"0", B)
        await put(client, broker, b"1", A)
        assert [each.body for each in records_of((await waiting).body)] == [b"1"]


@on_loop
async def test_delayed_message_enters_its_light_queues_when_it_is_delivered(tmp_path: Path) -> None:
    async with Broker(config(tmp_path)) as broker, RemotingClient() as client:
        await put(client, broker, b"later", A, properties={"DELAY": "1"})
        await put(client, broker, b"now", A)
        assert await pulled(client, broker, A) == [b"now"]
        store = broker.store.store
        await until(lambda: len(store.queue(A, 0)) == 2, "it is delivered")
        assert await pulled(client, broker, A) == [b"now", b"later"]


REFUSED = [
    ("T", "'T'"),
    (f"{A},T", "'T'"),
    (f"{A},", "''"),
    ("%LMQ%", "'%LMQ%'"),
    ("%LMQ%a/b", "'%LMQ%a/b'"),
    (",".join(f"%LMQ%{number}" for number in range(65)), "more than 64 names"),
]  # fmt: skip


@pytest.mark.parametrize(("names", "remark"), REFUSED)
@on_loop
async def test_name_that_is_no_light_queue_is_refused(
    tmp_path: Path, names: str, remark: str
) -> None:
    async with Broker(config(tmp_path)) as broker, RemotingClient() as client:
        await broker.metadata.change_topic(TopicConfig("T", 1, 1))
        answer = await put(client, broker, b"0", names)
        assert answer.code == ResponseCode.MESSAGE_ILLEGAL
        assert remark in (answer.remark or "")
        assert broker.store.store.end_offset == 0


@on_loop
async def test_batch_with_a_message_for_light_queues_is_refused(tmp_path: Path) -> None:
    async with Broker(config(tmp_path)) as broker, RemotingClient() as client:
        body = batch_body((b"0", {}), (b"1", {"INNER_MULTI_DISPATCH": A}))
        request = send_request("T", body, code=RequestCode.SEND_BATCH_MESSAGE, is_batch=True)
        answer = await call(client, broker, request)
        assert (answer.code, broker.store.store.end_offset) == (ResponseCode.MESSAGE_ILLEGAL, 0)
        assert "light queues" in (answer.remark or "")


@on_loop
async def test_numbers_in_light_queues_are_the_brokers(tmp_path: Path) -> None:
    async with Broker(config(tmp_path)) as broker, RemotingClient() as client:
        await put(client, broker, b"0", A, properties={"INNER_MULTI_QUEUE_OFFSET": "7"})
        assert await pulled(client, broker, A) == [b"0"]
        [record] = broker.store.store.scan_log()
        assert record.properties_text.count("INNER_MULTI_QUEUE_OFFSET") == 1


@on_loop
async def test_number_of_light_queues_is_limited(tmp_path: Path) -> None:
    async with Broker(config(tmp_path, light_queues_max=2)) as broker, RemotingClient() as client:
        for names in (A, B, f"{A},{B}"):
            assert (await put(client, broker, b"0", names)).code == ResponseCode.SUCCESS
        await dispatched(broker)
        answer = await put(client, broker, b"0", f"{A},%LMQ%c")
        assert answer.code == ResponseCode.SYSTEM_ERROR
        assert "[LMQ_CONSUME_QUEUE_NUM_EXCEEDED]2 light queues" in (answer.remark or "")
        await broker.open.configure({"maxLmqConsumeQueueNum": "3"})
        assert (await put(client, broker, b"0", "%LMQ%c")).code == ResponseCode.SUCCESS


@on_loop
async def test_messages_beyond_the_limit_do_not_list_all_queues(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Nor does a message count whose put fails."""
    lists: list[None] = []
    queues = Store.queues

    def listed(store: Store, topic: str | None = None) -> list[Queue]:
        lists.append(None)
        return queues(store, topic)

    async with Broker(config(tmp_path, light_queues_max=2)) as broker, RemotingClient() as client:
        await put(client, broker, b"0", A)
        monkeypatch.setattr(Store, "queues", listed)
        too_large = bytes(broker.config.store.message_size_bytes_max + 1)
        answer = await put(client, broker, too_large, B)
        assert answer.code == ResponseCode.MESSAGE_ILLEGAL
        assert (await put(client, broker, b"1", B)).code == ResponseCode.SUCCESS
        for _ in range(3):
            answer = await put(client, broker, b"2", "%LMQ%c")
            assert answer.code == ResponseCode.SYSTEM_ERROR
        assert lists == []

        await dispatched(broker)
        await broker.open.metadata.remove_queues((A,), broker.store.store.end_offset)
        assert (await put(client, broker, b"3", "%LMQ%c")).code == ResponseCode.SUCCESS
        assert len(lists) == 1


@on_loop
async def test_light_queues_outlive_a_kill_and_a_cut(tmp_path: Path) -> None:
    async with Broker(config(tmp_path)) as broker, RemotingClient() as client:
        for number in range(3):
            await put(client, broker, b"%d" % number, f"{A},{B}")
        await dispatched(broker)
        store = broker.store.store
        [*_, last] = store.scan_log()
        await asyncio.to_thread(store.flush)
        cut = last.physical_offset
        copy = tmp_path / "copy"
        copy.mkdir()
        for name in ("commitlog", "config"):
            (copy / name).mkdir()
            for file in (tmp_path / name).iterdir():
                (copy / name / file.name).write_bytes(file.read_bytes())
        (copy / "abort").touch()
    async with Broker(config(copy)) as broker, RemotingClient() as client:
        assert await pulled(client, broker, B) == [b"0", b"1", b"2"]
        await dispatched(broker)
        await asyncio.to_thread(broker.store.store.truncate_to, cut)
        assert await pulled(client, broker, A) == [b"0", b"1"]
        await put(client, broker, b"3", A)
        assert await pulled(client, broker, A) == [b"0", b"1", b"3"]
    assert verify(copy, full=True).is_sound


# -- topics and groups


@pytest.mark.parametrize("topic", [A, "%LMQ%never"])
@on_loop
async def test_light_topics_and_groups_exist_by_their_names(tmp_path: Path, topic: str) -> None:
    async with Broker(config(tmp_path)) as broker, RemotingClient() as client:
        await put(client, broker, b"0", A)
        pull = pull_request(topic, 5, consumer_group=GROUP)
        assert (await call(client, broker, pull)).code == ResponseCode.PULL_OFFSET_MOVED
        pull = pull_request(topic, 0, queue_id=1, consumer_group=GROUP)
        assert (await call(client, broker, pull)).code == ResponseCode.INVALID_PARAMETER


@on_loop
async def test_light_topic_cannot_be_made_but_deleted(tmp_path: Path) -> None:
    async with Broker(config(tmp_path)) as broker, RemotingClient() as client:
        fields = {
            "topic": A,
            "defaultTopic": "TBW102",
            "readQueueNums": "4",
            "writeQueueNums": "4",
            "perm": "6",
            "topicFilterType": "SINGLE_TAG",
            "order": "false",
        }
        request = Frame.request(RequestCode.UPDATE_AND_CREATE_TOPIC, fields)
        answer = await call(client, broker, request)
        assert answer.code == ResponseCode.INVALID_PARAMETER
        assert "exists by its name" in (answer.remark or "")

        await put(client, broker, b"0", A)
        assert await pulled(client, broker, A) == [b"0"]
        delete = Frame.request(RequestCode.DELETE_TOPIC_IN_BROKER, {"topic": A})
        assert (await call(client, broker, delete)).code == ResponseCode.SUCCESS
        assert await pulled(client, broker, A) == []
        await put(client, broker, b"1", A)
        assert await pulled(client, broker, A, 1) == [b"1"]
        assert await pulled(client, broker, "T") == [b"0", b"1"]


@on_loop
async def test_without_light_queues_no_name_is_one(tmp_path: Path) -> None:
    async with Broker(broker_config(tmp_path)) as broker, RemotingClient() as client:
        await put(client, broker, b"0", A)
        pull = pull_request(A, 0)
        assert (await call(client, broker, pull)).code == ResponseCode.TOPIC_NOT_EXIST
        [record] = broker.store.store.scan_log()
        assert "INNER_MULTI_QUEUE_OFFSET" not in record.properties


# -- offsets


@on_loop
async def test_light_group_has_one_offset_on_a_topic(tmp_path: Path) -> None:
    async with Broker(config(tmp_path)) as broker, RemotingClient() as client:
        commit = offset_request(RequestCode.UPDATE_CONSUMER_OFFSET, commitOffset="7")
        assert (await call(client, broker, commit)).code == ResponseCode.SUCCESS
        for queue in (0, 5):
            query = offset_request(RequestCode.QUERY_CONSUMER_OFFSET, queue=queue)
            assert (await call(client, broker, query)).ext_fields["offset"] == "7"
        broker.metadata.offsets.commit("T", "cg", 2, 9)
        answer = await call(client, broker, Frame.request(RequestCode.GET_ALL_CONSUMER_OFFSET, {}))
        body = json.loads(answer.body)
        assert body["lmqOffsetTable"] == {f"{A}@{GROUP}": 7}
        assert body["offsetTable"] == {"T@cg": {"2": 9}}
    assert not (tmp_path / "config" / "consumerOffset.json").exists()

    async with Broker(config(tmp_path)) as broker:
        assert broker.metadata.offsets.query(A, GROUP, 0) == 7
        assert broker.metadata.offsets.query("T", "cg", 2) == 9


@on_loop
async def test_reset_of_a_light_group_reaches_its_consumer(tmp_path: Path) -> None:
    async with Broker(config(tmp_path)) as broker:
        offsets = broker.metadata.offsets
        offsets.reset(A, GROUP, 0, 4)
        assert not offsets.commit(A, GROUP, 0, 9)
        assert (offsets.take_reset(A, GROUP, 0), offsets.query(A, GROUP, 0)) == (4, 4)


@pytest.mark.parametrize("is_light", [True, False])
@on_loop
async def test_offsets_stay_when_light_queues_are_turned_on_or_off(
    tmp_path: Path, is_light: bool
) -> None:
    async with Broker(broker_config(tmp_path, light_queues=not is_light)) as broker:
        broker.metadata.offsets.commit("T", "cg", 0, 3)
        broker.metadata.offsets.commit(A, GROUP, 0, 7)
    async with Broker(broker_config(tmp_path, light_queues=is_light)) as broker:
        assert broker.metadata.offsets.query("T", "cg", 0) == 3
        broker.metadata.offsets.commit("T", "cg", 0, 4)
    found = load_consumer_offsets(tmp_path, has_light=is_light)
    assert type(found) is (LightConsumerOffsets if is_light else ConsumerOffsets)
    assert found.of("T", "cg") == {0: 4}
    if is_light:
        assert found.of(A, GROUP) == {0: 7}


@on_loop
async def test_slave_has_the_offsets_of_light_groups(tmp_path: Path) -> None:
    slave_config = config(tmp_path / "slave", broker_role=BrokerRole.SLAVE, broker_id=1)
    async with Broker(config(tmp_path / "master")) as master, Broker(slave_config) as slave:
        master.metadata.offsets.commit(A, GROUP, 0, 7)
        slave.open.set_role(Role(name="slave", broker_id=1, master_address=master.address))
        offsets = slave.metadata.offsets
        await until(lambda: offsets.query(A, GROUP, 0) == 7, "the slave has taken all tables")
        master.metadata.offsets.commit(A, GROUP, 0, 9)
        await until(lambda: offsets.query(A, GROUP, 0) == 9, "the slave has taken the change")
    found = LightConsumerOffsets.load(tmp_path / "slave")
    assert found.of(A, GROUP) == {0: 9}
