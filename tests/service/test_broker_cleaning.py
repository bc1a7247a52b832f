"""Requests that remove files of a broker (spec/broker.md 26: 27, 306, 316, 329)."""

from __future__ import annotations

import os
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

from rmqstore.broker.membership.roles import Role
from rmqstore.broker.node import Broker
from rmqstore.remoting.client import RemotingClient
from rmqstore.remoting.codes import RequestCode, ResponseCode
from rmqstore.remoting.frames import Frame
from rmqstore.store.metadata import GroupConfig, TopicConfig, TopicTable
from tests.service.broker_clients import call
from tests.service.remoting_peers import on_loop
from tests.support.brokers import broker_config


class Operator:
    """Sends requests to one broker."""

    def __init__(self, broker: Broker, client: RemotingClient) -> None:
        self.broker = broker
        self._client = client

    async def remark_of(self, code: int) -> str:
        answer = await call(self._client, self.broker, Frame.request(code))
        assert answer.code == ResponseCode.SUCCESS, answer.remark
        return answer.remark or ""

    async def fill_file(self, topic: str) -> None:
        """Put messages until the log goes on in another file, with a message of U in the end."""
        store = self.broker.store.store
        size = store.config.commit_log_file_size_bytes
        end = (store.end_offset // size + 1) * size
        while store.end_offset + 200_000 < end:
            await self.broker.store.put(topic, bytes(100_000))
        await self.broker.store.put("U", bytes(200_000))
        store.wait_dispatched()
        assert store.end_offset > end


@asynccontextmanager
async def operated(root: Path, **changes: Any) -> AsyncIterator[Operator]:
    async with Broker(broker_config(root, **changes)) as broker, RemotingClient() as client:
        for topic in ("T", "U"):
            await broker.metadata.change_topic(TopicConfig(topic, 1, 1))
        yield Operator(broker, client)


@pytest.mark.parametrize(
    "code", [RequestCode.TRIGGER_DELETE_FILES, RequestCode.DELETE_EXPIRED_COMMITLOG]
)
@on_loop
async def test_expired_log_files_are_removed_at_any_hour(tmp_path: Path, code: int) -> None:
    async with operated(tmp_path, delete_at_hours=()) as operator:
        await operator.fill_file("T")
        assert await operator.remark_of(code) == "0 log files are removed"
        path = operator.broker.store.store._files()[0][0]
        os.utime(path, (0, 0))
        assert await operator.remark_of(code) == "1 log files are removed"
        assert not Path(path).exists()


@on_loop
async def test_queue_without_messages_goes_on_after_it_was_cleaned(tmp_path: Path) -> None:
    async with operated(tmp_path) as operator:
        await operator.fill_file("T")
        store = operator.broker.store.store
        last = store.queue("T", 0).end - 1
        await operator.fill_file("U")
        store.expire_files(2)
        assert len(store.queue("T", 0)) == 0
        await operator.remark_of(RequestCode.CLEAN_EXPIRED_CONSUMEQUEUE)
        assert (await operator.broker.store.put("T", b"")).queue_offset == last + 1


@on_loop
async def test_only_unknown_topics_without_messages_lose_their_queues(tmp_path: Path) -> None:
    async with operated(tmp_path) as operator:
        await operator.fill_file("T")
        await operator.broker.store.put("V", b"")
        operator.broker.store.store.expire_files(1)
    # RocketMQ can lose topics by a switch.
    table = TopicTable.load(tmp_path)
    topics = {name: each for name, each in table.topics.items() if name not in ("T", "U")}
    TopicTable(topics, table.data_version, table.others).save(tmp_path)

    async with operated_again(tmp_path) as operator:
        folders = tmp_path / "consumequeue"
        code = RequestCode.CLEAN_UNUSED_TOPIC
        operator.broker.open.set_role(Role(name="slave", broker_id=1))
        assert "slave" in await operator.remark_of(code)
        assert (folders / "T").exists()

        operator.broker.open.set_role(Role(name="master", broker_id=0))
        remark = await operator.remark_of(code)
        assert "the queues of 1 topics are removed; 2 unknown topics have messages" in remark
        assert "U, V" in remark
        assert not (folders / "T").exists()
        assert (folders / "U").exists()
        assert operator.broker.metadata.topic("U") is None


@asynccontextmanager
async def operated_again(root: Path) -> AsyncIterator[Operator]:
    async with Broker(broker_config(root)) as broker, RemotingClient() as client:
        await broker.metadata.change_group(GroupConfig("g"))
        yield Operator(broker, client)
