"""A nameserver that gets recorded requests with fields and bodies changed: it answers each."""

from __future__ import annotations

import asyncio
import os
from random import Random

from rmqstore.config import NameserverConfig
from rmqstore.nameserver.routes import NotifyMinBrokerId
from rmqstore.remoting import fastjson
from rmqstore.remoting.bodies.cluster import ClusterInfo
from rmqstore.remoting.bodies.route import TopicRoute
from rmqstore.remoting.codes import RequestCode, ResponseCode
from rmqstore.remoting.frames import Frame, FrameDecoder, encode
from tests.golden.remoting import every_exchange
from tests.service.changed_requests import changed
from tests.support.effort import rounds
from tests.support.nameserver_host import FakeHost

SEED = int(os.environ.get("RMQ_SEED", "20261125"))
COUNT = rounds(1500, 50_000)
CONNECTIONS = 5
SCAN_MS = 5_000

# What no program asked for in the recorded sessions.
_PAIR = {"namespace": "n", "key": "k"}
_OTHERS = [
    Frame.request(RequestCode.PUT_KV_CONFIG, {**_PAIR, "value": "v"}),
    *(
        Frame.request(code, _PAIR)
        for code in (RequestCode.GET_KV_CONFIG, RequestCode.DELETE_KV_CONFIG)
    ),
    Frame.request(RequestCode.GET_KVLIST_BY_NAMESPACE, {"namespace": "n"}),
    Frame.request(RequestCode.GET_TOPICS_BY_CLUSTER, {"cluster": "PeerCluster"}),
    Frame.request(
        RequestCode.DELETE_TOPIC_IN_NAMESRV, {"topic": "T", "clusterName": "PeerCluster"}
    ),
    Frame.request(
        RequestCode.REGISTER_TOPIC_IN_NAMESRV,
        {"topic": "T"},
        b'{"queueDatas":[{"brokerName":"broker-a","perm":6,"readQueueNums":4,"writeQueueNums":4}]}',
    ),
    Frame.request(RequestCode.UPDATE_NAMESRV_CONFIG, body=b"scanNotActiveBrokerInterval=5000\n"),
    *(
        Frame.request(code, {"brokerName": "broker-a"})
        for code in (RequestCode.WIPE_WRITE_PERM_OF_BROKER, RequestCode.ADD_WRITE_PERM_OF_BROKER)
    ),
    *(
        Frame.request(code)
        for code in (
            RequestCode.GET_NAMESRV_CONFIG,
            RequestCode.GET_CLIENT_CONFIG,
            RequestCode.GET_SYSTEM_TOPIC_LIST_FROM_NS,
            RequestCode.GET_UNIT_TOPIC_LIST,
            RequestCode.GET_HAS_UNIT_SUB_TOPIC_LIST,
            RequestCode.GET_HAS_UNIT_SUB_UNUNIT_TOPIC_LIST,
        )
    ),
]
_VALUES = ("T", "PeerTopic", "127.0.0.2:41100", "127.0.0.2:41200", "\U0001f600", "n", "k")
_BODIES = (
    b'{"topicConfigSerializeWrapper":{"topicConfigTable":{"T":{"perm":2147483648}}}}',
    b'{"topicConfigSerializeWrapper":{"dataVersion":{"counter":9223372036854775808}}}',
    b'{"topicConfigSerializeWrapper":{"topicConfigTable":{"T":{"perm":7},"U":{"perm":1e9}}}}',
    b'{"queueDatas":[{"brokerName":"broker-a","perm":' + b"9" * 4000 + b"}]}",
    b"x\x9c\x03\x00\x00\x00\x00\x01",
)


async def _run(rng: Random, host: FakeHost) -> set[int]:
    recorded = [
        request
        for each in every_exchange()
        if each.told.get("to") == "namesrv"
        for request in FrameDecoder().feed(each.request)
    ]
    requests = [*recorded, *_OTHERS]
    assert {each.code for each in requests} == host.handlers.keys()
    codes: set[int] = set()
    for _ in range(COUNT):
        request = changed(rng, rng.choice(requests), values=_VALUES, bodies=_BODIES)
        request.ext_fields.pop("bodyCrc32", None)
        host.time_ms += rng.randrange(2 * SCAN_MS)
        answer = await host.answer(request, connection=rng.randrange(CONNECTIONS))
        assert len(answer.remark or "") < 1000
        assert FrameDecoder().feed(encode(answer))[0].code == answer.code
        codes.add(answer.code)
        if rng.random() < 0.1:
            host.carry_out(host.table.expire(host.time_ms))
    return codes


def test_changed_requests_are_answered_and_leave_a_sound_table() -> None:
    host = FakeHost(NameserverConfig(acting_master=True, notify_min_broker_id=True))
    codes = asyncio.run(_run(Random(SEED), host))
    assert {ResponseCode.SUCCESS, ResponseCode.INVALID_PARAMETER} < codes
    assert any(isinstance(each, NotifyMinBrokerId) for each in host.effects)

    # Java reads every answer: numbers are in the range of their types.
    info = ClusterInfo.decode(host.table.cluster_info().encode())
    assert info.brokers
    for topic in host.table.topics().topics:
        route = host.table.route(topic)
        assert route is not None
        assert fastjson.loads(route.encode(standard=True)) == fastjson.loads(
            route.encode(standard=False)
        )
        assert list(TopicRoute.decode(route.encode(standard=True)).queues) == route.queues
    for connection in range(CONNECTIONS):
        host.table.connection_closed(connection)
    assert (host.table.topics().topics, dict(host.table.cluster_info().brokers)) == ((), {})
