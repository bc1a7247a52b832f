"""The service for clients that are online: their heartbeats, their expiry, notices to groups."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from rmqstore.broker.clients import ClientTable
from rmqstore.broker.context import Context
from rmqstore.broker.handlers.clients import ClientRequests
from rmqstore.broker.membership.roles import Role
from rmqstore.broker.services.service import Service
from rmqstore.net.metrics import Family, gauge
from rmqstore.remoting.requests import Handler

__all__ = ["Clients"]


class Clients(Service):
    """Keeps the table of clients. It runs in every standing: a client stays known while the role of
    its broker changes."""

    name = "clients"

    def __init__(self, context: Context) -> None:
        self.table = ClientTable()
        """The clients that are online."""
        self._requests = ClientRequests(context, self.table)

    async def start(self, role: Role) -> None:
        self._requests.start()

    async def stop(self) -> None:
        self._requests.stop()

    def metrics(self) -> Iterable[Family]:
        yield gauge(
            "rmqstore_mixed_groups",
            "consumer groups whose members subscribe to different messages",
            [({}, len(self.table.mixed_groups))],
        )

    def handlers(self) -> Mapping[int, Handler]:
        return self._requests.handlers()
