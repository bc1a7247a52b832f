"""`rmqstore admin` against a broker on the loopback interface."""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import AsyncExitStack
from pathlib import Path

import pytest

from rmqstore.broker.node import Broker
from rmqstore.config import NameserverConfig
from rmqstore.message import Message
from rmqstore.nameserver.server import Nameserver
from rmqstore.net.addresses import format_address
from rmqstore.net.loop_thread import LoopThread
from rmqstore.store.metadata import GroupConfig, TopicConfig
from tests.support.admin_command import admin as run
from tests.support.brokers import broker_config


class Served:
    """A broker and its nameserver on a thread of their own."""

    def __init__(self, root: Path) -> None:
        self._root = root
        self._stack = AsyncExitStack()
        self._thread = LoopThread("broker", what="the thread of the broker")
        try:
            self._thread.run(self._start)
        except BaseException:
            self.close()
            raise

    async def _start(self) -> None:
        config = NameserverConfig(bind_address="127.0.0.1", listen_port=0)
        server = await self._stack.enter_async_context(Nameserver(config))
        self.namesrv = format_address(server.address)
        settings = broker_config(self._root, nameservers=(self.namesrv,), cluster_name="east")
        self.broker = await self._stack.enter_async_context(Broker(settings))
        await self.broker.registered()
        self.address = format_address(self.broker.address)

    def consume(self) -> None:
        """Put three messages, of which the group g has consumed two."""

        async def work() -> None:
            for _ in range(3):
                await self.broker.store.put("orders", b"m", queue=1)
            await self.broker.metadata.retry_topic("g")
            self.broker.metadata.offsets.commit("orders", "g", 1, 2)
            await self.broker.registered()

        self._thread.run(work)

    def put(self, *messages: Message) -> list[str]:
        """Put messages into queue 0 and return their offset ids."""

        async def work() -> list[str]:
            ids = []
            for each in messages:
                receipt = await self.broker.store.put(each)
                ids.append(receipt.message_id)
            await self.broker.metadata.change_topic(TopicConfig("orders", 4, 4))
            await self.broker.registered()
            self.broker.store.store.wait_dispatched()
            return ids

        return self._thread.run(work)

    def close(self) -> None:
        """End both servers."""
        self._thread.run(self._stack.aclose)
        self._thread.stop()


@pytest.fixture
def served(tmp_path: Path) -> Iterator[Served]:
    """Return a running broker."""
    made = Served(tmp_path)
    yield made
    made.close()


def test_topic_is_made_shown_and_deleted(served: Served) -> None:
    at = ("-n", served.namesrv)
    tables = served.broker.metadata.tables
    options = ("-t", "orders", "-r", "2", "-w", "2", "-o", "true", "-a", "+message.type=FIFO")
    printed = run("updateTopic", *at, "-c", "east", *options)
    assert printed == f"{served.address}: changed\n"
    assert tables.topics["orders"] == TopicConfig(
        "orders", 2, 2, order=True, attributes={"message.type": "FIFO"}
    )
    served.consume()
    rows = [
        json.loads(line)
        for line in run("topicStatus", *at, "-t", "orders", "--json").split("\n")
        if line
    ]
    assert [(row["queueId"], row["minOffset"], row["maxOffset"]) for row in rows] == [
        (0, 0, 0),
        (1, 0, 3),
    ]
    printed = run("consumerProgress", *at, "-g", "g", "-t", "orders")
    assert printed.splitlines()[2].split("\t")[:6] == ["orders", "broker-a", "1", "3", "2", "1"]

    printed = run("deleteTopic", *at, "-c", "east", "-t", "orders")
    assert printed == f"{served.address}: changed\n{served.namesrv}: changed\n"
    assert "orders" not in tables.topics
    assert "orders" not in {queue.topic for queue in served.broker.store.store.queues()}
    assert "orders" not in run("topicList", *at).splitlines()


def test_group_is_made_and_deleted_with_the_offsets(served: Served) -> None:
    served.consume()
    run("updateSubGroup", "-b", served.address, "-g", "g", "-r", "3", "-d", "true")
    tables = served.broker.metadata.tables
    assert tables.groups["g"] == GroupConfig("g", retries_max=3, consume_from_min_enabled=False)
    run("deleteSubGroup", "-b", served.address, "-g", "g", "-r", "true")
    assert "g" not in tables.groups
    assert tables.offsets.query("orders", "g", 1) is None


def test_broker_is_shown_and_configured(served: Served) -> None:
    at = ("-n", served.namesrv, "-c", "east")
    printed = run("updateBrokerConfig", *at, "-k", "brokerPermission", "-v", "4")
    assert printed == f"{served.address}: changed\n"
    lines = run("getBrokerConfig", *at, "--json").splitlines()
    pairs = {each["key"]: each["value"] for each in map(json.loads, lines)}
    assert pairs["brokerPermission"] == "4"
    assert "brokerVersionDesc\tV5_3_3" in run("brokerStatus", "-b", served.address)


def test_refusal_of_a_broker_is_shown(served: Served) -> None:
    printed = run("updateTopic", "-b", served.address, "-t", "a b", code=4)
    assert f"{served.address}: not changed" in printed
    assert "illegal characters" in printed


def test_unknown_cluster_is_named(served: Served) -> None:
    printed = run("updateTopic", "-n", served.namesrv, "-c", "west", "-t", "orders", code=1)
    assert "cluster 'west' has no live broker" in printed


def test_broker_and_cluster_exclude_each_other() -> None:
    for options in ((), ("-b", "127.0.0.1:1", "-c", "east")):
        assert "(-b) or a cluster (-c)" in run("updateTopic", "-t", "orders", *options, code=2)


def test_messages_are_shown_by_id_unique_key_and_key(served: Served) -> None:
    unique = "0A000001000100000000000000000007"
    first, second = served.put(
        Message("orders", b"paid", keys=["o-17", "o-18"], tags="eu", properties={"n": "1"}),
        Message("orders", b"\xff\x00", keys=["o-17"], properties={"UNIQ_KEY": unique}),
    )
    at = ("-n", served.namesrv, "-t", "orders")
    shown = json.loads(run("queryMsgById", *at, "-i", first, "--json"))
    assert (shown["offsetMsgId"], shown["topic"], shown["body"]) == (first, "orders", "paid")
    assert (shown["tags"], shown["keys"], shown["queueOffset"]) == ("eu", "o-17 o-18", 0)
    assert shown["properties"]["n"] == "1"
    assert shown["storeHost"] == served.address

    lines = run("queryMsgById", *at, "-i", f"{unique}, {first}", "--json").splitlines()
    found = [json.loads(line) for line in lines]
    assert [each["offsetMsgId"] for each in found] == [second, first]
    assert found[0]["bodyBase64"] == "/wA="
    printed = run("queryMsgById", *at, "-i", first, "-f", "ascii").splitlines()
    assert "body\tpaid" in printed
    assert f"offsetMsgId\t{first}" in printed

    rows = [json.loads(line) for line in run("queryMsgByKey", *at, "-k", "o-17", "--json").split()]
    assert [each["msgId"] for each in rows] == [first, unique]
    assert [each["queueOffset"] for each in rows] == [0, 1]
    assert run("queryMsgByKey", *at, "-k", "o-18").splitlines() == [
        "message id\tqueue\toffset",
        f"{first}\t0\t0",
    ]
    assert run("queryMsgByKey", *at, "-k", "o-17", "-e", "1", "--json") == ""
    assert run("queryMsgByKey", *at, "-k", "o-19", "--json") == ""


@pytest.mark.parametrize("message_id", ["x", "0A000001000100000000000000000007"])
def test_unknown_message_ends_with_a_failure(served: Served, message_id: str) -> None:
    served.put(Message("orders", b"paid"))
    run("queryMsgById", "-n", served.namesrv, "-t", "orders", "-i", message_id, code=1)
