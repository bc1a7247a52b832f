"""The client service of a broker: its handlers, and their shared state from start to close."""

from __future__ import annotations

from rmqstore.broker.clients import ClientTable
from rmqstore.broker.context import Context
from rmqstore.broker.handlers.clients import ClientRequests
from rmqstore.broker.handlers.pull import PullRequests
from rmqstore.broker.handlers.queries import QueryRequests
from rmqstore.broker.handlers.refused import RefusedRequests
from rmqstore.broker.handlers.send import SendRequests
from rmqstore.broker.held_pulls import HeldPulls
from rmqstore.broker.serving import merged
from rmqstore.remoting.requests import Handler

__all__ = ["ClientService"]


class ClientService:
    """Serves producers and consumers of one broker, between `start` and `close`."""

    def __init__(self, context: Context) -> None:
        self._context = context
        self.clients = ClientTable()
        """The clients that are online."""
        self._pulls = PullRequests(context, self.clients)
        self._held = self._pulls.held = HeldPulls(
            look=self._pulls.look,
            give_up=self._pulls.give_up,
            end_of=self._pulls.end_of,
            now_ms=context.now_ms,
        )
        self._client_requests = ClientRequests(context, self.clients)
        self._parts = (
            SendRequests(context),
            self._pulls,
            QueryRequests(context),
            self._client_requests,
            RefusedRequests(context),
        )

    @property
    def held_pulls(self) -> int:
        """Pulls that wait for messages."""
        return len(self._held)

    def handlers(self) -> dict[int, Handler]:
        """Return every handler by request code."""
        return merged(self._parts)

    def start(self) -> None:
        """Begin, on the running loop, once the store is open."""
        self._held.start(self._context.store.store)
        self._client_requests.start()

    def role_changed(self) -> None:
        """Look at the held pulls: a broker that is no longer master must not answer them."""
        self._held.look_at_all()

    def close(self) -> None:
        """Drop held pulls and end timers, before the store closes. A second call does nothing."""
        self._held.close()
        self._client_requests.close()
