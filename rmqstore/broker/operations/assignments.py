"""The assignment of queues to the consumers of a group, by this broker in place of the clients."""

from __future__ import annotations

from typing import NamedTuple

from rmqstore.broker.assignments import STRATEGIES, popped_share, share
from rmqstore.broker.clients import BROADCASTING, ClientTable
from rmqstore.broker.operations.core import Core
from rmqstore.broker.topic_routes import TopicRoutes
from rmqstore.remoting.bodies.assignments import AssignmentQuery
from rmqstore.remoting.bodies.queue_name import QueueName
from rmqstore.store.metadata import RequestMode
from rmqstore.topic_names import LIGHT_PREFIX, RETRY_PREFIX

__all__ = ["Assigned", "AssignmentOperation"]

_POP = "POP"


class Assigned(NamedTuple):
    """The queues of one consumer, and how it gets their messages."""

    mode: str
    """PULL or POP."""
    queues: list[QueueName] | None
    """None: the consumer keeps those that it has."""
    reason: str = ""
    """Why there are none."""


class AssignmentOperation:
    """Assigns the queues that *routes* has to the members of groups in *clients*."""

    def __init__(self, core: Core, clients: ClientTable, routes: TopicRoutes) -> None:
        self._core = core
        self._clients = clients
        self._routes = routes

    async def assign(self, query: AssignmentQuery) -> Assigned:
        """Return the share of a consumer. Raises RequestRefused without nameservers."""
        mode = self._mode_of(query.topic, query.group)
        queues = await self._queues_of(query)
        if not queues:
            reason = f"no nameserver has readable queues of the topic {query.topic}"
            return Assigned(mode.mode, None, reason)
        is_shared = query.message_model != BROADCASTING and self._core.config.balances_load
        if not is_shared:
            return Assigned(mode.mode, queues)

        group = self._clients.consumer_group(query.group)
        if group is None:
            reason = f"no consumer of the group {query.group} is online at this broker"
            return Assigned(mode.mode, None, reason)
        strategy = STRATEGIES.get(query.strategy)
        if strategy is None:
            known = ", ".join(STRATEGIES)
            reason = f"the strategy {query.strategy!r} is not known here; use one of {known}"
            return Assigned(mode.mode, None, reason)

        members = [each.client_id for each in group.members.values()]
        if mode.mode != _POP:
            return Assigned(mode.mode, share(strategy, query.client_id, members, queues))
        shared_with = mode.pop_share_queue_count
        found = popped_share(strategy, query.client_id, members, queues, shared_with=shared_with)
        return Assigned(mode.mode, found)

    async def _queues_of(self, query: AssignmentQuery) -> list[QueueName] | None:
        if query.message_model != BROADCASTING and query.topic.startswith(LIGHT_PREFIX):
            return [QueueName(query.topic, self._core.config.name, 0)]
        return await self._routes.readable_queues(query.topic)

    def _mode_of(self, topic: str, group: str) -> RequestMode:
        """Returns the mode that an operator has set, the one of the configuration without it."""
        known = self._core.metadata.request_mode(topic, group)
        if known is not None:
            return known
        config = self._core.config
        # Messages that clients send back come through a retry topic, which is not popped.
        mode = "PULL" if topic.startswith(RETRY_PREFIX) else config.default_request_mode
        return RequestMode(topic, group, mode, config.default_pop_share_queues)
