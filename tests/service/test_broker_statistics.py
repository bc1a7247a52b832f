"""Counters by name, and the information of a running broker (spec/broker.md 26)."""

from __future__ import annotations

from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from pathlib import Path

from rmqstore.broker.node import Broker
from rmqstore.remoting.bodies.counters import CounterBody, CounterSpan
from rmqstore.remoting.bodies.tables import KvTable
from rmqstore.remoting.client import RemotingClient
from rmqstore.remoting.codes import RequestCode, ResponseCode
from rmqstore.remoting.frames import Frame
from tests.service.broker_clients import pull_request
from tests.service.remoting_peers import on_loop
from tests.support.brokers import broker_config
from tests.support.sends import send_request
from tests.support.waiting import WAIT_S, until


class Asker:
    """Sends requests to one broker."""

    def __init__(self, broker: Broker, client: RemotingClient) -> None:
        self.broker = broker
        self._client = client

    async def call(self, request: Frame) -> Frame:
        return await self._client.call(self.broker.address, request, WAIT_S)

    async def counter(self, name: str, key: str) -> Frame:
        fields = {"statsName": name, "statsKey": key}
        return await self.call(Frame.request(RequestCode.VIEW_BROKER_STATS_DATA, fields))

    async def info(self) -> Mapping[str, str]:
        answer = await self.call(Frame.request(RequestCode.GET_BROKER_RUNTIME_INFO))
        return KvTable.decode(answer.body).table


@asynccontextmanager
async def asked(root: Path) -> AsyncIterator[Asker]:
    async with Broker(broker_config(root)) as broker, RemotingClient() as client:
        yield Asker(broker, client)


@on_loop
async def test_counters_show_what_was_sent_and_pulled(tmp_path: Path) -> None:
    async with asked(tmp_path) as asker:
        for number in range(20):
            sent = await asker.call(send_request("T", b"%d" % number))
            assert sent.code == ResponseCode.SUCCESS
        await asker.broker.store.wait_dispatched()
        pulled = await asker.call(pull_request("T", 0))
        assert pulled.code == ResponseCode.SUCCESS

        answer = await asker.counter("TOPIC_PUT_NUMS", "T")
        assert answer.code == ResponseCode.SUCCESS
        body = CounterBody.decode(answer.body)
        assert body.minute == body.hour == body.day == CounterSpan(20, 2.0, 1.0)
        got = CounterBody.decode((await asker.counter("GROUP_GET_SIZE", "T@cg")).body)
        assert got.day.total == len(pulled.body)
        cluster = asker.broker.config.cluster_name
        puts = CounterBody.decode((await asker.counter("BROKER_PUT_NUMS", cluster)).body)
        assert puts.day.total == 20


@on_loop
async def test_a_counter_that_does_not_exist_is_answered_as_rocketmq_does(tmp_path: Path) -> None:
    async with asked(tmp_path) as asker:
        answer = await asker.counter("TOPIC_PUT_NUMS", "T")
        assert answer.code == ResponseCode.SYSTEM_ERROR
        assert answer.remark == "The stats <TOPIC_PUT_NUMS> <T> not exist"


@on_loop
async def test_a_deleted_topic_has_no_counters(tmp_path: Path) -> None:
    async with asked(tmp_path) as asker:
        await asker.call(send_request("T", b"one"))
        deletion = Frame.request(RequestCode.DELETE_TOPIC_IN_BROKER, {"topic": "T"})
        assert (await asker.call(deletion)).code == ResponseCode.SUCCESS
        assert (await asker.counter("TOPIC_PUT_NUMS", "T")).code == ResponseCode.SYSTEM_ERROR


@on_loop
async def test_totals_of_messages_survive_a_restart(tmp_path: Path) -> None:
    for total in (1, 2):
        async with asked(tmp_path) as asker:
            await asker.call(send_request("T", b"one"))
            info = await asker.info()
            assert info["msgPutTotalTodayNow"] == str(total)
            assert info["putMessageTimesTotal"] == "1"
    (tmp_path / "config/rmqstoreTotals.json").write_bytes(b"{")
    async with asked(tmp_path) as asker:
        assert (await asker.info())["msgPutTotalTodayNow"] == "0"


@on_loop
async def test_information_shows_how_far_delayed_and_timer_messages_are(tmp_path: Path) -> None:
    async with asked(tmp_path) as asker:
        await asker.call(send_request("T", b"later", {"DELAY": "1"}))
        await asker.call(send_request("T", b"later still", {"DELAY": "18"}))
        await asker.call(send_request("T", b"much later", {"TIMER_DELAY_SEC": "3600"}))
        await asker.call(send_request("T", b"soon", {"TIMER_DELAY_MS": "1000"}))

        async def is_delivered() -> bool:
            info = await asker.info()
            return (
                info.get("scheduleMessageOffset_1") == "1,1"
                and info["timerCongestNum"] == "1"
                and float(info["timerDequeueTps"]) > 0
            )

        await until(is_delivered, "two messages are delivered, and one waits")
        info = await asker.info()
        assert info["scheduleMessageOffset_18"] == "0,1"
        assert (info["timerReadBehind"], info["timerOffsetBehind"]) == ("0", "0")
        assert float(info["timerEnqueueTps"]) > float(info["timerDequeueTps"])
