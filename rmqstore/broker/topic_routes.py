"""The queues of topics on all brokers, which nameservers are asked for when a client needs them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Protocol

from rmqstore.config import BrokerConfig
from rmqstore.errors import RemotingError, RequestRefused
from rmqstore.net.identity_log import IdentityLog
from rmqstore.net.runtime import Runtime, Task
from rmqstore.permissions import PERM_READ
from rmqstore.remoting.bodies.queue_name import QueueName
from rmqstore.remoting.bodies.route import TopicRoute
from rmqstore.remoting.codes import RequestCode, ResponseCode
from rmqstore.remoting.frames import Frame
from rmqstore.remoting.headers.routes import GetRouteInfoRequestHeader

__all__ = ["Host", "TopicRoutes"]

_CALL_S = 1.0
"""Longest wait for one nameserver: the first question of a Java client waits as long for all."""
_RENEWAL_S = 0.3
"""Longest wait for a newer route than the known one, which counts until there is a newer one."""
_TOPICS_MAX = 10_000
_QUEUES_MAX = 65_536
"""Of a topic on one broker, whatever its registration says."""


class Host(Protocol):
    """The part of a broker that routes need."""

    @property
    def config(self) -> BrokerConfig:
        """The settings."""

    @property
    def nameserver_addresses(self) -> tuple[str, ...]:
        """The nameservers, as "host:port"."""

    @property
    def log(self) -> IdentityLog:
        """The log of the broker."""

    @property
    def runtime(self) -> Runtime:
        """The world of the broker."""


@dataclass(frozen=True, slots=True)
class _Route:
    asked_ms: int
    queues: Mapping[str, int]
    """The number of readable queues, by the name of a broker."""


class TopicRoutes:
    """The routes of the topics that clients of one broker asked for last."""

    def __init__(self, host: Host) -> None:
        self._host = host
        self._runtime = host.runtime
        self._known: dict[str, _Route] = {}
        self._asking: dict[str, Task[None]] = {}
        self._tasks = host.runtime.tasks("routes of topics")

    async def close(self) -> None:
        """End the questions in progress."""
        await self._tasks.close()

    async def readable_queues(self, topic: str) -> list[QueueName] | None:
        """Return the queues of a topic on all brokers that consumers may read; None for a topic
        that the nameservers do not have, and while none of them answers. Raises RequestRefused
        without nameservers."""
        if not self._host.nameserver_addresses:
            raise RequestRefused(
                "this broker has no nameserver to ask for the brokers of a topic; set namesrvAddr",
                code=ResponseCode.SYSTEM_ERROR,
            )
        known, now_ms = self._known.get(topic), self._runtime.now_ms()
        if known is None or now_ms - known.asked_ms >= self._host.config.route_age_ms:
            await self._renew(topic, _RENEWAL_S if known else None)
            known = self._known.get(topic)
        if known is None:
            return None
        return [
            QueueName(topic, broker, number)
            for broker, count in known.queues.items()
            for number in range(count)
        ]

    async def _renew(self, topic: str, limit_s: float | None) -> None:
        """Asks for a route, once for all who wait for it; returns after *limit_s* at the latest."""
        work = self._asking.get(topic)
        if work is None:
            work = self._tasks.start(self._ask(topic), name=f"route of {topic}")
            self._asking[topic] = work
            work.add_done_callback(lambda _: self._asking.pop(topic, None))
        ended = self._runtime.event()
        work.add_done_callback(lambda _: ended.set())
        await ended.wait(limit_s)

    async def _ask(self, topic: str) -> None:
        header = GetRouteInfoRequestHeader(topic=topic, accept_standard_json_only=True)
        request = Frame.request(RequestCode.GET_ROUTEINFO_BY_TOPIC, header.to_fields())
        for address in self._host.nameserver_addresses:
            try:
                answer = await self._runtime.client.call(address, request, _CALL_S)
                if answer.code == ResponseCode.TOPIC_NOT_EXIST:
                    self._known.pop(topic, None)
                    return
                self._learn(topic, TopicRoute.decode(answer.raise_for_code().body))
                return
            except (RemotingError, ValueError) as error:
                self._host.log.warning("route of %s at %s: %s", topic, address, error)

    def _learn(self, topic: str, route: TopicRoute) -> None:
        queues = {
            each.broker_name: min(each.read_queues, _QUEUES_MAX)
            for each in route.queues
            if each.perm & PERM_READ
        }
        self._known.pop(topic, None)
        self._known[topic] = _Route(self._runtime.now_ms(), queues)
        if len(self._known) > _TOPICS_MAX:
            del self._known[next(iter(self._known))]
