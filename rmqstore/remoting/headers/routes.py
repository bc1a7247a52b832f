"""Headers of requests about topics and permissions at a nameserver."""

from __future__ import annotations

from rmqstore.remoting.headers.field import Header, boolean, header, int32, string
from rmqstore.remoting.headers.rpc import TopicRequestHeader

__all__ = [
    "AddWritePermResponseHeader",
    "DeleteTopicRequestHeader",
    "GetRouteInfoRequestHeader",
    "GetTopicsByClusterRequestHeader",
    "RegisterTopicRequestHeader",
    "WipeWritePermResponseHeader",
    "WritePermRequestHeader",
]


@header
class GetRouteInfoRequestHeader(TopicRequestHeader):
    """GET_ROUTEINFO_BY_TOPIC (105)."""

    topic: str = string("topic")
    accept_standard_json_only: bool | None = boolean("acceptStandardJsonOnly", default=None)
    zone_mode: bool = boolean("__ZONE_MODE", default=False)
    zone_name: str | None = string("__ZONE_NAME", default=None)


@header
class RegisterTopicRequestHeader(TopicRequestHeader):
    """REGISTER_TOPIC_IN_NAMESRV (217); the body is a route with only queues."""

    topic: str = string("topic")


@header
class DeleteTopicRequestHeader(Header):
    """DELETE_TOPIC_IN_NAMESRV (216), in all clusters or in one."""

    topic: str = string("topic")
    cluster_name: str | None = string("clusterName", default=None)


@header
class GetTopicsByClusterRequestHeader(Header):
    """GET_TOPICS_BY_CLUSTER (224)."""

    cluster: str = string("cluster")


@header
class WritePermRequestHeader(Header):
    """WIPE_WRITE_PERM_OF_BROKER (205) and ADD_WRITE_PERM_OF_BROKER (327)."""

    broker_name: str = string("brokerName")


@header
class WipeWritePermResponseHeader(Header):
    """The number of topics of the broker name."""

    topic_count: int = int32("wipeTopicCount")


@header
class AddWritePermResponseHeader(Header):
    """The number of topics of the broker name."""

    topic_count: int = int32("addTopicCount")
