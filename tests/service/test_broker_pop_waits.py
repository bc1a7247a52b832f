"""Pops that wait for messages: what wakes them, in which order, and when they are given up."""

from __future__ import annotations

import asyncio
import time
from pathlib import Path

import pytest

from rmqstore.broker.membership.roles import Role
from rmqstore.broker.node import Broker
from rmqstore.remoting.client import RemotingClient
from rmqstore.remoting.codes import ResponseCode
from rmqstore.store.metadata import TopicConfig
from tests.service.broker_clients import call
from tests.service.pop_clients import Popper, filled, popped
from tests.service.remoting_peers import on_loop
from tests.support.brokers import broker_config
from tests.support.waiting import until


async def waiting(broker: Broker, count: int) -> None:
    found = {each.name: each for each in broker.open.families()}
    assert "rmqstore_waiting_pops" in found

    def now() -> bool:
        families = {each.name: each for each in broker.open.families()}
        [(_, number)] = families["rmqstore_waiting_pops"].samples
        return number == count

    await until(now, f"{count} pops wait")


@on_loop
async def test_waiting_pop_gets_the_message_that_comes(tmp_path: Path) -> None:
    async with Broker(broker_config(tmp_path)) as broker, RemotingClient() as client:
        await filled(broker, client, queues=2)
        any_queue = asyncio.create_task(Popper(client, broker).pop(poll_ms=30_000))
        await waiting(broker, 1)
        await filled(broker, client, b"0", queue=1)
        assert [each.body for each in await any_queue] == [b"0"]

        one_queue = asyncio.create_task(Popper(client, broker).pop(poll_ms=30_000, queue_id=1))
        await waiting(broker, 1)
        await filled(broker, client, b"1", queue=0)
        await filled(broker, client, b"2", queue=1)
        assert [each.body for each in await one_queue] == [b"2"]


@on_loop
async def test_each_message_wakes_one_pop_of_each_group(tmp_path: Path) -> None:
    async with Broker(broker_config(tmp_path)) as broker, RemotingClient() as client:
        await filled(broker, client)
        first = Popper(client, broker, group="first")
        one = first.request(poll_ms=30_000, max_messages=1)
        tasks = [asyncio.create_task(call(client, broker, one)) for _ in range(3)]
        other = asyncio.create_task(Popper(client, broker, group="other").ask(poll_ms=30_000))
        await waiting(broker, 4)
        await filled(broker, client, b"0")
        await other
        await waiting(broker, 2)
        assert [task.done() for task in tasks].count(True) == 1
        await filled(broker, client, b"1", b"2")
        answers = await asyncio.gather(*tasks)
        bodies = [each.body for answer in answers for each in popped(answer)]
        assert sorted(bodies) == [b"0", b"1", b"2"]


@on_loop
async def test_rest_of_a_pop_wakes_the_next_one(tmp_path: Path) -> None:
    async with Broker(broker_config(tmp_path)) as broker, RemotingClient() as client:
        await filled(broker, client)
        popper = Popper(client, broker)
        tasks = [asyncio.create_task(popper.pop(poll_ms=30_000, max_messages=1)) for _ in range(3)]
        await waiting(broker, 3)
        broker.store.store.put_many([b"0", b"1", b"2"], topic="T")
        found = await asyncio.gather(*tasks)
        assert sorted(each.body for [each] in found) == [b"0", b"1", b"2"]


@pytest.mark.parametrize("retry_topic", ["%RETRY%pg_T", "%RETRY%pg+T"])
@on_loop
async def test_message_to_be_consumed_again_wakes_a_pop(tmp_path: Path, retry_topic: str) -> None:
    config = broker_config(tmp_path, pop_retries_v2=True)
    async with Broker(config) as broker, RemotingClient() as client:
        await filled(broker, client)
        task = asyncio.create_task(Popper(client, broker).pop(poll_ms=30_000))
        await waiting(broker, 1)
        await broker.metadata.change_topic(TopicConfig(retry_topic, 1, 1))
        broker.store.store.put(retry_topic, b"again")
        assert [each.body for each in await task] == [b"again"]


@on_loop
async def test_pop_without_messages_is_answered_at_its_time(tmp_path: Path) -> None:
    async with Broker(broker_config(tmp_path)) as broker, RemotingClient() as client:
        await filled(broker, client)
        began = time.monotonic()
        answer = await Popper(client, broker).ask(poll_ms=400)
        assert answer.code == ResponseCode.POLLING_TIMEOUT
        assert time.monotonic() - began >= 0.3
        assert answer.remark == "NO_MESSAGE_IN_QUEUE"
        assert answer.ext_fields["restNum"] == "0"
        await waiting(broker, 0)


@on_loop
async def test_message_that_is_not_wanted_leaves_a_pop_waiting(tmp_path: Path) -> None:
    async with Broker(broker_config(tmp_path)) as broker, RemotingClient() as client:
        await filled(broker, client)
        popper = Popper(client, broker)
        task = asyncio.create_task(popper.pop(poll_ms=30_000, expression="a"))
        await waiting(broker, 1)
        await filled(broker, client, b"0", TAGS="b")
        await until(lambda: broker.metadata.offsets.query("T", "pg", 0) == 1, "it is passed")
        await waiting(broker, 1)
        await filled(broker, client, b"1", TAGS="a")
        assert [each.body for each in await task] == [b"1"]


@on_loop
async def test_number_of_waiting_pops_is_bounded(tmp_path: Path) -> None:
    config = broker_config(tmp_path, waiting_pops_max=3, waiting_pops_max_each=2)
    async with Broker(config) as broker, RemotingClient() as client:
        await filled(broker, client)
        popper, other = Popper(client, broker), Popper(client, broker, group="other")
        tasks = [asyncio.create_task(popper.ask(poll_ms=30_000)) for _ in range(2)]
        await waiting(broker, 2)
        assert (await popper.ask(poll_ms=30_000)).code == ResponseCode.POLLING_FULL
        tasks.append(asyncio.create_task(other.ask(poll_ms=30_000)))
        await waiting(broker, 3)
        assert (await other.ask(poll_ms=30_000)).code == ResponseCode.POLLING_FULL
        broker.store.store.put_many([b"0", b"1"], topic="T")
        await tasks[2]


@on_loop
async def test_waiting_pops_are_answered_when_the_broker_leads_no_more(tmp_path: Path) -> None:
    async with Broker(broker_config(tmp_path)) as broker, RemotingClient() as client:
        await filled(broker, client)
        task = asyncio.create_task(Popper(client, broker).ask(poll_ms=30_000))
        await waiting(broker, 1)
        broker.open.set_role(Role(name="slave", broker_id=1, master_address=("127.0.0.1", 1)))
        assert (await task).code == ResponseCode.POLLING_TIMEOUT
        answer = await Popper(client, broker).ask(poll_ms=30_000)
        assert answer.code == ResponseCode.SERVICE_NOT_AVAILABLE


@on_loop
async def test_pop_of_a_closed_connection_takes_no_message(tmp_path: Path) -> None:
    async with Broker(broker_config(tmp_path)) as broker, RemotingClient() as client:
        await filled(broker, client)
        async with RemotingClient() as gone:
            task = asyncio.create_task(Popper(gone, broker).ask(poll_ms=30_000))
            await waiting(broker, 1)
            task.cancel()
        await waiting(broker, 0)
        await filled(broker, client, b"0")
        assert [each.body for each in await Popper(client, broker).pop()] == [b"0"]
