"""Two clusters with the same history: each has a nameserver, a master and a slave, of ours or of
Java."""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path

from rmqstore.broker.node import Broker
from rmqstore.config import BrokerRole, NameserverConfig
from rmqstore.nameserver.server import Nameserver
from rmqstore.net.addresses import format_address
from rmqstore.remoting import fastjson
from rmqstore.remoting.bodies.clients import ConsumerData, HeartbeatData, SubscriptionData
from rmqstore.remoting.client import RemotingClient
from rmqstore.remoting.codes import LanguageCode, RequestCode, ResponseCode
from rmqstore.remoting.connection import RemotingConnection
from rmqstore.remoting.frames import Frame
from rmqstore.store.metadata import GroupConfig, TopicConfig
from tests.support.brokers import broker_config
from tests.support.java_broker import JavaSide
from tests.support.java_cluster import CLUSTER, GROUP
from tests.support.sends import send_request
from tests.support.waiting import until

__all__ = ["Side", "java_cluster", "our_cluster"]

CALL_S = 60.0
_MESSAGES = 6
_JAVA: Mapping[str, object] = {
    # Without it a deletion of a topic fails in RocketMQ.
    "timerWheelEnable": "true",
}


@dataclass(slots=True)
class Side:
    """One cluster."""

    namesrv: str
    broker: str
    slave: str
    names: dict[str, str] = field(default_factory=dict)
    """What the braces of a command stand for."""
    beat: Callable[[], Awaitable[Frame]] = field(init=False)
    """Keeps the clients of the history online for two minutes."""

    def line(self, text: str) -> list[str]:
        """Return the words of a command."""
        known = {
            "namesrv": self.namesrv,
            "broker": self.broker,
            "slave": self.slave,
            "cluster": CLUSTER,
            "group": GROUP,
            **self.names,
        }
        return text.format(**known).split()


@asynccontextmanager
async def our_cluster(root: Path) -> AsyncIterator[Side]:
    """Run servers of ours within the block."""
    async with Nameserver(NameserverConfig(bind_address="127.0.0.1", listen_port=0)) as server:
        namesrv = format_address(server.address)
        common = {"name": GROUP, "cluster_name": CLUSTER, "nameservers": (namesrv,)}
        master = broker_config(root / "master", **common)
        slave = broker_config(root / "slave", broker_id=1, broker_role=BrokerRole.SLAVE, **common)
        async with Broker(master) as broker:
            await broker.registered()
            async with Broker(slave) as second:
                await second.registered()
                addresses = map(format_address, (broker.address, second.address))
                async with _with_history(Side(namesrv, *addresses), root) as side:
                    yield side


@asynccontextmanager
async def java_cluster(java: JavaSide, root: Path) -> AsyncIterator[Side]:
    """Run servers of Java within the block."""
    namesrv = await java.nameserver()
    broker = await java.broker(namesrv, brokerId=0, brokerRole="ASYNC_MASTER", **_JAVA)
    slave = await java.broker(namesrv, brokerId=1, brokerRole="SLAVE", **_JAVA)
    async with _with_history(Side(namesrv, broker, slave), root) as side:
        yield side


@asynccontextmanager
async def _with_history(side: Side, root: Path) -> AsyncIterator[Side]:
    """Give a cluster its history; its clients c1 and p1 stay online within the block."""
    handlers = dict.fromkeys(_ANSWERS, _answer)
    async with RemotingClient(handlers=handlers) as client:

        async def call(frame: Frame) -> Frame:
            answer = await client.call(side.broker, frame, CALL_S)
            assert answer.code == ResponseCode.SUCCESS, (frame, answer.remark)
            return answer

        for topic, queues in (("T", 2), ("U", 1)):
            await call(Frame.request(RequestCode.UPDATE_AND_CREATE_TOPIC, _topic(topic, queues)))
        for group in ("g", "h", "idle"):
            body = fastjson.dumps(GroupConfig(group, retries_max=3).members())
            await call(Frame(RequestCode.UPDATE_AND_CREATE_SUBSCRIPTIONGROUP, body=body))
        for number in range(_MESSAGES):
            key = f"0123456789ABCDEF0123456789ABC{number:03}"
            properties = {"KEYS": f"k{number}", "TAGS": "even odd".split()[number % 2]}
            sent = await call(
                send_request("T", b"body", {"UNIQ_KEY": key, **properties}, queue_id=number % 2)
            )
            side.names |= {f"id{number}": sent.ext_fields["msgId"], f"key{number}": key}
        beat = Frame(RequestCode.HEART_BEAT, body=_HEARTBEAT.encode())
        beat.language = LanguageCode.JAVA
        side.beat = partial(call, beat)
        await side.beat()
        for group, queue, offset in (("g", 0, 2), ("g", 1, 3), ("h", 0, 1)):
            fields = {"consumerGroup": group, "topic": "T", "queueId": str(queue)}
            fields["commitOffset"] = str(offset)
            await call(Frame.request(RequestCode.UPDATE_CONSUMER_OFFSET, fields))

        root.mkdir(parents=True, exist_ok=True)
        await _copied(client, side)
        lists = {
            "groups": [GroupConfig(each).members() for each in ("v", "w")],
            "topics": [TopicConfig(each, 2, 2).members() for each in ("V1", "V2")],
        }
        for name, members in lists.items():
            file = root / f"{name}.json"
            file.write_bytes(fastjson.dumps(members))
            side.names[name] = str(file)
        yield side


async def _copied(client: RemotingClient, side: Side) -> None:
    """Return once the slave has the log of its master."""
    status = Frame(RequestCode.GET_BROKER_HA_STATUS)

    async def is_copied() -> bool:
        answer = await client.call(side.broker, status, CALL_S)
        slaves = fastjson.loads(answer.body).get("haConnectionInfo", [])
        return any(each["diff"] == 0 and each["slaveAckOffset"] > 0 for each in slaves)

    await until(is_copied, "the slave has the log", pause=0.1)


def _topic(name: str, queues: int) -> dict[str, str]:
    return {
        "topic": name,
        "defaultTopic": "TBW102",
        "readQueueNums": str(queues),
        "writeQueueNums": str(queues),
        "perm": "6",
        "topicFilterType": "SINGLE_TAG",
        "topicSysFlag": "0",
        "order": "false",
    }


_HEARTBEAT = HeartbeatData(
    client_id="c1",
    consumers=(
        ConsumerData(
            group="g",
            subscriptions=(
                SubscriptionData(topic="T", version=5),
                SubscriptionData(topic="%RETRY%g", version=5),
            ),
        ),
        # It has committed nothing.
        ConsumerData(group="new", subscriptions=(SubscriptionData(topic="T", version=5),)),
    ),
    producers=("pg",),
)
_QUEUE = b'{"brokerName":"%b","queueId":0,"topic":"T"}' % GROUP.encode()
_ANSWERS: Mapping[int, bytes] = {
    RequestCode.GET_CONSUMER_RUNNING_INFO: b'{"properties":{"PROP_CLIENT_VERSION":"V5_3_3",'
    b'"PROP_CONSUME_TYPE":"CONSUME_PASSIVELY","PROP_CONSUMEORDERLY":"false",'
    b'"PROP_CONSUMER_START_TIMESTAMP":"1700000000000"},"subscriptionSet":[{"topic":"T",'
    b'"subString":"*","subVersion":5,"expressionType":"TAG"}],"statusTable":{},'
    b'"mqTable":{%b:{"commitOffset":2,"cachedMsgCount":1}}}' % _QUEUE,
    RequestCode.GET_CONSUMER_STATUS_FROM_CLIENT: b'{"messageQueueTable":{%b:2}}' % _QUEUE,
    RequestCode.CONSUME_MESSAGE_DIRECTLY: b'{"autoCommit":true,"consumeResult":"CR_SUCCESS",'
    b'"order":false,"spentTimeMills":1}',
}


def _answer(connection: RemotingConnection, request: Frame) -> Frame:
    return request.respond(ResponseCode.SUCCESS, body=_ANSWERS[request.code])
