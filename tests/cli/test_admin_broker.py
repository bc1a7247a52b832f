"""`rmqstore admin` against a broker on the loopback interface."""

from __future__ import annotations

import json

import pytest

from rmqstore.message import Message
from rmqstore.store.metadata import GroupConfig, TopicConfig
from tests.cli.served_broker import Served
from tests.support.admin_command import admin as run


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
