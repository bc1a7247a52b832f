"""The request table of a nameserver: header and body of each request code."""

from __future__ import annotations

from rmqstore.remoting import fastjson
from rmqstore.remoting.bodies.data_version import DataVersion
from rmqstore.remoting.bodies.properties import settings_of
from rmqstore.remoting.bodies.route import TopicRoute
from rmqstore.remoting.bodies.values import object_of, texts_of
from rmqstore.remoting.codes import RequestCode
from rmqstore.remoting.headers.kv import (
    KvKeyRequestHeader,
    KvNamespaceRequestHeader,
    PutKvConfigRequestHeader,
)
from rmqstore.remoting.headers.registration import (
    BrokerHeartbeatRequestHeader,
    BrokerRequestHeader,
    GetBrokerMemberGroupRequestHeader,
    RegisterBrokerRequestHeader,
)
from rmqstore.remoting.headers.routes import (
    DeleteTopicRequestHeader,
    GetRouteInfoRequestHeader,
    GetTopicsByClusterRequestHeader,
    RegisterTopicRequestHeader,
    WritePermRequestHeader,
)
from rmqstore.remoting.requests import Row, table

__all__ = ["ROWS"]


def _version(body: bytes) -> DataVersion:
    return DataVersion.of(fastjson.loads(body or b"null"))


def _route(body: bytes) -> TopicRoute:
    return TopicRoute.decode(body or b"null")


def _keys(body: bytes) -> tuple[str, ...]:
    return tuple(texts_of(object_of(fastjson.loads(body or b"null"), "keys").get("keys"), "keys"))


ROWS = table(
    [
        # Brokers. The header of a registration says how its body is compressed.
        Row(RequestCode.REGISTER_BROKER, RegisterBrokerRequestHeader),
        Row(RequestCode.UNREGISTER_BROKER, BrokerRequestHeader),
        Row(RequestCode.QUERY_DATA_VERSION, BrokerRequestHeader, _version),
        Row(RequestCode.BROKER_HEARTBEAT, BrokerHeartbeatRequestHeader),
        Row(RequestCode.GET_BROKER_MEMBER_GROUP, GetBrokerMemberGroupRequestHeader),
        Row(RequestCode.GET_BROKER_CLUSTER_INFO),
        # Topics.
        Row(RequestCode.GET_ROUTEINFO_BY_TOPIC, GetRouteInfoRequestHeader),
        Row(RequestCode.REGISTER_TOPIC_IN_NAMESRV, RegisterTopicRequestHeader, _route),
        Row(RequestCode.DELETE_TOPIC_IN_NAMESRV, DeleteTopicRequestHeader),
        Row(RequestCode.GET_ALL_TOPIC_LIST_FROM_NAMESERVER),
        Row(RequestCode.GET_TOPICS_BY_CLUSTER, GetTopicsByClusterRequestHeader),
        Row(RequestCode.GET_SYSTEM_TOPIC_LIST_FROM_NS),
        Row(RequestCode.GET_UNIT_TOPIC_LIST),
        Row(RequestCode.GET_HAS_UNIT_SUB_TOPIC_LIST),
        Row(RequestCode.GET_HAS_UNIT_SUB_UNUNIT_TOPIC_LIST),
        Row(RequestCode.WIPE_WRITE_PERM_OF_BROKER, WritePermRequestHeader),
        Row(RequestCode.ADD_WRITE_PERM_OF_BROKER, WritePermRequestHeader),
        # Key-value configuration.
        Row(RequestCode.PUT_KV_CONFIG, PutKvConfigRequestHeader),
        Row(RequestCode.GET_KV_CONFIG, KvKeyRequestHeader),
        Row(RequestCode.DELETE_KV_CONFIG, KvKeyRequestHeader),
        Row(RequestCode.GET_KVLIST_BY_NAMESPACE, KvNamespaceRequestHeader),
        # Configuration.
        Row(RequestCode.UPDATE_NAMESRV_CONFIG, body=settings_of),
        Row(RequestCode.GET_NAMESRV_CONFIG),
        Row(RequestCode.GET_CLIENT_CONFIG, body=_keys),
    ]
)
