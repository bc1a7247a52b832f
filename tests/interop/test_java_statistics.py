"""Counters and information of a running broker, beside those of a Java broker with the same
history."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from rmqstore.broker.node import Broker
from rmqstore.config import NameserverConfig
from rmqstore.nameserver.server import Nameserver
from rmqstore.net.addresses import format_address
from rmqstore.remoting.bodies.clients import ConsumerData, HeartbeatData, SubscriptionData
from rmqstore.remoting.bodies.counters import CounterBody
from rmqstore.remoting.bodies.tables import KvTable
from rmqstore.remoting.client import RemotingClient
from rmqstore.remoting.codes import RequestCode, ResponseCode
from rmqstore.remoting.frames import Frame
from rmqstore.remoting.headers.pull import PullFlag, PullMessageRequestHeader
from tests.support.brokers import broker_config
from tests.support.java_broker import JavaSide, java_side
from tests.support.java_cluster import CLUSTER, GROUP, LIMIT_S
from tests.support.loops import on_loop
from tests.support.releases import NEW, with_release
from tests.support.sends import send_request
from tests.support.waiting import until

_OWN_KEYS = {"getTransferedTps", "brokerVersion"}
"""The name in RocketMQ 4, which its exporter for Prometheus reads, and a key that 5.3.3 has."""
_MESSAGES = 7
_COUNTERS = (
    ("TOPIC_PUT_NUMS", "T"),
    ("TOPIC_PUT_SIZE", "T"),
    ("GROUP_GET_NUMS", "T@cg"),
    ("GROUP_GET_SIZE", "T@cg"),
    ("TOPIC_PUT_NUMS", "SCHEDULE_TOPIC_XXXX"),
)


def _heartbeat() -> Frame:
    subscription = SubscriptionData(topic="T", version=5, expression="*")
    consumer = ConsumerData(group="cg", subscriptions=(subscription,))
    body = HeartbeatData(client_id="c", consumers=(consumer,)).encode()
    return Frame.request(RequestCode.HEART_BEAT, {}, body)


def _pull() -> Frame:
    header = PullMessageRequestHeader(
        consumer_group="cg",
        topic="T",
        queue_id=0,
        queue_offset=0,
        max_messages=32,
        sys_flag=PullFlag.SUBSCRIPTION,
        commit_offset=0,
        suspend_timeout_ms=0,
        subscription="*",
        subscription_version=0,
        expression_type="TAG",
    )
    return Frame.request(RequestCode.PULL_MESSAGE, header.to_fields())


class _Place:
    """A broker at an address."""

    def __init__(self, client: RemotingClient, address: str) -> None:
        self._client = client
        self._address = address

    async def call(self, request: Frame) -> Frame:
        return await self._client.call(self._address, request, 60.0)

    async def play(self) -> None:
        """Send messages, two of them delayed, and pull those that are not; the first of those that
        are is delivered."""
        for number in range(_MESSAGES):
            request = send_request("T", b"message %d" % number, default_topic_queues=1)
            assert (await self.call(request)).code == ResponseCode.SUCCESS
        for topic, level in (("D", "1"), ("T", "18")):
            delayed = send_request(topic, b"later", {"DELAY": level}, default_topic_queues=1)
            assert (await self.call(delayed)).code == ResponseCode.SUCCESS
        assert (await self.call(_heartbeat())).code == ResponseCode.SUCCESS

        async def is_pulled() -> bool:
            return (await self.call(_pull())).code == ResponseCode.SUCCESS

        async def is_delivered() -> bool:
            return (await self.info()).get("scheduleMessageOffset_1") == "1,1"

        await until(is_pulled, "the messages are in their queue", timeout=LIMIT_S, pause=0.5)
        await until(is_delivered, "a message is delivered", timeout=LIMIT_S, pause=0.1)

    async def counted(self, name: str, key: str) -> CounterBody:
        fields = {"statsName": name, "statsKey": key}
        request = Frame.request(RequestCode.VIEW_BROKER_STATS_DATA, fields)
        return CounterBody.decode((await self.call(request)).raise_for_code().body)

    async def info(self) -> Mapping[str, str]:
        request = Frame.request(RequestCode.GET_BROKER_RUNTIME_INFO)
        return KvTable.decode((await self.call(request)).raise_for_code().body).table


def _kind(value: str) -> str:
    """Returns what a text is: a number, numbers, or a text."""
    parts = value.replace(",", " ").split()
    try:
        return f"{min(len(parts), 2)} numbers" if [float(each) for each in parts] else "text"
    except ValueError:
        return "text"


def _kinds(info: Mapping[str, str]) -> dict[str, str]:
    ratio = "commitLogDiskRatio_"
    return {
        ratio if key.startswith(ratio) else key: _kind(value)
        for key, value in info.items()
        # RocketMQ has rates of 1, 6 and 10 minutes only once it runs for as long.
        if not key.endswith("Tps") and key != "putMessageDistributeTime"
    }


async def _compared(java: JavaSide, root: Path) -> None:
    namesrv_config = NameserverConfig(bind_address="127.0.0.1", listen_port=0)
    async with Nameserver(namesrv_config) as server, RemotingClient() as client:
        namesrv = format_address(server.address)
        theirs = _Place(client, await java.broker(namesrv, timerWheelEnable="true"))
        config = broker_config(
            root, name=GROUP + "-ours", cluster_name=CLUSTER, nameservers=(namesrv,)
        )
        async with Broker(config) as broker:
            ours = _Place(client, format_address(broker.address))
            for place in (ours, theirs):
                await place.play()

            # RocketMQ counts what its sample of every ten seconds has seen.
            async def is_sampled() -> bool:
                counters = [await theirs.counted(*each) for each in _COUNTERS]
                return all(each.minute.total for each in counters)

            await until(is_sampled, "RocketMQ has sampled its counters", timeout=LIMIT_S, pause=0.5)
            for name, key in _COUNTERS:
                own, other = await ours.counted(name, key), await theirs.counted(name, key)
                assert own.day.mean == other.minute.mean, name
                assert own.day.total == other.minute.total, name

            own_info, other_info = await ours.info(), await theirs.info()
            for key in ("msgPutTotalTodayNow", "msgGetTotalTodayNow", "putMessageTimesTotal"):
                assert own_info[key] == other_info[key], key
            own_kinds, other_kinds = _kinds(own_info), _kinds(other_info)
            assert own_kinds.keys() - _OWN_KEYS == other_kinds.keys() - _OWN_KEYS
            assert {key: own_kinds[key] for key in other_kinds} == other_kinds

            for _ in range(3):
                assert (await ours.call(send_request("O", b"ours"))).code == ResponseCode.SUCCESS
            await broker.registered()
            printed = await java.admin("statsAll", "-n", namesrv, "-t", "O")
            [line] = [each.split() for each in printed.splitlines() if each.startswith("O ")]
            topic, lag, rate, total, groups = line
            assert (topic, lag, total, groups) == ("O", "0", "3", "NO_CONSUMER")
            assert float(rate) > 0


@with_release(NEW)
@on_loop
async def test_counters_and_information_are_those_of_a_java_broker(
    java_release: str, tmp_path: Path
) -> None:
    with java_side(java_release, tmp_path / "java") as java:
        await _compared(java, tmp_path / "ours")
