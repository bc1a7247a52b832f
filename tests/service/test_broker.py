"""A broker's life: its ports, its store and replica, the role that its file names."""

from __future__ import annotations

import asyncio
import logging
import socket
from pathlib import Path

import pytest

import rmqstore
from rmqstore.broker.node import Broker
from rmqstore.config import BrokerConfig, BrokerRole, StoreConfig
from rmqstore.errors import ArgumentError, ConfigError, NotWritable, StoreLockedError
from rmqstore.net.own_address import OwnAddress
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
async def test_host_name_of_the_file_is_registered_and_its_address_is_in_records(
    tmp_path: Path,
) -> None:
    async with Broker(broker_config(tmp_path, host="localhost")) as broker:
        host, port = broker.address
        await broker.open.services.begun()
        announced = broker.open.announcement()
        assert host == "localhost"
        assert announced is not None
        assert announced.address == f"localhost:{port}"
        assert announced.ha_address.startswith("localhost:")
        await broker.store.put("orders", b"one")
        assert (await broker.store.get("orders", offset=0)).store_host == ("127.0.0.1", port)


def test_host_name_that_nobody_knows_ends_the_opening_for_writing_only(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def unknown(*_: object, **__: object) -> list[object]:
        raise socket.gaierror(socket.EAI_NONAME, "Name or service not known")

    with rmqstore.open(tmp_path) as store:
        store.put("orders", b"one")
    monkeypatch.setattr(socket, "getaddrinfo", unknown)
    config = StoreConfig.from_properties("brokerIP1=broker.example\n")
    with pytest.raises(ConfigError, match=r"brokerIP1 .*broker\.example has no address.*; give"):
        rmqstore.open(tmp_path, config)
    rmqstore.open(tmp_path, config, read_only=True).close()


@on_loop
async def test_ipv6_address_of_the_file_is_served_beside_ipv4(tmp_path: Path) -> None:
    file = tmp_path / "broker.conf"
    config = broker_config(tmp_path / "store", bind_address="0.0.0.0")
    file.write_text(f"{config.to_properties()}brokerIP1=[::1]\n")
    async with Broker.from_file(file) as broker, RemotingClient() as client:
        _, port = broker.address
        assert broker.address == ("::1", port)
        for host in ("::1", "127.0.0.1"):
            answer = await client.call((host, port), Frame.request(9999))
            assert answer.code == ResponseCode.REQUEST_CODE_NOT_SUPPORTED
        peers = {each.peer[0] for each in broker.open.server.connections}
        assert peers == {"::1", "127.0.0.1"}
        await broker.store.put("orders", b"one")
        assert (await broker.store.get("orders", offset=0)).store_host == ("::1", port)


@on_loop
async def test_address_that_the_broker_chose_is_logged_at_the_start(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    for number, found in enumerate(
        (OwnAddress("127.0.0.1", "eth7"), OwnAddress("127.0.0.1", "docker0", is_reachable=False))
    ):
        monkeypatch.setattr("rmqstore.broker.settings.own_address", lambda found=found: found)
        caplog.clear()
        config = broker_config(tmp_path / str(number), bind_address="0.0.0.0")
        with caplog.at_level(logging.INFO, logger="rmqstore.broker"):
            async with Broker(config):
                pass
        [line] = [each for each in caplog.records if "brokerIP1 is empty" in each.getMessage()]
        assert f"get 127.0.0.1 of interface {found.interface}" in line.getMessage()
        assert (line.levelno == logging.WARNING) is not found.is_reachable
        assert ("set brokerIP1" in line.getMessage()) is not found.is_reachable


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
        assert master.open.ha_address is not None
        host, port = master.open.ha_address
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
            ({"noSuchKey": "4"}, "noSuchKey: unknown key"),
            ({"namesrvAddr": "a:1,b:2"}, "separated by ;"),
            ({"listenPort": "1234"}, "takes effect only at a start"),
            ({"inSyncReplicas": "2"}, "takes effect only at a start"),
        ):
            with pytest.raises(ConfigError, match=reason):
                await broker.configure(changes)
    assert BrokerConfig.from_properties(path) == config.replace(permission=4)
