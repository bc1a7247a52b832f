"""What all requests of an operator to brokers share: which brokers get one, and its results."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence

from rmqstore.admin.nameserver import NameserverAdmin
from rmqstore.admin.servers import Change
from rmqstore.errors import NotFoundError, RemotingError
from rmqstore.remoting.codes import RequestCode
from rmqstore.typed_calls import typed

__all__ = ["BrokerCalls"]


@typed()
class BrokerCalls(NameserverAdmin):
    """Finds brokers at the nameservers."""

    async def masters(self, cluster: str) -> Sequence[str]:
        """Return the addresses of the masters of a cluster. Raises NotFoundError without one."""
        return await self._addresses(cluster, only_masters=True)

    async def members(self, cluster: str) -> Sequence[str]:
        """Return the addresses of all live brokers of a cluster. Raises NotFoundError."""
        return await self._addresses(cluster, only_masters=False)

    async def _addresses(self, cluster: str, *, only_masters: bool) -> Sequence[str]:
        info = await self.cluster_list()
        found = [
            address
            for name in await self.broker_names(cluster)
            if name in info.brokers
            for broker_id, address in sorted(info.brokers[name].addresses.items())
            if broker_id == 0 or not only_masters
        ]
        if not found:
            raise NotFoundError(
                f"cluster {cluster!r} has no live master; list the brokers with: "
                "rmqstore admin clusterList"
            )
        return found

    async def _route_masters(self, topic: str) -> Sequence[str]:
        """Returns the brokers that a topic is read from: in each group the broker with the smallest
        id."""
        route = await self.topic_route(topic)
        return [
            each.addresses[min(each.addresses)]
            for each in sorted(route.brokers, key=lambda each: each.broker_name)
            if each.addresses
        ]

    async def _change_at(
        self,
        brokers: Sequence[str],
        code: RequestCode,
        fields: Mapping[str, str] | None,
        body: bytes = b"",
    ) -> Sequence[Change]:
        """Request a change from every broker, and return each result."""

        async def change(address: str) -> Change:
            try:
                answer = (await self._call(address, code, fields, body)).raise_for_code()
            except RemotingError as error:
                return Change(address, error)
            return Change(address, remark=answer.remark or None)

        return await asyncio.gather(*map(change, brokers))
