"""The rows of the design documents' compatibility tables that concern nameserver and controller."""

from __future__ import annotations

import asyncio

import pytest

from rmqstore.config import NameserverConfig
from rmqstore.data_version import DataVersion
from rmqstore.remoting import fastjson
from rmqstore.remoting.bodies.cluster import BrokerMemberGroup
from rmqstore.remoting.bodies.route import TopicRoute
from rmqstore.remoting.bodies.topic_config import TopicConfig, TopicTable
from rmqstore.remoting.codes import RequestCode, ResponseCode
from rmqstore.remoting.frames import Frame
from rmqstore.remoting.headers.registration import RegisterBrokerRequestHeader
from tests.support.nameserver_host import FakeHost, registration

GROUP_TOPIC = "rmq_sys_broker-a"
"""The topic by whose route a broker of 5.x finds its group at a nameserver before 5.0."""
TABLE = TopicTable(
    DataVersion(counter=1, timestamp_ms=1),
    {name: TopicConfig(name, 4, 4, 6) for name in ("orders", GROUP_TOPIC)},
)
MASTER, SLAVE = "10.0.0.1:10911", "10.0.0.2:10911"
EXPIRY_S = 120


class Cluster:
    """A nameserver and the brokers of one group, on one thread and with a clock of the test."""

    def __init__(self) -> None:
        self.host = FakeHost(NameserverConfig(acting_master=True))

    def ask(self, code: int, body: bytes = b"", *, connection: int = 9, **fields: str) -> Frame:
        return asyncio.run(
            self.host.answer(Frame.request(code, fields, body), connection=connection)
        )

    def register(self, broker_id: int, address: str, *, acting: bool | None) -> None:
        header = RegisterBrokerRequestHeader(
            broker_name="broker-a",
            broker_address=address,
            cluster_name="east",
            ha_address=address,
            broker_id=broker_id,
            enable_acting_master=acting,
        )
        frame = registration(header, TABLE)
        asyncio.run(self.host.answer(frame, connection=broker_id)).raise_for_code()

    def query_version(self, broker_id: int, address: str) -> str:
        """Send the heartbeat of brokers before 5.0; return whether to register again."""
        answer = self.ask(
            RequestCode.QUERY_DATA_VERSION,
            fastjson.dumps(TABLE.version.to_json()),
            connection=broker_id,
            brokerName="broker-a",
            brokerAddr=address,
            clusterName="east",
            brokerId=str(broker_id),
        )
        return answer.raise_for_code().ext_fields["changed"]

    def pass_seconds(self, seconds: int) -> None:
        """Scan each second; a longer step is taken for a process that was stopped."""
        for _ in range(seconds):
            self.host.time_ms += 1000
            self.host.carry_out(self.host.table.expire(self.host.time_ms))

    def addresses(self, topic: str) -> dict[int, str] | None:
        answer = self.ask(RequestCode.GET_ROUTEINFO_BY_TOPIC, topic=topic)
        if answer.code == ResponseCode.TOPIC_NOT_EXIST:
            return None
        [broker] = TopicRoute.decode(answer.raise_for_code().body).brokers
        return dict(broker.addresses)


@pytest.fixture
def cluster() -> Cluster:
    return Cluster()


def test_new_nameserver_serves_brokers_before_5_0(cluster: Cluster) -> None:
    """RIP-32: they register without a flag of the mode, and are never shown as acting masters."""
    cluster.register(0, MASTER, acting=None)
    cluster.register(1, SLAVE, acting=None)
    assert cluster.addresses("orders") == {0: MASTER, 1: SLAVE}
    cluster.ask(
        RequestCode.UNREGISTER_BROKER,
        brokerName="broker-a",
        brokerAddr=MASTER,
        clusterName="east",
        brokerId="0",
    ).raise_for_code()
    assert cluster.addresses("orders") == {1: SLAVE}


def test_light_heartbeat_of_old_brokers_keeps_them_registered(cluster: Cluster) -> None:
    cluster.register(0, MASTER, acting=None)
    for _ in range(4):
        cluster.pass_seconds(EXPIRY_S - 1)
        assert cluster.query_version(0, MASTER) == "false"
    cluster.pass_seconds(EXPIRY_S + 1)
    assert cluster.addresses("orders") is None
    assert cluster.query_version(0, MASTER) == "true"


def test_new_broker_in_its_mode_for_old_nameservers_finds_its_group(cluster: Cluster) -> None:
    """RIP-32, compatibleWithOldNameSrv: the group's topic and its own request name the same."""
    cluster.register(0, MASTER, acting=True)
    cluster.register(1, SLAVE, acting=True)
    answer = cluster.ask(
        RequestCode.GET_BROKER_MEMBER_GROUP, clusterName="east", brokerName="broker-a"
    )
    members = BrokerMemberGroup.decode(answer.raise_for_code().body).addresses
    assert members == cluster.addresses(GROUP_TOPIC) == {0: MASTER, 1: SLAVE}


@pytest.mark.parametrize(
    "code",
    [
        RequestCode.CONTROLLER_GET_METADATA_INFO,
        RequestCode.CONTROLLER_GET_NEXT_BROKER_ID,
        RequestCode.CONTROLLER_APPLY_BROKER_ID,
        RequestCode.CONTROLLER_REGISTER_BROKER,
        RequestCode.CONTROLLER_ELECT_MASTER,
    ],
)
def test_nameserver_without_controller_refuses_what_controller_brokers_need(
    code: RequestCode, cluster: Cluster
) -> None:
    """RIP-44: such a broker cannot go online; the request is refused, not half answered.

    A nameserver with a controller in it serves these on the controller's port alone:
    tests/service/test_controller_process.py.
    """
    assert code not in cluster.host.handlers
