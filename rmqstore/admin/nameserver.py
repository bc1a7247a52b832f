"""The requests of an operator to nameservers, under the names of mqadmin.

    async with NameserverAdmin("10.0.0.1:9876;10.0.0.2:9876") as admin:
        route = await admin.topic_route("orders")

A question goes to the first nameserver that answers. A change goes to all of them, because
nameservers do not know each other; the result names those that refused it or could not be reached.
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Self

from rmqstore.config import format_properties, parse_properties
from rmqstore.errors import ArgumentError, NotFoundError, RemotingError
from rmqstore.net.addresses import format_address, parse_address
from rmqstore.remoting.bodies.cluster import ClusterInfo
from rmqstore.remoting.bodies.route import TopicRoute
from rmqstore.remoting.bodies.tables import TopicList
from rmqstore.remoting.client import RemotingClient
from rmqstore.remoting.codes import RequestCode, ResponseCode
from rmqstore.remoting.frames import Frame
from rmqstore.remoting.headers.kv import KvKeyRequestHeader, PutKvConfigRequestHeader
from rmqstore.remoting.headers.routes import (
    AddWritePermResponseHeader,
    GetRouteInfoRequestHeader,
    GetTopicsByClusterRequestHeader,
    WipeWritePermResponseHeader,
    WritePermRequestHeader,
)

__all__ = ["NAMESERVER_PORT", "Change", "NameserverAdmin"]

NAMESERVER_PORT = 9876
"""The port of an address without one."""


@dataclass(frozen=True, slots=True)
class Change:
    """The result of a change at one nameserver."""

    address: str
    error: RemotingError | None = None
    """Why the change was not made, None when it was."""
    topic_count: int | None = None
    """The topics whose permission changed, of a change of permissions."""


class NameserverAdmin:
    """Sends requests to the nameservers of *addresses*, "host:port" separated by `;`.

    Each call takes *timeout_s* seconds at most for each nameserver. Raises ArgumentError for an
    invalid address. The calls raise RemotingError where no nameserver answers, or where the answer
    is a refusal.
    """

    def __init__(self, addresses: str, *, timeout_s: float = 5.0) -> None:
        parts = [part.strip() for part in addresses.split(";") if part.strip()]
        if not parts:
            raise ArgumentError(
                f"{addresses!r} contains no address; give nameservers such as 10.0.0.1:9876"
            )
        places = [parse_address(part, default_port=NAMESERVER_PORT) for part in parts]
        self.addresses = tuple(map(format_address, places))
        self._timeout_s = timeout_s
        self._client = RemotingClient()

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self._client.close()

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
        found = {}
        for address in self.addresses:
            request = Frame.request(RequestCode.GET_NAMESRV_CONFIG)
            answer = await self._client.call(address, request, self._timeout_s)
            found[address] = parse_properties(answer.raise_for_code().body.decode())
        return found

    async def update_namesrv_config(self, key: str, value: str) -> Sequence[Change]:
        """Change one key of every nameserver's configuration."""
        body = format_properties({key: value}).encode()
        return await self._change(RequestCode.UPDATE_NAMESRV_CONFIG, None, body)

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
        header = WritePermRequestHeader(broker_name=broker_name)
        return await self._change(RequestCode.WIPE_WRITE_PERM_OF_BROKER, header.to_fields())

    async def add_write_perm(self, broker_name: str) -> Sequence[Change]:
        """Set read and write permission of all topics of a broker name, at every nameserver."""
        header = WritePermRequestHeader(broker_name=broker_name)
        return await self._change(RequestCode.ADD_WRITE_PERM_OF_BROKER, header.to_fields())

    async def _query(self, code: int, fields: Mapping[str, str] | None = None) -> Frame:
        """Return the answer of the first nameserver that answers, with any code."""
        errors = []
        for address in self.addresses:
            try:
                return await self._client.call(
                    address, Frame.request(code, fields), self._timeout_s
                )
            except RemotingError as error:
                errors.append(error)
        if len(errors) == 1:
            raise errors[0]
        raise RemotingError("no nameserver answered: " + "; ".join(map(str, errors)))

    async def _change(
        self, code: int, fields: Mapping[str, str] | None, body: bytes = b""
    ) -> Sequence[Change]:
        async def change(address: str) -> Change:
            try:
                request = Frame.request(code, fields, body)
                answer = await self._client.call(address, request, self._timeout_s)
                answer.raise_for_code()
                return Change(address, topic_count=_topic_count(code, answer.ext_fields))
            except RemotingError as error:
                return Change(address, error)

        return await asyncio.gather(*map(change, self.addresses))


def _topic_count(code: int, fields: Mapping[str, str]) -> int | None:
    if code == RequestCode.WIPE_WRITE_PERM_OF_BROKER:
        return WipeWritePermResponseHeader.from_fields(fields).topic_count
    if code == RequestCode.ADD_WRITE_PERM_OF_BROKER:
        return AddWritePermResponseHeader.from_fields(fields).topic_count
    return None
