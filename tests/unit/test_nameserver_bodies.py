"""Bodies of the nameserver's requests and answers."""

from __future__ import annotations

import struct
import zlib

import pytest

from rmqstore.data_version import DataVersion
from rmqstore.errors import RemotingFrameError
from rmqstore.remoting import fastjson
from rmqstore.remoting.bodies.cluster import BrokerMemberGroup, ClusterInfo
from rmqstore.remoting.bodies.registration import (
    INFLATED_BYTES_MAX,
    RegisterBrokerBody,
    body_crc32,
)
from rmqstore.remoting.bodies.route import BrokerData, QueueData, TopicRoute
from rmqstore.remoting.bodies.tables import KvTable, TopicList
from rmqstore.remoting.bodies.topic_config import TopicConfig, TopicTable

ADDRESSES = {0: "127.0.0.1:10911", 1: "127.0.0.1:11911"}
BROKER = BrokerData("broker-a", "DefaultCluster", ADDRESSES)
ROUTE = TopicRoute([BROKER], [QueueData("broker-a", 4, 4, 6)])

# As Java 5.3.3 wrote them.
ROUTE_JSON = (
    b'{"brokerDatas":[{"brokerAddrs":{0:"127.0.0.1:10911",1:"127.0.0.1:11911"},'
    b'"brokerName":"broker-a","cluster":"DefaultCluster","enableActingMaster":false}],'
    b'"filterServerTable":{},"queueDatas":[{"brokerName":"broker-a","perm":6,"readQueueNums":4,'
    b'"topicSysFlag":0,"writeQueueNums":4}]}'
)
CLUSTER_JSON = (
    b'{"brokerAddrTable":{"broker-a":{"brokerAddrs":{0:"127.0.0.1:10911",1:"127.0.0.1:11911"},'
    b'"brokerName":"broker-a","cluster":"DefaultCluster","enableActingMaster":false}},'
    b'"clusterAddrTable":{"DefaultCluster":["broker-a"]}}'
)
GROUP_JSON = (
    b'{"brokerMemberGroup":{"brokerAddrs":{0:"127.0.0.1:10911",1:"127.0.0.1:11911"},'
    b'"brokerName":"broker-a","cluster":"DefaultCluster"}}'
)
REGISTER_JSON = (
    b'{"filterServerList":[],"topicConfigSerializeWrapper":{"dataVersion":{"counter":5,'
    b'"stateVersion":3,"timestamp":1700000000000},"mappingDataVersion":{"counter":0,'
    b'"stateVersion":0,"timestamp":1700000000000},"topicConfigTable":{"TopicTest":{"attributes":{},'
    b'"order":false,"perm":6,"readQueueNums":4,"topicFilterType":"SINGLE_TAG",'
    b'"topicName":"TopicTest","topicSysFlag":0,"writeQueueNums":4}},'
    b'"topicQueueMappingDetailMap":{},"topicQueueMappingInfoMap":{}}}'
)


def test_routes_are_written_as_java_writes_them() -> None:
    assert ROUTE.encode(standard=False) == ROUTE_JSON
    standard = ROUTE_JSON.replace(b"{0:", b'{"0":').replace(b",1:", b',"1":')
    assert ROUTE.encode(standard=True) == standard


@pytest.mark.parametrize("standard", [False, True])
def test_routes_are_read_in_either_form(standard: bool) -> None:
    route = TopicRoute(
        (BrokerData("bröker", "c", {0: "a:1", 2: "b:2"}, True, "zone 1"),),
        (QueueData("bröker", 1, 2, 4, 8),),
        {"a:1": ("f:1",)},
        "bröker:4",
        {"bröker": {"bname": "bröker", "totalQueues": 4}},
    )
    encoded = route.encode(standard=standard)
    assert encoded.isascii() == standard
    assert TopicRoute.decode(encoded) == route


def test_broker_lists_are_written_as_java_writes_them() -> None:
    info = ClusterInfo({"broker-a": BROKER}, {"DefaultCluster": ("broker-a",)})
    assert info.encode() == CLUSTER_JSON
    assert ClusterInfo.decode(CLUSTER_JSON) == info
    group = BrokerMemberGroup("DefaultCluster", "broker-a", ADDRESSES)
    assert group.encode() == GROUP_JSON
    assert BrokerMemberGroup.decode(GROUP_JSON) == group


def test_small_tables_are_read_back() -> None:
    assert TopicList.decode(b'{"topicList":["T"]}') == TopicList(("T",))
    topics = TopicList(("T", "U"), "a:1")
    assert TopicList.decode(topics.encode()) == topics
    assert KvTable({"a": "b"}).encode() == b'{"table":{"a":"b"}}'
    assert KvTable.decode(b'{"table":{"a":"b"}}') == KvTable({"a": "b"})


def test_a_registration_is_read_and_written_as_java_has_it() -> None:
    body = RegisterBrokerBody.decode(REGISTER_JSON, compressed=False, version=479)
    assert body.filter_servers == ()
    assert body.table.version == DataVersion(counter=5, state_version=3, timestamp_ms=1700000000000)
    assert body.table.topics == {"TopicTest": TopicConfig("TopicTest", 4, 4, 6)}
    assert fastjson.loads(body.encode()) == fastjson.loads(REGISTER_JSON)


def test_missing_parts_of_a_registration_have_the_defaults_of_java() -> None:
    assert RegisterBrokerBody.decode(b"", compressed=False, version=479) == RegisterBrokerBody()
    minimum = b'{"topicConfigSerializeWrapper":{"topicConfigTable":{"T":{"perm":4}}}}'
    body = RegisterBrokerBody.decode(minimum, compressed=False, version=479)
    assert body.table.topics == {"T": TopicConfig("T", 16, 16, 4)}
    assert body.table.version == DataVersion()


def test_a_sender_before_3_0_11_registers_a_bare_topic_table() -> None:
    bare = b'{"dataVersion":{"counter":2,"timestamp":1},"topicConfigTable":{"T":{"perm":6}}}'
    body = RegisterBrokerBody.decode(bare, compressed=False, version=36)
    assert body.table.version == DataVersion(counter=2, timestamp_ms=1)
    assert set(body.table.topics) == {"T"}
    assert body.filter_servers is None


MAPPED = RegisterBrokerBody(
    TopicTable(
        DataVersion(counter=1, state_version=2, timestamp_ms=3),
        {
            "T": TopicConfig("T", 1, 2, 6, attributes={"message.type": "FIFO AND MORE"}),
            "U": TopicConfig("U", 4, 4, 4),
        },
        mappings={"T": {"topic": "T", "bname": "broker-a", "currIdMap": {"0": 0}}},
    ),
    ("f:1",),
)


@pytest.mark.parametrize("declared", [True, False])
def test_a_compressed_registration_is_read_whatever_its_header_declares(declared: bool) -> None:
    encoded = MAPPED.encode(compressed=True)
    assert RegisterBrokerBody.decode(encoded, compressed=declared, version=479) == MAPPED


def test_a_compressed_registration_before_5_0_ends_after_the_filter_servers() -> None:
    whole = zlib.decompress(RegisterBrokerBody(MAPPED.table, ()).encode(compressed=True))
    at = whole.rindex(b"[]") + 2
    body = RegisterBrokerBody.decode(zlib.compress(whole[:at]), compressed=True, version=412)
    assert body.table.topics == MAPPED.table.topics
    assert body.table.mappings == {}


def test_a_checksum_has_no_sign_bit() -> None:
    assert zlib.crc32(b"a") > 0x7FFFFFFF
    assert body_crc32(b"a") == zlib.crc32(b"a") & 0x7FFFFFFF


def test_every_cut_of_a_compressed_registration_is_refused() -> None:
    whole = zlib.decompress(MAPPED.encode(compressed=True))
    for end in range(len(whole)):
        with pytest.raises(RemotingFrameError):
            RegisterBrokerBody.decode(zlib.compress(whole[:end]), compressed=True, version=479)
    encoded = MAPPED.encode(compressed=True)
    for end in range(1, len(encoded)):
        with pytest.raises(RemotingFrameError):
            RegisterBrokerBody.decode(encoded[:end], compressed=True, version=479)


def test_a_body_that_inflates_without_end_is_refused() -> None:
    maker = zlib.compressobj(9)
    block = bytes(1 << 20)
    bomb = b"".join([maker.compress(block) for _ in range((INFLATED_BYTES_MAX >> 20) + 1)])
    with pytest.raises(RemotingFrameError, match="inflates to more than the limit"):
        RegisterBrokerBody.decode(bomb + maker.flush(), compressed=True, version=479)


@pytest.mark.parametrize(
    "content",
    [
        struct.pack(">i", -1),
        struct.pack(">i", 1 << 30),
        struct.pack(">i2si", 2, b"{}", -5),
        struct.pack(">i2si", 2, b"{}", 1 << 30),
        struct.pack(">i2sii5s", 2, b"{}", 1, 5, b"T 1 1"),
        struct.pack(">i2sii4s", 2, b"{}", 1, 4, b"\xff\xff\xff\xff"),
        struct.pack(">i2sii25s", 2, b"{}", 1, 25, b"T 4 2147483648 6 SINGLE_T"),
        struct.pack(">i2s", 2, b"[]"),
    ],
)
def test_wrong_lengths_and_topics_are_refused_by_name(content: bytes) -> None:
    with pytest.raises(RemotingFrameError):
        RegisterBrokerBody.decode(zlib.compress(content), compressed=True, version=479)


@pytest.mark.parametrize(
    "body",
    [
        b"[]",
        b"7",
        b"{",
        b'{"topicConfigSerializeWrapper":7}',
        b'{"topicConfigSerializeWrapper":{"topicConfigTable":[]}}',
        b'{"topicConfigSerializeWrapper":{"topicConfigTable":{"T":7}}}',
        b'{"topicConfigSerializeWrapper":{"topicConfigTable":{"T":{"perm":"all"}}}}',
        b'{"topicConfigSerializeWrapper":{"topicConfigTable":{"T":{"perm":6.5}}}}',
        b'{"topicConfigSerializeWrapper":{"dataVersion":{"counter":{}}}}',
        b'{"filterServerList":{}}',
        b'{"filterServerList":[7]}',
    ],
)
def test_bodies_of_another_shape_are_refused(body: bytes) -> None:
    with pytest.raises(RemotingFrameError):
        RegisterBrokerBody.decode(body, compressed=False, version=479)


@pytest.mark.parametrize(
    "body",
    [
        *(b"[]", b'{"brokerDatas":[{"brokerAddrs":{"a":"b"}}]}', b'{"queueDatas":[{"perm":"x"}]}'),
        b'{"brokerDatas":[{"brokerAddrs":{"9223372036854775808":"b"}}]}',
        b'{"queueDatas":[{"perm":2147483648}]}',
    ],
)
def test_routes_of_another_shape_are_refused(body: bytes) -> None:
    with pytest.raises(RemotingFrameError):
        TopicRoute.decode(body)


@pytest.mark.parametrize(
    ("field", "high"),
    [
        *(("perm", 2**31 - 1), ("readQueueNums", 2**31 - 1), ("writeQueueNums", 2**31 - 1)),
        *(("topicSysFlag", 2**31 - 1), ("counter", 2**63 - 1), ("stateVersion", 2**63 - 1)),
    ],
)
@pytest.mark.parametrize("sign", [1, -1])
def test_numbers_beyond_the_range_of_their_type_are_refused(
    field: str, high: int, sign: int
) -> None:
    table = {"dataVersion": {field: 0}, "topicConfigTable": {"T": {field: 0}, "U": {}}}
    body = fastjson.dumps({"topicConfigSerializeWrapper": table})
    last = high if sign > 0 else -high - 1
    for value, text in ((last, f"{last}"), (last, f'"{last}"')):
        given = body.replace(b'"%s":0' % field.encode(), f'"{field}":{text}'.encode())
        found = RegisterBrokerBody.decode(given, compressed=False, version=479).table
        assert str(value) in str(found.to_json())
    beyond = body.replace(b'"%s":0' % field.encode(), f'"{field}":{last + sign}'.encode())
    with pytest.raises(RemotingFrameError, match=rf"{field}: .* bits; send a smaller one"):
        RegisterBrokerBody.decode(beyond, compressed=False, version=479)
