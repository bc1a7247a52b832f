"""The service that holds pulls of consumers until messages come."""

from __future__ import annotations

from collections.abc import Hashable, Mapping

from rmqstore.broker.clients import ClientTable
from rmqstore.broker.context import Context
from rmqstore.broker.handlers.pull import PullRequests
from rmqstore.broker.held_pulls import HeldPulls
from rmqstore.broker.membership.roles import Role
from rmqstore.broker.services.service import Service
from rmqstore.remoting.requests import Handler

__all__ = ["Pulls"]


class Pulls(Service):
    """Serves pulls of the consumers in *clients*, and holds those that find no message.

    At the end of a run each held pull is looked at: one that the new standing does not serve is
    answered, the others are held on.
    """

    name = "held pulls"

    def __init__(self, context: Context, clients: ClientTable) -> None:
        self._context = context
        self._requests = PullRequests(context, clients)
        self.held = self._requests.held = HeldPulls(
            context.runtime,
            look=self._requests.look,
            give_up=self._requests.give_up,
            end_of=self._requests.end_of,
        )
        """The pulls that wait for messages."""
        self.broadcasts = self._requests.broadcasts
        """The consumers that broadcast."""

    def term(self, role: Role) -> Hashable:
        return role.standing, role.epoch

    async def start(self, role: Role) -> None:
        self.held.start(self._context.store.store)

    async def stop(self) -> None:
        self.held.look_at_all()
        self.held.stop()

    def handlers(self) -> Mapping[int, Handler]:
        return self._requests.handlers()
