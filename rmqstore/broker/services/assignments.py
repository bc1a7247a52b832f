"""The service that assigns queues to the consumers of a group."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Protocol

from rmqstore.broker.clients import ClientTable
from rmqstore.broker.handlers.assignments import AssignmentRequests
from rmqstore.broker.membership.roles import Role
from rmqstore.broker.operations.assignments import AssignmentOperation
from rmqstore.broker.operations.core import Core
from rmqstore.broker.services.service import Service
from rmqstore.broker.topic_routes import Host as HostOfRoutes
from rmqstore.broker.topic_routes import TopicRoutes
from rmqstore.remoting.requests import Handler

__all__ = ["Assignments", "Host"]


class Host(Core, HostOfRoutes, Protocol):
    """What the service needs of its broker."""


class Assignments(Service):
    """Assigns queues to the members of groups in *clients*. It runs in every standing: consumers
    send their heartbeats to slaves, too."""

    name = "assignments"

    def __init__(self, host: Host, clients: ClientTable) -> None:
        self._routes = TopicRoutes(host)
        self._requests = AssignmentRequests(AssignmentOperation(host, clients, self._routes))

    async def start(self, role: Role) -> None:
        """Routes are asked for by requests."""

    async def stop(self) -> None:
        await self._routes.close()

    def handlers(self) -> Mapping[int, Handler]:
        return self._requests.handlers()
