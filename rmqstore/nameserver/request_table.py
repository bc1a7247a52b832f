"""The request table of a nameserver: header, body and rights of each request code."""

from __future__ import annotations

from rmqstore.data_version import DataVersion
from rmqstore.remoting import fastjson
from rmqstore.remoting.bodies.data_version import data_version_of
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
from rmqstore.remoting.requests import Row, family, table
from rmqstore.remoting.rights import Action, every, on_cluster, on_topic

__all__ = ["ROWS"]


def _version(body: bytes) -> DataVersion:
    return data_version_of(fastjson.loads(body or b"null"))


def _route(body: bytes) -> TopicRoute:
    return TopicRoute.decode(body or b"null")


def _keys(body: bytes) -> tuple[str, ...]:
    return tuple(texts_of(object_of(fastjson.loads(body or b"null"), "keys").get("keys"), "keys"))


_OF_BROKER = (on_cluster(Action.UPDATE, field="cluster_name"),)
_SHOW, _CHANGE = (on_cluster(Action.GET),), (on_cluster(Action.UPDATE),)

ROWS = table(
    # The header of a registration says how its body is compressed.
    family(
        "registration",
        Row(RequestCode.REGISTER_BROKER, RegisterBrokerRequestHeader, rights=_OF_BROKER),
        Row(RequestCode.UNREGISTER_BROKER, BrokerRequestHeader, rights=_OF_BROKER),
        Row(
            RequestCode.QUERY_DATA_VERSION,
            BrokerRequestHeader,
            _version,
            rights=(on_cluster(Action.GET, field="cluster_name"),),
        ),
        Row(RequestCode.BROKER_HEARTBEAT, BrokerHeartbeatRequestHeader, rights=_OF_BROKER),
        Row(
            RequestCode.GET_BROKER_MEMBER_GROUP,
            GetBrokerMemberGroupRequestHeader,
            rights=(on_cluster(Action.GET, field="cluster_name"),),
        ),
        Row(RequestCode.GET_BROKER_CLUSTER_INFO, rights=_SHOW),
    ),
    family(
        "route",
        Row(
            RequestCode.GET_ROUTEINFO_BY_TOPIC,
            GetRouteInfoRequestHeader,
            rights=(on_topic(Action.PUB, Action.SUB, Action.GET),),
        ),
        Row(
            RequestCode.REGISTER_TOPIC_IN_NAMESRV,
            RegisterTopicRequestHeader,
            _route,
            rights=_CHANGE,
        ),
        Row(RequestCode.DELETE_TOPIC_IN_NAMESRV, DeleteTopicRequestHeader, rights=_CHANGE),
        Row(RequestCode.WIPE_WRITE_PERM_OF_BROKER, WritePermRequestHeader, rights=_CHANGE),
        Row(RequestCode.ADD_WRITE_PERM_OF_BROKER, WritePermRequestHeader, rights=_CHANGE),
    ),
    family(
        "topic",
        *(
            Row(code, header, rights=(on_topic(Action.LIST, names=every),))
            for code, header in (
                (RequestCode.GET_ALL_TOPIC_LIST_FROM_NAMESERVER, None),
                (RequestCode.GET_TOPICS_BY_CLUSTER, GetTopicsByClusterRequestHeader),
                (RequestCode.GET_SYSTEM_TOPIC_LIST_FROM_NS, None),
                (RequestCode.GET_UNIT_TOPIC_LIST, None),
                (RequestCode.GET_HAS_UNIT_SUB_TOPIC_LIST, None),
                (RequestCode.GET_HAS_UNIT_SUB_UNUNIT_TOPIC_LIST, None),
            )
        ),
    ),
    family(
        "kv",
        Row(RequestCode.PUT_KV_CONFIG, PutKvConfigRequestHeader, rights=_CHANGE),
        Row(RequestCode.GET_KV_CONFIG, KvKeyRequestHeader, rights=_SHOW),
        Row(RequestCode.DELETE_KV_CONFIG, KvKeyRequestHeader, rights=_CHANGE),
        Row(RequestCode.GET_KVLIST_BY_NAMESPACE, KvNamespaceRequestHeader, rights=_SHOW),
    ),
    family(
        "nameserver",
        Row(RequestCode.UPDATE_NAMESRV_CONFIG, body=settings_of, rights=_CHANGE),
        Row(RequestCode.GET_NAMESRV_CONFIG, rights=_SHOW),
        Row(RequestCode.GET_CLIENT_CONFIG, body=_keys, rights=_SHOW),
    ),
)
