"""`rmqstore admin` against nameservers on the loopback interface."""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import AsyncExitStack, contextmanager
from typing import Any

import pytest

from rmqstore.config import NameserverConfig
from rmqstore.data_version import DataVersion
from rmqstore.nameserver.server import Nameserver
from rmqstore.net.addresses import format_address
from rmqstore.net.loop_thread import LoopThread
from rmqstore.remoting.bodies.topic_config import TopicConfig, TopicTable
from rmqstore.remoting.client import RemotingClient
from rmqstore.remoting.headers.registration import RegisterBrokerRequestHeader
from tests.support.admin_command import admin as run
from tests.support.nameserver_host import registration
from tests.support.waiting import WAIT_S


@contextmanager
def nameservers(count: int) -> Iterator[str]:
    """Run nameservers on a thread of their own, each with one broker of two topics."""
    config = NameserverConfig(bind_address="127.0.0.1", listen_port=0)
    stack = AsyncExitStack()

    async def start() -> list[str]:
        addresses = []
        # The client stays open: a nameserver drops a broker whose connection closes.
        broker = await stack.enter_async_context(RemotingClient())
        for _ in range(count):
            server = await stack.enter_async_context(Nameserver(config))
            await broker.call(server.address, _registration(), WAIT_S)
            addresses.append(format_address(server.address))
        return addresses

    thread = LoopThread("nameservers", what="the thread of the nameservers")
    try:
        yield ";".join(thread.run(start))
    finally:
        thread.run(stack.aclose)
        thread.stop()


def _registration() -> Any:
    header = RegisterBrokerRequestHeader(
        broker_name="broker-a",
        broker_address="10.0.0.1:10911",
        cluster_name="east",
        broker_id=0,
        enable_acting_master=True,
    )
    topics = {name: TopicConfig(name, 4, 8, 6) for name in ("payments", "orders")}
    return registration(header, TopicTable(DataVersion(counter=1), topics))


def test_questions_are_answered_as_tables_and_as_json() -> None:
    with nameservers(1) as address:
        assert run("topicList", "-n", address) == "orders\npayments\n"
        assert run("topicList", "-n", address, "-c", "west") == ""
        rows = run("clusterList", "-n", address).splitlines()
        assert rows[1].split("\t") == ["east", "broker-a", "0", "10.0.0.1:10911", "True"]
        [broker] = map(json.loads, run("clusterList", "-n", address, "--json").splitlines())
        assert (broker["brokerName"], broker["brokerId"]) == ("broker-a", 0)
        rows = run("topicRoute", "-n", address, "-t", "orders").splitlines()
        assert rows[1].split("\t") == ["broker-a", "4", "8", "6", "0=10.0.0.1:10911"]
        missing = run("topicRoute", "-n", address, "-t", "refunds", code=1)
        assert "rmqstore admin topicList" in missing
        pairs = [
            json.loads(line)
            for line in run("getNamesrvConfig", "-n", address, "--json").splitlines()
        ]
        assert {"nameserver": address, "key": "listenPort", "value": "0"} in pairs


def test_changes_go_to_every_nameserver() -> None:
    with nameservers(2) as addresses:
        both = addresses.split(";")
        lines = run("wipeWritePerm", "-n", addresses, "-b", "broker-a").splitlines()
        assert lines == [f"{address}: changed, 2 topics" for address in both]
        for address in both:
            assert "\t4\t8\t4\t" in run("topicRoute", "-n", address, "-t", "orders")
        added = run("addWritePerm", "-n", addresses, "-b", "broker-a", "--json").splitlines()
        assert [json.loads(line)["topics"] for line in added] == [2, 2]

        pair = ("-s", "a", "-k", "k")
        run("updateKvConfig", "-n", addresses, *pair, "-v", "1")
        run("deleteKvConfig", "-n", addresses, *pair)
        run("updateNamesrvConfig", "-n", addresses, "-k", "enableTopicList", "-v", "false")
        refused = run("topicList", "-n", addresses, "-c", "east", code=4)
        assert "disable" in refused
        wrong = run("updateNamesrvConfig", "-n", addresses, "-k", "x", "-v", "1", code=4)
        assert wrong.count("not changed") == 2


def test_the_order_configuration_of_a_topic_is_put_got_and_deleted() -> None:
    with nameservers(2) as addresses:
        at = ("-n", addresses, "-t", "orders")
        assert run("updateOrderConf", *at, "-m", "put", "-v", "broker-a:4").count("changed") == 2
        for address in addresses.split(";"):
            found = run("updateOrderConf", "-n", address, "-t", "orders", "-m", "get", "--json")
            assert json.loads(found) == {"topic": "orders", "orderConf": "broker-a:4"}
        assert run("updateOrderConf", *at, "-m", "delete").count("changed") == 2
        assert "ORDER_TOPIC_CONFIG" in run("updateOrderConf", *at, "-m", "get", code=1)
        assert "-v" in run("updateOrderConf", *at, "-m", "put", code=2)


def test_a_question_goes_on_to_the_next_nameserver() -> None:
    with nameservers(1) as address:
        assert run("topicList", "-n", f"127.0.0.1:1;{address}") == "orders\npayments\n"
        partly = run("wipeWritePerm", "-n", f"{address};127.0.0.1:1", "-b", "broker-a", code=4)
        assert f"{address}: changed, 2 topics" in partly
        assert "127.0.0.1:1: not changed" in partly
        none = run("topicList", "-n", "127.0.0.1:1;127.0.0.1:2", code=4)
        assert "no nameserver answered" in none


@pytest.mark.parametrize(
    "addresses",
    ["", ";", "nowhere:x", "127.0.0.1:1,127.0.0.1:2", "http://127.0.0.1:1", "127.0.0.1:1:2"],
)
def test_a_wrong_address_is_named(addresses: str) -> None:
    assert "address" in run("topicList", "-n", addresses, code=2)
