"""Each request of an operator with each field missing, empty, negative or huge, and with other
bodies: it is answered, nothing fails, and what was stored stays."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from rmqstore.broker.node import Broker
from rmqstore.broker.request_table import ROWS
from rmqstore.remoting.client import RemotingClient
from rmqstore.remoting.codes import RequestCode, ResponseCode
from rmqstore.remoting.connection import RemotingConnection
from rmqstore.remoting.frames import Frame, name_of_request
from rmqstore.remoting.requests import Row
from rmqstore.store.metadata import GroupConfig, TopicConfig
from tests.service.broker_clients import call, heartbeat
from tests.service.remoting_peers import on_loop
from tests.support.brokers import broker_config
from tests.support.sends import send_request

FAMILIES = {"client list", "question", "progress", "cleaning", "cold data", "group", "topic"}
ROWS_OF_OPERATORS = [row for row in ROWS.values() if row.family in FAMILIES]

TEXTS = ("", " ", "-1", "@", "a@b", "%RETRY%g", "n" * 255, "n" * 70_000, "\0", "ü" * 200, ",,;")
NUMBERS = ("", "-1", "0", "2147483647", "2147483648", "-9223372036854775809", str(1 << 62), "1e3")
FLAGS = ("", "TRUE", "0", "yes")
ODD = {"a text": TEXTS, "true or false": FLAGS}
VALUES = {"a text": "T", "true or false": "false"}
BODIES = (b"", b"{}", b"[]", b"null", b"7", b"\xff", b"[" * 5000, b'{"groupConfigList":[{},7]}')
NAMED = {"group": "g", "consumerGroup": "g", "srcGroup": "g", "destGroup": "h", "clientId": "c1"}


def usual_fields(row: Row) -> dict[str, str]:
    fields: Any = () if row.header is None else row.header._fields
    return {
        each.name: NAMED.get(each.name, VALUES.get(each.kind.article, "0"))
        for each in fields
        if each.name not in ("ns", "nsd", "bname", "oway", "lo")
    }


def odd_requests(row: Row) -> Iterator[Frame]:
    """Yield the requests of a row in which one field is odd."""
    usual = usual_fields(row)
    kinds: Any = {} if row.header is None else {e.name: e.kind for e in row.header._fields}
    for name in usual:
        yield Frame.request(row.code, {key: usual[key] for key in usual if key != name})
        for value in ODD.get(kinds[name].article, NUMBERS):
            yield Frame.request(row.code, {**usual, name: value})
    for body in BODIES:
        yield Frame.request(row.code, usual, body)


def answer_at_once(connection: RemotingConnection, request: Frame) -> Frame:
    return request.respond(ResponseCode.SUCCESS, body=b"{}")


@pytest.mark.parametrize("row", ROWS_OF_OPERATORS, ids=lambda row: name_of_request(row.code))
@on_loop
async def test_odd_fields_are_answered_and_nothing_fails(
    tmp_path: Path, row: Row, caplog: pytest.LogCaptureFixture
) -> None:
    questions = (
        RequestCode.GET_CONSUMER_STATUS_FROM_CLIENT,
        RequestCode.GET_CONSUMER_RUNNING_INFO,
        RequestCode.CONSUME_MESSAGE_DIRECTLY,
    )
    consumer = RemotingClient(handlers=dict.fromkeys(questions, answer_at_once))
    async with Broker(broker_config(tmp_path)) as broker, RemotingClient() as client, consumer:
        metadata = broker.metadata
        await metadata.change_topic(TopicConfig("keep", 1, 1))
        await metadata.change_topic(TopicConfig("T", 1, 1))
        await metadata.change_group(GroupConfig("keep"))
        await metadata.change_group(GroupConfig("g"))
        await call(consumer, broker, heartbeat("c1", "g"))
        await call(client, broker, send_request("keep", b"m"))
        metadata.offsets.commit("keep", "keep", 0, 1)

        for request in odd_requests(row):
            answer = await call(client, broker, request)
            assert answer.code in set(ResponseCode), request.ext_fields
            assert "Error:" not in (answer.remark or ""), (request.ext_fields, answer.remark)

        assert [each for each in caplog.records if each.exc_info] == []
        assert broker.status().task_failures == ()
        assert metadata.topic("keep") == TopicConfig("keep", 1, 1)
        assert metadata.group("keep") == GroupConfig("keep")
        assert metadata.offsets.query("keep", "keep", 0) == 1
        assert all(key.count("@") == 1 for key in metadata.offsets.table.keys())
        assert (await call(client, broker, send_request("keep", b"m"))).ext_fields[
            "queueOffset"
        ] == "1"


def test_odd_requests_are_those_of_every_family() -> None:
    assert {row.family for row in ROWS_OF_OPERATORS} == FAMILIES
