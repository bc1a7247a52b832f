"""A broker whose disk is full: its answers, and that it serves again once there is room."""

from __future__ import annotations

from pathlib import Path

import pytest

from rmqstore.broker.node import Broker
from rmqstore.remoting.client import RemotingClient
from rmqstore.remoting.codes import RequestCode, ResponseCode
from rmqstore.remoting.frames import Frame
from rmqstore.store.metadata import TopicTable
from tests.crash.disk import fill_up, small_tmpfs
from tests.support.agreement import FILES, check_agreement
from tests.support.brokers import broker_config
from tests.support.loops import on_loop
from tests.support.sends import CALL_S, send_request
from tests.support.waiting import until

DISK_BYTES = 4 << 20
SENDS_MAX = 1000
PAUSE_S = 0.1
TOPIC = {
    "topic": "T",
    "defaultTopic": "TBW102",
    "readQueueNums": "2",
    "writeQueueNums": "2",
    "perm": "6",
    "topicFilterType": "SINGLE_TAG",
    "order": "false",
}


class Clients:
    """A producer and an operator of one broker."""

    def __init__(self, broker: Broker, client: RemotingClient) -> None:
        self._broker = broker
        self._client = client
        self.acknowledged: list[bytes] = []

    async def send(self) -> Frame:
        body = (b"%06d" % len(self.acknowledged)).ljust(700)
        answer = await self._call(send_request("orders", body))
        if answer.code == ResponseCode.SUCCESS:
            self.acknowledged.append(body)
        return answer

    async def is_sent(self) -> bool:
        return (await self.send()).code == ResponseCode.SUCCESS

    async def make_topic(self) -> Frame:
        return await self._call(Frame.request(RequestCode.UPDATE_AND_CREATE_TOPIC, TOPIC))

    async def _call(self, request: Frame) -> Frame:
        return await self._client.call(self._broker.address, request, CALL_S)


@on_loop
async def test_full_disk_is_the_answer_and_the_broker_serves_again_once_there_is_room(
    tmp_path: Path,
) -> None:
    with small_tmpfs(tmp_path / "disk", DISK_BYTES) as disk:
        config = broker_config(disk / "store", **FILES)
        async with Broker(config) as broker, RemotingClient() as client:
            clients = Clients(broker, client)
            assert await clients.is_sent()
            fill_up(disk / "ballast")
            for _ in range(SENDS_MAX):
                answer = await clients.send()
                if answer.code != ResponseCode.SUCCESS:
                    break
            else:
                pytest.fail("the disk never filled")
            assert answer.code == ResponseCode.SYSTEM_ERROR
            assert "No space left" in (answer.remark or "")
            # The second time the broker knows the topic, and its file does not.
            for refused in (await clients.make_topic(), await clients.make_topic()):
                assert refused.code == ResponseCode.SYSTEM_ERROR
                assert "No space left" in (refused.remark or "")

            (disk / "ballast").unlink()
            await until(clients.is_sent, "a send after there is room")
            await until(
                lambda: "T" in TopicTable.load(disk / "store").topics, "a save", pause=PAUSE_S
            )
            assert (await clients.make_topic()).code == ResponseCode.SUCCESS
            assert not broker.status().task_failures
            stored = check_agreement(broker.store.store)
            assert [bytes(each.body) for each in stored] == clients.acknowledged
