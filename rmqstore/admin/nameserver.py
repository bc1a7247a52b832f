"""The requests of an operator to nameservers, under the names of mqadmin.

    async with NameserverAdmin("10.0.0.1:9876;10.0.0.2:9876") as admin:
        route = await admin.topic_route("orders")

A query goes to the first nameserver that answers. A change goes to all nameservers, because they do
not know each other; the result names those that refused the change or could not be reached.
"""

from __future__ import annotations

import asyncio
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass

from rmqstore.admin.servers import Change, ServerAdmin
from rmqstore.config import format_properties
from rmqstore.errors import NotFoundError, RemotingError
from rmqstore.exports import renamed_parameter
from rmqstore.net.addresses import Address
from rmqstore.net.tls import TlsClient
from rmqstore.remoting.bodies.cluster import ClusterInfo
from rmqstore.remoting.bodies.epochs import EpochCache
from rmqstore.remoting.bodies.route import BrokerData, TopicRoute
from rmqstore.remoting.bodies.tables import TopicList
from rmqstore.remoting.codes import RequestCode, ResponseCode
from rmqstore.remoting.headers.kv import (
    GetKvConfigResponseHeader,
    KvKeyRequestHeader,
    PutKvConfigRequestHeader,
)
from rmqstore.remoting.headers.routes import (
    AddWritePermResponseHeader,
    GetRouteInfoRequestHeader,
    GetTopicsByClusterRequestHeader,
    WipeWritePermResponseHeader,
    WritePermRequestHeader,
)
from rmqstore.typed_calls import typed

__all__ = ["NAMESERVER_PORT", "BrokerEpochs", "NameserverAdmin"]

NAMESERVER_PORT = 9876
"""The port of an address without one."""


@dataclass(frozen=True, slots=True)
class BrokerEpochs:
    """The epochs of one broker, or the reason why they are unknown."""

    cluster: str
    broker_name: str
    broker_id: int
    """The id at the nameserver: 0 is the master."""
    address: str
    cache: EpochCache | None
    error: RemotingError | None = None


@typed()
class NameserverAdmin(ServerAdmin):
    """Sends requests to the nameservers of *addresses*, "host:port" separated by `;`, or one pair.

    Each call takes *timeout* seconds at most for each nameserver. *tls* makes connections use
    TLS. Raises ArgumentError for an invalid address. The calls raise RemotingError where no
    nameserver answers, or where the answer is a refusal.
    """

    @renamed_parameter("timeout_s", "timeout")
    def __init__(
        self, addresses: str | Address, *, timeout: float = 5.0, tls: TlsClient | None = None
    ) -> None:
        super().__init__(
            addresses,
            server="nameserver",
            default_port=NAMESERVER_PORT,
            timeout=timeout,
            tls=tls,
        )

    async def topic_list(self, cluster: str | None = None) -> Sequence[str]:
        """Return the names of all topics, or of those in one cluster, sorted."""
        code = RequestCode.GET_ALL_TOPIC_LIST_FROM_NAMESERVER
        fields = None
        if cluster is not None:
            code = RequestCode.GET_TOPICS_BY_CLUSTER
            fields = GetTopicsByClusterRequestHeader(cluster=cluster).to_fields()
        answer = await self._query(code, fields)
        return sorted(TopicList.decode(answer.raise_for_code().body).topics)

    async def cluster_list(self) -> ClusterInfo:
        """Return the live brokers."""
        answer = await self._query(RequestCode.GET_BROKER_CLUSTER_INFO)
        return ClusterInfo.decode(answer.raise_for_code().body)

    async def topic_route(self, topic: str) -> TopicRoute:
        """Return the route of a topic. Raises NotFoundError for an unknown one."""
        header = GetRouteInfoRequestHeader(topic=topic)
        answer = await self._query(RequestCode.GET_ROUTEINFO_BY_TOPIC, header.to_fields())
        if answer.code == ResponseCode.TOPIC_NOT_EXIST:
            raise NotFoundError(
                f"topic {topic!r} has no route; list the topics with: rmqstore admin topicList"
            )
        return TopicRoute.decode(answer.raise_for_code().body)

    async def get_namesrv_config(self) -> Mapping[str, Mapping[str, str]]:
        """Return the configuration of every nameserver by its address."""
        return await self._configurations(RequestCode.GET_NAMESRV_CONFIG)

    async def update_namesrv_config(self, key: str, value: str) -> Sequence[Change]:
        """Change one key of every nameserver's configuration."""
        body = format_properties({key: value}).encode()
        return await self._change(RequestCode.UPDATE_NAMESRV_CONFIG, None, body)

    async def get_kv_config(self, namespace: str, key: str) -> str:
        """Return the value of a pair. Raises NotFoundError where there is no such pair."""
        header = KvKeyRequestHeader(namespace=namespace, key=key)
        answer = await self._query(RequestCode.GET_KV_CONFIG, header.to_fields())
        if answer.code == ResponseCode.QUERY_NOT_FOUND:
            raise NotFoundError(f"namespace {namespace!r} has no key {key!r}")
        answer.raise_for_code()
        return GetKvConfigResponseHeader.from_fields(answer.ext_fields).value or ""

    async def update_kv_config(self, namespace: str, key: str, value: str) -> Sequence[Change]:
        """Add or replace a pair at every nameserver."""
        header = PutKvConfigRequestHeader(namespace=namespace, key=key, value=value)
        return await self._change(RequestCode.PUT_KV_CONFIG, header.to_fields())

    async def delete_kv_config(self, namespace: str, key: str) -> Sequence[Change]:
        """Remove a pair at every nameserver."""
        header = KvKeyRequestHeader(namespace=namespace, key=key)
        return await self._change(RequestCode.DELETE_KV_CONFIG, header.to_fields())

    async def wipe_write_perm(self, broker_name: str) -> Sequence[Change]:
        """Clear the write permission of all topics of a broker name, at every nameserver."""
        return await self._change(
            RequestCode.WIPE_WRITE_PERM_OF_BROKER,
            WritePermRequestHeader(broker_name=broker_name).to_fields(),
            topic_count=lambda fields: WipeWritePermResponseHeader.from_fields(fields).topic_count,
        )

    async def add_write_perm(self, broker_name: str) -> Sequence[Change]:
        """Set read and write permission of all topics of a broker name, at every nameserver."""
        return await self._change(
            RequestCode.ADD_WRITE_PERM_OF_BROKER,
            WritePermRequestHeader(broker_name=broker_name).to_fields(),
            topic_count=lambda fields: AddWritePermResponseHeader.from_fields(fields).topic_count,
        )

    async def broker_names(self, cluster: str | None = None) -> Sequence[str]:
        """Return the names of the broker groups with a live broker, or of those in one cluster.

        Raises NotFoundError for a cluster without live brokers.
        """
        info = await self.cluster_list()
        if cluster is None:
            return sorted(info.brokers)
        if cluster not in info.clusters:
            raise NotFoundError(
                f"cluster {cluster!r} has no live broker; list the brokers with: "
                "rmqstore admin clusterList"
            )
        return sorted(info.clusters[cluster])

    async def broker_epochs(self, names: Collection[str]) -> Sequence[BrokerEpochs]:
        """Return the epochs of the live brokers of the groups *names*, as the brokers report them.

        Raises NotFoundError where the nameserver knows no such broker.
        """
        info = await self.cluster_list()
        unknown = sorted(set(names) - info.brokers.keys())
        if unknown:
            raise NotFoundError(
                f"broker group {unknown[0]!r} has no live broker; list the brokers with: "
                "rmqstore admin clusterList"
            )
        places = [
            (info.brokers[name], number, address)
            for name in sorted(names)
            for number, address in sorted(info.brokers[name].addresses.items())
        ]
        return await asyncio.gather(*(self._epochs_of(*place) for place in places))

    async def _epochs_of(self, group: BrokerData, broker_id: int, address: str) -> BrokerEpochs:
        cache, failure = None, None
        try:
            cache = await self.epoch_cache(address)
        except RemotingError as error:
            failure = error
        return BrokerEpochs(group.cluster, group.broker_name, broker_id, address, cache, failure)
