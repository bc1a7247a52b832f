"""Every request of a broker's table, in every role."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from rmqstore.broker.membership.roles import Role
from rmqstore.broker.node import Broker
from rmqstore.broker.request_table import ROWS
from rmqstore.remoting.client import RemotingClient
from rmqstore.remoting.codes import RequestCode, ResponseCode
from rmqstore.remoting.frames import Frame, name_of_request
from rmqstore.remoting.requests import Row, Standing
from rmqstore.store.metadata import GroupConfig, TopicConfig
from tests.support.brokers import broker_config
from tests.support.loops import on_loop

CALL_S = 10.0
BODIES = {
    RequestCode.HEART_BEAT: b'{"clientID":"c"}',
    RequestCode.LOCK_BATCH_MQ: b'{"consumerGroup":"T","clientId":"c","mqSet":[]}',
    RequestCode.UNLOCK_BATCH_MQ: b'{"consumerGroup":"T","clientId":"c","mqSet":[]}',
    RequestCode.QUERY_ASSIGNMENT: b'{"consumerGroup":"T","messageModel":"CLUSTERING","topic":"T"}',
    RequestCode.BATCH_ACK_MESSAGE: b'{"acks":[{"c":"T","t":"T"}]}',
}
OF_CLIENTS = {"send", "pull", "pop", "offset", "lock", "client", "assignment", "lookup", "queue"}
IN_ANY_ROLE = {
    # The operation refuses it: some clients get no refusal.
    RequestCode.CONSUMER_SEND_MSG_BACK,
    RequestCode.UNREGISTER_CLIENT,
    RequestCode.CHECK_CLIENT_CONFIG,
    # The handlers refuse clients: brokers of a group request locks of each other.
    RequestCode.LOCK_BATCH_MQ,
    RequestCode.UNLOCK_BATCH_MQ,
    # Of operators; the operation refuses the reset by a slave.
    RequestCode.INVOKE_BROKER_TO_RESET_OFFSET,
}
NEEDS_ROLE = [
    row for row in ROWS.values() if row.family.name in OF_CLIENTS and row.code not in IN_ANY_ROLE
]
VALUES = {"a text": "T", "true or false": "false"}


def request_of(row: Row) -> Frame:
    """Return a request with the fields that its header needs, about topic and group T."""
    fields: Any = () if row.header is None else row.header._fields
    return Frame.request(
        row.code,
        {each.name: VALUES.get(each.kind.article, "0") for each in fields},
        BODIES.get(RequestCode(row.code), b""),
    )


@on_loop
async def test_handlers_and_rows_are_of_the_same_codes(tmp_path: Path) -> None:
    async with Broker(broker_config(tmp_path)) as broker:
        assert broker.open.handlers().keys() == ROWS.keys()


@on_loop
async def test_broker_without_a_role_serves_nothing_that_needs_one(tmp_path: Path) -> None:
    async with Broker(broker_config(tmp_path)) as broker, RemotingClient() as client:
        await broker.metadata.change_topic(TopicConfig("T"))
        await broker.metadata.change_group(GroupConfig("T"))
        for role, is_refused in ((Role(broker_id=1), True), (broker.role, False)):
            broker.open.set_role(role)
            for row in NEEDS_ROLE:
                answer = await client.call(broker.address, request_of(row), CALL_S)
                found = answer.code == ResponseCode.SERVICE_NOT_AVAILABLE
                assert found is is_refused, (name_of_request(row.code), answer.remark)


def test_only_requests_of_clients_need_a_role() -> None:
    assert NEEDS_ROLE == [row for row in ROWS.values() if row.standing is not Standing.ANY]


def test_fast_port_serves_all_but_pulls_and_pops() -> None:
    assert {each.code for each in ROWS.values() if not each.is_on_fast_port} == {
        RequestCode.PULL_MESSAGE,
        RequestCode.LITE_PULL_MESSAGE,
        RequestCode.POP_MESSAGE,
    }


def test_only_lookups_of_messages_have_a_limit() -> None:
    limited = {each.code: each.family.requests_max for each in ROWS.values()}
    found = {code: limit for code, limit in limited.items() if limit is not None}
    assert found == {
        RequestCode.QUERY_MESSAGE: 20_000,
        RequestCode.VIEW_MESSAGE_BY_ID: 20_000,
        RequestCode.SEARCH_OFFSET_BY_TIMESTAMP: 20_000,
    }
