"""mqadmin against a broker of ours, and metadata taken over from and by Java brokers."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from rmqstore.broker.metadata.tables import Tables
from rmqstore.broker.metadata.takeover import TakenTables, take_tables
from rmqstore.broker.node import Broker
from rmqstore.config import BrokerRole, NameserverConfig
from rmqstore.errors import RemotingError
from rmqstore.nameserver.server import Nameserver
from rmqstore.net.addresses import format_address
from rmqstore.remoting.client import RemotingClient
from rmqstore.remoting.frames import Frame
from rmqstore.store.metadata import GroupConfig, TopicConfig
from tests.support.brokers import broker_config
from tests.support.java_broker import java_side
from tests.support.java_cluster import CLUSTER, GROUP, LIMIT_S
from tests.support.loops import on_loop
from tests.support.releases import NEW, OLD, with_release
from tests.support.waiting import until


def nameserver() -> Nameserver:
    return Nameserver(NameserverConfig(bind_address="127.0.0.1", listen_port=0))


def ours(root: Path, namesrv: str, **changes: Any) -> Broker:
    settings: dict[str, Any] = {"name": GROUP, "cluster_name": CLUSTER, "nameservers": (namesrv,)}
    return Broker(broker_config(root, **settings | changes))


async def tables_of(client: RemotingClient, address: str) -> TakenTables:
    async def call(request: Frame) -> Frame:
        return await client.call(address, request, 60.0)

    return await take_tables(call, Tables(wall_ms=lambda: 0).all, with_timer=False)


@on_loop
async def test_mqadmin_administers_a_broker_of_ours(java_release: str, tmp_path: Path) -> None:
    with java_side(java_release, tmp_path) as java:
        async with nameserver() as server:
            namesrv = format_address(server.address)
            async with ours(tmp_path / "ours", namesrv) as broker:
                place = format_address(broker.address)
                at, tables = ("-n", namesrv), broker.metadata.tables
                await broker.registered()

                printed = await java.admin(
                    *("updateTopic", *at, "-c", CLUSTER, "-t", "T", "-r", "3", "-w", "3"),
                    *("-a", "+message.type=FIFO"),
                )
                assert f"create topic to {place} success" in printed
                wanted = TopicConfig("T", 3, 3, attributes={"message.type": "FIFO"})
                assert tables.topics["T"] == wanted
                printed = await java.admin("updateSubGroup", *at, "-b", place, "-g", "g", "-r", "4")
                assert f"create subscription group to {place} success" in printed
                assert tables.groups["g"].retries_max == 4

                for number in range(5):
                    await broker.store.put("T", b"m%d" % number, queue=1)
                broker.metadata.offsets.commit("T", "g", 1, 3)
                printed = await java.admin("topicStatus", *at, "-t", "T")
                assert [line.split()[1:4] for line in printed.splitlines() if GROUP in line] == [
                    ["0", "0", "0"],
                    ["1", "0", "5"],
                    ["2", "0", "0"],
                ]
                printed = await java.admin("clusterList", *at)
                assert any(
                    line.split()[:4] == [CLUSTER, GROUP, "0", place]
                    for line in printed.splitlines()
                ), printed
                printed = await java.admin("brokerStatus", *at, "-b", place)
                assert "brokerVersionDesc" in printed
                printed = await java.admin("getBrokerConfig", *at, "-b", place)
                assert "brokerName" in printed
                printed = await java.admin(
                    *("updateBrokerConfig", *at, "-b", place, "-k", "brokerPermission", "-v", "4")
                )
                assert f"update broker config success, {place}" in printed
                assert broker.config.permission == 4

                await broker.metadata.retry_topic("g")
                await broker.registered()
                printed = await java.admin("consumerProgress", *at, "-g", "g")
                progress = [line.split() for line in printed.splitlines() if line.startswith("T ")]
                assert [each[2:5] for each in progress if each[2] == "1"] == [["1", "5", "3"]]

                reset = ("-g", "g", "-t", "T", "-s", "0")
                printed = await java.admin("resetOffsetByTime", *at, *reset)
                assert broker.metadata.offsets.query("T", "g", 1) == 0, printed
                order = ("-t", "T", "-m", "put", "-v", f"{GROUP}:3")
                await java.admin("updateOrderConf", *at, *order)
                await broker.registered()
                await until(lambda: tables.topics["T"].order, "the answer names ordered topics")

                printed = await java.admin("deleteSubGroup", *at, "-b", place, "-g", "g")
                assert f"delete subscription group [g] from broker [{place}] success" in printed
                assert "g" not in tables.groups
                printed = await java.admin("deleteTopic", *at, "-c", CLUSTER, "-t", "T")
                assert f"delete topic [T] from cluster [{CLUSTER}] success" in printed
                assert "T" not in tables.topics


@with_release(OLD)
@on_loop
async def test_slave_of_ours_has_the_metadata_of_a_java_master(
    java_release: str, tmp_path: Path
) -> None:
    with java_side(java_release, tmp_path) as java:
        async with nameserver() as server, RemotingClient() as client:
            namesrv = format_address(server.address)
            master = await java.broker(namesrv, brokerId=0, brokerRole="ASYNC_MASTER")
            slave = ours(tmp_path / "ours", namesrv, broker_id=1, broker_role=BrokerRole.SLAVE)
            async with slave:
                at = ("-n", namesrv)
                topic = ("-t", "T", "-r", "3", "-w", "3", "-a", "+message.type=DELAY")
                await java.admin("updateTopic", *at, "-b", master, *topic)
                await java.admin("updateSubGroup", *at, "-b", master, "-g", "g", "-r", "4")
                await until(
                    lambda: (
                        "T" in slave.metadata.tables.topics and "g" in slave.metadata.tables.groups
                    ),
                    "the slave takes the tables of the master",
                    timeout=LIMIT_S,
                )
                taken = await tables_of(client, master)
                tables = slave.metadata.tables
                await until(
                    lambda: (
                        tables.topic_table() == taken.topics
                        and tables.groups == taken.groups.groups
                        and tables.groups_version == taken.groups.data_version
                    ),
                    "equal tables and versions",
                    timeout=LIMIT_S,
                )
                await java.admin("deleteTopic", *at, "-c", CLUSTER, "-t", "T")
                await until(
                    lambda: "T" not in tables.topics, "the topic is deleted", timeout=LIMIT_S
                )


@with_release(NEW)
@on_loop
async def test_java_slave_has_the_metadata_of_a_master_of_ours(
    java_release: str, tmp_path: Path
) -> None:
    with java_side(java_release, tmp_path) as java:
        async with nameserver() as server, RemotingClient() as client:
            namesrv = format_address(server.address)
            async with ours(tmp_path / "ours", namesrv) as master:
                await master.metadata.change_topic(TopicConfig("T", 3, 3))
                await master.metadata.change_group(GroupConfig("g", retries_max=4))
                master.metadata.offsets.commit("T", "g", 2, 7)
                await master.registered()
                slave = await java.broker(namesrv, brokerId=1, brokerRole="SLAVE")

                async def is_taken() -> bool:
                    try:
                        taken = await tables_of(client, slave)
                    except RemotingError:
                        return False
                    return (
                        taken.topics.topics.get("T") == TopicConfig("T", 3, 3)
                        and taken.groups.groups.get("g") == GroupConfig("g", retries_max=4)
                        and taken.offsets.of("T", "g") == {2: 7}
                    )

                # A slave without a controller first asks a minute after its start.
                await until(is_taken, "the slave has the tables", timeout=LIMIT_S, pause=1.0)
