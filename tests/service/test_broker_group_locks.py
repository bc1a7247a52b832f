"""Locks of queues at a majority of a group (lockInStrictMode), over connections."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

from rmqstore.broker.membership.roles import Role
from rmqstore.broker.node import Broker
from rmqstore.broker.operations import locks
from rmqstore.config import BrokerRole, NameserverConfig
from rmqstore.nameserver.server import Nameserver
from rmqstore.net.addresses import format_address
from rmqstore.remoting import fastjson
from rmqstore.remoting.client import RemotingClient
from rmqstore.remoting.codes import RequestCode, ResponseCode
from rmqstore.remoting.frames import Frame
from tests.service.broker_clients import call
from tests.service.remoting_peers import on_loop
from tests.support.brokers import broker_config
from tests.support.waiting import until

NAMES = [{"brokerName": "broker-a", "queueId": each, "topic": "T"} for each in (0, 1)]


@asynccontextmanager
async def group(root: Path, **settings: Any) -> AsyncIterator[tuple[Broker, Broker]]:
    """A master, and a slave that knows its master and the members of the group."""
    async with AsyncExitStack() as stack:
        enter = stack.enter_async_context
        nameserver = await enter(
            Nameserver(NameserverConfig(bind_address="127.0.0.1", listen_port=0))
        )
        common = {
            "nameservers": (format_address(nameserver.address),),
            "member_group_interval_ms": 20,
            "strict_locks": True,
            "total_replicas": 3,
            **settings,
        }
        master = await enter(Broker(broker_config(root / "master", **common)))
        of_slave = {"broker_role": BrokerRole.SLAVE, "broker_id": 1, **common}
        slave = await enter(Broker(broker_config(root / "slave", **of_slave)))
        slave.open.set_role(Role(name="slave", broker_id=1, master_address=master.address))
        for each in (master, slave):
            await until(lambda each=each: len(each.open.members) == 2, "the members are known")
        yield master, slave


async def request(client: RemotingClient, broker: Broker, code: int, **body: Any) -> Frame:
    values = {"clientId": "x", "consumerGroup": "cg", "mqSet": NAMES, **body}
    return await call(client, broker, Frame(code, body=fastjson.dumps(values)))


async def locked(client: RemotingClient, broker: Broker, **body: Any) -> list[int]:
    answer = await request(client, broker, RequestCode.LOCK_BATCH_MQ, **body)
    assert answer.code == ResponseCode.SUCCESS, answer.remark
    return [each["queueId"] for each in fastjson.loads(answer.body)["lockOKMQSet"]]


@on_loop
async def test_lock_is_held_at_a_majority(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(locks, "_QUIET_MS", 0)
    async with group(tmp_path) as (master, slave), RemotingClient() as client:
        assert await locked(client, master) == [0, 1]
        assert await locked(client, slave, clientId="y", onlyThisBroker=True) == []
        await request(client, master, RequestCode.UNLOCK_BATCH_MQ)
        assert await locked(client, slave, clientId="y", onlyThisBroker=True) == [0, 1]

        assert await locked(client, master, clientId="z") == []
        # Nothing of that request is left at the master.
        assert await locked(client, master, clientId="y", onlyThisBroker=True) == [0, 1]

        answer = await request(client, slave, RequestCode.LOCK_BATCH_MQ)
        assert answer.code == ResponseCode.SERVICE_NOT_AVAILABLE


@on_loop
async def test_master_without_its_majority_locks_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(locks, "_QUIET_MS", 0)
    async with group(tmp_path) as (master, slave), RemotingClient() as client:
        await slave.close()
        assert await locked(client, master) == []


@on_loop
async def test_started_group_locks_nothing_at_first(tmp_path: Path) -> None:
    async with group(tmp_path) as (master, _), RemotingClient() as client:
        assert await locked(client, master) == []


@on_loop
async def test_grant_for_another_broker_can_be_given_back_until_it_is_renewed(
    tmp_path: Path,
) -> None:
    async with Broker(broker_config(tmp_path)) as broker, RemotingClient() as client:
        lock, unlock = RequestCode.LOCK_BATCH_MQ, RequestCode.UNLOCK_BATCH_MQ
        answer = await request(client, broker, lock, onlyThisBroker=True)
        fresh = fastjson.loads(answer.body)["freshGrants"]
        assert min(fresh) > 0
        again = await request(client, broker, lock, onlyThisBroker=True, mqSet=NAMES[1:])
        assert fastjson.loads(again.body)["freshGrants"] == [0]
        await request(client, broker, unlock, clientId="", freshGrants=fresh)
        assert await locked(client, broker, clientId="y") == [0]
        wrong = await request(client, broker, unlock, freshGrants=["x"])
        assert wrong.code == ResponseCode.INVALID_PARAMETER
