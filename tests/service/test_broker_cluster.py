"""A nameserver, a controller and three brokers on one loop, as a client sees them."""

from __future__ import annotations

from pathlib import Path

from rmqstore.cli.demo.cluster_writer import ClusterClient
from rmqstore.config import NameserverConfig
from rmqstore.nameserver.server import Nameserver
from rmqstore.net.addresses import format_address
from rmqstore.remoting.bodies.route import BrokerData, TopicRoute
from rmqstore.remoting.codes import RequestCode, ResponseCode
from rmqstore.remoting.connection import RemotingConnection
from rmqstore.remoting.frames import Frame
from rmqstore.remoting.server import RemotingServer
from tests.support.broker_group import group_of
from tests.support.loops import on_loop
from tests.support.waiting import until


@on_loop
async def test_client_goes_on_by_the_route_and_loses_nothing_when_the_master_is_killed(
    tmp_path: Path,
) -> None:
    settings = NameserverConfig(bind_address="127.0.0.1", listen_port=0)
    async with Nameserver(settings) as nameserver:
        place = format_address(nameserver.address)
        options = {"nameservers": (place,), "in_sync_replicas": 2, "min_in_sync_replicas": 2}
        async with group_of(tmp_path, "a", "b", "c", **options) as group:
            first = await group.master()
            client = ClusterClient(place)
            try:
                client.start()
                await until(lambda: len(client.acknowledged) >= 50, "messages before the kill")
                await group.kill(first)
                await until(lambda: len(client.answered) > 1, "another broker takes sends")
                second = await group.master(members=2)
                known = nameserver.table.member_group("DefaultCluster", "broker-a").addresses
                assert known[0] == format_address(group.brokers[second].address)
                goal = len(client.acknowledged) + 50
                await until(lambda: len(client.acknowledged) >= goal, "messages after it")
                await client.stop()

                async def are_read() -> bool:
                    return client.acknowledged <= await client.read_all()

                # The last messages are readable once the new master has them in its queues.
                await until(are_read, "every acknowledged message is read")
            finally:
                await client.close()


@on_loop
async def test_client_goes_on_by_its_last_route_while_no_nameserver_answers() -> None:
    refusals: list[int] = []

    def store(connection: RemotingConnection, request: Frame) -> Frame:
        return request.respond(refusals.pop() if refusals else ResponseCode.SUCCESS)

    def route(connection: RemotingConnection, request: Frame) -> Frame:
        data = BrokerData("DefaultCluster", "broker-a", {0: format_address(broker.address)})
        return request.respond(ResponseCode.SUCCESS, body=TopicRoute((data,)).encode(standard=True))

    here = ("127.0.0.1", 0)
    async with RemotingServer(here, {RequestCode.SEND_MESSAGE_V2: store}) as broker:
        async with RemotingServer(here, {RequestCode.GET_ROUTEINFO_BY_TOPIC: route}) as nameserver:
            client = ClusterClient(format_address(nameserver.address), at_once=1)
            client.start()
            await until(lambda: client.acknowledged, "a message by the route")
        try:
            refusals += [ResponseCode.SERVICE_NOT_AVAILABLE] * 2
            await until(lambda: client.repeated >= 2, "the broker refuses")
            wanted = len(client.acknowledged) + 1
            await until(lambda: len(client.acknowledged) >= wanted, "a message by the last route")
        finally:
            await client.close()
