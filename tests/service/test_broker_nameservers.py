"""A broker and its nameservers: who knows it when, as what, and what slaves learn there."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

from rmqstore.broker.node import Broker
from rmqstore.config import BrokerRole, NameserverConfig
from rmqstore.nameserver.server import Nameserver
from rmqstore.net.addresses import format_address
from rmqstore.remoting.bodies.route import TopicRoute
from rmqstore.remoting.client import RemotingClient
from rmqstore.remoting.codes import RequestCode, ResponseCode
from rmqstore.remoting.connection import RemotingConnection
from rmqstore.remoting.frames import Frame
from rmqstore.remoting.server import RemotingServer
from rmqstore.store.metadata import TopicConfig
from tests.support.brokers import broker_config
from tests.support.loops import on_loop
from tests.support.ports import reserved
from tests.support.waiting import until


def nameserver(**changes: Any) -> Nameserver:
    settings: dict[str, Any] = {"bind_address": "127.0.0.1", "listen_port": 0}
    return Nameserver(NameserverConfig(**settings | changes))


def at(*servers: Nameserver) -> tuple[str, ...]:
    return tuple(format_address(each.address) for each in servers)


def known(server: Nameserver, name: str = "broker-a") -> Mapping[int, str]:
    """Return the addresses that a nameserver has of a group, by id."""
    return server.table.member_group("DefaultCluster", name).addresses


@on_loop
async def test_master_is_known_everywhere_with_its_topics_and_leaves_at_the_end(
    tmp_path: Path,
) -> None:
    async with nameserver() as one, nameserver() as two, RemotingClient() as client:
        config = broker_config(tmp_path, nameservers=at(one, two))
        async with Broker(config) as broker:
            await broker.metadata.change_topic(TopicConfig("orders", 4, 4))
            await broker.metadata.change_topic(TopicConfig("payments"))
            await broker.registered()
            assert broker.status().nameservers == dict.fromkeys(at(one, two), "")
            for server in (one, two):
                assert known(server) == {0: format_address(broker.address)}
                answer = await client.call(
                    server.address,
                    Frame.request(RequestCode.GET_ROUTEINFO_BY_TOPIC, {"topic": "orders"}),
                )
                route = TopicRoute.decode(answer.raise_for_code().body)
                assert (route.queues[0].write_queues, route.queues[0].perm) == (4, 6)
        await until(lambda: not known(one) and not known(two), "both forget the broker")


@on_loop
async def test_topics_allow_no_more_than_the_broker(tmp_path: Path) -> None:
    async with nameserver() as server, RemotingClient() as client:
        config = broker_config(tmp_path, nameservers=at(server), permission=4)
        async with Broker(config) as broker:
            for topic in ("orders", "payments"):
                await broker.metadata.change_topic(TopicConfig(topic))
            await broker.registered()
            answer = await client.call(
                server.address,
                Frame.request(RequestCode.GET_ROUTEINFO_BY_TOPIC, {"topic": "orders"}),
            )
            assert TopicRoute.decode(answer.body).queues[0].perm == 4


@on_loop
async def test_absent_and_silent_nameservers_delay_no_other(tmp_path: Path) -> None:
    async def silent(connection: RemotingConnection, request: Frame) -> Frame | None:
        return None

    handlers = {RequestCode.REGISTER_BROKER: silent}
    with reserved(1) as (port,):
        absent = f"127.0.0.1:{port}"
    async with nameserver() as server, RemotingServer(("127.0.0.1", 0), handlers) as mute:
        places = (absent, format_address(mute.address), *at(server))
        config = broker_config(tmp_path, nameservers=places, registration_timeout_ms=200)
        async with Broker(config) as broker:
            await until(lambda: known(server), "the nameserver that lives knows the broker")
            states = broker.status
            await until(lambda: all(list(states().nameservers.values())[:2]), "both are reported")
            assert "cannot connect" in states().nameservers[absent]
            await broker.registered()


@on_loop
async def test_nameserver_that_comes_back_without_memory_learns_the_broker_again(
    tmp_path: Path,
) -> None:
    with reserved(1) as (port,):
        config = broker_config(
            tmp_path, nameservers=(f"127.0.0.1:{port}",), registration_interval_ms=60_000
        )
        async with Broker(config):
            async with nameserver(listen_port=port) as first:
                await until(lambda: known(first), "the nameserver knows the broker")
            async with nameserver(listen_port=port) as second:
                await until(lambda: known(second), "the one in its place knows it")


@on_loop
async def test_refusal_of_a_registration_is_reported(tmp_path: Path) -> None:
    def refuse(connection: RemotingConnection, request: Frame) -> Frame:
        return request.respond(ResponseCode.SYSTEM_ERROR, "not today")

    handlers = {RequestCode.REGISTER_BROKER: refuse}
    async with RemotingServer(("127.0.0.1", 0), handlers) as server:
        place = format_address(server.address)
        async with Broker(broker_config(tmp_path, nameservers=(place,))) as broker:
            await until(
                lambda: "not today" in broker.status().nameservers[place], "the reason is shown"
            )


@on_loop
async def test_slave_without_the_address_of_its_master_learns_it_and_follows(
    tmp_path: Path,
) -> None:
    async with nameserver() as server:
        config = broker_config(tmp_path / "slave", nameservers=at(server), broker_id=1)
        config = config.replace(broker_role=BrokerRole.SLAVE)
        async with Broker(config) as slave:
            await until(lambda: 1 in known(server), "the slave is registered")
            assert slave.role.master_address is None
            config = broker_config(tmp_path / "master", nameservers=at(server))
            async with Broker(config) as master:
                await master.store.put("orders", b"one")
                await until(lambda: len(known(server)) == 2, "both are registered")
                # The slave is answered with the master at its next registration.
                slave.open.registration_due()
                await until(
                    lambda: slave.store.store.end_offset == master.store.store.end_offset,
                    "the slave has the log",
                )
                assert slave.role.master_address == master.address


@pytest.mark.parametrize("compatible", [True, False])
@on_loop
async def test_living_members_of_the_group_are_counted_at_the_nameserver(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, compatible: bool
) -> None:
    """spec/acting-master.md, 10: the number of living replicas limits the write quorum."""
    common = {
        "acting_master_enable": True,
        "total_replicas": 2,
        "in_sync_replicas": 2,
        "compatible_with_old_nameserver": compatible,
        "member_group_interval_ms": 10,
        "heartbeat_interval_ms": 10,
    }
    async with nameserver() as server:
        config = broker_config(tmp_path / "master", nameservers=at(server), **common)
        async with Broker(config) as master:
            assert master.replica is not None
            counts: list[int] = []
            monkeypatch.setattr(master.replica, "set_alive_replicas", counts.append)
            # In the older form members are read from the route of the first topic.
            for name in ("rmq_sys_SYNC_BROKER_MEMBER_broker-a", "orders"):
                master.store.store.create_topic(name)
            master.open.registration_due()
            await until(lambda: counts and counts[-1] == 1, "the master knows that it is alone")
            slave = broker_config(tmp_path / "slave", nameservers=at(server), broker_id=3, **common)
            async with Broker(slave.replace(broker_role=BrokerRole.SLAVE)):
                await until(lambda: counts[-1] == 2, "the master knows of the slave")
            await until(lambda: counts[-1] == 1, "the slave has left")


@pytest.mark.parametrize("compatible", [True, False])
@on_loop
async def test_slave_stands_in_for_its_master_while_no_nameserver_has_the_master(
    tmp_path: Path, compatible: bool
) -> None:
    common = {
        "acting_master_enable": True,
        "total_replicas": 2,
        "compatible_with_old_nameserver": compatible,
        "member_group_interval_ms": 10,
        "heartbeat_interval_ms": 10,
    }
    async with nameserver(acting_master=True) as server:
        config = broker_config(tmp_path / "slave", nameservers=at(server), broker_id=1, **common)
        config = config.replace(broker_role=BrokerRole.SLAVE)
        async with Broker(config) as slave:
            for _ in range(2):
                await until(lambda: slave.open.is_shown_as_master, "the slave is alone")
                config = broker_config(tmp_path / "master", nameservers=at(server), **common)
                async with Broker(config) as master:
                    await until(lambda: not slave.open.is_shown_as_master, "the master is back")
                    assert not master.open.is_shown_as_master


@on_loop
async def test_changed_list_of_nameservers_takes_effect(tmp_path: Path) -> None:
    async with nameserver() as one, nameserver() as two:
        async with Broker(broker_config(tmp_path, nameservers=at(one))) as broker:
            await until(lambda: known(one), "the first knows the broker")
            await broker.configure({"namesrvAddr": at(two)[0]})
            await until(lambda: known(two) and not known(one), "the second instead of the first")
            assert tuple(broker.status().nameservers) == at(two)


@on_loop
async def test_two_brokers_with_one_name_and_id_are_warned_of(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    async with nameserver() as server:
        for_one, for_two = (
            broker_config(tmp_path / name, nameservers=at(server)) for name in ("one", "two")
        )
        async with Broker(for_one) as one:
            await until(lambda: known(server), "the first is registered")
            assert "another brokerName" not in caplog.text
            async with Broker(for_two) as two:
                await until(
                    lambda: known(server) == {0: format_address(two.address)}, "the second is"
                )
                assert f"has {format_address(one.address)} for broker 0 of broker-a" in caplog.text


@on_loop
async def test_topics_with_an_order_configuration_become_ordered(tmp_path: Path) -> None:
    async with nameserver() as names, RemotingClient() as client:
        order = {"namespace": "ORDER_TOPIC_CONFIG", "key": "orders", "value": "broker-a:4"}
        answer = await client.call(names.address, Frame.request(RequestCode.PUT_KV_CONFIG, order))
        answer.raise_for_code()
        async with Broker(broker_config(tmp_path, nameservers=at(names))) as broker:
            await broker.metadata.change_topic(TopicConfig("payments"))
            await broker.metadata.change_topic(TopicConfig("orders"))

            def is_ordered(name: str) -> bool:
                topic = broker.metadata.topic(name)
                return topic is not None and topic.order

            await until(lambda: is_ordered("orders"), "a registration is answered")
            assert not is_ordered("payments")
