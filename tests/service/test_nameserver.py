"""A nameserver on sockets: brokers, clients, files, several on one loop, the process."""

from __future__ import annotations

import asyncio
import signal
from collections.abc import Coroutine, Mapping
from pathlib import Path
from typing import Any

import pytest

from rmqstore.config import NameserverConfig, parse_properties
from rmqstore.data_version import DataVersion
from rmqstore.errors import ArgumentError, ConfigError, CorruptionError
from rmqstore.nameserver import kv_file
from rmqstore.nameserver.server import Nameserver
from rmqstore.net.addresses import format_address
from rmqstore.remoting import fastjson
from rmqstore.remoting.bodies.cluster import BrokerMemberGroup, ClusterInfo
from rmqstore.remoting.bodies.data_version import data_version_of
from rmqstore.remoting.bodies.route import QueueData, TopicRoute
from rmqstore.remoting.bodies.tables import KvTable, TopicList
from rmqstore.remoting.bodies.topic_config import TopicConfig, TopicTable
from rmqstore.remoting.client import RemotingClient
from rmqstore.remoting.codes import RequestCode, ResponseCode
from rmqstore.remoting.frames import Frame, FrameDecoder, encode
from rmqstore.remoting.headers.kv import ORDER_TOPICS
from rmqstore.remoting.headers.registration import RegisterBrokerRequestHeader
from rmqstore.remoting.server import RemotingServer
from tests.service.server_processes import errors_until_signal, refusal
from tests.support.loops import runtime_with
from tests.support.nameserver_host import registration
from tests.support.waiting import WAIT_S, until

LOCAL: Mapping[str, Any] = {"bind_address": "127.0.0.1", "listen_port": 0}
TABLE = TopicTable(
    DataVersion(counter=1, timestamp_ms=1),
    {name: TopicConfig(name, 4, 4, 6) for name in ("orders", "payments")},
)
BROKER = {
    "brokerName": "broker-a",
    "brokerAddr": "10.0.0.1:1",
    "clusterName": "east",
    "brokerId": "0",
}


def run(work: Coroutine[Any, Any, None]) -> None:
    """Run a test on a loop of its own, for a bounded while."""

    async def bounded() -> None:
        async with asyncio.timeout(2 * WAIT_S):
            await work

    asyncio.run(bounded())


class Peer:
    """A client of one nameserver."""

    def __init__(self, nameserver: Nameserver) -> None:
        self.address = format_address(nameserver.address)
        self.client = RemotingClient()

    async def __aenter__(self) -> Peer:
        return self

    async def __aexit__(self, *error: object) -> None:
        await self.client.close()

    async def call(self, code: int, body: bytes = b"", **fields: str) -> Frame:
        return await self.client.call(self.address, Frame.request(code, fields, body), WAIT_S)

    async def register(
        self,
        broker_id: int,
        address: str,
        *,
        name: str = "broker-a",
        table: TopicTable = TABLE,
        compressed: bool = False,
    ) -> Frame:
        header = RegisterBrokerRequestHeader(
            broker_name=name,
            broker_address=address,
            cluster_name="east",
            ha_address=f"{address}.ha",
            broker_id=broker_id,
            enable_acting_master=True,
        )
        frame = registration(header, table, compressed=compressed)
        return await self.client.call(self.address, frame, WAIT_S)

    async def route(self, topic: str) -> TopicRoute | None:
        answer = await self.call(RequestCode.GET_ROUTEINFO_BY_TOPIC, topic=topic)
        if answer.code == ResponseCode.TOPIC_NOT_EXIST:
            return None
        answer.raise_for_code()
        return TopicRoute.decode(answer.body)


@pytest.mark.parametrize("compressed", [False, True])
def test_clients_find_what_brokers_registered(compressed: bool) -> None:
    async def work() -> None:
        async with Nameserver(NameserverConfig(**LOCAL)) as nameserver, Peer(nameserver) as peer:
            master = await peer.register(0, "10.0.0.1:1", compressed=compressed)
            assert (master.code, master.ext_fields) == (ResponseCode.SUCCESS, {})
            slave = await peer.register(1, "10.0.0.2:1", compressed=compressed)
            expected = {"masterAddr": "10.0.0.1:1", "haServerAddr": "10.0.0.1:1.ha"}
            assert slave.ext_fields == expected

            route = await peer.route("orders")
            assert route is not None
            assert route.brokers[0].addresses == {0: "10.0.0.1:1", 1: "10.0.0.2:1"}
            assert route.queues == (QueueData("broker-a", 4, 4, 6),)
            assert await peer.route("refunds") is None

            info = await peer.call(RequestCode.GET_BROKER_CLUSTER_INFO)
            assert ClusterInfo.decode(info.body).clusters == {"east": ("broker-a",)}
            group = await peer.call(
                RequestCode.GET_BROKER_MEMBER_GROUP, clusterName="east", brokerName="broker-a"
            )
            assert len(BrokerMemberGroup.decode(group.body).addresses) == 2

    run(work())


def test_every_list_and_permission_request_is_answered() -> None:
    async def work() -> None:
        async with Nameserver(NameserverConfig(**LOCAL)) as nameserver, Peer(nameserver) as peer:
            topics = {
                name: TopicConfig(name, 4, 4, 6, sys_flag=flag)
                for name, flag in (("plain", 0), ("unit", 1), ("sub", 2), ("both", 3))
            }
            await peer.register(0, "10.0.0.1:1", table=TopicTable(DataVersion(), topics))

            async def listed(code: int, **fields: str) -> set[str]:
                answer = (await peer.call(code, **fields)).raise_for_code()
                return set(TopicList.decode(answer.body).topics)

            everything = set(topics)
            assert await listed(RequestCode.GET_ALL_TOPIC_LIST_FROM_NAMESERVER) == everything
            assert await listed(RequestCode.GET_TOPICS_BY_CLUSTER, cluster="east") == everything
            assert await listed(RequestCode.GET_TOPICS_BY_CLUSTER, cluster="west") == set()
            assert await listed(RequestCode.GET_SYSTEM_TOPIC_LIST_FROM_NS) == {"east", "broker-a"}
            assert await listed(RequestCode.GET_UNIT_TOPIC_LIST) == {"unit", "both"}
            assert await listed(RequestCode.GET_HAS_UNIT_SUB_TOPIC_LIST) == {"sub", "both"}
            assert await listed(RequestCode.GET_HAS_UNIT_SUB_UNUNIT_TOPIC_LIST) == {"sub"}

            wiped = await peer.call(RequestCode.WIPE_WRITE_PERM_OF_BROKER, brokerName="broker-a")
            assert wiped.ext_fields == {"wipeTopicCount": "4"}
            added = await peer.call(RequestCode.ADD_WRITE_PERM_OF_BROKER, brokerName="broker-a")
            assert added.ext_fields == {"addTopicCount": "4"}

            body = TopicRoute(queues=[QueueData("broker-a", 1, 1, 6)]).encode(standard=True)
            await peer.call(RequestCode.REGISTER_TOPIC_IN_NAMESRV, body, topic="new")
            assert await peer.route("new") is not None
            await peer.call(RequestCode.DELETE_TOPIC_IN_NAMESRV, topic="new")
            assert await peer.route("new") is None

    run(work())


def test_versions_tell_whether_a_broker_must_register_again() -> None:
    async def work() -> None:
        async with Nameserver(NameserverConfig(**LOCAL)) as nameserver, Peer(nameserver) as peer:
            version = fastjson.dumps(TABLE.version.to_json())
            unknown = await peer.call(RequestCode.QUERY_DATA_VERSION, version, **BROKER)
            assert (unknown.ext_fields, unknown.body) == ({"changed": "true"}, b"")
            await peer.register(0, "10.0.0.1:1")
            same = await peer.call(RequestCode.QUERY_DATA_VERSION, version, **BROKER)
            assert same.ext_fields == {"changed": "false"}
            assert data_version_of(fastjson.loads(same.body)) == TABLE.version
            await peer.call(RequestCode.UNREGISTER_BROKER, **BROKER)
            assert await peer.route("orders") is None

    run(work())


def test_a_topic_of_an_unknown_broker_is_added_for_none() -> None:
    async def work() -> None:
        async with Nameserver(NameserverConfig(**LOCAL)) as nameserver, Peer(nameserver) as peer:
            await peer.register(0, "10.0.0.1:1")
            queues = [QueueData(name, 1, 1, 6) for name in ("broker-a", "broker-x")]
            for topic in ("orders", "new"):
                body = TopicRoute(queues=queues).encode(standard=True)
                answer = await peer.call(RequestCode.REGISTER_TOPIC_IN_NAMESRV, body, topic=topic)
                answer.raise_for_code()
            route = await peer.route("orders")
            assert route is not None
            assert route.queues == (QueueData("broker-a", 4, 4, 6),)
            assert await peer.route("new") is None

    run(work())


@pytest.mark.parametrize(
    ("code", "fields", "body", "remark"),
    [
        (RequestCode.REGISTER_BROKER, {"brokerName": ""}, b"", "brokerName is empty"),
        (RequestCode.REGISTER_BROKER, {"brokerId": "first"}, b"", "brokerId is 'first'"),
        (RequestCode.REGISTER_BROKER, {"bodyCrc32": "7"}, b"{}", "crc32 not match"),
        (RequestCode.REGISTER_BROKER, {}, b"[]", "body of REGISTER_BROKER cannot be read"),
        (RequestCode.REGISTER_BROKER, {"compressed": "true"}, b"{}", "is not a zlib stream"),
        (RequestCode.QUERY_DATA_VERSION, {}, b"{", "body of QUERY_DATA_VERSION"),
        (RequestCode.GET_ROUTEINFO_BY_TOPIC, {}, b"", "field topic is missing"),
        (RequestCode.UPDATE_NAMESRV_CONFIG, {}, b"\xff", "not UTF-8"),
        (RequestCode.UPDATE_NAMESRV_CONFIG, {}, b"suportActingMaster=true", "did you mean"),
        (RequestCode.UPDATE_NAMESRV_CONFIG, {}, b"noSuchKey=1", "noSuchKey: unknown key"),
        (RequestCode.UPDATE_NAMESRV_CONFIG, {}, b"listenPort=1", "only at a start"),
        (RequestCode.PUT_KV_CONFIG, {"namespace": "a"}, b"", "field key is missing"),
    ],
)
def test_malformed_requests_are_refused_by_name(
    code: int, fields: dict[str, str], body: bytes, remark: str
) -> None:
    async def work() -> None:
        async with Nameserver(NameserverConfig(**LOCAL)) as nameserver, Peer(nameserver) as peer:
            of_broker = (RequestCode.REGISTER_BROKER, RequestCode.QUERY_DATA_VERSION)
            needed = BROKER if code in of_broker else {}
            answer = await peer.call(code, body, **{**needed, **fields})
            assert answer.code != ResponseCode.SUCCESS
            assert remark in (answer.remark or "")
            assert nameserver.table.cluster_info().brokers == {}

    run(work())


def test_the_end_of_a_connection_removes_its_broker_and_notifies_the_others() -> None:
    received: list[Frame] = []

    def take(connection: object, request: Frame) -> None:
        received.append(request)

    async def work() -> None:
        config = NameserverConfig(**LOCAL, acting_master=True, notify_min_broker_id=True)
        handlers = {RequestCode.NOTIFY_MIN_BROKER_ID_CHANGE: take}
        async with (
            RemotingServer("127.0.0.1:0", handlers) as broker,
            Nameserver(config) as nameserver,
            Peer(nameserver) as slave,
        ):
            own = format_address(broker.address)
            async with Peer(nameserver) as master:
                # The second slave does not listen at its address; it must not delay the others.
                await master.register(0, "127.0.0.1:1")
                await slave.register(1, own)
                await slave.register(2, "127.0.0.1:2")
            await until(lambda: received, "the notification of the master's end")
            assert received[0].is_one_way
            assert received[0].ext_fields == {
                "minBrokerId": "1",
                "minBrokerAddr": own,
                "offlineBrokerAddr": "127.0.0.1:1",
            }
            route = await slave.route("orders")
            assert route is not None
            assert route.brokers[0].addresses == {0: own, 2: "127.0.0.1:2"}
            assert route.queues[0].perm == 4

            async with Peer(nameserver) as master:
                await master.register(0, "127.0.0.1:3")
                await until(lambda: len(received) > 1, "the notification of the new master")
                assert received[1].ext_fields == {
                    "minBrokerId": "0",
                    "minBrokerAddr": "127.0.0.1:3",
                    "haBrokerAddr": "127.0.0.1:3.ha",
                }

    run(work())


def test_a_request_of_an_earlier_connection_is_late_though_it_is_the_first_one_there() -> None:
    async def work() -> None:
        async with Nameserver(NameserverConfig(**LOCAL)) as nameserver:
            # The first request of this connection arrives after the broker has used another one.
            reader, writer = await asyncio.open_connection(*nameserver.address)
            async with Peer(nameserver) as broker:
                await broker.register(0, BROKER["brokerAddr"])
                writer.write(encode(Frame.request(RequestCode.UNREGISTER_BROKER, BROKER)))
                decoder, answers = FrameDecoder(), list[Frame]()
                while not answers:
                    answers += decoder.feed(await reader.read(4096))
                assert answers[0].code == ResponseCode.SUCCESS
                assert await broker.route("orders") is not None
            writer.close()
            await writer.wait_closed()

    run(work())


def test_a_silent_broker_expires_and_its_connection_is_closed() -> None:
    async def work() -> None:
        now = 0.0
        config = NameserverConfig(**LOCAL, scan_interval_ms=10)
        async with (
            Nameserver(config, runtime=runtime_with(lambda: now)) as nameserver,
            Peer(nameserver) as peer,
        ):
            await peer.register(0, "10.0.0.1:1")
            [connection] = peer.client.connections
            # Steps below twice the interval count; a longer one is a process that was stopped.
            while nameserver.table.cluster_info().brokers:
                now += 0.015
                await asyncio.sleep(0)
                nameserver.carry_out(nameserver.table.expire(nameserver.now_ms()))
                assert now < 130
            assert now > 120
            await until(lambda: not connection.is_open, "the end of the connection")

    run(work())


def test_routes_are_refused_while_brokers_may_still_register() -> None:
    async def work() -> None:
        now = 0.0
        config = NameserverConfig(**LOCAL, wait_for_service=True)
        async with (
            Nameserver(config, runtime=runtime_with(lambda: now)) as nameserver,
            Peer(nameserver) as peer,
        ):
            await peer.register(0, "10.0.0.1:1")
            early = await peer.call(RequestCode.GET_ROUTEINFO_BY_TOPIC, topic="orders")
            assert (early.code, early.remark) == (
                ResponseCode.SYSTEM_ERROR,
                "name server not ready",
            )
            now = 45.0
            assert await peer.route("orders") is not None

    run(work())


def test_key_values_survive_a_restart(tmp_path: Path) -> None:
    config = NameserverConfig(
        **LOCAL, kv_config_path=str(tmp_path / "kv" / "kvConfig.json"), order_topics=True
    )

    async def write() -> None:
        async with Nameserver(config) as nameserver, Peer(nameserver) as peer:
            for number in range(20):
                answer = await peer.call(
                    RequestCode.PUT_KV_CONFIG, namespace="a", key=f"k{number}", value=str(number)
                )
                answer.raise_for_code()
            pair = {"namespace": ORDER_TOPICS, "key": "orders", "value": "broker-a:4"}
            (await peer.call(RequestCode.PUT_KV_CONFIG, **pair)).raise_for_code()
            deleted = {"namespace": "a", "key": "k7"}
            (await peer.call(RequestCode.DELETE_KV_CONFIG, **deleted)).raise_for_code()

    async def read() -> None:
        async with Nameserver(config) as nameserver, Peer(nameserver) as peer:
            listed = await peer.call(RequestCode.GET_KVLIST_BY_NAMESPACE, namespace="a")
            assert len(KvTable.decode(listed.body).table) == 19
            found = await peer.call(RequestCode.GET_KV_CONFIG, namespace="a", key="k8")
            assert found.ext_fields == {"value": "8"}
            missing = await peer.call(RequestCode.GET_KV_CONFIG, namespace="a", key="k7")
            assert missing.code == ResponseCode.QUERY_NOT_FOUND
            none = await peer.call(RequestCode.GET_KVLIST_BY_NAMESPACE, namespace="b")
            assert none.code == ResponseCode.QUERY_NOT_FOUND

            answer = await peer.register(0, "10.0.0.1:1")
            assert KvTable.decode(answer.body).table == {"orders": "broker-a:4"}
            route = await peer.route("orders")
            assert route is not None
            assert route.order_conf == "broker-a:4"

    run(write())
    run(read())


def test_a_full_disk_refuses_a_pair_and_keeps_the_others(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    config = NameserverConfig(**LOCAL, kv_config_path=str(tmp_path / "kv.json"))

    async def work() -> None:
        async with Nameserver(config) as nameserver, Peer(nameserver) as peer:
            pair = {"namespace": "a", "key": "k", "value": "1"}
            (await peer.call(RequestCode.PUT_KV_CONFIG, **pair)).raise_for_code()
            # A directory at the path of the temporary file makes the save fail, like a full disk.
            (tmp_path / "kv.json.tmp").mkdir()
            refused = await peer.call(RequestCode.PUT_KV_CONFIG, **{**pair, "value": "2"})
            assert refused.code == ResponseCode.SYSTEM_ERROR
            assert "configuration is unchanged" in (refused.remark or "")
            assert nameserver.kv.get("a", "k") == "1"
            assert kv_file.KvFile(tmp_path / "kv.json").load() == nameserver.kv
            (tmp_path / "kv.json.tmp").rmdir()
            (await peer.call(RequestCode.PUT_KV_CONFIG, **{**pair, "value": "2"})).raise_for_code()

    run(work())


def test_a_damaged_file_ends_the_start_and_leaves_nothing_open(tmp_path: Path) -> None:
    path = tmp_path / "kv.json"
    path.write_text("{")

    async def work() -> None:
        with pytest.raises(CorruptionError, match=r"kv\.json"):
            async with Nameserver(NameserverConfig(**LOCAL, kv_config_path=str(path))):
                pytest.fail("it started")

    run(work())
    assert path.read_text() == "{"


def test_a_changed_configuration_takes_effect_and_is_kept(tmp_path: Path) -> None:
    path = tmp_path / "namesrv.conf"
    path.write_text("listenPort=0\nbindAddress=127.0.0.1\nrocketmqHome=/opt/rocketmq\n")

    async def work() -> None:
        async with Nameserver.from_file(path) as nameserver, Peer(nameserver) as peer:
            change = b"enableAllTopicList=false\nconfigBlackList2=x"
            unknown = await peer.call(RequestCode.UPDATE_NAMESRV_CONFIG, change)
            assert unknown.code == ResponseCode.SYSTEM_ERROR
            for forbidden in (b"kvConfigPath=/x", b"configBlackList=", b"configStorePath=/x"):
                answer = await peer.call(RequestCode.UPDATE_NAMESRV_CONFIG, forbidden)
                assert answer.code == ResponseCode.NO_PERMISSION
            change = b"enableAllTopicList=false\nsupportActingMaster=true\n"
            (await peer.call(RequestCode.UPDATE_NAMESRV_CONFIG, change)).raise_for_code()

            listed = await peer.call(RequestCode.GET_ALL_TOPIC_LIST_FROM_NAMESERVER)
            assert (listed.code, listed.remark) == (ResponseCode.SYSTEM_ERROR, "disable")
            assert nameserver.table.options.acting_master
            shown = await peer.call(RequestCode.GET_NAMESRV_CONFIG)
            assert parse_properties(shown.body.decode())["supportActingMaster"] == "true"
            some = await peer.call(
                RequestCode.GET_CLIENT_CONFIG, fastjson.dumps({"keys": ["listenPort", "x"]})
            )
            assert parse_properties(some.body.decode()) == {"listenPort": "0"}

    run(work())
    assert NameserverConfig.from_properties(path).acting_master
    assert parse_properties(path.read_text())["rocketmqHome"] == "/opt/rocketmq"


def test_several_nameservers_live_on_one_loop() -> None:
    async def work() -> None:
        config = NameserverConfig(**LOCAL)
        async with Nameserver(config) as first, Nameserver(config) as second:
            assert first.address != second.address
            async with Peer(first) as one, Peer(second) as two:
                await one.register(0, "10.0.0.1:1")
                assert await one.route("orders") is not None
                assert await two.route("orders") is None
            host, port = first.address
            third = Nameserver(NameserverConfig(bind_address=host, listen_port=port))
            with pytest.raises(ArgumentError, match="cannot listen"):
                await third.start()

    run(work())


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT, signal.SIGHUP])
def test_the_process_announces_its_address_and_ends_at_a_signal(
    number: signal.Signals, tmp_path: Path
) -> None:
    path = tmp_path / "namesrv.conf"
    path.write_text("listenPort=0\nbindAddress=127.0.0.1\nrocketmqHome=/x\nuseTLS=false\n")

    address, errors = errors_until_signal(number, "namesrv", "-c", str(path))
    assert f"[namesrv {address}] started" in errors
    assert f"[namesrv {address}] closed" in errors
    assert "have no effect here: rocketmqHome, useTLS" in errors


def test_a_wrong_file_ends_the_process_with_all_its_mistakes(tmp_path: Path) -> None:
    path = tmp_path / "namesrv.conf"
    path.write_text("listenPort=x\nsupportActngMaster=true\n")
    errors = refusal("namesrv", "-c", str(path))
    assert "did you mean supportActingMaster?" in errors
    assert "listenPort: 'x' is not a whole number" in errors


def test_an_unknown_descriptor_ends_the_start() -> None:
    errors = refusal("namesrv", "--port", "0", "--ready-fd", "999")
    assert "--ready-fd 999 is not an open descriptor" in errors


def test_a_missing_file_is_named() -> None:
    with pytest.raises(ConfigError, match="cannot be read"):
        Nameserver.from_file(Path("missing.conf"))
