"""Consumers that select messages by an expression of SQL92."""

from __future__ import annotations

import asyncio
import json
from pathlib import Path
from typing import Any

import pytest

from rmqstore.broker.membership.roles import Role
from rmqstore.broker.node import Broker
from rmqstore.broker.operations import pull as pull_operation
from rmqstore.broker.operations import queue_reads
from rmqstore.config import BrokerConfig
from rmqstore.filters import evaluation
from rmqstore.remoting.bodies.clients import ConsumerData, SubscriptionData
from rmqstore.remoting.client import RemotingClient
from rmqstore.remoting.codes import RequestCode, ResponseCode
from rmqstore.remoting.frames import Frame
from rmqstore.remoting.headers.pull import PullFlag
from rmqstore.store.metadata import FilterTable, TopicConfig
from tests.service.broker_clients import call, heartbeat, pull_request, records_of, waiting_pull
from tests.service.remoting_peers import on_loop
from tests.support.brokers import broker_config
from tests.support.sends import send_request
from tests.support.waiting import until


def config(root: Path, **changes: Any) -> BrokerConfig:
    return broker_config(root, sql_filters=True, **changes)


def subscription(expression: str, version: int = 5, topic: str = "T") -> SubscriptionData:
    return SubscriptionData(
        topic=topic, expression=expression, version=version, expression_type="SQL92"
    )


def beat(*subscriptions: SubscriptionData, client_id: str = "c1") -> Frame:
    """Return a heartbeat of a consumer of group cg."""
    consumers = (ConsumerData(group="cg", subscriptions=subscriptions),)
    return heartbeat(client_id, consumers=consumers)


def own(expression: str | None, offset: int = 0, **changes: Any) -> Frame:
    """Return a pull that brings its expression."""
    return pull_request("T", offset, subscription=expression, expression_type="SQL92", **changes)


def registered(offset: int = 0, version: int = 5, **changes: Any) -> Frame:
    """Return a pull by the expression of the heartbeat."""
    changes = {"sys_flag": PullFlag(0), "expression_type": "SQL92", **changes}
    return pull_request("T", offset, subscription_version=version, **changes)


async def put(client: RemotingClient, broker: Broker, *numbers: int, topic: str = "T") -> None:
    """Put messages whose property n is a number."""
    for number in numbers:
        message = send_request(topic, b"%d" % number, {"n": str(number), "TAGS": "x"})
        assert (await call(client, broker, message)).code == ResponseCode.SUCCESS
    store = broker.store.store
    await until(lambda: store.dispatched_offset == store.end_offset, "all is dispatched")


async def filled(client: RemotingClient, broker: Broker, *numbers: int) -> None:
    await broker.metadata.change_topic(TopicConfig("T", 1, 1))
    await put(client, broker, *numbers)


def bodies(answer: Frame) -> list[int]:
    return [int(each.body) for each in records_of(answer.body)]


# -- what a pull finds


@on_loop
async def test_pull_with_an_expression_gets_what_it_selects_and_passes_the_rest(
    tmp_path: Path,
) -> None:
    async with Broker(config(tmp_path)) as broker, RemotingClient() as client:
        await filled(client, broker, 1, 7, 2, 8, 3)
        answer = await call(client, broker, own("n > 5"))
        assert (answer.code, bodies(answer)) == (ResponseCode.SUCCESS, [7, 8])
        assert answer.ext_fields["nextBeginOffset"] == "5"
        answer = await call(client, broker, own("n > 5", max_messages=1))
        assert (bodies(answer), answer.ext_fields["nextBeginOffset"]) == ([7], "2")
        answer = await call(client, broker, own("n > 5", max_size_bytes=1))
        assert (bodies(answer), answer.ext_fields["nextBeginOffset"]) == ([7], "3")

        answer = await call(client, broker, own("n > 100"))
        assert (answer.code, answer.remark) == (
            ResponseCode.PULL_RETRY_IMMEDIATELY,
            "NO_MATCHED_MESSAGE",
        )
        assert answer.ext_fields["nextBeginOffset"] == "5"
        for offset, code in ((5, ResponseCode.PULL_NOT_FOUND), (6, ResponseCode.PULL_OFFSET_MOVED)):
            assert (await call(client, broker, own("n > 5", offset))).code == code


@on_loop
async def test_records_are_sent_as_they_are_in_the_log(tmp_path: Path) -> None:
    async with Broker(config(tmp_path)) as broker, RemotingClient() as client:
        await filled(client, broker, 1, 7)
        answer = await call(client, broker, own("n > 5 and TAGS = 'x'"))
        assert answer.body == broker.store.store.get("T", offset=1).raw


@on_loop
async def test_expression_with_many_properties_is_evaluated(tmp_path: Path) -> None:
    async with Broker(config(tmp_path)) as broker, RemotingClient() as client:
        await filled(client, broker, 1, 7)
        absent = " and ".join(f"p{number} is null" for number in range(40))
        assert bodies(await call(client, broker, own(f"n > 5 and {absent}"))) == [7]


@on_loop
async def test_pull_that_finds_nothing_lets_others_be_served_and_ends(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(queue_reads, "_LOOKED_MAX", 4)
    monkeypatch.setattr(pull_operation, "TURNS_MAX", 3)
    async with Broker(config(tmp_path)) as broker, RemotingClient() as client:
        await filled(client, broker, *range(20))
        turns = []
        operation = broker.open.pulls._requests._operation
        monkeypatch.setattr(
            operation, "read_again", lambda *args: turns.append(args[1]) or operation.read(*args)
        )
        answer = await call(client, broker, own("n > 100"))
        assert answer.code == ResponseCode.PULL_RETRY_IMMEDIATELY
        assert (answer.ext_fields["nextBeginOffset"], turns) == ("12", [4, 8])
        answer = await call(client, broker, own("n > 9"))
        assert (bodies(answer), answer.ext_fields["nextBeginOffset"]) == ([10, 11], "12")


@on_loop
async def test_message_is_evaluated_once_for_a_pull(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    seen = []
    plain = evaluation.Selector.selects

    def selects(self: evaluation.Selector, values: tuple[str | None, ...]) -> bool:
        seen.append(values)
        return plain(self, values)

    monkeypatch.setattr(evaluation.Selector, "selects", selects)
    async with Broker(config(tmp_path)) as broker, RemotingClient() as client:
        await filled(client, broker, 1, 2)
        pull = waiting_pull("T", 2, 60_000, subscription="n > 5", expression_type="SQL92")
        waiting = asyncio.ensure_future(call(client, broker, pull))
        await until(lambda: len(broker.open.pulls.held) == 1, "the pull is held")
        await put(client, broker, 3, 4, 7)
        assert bodies(await waiting) == [7]
        assert seen == [("3",), ("4",), ("7",)]


# -- expressions of heartbeats


@on_loop
async def test_pull_by_the_expression_of_a_heartbeat(tmp_path: Path) -> None:
    async with Broker(config(tmp_path)) as broker, RemotingClient() as client:
        await filled(client, broker, 1, 7)
        answer = await call(client, broker, registered())
        assert answer.code == ResponseCode.SUBSCRIPTION_NOT_EXIST
        await call(client, broker, beat(subscription("n > 5")))
        assert bodies(await call(client, broker, registered())) == [7]

        answer = await call(client, broker, registered(version=6))
        assert answer.code == ResponseCode.SUBSCRIPTION_NOT_LATEST
        await call(client, broker, beat(subscription("n < 5", 6)))
        assert bodies(await call(client, broker, registered(version=6))) == [1]


@on_loop
async def test_wrong_expression_of_a_heartbeat_is_named_by_the_pull(tmp_path: Path) -> None:
    async with Broker(config(tmp_path)) as broker, RemotingClient() as client:
        await filled(client, broker, 1)
        await call(client, broker, beat(subscription("n >")))
        answer = await call(client, broker, registered())
        assert answer.code == ResponseCode.FILTER_DATA_NOT_EXIST
        assert "Your expression may be wrong: n >" in (answer.remark or "")


@on_loop
async def test_expression_older_than_the_subscription_is_refused(tmp_path: Path) -> None:
    async with Broker(config(tmp_path)) as broker, RemotingClient() as client:
        await filled(client, broker, 1)
        await call(client, broker, beat(subscription("n > 5", 7)))
        known = broker.open.clients.table.consumer_group("cg")
        assert known is not None
        known.subscriptions["T"] = subscription("n > 5", 8)
        answer = await call(client, broker, registered(version=8))
        assert answer.code == ResponseCode.FILTER_DATA_NOT_LATEST


@on_loop
async def test_pull_of_tags_newer_than_an_expression_gets_every_message(tmp_path: Path) -> None:
    async with Broker(config(tmp_path)) as broker, RemotingClient() as client:
        await filled(client, broker, 1, 7)
        await call(client, broker, beat(subscription("n > 5")))
        answer = await call(client, broker, registered(version=6, expression_type="TAG"))
        assert bodies(answer) == [1, 7]


@pytest.mark.parametrize("is_own", [True, False])
@on_loop
async def test_retry_topic_is_filtered_by_the_expression_for_the_origin(
    tmp_path: Path, is_own: bool
) -> None:
    topic = "%RETRY%cg"
    broker = Broker(config(tmp_path, sql_filters_of_retries=True))
    async with broker, RemotingClient() as client:
        await broker.metadata.change_topic(TopicConfig(topic, 1, 1))
        await call(client, broker, beat(subscription("n > 5"), subscription("n < 0", topic=topic)))
        for number, origin in ((1, "T"), (7, "T"), (2, "U"), (3, "")):
            properties = {"n": str(number), "RETRY_TOPIC": origin}
            await call(client, broker, send_request(topic, b"%d" % number, properties))
        store = broker.store.store
        await until(lambda: store.dispatched_offset == store.end_offset, "all is dispatched")
        flags = PullFlag.SUBSCRIPTION if is_own else PullFlag(0)
        pull = pull_request(topic, 0, sys_flag=flags, subscription="n < 0", expression_type="SQL92")
        assert bodies(await call(client, broker, pull)) == [7, 2, 3]
        await broker.open.configure({"filterSupportRetry": "false"})
        assert bodies(await call(client, broker, pull)) == []


# -- long polls


@on_loop
async def test_waiting_pull_is_answered_by_a_message_it_selects_only(tmp_path: Path) -> None:
    async with Broker(config(tmp_path)) as broker, RemotingClient() as client:
        await filled(client, broker, 7)
        await call(client, broker, beat(subscription("n > 5")))
        pull = registered(1, sys_flag=PullFlag.SUSPEND, suspend_timeout_ms=60_000)
        waiting = asyncio.ensure_future(call(client, broker, pull))
        await until(lambda: len(broker.open.pulls.held) == 1, "the pull is held")
        await put(client, broker, 1, 2)
        [hold] = broker.open.pulls.held._holds.all()
        await until(lambda: hold.offset == 3, "it has passed the messages")
        assert not waiting.done()
        await put(client, broker, 8)
        answer = await waiting
        assert (bodies(answer), answer.ext_fields["nextBeginOffset"]) == ([8], "4")


@on_loop
async def test_waiting_pull_gets_what_a_new_expression_of_its_group_selects(
    tmp_path: Path,
) -> None:
    async with Broker(config(tmp_path)) as broker, RemotingClient() as client:
        await filled(client, broker)
        await call(client, broker, beat(subscription("n > 5")))
        pull = registered(0, sys_flag=PullFlag.SUSPEND, suspend_timeout_ms=60_000)
        waiting = asyncio.ensure_future(call(client, broker, pull))
        await until(lambda: len(broker.open.pulls.held) == 1, "the pull is held")
        await put(client, broker, 1)
        [hold] = broker.open.pulls.held._holds.all()
        await until(lambda: hold.offset == 1, "it has passed the message")
        await call(client, broker, beat(subscription("n < 5", 6)))
        await put(client, broker, 9)
        assert bodies(await waiting) == [1]


@on_loop
async def test_waiting_pull_ends_at_its_time_past_what_it_does_not_select(tmp_path: Path) -> None:
    async with Broker(config(tmp_path)) as broker, RemotingClient() as client:
        await filled(client, broker)
        pull = waiting_pull("T", 0, 300, subscription="n > 5", expression_type="SQL92")
        waiting = asyncio.ensure_future(call(client, broker, pull))
        await until(lambda: len(broker.open.pulls.held) == 1, "the pull is held")
        await put(client, broker, 1)
        answer = await waiting
        assert answer.body == b""
        assert answer.ext_fields["nextBeginOffset"] == "1"


# -- what is refused


def check_request(expression: str, kind: str = "SQL92") -> Frame:
    data = {"topic": "T", "subString": expression, "expressionType": kind}
    body = {"clientId": "c", "group": "g", "subscriptionData": data}
    return Frame(RequestCode.CHECK_CLIENT_CONFIG, body=json.dumps(body).encode())


CHECKS = [
    (True, "a || b", "TAG", ResponseCode.SUCCESS, ""),
    (True, "n > 5", "SQL92", ResponseCode.SUCCESS, ""),
    (True, "n >", "SQL92", ResponseCode.SUBSCRIPTION_PARSE_FAILED, "at position 4"),
    (True, "", "SQL92", ResponseCode.SUBSCRIPTION_PARSE_FAILED, "at position 1"),
    (True, "n > 5", "GROOVY", ResponseCode.SYSTEM_ERROR, "by GROOVY; use tags"),
    (False, "n > 5", "SQL92", ResponseCode.SYSTEM_ERROR, "by SQL92; set enablePropertyFilter"),
    (False, "a", "TAG", ResponseCode.SUCCESS, ""),
]  # fmt: skip


@pytest.mark.parametrize(("allows", "expression", "kind", "code", "remark"), CHECKS)
@on_loop
async def test_expression_is_checked_for_a_client_and_for_its_pulls(
    tmp_path: Path, allows: bool, expression: str, kind: str, code: int, remark: str
) -> None:
    settings = broker_config(tmp_path, sql_filters=allows)
    async with Broker(settings) as broker, RemotingClient() as client:
        await filled(client, broker)
        pull = pull_request("T", 0, subscription=expression, expression_type=kind)
        answers = [
            await call(client, broker, check_request(expression, kind)),
            await call(client, broker, pull),
        ]
        for answer, good in zip(answers, (code, code or ResponseCode.PULL_NOT_FOUND), strict=True):
            assert answer.code == good
            assert remark in (answer.remark or "")


@on_loop
async def test_expressions_end_with_the_key_that_allows_them(tmp_path: Path) -> None:
    async with Broker(config(tmp_path)) as broker, RemotingClient() as client:
        await filled(client, broker, 7)
        await call(client, broker, beat(subscription("n > 5")))
        await broker.open.configure({"enablePropertyFilter": "false"})
        assert (await call(client, broker, registered())).code == ResponseCode.SYSTEM_ERROR


@on_loop
async def test_pull_that_looks_further_stops_in_a_role_that_serves_none(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(queue_reads, "_LOOKED_MAX", 1)
    async with Broker(config(tmp_path)) as broker, RemotingClient() as client:
        await filled(client, broker, 1, 2)
        operation = broker.open.pulls._requests._operation
        plain = operation.read

        def read(*args: Any) -> Any:
            broker.open.set_role(Role(name="slave", broker_id=1))
            return plain(*args)

        monkeypatch.setattr(operation, "read", read)
        assert (await call(client, broker, own("n > 5"))).code == ResponseCode.SYSTEM_BUSY


# -- the file


def file(root: Path) -> FilterTable:
    return FilterTable.load(root)


@on_loop
async def test_expressions_are_in_the_file_and_outlive_the_broker(tmp_path: Path) -> None:
    async with Broker(config(tmp_path)) as broker, RemotingClient() as client:
        await filled(client, broker, 7)
        await call(client, broker, beat(subscription("n > 5")))
        unregister = Frame.request(
            RequestCode.UNREGISTER_CLIENT, {"clientID": "c1", "consumerGroup": "cg"}
        )
        await call(client, broker, unregister)
        known = broker.metadata.filters.get("T", "cg")
        assert known is not None
        assert known.is_dead
    assert file(tmp_path).filters["T"]["cg"] == known

    async with Broker(config(tmp_path)) as broker, RemotingClient() as client:
        assert broker.metadata.filters.get("T", "cg") == known
        await call(client, broker, beat(subscription("n > 5")))
        again = broker.metadata.filters.get("T", "cg")
        assert again is not None
        assert not again.is_dead
        assert bodies(await call(client, broker, registered())) == [7]


@on_loop
async def test_closed_connection_of_the_last_member_ends_an_expression(tmp_path: Path) -> None:
    async with Broker(config(tmp_path)) as broker:
        filters = broker.metadata.filters
        async with RemotingClient() as client, RemotingClient() as other:
            await call(client, broker, beat(subscription("n > 5")))
            await call(other, broker, beat(subscription("n > 5"), client_id="c2"))
            await other.close()
            group = broker.open.clients.table.consumer_group("cg")
            assert group is not None
            await until(lambda: len(group.members) == 1, "one has left")
            assert not filters.of_group("cg")[0].is_dead
        await until(lambda: filters.of_group("cg")[0].is_dead, "the last one has left")


@on_loop
async def test_broker_without_expressions_writes_no_file_for_them(tmp_path: Path) -> None:
    async with Broker(config(tmp_path)) as broker, RemotingClient() as client:
        await call(client, broker, heartbeat("c1", "cg"))
    assert not (tmp_path / "config" / FilterTable.FILE_NAME).exists()
