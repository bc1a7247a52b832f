"""Every request of a broker's table, in every role."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

from rmqstore.broker.membership.roles import Role
from rmqstore.broker.node import Broker
from rmqstore.broker.request_table import ROWS
from rmqstore.config import BrokerRole
from rmqstore.remoting.bodies.tables import KvTable
from rmqstore.remoting.client import RemotingClient
from rmqstore.remoting.codes import RequestCode, ResponseCode
from rmqstore.remoting.frames import Frame, name_of_request
from rmqstore.remoting.requests import Row, Standing
from rmqstore.store.metadata import GroupConfig, TopicConfig
from tests.support.brokers import broker_config
from tests.support.loops import on_loop
from tests.support.sends import send_request
from tests.support.waiting import until

CALL_S = 10.0
BODIES = {
    RequestCode.HEART_BEAT: b'{"clientID":"c"}',
    RequestCode.LOCK_BATCH_MQ: b'{"consumerGroup":"T","clientId":"c","mqSet":[]}',
    RequestCode.UNLOCK_BATCH_MQ: b'{"consumerGroup":"T","clientId":"c","mqSet":[]}',
    RequestCode.QUERY_ASSIGNMENT: b'{"consumerGroup":"T","messageModel":"CLUSTERING","topic":"T"}',
    RequestCode.BATCH_ACK_MESSAGE: b'{"acks":[{"c":"T","t":"T"}]}',
}
OF_CLIENTS = {
    *("send", "pull", "lite pull", "pop", "offset", "lock", "client", "assignment", "lookup"),
    "queue",
}
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
    row for row in ROWS.values() if row.family in OF_CLIENTS and row.code not in IN_ANY_ROLE
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


@on_loop
async def test_requests_of_clients_that_may_wait_have_the_limits_of_the_file(
    tmp_path: Path,
) -> None:
    """A send waits for a replica here, so that a second one is too many."""
    role = BrokerRole.SYNC_MASTER
    config = broker_config(
        tmp_path, sends_max=1, broker_role=role, in_sync_replicas=2, slave_timeout_ms=2000
    )
    async with Broker(config) as broker, RemotingClient() as client:
        first = asyncio.create_task(client.call(broker.address, send_request("T", b"one"), CALL_S))
        await until(lambda: broker.open.in_progress["send"] == 1, "a send waits for a replica")
        second = await client.call(broker.address, send_request("T", b"two"), CALL_S)
        assert second.code == ResponseCode.SYSTEM_BUSY
        assert (second.remark or "").startswith("[OVERLOAD]system busy, start flow control")
        request = Frame.request(RequestCode.GET_BROKER_RUNTIME_INFO)
        info = KvTable.decode((await client.call(broker.address, request, CALL_S)).body).table
        assert info["sendThreadPoolQueueSize"] == info["sendThreadPoolQueueCapacity"] == "1"
        assert (await first).code != ResponseCode.SYSTEM_BUSY
        assert broker.open.in_progress["send"] == 0
