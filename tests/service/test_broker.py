"""A broker's life: its ports, its store and replica, the role that its file names."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

import rmqstore
from rmqstore.broker.node import Broker
from rmqstore.config import BrokerConfig, BrokerRole
from rmqstore.errors import ArgumentError, ConfigError, NotWritable, StoreLockedError
from rmqstore.remoting.client import RemotingClient
from rmqstore.remoting.codes import ResponseCode
from rmqstore.remoting.frames import Frame
from tests.support.brokers import broker_config
from tests.support.loops import on_loop


@on_loop
async def test_lone_master_stores_messages_under_its_own_address(tmp_path: Path) -> None:
    async with Broker(broker_config(tmp_path)) as broker:
        assert broker.role.name == "master"
        assert broker.role.registered_id == 0
        assert broker.address[1] > 0
        receipt = await broker.store.put("orders", b"one")
        record = await broker.store.get("orders", offset=receipt.queue_offset)
        assert record.store_host == broker.address
        assert broker.status().replica is not None


@on_loop
async def test_both_ports_answer_requests_that_nobody_serves(tmp_path: Path) -> None:
    async with Broker(broker_config(tmp_path)) as broker, RemotingClient() as client:
        host, port = broker.address
        for place in ((host, port), (host, port - 2)):
            answer = await client.call(place, Frame.request(9999))
            assert answer.code == ResponseCode.REQUEST_CODE_NOT_SUPPORTED


@on_loop
async def test_store_is_free_again_after_the_broker(tmp_path: Path) -> None:
    async with Broker(broker_config(tmp_path)) as broker:
        with pytest.raises(StoreLockedError):
            await asyncio.to_thread(rmqstore.open, tmp_path)
        await broker.store.put("orders", b"one")
    with rmqstore.open(tmp_path) as store:
        assert store.get("orders", offset=0).body == b"one"


@on_loop
async def test_broker_whose_port_is_taken_leaves_its_store_alone(tmp_path: Path) -> None:
    async with Broker(broker_config(tmp_path / "first")) as first:
        config = broker_config(tmp_path / "second", listen_port=first.address[1])
        with pytest.raises(ArgumentError, match="cannot listen at"):
            await Broker(config).start()
    assert not (tmp_path / "second").exists()


@on_loop
async def test_slave_copies_its_master_and_takes_no_messages(tmp_path: Path) -> None:
    async with Broker(broker_config(tmp_path / "master")) as master:
        await master.store.put("orders", b"one")
        assert master.ha_address is not None
        host, port = master.ha_address
        config = broker_config(
            tmp_path / "slave",
            broker_role=BrokerRole.SLAVE,
            broker_id=1,
            ha_master_address=f"{host}:{port}",
        )
        async with Broker(config) as slave:
            assert (slave.role.name, slave.role.registered_id) == ("slave", 1)
            assert slave.replica is not None
            await slave.replica.wait_caught_up(master.store.store.end_offset)
            assert (await slave.store.get("orders", offset=0)).body == b"one"
            with pytest.raises(NotWritable):
                await slave.store.put("orders", b"two")


@on_loop
async def test_killed_master_leads_on_although_a_slave_holds_its_log(tmp_path: Path) -> None:
    config = broker_config(tmp_path)
    async with Broker(config) as broker:
        await broker.store.put("orders", b"one")
    state = tmp_path / "epochState"
    # As a master that was killed leaves it.
    with rmqstore.open(tmp_path) as store:
        async with rmqstore.replication.Replica(store, broker_id=0, protocol="classic") as replica:
            await replica.become_slave("127.0.0.1:1")
            await replica.become_master(5)
            interrupted = state.read_bytes()
    state.write_bytes(interrupted)

    async with Broker(config) as again:
        assert again.replica is not None
        assert again.replica.epoch == 6
        await again.store.put("orders", b"two")


@on_loop
async def test_roles_are_iterated_over_until_the_broker_closes(tmp_path: Path) -> None:
    broker = Broker(broker_config(tmp_path))
    await broker.start()
    seen = []

    async def watch() -> None:
        async for role in broker.role_changes():
            seen.append(role.name)

    watching = asyncio.create_task(watch())
    await asyncio.sleep(0)
    await broker.close()
    await watching
    assert seen == ["master"]


@on_loop
async def test_changes_of_the_configuration_are_in_the_file_first(tmp_path: Path) -> None:
    path = tmp_path / "broker.conf"
    config = broker_config(tmp_path / "store")
    path.write_text(config.to_properties())
    async with Broker.from_file(path) as broker:
        await broker.configure({"brokerPermission": "4"})
        assert broker.config.permission == 4
        for changes, reason in (
            ({"brokerPermission": "9"}, "above the limit of 7"),
            ({"brokerPermision": "4"}, "did you mean brokerPermission"),
            ({"listenPort": "1234"}, "takes effect only at a start"),
            ({"inSyncReplicas": "2"}, "takes effect only at a start"),
        ):
            with pytest.raises(ConfigError, match=reason):
                await broker.configure(changes)
    assert BrokerConfig.from_properties(path) == config.replace(permission=4)
