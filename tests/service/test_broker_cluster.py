"""A nameserver, a controller and three brokers on one loop, as a client sees them."""

from __future__ import annotations

from pathlib import Path

from rmqstore.cli.demo.cluster_writer import ClusterClient
from rmqstore.config import NameserverConfig
from rmqstore.nameserver.server import NameServer
from rmqstore.net.addresses import format_address
from tests.support.broker_group import group_of
from tests.support.loops import on_loop
from tests.support.waiting import until


@on_loop
async def test_client_goes_on_by_the_route_and_loses_nothing_when_the_master_is_killed(
    tmp_path: Path,
) -> None:
    settings = NameserverConfig(bind_address="127.0.0.1", listen_port=0)
    async with NameServer(settings) as nameserver:
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
                assert client.acknowledged <= await client.read_all()
            finally:
                await client.close()
