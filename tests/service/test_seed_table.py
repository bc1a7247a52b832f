"""The compatibility table of the design documents, cell by cell, with servers on one loop.

Rows are brokers: one from before 5.0, and ours with a controller, without one, and as a member of a
group whose slave stands in for the master (the table of RIP-32). Columns are nameservers and
controllers. A nameserver from before 5.0 knows neither heartbeats nor member groups. A broker from
before 5.0 registers without the flag of the mode, and sends QUERY_DATA_VERSION for heartbeats.
"""

from __future__ import annotations

import contextlib
import enum
from collections.abc import AsyncIterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from rmqstore.broker.node import Broker
from rmqstore.config import BrokerRole, NameserverConfig
from rmqstore.data_version import DataVersion
from rmqstore.nameserver.requests import Requests
from rmqstore.nameserver.server import Nameserver
from rmqstore.net.addresses import format_address
from rmqstore.remoting import fastjson
from rmqstore.remoting.bodies.route import TopicRoute
from rmqstore.remoting.bodies.topic_config import TopicConfig, TopicTable
from rmqstore.remoting.client import RemotingClient
from rmqstore.remoting.codes import RequestCode, ResponseCode
from rmqstore.remoting.frames import Frame
from rmqstore.remoting.headers.registration import RegisterBrokerRequestHeader
from rmqstore.store.metadata import TopicConfig as StoredTopic
from tests.support.broker_group import Group, controller_of, put
from tests.support.brokers import broker_config
from tests.support.loops import on_loop
from tests.support.nameserver_host import registration
from tests.support.waiting import WAIT_S, until

_SINCE_5_0 = (RequestCode.BROKER_HEARTBEAT, RequestCode.GET_BROKER_MEMBER_GROUP)
_PLACES = {0: "10.0.0.1:10911", 1: "10.0.0.2:10911"}
_TABLE = TopicTable(
    DataVersion(counter=1, timestamp_ms=1),
    {name: TopicConfig(name, 4, 4, 6) for name in ("orders", "payments")},
)


class Servers(enum.Enum):
    """The columns."""

    OLD = "old nameserver"
    OLD_AND_CONTROLLER = "old nameserver, controller of its own"
    WITH_CONTROLLER = "new nameserver with controller"
    WITHOUT_CONTROLLER = "new nameserver without controller"

    @property
    def is_old(self) -> bool:
        return self in (Servers.OLD, Servers.OLD_AND_CONTROLLER)

    @property
    def has_controller(self) -> bool:
        return self in (Servers.OLD_AND_CONTROLLER, Servers.WITH_CONTROLLER)


@dataclass
class Cell:
    """The servers of one cell, and a client of the nameserver."""

    servers: Servers
    nameserver: Nameserver
    client: RemotingClient
    controller: str
    """Where a broker of this cell looks for a controller."""

    @property
    def place(self) -> str:
        return format_address(self.nameserver.address)

    async def addresses(self) -> Mapping[int, str]:
        """Return the brokers of the topic's route by id; none without a route."""
        request = Frame.request(RequestCode.GET_ROUTEINFO_BY_TOPIC, {"topic": "orders"})
        answer = await self.client.call(self.nameserver.address, request, WAIT_S)
        if answer.code == ResponseCode.TOPIC_NOT_EXIST:
            return {}
        [broker] = TopicRoute.decode(answer.raise_for_code().body).brokers
        return dict(broker.addresses)

    async def shows(self, *ids: int) -> None:
        """Return once the route has brokers with these ids and no other."""

        async def is_shown() -> bool:
            return (await self.addresses()).keys() == set(ids)

        await until(is_shown, f"brokers {ids} in the route")


@pytest.fixture(params=Servers, ids=lambda servers: servers.value)
def servers(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> Servers:
    """Return a column; where its nameserver is old, it knows the requests of its time only."""
    found: Servers = request.param
    if found.is_old:
        all_of = Requests.dispatched

        def dispatched(requests: Requests, **options: Any) -> dict[int, Any]:
            known = all_of(requests, **options)
            return {code: each for code, each in known.items() if code not in _SINCE_5_0}

        monkeypatch.setattr(Requests, "dispatched", dispatched)
    return found


@contextlib.asynccontextmanager
async def cell(servers: Servers, root: Path) -> AsyncIterator[Cell]:
    config = NameserverConfig(
        bind_address="127.0.0.1", listen_port=0, acting_master=not servers.is_old
    )
    async with contextlib.AsyncExitStack() as stack:
        nameserver = await stack.enter_async_context(Nameserver(config))
        client = await stack.enter_async_context(RemotingClient())
        place = format_address(nameserver.address)
        if servers.has_controller:
            # `serve namesrv` runs a controller on its loop as this does.
            controller = await stack.enter_async_context(controller_of(root / "controller"))
            place = format_address(controller.address)
        yield Cell(servers, nameserver, client, place)


async def register_old(cell: Cell, client: RemotingClient, broker_id: int) -> None:
    """Register as a broker from before 5.0 does, over the connection of *client*."""
    header = RegisterBrokerRequestHeader(
        broker_name="broker-a",
        broker_address=_PLACES[broker_id],
        cluster_name="DefaultCluster",
        ha_address=_PLACES[broker_id],
        broker_id=broker_id,
        enable_acting_master=None,
    )
    address = cell.nameserver.address
    (await client.call(address, registration(header, _TABLE), WAIT_S)).raise_for_code()
    version = Frame.request(
        RequestCode.QUERY_DATA_VERSION,
        {
            "brokerName": "broker-a",
            "brokerAddr": _PLACES[broker_id],
            "clusterName": "DefaultCluster",
            "brokerId": str(broker_id),
        },
        fastjson.dumps(_TABLE.version.to_json()),
    )
    answer = (await client.call(address, version, WAIT_S)).raise_for_code()
    assert answer.ext_fields["changed"] == "false"


@on_loop
async def test_old_brokers_work_and_do_not_fail_over(servers: Servers, tmp_path: Path) -> None:
    async with cell(servers, tmp_path) as here, RemotingClient() as of_slave:
        async with RemotingClient() as of_master:
            await register_old(here, of_master, 0)
            await register_old(here, of_slave, 1)
            assert await here.addresses() == _PLACES
        await here.shows(1)


@on_loop
async def test_new_brokers_with_a_controller_fail_over_where_there_is_one(
    servers: Servers, tmp_path: Path
) -> None:
    async with cell(servers, tmp_path) as here:
        options = {"nameservers": (here.place,), "all_ack_in_sync_state_set": True}
        group = Group(tmp_path, here.controller, **options)
        try:
            await group.start("a")
            await group.start("b")
            if not servers.has_controller:
                for each in group.brokers.values():
                    link = each.open.membership
                    assert link is not None
                    await until(lambda link=link: link.trouble, "the reason is reported")
                    assert not each.role.name
                assert not await here.addresses()
                return
            first = await group.master()
            await group.brokers[first].metadata.change_topic(StoredTopic("orders", 4, 4))
            await put(group.brokers[first], "one")
            (second,) = group.brokers.keys() - {first}
            places = {name: format_address(each.address) for name, each in group.brokers.items()}
            await here.shows(0, group.brokers[second].role.broker_id)
            assert (await here.addresses())[0] == places[first]
            await group.kill(first)
            assert await group.master(members=1) == second
            await here.shows(0)
            assert (await here.addresses())[0] == places[second]
        finally:
            for name in list(group.brokers):
                await group.stop(name)


@on_loop
async def test_new_brokers_without_a_controller_work_and_do_not_fail_over(
    servers: Servers, tmp_path: Path
) -> None:
    async with cell(servers, tmp_path) as here:
        await play_master_and_slave(here, tmp_path, acting=False)


@on_loop
async def test_slave_stands_in_for_its_master_where_the_nameserver_is_new(
    servers: Servers, tmp_path: Path
) -> None:
    async with cell(servers, tmp_path) as here:
        await play_master_and_slave(here, tmp_path, acting=True)


async def play_master_and_slave(here: Cell, root: Path, *, acting: bool) -> None:
    """Let a master and a slave serve, then the master leave: the route has no master then, or, in
    the mode of acting masters at a nameserver that knows it, the slave in its place."""
    common = {"nameservers": (here.place,), "acting_master_enable": acting}
    slave = broker_config(root / "slave", broker_id=1, **common)
    async with Broker(slave.replace(broker_role=BrokerRole.SLAVE)) as copier:
        async with Broker(broker_config(root / "master", **common)) as master:
            await master.metadata.change_topic(StoredTopic("orders", 4, 4))
            await master.store.put("orders", b"one")
            await here.shows(0, 1)
            copier.open.registration_due()
            await until(
                lambda: copier.store.store.end_offset == master.store.store.end_offset,
                "the slave has the message",
            )
            await until(lambda: "orders" in copier.metadata.tables.topics, "and the topic")
            await copier.registered()
        await here.shows(0 if acting and not here.servers.is_old else 1)
        assert set((await here.addresses()).values()) == {format_address(copier.address)}
        assert copier.role.name == "slave"
